"""Writes stratified.json: scikit-learn's train_test_split(range(rows), test_size=..., random_state=..., stratify=classes)."""
import json
import os

import numpy
import sklearn
from sklearn.model_selection import train_test_split

HERE = os.path.dirname(os.path.abspath(__file__))
# rows of each class, in an order of the generator's; a class may be absent
CASES = [([59, 71, 48], 0.2, 42), ([5, 0, 5, 5, 5], 0.3, 0), ([2, 2, 2], 0.5, 1), ([100, 3, 40, 7, 7, 7], 0.25, 7),
         ([33, 33, 34], 0.333, 123456), ([10, 20], 0.07, 4294967295), ([3] * 37, 0.4, 5),
         ([41, 20, 39], 0.35, 9)]


def main():
    cases = []
    for sizes, test, seed in CASES:
        classes = numpy.random.RandomState(1).permutation(numpy.repeat(range(len(sizes)), sizes))
        train_rows, test_rows = train_test_split(range(len(classes)), test_size=test, random_state=seed, stratify=classes)
        cases.append({"classes": classes.tolist(), "part": test, "seed": seed, "train": train_rows, "test": test_rows})
    with open(os.path.join(HERE, "stratified.json"), "w", encoding="utf-8") as file:
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        file.write(f'{{"by":"scikit-learn {sklearn.__version__}, NumPy {numpy.__version__}","cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
