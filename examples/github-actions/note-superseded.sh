#!/bin/sh
# Tells the readers of the issue that this run has made way for a newer one. NUMBER is the issue or
# pull request; without one there is no place to tell it. Comments that are made with the token of a
# workflow start no further runs.
set -eu

if [ -z "${NUMBER:-}" ]; then
  exit 0
fi
gh api --silent "repos/$GITHUB_REPOSITORY/issues/$NUMBER/comments" \
  -f body="Previous agent run was superseded by a newer message. Processing the latest message now."
