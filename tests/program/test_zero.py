"""dist.zero_stage: each rank keeps its share of the optimizer's state (1), of the averaged gradients (2) and of the parameters
(3), with the numbers and the files of a run that does not. ctest-labels: dist"""
import contextlib, json, resource, time, unittest

import program
from program import DIVERGED, OK, USAGE

# several buckets, tensors that do not divide, frozen ones in between, groups, a value that accumulators start with
CONFIG = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 300, inputs: 37, classes: 5, seed: 3}, split: {test: 0.2, seed: 1}}
sampler: {global_batch_size: 24, shuffle: true}
model:
  layers: [{linear: {out: 53, name: a}}, relu, {linear: {out: 41, name: b}}, batch_norm, {linear: {out: 29, name: c}}, {dropout: {p: 0.1}}, {linear: {out: 5, name: d}}]
  freeze: [b.weight]
loss: cross_entropy
optimizer: {type: adamw, lr: 0.01, amsgrad: true, groups: [{match: "*.bias", weight_decay: 0, lr: 0.02}]}
schedule: {type: cosine, interval: step}
train: {epochs: 3, clip_grad_norm: 0.7, ema: 0.9}
checkpoint: {save_every: {steps: 4}, keep: 0}
dist: {first_bucket_mb: 0.0005, bucket_cap_mb: 0.002}
"""


def equal_layers(width, layers):
    """A config whose memory is that of [layers] layers of width x width."""
    return f"""
dataset: {{format: synthetic, synthetic: {{kind: classes, rows: 64, inputs: 16, classes: 4, seed: 3}}, split: {{test: 0.2}}}}
sampler: {{global_batch_size: 16}}
model: {{layers: [{{linear: {width}}}, {{repeat: {{times: {layers}, layers: [{{linear: {width}}}, tanh]}}}}, {{linear: 4}}]}}
loss: cross_entropy
optimizer: {{type: sgd, lr: 0.01, momentum: 0.9}}
train: {{epochs: 1}}
"""


# a tied weight, and a layer that is used three times
TIED = """
dataset: {path: datasets/tinyshakespeare.txt, text: {block_size: 16, truncate: 0.002}, split: {test: 0.2}}
sampler: {batch_size: 4}
model: {layers: [{embedding: {embedding_dim: 24, name: wte}}, {linear: {out: 24, name: a}}, tanh, {linear: {out: 24, share: a}}, layer_norm,
  {linear: {out: 24}}, {linear: {out: 24, share: a}}, {linear: {out: 52, tie: wte.weight, bias: false}}]}
