"""A table of bad configs, arguments and files, each with its exit code and the sentence it must get. ctest-labels: unit"""
import os, re, unittest

import program
from program import DATA, IO, NOT_FINITE, USAGE

# (what is replaced in the wine config, by what, the sentence)
WRONG = [
    ("sampler:", "samplr:", "test.yaml:3:1: samplr: unknown key; did you mean 'sampler'?"),
    ("shuffle:", "shufle:", "test.yaml:3:27: sampler.shufle: unknown key; did you mean 'shuffle'?"),
    ("lr: 0.001", "lr: fast", "test.yaml:6:29: optimizer.lr: expected a number, got 'fast'"),
    ("lr: 0.001", "lr: -1", "test.yaml:6:29: optimizer.lr: must be >= 0"),
    ("type: adam", "type: adamm", "unknown optimizer 'adamm'; did you mean 'adam'?"),
    ("relu", "rellu", "unknown layer 'rellu'; did you mean 'relu'?"),
    ("out: 64", "out: 0", "model.layers.0.linear.out: must be >= 1"),
    ("out: 64", "out: 64, out: 3", "test.yaml:4:37: duplicate key 'out'; it is also in line 4"),
    ("{out: 64}", "{}", "model.layers.0.linear.out: missing"),
    ("loss: cross_entropy", "", "loss: missing"),
    ("loss: cross_entropy", "loss: {type: cross_entropy, smoothing: 0.1}", "test.yaml:5:29: loss.smoothing: unknown key; did you mean 'label_smoothing'?"),
    ("model: {", "model: {init_from: {map: gpt2}, ", "model.init_from: file is missing; the file of weights"),
    ("model: {", "model: {init_from: {file: w.pt, partal: true}, ", "model.init_from.partal: unknown key; did you mean 'partial'?"),
    ("model: {", "model: {init_from: {file: w.pt, skip: ['***']}, ", "skip: the pattern '***' has three '*' in a row"),
    ("model: {", "model: {init_from: {file: w.pt, map: [gpt2, llama]}, ", "'gpt2' is no map; expected one of gpt2, llama"),
    ("shuffle: true", "shuffle: yes", "sampler.shuffle: expected true or false, got 'yes'"),
    ("epochs: 10", "epochs: 1.5", "train.epochs: expected an integer, got '1.5'"),
    ("epochs: 10", "epochs: 10, steps: 5", "train: give epochs or steps, not both"),
    ("train: {epochs: 10}", "train: {}", "train: needs epochs or steps"),
    ("batch_size: 32", "batch_size: 32, global_batch_size: 32", "batch_size (per rank) and global_batch_size (of all ranks) exclude each other"),
    ("batch_size: 32", "batch_size: 32, uneven: true, drop_last: true", "uneven (each row once) and drop_last (the tail is dropped) exclude"),
    ("batch_size: 32", "batch_size: 32, uneven: true, drop_last_batch: true", "sampler: uneven (each row once) and drop_last_batch (a short last batch is dropped) exclude each other; give one"),
    ("scale: standard", "scale: standart", "dataset.scale"),
    ("scale: standard", "augment: {random_resized_crop: [1, 0.08]}", "dataset.augment.random_resized_crop: scale must be two numbers above 0 in order"),
    ("scale: standard", "augment: {random_resized_crop: 0.5}", "dataset.augment.random_resized_crop: scale must be two numbers above 0 in order"),
    ("scale: standard", "augment: {random_resized_crop: {scale: [0.1, 1], ratio: [2, 1]}}", "random_resized_crop: ratio must be two numbers in order"),
    ("scale: standard", "augment: {random_crop: 4, random_resized_crop: [0.08, 1]}", "dataset.augment: random_crop and random_resized_crop exclude each other"),
    ("scale: standard", "augment: {rotation: -15}", "dataset.augment.rotation: degrees must be a number from 0, such as 15, or two numbers in order, such as [-15, 15]"),
    ("scale: standard", "augment: {rotation: [20, 10]}", "dataset.augment.rotation: degrees must be a number from 0"),
    ("scale: standard", "augment: {rotation: {interpolation: bilinear}}", "rotation: without degrees nothing is rotated; give them, such as degrees: 15"),
    ("scale: standard", "augment: {rotation: {degrees: 5, interpolation: cubic}}", "interpolation: expected one of nearest, bilinear, got 'cubic'"),
    ("scale: standard", "augment: {color_jitter: {contrast: [1.2, 0.8]}}", "color_jitter: contrast must be a number from 0, or two numbers in order, such as [0.8, 1.2]"),
    ("scale: standard", "augment: {color_jitter: {hue: -0.1}}", "color_jitter: hue must be a number from 0, or two numbers in order, such as [-0.1, 0.1]"),
    ("scale: standard", "augment: {color_jitter: {hue: 0.6}}", "dataset.augment.color_jitter.hue: must be >= -0.5 and <= 0.5, got 0.6"),
    ("scale: standard", "augment: {erasing: {scale: 0.3}}", "dataset.augment.erasing: scale must be two numbers in order, such as [0.02, 0.33]"),
    ("scale: standard", "augment: {erasing: {ratio: [3, 0.3]}}", "dataset.augment.erasing: ratio must be two numbers in order, such as [0.3, 3.3]"),
    ("scale: standard", "validation: {path: []}", "dataset.validation.path: the list is empty"),
    ("scale: standard", "validation: [a.csv, [b.csv]]", "dataset.validation.path.1: expected a text, got a list"),
    ("scale: standard", "validation: [a.csv, null]", "dataset.validation.path.1: null is not allowed in a list"),
    ("scale: standard", "validation: {path: {a: b.csv}}", "dataset.validation.path: expected a text, or a list of texts, got a mapping"),
    ("train: {epochs: 10}", "determinism: {mode: elastic, shards: 4}\ndist: {gradient_compression: bfloat16}\ntrain: {epochs: 10}",
     "determinism: elastic cannot be combined with dist.gradient_compression: the rounded values would depend on the number of processes"),
    ("epochs: 10", "epochs: 10, device: gpu", "train.device: expected one of auto, cpu, cuda, got 'gpu'; did you mean 'cuda'?"),
    ("epochs: 10", "epochs: 10, device: cpu, precision: float16", "train.precision: float16 needs a GPU (train.device: cuda or auto): use bfloat16 or float32"),
    ("epochs: 10", "epochs: 10, grad_scaler: {init_scale: 0}", "train.grad_scaler.init_scale: must be >= 1e-06"),
    ("epochs: 10", "epochs: 10, grad_scaler: {backoff_factor: 1e-7}", "train.grad_scaler.backoff_factor: must be >= 1e-06 and < 1, got 1e-7"),
    ("{type: adam, lr: 0.001}", "{type: adam, betas: [0.9]}", "optimizer: betas must be two numbers, got 1"),
    ("layers:", "init: [{trunc_normal: {std: 0}}], layers:", "model.init.0.trunc_normal.std: must be > 0, got 0"),
    ("layers:", "init: [{trunc_normal: {a: 1, b: 0}}], layers:", "a must be less than b"),
    ("layers:", "init: [{orthogonal: {gain: big}}], layers:", "model.init.0.orthogonal.gain: expected a number, got 'big'"),
    ("relu", "{rotary_embedding: {head_size: 1}}", "rotary_embedding.head_size: must be >= 2"),
    ("relu", "{rotary_embedding: {head_size: 4, base: 0}}", "rotary_embedding.base: must be >= 1"),
    ("relu", "{scaled_dot_product_attention: {heads: 2, num_kv_heads: 0}}", "scaled_dot_product_attention.num_kv_heads: must be >= 1"),
    ("relu", "{hardtanh: {min_val: 1}}", "hardtanh: min_val must be less than max_val"),
    ("relu", "{threshold: {threshold: 1}}", "threshold.value: missing"),
    ("relu", "{unfold: {kernel_size: [1, 2, 3]}}", "unfold.kernel_size: expected one number or two (height, width), got 3"),
    ("relu", "{fold: {kernel_size: 2}}", "fold.output_size: missing"),
    ("relu", "{softplus: {beta: 0}}", "softplus.beta: must be > 0, got 0"),
    ("relu", "{celu: 0}", "celu.alpha: must be > 0, got 0"),
    ("relu", "{softshrink: -1}", "softshrink.lambd: must be >= 0"),
    ("{type: adam, lr: 0.001}", "{type: rprop, etas: [1.2, 0.5]}", "optimizer: etas must be two numbers, one below 1 and one above 1"),
    ("{type: adam, lr: 0.001}", "{type: rprop, step_sizes: [1]}", "optimizer: step_sizes must be two numbers, the smaller one first"),
    ("{type: adam, lr: 0.001}", "{type: asgd, t0: -1}", "optimizer.t0: must be >= 0"),
    ("{type: adam, lr: 0.001}", "{type: adafactor, beta2_decay: 0.8}", "optimizer.beta2_decay: must be <= 0, got 0.8"),
    ("{type: adam, lr: 0.001}", "{type: adafactor, d: 0.5}", "optimizer.d: must be >= 1, got 0.5"),
    ("{type: adam, lr: 0.001}", "{type: muon, ns_coefficients: [1, 2]}", "optimizer: ns_coefficients must be three numbers, got 2"),
    ("{type: adam, lr: 0.001}", "{type: muon, ns_steps: 100}", "optimizer.ns_steps: must be >= 0 and <= 99, got 100"),
    ("{type: adam, lr: 0.001}", "{type: muon, adamw: {betas: 0.9}}", "optimizer.adamw: betas must be two numbers, got 1"),
    ("{type: adam, lr: 0.001}", "{type: sgd, maximize: 1}", "optimizer.maximize: expected true or false"),
    ("cross_entropy", "{type: huber, delta: 0}", "loss.delta: must be > 0, got 0"),
    ("cross_entropy", "{type: poisson_nll, log_input: 1}", "loss.log_input: expected true or false"),
    ("cross_entropy", "{type: ctc, blank: -1}", "loss.blank: must be >= 0"),
    ("cross_entropy", "{type: ctc, padding: x}", "loss.padding: expected an integer, got 'x'"),
    ("cross_entropy", "{type: ctc, zero_infinity: 1}", "loss.zero_infinity: expected true or false"),
    ("cross_entropy", "{type: focal, alpha: 2}", "loss.alpha: must be >= 0 and <= 1, got 2"),
    ("cross_entropy", "{type: dice, smooth: 0}", "loss.smooth: must be > 0, got 0"),
    ("cross_entropy", "{type: multi_margin, p: 3}", "loss.p: must be >= 1 and <= 2, got 3"),
    ("cross_entropy", "{type: nll, weight: [-1]}", "loss.weight.0: must be >= 0"),
    ("{type: adam, lr: 0.001}", "{type: adadelta, rho: 2}", "optimizer.rho: must be >= 0 and <= 1, got 2"),
    ("{type: adam, lr: 0.001}", "{type: nadam, momentum_decay: -1}", "optimizer.momentum_decay: must be >= 0"),
    ("{type: adam, lr: 0.001}", "{type: radam, betas: [0.9]}", "optimizer: betas must be two numbers, got 1"),
    ("{type: adam, lr: 0.001}", "{type: adamax, betas: [0.9, 1]}", "optimizer.betas.1: must be >= 0 and < 1, got 1"),
    ("checkpoint:", "schedule: {type: cyclic}\ncheckpoint:", "schedule.max_lr: missing"),
    ("checkpoint:", "schedule: {type: cyclic, max_lr: 1, mode: sine}\ncheckpoint:", "schedule.mode: expected one of triangular, triangular2, exp_range, got 'sine'"),
    ("checkpoint:", "schedule: piecewise\ncheckpoint:", "schedule.points: missing"),
    ("checkpoint:", "schedule: {type: piecewise, points: {5: 1, 3: 1}}\ncheckpoint:", "points must be at ascending whole numbers >= 0, got '3'"),
    ("checkpoint:", "schedule: {type: piecewise, points: {5: -1}}\ncheckpoint:", "schedule.points.5.factor: must be >= 0"),
    ("{type: adam, lr: 0.001}", "{type: sgd, nesterov: true}", "optimizer: nesterov needs momentum > 0 and dampening 0"),
    ("checkpoint:", "schedule: {type: one_cycle, pct_start: 5}\ncheckpoint:", "schedule.pct_start: must be >= 0 and <= 1, got 5"),
    ("checkpoint:", "schedule: {type: one_cycle, div_factor: 0}\ncheckpoint:", "schedule.div_factor: must be > 0, got 0"),
    ("batch_size: 32", "batch_size: 1000, drop_last_batch: true", "142 training rows are less than one batch of 1000 rows"),
    ("checkpoint:", "dist: {backend: tcp}\ncheckpoint:", "dist.backend: expected one of auto, shm, gloo, mpi, nccl, got 'tcp'"),
    ("checkpoint:", "dist: {nccl_nvls: 2}\ncheckpoint:", "dist.nccl_nvls: expected true or false, got '2'"),
    ("checkpoint:", "dist: {backend: nccl}\ncheckpoint:", "test.yaml:8:17: dist.backend: nccl is for the memory of GPUs: "),
    ("epochs: 10", "epochs: 10, precision: float16", "test.yaml:7:32: train.precision: float16 needs a GPU: "),
    ("train: {epochs: 10}", "train: {epochs: 10, device: cpu}\ndist: {backend: nccl}", "nccl is for the memory of GPUs and needs train.device: cuda or auto; on the CPU use auto here"),
    ("train: {epochs: 10}", "train: {epochs: 10, device: cpu}\ndist: {bucket_cap_mb: 25, backend: nccl}",
     "test.yaml:8:36: dist.backend: nccl is for the memory of GPUs"),
    ("checkpoint:", "name: a/b\ncheckpoint:", "name: must be a file name without '/', got 'a/b'"),
    ("checkpoint:", "x: *a\ncheckpoint:", "test.yaml:8:4: there is no value with the anchor '&a' above"),
    ("checkpoint:", "x: &a 1\ncheckpoint:", "test.yaml:8:1: x: unknown key"),
    ("checkpoint:", "determinism: {mode: elastik}\ncheckpoint:", "determinism.mode: expected one of torch, elastic, got 'elastik'"),
    ("checkpoint:", "train.on_nonfinite: skip\ncheckpoint:", "train.on_nonfinite: unknown key"),
    ("epochs: 10", "epochs: 10, on_nonfinite: {policy: ignore}", "train.on_nonfinite.policy: expected one of stop, skip, rollback, got 'ignore'"),
    ("epochs: 10", "epochs: 10, on_nonfinite: {max: 0}", "train.on_nonfinite.max: must be >= 1"),
    ("epochs: 10", "epochs: 10, check_state_every: -1", "train.check_state_every: must be >= 0"),
    ("checkpoint:", "name: " + 300 * "x" + "\ncheckpoint:", "name: is the name of the run folder, so it must have at most 240 bytes, got 300"),
    ("checkpoint:", "name: |\n  two\n  lines\ncheckpoint:", "name: is the name of the run folder, so it must have no line ends or other control characters"),
    ("checkpoint:", "name: \"a\\tb\"\ncheckpoint:", "name: is the name of the run folder, so it must have no line ends"),
    ("epochs: 10}", "epochs: 10, precision: bfloat16}\ndeterminism: {portable: true}",
     "determinism.portable: is for train.precision: float32 with float32_matmul_precision: highest"),
    ("checkpoint:", "schedule: {type: reduce_on_plateau, monitor: val_accuracy}\ncheckpoint:",
     "schedule.mode: with min a rising val_accuracy reduces the learning rate; use mode: max"),
    ("epochs: 10}", "epochs: 10, evaluate_every: 0}\nschedule: reduce_on_plateau",
     "schedule.monitor: nothing is evaluated before the last epoch (train.evaluate_every: 0)"),
    ("checkpoint: {save_every: 5}", "checkpoint: {resume: ''}", "checkpoint.resume: must be auto, never or a file, got ''"),
    ("{type: adam, lr: 0.001}", "{type: {a: b}}", "optimizer.type: expected the name of the optimizer, got a mapping"),
    ("{type: adam, lr: 0.001}", "{type: [adam]}", "optimizer.type: expected the name of the optimizer, got a list"),
    ("{type: adam, lr: 0.001}", "{type: null}", "optimizer.type: missing"),
    ("checkpoint:", "seed: -9223372036854775808\ncheckpoint:", "seed: expected an integer, got '-9223372036854775808'; the minimum is -9223372036854775807"),
    ("]}", "]", "test.yaml:"),
    ("dataset: {path: datasets/wine.h5,", "dataset:\n  path:datasets/wine.h5\n  scale: none\nx: {", "test.yaml:3:3: a space is missing after the ':' of 'path:'"),
    ("dataset: {path: datasets/wine.h5,", "dataset:\n  scale: none\n  path:datasets/wine.h5\nx: {", "test.yaml:4:3: a space is missing after the ':' of 'path:'"),
    ("sampler:", "seed:3\nsampler:", "test.yaml:3:1: a space is missing after the ':' of 'seed:'"),
    ("sampler:", "name: \"a\nsampler:", "test.yaml:3:7: the quotes that open here are not closed"),
    ("checkpoint: {save_every: 5}", "name: 'a\ncheckpoint: {resume: 'auto'}", "test.yaml:8:7: the quotes that open here are closed in line 9 only; close them in this line"),
    ("path: datasets/wine.h5", "path: \"datasets/wine.h5", "test.yaml:2:17: the quotes that open here are not closed"),
    ("loss: cross_entropy", "loss: {type: cross_entropy, colour: 0.1}", "test.yaml:5:29: loss.colour: unknown key (keys here: type, label_smoothing, weight, ignore_index)"),
    ("targets: y", "targets: y, weights: [a, b]", "dataset.weights: expected"),
    ("relu", "{elu: {alpha: -1}}", "test.yaml:4:53: model.layers.1.elu.alpha: must be >= 0"),
]

