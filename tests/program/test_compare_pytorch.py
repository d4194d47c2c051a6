"""scripts/compare_pytorch.py: the same models in PyTorch, live, where python3-torch is installed (the vectors of
tests/model/test_layers.c are for everywhere). ctest-labels: unit"""
import importlib.util
import os
import subprocess
import sys
import unittest

import program

SCRIPTS = os.path.join(program.SOURCE, "scripts")
MISSING = [name for name in ("torch", "yaml") if importlib.util.find_spec(name) is None]

GPT = """
dataset: {path: text.txt, text: {block_size: 12, stride: 12}}
sampler: {batch_size: 4}
model:
  freeze: '*.ln_1.bias'
  init: [gpt2]
  layers:
    - embedding: {embedding_dim: 16, name: wte}
    - positional_embedding: {name: wpe}
    - repeat:
        name: h
        times: 2
        layers:
          - residual: {name: '', layers: [{layer_norm: {name: ln_1}}, {attention: {heads: 2, causal: true, name: attn}}, {dropout: {p: 0.2, name: drop}}]}
          - residual: {name: '', layers: [{rms_norm: {name: ln_2}}, {linear: {out: 32, name: fc}}, {gelu: {approximate: tanh}}, {linear: {out: 16, name: proj}}]}
    - linear: {out: 27, bias: false, tie: wte.weight, name: lm_head}
loss: cross_entropy
optimizer: {type: adamw, lr: 0.003, weight_decay: 0.1, decay: matrices, groups: [{match: ['h.*'], min_dims: 2, lr_factor: 0.5}]}
train: {steps: 3, clip_grad_norm: 1.0}
"""
CNN = """
dataset: {format: synthetic, synthetic: {kind: uniform, rows: 8, inputs: [3, 10, 10], targets: 6}}
sampler: {batch_size: 4}
model:
  layers:
    - conv2d: {out: 6, kernel_size: 3, padding: 1, bias: false}
    - batch_norm: {sync: true}
    - silu
    - residual: {layers: [{conv2d: {out: 8, kernel_size: 3, stride: 2, padding: 1, groups: 2}}, {group_norm: 4}], shortcut: [{conv2d: {out: 8, kernel_size: 1, stride: 2}}]}
    - avg_pool2d: {kernel_size: 3, stride: 2, padding: 1, count_include_pad: false}
    - flatten
    - linear: 6
loss: {type: smooth_l1, beta: 0.5}
optimizer: {type: rmsprop, lr: 0.001, momentum: 0.5, centered: true}
train: {steps: 3, clip_grad_value: 0.1}
"""

WEIGHED = """
dataset: {format: synthetic, synthetic: {kind: %s, rows: 16, inputs: [5, 8], %s: 3}}
sampler: {batch_size: 16}
model: {layers: [{attention: {heads: 2, bias: false}}, flatten, {linear: 3}]}
loss: %s
optimizer: {type: sgd, lr: 0.05}
train: {steps: 3}
"""
# Losses without a target.
CODES = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 16, inputs: 6, classes: 3}}
sampler: {batch_size: 16}
model: {layers: [{linear: 8}, tanh, {linear: {out: 12, name: codes}}]}
losses:
  - {type: contrastive, output: codes, temperature: 0.2, name: pairs}
  - {type: contrastive, output: codes, symmetric: false, loss_weight: 0.5, name: one_way}
  - {type: triplet_margin, output: codes, swap: true, name: triplets}
optimizer: {type: sgd, lr: 0.05}
train: {steps: 3}
"""
# Tokens of two inputs, one with padding, and the lengths of a third.
INPUTS = """
dataset: {path: t.h5, inputs: {a: [a], b: [b], z: [z], n: [n]}, targets: [y]}
sampler: {batch_size: 12}
model:
  layers:
    - embedding: {num_embeddings: 11, embedding_dim: 4, padding_idx: 0, from: a, name: ea}
    - mean: {dim: 1, name: ma}
    - embedding_bag: {num_embeddings: 7, embedding_dim: 4, from: b, name: eb}
    - linear: {out: 4, from: z, name: h}
    - sequence_lengths: {from: [h, n]}
    - lstm: 4
    - mean: {dim: 1, name: mz}
    - add: {from: [ma, eb, mz]}
    - linear: 3
