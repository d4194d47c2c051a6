#!/usr/bin/env python3
"""Writes titanic.csv: invented passengers with the columns of the well-known table (names with commas and quotes, missing
values, categories) and a date of booking; the same bytes each time."""
import csv
import pathlib
import random

ROWS = 500
r = random.Random(1912)
first = {"male": ["Owen", "James", "Karl", "William", "Henry"], "female": ["Ada", "Laina", "Ellen", "Florence", "Elizabeth"]}
last = ["Braun", "Heikkinen", "O'Neill", "van der Berg", "Moran", "Palsson", "Smith"]

with open(pathlib.Path(__file__).resolve().parent / "titanic.csv", "w", newline="") as file:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["PassengerId", "Survived", "Pclass", "Name", "Sex", "Age", "SibSp", "Fare", "Embarked", "Booked"])
    for i in range(ROWS):
        sex, pclass = r.choice(["male", "male", "female"]), r.choice([1, 2, 3, 3])
        age, relatives = max(1, round(r.gauss(30, 14))), r.choice([0, 0, 0, 1, 1, 2])
        fare = round(r.lognormvariate(4.4 - 0.8 * pclass, 0.5), 4)
        score = 1.6 * (sex == "female") - 0.7 * (pclass - 2) + 1.2 * (age < 12) + r.gauss(0, 0.7)
        title = "Mr." if sex == "male" else r.choice(["Miss", "Mrs."])
        name = f"{r.choice(last)}, {title} {r.choice(first[sex])}" + (' "Kit"' if r.random() < 0.05 else "")
        booked = f"19{r.choice([11, 12])}-{r.randint(1, 4):02}-{r.randint(1, 28):02}"
        out.writerow([i + 1, int(score > 0.6), pclass, name, sex, "" if r.random() < 0.2 else age, relatives, fare,
                      "" if r.random() < 0.02 else r.choice("SSSCCQ"), "" if r.random() < 0.05 else booked])
