#!/bin/sh
# A fleet lock as its original script creates one: a temporary file is written and moved to the
# path without replacing (`mv`), or linked there (`ln`). Whether that worked is looked at
# afterwards, which the original script does not do.
#
# fleet.sh mv|ln FILE REQUEST_ID: exit 0 "acquired", 1 "held".
how=$1 lock=$2 id=$3
new=$lock.$id.tmp
name=$(basename "$lock" .lock)
echo ready
read -r _
now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
cat >"$new" <<END
{"lock_version":"v1","lock_name":"$name","request_id":"$id","actor":"script","intent":"deploy",
"intent_version":"1.0.0","host_id":"here","pid":$$,"created_at":"$now","last_heartbeat_at":"$now",
"ttl_seconds":900}
END
case $how in
mv)
	mv -n "$new" "$lock" 2>/dev/null
	[ -e "$new" ] && { rm -f "$new"; echo held; exit 1; }
	;;
ln)
	ln "$new" "$lock" 2>/dev/null || { rm -f "$new"; echo held; exit 1; }
	rm -f "$new"
	;;
esac
echo acquired
