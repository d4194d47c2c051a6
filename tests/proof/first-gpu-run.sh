#!/usr/bin/env bash
# Everything that should be run once on a machine with NVIDIA GPUs, into one archive: tests, compute-sanitizer, cuBLASLt's
# log, NCCL, repeated runs, the table of docs/gpu.md, a trace. A step that cannot run says why in one line.
#
#     tests/proof/first-gpu-run.sh [--build build/release] [--out FOLDER] [--limit SECONDS] [--again] [STEP ...]
#
# Steps: machine tests cublaslt nccl repeat trace bench sanitizer. The folder (default: gpu-run in the build folder) gets a log of each,
# summary.md and gpu.md; beside it is FOLDER.tar.gz. The script ends after the limit (540 s; 0: none), also with an archive. The same
# command again continues: it keeps the results of steps that passed or took the whole time, unless --again. Exit code: 0 all steps
# that ran passed, 1 one failed, 75 some are left for the next run, 77 none could run.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/release
out=
limit=540
again=no
known=(machine tests cublaslt nccl repeat trace bench sanitizer) # the longest last
steps=()
while [ $# -gt 0 ]; do
    case "$1" in
        --build) build=$(cd "${2:?--build needs a folder}" && pwd) && shift 2 || exit 64 ;;
        --out) out=${2:?--out needs a folder} && shift 2 ;;
        --again) again=yes && shift ;;
        --limit)
            limit=${2:?--limit needs seconds} && shift 2
            [[ $limit =~ ^[0-9]+$ ]] || { echo "first-gpu-run: --limit: '$limit' is not a number of seconds" >&2 && exit 64; }
            ;;
        -*) echo "first-gpu-run: unknown option '$1'" >&2 && exit 64 ;;
        *)
            [[ " ${known[*]} " == *" $1 "* ]] || { echo "first-gpu-run: unknown step '$1'; known: ${known[*]}" >&2 && exit 64; }
            steps+=("$1") && shift
            ;;
    esac
