"""eval, predict, generate, export and the library prepare rows as the training did, whatever names the model: another
value of a key that predictions depend on is an error."""
import json, os, re

import numpy as np

import program
from program import OK, USAGE

CONFIG = """
name: test
dataset:
  path: rows.csv
  targets: y
  missing: ['', '?']
  scale: standard
  columns: {NAME: {missing: mean}, kind: {missing: most_frequent}, day: {type: date, parts: [month, day]}}
  split: {test: 0.25, seed: 1}
sampler: {batch_size: 8}
model: {layers: [{linear: {out: 8, name: first}}, relu, {dropout: 0.1}, {linear: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.05}
train: {epochs: 3}
"""
NOTE = "(training -> now):\n"

# Where rows are, how their file is written, which of them are used, and what only training uses.
ACCEPTED = re.compile(r"dataset\.(path|format|inputs|targets|filter|weights|query|table|csv|layout|augment|split|validation|synthetic|prefetch|cache_mb)\b"
                      r"|dataset\.columns\.NAME\.tokenizer|dataset\.window\.(stride|history)|dataset\.draw\.seed|dataset\.image\.(threads|labels|column|masks)"
                      r"|dataset\.text\.(stride|truncate)|dataset\.tokens\.(dtype|stride|tokenizer)|model\.(freeze|init|init_from)\b")

# Keys that need others; the value of any other key is made from the schema.
WORDS = {
    "dataset.columns.NAME.fill": ["dataset.columns.NAME={missing: constant, fill: 3}"],
    "dataset.columns.NAME.parts": ["dataset.columns.NAME={type: date, parts: [year]}"],
    "dataset.columns.NAME.format": ["dataset.columns.NAME={type: date, format: '%d.%m.%Y'}"],
    "dataset.columns.NAME.length": ["dataset.columns.NAME={type: text, tokenizer: t.json, length: 4}"],
    "dataset.columns.NAME.padding": ["dataset.columns.NAME={type: text, tokenizer: t.json, padding: 2}"],
    "dataset.scale.mean": ["dataset.scale={mean: 1, std: 2}"],
    "dataset.scale.std": ["dataset.scale={mean: 1, std: 2}"],
    "dataset.filter": ["dataset.filter=u > 0"],
    "dataset.target_scale": ["dataset.target_scale=minmax", "loss=mse"],
    **{f"dataset.window.{key}": ["dataset.window={steps: 3, horizon: 2, predict_steps: 2, group: u}", "dataset.split={test: 0.25, shuffle: false}"]
       for key in ("steps", "horizon", "predict_steps", "group")},
    "model.layers": ["model.layers=[{linear: {out: 8, name: first}}, tanh, {dropout: 0.1}, {linear: 3}]"],
}
SAME = [("dataset.columns.NAME.missing", "mean"), ("dataset.scale.type", "standard")]


def keys(schema, path, node):
    """(path, node) of each key."""
    if "properties" in node:
        for name, inner in node["properties"].items():
            yield from keys(schema, f"{path}.{name}", inner)
    elif isinstance(node.get("additionalProperties"), dict) and "default" not in node:
        yield from keys(schema, f"{path}.NAME", node["additionalProperties"])
    elif "default" not in node and any("properties" in inner or "anyOf" in inner for inner in node.get("anyOf", [])):
        for inner in node["anyOf"]:
            yield from keys(schema, path, inner)
    elif len(node) > 1:
        yield path, node


def kinds(node):
    return [kind for inner in node["anyOf"] for kind in kinds(inner)] if "anyOf" in node else [node]


def values(node):
    """Values of the key that are not its default, as YAML."""
    for kind in kinds(node):
        types = kind.get("type", [])
        if "enum" in kind:
            yield from (v for v in kind["enum"] if v != node.get("default"))
        elif types == "boolean":
            yield str(not node.get("default")).lower()
        elif types == "integer":
            yield from (v for v in (1, 2, 7) if v != node.get("default") and v >= kind.get("minimum", 0))
        elif types == "number":
            yield from (0.25, 0.5)
        elif "string" in types:
            yield from ("kind", "u", "';'")


