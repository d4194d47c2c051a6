"""Two hosts (network namespaces): the link is down for less than a second, repeatedly, and no rank is lost; a secret that
others can guess, an address of rank 0 that other hosts cannot reach, and a link with a delay (bench/slow_links.c).
ctest-labels: dist fault"""
import os, subprocess, time, uuid

from program import OK, PEER, SLOW, STOPPED, USAGE, Case

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

    def train(self, code, *arguments, **env):
        """A rank on each host: what each prints."""
        self.write("c.yaml", CONFIG)
        at = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29592", **env}
        ranks = [self.start("netns", "exec", NAMES[r], os.environ["DDPTRAIN"], "c.yaml", "train.epochs=1", "--fresh", *arguments,
                            binary="ip", env={**at, "RANK": str(r)}) for r in range(2)]
        self.addCleanup(lambda: [p.kill() for p in ranks if p.poll() is None])
        outputs = ["".join(p.communicate(timeout=180 * SLOW)) for p in ranks]
        self.assertEqual([p.returncode for p in ranks], [code, code], outputs)
        return outputs

    def test_a_secret_that_others_can_guess(self):
        warning = "its secret is derived from its name; set DDPTRAIN_SECRET to the output of 'openssl rand -hex 16'"
        self.assertEqual([output.count(warning) for output in self.train(OK)], [1, 0])
        for output in self.train(OK, DDPTRAIN_SECRET=uuid.uuid4().hex):
            self.assertNotIn("DDPTRAIN_SECRET", output)
        for output in self.train(USAGE, DDPTRAIN_SECRET="a"):
            self.assertIn("DDPTRAIN_SECRET has 1 characters, but must have at least 16", output)

    def test_rank_0_at_a_loopback_address(self):
        for address in "localhost", "127.0.1.1":
            first, second = self.train(PEER, "dist.timeout=5", MASTER_ADDR=address)
            self.assertRegex(first, r"waiting for 1 of 2 ranks: 1 .*; for ranks of another host set MASTER_ADDR .* on the network: " + address)
            for start in rf"waiting for rank 0 at {address}:29592 \(", rf"rank 0 did not answer at {address}:29592 .*\(":
                self.assertRegex(second, start + r"Connection refused\); this is a loopback address: if rank 0 runs on another host, set MASTER_ADDR")

    def slow_down(self, milliseconds):
        """A link with this delay of one way takes the place of the fast one."""
        program = os.path.join(os.path.dirname(os.environ["DDPTRAIN"]), "slow_links")
        ip("-n", NAMES[0], "link", "del", "link0")
        links = subprocess.Popen([program, "--delay", str(milliseconds), *(f"{n}={a}" for n, a in zip(NAMES, ADDRESSES))],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(links.communicate)
        self.addCleanup(links.kill)
        if links.stdout.readline() != "up\n":
            self.skipTest(f"no TUN devices: {links.stderr.read()}")
        for name, address in zip(NAMES, ADDRESSES):
            ip("-n", name, "addr", "add", address + "/24", "dev", "link0")
            ip("-n", name, "link", "set", "link0", "up")

    def test_a_link_with_a_round_trip_of_200_ms(self):
        words = ("sampler.batch_size=32", "train.epochs=1", "train.log_every=1")
        self.write("c.yaml", CONFIG)
        self.run_program("c.yaml", "--nproc", 2, *words, "--run-dir", "runs/fast")
        self.slow_down(100)
        begin = time.monotonic()
        self.train(OK, *words)
        seconds = [e["seconds"] for e in self.events("step")]
        self.assertGreater(min(seconds, default=0), 0.2)  # two sums
        self.assertLess(time.monotonic() - begin, 100 * SLOW)
        self.assertEqual(self.sha(), self.sha("runs/fast"))

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
        self.wait_for(lambda: self.steps() > 0, what="the first step")
        for seconds in DOWN_SECONDS:
            ip("-n", NAMES[1], "link", "set", "link0", "down")
            time.sleep(seconds)
            ip("-n", NAMES[1], "link", "set", "link0", "up")
            before = self.steps()
            self.wait_for(lambda: self.steps() > before or any(p.poll() is not None for p in ranks), what="a step after it")
            time.sleep(0.3)  # for beats to go both ways
            self.assertEqual([p.poll() for p in ranks], [None] * len(ranks),
                             [p.communicate() for p in ranks if p.poll() is not None])
        for p in ranks:
            p.terminate()
        for p in ranks:
            out, err = p.communicate(timeout=180 * SLOW)
            self.assertEqual(p.returncode, STOPPED, out + err)
