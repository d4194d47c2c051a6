"""Writes the folder of images shapes/ beside this file: light circles, squares and triangles of random colours, places, sizes,
one folder per class, 40 PNG images of about 40 x 40 pixels each. Needs only Python; the same files every time."""
import os
import random
import struct
import zlib

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shapes")
INSIDE = {
    "circle": lambda x, y: x * x + y * y <= 1,
    "square": lambda x, y: max(abs(x), abs(y)) <= 0.9,
    "triangle": lambda x, y: -0.8 <= y <= 1 and abs(x) <= (y + 0.8) / 1.8,
}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, rows):
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def draw(inside, generator):
    width, height = generator.randint(36, 48), generator.randint(36, 48)
    ground, colour = ([generator.randint(low, low + 110) for _ in range(3)] for low in (20, 140))
    radius = generator.uniform(9, 15)
    center = [generator.uniform(radius + 1, side - radius - 1) for side in (width, height)]
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            rows.extend(colour if inside((x - center[0]) / radius, (y - center[1]) / radius) else ground)
    return png(width, height, bytes(rows))


generator = random.Random(0)
for name, inside in INSIDE.items():
    os.makedirs(os.path.join(FOLDER, name), exist_ok=True)
    for i in range(40):
        with open(os.path.join(FOLDER, name, f"{i:02}.png"), "wb") as f:
            f.write(draw(inside, generator))
