#!/usr/bin/env python3
"""Writes the GPT-2 tokens of text files as uint16, for `dataset: {format: tokens}`. Needs tiktoken (pip install tiktoken).

    make_tokens.py TEXT... OUT.bin     each text is a document, begun by <|endoftext|>"""
import array, sys

if len(sys.argv) < 3:
    sys.exit("usage: make_tokens.py TEXT... OUT.bin")
import tiktoken

PIECE = 1 << 20  # characters, up to the end of a line: only blank lines at a cut may become other tokens than in one piece
encoding, count = tiktoken.get_encoding("gpt2"), 0


def pieces(path):
    with open(path, encoding="utf-8") as file:
        while lines := file.readlines(PIECE):
            yield "".join(lines)


with open(sys.argv[-1], "wb") as out:
    for path in sys.argv[1:-1]:
        ids = [[encoding.eot_token], *map(encoding.encode_ordinary, pieces(path))]
        for part in ids:
            tokens = array.array("H", part)
            if sys.byteorder == "big":
                tokens.byteswap()
            tokens.tofile(out)
            count += len(tokens)
print(f"{sys.argv[-1]}: {count} tokens")
