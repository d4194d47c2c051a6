#!/usr/bin/env bash
# Makes what users install, in build/package, and checks it.
#
#     packaging/package.sh               the Debian package, ddptrain_VERSION_ARCHITECTURE.deb, checked by lintian
#     packaging/package.sh portable      ddptrain-VERSION-linux-x86_64.tar.gz, for every Linux with glibc 2.28 or later, and the same with
#                                        the Python package as a wheel, ddptrain-VERSION-py3-none-manylinux_2_28_x86_64.whl
#
# Without the modules of the GPU, whose libraries Debian does not have: for them build from source (docs/gpu.md).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

quietly() { # function: its output is shown only when it fails
    (set -e && "$1") >"$log" 2>&1 || {
        cat "$log" >&2
        echo "package: the build failed; the lines above say why" >&2
        exit 1
    }
}

build_deb() {
    rm -f build/package/*.deb build/package/CMakeCache.txt
    cmake --preset release -B build/package -DCMAKE_INSTALL_PREFIX=/usr -DDDPTRAIN_TESTS=OFF -DDDPTRAIN_CUDA=OFF -DDDPTRAIN_SHARED_LIBRARIES=ON
    cmake --build build/package
    (cd build/package && cpack -G DEB)
}

# What is in the portable program of other projects, as Debian packages: their licenses lie beside it.
bundled=(gcc-12-base libaec-dev libdnnl2 libgloo0 libhdf5-dev libjansson-dev libjpeg62-turbo-dev libpng-dev libsqlite3-dev libutf8proc-dev
    libyaml-dev nettle-dev zlib1g-dev)

copy_library() { # name, libraries that it needs for parts that are not used
    local library=$1
    shift
    cp -L "$(cc "-print-file-name=$library")" "$tree/lib/ddptrain/$library"
    chmod u+w "$tree/lib/ddptrain/$library"
    packaging/portable/glibc.py rebind "$tree/lib/ddptrain/$library" "$@"
}

build_portable() {
    local link=$root/build/portable/link name
    packaging/portable/glibc.py link "$link"
    rm -f build/portable/CMakeCache.txt
    cmake --preset release -B build/portable -DCMAKE_INSTALL_PREFIX=/opt/ddptrain -DCMAKE_INSTALL_LIBDIR=lib -DDDPTRAIN_TESTS=OFF \
        -DDDPTRAIN_CUDA=OFF -DDDPTRAIN_PORTABLE="$link"
    cmake --build build/portable --target install_files
    version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' build/portable/CMakeCache.txt)
    tree=build/portable/ddptrain-$version-linux-x86_64
    rm -rf build/portable/ddptrain-* build/package/*.tar.gz build/package/*.whl
    cmake --install build/portable --prefix "$root/$tree" --strip
    copy_library libgomp.so.1
    copy_library libgcc_s.so.1
    copy_library libstdc++.so.6
    copy_library libgloo.so.0 libhiredis.so.0.14 libibverbs.so.1
    copy_library libdnnl.so.2 libOpenCL.so.1
    for name in gloo onednn; do
        packaging/portable/glibc.py rebind "$tree/lib/ddptrain/ddptrain_$name.so"
    done
    for name in "${bundled[@]}"; do
        install -D -m 644 "/usr/share/doc/$name/copyright" "$tree/share/doc/ddptrain/licenses/$name"
    done
    packaging/portable/glibc.py check "$tree"
    mkdir -p build/package
    tar --directory build/portable --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --create "ddptrain-$version-linux-x86_64" |
        gzip -9 -n >"build/package/ddptrain-$version-linux-x86_64.tar.gz"
    packaging/python/wheel.py "$tree" "$version" build/package
}

case "${1:-deb}" in
    deb)
        scripts/install-deps.sh package
        quietly build_deb
        lintian --fail-on error,warning --tag-display-limit 0 --allow-root build/package/*.deb
        ls build/package/*.deb
        ;;
    portable)
        if [ "$(uname -m)" != x86_64 ]; then
            echo "package: the portable program is made on x86-64 only, and this is $(uname -m)" >&2
            exit 64
        fi
        scripts/install-deps.sh package
        quietly build_portable
        if [ -z "${CI:-}" ] && ! unshare --mount true 2>/dev/null && ! unshare --user --map-root-user --mount true 2>/dev/null; then
            echo "package: tests/proof/portable.sh was not run: no namespaces here, as in many containers" >&2
        else
            tests/proof/portable.sh
        fi
        ls -s --block-size=K build/package/*.tar.gz build/package/*.whl
        ;;
    *)
        echo "package: unknown word '$1'; known: deb portable" >&2
        exit 64
        ;;
esac
