#!/usr/bin/env bash
# Builds the Debian package, build/package/ddptrain_VERSION_ARCHITECTURE.deb, and checks it with lintian.
#
#     packaging/package.sh
#     apt install ./build/package/ddptrain_*.deb
#
# Without the modules of the GPU, whose libraries Debian does not have: for them build from source (docs/gpu.md).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
scripts/install-deps.sh package
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{
    rm -f build/package/*.deb build/package/CMakeCache.txt
    cmake --preset release -B build/package -DCMAKE_INSTALL_PREFIX=/usr -DDDPTRAIN_TESTS=OFF -DDDPTRAIN_CUDA=OFF -DDDPTRAIN_SHARED_LIBRARIES=ON
    cmake --build build/package
    (cd build/package && cpack -G DEB)
} >"$log" 2>&1 || {
    cat "$log" >&2
    echo "package: the build failed; the lines above say why" >&2
    exit 1
}
lintian --fail-on error,warning --tag-display-limit 0 --allow-root build/package/*.deb
ls build/package/*.deb
