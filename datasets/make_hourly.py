#!/usr/bin/env python3
"""Builds hourly.csv: the temperature and the load of an invented power grid for each hour of 40 days, with the same bytes each time."""
import datetime
import math
import pathlib
import random

noise = random.Random(0)
start = datetime.datetime(2024, 3, 1)
weather = 0.0
lines = ["time,temperature,load"]
for hour in range(40 * 24):
    time = start + datetime.timedelta(hours=hour)
    weather = 0.98 * weather + noise.gauss(0, 0.4)
    temperature = 9 + 0.1 * hour / 24 + 5 * math.sin((time.hour - 9) / 12 * math.pi) + weather
    working = time.weekday() < 5
    load = 300 + (90 if working else 30) * math.sin((time.hour - 7) / 12 * math.pi) + 4 * max(0, 15 - temperature) + 40 * working
    lines.append(f"{time.isoformat(timespec='minutes')},{temperature:.1f},{load + noise.gauss(0, 6):.1f}")
(pathlib.Path(__file__).resolve().parent / "hourly.csv").write_text("\n".join(lines) + "\n")
