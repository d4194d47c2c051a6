#!/usr/bin/env bash
# Builds for 64-bit ARM (Graviton, Grace) on another machine and tests in an emulator, qemu-user. Debian 12.
#
#     tests/proof/test-aarch64.sh            all: build, unit tests, a training run, two processes; about an hour on two cores
#     tests/proof/test-aarch64.sh quick      build the program, a few tests of kernels, the two runs; 3 minutes of processor time
#     tests/proof/test-aarch64.sh build      only the program: build/aarch64/bin
#     tests/proof/test-aarch64.sh count      instructions of a step and of a matrix product (docs/performance.md)
#
# The arm64 libraries are unpacked into a folder, DDPTRAIN_SYSROOT (default ~/.cache/ddptrain/sysroot-aarch64), which apt of
# this system knows nothing about.
#
# What the emulator cannot do, so that it is not tested here (qemu 7.2):
# * A program that starts itself again: the kernel runs a program for ARM only where binfmt_misc is set up for it. There the
#   launcher and selftest call main in a child process instead (src/base/system/program.h), so that exec itself is not tested.
# * Limits of memory (RLIMIT_AS), which qemu ignores, and TCP_INFO, of which it returns 4 bytes.
# * Weak memory order: qemu's threads run with the stronger order of x86. The barriers are in the code that it
#   translates, but a missing one would not be noticed.
# * Pages of 64 KiB: qemu-user has those of the host.
# * Times, and counters of the processor (perf). `count` counts instructions.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
export DDPTRAIN_SYSROOT=${DDPTRAIN_SYSROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/ddptrain/sysroot-aarch64}
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 OMP_NUM_THREADS=1
jobs=$(nproc)
program=build/aarch64/bin/ddptrain
emulator=(qemu-aarch64-static -L "$DDPTRAIN_SYSROOT")

libraries=libc6-dev,libstdc++-12-dev,libyaml-dev,libhdf5-dev,zlib1g-dev,libjpeg62-turbo-dev,libpng-dev,libsqlite3-dev,libutf8proc-dev,libjansson-dev,nettle-dev,libgloo-dev,check

# Of kernels, random numbers, readers of bytes, shared memory: what is different on another processor.
quick_tests=(base_rng base_text device_kernels data_npy dist_shard_tree dist_shm_wait)

# What fails in the emulator alone: base_hdf5 limits its memory; base_module opens a link out of the system root;
# dist_launch_nodes reads the age of a connection from TCP_INFO; the others start the program again.
left_out='^(base_hdf5|base_module|dist_launch|dist_launchers|dist_launch_nodes|program_.*)$'

say() { printf '\n== %s\n' "$*"; }

make_sysroot() {
    [ ! -e "$DDPTRAIN_SYSROOT/complete" ] || return 0
    say "system root: $DDPTRAIN_SYSROOT"
    rm -rf "$DDPTRAIN_SYSROOT"
    mkdir -p "$(dirname "$DDPTRAIN_SYSROOT")"
    local log
    log=$(mktemp)
    # unpacked only: no script of a package runs
    mmdebstrap --quiet --architectures=arm64 --variant=extract --include="$libraries" bookworm "$DDPTRAIN_SYSROOT" >"$log" 2>&1 || {
        cat "$log"
        return 1
    }
    rm "$log"
    # the emulator would look there before the folders of this system
    rm -rf "${DDPTRAIN_SYSROOT:?}"/{dev,etc,run,tmp,var}
    # links that are absolute on the target would leave the folder
    find "$DDPTRAIN_SYSROOT/usr" "$DDPTRAIN_SYSROOT/lib" -lname '/*' | while read -r link; do
        ln -sfnr "$DDPTRAIN_SYSROOT$(readlink "$link")" "$link"
    done
    touch "$DDPTRAIN_SYSROOT/complete"
}

build() { # target ...
    say "build: $*"
    mkdir -p build
    { cmake --preset aarch64 -DDDPTRAIN_TESTS=ON && cmake --build --preset aarch64 --parallel "$jobs" --target "$@"; } >build/aarch64.log 2>&1 || {
        cat build/aarch64.log
        return 1
    }
}

state_of() { # log of a run
    sed -n 's/.*state sha256 //p' "$1"
}

# The numbers of docs/determinism.md: the same as on x86.
expect_state() { # log, expected
    local state
    state=$(state_of "$1")
    [ "$state" = "$2" ] || {
        cat "$1"
        echo "test-aarch64: the state is '$state'; on x86 with AVX2 or AVX-512 it is $2" >&2
        return 1
    }
    echo "state sha256 $state, as on x86"
}

runs() {
    local folder rank pids=()
    folder=$(mktemp -d)
    say "a run on one process"
    "${emulator[@]}" "$program" configs/wine_mlp.yaml --run-dir "$folder/one" >"$folder/one.log" 2>&1 || true
    grep -F 'cpu (neon)' "$folder/one.log"
    expect_state "$folder/one.log" bc1339986d0e4ea4
    say "a run on two processes"
    for rank in 0 1; do
        RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000)) DDPTRAIN_SECRET=test-of-two-hosts \
            "${emulator[@]}" "$program" configs/wine_mlp.yaml --run-dir "$folder/two" >"$folder/two$rank.log" 2>&1 &
        pids+=($!)
    done
    wait "${pids[@]}" || cat "$folder"/two?.log
    expect_state "$folder/two0.log" 47bf1b027d75c206
    rm -r "$folder"
}

# The states of its models are those of x86; two processes and collectives are started by the launcher.
selftest() { # [--quick]
    say "selftest $*"
    "${emulator[@]}" "$program" selftest --run-dir build/aarch64 "$@"
}

run_tests() { # [ctest option ...]
    say "unit tests"
    ctest --preset aarch64 --parallel "$jobs" --no-tests=error "$@" </dev/null
}

# The static emulator has no plugins.
count() {
    local folder steps
    say "instructions"
    command -v qemu-aarch64 >/dev/null || {
        echo "test-aarch64: count needs the package qemu-user" >&2
        return 1
    }
    build ddptrain product_size
    folder=$(mktemp -d)
    cc -O2 -shared -fPIC -o "$folder/count.so" bench/arm_instructions.c
    counted() { # name, program ...: its last line
        local log=$folder/$1
        shift
        qemu-aarch64 -L "$DDPTRAIN_SYSROOT" -plugin "$folder/count.so" -d plugin -D "$log" "$@" >/dev/null
        tail -n 1 "$log"
    }
    for steps in 50 300; do
        echo "wine, $steps steps: $(counted "wine$steps" "$program" configs/wine_mlp.yaml train.epochs=$((steps / 5)) checkpoint.save_every=1000 --run-dir "$folder/run$steps")"
    done
    for steps in 0 1; do
        echo "product of 512, $steps times: $(counted "product$steps" build/aarch64/product_size 512 "$steps")"
    done
    rm -r "$folder"
}

scripts/install-deps.sh aarch64
make_sysroot
case "${1:-all}" in
    all)
        build all
        runs
        selftest
        run_tests --exclude-regex "$left_out"
        ;;
    quick)
        build ddptrain "${quick_tests[@]}"
        runs
        selftest --quick
        run_tests --tests-regex "^($(IFS='|' && echo "${quick_tests[*]}"))\$"
        ;;
    build) build ddptrain ;;
    count) count ;;
    *)
        echo "test-aarch64: unknown word '$1'; known: all quick build count" >&2
        exit 64
        ;;
esac
say "passed"
