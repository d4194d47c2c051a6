"""Folders of images as a run sees them: cached or decoded for each batch, several ranks, predictions. ctest-labels: dist"""
import os
import shutil

import program

CONFIG = """
name: test
dataset: {path: datasets/shapes, image: {size: 16}, split: {test: 0.2, seed: 1}}
sampler: {global_batch_size: 32}
model: {layers: [flatten, {linear: 16}, relu, {linear: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.01}
train: {epochs: 2}
"""


class Images(program.Case):
    def test_cached_or_not(self):
        """Rows that are decoded for each batch, by any number of threads, give the same run."""
        self.write("test.yaml", CONFIG)
        self.run_program("test.yaml")
        for threads in (1, 3):
            self.run_program("test.yaml", "--run-dir", f"runs/{threads}", "dataset.cache_mb=0", f"dataset.image.threads={threads}")
            self.assertEqual(self.sha(f"runs/{threads}"), self.sha())
        self.run_program("test.yaml", "--run-dir", "runs/ranks", "--nproc", "2", "dataset.cache_mb=0")
        self.assert_close(self.losses("runs/ranks"), self.losses(), 1e-5)

    def test_predictions(self):
        """A folder with other classes in other places, and one without classes."""
        self.write("test.yaml", CONFIG)
        self.run_program("test.yaml")
        shutil.copytree(os.path.join(program.SOURCE, "datasets/shapes/square"), self.path("new/square"))
        shutil.copytree(os.path.join(program.SOURCE, "datasets/shapes/square"), self.path("flat"))
        self.run_program("predict", "test.yaml", "dataset.path=new", "--part", "all", "--out", "new.csv")
        self.run_program("predict", "test.yaml", "dataset.path=flat", "--part", "all", "--out", "flat.csv")
        self.assertEqual(self.read("new.csv"), self.read("flat.csv"))
        self.assertEqual(len(self.read("new.csv").splitlines()), 41)
        out, _ = self.run_program("predict", "test.yaml", "flat", "--with-inputs")
        lines = out.splitlines()
        self.assertEqual(lines[0], "file,row,prediction")
        self.assertEqual([line.split(",")[0] for line in lines[1:]], [f"flat/{name}" for name in sorted(os.listdir(self.path("flat")))])
        out, _ = self.run_program("predict", "test.yaml", "--with-inputs")  # the validation rows of the split
        files = [line.split(",")[:2] for line in out.splitlines()[1:]]
        every = self.run_program("predict", "test.yaml", "--with-inputs", "--part", "all")[0].splitlines()[1:]
        self.assertEqual(len(files), 24)
        for name, row in files:
            self.assertEqual(every[int(row)].split(",")[0], name)
        self.run_program("eval", "test.yaml", "dataset.path=new", "--part", "all", out='"rows":40')
        os.rename(self.path("new/square"), self.path("new/star"))
        _, err = self.run_program("eval", "test.yaml", "dataset.path=new", "--part", "all", code=program.DATA)
        self.assertIn("new: class 'star' is not in the data that the model was trained with", err)

    def test_inspect(self):
        out, _ = self.run_program("inspect", "datasets/shapes")
        self.assertIn("format  images, 120 images, 3 classes\n", out)
        self.assertRegex(out, r"circle +40 images, the first: PNG \d+x\d+\n")

    def test_photos_that_lie_on_their_side(self):
        """They are turned on request; else a warning names one of them, and does not stop a file that cannot be read."""
        for name in ("all", "other"):
            shutil.copytree(os.path.join(program.SOURCE, "tests/vectors/oriented/all"), self.path(f"photos/{name}"))
        warning = ("14 of 20 images that were examined, such as photos/all/2.jpg, have an orientation in their EXIF data that is not applied; "
                   "dataset.image.exif_orientation: true turns them upright")
        self.write("test.yaml", CONFIG.replace("datasets/shapes", "photos").replace("linear: 3", "linear: 2"))
        self.assertIn("\nwarning        " + warning, self.run_program("check", "test.yaml")[0])
        self.run_program("test.yaml")
        self.assertIn("warning: " + warning, self.read("runs/test/log.txt"))
        turned = "dataset.image.exif_orientation=true"
        self.assertNotIn("EXIF", self.run_program("check", "test.yaml", turned)[0])
        self.run_program("test.yaml", turned, "--run-dir", "runs/turned")
        self.assertNotEqual(self.losses("runs/turned"), self.losses())
        self.run_program("test.yaml", turned, "--run-dir", "runs/ranks", "--nproc", "2", "dataset.cache_mb=0")
        self.assert_close(self.losses("runs/ranks"), self.losses("runs/turned"), 1e-5)
        os.remove(self.path("photos/all/3.jpg"))
        os.mkdir(self.path("photos/all/3.jpg"))
        self.run_program("check", "test.yaml")

    def test_a_class_with_the_name_of_a_file(self):
        shutil.copytree(os.path.join(program.SOURCE, "datasets/shapes"), self.path("photos"))
        os.rename(self.path("photos/square"), self.path("photos/square.jpg"))
        os.rename(self.path("photos/circle"), self.path("photos/circle.gif"))
        self.write("test.yaml", CONFIG.replace("datasets/shapes", "photos"))
        self.run_program("test.yaml")
        for words in (("photos",), ("--part", "all")):
            out, _ = self.run_program("predict", "test.yaml", *words)
            self.assertEqual(len(out.splitlines()), 121)

    def test_images_beside_the_classes(self):
        """They are not used, and a warning names one of them."""
        shutil.copytree(os.path.join(program.SOURCE, "datasets/shapes"), self.path("photos"))
        self.write("test.yaml", CONFIG.replace("datasets/shapes", "photos"))
        os.makedirs(self.path("photos/.ipynb_checkpoints"))  # hidden
        shutil.copy(self.path("photos/square/00.png"), self.path("photos/.ipynb_checkpoints/00.png"))
        self.write("photos/square/._01.png", "no image")
        self.write("photos/.cover.png", "no image")
        self.assertNotIn("warning", self.run_program("check", "test.yaml")[0])
        for names, warning in ((["a.png"], "1 image beside the folders of the classes, such as photos/a.png, is not used; move it into the folder of a class"),
                               (["b.jpg", "c.gif", "notes.txt"], "3 images beside the folders of the classes, such as photos/a.png, are not used; "
                                                                 "move them into the folder of a class")):
            for name in names:
                shutil.copy(self.path("photos/square/00.png"), self.path(f"photos/{name}"))
            self.assertIn("\nwarning        " + warning, self.run_program("check", "test.yaml")[0])
            self.run_program("inspect", "photos", out=f"120 images, 3 classes\n\nwarning: {warning}\n\n")
        self.run_program("test.yaml")
        self.assertIn("warning: " + warning, self.read("runs/test/log.txt"))

    def test_a_damaged_image(self):
        shutil.copytree(os.path.join(program.SOURCE, "datasets/shapes"), self.path("photos"))
        with open(self.path("photos/square/07.png"), "r+b") as f:
            f.truncate(100)
        self.write("test.yaml", CONFIG.replace("datasets/shapes", "photos"))
        message = "photos/square/07.png: the image is damaged: the file is truncated; replace or remove the file"
        self.run_program("test.yaml", code=program.DATA, err=message)
        self.run_program("check", "test.yaml")  # reads no image
        for cached in ((), ("dataset.cache_mb=0",)):
            self.run_program("check", "test.yaml", "--data", *cached, code=program.DATA, err=message)
