"""Images whose targets are in a CSV file of labels or in masks, as a run sees them; predictions of single images. The runs are those
of arrays with the same numbers. ctest-labels: dist"""
import os
import shutil
import struct
import zlib

import numpy as np
import program

CONFIG = """
name: test
dataset: {DATASET, split: {test: 0.25, seed: 1}}
sampler: {batch_size: 4}
model: {layers: [LAYERS]}
loss: LOSS
optimizer: {type: adam, lr: 0.01}
train: {epochs: 2, metrics: [METRIC]}
"""
ROWS, SIZE = 12, 8
GREY, RGB, PALETTE = 0, 2, 3
DENSE = "flatten, {linear: 3}"
PIXELS = "{conv2d: {out: 4, kernel_size: 3, padding: 1}}"


def write_png(path, pixels, kind, bits=8):
    """pixels: (height, width) or (height, width, 3) bytes; of 1 bit a row must have whole bytes."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    height, width = pixels.shape[:2]
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    lines = np.packbits(pixels, axis=1) if bits == 1 else pixels.reshape(height, -1)
    body = b"".join(b"\0" + line.astype("u1").tobytes() for line in lines)
    palette = chunk(b"PLTE", bytes(range(256)) * 3) if kind == PALETTE else b""
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)) + palette
                + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b""))


class Targets(program.Case):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(0)
        self.images = random.integers(0, 256, (ROWS, SIZE, SIZE, 3))
        self.masks = random.integers(0, 4, (ROWS, SIZE, SIZE))
        self.points = random.uniform(size=(ROWS, 2)).round(3)
        for row, image in enumerate(self.images):
            write_png(self.path(f"photos/{row:02}.png"), image, RGB)

    def config(self, name, dataset, layers, loss, metric):
        text = CONFIG
        for word, value in (("DATASET", dataset), ("LAYERS", layers), ("LOSS", loss), ("METRIC", metric)):
            text = text.replace(word, value)
        return self.write(name, text)

    def assert_same_run(self, targets, dataset, layers, loss, metric):
        """The images with these keys give the run of an array with these targets, cached and not."""
        np.savez(self.path("same.npz"), x=self.images.transpose(0, 3, 1, 2).astype("u1"), y=targets)
        self.config("same.yaml", "path: same.npz, divide: 255", layers, loss, metric)
        self.run_program("same.yaml", "--run-dir", "runs/same")
        self.config("test.yaml", f"path: photos, image: {{size: {SIZE}, {dataset}", layers, loss, metric)
        for cache in (1024, 0):
            self.run_program("test.yaml", "--fresh", f"dataset.cache_mb={cache}")
            self.assertEqual(self.losses(), self.losses("runs/same"))

    def write_labels(self, lines, name="labels.csv"):
        self.write(name, "\n".join(lines) + "\n")

    def test_values(self):
        order = [5, 3, 11, 0, 1, 2, 4, 6, 7, 8, 9, 10]  # rows are those of the file of labels
        self.write_labels(["id,x,note,y"] + [f"{row:02}.png,{x},n,{y}" for row in order for x, y in [self.points[row]]])
        self.images, points = self.images[order], self.points[order]
        self.assert_same_run(points, "labels: labels.csv}, targets: [x, y]", "flatten, {linear: 2}", "mse", "mae")
        warning = "\nwarning        dataset.augment moves the pixels of an image, but not its 2 targets; leave it out if they are coordinates"
        for words, is_warned in ((["dataset.augment={horizontal_flip: 0.5}"], True), (["dataset.augment={horizontal_flip: 0}"], False),
                                 (["dataset.augment={horizontal_flip: 0.5}", "dataset.targets=x", "model.layers=[flatten, {linear: 1}]"], False)):
            self.assertEqual(warning in self.run_program("check", "test.yaml", *words)[0], is_warned, words)
        out, _ = self.run_program("predict", "test.yaml", "--part", "all", "--with-inputs")
        lines = out.splitlines()
        self.assertEqual(lines[0], "file,row,x,y")
        self.assertEqual(lines[1].split(",")[0], "photos/05.png")
        out, err = self.run_program("predict", "runs/test", "photos")  # a folder needs no labels; its order is that of the names
        self.assertEqual(out.splitlines()[0], "row,x,y")
        self.assertEqual(out.splitlines()[6].split(",")[1:], lines[1].split(",")[2:])
        self.assertNotIn("could not be compared", err)
        out, _ = self.run_program("predict", "runs/test", "photos/05.png", "--with-inputs")
        self.assertEqual(out.splitlines()[1:], [lines[1]])
        self.run_program("predict", "runs/test", "photos/99.png", code=program.DATA, err="cannot read the image 'photos/99.png': No such file or directory")
        self.write_labels(["id,y,x", "00,1,2", "03,3,4"], "other.csv")  # columns by name, in another order, without extensions
        for words in ("dataset.image.labels=other.csv", f"dataset.image={{size: {SIZE}, labels: other.csv}}"):
            self.run_program("eval", "runs/test", "photos", words, out='"rows":2')
        self.run_program("test.yaml", "train.epochs=3")  # a resume

    def test_names_that_are_numbers(self):
        """They are compared as texts, and one such as NA is no missing value; the file may be in another encoding."""
        for row, name in enumerate(("9007199254740992", "9007199254740993", "01", "1", "NA", "nan")):
            shutil.copy(self.path(f"photos/{row:02}.png"), self.path(f"photos/{name}.png"))
        names = ["9007199254740993", "9007199254740992", "1", "01", "nan", "NA", "07", "08"]
        with open(self.path("labels.csv"), "w", encoding="latin-1") as f:
            f.write("id,größe\n" + "".join(f"{name},{i}\n" for i, name in enumerate(names)))
        rows = [1, 0, 3, 2, 5, 4, 7, 8]
        self.images = self.images[rows]
        self.assert_same_run(np.arange(8, dtype="f4").reshape(8, 1), "labels: labels.csv}", "flatten, {linear: 1}", "mse", "mae")

    def test_classes(self):
        names = ["cat", "a dog", "cat", "eel"] * 3
        self.write_labels(["kind,file"] + [f"{name},{row:02}" for row, name in enumerate(names)])
        self.assert_same_run(np.array([["a dog", "cat", "eel"].index(name) for name in names]),
                             "labels: labels.csv, column: file}, targets: kind", DENSE, "cross_entropy", "f1")
        out, _ = self.run_program("predict", "test.yaml", "--part", "all")
        self.assertLessEqual({line.split(",")[1] for line in out.splitlines()[1:]}, set(names))
        self.run_program("export", "runs/test", "--out", "model.onnx")
        self.run_program("export", "runs/test", "--out", "model.c")

    def test_validation_files(self):
        self.write_labels(["file,kind"] + [f"{row:02},{'ab'[row % 2]}" for row in range(8)], "train.csv")
        self.write_labels(["file,kind"] + [f"{row:02},b" for row in range(8, 12)], "val.csv")
        text = CONFIG.replace(", split: {test: 0.25, seed: 1}", "")
        self.write("test.yaml", text.replace("LAYERS", DENSE).replace("LOSS", "cross_entropy").replace("METRIC", "").replace(
            "DATASET", "path: photos, image: {size: 8, labels: train.csv}, validation: {path: photos, targets: val.csv}"))
        self.run_program("test.yaml")
        self.run_program("eval", "test.yaml", out='"rows":4')
        _, err = self.run_program("test.yaml", "--fresh", "dataset.validation.targets=null", code=program.USAGE)
        self.assertIn("dataset.validation.targets is missing: give the CSV file of the labels of the images in 'photos'", err)

    def test_an_evaluation_needs_labels_too(self):
        """The folders of other images are no classes of a model that was trained with a file of labels."""
        self.config("test.yaml", "path: photos, image: {size: 8, labels: labels.csv}", DENSE, "cross_entropy", "f1")
        self.write_labels(["file,kind", *(f"{i:02}.png,{'ab'[i % 2]}" for i in range(4))])
        self.run_program("test.yaml")
        shutil.copytree(self.path("photos"), self.path("new/sub"))
        self.assertIn("class 'sub' is not in the data that the model was trained with; that had a file of labels: give dataset.image.labels=FILE",
                      self.run_program("eval", "runs/test", "new", code=program.DATA)[1])
        self.run_program("eval", "runs/test", "photos", "dataset.image.labels=labels.csv")
        shutil.copytree(self.path("photos"), self.path("classes/a"))
        self.run_program("eval", "runs/test", "classes")

    def test_mistakes_in_labels(self):
        self.config("test.yaml", "path: photos, image: {size: 8, labels: labels.csv}", DENSE, "cross_entropy", "f1")
        for lines, code, message in (
                (["file,kind", "00.png,a", "12.png,b"], program.DATA,
                 "labels.csv:line 3: column 'file': there is no image '12.png' in the folder 'photos'"),
                (["file,kind", "00.webp,a"], program.DATA, "photos/00.webp: only JPEG and PNG images are read"),
                (["file,kind", "00.png,a", "01.png,"], program.DATA, "labels.csv:line 3")):
            self.write_labels(lines)
            self.assertIn(message, self.run_program("test.yaml", code=code)[1])
        for words, code, message in (
                (["dataset.image.labels=none.csv"], program.DATA, "dataset.image.labels"),
                (["dataset.image.labels=null"], program.DATA, "give dataset.image.labels, a CSV file with a row for each image"),
                (["dataset.image.labels=null", "dataset.image.column=file"], program.USAGE, "dataset.image.column is a column of dataset.image.labels"),
                (["dataset.image.labels=null", "dataset.targets=x"], program.USAGE, "dataset.targets: the columns of images are those of"),
                (["dataset.image.masks=photos"], program.USAGE, "labels and masks exclude each other; give one")):
            with self.subTest(words):
                self.assertIn(message, self.run_program("test.yaml", *words, code=code)[1])

    def test_masks(self):
        for row, mask in enumerate(self.masks):
            write_png(self.path(f"masks/{row:02}.png"), mask, PALETTE if row % 2 else GREY)
        self.assert_same_run(self.masks, "masks: masks}", PIXELS, "cross_entropy", "mean_iou")
        self.run_program("predict", "test.yaml", "photos", "--out", "out.h5")
        self.run_program("predict", "test.yaml", "photos/03.png")

    def test_binary_masks(self):
        for row, mask in enumerate(self.masks % 2):
            kinds = (mask, GREY, 1), (mask, GREY, 8), (mask * 255, GREY, 8)
            write_png(self.path(f"masks/{row:02}.png"), *kinds[row % 3])
        self.assert_same_run((self.masks % 2).astype("f4"), "masks: masks}", PIXELS.replace("4", "1"), "bce_with_logits", "f1")

    def test_resized_masks(self):
        """The nearest pixel of the mask, as Pillow's NEAREST, of the middle that is cut out."""
        random = np.random.default_rng(1)
        self.images = np.zeros((1, SIZE, SIZE, 3), int)
        big = random.integers(0, 200, (23, 37))
        for row in range(ROWS):
            write_png(self.path(f"photos/{row:02}.png"), np.zeros((23, 37, 3)), RGB)
            write_png(self.path(f"masks/{row:02}.png"), big, GREY)
        side = int(8 * 37 / 23)  # of the longer side; the crop begins at its middle
        first = round((side - 8) / 2)
        rows, columns = (np.arange(8) + 0.5) * 23 / 8, (np.arange(first, first + 8) + 0.5) * 37 / side
        self.images = np.zeros((ROWS, SIZE, SIZE, 3), int)
        self.assert_same_run(np.stack([big[rows.astype(int)][:, columns.astype(int)]] * ROWS), "masks: masks}",
                             PIXELS.replace("4", "200"), "cross_entropy", "mean_iou")

    def test_masks_of_photos_that_lie_on_their_side(self):
        """A mask has the size of the upright image."""
        vectors = os.path.join(program.SOURCE, "tests/vectors/oriented/all")
        shutil.rmtree(self.path("photos"))
        shutil.copytree(vectors, self.path("photos"))
        for orientation in range(10):  # stored with 31 x 45 pixels
            write_png(self.path(f"masks/{orientation}.png"), np.zeros((45, 31) if 5 <= orientation <= 8 else (31, 45)), GREY)
        self.config("test.yaml", "path: photos, image: {size: 8, exif_orientation: true, masks: masks}", PIXELS, "cross_entropy", "mean_iou")
        out, _ = self.run_program("check", "test.yaml", "--data")
        self.assertNotIn("EXIF", out)
        _, err = self.run_program("check", "test.yaml", "dataset.image.exif_orientation=false", code=program.DATA)
        self.assertIn("masks/5.png: the mask has 31 x 45 pixels, but its image 'photos/5.jpg' has 45 x 31; "
                      "dataset.image.exif_orientation: true turns the image upright\n", err)

    def test_inspect(self):
        self.run_program("inspect", "photos", out="format  images, 12 images, 0 classes\n")
        out, _ = self.run_program("inspect", "photos/03.png")
        self.assertEqual(out, "file    photos/03.png\nformat  PNG 8x8\n")

    def test_pixels_without_class(self):
        """255 marks them in many datasets, and 0 and 255 are the values of many masks of two classes."""
        for row, mask in enumerate(self.masks):
            write_png(self.path(f"masks/{row:02}.png"), np.where(mask == 3, 255, mask), GREY)
        self.config("test.yaml", "path: photos, image: {size: 8, masks: masks}", PIXELS, "cross_entropy", "mean_iou")
        self.run_program("test.yaml", code=program.USAGE, err="if 255 means that a pixel has no class, write loss: {ignore_index: 255}")
        self.run_program("test.yaml", "loss={type: cross_entropy, ignore_index: 255}")
        for name, message in (("iou", "did you mean 'mean_iou'?"), ("dice", "did you mean 'f1'?")):
            self.assertIn(message, self.run_program("check", "test.yaml", f"train.metrics=[{name}]", code=program.USAGE)[1])
        for name, message in (("mixup", "there is no such augmentation; leave the key out"), ("vflip", "did you mean 'vertical_flip'?"),
                              ("random_rotation", "did you mean 'rotation'?"), ("cutout", "did you mean 'erasing'?"), ("colour_jitter", "did you mean 'color_jitter'?"),
                              ("saturation", "did you mean 'dataset.augment.color_jitter.saturation'")):
            self.assertIn(message, self.run_program("check", "test.yaml", f"dataset.augment={{{name}: 0.5}}", code=program.USAGE)[1])
        self.run_program("check", "test.yaml", "dataset.image=null", code=program.USAGE, err="a folder of images needs dataset.image: {size: [height, width]}")

    def test_mistakes_in_masks(self):
        for row, mask in enumerate(self.masks):
            write_png(self.path(f"masks/{row:02}.png"), mask, GREY)
        self.config("test.yaml", "path: photos, image: {size: 8, masks: masks}", PIXELS, "cross_entropy", "mean_iou")
        mask = self.path("masks/05.png")
        for change, message in (
                (lambda: write_png(mask, self.masks[0][:, :4], GREY), "masks/05.png: the mask has 4 x 8 pixels, but its image 'photos/05.png' has 8 x 8"),
                (lambda: write_png(mask, self.images[0], RGB), "masks/05.png: a mask must be a grey or palette image of at most 8 bits"),
                (lambda: self.write("masks/05.png", "\xff\xd8\xff jpeg"), "masks/05.png: a mask must be a PNG image"),
                (lambda: os.truncate(mask, 5), "masks/05.png: a mask must be a PNG image"),
                (lambda: os.remove(mask), "masks/05.png: the image 'photos/05.png' has no such mask; add it, or remove the image")):
            change()
            self.assertIn(message, self.run_program("test.yaml", code=program.DATA)[1])
        write_png(mask, self.masks[5], GREY)
        _, err = self.run_program("test.yaml", "loss=bce_with_logits", code=program.DATA)
        self.assertRegex(err, r"masks/00.png: a pixel is [23]; with this loss the pixels of masks must be 0 and 1, or 0 and 255")
        _, err = self.run_program("test.yaml", "loss=mse", "train.metrics=[]", code=program.USAGE)
        self.assertIn("dataset.image.masks: the pixels of masks are classes; use loss: cross_entropy", err)
        self.run_program("test.yaml", "dataset.image.masks=nothing", code=program.DATA, err="'nothing': No such file or directory")
