#!/usr/bin/env bash
# Fuzzes every reader of foreign bytes with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer, and prints a table.
#
#     scripts/fuzz.sh [SECONDS] [TARGET ...]     60 seconds each; targets: csv document idx safetensors sealed store
#
# Starts from tests/fuzz/corpus/corpus_<target>, which the tests replay, and adds to it what reaches new code in at most 4096
# bytes. A finding is kept in build/fuzz/findings and ends the script with 1.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(basename --multiple --suffix=.c tests/fuzz/fuzz_*.c | sed 's/^fuzz_//' | sort)

build=build/fuzz
mkdir -p $build/findings
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDDPTRAIN_FUZZ=ON -DDDPTRAIN_SANITIZE=address,undefined \
    -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ >$build/build.log
ninja -C $build "${targets[@]/#/fuzz_}" >>$build/build.log || {
    cat $build/build.log
    exit 1
}

failed=0
printf '%-12s %12s %9s %8s  %s\n' target executions seconds corpus result
for target in "${targets[@]}"; do
    corpus=tests/fuzz/corpus/corpus_$target
    found=$build/found-$target
    log=$build/$target.log
    mkdir -p "$corpus" "$found"
    result="no finding"
    UBSAN_OPTIONS=print_stacktrace=1 "$build/bin/fuzz_$target" -max_len=4096 -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -artifact_prefix="$build/findings/$target-" -print_final_stats=1 "$found" "$corpus" configs \
        >"$log" 2>&1 || {
        result="FINDING, see $log"
        failed=1
    }
    # the corpus stays the least set of files that reaches all that was reached; files with names of their own stay, too
    least=$build/least-$target
    rm -rf "$least"
    mkdir -p "$least"
    "$build/bin/fuzz_$target" -set_cover_merge=1 -max_len=4096 "$least" "$corpus" "$found" >>"$log" 2>&1
    find "$corpus" -type f -regextype posix-extended -regex '.*/[0-9a-f]{40}' -delete
    cp "$least"/* "$corpus"
    printf '%-12s %12s %9s %8s  %s\n' "$target" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$seconds" \
        "$(find "$corpus" -type f | wc -l)" "$result"
done
exit $failed
