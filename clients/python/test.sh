#!/usr/bin/env bash
# Tests the package for Python with a program `tenure`: lints, types, its own tests, and those of the package filelock.
#
#   clients/python/test.sh          TENURE_BIN, else target/debug/tenure
#   clients/python/test.sh long     also the storm of two minutes, and the tests of filelock that take thousands of turns
#   clients/python/test.sh fetch    only fetches what the tests need
#
# What the tests need beyond Python comes from PyPI into target/tools. Nothing of it is committed.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
exec </dev/null

# shellcheck source=scripts/install-tools
. scripts/install-tools
# shellcheck source=clients/side-by-side
. clients/side-by-side
use_cargo_bin

readonly FILELOCK_VERSION=3.32.7
readonly FILELOCK_HASH=37b8a3d9811b0f9aef7e5ec5c71bb320de52df51e6ca9bcd6f5ad81187660da7

length=${1:-short}
case $length in short | long | fetch) ;; *) die "usage: clients/python/test.sh [long|fetch]" ;; esac
have python3 || die "python3 is missing."
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "python3 is $(python3 -V); the package needs 3.11."

tools=$(target_dir)/tools/python-client
TENURE_BIN=${TENURE_BIN:-$(target_dir)/debug/tenure}
export TENURE_BIN
[ -x "$TENURE_BIN" ] || [ "$length" = fetch ] || die "$TENURE_BIN is missing: cargo build -p tenure-cli"

cd clients/python
venv=$tools/venv
if ! cmp -s tests/requirements.txt "$venv/has"; then
    rm -rf -- "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r tests/requirements.txt >&2
    cp tests/requirements.txt "$venv/has"
fi
originals=$tools/filelock-$FILELOCK_VERSION
if [ ! -d "$originals" ]; then
    "$venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary :all: --dest "$tools" \
        "filelock==$FILELOCK_VERSION" >&2
    sha256sum --quiet -c <<<"$FILELOCK_HASH  $originals.tar.gz" >&2
    tar xzf "$originals.tar.gz" -C "$tools"
fi
[ "$length" != fetch ] || exit 0

# Plugins are named where they are wanted. The bytes of modules go where git does not look.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONPYCACHEPREFIX=$tools/bytes PYTHONPATH=$PWD/src
state=$outputs/state
mkdir -- "$state"

in_the_other_package() {
    PYTHONPATH=$originals:$PYTHONPATH XDG_STATE_HOME=$state "$venv/bin/python" tests/upstream.py "$originals" "$@"
}

more=()
[ "$length" = short ] || more=(--long)
begin format "$venv/bin/ruff" format --check --cache-dir "$tools/ruff" src tests
begin lints "$venv/bin/ruff" check --cache-dir "$tools/ruff" src tests
begin types "$venv/bin/mypy" --cache-dir "$tools/mypy"
begin tests "$venv/bin/python" -m pytest -q -p xdist -n 4
begin filelock in_the_other_package "${more[@]}"
[ "$length" = short ] || begin storm "$venv/bin/python" tests/storm.py long

ended
exit "$failed"
