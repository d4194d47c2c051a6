#!/usr/bin/env python3
"""Predictions per second of the wine model, one row at a time on one thread: the C file of `ddptrain export`, libddptrain_predict, ONNX
Runtime and PyTorch, in interleaved rounds, medians.

    bench/export.py [--rounds N] [--binary build/release/bin/ddptrain]

Needs pip packages onnxruntime, torch and h5py. The peers are called from Python in the fastest way of each: ONNX Runtime with arrays and
with bound buffers; PyTorch under inference_mode, eager, traced and frozen, and compiled, and without the scaling of the inputs, which the
others do. Times are those of the processor, which other processes of the machine change little; each call runs on one thread."""
import argparse, os, statistics, subprocess, sys, tempfile, time, warnings

os.environ["OMP_NUM_THREADS"] = "1"
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DRIVER = os.path.join(SOURCE, "bench", "predict_rows.c")


def run(*command, cwd, **options):
    done = subprocess.run(command, cwd=cwd, capture_output=True, **options)
    if done.returncode:
        sys.exit(f"failed: {command}\n{done.stderr.decode()}")
    return done.stdout


def per_row(call, rows, seconds):
    """Seconds per row of passes that take about [seconds] in all."""
    def one_pass():
        start = time.process_time()
        for row in rows:
            call(row)
        return time.process_time() - start
    for _ in range(20):
        estimate = one_pass()
    passes = max(1, int(seconds / estimate))
    return sum(one_pass() for _ in range(passes)) / (passes * len(rows))


def onnx_calls(path, outputs, x):
    import numpy as np
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name, output = session.get_inputs()[0].name, session.get_outputs()[0].name
    binding, given, got = session.io_binding(), np.empty((1, 13), "f4"), np.empty((1, 3), "f4")
    binding.bind_input(name, "cpu", 0, np.float32, given.shape, given.ctypes.data)
    binding.bind_output(output, "cpu", 0, np.float32, got.shape, got.ctypes.data)

    def bound(row):
        given[:] = row
        session.run_with_iobinding(binding)
        return got
    calls = {"ONNX Runtime, run": lambda row: session.run([output], {name: row})[0], "ONNX Runtime, bound buffers": bound}
    for what, call in calls.items():
        np.testing.assert_allclose(np.concatenate([call(x[i:i + 1]).copy() for i in range(len(x))]), outputs, rtol=1e-4, atol=1e-4, err_msg=what)
    return {what: (call, [x[i:i + 1] for i in range(len(x))]) for what, call in calls.items()}


def torch_calls(state, x):
    import torch
    warnings.simplefilter("ignore")  # of the tracer, which is deprecated and fast
    torch.set_num_threads(1)
    net = torch.nn.Sequential(torch.nn.Linear(13, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3)).eval()
    net.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    with torch.inference_mode():
        traced = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(net, torch.zeros(1, 13))))
    rows = [torch.from_numpy(x[i:i + 1]) for i in range(len(x))]

    def under(model):
        def call(row):
            with torch.inference_mode():
                return model(row)
        return call
    return {"PyTorch, eager": (under(net), rows), "PyTorch, traced and frozen": (under(traced), rows),
            "PyTorch, compiled": (under(torch.compile(net)), rows)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build/release/bin/ddptrain"))
    a = parser.parse_args()
    import h5py, onnxruntime, torch
    binary, folder = os.path.abspath(a.binary), tempfile.mkdtemp(prefix="ddptrain-bench-")
    library = os.path.dirname(binary)
    run(binary, os.path.join(SOURCE, "configs/wine_mlp.yaml"), "--quiet", "train.device=cpu", cwd=folder)
    for name in ("wine.c", "wine.onnx"):
        run(binary, "export", "runs/wine_mlp", "--out", name, cwd=folder)
    run(binary, "predict", "runs/wine_mlp", "--part", "all", "--out", "p.h5", cwd=folder)
    with h5py.File(os.path.join(SOURCE, "datasets/wine.h5")) as f, h5py.File(os.path.join(folder, "p.h5")) as p:
        x, outputs = f["x"][:].astype("f4"), p["outputs"][:]
    with h5py.File(os.path.join(folder, "runs/wine_mlp/checkpoints/epoch-0100.h5")) as f:
        state = {name: value[:] for name, value in f["model"].items()}
    flags = ["gcc", "-O2", "-std=c99", "-Wall", "-Wextra", DRIVER]
    run(*flags, '-DFILE_HEADER="wine.h"', "-I.", "wine.c", "-lm", "-o", "by_file", cwd=folder)
    run(*flags, "-I", os.path.join(SOURCE, "src/predict"), f"-L{library}", "-lddptrain_predict", f"-Wl,-rpath,{library}", "-o", "by_library", cwd=folder)

    def by_program(name, expected):
        passes = str(max(1, int(a.seconds / expected / len(x))))
        return float(run(f"./{name}", str(len(x)), passes, "runs/wine_mlp", cwd=folder, input=x.tobytes()).split()[0]) * 1e-9
    ours = {"C file of export": lambda: by_program("by_file", 5e-7), "libddptrain_predict": lambda: by_program("by_library", 2e-6)}
    peers = {**onnx_calls(os.path.join(folder, "wine.onnx"), outputs, x), **torch_calls(state, x)}
    seconds = {what: [] for what in [*ours, *peers]}
    for _ in range(a.rounds):
        for what, measure in ours.items():
            seconds[what].append(measure())
        for what, (call, rows) in peers.items():
            seconds[what].append(per_row(call, rows, a.seconds))
    median = {what: statistics.median(values) for what, values in seconds.items()}
    best = {peer: min(value for what, value in median.items() if what.startswith(peer)) for peer in ("ONNX Runtime", "PyTorch")}
    print(f"onnxruntime {onnxruntime.__version__}, torch {torch.__version__}, {a.rounds} rounds; wine_mlp, one row a call, one thread")
    print("| | predictions/s | us per row | times the best of ONNX Runtime | of PyTorch |\n|---|---|---|---|---|")
    for what, value in median.items():
        print(f"| {what} | {1 / value:,.0f} | {value * 1e6:.2f} | {best['ONNX Runtime'] / value:.1f} | {best['PyTorch'] / value:.1f} |")


if __name__ == "__main__":
    main()
