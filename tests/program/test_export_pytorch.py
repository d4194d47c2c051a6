"""`ddptrain export --format pytorch`: scripts of the shipped configs and of every layer, loss, optimizer and schedule are Python, or
are refused by a sentence that names the key. Where python3-torch is installed, their losses are those of ddptrain. ctest-labels: unit"""
import ast
import glob
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import unittest

import program
import test_configs

COMPARE = os.path.join(program.SOURCE, "scripts", "compare_pytorch.py")
WINE = """
name: wine
dataset: {path: %s, scale: standard, split: {test: 0.2, seed: 42}}
model: {layers: [{linear: 8}, relu, {linear: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.01}
train: {epochs: 2}
""" % os.path.join(program.SOURCE, "datasets", "wine.h5")


class ExportPyTorch(program.Case):
    def setUp(self):
        super().setUp()
        test_configs.write_data(self.folder)
        self.write("wine.yaml", WINE)

    def export(self, source, *overrides):
        """The script, which is Python."""
        self.run_program("export", source, "--format", "pytorch", "--out", "train.py", *overrides)
        with open(self.path("train.py"), encoding="utf-8") as f:
            code = f.read()
        compile(code, "train.py", "exec")
        return code

    def refuse(self, source, *overrides, what):
        """Exit code 64, one sentence, and nothing is written."""
        _, err = self.run_program("export", source, "--format", "pytorch", "--out", "refused.py", *overrides, code=64)
        self.assertRegex(err, rf"{what}.* cannot be expressed in a PyTorch script\n")
        self.assertEqual(err.count("\n"), 1, err)
        self.assertFalse(os.path.exists(self.path("refused.py")))

    def test_shipped_configs(self):
        for file in sorted(glob.glob(os.path.join(program.SOURCE, "configs", "*.yaml"))):
            name = os.path.splitext(os.path.basename(file))[0]
            if test_configs.is_sweep(file):
                continue
            refused = {"time_sequence_prediction": "the optimizer lbfgs", "word_language_model": "sampler.type batchify"}.get(name)
            with self.subTest(name):
                if refused:
                    self.refuse(file, *test_configs.OVERRIDES.get(name, []), what=refused)
                    continue
                self.assertNotIn("ddptrain", self.export(file, *test_configs.OVERRIDES.get(name, [])).partition("\n")[2])

    def test_a_carried_state_is_refused(self):
        """A script would begin each row with 0, in another order."""
        self.write("words.yaml", "dataset: {path: words.txt, text: {block_size: 4, stride: 4}, split: {test: 0.2, shuffle: false}}\n"
                   "sampler: {type: batchify, global_batch_size: 2}\nmodel: {layers: [{embedding: 3}, {lstm: {hidden_size: 3, carry_state: true}}, {linear: 7}]}\n"
                   "loss: cross_entropy\ntrain: {epochs: 1}\n")
        self.write("words.txt", "abcdefg" * 20)
        self.refuse("words.yaml", what="sampler.type batchify")
        self.refuse("words.yaml", "sampler.type=distributed", "sampler.shuffle=false", what="carry_state")

    def test_wine_is_a_page(self):
        code = self.export(os.path.join(program.SOURCE, "configs", "wine_mlp.yaml"))
        self.assertLess(code.count("\n"), 116)
        modules = {name.name.split(".")[0] for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import) for name in node.names}
        self.assertEqual(modules, {"h5py", "math", "numpy", "os", "torch"})

    def test_repeated_blocks_are_a_loop(self):
        code = self.export(os.path.join(program.SOURCE, "configs", "char_gpt.yaml"))
        self.assertEqual(code.count("        for i in range(8):\n"), 2)
        self.assertIn('put(self, f"h.{i}.attn.1", DotProductAttention(8, causal=True, dropout=0.1, stream=5 + 10 * i))', code)
        self.assertNotIn("h.0", code)

    def test_a_script_has_what_it_calls(self):
        """A function of the script is there because another name is the same, such as a parameter, would import what the data does not need."""
        with open(os.path.join(program.SOURCE, "src", "export", "pytorch.py"), encoding="utf-8") as f:
            pieces = f.read().split("\n\n\n")[1:]
        names = [re.match(r"(?:class |def )?(\w+)", piece).group(1) for piece in pieces]
        for piece, own in zip(pieces, names):
            nodes = list(ast.walk(ast.parse(piece)))
            bound = {n.arg for n in nodes if isinstance(n, ast.arg)} | {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            for name in names:
                if name != own and re.search(rf"(?<![\w.\"]){name}[(.),]", piece):
                    self.assertNotIn(name, bound, own)
        self.write("wine.yaml", WINE.replace("test: 0.2", "folds: 3, fold: 1").replace("[{linear: 8}, ", "[{reshape: [13, 1]}, {gru: 3}, flatten, {expression: tanh(x)}, "))
        self.assertNotIn("pandas", self.export("wine.yaml"))

    def test_of_a_run(self):
        """The script of a run is that of its config, with the keys that were changed."""
        self.run_program("wine.yaml", "optimizer.lr=0.125", "--run-dir", "run", "--quiet")
        self.assertIn("lr=0.125", self.export("run"))
        self.assertEqual(self.export("run").partition("\n")[2], self.export("wine.yaml", "optimizer.lr=0.125").partition("\n")[2])
        for name in ("iris_csv", "titanic"):
            file = os.path.join(program.SOURCE, "configs", name + ".yaml")
            self.run_program(file, "train.epochs=1", "--run-dir", name, "--quiet")
            self.assertEqual(self.export(name).partition("\n")[2], self.export(file, "train.epochs=1").partition("\n")[2])

    def test_initial_weights(self):
        """Those of model.init_from are in a file beside the script."""
        self.run_program("wine.yaml", "--run-dir", "run", "--quiet")
        self.run_program("export", "run", "--out", "wine.safetensors")
        self.assertIn('model.load_state_dict(torch.load("train_initial.pt"), strict=False)', self.export("wine.yaml", "model.init_from=wine.safetensors"))
        self.assertTrue(os.path.exists(self.path("train_initial.pt")))
        self.write("notes.safetensors", "not weights")
        for path, code in (("gone.safetensors", None), ("notes.safetensors", program.DATA)):  # nothing is left of a failed export
            self.run_program("export", "wine.yaml", "--out", "failed.py", f"model.init_from={path}", code=code)
            self.assertNotEqual(self.code, program.OK)
            self.assertEqual(glob.glob(self.path("failed*")), [])
        self.assertNotIn("torch.load", self.export("wine.yaml"))

    def test_optimizers_and_schedules(self):
        for kind in ("sgd", "adam", "adamw", "adagrad", "rmsprop", "lion", "nadam", "radam", "adamax", "adadelta", "rprop", "asgd", "adafactor"):
            with self.subTest(kind):
                code = self.export("wine.yaml", f"optimizer={{type: {kind}, lr: 0.5, groups: [{{match: '0.*', min_dims: 2, lr_factor: 0.5}}]}}")
                self.assertRegex(code, rf"(?i)(torch\.optim\.)?{kind}\(\[.*lr=0\.5")
                self.assertIn('p.dim() >= 2 and any(fnmatch.fnmatchcase(name, pattern) for pattern in ["0.*"])', code)
                self.assertIn('{"lr": 0.25, ', code)
        code = self.export("wine.yaml", "optimizer={type: muon, nesterov: false, adjust_lr: match_rms_adamw, adamw_match: ['2.*'], adamw: {lr: 0.5}}")
        self.assertIn('patterns = ["2.*"]\n', code)
        self.assertIn('torch.optim.Muon(matrices, lr=0.001, nesterov=False, adjust_lr_fn="match_rms_adamw")]', code)
        self.assertIn("torch.optim.AdamW(others, lr=0.5)", code)
        _, err = self.run_program("export", "wine.yaml", "--out", "x.py", "optimizer={type: muon, groups: [{match: '0.*', lr: 1}]}", code=program.USAGE)
        self.assertIn("optimizer muon with groups, decay or maximize cannot be expressed in a PyTorch script", err)
        code = self.export("wine.yaml", "schedule={type: reduce_on_plateau, monitor: val_accuracy, mode: max, patience: 2}")
        self.assertIn('scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=2)\n', code)
        for schedule in ("piecewise, points: {0: 1, 3: 0.5}", "step, step_size: 2", "multistep, milestones: [1]", "exponential, gamma: 0.5", "linear", "polynomial", "cosine",
                         "cosine_restarts, t_0: 2", "one_cycle", "cyclic, max_lr: 0.1, interval: step, warmup: 2"):
            with self.subTest(schedule):
                space = {"math": math, "np": __import__("numpy")}
                code = self.export("wine.yaml", f"schedule={{type: {schedule}}}")
                functions = [n for n in ast.parse(code).body if isinstance(n, ast.FunctionDef) and n.name in ("learning_rate", "one_cycle", "cyclic", "cosine_restarts", "piecewise")]
                exec(compile(ast.Module(functions, []), "rates", "exec"), space)
                self.assertGreaterEqual(space["learning_rate"](0.1, 1, 10), 0)

    def test_layers(self):
        """The models of tests/vectors/layers.json, which have every layer."""
        import h5py
        with open(os.path.join(program.VECTORS, "layers.json"), encoding="utf-8") as f:
            cases = json.load(f)["cases"]
        exported = set()
        for case in cases:
            if case["vocabulary"] or "sync: true" in case["layers"]:
                continue
            named = "sequence_lengths" in case["layers"]
            with h5py.File(self.path("rows.h5"), "w") as f:
                f["x"], f["n"], f["y"] = [[0.5] * math.prod(case["shape"])] * 2, [[1], [1]], [[0] * (len(case["outputs"]) // case["rows"])] * 2
                x = f["x"][:].reshape(2, *case["shape"])
                del f["x"]
                f["x"] = x
            self.write("case.yaml", f"dataset: {{path: rows.h5, inputs: {'{series: [x], steps: [n]}' if named else '[x]'}, targets: [y]}}\n"
                       f"model: {{layers: {case['layers']}, freeze: {case['freeze']}}}\nloss: mse\ntrain: {{epochs: 1}}\n")
            with self.subTest(case["layers"]):
                code = self.export("case.yaml")
                exported |= {key for key in case["keys"] if "." not in key}
                for name in case["weights"]:  # each parameter is of a module with its name, or an entry of a list of modules
                    module = r"\.".join(rf"(?:{part}|\{{i\}})" if part.isdigit() else part for part in name.replace(".out_proj", "").split(".")[:-1])
                    self.assertRegex(code, rf'"{module}"|nn\.Sequential')
        missing = {key for case in cases for key in case["keys"] if "." not in key} - exported
        self.assertEqual(missing, {"embedding", "embedding_bag"})  # bert_mini, and below
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"], f["y"] = [[1, 2, 3]] * 2, [[0, 1]] * 2
        self.write("bag.yaml", "dataset: {path: rows.h5}\nmodel: {layers: [{embedding_bag: "
                   "{embedding_dim: 4, num_embeddings: 9, mode: sum}}, {linear: 2}]}\nloss: mse\ntrain: {epochs: 1}\n")
        self.assertIn('nn.EmbeddingBag(9, 4, mode="sum")', self.export("bag.yaml"))

    def test_losses(self):
        for loss, inputs, form in (
                ("cross_entropy, label_smoothing: 0.1, weight: [1, 2, 3]", "classes", "F.cross_entropy(y, t, class_weights, label_smoothing=0.1)"),
                ("cross_entropy, weight: balanced", "classes", "class_weights = torch.tensor([0."), ("nll", "classes", "F.nll_loss(y, t)"),
                ("multi_margin, p: 2, margin: 0.5, weight: [1, 2, 3]", "classes", "multi_margin_loss(y, t, class_weights, p=2, margin=0.5)"),
                ("mse", "uniform", "F.mse_loss(y, t)"), ("l1", "uniform", "F.l1_loss(y, t)"), ("smooth_l1, beta: 0.5", "uniform", "F.smooth_l1_loss(y, t, beta=0.5)"),
                ("huber", "uniform", "F.huber_loss(y, t)"), ("quantile, quantile: 0.9", "uniform", "quantile_loss(y, t, 0.9)"),
                ("bce_with_logits, pos_weight: [1, 2, 3]", "uniform", "binary_cross_entropy(y, t, pos_weight=(1, 2, 3))"),
                ("kl_div, reduction: batchmean", "uniform", 'F.kl_div(y, t, reduction="batchmean")'), ("poisson_nll", "uniform", "F.poisson_nll_loss(y, t)"),
                ("soft_cross_entropy, weight: [1, 2, 3]", "uniform", "soft_cross_entropy(y, t, weight=(1, 2, 3))"),
                ("focal", "uniform", "focal_loss(y, t, 0.25, 2)"), ("dice", "uniform", "dice_loss(y, t, 1e-05)")):
            with self.subTest(loss):
                self.write("loss.yaml", f"dataset: {{format: synthetic, synthetic: {{kind: {inputs}, rows: 32, inputs: 5, targets: 3, classes: 3}}}}\n"
                           f"model: {{layers: [{{linear: 3}}]}}\nloss: {{type: {loss}}}\ntrain: {{epochs: 1}}\n")
                self.assertIn(form, self.export("loss.yaml"))
        self.write("loss.yaml", "dataset: {format: synthetic, synthetic: {kind: uniform, rows: 32, inputs: 5, targets: 1}}\nmodel: {layers: [{linear: {out: 6, name: a}}, "
                   "{linear: 2}]}\nlosses: [{type: gaussian_nll}, {type: contrastive, output: a}, {type: triplet_margin, output: a, name: b, loss_weight: 0.5}]\ntrain: {epochs: 1}\n")
        code = self.export("loss.yaml")
        self.assertIn("return gaussian_nll(y[0], t[:, 0:1]) + contrastive_loss(*y[1].flatten(1).chunk(2, 1), 0.07, True) + 0.5 * F.triplet_margin_loss(", code)
        self.assertIn("assert world == 1", code)
        for loss, form in ("hinge_embedding, margin: 2", "F.hinge_embedding_loss(y, t, margin=2)"), ("soft_margin", "F.soft_margin_loss(y, t)"):
            self.write("signs.csv", "a,b,target\n" + "0.5,1,1\n0.25,3,-1\n" * 20)
            self.write("loss.yaml", f"dataset: {{path: signs.csv}}\nmodel: {{layers: [{{linear: 1}}]}}\nloss: {{type: {loss}}}\ntrain: {{epochs: 1}}\n")
            self.assertIn(form, self.export("loss.yaml"))
        self.write("lists.csv", "a,b,first,second\n" + "0.5,1,1,0\n0.25,3,2,-1\n" * 20)
        lists = "dataset: {path: lists.csv, targets: [first, second]}\nmodel: {layers: [{linear: 3}]}\nloss: multilabel_margin\ntrain: {epochs: 1}\n"
        for text, form in (lists, "multilabel_margin_loss(y, t)"), (lists.replace("loss: multilabel_margin", "losses: [{type: multilabel_margin}]"), "multilabel_margin_loss(y[0], t[:, 0:2])"):
            self.write("loss.yaml", text)
            self.assertIn(form, self.export("loss.yaml"))
        self.assertIn("F.cosine_embedding_loss(", self.export(os.path.join(program.SOURCE, "configs", "siamese.yaml")))

    def test_draws_of_images(self):
        """The run draws for an image's elements channels last."""
        self.write("image.yaml", "dataset: {format: synthetic, synthetic: {kind: classes, rows: 32, inputs: 48, classes: 3}}\n"
                   "model: {layers: [{dropout: 0.1}, {reshape: [3, 4, 4]}, {conv2d: {out: 4, kernel_size: 2}}, {dropout: 0.2}, rrelu, flatten, {linear: 3}]}\nloss: cross_entropy\ntrain: {epochs: 1}\n")
        code = self.export("image.yaml")
        for call in ("Dropout(0.1, stream=0)", "Dropout(0.2, stream=4, channels_last=True)", "RReLU(0.125, 0.3333333333333333, stream=5, channels_last=True)"):
            self.assertIn(call, code)

    def test_formulas(self):
        """Of constants, too; the features are those of the largest variable."""
        for formula, form in (("mean(y - t) * mean(2) + 010", "ex.mean(y - t) * ex.mean(2) + 10"), ("sum(index * y * w)", "ex.sum(ex.index(y, w) * y * w)")):
            self.write("loss.yaml", "dataset: {format: synthetic, synthetic: {kind: uniform, rows: 32, inputs: 5, targets: 3}}\n"
                       f"model: {{layers: [{{linear: 3}}]}}\nloss: {{expression: '{formula}'}}\ntrain: {{epochs: 1}}\n")
            self.assertIn(f"expression_loss(lambda y, t, w: {form}, y, t)", self.export("loss.yaml"))

    def test_refusals(self):
        for override, what in (("checkpoint.resume=a.h5", "checkpoint.resume FILE"),
                               ("schedule={type: reduce_on_plateau, warmup: 2}", "schedule.warmup of reduce_on_plateau"),
                               ("dist.gradient_compression=bfloat16", "dist.gradient_compression"), ("dataset.weights=x", "dataset.weights"),
                               ("dataset.split={test: 0.2, folds: 3, fold: 0}", "dataset.split with test rows"), ("train={epochs: 9, metrics: [f1], early_stop: {metric: val_f1}}", "the metric val_f1"),
                               ("model.layers=[{linear: {out: 4, name: 'a\"b'}}, {linear: {out: 3, name: c}}]", "a name with a quote")):
            with self.subTest(override):
                self.refuse("wine.yaml", override, what=what)
        for layers in ("{batch_norm: {name: a}}, {batch_norm: {share: a, eps: 0.5}}", "{reshape: [13, 1]}, {attention: {heads: 1, dropout: 0.1, name: a}}, {attention: {heads: 1, dropout: 0.1, share: a}}, flatten",
                       "{reshape: [13, 1]}, {gru: {hidden_size: 1, last_state: h, name: a}}, {gru: {hidden_size: 1, share: a, initial_state: h}}, flatten"):
            self.refuse("wine.yaml", f"model.layers=[{layers}, {{linear: 3}}]", what="share: a layer with other keys than those of model.layers.[01].[a-z_]+, or with dropout,")
        for name, text, what in (("latin.csv", "gr\u00f6\u00dfe,y\n" + "0.5,0\n0.25,1\n" * 20, "a CSV file that is not UTF-8, without dataset.csv.encoding,"),
                                 ("quoted.csv", "a,y\n" + '0.5,"u "\n0.25,v\n' * 20, "a text with blanks at its end, in quotes,"),
                                 ("quoted.csv", "a,y\n" + '0.5,"\tu"\n0.25,v\n' * 20, "a text with a tab at its start, in quotes,"),
                                 ("quoted.csv", "a,b,y\n" + '"u ",1,0\nv,2,1\n' * 20, "a text with blanks at its end, in quotes,")):
            with open(self.path(name), "w", encoding="latin-1") as f:
                f.write(text)
            self.write("blanks.yaml", f"dataset: {{path: {name}}}\nmodel: {{layers: [{{linear: 2}}]}}\nloss: cross_entropy\ntrain: {{epochs: 1}}\n")
            self.refuse("blanks.yaml", what=what)
        self.write("table.csv", "a,b,y\n" + "0.5,1,0\n0.25,3,1\n" * 20)
        self.write("filter.yaml", "dataset: {path: table.csv}\nmodel: {layers: [{linear: 2}]}\nloss: cross_entropy\ntrain: {epochs: 1}\n")
        for operator in "is missing", "is  not  missing", "is\tmissing":
            self.refuse("filter.yaml", f"dataset.filter='a > 0.3 or b {operator}'", what="dataset.filter with 'is missing'")
        for text in ("it''s", "a\\tb"):  # Python reads them as other texts
            self.refuse("filter.yaml", f"dataset.filter=\"a != '{text}'\"".replace("\\", "\\\\"), what="dataset.filter with a quote or a backslash in a text")
        self.assertIn('filter="a != \'is missing\'"', self.export("filter.yaml", "dataset.filter=\"a != 'is missing'\""))
        self.write("table.yaml", "dataset: {path: table.csv, columns: {both: {expression: a * b}}, targets: both, drop_missing_targets: true}\nmodel: {layers: [{linear: 1}]}\nloss: mse\ntrain: {epochs: 1}\n")
        self.refuse("table.yaml", what="dataset.drop_missing_targets with a target that is an expression")

    def test_wrong_options(self):
        for words in (("wine.yaml", "--weights", "trained"), ("wine.yaml", "--checkpoint", "best")):
            self.run_program("export", *words, "--format", "pytorch", "--out", "train.py", code=64, err="a PyTorch script has no weights")
        self.run_program("export", "wine.yaml", "--out", "wine.safetensors", "train.epochs=3", code=64, err="only a PyTorch script")


@unittest.skipIf(program.SANITIZER, "what a sanitizer adds takes minutes")
@unittest.skipIf(importlib.util.find_spec("torch") is None, "not installed here: python3-torch, of scripts/install-deps.sh check")
class Losses(program.Case):
    def compare(self, *words, code=0, binary=program.BINARY, **environment):
        p = subprocess.run([sys.executable, COMPARE, *words], cwd=self.folder, env=self.environment({"DDPTRAIN": binary, "DDPTRAIN_SOURCE": program.SOURCE, **environment}),
                           capture_output=True, text=True, timeout=500, check=False)
        self.assertEqual(p.returncode, code, p.stdout + p.stderr)
        return p.stdout

    def test_a_script_runs_as_it_stands(self):
        """With the weights of a run, by python3, and by torchrun on two ranks; that of PyTorch 1.13 cannot take the defaults 0 of -r and -t with Python 3.11."""
        self.write("wine.yaml", WINE)
        self.run_program("wine.yaml", "--run-dir", "first", "--quiet")
        start = ["wine.yaml", "model.init_from=first"]
        self.run_program("export", *start, "--out", "train.py")
        environment = self.environment({"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"})
        port = program.free_port()
        for nproc, words in ((1, ["train.py"]), (2, ["-m", "torch.distributed.run", "--nproc_per_node=2", "-r1", "-t1", "--master_addr=127.0.0.1", f"--master_port={port}", "train.py"])):
            with self.subTest(nproc=nproc):
                self.run_program(*start, "train.log_every=1", "--nproc", nproc, "--run-dir", f"run-{nproc}", "--quiet")
                p = subprocess.run([sys.executable, *words], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
                self.assertEqual(p.returncode, 0, p.stderr)
                self.assert_close([float(x) for x in re.findall(r"step \d+  loss (\S+)", p.stdout, re.M)], self.losses(f"run-{nproc}"), 1e-6, "the losses of steps")
                self.assert_close([float(x) for x in re.findall(r"validation loss (\S+)", p.stdout, re.M)],
                                  [e["val_loss"] for e in self.events("epoch", f"run-{nproc}")], 1e-6, "those of evaluations")
                self.assertTrue(os.path.exists(self.path("wine.pt")))

    def assert_evaluations_agree(self):
        """Those of train.py and of the run of wine.yaml."""
        self.run_program("wine.yaml", "--fresh", "--quiet")
        p = subprocess.run([sys.executable, "train.py"], cwd=self.folder, env=self.environment({"OMP_NUM_THREADS": "1"}), capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(p.returncode, 0, p.stderr)
        epochs = self.events("epoch", "runs/wine")
        self.assertEqual(re.findall(r"accuracy (\S+)%", p.stdout), [f"{100 * e['val_accuracy']:.2f}" for e in epochs])
        self.assert_close([float(x) for x in re.findall(r"validation loss (\S+)", p.stdout)], [e["val_loss"] for e in epochs], 1e-5, "the losses of evaluations")

    def test_accuracy(self):
        """Of all positions that are not ignored, also where the loss has weights of classes."""
        for loss in ("{type: cross_entropy, weight: [1, 5, 20]}", "{type: cross_entropy, weight: [1, 5, 20], ignore_index: 1}", "{type: cross_entropy, ignore_index: 1}"):
            with self.subTest(loss):
                self.write("wine.yaml", WINE.replace("loss: cross_entropy", f"loss: {loss}") + "sampler: {batch_size: 5}\n")
                self.run_program("export", "wine.yaml", "--out", "train.py")
                self.assert_evaluations_agree()

    def test_ignored_targets(self):
        """Those of the default ignore_index, -100, are not counted either."""
        import h5py
        with h5py.File(os.path.join(program.SOURCE, "datasets", "wine.h5")) as wine, h5py.File(self.path("wine.h5"), "w") as some:
            some["x"], some["y"] = wine["x"][()], wine["y"][()].astype("i8")
            some["y"][::3] = -100
        self.write("wine.yaml", WINE.replace(os.path.join(program.SOURCE, "datasets", "wine.h5"), self.path("wine.h5")) + "sampler: {batch_size: 12}\n")
        self.run_program("export", "wine.yaml", "--out", "train.py")
        self.assertIn("(t != -100).sum().item()", self.read("train.py"))
        self.assert_evaluations_agree()

    def test_missing_values_between_blanks(self):
        """Their marks are missing values in a script, too, in texts and in numbers, also behind a tab; a category and a name do not begin with it."""
        prepared = "columns: {kind: {type: category, missing: most_frequent}, a: {missing: mean}}, targets: [y]"
        for keys, mark in ((prepared, "NA"), (prepared + ", missing: ['-']", "-"), (prepared + ", missing: ['999']", "999"),
                           ("inputs: [b], targets: [y], filter: a > 2, drop_missing_targets: true", "null"),
                           ("inputs: [b], targets: [y], filter: a > 2, drop_missing_targets: true, missing: ['999']", "999")):
            with self.subTest(keys=keys):
                rows = []
                for before, blanks in ("", ""), ("", "  "), ("", "\t"), ("\t", ""), (" \t ", "\t"):
                    cell = before + mark + blanks
                    self.write("rows.csv", f"kind,{before}a,b,y\n" + f"{before}p,{cell},1.5,1\n{cell},3,2.5,2\np,4,3.5,{cell}\nq,5,4.5,4\n".replace(f",{cell}\n", f",{5 if 'drop' not in keys else cell}\n"))
                    self.write("rows.yaml", f"dataset: {{path: {self.path('rows.csv')}, {keys}}}\nmodel: {{layers: [{{linear: 1}}]}}\nloss: mse\ntrain: {{epochs: 1}}\n")
                    self.run_program("export", "rows.yaml", "--out", "rows.py", "--quiet")
                    space = {"__name__": "rows"}
                    exec(compile(self.read("rows.py").partition("# ---- model ----")[0], "data", "exec"), space)
                    rows.append((space["x"].tolist(), space["y"].tolist()))
                self.assertEqual(rows, [rows[0]] * 5)
                self.assertEqual(len(rows[0][0]), 2 if "drop" in keys else 4)

    def test_on_another_device(self):
        """The model and the loss keep all tensors on the script's device: here one without data, on which an operation with a tensor of the CPU fails."""
        import torch
        for loss, layers in (("soft_cross_entropy, weight: [1, 2, 3]", "{linear: 3}"), ("expression: 'mean((y - t) ^ 2) * mean(2) + sum(where(index > 1, y, 3))'", "{linear: 3}"),
                             ("mse", "{linear: {out: 3, name: a}}, {linear: {from: input, out: 3, name: b}}, {sample_normal: {from: [a, b]}}, {dropout: 0.5}"),
                             ("bce_with_logits, pos_weight: [1, 2, 3]", "{linear: 3}, rms_norm")):
            with self.subTest(loss):
                kind = f"{{{loss}}}" if loss.startswith("expression") else f"{{type: {loss}}}"
                self.write("device.yaml", "dataset: {format: synthetic, synthetic: {kind: uniform, rows: 32, inputs: 5, targets: 3}}\n"
                           f"model: {{layers: [{layers}]}}\nloss: {kind}\ntrain: {{epochs: 1}}\n")
                self.run_program("export", "device.yaml", "--out", "device.py", "--quiet")
                head, _, rest = self.read("device.py").partition("# ---- model ----")
                space = {"__name__": "device"}
                exec(compile(head, "head", "exec"), space)
                space["device"] = torch.device("meta")
                exec(compile(rest.partition("\noptimizer = ")[0], "model", "exec"), space)
                if "draws" in space:
                    space["draws"].rows = space["np"].arange(4, dtype="u8")
                with torch.no_grad():
                    self.assertEqual(space["loss_of"](space["model"](torch.empty(4, 5, device="meta")), torch.empty(4, 3, device="meta")).device.type, "meta")

    def test_the_table(self):
        """Each layer, loss, optimizer and schedule, and small versions of shipped configs."""
        out = self.compare("--table")
        self.assertRegex(out, r"\n[1-9]\d\d rows: all are good\n$")
        for name in ("layers_attention", "loss_dice", "optimizer_lion", "schedule_cyclic", "train_bfloat16", "augment_color_jitter", "titanic.yaml", "image_folder.yaml"):
            self.assertRegex(out, rf"(?m)^{name} ")

    def test_a_difference_is_found(self):
        """A run that began with other weights."""
        self.write("wine.yaml", WINE)
        self.write("other.sh", '#!/bin/sh\n[ "$1" = export ] && exec "$REAL" "$@" seed=7\nexec "$REAL" "$@"\n')
        os.chmod(self.path("other.sh"), 0o755)
        self.assertIn("DIFFERENT", self.compare("wine.yaml", code=1, binary=self.path("other.sh"), REAL=program.BINARY))
        self.assertIn("FAILED", self.compare("--table", "split_test", code=1, binary=self.path("other.sh"), REAL=program.BINARY))
