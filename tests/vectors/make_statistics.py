"""Writes statistics.json: standard errors, paired t-tests and Wilcoxon's signed-rank tests by SciPy, and Student's t by mpmath with 50 digits."""
import json
import os

import mpmath
import numpy
import scipy
from scipy import stats

HERE = os.path.dirname(os.path.abspath(__file__))
DEGREES = [1, 2, 3, 4, 7, 10, 29, 30, 63, 64, 65, 99, 1000, 12345, 10**6]
DISTANCES = [1e-9, 1e-3, 0.1, 0.5, 1, 1.5, 1.7, 1.8, 2, 2.5, 3, 5, 10, 35, 1e3, 1e12]


def pairs():
    """(name, a, b)"""
    random = numpy.random.RandomState(7)
    for count in (2, 3, 5, 8, 13, 14, 20, 30, 49, 50, 51, 52, 100, 300):
        a = random.normal(size=count)
        yield f"{count} normal", a, a - 0.4 + 0.8 * random.normal(size=count)
    yield "6 of one sign", numpy.arange(1, 7) * 1.25, numpy.zeros(6)
    yield "30 losses near each other", 0.25 + 1e-9 * random.normal(size=30), 0.25 + 1e-9 * random.normal(size=30)
    yield "20 losses far from 0", 1e8 + random.normal(size=20), 1e8 + random.normal(size=20)
    for count in (4, 9, 13, 14, 25, 50, 51, 120):  # accuracies of few rows: ties and zeros
        a = random.randint(20, 30, count) / 32
        yield f"{count} with ties and zeros", a, random.randint(19, 30, count) / 32
    yield "12 with ties, no zeros", numpy.repeat([1.0, -2.0, 3.0, 4.0], 3), numpy.zeros(12)
    yield "9 with a zero, no ties", numpy.array([0.0, 1, 2, -3, 4, 5, 6, -7, 8]), numpy.zeros(9)
    yield "30 with a zero, no ties", numpy.arange(30.0) * (-1) ** (numpy.arange(30) % 3), numpy.zeros(30)
    yield "3, one not zero", numpy.array([0.0, 0, 2]), numpy.zeros(3)
    yield "mean 0", numpy.array([1.0, -1, 2, -2, 5, -5]), numpy.zeros(6)


def case(name, a, b):
    test = stats.ttest_rel(a, b)
    interval = test.confidence_interval(0.95)
    # Python's floats: the shortest text that reads back to the same bits
    numbers = {"mean": numpy.mean(a - b), "error": stats.sem(a - b), "t": test.statistic, "p": test.pvalue, "low": interval.low,
               "high": interval.high, "wilcoxon": stats.wilcoxon(a, b).pvalue}
    return {"name": name, "differences": (a - b).tolist(), **{key: float(value) for key, value in numbers.items()}}


def student(t, df):
    """P(|T| >= t)"""
    t, df = mpmath.mpf(t), mpmath.mpf(df)
    return float(mpmath.betainc(df / 2, mpmath.mpf(1) / 2, 0, df / (df + t * t), regularized=True))


def quantile(p, df):
    a, p = mpmath.mpf(df) / 2, mpmath.mpf(p)
    start = stats.t.isf(float(p) / 2, df)
    return float(mpmath.findroot(lambda t: mpmath.betainc(a, mpmath.mpf(1) / 2, 0, df / (df + t * t), regularized=True) / p - 1, start))


def main():
    mpmath.mp.dps = 50
    cases = [case(*pair) for pair in pairs()]
    t = [[t, df, p] for df in DEGREES for t in DISTANCES for p in [student(t, df)] if p > 1e-290]
    quantiles = [[p, df, quantile(p, df)] for df in DEGREES for p in (0.05, 0.01, 0.6)]
    with open(os.path.join(HERE, "statistics.json"), "w", encoding="utf-8") as file:
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        file.write(f'{{"by":"SciPy {scipy.__version__}, mpmath {mpmath.__version__}","cases":[\n{lines}\n],\n')
        file.write(f'"t_df_p":{json.dumps(t)},\n"p_df_t":{json.dumps(quantiles)}}}\n')


if __name__ == "__main__":
    main()
