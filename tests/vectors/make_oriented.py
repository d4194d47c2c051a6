"""Writes oriented/: JPEG images with each EXIF orientation, in both byte orders, and what Pillow's ImageOps.exif_transpose
makes of them, resized (needs Pillow). Row i of an array of expected.npz is image i of the sorted list: center.npy is
torchvision's Resize(24), CenterCrop((24, 18)); grey.npy convert("L"), Resize((20, 28))."""
import glob
import io
import os

import numpy as np
from PIL import Image, ImageOps

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "oriented")
random = np.random.default_rng(5)


def exif(orientation, is_little):
    """Another tag before it, and one behind; orientation 0: without the tag."""
    order = "little" if is_little else "big"

    def entry(tag, kind, value):
        return tag.to_bytes(2, order) + kind.to_bytes(2, order) + (1).to_bytes(4, order) + value.to_bytes(2 if kind == 3 else 4, order).ljust(4, b"\0")

    entries = [entry(0x100, 4, 77)] + [entry(0x112, 3, orientation)] * (orientation > 0) + [entry(0x128, 3, 6)]
    start = b"II*\0" if is_little else b"MM\0*"
    return b"Exif\0\0" + start + (8).to_bytes(4, order) + len(entries).to_bytes(2, order) + b"".join(entries) + bytes(4)


def picture(height, width):
    return Image.fromarray(random.integers(0, 256, (5, 6, 3), dtype="u1")).resize((width, height), Image.BICUBIC)


def crop(image, height, width):
    left, top = round((image.size[0] - width) / 2), round((image.size[1] - height) / 2)
    return image.crop((left, top, left + width, top + height))


def shorter(image, side):
    width, height = image.size
    other = int(side * max(width, height) / min(width, height))
    return image.resize((side, other) if width <= height else (other, side), Image.BILINEAR)


os.makedirs(os.path.join(FOLDER, "all"), exist_ok=True)
for orientation in range(10):
    image = picture(31, 45).convert("CMYK" if orientation == 7 else "RGB")
    image.save(os.path.join(FOLDER, "all", f"{orientation}.jpg"), exif=exif(orientation, orientation % 2), quality=90)

arrays = {"center": [], "grey": []}
for path in sorted(glob.glob(os.path.join(FOLDER, "all", "*"))):
    image = ImageOps.exif_transpose(Image.open(path))
    arrays["center"].append(np.asarray(crop(shorter(image.convert("RGB"), 24), 24, 18)).transpose(2, 0, 1))
    arrays["grey"].append(np.asarray(image.convert("L").resize((28, 20), Image.BILINEAR))[None])
file = io.BytesIO()
np.savez_compressed(file, **{name: np.array(rows) for name, rows in arrays.items()})
with open(os.path.join(FOLDER, "expected.npz"), "wb") as f:
    f.write(file.getvalue())
