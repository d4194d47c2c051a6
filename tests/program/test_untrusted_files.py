"""Malicious files: each is refused with a message and a documented exit code, never a crash. A seal
proves that a file is complete, not where it comes from, so crafted files are sealed again here. ctest-labels: unit"""
import hashlib, json, os, resource, shutil, struct, unittest, zlib
import h5py, numpy as np
from program import Case, DATA, OK, SANITIZER, USAGE

CONFIG = """\
name: test
dataset: {path: datasets/wine.h5, scale: standard, split: {test: 0.2, seed: 42}}
sampler: {batch_size: 32}
model: {layers: [{linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: adam}
train: {epochs: 2}
checkpoint: {save_every: 1}
"""
TRAILER = 128


def seal(image, order):
    """Its trailer, as src/base/files/sealed.h describes it."""
    fields = b"ddptrain sealed\n" + struct.pack("<IIQ", 1, TRAILER, len(image)) + hashlib.sha256(image).digest()
    fields += struct.pack("<Q", order) + bytes(24)
    return fields + hashlib.sha256(fields).digest()


def attribute(name, value):
    def change(h):
        del h.attrs[name]
        if value is not None:
            h.attrs[name] = value
    return change


def dataset(path, *arguments, **options):
    def change(h):
        del h[path]
        h.create_dataset(path, *arguments, **options)
    return change


def link(path, target):
    def change(h):
        if path in h:
            del h[path]
        h[path] = target
    return change


def circles(h):
    for i in range(8):
        h[f"model/circle{i}"] = h["model"]


def outside(h):
    """Values in another file."""
    shape, dtype = h["model/0.weight"].shape, h["model/0.weight"].dtype
    del h["model/0.weight"]
    h.create_dataset("model/0.weight", shape, dtype, external=[("/etc/passwd", 0, 1 << 20)])


TEXT = h5py.string_dtype()
PAIR = np.dtype([("a", "<i8"), ("b", "<f8")])
CHANGES = {
    "format_version of 40": attribute("format_version", np.full(40, 0x4141414141414141, "i8")),
    "format_version of 4000": attribute("format_version", np.full(4000, 0x4141414141414141, "i8")),
    "format_version (4, 4)": attribute("format_version", np.ones((4, 4), "i4")),
    "format_version 0 values": attribute("format_version", np.zeros(0, "i4")),
    "format_version empty": attribute("format_version", h5py.Empty("i4")),
    "format_version float": attribute("format_version", 1.0),
    "format_version text": attribute("format_version", "1"),
    "format_version compound": attribute("format_version", np.zeros((), PAIR)),
    "format_version negative": attribute("format_version", np.int64(-1)),
    "format_version 2^64 - 1": attribute("format_version", np.uint64(2**64 - 1)),
    "format_version absent": attribute("format_version", None),
    "format of 8": attribute("format", np.array([b"ddptrain checkpoint"] * 8, "S20")),
    "format of 200": attribute("format", np.array([b"ddptrain checkpoint"] * 200, "S20")),
    "format of any length": attribute("format", "ddptrain checkpoint"),
    "format long": attribute("format", np.bytes_(b"x" * 5000)),
    "format reference": lambda h: h.attrs.create("format", h.ref, dtype=h5py.ref_dtype),
    "step negative": dataset("state/step", data=np.int64(-5)),
    "step large": dataset("state/step", data=np.int64(2**62)),
    "epoch negative": dataset("state/epoch", data=np.int64(-(2**63))),
    "batch large": dataset("state/batch", data=np.int64(10**9)),
    "metrics_bytes large": dataset("state/metrics_bytes", data=np.int64(2**63 - 1)),
    "step array": dataset("state/step", data=np.zeros(1000, "i8")),
    "step float": dataset("state/step", data=np.float64(1)),
    "step text": dataset("state/step", data="1", dtype=TEXT),
    "step compound": dataset("state/step", data=np.zeros((), PAIR)),
    "step empty": dataset("state/step", data=h5py.Empty("i8")),
    "config texts": dataset("config", data=["a", "b"], dtype=TEXT),
    "config numbers": dataset("config", data=np.arange(9)),
    "config empty": dataset("config", data=h5py.Empty("S9")),
    "fingerprint of any length": dataset("data/fingerprint", data="f", dtype=TEXT),
    "scale longer than mean": dataset("scaler/scale", data=np.ones(10**6)),
    "scale shorter than mean": dataset("scaler/scale", data=np.ones(2)),
    "scale text": dataset("scaler/scale", data=np.bytes_(b"x" * 100)),
    "mean text": dataset("scaler/mean", data=np.bytes_(b"x" * 100)),
    "mean int": dataset("scaler/mean", data=np.ones(13, "i8")),
    "mean none": dataset("scaler/mean", data=np.ones(0)),
    "scaler none": lambda h: [dataset(f"scaler/{name}", data=np.ones(0))(h) for name in ("mean", "scale")],
    "mean beyond memory": dataset("scaler/mean", shape=(2**45,), dtype="f8"),
    "weight huge": dataset("model/0.weight", shape=(2**33, 2**33), dtype="f4", chunks=(1, 16), fillvalue=0),
    "weight product 2^64": dataset("model/0.weight", shape=(2**32, 2**30, 4), dtype="f4", chunks=(1, 1, 4)),
    "weight compressed": dataset("model/0.weight", data=np.zeros((3, 13), "f4"), compression="gzip"),
    "weight scaled": dataset("model/0.weight", data=np.zeros((3, 13), "f4"), scaleoffset=2, chunks=(3, 13)),
    "weight references": dataset("model/0.weight", shape=(3, 13), dtype=h5py.ref_dtype),
    "weight lists": dataset("model/0.weight", shape=(3, 13), dtype=h5py.vlen_dtype("f4")),
    "weight arrays": dataset("model/0.weight", shape=(3,), dtype=np.dtype(("f4", (13,)))),
    "weight outside": outside,
    "weight soft": link("model/0.weight", h5py.SoftLink("/model/0.bias")),
    "weight external": link("model/0.weight", h5py.ExternalLink("/dev/zero", "/x")),
    "model external": link("model", h5py.ExternalLink("/dev/zero", "/x")),
    "model a dataset": dataset("model", data=np.zeros(3)),
    "a soft link to itself": link("loop", h5py.SoftLink("/loop")),
}


