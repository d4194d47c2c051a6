#!/usr/bin/env python3
"""Writes augment.json: images rotated by torchvision and with its changes of colours, and the means of the rectangles that
its RandomErasing draws.

    python3 tests/vectors/make_augment.py     (torch and torchvision; written with torchvision 0.29)"""
import json
import os

import torch
import torchvision.transforms.functional as F
from torchvision.transforms import InterpolationMode, RandomErasing

DRAWS = 50000


def rotated():
    height, width = 5, 7
    image = torch.arange(1, height * width + 1, dtype=torch.float32).reshape(1, height, width) ** 2 / 64
    for degrees in (17.0, -33.5, 90.0, 121.3, 180.0, -250.7):
        for mode in (InterpolationMode.NEAREST, InterpolationMode.BILINEAR):
            for fill in (0.0, -1.5):
                out = F.rotate(image - fill, degrees, mode, fill=[0.0]) + fill  # black, scaled
                yield {"degrees": degrees, "bilinear": mode == InterpolationMode.BILINEAR, "fill": fill, "rotated": out.flatten().tolist()}


def color_images():
    random = torch.Generator().manual_seed(3)
    color, grey = torch.rand(3, 4, 6, generator=random), torch.rand(1, 4, 6, generator=random)
    color[:, 0, :3] = torch.tensor([[0.0, 1, 0.25], [0.0, 1, 0.25], [0.0, 1, 0.25]])  # greys have no hue
    return color, grey


def colors():
    for image in color_images():
        for index, (adjust, factors) in enumerate(((F.adjust_brightness, (0, 0.3, 1.7)), (F.adjust_contrast, (0, 0.4, 2.5)),
                                                   (F.adjust_saturation, (0, 0.6, 1.9)), (F.adjust_hue, (-0.5, -0.21, 0.1, 0.5)))):
            for factor in factors:
                out = adjust(image, factor)
                yield {"color": index, "factor": float(factor), "channels": image.shape[0], "adjusted": out.flatten().tolist()}


def erased():
    torch.manual_seed(0)
    for height, width, scale, ratio in ((32, 32, (0.02, 0.33), (0.3, 3.3)), (20, 50, (0.2, 0.5), (0.5, 1)), (10, 10, (0.5, 1), (0.2, 5))):
        image = torch.empty(1, height, width)
        drawn = [RandomErasing.get_params(image, scale, ratio, [0.0]) for _ in range(DRAWS)]
        drawn = torch.tensor([d[:4] if (d[2], d[3]) != (height, width) else (0, 0, 0, 0) for d in drawn], dtype=torch.float64)
        yield {"size": [height, width], "scale": list(map(float, scale)), "ratio": list(map(float, ratio)), "mean": drawn.mean(0).tolist(),
               "deviation": drawn.std(0).tolist()}


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "augment.json"), "w") as f:
    images = [image.flatten().tolist() for image in color_images()]
    json.dump({"rotated": list(rotated()), "images": images, "colors": list(colors()), "erased": list(erased())}, f, separators=(",", ": "))
    f.write("\n")
