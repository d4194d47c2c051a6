"""Extensions: C files of the user's with a layer, a loss, an optimizer or a dataset format. ctest-labels: dist"""
import glob, json, os, re, shutil, unittest

import h5py
import numpy as np

import program
from program import DATA, DIVERGED, OK, PEER, USAGE

EXAMPLES = os.path.join(program.SOURCE, "examples/extensions")
ROWS = "dataset: {format: synthetic, synthetic: {kind: linear, rows: 96, inputs: 4, targets: 1}, split: 0.25}\nsampler: {batch_size: 16}\n"
CONFIG = "extensions: [%s]\n" + ROWS + "model: {layers: [{linear: 8}, %s, {linear: 1}]}\nloss: %s\noptimizer: %s\ntrain: {epochs: 3}\n"
PAIRS = "model: {layers: [{linear: 8}, tanh, {linear: 2}]}\nloss: pairs\ntrain: {epochs: 1}\n"


class Extension(program.Case):
    def setUp(self):
        super().setUp()
        self.env = {"XDG_CACHE_HOME": self.path("cache")}

    def run_own(self, *arguments, code=OK, env=None, **options):
        return self.run_program(*arguments, code=code, env={**self.env, **(env or {})}, **options)

    def example(self, name):
        shutil.copy(os.path.join(EXAMPLES, name), self.path(name))
        return name

    def train(self, config="c.yaml", *arguments, code=OK, **options):
        out, err = self.run_own(config, "--fresh", *arguments, code=code, **options)
        found = re.findall(r"state sha256 (\w+)", out + err)
        return found[-1] if code == OK else err

    def losses(self, run):
        return [l["train_loss"] for l in map(json.loads, self.read(f"runs/{run}/metrics.jsonl").splitlines()) if l["event"] == "epoch"]

    # ---- new, test, build ----

    def test_new_kinds_train_at_once(self):
        for kind in "loss", "layer", "optimizer", "sampler":
            out, _ = self.run_own("extension", "new", kind, f"own_{kind}", code=OK)
            self.assertIn(f"own_{kind}.c, own_{kind}.yaml", out)
            self.run_own("extension", "test", f"own_{kind}.c")
            self.run_own("extension", "test", f"own_{kind}.c", f"own_{kind}.yaml")
            alone = self.train(f"own_{kind}.yaml", "sampler.global_batch_size=32")
            losses = self.losses(f"own_{kind}")
            self.assertLess(losses[-1], 0.8 * losses[0])
            self.assertEqual(self.train(f"own_{kind}.yaml", "sampler.global_batch_size=32", env={"OMP_NUM_THREADS": "2"}), alone)
            self.train(f"own_{kind}.yaml", "sampler.global_batch_size=32", "--nproc", "2")
            np.testing.assert_allclose(self.losses(f"own_{kind}"), losses, rtol=1e-3)
            self.run_own("extension", "new", kind, f"own_{kind}", code=USAGE)  # nothing is replaced

    def test_examples(self):
        """Gradients against differences, or an optimizer whose loss falls; each example is in the list of the docs."""
        configs = {"cox.c": ROWS.replace("targets: 1", "targets: 2") + "model: {layers: [{linear: 8}, tanh, {linear: 1}]}\nloss: cox\ntrain: {epochs: 1}\n",
                   "pairs.c": ROWS.replace("kind: linear", "kind: classes").replace("targets: 1", "classes: 3") + PAIRS,
                   "fourier.c": ROWS + "model: {layers: [{linear: 4}, {fourier: 16}, {linear: 1}]}\nloss: mse\ntrain: {epochs: 1}\n"}
        page = self.read(os.path.join(program.SOURCE, "docs/extensions.md"))
        for path in sorted(glob.glob(os.path.join(EXAMPLES, "*.c"))):
            name = os.path.basename(path)
            self.example(name)
            self.write("c.yaml", f"extensions: [{name}]\n" + configs.get(name, ""))
            out, _ = self.run_own("extension", "test", name, *(["c.yaml"] if name in configs else []))
            self.assertNotIn("wrong", out)
            self.assertIn(f"/{name})", page)
        self.assertIn("dataset format svmlight", self.run_own("extension", "test", "svmlight.c")[0])

    def test_wrong_gradients_are_found(self):
        source = self.read(os.path.join(EXAMPLES, "rational.c"))
        for right, wrong, where in [("db[1] += (double)(to_inner * v * v)", "db[1] += (double)(to_inner * v)", "1.b"),
                                    ("2 * a[2] + v * 3 * a[3]", "2 * a[2] + v * 2 * a[3]", "0.weight")]:
            self.assertIn(right, source)
            self.write("wrong.c", source.replace(right, wrong))
            out, err = self.run_own("extension", "test", "wrong.c", code=DIVERGED)
            self.assertRegex(out, rf"(?m)^{re.escape(where)} .* wrong: ")
            self.assertRegex(err, r"wrong.c: \d+ of \d+ gradients differ")
        self.write("rising.c", self.read(os.path.join(EXAMPLES, "kalman.c")).replace("decay - rate *", "decay + rate *"))
        self.assertIn("has not fallen", self.run_own("extension", "test", "rising.c", code=DIVERGED)[1])

    def test_shared_object(self):
        self.example("rational.c")
        self.write("c.yaml", CONFIG % ("rational.c", "rational", "mse", "adam"))
        state = self.train()
        self.run_own("extension", "build", "rational.c", "--out", "r.so")
        self.write("c.yaml", CONFIG % ("r.so", "rational", "mse", "adam"))
        self.assertEqual(self.train(env={"CC": "/nonexistent"}), state)
        with open(self.path("r.so"), "r+b") as f:  # of another version of the program
            data = f.read().replace(b"0.1.0\0", b"0.0.9\0")
            f.seek(0)
            f.write(data)
        self.assertIn("compiled for version 0.0.9", self.train(code=USAGE))

    def test_headers_of_another_program(self):
        """Not even a struct that no row of a table has may be different: the extension would crash."""
        self.example("rational.c")
        self.write("c.yaml", CONFIG % ("rational.c", "rational", "mse", "adam"))
        shutil.copytree(os.path.join(program.SOURCE, "src"), self.path("headers"), ignore=lambda folder, names: [n for n in names if os.path.isfile(os.path.join(folder, n)) and not n.endswith(".h")])
        same = {"DDPTRAIN_INCLUDE_DIR": self.path("headers")}
        self.run_own("extension", "build", "rational.c", "--out", "same.so", env=same)
        own = self.train(env=same)
        header = self.read("headers/device/tensor.h")
        self.write("headers/device/tensor.h", header.replace("struct tensor {\n", "struct tensor {\n    int more;\n", 1))
        self.assertNotEqual(self.read("headers/device/tensor.h"), header)
        message = f"the headers in '{self.path('headers')}' are of another version or build of ddptrain than this program"
        self.run_own("extension", "build", "rational.c", "--out", "other.so", env=same, code=USAGE, err=message)
        self.assertEqual(self.train(), own)
        with open(self.path("same.so"), "r+b") as f:
            code = f.read()
            [known] = re.findall(rb"\0([0-9a-f]{64})\0", code)
            f.seek(0)
            f.write(code.replace(known, known[::-1]))
        self.write("c.yaml", CONFIG % ("same.so", "rational", "mse", "adam"))
        self.assertIn("or for another build of it", self.train(code=USAGE))

    # ---- numbers ----

    def test_tweedie(self):
        self.example("tweedie.c")
        rng = np.random.default_rng(1)
        x, y = rng.normal(size=(64, 2)), rng.gamma(2, size=64) * (rng.random(64) < 0.6)
        np.savez(self.path("d.npz"), x=x.astype(np.float32), y=y.astype(np.float32))
        self.write("c.yaml", "extensions: [tweedie.c]\ndataset: {path: d.npz}\nsampler: {batch_size: 64, shuffle: false}\n"
                   "model: {layers: [{linear: 1}]}\nloss: {type: tweedie, power: 1.3}\noptimizer: {type: sgd, lr: 0.1}\ntrain: {steps: 1}\n"
                   "checkpoint: {save_every: {steps: 1}}\n")
        self.train()
        self.run_own("check", "c.yaml")
        w, b = self.weights("c", "0.weight"), self.weights("c", "0.bias")
        self.train("c.yaml", "optimizer.lr=0")
        w0, b0 = self.weights("c", "0.weight"), self.weights("c", "0.bias")
        z = x.astype(np.float32) @ w0[0] + b0[0]
        slope = -y * np.exp(-0.3 * z) + np.exp(0.7 * z)
        np.testing.assert_allclose(w0[0] - w[0], 0.1 * (slope[:, None] * x).mean(0), rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(b0[0] - b[0], 0.1 * slope.mean(), rtol=1e-3, atol=1e-6)
        loss = (y * np.exp(-0.3 * z) / 0.3 + np.exp(0.7 * z) / 0.7).mean()
        np.testing.assert_allclose(self.losses("c")[0], loss, rtol=1e-5)

    def weights(self, run, name):
        with h5py.File(sorted(glob.glob(self.path(f"runs/{run}/checkpoints/*.h5")))[-1]) as f:
            return f[f"model/{name}"][:]

    def test_cox_compares_the_rows_of_all_ranks(self):
        self.example("cox.c")
        rng = np.random.default_rng(2)
        y = np.stack([np.round(rng.exponential(size=64), 1), rng.random(64) < 0.7], 1)
        np.savez(self.path("d.npz"), x=rng.normal(size=(64, 3)).astype(np.float32), y=y.astype(np.float32))
        self.write("c.yaml", "extensions: [cox.c]\ndataset: {path: d.npz}\nsampler: {global_batch_size: 32, shuffle: false}\n"
                   "model: {layers: [{linear: 4}, tanh, {linear: 1}]}\nloss: cox\noptimizer: {type: sgd, lr: 0.05}\ntrain: {epochs: 3}\n")
        self.train()
        alone = self.losses("c"), self.weights("c", "0.weight")
        self.train("c.yaml", "--nproc", "2")
        np.testing.assert_allclose(self.losses("c"), alone[0], rtol=1e-5)
        np.testing.assert_allclose(self.weights("c", "0.weight"), alone[1], rtol=1e-4, atol=1e-6)

    def test_pairs_of_all_ranks(self):
        """The loss as computed from its formula; the same on any number of processes, which see the pairs of all rows of a batch."""
        self.example("pairs.c")
        rng = np.random.default_rng(6)
        y = np.arange(64) % 3
        x = (rng.normal(size=(64, 5)) + y[:, None]).astype(np.float32)
        np.savez(self.path("d.npz"), x=x, y=y.astype(np.float32))
        self.write("c.yaml", "extensions: [pairs.c]\ndataset: {path: d.npz}\nsampler: {global_batch_size: 64, shuffle: false}\nmodel: {layers: [{linear: 2}]}\n"
                   "loss: {type: pairs, margin: 1.5}\noptimizer: {type: sgd, lr: 0}\ntrain: {epochs: 1}\n")
        self.train()
        z = x @ self.weights("c", "0.weight").T + self.weights("c", "0.bias")
        d, same = np.sqrt(((z[:, None] - z[None]) ** 2).sum(-1)), y[:, None] == y[None]
        upper = np.triu(np.ones((64, 64), bool), 1)
        expected = (d[upper & same] ** 2).mean() / 2 + (np.maximum(0, 1.5 - d[upper & ~same]) ** 2).mean() / 2
        np.testing.assert_allclose(self.losses("c")[0], expected, rtol=1e-5)
        rate = ("optimizer.lr=0.1", "sampler={global_batch_size: 24, uneven: true}", "train.epochs=5")
        self.train("c.yaml", *rate)
        alone = self.losses("c"), self.weights("c", "0.weight")
        self.assertLess(alone[0][-1], 0.8 * expected)
        for nproc in "2", "3":
            self.train("c.yaml", "--nproc", nproc, *rate)
            np.testing.assert_allclose(self.losses("c"), alone[0], rtol=1e-5)
            np.testing.assert_allclose(self.weights("c", "0.weight"), alone[1], rtol=1e-4, atol=1e-6)
        self.assertIn("pairs needs an embedding for each row", self.train("c.yaml", "model.layers=[{reshape: [5, 1]}, {linear: 2}]", code=USAGE))

    def test_bisect_of_two_versions(self):
        """The types of both cannot be loaded by one process, which is said."""
        self.example("adabelief.c")
        np.savez(self.path("d.npz"), x=np.ones((8, 2), "f4"), y=np.ones((8, 1), "f4"))
        self.write("c.yaml", "extensions: [adabelief.c]\ndataset: {path: d.npz}\nmodel: {layers: [{linear: 1}]}\nloss: mse\noptimizer: {type: adabelief, lr: 0.05}\ntrain: {steps: 3}\n")
        self.run_program("c.yaml", "--run-dir", "a", "--quiet")
        self.run_program("c.yaml", "--run-dir", "b", "--quiet")
        self.assertIn("no difference up to step 3", self.run_program("bisect", "a", "b")[0])
        self.write("other.c", self.read("adabelief.c").replace('"1e-16"', '"1e-3"'))
        self.run_program("c.yaml", "--run-dir", "c", "--quiet", "extensions=[other.c]")
        _, err = self.run_program("bisect", "a", "c", code=64)
        self.assertRegex(err, "c beside a, whose extensions are loaded, too: types of both must have different names: .*there is a type 'adabelief' already")

    def test_adabelief(self):
        self.example("adabelief.c")
        x = np.array([[1.0], [2.0], [-1.0], [0.5]], np.float32)
        np.savez(self.path("d.npz"), x=x, y=3 * x[:, 0] + 1)
        self.write("c.yaml", "extensions: [adabelief.c]\ndataset: {path: d.npz}\nsampler: {batch_size: 4, shuffle: false}\nmodel: {layers: [{linear: 1}]}\n"
                   "loss: mse\noptimizer: {type: adabelief, lr: 0.05, eps: 1e-8}\ntrain: {steps: 5}\n")
        self.train("c.yaml", "optimizer.lr=0")
        p = np.array([self.weights("c", "0.weight")[0, 0], self.weights("c", "0.bias")[0]], np.float64)
        self.train()
        m, s = np.zeros(2), np.zeros(2)
        for t in range(1, 6):
            error = 2 * (x[:, 0] * p[0] + p[1] - 3 * x[:, 0] - 1)
            g = np.array([(error * x[:, 0]).mean(), error.mean()])
            m = 0.9 * m + 0.1 * g
            s = 0.999 * s + 0.001 * (g - m)**2 + 1e-8
            p -= 0.05 / (1 - 0.9**t) * m / (np.sqrt(s) / np.sqrt(1 - 0.999**t) + 1e-8)
        np.testing.assert_allclose([self.weights("c", "0.weight")[0, 0], self.weights("c", "0.bias")[0]], p, rtol=2e-4)

    def test_svmlight(self):
        self.example("svmlight.c")
        rng = np.random.default_rng(3)
        x = np.round(rng.normal(size=(80, 5)), 3) * (rng.random((80, 5)) < 0.5)
        x[0, 4] = 1.5
        y = rng.integers(0, 3, 80)
        with open(self.path("d.svm"), "w") as f:
            f.write("# a comment\n\n")
            for row, target in zip(x, y):
                f.write(f"{target} qid:7 " + " ".join(f"{i + 1}:{v}" for i, v in enumerate(row) if v) + " # end\n")
        np.savez(self.path("d.npz"), x=x, y=y)
        self.write("c.yaml", "extensions: [svmlight.c]\ndataset: {path: d.svm, split: 0.25, scale: standard}\nsampler: {batch_size: 8}\n"
                   "model: {layers: [{linear: 8}, relu, {linear: 3}]}\nloss: cross_entropy\ntrain: {epochs: 3}\n")
        self.train()
        expected = self.losses("c")
        self.train("c.yaml", "dataset.path=d.npz")
        self.assertEqual(self.losses("c"), expected)
        for line, message in [("1 0:3", "d.svm:1: expected INDEX:VALUE"), ("x 1:3", "d.svm:1: expected a number, the target, got 'x'"),
                              ("1 2:x", "d.svm:1: expected a number, got 'x'"), ("", "d.svm has no rows")]:
            self.write("d.svm", line + "\n")
            self.assertIn(message, self.train(code=DATA))

    # ---- runs ----

    def test_run_resumes_and_predicts(self):
        self.example("rational.c")
        self.write("c.yaml", CONFIG % ("rational.c", "rational", "mse", "adam"))
        whole = self.train()
        self.run_own("c.yaml", "--fresh", "--stop-after", "7", code=program.STOPPED)
        out, err = self.run_own("c.yaml")
        self.assertIn(whole, out + err)
        resolved = self.read("runs/c/config.yaml")
        self.assertRegex(resolved, r'extensions:\n  - \{path: rational.c, sha256: "?[0-9a-f]{64}"?\}')
        evaluated, _ = self.run_own("eval", "runs/c")
        os.rename(self.path("rational.c"), self.path("moved.c"))  # the run goes on with what its user has run before
        self.assertEqual(self.run_own("eval", "runs/c")[0], evaluated)
        self.run_own("runs/c/config.yaml", "train.epochs=4", "--run-dir", "runs/c")
        other = {"XDG_CACHE_HOME": self.path("other")}
        self.assertIn("is code that you have not run before", self.run_own("eval", "runs/c", code=USAGE, env=other)[1])
        os.rename(self.path("moved.c"), self.path("runs/c/rational.c"))  # the config of a run folder without the SHA-256
        resolved = self.read("runs/c/config.yaml")
        self.write("runs/c/config.yaml", re.sub(r', sha256: "?\w+"?', "", resolved))
        self.write("based.yaml", "base: runs/c/config.yaml\n")
        for words in ["eval", "runs/c"], ["runs/c/config.yaml"], ["check", "runs/c/config.yaml"], ["check", "based.yaml"]:
            self.assertIn("is code that you have not run before", self.run_own(*words, code=USAGE, env=other)[1])
        self.write("runs/c/config.yaml", resolved)
        self.run_own("audit", "runs/c", "--all")

    def test_changed_file_is_another_config(self):
        self.example("rational.c")
        self.write("c.yaml", CONFIG % ("rational.c", "rational", "mse", "adam"))
        self.train()
        with open(self.path("rational.c"), "a") as f:
            f.write("/* changed */\n")
        _, err = self.run_own("c.yaml", "train.epochs=5", code=USAGE)
        self.assertRegex(err, "the extension rational.c has changed since this run began .*--fresh")
        os.remove(self.path("runs/c/config.yaml"))
        self.assertRegex(self.run_own("c.yaml", "train.epochs=5", code=USAGE)[1], "the extension rational.c has changed since this run began")
        self.train()

    def test_checkpoint_runs_no_code(self):
        """A checkpoint or a run folder of another cannot make this program run its code."""
        self.example("rational.c")
        self.write("c.yaml", CONFIG % ("rational.c", "rational", "mse", "adam"))
        self.train()
        marker = self.path("marker")
        self.write("evil.c", '#include <stdio.h>\n__attribute__((constructor)) static void f(void) { fclose(fopen("%s", "w")); }\n' % marker)
        text = self.read("runs/c/config.yaml")
        for entry in "{path: evil.c}", "evil.c", '{path: evil.c, sha256: "%s"}' % ("0" * 64):
            changed = re.sub(r"- \{path: rational.c.*", "- " + entry, text)
            for path in glob.glob(self.path("runs/c/checkpoints/*.h5")):
                program.change_checkpoint(path, lambda f: f.__setitem__("config", changed) if f.__delitem__("config") is None else None)
            os.rename(self.path("runs/c/config.yaml"), self.path("kept"))
            for path in glob.glob(self.path("runs/c/checkpoints/*.h5")):
                self.run_own("inspect", path)
                self.run_own("export", "c.yaml", "--checkpoint", path, "--out", "x.safetensors", code=None)
            self.assertFalse(os.path.exists(marker))
            os.rename(self.path("kept"), self.path("runs/c/config.yaml"))

    def test_the_doctor_says_that_it_compiles(self):
        self.example("rational.c")
        self.write("c.yaml", CONFIG % ("rational.c", "rational", "mse", "adam"))
        self.assertIn("1 extension: compiled for this check unless the cache has it", self.run_own("doctor", "c.yaml", code=None)[0])

    # ---- failures ----

    def test_failures(self):
        self.example("rational.c")
        source = self.read("rational.c")
        for name, text, message in [
                ("syntax.c", source.replace("return OK;", "return OK", 1), r"c.yaml:1:14: extensions: the extension syntax.c does not compile: syntax.c:\d+:\d+: error: "),
                ("none.c", "int x;\n", "none.c: is not an extension of ddptrain"),
                ("empty.c", '#include "extension.h"\nDDPTRAIN_EXTENSION();\n', "names no layer, loss, optimizer, format, sampler or metric"),
                ("part.c", source.replace("    .backward = backward,\n", ""), "a function is missing: a layer has plan, forward and backward"),
                ("twice.c", source.replace('{"rational"', '{"relu"'), "there is a type 'relu' already"),
                ("symbol.c", source.replace("static status plan(struct layer *layer, struct planning *planning) {",
                                            "void missing(void);\nstatic status plan(struct layer *layer, struct planning *planning) {\nmissing();"), "cannot be loaded: .*missing"),
                ("text.txt", "", "'text.txt' is neither a C file"), ("missing.c", None, "there is no file 'missing.c'")]:
            if text is not None:
                self.write(name, text)
            self.write("c.yaml", CONFIG % (name, "rational", "mse", "adam"))
            self.assertRegex(self.train(code=USAGE), message)
        self.write("c.yaml", CONFIG % ("rational.c", "rational", "mse", "adam"))
        self.assertIn("'nocc' cannot be started", self.train(code=USAGE, env={"CC": "nocc"}))
        self.write("cc", "#!/bin/sh\necho '/usr/include/ddptrain/base/files/digest.h:5:10: fatal error: nettle/sha2.h: No such file or directory' >&2\nexit 1\n")
        os.chmod(self.path("cc"), 0o755)
        self.assertIn("does not compile: /usr/include/ddptrain/base/files/digest.h:5:10: fatal error: nettle/sha2.h: No such file or directory; install the headers of the C "
                      "library and of nettle (Debian: libc6-dev nettle-dev", self.train(code=USAGE, env={"CC": self.path("cc")}))
        self.assertIn("neither HOME nor", self.train(code=USAGE, env={"HOME": "", "XDG_CACHE_HOME": ""}))
        os.makedirs(self.path("cache2/ddptrain/extensions"))
        os.chmod(self.path("cache2/ddptrain/extensions"), 0o777)
        self.assertIn("can be written by others", self.train(code=USAGE, env={"XDG_CACHE_HOME": self.path("cache2")}))
        self.assertIn("the types of the extensions are for the CPU", self.train("c.yaml", "train.device=cuda", code=USAGE))
        for words in ["new"], ["new", "loss"], ["new", "thing", "x"], ["new", "loss", "a-b"], ["test"], ["build", "x.txt"], ["build", "rational.c", "--out", "text.txt"], ["other", "x"], []:
            self.run_own("extension", *words, code=USAGE)

    @unittest.skipIf(program.SANITIZER, "the sanitizer reports crashes itself")
    def test_crash_names_the_file(self):
        self.write("bad.c", self.read(os.path.join(EXAMPLES, "tweedie.c")).replace("    (void)targets;", "    (void)targets;\n    *(volatile int *)8 = 1;"))
        self.write("c.yaml", CONFIG % ("bad.c", "tanh", "tweedie", "adam"))
        err = self.train("c.yaml", "--nproc", "2", code=PEER)
        self.assertIn("the extension bad.c crashed", err)
        self.assertIn("was killed by SIGSEGV", err)

    def test_exit_names_the_file(self):
        """Where it is called: in a pass, on a rank, when the file is loaded."""
        source = self.read(os.path.join(EXAMPLES, "tweedie.c"))
        self.write("bad.c", source.replace("    (void)targets;", "    (void)targets;\n    exit(0);").replace('#include "extension.h"', '#include "extension.h"\n#include <stdlib.h>'))
        self.write("c.yaml", CONFIG % ("bad.c", "tanh", "tweedie", "adam"))
        message = "ddptrain: the extension bad.c has ended the process by exit(0); it must return a status\n"
        self.assertTrue(self.train(code=USAGE).endswith(message))
        self.assertIn(message, self.train("c.yaml", "--nproc", "2", code=None))
        self.assertNotEqual(self.code, OK)
        self.write("bad.c", source + "#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { exit(0); }\n")
        self.assertTrue(self.train(code=USAGE).endswith(message))

    def test_exports(self):
        self.example("rational.c")
        self.write("c.yaml", CONFIG % ("rational.c", "rational", "mse", "adam"))
        self.train()
        self.run_own("export", "c.yaml", "--out", "x.safetensors")
        for name in "x.c", "x.onnx":
            self.assertIn("a type that an exported model cannot have", self.run_own("export", "c.yaml", "--out", name, code=USAGE)[1])
        for key in "layers", "loss", "optimizer":
            example = {"layers": "rational", "loss": "tweedie", "optimizer": "kalman"}[key]
            self.example(example + ".c")
            self.write("c.yaml", CONFIG % (example + ".c", example if key == "layers" else "tanh", example if key == "loss" else "mse", example if key == "optimizer" else "adam"))
            self.assertIn("cannot be expressed in a PyTorch script", self.run_own("export", "c.yaml", "--format", "pytorch", "--out", "x.py", code=USAGE)[1])
