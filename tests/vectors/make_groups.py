"""Writes groups.json: the validation rows of scikit-learn's GroupShuffleSplit and of each fold of GroupKFold."""
import json
import os

import numpy
import sklearn
from sklearn.model_selection import GroupKFold, GroupShuffleSplit

HERE = os.path.dirname(os.path.abspath(__file__))
# rows, different groups at most, test or folds, seed
CASES = [(60, 9, 0.2, 0), (60, 9, 0.5, 42), (100, 40, 0.25, 7), (30, 30, 0.1, 4294967295), (7, 2, 0.01, 3), (60, 9, 3, 0), (100, 40, 5, 0), (200, 12, 12, 0),
         (30, 30, 4, 0)]


def main():
    cases = []
    for rows, count, part, seed in CASES:
        groups = numpy.random.RandomState(rows + count).randint(0, count, rows)
        groups = numpy.unique(groups, return_inverse=True)[1]
        splitter = GroupKFold(part) if part >= 1 else GroupShuffleSplit(1, test_size=part, random_state=seed)
        parts = [test.tolist() for _, test in splitter.split(groups, groups=groups)]
        cases.append({"groups": groups.tolist(), "test": part if part < 1 else 0, "seed": seed, "parts": parts})
    with open(os.path.join(HERE, "groups.json"), "w", encoding="utf-8") as file:
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        file.write(f'{{"by":"scikit-learn {sklearn.__version__}, NumPy {numpy.__version__}","cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
