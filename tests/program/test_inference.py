"""eval and predict: exact, the same on any number of ranks, the scaler and the weights of the checkpoint. ctest-labels: dist"""
import csv, json, os, shutil

import numpy as np

import program
from program import DATA, USAGE


class Inference(program.Case):
    def setUp(self):
        super().setUp()
        self.write("test.yaml", program.WINE)
        self.run_program("test.yaml")

    def evaluate(self, *arguments, code=0):
        out, err = self.run_program("eval", "test.yaml", *arguments, code=code)
        return json.loads(out) if code == 0 else err

    def predict(self, *arguments, out="p.csv"):
        self.run_program("predict", "test.yaml", "--out", out, *arguments)
        with open(self.path(out)) as f:
            rows = list(csv.reader(f))
        return rows[0], np.array([[float(v) for v in row] for row in rows[1:]])

    def test_eval_agrees_with_training_on_any_number_of_ranks(self):
        last = self.events("epoch")[-1]
        for world in (1, 2, 3):
            result = self.evaluate("--nproc", world)
            self.assertEqual((result["part"], result["rows"]), ("validation", 36))
            self.assertAlmostEqual(result["loss"], last["val_loss"], places=12)
            self.assertEqual(result["accuracy"], last["val_accuracy"])
        self.assertEqual(self.evaluate("--part", "train")["rows"], 142)
        self.assertEqual(self.evaluate("--checkpoint", self.checkpoints()[0])["rows"], 36)
        self.assertNotEqual(self.evaluate("--checkpoint", self.checkpoints()[0])["loss"], self.evaluate()["loss"])

    def test_predict_keeps_the_order_of_rows(self):
        import h5py
        for world in (1, 2, 5):
            names, table = self.predict("--nproc", world)
            self.assertEqual(names, ["prediction", "output_0", "output_1", "output_2"])
            with h5py.File(self.checkpoints()[-1]) as f, h5py.File(self.path("datasets/wine.h5")) as d:
                x = (d["x"][:][program.vectors("split")["n178_test0.2_seed42"]["test"]] - f["scaler/mean"][:]) / f["scaler/scale"][:]
                hidden = np.maximum(x @ f["model/0.weight"][:].T + f["model/0.bias"][:], 0)
                expected = hidden @ f["model/2.weight"][:].T + f["model/2.bias"][:]
            np.testing.assert_allclose(table[:, 1:], expected, atol=2e-6)
            np.testing.assert_array_equal(table[:, 0], expected.argmax(1))
            self.run_program("predict", "test.yaml", "--out", "p.h5", "--nproc", world)
            with h5py.File(self.path("p.h5")) as f:
                np.testing.assert_array_equal(f["outputs"][:], table[:, 1:].astype("<f4"))
                np.testing.assert_array_equal(f["prediction"][:], table[:, 0])

    def test_new_rows_use_the_old_scaler(self):
        """The first five rows as a file of their own: the scaler must not be fitted to them."""
        import h5py
        with h5py.File(self.path("datasets/wine.h5")) as d, h5py.File(self.path("five.h5"), "w") as f:
            f["x"], f["y"] = d["x"][:5], d["y"][:5]
        _, few = self.predict("dataset.path=five.h5", "dataset.split.test=0")
        _, all_ = self.predict("dataset.split.test=0")
        self.assertEqual((len(few), len(all_)), (5, 178))
        np.testing.assert_array_equal(few, all_[:5])

    def test_nothing_in_the_run_folder_changes(self):
        def state():
            return {p: os.stat(os.path.join(r, p)).st_mtime_ns for r, _, files in os.walk(self.path("runs")) for p in files}
        before = state()
        self.evaluate()
        self.predict()
        self.assertEqual(before, state())

    def test_the_config_of_a_run_folder_means_that_run(self):
        """runs/test has other weights than the folder whose config.yaml is named."""
        self.run_program("test.yaml", "train.epochs=1", "--run-dir", "kept/one")
        for config in ("kept/one/config.yaml", self.path("kept/one/config.yaml")):
            _, err = self.run_program("eval", config)
            self.assertIn("kept/one/checkpoints/epoch-0001.h5: epoch 1, step 5", err)
        _, err = self.run_program("predict", "kept/one/config.yaml", "--run-dir", "runs/test", "--out", "p.csv")
        self.assertIn("runs/test/checkpoints/", err)
        _, err = self.run_program("eval", "test.yaml", "--checkpoint", "kept/one")
        self.assertIn("kept/one/checkpoints/epoch-0001.h5: epoch 1, step 5", err)

    def test_refused(self):
        for arguments, code, sentence in (
                (["--part", "test"], USAGE, "--part: expected validation or train, got 'test'"),
                (["--part", "validation", "dataset.split.test=0"], USAGE, "neither dataset.split nor dataset.validation"),
                (["--run-dir", "runs/none"], DATA, "runs/none has no checkpoint"),
                (["--checkpoint", "none.h5"], DATA, "there is no such checkpoint"),
                (["model.layers.0.linear.out=8"], DATA, "0.weight: (64, 13) in the file, (8, 13) in the config")):
            with self.subTest(arguments):
                self.assertIn(sentence, self.evaluate(*arguments, code=code))
        for arguments, sentence in ((["predict", "test.yaml"], "predict needs --out"),
                                    (["predict", "test.yaml", "--out", "p.npz"], "the formats are .csv and .h5")):
            _, err = self.run_program(*arguments, code=USAGE)
            self.assertIn(sentence, err)
        self.run_program("predict", "test.yaml", "--out", "/proc/none/p.csv", code=program.IO)


if __name__ == "__main__":
    program.main()