class TrainedConfig(program.Case):
    def setUp(self):
        super().setUp()
        r = np.random.default_rng(0)
        lines = [f"{r.normal() * 9:.3f},{r.normal():.3f},{'abc'[i % 3]},2024-0{1 + i % 9}-1{i % 7},{i % 3}" for i in range(40)]
        lines[4] = "?" + lines[4][lines[4].index(","):]
        self.write("rows.csv", "NAME,u,kind,day,y\n" + "\n".join(lines) + "\n")
        self.write("test.yaml", CONFIG)
        self.run_program("test.yaml")

    def predict(self, *arguments, code=OK):
        return self.run_program("predict", *arguments, "--outputs", code=code)

    def test_every_key_of_dataset_and_model(self):
        """Another value of it changes no prediction, or is refused."""
        expected = self.predict("runs/test", "rows.csv")[0]
        schema = json.loads(self.run_program("--schema")[0])
        found = [pair for part in ("dataset", "model") for pair in keys(schema, part, schema["properties"][part])]
        self.assertGreater(len(found), 95)
        proven = set()
        for path, node in found:
            if path == "dataset.path":
                continue
            tried = WORDS.get(path) and [WORDS[path]] or [[f"{path}={v}"] for v in values(node) if (path, v) not in SAME]
            for words in tried:
                with self.subTest(words=words):
                    out, err = self.predict("runs/test", "rows.csv", *words, code=None)
                    compared = NOTE in err
                    self.assertFalse(compared and ACCEPTED.match(path), err)
                    if self.code == OK:
                        self.assertEqual(out, expected)
                        self.assertRegex(path, ACCEPTED)
                    elif compared:
                        self.assertEqual(self.code, USAGE)
                        self.assertRegex(err, rf"(?m)^  {path}[.0-9a-z]*: .* -> .*$")
                        proven.add(path)
        unproven = {path for path, _ in found if not ACCEPTED.match(path)} - proven - {"dataset.window"}  # null
        self.assertEqual(unproven, set())

    def refused(self, *words, **differences):
        """The keys that the error lists, and both values of each."""
        _, err = self.run_program(*words, code=USAGE)
        lines = re.findall(r"(?m)^  (\S+): (.*)$", err[err.index(NOTE):])
        self.assertEqual(lines, [(key.replace("__", "."), value) for key, value in differences.items()], err)

    def test_config_that_was_trained_otherwise(self):
        """The run has keys of its own command line; its folder gives them, its config does not."""
        self.run_program("test.yaml", "dataset.scale=minmax", "--run-dir", "runs/other")
        named = ["--run-dir", "runs/other"]
        scale = {"dataset__scale__type": "minmax -> standard"}
        for verb in ("eval", "predict"):
            self.refused(verb, "test.yaml", *named, **scale)
            self.refused(verb, "test.yaml", "--checkpoint", "runs/other", **scale)
            self.refused(verb, "test.yaml", "--checkpoint", self.checkpoints("runs/other")[-1], "--nproc", 2, **scale)
            self.refused(verb, "runs/test", "rows.csv", "--checkpoint", "runs/other", **scale)
            self.refused(verb, "runs/other", "rows.csv", "dataset.missing=['-']", dataset__missing='["", "?"] -> ["-"]')
            whole = self.run_program(verb, "runs/other")[0]
            self.assertEqual(self.run_program(verb, "test.yaml", "dataset.scale=minmax", *named)[0], whole)
            self.assertEqual(self.run_program(verb, "runs/other", "dataset.cache_mb=0", "sampler.batch_size=3", "train.device=cpu", "optimizer.lr=1",
                                              "dataset.split={test: 0.25, seed: 1}")[0][:40], whole[:40])
        self.refused("predict", "runs/other", "loss=mse", loss="cross_entropy -> mse")
        self.run_program("eval", "runs/other", "loss={type: cross_entropy, label_smoothing: 0.1}")
        os.rename(self.path("runs/test"), self.path("runs/first"))
        os.rename(self.path("runs/other"), self.path("runs/test"))
        self.refused("export", "test.yaml", "--out", "m.safetensors", **scale)
        self.run_program("export", "runs/test", "--out", "m.safetensors")
        self.run_program("export", self.checkpoints()[-1], "--out", "m.safetensors")

    def test_divide(self):
        """In both directions; null is that of the training, too."""
        np.savez(self.path("x.npz"), x=np.arange(60, dtype="f4").reshape(20, 3), y=np.arange(20) % 2)
        self.write("x.yaml", "dataset: {path: x.npz}\nmodel: {layers: [{linear: 2}]}\nloss: cross_entropy\ntrain: {epochs: 1}\n")
        self.run_program("x.yaml", "dataset.divide=7", "--run-dir", "runs/a")
        self.run_program("x.yaml", "--run-dir", "runs/b")
        self.refused("predict", "x.yaml", "--run-dir", "runs/a", dataset__divide="7 -> null")
        self.refused("predict", "runs/b", "dataset.divide=7", dataset__divide="null -> 7")

    def test_run_of_a_sweep(self):
        self.write("sweep.yaml", "config: test.yaml\nmethod: grid\nparameters: {dataset.scale.type: {values: [none, minmax]}}\n")
        self.run_program("sweep", "sweep.yaml")
        self.refused("eval", "test.yaml", "--checkpoint", "sweeps/sweep/runs/0000", dataset__scale__type="none -> standard")
        for run in ("0000", "0001"):
            whole = json.loads(self.run_program("eval", f"sweeps/sweep/runs/{run}")[0])["loss"]
            self.assertEqual(whole, self.events("epoch", f"sweeps/sweep/runs/{run}")[-1]["val_loss"])

    def test_one_row(self):
        """It is scaled as in the training."""
        with open(self.path("rows.csv")) as f:
            lines = f.readlines()
        self.write("one.csv", lines[0] + lines[3])
        whole = self.predict("runs/test", "rows.csv")[0].splitlines()
        self.assertEqual(self.predict("runs/test", "one.csv")[0].splitlines()[1].split(",")[1:], whole[3].split(",")[1:])

    def test_table_for_a_model_of_arrays(self):
        """Its rows have no names: a table has as many columns in their order, and the target's name is not that of the array."""
        import h5py
        r = np.random.default_rng(1)
        x, y = r.normal(size=(30, 4)), np.arange(30) % 2
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"], f["y"] = x, y
        np.savez(self.path("rows.npz"), data=x, y=y)
        lines = [",".join(map(repr, row)) for row in x.tolist()]
        self.write("with.csv", "a,b,c,d,kind\n" + "".join(f"{line},{k}\n" for line, k in zip(lines, y)))
        self.write("without.csv", "a,b,c,d\n" + "\n".join(lines) + "\n")
        for name, words in (("rows.h5", "inputs: x, targets: y"), ("rows.npz", "inputs: data, targets: y")):
            self.write("a.yaml", f"dataset: {{path: {name}, {words}, scale: standard}}\nmodel: {{layers: [{{linear: 2}}]}}\n"
                                 "loss: cross_entropy\ntrain: {epochs: 2}\n")
            self.run_program("a.yaml", "--fresh")
            expected = self.predict("runs/a", name)[0]
            for table in ("with.csv", "without.csv"):
                self.assertEqual(self.predict("runs/a", table)[0], expected)
            _, err = self.predict("runs/a", "with.csv")
            self.assertIn("with.csv: the inputs are its columns in their order, without the target, 'kind'\n", err)
            self.assertEqual(self.run_program("eval", "runs/a", "with.csv")[0], self.run_program("eval", "runs/a", name)[0])
            for verb, names, target in (("predict", "a,b,c", "at most one"), ("predict", "a,b,c,d,e,f", "at most one"), ("eval", "a,b,c,d", "one")):
                self.write("other.csv", names + "\n" + ",".join(["1"] * len(names.split(","))) + "\n")
                _, err = self.run_program(verb, "runs/a", "other.csv", code=program.DATA)
                self.assertIn(f"the model was trained with rows of 4 numbers without names, so that this file needs exactly 4 columns in that order "
                              f"and {target} for the target; without it there are {len(names.split(',')) - 1}. List", err)
        self.write("c.yaml", "dataset: {path: with.csv, inputs: [a, b, c, d], targets: kind, scale: standard}\nmodel: {layers: [{linear: 2}]}\n"
                             "loss: cross_entropy\ntrain: {epochs: 2}\n")
        self.run_program("c.yaml")
        self.assertEqual(self.run_program("eval", "runs/c", "rows.h5")[0], self.run_program("eval", "runs/c", "with.csv")[0])
