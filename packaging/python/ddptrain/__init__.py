"""ddptrain from Python: trains by starting the program, predicts by its library, reads what a run has written.

    import ddptrain
    run = ddptrain.train("wine.yaml", optimizer__lr=0.01)      # a config file, or the same as a dict
    run.metrics()["val_loss"]                                  # of each epoch
    run.predict(rows)                                          # an array, or a DataFrame with the columns of the training file

Everything is computed by the program that is in this package, by that of DDPTRAIN_PROGRAM and DDPTRAIN_LIBRARY, or by the installed one."""

from __future__ import annotations

import contextlib, csv, ctypes, json, os, re, shutil, signal, struct, subprocess, sys, tempfile, weakref
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_ubyte, c_void_p
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, NoReturn, Optional, Sequence, Union

import numpy as np

__all__ = ["Error", "Run", "Sweep", "program", "sweep", "train", "version"]

Config = Union[str, "os.PathLike[str]", Mapping[str, Any]]
PathLike = Union[str, "os.PathLike[str]"]
Table = Mapping[str, Any]  # columns by name; a pandas.DataFrame is one
STOPPED = 75  # exit code
_LIBRARY = "libddptrain_predict.so.0"


class Error(RuntimeError):
    """A failure of the program: its sentence, and `code`, its exit code (docs/commands.md)."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@contextlib.contextmanager
def _explained(what: Callable[[], str], code: int) -> Iterator[None]:
    """A failure of Python in this block becomes an Error: "[what]: the reason"."""
    try:
        yield
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, csv.Error) as failure:
        reason = f"there is no {failure}" if isinstance(failure, KeyError) else getattr(failure, "strerror", None) or getattr(failure, "msg", failure)
        raise Error(f"{what()}: {reason}", code) from None


def _path(value: Any, what: str) -> Path:
    if not isinstance(value, (str, os.PathLike)):
        raise Error(f"{what}, not {type(value).__name__}", 64)
    return Path(value)


def program() -> str:
    """The path of the program."""
    own = Path(__file__).parent / "native" / "bin" / "ddptrain"
    given = os.environ.get("DDPTRAIN_PROGRAM")
    found = shutil.which(given) if given else str(own) if own.exists() else shutil.which("ddptrain")
    if not found:
        raise Error(f"DDPTRAIN_PROGRAM: '{given}' is no executable file" if given else
                    "the program ddptrain is not installed: neither in this package nor in PATH, and DDPTRAIN_PROGRAM is not set", 64)
    return found


def version() -> str:
    """The version of the program: "0.1.0"."""
    return _call(["--version"], quiet=True).split()[-1]


def main() -> NoReturn:
    """The command `ddptrain`: the program in place of this process."""
    try:
        with _explained(lambda: f"the program '{program()}' cannot be started", 64):
            os.execv(program(), ["ddptrain", *sys.argv[1:]])
    except Error as failure:
        print(f"ddptrain: {failure}", file=sys.stderr)
        sys.exit(failure.code)


def _json(value: Any) -> str:
    """With numbers of NumPy and paths as values."""
    with _explained(lambda: "a config has numbers, texts, lists and mappings", 64):
        return json.dumps(value, default=lambda other: other.tolist() if hasattr(other, "tolist") else os.fspath(other))


def _words(overrides: Mapping[str, Any]) -> list[str]:
    """KEY=VALUE words; `__` in a name stands for the dot, which Python's names do not have."""
    return [f"{key.replace('__', '.')}={value if isinstance(value, str) else _json(value)}" for key, value in overrides.items()]


def _call(words: Sequence[PathLike], quiet: bool, accept: Sequence[int] = ()) -> str:
    """Runs the program and returns what it printed, which is printed here, too, unless [quiet]. An interrupt is given to it: it saves."""
    printed, code, interrupted, command = "", None, False, [program(), *map(os.fspath, words)]
    with _explained(lambda: f"the program '{command[0]}' cannot be started", 64):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   encoding="utf-8", errors="replace", start_new_session=True)  # a terminal would interrupt it, too
    with process as child:
        while code is None:
            try:
                for line in child.stdout or ():
                    printed += line
                    if not quiet:
                        print(line, end="", flush=True)
                code = child.wait()
            except KeyboardInterrupt:
                interrupted = True
                child.send_signal(signal.SIGINT)
            except BaseException:
                child.kill()
                raise
    if interrupted:
        raise KeyboardInterrupt
    if code != 0 and code not in accept:  # the log, and then the failure; what is wrong in a config is all that there is
        failure = re.search(r"^ddptrain: .*", printed, re.M | re.S)
        sentence = re.sub(r"^ddptrain: ", "", failure[0] if failure else printed, flags=re.M).strip()
        raise Error(sentence or f"ddptrain ended with exit code {code}", 128 - code if code < 0 else code)
    return printed