loss: cross_entropy
train: {steps: 6, clip_grad_norm: 1, evaluate_every: 0}
dist: {first_bucket_mb: 0.001, bucket_cap_mb: 0.002}
"""


class Zero(program.Case):
    given_files = {"test.yaml": CONFIG}

    def assert_same(self, run, other):
        self.assertEqual(self.sha(run), self.sha(other), run)
        self.assertEqual(self.losses(run), self.losses(other), run)
        self.assertEqual([s["grad_norm"] for s in self.events("step", run)], [s["grad_norm"] for s in self.events("step", other)])

    def test_same_numbers(self):
        """Bit for bit: an element is summed in order of rank, whoever owns it."""
        optimizers = ("adamw", "{type: sgd, lr: 0.1, momentum: 0.9}", "{type: adagrad, lr: 0.1, initial_accumulator_value: 0.3}")
        for world, optimizer in ((2, None), (3, None), (4, optimizers[2]), (2, optimizers[1])):
            extra = [f"optimizer={optimizer}"] if optimizer else []
            for stage in (0, 1, 2, 3):
                self.run_program("test.yaml", "--nproc", world, "--run-dir", f"runs/{stage}", "--fresh", f"dist.zero_stage={stage}", *extra)
            self.assert_same("runs/1", "runs/0")
            self.assert_same("runs/2", "runs/0")
            self.assert_same("runs/3", "runs/0")

    def test_small_model(self):
        """Shares of nothing, and all in what is left over."""
        self.write("test.yaml", program.WINE.replace("out: 64", "out: 2"))
        for stage in (0, 1, 2, 3):
            self.run_program("test.yaml", "--nproc", 3, "--run-dir", f"runs/{stage}", f"dist.zero_stage={stage}", "train.clip_grad_value=0.5")
        self.assert_same("runs/1", "runs/0")
        self.assert_same("runs/2", "runs/0")
        self.assert_same("runs/3", "runs/0")

    def test_shared_parameters_and_backends(self):
        """A tied weight, and a layer that is used three times, whose gradients are complete last; buckets by a thread (Gloo), as
        bfloat16, with ranks without rows."""
        self.write("tied.yaml", TIED)
        for name, *words in (("plain",), ("gloo", "dist.backend=gloo"), ("half", "dist.gradient_compression=bfloat16"),
                             ("layers", "dist.bucket_cap_mb=0.000001", "dist.first_bucket_mb=0.000001", "dist.backend=gloo")):
            for stage in (0, 2, 3):
                self.run_program("tied.yaml", "--nproc", 3, "--run-dir", f"runs/{name}{stage}", f"dist.zero_stage={stage}", *words)
            self.assert_same(f"runs/{name}2", f"runs/{name}0")
            self.assert_same(f"runs/{name}3", f"runs/{name}0")
        for stage in (0, 2, 3):
            self.run_program("test.yaml", "--nproc", 4, "--run-dir", f"runs/few{stage}", f"dist.zero_stage={stage}", "sampler.uneven=true",
                             "sampler.global_batch_size=null", "sampler.batch_size=59", "model.layers.3=tanh")
        self.assert_same("runs/few2", "runs/few0")
        self.assert_same("runs/few3", "runs/few0")

    def test_micro_batches(self):
        """Stage 2 averages each micro-batch, so sums are taken in another order."""
        for stage in (1, 2, 3):
            self.run_program("test.yaml", "--nproc", 2, "--run-dir", f"runs/{stage}", f"dist.zero_stage={stage}", "train.accumulate=3")
        self.assertNotEqual(self.sha("runs/1"), self.sha("runs/2"))
        self.assert_same("runs/3", "runs/2")
        losses = self.losses("runs/1")
        for one, other in zip(losses, self.losses("runs/2")):
            self.assertAlmostEqual(one, other, delta=1e-5 * losses[0])
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/again", "dist.zero_stage=2", "train.accumulate=3")
        self.assertEqual(self.sha("runs/again"), self.sha("runs/2"))

    def test_what_needs_all_gradients_is_rejected(self):
        for word, reason in (("train.check_compute=1", "train.check_compute: it compares all gradients of a step"),
                             ("determinism={mode: elastic, shards: 4}",
                              "determinism.mode: elastic: the gradients of batch shards are summed as a whole")):
            for stage in (2, 3):
                err = self.run_program("test.yaml", "--nproc", 2, f"dist.zero_stage={stage}", word, code=USAGE)[1]
                self.assertIn(f"dist.zero_stage: {stage} cannot be combined with {reason}", err)

    def peaks(self, *words):
        """The largest resident memory of each rank but the first, in MiB: rank 0 also writes checkpoints, so slowly here that the
        others are seen after their last step."""
        p, peaks = self.start(*words, env={"DDPTRAIN_FAULT": "1:slow:ever", "DDPTRAIN_FAULT_FILTER": "checkpoints"}), {}
        while p.poll() is None:
            with contextlib.suppress(OSError, KeyError):
                for rank in self.children(p):
                    with open(f"/proc/{rank}/status") as f:
                        peaks[rank] = int(dict(line.split(":", 1) for line in f)["VmHWM"].split()[0]) / 1024
            time.sleep(0.002)
        out, err = p.communicate()
        self.assertEqual(p.returncode, OK, out + err)
        return [peaks[rank] for rank in sorted(peaks)[1:]]

    @unittest.skipIf(program.SANITIZER, "sanitizers have memory of their own")
    def test_memory(self):
        """The gradients of a rank are a shard and two buckets instead of all of them; with stage 3 the parameters, too."""
        width, layers, world = 800, 12, 4
        self.write("large.yaml", equal_layers(width, layers) + "dist: {bucket_cap_mb: 1}\n")
        layer = (width * width + width) * 4 / 2**20
        peaks = [max(self.peaks("large.yaml", "--nproc", world, "--run-dir", f"runs/{stage}", f"dist.zero_stage={stage}")) for stage in (1, 2, 3)]
        saved = layers * layer - (layers * layer / world + 2 * layer)
        self.assertGreater(peaks[0] - peaks[1], 0.85 * saved, peaks)
        self.assertGreater(peaks[1] - peaks[2], 0.85 * saved, peaks)
        self.assert_same("runs/2", "runs/1")
        self.assert_same("runs/3", "runs/1")

    @unittest.skipIf(program.SANITIZER, "sanitizers reserve address space")
    def test_a_model_larger_than_a_rank(self):
        """A run that does not fit into the address space which a process may have fits with stage 3: also on rank 0, which gathers the
        state when it saves."""
        self.write("large.yaml", """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 40, inputs: 16, classes: 4, seed: 3}, split: {test: 0.2}}
