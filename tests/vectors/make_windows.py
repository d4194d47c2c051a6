#!/usr/bin/env python3
"""Writes windows.json: images of torchvision's RandomResizedCrop for given windows, and the means of the windows that it draws.

    python3 tests/vectors/make_windows.py     (torch and torchvision; written with torchvision 0.29)"""
import json
import os

import torch
import torchvision.transforms.functional as F
from torchvision.transforms import RandomResizedCrop

DRAWS = 100000


def resized():
    height, width = 6, 7
    image = torch.arange(2 * height * width, dtype=torch.float32).reshape(2, height, width) ** 2 / 8
    for top, left, h, w in ((1, 2, 3, 4), (0, 0, 6, 7), (5, 6, 1, 1), (0, 3, 2, 3), (2, 0, 4, 7)):
        out = F.resized_crop(image, top, left, h, w, [height, width], antialias=True)
        yield {"window": [top, left, h, w], "image": image.flatten().tolist(), "resized": out.flatten().tolist()}


def drawn():
    torch.manual_seed(0)
    for height, width, scale, ratio in ((20, 30, (0.2, 0.9), (3 / 4, 4 / 3)), (224, 224, (0.08, 1), (3 / 4, 4 / 3)), (10, 40, (0.5, 1), (0.5, 2)),
                                        (40, 10, (1, 1), (0.5, 2))):
        windows = torch.tensor([RandomResizedCrop.get_params(torch.empty(1, height, width), scale, ratio) for _ in range(DRAWS)], dtype=torch.float64)
        yield {"size": [height, width], "scale": list(map(float, scale)), "ratio": list(map(float, ratio)), "mean": windows.mean(0).tolist(),
               "deviation": windows.std(0).tolist()}


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "windows.json"), "w") as f:
    json.dump({"resized": list(resized()), "drawn": list(drawn())}, f, separators=(",", ": "))
    f.write("\n")
