"""A bit that is wrong in the computation of a checked step is found before the update, and the rank is named; a step without such a
bit is that of a run without the check. With DDPTRAIN_EXHAUSTIVE: 1,000 flips, and 10^6 checked steps without one.
ctest-labels: dist fault"""
import os, random, unittest

import program
from program import DIVERGED, USAGE

EXHAUSTIVE = bool(os.environ.get("DDPTRAIN_EXHAUSTIVE"))
FLIPS = 1000 if EXHAUSTIVE else 40
SYNTHETIC = """
dataset: {{format: synthetic, synthetic: {{kind: classes, rows: 48, inputs: {inputs}, classes: 4, seed: 3}}}}
sampler: {{batch_size: 8, shuffle: true, seed: 1}}
model: {{layers: [{layers}]}}
loss: cross_entropy
optimizer: {{type: adam, lr: 0.01}}
train: {{steps: {steps}, log_every: 0}}
checkpoint: {{save_every: 1000000}}
"""
MODELS = {
    "mlp": (12, "{linear: 16}, gelu, {dropout: 0.3}, {linear: 4}"),
    "cnn": (48, "{reshape: [3, 4, 4]}, {conv2d: {out: 6, kernel_size: 3, padding: 1}}, batch_norm, relu, {max_pool2d: 2}, flatten, {linear: 4}"),
    "lstm": (24, "{reshape: [6, 4]}, {lstm: {hidden_size: 8, output: last}}, {linear: 4}"),
    "gpt": (64, "{reshape: [4, 16]}, {residual: {layers: [layer_norm, {linear: 48}, {scaled_dot_product_attention: {heads: 2, causal: true}}, {linear: 16}]}},"
                "{residual: {layers: [layer_norm, {linear: 64}, gelu, {linear: 16}]}}, layer_norm, flatten, {linear: 4}"),
}


def config(model, steps=6):
    inputs, layers = MODELS[model]
    return SYNTHETIC.format(inputs=inputs, layers=layers, steps=steps)


