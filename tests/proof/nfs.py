#!/usr/bin/env python3
"""A real NFS server carries a run folder and a shared sweep: Debian's kernel in qemu, with the server and two hosts that mount its export.

    tests/proof/nfs.py [--versions 3 4.2] [--parts run_folder errors sweep] [--kills 60] [--folder DIR]

Makes a system with mmdebstrap, starts it from memory with Debian's cloud kernel, and in it this file again. The hosts are network namespaces
with their own host name, processes, mounts and NFS client (the kernel has one for each network namespace), so nothing but the server connects
them. The program is the portable one (packaging/package.sh portable). For each version of NFS:

* sweep --share on both hosts with kills and suspensions, while the server is stopped and started and a host is cut off for longer than the
  lease: tests/proof/shared_sweep.py compares the table with one process's, and counts lost and repeated runs.
* A run folder: a second run is refused from the other host, also after a restart of the server; a killed run is resumed on the other host
  with the same bits.
* A full export, a quota, an export that is withdrawn, a folder that is removed on the server: the documented exit code and one sentence.

By hand: needs root, mmdebstrap, qemu-system-x86, cpio. The processor is emulated, so that no /dev/kvm is
needed; each version takes about 12 minutes on two cores.
"""
import argparse, glob, os, re, shutil, signal, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGES = "nfs-kernel-server,nfs-common,rpcbind,python3,kmod,iproute2,procps,quota"
INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 OMP_NUM_THREADS=1
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /run
depmod -a
for module in virtio_pci virtio_blk veth quota_v2 nfsd nfs nfsv3 nfsv4; do modprobe $module; done
python3 /ddptrain/tests/proof/nfs.py --guest {words}
echo "guest: ended with $?"
sync
echo b >/proc/sysrq-trigger
"""
USER = 1000  # with a quota


def call(*words, **options):
    return subprocess.run([str(w) for w in words], check=True, **options)


# ---- outside: make the system, start it ----

def make_root(folder):
    root = f"{folder}/root"
    if not os.path.exists(f"{folder}/complete"):
        shutil.rmtree(root, ignore_errors=True)
        call("mmdebstrap", "--quiet", "--variant=minbase", "--include", PACKAGES, "bookworm", root)
        show = call("apt-cache", "depends", "linux-image-cloud-amd64", capture_output=True, text=True).stdout
        call("apt-get", "-q", "download", re.search(r"Depends: (linux-image-\S+)", show)[1], cwd=folder, stdout=subprocess.DEVNULL)
        call("dpkg-deb", "--extract", glob.glob(f"{folder}/linux-image*.deb")[0], f"{folder}/linux")
        os.rename(f"{folder}/linux/lib/modules", f"{root}/usr/lib/modules")
        os.rename(glob.glob(f"{folder}/linux/boot/vmlinuz*")[0], f"{folder}/vmlinuz")
        for rest in ("usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt"):
            shutil.rmtree(f"{root}/{rest}", ignore_errors=True)
        open(f"{folder}/complete", "w").close()
    return root


def add_program(root, words):
    program = f"{root}/ddptrain"
    shutil.rmtree(program, ignore_errors=True)
    os.makedirs(f"{program}/tests")
    archives = glob.glob(f"{ROOT}/build/package/ddptrain-*-linux-x86_64.tar.gz")
    if not archives:
        sys.exit("nfs: there is no portable program: packaging/package.sh portable")
    call("tar", "-xzf", archives[0], "-C", program, "--strip-components=1")
    shutil.copytree(f"{ROOT}/tests/proof", f"{program}/tests/proof")
    for name in ("configs", "datasets"):
        os.symlink(f"share/ddptrain/{name}", f"{program}/{name}")
    with open(f"{root}/init", "w") as f:
        f.write(INIT.format(words=words))
    os.chmod(f"{root}/init", 0o755)


def outside(o):
    for program in ("mmdebstrap", "qemu-system-x86_64", "cpio", "mke2fs"):
        if os.geteuid() != 0 or not shutil.which(program):
            sys.exit("nfs: needs root, mmdebstrap, qemu-system-x86 and cpio")
    folder = o.folder or tempfile.mkdtemp(prefix="ddptrain-nfs-")
    os.makedirs(folder, exist_ok=True)
    root = make_root(folder)
    add_program(root, f"--kills {o.kills} --versions {' '.join(o.versions)} --parts {' '.join(o.parts)}")
    with open(f"{folder}/initrd", "wb") as f:
        names = subprocess.Popen(["find", ".", "-print0"], cwd=root, stdout=subprocess.PIPE)
        call("cpio", "--null", "--quiet", "-o", "-H", "newc", cwd=root, stdin=names.stdout, stdout=f)
    words = ["qemu-system-x86_64", "-smp", "2", "-m", "3G", "-nographic", "-no-reboot", "-nic", "none", "-kernel", f"{folder}/vmlinuz",
             "-initrd", f"{folder}/initrd", "-append", "console=ttyS0 quiet panic=-1 rdinit=/init lockd.nlm_grace_period=10"]
    words += ["-accel", "tcg,thread=multi", "-cpu", "max"]
    for name, size in (("export", "1G"), ("small", "24M")):
        disk = f"{folder}/{name}.ext4"
        if os.path.exists(disk):
            os.remove(disk)
        call("mke2fs", "-q", "-t", "ext4", "-O", "quota", disk, size)
        words += ["-drive", f"file={disk},format=raw,if=virtio"]
    ok = False
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace") as qemu:
        signal.alarm(o.timeout)
        for line in qemu.stdout:
            print(line, end="", flush=True)
            ok = ok or line.startswith("guest: ended with 0")
        signal.alarm(0)
    if not o.folder:
        shutil.rmtree(folder)
    return 0 if ok else 1


# ---- inside: the server, and the hosts ----

class Host:
    """A network namespace with its own name, processes, /run and NFS client."""
    def __init__(self, number):
        self.number, self.name, self.link = number, f"host{number}", f"veth{number}"
        spaces = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        self.popen = subprocess.Popen(spaces + ["sleep", "infinity"])
        while not self.inner():
            time.sleep(0.01)
        self.pid = self.inner()
        call("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.pid)
        call("ip", "address", "add", f"10.0.{number}.1/24", "dev", self.link)
        call("ip", "link", "set", self.link, "up")
        self.run(f"hostname {self.name}; ip address add 10.0.{number}.2/24 dev eth0; ip link set eth0 up; ip link set lo up;"
                 "mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/lib/nfs; mkdir -p /run/rpcbind /var/lib/nfs/sm /var/lib/nfs/sm.bak;"
                 "rpcbind; rpc.statd --no-notify")

    def inner(self):
        with open(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children") as f:
            children = f.read().split()
        return int(children[0]) if children else None

    def prefix(self, folder):
        return ["nsenter", "-t", str(self.pid), "-n", "-u", "-m", "-p", "sh", "-c", f'cd {folder} && exec "$@"', "sh"]

    def run(self, script):
        call(*self.prefix("/"), "sh", "-ec", script)

    def mount(self, export, folder, options):
        self.run(f"mkdir -p {folder} && mount -t nfs -o {options} 10.0.{self.number}.1:{export} {folder}")

    def unmount(self, folder):
        self.run(f"umount -f -l {folder}")

    def cut(self, seconds):
        call("ip", "link", "set", self.link, "down")
        time.sleep(seconds)
        call("ip", "link", "set", self.link, "up")

    def start(self, folder, *words, user=0):
        words = ["setpriv", "--reuid", str(user), "--clear-groups", "/ddptrain/bin/ddptrain", *map(str, words)]
        return subprocess.Popen(self.prefix(folder) + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Server:
    def __init__(self):
        self.exports = []
        for n, name in enumerate(("export", "small")):
            os.makedirs(f"/{name}")
            call("mount", "-o", "usrquota", f"/dev/vd{'ab'[n]}", f"/{name}")
            os.chmod(f"/{name}", 0o777)
        os.makedirs("/run/rpcbind", exist_ok=True)
        call("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
        for name in ("nfsv4gracetime", "nfsv4leasetime"):
            with open(f"/proc/fs/nfsd/{name}", "w") as f:
                f.write("10")
        call("ip", "link", "set", "lo", "up")
        call("rpcbind")
        call("rpc.statd", "--no-notify")
        call("rpc.mountd")
        for name in ("export", "small"):
            call("exportfs", "-o", "rw,sync,no_root_squash,no_subtree_check", f"*:/{name}")
        self.start()

    def start(self):
        call("rpc.nfsd", "8")

    def stop(self):
        call("rpc.nfsd", "0")

    def restart(self, seconds):
        self.stop()
        time.sleep(seconds)
        self.start()


class Proof:
    def __init__(self, o):
        self.o, self.failures = o, 0
        self.server = Server()
        self.hosts = [Host(1), Host(2)]

    def expect(self, what, ok, found=""):
        self.failures += not ok
        print(f"{'ok    ' if ok else 'FAILED'} {self.version}: {what}{'' if ok else f': {found}'}", flush=True)

    def ends(self, what, process, code, *patterns, timeout=120):
        """The process ends with [code] and one sentence on stderr, which has each pattern; a second line may say what to do."""
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.stop_child(process, signal.SIGKILL)
            return self.expect(what, False, "it did not end: " + " ".join(process.communicate()))
        lines = [line for line in err.splitlines() if line]
        is_short = not lines if not patterns else 1 <= len(lines) <= 2 and lines[0].startswith("ddptrain: ")
        good = process.returncode == code and is_short and all(re.search(p, lines[0]) for p in patterns)
        self.expect(f"{what}: {code}{', ' + lines[0] if patterns and lines else ''}", good, f"{process.returncode} {out[-600:]} {err}")

    def state(self, folder):
        with open(f"/export/{folder}/metrics.jsonl") as f:
            return re.findall(r'"state_sha256":"(\w+)"', f.read())[-1]

    # ---- a sweep that both hosts share ----

    def sweep(self):
        os.mkdir(f"/export/sweep{self.version}")
        prefixes = [" ".join(["nsenter", "-t", str(h.pid), "-n", "-u", "-m", "-p", "sh", "-c", f"'cd /mnt/sweep{self.version} && exec \"$@\"'", "sh"])
                    for h in self.hosts]
        words = ["/ddptrain/tests/proof/shared_sweep.py", "--processes", "6", "--kills", self.o.kills, "--trials", "200", "--epochs", "50", "--pause",
                 "0.6", "--binary", "/ddptrain/bin/ddptrain", "--folders", f"/export/sweep{self.version}", "--hosts", *prefixes]
        process = subprocess.Popen([str(w) for w in words])
        for n in range(3):  # while it is running
            time.sleep(8)
            self.server.restart(3)
            time.sleep(8)
            self.hosts[n % 2].cut(5)
        self.expect("a sweep of both hosts: no run lost or repeated, the table of one process", process.wait(timeout=900) == 0)

    # ---- a run folder ----

    def begin(self, host, name, *words, folder="/mnt", at="/export", **options):
        """A run that has saved a checkpoint and goes on."""
        p = host.start(folder, "/ddptrain/configs/wine_mlp.yaml", "--run-dir", name, "--no-progress", "--quiet", *words, **options)
        deadline = time.monotonic() + 60
        while p.poll() is None and not glob.glob(f"{at}/{name}/checkpoints/*.h5") and time.monotonic() < deadline:
            time.sleep(0.01)
        return p

    LONG = ("train.epochs=1200", "checkpoint.save_every=50", "checkpoint.keep=2")
    SAVING = ("train.epochs=1500", "checkpoint.save_every=20", "checkpoint.keep=10000")

    def run_folder(self):
        one, two = self.hosts
        other = [w for w in ("/ddptrain/configs/wine_mlp.yaml", "--run-dir", "run", "--quiet", *self.LONG)]
        refused = r"run: another ddptrain is training in this folder"
        p = self.begin(one, "run", *self.LONG)
        self.ends("the run folder of another host", two.start("/mnt", *other), 64, refused)
        os.kill(p.pid, signal.SIGSTOP)
        self.stop_child(p, signal.SIGSTOP)
        self.server.restart(2)
        time.sleep(15)  # the server waits for the locks of before
        self.ends("the same after a restart of the server", two.start("/mnt", *other), 64, refused)
        self.stop_child(p, signal.SIGKILL)
        os.kill(p.pid, signal.SIGCONT)
        p.wait()
        self.ends("a killed run is resumed on the other host", two.start("/mnt", *other), 0, timeout=300)
        self.ends("a run without a kill", one.start("/mnt", *[w.replace("run", "alone") if w == "run" else w for w in other]), 0, timeout=300)
        self.expect("both have the same state", self.state("run") == self.state("alone"), self.state("run"))
        with open("/export/run/metrics.jsonl") as f:
            self.expect("it was continued from a checkpoint", '"event":"resume"' in f.read())

    def stop_child(self, p, number):
        with open(f"/proc/{p.pid}/task/{p.pid}/children") as f:
            for child in f.read().split():
                os.kill(int(child), number)

    # ---- errors of the server ----

    def errors(self):
        one = self.hosts[0]
        p = self.begin(one, "full", *self.SAVING, folder="/small", at="/small")
        with open("/small/rest", "wb") as f:
            try:
                while True:
                    f.write(bytes(1 << 16))
                    f.flush()
            except OSError:
                pass
        self.ends("a full export", p, 74, "No space left on device")
        os.remove("/small/rest")

        call("setquota", "-u", USER, 0, 600, 0, 0, "/small")
        p = one.start("/small", "/ddptrain/configs/wine_mlp.yaml", "--run-dir", "quota", "--quiet", *self.SAVING, user=USER)
        self.ends("a quota", p, 74, "Disk quota exceeded")
        for name in ("full", "quota"):
            shutil.rmtree(f"/small/{name}", ignore_errors=True)

        p = self.begin(one, "stale", *self.SAVING, folder="/small", at="/small")
        call("exportfs", "-u", "*:/small")
        self.ends("an export that is withdrawn", p, 74, "Stale file handle|Permission denied|Operation not permitted")
        call("exportfs", "-o", "rw,sync,no_root_squash,no_subtree_check", "*:/small")

        p = self.begin(one, "gone", *self.SAVING, folder="/small", at="/small")
        shutil.rmtree("/small/gone")
        # a server of version 4 keeps files that are open: the run notices it as on a local disk, and writes the folder again
        self.ends("a run folder that is removed on the server", p, *((74, "Stale file handle") if self.version == "3" else (0,)))

    def run(self):
        for self.version in self.o.versions:
            for host in self.hosts:
                for export, folder in (("/export", "/mnt"), ("/small", "/small")):
                    host.mount(export, folder, f"vers={self.version},hard")
            for part in self.o.parts:
                getattr(self, part)()
            for host in self.hosts:
                for folder in ("/mnt", "/small"):
                    host.unmount(folder)
            for name in glob.glob("/export/*") + glob.glob("/small/*"):
                shutil.rmtree(name, ignore_errors=True)
        return 1 if self.failures else 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--versions", nargs="*", default=["3", "4.2"])
    p.add_argument("--parts", nargs="*", default=["run_folder", "errors", "sweep"])
    p.add_argument("--kills", type=int, default=60)
    p.add_argument("--folder", help="keeps the system for the next start")
    p.add_argument("--timeout", type=int, default=3600)
    p.add_argument("--guest", action="store_true", help=argparse.SUPPRESS)
    o = p.parse_args()
    return Proof(o).run() if o.guest else outside(o)


if __name__ == "__main__":
    sys.exit(main())
