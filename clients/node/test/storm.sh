#!/bin/sh
# The shell among the programs of storm.js: takes locks by `tenure run`, with the witness that all of them have.
#
#   storm.sh FOLDER
folder=$1

# shellcheck disable=SC2016 # The dollars are those of the shells that read it.
# Sets `since` to the start of a process that lives and is not exiting (PF_EXITING, 4), else to nothing.
look='
    look() {
        since=
        stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
        set -- ${stat##*) }
        case $1 in Z | X) return 0 ;; esac
        [ $(($7 & 4)) -ne 0 ] || since=${20}
    }'

# shellcheck disable=SC2016
work='
    file=$1/$TENURE_NAME.witness
    look $$
    own="$$ $since"
    until (set -C && printf %s "$own" >"$file") 2>/dev/null; do
        pid= began=
        read -r pid began <"$file"
        [ -z "$pid" ] || { look "$pid"; [ "$since" != "$began" ] || echo "DOUBLE $$ $TENURE_NAME beside $pid" >>"$1/log"; }
        rm -f "$file"
    done
    echo "$TENURE_TOKEN" >>"$1/$TENURE_NAME.tokens"
    sleep 0.01
    rm "$file"
    echo "held $$" >>"$1/log"'

number=$$
while [ ! -e "$folder/stop" ]; do
    number=$(((number * 75 + 74) % 65537))
    case $((number % 3)) in 0) name=one ;; 1) name=two ;; *) name=three ;; esac
    "$TENURE_BIN" run -q -w 30s "$name" -- sh -c "$look$work" sh "$folder" 2>/dev/null
done
