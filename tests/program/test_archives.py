"""Images in zip and tar archives, made by several programs: the rows of the folder, whatever they are. ctest-labels: dist"""
import io
import os
import shutil
import subprocess
import tarfile
import zipfile

import program

CONFIG = """
name: test
dataset: {path: photos, image: {size: 16}, split: {test: 0.2, seed: 1}}
sampler: {global_batch_size: 32}
model: {layers: [flatten, {linear: 16}, relu, {linear: 3}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.01}
train: {epochs: 2}
"""
LONG = "a folder whose name does not fit a header of tar " * 3  # more than the 155 bytes of ustar, with the name of the file


class Archives(program.Case):
    def setUp(self):
        super().setUp()
        shutil.copytree(os.path.join(program.SOURCE, "datasets/shapes"), self.path("photos"))
        self.write("test.yaml", CONFIG)

    def bytes(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def change(self, name, change):
        changed = change(self.bytes(name))
        with open(self.path(name), "wb") as f:
            f.write(changed)

    def files(self):
        return [os.path.join(folder, name)[len(self.path("")):] for folder, _, names in sorted(os.walk(self.path("photos"))) for name in sorted(names)]

    def zip(self, name, names=None, **options):
        with zipfile.ZipFile(self.path(name), "w", **options) as z:
            for file in names or self.files():
                z.write(self.path(file), file)

    def tar(self, name, *options, folder="", names=("photos",)):
        subprocess.run(["tar", *options, "-cf", self.path(name), *names], cwd=self.path(folder), check=True)

    def rejected(self, archive, message, code=program.DATA):
        self.run_program("check", "test.yaml", f"dataset.path={archive}", code=code, err=message)

    def test_runs_have_the_bits_of_the_folder(self):
        """Of the folder in the archive, or of its root; cached, or decoded for each batch by several threads and ranks."""
        os.makedirs(self.path(f"photos/circle/{LONG}"))
        os.rename(self.path("photos/circle/00.png"), self.path(f"photos/circle/{LONG}/00.png"))
        self.run_program("test.yaml")
        self.zip("stored.zip")
        self.zip("deflated.zip", compression=zipfile.ZIP_DEFLATED)
        with zipfile.ZipFile(self.path("zip64.zip"), "w") as z:  # sizes in the field of zip64, after the contents, and what macOS adds
            z.writestr("__MACOSX/photos/circle/._00.png", "no image")
            for file in reversed(self.files()):
                with z.open(zipfile.ZipInfo(file), "w", force_zip64=True) as f:
                    f.write(self.bytes(file))
        self.tar("gnu.tar", "--format=gnu")
        self.tar("pax.tar", "--format=pax")
        self.tar("root.tar", folder="photos", names=(".",))
        with tarfile.open(self.path("python.tar"), "w") as t:
            t.add(self.path("photos"), "photos")
        for name in ("stored.zip", "deflated.zip", "zip64.zip", "gnu.tar", "pax.tar", "root.tar", "python.tar", "gnu.tar/photos", "stored.zip/photos/"):
            run = "runs/" + name.replace("/", "-")
            self.run_program("test.yaml", f"dataset.path={name}", "--run-dir", run)
            self.assertEqual(self.sha(run), self.sha(), name)
        for name in ("deflated.zip", "pax.tar"):
            run = f"runs/uncached-{name}"
            self.run_program("test.yaml", f"dataset.path={name}", "--run-dir", run, "dataset.cache_mb=0", "dataset.image.threads=3")
            self.assertEqual(self.sha(run), self.sha())
            self.run_program("test.yaml", f"dataset.path={name}", "--run-dir", f"runs/2{name}", "--nproc", "2", "dataset.cache_mb=0")
            self.assert_close(self.losses(f"runs/2{name}"), self.losses(), 1e-5)

    def test_a_run_continues_with_the_other(self):
        self.run_program("test.yaml", "train.epochs=4")
        self.run_program("test.yaml", "--run-dir", "runs/both")
        self.zip("photos.zip")
        self.run_program("test.yaml", "--run-dir", "runs/both", "train.epochs=4", "dataset.path=photos.zip")
        self.assertEqual(self.sha("runs/both"), self.sha())

    def test_parts_labels_and_masks(self):
        """Folders of one archive as parts; masks and the images of a CSV file, each in an archive."""
        self.write("parts.yaml", CONFIG.replace("photos,", "all.zip/train,").replace("split: {test: 0.2, seed: 1}", "validation: all.zip/val"))
        self.write("folders.yaml", CONFIG.replace("photos,", "all/train,").replace("split: {test: 0.2, seed: 1}", "validation: all/val"))
        shutil.copytree(self.path("photos"), self.path("all/train"))
        shutil.move(self.path("photos"), self.path("all/val"))
        subprocess.run(["tar", "-cf", self.path("all.tar"), "train", "val"], cwd=self.path("all"), check=True)
        shutil.make_archive(self.path("all"), "zip", self.path("all"))
        self.run_program("folders.yaml")
        for kind in ("zip", "tar"):
            self.write("parts.yaml", self.read("parts.yaml").replace("all.zip/", f"all.{kind}/"))
            self.run_program("parts.yaml", "--run-dir", f"runs/{kind}")
            self.assertEqual(self.sha(f"runs/{kind}"), self.sha())
        self.rejected("all.zip", "give each part by itself, as dataset.path: all.zip/train and dataset.validation: all.zip/val")
        self.rejected("all.zip/nothing", "all.zip/nothing: there is no such folder in the archive")
        self.assertIn("path: all.zip/train", self.run_program("init", "all.zip")[0])
        self.write("labels.csv", "file,y\n" + "".join(f"circle/{i:02d}.png,{i % 3}\n" for i in range(40)))
        labels = CONFIG.replace("size: 16", "size: 16, labels: labels.csv").replace("cross_entropy", "mse").replace("{linear: 3}", "{linear: 1}")
        masks = CONFIG.replace("photos,", "PATH,").replace("size: 16", "size: 16, masks: MASKS").replace("{linear: 3}", "{linear: 256}, {reshape: [1, 16, 16]}")
        masks = masks.replace("cross_entropy", "bce_with_logits")
        os.makedirs(self.path("masks"))
        import PIL.Image
        for i in range(40):
            image = PIL.Image.open(self.path(f"all/val/circle/{i:02d}.png"))
            PIL.Image.new("L", image.size, 255 * (i % 2)).save(self.path(f"masks/{i:02d}.png"))
        shutil.make_archive(self.path("masks"), "zip", self.path("masks"))
        for name, text, folder, archive in (("labels", labels.replace("photos,", "PATH,"), ("all/val", ""), ("all.zip/val", "")),
                                            ("masks", masks, ("all/val/circle", "masks"), ("all.tar/val/circle", "masks.zip"))):
            for i, (path, mask) in enumerate((folder, archive)):
                self.write("test.yaml", text.replace("PATH", path).replace("MASKS", mask))
                self.run_program("test.yaml", "--run-dir", f"runs/{name}{i}")
            self.assertEqual(self.sha(f"runs/{name}1"), self.sha(f"runs/{name}0"))

    def test_other_commands(self):
        self.run_program("test.yaml")
        self.zip("photos.zip")
        out, _ = self.run_program("predict", "test.yaml", "photos.zip", "--with-inputs")
        expected, _ = self.run_program("predict", "test.yaml", "photos", "--with-inputs")
        self.assertEqual(out.replace("photos.zip/", ""), expected)
        self.assertEqual(len(self.run_program("predict", "test.yaml", "photos.zip/photos/circle/01.png")[0].splitlines()), 2)
        out, _ = self.run_program("inspect", "photos.zip")
        self.assertIn("format  images, 120 images, 3 classes\n", out)
        self.assertRegex(out, r"circle +40 images, the first: PNG \d+x\d+\n")
        self.assertEqual(self.run_program("inspect", "photos.zip/photos")[0], out)
        with open(self.path("photos.zip"), "rb") as whole, open(self.path("cut.zip"), "wb") as cut:
            cut.write(whole.read()[:-30])
        shutil.copy(self.path("photos/circle/01.png"), self.path("other.png"))  # an image that is not of the archive
        self.run_program("inspect", "cut.zip", code=program.DATA, err="cut.zip: the zip archive is damaged or truncated")
        self.assertIn("image: {size: [", self.run_program("init", "photos.zip")[0])
        _, err = self.run_program("export", "test.yaml", "dataset.path=photos.zip", "--out", "t.py", code=program.USAGE)
        self.assertIn("photos.zip: a PyTorch script reads images of folders; unpack the archive", err)
        os.makedirs(self.path("sub/configs"))
        os.rename(self.path("photos.zip"), self.path("sub/photos.zip"))  # beside the folder of the config
        self.write("sub/configs/test.yaml", CONFIG.replace("photos,", "photos.zip/photos,"))
        self.run_program("sub/configs/test.yaml", "--run-dir", "runs/beside")
        self.assertEqual(self.sha("runs/beside"), self.sha())

    def test_links(self):
        os.remove(self.path("photos/circle/01.png"))
        os.link(self.path("photos/circle/00.png"), self.path("photos/circle/01.png"))
        self.run_program("test.yaml")
        for kind in ("gnu", "pax"):
            self.tar(f"{kind}.tar", f"--format={kind}")
            self.run_program("test.yaml", f"dataset.path={kind}.tar", "--run-dir", f"runs/{kind}")
            self.assertEqual(self.sha(f"runs/{kind}"), self.sha())
        self.tar("part.tar", "--exclude=00.png")  # tar stores the content of the first name that it meets
        self.run_program("check", "test.yaml", "dataset.path=part.tar")
        with tarfile.open(self.path("lost.tar"), "w") as t:
            lost = tarfile.TarInfo("photos/a/1.png")
            lost.type, lost.linkname = tarfile.LNKTYPE, "photos/a/0.png"
            t.addfile(lost)
        self.rejected("lost.tar", "lost.tar: 'photos/a/1.png' is a link to 'photos/a/0.png', which is not in the archive")
        os.symlink("00.png", self.path("photos/circle/99.png"))
        self.tar("symbolic.tar")
        self.rejected("symbolic.tar", "'photos/circle/99.png' is a symbolic link; make the archive with the files themselves (tar --dereference, zip without")
        with zipfile.ZipFile(self.path("symbolic.zip"), "w") as z:
            link = zipfile.ZipInfo("a/1.png")
            link.create_system, link.external_attr = 3, 0o120777 << 16
            z.writestr(link, "2.png")
        self.rejected("symbolic.zip", "symbolic.zip: 'a/1.png' is a symbolic link")
        self.tar("followed.tar", "--dereference")
        self.run_program("check", "test.yaml", "dataset.path=followed.tar")

    def test_archives_of_another_kind(self):
        self.tar("photos.tar.gz", "-z")
        self.tar("photos.tar", "-z")
        for name in ("photos.tar.gz", "photos.tar"):
            self.rejected(name, f"{name}: the archive is compressed as a whole, so a file in it cannot be read alone; decompress it first: gunzip --keep FILE")
        self.zip("lzma.zip", compression=zipfile.ZIP_LZMA)
        self.rejected("lzma.zip", "is compressed with method 14; only stored and deflated members are read")
        self.zip("locked.zip")
        self.change("locked.zip", lambda b: b.replace(b"PK\1\2\x14\3\x14\0\0\0", b"PK\1\2\x14\3\x14\0\1\0", 1))
        self.rejected("locked.zip", "is encrypted, which is not supported")
        self.write("text.tar", "hello " * 200)
        self.rejected("text.tar", "text.tar: this is neither a tar nor a zip archive")
        self.write("empty.tar", "")
        self.rejected("empty.tar", "empty.tar: this is neither a tar nor a zip archive")
        self.rejected("missing.zip", "cannot read the folder of images 'missing.zip': No such file or directory")
        self.tar("table.tar", names=("test.yaml",))
        self.rejected("table.tar", "table.tar: there are no sub-folders")
        with open(self.path("photos/circle/00.png"), "r+b") as f:
            f.truncate(1 << 20)
        self.tar("sparse.tar", "--sparse")
        self.rejected("sparse.tar", "'photos/circle/00.png' is stored as a sparse file")
        self.tar("sparse-pax.tar", "--sparse", "--format=pax")
        self.rejected("sparse-pax.tar", "is stored as a sparse file; make the archive without --sparse")

    def test_damage(self):
        self.tar("header.tar")
        with tarfile.open(self.path("header.tar")) as t:
            members = t.getmembers()
        end = max(member.offset_data + (member.size + 511) // 512 * 512 for member in members)
        for size, what in ((1000, "its end"), (end - 512, "it ends within a file"), (end, "its end"), (end + 100, "its end")):
            self.tar("cut.tar")
            os.truncate(self.path("cut.tar"), size)
            self.rejected("cut.tar", f"cut.tar: the tar archive is damaged or truncated ({what}); copy or make it again")
        at = members[5].offset
        self.change("header.tar", lambda b: b[:at + 3] + bytes([b[at + 3] ^ 1]) + b[at + 4:])
        self.rejected("header.tar", "(a header)")
        self.zip("cut.zip")
        os.truncate(self.path("cut.zip"), os.path.getsize(self.path("cut.zip")) - 30)
        self.rejected("cut.zip", "cut.zip: the zip archive is damaged or truncated (its directory is missing); copy the file again")
        for name, options in (("stored.zip", {}), ("deflated.zip", {"compression": zipfile.ZIP_DEFLATED})):
            self.zip(name, **options)
            info = zipfile.ZipFile(self.path(name)).getinfo("photos/circle/07.png")
            at = info.header_offset + 30 + len(info.filename) + 60
            self.change(name, lambda b: b[:at] + bytes([b[at] ^ 1]) + b[at + 1:])
            self.run_program("check", "test.yaml", f"dataset.path={name}", "--data", code=program.DATA, err=(f"{name}: ", "photos/circle/07.png"))
        self.zip("local.zip")
        self.change("local.zip", lambda b: b.replace(b"PK\3\4", b"PK\3\5", 2).replace(b"PK\3\5", b"PK\3\4", 1))
        _, err = self.run_program("check", "test.yaml", "dataset.path=local.zip", "--data", code=program.DATA)
        self.assertIn("local.zip: the zip archive is damaged or truncated (photos/", err)

    def test_names(self):
        png = self.bytes("photos/circle/00.png")
        outside = "is outside of the archive; make it again with names that neither begin with / nor have .."
        twice = "twice; make it again"
        for i, (names, message) in enumerate(((("a/../../b.png",), outside), (("/a/b.png",), outside), (("a/1.png", "./a//1.png"), twice),
                                              (("a/1.png", "a/1.png/2.png"), twice), (("a/1.png", "a/1.png-2", "a/1.png/"), twice))):
            with zipfile.ZipFile(self.path(f"{i}.zip"), "w") as z, tarfile.open(self.path(f"{i}.tar"), "w") as t:
                for name in names:
                    info = tarfile.TarInfo(name)
                    info.size = 0 if name.endswith("/") else len(png)
                    z.writestr(name, png[:info.size])
                    t.addfile(info, io.BytesIO(png))
            for kind in ("zip", "tar"):
                self.rejected(f"{i}.{kind}", message)
        with tarfile.open(self.path("latin.tar"), "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as t:
            for name in ("\xe9/1.png", "b/1.png"):
                info = tarfile.TarInfo(name)
                info.size = len(png)
                t.addfile(info, io.BytesIO(png))
        self.rejected("latin.tar", "the name of the folder is not UTF-8 text; rename it")
        bad = b"20 path=photos/1.png\n"  # one byte too few
        header = tarfile.TarInfo("x")
        header.type, header.size = tarfile.XHDTYPE, len(bad)
        with open(self.path("pax.tar"), "wb") as f:
            f.write(header.tobuf(tarfile.USTAR_FORMAT) + bad + bytes(512 - len(bad)) + bytes(1024))
        self.rejected("pax.tar", "(its pax records)")
        header.size = 1 << 33
        with open(self.path("large.tar"), "wb") as f:  # a size of 8 GiB in base 256, in a short file
            f.write(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
        self.rejected("large.tar", "(it ends within a file)")
