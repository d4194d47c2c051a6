#!/usr/bin/env python3
"""Registers, spilled bytes and static shared memory of the GPU's kernels, as ptxas reports them, compared with
tests/device/gpu_kernels.csv.

    tests/proof/gpu-kernels.py LOG ...            compare: 0 equal, 1 different, 77 another nvcc or other architectures
    tests/proof/gpu-kernels.py --write LOG ...    rewrite the rows of the logs' files and architectures

A LOG is cuda/*.o.log of a build folder. Only the files of the logs count: a build without NCCL has no comm_nccl.cu. A row summarises the variants of a template: their number, and the maximum of each figure."""
import collections, csv, os, re, subprocess, sys

TABLE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "device/gpu_kernels.csv")
COLUMNS = ["architecture", "file", "kernel", "variants", "registers", "spilled_bytes", "shared_bytes"]


def nvcc_version():
    nvcc = os.environ.get("NVCC", "nvcc")
    try:
        out = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        sys.exit(f"{nvcc} is not there; name it with NVCC=/path/to/nvcc")
    return re.search(r"V([\d.]+)", out)[1]


def base_name(mangled):
    """The kernel's name without namespaces and arguments: the first identifier of the mangled name that is not (anonymous)."""
    rest = mangled[2:].removeprefix("N")
    while match := re.match(r"(\d+)", rest):
        length, start = int(match[1]), match.end()
        name, rest = rest[start:start + length], rest[start + length:]
        if not name.startswith("_GLOBAL__N_"):
            return name
    return mangled


def kernels(log):
    """(architecture, name, registers, spilled bytes, static shared memory) of each kernel that a log names."""
    entry = None
    with open(log) as lines:
        for line in lines:
            if match := re.search(r"Compiling entry function '(\S+)' for 'sm_(\d+)'", line):
                entry, spilled = (match[2], base_name(match[1])), 0
            elif entry and (match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)):
                spilled = int(match[1])
            elif entry and (match := re.search(r"Used (\d+) registers", line)):
                shared = re.search(r"(\d+) bytes smem", line)
                yield *entry, int(match[1]), spilled, int(shared[1]) if shared else 0
                entry = None


def file_of(log):
    return os.path.basename(log).split(".")[0] + ".cu"


def summarise(logs):
    rows = collections.defaultdict(lambda: [0, 0, 0, 0])
    for log in logs:
        for architecture, name, *figures in kernels(log):
            row = rows[architecture, file_of(log), name]
            row[0] += 1
            row[1:] = map(max, row[1:], figures)
    return {key: [str(v) for v in values] for key, values in rows.items()}


def read_table():
    try:
        with open(TABLE, newline="") as file:
            version = file.readline().removeprefix("# nvcc ").strip()
            rows = list(csv.reader(file))[1:]
    except FileNotFoundError:
        return "", {}
    return version, {tuple(row[:3]): row[3:] for row in rows}


def write_table(version, rows):
    with open(TABLE, "w", newline="") as file:
        file.write(f"# nvcc {version}\n")
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for key in sorted(rows, key=lambda k: (int(k[0]), *k[1:])):
            out.writerow([*key, *rows[key]])


def main():
    logs = [word for word in sys.argv[1:] if word != "--write"]
    found, (version, known) = summarise(logs), read_table()
    own = nvcc_version()
    architectures, files = {key[0] for key in found}, {file_of(log) for log in logs}
    if not found:
        sys.exit("no kernels in the logs")
    if "--write" in sys.argv:
        kept = {key: row for key, row in known.items() if version == own and (key[0] not in architectures or key[1] not in files)}
        write_table(own, {**kept, **found})
        return 0
    measured = architectures & {key[0] for key in known}
    if version != own or not measured:
        print(f"skipped: the table is of nvcc {version}, this is {own}" if version != own
              else f"skipped: the table has no rows of {', '.join(sorted(architectures))}")
        return 77
    different = 0
    for key in sorted(set(found) | set(known)):
        if key[0] in measured and key[1] in files and found.get(key) != known.get(key):
            different += 1
            print(f"{' '.join(key)}: {dict(zip(COLUMNS[3:], found.get(key, ['none'])))}, "
                  f"in the table {dict(zip(COLUMNS[3:], known.get(key, ['none'])))}")
    if different:
        print("if that is intended: tests/proof/gpu-kernels.py --write cuda/*.o.log")
    return 1 if different else 0


sys.exit(main())