class Crafted(Case):
    def setUp(self):
        super().setUp()
        self.write("c.yaml", CONFIG)
        self.run_program("c.yaml")
        self.good = self.checkpoints()[-1]
        with open(self.good, "rb") as f:
            self.image = f.read()[:-TRAILER]

    def craft(self, change):
        """The paths of the changed file, plain and sealed."""
        plain, sealed = self.path("plain.h5"), self.path("sealed.h5")
        with open(plain, "wb") as f:
            f.write(self.image)
        if callable(change):
            with h5py.File(plain, "r+") as h:
                change(h)
        else:
            with open(plain, "wb") as f:
                f.write(change)
        with open(plain, "rb") as f:
            image = f.read()
        with open(sealed, "wb") as f:
            f.write(image + seal(image, 10))
        return plain, sealed

    def refuse(self, *arguments, codes):
        out, err = self.run_program(*arguments, code=None)
        self.assertIn(self.code, codes, f"{arguments}\n{out[-2000:]}{err[-2000:]}")
        if self.code:
            self.assertTrue(err.strip(), arguments)
        return out + err

    def read_everywhere(self, change):
        plain, sealed = self.craft(change)
        self.refuse("inspect", plain, codes=(OK, DATA))
        self.refuse("inspect", sealed, codes=(OK, DATA))
        self.refuse("eval", "c.yaml", "--checkpoint", sealed, codes=(OK, DATA))
        self.refuse("export", sealed, "--out", "w.safetensors", codes=(OK, DATA))
        self.refuse("c.yaml", f"model.init_from={sealed}", "--run-dir", "runs/init", "--fresh", codes=(OK, DATA))
        return self.refuse("c.yaml", f"checkpoint.resume={sealed}", "train.epochs=3", "--run-dir", "runs/resume", "--fresh",
                           codes=(OK, DATA))

    def crashing(self):
        """The flags of a dataset's fill value say that it is shared, which crashes libhdf5 1.10."""
        fill = bytes.fromhex("0500 0800 01 000000 02010101")
        self.assertIn(fill, self.image)
        return self.image.replace(fill, fill[:4] + b"\xcb" + fill[5:], 1)

    def test_a_sealed_copy_is_read(self):
        """What the others craft is refused for the change, not for the seal."""
        self.assertIn("epoch 3/3", self.read_everywhere(lambda h: None))
        self.assertEqual(self.code, OK)

    def test_types_sizes_and_ranges(self):
        for name, change in CHANGES.items():
            with self.subTest(name):
                self.read_everywhere(change)

    def test_counters(self):
        for name, value, words in (("step", -5, "state/step is -5; expected 0 to 9007199254740992"),
                                   ("epoch", -(2**63), "state/epoch is -9223372036854775808"),
                                   ("batch", 10**9, "batch 1000000000 of an epoch, which has 5 here")):
            with self.subTest(name):
                self.assertIn(words, self.read_everywhere(dataset(f"state/{name}", data=np.int64(value))))

    def test_scaler(self):
        """Its two vectors are the only values whose size a file decides."""
        for name in ("scale longer than mean", "scale shorter than mean", "scale text", "mean text", "mean int", "mean none", "scaler none"):
            with self.subTest(name):
                _, sealed = self.craft(CHANGES[name])
                self.assertIn("scaler/mean and scaler/scale are not two float64 vectors of the same length",
                              self.refuse("eval", "c.yaml", "--checkpoint", sealed, codes=(DATA,)))
        _, sealed = self.craft(CHANGES["mean beyond memory"])
        self.assertIn("'scaler/mean' has a storage layout that this version cannot read",
                      self.refuse("eval", "c.yaml", "--checkpoint", sealed, codes=(DATA,)))

    def test_a_name_that_is_a_path(self):
        """A link whose name has a slash names its own object, not one of the file behind an external link."""
        other = self.path("other.h5")
        with h5py.File(other, "w") as h:
            h["secret"] = np.zeros(12345, "f4")

        def links(h):
            h["model/ex"] = h5py.ExternalLink(other, "/")
            h["model/exZsecret"] = np.zeros(3, "f4")

        plain, _ = self.craft(links)
        with open(plain, "rb") as f:
            image = f.read()
        self.assertEqual(image.count(b"exZsecret"), 1)
        for file in self.craft(image.replace(b"exZsecret", b"ex/secret")):
            said = self.refuse("inspect", file, codes=(OK,))
            self.assertNotIn("12345", said)
            self.assertRegex(said, r"secret +float32 \(3\)")

    def test_groups_in_circles(self):
        """Eight hard links to their own group are 8^32 paths."""
        plain, _ = self.craft(circles)
        said = self.refuse("inspect", plain, codes=(DATA,))
        self.assertIn("plain.h5", said)

    def test_what_crashes_the_library(self):
        plain, sealed = self.craft(self.crashing())
        for file in (plain, sealed):
            self.assertIn(f"{file}: ", self.refuse("inspect", file, codes=(DATA,)))
        self.refuse("eval", "c.yaml", "--checkpoint", sealed, codes=(DATA,))

    def test_a_crash_is_no_reason_to_stop_at_an_older_checkpoint(self):
        """The newest checkpoint is crafted: a resume takes the one before."""
        _, sealed = self.craft(self.crashing())
        shutil.copy(sealed, self.path("runs/test/checkpoints/epoch-0009.h5"))
        out, err = self.run_program("c.yaml", "train.epochs=3")
        self.assertIn("skipped a checkpoint", out + err)
        self.assertIn("epoch 3/3", out + err)


