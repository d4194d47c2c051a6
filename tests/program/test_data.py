"""Datasets as a run sees them: MNIST's files, augmented images, weighted rows. ctest-labels: dist"""
import program

CONFIG = """
name: digits
dataset:
  path: datasets/mnist/t10k-images-idx3-ubyte.gz
  scale: {mean: 0.1307, std: 0.3081}
  split: {train: 0.9}
  augment:
    random_crop: {padding: 2}
    horizontal_flip: 0.5
    rotation: {degrees: 10, interpolation: bilinear}
    color_jitter: {brightness: 0.3, contrast: [0.8, 1.2]}
    erasing: {p: 0.5, scale: [0.02, 0.1]}
  %s
sampler: {global_batch_size: 100, %s}
model: {layers: [flatten, {linear: {out: 10}}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.01}
train: {steps: 130, evaluate_every: 0}
"""


class Digits(program.Case):
    def train(self, config, folder, *arguments, steps=130):
        self.run_program(config, "--run-dir", folder, f"train.steps={steps}", "--quiet", *arguments)

    def test_a_resume_in_mid_epoch_augments_as_before(self):
        for name, dataset, sampler in (("memory", "", ""), ("file", "cache_mb: 0", "type: weighted")):
            config = self.write(f"{name}.yaml", CONFIG % (dataset, sampler))
            self.train(config, f"{name}-whole")
            for steps in (37, 95, 130):
                self.train(config, f"{name}-parts", steps=steps)
            self.assertEqual(self.sha(f"{name}-whole"), self.sha(f"{name}-parts"))

    def test_ranks_augment_alike(self):
        config = self.write("config.yaml", CONFIG % ("", ""))
        self.train(config, "one")
        self.train(config, "two", "--nproc", "2")
        self.assert_close(self.losses("one"), self.losses("two"), 1e-5)
