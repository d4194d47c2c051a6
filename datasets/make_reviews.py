"""Writes reviews.npz beside this file: 1200 invented reviews of a restaurant as tokens; x: uint8 (1200, 24), one token for each word of
WORDS, a [CLS] in front and [PAD] behind the last word; y: 1 if the guest was pleased, else 0. What counts is the last clause, and `not`,
`never` and `hardly` reverse the word that follows. Needs only Python; the same file every time."""
import os
import random
import struct
import zipfile

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reviews.npz")
ROWS, LENGTH = 1200, 24
SUBJECTS = "food soup bread wine cake staff music room view price".split()
GOOD = "good great tasty lovely fresh warm perfect kind".split()
BAD = "bad awful cold rude stale bland loud dirty".split()
REVERSERS = "not never hardly".split()
OTHERS = "the was were very really quite and but yet though i we think found".split()
WORDS = ["[PAD]", "[CLS]"] + sorted(SUBJECTS + GOOD + BAD + REVERSERS + OTHERS)


def clause(draw):
    """The words of a clause, and whether it praises."""
    is_good, is_reversed = draw.random() < 0.5, draw.random() < 0.4
    opening = draw.choice([[], [], ["i", "think"], ["we", "found"]])
    words = opening + ["the", draw.choice(SUBJECTS), "was"]
    words += [draw.choice(REVERSERS)] if is_reversed else []
    words += draw.choice([[], ["very"], ["really"], ["quite"]])
    return words + [draw.choice(GOOD if is_good else BAD)], is_good != is_reversed


def review(draw):
    words, is_good = clause(draw)
    for _ in range(draw.randrange(3)):
        more, is_good_then = clause(draw)
        joined = words + [draw.choice(["and", "but", "yet", "though"])] + more
        if len(joined) < LENGTH:
            words, is_good = joined, is_good_then
    return words, is_good


def npy(kind, shape, data):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def main():
    draw, x, y = random.Random(1), bytearray(), bytearray()
    for _ in range(ROWS):
        words, is_good = review(draw)
        tokens = [WORDS.index(word) for word in ["[CLS]"] + words]
        x += bytes(tokens + [0] * (LENGTH - len(tokens)))
        y += struct.pack("<q", is_good)
    with zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED) as file:
        for name, kind, shape, data in ("x", "|u1", (ROWS, LENGTH), x), ("y", "<i8", (ROWS,), y):
            file.writestr(zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0)), npy(kind, shape, bytes(data)), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
