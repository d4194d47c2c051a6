"""Writes series.npz beside this file: 400 noisy series of 48 steps, each a wave that is a sine, a square, a sawtooth or a burst of a random
period, place and height; x: uint8 (400, 48, 1), y: the kind. Needs only Python; the same file every time."""
import math
import os
import random
import struct
import zipfile

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "series.npz")
ROWS, STEPS = 400, 48
KINDS = [
    lambda turns: math.sin(2 * math.pi * turns),
    lambda turns: 1 if turns % 1 < 0.5 else -1,
    lambda turns: 2 * (turns % 1) - 1,
    lambda turns: math.sin(8 * math.pi * turns) if turns % 1 < 0.5 else 0,
]


def npy(kind, shape, data):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def main():
    draw, x, y = random.Random(1), bytearray(), bytearray()
    for row in range(ROWS):
        kind = row % len(KINDS)
        period, start, height = draw.uniform(12, 24), draw.random(), draw.uniform(50, 110)
        for step in range(STEPS):
            value = 128 + height * KINDS[kind](start + step / period) + draw.gauss(0, 10)
            x.append(min(max(round(value), 0), 255))
        y += struct.pack("<q", kind)
    with zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED) as file:
        for name, kind, shape, data in ("x", "|u1", (ROWS, STEPS, 1), x), ("y", "<i8", (ROWS,), y):
            file.writestr(zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0)), npy(kind, shape, bytes(data)), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
