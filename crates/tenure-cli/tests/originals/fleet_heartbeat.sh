#!/bin/sh
# The heartbeat of the original script: writes the record anew and moves it over whatever stands at
# the path, also where nothing stands any more.
#
# fleet_heartbeat.sh FILE REQUEST_ID
lock=$1 id=$2
new=$lock.$id.tmp
name=$(basename "$lock" .lock)
now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
cat >"$new" <<END
{"lock_version":"v1","lock_name":"$name","request_id":"$id","actor":"script","intent":"deploy",
"intent_version":"1.0.0","host_id":"here","pid":$$,"created_at":"$now","last_heartbeat_at":"$now",
"ttl_seconds":900}
END
mv -f "$new" "$lock"
