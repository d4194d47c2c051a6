#!/usr/bin/env python3
"""Compares exported ONNX files with predict: onnx.checker accepts each, and ONNX Runtime's outputs agree with those of
ddptrain to 1e-5 of the largest output: for every model of tests/program/test_export_c.py, also with rows of different
lengths, the tables with prepared columns of tests/vectors/columns.json and every shipped config, made small, two of them
also with all their layers; or for a file.

    tests/proof/check_onnx.py [--binary build/release/bin/ddptrain] [--only layers|tables|configs|deep]
    tests/proof/check_onnx.py MODEL.onnx INPUTS.npy OUTPUTS.npy              one file

Needs the packages onnx, onnxruntime, numpy and h5py; without them it says so and ends with 77.
"""
import argparse
import csv
import datetime
import glob
import itertools
import json
import os
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed")
    sys.exit(77)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def session_of(path):
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def joined(outputs):
    return outputs[0] if len(outputs) == 1 else np.concatenate([y.reshape(len(y), -1) for y in outputs], 1)


def run(path, inputs):
    session = session_of(path)
    feeds, at, rows = {}, 0, inputs.reshape(len(inputs), -1)
    for value in session.get_inputs():  # several: parts of a row, one after another
        shape = value.shape[1:]
        dtype = {"tensor(int64)": "i8", "tensor(float)": "f4"}[value.type]
        feeds[value.name] = rows[:, at:at + int(np.prod(shape))].reshape(-1, *shape).astype(dtype)
        at += int(np.prod(shape))
    return joined(session.run(None, feeds))


def difference(got, expected):
    expected = expected.reshape(got.shape)
    return float(np.abs(got - expected).max() / max(1.0, np.abs(expected).max()))


def models(binary):
    """The models of the tests of the C file: name, inputs, config."""
    os.environ["DDPTRAIN"], os.environ["DDPTRAIN_SOURCE"] = binary, ROOT
    sys.path.insert(0, os.path.join(ROOT, "tests", "program"))
    import test_export_c
    for name, (shape, outputs, layers) in test_export_c.LAYERS.items():
        for scale in ("", ", scale: standard", ", divide: 7"):
            if name not in ("linear", "convolution") and scale:
                continue
            r = np.random.default_rng(1)
            x = (r.normal(size=(12, *shape)) * 3 + 1).astype("f4")
            with h5py.File("data.h5", "w") as f:
                f["x"], f["y"] = x, r.normal(size=(12, outputs)).astype("f4")
            yield name + scale, x, (f"dataset: {{path: data.h5{scale}}}\nsampler: {{batch_size: 4}}\nmodel: {{layers: {layers}}}\nloss: mse\n"
                                    "optimizer: {type: adam, lr: 0.01}\ntrain: {epochs: 1}\n")
    for scale in ("", ", scale: standard", ", divide: 3"):
        yield "named" + scale, test_export_c.write_named("."), test_export_c.NAMED.replace("SCALE", scale)
    for name in test_export_c.PADDED:
        config, rows = test_export_c.write_padded(".", name)
        yield name, rows, config
    text = "to be or not to be, that is the       question. " * 30  # with rows of nothing but blanks
    known = sorted(set(text))
    with open("text.txt", "w", encoding="utf-8") as f:
        f.write(text)
    rows_of = lambda size: np.array([[known.index(c) for c in text[i:i + size]] for i in range(len(text) - size)])
    yield "padded_text", rows_of(6), test_export_c.PADDED_TEXT.replace("CLASSES", str(len(known)))
    for mode, padding in itertools.product(("mean", "sum", "max"), ("null", "0", "-1")):
        yield f"embedding_bag {mode} {padding}", rows_of(6), test_export_c.BAG.format(size=6, mode=mode, padding=padding, out=6 * len(known), classes=len(known))
    rows = rows_of(80)
    yield "tokens", rows, ("dataset: {path: text.txt, text: {block_size: 80}}\nsampler: {batch_size: 4}\nmodel:\n  layers:\n"
                           "    - embedding: {embedding_dim: 16, name: wte}\n    - positional_embedding: {num_embeddings: 100}\n"
                           "    - repeat: {times: 2, layers: [{residual: [layer_norm, {attention: {heads: 2, causal: true}}]}, "
                           "{residual: [layer_norm, {linear: 32}, {gelu: {approximate: tanh}}, {linear: 16}]}]}\n"
                           f"    - layer_norm\n    - linear: {{out: {len(known)}, bias: false, tie: wte.weight}}\n"
                           "loss: cross_entropy\noptimizer: adam\ntrain: {steps: 3}\n")


# ---- tables ----

