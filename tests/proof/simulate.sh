#!/usr/bin/env bash
# Simulates many schedules of the control plane (tests/simulation/README.md), two processes at a time, and prints those that violate a
# guarantee. Ends with 1 when there is one.
#
#     tests/proof/simulate.sh [COUNT [FIRST]]     1000000 schedules from seed 1
set -euo pipefail
cd "$(dirname "$0")/../.."
count=${1:-1000000}
first=${2:-1}
half=$(((count + 1) / 2))
cmake --preset release >/dev/null
cmake --build --preset release --target simulate >/dev/null
mkdir -p build/simulation
program=build/release/bin/simulate
"$program" "$first" "$half" >build/simulation/1.log &
one=$!
"$program" $((first + half)) $((count - half)) >build/simulation/2.log &
two=$!
failed=0
wait $one || failed=1
wait $two || failed=1
cat build/simulation/1.log build/simulation/2.log
exit $failed
