"""Recurrent layers in runs: the shipped series, resume, threads, ranks. ctest-labels: dist gpu-emulated"""
import importlib.util, json, math, os, runpy, shutil, unittest

import h5py

import program

CONFIG = """name: waves
seed: 3
dataset: {path: SOURCE/datasets/series.npz, scale: standard, split: {test: 0.2, seed: 1}}
sampler: {batch_size: 40}
model:
  layers:
    - {lstm: {hidden_size: 24, num_layers: 2, dropout: 0.2, bidirectional: true}}
    - {gru: {hidden_size: 12, output: last}}
    - {linear: 4}
loss: cross_entropy
optimizer: {type: adam, lr: 0.01}
train: {epochs: 3}
"""


class Recurrent(program.Case):
    given_files = {"waves.yaml": CONFIG.replace("SOURCE", program.SOURCE)}

    def hash_of(self, run, *words, **options):
        out, err = self.run_program("waves.yaml", "--run-dir", run, *words, **options)
        return (out + err).split("state sha256 ")[1].split()[0]

    def test_the_shipped_series(self):
        """They are what their script writes, and the config learns."""
        shutil.copy(os.path.join(program.SOURCE, "datasets", "make_series.py"), self.path("make_series.py"))
        runpy.run_path(self.path("make_series.py"), run_name="__main__")
        import numpy as np
        made, shipped = np.load(self.path("series.npz")), np.load(os.path.join(program.SOURCE, "datasets", "series.npz"))
        for name in "x", "y":
            self.assertTrue((made[name] == shipped[name]).all())
        config = os.path.join(program.SOURCE, "configs", "lstm_series.yaml")
        self.run_program(config, "--run-dir", "series")
        self.assertGreater(json.loads(self.run_program("eval", "series")[0])["accuracy"], 0.9)

    def test_the_same_bits_with_threads_and_after_a_resume(self):
        one = self.hash_of("one", env={"OMP_NUM_THREADS": "1"})
        self.assertEqual(one, self.hash_of("two", env={"OMP_NUM_THREADS": "2"}))
        self.run_program("waves.yaml", "--run-dir", "parts", "train.epochs=1")
        self.assertEqual(one, self.hash_of("parts"))

    def test_elastic_ranks_have_the_same_bits(self):
        words = ("determinism={mode: elastic, shards: 2}", "sampler.batch_size=null", "sampler.global_batch_size=40")
        self.assertEqual(self.hash_of("two", "--nproc", "2", *words), self.hash_of("one", *words))


WORDS = """
seed: 3
dataset: {path: text.txt, tokens: {tokenizer: words, block_size: 8}, split: {test: 0.2, shuffle: false}}
sampler: {type: batchify, global_batch_size: 4}
model:
  init: [{uniform: {match: encoder.weight, from: -1, to: 1}}]
  layers:
    - {embedding: {embedding_dim: 12, name: encoder}}
    - {lstm: {hidden_size: 12, num_layers: 2, dropout: 0.1, carry_state: true, name: rnn}}
    - {linear: {out: 43, tie: encoder.weight, name: decoder}}
loss: cross_entropy
optimizer: {type: sgd, lr: 2.0}
schedule: {type: reduce_on_plateau, factor: 0.25, patience: 0, threshold: 0}
train: {epochs: 3, clip_grad_norm: 0.25, metrics: [perplexity], log_every: 1}
checkpoint: {save_every: {steps: 5}, keep: 0}
"""


GPU = os.path.join(os.path.dirname(os.path.dirname(program.BINARY)), "emulation")


