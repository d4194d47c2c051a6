"""Targets of two columns and what scikit-learn's TransformedTargetRegressor makes of them: its transformers are fitted to the
training rows, those of train_test_split(test_size=0.25, random_state=3). Writes target_scale.json. Needs scikit-learn."""
import json
import os

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler

rng = np.random.default_rng(5)
x = rng.normal(size=(24, 2)).round(6)
y = np.column_stack([np.exp(6 + x[:, 0] + rng.normal(size=24) / 2), np.full(24, 7.25)]).round(6)
train, validation = train_test_split(np.arange(24), test_size=0.25, random_state=3)
cases = {}
for name, transformer in (("standard", StandardScaler()), ("minmax", MinMaxScaler()),
                          ("log1p", FunctionTransformer(np.log1p, np.expm1))):
    model = TransformedTargetRegressor(LinearRegression(), transformer=transformer, check_inverse=False).fit(x[train], y[train])
    scaled = model.transformer_.transform(y)
    cases[name] = {"scaled": scaled.tolist(), "outputs": model.regressor_.predict(x).tolist(), "predictions": model.predict(x).tolist(),
                   "weight": model.regressor_.coef_.tolist(), "bias": model.regressor_.intercept_.tolist()}
    if name != "log1p":
        t = model.transformer_
        cases[name]["mean"] = (t.mean_ if name == "standard" else t.data_min_).tolist()
        cases[name]["scale"] = (t.scale_ if name == "standard" else 1 / t.scale_).tolist()
with open(os.path.join(os.path.dirname(__file__), "target_scale.json"), "w") as f:
    json.dump({"x": x.tolist(), "y": y.tolist(), "validation": validation.tolist(), "cases": cases}, f)
    f.write("\n")
