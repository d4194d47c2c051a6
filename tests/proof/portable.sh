#!/usr/bin/env bash
# Unpacks the portable program (packaging/package.sh portable) in folders that hold a C library and nothing else of a system, and
# runs it there as a user without rights: it must end with the bits of the normal build.
#
#     tests/proof/portable.sh                             the C library of this machine
#     tests/proof/portable.sh bullseye trixie sid         those of other Debian suites: their package libc6
#     tests/proof/portable.sh focal=MIRROR               a suite of another mirror, of Ubuntu say
#
# Needs root, or a kernel that lets users have namespaces; for other suites what apt-get needs. MIRROR (where this machine gets its
# packages) may be set. Trained are the wine model, in one process, in two over shared memory and over Gloo, and a convolutional network
# with oneDNN for a few steps; then `selftest` runs.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
if [ "${PORTABLE_USER:-}" = "" ]; then # own mounts and processes: all of them end with this script
    options=(--mount --pid --fork --kill-child --propagation private)
    [ "$(id -u)" -ne 0 ] || PORTABLE_USER=65534:65534 exec unshare "${options[@]}" "$0" "$@"
    PORTABLE_USER=0:0 exec unshare --user --map-root-user "${options[@]}" "$0" "$@"
fi
[ $# -gt 0 ] || set -- here

fail() {
    echo "portable: $*" >&2
    exit 1
}

normal=build/package/bin/ddptrain
[ -x "$normal" ] || normal=build/release/bin/ddptrain
[ -x "$normal" ] || fail "there is no normal build to compare with: packaging/package.sh"
archives=(build/package/ddptrain-*-linux-x86_64.tar.gz)
folder=$(mktemp -d --tmpdir ddptrain-portable.XXXXXX)
clean_up() {
    umount --lazy "$folder"/*/proc "$folder"/*/dev/null 2>/dev/null || true
    rm -rf --one-file-system "$folder"
}
trap clean_up EXIT
chmod 755 "$folder"

copy_libc() { # of this machine, to a root
    local library
    for library in libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 ld-linux-x86-64.so.2; do
        install -D -t "$1/usr/lib/x86_64-linux-gnu" "$(cc "-print-file-name=$library")"
    done
    mkdir "$1/usr/lib64"
    ln -s ../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 "$1/usr/lib64"
}

fetch_libc() { # suite[=mirror], root
    local suite=${1%%=*} mirror=${MIRROR:-} trusted="" apt=$2/apt options
    [ -n "$mirror" ] || mirror=$(apt-get indextargets --format "\$(REPO_URI)" 'Created-By: Packages' | sed -n 1p)
    [ "$1" = "$suite" ] || { mirror=${1#*=} && trusted="[trusted=yes]"; } # its key is not on this machine
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    echo "deb $trusted $mirror $suite main" >"$apt/list"
    options=(-q -o "Dir::Etc::SourceList=$apt/list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt"
        -o "Dir::State::status=/dev/null" -o APT::Sandbox::User=root)
    (cd "$apt" && apt-get "${options[@]}" update && apt-get "${options[@]}" download libc6) >"$2/log" 2>&1 || {
        cat "$2/log" >&2
        fail "cannot fetch libc6 of $suite"
    }
    dpkg-deb --extract "$apt"/libc6_*.deb "$2"
}

run() { # words of ddptrain; exit code 75: stopped as asked
    env ${debug:+LD_DEBUG="$debug"} chroot --userspec="$PORTABLE_USER" "$at" "/ddptrain/bin/ddptrain" "$@" --run-dir /runs/run >"$at/log" 2>&1 || [ $? -eq 75 ] || {
        cat "$at/log" >&2
        fail "$1 failed with $name: see above"
    }
}

expect() { # what is trained, the state of the normal build, words of ddptrain
    local what=$1 wanted=$2 got
    shift 2
    run "$@" --fresh
    got=$(state_of "$at/runs/run")
    [ "$got" = "$wanted" ] || fail "$name: $what ends with $got, the normal build with $wanted"
}

state_of() { # run folder
    grep -o '"state_sha256":"[0-9a-f]*"' "$1/metrics.jsonl" | tail -n 1 | cut -d '"' -f 4
}

# The states of the normal build.
export OMP_NUM_THREADS=2
convolutions=(configs/mnist_cnn.yaml --stop-after 4) # then it ends with exit code 75
"$normal" configs/wine_mlp.yaml --run-dir "$folder/wine" --quiet
"$normal" configs/wine_mlp.yaml --run-dir "$folder/two" --quiet --nproc 2
"$normal" "${convolutions[@]}" --run-dir "$folder/cnn" --quiet 2>/dev/null || [ $? -eq 75 ]
wine=$(state_of "$folder/wine") two=$(state_of "$folder/two") cnn=$(state_of "$folder/cnn")

for name in "$@"; do
    at=$folder/${name%%=*}
    mkdir -p "$at/proc" "$at/dev" "$at/runs" "$at/ddptrain"
    if [ "$name" = here ]; then copy_libc "$at"; else fetch_libc "$name" "$at"; fi
    for place in lib lib64; do
        [ -e "$at/$place" ] || ln -s "usr/$place" "$at/$place"
    done
    begin=$(date +%s%N)
    tar --directory "$at/ddptrain" --strip-components=1 --extract --gunzip --file "${archives[0]}"
    mount -t proc proc "$at/proc"
    touch "$at/dev/null"
    mount --bind /dev/null "$at/dev/null"
    chmod 777 "$at/runs"
    configs=/ddptrain/share/ddptrain
    expect "the wine model" "$wine" "$configs/configs/wine_mlp.yaml"
    took=$((($(date +%s%N) - begin) / 1000000))
    expect "the wine model in two processes" "$two" "$configs/configs/wine_mlp.yaml" --nproc 2
    expect "the wine model over Gloo" "$two" "$configs/configs/wine_mlp.yaml" --nproc 2 dist.backend=gloo
    debug=files expect "a convolutional network" "$cnn" "$configs/${convolutions[0]}" "${convolutions[@]:1}"
    grep -q 'libdnnl.so.2.*generating link map' "$at/log" || fail "$name: oneDNN is not used"
    run selftest --quick
    echo "$name: the same bits; from the archive to the trained wine model $took ms"
done