sampler: {global_batch_size: 16}
model: {layers: [{linear: 1200}, {repeat: {times: 12, layers: [{linear: 1200}, tanh]}}, {linear: 4}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.01}
train: {epochs: 1}
dist: {bucket_cap_mb: 1}
""")
        limit = 230 * 2**20  # 66 MiB of parameters

        def limited():
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for stage, code in ((0, USAGE), (3, OK)):
            p = self.start("large.yaml", "--nproc", 4, "--run-dir", f"runs/{stage}", f"dist.zero_stage={stage}", preexec_fn=limited,
                           env={"MALLOC_ARENA_MAX": "1"})
            out, err = p.communicate(timeout=300)
            self.assertEqual(p.returncode, code, out + err)
            if code:
                self.assertIn("the run does not fit in memory", err)
        self.run_program("large.yaml", "--nproc", 4, "--run-dir", "runs/0")
        self.assert_same("runs/3", "runs/0")

    def test_parts_of_a_run_with_stage_3(self):
        """Initial weights by rules and from a file, the best checkpoint for the test rows, an average, running statistics, comparisons
        of the ranks: the same numbers, and the same lines in the ledger."""
        self.write("parts.yaml", """
dataset: {path: datasets/wine.csv, split: {validation: 0.2, test: 0.2}}
sampler: {batch_size: 12}
model:
  init: [{orthogonal: {match: a.weight}}, gpt2: {residual: ["*.b.weight"]}]
  layers: [{linear: {out: 40, name: a}}, batch_norm, relu, {residual: [{linear: {out: 40, name: b}}, gelu]}, {linear: {out: 3, name: c}}]
loss: cross_entropy
optimizer: {type: adam, lr: 0.01}
train: {epochs: 4, ema: 0.8, check_state_every: 1, ledger: {every: 1}}
checkpoint: {best: val_loss, save_every: {epochs: 2}}
dist: {first_bucket_mb: 0.001, bucket_cap_mb: 0.002}
""")
        for start in ("new", "file"):
            words = ["model.init_from=runs/new0", "model.init=[]"] if start == "file" else []
            for stage in (0, 3):
                self.run_program("parts.yaml", "--nproc", 3, "--run-dir", f"runs/{start}{stage}", f"dist.zero_stage={stage}", *words)
            self.assert_same(f"runs/{start}3", f"runs/{start}0")
            ends = [self.events("end", f"runs/{start}{stage}")[-1] for stage in (0, 3)]
            self.assertEqual(*[{k: v for k, v in end.items() if k.startswith(("test_", "best_"))} for end in ends])
            lines = [[json.loads(line) for line in self.read(f"runs/{start}{stage}/ledger.jsonl").splitlines()] for stage in (0, 3)]
            kept = [[{k: v for k, v in line.items() if k != "chain"} for line in ledger if line["event"] in ("step", "checkpoint")]
                    for ledger in lines]
            self.assertGreater(len(kept[0]), 10)
            self.assertEqual(*kept)

    def test_files_are_whole(self):
        """A checkpoint contains the whole state: the same bytes for every stage, and any world and either stage can resume from it."""
        for stage in (0, 1, 2, 3):
            self.run_program("test.yaml", "--nproc", 3, "--run-dir", f"runs/{stage}", f"dist.zero_stage={stage}")
        kept = [self.run_program("inspect", f"runs/{stage}/checkpoints/epoch-0002.h5")[0] for stage in (0, 1, 2, 3)]
        tensors = [[line for line in text.splitlines() if "optimizer/" in line or "model/" in line] for text in kept]
        self.assertTrue(tensors[0])
        self.assertEqual(tensors[0], tensors[1])
        self.assertEqual(tensors[0], tensors[2])
        self.assertEqual(tensors[0], tensors[3])
        for world, stage in ((1, 1), (2, 1), (4, 0), (4, 2), (1, 3), (4, 3)):
            for source in (0, 3 if stage == 1 else 1):
                self.run_program("test.yaml", "--nproc", world, "--run-dir", f"runs/from{source}", "--fresh", f"dist.zero_stage={stage}",
                                 f"checkpoint.resume=runs/{source}/checkpoints/epoch-0002.h5")
            self.assertEqual(self.sha(f"runs/from{source}"), self.sha("runs/from0"), (world, stage))

    def test_killed_and_resumed(self):
        self.run_program("test.yaml", "--nproc", 2, "--run-dir", "runs/whole")
        for stage in (1, 2, 3):
            words = ("test.yaml", "--nproc", 2, "--run-dir", f"runs/killed{stage}", f"dist.zero_stage={stage}")
            for at in (40, 90):
                self.run_program(*words, code=None, env={"DDPTRAIN_FAULT": f"{at}:kill", "DDPTRAIN_FAULT_FILTER": "runs/"})
                self.assertNotEqual(self.code, OK)
            self.run_program(*words)
            self.assertEqual(self.sha(f"runs/killed{stage}"), self.sha("runs/whole"))
            self.run_program(*words)  # complete: says so

    def test_last_save_fails_once(self):
        """The background save of the last state fails; all ranks write it again together."""
        for call in (2, 4):  # the file cannot be created, or not be written
            _, err = self.run_program("test.yaml", "--nproc", 2, "checkpoint.save_every={epochs: 3}", "dist.zero_stage=1", "--fresh",
                                      env={"DDPTRAIN_FAULT": f"{call}:enospc", "DDPTRAIN_FAULT_FILTER": "epoch-0003.h5.tmp"})
            self.assertIn("a checkpoint could not be saved; the run continues", err)
            self.assertIn("seal    good", self.run_program("inspect", *self.checkpoints())[0])

    def test_with_guards_and_elastic(self):
        err = self.run_program("test.yaml", "--nproc", 3, "dist.zero_stage=1", "train.check_state_every=1", code=DIVERGED,
                               env={"DDPTRAIN_FAULT_FLIP": "1:3:77"})[1]
        self.assertIn("differs in a.weight", err)
        for world, stage in ((1, 0), (3, 1), (2, 1)):
            run = f"runs/{world}{stage}"
            self.run_program("test.yaml", "--nproc", world, "--run-dir", run, f"dist.zero_stage={stage}", "determinism={mode: elastic, shards: 4}")
            self.assert_same(run, "runs/10")
        for policy in ("skip", "rollback"):
            self.write("bad.csv", "a,b,y\n" + "".join(f"{i % 7},{3e38 if i == 17 else i % 5},{i % 3}\n" for i in range(50)))
            self.write("bad.yaml", "dataset: {path: bad.csv, inputs: [a, b], targets: y}\nsampler: {batch_size: 5}\n"
                       "model: {layers: [{linear: {out: 64}}, relu, {linear: {out: 1}}]}\nloss: mse\ntrain: {epochs: 3}\n")
            for stage in (1, 2, 3):
                err = self.run_program("bad.yaml", "--nproc", 2, "--run-dir", f"runs/{policy}{stage}", f"dist.zero_stage={stage}",
                                       f"train.on_nonfinite={policy}")[1]
                self.assertIn("not finite", err)
            self.assertEqual(self.sha(f"runs/{policy}1"), self.sha(f"runs/{policy}2"))
            self.assertEqual(self.sha(f"runs/{policy}1"), self.sha(f"runs/{policy}3"))
        self.assertEqual(self.sha("runs/skip1"), self.sha("runs/rollback1"))

    def test_check_shows_the_saving(self):
        out = self.run_program("check", "test.yaml", "--nproc", 4, "dist.zero_stage=1")[0]
        self.assertRegex(out, r"shared +0\.0\d MiB of optimizer state over 4 processes: 0\.0\d MiB less on each")
        out = self.run_program("check", "test.yaml", "--nproc", 4, "dist.zero_stage=2")[0]
        self.assertRegex(out, r"shared +0\.0\d MiB of gradients over 4 processes: 0\.0\d MiB on each, and 0\.0\d MiB for two buckets")
        out = self.run_program("check", "test.yaml", "--nproc", 4, "dist.zero_stage=3")[0]
        self.assertRegex(out, r"shared +0\.0\d MiB of parameters over 4 processes: 0\.0\d MiB on each, and 0\.0\d MiB for those that passes gather")