class CarriedState(program.Case):
    def setUp(self):
        super().setUp()
        words, state = [f"w{i}" for i in range(41)], 1
        for i in range(900):  # each word depends on one a few steps before
            state = (state * 7 + i % 5) % 41
            words.append(f"w{state}" if i % 9 else f"w{state}\n")
        self.write("text.txt", " ".join(words))
        self.write("words.yaml", WORDS)

    def train(self, run, *words, **options):
        self.run_program("words.yaml", "--run-dir", run, *words, **options)
        return self.sha(run)

    def test_resume_and_processes(self):
        """The state is that of the rows of the global batch: in checkpoints, and the same on any number of processes."""
        whole = self.train("whole")
        self.run_program("words.yaml", "--run-dir", "parts", "--stop-after", 7, code=None)
        self.assertEqual(self.train("parts"), whole)
        self.assertEqual(self.train("again", env={"OMP_NUM_THREADS": "1"}), whole)
        self.train("two", "--nproc", 2)
        self.assert_close(self.losses("two"), self.losses("whole"), 2e-4, "the same rows and states")
        self.train("zero", "train.epochs=1", "model.layers.1.lstm.carry_state=false")
        self.assertNotAlmostEqual(self.losses("zero")[8], self.losses("whole")[8], 6)
        self.assertEqual(self.losses("zero")[0], self.losses("whole")[0])
        run = self.events("epoch", "whole")[-1]
        self.assertAlmostEqual(run["val_perplexity"], math.exp(run["val_loss"]), 4)
        result = json.loads(self.run_program("eval", "whole", "--checkpoint", "newest")[0])
        self.assertAlmostEqual(result["loss"], run["val_loss"], 6)

    def test_weights_without_a_state_begin_a_run(self):
        """The state of the rows is no weight: it is neither needed nor used, whatever rows it is of."""
        plain = "model.layers.1.lstm.carry_state=false"
        self.train("plain", plain, "train.epochs=1", "checkpoint.save_every=1")
        self.run_program("words.yaml", "--run-dir", "carried", "--stop-after", 7, code=None)
        few = "sampler.global_batch_size=2"
        for run, extension, *words in (("plain", "safetensors"), ("plain", "pt"), ("carried", "pt"), ("carried", "safetensors", few), ("carried", "pt", plain),
                                       ("plain", ""), ("carried", "", few), ("carried", "", plain)):
            with self.subTest(run=run, extension=extension, words=words):
                source = f"w.{extension}" if extension else run
                if extension:
                    self.run_program("export", run, "--out", source)
                self.run_program("check", "words.yaml", f"model.init_from={source}", *words)
                self.train("next", "train.epochs=1", f"model.init_from={source}", "optimizer.lr=0", "--fresh", *words)
                with h5py.File(self.checkpoints(run)[-1]) as before, h5py.File(self.checkpoints("next")[-1]) as after:
                    for name in set(before["model"]) - {"rnn.carried_state"}:
                        self.assertTrue((before["model"][name][()] == after["model"][name][()]).all(), name)
        self.run_program("eval", "carried", few)
        state = f"checkpoint.resume={self.checkpoints('carried')[-1]}"  # of the middle of an epoch, which goes on with the state of the rows
        self.run_program("words.yaml", "--run-dir", "other", state, plain, code=program.DATA, err="model/rnn.carried_state")

    def test_windows_of_any_length(self):
        """With the weights as they are, the state makes one text of the windows."""
        losses, texts = {}, {}
        self.write("new.txt", " ".join(f"w{i * i % 41}" for i in range(65)))
        for block, carry in ((8, "true"), (32, "true"), (64, "true"), (8, "false"), (64, "false")):
            run = f"{block}-{carry}"
            self.train(run, "optimizer.lr=0", "train.steps=1", "train.epochs=null", f"dataset.tokens.block_size={block}", "sampler.global_batch_size=1",
                       f"model.layers.1.lstm.carry_state={carry}", "dataset.split=null", "dataset.validation=new.txt", "train.evaluate_every=1")
            losses[run] = json.loads(self.run_program("eval", run)[0])["loss"]
            texts[run] = self.run_program("generate", run, "--prompt", " ".join(f"w{i % 41}" for i in range(30)), "--characters", 40, "--seed", 1)[0]
        for run in "32-true", "64-true", "64-false":
            self.assertAlmostEqual(losses["8-true"], losses[run], 5, run)
        self.assertGreater(abs(losses["8-false"] - losses["64-false"]), 1e-4)
        self.assertEqual(texts["8-true"], texts["64-true"])
        self.assertEqual(texts["8-true"].count(" "), 69 - texts["8-true"].count("\n") + texts["8-true"].endswith("\n"))

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "not installed here: python3-torch, of scripts/install-deps.sh check")
    def test_learned_state_of_the_first_batch(self):
        """The losses are those of PyTorch, where the state is the parameter in the first batch of an epoch, and a constant in the others."""
        import h5py
        import numpy as np
        import torch
        from torch import nn
        draws = np.random.default_rng(5)
        x, y = draws.normal(size=(40, 5, 3)).astype("f4"), draws.normal(size=(40, 5, 2)).astype("f4")
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"], f["y"] = x, y
        for cell, layer in (("lstm", nn.LSTM), ("gru", nn.GRU)):
            torch.manual_seed(1)
            model = nn.ModuleDict({"rnn": layer(3, 6, 2, batch_first=True), "out": nn.Linear(6, 2)})
            states = ["h0", "c0"][:2 if cell == "lstm" else 1]
            for name in states:
                model["rnn"].register_parameter(name, nn.Parameter(torch.randn(2, 1, 6)))
            torch.save(model.state_dict(), self.path("start.pt"))
            self.write("words.yaml", "dataset: {path: rows.h5}\nsampler: {type: batchify, global_batch_size: 4}\nmodel:\n  init_from: {file: start.pt, partial: true}\n"
                       f"  layers: [{{{cell}: {{hidden_size: 6, num_layers: 2, carry_state: true, initial_state: learned, name: rnn}}}}, {{linear: {{out: 2, name: out}}}}]\n"
                       "loss: mse\noptimizer: {type: sgd, lr: 0.5}\ntrain: {epochs: 3, log_every: 1}\ncheckpoint: {save_every: {steps: 5}, keep: 0}\n")
            whole = self.train(cell)
            model.double()
            optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.5), []
            for _ in range(3):
                state = tuple(getattr(model["rnn"], name).expand(-1, 4, -1).contiguous() for name in states)
                for batch in range(10):
                    rows = [part * 10 + batch for part in range(4)]
                    output, state = model["rnn"](torch.tensor(x[rows]).double(), state if cell == "lstm" else state[0])
                    loss = nn.functional.mse_loss(model["out"](output), torch.tensor(y[rows]).double())
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
                    state = tuple(s.detach() for s in (state if cell == "lstm" else (state,)))
            self.assert_close(self.losses(cell), losses, 2e-6, "the losses of PyTorch in float64")
            self.run_program("export", cell, "--out", "final.pt")
            final = torch.load(self.path("final.pt"))
            for name, value in model.state_dict().items():
                self.assertLess((final[name] - value).abs().max().item(), 2e-5, name)
            self.run_program("words.yaml", "--run-dir", f"{cell}-parts", "--stop-after", 7, code=None)
            self.assertEqual(self.train(f"{cell}-parts"), whole)
            self.train(f"{cell}-two", "--nproc", 2)
            self.assert_close(self.losses(f"{cell}-two"), self.losses(cell), 1e-5, "the same rows and states")

    @unittest.skipUnless(os.path.exists(GPU), "this build has no emulated GPU")
    def test_on_gpus(self):
        """Recorded steps, of one process, have the same bits as others; a batch that begins an epoch is another recording."""
        env = {"DDPTRAIN_MODULE_DIR": GPU, "LD_LIBRARY_PATH": os.path.join(GPU, "driver")}
        self.write("new.txt", " ".join(f"w{i * i % 41}" for i in range(150)))
        self.write("text.txt", " ".join(self.read("text.txt").split(" ")[:400]))
        words = ("dataset.split=null", "dataset.validation=new.txt", "train.evaluate_every=1", "model.layers.1.lstm.initial_state=learned")
        self.train("cpu", *words, "--fresh")
        for run, more in (("gpu", ()), ("plain", ("train.cuda_graph=false",)), ("two", ("--nproc", 2))):
            out, err = self.run_program("words.yaml", "train.device=cuda", *words, *more, "--run-dir", run, "--fresh", env={**env, "DDPTRAIN_EMULATED_GPUS": str(1 + (run == "two"))})
            self.assertNotIn("not recorded", out + err)
            self.assert_close(self.losses(run), self.losses("cpu"), 2e-4, run)
            if run != "two":  # where an evaluation has more parts
                self.assert_close([e["val_loss"] for e in self.events("epoch", run)], [e["val_loss"] for e in self.events("epoch", "cpu")], 2e-4, run)
        self.assertEqual(self.sha("gpu"), self.sha("plain"))
        self.run_program("words.yaml", "train.device=cuda", *words, "--run-dir", "parts", "--fresh", "--stop-after", 7, code=None, env=env)
        self.run_program("words.yaml", "train.device=cuda", *words, "--run-dir", "parts", env=env)
        self.assertEqual(self.sha("parts"), self.sha("gpu"))

    def test_exports_begin_with_zero(self):
        self.write("letters.txt", "abcdefg" * 40)
        self.write("words.yaml", "dataset: {path: letters.txt, text: {block_size: 5, stride: 5}, split: {test: 0.2, shuffle: false}}\n"
                   "sampler: {type: batchify, global_batch_size: 3}\nmodel: {layers: [{embedding: 4}, {gru: {hidden_size: 5, carry_state: true}}, {linear: 7}]}\n"
                   "loss: cross_entropy\ntrain: {epochs: 1}\n")
        self.train("run")
        for extension in "onnx", "c", "safetensors":
            self.run_program("export", "run", "--out", f"model.{extension}")
            self.assertTrue(os.path.getsize(self.path(f"model.{extension}")))

    def test_refused(self):
        for words, message in (
                (["model.layers.1.lstm.bidirectional=true"], "carry_state: the reverse direction begins at the end of a row"),
                (["sampler={batch_size: 4, shuffle: false}"], "carry_state needs sampler.global_batch_size"),
                (["sampler.type=distributed"], "carry_state continues the rows of the batch before, which sampler.shuffle mixes"),
                (["sampler={type: batchify}"], "type batchify needs global_batch_size"),
                (["model.layers.0.embedding.padding_idx=0"], "carry_state needs rows without padding"),
                (["model.layers.1.lstm.initial_state=[encoder, encoder]"], "initial_state: 'encoder' is (8, 12), but must be"),
                (["determinism={mode: elastic, shards: 2}"], "its state of the rows of all ranks (carry_state) cannot be combined with determinism.mode: elastic"),
                (["dataset.path=tokens.bin"], "tokens.tokenizer: words makes tokens of a text (.txt), not of ids")):
            with self.subTest(message):
                self.run_program("check", "words.yaml", *words, code=program.USAGE, err=message)


