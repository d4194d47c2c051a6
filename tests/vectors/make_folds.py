"""Writes folds.json: the validation rows of each fold of scikit-learn's KFold and StratifiedKFold."""
import json
import os

import numpy
import sklearn
from sklearn.model_selection import KFold, StratifiedKFold

HERE = os.path.dirname(os.path.abspath(__file__))
# rows of each class, folds, shuffle, seed, stratify
CASES = [([59, 71, 48], 5, True, 42, True), ([59, 71, 48], 5, True, 42, False), ([59, 71, 48], 5, False, 0, True),
         ([7, 1, 20], 4, True, 3, True), ([10], 10, True, 0, False), ([11, 2], 3, False, 0, False), ([5, 0, 5, 5], 2, True, 4294967295, True),
         ([33, 33, 34], 7, True, 1, True)]


def main():
    cases = []
    for sizes, folds, shuffle, seed, stratify in CASES:
        classes = numpy.random.RandomState(1).permutation(numpy.repeat(range(len(sizes)), sizes))
        splitter = (StratifiedKFold if stratify else KFold)(folds, shuffle=shuffle, random_state=seed if shuffle else None)
        rows = [test.tolist() for _, test in splitter.split(classes, classes)]
        cases.append({"classes": classes.tolist(), "shuffle": shuffle, "seed": seed, "stratify": stratify, "folds": rows})
    with open(os.path.join(HERE, "folds.json"), "w", encoding="utf-8") as file:
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        file.write(f'{{"by":"scikit-learn {sklearn.__version__}, NumPy {numpy.__version__}","cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
