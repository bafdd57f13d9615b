#!/bin/sh
# Shows on what has started this run that a run works on it: `reaction.sh add` puts 👀 there, and
# `reaction.sh remove` takes it away again. That is the comment, else the issue or pull request; a review
# takes no reactions. NUMBER is the issue or pull request, COMMENT the id of the comment. Without a number
# there is nothing to mark.
#
# A file notes what this run has added. So no run takes away what another one has put there, and a second
# `remove` does nothing.
set -eu

if [ -z "${NUMBER:-}" ]; then
  exit 0
fi
case "${GITHUB_EVENT_NAME:-}" in
  issue_comment) place="issues/comments/$COMMENT" ;;
  pull_request_review_comment) place="pulls/comments/$COMMENT" ;;
  *) place="issues/$NUMBER" ;;
esac
place="repos/$GITHUB_REPOSITORY/$place/reactions"
noted=${RUNNER_TEMP:-${TMPDIR:-/tmp}}/reaction-${GITHUB_RUN_ID:-0}

case "${1:-}" in
  add)
    id=$(gh api --method POST "$place" -f content=eyes --jq .id)
    echo "$id" >"$noted"
    ;;
  remove)
    if [ -e "$noted" ]; then
      id=$(cat "$noted")
      gh api --silent --method DELETE "$place/$id"
      rm -f "$noted"
    fi
    ;;
  *)
    echo "usage: reaction.sh add|remove" >&2
    exit 2
    ;;
esac
