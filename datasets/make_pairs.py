"""Writes pairs.h5 beside this file: 480 pairs of noisy waves of 32 steps, left and right: uint8 (480, 1, 32); same: int64, 1 for two
waves of the same kind (sine, square, sawtooth), -1 for two kinds, each in half of the pairs. Needs h5py; the same numbers every time."""
import math
import os
import random

import h5py
import numpy

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pairs.h5")
ROWS, STEPS = 480, 32
KINDS = [
    lambda turns: math.sin(2 * math.pi * turns),
    lambda turns: 1 if turns % 1 < 0.5 else -1,
    lambda turns: 2 * (turns % 1) - 1,
]


def wave(draw, kind):
    period, start, height = draw.uniform(10, 16), draw.random(), draw.uniform(60, 110)
    values = (128 + height * KINDS[kind](start + step / period) + draw.gauss(0, 8) for step in range(STEPS))
    return [[min(max(round(value), 0), 255) for value in values]]


def main():
    draw, left, right, same = random.Random(1), [], [], []
    for row in range(ROWS):
        kind, is_same = draw.randrange(3), row % 2 == 0
        left.append(wave(draw, kind))
        right.append(wave(draw, kind if is_same else (kind + draw.randrange(1, 3)) % 3))
        same.append(1 if is_same else -1)
    with h5py.File(FILE, "w") as file:
        for name, values in ("left", left), ("right", right):
            file.create_dataset(name, data=numpy.array(values, "uint8"), compression="gzip", compression_opts=9)
        file.create_dataset("same", data=numpy.array(same, "int64"))


if __name__ == "__main__":
    main()
