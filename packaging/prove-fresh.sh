#!/usr/bin/env bash
# Proves the README's two commands on a bare Debian: makes one with debootstrap in a temporary folder (base system and
# git, nothing else), clones the committed state of this repository into it and runs the commands inside.
#
#     sudo packaging/prove-fresh.sh                   scripts/train.sh and scripts/test.sh
#     sudo packaging/prove-fresh.sh 'COMMAND' ...     other commands instead, each in the clone
#
# SUITE (bookworm), MIRROR (where this machine gets its packages) and TMPDIR may be set. The system is removed at the end.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -gt 0 ] || set -- ./scripts/train.sh ./scripts/test.sh

if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
    echo "prove-fresh: needs root and debootstrap (apt-get install debootstrap)" >&2
    exit 64
fi
if [ "${PROVE_FRESH_INSIDE:-}" != yes ]; then # own mounts and processes: all of them end with this script
    PROVE_FRESH_INSIDE=yes exec unshare --mount --pid --fork --kill-child --propagation private "$0" "$@"
fi

suite=${SUITE:-bookworm}
# shellcheck disable=SC2016 # apt-get expands it
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sed -n 1p)}

fresh=$(mktemp -d --tmpdir ddptrain-fresh.XXXXXX)
clean_up() {
    umount --lazy "$fresh/proc" "$fresh/dev/pts" 2>/dev/null || true
    rm -rf --one-file-system "$fresh"
}
trap clean_up EXIT

echo "== a bare $suite from $mirror in $fresh"
debootstrap --variant=minbase --include=git,ca-certificates "$suite" "$fresh" "$mirror" >"$fresh.log" 2>&1 || {
    tail -20 "$fresh.log"
    exit 1
}
rm -f "$fresh.log"
mount -t proc proc "$fresh/proc"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$fresh/dev/pts"
ln -sf pts/ptmx "$fresh/dev/ptmx"
# names, and how to fetch packages (proxy), as on this machine
cp -L /etc/resolv.conf /etc/hosts "$fresh/etc/"
apt-config dump Acquire >"$fresh/etc/apt/apt.conf.d/99host"
git clone --quiet --no-hardlinks "$root" "$fresh/root/ddptrain"

for command in "$@"; do
    echo "== $command"
    env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        chroot "$fresh" /bin/bash -c "cd /root/ddptrain && time $command" </dev/null
done
echo "== all passed on a bare $suite"