PAIRS = """
seed: 3
dataset: {path: pairs.h5, inputs: {source: s, shifted: t}, targets: y}
sampler: {batch_size: 24, shuffle: false}
model:
  layers:
    - {embedding: {embedding_dim: 6, num_embeddings: 9, padding_idx: 0, from: source, name: words}}
    - {lstm: {hidden_size: 5, num_layers: 2, bidirectional: true, initial_state: learned, last_state: [h, c], name: encoder}}
    - {flatten: {from: h}}
    - {linear: {out: 14, name: to_h}}
    - {reshape: {shape: [2, 7], name: h0}}
    - {flatten: {from: c}}
    - {linear: {out: 14, name: to_c}}
    - {reshape: {shape: [2, 7], name: c0}}
    - {embedding: {embedding_dim: 6, num_embeddings: 9, from: shifted, name: answers}}
    - {lstm: {hidden_size: 7, num_layers: 2, initial_state: [h0, c0], name: decoder}}
    - {linear: {out: 9, name: out}}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.5, momentum: 0.9}
train: {epochs: 12, log_every: 1}
checkpoint: {save_every: {steps: 5}, keep: 0}
"""


class States(program.Case):
    """An encoder gives its last state to a decoder."""
    def setUp(self):
        super().setUp()
        import h5py
        import numpy as np
        draws = np.random.default_rng(5)
        source, answers = draws.integers(1, 9, (24, 6)), draws.integers(1, 9, (24, 5))
        source[np.arange(6) >= draws.integers(1, 7, (24, 1))] = 0
        with h5py.File(self.path("pairs.h5"), "w") as f:
            f["s"], f["t"], f["y"] = source, np.concatenate([np.zeros((24, 1), int), answers[:, :-1]], 1), answers
        self.write("pairs.yaml", PAIRS)

    def train(self, run, *words, **options):
        self.run_program("pairs.yaml", "--run-dir", run, *words, **options)
        return self.sha(run)

    def test_resume_threads_and_processes(self):
        whole = self.train("whole")
        self.run_program("pairs.yaml", "--run-dir", "parts", "--stop-after", 7, code=None)
        self.assertEqual(self.train("parts"), whole)
        self.assertEqual(self.train("again", env={"OMP_NUM_THREADS": "1"}), whole)
        two = self.train("two", "--nproc", 2, "sampler={global_batch_size: 24, shuffle: false}")
        self.assertEqual(self.train("zero", "--nproc", 2, "sampler={global_batch_size: 24, shuffle: false}", "dist.zero_stage=1", "optimizer.in_backward=false"), two)
        self.assert_close(self.losses("two"), self.losses("whole"), 1e-5, "the same rows")
        self.assertLess(self.losses("whole")[-1], self.losses("whole")[0])
        plan = self.run_program("check", "pairs.yaml")[0]
        self.assertRegex(plan, r"encoder/h +part +100 +\(4, 5\)")
        self.assertRegex(plan, r"decoder +lstm +\(5, 6\), \(2, 7\), \(2, 7\) +\(5, 7\)")
        _, err = self.run_program("check", "pairs.yaml", "model.layers.9.lstm.initial_state=null", code=program.USAGE)
        self.assertIn("encoder.h0, encoder.c0, to_h.weight, to_h.bias, to_c.weight, to_c.bias; dist.find_unused_parameters: true accepts this", err)

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "not installed here: python3-torch, of scripts/install-deps.sh check")
    def test_losses_beside_pytorch(self):
        """Those of a class of PyTorch in float64, which is written as its users do."""
        import h5py
        import torch
        from torch import nn

        class Translator(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.answers = nn.Embedding(9, 6, padding_idx=0), nn.Embedding(9, 6)
                self.encoder = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True)
                self.encoder.h0, self.encoder.c0 = nn.Parameter(torch.randn(4, 1, 5)), nn.Parameter(torch.randn(4, 1, 5))
                self.to_h, self.to_c = nn.Linear(20, 14), nn.Linear(20, 14)
                self.decoder, self.out = nn.LSTM(6, 7, 2, batch_first=True), nn.Linear(7, 9)

            def forward(self, source, shifted):
                packed = nn.utils.rnn.pack_padded_sequence(self.words(source), (source > 0).sum(1), batch_first=True, enforce_sorted=False)
                _, (h, c) = self.encoder(packed, tuple(s.expand(-1, len(source), -1).contiguous() for s in (self.encoder.h0, self.encoder.c0)))
                h, c = (bridge(s.transpose(0, 1).flatten(1)).reshape(-1, 2, 7).transpose(0, 1).contiguous() for s, bridge in ((h, self.to_h), (c, self.to_c)))
                return self.out(self.decoder(self.answers(shifted), (h, c))[0])

        torch.manual_seed(1)
        model = Translator()
        torch.save(model.state_dict(), self.path("start.pt"))
        self.train("run", "model.init_from=start.pt")
        model.double()
        with h5py.File(self.path("pairs.h5")) as f:
            source, shifted, y = (torch.as_tensor(f[name][:]).long() for name in "sty")
        optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9), []
        for _ in range(12):
            loss = nn.functional.cross_entropy(model(source, shifted).transpose(1, 2), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assert_close(self.losses("run"), losses, 2e-6, "the losses of PyTorch in float64")
        final = torch.load(self.export("run", "final.pt"))
        for name, value in model.state_dict().items():
            self.assertLess((final[name] - value).abs().max().item(), 2e-5, name)

    def export(self, run, name):
        self.run_program("export", run, "--out", name)
        return self.path(name)

    def test_text_begins_with_the_learned_state(self):
        """generate computes positions one by one, predict all of a row."""
        import h5py
        text = "".join("abcdefg"[(i * i + i // 5) % 7] for i in range(120))
        self.write("text.txt", text)
        self.write("text.yaml", "dataset: {path: text.txt, text: {block_size: 6, stride: 6}}\nsampler: {batch_size: 4}\nmodel: {init: [{normal: {match: '*', std: 2}}], "
                   "layers: [{embedding: 4}, {lstm: {hidden_size: 5, num_layers: 2, initial_state: learned}}, {linear: 7}]}\nloss: cross_entropy\ntrain: {epochs: 1}\n")
        self.run_program("text.yaml", "--run-dir", "text")
        self.run_program("predict", "text", "--part", "all", "--out", "p.h5")
        with h5py.File(self.path("p.h5")) as f:
            likeliest = f["outputs"][:].reshape(-1, 6, 7).argmax(-1)
        for row in range(4):
            for count in 1, 6:
                out, _ = self.run_program("generate", "text", "--prompt", text[row * 6:row * 6 + count], "--characters", 1, "--temperature", 0)
                self.assertEqual(out.rstrip("\n")[-1], "abcdefg"[likeliest[row][count - 1]], (row, count))
