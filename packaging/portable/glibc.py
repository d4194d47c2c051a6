#!/usr/bin/env python3
"""Builds for an older C library than that of this machine.

    packaging/portable/glibc.py link FOLDER             what to link with instead of libc: gcc -L FOLDER
    packaging/portable/glibc.py rebind FILE [LIBRARY ...]
                                                        changes a shared library to the same end, removes its need for LIBRARY, and
                                                        gives libraries of gcc names that are not the system's
    packaging/portable/glibc.py check FOLDER            reads each program and shared library: which versions does it need?

glibc keeps every version of a symbol, so the libc of this machine has all that version 2.28 has: RHEL 8, SLES 15 SP3, Debian 10, Ubuntu
20.04. `link` writes shared libraries without code, which have for each symbol its newest version up to that, so that a program which
needs anything newer does not link; glibc.c has what is left. `rebind` does in a finished library what the linker would have done with
those. Symbols that version 2.28 does not have at all then have no version: the module that needs the library has them.
"""

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

NEWEST = (2, 28)
LIBRARIES = ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2")
ALLOWED = {*LIBRARIES, "libpthread.so.0", "libdl.so.2", "librt.so.1"} # of the machine that runs it
# New names of gcc's libraries and of the beginnings of their versions: a process may have those of the system, too. The lengths are the same.
RENAMED = {"libstdc++.so.6": "libddpc++.so.6", "libgcc_s.so.1": "libddgcc.so.1"}
RENAMED_VERSIONS = {"GLIBCXX_": "DDP_CXX_", "CXXABI_": "DDPABI_"}
SHIMS = Path(__file__).with_name("glibc.c")
NEEDED, VERSIONS_NEEDED, VERSIONS_COUNT = 1, 0x6FFFFFFE, 0x6FFFFFFF  # DT_...
UNDEFINED, ABSOLUTE, GLOBAL, WEAK, OBJECT, TLS = 0, 0xFFF1, 1, 2, 1, 6


def version_of(name):
    """(2, 28) of "GLIBC_2.28"; None of names without a number, as GLIBC_PRIVATE."""
    prefix, _, number = name.partition("_")
    return tuple(map(int, number.split("."))) if prefix == "GLIBC" and number[:1].isdigit() else None


def is_newer(name):
    return name.startswith("GLIBC_") and (version_of(name) or (99,)) > NEWEST


