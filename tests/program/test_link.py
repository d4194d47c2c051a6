"""The link between two hosts (network namespaces) is down for less than a second, repeatedly: no rank is lost.
ctest-labels: dist fault"""
import os, subprocess, time, unittest, uuid

from program import SLOW, STOPPED, Case, main

NAMES = [f"ddp{os.getpid()}{end}" for end in "ab"]
ADDRESSES = ("10.99.0.1", "10.99.0.2")
RANKS = ((0, 0, 0, 1), (1, 1, 0, 3), (2, 1, 1, 3), (3, 1, 2, 3))  # rank, host, local rank, ranks of the host
DOWN_SECONDS = (0.5, 0.9, 0.3, 0.7, 0.4, 0.8)

CONFIG = """name: test
seed: 1
dataset: {path: datasets/wine.h5, inputs: x, targets: y, split: {test: 0.2, seed: 1}}
sampler: {batch_size: 8}
model: {layers: [linear: {out: 4}, relu, linear: {out: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.001}
train: {epochs: 100000000, log_every: 100}
checkpoint: {save_every: {steps: 200}, keep: 1}
dist: {backend: gloo}
"""


def ip(*arguments):
    return subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)


def remove_hosts():
    for name in NAMES:
        ip("netns", "del", name)


def make_hosts():
    """Two namespaces with a link between them; why not, where that is not permitted."""
    try:
        commands = [("netns", "add", name) for name in NAMES]
        commands.append(("link", "add", "link0", "netns", NAMES[0], "type", "veth", "peer", "name", "link0", "netns", NAMES[1]))
        for name, address in zip(NAMES, ADDRESSES):
            commands += [("-n", name, "addr", "add", address + "/24", "dev", "link0"), ("-n", name, "link", "set", "lo", "up"),
                         ("-n", name, "link", "set", "link0", "up")]
        for command in commands:
            done = ip(*command)
            if done.returncode != 0:
                return done.stderr.strip() or "ip failed"
    except FileNotFoundError:
        return "there is no program ip"
    return None


class Link(Case):
    def setUp(self):
        super().setUp()
        self.addCleanup(remove_hosts)
        problem = make_hosts()
        if problem:
            self.skipTest(f"network namespaces cannot be made here: {problem}")

    def start_rank(self, rank, host, local_rank, local_size):
        env = {"RANK": rank, "WORLD_SIZE": len(RANKS), "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_size,
               "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": 29591, "OMP_NUM_THREADS": 1, "DDPTRAIN_SECRET": self.secret}
        return self.start("netns", "exec", NAMES[host], os.environ["DDPTRAIN"], "c.yaml", "--no-progress", "--quiet",
                          binary="ip", env={k: str(v) for k, v in env.items()})

    def steps(self):
        try:
            return self.read("runs/test/metrics.jsonl").count('"event":"step"')
        except FileNotFoundError:
            return 0

    def test_short_failures_of_the_link_lose_no_rank(self):
        self.write("c.yaml", CONFIG)
        self.secret = uuid.uuid4().hex
        ranks = [self.start_rank(*r) for r in RANKS]
        self.addCleanup(lambda: [p.kill() for p in ranks if p.poll() is None])
        self.wait_for(lambda: self.steps() > 0, 30, "the first step")
        for seconds in DOWN_SECONDS:
            ip("-n", NAMES[1], "link", "set", "link0", "down")
            time.sleep(seconds)
            ip("-n", NAMES[1], "link", "set", "link0", "up")
            before = self.steps()
            self.wait_for(lambda: self.steps() > before or any(p.poll() is not None for p in ranks), 30, "a step after it")
            time.sleep(0.3)  # for beats to go both ways
            self.assertEqual([p.poll() for p in ranks], [None] * len(ranks),
                             [p.communicate() for p in ranks if p.poll() is not None])
        for p in ranks:
            p.terminate()
        for p in ranks:
            out, err = p.communicate(timeout=30 * SLOW)
            self.assertEqual(p.returncode, STOPPED, out + err)


if __name__ == "__main__":
    main()
