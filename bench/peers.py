"""The PyTorch of a benchmark: Debian's python3-torch, and one of 2.x in the interpreter of --python, eager and by torch.compile, of which
the faster counts. Each at its best: settings that hold OpenBLAS back are removed, AVX-512 is allowed where there is one, MKL takes its
kernels of Intel's processors also on AMD's, freed memory stays mapped. A peer that is missing, multiplies with a plain BLAS or fails ends the benchmark with a sentence: it is never a time."""
import atexit, functools, json, os, shutil, statistics, subprocess, sys, tempfile
from dataclasses import dataclass

DEBIAN = "/usr/bin/python3"
PROBE = """
import json, torch
torch.mm(torch.rand(64, 64), torch.rand(64, 64))
maps = open("/proc/self/maps").read()
print(json.dumps({"version": torch.__version__, "is_fast": torch.backends.mkl.is_available() or "openblas" in maps or "libblis" in maps}))
"""


@functools.cache
def mkl_for_amd():
    """A library to preload: MKL, which PyPI's PyTorch contains, asks this function of its own before it uses AVX-512; without it a product
    ran at 108 instead of 242 GFLOP/s on Zen 5."""
    folder = tempfile.mkdtemp(prefix="ddptrain-mkl-")
    atexit.register(shutil.rmtree, folder)
    path = os.path.join(folder, "mkl_for_amd.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input="int mkl_serv_intel_cpu_true(void) { return 1; }", text=True, check=True)
    return path


def strong_environment():
    e = dict(os.environ, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", MALLOC_MMAP_THRESHOLD_="4294967296",
             MALLOC_TRIM_THRESHOLD_="17179869184", MALLOC_TOP_PAD_="268435456")
    for name in "OPENBLAS_L2_SIZE", "OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY":
        e.pop(name, None)
    cpu = open("/proc/cpuinfo").read()
    if "AuthenticAMD" in cpu:
        e["LD_PRELOAD"] = mkl_for_amd()
    if "avx512f" in cpu:
        e.update(OPENBLAS_CORETYPE="SkylakeX", ATEN_CPU_CAPABILITY="avx512")
    return e


def restart_strong():
    """For a benchmark that calls PyTorch in its own process: starts it again in strong_environment, and ends with its exit code."""
    if "DDPTRAIN_BENCH_STRONG" not in os.environ:
        sys.exit(subprocess.call([sys.executable, *sys.argv], env=dict(strong_environment(), DDPTRAIN_BENCH_STRONG="1")))


@dataclass(frozen=True)
class Peer:
    python: str
    version: str

    @property
    def name(self):
        return "PyTorch " + ".".join(self.version.split(".")[:2])

    @property
    def modes(self):
        """Arguments of the scripts of bench/pytorch: eager, compiled."""
        return [[], ["--compile"]] if int(self.version.split(".")[0]) >= 2 else [[]]

    def run(self, script, *arguments, environment=None):
        """The JSON line that the script prints."""
        command = [self.python, script, *map(str, arguments)]
        p = subprocess.run(command, env=environment or strong_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = [line for line in p.stdout.splitlines() if line.startswith("{")]
        if p.returncode or not lines:
            sys.exit(f"bench: the peer failed (exit {p.returncode}): {' '.join(command)}\n{p.stdout[-2000:]}{p.stderr[-4000:]}")
        return json.loads(lines[-1])


def probe(python):
    try:
        p = subprocess.run([python, "-c", PROBE], env=strong_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        sys.exit(f"bench: {python} cannot be started: {error.strerror}")
    if p.returncode:
        hint = "apt-get install python3-torch python3-sklearn libopenblas0-openmp, or --without-debian" if python == DEBIAN else "pip install torch"
        sys.exit(f"bench: {python} has no PyTorch that works ({hint}): {p.stderr.strip().splitlines()[-1]}")
    found = json.loads(p.stdout.splitlines()[-1])
    if not found["is_fast"]:
        sys.exit(f"bench: the PyTorch of {python} multiplies with a plain BLAS, many times slower than OpenBLAS, so no time of it counts: "
                 "apt-get install libopenblas0-openmp" + (", or --without-debian" if python == DEBIAN else ""))
    return Peer(python, found["version"])


def add_options(parser):
    parser.add_argument("--python", help="an interpreter with PyTorch 2.x, measured beside Debian's")
    parser.add_argument("--without-debian", action="store_true", help="only the PyTorch of --python")


def find(options):
    if options.without_debian and not options.python:
        sys.exit("bench: --without-debian needs --python")
    names = [*([] if options.without_debian else [DEBIAN]), *([options.python] if options.python else [])]
    return [probe(name) for name in names]


class Times:
    """Measured values of one figure: of ddptrain, and of each mode of each peer."""

    def __init__(self, peers):
        self.ours, self.theirs = [], {(peer, mode): [] for peer in peers for mode in range(len(peer.modes))}

    def best(self, peer, is_rate=False):
        """(values of the faster mode, its name: "" where there is only one)"""
        measured = {mode: self.theirs[peer, mode] for mode in range(len(peer.modes)) if self.theirs[peer, mode]}
        mode = (max if is_rate else min)(measured, key=lambda m: statistics.median(measured[m]))
        return measured[mode], "" if len(peer.modes) == 1 else (" compiled" if mode else " eager")
