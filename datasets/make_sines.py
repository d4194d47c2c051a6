"""Writes sines.npz beside this file, the data of PyTorch's example time_sequence_prediction: 100 sine waves of 1,000 values with a period of
40 pi steps, each from a random step on. x: the values but the last one (100, 999, 1), y: the values but the first one. Needs numpy."""
import os

import numpy as np

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sines.npz")
T, LENGTH, ROWS = 20, 1000, 100

np.random.seed(2)
steps = np.arange(LENGTH) + np.random.randint(-4 * T, 4 * T, ROWS).reshape(ROWS, 1)
values = np.sin(steps / 1.0 / T).astype("float32")[:, :, None]
np.savez_compressed(FILE, x=values[:, :-1], y=values[:, 1:])
