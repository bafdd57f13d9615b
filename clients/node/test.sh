#!/usr/bin/env bash
# Tests the package for Node with a program `tenure`: its own tests, the types, the check for clients in any language, the
# original tests of proper-lockfile, and a storm.
#
#   clients/node/test.sh          TENURE_BIN, else target/debug/tenure
#   clients/node/test.sh long     the storm for a minute with 32 programs of Node, then with 32 of Python and 16 shells beside
#                                 them, and a minute of proper-lockfile's stress
#   clients/node/test.sh fetch    only fetches what the tests need
#
# What the tests need beyond Node comes from npm and from Debian's sources into target/tools. Nothing of it is committed.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
exec </dev/null

# shellcheck source=scripts/install-tools
. scripts/install-tools
# shellcheck source=clients/side-by-side
. clients/side-by-side
use_cargo_bin

readonly TYPESCRIPT_VERSION=7.0.2
readonly NODE_TYPES_VERSION=20.19.43
readonly PROPER_LOCKFILE_VERSION=4.1.2
readonly PROPER_LOCKFILE_HASH=d25ad71714c9cdd8c7669a7a004976a79b01252367aef796a28f15235ae4b635
# What the original tests are run by, and what they ask for.
readonly PROPER_LOCKFILE_NEEDS=(
    jest@29.7.0 graceful-fs@4.2.11 mkdirp@0.5.6 rimraf@2.7.1 execa@1.0.0 p-defer@2.1.0 delay@4.4.1
    @segment/clear-timeouts@2.0.0 stable@0.1.8 "proper-lockfile@$PROPER_LOCKFILE_VERSION"
)

length=${1:-short}
case $length in short | long | fetch) ;; *) die "usage: clients/node/test.sh [long|fetch]" ;; esac
have node || die "node is missing."
have npm || die "npm is missing."

here=$PWD/clients/node
tools=$(target_dir)/tools/node-client
TENURE_BIN=${TENURE_BIN:-$(target_dir)/debug/tenure}
export TENURE_BIN
[ -x "$TENURE_BIN" ] || [ "$length" = fetch ] || die "$TENURE_BIN is missing: cargo build -p tenure-cli"

# Installs packages of npm into a folder, once for each list.
need_npm() {
    local folder=$1
    shift
    [ "$(cat "$folder/has" 2>/dev/null || :)" != "$*" ] || return 0
    rm -rf -- "$folder"
    mkdir -p "$folder"
    printf '{"private":true}\n' >"$folder/package.json"
    npm install --prefix "$folder" --no-audit --no-fund --ignore-scripts --loglevel=error "$@" >&2
    printf '%s\n' "$*" >"$folder/has"
}

# The tests of proper-lockfile are in no package of npm. Debian has its sources; this machine's own lists stay as they are.
need_originals() {
    local folder=$1 archive
    archive=node-proper-lockfile_$PROPER_LOCKFILE_VERSION.orig.tar.gz
    [ ! -d "$folder/node-proper-lockfile-$PROPER_LOCKFILE_VERSION" ] || return 0
    have apt-get || die "apt-get is missing, by which the tests of proper-lockfile are fetched."
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/apt/parts"
    cat >"$folder/apt/parts/debian.sources" <<'END'
Types: deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
    local options=(-qq -o "Dir::Etc::sourcelist=$folder/apt/none" -o "Dir::Etc::sourceparts=$folder/apt/parts"
        -o "Dir::State::lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt/cache")
    (
        cd -- "$folder"
        apt-get "${options[@]}" update >&2
        apt-get "${options[@]}" source --download-only --tar-only node-proper-lockfile >&2
        sha256sum --quiet -c <<<"$PROPER_LOCKFILE_HASH  $archive" >&2
        tar xzf "$archive"
    )
}

# A module with native code that the tests sleep by.
make_thread_sleep() {
    mkdir -p "$1/node_modules/thread-sleep"
    printf '%s\n' 'module.exports = (ms) => { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms); };' \
        >"$1/node_modules/thread-sleep/index.js"
}

need_npm "$tools/types" "typescript@$TYPESCRIPT_VERSION" "@types/node@$NODE_TYPES_VERSION"
need_npm "$tools/originals" "${PROPER_LOCKFILE_NEEDS[@]}"
need_originals "$tools/originals"
make_thread_sleep "$tools/originals"
[ "$length" != fetch ] || exit 0
export PROPER_LOCKFILE=$tools/originals/node_modules/proper-lockfile
export TSC=$tools/types/node_modules/.bin/tsc

begin types "$tools/types/node_modules/.bin/tsc" -p "$here" --typeRoots "$tools/types/node_modules/@types"
begin tests node --test --test-concurrency=4 "$here"/test/*.test.js
begin originals node "$here/test/originals.js" "$tools/originals" "$length"
begin conformance env "TENURE=$TENURE_BIN" python3 examples/serve/conformance.py node "$here/test/under-test.js"
ended
begin storm node "$here/test/storm.js" "$length"
ended
if [ "$length" = long ]; then
    begin mixed-storm node "$here/test/storm.js" mixed
    ended
fi
exit "$failed"
