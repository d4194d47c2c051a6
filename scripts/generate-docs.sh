#!/usr/bin/env bash
# Writes the pages that the program itself knows: docs/config.md, docs/sweep.md, docs/commands.md and
# docs/config.schema.json.
#
#     scripts/generate-docs.sh [PROGRAM]     default build/release/bin/ddptrain, built when it is missing or old
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

program=${1:-}
if [ -z "$program" ]; then
    program=build/release/bin/ddptrain
    [ -f build/release/build.ninja ] || cmake --preset release >/dev/null
    cmake --build --preset release --target ddptrain >&2
fi
write() { # option file
    "$program" "$1" >"$2.new"
    mv "$2.new" "$2"
}
write --reference docs/config.md
write --sweep-reference docs/sweep.md
write --command-reference docs/commands.md
write --schema docs/config.schema.json
