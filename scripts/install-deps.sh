#!/usr/bin/env bash
# Installs the Debian packages that ddptrain needs, and only those that are missing.
#
#     scripts/install-deps.sh            what building and training need
#     scripts/install-deps.sh test       ... and the tests
#     scripts/install-deps.sh package    what building the Debian package and the portable program needs
#     scripts/install-deps.sh aarch64    what building and testing for 64-bit ARM on another machine needs
#     scripts/install-deps.sh check      all of these, and the other compilers, sanitizers and linters of CI
#
# Package lists are fetched and apt is called only when something is missing; as a user it goes through sudo.
set -euo pipefail

# A row is "package" or "package command": with a command, any program of that name will do, wherever it comes from.
build_packages=(
    "gcc gcc"
    "g++ g++"
    "cmake cmake"
    "ninja-build ninja"
    "pkg-config pkg-config"
    "libyaml-dev"     # configs
    "libhdf5-dev"     # datasets and checkpoints
    "zlib1g-dev"      # compressed IDX and NumPy files
    "libjpeg62-turbo-dev" # images
    "libpng-dev"
    "libsqlite3-dev"  # databases
    "libutf8proc-dev" # texts in the form NFC
    "libjansson-dev"  # JSON
    "nettle-dev"      # SHA-256
    "libgloo-dev"     # processes on several hosts; the program runs without it on one host
    "libdnnl-dev"     # large convolutions; opened at run time where it is present
)
mpi_packages=(
    "libopenmpi-dev"      # the backend mpi on several hosts; both may be missing
    "libmpich-dev"
)
test_packages=(
    "check"
    "python3"
    "python3-numpy"
    "python3-h5py"        # reads our checkpoints as a user would
    "hdf5-tools h5dump"   # so does h5dump
    "${mpi_packages[@]}"
    "openmpi-bin mpirun.openmpi"
    "mpich mpirun.mpich"
)
package_packages=(
    "${mpi_packages[@]}"
    "dpkg-dev dpkg-shlibdeps"
    "file file"
    "gzip gzip"
    "python3 python3"     # the portable program: packaging/portable/glibc.py
    "lintian lintian"     # checks the package
)
check_packages=(
    "ccache ccache"       # what did not change is not compiled again
    "clang clang"
    "clang-format clang-format"
    "clang-tidy clang-tidy"
    "shellcheck shellcheck"
    "python3-torch"       # trains by the scripts of `ddptrain export --format pytorch`, with these where they read tables and images
    "python3-pandas"
    "python3-pil"
)

aarch64_packages=(
    "gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc"
    "g++-aarch64-linux-gnu aarch64-linux-gnu-g++"
    "gcc gcc"
    "cmake cmake"
    "ninja-build ninja"
    "pkg-config pkg-config"
    "python3 python3"
    "mmdebstrap mmdebstrap"             # unpacks the arm64 libraries into a folder
    "qemu-user-static qemu-aarch64-static" # runs the programs
)

case "${1:-build}" in
    build) wanted=("${build_packages[@]}") ;;
    test)  wanted=("${build_packages[@]}" "${test_packages[@]}") ;;
    package) wanted=("${build_packages[@]}" "${package_packages[@]}") ;;
    aarch64) wanted=("${aarch64_packages[@]}") ;;
    check) wanted=("${build_packages[@]}" "${test_packages[@]}" "${package_packages[@]}" "${check_packages[@]}") ;;
    *)
        echo "install-deps: unknown list '$1'; known: build, test, package, aarch64, check" >&2
        exit 64
        ;;
esac

is_installed() { # package
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=()
for row in "${wanted[@]}"; do
    read -r package command <<<"$row"
    if [ -n "$command" ] && command -v "$command" >/dev/null; then continue; fi
    if command -v dpkg-query >/dev/null && is_installed "$package"; then continue; fi
    missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "install-deps: this is not Debian or Ubuntu, so nothing is installed. If the build stops, install what these" >&2
    echo "Debian packages hold: ${missing[*]}" >&2
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "install-deps: packages are missing and there is no sudo. Ask an administrator to run:" >&2
        echo "    apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

echo "installing from Debian: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run_apt() { # words of an apt-get command; its output is shown only when it fails
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" </dev/null >"$log" 2>&1 && return
    cat "$log" >&2
    echo "install-deps: apt-get $1 failed; the lines above say why" >&2
    exit 1
}
run_apt update
run_apt install --yes --no-install-recommends "${missing[@]}"