@contextlib.contextmanager
def _config_file(config: Config) -> Iterator[str]:
    """The path of a config; a mapping is written to a file first (JSON is YAML)."""
    if not isinstance(config, Mapping):
        yield os.fspath(_path(config, "a config is a mapping or the path of a file"))
        return
    with tempfile.TemporaryDirectory(prefix="ddptrain-") as folder:
        Path(folder, "model.yaml").write_text(_json(config), encoding="utf-8")
        yield os.path.join(folder, "model.yaml")


def train(config: Config, *, nproc: Union[int, str, None] = None, run_dir: Optional[PathLike] = None, fresh: bool = False,
          stop_after: Optional[int] = None, quiet: bool = False, **overrides: Any) -> Run:
    """Trains [config], a file or a mapping with the same keys, and returns the run; a run that was stopped continues.

    Overrides are keys of the config: `optimizer__lr=0.01`, or `**{"optimizer.lr": 0.01}`. The other parameters are options of the program:
    processes of this host, the folder of the run (runs/NAME), whether an existing run begins again, the step after which it is saved and
    stops. Failures of the program are an Error with its sentence and exit code."""
    words = _words(overrides)
    with _config_file(config) as path:
        if run_dir is None:  # runs/NAME: the name of the config, or else of its file
            name = re.search(r"^name: (.{55}|.{56,}?) # ", _call(["check", path, *words, "--sources"], quiet=True), re.M)
        folder = _path(run_dir, "run_dir is a path") if run_dir is not None else Path("runs", name[1].rstrip() if name else Path(path).stem)
        options = {"--nproc": nproc, "--run-dir": folder, "--stop-after": stop_after}
        given = [str(word) for option, value in options.items() if value is not None for word in (option, value)]
        _call([path, *words, *given, *(["--fresh"] if fresh else [])], quiet, [STOPPED] if stop_after is not None else [])
    return Run(folder)


def sweep(config: PathLike, *, run_dir: Optional[PathLike] = None, fresh: bool = False, quiet: bool = False, **overrides: Any) -> Sweep:
    """Runs the sweep file [config]; overrides are keys of the configs of its trials. A sweep that was stopped continues."""
    config = _path(config, "a sweep is the path of a file")
    folder = _path(run_dir, "run_dir is a path") if run_dir is not None else Path("sweeps") / config.stem
    printed = _call(["sweep", config, *_words(overrides), "--run-dir", folder, *(["--fresh"] if fresh else [])], quiet)
    best = re.search(r"^the best one is .*?(\d+)/config\.yaml", printed, re.M)
    return Sweep(folder, folder / "runs" / best[1] if best else None)


