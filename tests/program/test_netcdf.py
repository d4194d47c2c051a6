"""netCDF-4 files, written with its conventions by h5py: rows, missing and packed values, dates, several files. ctest-labels: dist"""
import csv
import datetime
import os

import h5py
import numpy as np

import program

CONFIG = """
name: test
dataset: {path: FILE, inputs: [time, lat, z, wind], targets: temp, drop_missing_targets: true, split: {test: 0.2, seed: 1}}
sampler: {batch_size: 16}
model: {layers: [{linear: 4}, relu, {linear: 1}]}
loss: mse
optimizer: {type: adam, lr: 0.01}
train: {epochs: 2}
"""
TIMES, LATS, LONS = 8, 4, 5


def write(path, start=0, **changes):
    """(time, lat, lon) with packed temperatures, and what CF files have besides."""
    rng = np.random.default_rng(start)
    packed = rng.integers(-100, 100, (TIMES, LATS, LONS)).astype("i2")
    packed[1, 2, 3], packed[2, 0, 0] = -32768, -999
    with h5py.File(path, "w", track_order=True) as f:
        def add(name, values, dims=(), **attributes):
            d = f.create_dataset(name, data=values)
            for i, dim in enumerate(dims):
                d.dims[i].attach_scale(f[dim])
            for key, value in attributes.items():
                d.attrs[key] = value
            return d
        add("time", 6.0 * np.arange(start, start + TIMES), units=changes.get("units", np.bytes_("hours since 2000-01-01 12:00:00")), calendar="standard")
        add("lat", np.linspace(-45, 45, LATS)), add("lon", np.linspace(0, 270, LONS)), add("nv", np.zeros(2), NAME="This is a netCDF dimension but not a netCDF variable.       2")
        for dim in ("time", "lat", "lon", "nv"):
            f[dim].make_scale(dim)
        f["nv"].attrs["NAME"] = np.bytes_("This is a netCDF dimension but not a netCDF variable         2")
        f["lat"].attrs["bounds"] = "lat_bounds"
        add("temp", packed, ("time", "lat", "lon"), scale_factor=0.5, add_offset=np.float32(280), _FillValue=np.int16(-32768), missing_value=np.array([-999, -998], "i2"))
        wind = rng.normal(size=(TIMES, LATS, LONS)).astype("f4")
        add("wind", wind, ("time", "lat", "lon"))
        z = rng.normal(size=(LATS, LONS)).astype("f4")
        add("z", z, ("lat", "lon"))
        add("level", 3.0), add("lat_bounds", np.zeros((LATS, 2)), ("lat", "nv")), add("turned", wind.T.copy(), ("lon", "lat", "time"))
        add("station", np.array([b"a"] * LATS), ("lat",))
        byte = add("unsigned", np.arange(-4, 4, dtype="i1"), ("time",), _Unsigned="true", _FillValue=np.int8(-1))
        counts = np.arange(TIMES, dtype="i4")
        counts[5] = -2147483647
        add("counts", counts, ("time",))
    temp = np.where(np.isin(packed, (-32768, -999)), np.nan, packed * 0.5 + 280)
    return temp, wind, z, byte


def write_csv(path, *files):
    begin = datetime.datetime(2000, 1, 1, 12)
    with open(path, "w") as f:
        print("time,lat,lon,temp,wind,z", file=f)
        for start, (temp, wind, z, _) in files:
            for t in range(TIMES):
                for i in range(LATS):
                    for j in range(LONS):
                        when = (begin + datetime.timedelta(hours=6 * (start + t))).isoformat()
                        value = "" if np.isnan(temp[t, i, j]) else repr(float(temp[t, i, j]))
                        print(f"{when},{float(-45 + 30 * i)!r},{67.5 * j},{value},{float(wind[t, i, j])!r},{float(z[i, j])!r}", file=f)