class CheckCompute(program.Case):
    def train(self, *arguments, flip=None, code=program.OK):
        return self.run_program("test.yaml", "--fresh", "--quiet", *arguments, code=code, env={"DDPTRAIN_FAULT_FLIP": flip} if flip else None,
                                timeout=3000 if EXHAUSTIVE else 300)[1]

    def test_bits_that_are_wrong_for_one_computation(self):
        """Found, unless the run without the check is not changed by it, either."""
        whole, draw, found, without_effect = {}, random.Random(5), {}, 0
        for number in range(FLIPS):
            model, world, part = draw.choice(list(MODELS)), draw.choice((1, 2)), ("weights", "activations", "gradients")[number % 3]
            rank, step, bit = draw.randrange(world), draw.randrange(3), draw.randrange(1 << 40)
            flip, ranks = f"{rank}:{step}:{bit}:{part}", ("--nproc", world)
            with self.subTest(model=model, world=world, flip=flip):
                self.write("test.yaml", config(model))
                err = self.train(*ranks, "train.check_compute=1", flip=flip, code=None)
                if self.code == DIVERGED:
                    found[part] = found.get(part, 0) + 1
                    self.assertRegex(err, rf"step {step + 1} of epoch 1 was computed twice .* differ on rank {rank} \(host [^)]+\): (the|running) .*"
                                          "agrees with the second, so the first was wrong")
                    self.assertEqual(self.checkpoints(), [])
                    continue
                self.assertEqual(self.code, program.OK, err)
                self.assertNotEqual(part, "gradients", "every bit of a gradient is compared")
                without_effect += 1
                if (model, world) not in whole:
                    self.train(*ranks)
                    whole[model, world] = self.sha()
                self.train(*ranks, flip=flip)
                self.assertEqual(self.sha(), whole[model, world], "a flip with an effect was not found")
        print(f"found {found}, without any effect {without_effect}")
        self.assertGreater(sum(found.values()), FLIPS * 0.6)
        self.assertEqual(len(found), 3)

    def test_flips_change_a_run_without_the_check(self):
        for part, bit in (("weights", 30), ("activations", 30), ("gradients", 30)):
            self.write("test.yaml", config("mlp"))
            self.train()
            whole = self.sha()
            self.train(flip=f"0:2:{bit}:{part}")
            self.assertNotEqual(self.sha(), whole, part)

    def test_same_bits_and_no_false_alarm(self):
        ways = [(), ("--nproc", 2), ("--nproc", 3, "dist.zero_stage=1"), ("train.accumulate=3",), ("--nproc", 2, "train.accumulate=2"),
                ("--nproc", 2, "sampler.batch_size=null", "sampler.global_batch_size=8", "determinism={mode: elastic, shards: 4}"),
                ("sampler.uneven=true", "--nproc", 3), ("train.clip_grad_norm=1", "train.ema={decay: 0.9}")]
        for model in MODELS:
            for way in ways if model == "cnn" else ways[:2]:
                with self.subTest(model=model, way=way):
                    self.write("test.yaml", config(model, steps=40))
                    self.train(*way)
                    whole = self.sha()
                    for every in (1, 3):
                        self.train(*way, f"train.check_compute={every}")
                        self.assertEqual(self.sha(), whole)

    def test_flips_in_every_way_of_averaging(self):
        self.write("test.yaml", config("cnn"))
        for way, rank in ((("train.accumulate=3",), 0), (("--nproc", 3, "dist.zero_stage=1"), 2), (("--nproc", 2, "train.accumulate=2"), 1),
                          (("--nproc", 3, "sampler.batch_size=null", "sampler.global_batch_size=8", "determinism={mode: elastic, shards: 4}"), 1)):
            with self.subTest(way=way):
                err = self.train(*way, "train.check_compute=1", flip=f"{rank}:1:40:gradients", code=DIVERGED)
                self.assertRegex(err, rf"differ on rank {rank} \(.*: the gradient of 1\.weight; a third")

    def test_passes_that_exchange_numbers(self):
        """All ranks repeat together, and none waits for ever."""
        self.write("test.yaml", config("cnn").replace("batch_norm", "{batch_norm: {sync: true}}"))
        self.train("--nproc", 3, "train.check_compute=0")
        whole = self.sha()
        self.train("--nproc", 3, "train.check_compute=2")
        self.assertEqual(self.sha(), whole)
        err = self.train("--nproc", 3, "train.check_compute=1", flip="1:2:29:activations", code=DIVERGED)
        self.assertIn("on rank 1 (host", err)

    def test_one_step_in_so_many(self):
        """The step of a block is that of the seed: the same on a resume and on any number of ranks."""
        self.write("test.yaml", config("mlp", steps=12))
        found = {}
        for seed in (1, 2, 3):
            found[seed] = []
            for step in range(12):
                self.train("train.check_compute=6", f"seed={seed}", flip=f"0:{step}:5:gradients", code=None)
                if self.code == DIVERGED:
                    found[seed].append(step)
            self.assertEqual([s // 6 for s in found[seed]], [0, 1], found)
        self.assertGreater(len({tuple(f) for f in found.values()}), 1)
        self.train("--nproc", 2, "train.check_compute=6", "seed=1", flip=f"1:{found[1][1]}:5:gradients", code=DIVERGED)

    def test_in_words(self):
        self.write("test.yaml", config("mlp"))
        err = self.run_program("check", "test.yaml", "train.check_compute=5", "optimizer.in_backward=true", code=USAGE)[1]
        self.assertIn("optimizer.in_backward: cannot be combined with train.check_compute: gradients are compared before an update", err)
        self.run_program("check", "test.yaml", "train.check_compute=-1", code=USAGE)
        self.assertIn("DDPTRAIN_FAULT_FLIP", self.train(flip="0:1:2:bias", code=USAGE))
        self.train("train.check_compute={every: 4}")
        self.train("train.check_compute=0")  # the key may differ on a resume

    @unittest.skipUnless(EXHAUSTIVE, "10^6 steps")
    def test_a_million_steps(self):
        for model, world, steps in (("mlp", 1, 700_000), ("cnn", 1, 150_000), ("lstm", 1, 100_000), ("gpt", 2, 50_000)):
            self.write("test.yaml", config(model, steps))
            self.train("--nproc", world, "train.check_compute=1", "train.evaluate_every=0")
            print(f"{model}: {steps} steps, no difference")
