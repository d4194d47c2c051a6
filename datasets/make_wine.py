#!/usr/bin/env python3
"""Builds wine.h5 from wine.csv, with the same bytes each time. Needs h5py (Debian: python3-h5py)."""
import csv
import pathlib

import h5py

folder = pathlib.Path(__file__).resolve().parent
with open(folder / "wine.csv", newline="") as file:
    header, *rows = list(csv.reader(file))

with h5py.File(folder / "wine.h5", "w") as file:
    x = file.create_dataset("x", data=[[float(v) for v in row[:-1]] for row in rows], dtype="float64", track_times=False)
    file.create_dataset("y", data=[int(row[-1]) for row in rows], dtype="int64", track_times=False)
    x.attrs["columns"] = header[:-1]