# The same for models that do not go with the data or the rest of the config.
SHAPES = [
    ("relu", "{unfold: 2}", "needs an input of shape (channels, height, width), got"),
    ("relu", "{fold: {output_size: 4, kernel_size: 2}}", "its input must be (a multiple of 4, the elements of a window; 9 windows), but is"),
    ("{linear: {out: 3}}", "{linear: {out: 2}}", "the model's output is 2, but the targets have 3 classes (0 to 2)"),
    ("loss: cross_entropy", "loss: {type: cross_entropy, weight: [0, 0, 0]}", "loss: weight: at least one must be greater than 0"),
    ("loss: cross_entropy", "loss: mse", "the model's output is 3, but a target row has 1 value"),
    ("relu", "{repeat: {times: 10000, layers: [{repeat: {times: 10000, layers: [relu]}}]}}", "more than 10000 layers in all"),
    ("relu", "{repeat: {times: 10000, layers: [{repeat: {times: 10000, layers: []}}]}}", "more than 10000 layers in all"),
    ("[{linear: {out: 64}}, relu, {linear: {out: 3}}]", "[relu]", "no layer has parameters"),
    ("{linear: {out: 64}}", "{linear: {out: 64, name: a}}, {linear: {out: 64, name: a}}", "test.yaml:4:48: model.layers.1.linear: the name 'a' is already"),
    ("relu", "{relu: {from: stem}}", "test.yaml:4:39: model.layers.1.relu: from: no layer before this one has the name 'stem'; known here: input"),
    ("{linear: {out: 64}}, relu", "{linear: {out: 64, name: stem}}, {relu: {from: stm}}", "the name 'stm'; did you mean 'stem'?; known here: stem, input"),
    ("relu", "{relu: {from: b}}, {linear: {out: 4, name: b}}", "from: no layer before this one has the name 'b'"),
    ("relu", "{sequential: [{linear: {out: 5, name: inner}}]}, {relu: {from: inner}}", "no layer before this one has the name 'inner'"),
    ("relu", "{relu: {from: [input, input]}}", "from: this layer takes one output, not 2; join them first with add, concat or multiply"),
    ("relu", "add", "test.yaml:4:39: model.layers.1.add: joins several outputs, so it needs `from:`"),
    ("relu", "{add: {from: input}}", "model.layers.1.add: the two sides of the sum have different shapes: 64 and 13"),
    ("relu", "{multiply: {from: input}}", "model.layers.1.multiply: the inputs have different shapes: input 1 has 64, input 2 has 13"),
    ("relu", "{multiply: {from: [input, input, input]}}", "model.layers.1.multiply: multiplies two outputs, got 3"),
    ("relu", "{concat: {from: input, dim: 2}}", "model.layers.1.concat: dim 2: the inputs have the dimensions 1 to 1 (0 is the batch)"),
    ("relu", "{concat: {from: input, dim: 0}}", "model.layers.1.concat: dim 0"),
    ("relu", "{reshape: [8, 8]}, {concat: {from: input}}", "the inputs have another number of dimensions: input 1 has (8, 8), input 2 has 13"),
    ("relu", "{reshape: {shape: [8, 8], name: a}}, {reshape: {shape: [4, 16], name: b}}, {concat: {from: [a, b]}}",
     "the inputs may differ only in the dimension along which they are joined: input 1 has (8, 8), input 2 has (4, 16)"),
    ("relu", "{relu: {from: input}}", "test.yaml:4:18: model.layers.0.linear: no layer takes its output"),
    ("relu", "{lstm: {hidden_size: 8}}", "model.layers.1.lstm: its input must be (length, features), but is 64\n"),
    ("{linear: {out: 64}}, relu", "{lstm: {hidden_size: 8}}",
     "model.layers.0.lstm: its input must be (length, features), but is 13; dataset.window makes windows of a table\n"),
    ("relu", "{gru: {hidden_size: 0}}", "model.layers.1.gru.hidden_size: must be >= 1"),
    ("relu", "{gru: {hidden_size: 4, num_layers: 0}}", "num_layers: must be >= 1"),
    ("relu", "{rnn: {hidden_size: 4, nonlinearity: sigmoid}}", "nonlinearity: "),
    ("relu", "{rnn: {hidden_size: 4, output: first}}", "output: "),
    ("relu", "{lstm: {hidden_size: 4, nonlinearity: tanh}}", "nonlinearity: unknown key"),
    ("relu", "{lstm: {hidden_size: 4, dropout: 2}}", "dropout: "),
    ("relu", "{reshape: {shape: [8, 8], name: x}}, {lstm: {hidden_size: 4, initial_state: learnt}}",
     "model.layers.2.lstm: initial_state: no layer before this one has the name 'learnt'; known here: x, input"),
    ("relu", "{reshape: {shape: [8, 8], name: x}}, {gru: {hidden_size: 8, num_layers: 2, bidirectional: true, initial_state: x}}",
     "model.layers.2.gru: initial_state: 'x' is (8, 8), but must be (4, 8): num_layers * directions, hidden_size\n"),
    ("relu", "{reshape: {shape: [8, 8], name: x}}, {mean: {dim: 1, name: h}}, {gru: {hidden_size: 4, from: x, initial_state: h}}",
     "initial_state: 'h' is 8, but must be (1, 4), or 4: num_layers * directions, hidden_size\n"),
    ("relu", "{reshape: {shape: [8, 8], name: x}}, {lstm: {hidden_size: 8, initial_state: x}}", "initial_state: expected learned, or two names, [h, c], got 1\n"),
    ("relu", "{reshape: {shape: [8, 8], name: x}}, {gru: {hidden_size: 8, initial_state: [x, x]}}", "initial_state: expected learned, or one name, h, got 2\n"),
    ("relu", "{reshape: [8, 8]}, {rnn: {hidden_size: 4, last_state: [h, c]}}", "model.layers.2.rnn: last_state: expected one name, h, got 2\n"),
    ("relu", "{reshape: [8, 8]}, {lstm: {hidden_size: 4, last_state: [h, h]}}", "model.layers.2.lstm: last_state: 'h' is in the list twice\n"),
    ("relu", "{reshape: [8, 8]}, {lstm: {hidden_size: 4, last_state: [h, a.b]}}", "model.layers.2.lstm: last_state: a name must not be empty or contain '.' or '/', got 'a.b'\n"),
    ("relu", "{reshape: [8, 8]}, {lstm: {hidden_size: 4, last_state: [h, c]}}, {flatten: {from: h}}", "model.layers.2.lstm.c: no layer takes its output"),
    ("relu", "{reshape: {shape: [8, 8], name: x}}, {lstm: {hidden_size: 4, last_state: [x, c]}}", "model.layers.2.lstm: the name 'x' is already used by another layer of this list (test.yaml:4:"),
    ("relu", "{slice: {start: 60, end: 65}}", "model.layers.1.slice: start 60 and end 65: the input has 64 elements along dim 1"),
    ("relu", "{slice: {start: 5, end: 5}}", "start 5 and end 5: the input has 64 elements along dim 1"),
    ("relu", "{slice: {dim: -2, end: 5}}", "model.layers.1.slice: dim -2: the input has the dimensions 1 to 1 (0 is the batch)"),
    ("relu", "{upsample: {size: 2, scale_factor: 2}}", "model.layers.1.upsample.scale_factor: either scale_factor or size, not both"),
    ("relu", "{upsample: {mode: nearest}}", "model.layers.1.upsample.scale_factor: missing; either scale_factor or size"),
    ("relu", "{upsample: {scale_factor: 2, align_corners: true}}", "upsample.align_corners: only with mode: linear or bilinear"),
    ("relu", "{upsample: {size: []}}", "model.layers.1.upsample.size: expected one number or two (height, width), got 0"),
    ("relu", "{upsample: {scale_factor: []}}", "model.layers.1.upsample.scale_factor: expected one number or two (height, width), got 0"),
    ("relu", "{conv2d: {out: 2, kernel_size: []}}", "model.layers.1.conv2d.kernel_size: expected one number or two (height, width), got 0"),
    ("relu", "{conv1d: {out: 2, kernel_size: 1, stride: []}}", "model.layers.1.conv1d.stride: expected one number, got 0"),
    ("relu", "{max_pool2d: []}", "model.layers.1.max_pool2d.kernel_size: expected one number or two (height, width), got 0"),
    ("relu", "{upsample: {size: [1, 2, 3]}}", "upsample.size: expected one number or two (height, width), got 3"),
    ("relu", "{reshape: [4, 16]}, {upsample: {scale_factor: 2, mode: bilinear}}",
     "model.layers.2.upsample: needs an input of shape (channels, height, width), got (4, 16)"),
    ("relu", "{reshape: [4, 4, 4]}, {upsample: {scale_factor: 2, mode: linear}}", "needs an input of shape (channels, length), got (4, 4, 4)"),
    ("relu", "{reshape: [4, 4, 4]}, {upsample: {scale_factor: 0.2}}", "the output would have 0 x 0 pixels"),
    ("relu", "{reshape: [4, 16]}, {permute: [0, 2]}", "model.layers.2.permute: dims must be 0, the batch, and then each dimension from 1 to 2 once; its input is (4, 16)"),
    ("relu", "{reshape: [4, 16]}, {permute: [1, 0, 2]}", "dims must be 0, the batch"),
    ("relu", "{reshape: [4, 16]}, {permute: [0, 2, -1]}", "dims must be 0, the batch"),
    ("relu", "{mean: 2}", "model.layers.1.mean: dim 2: the input has the dimensions 1 to 1 (0 is the batch)"),
    ("relu", "{mean: 1}", "model.layers.1.mean: a row must keep a dimension: add keepdim: true"),
    ("relu", "{reshape: [4, 16]}, {mean: [1, -2]}", "dim -2 is in the list twice"),
    ("relu", "{mean: []}", "model.layers.1.mean: dim: the list is empty"),
    ("relu", "{max: 0}", "model.layers.1.max: dim 0: the input has the dimensions 1 to 1 (0 is the batch)"),
    ("relu", "{reshape: [4, 4, 4]}, {pixel_shuffle: 3}", "pixel_shuffle: the square of upscale_factor (9) must divide the channels (4)"),
    ("relu", "{reshape: [4, 4, 4]}, {pixel_unshuffle: 3}", "pixel_unshuffle: downscale_factor (3) must divide the height and the width (4 x 4)"),
    ("relu", "{pad: [1, 2, 3]}", "pad.padding: expected one number, two (left, right), four (left, right, top, bottom) or six (left, right, top, bottom, front, back), got 3"),
    ("relu", "{pad: {padding: 1, mode: reflect, value: 1}}", "pad.value: only with mode: constant"),
    ("relu", "{pad: {padding: [64, 0], mode: reflect}}", "mode: reflect: the padding must be smaller than the dimension (64), got 64 and 0"),
    ("relu", "{pad: {padding: [0, 65], mode: circular}}", "mode: circular: the padding must be at most the dimension (64), got 0 and 65"),
    ("relu", "{pad: [1, 1, 0, 1]}", "four numbers pad two dimensions, but its input has one"),
    ("relu", "{chunk: {chunks: 3, names: [a, b]}}", "model.layers.1.chunk: names: expected 3, one for each part of the 64 elements along dim 1, got 2"),
    ("relu", "{chunk: {chunks: 2, names: [a, a]}}", "model.layers.1.chunk: names: 'a' is in the list twice"),
    ("relu", "{relu: {name: a}}, {chunk: {chunks: 2, names: [b, a]}}", "the name 'a' is already used by another layer of this list"),
    ("relu", "{chunk: {chunks: 2, names: [a, b.c]}}", "names: a name must not be empty or contain '.' or '/', got 'b.c'"),
    ("relu", "{chunk: {chunks: 2, dim: 2, names: [a, b]}}", "chunk: dim 2: the input has the dimensions 1 to 1 (0 is the batch)"),
    ("relu", "{chunk: {chunks: 2, names: [a, b]}}", "model.layers.1.chunk.a: no layer takes its output"),
    ("relu", "{split: {split_size: 21, names: [a, b, c]}}", "model.layers.1.split: names: expected 4, one for each part of the 64 elements along dim 1, got 3"),
    ("relu", "{split: {split_size: [60, 5], names: [a, b]}}", "model.layers.1.split: split_size: the sizes do not add up to the 64 elements along dim 1"),
    ("relu", "{split: {split_size: [60, 4, 1], names: [a, b, c]}}", "the sizes do not add up to the 64 elements"),
    ("relu", "{split: {split_size: [], names: [a]}}", "model.layers.1.split: split_size: the list is empty"),
    ("relu", "{split: {split_size: 60, names: [a]}}", "names: expected 2"),
    ("relu", "{matmul: {from: [input, input]}}", "model.layers.1.matmul: the inputs must be matrices: input 1 has 13, input 2 has 13"),
    ("relu", "{reshape: {shape: [4, 16], name: a}}, {matmul: {from: [a, a]}}",
     "the last dimension of the first must be the one before the last of the second: input 1 has (4, 16), input 2 has (4, 16)"),
    ("relu", "{reshape: {shape: [4, 4, 4], name: a}}, {reshape: {shape: [2, 4, 8], from: a, name: b}}, {matmul: {from: [a, b]}}",
     "the dimensions before the last two must be the same: input 1 has (4, 4, 4), input 2 has (2, 4, 8)"),
    ("relu", "{conv3d: {out: 3, kernel_size: 3}}", "model.layers.1.conv3d: needs an input of shape (channels, depth, height, width), got 64"),
    ("relu", "{conv3d: {out: 3, kernel_size: [3, 3]}}", "conv3d.kernel_size: expected one number or three (depth, height, width), got 2"),
    ("relu", "{reshape: [4, 1, 4, 4]}, {conv3d: {out: 4, kernel_size: 2}}", "the kernel is deeper than the padded input (1)"),
    ("relu", "{reshape: [4, 4, 4, 1]}, {conv3d: {out: 4, kernel_size: 2}}", "the kernel is larger than the padded input (4 x 1)"),
    ("relu", "{reshape: [4, 4, 4, 1]}, {conv3d: {out: 6, kernel_size: 1, groups: 3}}", "groups must divide the input's channels (4), got 3"),
    ("relu", "{conv_transpose3d: {out: 3, kernel_size: 3}}", "model.layers.1.conv_transpose3d: needs an input of shape (channels, depth, height, width), got 64"),
    ("relu", "{conv_transpose3d: {out: 3, kernel_size: 3, output_padding: [0, 1]}}", "conv_transpose3d.output_padding: expected one number or three (depth, height, width), got 2"),
    ("relu", "{reshape: [4, 4, 4, 1]}, {conv_transpose3d: {out: 3, kernel_size: 2, stride: [1, 1, 2], output_padding: [0, 1, 1]}}", "output_padding must be less than stride (1), got 1"),
    ("relu", "{reshape: [4, 4, 4, 1]}, {conv_transpose3d: {out: 3, kernel_size: 2, padding: [3, 0, 0]}}", "the output would have 0 images"),
    ("relu", "{reshape: [4, 4, 4, 1]}, {conv_transpose3d: {out: 6, kernel_size: 1, groups: 3}}", "groups must divide the input's channels (4), got 3"),
    ("relu", "{reshape: [4, 4, 4]}, {pad: [1, 1, 1, 1, 1, 1]}", "six numbers pad a volume, (channels, depth, height, width), but its input has 3 dimensions"),
    ("relu", "{reshape: [4, 4, 2, 2]}, {pad: {padding: [0, 0, 0, 0, 4, 0], mode: reflect}}", "mode: reflect: the padding must be smaller than the dimension (4), got 4 and 0"),
    ("relu", "{dropout3d: 0.5}", "model.layers.1.dropout3d: needs an input of shape (channels, depth, height, width), got 64"),
    ("relu", "{rrelu: {lower: 0.5, upper: 0.2}}", "model.layers.1.rrelu: lower must be at most upper"),
    ("relu", "{alpha_dropout: 1.5}", "alpha_dropout.p: must be >= 0 and <= 1, got 1.5"),
    ("relu", "{reshape: [4, 4, 4]}, {max_pool3d: 2}", "max_pool3d: needs an input of shape (channels, depth, height, width), got (4, 4, 4)"),
    ("relu", "{reshape: [1, 4, 4, 4]}, {avg_pool3d: {kernel_size: 2, padding: 2}}", "padding must be at most half the window"),
    ("relu", "{reshape: [1, 1, 8, 8]}, {avg_pool3d: 2}", "the window is larger than the padded input"),
    ("relu", "{reshape: {shape: [4, 4, 4], name: a}}, {max_pool2d: 2}, {max_unpool2d: {kernel_size: 3, stride: 2, from: a}}",
     "stride must be at least kernel_size: windows that overlap may have the same maximum, which several values would then have as their position"),
    ("relu", "{reshape: {shape: [4, 4, 4], name: a}}, {max_pool2d: 2}, {max_unpool2d: {kernel_size: 4, from: a}}",
     "max_unpool2d: the values have the shape (4, 2, 2), but a max pool of (4, 4, 4) gives (4, 1, 1)"),
    ("relu", "{reshape: {shape: [4, 4, 4], name: a}}, {max_unpool2d: {kernel_size: 1, from: [a, a, a]}}",
     "max_unpool2d: takes two outputs, the values and the input of the max pool, but from: gives 3"),
    ("relu", "{reshape: {shape: [4, 4, 4], name: a}}, {max_unpool3d: {kernel_size: 2, from: a}}", "max_unpool3d: needs an input of shape (channels, depth, height, width), got (4, 4, 4)"),
    ("relu", "{reshape: {shape: [4, 4, 4], name: a}}, {max_unpool2d: 2}", "joins several outputs, so it needs `from:`"),
    ("relu", "{reshape: {shape: [4, 4, 4], name: a}}, {max_unpool2d: {kernel_size: 5, from: a}}", "max_unpool2d: the window is larger than the padded input of the max pool"),
    ("relu", "{reshape: {shape: [4, 4, 4], name: a}}, {max_unpool2d: {kernel_size: 2, padding: 2, from: a}}", "max_unpool2d: padding must be at most half the window"),
    ("relu", "{parallel: {branches: []}}", "model.layers.1.parallel: branches: expected 1 to 256 lists of layers, got 0"),
    ("relu", "{parallel: {join: add, branches: [[{linear: 3}], []]}}", "model.layers.1.parallel: the two sides of the sum have different shapes: 3 and 64"),
    ("relu", "{relu: {name: a}}, {sequential: {name: a, layers: []}}", "the name 'a' is already used by another layer of this list"),
    ("relu", "{relu: {name: input}}, {add: {from: input}}", "the name 'input' means the model's input in `from:`; choose another"),
]

