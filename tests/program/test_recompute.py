"""recompute: activations are computed again in backward: the bits of a run that keeps them, in less memory. ctest-labels: unit"""
import re

import program
from program import USAGE

GPT = """
dataset: {path: datasets/tinyshakespeare.txt, text: {block_size: 32, truncate: 0.01}, split: {test: 0.2}}
sampler: {batch_size: 8}
model:
  layers:
    - embedding: {embedding_dim: 48, name: wte}
    - positional_embedding: {name: wpe}
    - dropout: {p: 0.1}
    - repeat:
        name: h
        times: 4
        recompute: true
        layers:
          - residual: {name: '', layers: [{layer_norm: {name: ln_1}}, {sequential: {name: attn, layers: [{linear: {out: 144, name: c_attn}},
              {scaled_dot_product_attention: {heads: 4, causal: true, dropout: 0.1}}, {linear: {out: 48, name: c_proj}}, {dropout: {p: 0.1}}]}}]}
          - residual: {name: '', layers: [{layer_norm: {name: ln_2}}, {sequential: {name: mlp, layers: [{linear: {out: 192, name: c_fc}},
              {gelu: {approximate: tanh}}, {linear: {out: 48, name: c_proj}}, {dropout: {p: 0.1}}]}}]}
    - layer_norm: {name: ln_f}
    - linear: {out: 58, tie: wte.weight, name: lm_head, bias: false}
loss: cross_entropy
optimizer: {type: adamw, lr: 0.001}
train: {steps: 4, clip_grad_norm: 1}
checkpoint: {save_every: {steps: 2}, keep: 0}
"""

# running statistics, an output that is read behind its block, relus at the ends of blocks, a frozen layer
IMAGES = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 96, inputs: 64, classes: 3, seed: 1}, split: {test: 0.2}}
sampler: {batch_size: 8}
model:
  layers: [{reshape: [1, 8, 8]}, {conv2d: {out: 8, kernel_size: 3, padding: 1, name: stem, recompute: true}},
    {repeat: {times: 2, recompute: true, layers: [{residual: [{conv2d: {out: 8, kernel_size: 3, padding: 1}}, batch_norm, relu,
      {conv2d: {out: 8, kernel_size: 3, padding: 1}}, batch_norm]}, relu]}},
    {sequential: {recompute: true, name: s, layers: [{parallel: {branches: [[{conv2d: {out: 4, kernel_size: 1}}, relu], [{conv2d: {out: 4, kernel_size: 1}}, tanh]]}},
      {max_pool2d: 2}, flatten, {linear: {out: 32, name: a}}, tanh, {dropout: {p: 0.3}}, {linear: {out: 32, name: b}}]}},
    relu, {linear: {out: 32, name: c, recompute: true}}, {add: {from: [s, c], name: d}}, {linear: 3}]
  freeze: [s.0.0.0.*]
loss: cross_entropy
optimizer: {type: sgd, lr: 0.05, momentum: 0.9}
train: {epochs: 2}
"""

STATEFUL = """
dataset: {path: datasets/tinyshakespeare.txt, text: {block_size: 16, truncate: 0.01}, split: {test: 0.2, shuffle: false}}
sampler: {type: batchify, global_batch_size: 4}
model: {layers: [{embedding: 8}, {sequential: {recompute: true, layers: [{lstm: {hidden_size: 8, carry_state: true}}, {linear: 58}]}}]}
loss: cross_entropy
train: {epochs: 1}
"""


class Recompute(program.Case):
    def compare(self, config, *words):
        shas = []
        for name, text in (("again", config), ("kept", config.replace("recompute: true", "recompute: false"))):
            self.write("test.yaml", text)
            self.run_program("test.yaml", "--fresh", "--run-dir", f"runs/{name}", *words)
            shas.append(self.sha(f"runs/{name}"))
        self.assertEqual(*shas, words)
        self.assertEqual(self.losses("runs/again"), self.losses("runs/kept"))

    def test_a_transformer_has_the_same_bits(self):
        for words in ((), ("train.precision=bfloat16",), ("optimizer.in_backward=true", "train.clip_grad_norm=0"), ("train.accumulate=2",),
                      ("--nproc", 2, "dist.zero_stage=3", "dist.bucket_cap_mb=0.02", "dist.first_bucket_mb=0.02"),
                      ("sampler={global_batch_size: 16}", "determinism={mode: elastic, shards: 4}"), ("train.check_compute=1",)):
            self.compare(GPT, *words)

    def test_a_convolutional_network_has_the_same_bits(self):
        for words in ((), ("train.precision=bfloat16",), ("--nproc", 2, "dist.zero_stage=2", "dist.first_bucket_mb=0.001", "dist.bucket_cap_mb=0.002")):
            self.compare(IMAGES, *words)

    def test_memory(self):
        """Of the activations of each copy only its input is kept."""
        sizes = []
        for value in ("true", "false"):
            self.write("test.yaml", GPT.replace("recompute: true", f"recompute: {value}"))
            sizes.append(float(re.search(r"([\d.]+) MiB activations", self.run_program("check", "test.yaml")[0])[1]))
        self.assertLess(sizes[0], 0.55 * sizes[1])

    def test_a_run_may_change_it(self):
        self.write("test.yaml", GPT)
        self.run_program("test.yaml", "--run-dir", "runs/whole")
        self.run_program("test.yaml", "train.steps=2")
        self.write("test.yaml", GPT.replace("recompute: true", "recompute: false"))
        self.run_program("test.yaml")
        self.assertEqual(self.sha(), self.sha("runs/whole"))

    def test_state_from_batch_to_batch_is_rejected(self):
        self.write("test.yaml", STATEFUL)
        err = self.run_program("test.yaml", code=USAGE)[1]
        self.assertIn("cannot be inside a layer with recompute: true, because computing it again would change the state that it keeps from batch "
                      "to batch", err)