class Data(Case):
    def test_damaged_datasets(self):
        """Bytes of the metadata changed: an end or a sentence. The places are drawn once and for all."""
        with open(os.path.join(self.folder, "datasets", "wine.h5"), "rb") as f:
            good = f.read()
        self.write("c.yaml", CONFIG.replace("datasets/wine.h5", "d.h5"))
        draw = np.random.RandomState(11)
        for trial in range(20 if SANITIZER else 100):
            bad = bytearray(good)
            for _ in range(1 + trial % 4):
                bad[draw.randint(2048)] = draw.randint(256)
            with open(self.path("d.h5"), "wb") as f:
                f.write(bad)
            self.run_program("check", "c.yaml", code=None)
            self.assertIn(self.code, (OK, DATA, USAGE), f"trial {trial}")


class Chunks(Case):
    """Compressed chunks whose data decode to another size than a chunk's; h5py writes them as they are given."""
    ROWS = 4096

    def write_chunk(self, raw):
        with h5py.File(self.path("d.h5"), "w") as h:
            x = h.create_dataset("x", data=np.ones((2 * self.ROWS, 64), "f4"), chunks=(self.ROWS, 64), compression="gzip")
            h["y"] = np.arange(2 * self.ROWS) % 3
            x.id.write_direct_chunk((self.ROWS, 0), raw)
        self.write("c.yaml", CONFIG.replace("datasets/wine.h5", "d.h5"))

    def test_less_than_a_chunk(self):
        """libhdf5 1.10 reads memory past its end."""
        self.write_chunk(zlib.compress(bytes(16)))
        for command in (["c.yaml"], ["check", "c.yaml"]):
            _, err = self.run_program(*command, code=DATA)
            self.assertIn("d.h5: dataset 'x', the chunk of row 4096 holds 16 bytes where 1048576 are needed; the file is damaged", err)

    @unittest.skipIf(SANITIZER, "a sanitizer takes memory of its own")
    def test_more_than_a_chunk(self):
        """512 MiB of zeros in 512 KiB: they are not expanded."""
        packer = zlib.compressobj(6)
        raw = b"".join(packer.compress(bytes(1 << 26)) for _ in range(8)) + packer.flush()
        self.write_chunk(raw)
        self.run_program("c.yaml", code=DATA, err="d.h5: dataset 'x', the chunk of row 4096 holds more than 1048576 bytes where 1048576 are needed")
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 256 << 10)

    def test_numbers_outside_of_their_bytes(self):
        """An exponent that begins at bit 240 of a float of 64."""
        double = bytes.fromhex("0000 4000 340b 0034 ff030000")
        with h5py.File(self.path("d.h5"), "w") as h:
            h["x"] = np.ones((9, 4))
            h["y"] = np.arange(9) % 3
        with open(self.path("d.h5"), "rb") as f:
            image = f.read()
        self.assertIn(double, image)
        with open(self.path("d.h5"), "wb") as f:
            f.write(image.replace(double, double[:4] + b"\xf0" + double[5:]))
        self.write("c.yaml", CONFIG.replace("datasets/wine.h5", "d.h5"))
        for command in (["c.yaml"], ["check", "c.yaml"]):
            self.run_program(*command, code=DATA, err="d.h5: dataset 'x' has numbers whose bits lie outside of their 8 bytes")


