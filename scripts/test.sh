#!/usr/bin/env bash
# Installs what is missing, builds and runs the tests.
#
#     scripts/test.sh                    what CI runs: ci
#     scripts/test.sh release            the tests on the optimised build, the quickest useful run
#     scripts/test.sh asan ubsan         one or more builds: release debug clang asan ubsan tsan
#     scripts/test.sh style tidy         clang-format and shellcheck; clang-tidy
#     scripts/test.sh package            the Debian package, with lintian; the portable program, run with a C library alone
#     scripts/test.sh docs               the commands of README.md and docs/, in a fresh clone: tests/proof/test-docs.py
#     scripts/test.sh aarch64            the program for 64-bit ARM in an emulator: tests/proof/test-aarch64.sh quick
#     scripts/test.sh all                every build with every test, style and tidy
#
# A build is tested in build/<name>; the presets are those of CMakePresets.json. asan is AddressSanitizer together with
# UndefinedBehaviorSanitizer. In `ci` the emulated GPU is tested by release alone, for the time it takes; tsan runs the
# tests that use threads, except those with the label fault, which kill processes; asan leaves out what mostly waits for
# processes, or trains long; clang runs the unit tests. What looks at sources or packages, asks the same for each key, or compiles
# exported files by both compilers, is for release alone.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
jobs=$(nproc)
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 # where ccache is installed: objects of another checkout serve, too
emulation=ON # of a GPU

ci=(style release package docs clang-unit asan-quick tsan-quick tidy-quick)
all=(style release package docs debug clang asan ubsan tsan tidy)

say() { printf '\n== %s\n' "$*"; }

# Builds a preset and runs its tests; further words go to ctest.
run_tests() { # preset [ctest option ...]
    local preset=$1 cuda=AUTO
    shift
    [ "$preset" != clang ] || cuda=OFF # once is enough
    say "$preset: build"
    cmake --preset "$preset" -DDDPTRAIN_TESTS=ON -DDDPTRAIN_EMULATION="$emulation" -DDDPTRAIN_CUDA="$cuda" ${CUDA_ARCHITECTURES:+"-DDDPTRAIN_CUDA_ARCHITECTURES=$CUDA_ARCHITECTURES"} \
        >"build/$preset.log" 2>&1 || {
        cat "build/$preset.log"
        return 1
    }
    cmake --build --preset "$preset" --parallel "$jobs" >"build/$preset.log" 2>&1 || {
        cat "build/$preset.log"
        return 1
    }
    say "$preset: tests"
    rm -f "build/$preset/Testing/Temporary/LastTestsFailed.log" # ctest leaves that of an earlier run
    ctest --preset "$preset" --parallel "$((jobs + 2))" --no-tests=error "$@" </dev/null || run_failed_again "$preset"
}

# Up to three tests that failed beside others run again, alone: a defect fails again. One that passes now depends on the
# machine's load, which is a defect, too, and is named at the end, but says nothing about the change that is tested.
# By names: the numbers of --rerun-failed depend on which tests were excluded.
run_failed_again() { # preset
    local names
    names=$(sed 's/^[0-9]*://' "build/$1/Testing/Temporary/LastTestsFailed.log" 2>/dev/null)
    [ -n "$names" ] && [ "$(wc -l <<<"$names")" -le 3 ] || return 1
    say "$1: once more, alone: $names"
    ctest --preset "$1" --no-tests=error --tests-regex "^(${names//$'\n'/|})\$" </dev/null || return 1
    printf '%s: %s\n' "$1" "${names//$'\n'/, }" >>build/unstable.txt
}

# ThreadSanitizer of gcc 12 cannot live with the address layout that some kernels choose.
run_tsan() { # [ctest option ...]
    if [ -z "${FIXED_LAYOUT:-}" ] && [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)" -gt 28 ] &&
        setarch -R true 2>/dev/null; then
        FIXED_LAYOUT=yes exec setarch -R "$BASH" "$root/scripts/test.sh" --only "$word"
    fi
    run_tests tsan "$@"
}

tracked() { git ls-files -- "$@"; }

check_style() {
    say "style: clang-format"
    tracked '*.c' '*.h' '*.cc' '*.hpp' '*.cu' '*.cuh' | xargs --no-run-if-empty --max-args=20 --max-procs="$jobs" clang-format --dry-run -Werror
    say "style: shellcheck"
    # shellcheck disable=SC2046 # our own file names hold no blanks
    shellcheck $(tracked '*.sh') .ci/run
    say "style: commit subjects"
    scripts/check-commits.sh
}

# Runs clang-tidy for the files of standard input; further words go to it.
tidy_files() {
    xargs --no-run-if-empty --max-args=4 --max-procs="$jobs" clang-tidy -p build/tidy --quiet "$@" >build/tidy.log 2>&1 || {
        grep -v 'warnings generated' build/tidy.log
        return 1
    }
}

