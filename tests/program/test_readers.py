"""Others can read what ddptrain writes: h5py, h5dump, json; and inspect shows it. ctest-labels: unit"""
import hashlib, json, shutil, subprocess, unittest

import numpy as np

import program


class Readers(program.Case):
    def setUp(self):
        super().setUp()
        self.write("test.yaml", program.WINE)
        self.run_program("test.yaml")
        self.file = self.checkpoints()[-1]

    def test_h5py(self):
        import h5py
        with h5py.File(self.file) as f:
            shapes = {name: f["model"][name].shape for name in f["model"]}
            self.assertEqual(shapes, {"0.weight": (64, 13), "0.bias": (64,), "2.weight": (3, 64), "2.bias": (3,)})
            self.assertEqual(set(f["optimizer"]), {"exp_avg", "exp_avg_sq"})
            self.assertEqual(int(f["state/step"][()]), 50)
            self.assertEqual(int(f["state/epoch"][()]), 10)
            expected = program.vectors("split")["scaler_wine_train"]
            np.testing.assert_allclose(f["scaler/mean"][:], expected["mean"], rtol=1e-15)
            np.testing.assert_allclose(f["scaler/scale"][:], expected["scale"], rtol=1e-15)
            # the state's hash can be computed by any program: parameters, optimizer state, counters, as stored in the file
            h = hashlib.sha256()
            names = ["0.weight", "0.bias", "2.weight", "2.bias"]
            for group in ("model", "optimizer/exp_avg", "optimizer/exp_avg_sq"):
                for name in names:
                    h.update(f[group][name][:].astype("<f4").tobytes())
            for counter in ("epoch", "batch", "step", "samples"):
                h.update(np.int64(f["state"][counter][()]).tobytes())
            self.assertEqual(h.hexdigest(), self.sha())

    def test_validation_accuracy_from_the_file(self):
        """The saved weights, run by numpy on the saved scaler, give the logged validation loss."""
        import h5py
        with h5py.File(self.file) as f, h5py.File(self.path("datasets/wine.h5")) as d:
            rows = program.vectors("split")["n178_test0.2_seed42"]["test"]
            x = (d["x"][:][rows] - f["scaler/mean"][:]) / f["scaler/scale"][:]
            y = d["y"][:][rows]
            hidden = np.maximum(x @ f["model/0.weight"][:].T + f["model/0.bias"][:], 0)
            z = hidden @ f["model/2.weight"][:].T + f["model/2.bias"][:]
        loss = np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y])
        self.assertAlmostEqual(self.events("epoch")[-1]["val_loss"], float(loss), places=5)
        self.assertAlmostEqual(self.events("epoch")[-1]["val_accuracy"], float((z.argmax(1) == y).mean()), places=9)

    def test_h5dump(self):
        h5dump = shutil.which("h5dump")
        if not h5dump:
            raise unittest.SkipTest("h5dump (hdf5-tools) is not installed")
        out = subprocess.run([h5dump, "-H", self.file], capture_output=True, text=True, check=True).stdout
        self.assertIn('DATASET "0.weight"', out)

    def test_the_seal_of_a_large_file(self):
        """As docs/checkpoints.md says how others check it."""
        self.write("large.yaml", program.WINE.replace("linear: {out: 64}", "linear: {out: 40000}").replace("epochs: 10", "epochs: 1"))
        self.run_program("large.yaml", "--run-dir", "runs/large")
        file = self.checkpoints("runs/large")[-1]
        out, _ = self.run_program("inspect", file)
        chunk = 4 << 20
        with open(file, "rb") as f:
            image, trailer = (lambda whole: (whole[:-128], whole[-128:]))(f.read())
        self.assertGreater(len(image), chunk)
        hashes = b"".join(hashlib.sha256(image[at:at + chunk]).digest() for at in range(0, len(image), chunk))
        expected = hashlib.sha256(hashes).hexdigest()
        self.assertIn(f"sha256 of the hashes of its 4 MiB chunks {expected}\n", out)
        self.assertEqual(trailer[32:64].hex(), expected)
        self.assertEqual((trailer[16], trailer[72:80]), (2, chunk.to_bytes(8, "little")))
        if shutil.which("openssl"):
            command = f"head -c -128 '{file}' | split -b 4M --filter='openssl dgst -sha256 -binary' | sha256sum"
            found = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
            self.assertEqual(found.split()[0], expected)
        self.run_program("eval", "runs/large")

    def test_inspect(self):
        self.run_program("inspect", self.file, out=("0.weight", "(64, 13)", "exp_avg_sq", "sha256"))
        self.run_program("inspect", "datasets/wine.h5", out="(178, 13)")

    def test_metrics_are_json_with_all_digits(self):
        events = [m["event"] for m in self.metrics()]
        self.assertEqual(events[0], "start")
        self.assertEqual(events[-1], "end")
        self.assertEqual(events.count("step"), 50)
        self.assertEqual(events.count("epoch"), 10)
        self.assertEqual(events.count("checkpoint"), 2)
        for key in ("epoch", "step", "loss", "lr", "grad_norm", "samples", "seconds"):
            self.assertIn(key, self.events("step")[0])

    def test_schema_accepts_the_shipped_configs(self):
        schema = json.loads(self.run_program("--schema")[0])
        self.assertEqual(schema.get("type"), "object")
        self.assertFalse(schema["additionalProperties"])
        self.assertEqual(set(schema["properties"]), {"base", "variables", "extensions", "name", "seed", "dataset", "sampler", "model", "loss", "losses", "optimizer", "schedule",
                                                     "train", "checkpoint", "dist", "determinism"})
