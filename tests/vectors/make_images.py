"""Writes images/: small images of every kind, and what Pillow makes of them (needs Pillow). Row i of an array of
expected.npz is image i of the sorted list: center.npy is torchvision's Resize(24), CenterCrop((24, 18)); stretched.npy
Resize((20, 28)); grey.npy convert("L"), Resize(40), CenterCrop(40)."""
import glob, os

import numpy as np
from PIL import Image

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images")
random = np.random.default_rng(7)


def picture(height, width):
    base = Image.fromarray(random.integers(0, 256, (5, 6, 3), dtype="u1")).resize((width, height), Image.BICUBIC)
    noisy = np.asarray(base).astype(int) + random.integers(-12, 13, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype("u1"))


def save(image, name, **options):
    path = os.path.join(FOLDER, "all", name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    image.save(path, **options)


def crop(image, height, width):
    left, top = round((image.size[0] - width) / 2), round((image.size[1] - height) / 2)
    return image.crop((left, top, left + width, top + height))


def shorter(image, side):
    width, height = image.size
    other = int(side * max(width, height) / min(width, height))
    return image.resize((side, other) if width <= height else (other, side), Image.BILINEAR)


wide, tall, tiny = picture(31, 45), picture(52, 33), picture(3, 2)
exif = Image.Exif()
exif[0x112] = 6  # rotated by a quarter, which is not applied
save(wide, "jpeg-420.jpg", quality=90)
save(tall, "jpeg-444.JPEG", quality=95, subsampling=0)
save(tall, "jpeg-progressive.jpg", progressive=True, subsampling=1)
save(wide.convert("L"), "jpeg-grey.jpg")
save(tall.convert("CMYK"), "jpeg-cmyk.jpg")
save(wide, "jpeg-rotated.jpg", exif=exif)
save(tiny, "png-tiny.png")
save(wide, "png-rgb.png")
save(tall.convert("L"), "png-grey.png")
save(tall.convert("1"), "png-1-bit.png")
save(wide.quantize(4), "png-palette-2-bits.png", bits=2)
save(tall.quantize(200), "png-palette-transparent.png", transparency=5)
alpha = Image.fromarray(np.dstack([np.asarray(wide), random.integers(0, 256, (31, 45), dtype="u1")]))
save(alpha, "png-rgba.png")
save(alpha.convert("LA"), "png-grey-alpha.png")

arrays = {"center": [], "stretched": [], "grey": []}
for path in sorted(glob.glob(os.path.join(FOLDER, "all", "*"))):
    rgb, grey = Image.open(path).convert("RGB"), Image.open(path).convert("L")
    arrays["center"].append(np.asarray(crop(shorter(rgb, 24), 24, 18)).transpose(2, 0, 1))
    arrays["stretched"].append(np.asarray(rgb.resize((28, 20), Image.BILINEAR)).transpose(2, 0, 1))
    arrays["grey"].append(np.asarray(crop(shorter(grey, 40), 40, 40))[None])
np.savez_compressed(os.path.join(FOLDER, "expected.npz"), **{name: np.stack(rows) for name, rows in arrays.items()})
