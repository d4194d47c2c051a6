#!/usr/bin/env python3
"""Compares exported ONNX files with predict: onnx.checker accepts each, and ONNX Runtime's outputs agree with those of
ddptrain to 1e-5 of the largest output, for every model of tests/program/test_export_c.py, or for a file.

    scripts/check_onnx.py [--binary build/release/bin/ddptrain]          the models of the tests
    scripts/check_onnx.py MODEL.onnx INPUTS.npy OUTPUTS.npy              one file

Needs the packages onnx, onnxruntime, numpy and h5py; without them it says so and ends with 77.
"""
import argparse
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

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(path, inputs):
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds, at, rows = {}, 0, inputs.reshape(len(inputs), -1)
    for value in session.get_inputs():  # several: parts of a row, one after another
        shape = value.shape[1:]
        dtype = {"tensor(int64)": "i8", "tensor(float)": "f4"}[value.type]
        feeds[value.name] = rows[:, at:at + int(np.prod(shape))].reshape(-1, *shape).astype(dtype)
        at += int(np.prod(shape))
    outputs = session.run(None, feeds)
    return outputs[0] if len(outputs) == 1 else np.concatenate([y.reshape(len(y), -1) for y in outputs], 1)


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
    text = "to be or not to be, that is the question. " * 30
    known = sorted(set(text))
    with open("text.txt", "w", encoding="utf-8") as f:
        f.write(text)
    rows = np.array([[known.index(c) for c in text[i:i + 80]] for i in range(len(text) - 80)])
    yield "tokens", rows, ("dataset: {path: text.txt, text: {block_size: 80}}\nsampler: {batch_size: 4}\nmodel:\n  layers:\n"
                           "    - embedding: {embedding_dim: 16, name: wte}\n    - positional_embedding: {num_embeddings: 100}\n"
                           "    - repeat: {times: 2, layers: [{residual: [layer_norm, {attention: {heads: 2, causal: true}}]}, "
                           "{residual: [layer_norm, {linear: 32}, {gelu: {approximate: tanh}}, {linear: 16}]}]}\n"
                           f"    - layer_norm\n    - linear: {{out: {len(known)}, bias: false, tie: wte.weight}}\n"
                           "loss: cross_entropy\noptimizer: adam\ntrain: {steps: 3}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "build", "release", "bin", "ddptrain"))
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    if options.files:
        model, inputs, outputs = options.files
        worst = difference(run(model, np.load(inputs)), np.load(outputs))
        print(f"{model}: {worst:.2g}")
        return int(not worst <= 1e-5)
    failed = 0
    options.binary = os.path.abspath(options.binary)
    os.chdir(tempfile.mkdtemp())
    for name, x, config in models(options.binary):
        with open("test.yaml", "w", encoding="utf-8") as f:
            f.write(config)
        for words in (["test.yaml", "--fresh"], ["export", "runs/test", "--out", "m.onnx"], ["predict", "test.yaml", "--part", "all", "--out", "p.h5"]):
            subprocess.run([options.binary, *words], check=True, capture_output=True)
        with h5py.File("p.h5") as f:
            expected = f["outputs"][:]
        try:
            worst = difference(run("m.onnx", x[:len(expected)]), expected[:len(x)])
        except Exception as error:  # of the checker or the runtime: named, and the next model is compared
            print(f"{name}: {str(error)[:600]}")
            worst = float("nan")
        print(f"{name}: {worst:.2g}")
        failed += not worst <= 1e-5
    print("all agree" if not failed else f"{failed} differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