class Run:
    """A run folder."""

    def __init__(self, folder: PathLike) -> None:
        self.folder = _path(folder, "a run is the path of its folder")
        if not (self.folder / "config.yaml").exists():
            raise Error(f"'{self.folder}' is not a run folder: it has no config.yaml", 64)
        self._model: Optional[_Model] = None

    def __repr__(self) -> str:
        return f"ddptrain.Run({str(self.folder)!r})"

    def events(self, event: str) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl of a kind: "start", "step", "epoch", "checkpoint", "end". A run that was continued has some twice."""
        path, number, rows = self.folder / "metrics.jsonl", 0, []
        with _explained(lambda: f"line {number} of '{path}' is damaged" if number else f"'{path}' cannot be read", 65), open(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                row = json.loads(line.decode("utf-8")) if line.endswith(b"\n") else {"event": None}  # it is being written
                if not isinstance(row, dict) or not isinstance(row.get(event, 0), (int, float)):
                    raise ValueError("it is no event")
                rows += [row] if row["event"] == event else []
        return rows

    def metrics(self, event: str = "epoch") -> dict[str, np.ndarray]:
        """A column for each metric of the epochs, or "step"; pandas takes it as table. What a continued run has computed again counts once."""
        rows = {row.get(event, at): row for at, row in enumerate(self.events(event))}
        if not rows:
            raise Error(f"the run '{self.folder}' has no event '{event}' yet", 64)
        names = dict.fromkeys(name for row in rows.values() for name in row if name != "event")
        columns = {name: [rows[at].get(name) for at in sorted(rows)] for name in names}
        texts = {name for name, column in columns.items() if not all(value is None or isinstance(value, (int, float)) for value in column)}
        return {name: np.array([np.nan if value is None and name not in texts else value for value in column], dtype=object if name in texts else None)
                for name, column in columns.items()}

    @property
    def state(self) -> str:
        """SHA-256 of the state at the end: runs with the same bits have the same."""
        last = (self.events("end") or self.events("stopped") or [{}])[-1]
        if "state_sha256" not in last:
            raise Error(f"the run '{self.folder}' has not ended", 64)
        return str(last["state_sha256"])

    def weights(self) -> dict[str, np.ndarray]:
        """The parameters and buffers of the best checkpoint, else of the newest, by PyTorch's names."""
        with tempfile.TemporaryDirectory(prefix="ddptrain-") as folder:
            path = Path(folder) / "weights.safetensors"
            _call(["export", self.folder, "--out", path], quiet=True)
            return _read_safetensors(path.read_bytes())

    def predict(self, rows: Union[np.ndarray, Table, Sequence[str]]) -> np.ndarray:
        """What `ddptrain predict` writes for [rows], which are as in the training file: an array (rows, ...), a table of columns by name
        (DataFrame, dict), or the tokens of a text. Labels of classes, where they have some; several predictions are (rows, predictions)."""
        return self._open().labels(self._open().run(rows)["predictions"])

    def predict_proba(self, rows: Union[np.ndarray, Table]) -> np.ndarray:
        """The probabilities of the classes (rows, classes), in the order of `classes`."""
        if not self.classes:
            raise Error("this model gives no probabilities", 64)
        return self._open().run(rows)["probabilities"]

    def outputs(self, rows: Union[np.ndarray, Table]) -> np.ndarray:
        """The outputs of the model as they are: logits, values."""
        return self._open().run(rows)["outputs"]

    @property
    def classes(self) -> list[str]:
        """The names of the columns of `predict_proba`."""
        info = self._open().info
        return [info.probability_names[i].decode() for i in range(info.probabilities)]

    def _open(self) -> _Model:
        self._model = self._model or _Model(self.folder)
        return self._model


class Sweep:
    """The folder of a sweep; `best` is the run of the best trial that is complete."""

    def __init__(self, folder: PathLike, best: Optional[PathLike] = None) -> None:
        self.folder = _path(folder, "a sweep is the path of its folder")
        self.best = Run(best) if best is not None else None

    def trials(self) -> dict[str, np.ndarray]:
        """The columns of trials.csv; pandas.DataFrame(sweep.trials()) is a table of them."""
        path = self.folder / "trials.csv"
        with _explained(lambda: f"'{path}' cannot be read", 65), open(path, encoding="utf-8", newline="") as lines:
            rows = list(csv.reader(lines, strict=True))
            if len(set(map(len, rows))) != 1:
                raise ValueError("its rows have not the same number of values")
        return {name: _numbers([row[i] for row in rows[1:]]) for i, name in enumerate(rows[0])}


def _numbers(cells: list[str]) -> np.ndarray:
    for number in (int, lambda cell: float(cell or "nan")):
        with contextlib.suppress(ValueError):
            if any(cells):
                return np.array([number(cell) for cell in cells])
    return np.array(cells, dtype=object)


_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?", "BF16": "<u2"}


def _read_safetensors(data: bytes) -> dict[str, np.ndarray]:
    (size,), arrays = struct.unpack_from("<Q", data), {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[8 + size + begin : 8 + size + end], dtype=_TYPES[entry["dtype"]]).reshape(entry["shape"])
        arrays[name] = array if entry["dtype"] != "BF16" else (array.astype(np.uint32) << 16).view(np.float32)  # the upper half of it
    return arrays