# [quick]: the static analyzer, which takes most of the time, only for files of those of the last 40 commits that do not
# change many files in one way.
check_tidy() {
    local files recent failed=""
    say "tidy: clang-tidy"
    { cmake --preset clang -DDDPTRAIN_TESTS=ON -DDDPTRAIN_EMULATION=OFF && cmake --build --preset clang --target generated_sources; } >build/tidy.log 2>&1 || {
        cat build/tidy.log
        return 1
    }
    # what is compiled for several instruction sets is looked at once, for the last of them
    mkdir -p build/tidy
    python3 -c 'import json, sys; json.dump(list({c["file"]: c for c in json.load(sys.stdin)}.values()), sys.stdout)' \
        <build/clang/compile_commands.json >build/tidy/compile_commands.json
    # src/model/emit/functions: parts of the files that export writes, no sources of their own
    files=$(tracked 'src/*.c' 'cmd/*.c' 'src/dist/comm/*.cc' | grep -v '^src/model/emit/functions/')
    if [ "${1:-}" = quick ]; then
        recent=$(git log -n 40 --format=%H | while read -r commit; do
            git show --name-only --format= "$commit" | awk '{ name[NR] = $0 } END { if (NR <= 30) for (i in name) print name[i] }'
        done | sort -u | grep -Fxf <(echo "$files") || true)
        tidy_files <<<"$recent" || failed=yes
        files=$(grep -Fxvf <(echo "$recent") <<<"$files" || true)
        tidy_files '--checks=-clang-analyzer-*' <<<"$files" || failed=yes
        [ -z "$failed" ] || return 1
    else
        tidy_files <<<"$files"
    fi
    echo "no findings"
}

run() { # word
    case "$1" in
        release | debug | clang | asan | ubsan) run_tests "$1" ;;
        clang-unit)
            emulation=OFF
            run_tests clang --label-regex unit --exclude-regex '^program_(layout|export_c|package|same_errors|watch)$'
            ;;
        asan-quick)
            emulation=OFF
            run_tests asan --exclude-regex '^(program_(configs|typos|layout|processes|resume|sweep_ends|sweep_shared|watch|stop|save|export_c|python|recurrent|in_backward|best|same_errors|init|sample_weights|target_scale|faults|comm|mpi|contrastive|recompute|selftest|own_samplers|audit|bisect)|dist_launchers|dist_comm_faults|train_config_aliases)$'
            ;;
        tsan) run_tsan ;;
        tsan-quick)
            emulation=OFF
            run_tsan --label-exclude fault --tests-regex '^(base_(workers|thread|log|io|folder_lock|memory)|checkpoint_.*|data_(loader|exactly_once|images|table)|device_(convolution|linear|parallel|sequence)|dist_.*|model_batch_norm_sync|program_(batch_norm|data|elastic|embed|files|images|nonfinite|once_per_job|parity|pixels|precision|resume|weights|worlds|zero))$'
            ;;
        aarch64) tests/proof/test-aarch64.sh quick ;;
        package) say "package: Debian package and lintian; portable program" && packaging/package.sh && packaging/package.sh portable ;;
        docs) say "docs: the commands of README.md and of docs/ in a fresh clone" && tests/proof/test-docs.py ;;
        style) check_style ;;
        tidy) check_tidy ;;
        tidy-quick) check_tidy quick ;;
    esac
}

mkdir -p build
if [ "${1:-}" = --only ]; then # one word in a process of its own, so that its first failure ends it
    word=$2
    run "$word"
    exit
fi

[ $# -gt 0 ] || set -- ci
words=()
for word in "$@"; do
    case "$word" in
        ci)
            words+=("${ci[@]}")
            export CUDA_ARCHITECTURES=90 # one of them, for the time that nvcc takes
            ;;
        all) words+=("${all[@]}") ;;
        release | package | docs | aarch64 | debug | clang | asan | ubsan | tsan | style | tidy) words+=("$word") ;;
        *)
            echo "test: unknown word '$word'; known: ci all release package docs aarch64 debug clang asan ubsan tsan style tidy" >&2
            exit 64
            ;;
    esac
done

packages="test"
for word in "${words[@]}"; do
    case "$word" in
        clang | clang-unit | style | tidy | tidy-quick) packages="check" ;;
    esac
done
scripts/install-deps.sh "$packages"

begin=$SECONDS
failed=()
rm -f build/unstable.txt
for word in "${words[@]}"; do
    at=$SECONDS
    if "$BASH" "$root/scripts/test.sh" --only "$word"; then verdict="passed"; else verdict="FAILED" && failed+=("$word"); fi
    echo "$word: $verdict, $((SECONDS - at)) s"
done
if [ -s build/unstable.txt ]; then
    say "failed beside other tests and passed alone, to be repaired:"
    cat build/unstable.txt
fi
if [ ${#failed[@]} -gt 0 ]; then
    say "FAILED after $((SECONDS - begin)) s: ${failed[*]}"
    exit 1
fi
say "all passed in $((SECONDS - begin)) s: ${words[*]}"