def hash_of(name):
    """The hash of ELF, by which the loader compares versions."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
    return value


class Symbol:
    """A dynamic symbol; `at` is its place in the file, `version_at` that of the number of its version."""

    def __init__(self, elf, index):
        self.at, self.version_at = elf.sections[".dynsym"][0] + 24 * index, elf.sections[".gnu.version"][0] + 2 * index
        name, info, _, self.section, self.address, self.size = struct.unpack_from("<IBBHQQ", elf.data, self.at)
        number, = struct.unpack_from("<H", elf.data, self.version_at)
        self.name, self.bind, self.type = elf.string(name), info >> 4, info & 15
        self.number, self.is_default = number & 0x7FFF, not number & 0x8000


class Need:
    """A version that a file needs: `at` is its place in the file."""

    def __init__(self, elf, at, library):
        self.at, self.library = at, library
        _, _, self.number, self.name_at, _ = struct.unpack_from("<IHHII", elf.data, at)
        self.name = elf.string(self.name_at)


class Elf:
    """The dynamic part of a 64-bit file."""

    def __init__(self, path):
        self.path, self.data = Path(path), bytearray(Path(path).read_bytes())
        if self.data[:6] != b"\x7fELF\2\1":
            sys.exit(f"glibc: {path}: not a 64-bit ELF file")
        at, = struct.unpack_from("<Q", self.data, 40)
        count, names = struct.unpack_from("<HH", self.data, 60)
        headers = [struct.unpack_from("<IIQQQQ", self.data, at + 64 * i) for i in range(count)]
        text = lambda offset: self.data[offset : self.data.index(0, offset)].decode()
        self.sections = {text(headers[names][4] + h[0]): (h[4], h[5], h[3]) for h in headers}  # offset, size, address
        self.headers = {text(headers[names][4] + h[0]): at + 64 * i for i, h in enumerate(headers)}  # offset
        if ".dynamic" not in self.sections:
            sys.exit(f"glibc: {path}: not a dynamic file")
        self.string = lambda offset: text(self.sections[".dynstr"][0] + offset)
        at, size, _ = self.sections[".dynamic"]
        self.dynamic = [list(struct.unpack_from("<QQ", self.data, at + i)) for i in range(0, size, 16)]
        self.symbols = [Symbol(self, i) for i in range(1, self.sections[".dynsym"][1] // 24)]
        self.needed = [self.string(value) for tag, value in self.dynamic if tag == NEEDED]
        self.needs, self.chain = [], []  # the versions; the (place, distance to the next, library) of each library
        at = self.sections.get(".gnu.version_r", (0,))[0]
        while at:
            _, count, library, first, following = struct.unpack_from("<HHIII", self.data, at)
            self.chain.append((at, following, self.string(library)))
            entry = at + first
            for _ in range(count):
                self.needs.append(Need(self, entry, self.string(library)))
                entry += struct.unpack_from("<I", self.data, entry + 12)[0]
            at = at + following if following else 0

    def definitions(self):
        """{number: (place, name)} of the versions that the file itself has."""
        names, at = {}, self.sections.get(".gnu.version_d", (0,))[0]
        while at:
            _, _, number, _, _, first, following = struct.unpack_from("<HHHHIII", self.data, at)
            names[number] = (at, self.string(struct.unpack_from("<I", self.data, at + first)[0]))
            at = at + following if following else 0
        return names


def symbols_of_old(library):
    """{name: (newest version up to NEWEST, symbol, where it was before version 2.34 put most into libc)}"""
    path = subprocess.run(["cc", f"-print-file-name={library}"], capture_output=True, text=True, check=True).stdout.strip()
    elf, found, moved = Elf(path), {}, set()
    versions = elf.definitions()
    for s in elf.symbols:
        version = versions.get(s.number, (0, ""))[1]
        if s.section in (UNDEFINED, ABSOLUTE) or s.type == TLS or not version_of(version):
            continue
        if is_newer(version):
            moved.add(s.name)
        elif s.name not in found or version_of(found[s.name][0]) < version_of(version):
            found[s.name] = (version, s)
    where = lambda name: library if library != "libc.so.6" or name not in moved or name == "__libc_start_main" else \
        "libdl.so.2" if name.startswith("dl") else "librt.so.1" if name.startswith(("shm_", "mq_", "aio_", "timer_")) else "libpthread.so.0"
    return {name: (version, s, where(name)) for name, (version, s) in found.items()}


def run_compiler(*words, source=None):
    subprocess.run(["cc", *map(str, words)], input=source, text=True, check=True)


def write_library(folder, library, symbols):
    """A shared library without code. [symbols]: {name: (version, symbol)}"""
    places, versions = {}, {}
    for name, (version, s) in symbols.items():
        places.setdefault(s.address, []).append((name, s))
        versions.setdefault(version, []).append(name)
    source = []
    for aliases in places.values():  # names of one variable, such as environ and __environ, stay names of one
        for name, s in aliases:
            source.append(f".{'weak' if s.bind == WEAK else 'globl'} {name}\n.type {name},@{'object' if s.type == OBJECT else 'function'}\n"
                          f".size {name},{s.size}\n{name}:\n")
        source.append(f".skip {max([1] + [s.size for _, s in aliases])}\n")
    script = folder / f"{library}.map"
    script.write_text("".join(f"{v} {{ {'; '.join(names)}; }};\n" for v, names in sorted(versions.items())))
    run_compiler("-shared", "-nostdlib", "-x", "assembler", "-", f"-Wl,-soname,{library}", f"-Wl,--version-script,{script}", "-o",
                 folder / library, source=".data\n" + "".join(source))


def link(folder):
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    libraries = {}
    for library in LIBRARIES:
        for name, (version, s, where) in symbols_of_old(library).items():
            libraries.setdefault(where, {})[name] = (version, s)
    for library, symbols in libraries.items():
        write_library(folder, library, symbols)
    for name, visibility in (("glibc.o", "hidden"), ("glibc-visible.o", "default")):
        run_compiler("-O2", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-fvisibility={visibility}", "-c", SHIMS, "-o", folder / name)
    archive = folder / "libglibc.a"
    archive.unlink(missing_ok=True)
    subprocess.run(["ar", "rcs", archive, folder / "glibc.o"], check=True)
    own = subprocess.run(["cc", "-print-file-name=libc_nonshared.a"], capture_output=True, text=True, check=True).stdout.strip()
    others = " ".join(str(folder / name) for name in sorted(libraries) if name not in LIBRARIES)
    # the loader after libc: before 2.33 it has a malloc, which must not be the first that is found
    (folder / "libc.so").write_text(f"GROUP({folder}/libc.so.6 {archive} {own} AS_NEEDED({others} {folder}/{LIBRARIES[-1]}))\n")
    (folder / "libm.so").write_text(f"INPUT({folder}/libm.so.6)\n")
    for name in ("libpthread.so", "libdl.so", "librt.so"):
        (folder / name).write_text(f"INPUT(AS_NEEDED({others}))\n")


def rebind(path, dropped):
    elf, old = Elf(path), {}
    for library in LIBRARIES:
        old.update({name: version for name, (version, _, _) in symbols_of_old(library).items()})
    missing = set(dropped) - set(elf.needed)
    if missing:
        sys.exit(f"glibc: {path}: does not need {', '.join(missing)}")
    by_number, with_versions = {n.number: n for n in elf.needs}, {library for _, _, library in elf.chain}
    for s in (s for s in elf.symbols if s.section == UNDEFINED):
        need = by_number.get(s.number)
        if need and need.library in dropped or not need and not with_versions.issuperset(dropped):  # address 0: it is not called
            struct.pack_into("<B", elf.data, s.at + 4, WEAK << 4 | s.type)
            struct.pack_into("<H", elf.data, s.version_at, GLOBAL)
        elif need and is_newer(need.name):
            # no version, where no other symbol has the old one: the loader then takes the newest of the library
            same = [n.number for n in elf.needs if n.name == old.get(s.name)]
            struct.pack_into("<H", elf.data, s.version_at, same[0] if same else GLOBAL)
            if not same and s.name not in old and s.name not in names_of_shims():
                sys.exit(f"glibc: {path}: glibc {'.'.join(map(str, NEWEST))} has no {s.name}: add it to {SHIMS}")
    # what nothing refers to any more becomes a second entry of a version that each of these libraries has
    base = next(n for n in elf.needs if n.name == "GLIBC_2.2.5")
    for n in elf.needs:
        if is_newer(n.name):
            struct.pack_into("<I", elf.data, n.at, hash_of(base.name))
            struct.pack_into("<I", elf.data, n.at + 8, base.name_at)
    drop_libraries(elf, dropped)
    rename(elf)
    path = Path(path)
    path.write_bytes(elf.data)
    path.rename(path.with_name(RENAMED.get(path.name, path.name)))


def rename(elf):
    """Writes the new names, and then the hash of each version anew."""
    at, size, _ = elf.sections[".dynstr"]
    strings = bytes(elf.data[at : at + size])
    for before, after in {**{f"\0{a}\0": f"\0{b}\0" for a, b in RENAMED.items()}, **{f"\0{a}": f"\0{b}" for a, b in RENAMED_VERSIONS.items()}}.items():
        strings = strings.replace(before.encode(), after.encode())
    elf.data[at : at + size] = strings
    for n in elf.needs:
        struct.pack_into("<I", elf.data, n.at, hash_of(elf.string(struct.unpack_from("<I", elf.data, n.at + 8)[0])))
    for number, (place, _) in elf.definitions().items():
        struct.pack_into("<I", elf.data, place + 8, hash_of(elf.definitions()[number][1]))


def names_of_shims():
    with tempfile.NamedTemporaryFile(suffix=".o") as out:
        run_compiler("-c", SHIMS, "-o", out.name)
        lines = subprocess.run(["nm", "--defined-only", out.name], capture_output=True, text=True, check=True).stdout.split("\n")
    return {line.split()[2] for line in lines if line}


def drop_libraries(elf, dropped):
    """Removes the entries of libraries in the lists of needed libraries and of needed versions."""
    dynamic = [e for e in elf.dynamic if not (e[0] == NEEDED and elf.string(e[1]) in dropped)]
    dynamic += [[0, 0]] * (len(elf.dynamic) - len(dynamic))
    kept = [at for at, _, library in elf.chain if library not in dropped]
    for at, following in zip(kept, kept[1:] + [None]):
        struct.pack_into("<I", elf.data, at + 12, following - at if following else 0)
    first, _, address = elf.sections[".gnu.version_r"]
    struct.pack_into("<I", elf.data, elf.headers[".gnu.version_r"] + 44, len(kept))
    for i, entry in enumerate(dynamic):
        value = {VERSIONS_NEEDED: address + kept[0] - first, VERSIONS_COUNT: len(kept)}.get(entry[0], entry[1])
        struct.pack_into("<QQ", elf.data, elf.sections[".dynamic"][0] + 16 * i, entry[0], value)


def check(folder):
    """Every need of a file is one of libc up to NEWEST, or a file of the folder."""
    files = [p for p in sorted(Path(folder).rglob("*")) if p.is_file() and not p.is_symlink() and p.open("rb").read(4) == b"\x7fELF"]
    own = {p.name for p in Path(folder).rglob("*.so*")}
    bad = []
    for path in files:
        elf = Elf(path)
        bad += [f"{path}: needs the library {n}" for n in elf.needed if n not in ALLOWED | own]
        if LIBRARIES[-1] in elf.needed and elf.needed.index(LIBRARIES[-1]) < elf.needed.index("libc.so.6"):
            bad.append(f"{path}: needs {LIBRARIES[-1]}, which may have a malloc of its own, before libc.so.6")
        used = {s.number for s in elf.symbols if s.section == UNDEFINED}
        bad += [f"{path}: needs {n.name} of {n.library}" for n in elf.needs if is_newer(n.name) or n.number in used and n.library not in elf.needed]
    if not files:
        bad = [f"{folder}: no program"]
    if bad:
        sys.exit("\n".join(f"glibc: {line}" for line in bad))
    print(f"{len(files)} programs and libraries need glibc {'.'.join(map(str, NEWEST))} or older, and nothing else")


def main():
    words = sys.argv[1:]
    if words[:1] == ["link"] and len(words) == 2:
        link(words[1])
    elif words[:1] == ["rebind"] and len(words) >= 2:
        rebind(words[1], words[2:])
    elif words[:1] == ["check"] and len(words) == 2:
        check(words[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