# The same for files of data.
FILES = [
    ("datasets/wine.h5", "datasets/none.h5", "datasets/none.h5"),
    ("inputs: x", "inputs: xx", "xx"),
    ("targets: y", "targets: z", "z"),
    ("inputs: x, targets: y", "inputs: y, targets: y", "dataset 'y' is used twice, as input and as target"),
    ("inputs: x", "inputs: [x, x]", "dataset 'x' is used twice, as input"),
    ("path: datasets/wine.h5", "path: test.yaml, format: hdf5", "test.yaml"),
]


def tried(*ways):
    """In which each mistake is tried: under a sanitizer one, since its message is made by the same functions."""
    return ways[:1] if program.SANITIZER else ways


class Config(program.Case):
    def test_table(self):
        for old, new, sentence in WRONG:
            with self.subTest(new):
                self.assertIn(old, program.WINE)
                self.write("test.yaml", program.WINE.replace(old, new, 1))
                for command in tried([], ["check"]):
                    out, err = self.run_program(*command, "test.yaml", code=USAGE)
                    self.assertIn(sentence, err)
                self.assertFalse(os.path.exists(self.path("runs")), "a failed start made a run folder")

    def test_all_errors_at_once(self):
        text = program.WINE
        for old, new, _ in WRONG[1:3] + WRONG[5:7] + WRONG[12:13]:
            text = text.replace(old, new, 1)
        self.write("test.yaml", text)
        _, err = self.run_program("test.yaml", code=USAGE)
        self.assertEqual(len(err.strip().splitlines()), 5, err)
        for line in err.splitlines():
            self.assertRegex(line, r"^test\.yaml:\d+:\d+: ")

    def test_many_ranks_print_it_once(self):
        self.write("test.yaml", program.WINE.replace("relu", "rellu"))
        _, err = self.run_program("test.yaml", "--nproc", 3, code=USAGE)
        self.assertEqual(err.count("unknown layer"), 1)

    def test_overrides_are_checked_the_same_way(self):
        self.write("test.yaml", program.WINE)
        for override, sentence in (("optimizer.lrr=1", "argument 'optimizer.lrr=1': optimizer.lrr: unknown key; did you mean 'lr'?"),
                                   ("train.epochs=0", "train.epochs: must be >= 1"),
                                   ("train.epochs=[", "argument 'train.epochs=['"),
                                   ("=3", "argument '=3'"),
                                   ("model.layers.7.linear.out=3", "argument 'model.layers.7.linear.out=3'")):
            with self.subTest(override):
                self.run_program("test.yaml", override, code=USAGE, err=sentence)
        self.write("validated.yaml", program.WINE.replace("split: {test: 0.2, seed: 42}", "validation: nowhere.h5"))
        self.run_program("check", "validated.yaml", "dataset.validation=null", out="178 training rows")
        self.run_program("test.yaml", "optimizer.lr=1e-2", "model.layers.0.linear.out=8", "loss.label_smoothing=0.1", "train.epochs=1")
        self.assertIn("label_smoothing: 0.1", self.read("runs/test/config.yaml"))


