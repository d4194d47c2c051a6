"""Writes npy/: arrays as NumPy stores them. Each array of types*.npz is rows() below in one type and byte order, in C or
Fortran order; cube.npy is numpy.arange(24).reshape(2, 3, 4) in Fortran order."""
import os

import numpy as np

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "npy")


def rows(dtype):
    """(4, 3): value i * 3 + j, of signed types with alternating sign, of floats plus 0.5"""
    values = np.arange(12, dtype="f8").reshape(4, 3)
    kind = np.dtype(dtype).kind
    if kind == "f":
        values += 0.5
    if kind in "fi":
        values[:, 1] *= -1
    if kind == "b":
        values %= 2
    return values.astype(dtype)


types = ["?", "i1", "u1"] + [order + kind for order in "<>" for kind in ("i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")]
names = {"<": "little_", ">": "big_"}
arrays = {names.get(t[0], "") + np.dtype(t).name: rows(t) for t in types}
arrays.update({"fortran_" + name: np.asfortranarray(a) for name, a in arrays.items() if name in ("uint8", "big_int16", "little_float64")})
np.savez(os.path.join(FOLDER, "types.npz"), **arrays)
np.savez_compressed(os.path.join(FOLDER, "types_compressed.npz"), **arrays)
np.save(os.path.join(FOLDER, "cube.npy"), np.asfortranarray(np.arange(24).reshape(2, 3, 4)))
