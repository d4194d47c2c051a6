"""Writes scenes.npz beside this file: 160 noisy grey pictures of 48 x 48 pixels with up to four circles, squares and triangles, some in
front of others; x: uint8 (160, 1, 48, 48), y: what each pixel is, uint8 (160, 48, 48): 0 ground, 1 circle, 2 square, 3 triangle. Needs only
Python; the same file every time."""
import os
import random
import zipfile

from make_series import npy

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scenes.npz")
ROWS, SIDE = 160, 48
INSIDE = [
    lambda x, y: x * x + y * y <= 1,
    lambda x, y: max(abs(x), abs(y)) <= 0.9,
    lambda x, y: -0.8 <= y <= 1 and abs(x) <= (y + 0.8) / 1.8,
]


def scene(draw):
    """Levels and kinds of the pixels of a picture, row by row."""
    ground, kinds = draw.randint(40, 90), [0] * SIDE * SIDE
    levels = [ground] * SIDE * SIDE
    for _ in range(draw.randint(1, 4)):
        kind, radius, level = draw.randrange(len(INSIDE)), draw.uniform(5, 11), draw.randint(110, 230)
        center = [draw.uniform(radius, SIDE - radius) for _ in range(2)]
        for y in range(SIDE):
            for x in range(SIDE):
                if INSIDE[kind]((x - center[0]) / radius, (y - center[1]) / radius):
                    levels[y * SIDE + x], kinds[y * SIDE + x] = level, kind + 1
    return bytes(level + 12 * draw.randrange(-1, 2) for level in levels), bytes(kinds)


def main():
    draw = random.Random(2)
    scenes = [scene(draw) for _ in range(ROWS)]
    shape = (SIDE, SIDE)
    with zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED) as file:
        for i, (name, dims) in enumerate((("x", (ROWS, 1, *shape)), ("y", (ROWS, *shape)))):
            file.writestr(zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0)), npy("|u1", dims, b"".join(s[i] for s in scenes)),
                          zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
