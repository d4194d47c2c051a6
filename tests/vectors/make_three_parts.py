"""Writes three_parts.json: test rows are divided off first, then validation rows from the rest, by scikit-learn's functions one after
the other."""
import json
import os

import numpy
import sklearn
from sklearn.model_selection import (GroupKFold, GroupShuffleSplit, KFold, StratifiedKFold, TimeSeriesSplit,
                                     train_test_split)

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = 97


def main():
    random = numpy.random.RandomState(3)
    classes, groups = random.randint(0, 3, ROWS), random.randint(0, 17, ROWS)
    rows, cases = numpy.arange(ROWS), []

    def add(keys, test, validation, train):
        cases.append({"keys": keys, "test": [int(r) for r in test], "validation": [int(r) for r in validation], "train": [int(r) for r in train]})

    for test_size, size, seed in ((0.2, 0.2, 42), (0.33, 0.1, 0), (0.05, 0.5, 7)):
        keys = {"test": test_size, "validation": size, "seed": seed}
        rest, test = train_test_split(rows, test_size=test_size, random_state=seed)
        add(keys, test, *train_test_split(rest, test_size=size, random_state=seed)[::-1])
        rest, test = train_test_split(rows, test_size=test_size, random_state=seed, stratify=classes)
        add(keys | {"stratify": True}, test, *train_test_split(rest, test_size=size, random_state=seed, stratify=classes[rest])[::-1])
        rest, test = train_test_split(rows, test_size=test_size, shuffle=False)
        add(keys | {"shuffle": False}, test, *train_test_split(rest, test_size=size, shuffle=False)[::-1])
        rest, test = next(GroupShuffleSplit(1, test_size=test_size, random_state=seed).split(rows, groups=groups))
        train, validation = next(GroupShuffleSplit(1, test_size=size, random_state=seed).split(rest, groups=groups[rest]))
        add(keys | {"group": "g"}, test, rest[validation], rest[train])
    keys, seed = {"test": 0.25, "folds": 4, "fold": 2, "seed": 5}, 5
    rest, test = train_test_split(rows, test_size=0.25, random_state=seed)
    train, validation = list(KFold(4, shuffle=True, random_state=seed).split(rest))[2]
    add(keys, test, rest[validation], rest[train])
    rest, test = train_test_split(rows, test_size=0.25, random_state=seed, stratify=classes)
    train, validation = list(StratifiedKFold(4, shuffle=True, random_state=seed).split(rest, classes[rest]))[2]
    add(keys | {"stratify": True}, test, rest[validation], rest[train])
    rest, test = next(GroupShuffleSplit(1, test_size=0.25, random_state=seed).split(rows, groups=groups))
    train, validation = list(GroupKFold(4).split(rest, groups=groups[rest]))[2]
    add(keys | {"group": "g"}, test, rest[validation], rest[train])
    rest, test = train_test_split(rows, test_size=0.25, shuffle=False)
    train, validation = list(TimeSeriesSplit(4).split(rest))[2]
    add(keys | {"time_series": True}, test, rest[validation], rest[train])
    with open(os.path.join(HERE, "three_parts.json"), "w", encoding="utf-8") as file:
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        file.write(f'{{"by":"scikit-learn {sklearn.__version__}, NumPy {numpy.__version__}",\n"classes":{json.dumps(classes.tolist())},\n'
                   f'"groups":{json.dumps(groups.tolist())},\n"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