class Model(program.Case):
    def test_shapes(self):
        for old, new, sentence in SHAPES:
            with self.subTest(new):
                self.assertIn(old, program.WINE)
                self.write("test.yaml", program.WINE.replace(old, new))
                for command, nproc in tried(([], 1), ([], 2), (["check"], 1)):
                    _, err = self.run_program(*command, "test.yaml", "--nproc", nproc, code=USAGE)
                    self.assertIn(sentence, err)
                    self.assertEqual(err.count(sentence), 1, err)
                self.assertFalse(os.path.exists(self.path("runs")))


    def test_labels_from_one(self):
        rows = "".join(f"{i}.5,{i % 4},{1 + i % 3}\n" for i in range(30))
        self.write("rows.csv", "a,b,label\n" + rows)
        self.write("test.yaml", program.WINE.replace("path: datasets/wine.h5, inputs: x, targets: y", "path: rows.csv"))
        for command in ([], ["check"]):
            _, err = self.run_program(*command, "test.yaml", code=USAGE)
            self.assertIn("the model's output is 3, but the targets have 4 classes (0 to 3): cross_entropy needs one output per class; "
                          "the smallest class is 1: number the labels from 0 (in a table dataset.columns: {COLUMN: category} does it), or give the last layer 4 outputs", err)
        self.run_program("test.yaml", "dataset.columns={label: category}")

    def test_labels_with_gaps(self):
        self.write("rows.csv", "a,b,label\n" + "".join(f"{i}.5,{i % 4},{(0, 3, 7)[i % 3]}\n" for i in range(30)))
        self.write("test.yaml", program.WINE.replace("path: datasets/wine.h5, inputs: x, targets: y", "path: rows.csv"))
        _, err = self.run_program("check", "test.yaml", code=USAGE)
        self.assertIn("the model's output is 3, but the targets have 8 classes (0 to 7): cross_entropy needs one output per class; no row has class 1: "
                      "number the labels without gaps (in a table dataset.columns: {COLUMN: category} does it), or give the last layer 8 outputs", err)
        self.run_program("test.yaml", "dataset.columns={label: category}")
        self.write("rows.csv", "a,b,label\n" + "".join(f"{i}.5,{i % 4},{i % 5}\n" for i in range(30)))
        self.assertNotIn("no row has", self.run_program("check", "test.yaml", code=USAGE)[1])

    def test_images_into_a_linear_layer(self):
        text = program.WINE.replace("path: datasets/wine.h5, inputs: x, targets: y, scale: standard, split: {test: 0.2, seed: 42}",
                                    "format: synthetic, synthetic: {kind: classes, inputs: [1, 8, 8], classes: 3}")
        self.write("test.yaml", text)
        for command in ([], ["check"]):
            _, err = self.run_program(*command, "test.yaml", code=USAGE)
            self.assertIn("model.layers.0.linear, line 4, gets (1, 8, 8) and uses only the last dimension: insert '- flatten' before it", err)
        self.write("test.yaml", text.replace("[{linear: {out: 64}}", "[flatten, {linear: {out: 64}}"))
        self.run_program("check", "test.yaml")


