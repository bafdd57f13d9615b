#!/bin/sh
# Tells the readers of the issue why this run has ended: a newer one took over, or somebody cancelled it. NUMBER is the
# issue or pull request; without one there is no place to tell it. Comments that are made with the token of a workflow
# start no further runs.
set -eu

if [ -z "${NUMBER:-}" ]; then
  exit 0
fi
case "${TENURE_SUPERSEDED_KIND:-newer_run}" in
  cancel)
    body="This agent run was cancelled by ${TENURE_SUPERSEDED_ACTOR:-an operator}${TENURE_SUPERSEDED_WHY:+: $TENURE_SUPERSEDED_WHY}."
    ;;
  *)
    body="Previous agent run was superseded by a newer message. Processing the latest message now."
    ;;
esac
gh api --silent "repos/$GITHUB_REPOSITORY/issues/$NUMBER/comments" -f body="$body"