loss: cross_entropy
optimizer: {type: sgd, lr: 0.05}
train: {steps: 3}
"""
# The loss falls to about 0, where only rounding is left of it.
EXACT = """
dataset: {format: synthetic, synthetic: {kind: linear, rows: 8, inputs: 32, targets: 2, noise: 0}}
sampler: {batch_size: 8}
model: {layers: [{linear: 2}]}
loss: mse
optimizer: {type: sgd, lr: 0.1}
train: {steps: 3}
"""


@unittest.skipIf(MISSING, f"not installed here: {', '.join('python3-' + name for name in MISSING)}")
class ComparePyTorch(program.Case):
    def compare(self, *arguments, code=0, before="pass"):
        start = f"import sys; sys.path.insert(0, {SCRIPTS!r}); import compare_pytorch; {before}; sys.exit(compare_pytorch.main())"
        p = subprocess.run([sys.executable, "-c", start, *arguments, "--binary", program.BINARY], cwd=self.folder,
                           env=self.environment({"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}), capture_output=True,
                           text=True, timeout=60 * program.SLOW, check=False)
        self.assertEqual(p.returncode, code, p.stdout + p.stderr)
        return p.stdout

    def test_as_pytorch(self):
        self.write("text.txt", "the quick brown fox jumps over the lazy dog " * 20)
        config = self.write("gpt.yaml", GPT)
        self.write("cnn.yaml", CNN)
        self.run_program("cnn.yaml", "--run-dir", "runs/cnn")
        for source in (config, "runs/cnn"):
            out = self.compare(source, "--rows", "6")
            self.assertEqual(out.count("  good"), 5, out)
            self.assertNotIn("DIFFERENT", out)

    def test_weights_in_the_loss_and_attention_without_biases(self):
        for kind, count, loss in (("classes", "classes", "{type: cross_entropy, weight: [0.5, 1, 3.7]}"),
                                  ("classes", "classes", "{type: cross_entropy, weight: balanced}"),
                                  ("uniform", "targets", "{type: bce_with_logits, pos_weight: [0.5, 1, 3.7]}")):
            self.write("weighed.yaml", WEIGHED % (kind, count, loss))
            out = self.compare("weighed.yaml", "--rows", "6")
            self.assertEqual(out.count("  good"), 5, out)

    def test_tokens_and_lengths_of_named_inputs(self):
        import h5py
        with h5py.File(self.path("t.h5"), "w") as f:
            f["a"], f["b"], f["z"], f["n"], f["y"] = [[1, 2, 0]] * 12, [[3, 4]] * 12, [[[0.5, 1.0]] * 5] * 12, [[4]] * 12, [0, 1, 2] * 4
        self.write("inputs.yaml", INPUTS)
        out = self.compare("inputs.yaml", "--rows", "7")
        self.assertEqual(out.count("  good"), 5, out)

    def test_losses_without_a_target(self):
        self.write("codes.yaml", CODES)
        out = self.compare("codes.yaml", "--rows", "9")
        self.assertEqual(out.count("  good"), 5, out)

    def test_losses_near_0(self):
        """A hundred-millionth of the first loss is much for one of 0, and nothing beside all that was learnt."""
        self.write("exact.yaml", EXACT)
        for share, word in ((1e-8, "good"), (1e-4, "DIFFERENT")):
            out = self.compare("exact.yaml", "--rows", "4", "--steps", "200", code=word != "good", before="c = compare_pytorch.Comparison; "
                               f"t = c.train; c.train = lambda *a: (lambda l, r: ([x + {share} * l[0] * (len(l) > 1) for x in l], r))(*t(*a))")
            self.assertRegex(out, rf"losses of 200 steps .* {word}, ")

    def test_a_difference_is_found(self):
        self.write("cnn.yaml", CNN)
        out = self.compare("cnn.yaml", "--rows", "4", "--steps", "2", code=1, before="import torch, pytorch_model; "
                           "pytorch_model.LEAVES['silu'] = (lambda s, c, v: torch.nn.GELU(), None)")
        self.assertIn("DIFFERENT", out)


if __name__ == "__main__":
    program.main()
