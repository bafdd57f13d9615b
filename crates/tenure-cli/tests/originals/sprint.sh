#!/bin/sh
# The sprint mutex as its original text takes it: look whether the file is there and its process
# runs, write a temporary file of a fixed name, move it over the path.
#
# sprint.sh FILE SESSION PID [GATE]: exit 0 "acquired", 1 "blocked", 2 "failed". With a GATE it says
# "looked" once it has found the lock free, and writes only when the file GATE is there.
lock=$1 session=$2 pid=$3 gate=$4
echo ready
read -r _
if [ -e "$lock" ]; then
	holder=$(sed -n 's/^pid: *//p' "$lock" 2>/dev/null)
	if [ -n "$holder" ] && kill -0 "$holder" 2>/dev/null; then
		echo blocked
		exit 1
	fi
fi
if [ -n "$gate" ]; then
	echo looked
	while [ ! -e "$gate" ]; do sleep 0.01; done
fi
cat >"$lock.tmp" <<END
pid: $pid
session_id: $session
started_at: "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
epic_spec: epic5
lock_version: 1
END
mv "$lock.tmp" "$lock" 2>/dev/null || { echo failed; exit 2; }
echo acquired
