#!/usr/bin/env python3
"""Jobs in a real Grid Engine: Debian's, of two hosts, which are network namespaces with a name of their own.

    tests/proof/gridengine.py [--folder DIR] [--parts environment submitted soft array]

Makes a system with mmdebstrap that has Grid Engine and Open MPI, starts qmaster and two execds in it (chroot), and submits as a user:

* the script of `ddptrain submit --queue sge` over both hosts: the state of --nproc with as many processes
* a job with a soft limit, whose end is SIGUSR1: 75
* an array of jobs that share a sweep, one deleted with qdel: the table of one process

By hand: needs root and mmdebstrap; the program is the portable one (packaging/package.sh portable). 2 minutes, most of it waiting.
"""
import argparse, glob, os, re, shutil, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGES = "gridengine-master,gridengine-exec,gridengine-client,openmpi-bin,procps,iproute2,hostname,tcsh,python3"
HOSTS = "127.0.0.1 localhost\n10.9.0.1 ge1\n10.9.0.2 ge2\n"
SWEEP = """config: wine.yaml
method: random
trials: 200
overrides: [train.epochs=1000]
parameters: {optimizer.lr: {distribution: log_uniform, min: 1.0e-4, max: 1.0e-1}}
keep: {runs: best 5}
"""
PARALLEL = "pe_name mpi\nslots 99\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\nstop_proc_args NONE\nallocation_rule $round_robin\n" \
           "control_slaves TRUE\njob_is_first_task FALSE\nurgency_slots min\naccounting_summary FALSE\nqsort_args NONE\n"


def call(*words, **options):
    return subprocess.run([str(w) for w in words], check=True, **options)