done
[ ${#steps[@]} -gt 0 ] || steps=("${known[@]}")
[ -n "$out" ] || out=$build/gpu-run
mkdir -p "$out/results" && out=$(cd "$out" && pwd) || exit 73
ddptrain=$build/bin/ddptrain
summary=$out/summary.md
ran=0
failed=0
left=0 # steps for the next run
export DDPTRAIN=$ddptrain DDPTRAIN_SOURCE=$root

report() { # NAME RESULT
    printf '%-12s %s\n' "$1" "$2"
    echo "$2" >"$out/results/$1"
    write_summary
}

# After each step, so that it is there if the machine is taken away.
write_summary() {
    local file
    {
        printf '| step | result |\n|---|---|\n'
        for file in "$out"/results/*; do echo "| $(basename "$file") | $(cat "$file") |"; done
    } >"$summary"
}

# Whether an earlier run has a result that this one keeps; prints it.
is_done() { # NAME
    local result
    [ "$again" = no ] && [ -s "$out/results/$1" ] && result=$(cat "$out/results/$1") || return 1
    [[ $result == passed* || $result == stopped* ]] || return 1
    printf '%-12s %s (earlier)\n' "$1" "$result"
    ran=$((ran + 1))
}

# Ends the children of a process, and theirs.
end_children() { # PID
    local child
    for child in $(ps -o pid= --ppid "$1"); do end_children "$child" && kill "$child" 2>/dev/null; done
    return 0
}

# Runs a command with its output in a log, until the limit. A command that ends with 77 was skipped.
step() { # NAME COMMAND...
    local name=$1 log=$out/$1.log code start=$SECONDS rest=$((limit - SECONDS)) pid
    shift
    is_done "$name" && return
    if [ "$limit" -gt 0 ] && [ $rest -lt 5 ]; then
        left=$((left + 1))
        report "$name" "not started: the limit of $limit s"
        return
    fi
    printf '$ %s\n' "$*" >"$log"
    "$@" >>"$log" 2>&1 </dev/null &
    pid=$!
    while kill -0 $pid 2>/dev/null && { [ "$limit" -eq 0 ] || [ $SECONDS -lt "$limit" ]; }; do sleep 0.2; done
    if kill -0 $pid 2>/dev/null; then
        end_children $pid
        kill $pid 2>/dev/null
        wait $pid 2>/dev/null
        if [ $rest -ge $((limit * 9 / 10)) ]; then # more time than this is never left for it
            ran=$((ran + 1))
            report "$name" "stopped by the limit after $rest s: $name.log"
        else
            left=$((left + 1))
            report "$name" "left for the next run, which has more than $rest s"
        fi
        return
    fi
    wait $pid
    code=$?
    if [ $code -eq 77 ]; then
        report "$name" "skipped: $(tail -1 "$log")"
        return
    fi
    ran=$((ran + 1))
    if [ $code -eq 0 ]; then
        report "$name" "passed, $((SECONDS - start)) s"
    else
        failed=$((failed + 1))
        report "$name" "FAILED with $code: $name.log"
    fi
}

skip() { report "$1" "skipped: $2"; } # NAME REASON

# The reason why a step cannot run on GPUs, or nothing.
missing_gpu() {
    [ -x "$ddptrain" ] || { echo "$ddptrain is not built" && return; }
    [ "$gpus" -gt 0 ] || echo "no GPU: nvidia-smi finds none"
}

missing_program() { command -v "$1" >/dev/null || echo "$1 is not installed"; }

# A short run. The words after -- are a program that starts it, with its options.
train() { # FOLDER [WORD ...] [-- PROGRAM ...]
    local run=$out/runs/$1 words=()
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do words+=("$1") && shift; done
    [ $# -eq 0 ] || shift
    (cd "$root" && "$@" "$ddptrain" configs/wine_mlp.yaml train.device=cuda train.epochs=20 --run-dir "$run" --fresh "${words[@]}")
}

hash_of() { sed -n 's/.*"state_sha256": *"\([0-9a-f]*\)".*/\1/p' "$out/runs/$1/metrics.jsonl" | tail -1; } # FOLDER

# The same config twice must end with the same state.
repeat() { # NAME WORD...
    local run=$1 first second
    shift
    train "$run-1" "$@" && train "$run-2" "$@" || return 1
    first=$(hash_of "$run-1") second=$(hash_of "$run-2")
    echo "$first $second"
    [ -n "$first" ] && [ "$first" = "$second" ]
}

# compute-sanitizer's [TOOL] over a test of the GPU's operators, without cuDNN's kernels, some of which have hazards.
sanitize() { # TOOL TEST
    DDPTRAIN_GPU_OPERANDS=host CK_FORK=no compute-sanitizer --tool "$1" --kernel-name-exclude kernel_substring=cudnn --error-exitcode 9 "$2"
}

describe_machine() {
    uname -a
    "$ddptrain" --version
    nvidia-smi
    nvidia-smi topo -m
    ldd "$build"/bin/ddptrain_*.so
    env | grep -E '^(NCCL|CUDA|CUBLAS|CUDNN)' || true
}

# The benchmark's tables as one, for docs/gpu.md.
fill_table() {
    {
        grep -h 'medians of' "$out"/bench-*.log | sort -u
        printf '\n| | ddptrain | PyTorch | ratio |\n|---|---|---|---|\n'
        grep -hE '^\| [^|]+ \|' "$out"/bench-*.log | grep -v '^| | '
    } >"$out/gpu.md"
}

do_machine() { step machine describe_machine; }

do_tests() { step tests ctest --test-dir "$build" -L '^gpu$' --output-on-failure; }

do_sanitizer() {
    local tool reason test
    reason=$(missing_program compute-sanitizer)
    for tool in memcheck racecheck initcheck synccheck; do
        if [ -n "$reason" ]; then skip "$tool" "$reason" && continue; fi
        for test in "$build"/bin/device_gpu*; do
            [ ! -x "$test" ] || step "$tool-$(basename "$test")" sanitize "$tool" "$test"
        done
    done
}

do_cublaslt() {
    step cublaslt train cublaslt train.epochs=1 --nproc 1 -- env CUBLASLT_LOG_LEVEL=5 CUBLASLT_LOG_FILE="$out/cublaslt-calls.log"
}

do_nccl() {
    if [ "$gpus" -gt 1 ]; then
        step nccl env NCCL_DEBUG=INFO "$ddptrain" comm --backend nccl --nproc gpu
    else
        skip nccl "one GPU; the next step has two processes on it"
    fi
    step nccl-shared env NCCL_DEBUG=INFO DDPTRAIN_SHARE_GPUS=1 CUDA_VISIBLE_DEVICES=0 "$ddptrain" comm --backend nccl --nproc 2 --sizes 1K,1M
}

do_repeat() {
    step repeat repeat float32
    if [ "$gpus" -gt 1 ]; then
        step repeat-bfloat16 repeat bfloat16 dist.gradient_compression=bfloat16
    else
        skip repeat-bfloat16 "one GPU"
    fi
}

do_bench() {
    local name
    for name in wine memory resnet18 char_gpt gpt2_124m; do step "bench-$name" "$root/bench/gpu.py" --rounds 3 --only "$name"; done
    fill_table
}

do_trace() {
    local reason
    reason=$(missing_program nsys)
    if [ -n "$reason" ]; then
        skip trace "$reason"
    else
        step trace train trace train.epochs=5 -- nsys profile --force-overwrite true --trace cuda,cublas,nvtx --output "$out/trace"
    fi
}

gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)
for name in "${steps[@]}"; do
    reason=$(missing_gpu)
    if [ -n "$reason" ]; then skip "$name" "$reason"; else "do_$name"; fi
done
find "$out/runs" -name '*.h5' -delete 2>/dev/null # checkpoints are large
tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$(basename "$out")" || exit 74
echo "archive: $out.tar.gz"
[ $failed -eq 0 ] || exit 1
[ $left -eq 0 ] || { echo "steps left: $left; run the same command again" && exit 75; }
[ $ran -gt 0 ] || exit 77