class Text(Case):
    """Names and values of files reach the terminal with control characters escaped, and cut."""

    def assert_printable(self, said):
        for c in said:
            self.assertTrue(c in "\n\t" or ord(c) >= 32 and not 0x7f <= ord(c) < 0xa0 and c not in "\u061c\u200f\u202e\u2066\udcff", repr(said[:400]))

    def csv(self, text, *overrides, code=DATA):
        with open(self.path("t.csv"), "wb") as f:
            f.write(text)
        self.write("c.yaml", CONFIG.replace("datasets/wine.h5", "t.csv").replace("split: {test: 0.2, seed: 42}", "targets: [c]"))
        out, err = self.run_program("check", "c.yaml", *overrides, code=code)
        self.assert_printable(out + err)
        return out + err

    def test_columns_and_cells(self):
        evil = b"a\x1b]0;owned\x07\xff\xc2\x9b\xe2\x80\xae"
        self.assertIn("\\x1b]0;owned\\x07\\xff\\u009b\\u202e", self.csv(evil + b",b\n1,2\n", "dataset.csv.encoding=utf-8"))
        self.assertIn("\\x1b[2J", self.csv(b"a,c\n1,0\n\x1b[2J,1\n"))
        self.assertIn("duplicate column", self.csv(evil + b"," + evil + b",c\n1,2,0\n"))

    def test_names_of_files_and_folders(self):
        """Of every command that prints one, and in the log, the report and the saved config."""
        evil = "e\x1b[31m\rC\u202e\u2066\u200f\u061c\x9b"
        column = evil.replace("\r", "")
        with open(self.path(f"{evil}.csv"), "w", newline="") as f:
            f.write(f"a{column},kind,y\n" + "".join(f"{i},{'uv'[i % 2]}{column},{'nm'[i % 3 > 0]}{column}\n" for i in range(30)))
        out, err = self.run_program("init", f"{evil}.csv")
        self.assert_printable(out + err)
        self.write("c.yaml", out)
        run = f"runs/{evil}"
        for arguments in (["c.yaml", "train.epochs=1", "--run-dir", run], ["inspect", f"{evil}.csv"], ["check", "c.yaml"], ["inspect", run],
                          ["inspect", f"{run}/checkpoints/epoch-0001.h5"],
                          ["runs"], ["watch", run], ["eval", run], ["predict", run, f"{evil}.csv", "--out", f"{evil}2.csv"],
                          ["report", run, "--out", f"{evil}.html"], ["report", run, "--out", "r.html"],
                          ["compare", f"{run}/config.yaml", "c.yaml", "train.epochs=1", "--seeds", 2], ["export", run, "--format", "c", "--out", "m.c"]):
            out, err = self.run_program(*arguments)
            self.assert_printable(out + err)
        for file in ("r.html", "m.c", f"{run}/config.yaml", f"{run}/log.txt"):
            self.assert_printable(self.read(file))
        for arguments in (["inspect", evil], ["runs", evil], ["c.yaml", f"train.{evil}=1"], ["eval", "c.yaml", "--checkpoint", evil], ["--" + evil]):
            out, err = self.run_program(*arguments, code=None)
            self.assertIn(self.code, (USAGE, DATA))
            self.assert_printable(out + err)

    def test_a_long_header(self):
        said = self.csv(b"x" * (10 << 20) + b",b\n1,2\n")
        self.assertLess(len(said), 2000)
        self.assertIn("x...", said)

    def test_a_line_without_end(self):
        self.assertIn("t.csv:line 2: the line is longer than 16 MiB", self.csv(b"a,c\n" + b"1," * (9 << 20) + b"\n"))

    def test_names_in_hdf5(self):
        with h5py.File(self.path("n.h5"), "w") as h:
            h[b"x\x1b[31m\xff"] = [1.0]
            h["g\x07/" + "n" * 5000] = [2.0]
        out, _ = self.run_program("inspect", "n.h5")
        self.assert_printable(out)
        self.assertIn("x\\x1b[31m\\xff", out)
        self.assertIn("g\\x07/", out)
        self.assertIn("n" * 80 + "...", out)
        self.assertNotIn("n" * 81, out)

    def test_names_in_safetensors(self):
        name = "w\x1b[31m" + "n" * 5000
        header = json.dumps({"__metadata__": {"by\x1b": "\x9bme\n" + "m" * 5000}, name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
                            ensure_ascii=False).encode()
        with open(self.path("n.safetensors"), "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header + bytes(4))
        out, _ = self.run_program("inspect", "n.safetensors")
        self.assert_printable(out)
        self.assertIn("w\\x1b[31mnn", out)
        self.assertIn("\\u009bme\\x0am", out)
        self.assertLess(len(out), 2000)
        self.write("c.yaml", CONFIG)
        _, err = self.run_program("c.yaml", "model.init_from=n.safetensors", code=DATA)
        self.assert_printable(err)

    def test_values_of_a_config(self):
        self.write("c.yaml", CONFIG.replace("loss: cross_entropy", 'loss: "\\e[31mred"'))
        _, err = self.run_program("check", "c.yaml", code=USAGE)
        self.assert_printable(err)
        self.assertIn("\\x1b[31mred", err)


class Leftovers(Case):
    def test_a_killed_start_leaves_nothing(self):
        """The config's temporary file of a process that has ended is removed by the next start, and no other file."""
        self.write("c.yaml", CONFIG)
        self.run_program("c.yaml")
        gone = self.start("--version")
        gone.communicate()
        keep = [f"config.yaml.tmp-{os.getpid()}", "config.yaml.tmp-0", "config.yaml.tmp-99x", "my.yaml.tmp-" + str(gone.pid)]
        for name in keep + [f"config.yaml.tmp-{gone.pid}"]:
            self.write(f"runs/test/{name}", "")
        self.run_program("c.yaml", "train.epochs=3")
        left = os.listdir(self.path("runs/test"))
        self.assertNotIn(f"config.yaml.tmp-{gone.pid}", left)
        for name in keep:
            self.assertIn(name, left)