PARTS = {"year": lambda d: d.year, "month": lambda d: d.month, "day": lambda d: d.day, "weekday": lambda d: d.weekday(),
         "dayofyear": lambda d: d.timetuple().tm_yday, "quarter": lambda d: (d.month + 2) // 3, "hour": lambda d: d.hour,
         "minute": lambda d: d.minute, "second": lambda d: d.second, "epoch": lambda d: (d - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)}
NUMBERS = {"": np.nan, "yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}


def preparation_of(run_folder):
    """{column: its entry} of the newest checkpoint."""
    with h5py.File(sorted(glob.glob(os.path.join(run_folder, "checkpoints", "*.h5")))[-1]) as f:
        if "data/preparation" not in f:
            return {}
        return {c["name"]: c for c in json.loads(f["data/preparation"][()])["columns"]}


def run_table(path, file, run_folder):
    """The outputs for the rows of a CSV file: an input for each column, or if they are numbers inputs of several columns."""
    session, prepared = session_of(path), preparation_of(run_folder)
    with open(file, newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    if not prepared:
        names = json.loads(session.get_modelmeta().custom_metadata_map["columns"])
        return run(path, np.array([[float(row[n]) for n in names] for row in rows], "f4"))
    feeds = {}
    for value in session.get_inputs():
        name = value.name if value.name in prepared else value.name.removeprefix("column/")
        cells, entry = [row[name] for row in rows], prepared[name]
        if value.type == "tensor(string)":
            feeds[value.name] = np.array([[c] for c in cells], dtype=object)
        elif entry["type"] == "date":
            dates = [datetime.datetime.fromisoformat(c) if c else None for c in cells]
            feeds[value.name] = np.array([[float(PARTS[p](d)) if d else np.nan for p in entry["parts"]] for d in dates])
        else:
            feeds[value.name] = np.array([[NUMBERS[c.lower()] if c.lower() in NUMBERS else float(c)] for c in cells])
    return joined(session.run(None, feeds))


def tables():
    """Name, and config, of tables that were written to table.csv."""
    import test_export_c
    for scale in ("", "scale: standard", "scale: minmax"):
        test_export_c.write_table("table.csv")
        yield "table " + scale, test_export_c.TABLE.replace("SCALE", scale).replace("UNKNOWN", "ignore")
    with open(os.path.join(ROOT, "tests", "vectors", "columns.json"), encoding="utf-8") as f:
        for table in json.load(f):
            with open("table.csv", "w", newline="", encoding="utf-8") as out:
                out.write(table["csv"])
            share = 1 - table["train_rows"] / table["rows"]
            yield f"table of seed {table['seed']}", (
                f"dataset: {{path: table.csv, targets: y, split: {{test: {share}, shuffle: false}}, columns: {json.dumps(table['columns'])}}}\n"
                "model: {layers: [{linear: 8}, tanh, {linear: 2}]}\nloss: cross_entropy\noptimizer: adam\ntrain: {epochs: 2}\n")


# ---- shipped configs ----

def rows_for(session, config, path, r):
    """(file, rows) for predict: those of a NumPy archive, whose rows differ in length; else random tokens, or random arrays under
    the names of the model's inputs."""
    inputs = session.get_inputs()
    if path.endswith(".npz"):
        return path, np.load(path)["x"]
    if inputs[0].type == "tensor(int64)":
        block = inputs[0].shape[1]
        if ".bin" in config:
            tokens = r.integers(0, 65, block * 3 + 1, dtype="u2")
            tokens.tofile("rows.bin")
            return "rows.bin", np.array([tokens[i * block:(i + 1) * block] for i in range(3)])
        with open(os.path.join(ROOT, "datasets", "tinyshakespeare.txt"), encoding="utf-8") as f:
            text = f.read(block + 1)
        with open("rows.txt", "w", encoding="utf-8") as f:
            f.write(text)
        return "rows.txt", [text[:block]]
    arrays = {v.name: r.integers(0, 256, (12, *v.shape[1:])) if "scale: standard" in config or "divide" in config else r.normal(size=(12, *v.shape[1:]))
              for v in inputs}
    with h5py.File("rows.h5", "w") as f:
        for name, values in arrays.items():
            f["x" if name == "inputs" else name] = values.astype("f4")
    return "rows.h5", np.concatenate([a.reshape(len(a), -1) for a in arrays.values()], 1)


def check_config(call, file, overrides):
    name = os.path.splitext(os.path.basename(file))[0]
    folder, r = "runs/" + name, np.random.default_rng(0)
    call(file, *overrides, "--run-dir", folder, "--fresh")
    call("export", folder, "--out", "m.onnx")
    with open(os.path.join(folder, "config.yaml"), encoding="utf-8") as f:
        config = f.read()
    path = next((line.split(": ", 1)[1].strip() for line in config.splitlines() if line.startswith("  path: ")), "")
    if path.endswith(".csv"):
        data, expected_of = path, lambda rows: run_table("m.onnx", data, folder)
        rows, words = None, []
    else:
        data, rows = rows_for(session_of("m.onnx"), config, path, r)
        words = {".h5": ["dataset.format=hdf5"], ".txt": ["dataset.text.truncate=1"]}.get(os.path.splitext(data)[1], [])
        expected_of = lambda rows: run("m.onnx", rows)
    call("predict", folder, data, "--out", "p.h5", *words)
    with h5py.File("p.h5") as f:
        outputs = f["outputs"][:]
    if data.endswith(".txt"):
        with h5py.File(sorted(glob.glob(os.path.join(folder, "checkpoints", "*.h5")))[-1]) as f:
            known = f["data/vocabulary"].asstr()[()]
        rows = np.array([[known.index(c) for c in row] for row in rows])
    got = expected_of(rows)
    if got.ndim == 4:  # a class for each pixel: predict has the classes of a pixel together
        got = got.transpose(0, 2, 3, 1)
    return difference(got[:len(outputs)], outputs[:len(got)])


def configs():
    import test_configs
    r = np.random.default_rng(0)
    with h5py.File("images.h5", "w") as f:
        f["x"], f["y"] = r.integers(0, 256, (32, 3, 32, 32), dtype=np.uint8), np.arange(32) % 10
    r.integers(0, 65, 16 * 33, dtype=np.uint16).tofile("tokens.bin")
    for file in sorted(glob.glob(os.path.join(ROOT, "configs", "*.yaml"))):
        if not test_configs.is_sweep(file):
            yield file, test_configs.OVERRIDES.get(os.path.splitext(os.path.basename(file))[0], ["train.epochs=2"])


def deep_configs():
    """mobilenet_v2 and resnet50 with all their layers, on small images of which something is left at the end, after two steps."""
    for file, overrides in configs():
        if os.path.basename(file) not in ("mobilenet_v2.yaml", "resnet50.yaml"):
            continue
        kept = [word for word in overrides if ".repeat.times=" not in word and not word.startswith("train.steps=")]
        yield file, [*(word.replace("size=32", "size=64").replace("resize=36", "resize=72") for word in kept), "train.steps=2"]


# ---- all of them ----

def check_model(call, config, compute):
    """The difference of one config, whose data lies in this folder."""
    with open("test.yaml", "w", encoding="utf-8") as f:
        f.write(config)
    for words in (["test.yaml", "--fresh"], ["export", "runs/test", "--out", "m.onnx"], ["predict", "test.yaml", "--part", "all", "--out", "p.h5"]):
        call(*words)
    with h5py.File("p.h5") as f:
        expected = f["outputs"][:]
    got = compute(len(expected))
    return difference(got, expected[:len(got)])


def checks(binary, call):
    """(group, name, function that returns the difference)"""
    for name, x, config in models(binary):
        yield "layers", name, lambda: check_model(call, config, lambda rows: run("m.onnx", x[:rows]))
    for name, config in tables():
        yield "tables", name, lambda: check_model(call, config, lambda rows: run_table("m.onnx", "table.csv", "runs/test"))
    for group, files in ("configs", configs), ("deep", deep_configs):
        for file, overrides in files():
            yield group, f"{os.path.basename(file)}{' (all layers)' if group == 'deep' else ''}", lambda: check_config(call, file, overrides)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "build", "release", "bin", "ddptrain"))
    parser.add_argument("--only", choices=["layers", "tables", "configs", "deep"])
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    if options.files:
        model, inputs, outputs = options.files
        worst = difference(run(model, np.load(inputs)), np.load(outputs))
        print(f"{model}: {worst:.2g}")
        return int(not worst <= 1e-5)
    failed = 0
    binary = os.path.abspath(options.binary)
    os.chdir(tempfile.mkdtemp())

    def call(*words):
        result = subprocess.run([binary, *words], capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"{' '.join(words)}: {result.stderr[-500:]}")

    for group, name, check in checks(binary, call):
        if options.only and group != options.only:
            continue
        try:
            worst = check()
        except Exception as error:  # of the checker or the runtime: named, and the next model is compared
            print(f"{name}: {str(error)[:600]}")
            worst = float("nan")
        print(f"{name}: {worst:.2g}", flush=True)
        failed += not worst <= 1e-5
    print("all agree" if not failed else f"{failed} differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
