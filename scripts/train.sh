#!/usr/bin/env bash
# From a fresh checkout to a trained model: installs what is missing, builds, trains.
#
#     scripts/train.sh                                        configs/wine_mlp.yaml
#     scripts/train.sh configs/iris_csv.yaml --nproc 2        any config, any option of ddptrain
#     scripts/train.sh optimizer.lr=0.01                      the default config with another learning rate
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

scripts/install-deps.sh build
# `cmake --build` repeats the configuration when it must; the first time, the tests are left out
[ -x build/release/bin/ddptrain ] || echo "building build/release/bin/ddptrain"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{
    # the modules of the GPU take nvcc minutes: not where no driver could run them
    [ -f build/release/build.ninja ] || {
        cuda=OFF
        [ ! -e /dev/nvidiactl ] || cuda=AUTO
        cmake --preset release -DDDPTRAIN_TESTS=OFF -DDDPTRAIN_CUDA=$cuda
    }
    cmake --build --preset release --target install_files # what cmake --install needs
} >"$log" 2>&1 || {
    cat "$log" >&2
    echo "train: the build failed; the lines above say why" >&2
    exit 1
}

# The first word that is neither an option nor KEY=VALUE would be the config.
config=configs/wine_mlp.yaml
for word in "$@"; do
    case "$word" in
        *.yaml | *.yml) config= ;;
    esac
done
rm -f "$log"
exec build/release/bin/ddptrain ${config:+"$config"} "$@"
