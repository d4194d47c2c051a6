#!/usr/bin/python3
"""Several hosts on one machine for measurements (root): network namespaces on a bridge, each with a host name of its own, and the
words that start a command on them by the mpirun of Open MPI or MPICH."""
import os, subprocess, sys

BINARY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build", "release", "bin", "ddptrain")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def address(host):
    return f"10.78.{host // 250}.{host % 250 + 1}"


def bytes_of(rate):
    """Of "100mbit" in a second."""
    return int(rate.rstrip("gmbit")) * (10**9 if "g" in rate else 10**6) // 8


class Hosts:
    """[count] hosts, removed at the end. [rate]: of each link, as "10gbit"; None: as fast as the machine. [delay]: milliseconds one way, by
    bench/slow_links.c, whose program is [binary]'s neighbour."""

    def __init__(self, count, rate=None, delay=0, binary=BINARY):
        self.count, self.rate, self.delay, self.links = count, rate, delay, None
        self.program = os.path.join(os.path.dirname(binary), "slow_links")
        self.start = f"bench{os.getpid()}-"

    def __enter__(self):
        try:
            names = [self.start + str(host) for host in range(self.count)]
            for name in names:
                self.ip("netns", "add", name)
            self.connect(names)
            for host, name in enumerate(names):
                self.ip("-n", name, "address", "add", address(host) + "/16", "dev", "eth0")
                for device in "eth0", "lo":
                    self.ip("-n", name, "link", "set", device, "up")
                if self.rate:
                    subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", self.rate, "burst", str(max(32 << 10, bytes_of(self.rate) // 1000)), "latency", "50ms"],
                                   check=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def connect(self, names):
        if not self.delay:
            self.ip("netns", "add", self.start + "s")
            self.ip("-n", self.start + "s", "link", "add", "bridge0", "up", "type", "bridge")
            for host, name in enumerate(names):
                self.ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{host}", "netns", self.start + "s")
                self.ip("-n", self.start + "s", "link", "set", f"port{host}", "master", "bridge0", "up")
            return
        self.links = subprocess.Popen(["chrt", "--fifo", "10", self.program, "--device", "eth0", "--delay", str(self.delay),
                                       *(f"{name}={address(host)}" for host, name in enumerate(names))], stdout=subprocess.PIPE, text=True)
        if self.links.stdout.readline() != "up\n":
            raise OSError("there are no TUN devices")
        for name in names:
            self.ip("-n", name, "link", "set", "eth0", "mtu", "9000")

    def __exit__(self, *_):
        if self.links:
            self.links.terminate()
            self.links.communicate()
        for name in ["s", *map(str, range(self.count))]:
            subprocess.run(["ip", "netns", "del", self.start + name], check=False, stderr=subprocess.DEVNULL)

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def enter(self, host, *command):
        """The words that run [command] on [host]."""
        return ["ip", "netns", "exec", self.start + str(host), "unshare", "--uts", "sh", "-c", f'hostname host{host}; exec "$@"', "sh", *command]

    def mpirun(self, mpi, ranks):
        """The words before a command that starts [ranks] ranks, as many on each host, and the variables that it needs."""
        each = -(-ranks // self.count)
        hosts = ",".join(f"{address(h)}:{each}" for h in range(self.count))
        agent = [os.path.abspath(__file__), self.start]
        env = {**AS_ROOT, "MASTER_ADDR": address(0)}
        if mpi == "openmpi":
            return self.enter(0, "mpirun.openmpi", "--mca", "plm_rsh_agent", " ".join(agent), "--mca", "oob_tcp_if_include", "eth0", "--mca",
                              "btl_tcp_if_include", "eth0", "--bind-to", "none", "--host", hosts, "-n", str(ranks), "-x", "MASTER_ADDR"), env
        return self.enter(0, "mpirun.mpich", "-launcher", "ssh", "-launcher-exec", agent[0], "-hosts", hosts, "-n", str(ranks)), {**env, "BENCH_HOSTS": agent[1],
                                                                                                                         "UCX_TLS": "tcp,self"}


if __name__ == "__main__":  # what mpirun calls instead of ssh: [options] address command
    words = sys.argv[1:]
    hosts = Hosts(0)
    hosts.start = words.pop(0) if words[0].startswith("bench") else os.environ["BENCH_HOSTS"]
    while words[0].startswith("-"):
        words.pop(0)
    a, b = map(int, words.pop(0).split(".")[2:])
    command = hosts.enter(a * 250 + b - 1, "sh", "-c", " ".join(words))
    os.execvp(command[0], command)
