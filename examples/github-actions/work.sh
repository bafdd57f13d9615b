#!/bin/sh
# One run of the agent: the work, a commit of what it changed, and a push to the branch that all runs
# share. The shell runs what $AGENT says; everything else is as it stands.
set -eu

# 👀 for as long as the run works, and no longer: also when it fails or is asked to end. A run does its work
# without the mark, too.
here=$(dirname "$0")
trap 'sh "$here/reaction.sh" remove || :' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
sh "$here/reaction.sh" add || :

# Under the lock: this run may have waited for its turn since its checkout, and the run before it has pushed.
git fetch --quiet origin "$(git symbolic-ref --short HEAD)"
git reset --quiet --hard FETCH_HEAD

sh -c "${AGENT:?AGENT is the command that does the work}"

git add --all
if git diff --cached --quiet; then
  echo "nothing has changed"
  exit 0
fi
git -c user.name="${AGENT_NAME:-agent}" -c user.email="${AGENT_EMAIL:-agent@users.noreply.github.com}" \
  commit --quiet --message "Run ${GITHUB_RUN_ID:-by hand}"

# A rebase makes the commits anew, and needs a committer.
export GIT_COMMITTER_NAME="${AGENT_NAME:-agent}"
export GIT_COMMITTER_EMAIL="${AGENT_EMAIL:-agent@users.noreply.github.com}"
tenure push --attempts 5 --backoff 1s