class _Info(ctypes.Structure):  # this and what follows: libddptrain_predict, src/predict/ddptrain.h
    _fields_ = [("name", c_char_p), ("epoch", c_int64), ("step", c_int64), ("parameters", c_size_t), ("inputs", c_int),
                ("input_size", c_size_t), ("input_dims", c_size_t), ("input_shape", POINTER(c_int64)), ("vocabulary", c_int64),
                ("columns", c_size_t), ("column_names", POINTER(c_char_p)), ("outputs", c_size_t), ("predictions", c_size_t),
                ("prediction_names", POINTER(c_char_p)), ("prediction_is_class", POINTER(c_ubyte)), ("probabilities", c_size_t),
                ("probability_names", POINTER(c_char_p)), ("labels", c_size_t), ("label_names", POINTER(c_char_p))]


class _Column(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("texts", POINTER(c_char_p)), ("numbers", POINTER(c_double))]


class _Results(ctypes.Structure):
    _fields_ = [("outputs", POINTER(c_float)), ("predictions", POINTER(c_double)), ("probabilities", POINTER(c_float))]


_MESSAGE = 2000  # bytes
_library: Optional[ctypes.CDLL] = None


def _open_library() -> ctypes.CDLL:
    global _library
    if _library is None:
        folder, path = Path(program()).resolve().parent, os.environ.get("DDPTRAIN_LIBRARY")
        places = (folder.parent / "lib", folder, *folder.parent.glob("lib/*-linux-gnu"))
        path = path or next((str(place / _LIBRARY) for place in places if (place / _LIBRARY).exists()), _LIBRARY)
        with _explained(lambda: f"the library for predictions, '{path}', cannot be opened (DDPTRAIN_LIBRARY names it)", 64):
            library = ctypes.CDLL(path)
            library.ddptrain_model_open.argtypes = [c_char_p, c_void_p, POINTER(c_void_p), c_char_p, c_size_t]
        library.ddptrain_model_info.argtypes = [c_void_p]
        library.ddptrain_model_info.restype = POINTER(_Info)
        library.ddptrain_model_close.argtypes = [c_void_p]
        library.ddptrain_model_close.restype = None
        for name, number in (("predict", c_float), ("predict_doubles", c_double), ("predict_tokens", c_int32)):
            getattr(library, f"ddptrain_{name}").argtypes = [c_void_p, POINTER(number), c_size_t, POINTER(_Results), c_char_p, c_size_t]
        library.ddptrain_predict_table.argtypes = [c_void_p, POINTER(_Column), c_size_t, c_size_t, POINTER(_Results), c_char_p, c_size_t]
        _library = library
    return _library


