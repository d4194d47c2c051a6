#!/usr/bin/env python3
"""Builds cifar10_train.h5 and cifar10_test.h5 from the binary version of CIFAR-10 (the folder cifar-10-batches-bin).
Needs h5py and numpy (Debian: python3-h5py)."""
import pathlib
import sys

import h5py
import numpy

if len(sys.argv) != 2:
    sys.exit("usage: make_cifar10.py FOLDER   (the folder that holds data_batch_1.bin ... test_batch.bin)")
source, folder = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).resolve().parent
RECORD = 1 + 3 * 32 * 32  # the class, then the pixels, channel after channel

for part, names in (("train", [f"data_batch_{i}.bin" for i in range(1, 6)]), ("test", ["test_batch.bin"])):
    data = b"".join((source / name).read_bytes() for name in names)
    if len(data) % RECORD:
        sys.exit(f"{source}: the files of {part} do not hold whole records of {RECORD} bytes")
    records = numpy.frombuffer(data, "uint8").reshape(-1, RECORD)
    with h5py.File(folder / f"cifar10_{part}.h5", "w") as file:
        file.create_dataset("x", data=records[:, 1:].reshape(-1, 3, 32, 32), track_times=False)
        file.create_dataset("y", data=records[:, 0].astype("int64"), track_times=False)
    print(f"{folder / f'cifar10_{part}.h5'}: {len(records)} images")