class CommandLine(program.Case):
    def test_a_launcher_and_an_own_number_of_processes(self):
        self.write("test.yaml", program.WINE)
        ranks = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        self.run_program("test.yaml", "--nproc", 2, env=ranks, code=USAGE, err="--nproc 2: this process is already rank 0 of 2")
        _, err = self.run_program("test.yaml", "--nnodes", 2, "--master-addr", "localhost", "--master-port", 1, env=ranks, code=USAGE)
        self.assertIn("--nnodes 2: this process is already rank 0 of 2", err)

    def test_a_config_may_be_called_as_nearly_a_command(self):
        self.write("chekc", program.WINE)
        self.run_program("chekc", "train.epochs=1")

    def test_words(self):
        self.write("test.yaml", program.WINE)
        self.write("zeros", "\0" * 1000)
        self.write("notes", "nothing but text in this file\n" * 10)
        self.write("data.csv", "a,b\n1,2\n")
        self.write("large.csv", "1,2\n" * 300000)
        for arguments, code, sentence in (
                ([], USAGE, "no config given; see ddptrain --help"),
                (["missing.yaml"], USAGE, "missing.yaml"),
                (["chekc", "test.yaml"], USAGE, "unknown command 'chekc'; did you mean 'check'?"),
                (["evaluate", "test.yaml"], USAGE, "unknown command 'evaluate'; did you mean 'eval'?"),
                (["test", "test.yaml"], USAGE, "unknown command 'test'; did you mean 'eval'?"),
                (["validate", "test.yaml"], USAGE, "unknown command 'validate'; did you mean 'eval', or 'check' for the config alone?"),
                (["fit", "test.yaml"], USAGE, "unknown command 'fit'; did you mean 'train'?"),
                (["resume", "test.yaml"], USAGE, "unknown command 'resume'; did you mean 'train'; it continues"),
                (["evall", "test.yaml"], USAGE, "unknown command 'evall'; did you mean 'eval'?"),
                (["test.yaml", "other.yaml"], USAGE, "unexpected argument 'other.yaml'"),
                (["test.yaml", "--nprocs", "2"], USAGE, "unknown option '--nprocs'; did you mean '--nproc'?"),
                (["test.yaml", "--run-dir", "--quiet"], USAGE, "--run-dir needs a value, got the option '--quiet'"),
                (["test.yaml", "--nproc"], USAGE, "--nproc needs a value"),
                (["test.yaml", "--weights", "average"], USAGE, "--weights is for eval, predict, generate, export; 'train' does not accept it"),
                (["check", "test.yaml", "--fresh"], USAGE, "--fresh is for train, sweep, compare, doctor; 'check' does not accept it"),
                (["eval", "test.yaml", "--sizes=1K"], USAGE, "--sizes is for comm; 'eval' does not accept it"),
                (["test.yaml", "--run-dir", ""], USAGE, "--run-dir needs a value, got an empty value"),
                (["test.yaml", "--nproc", "two"], USAGE, "--nproc: expected 1 to 4096, gpu or auto, got 'two'"),
                (["test.yaml", "--nproc", "0"], USAGE, "--nproc: expected 1 to 4096"),
                (["test.yaml", "--nnodes", "2"], USAGE, "--nnodes 2 needs --master-addr and --master-port"),
                (["check", "test.yaml", "--nproc", "4096", "--nnodes", "524288"], USAGE, "--nnodes: expected 1 to 65536, got 524288"),
                (["check", "test.yaml", "--nproc", "2", "--nnodes", "2147483647"], USAGE, "--nnodes: expected 1 to 65536, got 2147483647"),
                (["test.yaml", "--nnodes", "0"], USAGE, "--nnodes: expected 1 to 65536, got 0"),
                (["test.yaml", "--nnodes", "2", "--standalone"], USAGE, "--standalone is for one node"),
                (["test.yaml", "--nnodes=2", "--node-rank=2", "--master-addr=localhost", "--master-port=1"], USAGE, "--node-rank must be below --nnodes 2, got 2"),
                (["check", "test.yaml", "--nproc=2", "--cpu-bind=cores", "--node-rank=2147483647"], USAGE, "--node-rank must be below --nnodes 1, got 2147483647"),
                (["test.yaml", "--nproc", "2", "--nproc=3"], USAGE, "--nproc is given twice"),
                (["test.yaml", "--nproc", "2", "--nproc_per_node=2"], USAGE, "--nproc and --nproc_per_node are the same option; give it once"),
                (["test.yaml", "--quiet=1"], USAGE, "--quiet takes no value"),
                (["generate", "test.yaml", "--characters", "-1"], USAGE, "--characters: expected a whole number from 0 to 2147483647, got '-1'"),
                (["generate", "test.yaml", "--temperature", "1e30"], USAGE, "--temperature: expected a number from 0 to 1e+09, got '1e30'"),
                (["export", "test.yaml", "checkpoint=best", "--out", "w.pt"], USAGE,
                 "unexpected argument 'checkpoint=best' after 'test.yaml'; options are written --checkpoint best, and only a PyTorch "
                 "script (--format pytorch) is of a changed config\n"),
                (["init", "a.csv", "target=b"], USAGE, "unexpected argument 'target=b' after 'a.csv'; did you mean '--target b'?\n"),
                (["inspect", "test.yaml", "a=b"], USAGE, "unexpected argument 'a=b' after 'test.yaml'\n"),
                (["inspect", "day=1/a.csv"], None, "day=1/a.csv: there is no such file"),
                (["comm", "dist.timeout=3"], USAGE, "comm takes no config, got 'dist.timeout=3'"),
                (["inspect"], USAGE, "no file given"),
                (["data.csv"], USAGE, "data.csv:1:1: expected a mapping of sections (such as `sampler: {batch_size: 32}`), got a single value; "
                                      "if it is a data file, ddptrain init writes a config for it: ddptrain init data.csv > CONFIG"),
                (["check", "large.csv"], USAGE, "large.csv: larger than 1 MiB, the maximum for a config; if it is a data file, ddptrain init"),
                (["inspect", "notes"], DATA, "notes: a text file, not a checkpoint"),
                (["inspect", "datasets"], DATA, "datasets: neither the folder of a run nor a folder of images: "),
                (["inspect", "zeros"], DATA, "zeros: not an HDF5 file, or damaged"),
                (["inspect", "missing.h5"], None, "missing.h5"),
                (["--help-config", "nothing"], USAGE, "nothing")):
            with self.subTest(arguments):
                out, err = self.run_program(*arguments, code=code)
                self.assertNotEqual(self.code, 0)
                self.assertIn(sentence, err)
        for arguments in (["--help"], ["--version"], ["--help-config"], ["--help-config", "optimizer"], ["eval", "--help"], ["train", "test.yaml", "-h"], ["--schema"], ["--reference"]):
            out, err = self.run_program(*arguments)
            self.assertTrue(out and not err)

    def test_help_is_in_columns(self):
        """The second column begins two spaces after the longest name, and no line has more than 100 characters."""
        for topic in ("train", "dataset", "checkpoint", "sampler", "dist"):
            with self.subTest(topic):
                out, _ = self.run_program("--help-config", topic)
                names = [name for line in out.splitlines() for name in re.findall(r"^  (\S+)  ", line)]
                self.assertGreater(len(names), 3)
                start = max(map(len, names)) + 4
                for line in out.split("\n\n", 1)[1].splitlines():
                    if line.startswith("  "):
                        self.assertRegex(line, rf"^(  \S+ +| +)(?<=^.{{{start}}})\S")
                    self.assertLessEqual(len(line), 100)

    def test_sizes_of_signals(self):
        """The keys of layers of (channels, length) are one number, those of images may be two."""
        for name in ("conv1d", "max_pool1d", "avg_pool1d", "adaptive_avg_pool1d", "adaptive_max_pool1d"):
            for layer, is_image in ((name, False), (name.replace("1d", "2d"), True)):
                with self.subTest(layer):
                    out, _ = self.run_program("--help-config", f"model.layers.{layer}")
                    self.assertEqual("one number, or [height, width]" in out, is_image)
                    self.assertIn("one number", out)

    def test_a_fault_that_cannot_be_read(self):
        self.write("test.yaml", program.WINE)
        self.run_program("test.yaml", env={"DDPTRAIN_FAULT": "abc"}, code=USAGE, err="DDPTRAIN_FAULT: expected N:KIND[:once|ever], got 'abc'")

    def test_instruction_set(self):
        self.write("test.yaml", program.WINE)
        out, _ = self.run_program("test.yaml", env={"DDPTRAIN_CPU": "baseline"})
        self.assertNotIn("on cpu (avx", out)
        self.run_program("test.yaml", code=USAGE, env={"DDPTRAIN_CPU": "mmx"}, err="DDPTRAIN_CPU: this CPU does not have the instruction set 'mmx'; it has: ")

    def test_ranks_environment(self):
        self.write("test.yaml", program.WINE)
        for env, sentence in (({"RANK": "0"}, "WORLD_SIZE"), ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK"),
                              ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK")):
            with self.subTest(env):
                self.run_program("test.yaml", code=USAGE, env=env, err=sentence)


class Data(program.Case):
    def test_files(self):
        for old, new, sentence in FILES:
            with self.subTest(new):
                self.write("test.yaml", program.WINE.replace(old, new))
                for nproc in tried(1, 2):
                    self.run_program("test.yaml", "--nproc", nproc, code=DATA, err=sentence)
                self.run_program("check", "test.yaml", code=DATA)
                self.assertFalse(os.path.exists(self.path("runs")))

    def test_rows(self):
        config = program.WINE.replace("path: datasets/wine.h5, inputs: x, targets: y", "path: data.csv")
        for rows, sentence in (("1,2,0\n3,,1\n", "data.csv:line 3: column 'b': missing value"), ("1,2,0\n3,x,1\n", "data.csv:line 3: column 'b': 'x' is not a number"),
                               ("1,2,0\n3,4\n", "data.csv:line 3: there are 2 fields, but the header has 3"), ("", "data.csv")):
            with self.subTest(rows):
                self.write("data.csv", "a,b,c\n" + rows)
                self.write("test.yaml", config)
                self.run_program("test.yaml", code=DATA, err=sentence)


    def test_csv_without_header(self):
        """Its first row would be taken for names."""
        config = program.WINE.replace("path: datasets/wine.h5, inputs: x, targets: y", "path: data.csv").replace("test: 0.2", "test: 0")
        rows = "".join(f"{i * 0.5},{7 - i},{i % 3}\n" for i in range(4, 40))
        self.write("test.yaml", config)
        for first, code in (("", DATA), ("a,b,c\n", 0), ("0,1,2\n", 0), ("1,2,kind\n", 0), ("5.1,3.5,setosa\n", DATA)):
            with self.subTest(first):
                self.write("data.csv", first + rows)
                _, err = self.run_program("test.yaml", "--fresh", code=code)
                if code:
                    self.assertIn("data.csv:line 1: expected a header with column names, but this is a row of numbers", err)
        self.write("data.csv", "5,3,1\n" + rows)
        self.write("test.yaml", config.replace("data.csv", "data.csv, targets: '1'"))
        self.run_program("test.yaml", "--fresh")

    def test_csv_labels_in_utf8(self):
        self.write("test.yaml", program.WINE.replace("path: datasets/wine.h5, inputs: x, targets: y", "path: data.csv"))
        utf8 = ["dataset.csv.encoding=utf-8"]
        for label, code, keys in (("café".encode(), 0, []), (b"caf\xe9", 0, []), (b"caf\xe9", DATA, utf8)):
            with open(self.path("data.csv"), "wb") as f:
                f.write(b"a,b,kind\n" + b"".join(b"%d,%d,%s\n" % (i, 7 - i, label if i % 2 else b"tea") for i in range(40)))
            _, err = self.run_program("test.yaml", "--fresh", *keys, code=code)
            if code:
                self.assertIn("data.csv:line 3: column 'kind': the label is not UTF-8 text", err)

    def test_places_of_keys_that_the_data_contradict(self):
        """The place of the key, of its section, or the argument; a file with a name like a key is none."""
        import numpy as np
        np.savez(self.path("a.npz"), x=np.ones((8, 2), "f4"), y=np.arange(8) % 2)
        self.write("dataset.npz", "no archive")
        self.write("test.yaml", "dataset: {path: a.npz,\n  inputs: [x, y], targets: y}\nmodel: {layers: [{linear: 2}]}\nloss: cross_entropy\ntrain: {epochs: 1}\n")
        for words, message in (([], "test.yaml:2:11: dataset.inputs: format npz takes one array, got 2\n"),
                               (["dataset.inputs=x", "dataset.targets=[x, y]"], "argument 'dataset.targets=[x, y]': dataset.targets: format npz takes one array, got 2\n"),
                               (["dataset.inputs=x", "loss=mse", "dataset.split={test: 0.25, stratify: true}"], "argument 'dataset.split={test: 0.25, stratify: true}': dataset.split.stratify: it needs classes"),
                               (["dataset={path: dataset.npz}"], "dataset.npz: ")):
            with self.subTest(message):
                _, err = self.run_program("check", "test.yaml", *words, code=None)
                self.assertEqual(err.removeprefix("ddptrain: ")[:len(message)], message)

    def test_files_with_names_like_keys(self):
        """A run puts the place before a message once, and no key is the cause of a damaged file."""
        import numpy as np
        np.savez(self.path("a.npz"), x=np.ones((8, 2), "f4"), y=np.arange(8) % 2)
        self.write("dataset.inputs.npz", "no archive")
        text = "dataset: {path: a.npz, inputs: [x, y], targets: y}\nmodel: {layers: [{linear: 2}]}\nloss: cross_entropy\ntrain: {epochs: 1}\n"
        for name in ("train.steps.yaml", "model.layers.yaml", "dataset.path", "dataset"):
            with self.subTest(name):
                self.write(name, text)
                self.assertEqual(self.run_program(name, code=USAGE)[1], f"{name}:1:32: dataset.inputs: format npz takes one array, got 2\n")
        _, err = self.run_program("check", "dataset", "dataset.path=dataset.inputs.npz", "dataset.inputs=x", code=program.DATA)
        self.assertRegex(err, "^ddptrain: dataset.inputs.npz: ")
        self.write("sweep.yaml", "config: train.steps.yaml\nmethod: grid\nmetric: train_loss\nparameters: {optimizer.lr: [0.1]}\n")
        err = "".join(self.run_program("sweep", "sweep.yaml", code=None))
        self.assertIn("trial 0 failed: train.steps.yaml:1:32: dataset.inputs: format npz takes one array, got 2\n", err)
        _, err = self.run_program("compare", "train.steps.yaml", "dataset", code=USAGE)
        self.assertEqual(err, "ddptrain: train.steps.yaml: --metric: val_loss needs validation rows (dataset.split or dataset.validation); without them use train_loss\n")

    def test_check_reads_what_a_run_resumes_from(self):
        self.write("test.yaml", program.WINE)
        self.run_program("check", "test.yaml", "checkpoint.resume=none.h5", code=DATA, err="checkpoint.resume: none.h5: there is no such checkpoint")

    def test_check_compares_what_a_run_resumes_from(self):
        self.write("test.yaml", program.WINE)
        self.run_program("test.yaml", "--nproc", 2, "--save-at", "4", "--stop-after", "4", code=program.STOPPED)
        file = os.path.join("runs/test/checkpoints", self.checkpoints()[-1])
        for more, code, words in ((["checkpoint.save_every=1"], program.OK, ""),
                                  (["model.layers.0.linear.out=5"], DATA, "the checkpoint does not match the config:\n"),
                                  (["optimizer={type: sgd, lr: 0.1, momentum: 0.9}"], DATA, "the checkpoint does not match the config:\n"),
                                  (["train.ema={decay: 0.9}"], DATA, "the checkpoint does not match the config:\n"),
                                  (["dataset.split.seed=1"], USAGE, "has another dataset; 1 key differs"),
                                  (["--nproc", 1], USAGE, "was saved in the middle of an epoch by 2 processes"),
                                  (["sampler.batch_size=72"], DATA, "was saved after batch 1 of an epoch, which has 1 here")):
            args = ["test.yaml", f"checkpoint.resume={file}", *([] if "--nproc" in more else ["--nproc", 2]), *more]
            _, err = self.run_program("check", *args, code=code)
            self.assertIn(words, err)
            _, run = self.run_program(*args, "--run-dir", "runs/again", "--fresh", code=code)
            if code:
                self.assertIn(err.strip().removeprefix("ddptrain: "), run)
        self.write("small.csv", "a,b\n1,2\n3,4\n5,7\n")
        table = program.WINE.replace("path: datasets/wine.h5, inputs: x, targets: y", "path: small.csv, targets: b").replace("out: 3", "out: 1").replace("cross_entropy", "mse")
        self.write("table.yaml", table)
        self.run_program("table.yaml", "train.epochs=1")
        self.write("small.csv", "a,b\n1,2\n3,4\n5,6\n")
        args = ["table.yaml", "checkpoint.resume=runs/table/checkpoints/epoch-0001.h5"]
        self.run_program("check", *args)  # reads the header only
        self.run_program("check", *args, "--data", code=DATA, err="it was trained on other data")

    @unittest.skipIf(program.SANITIZER, "a sanitizer has other limits")
    def test_check_compares_the_memory(self):
        self.write("test.yaml", program.WINE.replace("out: 64", "out: 1000000"))
        out, _ = self.run_program("check", "test.yaml")
        self.assertNotIn("warning", out)
        with open("/proc/meminfo") as f:
            free = next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable"))
        size = int((free / 4 * 0.6) ** 0.5)  # with gradients and Adam more than is free; one of them alone is less
        self.write("test.yaml", program.WINE.replace("{linear: {out: 64}}", f"{{linear: {{out: {size}}}}}, {{linear: {{out: {size}}}}}"))
        out, _ = self.run_program("check", "test.yaml")
        self.assertRegex(out, r"warning +1 process of at least \d+ MiB each, but \d+ MiB of memory are free here")


class Numbers(program.Case):
    def test_not_finite(self):
        self.write("test.yaml", program.WINE.replace("lr: 0.001", "lr: 1.0e+9").replace("type: adam", "type: sgd"))
        for nproc in (1, 2):
            _, err = self.run_program("test.yaml", "--nproc", nproc, "--fresh", code=NOT_FINITE)
            self.assertRegex(err, r"loss is not finite (in epoch \d+, step \d+|after epoch \d+)")
            self.assertNotIn("loss nan", err)
            self.assertEqual(err.count("not finite"), 1)
            self.assertEqual(self.checkpoints(), [])
            self.assert_no_leftovers()


class Folder(program.Case):
    def test_not_writable(self):
        self.write("test.yaml", program.WINE)
        self.write("file", "")
        self.run_program("test.yaml", "--run-dir", "file", code=USAGE, err="file: is not a folder")
        self.run_program("test.yaml", "--run-dir", "/proc/nothing/here", code=IO, err="/proc/nothing")

    def test_a_failed_start_leaves_no_folder(self):
        self.write("test.yaml", program.WINE)
        for nproc in (1, 2):
            self.run_program("test.yaml", "model.init_from=none.h5", "--nproc", nproc, code=DATA)
            self.assertFalse(os.path.exists(self.path("runs/test")))
        os.makedirs(self.path("runs/test/mine"))
        self.run_program("test.yaml", "model.init_from=none.h5", code=DATA)
        self.assertTrue(os.path.exists(self.path("runs/test/mine")))

    def test_commands_in_messages_are_quoted(self):
        self.write("my data.csv", "a,b\n1,2\n")
        self.run_program("my data.csv", code=USAGE, err="ddptrain init 'my data.csv' > CONFIG")
        self.write("$(id).yaml", "config: test.yaml\nmethod: grid\nparameters: {seed: [1, 2]}\n")
        self.run_program("$(id).yaml", code=USAGE, err="ddptrain sweep '$(id).yaml' trains it, and ddptrain check '$(id).yaml' checks it")
        self.write("test.yaml", program.WINE)
        _, err = self.run_program("sweep", "$(id).yaml", "train.epochs=1")
        self.assertRegex(err, r"ddptrain eval 'sweeps/\$\(id\)/runs/000[01]/config.yaml' --checkpoint best")
        self.write("sweeps/$(id)/history.jsonl", "nonsense\n")
        self.run_program("sweep", "$(id).yaml", "train.epochs=1", code=DATA, err="(sed -i 1d 'sweeps/$(id)/history.jsonl')")

    def test_foreign_config(self):
        self.write("test.yaml", program.WINE)
        os.makedirs(self.path("runs/test/checkpoints"))
        self.write("runs/test/.lock", "a run of ddptrain\n")
        self.write("runs/test/config.yaml", "something: else\n")
        self.run_program("test.yaml", code=USAGE, err="the run folder's config cannot be read by this version")
        self.assertEqual(self.read("runs/test/config.yaml"), "something: else\n")

    def test_a_damaged_config_of_a_run_loses_nothing(self):
        """The message must not only offer to start over: the checkpoints have the config, too."""
        self.write("test.yaml", program.WINE)
        self.run_program("test.yaml", "train.epochs=2", "--run-dir", "whole")
        self.run_program("test.yaml", "train.epochs=1", "--run-dir", "damaged")
        for text in ("", "name: [", "hello\n", "name: a\0b\n"):
            self.write("damaged/config.yaml", text)
            _, err = self.run_program("test.yaml", "train.epochs=2", "--run-dir", "damaged", code=USAGE)
            self.assertIn("if only that file is damaged, delete it to continue", err)
        os.remove(self.path("damaged/config.yaml"))
        self.run_program("test.yaml", "train.epochs=2", "--run-dir", "damaged")
        self.assertEqual(self.events("end", "damaged")[-1]["state_sha256"], self.events("end", "whole")[-1]["state_sha256"])
