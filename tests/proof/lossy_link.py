#!/usr/bin/env python3
"""A bad link between two network namespaces, for kernels without netem: a TUN device in each, and this process between them, which
delays each packet and loses some. What crosses it is ordinary IP; the kernels on both sides retransmit as on any bad network.

    tests/proof/lossy_link.py NAMESPACE NAMESPACE [--device link0] [--delay 5] [--jitter 50] [--loss 0.02] [--seed 1]

Prints "up" when both devices are there (down, without an address: the caller configures them) and carries packets until SIGTERM; then
it prints how many it carried and lost. Packets keep their order, as in a queue; milliseconds are one way. Needs root."""
import argparse, collections, ctypes, fcntl, os, random, select, signal, struct, sys, time

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000


def open_device(namespace, name):
    with open(f"/var/run/netns/{namespace}", "rb") as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {namespace}")
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22s", name.encode(), IFF_TUN | IFF_NO_PI, b""))
    return fd


class Way:
    """One direction."""

    def __init__(self, source, target, options, rng):
        self.source, self.target, self.options, self.rng = source, target, options, rng
        self.queue = collections.deque()  # (when, packet), in order
        self.carried = self.lost = 0

    def take(self, now):
        try:
            packet = os.read(self.source, 65536)
        except OSError:  # nothing there, or the device is still down
            return
        if self.rng.random() < self.options.loss:
            self.lost += 1
            return
        when = now + 1e-3 * (self.options.delay + self.rng.uniform(0, self.options.jitter))
        self.queue.append((max(when, self.queue[-1][0] if self.queue else 0), packet))

    def give(self, now):
        while self.queue and self.queue[0][0] <= now:
            try:
                os.write(self.target, self.queue.popleft()[1])
                self.carried += 1
            except OSError:  # the other device is down: as any network, it says nothing
                self.lost += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("namespaces", nargs=2, metavar="NAMESPACE")
    parser.add_argument("--device", default="link0")
    parser.add_argument("--delay", type=float, default=5)
    parser.add_argument("--jitter", type=float, default=50)
    parser.add_argument("--loss", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    rng = random.Random(options.seed)
    a, b = (open_device(name, options.device) for name in options.namespaces)
    ways = [Way(a, b, options, rng), Way(b, a, options, rng)]
    print("up", flush=True)
    while not stopped:
        now = time.monotonic()
        for way in ways:
            way.give(now)
        heads = [way.queue[0][0] for way in ways if way.queue]
        ready, _, _ = select.select([a, b], [], [], max(0, min(heads) - now) if heads else 1)
        for way in ways:
            if way.source in ready:
                way.take(time.monotonic())
    print(f"{sum(way.carried for way in ways)} carried, {sum(way.lost for way in ways)} lost", flush=True)


if __name__ == "__main__":
    sys.exit(main())
