# ctest-labels: unit
"""The structure of the source: which layer may include which, what stays out of the lower layers, how long a file may be, and that
the generated pages are those of this program. Everything is read from the tracked files, so a broken rule fails here and
names the line."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get("DDPTRAIN_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get("DDPTRAIN") or os.path.join(SOURCE, "build", "release", "bin", "ddptrain")

# A file of a layer may include its own layer and these.
BELOW = {
    "base": set(),
    "device": {"base"},
    "model": {"base", "device"},
    "data": {"base", "device"},
    "dist": {"base", "device"},
    "optim": {"base", "device", "model"},
    "checkpoint": {"base", "device", "model"},
    "train": {"base", "device", "model", "data", "dist", "optim", "checkpoint"},
    "sweep": {"base", "device", "model", "data", "dist", "optim", "checkpoint", "train"},
    "export": {"base", "device", "model", "data", "optim", "checkpoint", "train"},
    "report": {"base", "train", "sweep"},
    "predict": {"base", "data", "train"},
}
# The same for the folders inside src/dist; "" are the files beside them.
BELOW_DIST = {
    "process": set(),
    "store": {"process"},
    "launch": {"process", "store"},
    "comm": {"process", "store"},
    "": {"process", "store", "comm"},
}
# The same for src/data, which has no files beside its folders; in the order in which they include each other.
BELOW_DATA = {
    "files": set(),
    "csv": {"files"},
    "text": {"files"},
    "columns": {"csv", "files", "text"},
    "images": set(),
    "source": {"columns", "csv", "files", "images", "text"},
    "rows": {"files", "source"},
    "sampling": {"files", "source"},
    "dataset": {"columns", "csv", "files", "images", "rows", "sampling", "source", "text"},
}
# The same for src/train, which has no files beside its folders.
BELOW_TRAIN = {
    "state": set(),
    "parallel": {"state"},
    "metrics": {"parallel"},
    "config": {"metrics"},
    "plan": {"config", "metrics", "parallel"},
    "weights": {"config", "state"},
    "folder": {"config", "metrics"},
    "loop": {"config", "folder", "metrics", "parallel", "plan", "state"},
    "run": {"config", "folder", "loop", "metrics", "parallel", "plan", "weights"},
    "inference": {"config", "loop", "metrics", "plan", "state", "weights"},
}
# The same for src/base, whose files beside the folders are what every module uses; they include no folder.
BELOW_BASE = {
    "system": set(),
    "numbers": set(),
    "files": {"system"},
    "document": {"files"},
    "schema": {"document"},
    "expression": {"numbers", "schema"},
}
# The same for src/sweep, whose files beside the folders are the sweep itself: its config, its folder, its loop.
BELOW_SWEEP = {
    "workers": set(),
}
MAX_LINES = 1500
CPP_FILES = re.compile(r"^src/dist/comm/comm_gloo\.cc$|^src/dist/comm/(?:gloo|nccl)/|^src/device/cuda/|^src/data/source/parquet\.cc$|^tests/emulation/")
# Of a home folder, or of this checkout; a short one ("/src") would fit too much.
CHECKOUT = os.path.realpath(SOURCE)
MACHINE_PATHS = re.compile(r"(?<![\w.$}/])(?:/(?:home|Users)/\w" + (f"|{re.escape(CHECKOUT)}\\b" if CHECKOUT.count("/") > 1 else "") + ")")


def tracked():
    listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=SOURCE, capture_output=True)
    if listed.returncode == 0:
        names = listed.stdout.decode().split("\0")[:-1]
    else:  # a tarball
        names = [os.path.relpath(os.path.join(folder, name), SOURCE)
                 for top in ("cmd", "src", "tests", "configs", "docs", "scripts", "packaging", "examples", "cmake")
                 for folder, _, found in os.walk(os.path.join(SOURCE, top)) for name in found]
    return sorted(name for name in names if os.path.isfile(os.path.join(SOURCE, name)))


def read(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8", errors="replace") as file:
        return file.read()


def without_comments(code):
    """Comments and the insides of strings become blanks; lines stay where they are."""
    def blank(match):
        text = match.group(0)
        return re.sub(r"[^\n]", " ", text) if text.startswith("/") else '""'
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, code, flags=re.S)


def c_files(top):
    return [name for name in FILES if name.startswith(top) and name.endswith((".c", ".h", ".cc", ".cu", ".cuh"))]


def anchors(page):
    """What a link into a page of Markdown may name: its headings, as GitHub writes them, and its anchors."""
    headings = re.findall(r"(?m)^#+ (.*)$", page)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings} | set(re.findall(r'<a (?:id|name)="([^"]+)"', page))


def lines_with(pattern, text):
    return [text.count("\n", 0, match.start()) + 1 for match in re.finditer(pattern, text)]


FILES = tracked()


class Layout(unittest.TestCase):
    def fail_with(self, problems):
        if problems:
            self.fail("\n" + "\n".join(problems))

    def test_labels_are_on_one_line(self):
        """CMake takes the labels of a test from the line with "ctest-labels:"."""
        known, problems = {"unit", "dist", "fault", "gpu", "gpu-emulated"}, []
        for name in FILES:
            if not re.match(r"tests/\w+/test_\w+\.(c|py)$", name):
                continue
            for found, rest in re.findall(r"ctest-labels:(.*)\n(.*)", read(name))[:1]:
                labels, more = re.sub(r'\*/|"""', "", found).split(), re.sub(r'[ *]|\*/|"""', " ", rest).split() if "*/" in rest else []
                if not labels or set(labels) - known or set(more) & known:
                    problems.append(f"{name}: the labels are not on one line, or not all of {sorted(known)}")
        self.fail_with(problems)

    def test_every_config_is_explained(self):
        page = read("docs/examples.md")
        for name in FILES:
            if name.startswith("configs/") and name.endswith(".yaml"):
                self.assertIn(f"](../{name})", page, f"docs/examples.md does not explain {name}")

    def test_layers_include_only_what_is_below(self):
        problems, includes = [], 0
        for name in c_files("src/"):
            layer = name.split("/")[1]
            self.assertIn(layer, BELOW, f"{name}: a layer that docs/architecture.md does not know")
            for match in re.finditer(r'^\s*#\s*include\s+"([^"]+)"', read(name), re.M):
                includes += 1
                path = match.group(1)
                target = path.split("/")[0]
                if target != layer and target not in BELOW[layer]:
                    line = read(name).count("\n", 0, match.start()) + 1
                    problems.append(f'{name}:{line}: src/{layer} must not include "{path}"')
        self.assertGreater(includes, 100)
        self.fail_with(problems)

    def check_folders(self, layer, below):
        """Returns how many headers of [layer] its folders include, by folder and target; "" are the files beside them."""
        problems, found = [], {}
        for name in c_files(f"src/{layer}/"):
            folder = "/".join(name.split("/")[2:-1]).split("/")[0]
            for match in re.finditer(rf'^\s*#\s*include\s+"{layer}/(?:(\w+)/)?[\w/]+\.h"', read(name), re.M):
                target = match.group(1) or ""
                found[folder, target] = found.get((folder, target), 0) + 1
                if target != folder and target not in below[folder]:
                    line = read(name).count("\n", 0, match.start()) + 1
                    problems.append(f"{name}:{line}: src/{layer}/{folder} must not include {match.group(0).strip()}")
        self.assertEqual([], sorted(set(below) - {folder for folder, _ in found}), f"folders of src/{layer} that are not there")
        self.fail_with(problems)
        return found

    def test_folders_of_dist_include_only_what_is_below(self):
        self.assertGreater(sum(self.check_folders("dist", BELOW_DIST).values()), 50)

    def test_folders_of_data_include_only_what_is_below(self):
        found = self.check_folders("data", BELOW_DATA)
        self.assertGreater(sum(found.values()), 100)
        unused = [f"{folder}: {target}" for folder, targets in BELOW_DATA.items() for target in sorted(targets) if (folder, target) not in found]
        self.assertEqual(unused, [], "no longer included; take it from BELOW_DATA")
        order = list(BELOW_DATA)
        self.assertEqual([f"{folder}: {target}" for folder, targets in BELOW_DATA.items() for target in sorted(targets)
                          if order.index(target) >= order.index(folder)], [], "not below")

    def test_folders_of_train_include_only_what_is_below(self):
        found = self.check_folders("train", BELOW_TRAIN)
        self.assertGreater(sum(found.values()), 150)
        unused = [f"{folder}: {target}" for folder, targets in BELOW_TRAIN.items() for target in sorted(targets) if (folder, target) not in found]
        self.assertEqual(unused, [], "no longer included; take it from BELOW_TRAIN")

    def test_folders_of_base_include_only_common_headers_and_what_is_below(self):
        below = {folder: targets | {""} for folder, targets in BELOW_BASE.items()}
        found = self.check_folders("base", {**below, "": {""}})
        self.assertGreater(sum(found.values()), 60)
        unused = [f"{folder}: {target}" for folder, targets in BELOW_BASE.items() for target in sorted(targets) if (folder, target) not in found]
        self.assertEqual(unused, [], "no longer included; take it from BELOW_BASE")

    def test_folders_of_sweep_include_only_common_headers_and_what_is_below(self):
        below = {folder: targets | {""} for folder, targets in BELOW_SWEEP.items()}
        found = self.check_folders("sweep", {**below, "": set(below)})
        self.assertGreater(sum(found.values()), 30)
        unused = [f"{folder}: {target}" for folder, targets in BELOW_SWEEP.items() for target in sorted(targets) if (folder, target) not in found]
        self.assertEqual(unused, [], "no longer included; take it from BELOW_SWEEP")

    def test_train_has_no_include_circle(self):
        """A module is a .c file and its header; src/train/loop/trainer.h says in which order the loop's modules include each other."""
        includes = {}
        for name in c_files("src/train/"):
            module = os.path.splitext(name[len("src/"):])[0]
            found = set(re.findall(r'^\s*#\s*include\s+"(train/[^"]+)\.h"', read(name), re.M)) - {module}
            includes.setdefault(module, set()).update(found)
        self.assertGreater(sum(map(len, includes.values())), 50)
        while includes:  # modules that include none of those left are taken away; in a circle each includes another
            free = [module for module, found in includes.items() if not found & set(includes)]
            if not free:
                self.fail_with([f"{module} includes {', '.join(sorted(found & set(includes)))}" for module, found in sorted(includes.items())])
            for module in free:
                del includes[module]

    def test_a_struct_of_a_header_has_its_name_alone(self):
        """Whoever reads the name in another file finds one meaning. Where a header declares it only, each backend defines its own."""
        places = {}
        for name in c_files("src/") + c_files("cmd/"):
            for match in re.finditer(r"^(?:struct|union|enum) (\w+) \{", read(name), re.M):
                places.setdefault(match.group(1), []).append(name)
        self.assertGreater(len(places), 200)
        self.fail_with([f"struct {struct} is defined in {' and '.join(sorted(names))}" for struct, names in sorted(places.items())
                        if len(names) > 1 and any(name.endswith((".h", ".cuh")) for name in names)])

    def test_no_emulator_in_the_product(self):
        """The emulated GPU has its own versions of files that it cannot compile (tests/emulation/include)."""
        self.fail_with([f"{name}:{line}: code of the emulated GPU" for name in c_files("src/")
                        for line in lines_with(r"(?i)emulated_", without_comments(read(name)))])

    def test_no_file_includes_a_command(self):
        commands = {os.path.basename(name) for name in c_files("cmd/") if name.endswith(".h")}
        problems = [f"{name}: includes {header}" for name in c_files("src/") for header in commands
                    if f'"{header}"' in read(name) or f'"cmd/' in read(name)]
        self.fail_with(problems)

    def test_headers_stand_alone(self):
        headers = [name for name in c_files("src/") + c_files("cmd/") if name.endswith(".h")]
        compiler = os.environ.get("CC", "cc")
        flags = subprocess.run(["pkg-config", "--cflags", "hdf5-serial"], capture_output=True, text=True).stdout.split()
        problems = []
        with tempfile.TemporaryDirectory() as folder:
            for header in headers:
                if header.startswith("src/device/cuda/"):
                    continue
                probe = os.path.join(folder, "probe.c")
                with open(probe, "w", encoding="utf-8") as file:  # twice: the guard is tested too
                    file.write(f'#include "{header}"\n#include "{header}"\n')
                done = subprocess.run([compiler, "-std=gnu17", "-D_GNU_SOURCE", "-fopenmp-simd", "-fsyntax-only", "-Wall", "-Werror",
                                       "-I", SOURCE, "-I", os.path.join(SOURCE, "src"),
                                       "-I", os.path.join(SOURCE, "cmd/ddptrain"), *flags, probe],
                                      capture_output=True, text=True)
                if done.returncode:
                    problems.append(f"{header} does not compile alone:\n{done.stderr}")
        self.assertGreater(len(headers), 20)
        self.fail_with(problems)

    def test_files_are_short(self):
        problems = []
        for name in c_files("src/") + c_files("cmd/") + c_files("tests/"):
            lines = read(name).count("\n")
            if lines > MAX_LINES:
                problems.append(f"{name}: {lines} lines; more than {MAX_LINES} are two subjects")
        self.fail_with(problems)

    def test_cpp_stays_where_it_must(self):
        problems = [f"{name}: C++ outside of its folders" for name in FILES
                    if name.endswith((".cc", ".cpp", ".cxx", ".hpp", ".cu", ".cuh")) and not CPP_FILES.search(name)]
        self.fail_with(problems)

    def test_only_commands_exit_and_print(self):
        """Exceptions are listed here with their reasons and removed from the list when they no longer apply."""
        prints = r"(?<![\w.>])(?:printf|vprintf|puts|putchar|putc|perror|psignal|warnx|errx|std::c(?:out|err|log))\b\s*[(<]|\bstd(?:out|err)\b|\bSTD(?:OUT|ERR)_FILENO\b" \
                 r"|\b(?:write|dprintf|vdprintf)\s*\(\s*[12]\s*,"
        exits = r"(?<![\w.>:])(?:std::)?(?:_?exit|_Exit|quick_exit|abort|errx)\s*\((?!\)?\s*(?:const\b|\{))"
        justified = {
            ("src/base/log.c", "prints"): "the log of a run",
            ("src/base/status.c", "prints"): "no memory for a message that a caller could print",
            ("src/base/status.c", "exits"): "small allocations whose failure no caller could handle",
            ("src/base/system/program.c", "exits"): "a child in an emulator, in which main has returned",
            ("src/base/files/hdf5_child.c", "exits"): "a child process that only reads a file",
            ("src/device/gpus.c", "exits"): "a child process that only counts GPUs",
            ("src/train/config/extension.c", "prints"): "the file of a crash, in a signal handler, and where the compiler's messages go",
            ("src/train/config/extension.c", "exits"): "the end of a process that an extension ends by exit, with another code",
            ("src/sweep/workers/worker.c", "exits"): "a worker of a sweep, forked without exec, and its run, between fork and exec",
            ("src/dist/comm/mpi/comm_mpi.c", "exits"): "a thread that ends the process when MPI_Finalize does not return",
            ("src/dist/launch/launch.c", "prints"): "lines of the ranks, passed on by the launcher, and a rank's standard streams",
            ("src/dist/launch/launch.c", "exits"): "a rank that cannot be started, between fork and exec",
        }
        for line in ("fputs(text, stderr);", "dprintf(2, text);", "write(STDERR_FILENO, text, 3);", "write(2, text, 3);", "printf(text);", "puts(text);"):
            self.assertRegex(line, prints)
        for line in ("exit(1);", "_exit(1);", "_Exit(code);", "abort();", "std::abort();", "if (bad) quick_exit(1);"):
            self.assertRegex(line, exits)
        for line in ("dprintf(fd, text);", "write(w->wake, &one, 8);", "text_printf(out, text);", "comm_shm.abort(g);", "void abort() const {", "group->exit(1);"):
            self.assertNotRegex(line, f"{prints}|{exits}")
        problems, found = [], set()
        for name in [name for name in FILES if name.startswith("src/") and name.endswith((".c", ".h", ".cc", ".hpp", ".cu", ".cuh"))]:
            code = without_comments(read(name))
            for what, pattern in (("prints", prints), ("exits", exits)):
                lines = lines_with(pattern, code)
                if lines and (name, what) in justified:
                    found.add((name, what))
                else:
                    problems += [f"{name}:{line}: below cmd/ nothing exits or prints; return a status, use the log" for line in lines]
        problems += [f"{name}: no longer {what}; take it from the list of this test" for name, what in sorted(set(justified) - found)]
        self.fail_with(problems)

    def test_a_lack_of_memory_is_a_code(self):
        """Only status_memory creates this error, and its code identifies it: no file repeats or compares the message."""
        problems = []
        for name in [name for name in FILES if name.startswith(("src/", "cmd/")) and name.endswith((".c", ".h", ".cc", ".hpp", ".cu", ".cuh"))]:
            if name == "src/base/status.c":
                continue
            code = read(name)
            problems += [f"{name}:{line}: compares words of a failure; compare status_code"
                         for line in lines_with(r"str(?:case)?str\s*\(\s*status_message", code)]
            problems += [f"{name}:{line}: a lack of memory is status_memory(\"what\")"
                         for line in lines_with(r'status_(?:new|errno|usage|data)\s*\([^;]*?"[^"\n]*(?:out of|no) memory\b', code)]
        self.fail_with(problems)

    def test_waits_use_the_monotonic_clock(self):
        """The time of day may be set while something waits; it is only for what is written."""
        written = {"src/base/clock.h", "src/train/metrics/event_file.c"}
        waits = r"\bCLOCK_REALTIME\b|\bpthread_(?:timedjoin_np|cond_timedwait|mutex_timedlock)\b|\bsem_timedwait\b"
        self.fail_with([f"{name}:{line}: waits by the time of day, which may be set; use CLOCK_MONOTONIC" for name in c_files("src/") + c_files("cmd/")
                        if name not in written for line in lines_with(waits, without_comments(read(name)))])

    def test_no_decision_by_the_name_of_a_type(self):
        """What differs between layers, losses or optimizers is a field of their rows; a file may compare its own types."""
        search_in_the_table = {"src/model/init_rules.c"}
        by_name, by_row = r"\bstr(?:ncase|case|n)?cmp\([^;]*variant\.name", r"[!=]=\s*&(layer|loss|optimizer|schedule)_\w+"
        problems, found = [], 0
        for name in c_files("src/") + c_files("cmd/"):
            code = without_comments(read(name))
            found += len(re.findall(by_row, code))
            if name not in search_in_the_table:
                problems += [f"{name}:{line}: compares the name of a type; add a field to its row" for line in lines_with(by_name, code)]
            problems += [f"{name}:{code.count(chr(10), 0, m.start()) + 1}: compares with a type of another file; add a field to its row"
                         for m in re.finditer(by_row, code) if f"struct {m.group(1)}_type {m.group(0).split('&')[1]}" not in code]
        self.assertGreater(found, 3)
        self.fail_with(problems)

    def test_files_open_with_what_they_are(self):
        problems = [f"{name}: opens without a comment that says what it is" for name in c_files("src/") + c_files("cmd/")
                    if not read(name).lstrip().startswith(("/*", "//"))]
        self.fail_with(problems)

    def test_comments_name_files_that_exist(self):
        """A path in a comment is that of a file of this repository, or the end of one: "data/text/vocabulary.h"."""
        pattern = re.compile(r"(?<![\w./<*-])(?:[a-z_0-9]+/)*[a-z_0-9]+\.(?:h|c|cu|cuh|cc|hpp)\b")
        ends = {"/".join(parts[i:]) for parts in (name.split("/") for name in FILES) for i in range(len(parts))}
        problems, found = [], 0
        for name in c_files(""):
            text = read(name)
            for comment in re.finditer(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', text, re.S):
                for path in pattern.finditer(comment.group(0)) if comment.group(0).startswith("/") else ():
                    found += 1
                    if path.group(0) not in ends:
                        line = text.count("\n", 0, comment.start() + path.start()) + 1
                        problems.append(f"{name}:{line}: there is no file {path.group(0)}")
        self.assertGreater(found, 100)
        self.fail_with(problems)

    def test_the_tour_names_what_is_there(self):
        """docs/tour.md: `path: name` is a function or struct of that file, and lines of an excerpt are lines of the file that it names."""
        page, problems = read("docs/tour.md"), []
        named = re.findall(r"`((?:cmd|src|tests)/[\w./]+)(?:: (\w+))?`", page)
        excerpts = re.findall(r"```c\n/\* (\S+) \*/\n(.*?)```", page, re.S)
        self.assertGreater(len(named), 40)
        self.assertGreater(len(excerpts), 5)
        for path, name in named:
            code = read(path) if path in FILES else ""
            if not code:
                problems.append(f"there is no {path}")
            elif name and not re.search(rf"^(?:\w[^\n;]*[ *]{name}\(|struct {name} \{{)", code, re.M):
                problems.append(f"{path} has no function or struct {name}")
        for path, lines in excerpts:
            there = {" ".join(line.split()) for line in read(path).split("\n")}
            problems += [f"{path} has no line '{line}'" for line in lines.split("\n") if " ".join(line.split()) not in there]
        self.fail_with(problems)

    def test_no_paths_of_a_machine(self):
        problems = []
        for name in FILES:
            if name.endswith((".h5", ".gz", ".json", ".png")) or name == "tests/program/test_layout.py":
                continue
            text = read(name)
            problems += [f"{name}:{line}: a path of one machine" for line in lines_with(MACHINE_PATHS, text)]
        self.fail_with(problems)

    def test_links_of_the_docs_lead_somewhere(self):
        problems = []
        for name in FILES:
            if not name.endswith(".md"):
                continue
            for page, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", read(name)):
                if "://" in page or page.startswith("mailto:"):
                    continue
                target = os.path.normpath(os.path.join(os.path.dirname(name), page)) if page else name
                if not os.path.exists(os.path.join(SOURCE, target)):
                    problems.append(f"{name}: a link to {page}, which is not there")
                elif anchor and anchor not in anchors(read(target)):
                    problems.append(f"{name}: a link to {page}#{anchor}, which is no heading there")
        self.fail_with(problems)


class Benchmarks(unittest.TestCase):
    def test_guards_cut_functions_that_exist(self):
        """bench/guards.py inserts a line behind the first line of a function; each must occur once."""
        sys.path.insert(0, os.path.join(SOURCE, "bench"))
        from guards import CUTS
        self.assertEqual([f"{name}: {read(name).count(where)} times '{where}'" for name, cuts in CUTS.items()
                          for where, _ in cuts if read(name).count(where) != 1], [])


class MutationTests(unittest.TestCase):
    def test_every_layer_and_test_is_listed(self):
        """A test that tests/proof/mutate.py does not run for any layer cannot detect a mutant, so it is listed, or there is a reason."""
        sys.path.insert(0, os.path.join(SOURCE, "tests", "proof"))
        import mutate
        self.assertEqual(set(mutate.LAYERS) | set(mutate.OTHER_LAYERS), set(BELOW))
        used = {name for names in mutate.PROGRAMS.values() for name in names} | {name for _, names in mutate.FIRST for name in names}
        unused = {f"program_{name}" for name in mutate.UNUSED}
        programs = {f"program_{os.path.basename(name)[5:-3]}" for name in FILES if re.match(r"tests/program/test_\w+\.py$", name)}
        corpora = {f"corpus_{os.path.basename(name)[5:-2]}" for name in FILES if re.match(r"tests/fuzz/fuzz_\w+\.c$", name)}
        self.assertEqual(sorted((programs | corpora) - used - unused), [], "not in PROGRAMS, FIRST or UNUSED of tests/proof/mutate.py")
        self.assertEqual(sorted({name for name in used | unused if name.startswith(("program_", "corpus_"))} - programs - corpora), [],
                         "listed in tests/proof/mutate.py, but there is no such test")


@unittest.skipUnless(os.access(PROGRAM, os.X_OK), f"{PROGRAM} is not built")
class Generated(unittest.TestCase):
    def check_page(self, name, option):
        made = subprocess.run([PROGRAM, option], capture_output=True, text=True, check=True).stdout
        self.assertTrue(made)
        self.assertTrue(read(name) == made, f"{name} is not what `ddptrain {option}` prints; run scripts/generate-docs.sh")

    def test_config_reference(self):
        self.check_page("docs/config.md", "--reference")

    def test_sweep_reference(self):
        self.check_page("docs/sweep.md", "--sweep-reference")

    def test_command_reference(self):
        self.check_page("docs/commands.md", "--command-reference")

    def test_config_schema(self):
        self.check_page("docs/config.schema.json", "--schema")
