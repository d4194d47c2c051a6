#!/usr/bin/env bash
# Fuzzes every reader of foreign bytes with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer, and prints a table.
#
#     tests/proof/fuzz.sh [SECONDS] [TARGET ...]    60 seconds each; targets: archive config csv document hdf5 hdf5_data idx image json_line npy proof
#                                               report safetensors sealed sqlite store texts tokenizer torch
#     tests/proof/fuzz.sh --long [TARGET ...]       until each target has 10^8 executions or 8 hours; interrupted (Ctrl-C), the
#                                               same command goes on where it was: build/fuzz/progress-<target> counts
#     tests/proof/fuzz.sh --keep ...                adds what reaches new code to tests/fuzz/corpus
#
# Starts from tests/fuzz/corpus/corpus_<target>, which the tests replay, and from what earlier calls found
# (build/fuzz/found-<target>). A finding is kept in build/fuzz/findings and ends the script with 1. The targets of HDF5 parse in
# their own process, and libhdf5, which is not ours and not instrumented, crashes on crafted files; in the product a child
# process contains that (src/base/files/hdf5.h). They run in libFuzzer's fork mode, which goes on after a crash, and each crash is
# run again: it is a finding unless the code and the memory in its report are libhdf5's ("of the library" in the table).
set -euo pipefail
cd "$(dirname "$0")/../.."
long=0 keep=0 seconds=60
while [ $# -gt 0 ]; do
    case $1 in
        --long) long=1 ;;
        --keep) keep=1 ;;
        [0-9]*) seconds=$1 ;;
        *) break ;;
    esac
    shift
done
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(basename --multiple --suffix=.c tests/fuzz/fuzz_*.c | sed 's/^fuzz_//' | sort)
max_executions=100000000
max_seconds=28800

build=build/fuzz
mkdir -p $build/findings
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDDPTRAIN_FUZZ=ON -DDDPTRAIN_SANITIZE=address,undefined \
    -DDDPTRAIN_EMULATION=OFF -DDDPTRAIN_CUDA=OFF -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ >$build/build.log
ninja -C $build hdf5_seeds "${targets[@]/#/fuzz_}" >>$build/build.log || {
    cat $build/build.log
    exit 1
}
TMPDIR=$(mktemp -d -p /dev/shm ddptrain-fuzz-XXXXXX) # files for libhdf5, and what crashes leave of them
export TMPDIR UBSAN_OPTIONS=print_stacktrace=1
trap 'rm -rf "$TMPDIR"' EXIT

# For the targets of HDF5: libhdf5 leaks when it fails, and an allocation that the limit of the child process refuses
# (HDF5_MAX_MEMORY of src/base/files/hdf5.h) is refused here, too: the sanitizer would touch an eighth of it.
in_process=detect_leaks=0:max_allocation_size_mb=4096:allocator_may_return_null=1

# Faster, with less memory: no stacks of allocations, and of freed blocks the last 16 MiB. The same program without these
# options, given the file of a finding, reports the stacks.
fast=malloc_context_size=0:quarantine_size_mb=16

# Whether the report on standard input is of libhdf5 alone. The first function of ours or of the library decides, both where
# it crashed and where the memory it touched came from; memory of a stack or a global variable is always ours, since only
# our code is instrumented. A failed check of ours (abort) or a report without a stack is ours.
is_of_library() {
    awk '
        /stack of thread|global variable/ { ours = 1 }
        /^ *#0 / { is_open = 1 }
        is_open && / in H5[A-Z]/ { library++; is_open = 0 }
        is_open && /\/(src|tests)\// { ours = 1; is_open = 0 }
        END { exit ours || !library }'
}

