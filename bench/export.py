#!/usr/bin/env python3
"""Times of trained models on one thread, in interleaved rounds, medians. wine: predictions one row at a time by the C file of `ddptrain
export`, libddptrain_predict, ONNX Runtime and PyTorch. Names of bench/models.py: one row and a batch at a time, by libddptrain_predict and
ONNX Runtime. generate_...: a token of `ddptrain generate` and of transformers, both with a cache.

    bench/export.py [--only wine,cnn,gpt_baby,generate_medium] [--rounds N] [--binary build/release/bin/ddptrain]

Needs pip packages onnxruntime, numpy and torch; h5py for wine, transformers for generate_... The peers are called from Python in the fastest
way of each: ONNX Runtime with arrays and with bound buffers; PyTorch under inference_mode, eager, traced and frozen, and compiled, and
without the scaling of the inputs, which the others do; transformers by its generate and by a loop of forward, of which the faster counts.
Times are those of the processor, which other processes of the machine change little; each call runs on one thread."""
import argparse, os, random, resource, shutil, statistics, subprocess, sys, tempfile, time, warnings

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
    session = onnx_session(path)
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


def driver(folder, library, *flags):
    """A program that calls libddptrain_predict, or with flags the C file."""
    name = "by_file" if flags else "by_library"
    use = flags or ("-I", os.path.join(SOURCE, "src/predict"), f"-L{library}", "-lddptrain_predict", f"-Wl,-rpath,{library}")
    run("gcc", "-O2", "-std=c99", "-Wall", "-Wextra", DRIVER, *use, "-o", name, cwd=folder)
    return os.path.join(folder, name)


def train(a, folder, name, config):
    """The folder of a run of one step."""
    with open(os.path.join(folder, name + ".yaml"), "w") as f:
        f.write(f"name: {name}\n" + config.replace("STEPS", "1").replace("FOLDER", folder))
    run(a.binary, name + ".yaml", "--quiet", "train.device=cpu", "train.evaluate_every=0", cwd=folder)
    return os.path.join(folder, "runs", name)


def write_text(folder, vocabulary):
    """Returns its characters, so many."""
    ranges = (range(65, 91), range(97, 123), range(48, 58), (32, 44, 46), range(0x4e00, 0x9fff), range(0xac00, 0xd7a3), range(0x20000, 0x2a6d0))
    draw, letters = random.Random(1), [chr(c) for part in ranges for c in part][:vocabulary]
    with open(os.path.join(folder, "text.txt"), "w") as f:
        f.write("".join(letters) + "".join(draw.choices(letters, k=10_000)))
    return letters


# ---- rows of larger models ----

def onnx_session(path):
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def onnx_pass(session, rows, batch):
    """A function that predicts all rows, with bound buffers, and returns the sum of the outputs."""
    import numpy as np
    binding, given, [name], [output] = session.io_binding(), rows[:batch].copy(), session.get_inputs(), session.get_outputs()
    got = session.run([output.name], {name.name: given})[0]
    binding.bind_input(name.name, "cpu", 0, given.dtype, given.shape, given.ctypes.data)
    binding.bind_output(output.name, "cpu", 0, np.float32, got.shape, got.ctypes.data)

    def call():
        total = 0.0
        for at in range(0, len(rows), batch):
            given[:] = rows[at:at + batch]
            session.run_with_iobinding(binding)
            total += float(got.sum(dtype="f8"))
        return total
    return call


def measure_rows(a, folder, name):
    import models, numpy as np
    workload, noise, batch = models.WORKLOADS[name], np.random.default_rng(1), a.batch
    write_text(folder, models.VOCABULARY)
    trained = train(a, folder, name, workload.config)
    run(a.binary, "export", trained, "--out", name + ".onnx", cwd=folder)
    program, session, seconds = driver(folder, os.path.dirname(a.binary)), onnx_session(os.path.join(folder, name + ".onnx")), {}
    shape = [batch, *session.get_inputs()[0].shape[1:]]
    rows = noise.integers(0, models.VOCABULARY, shape) if workload.text_tokens else noise.standard_normal(shape).astype("f4")
    given = rows.astype("i4") if workload.text_tokens else rows
    calls = {n: onnx_pass(session, rows, n) for n in (1, batch)}
    for _ in range(a.rounds):
        for n, call in calls.items():
            out = run(program, str(batch), str(a.passes), trained, str(n), cwd=folder, input=given.tobytes()).split()
            seconds.setdefault((n, "ours"), []).append(float(out[0]) * 1e-9)
            expected = call()
            np.testing.assert_allclose(float(out[1]), expected, rtol=1e-3, atol=1e-3 * batch)
            start = time.process_time()
            for _ in range(a.passes):
                call()
            seconds.setdefault((n, "theirs"), []).append((time.process_time() - start) / (a.passes * batch))
    for n in calls:
        ours, theirs = statistics.median(seconds[n, "ours"]), statistics.median(seconds[n, "theirs"])
        ratios = [t / o for o, t in zip(seconds[n, "ours"], seconds[n, "theirs"])]
        yield (f"{workload.title.split(', batch')[0]}, {n} row{'s' if n > 1 else ''}, `libddptrain_predict`", "ONNX Runtime", ours, theirs, ratios)


# ---- tokens ----