class Cluster:
    def __init__(self, folder):
        self.folder, self.root, self.failures, self.hosts = folder, f"{folder}/root", 0, []

    SPOOL = ("var/spool/gridengine", "var/lib/gridengine/default")

    def make(self):
        if not os.path.exists(f"{self.folder}/complete"):
            shutil.rmtree(self.root, ignore_errors=True)
            hook = 'printf "127.0.0.1 localhost\\n10.9.0.1 %s\\n" "$(hostname)" >"$1/etc/hosts"'  # its installation looks the name up
            call("mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", f"--essential-hook={hook}", "bookworm", self.root)
            call("chroot", self.root, "useradd", "--create-home", "--home-dir", "/srv/user", "--uid", "1000", "--shell", "/bin/bash", "user")
            call("tar", "-czf", f"{self.folder}/spool.tar.gz", "-C", self.root, *self.SPOOL)
            open(f"{self.folder}/complete", "w").close()
        for name in self.SPOOL:  # its database does not survive a kill
            shutil.rmtree(f"{self.root}/{name}")
        call("tar", "-xzf", f"{self.folder}/spool.tar.gz", "-C", self.root)
        archives = glob.glob(f"{ROOT}/build/package/ddptrain-*-linux-x86_64.tar.gz")
        if not archives:
            sys.exit("gridengine: there is no portable program: packaging/package.sh portable")
        shutil.rmtree(f"{self.root}/opt/ddptrain", ignore_errors=True)
        os.makedirs(f"{self.root}/opt/ddptrain")
        call("tar", "-xzf", archives[0], "-C", f"{self.root}/opt/ddptrain", "--strip-components=1")
        self.write("etc/hosts", HOSTS)
        self.write("var/lib/gridengine/default/common/act_qmaster", "ge1\n")

    def write(self, name, text):
        with open(f"{self.root}/{name}", "w") as f:
            f.write(text)

    # ---- hosts ----

    def add_host(self, number):
        words = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "chroot", self.root, "sleep", "infinity"]
        popen = subprocess.Popen(words)
        children = ""
        while not children:
            time.sleep(0.05)
            with open(f"/proc/{popen.pid}/task/{popen.pid}/children") as f:
                children = f.read()
        pid = int(children.split()[0])
        self.hosts.append(pid)
        if number == 2:
            call("nsenter", "-t", self.hosts[0], "-n", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", pid)
        self.at(number, "sh", "-c", f"hostname ge{number}; mount -t proc proc /proc; mount -t tmpfs tmpfs /dev/shm 2>/dev/null; true")

    def connect(self):
        for number in (1, 2):
            self.at(number, "sh", "-c", f"ip link set lo up; ip address add 10.9.0.{number}/24 dev eth0; ip link set eth0 up")

    def at(self, number, *words, **options):
        pid = self.hosts[number - 1]
        return call("nsenter", "-t", pid, "-n", "-u", "-m", "-p", "chroot", self.root, *words, **options)

    def as_user(self, script, number=1, **options):
        profile = ". /var/lib/gridengine/default/common/settings.sh; export PATH=$PATH:/opt/ddptrain/bin; cd /srv/user && "
        return self.at(number, "setpriv", "--reuid", 1000, "--regid", 1000, "--clear-groups", "env", "-i", "HOME=/srv/user", "USER=user", "LOGNAME=user",
                       "PATH=/usr/bin:/bin", "OMP_NUM_THREADS=1", "bash", "-c", profile + script, text=True, capture_output=True, **options).stdout

    def start(self):
        self.add_host(1)
        self.add_host(2)
        self.connect()
        self.at(1, "sh", "-c", "su -s /bin/sh sgeadmin -c /usr/sbin/sge_qmaster")
        time.sleep(3)
        admin = lambda script: self.at(1, "bash", "-ec", ". /var/lib/gridengine/default/common/settings.sh; " + script)
        self.write("tmp/pe", PARALLEL)
        self.write("tmp/group", "group_name @allhosts\nhostlist ge1 ge2\n")
        for host in ("ge1", "ge2"):
            self.write(f"tmp/{host}", f"hostname {host}\nload_scaling NONE\ncomplex_values NONE\nuser_lists NONE\nxuser_lists NONE\nprojects NONE\n"
                                      "xprojects NONE\nusage_scaling NONE\nreport_variables NONE\n")
            admin(f"(qconf -ah {host}; qconf -as {host}; qconf -Ae /tmp/{host}) >/dev/null 2>&1 || true")
        admin("qconf -sp mpi >/dev/null 2>&1 || qconf -Ap /tmp/pe; qconf -shgrp @allhosts >/dev/null 2>&1 || qconf -Ahgrp /tmp/group")
        self.write("tmp/edit", "#!/bin/sh\nsed -i -e 's/^hostlist.*/hostlist @allhosts/' -e 's/^slots.*/slots 4/' -e 's/^pe_list.*/pe_list mpi/' -e 's/^load_thresholds.*/load_thresholds NONE/' "
                               "-e 's/^shell .*/shell \\/bin\\/bash/' -e 's/^schedule_interval.*/schedule_interval 0:0:1/' \"$1\"\n")
        os.chmod(f"{self.root}/tmp/edit", 0o755)
        admin("export EDITOR=/tmp/edit; qconf -sq all.q >/dev/null 2>&1 || qconf -aq all.q; qconf -msconf")
        for number in (1, 2):
            self.at(number, "bash", "-c", ". /var/lib/gridengine/default/common/settings.sh; sge_execd")
        for _ in range(60):
            time.sleep(1)
            if self.as_user("qstat -f").count(" lx-amd64 ") == 2 and " au" not in self.as_user("qstat -f"):
                break

    # ---- jobs ----

    def expect(self, what, ok, found=""):
        self.failures += not ok
        print(f"{'ok    ' if ok else 'FAILED'} {what}{'' if ok else f': {found}'}", flush=True)

    def wait(self, seconds=90):
        end = time.monotonic() + seconds
        while self.as_user("qstat").strip() and time.monotonic() < end:
            time.sleep(1)
        return not self.as_user("qstat").strip()

    def read(self, pattern):
        texts = []
        for path in sorted(glob.glob(f"{self.root}/srv/user/{pattern}")):
            with open(path, errors="replace") as f:
                texts.append(f.read())
        return "\n".join(texts)

    def state(self, folder):
        states = re.findall(r'"state_sha256":"(\w+)"', self.read(f"{folder}/metrics.jsonl"))
        return states[-1] if states else None

    def codes(self, name):
        time.sleep(2)
        return re.findall(r"^exit_status +(\d+)", self.as_user(f"qacct -j {name} || true"), re.M)

    def submitted(self):
        self.as_user("ddptrain wine.yaml --nproc 4 --run-dir alone --quiet train.epochs=100")
        self.as_user("ddptrain submit wine.yaml --queue sge --nodes 2 --nproc 2 --time 0:10:00 --now --run-dir job train.epochs=100 dist.backend=mpi --out job.sh")
        ended = self.wait()
        self.expect("a job of submit over two hosts has the state of --nproc 4", ended and self.state("job") == self.state("alone"), self.read("*.o*"))

    def soft(self):
        self.as_user("qsub -cwd -j y -b y -N soft -l s_rt=0:0:10 -l h_rt=0:2:0 -o soft.log /opt/ddptrain/bin/ddptrain wine.yaml --run-dir soft --no-progress train.epochs=100000000")
        ended = self.wait()
        self.expect("a job at its soft limit (SIGUSR1) saves and ends with 75", ended and "stopped on request" in self.read("soft.log"),
                    self.read("soft.log")[-600:] + str(self.codes("soft")))

    def array(self):
        self.write("srv/user/s.yaml", SWEEP)
        self.as_user("ddptrain sweep s.yaml --run-dir one --quiet --no-progress")
        out = self.as_user("qsub -terse -cwd -j y -b y -N array -t 1-8 -o array.log /opt/ddptrain/bin/ddptrain sweep s.yaml --share --lease 5 --nproc 1 --no-progress --run-dir many")
        time.sleep(6)
        job = out.split(".")[0]
        self.as_user(f"qdel {job} -t 3 || true")
        ended = self.wait()
        self.expect("an array of jobs that share a sweep, one of them deleted, writes the table of one process",
                    ended and self.read("many/trials.csv") == self.read("one/trials.csv") != "", self.read("array.log")[-2000:])
        hosts = ended and {name.split("-")[0] for name in os.listdir(f"{self.root}/srv/user/many/shared/members")}
        self.expect("on both hosts", hosts == {"ge1", "ge2"}, hosts)

    def environment(self):
        self.as_user("qsub -cwd -j y -b y -N env -pe mpi 4 -o env.log 'env | grep -E \"^(SGE|JOB|NSLOTS|NHOSTS|NQUEUES|PE|QUEUE|RESTARTED|ARC|TASK)\" | sort; cat $PE_HOSTFILE'")
        self.wait()
        print(self.read("env.log"), end="")

    def run(self, parts):
        self.make()
        shutil.rmtree(f"{self.root}/srv/user")
        shutil.copytree(f"{self.root}/opt/ddptrain/share/ddptrain/datasets", f"{self.root}/srv/user/datasets")
        shutil.copy(f"{self.root}/opt/ddptrain/share/ddptrain/configs/wine_mlp.yaml", f"{self.root}/srv/user/wine.yaml")
        call("chown", "-R", "1000:1000", f"{self.root}/srv/user")
        self.start()
        for part in parts:
            getattr(self, part)()
        return 1 if self.failures else 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--folder", help="keeps the system for the next start")
    p.add_argument("--parts", nargs="*", default=["environment", "submitted", "soft", "array"])
    o = p.parse_args()
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        sys.exit("gridengine: needs root and mmdebstrap")
    if not os.environ.get("GRIDENGINE_INSIDE"):  # own mounts and processes: all of them end with this script
        os.environ["GRIDENGINE_INSIDE"] = "yes"
        os.execvp("unshare", ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private", sys.argv[0], *sys.argv[1:]])
    folder = o.folder or tempfile.mkdtemp(prefix="ddptrain-gridengine-")
    os.makedirs(folder, exist_ok=True)
    cluster = Cluster(folder)
    try:
        return cluster.run(o.parts)
    finally:
        if not o.folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