# Moves the crashes of a target to findings, and counts those of the library.
sort_crashes() {
    local target=$1 file
    for file in "$build/crashes-$target"/*; do
        [ -f "$file" ] || continue
        if ASAN_OPTIONS=$in_process "$build/bin/fuzz_$target" -timeout=60 -rss_limit_mb=2048 "$file" >"$build/again" 2>&1; then
            rm "$file" # slow or out of memory on a busy machine
        elif is_of_library <"$build/again"; then
            library=$((library + 1))
            mv "$file" "$build/library-$target/"
        else
            cp "$build/again" "$build/findings/$target-$(basename "$file").txt"
            mv "$file" "$build/findings/$target-$(basename "$file")"
        fi
    done
}

# Runs [target] for [seconds]; adds to executions and used; library and log say more.
fuzz() {
    local target=$1 corpus=tests/fuzz/corpus/corpus_$1 found=$build/found-$1 start=$SECONDS
    local sanitizer=detect_leaks=1
    local -a options=(-max_len=4096 -timeout=25 -rss_limit_mb=2048) folders=("$found" "$corpus")
    case $target in config | document) folders+=(configs) ;; esac
    log=$build/$target.log
    mkdir -p "$corpus" "$found"
    case $target in
        hdf5*)
            mkdir -p "$build/seeds-hdf5" "$build/crashes-$target" "$build/library-$target"
            $build/bin/hdf5_seeds "$build/seeds-hdf5" >/dev/null
            folders+=("$build/seeds-hdf5")
            sanitizer=$in_process
            options=(-max_len=40960 -timeout=60 -rss_limit_mb=2048 -fork=1 -ignore_crashes=1
                -ignore_timeouts=1 -ignore_ooms=1 -artifact_prefix="$build/crashes-$target/")
            ;;
        *) options+=(-artifact_prefix="$build/findings/$target-" -print_final_stats=1) ;;
    esac
    ASAN_OPTIONS=$sanitizer:$fast "$build/bin/fuzz_$target" "${options[@]}" -max_total_time="$2" "${folders[@]}" >"$log" 2>&1 || true
    sort_crashes "$target"
    # alone libFuzzer counts at its end; in fork mode each line begins with the number
    local count
    count=$(sed -n 's/^stat::number_of_executed_units: *//p; s/^#\([0-9]*\): cov.*/\1/p' "$log" | tail -n 1)
    executions=$((executions + ${count:-0}))
    used=$((used + SECONDS - start))
}

# The corpus stays the smallest set of files that reaches all that was reached; files with names of their own stay, too.
merge() {
    local target=$1 corpus=tests/fuzz/corpus/corpus_$1 minimised=$build/minimised-$1 size=4096
    [[ $target != hdf5* ]] || size=40960
    rm -rf "$minimised"
    mkdir -p "$minimised"
    ASAN_OPTIONS=detect_leaks=0 "$build/bin/fuzz_$target" -merge=1 -max_len=$size "$minimised" "$corpus" "$build/found-$target" >>"$build/$target.log" 2>&1
    find "$corpus" -type f -regextype posix-extended -regex '.*/[0-9a-f]{40}' -delete
    cp "$minimised"/* "$corpus"
}

failed=0
printf '%-12s %12s %9s %8s %8s  %s\n' target executions seconds corpus library result
for target in "${targets[@]}"; do
    executions=0 used=0 library=0
    progress=$build/progress-$target
    before=$(find $build/findings -name "$target-*" | wc -l)
    if [ $long = 1 ]; then
        [ ! -f "$progress" ] || read -r executions used library <"$progress"
        while [ "$executions" -lt $max_executions ] && [ "$used" -lt $max_seconds ]; do
            fuzz "$target" 600
            echo "$executions $used $library" >"$progress"
            [ "$(find $build/findings -name "$target-*" | wc -l)" = "$before" ] || break
        done
    else
        fuzz "$target" "$seconds"
    fi
    [ $keep = 0 ] || merge "$target"
    result="no finding"
    if [ "$(find $build/findings -name "$target-*" | wc -l)" != "$before" ]; then
        result="FINDING, see $build/findings and $build/$target.log"
        failed=1
    fi
    printf '%-12s %12s %9s %8s %8s  %s\n' "$target" "$executions" "$used" \
        "$(find "tests/fuzz/corpus/corpus_$target" -type f | wc -l)" "$library" "$result"
done
exit $failed