GENERATED = {"generate_baby": (4, 4, 128, 1024, 65), "generate_medium": (6, 6, 384, 256, 65), "generate_gpt2": (12, 12, 768, 256, 50257)}


def user_seconds(who):
    """Of the processor outside of the system, whose time to give memory to a model that is loaded varies by more than many tokens take."""
    return resource.getrusage(who).ru_utime


def transformers_calls(layers, heads, width, block, vocabulary):
    """Functions of a number of tokens that generate them and return user_seconds."""
    import torch, transformers
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers, n_head=heads, n_embd=width, n_positions=block, vocab_size=vocabulary,
                                                                 bos_token_id=0, eos_token_id=None)).eval()
    first = torch.zeros(1, 1, dtype=torch.long)

    def generate(count):
        model.generate(first, attention_mask=torch.ones_like(first), max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)

    def loop(count):
        cache, token = None, first
        for _ in range(count):
            out = model(token, past_key_values=cache, use_cache=True)
            cache, token = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)

    def under(call):
        def timed(count):
            start = user_seconds(resource.RUSAGE_SELF)
            with torch.inference_mode():
                call(count)
            return user_seconds(resource.RUSAGE_SELF) - start
        return timed
    return under(generate), under(loop)


def measure_tokens(a, folder, name):
    import models
    layers, heads, width, block, vocabulary = GENERATED[name]
    letters = write_text(folder, vocabulary)
    config = models.gpt(layers, heads, width, block, 1).replace("gelu", "{gelu: {approximate: tanh}}")
    config = config.replace(f"out: {models.VOCABULARY}", f"out: {vocabulary}")
    trained = train(a, folder, name, config)
    theirs = transformers_calls(layers, heads, width, block, vocabulary)

    def ours(count):
        start = user_seconds(resource.RUSAGE_CHILDREN)
        run(a.binary, "generate", trained, "--prompt", letters[0], "--characters", str(count), "--temperature", "0", cwd=folder)
        return user_seconds(resource.RUSAGE_CHILDREN) - start
    most, seconds = block - 4, {"ours": []} | {call: [] for call in theirs}
    for call in theirs:
        call(8)
    per_token = lambda call: (call(most) - call(most // 4)) / (most - most // 4)
    for _ in range(a.rounds):
        seconds["ours"].append(per_token(ours))
        for call in theirs:
            seconds[call].append(per_token(call))
    best = min((seconds[call] for call in theirs), key=statistics.median)
    yield (f"GPT {layers} x {width}, {vocabulary} tokens, one token of `generate`", "transformers", statistics.median(seconds["ours"]), statistics.median(best),
           [t / o for o, t in zip(seconds["ours"], best)])


def measure_wine(a, folder):
    import h5py, onnxruntime, torch
    binary, library = a.binary, os.path.dirname(a.binary)
    run(binary, os.path.join(SOURCE, "configs/wine_mlp.yaml"), "--quiet", "train.device=cpu", cwd=folder)
    for name in ("wine.c", "wine.onnx"):
        run(binary, "export", "runs/wine_mlp", "--out", name, cwd=folder)
    run(binary, "predict", "runs/wine_mlp", "--part", "all", "--out", "p.h5", cwd=folder)
    with h5py.File(os.path.join(SOURCE, "datasets/wine.h5")) as f, h5py.File(os.path.join(folder, "p.h5")) as p:
        x, outputs = f["x"][:].astype("f4"), p["outputs"][:]
    with h5py.File(os.path.join(folder, "runs/wine_mlp/checkpoints/epoch-0100.h5")) as f:
        state = {name: value[:] for name, value in f["model"].items()}
    driver(folder, library, '-DFILE_HEADER="wine.h"', "-I.", "wine.c", "-lm")
    driver(folder, library)

    def by_program(name, expected):
        passes = str(max(1, int(a.seconds / expected / len(x))))
        return float(run(f"./{name}", str(len(x)), passes, "runs/wine_mlp", "1", cwd=folder, input=x.tobytes()).split()[0]) * 1e-9
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


def main():
    import models, peers
    peers.restart_strong()
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="wine")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of a measurement of wine")
    parser.add_argument("--passes", type=int, default=3, help="over the rows of a measurement of another model")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--binary", default=os.path.join(SOURCE, "build/release/bin/ddptrain"))
    a = parser.parse_args()
    a.binary = os.path.abspath(a.binary)
    names, larger = a.only.split(","), []
    if unknown := set(names) - {"wine", *models.WORKLOADS, *GENERATED}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(['wine', *models.WORKLOADS, *GENERATED])}")
    models.hide_gpus()
    folder = tempfile.mkdtemp(prefix="ddptrain-bench-")
    for name in names:
        if name == "wine":
            measure_wine(a, folder)
        else:
            larger += measure_tokens(a, folder, name) if name in GENERATED else measure_rows(a, folder, name)
    if larger:
        print("| one thread | ms | peer | ms | ratio [min - max] |\n|---|---|---|---|---|")
    for what, peer, ours, theirs, ratios in larger:
        print(f"| {what} | {ours * 1e3:.3f} | {peer} | {theirs * 1e3:.3f} | {theirs / ours:.2f} [{min(ratios):.2f} - {max(ratios):.2f}] |")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
