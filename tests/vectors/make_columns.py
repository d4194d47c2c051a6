#!/usr/bin/env python3
"""Writes columns.json: tables of numbers, categories, booleans and dates with missing values, and the features that pandas and
scikit-learn's ColumnTransformer make of them. Needs pandas and scikit-learn.

    make_columns.py [TABLES [FIRST SEED]]      default 4 tables into columns.json; more to compare by hand: set OUT"""
import json
import os
import pathlib
import sys

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

PARTS = ["year", "month", "day", "weekday", "dayofyear", "quarter", "hour", "minute", "second"]


def scaler(name):
    return {"none": "passthrough", "standard": StandardScaler(), "minmax": MinMaxScaler()}[name]


def with_indicator(pipeline, has_indicator):
    return make_union(pipeline, MissingIndicator(features="missing-only", error_on_new=False)) if has_indicator else pipeline


def impute(rule, r, is_text, missing):
    """The imputer, and the keys of the config."""
    if rule == "constant":
        fill = "zz" if is_text else float(np.round(r.normal(), 2))
        return SimpleImputer(strategy="constant", fill_value=fill, missing_values=missing), {"missing": "constant", "fill": str(fill)}
    return SimpleImputer(strategy=rule, missing_values=missing), {"missing": rule}


def make_table(seed):
    r = np.random.default_rng(seed)
    rows, train = int(r.integers(30, 80)), None
    train = int(rows * 0.7)
    frame, rules, steps = {}, {}, []
    for c in range(int(r.integers(3, 9))):
        kind = r.choice(["number", "integer", "category", "codes", "boolean", "date"])
        name, rate = f"{kind[0]}{c}", r.choice([0, 0.1, 0.4])
        is_missing = r.random(rows) < rate
        is_missing[0] = False
        scale, has_indicator = r.choice(["none", "standard", "minmax"]), bool(r.integers(2))
        if kind in ("number", "integer"):
            values = r.normal(r.normal() * 10, 3, rows) if kind == "number" else r.integers(-5, 9, rows).astype(float)
            rule = r.choice(["mean", "median", "most_frequent", "constant"])
            imputer, keys = impute(rule, r, False, np.nan)
            frame[name] = pd.Series(np.where(is_missing, np.nan, values))
            steps.append((name, with_indicator(make_pipeline(imputer, scaler(scale)), has_indicator), [name]))
            rules[name] = {**keys, "scale": scale, "indicator": has_indicator}
        elif kind == "boolean":
            values = np.where(r.random(rows) < 0.5, "yes", "no").astype(object)
            frame[name] = pd.Series(np.where(is_missing, None, values), dtype=object)
            imputer, keys = impute("most_frequent", r, False, np.nan)
            steps.append((name, make_pipeline(imputer, scaler(scale)), [name]))
            rules[name] = {**keys, "scale": scale}
        elif kind in ("category", "codes"):
            values = r.choice(["Ulm", "Zürich", "a,b", "x", "Örebro", "b\"c"] if kind == "category" else ["10", "9", "2", "33"], rows).astype(object)
            values[train:][r.random(rows - train) < 0.3] = "unseen" if kind == "category" else "77"
            frame[name] = pd.Series(np.where(is_missing, None, values), dtype=object)
            if kind == "codes":
                frame[name] = frame[name].astype(float)
            missing = np.nan if kind == "codes" else None
            is_ordinal = bool(r.integers(2))
            rule = r.choice(["most_frequent", "own" if not is_ordinal else "most_frequent", "constant" if kind == "category" else "most_frequent"])
            imputer, keys = impute("most_frequent" if rule == "own" else rule, r, True, missing)
            if rule == "own":  # a missing value is a category
                steps.append((name, OneHotEncoder(handle_unknown="ignore", sparse_output=False), [name]))
                rules[name] = {"type": "category", "missing": "indicator"}
            elif is_ordinal:
                encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
                steps.append((name, make_pipeline(imputer, encoder, scaler(scale)), [name]))
                rules[name] = {**keys, "type": "category", "encoding": "ordinal", "scale": scale}
            else:
                steps.append((name, make_pipeline(imputer, OneHotEncoder(handle_unknown="ignore", sparse_output=False)), [name]))
                rules[name] = {**keys, "type": "category"}
        else:
            stamps = pd.Timestamp("1950-01-01") + pd.to_timedelta(r.integers(0, 4_000_000_000, rows), unit="s")
            parts = list(r.permutation(PARTS)[: int(r.integers(1, 4))])
            frame[name] = pd.Series(np.where(is_missing, None, stamps.strftime("%Y-%m-%d %H:%M:%S")))
            rule = r.choice(["mean", "median", "most_frequent"])
            for part in parts:
                frame[name + part] = getattr(pd.Series(np.where(is_missing, pd.NaT, stamps)).pipe(pd.to_datetime).dt, part)
                steps.append((name + part, make_pipeline(SimpleImputer(strategy=rule), scaler(scale)), [name + part]))
            rules[name] = {"type": "date", "parts": parts, "missing": rule, "scale": scale}
    data = pd.DataFrame(frame)
    names = list(rules)
    inputs = data[names].copy()
    for name in rules:
        if rules[name].get("type") == "category" and data[name].dtype == float:
            inputs[name] = data[name].map(lambda v: "" if np.isnan(v) else f"{v:g}")
        if name[0] == "b":
            data[name] = data[name].map({"yes": 1.0, "no": 0.0, None: np.nan}).astype(float)
    inputs["y"] = 0
    features = ColumnTransformer(steps, sparse_threshold=0).fit(data[:train]).transform(data).astype(float)
    return {"seed": seed, "csv": inputs.to_csv(index=False), "columns": rules, "train_rows": train, "rows": rows,
            "features": [[float(np.float32(v)) for v in row] for row in features]}


def main():
    count, first = (int(v) for v in (sys.argv[1:] + ["4", "1"][len(sys.argv) - 1:]))
    out = pathlib.Path(os.environ.get("OUT", pathlib.Path(__file__).resolve().parent / "columns.json"))
    out.write_text(json.dumps([make_table(first + i) for i in range(count)], ensure_ascii=False, separators=(",", ":")) + "\n")


main()
