#!/usr/bin/env python3
"""Tests every single typo of every config key: each must be rejected with its line and column and the correct suggestion.

    tests/proof/typos.py [--ddptrain build/release/bin/ddptrain] [--sample N]

A typo is one letter left out, doubled, replaced, put in, or swapped with the next. With --sample each key gets N of them, always
the same. A suggestion is right when it is the key itself or another key of the place that is one typo away, too; a key of one
or two letters may go without. Prints a line for each failure and a summary; exit 1 when there was one.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LETTERS = "abcdefghijklmnopqrstuvwxyz_"
MAX_TYPOS = 80  # in a file; the program stores at most 100 problems


def typos(word):
    found = set()
    for i in range(len(word) + 1):
        found.update(word[:i] + c + word[i:] for c in LETTERS)
        if i < len(word):
            found.add(word[:i] + word[i + 1:])
            found.update(word[:i] + c + word[i + 1:] for c in LETTERS)
        if i + 1 < len(word):
            found.add(word[:i] + word[i + 1] + word[i] + word[i + 2:])
    return sorted(found - {word, ""})


class Place:
    """A mapping of the config: the lines that lead to it, its indent, its keys, and what must stand in it."""

    def __init__(self, lines, indent, keys, fixed):
        self.lines, self.indent, self.keys, self.fixed = lines, indent, keys, fixed


def places(schema):
    found = []

    def mapping(node, lines, indent):
        if "$ref" in node:
            name = node["$ref"].rsplit("/", 1)[1]
            return None if name in seen and not seen.add(name) else mapping(schema["$defs"][name], lines, indent)
        for kind in ("anyOf", "allOf", "oneOf"):
            for option in node.get(kind, []):
                mapping(option, lines, indent)
        properties = node.get("properties")
        if properties:
            fixed = {k: v["const"] for k, v in properties.items() if "const" in v}
            found.append(Place(lines, indent, list(properties), fixed))
            for key, value in properties.items():
                inside = lines + [f"{' ' * indent}{k}: {v}" for k, v in fixed.items()]
                mapping(value, inside + [f"{' ' * indent}{key}:"], indent + 2)
        items = node.get("items")
        if items:
            name = items.get("$ref", "").rsplit("/", 1)[-1]
            if name in lists:
                return
            lists.add(name)
            options = schema["$defs"][name]["anyOf"] if name in schema["$defs"] else [items]
            for option in options:
                if set(option.get("properties", {})) and len(option["properties"]) == 1 and name in schema["$defs"]:
                    (kind, value), = option["properties"].items()
                    mapping(value, lines + [f"{' ' * indent}- {kind}:"], indent + 4)
                elif "properties" in option:
                    fixed = {k: v["const"] for k, v in option["properties"].items() if "const" in v}
                    found.append(Place(lines + [f"{' ' * indent}-"], indent + 2, list(option["properties"]), fixed))

    seen, lists = set(), set()
    mapping(schema, [], 0)
    return found


def distance(a, b):
    """Damerau-Levenshtein, neighbours swapped once."""
    rows = [list(range(len(b) + 1))]
    for i in range(1, len(a) + 1):
        row = [i]
        for j in range(1, len(b) + 1):
            best = min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                best = min(best, rows[i - 2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def check(program, place, key, words, folder):
    """The failures for [words], typos of [key] at [place]."""
    lines = list(place.lines) + [f"{' ' * place.indent}{k}: {v}" for k, v in place.fixed.items() if k != key]
    first = len(lines) + 1
    lines += [f"{' ' * place.indent}{word}: 1" for word in words]
    path = os.path.join(folder, "typo.yaml")
    with open(path, "w") as f:
        f.write("\n".join(lines) + "\n")
    p = subprocess.run([program, "check", path], capture_output=True, text=True, timeout=60)
    if p.returncode != 64:
        return [f"{key}: exit {p.returncode} instead of 64: {p.stderr[:200]}"]
    said = {}
    for line in p.stderr.splitlines():
        match = re.match(r".*typo\.yaml:(\d+):(\d+): (.*)", line)
        if match and "unknown" in match[3]:
            said.setdefault((int(match[1]), int(match[2])), match[3])
    failures = []
    for i, word in enumerate(words):
        sentence = said.get((first + i, place.indent + 1))
        where = " > ".join(line.strip(" -:") for line in place.lines)
        if sentence is None:
            failures.append(f"{where}: '{word}' for '{key}' is not refused at its place")
            continue
        match = re.search(r"did you mean '([^']+)'", sentence)
        if match is None:
            if len(key) > 2:
                failures.append(f"{where}: no suggestion for '{word}' ({key}): {sentence}")
        elif match[1] != key and distance(word, match[1]) > 1:
            failures.append(f"{where}: '{word}' for '{key}' suggests '{match[1]}'")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ddptrain", default=os.path.join(ROOT, "build", "release", "bin", "ddptrain"))
    parser.add_argument("--sample", type=int, help="typos of each key; default: all")
    args = parser.parse_args()
    schema = json.loads(subprocess.run([args.ddptrain, "--schema"], capture_output=True, text=True, check=True).stdout)
    tried, keys, failures = 0, 0, []
    with tempfile.TemporaryDirectory() as folder:
        for place in places(schema):
            for key in place.keys:
                words = [w for w in typos(key) if w not in place.keys]
                if args.sample and len(words) > args.sample:
                    words = sorted(random.Random(key).sample(words, args.sample))
                keys += 1
                tried += len(words)
                for at in range(0, len(words), MAX_TYPOS):
                    failures += check(args.ddptrain, place, key, words[at:at + MAX_TYPOS], folder)
    for failure in failures:
        print(failure)
    print(f"{keys} keys, {tried} typos, {len(failures)} failures")
    sys.exit(1 if failures or keys < 100 else 0)


if __name__ == "__main__":
    main()