class _Model:
    def __init__(self, folder: Path) -> None:
        self.library, self.handle = _open_library(), c_void_p()
        message = ctypes.create_string_buffer(_MESSAGE)
        self.check(self.library.ddptrain_model_open(os.fsencode(folder), None, byref(self.handle), message, _MESSAGE), message)
        self.info = self.library.ddptrain_model_info(self.handle).contents
        weakref.finalize(self, self.library.ddptrain_model_close, self.handle)

    @staticmethod
    def check(code: int, message: Any) -> None:
        if code != 0:
            raise Error(message.value.decode("utf-8", "replace"), code)

    def run(self, rows: Any) -> dict[str, np.ndarray]:
        """Outputs, predictions and probabilities of rows; any number of threads may be here at once."""
        keep: list[Any] = []  # arrays that the call reads
        is_table = isinstance(rows, Mapping) or hasattr(rows, "columns")
        function, inputs, count = (self.table if is_table else self.array)(rows, keep)
        sizes = {"outputs": self.info.outputs, "predictions": self.info.predictions, "probabilities": self.info.probabilities}
        results = {name: np.empty((count, size), np.float64 if name == "predictions" else np.float32) for name, size in sizes.items()}
        pointers = _Results(*(array.ctypes.data_as(POINTER(c_double if name == "predictions" else c_float)) if sizes[name] else None
                              for name, array in results.items()))
        message, columns = ctypes.create_string_buffer(_MESSAGE), [len(keep[0])] if is_table else []
        self.check(function(self.handle, inputs, *columns, count, byref(pointers), message, _MESSAGE), message)
        return results

    def array(self, rows: Any, keep: list[Any]) -> tuple[Any, Any, int]:
        with _explained(lambda: "rows are an array of numbers or a table of columns by name", 64):
            given = _filled(rows)
        if given.ndim == 0 or given.dtype.kind not in "fiub":
            raise Error(f"rows are an array of numbers or a table of columns by name, not {type(rows).__name__} of {given.dtype}", 64)
        takes_tokens, size = self.info.inputs == 1, self.info.input_size
        shape = [self.info.input_shape[i] for i in range(self.info.input_dims)]
        own, wanted = ([size for size in sizes if size != 1] for sizes in (given.shape[1:], shape))
        if size == 0 or given.shape[1:] != (size,) and own != wanted:
            raise Error(f"an array of the shape {given.shape} has no rows of {tuple(shape)}, which this model takes", 64)
        name, kind, number = ("predict_tokens", np.int32, c_int32) if takes_tokens else \
            ("predict", np.float32, c_float) if given.dtype == np.float32 else ("predict_doubles", np.float64, c_double)
        if takes_tokens and given.dtype.kind not in "iu":
            raise Error(f"this model takes tokens, which are integers, not {given.dtype}", 64)
        if takes_tokens and (given != given.astype(np.int32)).any():
            raise Error("a token of the rows does not fit 32 bits", 65)
        keep.append(np.ascontiguousarray(given, dtype=kind))
        return getattr(self.library, f"ddptrain_{name}"), keep[0].ctypes.data_as(POINTER(number)), len(given)

    def table(self, rows: Any, keep: list[Any]) -> tuple[Any, Any, int]:
        names = list(rows.columns if hasattr(rows, "columns") else rows)
        columns = (_Column * len(names))()
        keep.append(columns)
        with _explained(lambda: "a column is a list of values", 64):
            arrays = [_filled(rows[name]) for name in names]
        count = arrays[0].size if names else 0
        for column, name, values in zip(columns, names, arrays):
            if values.shape != (count,):
                raise Error(f"the column '{name}' has the shape {values.shape}, and the first one has {count} values", 64)
            column.name = _utf8(name, f"the name of the column '{name}'")
            if values.dtype.kind == "f" or values.dtype.kind in "iu" and not _is_large(values).any():
                keep.append(np.ascontiguousarray(values, dtype=np.float64))
                column.numbers = keep[-1].ctypes.data_as(POINTER(c_double))
            else:  # the texts that pandas writes into a CSV file
                if values.dtype.kind == "M":
                    is_day = (values == values.astype("M8[D]")) | np.isnat(values)
                    values = np.datetime_as_string(values, unit="D" if is_day.all() else "s")
                cells = [_utf8(value, f"row {row} of the column '{name}'") for row, value in enumerate(values.tolist())]
                keep.append((c_char_p * count)(*cells))
                column.texts = keep[-1]
        return self.library.ddptrain_predict_table, columns, count

    def labels(self, predictions: np.ndarray) -> np.ndarray:
        """Classes as their labels or as integers."""
        is_class = [bool(self.info.prediction_is_class[i]) for i in range(self.info.predictions)]
        if all(is_class):
            predictions = predictions.astype(np.int64)
            if self.info.labels and len(is_class) == 1:
                predictions = np.array([self.info.label_names[i].decode() for i in range(self.info.labels)], dtype=object)[predictions]
        return predictions[:, 0] if len(is_class) == 1 else predictions


def _is_large(values: Any) -> np.ndarray:
    """Which integers a double does not always hold."""
    return abs(values.astype(np.float64)) >= 2**53


def _filled(values: Any) -> np.ndarray:
    """An array in which what a numpy.ma array masks is missing."""
    if np.ma.is_masked(values):
        is_number = values.dtype.kind in "fb" or values.dtype.kind in "iu" and not _is_large(values).any()
        values = values.astype(np.float64 if is_number else object).filled(np.nan)
    return np.asarray(values)


def _utf8(value: Any, place: str) -> Optional[bytes]:
    """A text of a table for the library; HDF5 files have bytes. None: it is missing (None, NaN, and pandas' NA and NaT)."""
    if value is None or type(value).__name__ in ("NAType", "NaTType") or value == "NaT" or isinstance(value, float) and value != value:
        return None
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
    if re.search("[\0\ud800-\udfff]", text):
        raise Error(f"{place} is no UTF-8 text without zero bytes: {text!r}", 65)
    return text.encode()
