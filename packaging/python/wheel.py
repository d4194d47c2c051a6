#!/usr/bin/env python3
"""Makes the wheel: packaging/python/wheel.py FOLDER VERSION OUT

FOLDER is the portable program (packaging/package.sh portable), which becomes ddptrain/native; the wheel is written into the folder OUT.
A wheel is a zip file with a list of its files (the Binary Distribution Format of PyPA), so nothing but Python is needed.
"""

import base64
import hashlib
import sys
import zipfile
from pathlib import Path

PARTS = ("bin", "lib", "include", "share/ddptrain", "share/doc/ddptrain/licenses")
METADATA = """Metadata-Version: 2.1
Name: ddptrain
Version: {version}
Summary: data-parallel training of neural networks from a YAML file
License: MIT
Requires-Python: >=3.8
Requires-Dist: numpy
Description-Content-Type: text/markdown

{description}"""
WHEEL = """Wheel-Version: 1.0
Generator: ddptrain {version}
Root-Is-Purelib: false
Tag: {tag}
"""
TAG = "py3-none-manylinux_2_28_x86_64"
EARLIEST = (1980, 1, 1, 0, 0, 0)  # of zip files: the same wheel each time


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    tree, version, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    root, own = Path(__file__).resolve().parents[2], Path(__file__).resolve().parent / "ddptrain"
    info = f"ddptrain-{version}.dist-info"
    files = {f"ddptrain/{name}": (own / name).read_bytes() for name in ("__init__.py", "__main__.py", "py.typed")}
    for part in PARTS:
        for path in sorted((tree / part).rglob("*")):
            # zip files have no links: a library has the name by which it is opened
            if path.is_file() and (not path.is_symlink() or path.name.endswith(".so.0")) and not path.name.endswith(f".so.{version}"):
                files[f"ddptrain/native/{path.relative_to(tree)}"] = path.read_bytes()
    description = (root / "docs/python.md").read_text()
    files[f"{info}/METADATA"] = METADATA.format(version=version, description=description).encode()
    files[f"{info}/WHEEL"] = WHEEL.format(version=version, tag=TAG).encode()
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nddptrain = ddptrain:main\n"
    files[f"{info}/LICENSE"], files[f"{info}/NOTICE"] = (root / "LICENSE").read_bytes(), (root / "NOTICE").read_bytes()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(out / f"ddptrain-{version}-{TAG}.whl", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name == "ddptrain/native/bin/ddptrain" else 0o100644) << 16
            wheel.writestr(entry, data, compresslevel=9)


if __name__ == "__main__":
    main()