class NetCDF(program.Case):
    def test_rows_are_those_of_a_table(self):
        """One file, two files, a model of the table that predicts rows of the file, and the reverse."""
        first, second = write(self.path("a-0.nc")), write(self.path("a-1.nc"), TIMES)
        write_csv(self.path("one.csv"), (0, first))
        write_csv(self.path("two.csv"), (0, first), (TIMES, second))
        for table, file in (("one.csv", "a-0.nc"), ("two.csv", '"a-*.nc"')):
            self.write("table.yaml", CONFIG.replace("FILE", table))
            self.write("test.yaml", CONFIG.replace("FILE", file))
            self.run_program("table.yaml", "--run-dir", "runs/" + table)
            out, _ = self.run_program("test.yaml", "--run-dir", "runs/" + table + "-nc")
            self.assertIn("rows without a target are left out", self.read(f"runs/{table}-nc/log.txt"))
            self.assertEqual(self.sha("runs/" + table + "-nc"), self.sha("runs/" + table))
        for name in ("test", "table"):
            self.run_program(f"{name}.yaml", "--run-dir", f"runs/{name}-ranks", "--nproc", "2")
        self.assertEqual(self.sha("runs/test-ranks"), self.sha("runs/table-ranks"))
        of_file = self.run_program("predict", "runs/two.csv", "a-1.nc")[0]
        self.assertEqual(self.run_program("predict", "runs/two.csv-nc", "a-1.nc")[0], of_file)
        write_csv(self.path("new.csv"), (TIMES, second))
        self.assertEqual(self.run_program("predict", "runs/two.csv-nc", "new.csv")[0], of_file)
        out, _ = self.run_program("predict", "runs/two.csv-nc", "a-1.nc", "--with-inputs")
        self.assertEqual(out.splitlines()[0], "time,lat,lon,temp,wind,z,station,unsigned,counts,row,predicted_temp")
        self.assertTrue(out.splitlines()[1].startswith("2000-01-03T12:00:00,-45,0,"), out.splitlines()[1])
        both = self.run_program("predict", "runs/two.csv-nc", "a-*.nc", "--with-inputs")[0].splitlines()
        self.assertEqual([line.split(",")[:9] for line in both[161:]], [line.split(",")[:9] for line in out.splitlines()[1:]])

    def test_values(self):
        """Missing values by attribute and by default, unsigned bytes; a date before the Gregorian calendar; other calendars."""
        write(self.path("a.nc"))
        self.write("test.yaml", CONFIG.replace("FILE", "a.nc").replace("[time, lat, z, wind]", "[time, unsigned]").replace("temp", "counts, columns: {unsigned: {missing: median}}"))
        self.run_program("test.yaml")
        out, _ = self.run_program("predict", "test.yaml", "a.nc", "--with-inputs")
        rows = [line.split(",") for line in out.splitlines()]
        names = rows[0]
        self.assertEqual([row[names.index("unsigned")] for row in rows[1:]], ["252", "253", "254", "", "0", "1", "2", "3"])
        self.assertEqual([row[names.index("counts")] for row in rows[1:]], ["0", "1", "2", "3", "4", "", "6", "7"])
        self.assertIn('"train_rows":5', self.read("runs/test/metrics.jsonl"))  # of 8: one without a target, 2 validate
        for units, text in ((np.bytes_("days since 1500-1-1 00:00:0.0"), "1500-01-16T00:00:00"), ("days since 1900-01-01 UTC", "1900-01-07T00:00:00"),
                            ("minutes since 2000-02-29T23:59:59.5Z", "2000-03-01T00:05:59.500000"), ("months since 2000-01-01", "6"), ("days since 2000-01-01 +05:00", "2000-01-06T19:00:00"), ("days since 2000-1-1 6:30 -0330", "2000-01-07T10:00:00"),
                            ("hours since 2000-01-01 00:00 +2", "2000-01-01T04:00:00"), ("days since 2000-01-01 +25:00", "6"), ("days since 2000-01-01 +5:x", "6"),
                            ("DAYS  since  2000-1-1", "2000-01-07T00:00:00"), ("days since 2001-02-29", "6"), ("days since 2000-01-01 24:00", "6"), ("days since 2000-01-01 00:00:nan", "6"), ("days since yesterday", "6"), ("degrees", "6")):
            write(self.path("b.nc"), units=units)
            out, _ = self.run_program("init", "b.nc", "--target", "wind")
            with_dates = "dates in column 'time'" in out
            self.assertEqual(with_dates, "T" in text, units)
            if with_dates:
                out, _ = self.run_program("predict", "test.yaml", "b.nc", "--with-inputs")
                line = out.splitlines()[2]
                self.assertTrue(line.startswith(text), (units, line))

    def test_texts_and_valid_values(self):
        """Texts of any length, arrays of characters and enumerations; variables of groups; values that are not valid."""
        def add(group, name, values, dims, **attributes):
            d = group.create_dataset(name, data=values, chunks=(2,) + values.shape[1:], compression="gzip", dtype=attributes.pop("dtype", None))
            for i, dim in enumerate(dims):
                d.dims[i].attach_scale(f[dim])
            for key, value in attributes.items():
                d.attrs[key] = value
        with h5py.File(self.path("t.nc"), "w", track_order=True) as f:
            for dim, size in (("row", 6), ("column", 2), ("characters", 4)):
                f[dim] = np.zeros(size)
                f[dim].attrs["NAME"] = np.bytes_(f"This is a netCDF dimension but not a netCDF variable {size}")
                f[dim].make_scale(dim)
            add(f, "y", np.arange(12.0).reshape(6, 2), ("row", "column"))
            add(f, "name", np.array(["north", "é", "", "north", "none", "a,b"], object), ("row",), dtype=h5py.string_dtype(), _FillValue="none")
            add(f, "code", np.frombuffer(b"ab\0\0ab  xyz1\0\0\0\0----ab\0\0", "S1").reshape(6, 4), ("row", "characters"), _FillValue=np.bytes_("-"))
            add(f, "side", np.array([b"l", b"r"]), ("column",))
            add(f, "fixed", np.array([b"lo", b"mid", b"", b"mid", b"lo", b"lo"]), ("row",))
            kinds = h5py.enum_dtype({"clear": 0, "low": 1, "cirrus": 7, "none": -1}, basetype=">i2")
            add(f, "cloud", np.array([0, 7, 1, -1, 5, 0], ">i2"), ("row",), dtype=kinds, _FillValue=np.int16(-1))
            add(f, "range", np.array([-5, 0, 100, 101, 7, -99], "i2"), ("row",), valid_range=np.array([0, 100], "i2"), scale_factor=0.5)
            add(f, "unpacked", np.array([-5, 0, 100, 101, 7, -99], "i2"), ("row",), valid_min=-2.5, valid_max=50.0, scale_factor=0.5)
            add(f, "unsigned", np.array([-1, 0, 100, 127, -128, -2], "i1"), ("row",), valid_range=np.array([0, -2], "i1"), _Unsigned="true")
            add(f.create_group("winter"), "low", np.array([1.0, 2, 3, 4, 5, 6]), ("row",), valid_min=2.0)
            add(f.create_group("winter/deep"), "bound", np.zeros((6, 2)), ("row", "column"))
            f["winter/low"].attrs["bounds"] = "deep/bound"
        self.write("test.yaml", CONFIG.replace("FILE", "t.nc").replace("[time, lat, z, wind]", "[side, winter/low]").replace(
            "targets: temp", "targets: y, columns: {winter/low: {missing: median}}"))
        self.run_program("test.yaml")
        out, _ = self.run_program("predict", "test.yaml", "t.nc", "--with-inputs")
        rows = list(csv.DictReader(out.splitlines()))
        for name, values in (("name", ["north", "é", "", "north", "", "a,b"]), ("code", ["ab", "ab", "xyz1", "", "", "ab"]), ("fixed", ["lo", "mid", "", "mid", "lo", "lo"]),
                             ("cloud", ["clear", "cirrus", "low", "", "", "clear"]), ("range", ["", "0", "50", "", "3.5", ""]), ("unpacked", ["-2.5", "0", "50", "", "3.5", ""]),
                             ("unsigned", ["", "0", "100", "127", "128", "254"]), ("winter/low", ["", "2", "3", "4", "5", "6"])):
            self.assertEqual([row[name] for row in rows], [value for value in values for _ in range(2)], name)
        self.assertEqual([row["side"] for row in rows], ["l", "r"] * 6)
        self.assertIn("text (row 6)", self.run_program("inspect", "t.nc")[0])
        for column in ("name", "code", "cloud"):
            words = (f"dataset.inputs=[{column}]", f"dataset.columns={{{column}: {{type: category, missing: indicator}}}}")
            self.run_program("check", "test.yaml", *words, "--data")
        self.run_program("test.yaml", "dataset.targets=side", "dataset.inputs=[y]", "dataset.columns=null", "loss=cross_entropy", "model={layers: [{linear: 2}]}", "--run-dir", "side")
        self.assertLessEqual({row.split(",")[1] for row in self.run_program("predict", "side", "t.nc")[0].splitlines()[1:]}, {"l", "r"})

    def test_whole_numbers_of_64_bits(self):
        """Those that a double does not hold, of a part of the dimensions: every digit of them, signed or not, but of packed ones."""
        large = 2**53 + np.arange(4)
        columns = {"signed": -large, "unsigned": large.astype("u8") + (2**64 - 2**53 - 4), "bits": np.arange(-4, 0), "small": 2**53 - 2 + np.arange(4), "packed": large}
        with h5py.File(self.path("t.nc"), "w", track_order=True) as f:
            f["row"], f["column"] = np.arange(4.0), np.arange(2.0)
            f["row"].make_scale("row"), f["column"].make_scale("column")
            for name, values in columns.items():
                f[name] = values
                f[name].dims[0].attach_scale(f["row"])
            f["bits"].attrs["_Unsigned"], f["packed"].attrs["add_offset"], f["signed"].attrs["_FillValue"] = "true", -2.0**53, -large[3]
            f["y"] = np.arange(8.0).reshape(4, 2)
            f["y"].dims[0].attach_scale(f["row"]), f["y"].dims[1].attach_scale(f["column"])
        self.write("test.yaml", CONFIG.replace("FILE", "t.nc").replace("[time, lat, z, wind]", "[row, column]").replace("targets: temp", "targets: y"))
        self.run_program("test.yaml")
        rows = list(csv.DictReader(self.run_program("predict", "test.yaml", "t.nc", "--with-inputs")[0].splitlines()))
        for name, values in (("signed", ["-9007199254740992", "-9007199254740993", "-9007199254740994", ""]), ("unsigned", [str(2**64 - 4 + i) for i in range(4)]),
                             ("bits", [str(2**64 - 4 + i) for i in range(4)]), ("small", [str(2**53 - 2 + i) for i in range(4)]), ("packed", ["0", "0", "2", "4"])):
            self.assertEqual([row[name] for row in rows], [value for value in values for _ in range(2)], name)

    def test_inspect_and_init(self):
        write(self.path("a.nc"))
        out, _ = self.run_program("inspect", "a.nc")
        self.assertIn("format  netcdf, 160 rows, 12 variables\n", out)
        for line in ("  temp                       int16 (time 8, lat 4, lon 5)\n", "  time                       float64 (time 8), hours since 2000-01-01 12:00:00\n",
                     "(not read: it is one value without dimensions)", "(not read: its dimensions are not those of 'temp' or some of them, in the same order)",
                     "  station                    text (lat 4)\n"):
            self.assertIn(line, out)
        self.write("new.yaml", self.run_program("init", "a.nc", "--target", "temp")[0])
        self.run_program("check", "new.yaml", "--data")
        write(self.path("b.nc"), TIMES)
        self.assertIn("320 rows", self.run_program("init", "[ab].nc", "--target", "temp")[0])

    def test_wrong_files(self):
        write(self.path("a.nc"))
        with open(self.path("three.nc"), "wb") as f:
            f.write(b"CDF\x01" + bytes(100))
        self.write("text.nc", "hello")
        with h5py.File(self.path("empty.nc"), "w") as f:
            f["x"] = 1.0
        with h5py.File(self.path("unwritten.nc"), "w") as f:
            f["y"] = np.arange(4.0)
            f.create_dataset("x", (4,), "f8", chunks=(2,))
        with h5py.File(self.path("compound.nc"), "w") as f:
            f["y"], f["x"] = np.arange(4.0), np.zeros(4, [("a", "f4")])
        with h5py.File(self.path("texts.nc"), "w") as f:
            f["y"] = np.arange(4.0)
            f.create_dataset("x", (4,), h5py.string_dtype())
        with h5py.File(self.path("attributes.nc"), "w") as f:
            for name, value in (("y", {}), ("text", {"scale_factor": "2"}), ("two", {"add_offset": [1.0, 2.0]}), ("three", {"valid_range": [0, 1, 2]})):
                f[name] = np.arange(4)
                f[name].attrs.update(value)
        with h5py.File(self.path("loop.nc"), "w") as f:
            f["y"] = np.arange(4.0)
            f["group/again"] = f["/"]
        with h5py.File(self.path("other.nc"), "w") as f:
            f["temp"], f["wind"] = np.arange(4.0), np.arange(4.0)
        os.link(self.path("a.nc"), self.path("cut.nc"))
        with open(self.path("a.nc"), "rb") as f:
            whole = f.read()
        os.remove(self.path("cut.nc"))
        with open(self.path("cut.nc"), "wb") as f:
            f.write(whole[:len(whole) // 2])
        for name, words, message in (("three.nc", (), "three.nc: this is a netCDF-3 file; netCDF-4 is read. Convert it first: nccopy -k nc4 FILE NEW.nc"),
                                     ("text.nc", (), "text.nc: this is not a netCDF-4 file"), ("empty.nc", (), "empty.nc: the file has no variables of numbers or texts"),
                                     ("cut.nc", (), "cut.nc: cannot be opened as netCDF-4 file"), ("loop.nc", (), "loop.nc: its variables cannot be listed"),
                                     ("unwritten.nc", ("dataset.inputs=[x]", "dataset.targets=[y]"), "unwritten.nc: dataset 'x' was created but its values were never written"),
                                     ("compound.nc", ("dataset.inputs=[x]", "dataset.targets=[y]"), "column 'x' cannot be read: only numbers, texts and enumerations are read"),
                                     ("attributes.nc", ("dataset.inputs=[text]", "dataset.targets=[y]"), "column 'text' cannot be read: its scale_factor is not one number"),
                                     ("attributes.nc", ("dataset.inputs=[two]", "dataset.targets=[y]"), "column 'two' cannot be read: its add_offset is not one number"),
                                     ("attributes.nc", ("dataset.inputs=[three]", "dataset.targets=[y]"), "column 'three' cannot be read: its valid_range is not two numbers"),
                                     ("texts.nc", ("dataset.inputs=[x]", "dataset.targets=[y]"), "texts.nc: dataset 'x' was created but its values were never written"),
                                     ("a.nc", ("dataset.inputs=[turned]",), "column 'turned' cannot be read: its dimensions are not those of"),
                                     ("a.nc", ("dataset.inputs=[winds]",), "there is no column 'winds'; did you mean 'wind'"), ("[a.nc, other.nc]", (), "other.nc: there is no column 'time', which 'a.nc' has")):
            self.write("test.yaml", CONFIG.replace("FILE", name))
            self.run_program("check", "test.yaml", *words, code=program.DATA, err=message)
        self.write("test.yaml", CONFIG.replace("FILE", "a.nc"))
        self.run_program("check", "test.yaml", "dataset.columns={turned: ignore}")
        for words in ("dataset.columns={turned: category}", "dataset.filter='turned > 0'", "dataset.weights=turned", "dataset={path: a.nc, inputs: [more], targets: temp, columns: {more: {expression: turned + wind}}}"):
            self.run_program("check", "test.yaml", words, code=program.DATA, err="column 'turned' cannot be read: its dimensions are not those of")
        _, err = self.run_program("check", "test.yaml", "dataset.drop_missing_targets=false", code=program.DATA)
        self.assertIn("a.nc:row 33: column 'temp': missing value", err)  # time 1, lat 2, lon 3
        self.write("test.yaml", CONFIG.replace("FILE", "other.nc"))
        _, err = self.run_program("export", "test.yaml", "--format", "pytorch", "--out", "x.py", "dataset={path: other.nc, inputs: [temp], targets: wind, split: 0}", code=program.USAGE)
        self.assertIn("dataset.format netcdf cannot be expressed in a PyTorch script", err)
