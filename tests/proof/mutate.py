#!/usr/bin/env python3
"""Mutation testing: makes small changes to the code, one at a time, and reports which of them the tests detect.

    tests/proof/mutate.py                                   50 mutants over all layers, in proportion to their lines
    tests/proof/mutate.py --count 300 --seed 7              300 others
    tests/proof/mutate.py --layer dist --files '*store*'    of some files only
    tests/proof/mutate.py --since main                      of lines that changed since a revision
    tests/proof/mutate.py --list --count 10                 which ones these are; nothing is built

A mutant is one changed line of a C file (tests/proof/mutations.py). It is built in a copy of the working tree (build/mutate); then the tests of
its layer run until one fails: those that know the file first, then those that noticed most mutants of the layer in their time. Layers are
shared libraries there, so that no test is linked for a mutant; base_module, which expects the program's own folder, does not run. Code whose object files stay
the same is another spelling of the same program and is not counted, nor is what does not compile. The same seed on the same code gives the
same mutants.

tests/accepted_mutants.txt lists survivors with a reason, which are tried with --again only; the exit code is 1 if one survives that is not
listed there, or if the list has an entry that is no mutant of the code any more.
Tests run in separate namespaces (unshare), because a mutant may send a signal to every process that it can reach."""
import argparse, collections, concurrent.futures, fnmatch, glob, hashlib, json, os, random, re, resource, select, shutil, signal, subprocess, sys, threading, time

import mutations

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = os.path.join(ROOT, "build", "mutate")
SOURCE, BUILD, TEMPORARY = (os.path.join(WORK, name) for name in ("source", "build", "tmp"))
ACCEPTED = os.path.join(ROOT, "tests", "accepted_mutants.txt")
LAYERS = ("base", "device", "model", "data", "dist", "optim", "checkpoint", "train", "sweep", "export", "report")
OTHER_LAYERS = {"predict": "its tests link a library without a sanitizer"}
MAX_OBJECTS = 12  # a header in more objects than these costs too much to build
BLOCK = 75  # mutants that are sorted by their path, since neighbours share what is linked; a run that is cut short is a fair sample
BUILD_CHANGES = [  # ninja does not look for new files each time; layers are shared libraries, so that no test is linked for a mutant
    (b" CONFIGURE_DEPENDS", b""),
    (b"add_library(${name} STATIC ${sources})", b"add_library(${name} SHARED ${sources})\n  set_target_properties(${name} PROPERTIES DEFINE_SYMBOL \"\" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)"),
]
MAX_BYTES = 64 << 30  # of a file that a mutant writes; tests make sparse ones of many GiB

# Files whose tests need hardware or tools that a machine may not have, or that are not part of the product.
UNTESTED = {
    "src/device/cuda/*": "a GPU", "src/device/gpus.c": "a GPU", "src/device/gpus.h": "a GPU", "*/comm_gpu.*": "a GPU", "*/recording.*": "a GPU",
    "src/device/cpu/bf16/*": "AVX-512 with bfloat16, or AMX", "*/loss_scale.c": "a GPU", "src/model/half.c": "a GPU", "src/base/fault.*": "a tool of the tests",
}

# Run after the unit tests of a layer: corpora of the fuzz targets and programs of tests/program.
PROGRAMS = {
    "base": ["corpus_document", "corpus_config", "corpus_sealed", "corpus_json_line", "corpus_expression", "program_expressions", "corpus_hdf5", "program_bad_configs", "program_mistakes", "program_readers", "program_files", "program_init"],
    "device": ["model_gradients", "model_layers", "model_loss", "model_model", "model_batch_norm_sync", "optim_optimizer", "program_parity", "program_parity_cnn",
               "program_precision", "program_recurrent", "program_pixels", "program_ctc", "program_pretrained"],
    "model": ["program_bad_configs", "program_weights", "program_parity", "program_batch_norm", "program_parity_cnn", "program_inference", "program_pretrained",
              "program_recurrent", "program_padding", "program_masks", "program_several_layers", "program_pixels", "program_ctc", "program_check", "program_shapes", "program_unused", "program_recompute"],
    "data": ["corpus_csv", "corpus_idx", "corpus_npy", "corpus_image", "corpus_archive", "program_archives", "program_netcdf", "program_parquet", "corpus_tokenizer", "corpus_hdf5_data", "program_images", "program_image_targets", "program_npy", "program_sqlite",
             "corpus_sqlite", "program_patterns", "program_dates", "program_dialects", "program_row_filter", "program_columns", "program_new_rows", "program_labels", "program_data", "program_losses", "program_inspect", "program_bad_configs",
             "program_inference", "program_init", "program_preparation", "program_texts", "program_padding", "program_scaling", "program_sample_weights", "program_groups", "program_balanced_classes",
             "program_target_scale", "program_predict", "program_untrusted_files", "program_large_tables", "program_shapes", "program_windows", "program_three_parts", "program_baseline", "program_indices", "program_own_samplers"],
    "dist": ["corpus_store", "corpus_proof", "program_comm", "program_tutorials", "program_mpi", "program_selftest", "program_worlds", "program_zero", "program_descriptors", "program_stop_in_start",
             "program_processes", "program_once_per_job", "program_stop", "program_doctor", "program_submit"],
    "optim": ["program_bad_configs", "program_parity", "program_metrics", "program_zero", "program_in_backward", "program_lbfgs", "program_whole_updates"],
    "checkpoint": ["corpus_texts", "corpus_safetensors", "corpus_torch", "corpus_hdf5", "program_readers", "program_weights", "program_pretrained", "program_export", "program_files",
                   "program_resume", "program_untrusted_files"],
    "train": ["program_columns", "program_extension", "program_config_parts", "program_labels", "program_readers", "program_weights", "program_initial", "program_bad_configs", "program_nonfinite",
              "program_metrics", "program_inference", "program_trained_config", "program_predict", "program_preparation", "program_target_scale", "program_sample_weights", "program_padding",
              "program_init", "program_check", "program_elastic", "program_agreement", "program_audit", "program_bisect", "program_replay", "program_check_compute", "program_files", "program_in_backward", "program_zero", "program_worlds",
              "program_losses", "program_lbfgs", "program_best", "program_save", "program_tensorboard", "program_runs", "program_stop", "program_once_per_job"],
    "sweep": ["program_sweep", "program_sweep_ends", "program_sweep_shared"],
    "export": ["program_export", "program_export_onnx", "program_export_c", "program_weights"],
    "report": ["corpus_report", "program_report", "program_watch"],
}

# Programs that do not run for mutants.
UNUSED = {
    **dict.fromkeys(("gpu", "gpu_emulated", "gpu_graph", "gpu_nccl", "gpu_precision", "gpu_ranks", "gpu_update", "first_gpu_run"), "a GPU"),
    **dict.fromkeys(("layout", "package", "hardening", "pytorch_classes", "scripts"), "no test of behaviour"), "allocations": "fails with the leak sanitizer",
    "selftest": "its models are those of other tests",
    "embed": "links the library without a sanitizer", "python": "opens the library without a sanitizer", "link": "needs two network namespaces",
    "faults": "draws its faults by time", "configs": "minutes", "typos": "runs where its code is nearest",
}

# The tests most related to a file, by the end of its path: they run before all others.
FIRST = [
    ("export/onnx*", ["program_export_onnx"]), ("export/protobuf*", ["program_export_onnx"]), ("export/[cf]*", ["program_export_c"]),
    ("src/export/*", ["program_export", "program_export_c", "program_export_onnx", "program_export_pytorch"]),
    ("checkpoint/loading*", ["program_weights", "program_pretrained"]),
    ("checkpoint/inspect*", ["program_weights", "program_inspect"]),
    ("checkpoint/pickle*", ["corpus_torch", "program_export", "program_pretrained"]), ("checkpoint/torch*", ["corpus_torch", "program_export", "program_pretrained"]),
    ("checkpoint/saver*", ["checkpoint_saver", "program_save"]), ("checkpoint/safetensors*", ["checkpoint_safetensors", "program_weights", "program_readers"]),
    ("src/checkpoint/*", ["checkpoint_checkpoint", "checkpoint_checkpoint_fault", "program_weights", "program_readers", "program_untrusted_files"]),
    ("train/metrics/report*", ["train_report", "program_metrics", "program_processes"]), ("source/csv*", ["data_csv", "corpus_csv", "program_columns", "program_inspect", "program_init", "program_predict"]),
    ("data/csv/*", ["data_csv", "corpus_csv", "program_dialects", "program_columns", "program_inspect", "program_init", "program_predict"]),
    ("source/dataset_csv*", ["data_csv", "corpus_csv", "program_columns", "program_labels", "program_preparation", "program_new_rows"]),
    ("source/dataset_cells*", ["program_sqlite", "program_inference", "program_predict"]), ("dataset/suggest*", ["program_init", "program_dialects", "program_inspect"]), ("source/column_view*", ["program_init"]), ("first_config*", ["program_init"]),
    ("preparation*", ["data_preparation", "program_preparation", "program_texts"]), ("data/rows/table*", ["data_table", "data_csv", "data_preparation", "program_preparation", "program_data"]),
    ("row_filter*", ["program_row_filter"]), ("columns/date*", ["data_preparation", "program_dates", "program_preparation"]), ("dataset_sqlite*", ["program_sqlite", "corpus_sqlite"]),
    ("dataset_hdf5*", ["data_hdf5", "data_hdf5_damage", "data_hdf5_piece", "corpus_hdf5_data", "program_inspect", "program_untrusted_files"]),
    ("source/dataset_images*", ["data_images", "program_images", "program_archives", "program_image_targets"]), ("data/images/*", ["data_images", "data_augment", "data_image_changes", "program_images", "program_image_targets", "program_pixels"]),
    ("text/tokenizer*", ["data_tokenizer", "corpus_tokenizer"]),
    ("source/dataset_t*", ["data_text", "data_tokenizer", "program_padding"]), ("text/vocabulary*", ["data_text", "program_inference"]),
    ("target_scale*", ["program_target_scale"]), ("rows/scale*", ["program_scaling"]), ("npy*", ["data_npy", "program_npy", "corpus_npy"]), ("source/frame*", ["program_netcdf"]), ("source/dataset_netcdf*", ["program_netcdf"]),
    ("dataset/dataset_rows.c", ["data_augment", "data_image_changes", "program_shapes", "program_baseline"]),
    ("source/source.c", ["program_shapes", "program_patterns", "data_hdf5", "data_npy"]),
    ("data/dataset/dataset.c", ["data_csv", "data_hdf5", "program_data", "program_inference", "program_losses", "program_shapes", "program_texts", "program_patterns"]),
    ("model/layers/recurrent*", ["model_layers", "model_gradients", "program_recurrent"]), ("model/layers/*", ["model_layers", "model_gradients", "program_check", "program_export_onnx"]),
    ("model/losses/*", ["model_loss", "program_losses", "program_ctc", "program_contrastive"]), ("model/build*", ["model_model", "program_check", "program_bad_configs", "program_losses"]),
    ("model/model*", ["model_model", "model_gradients", "program_in_backward", "program_check", "program_weights"]), ("model/init*", ["model_model", "program_parity", "program_bad_configs"]),
    ("device/cpu/shapes*", ["model_layers", "model_gradients"]), ("device/cpu/ctc*", ["model_gradients", "program_ctc"]),
    ("device/cpu/contrastive*", ["model_contrastive", "model_loss", "model_gradients", "program_contrastive"]), ("parallel/row_gather*", ["program_contrastive"]),
    ("device/cpu/sets/recurrent*", ["model_gradients", "program_recurrent"]), ("predictor*", ["program_predict", "program_preparation", "program_inference"]),
    ("inference/session*", ["program_initial", "program_trained_config", "program_inference", "program_preparation"]),
    ("averaging*", ["program_worlds", "program_elastic", "program_zero", "program_in_backward"]),
    ("*window*", ["data_windows", "program_windows"]), ("*own_metric*", ["program_own_metrics"]), ("*drawn*", ["data_drawn", "program_draw"]), ("sampling/sampler*", ["data_sampler", "program_indices", "program_own_samplers"]),
    ("*groups*", ["data_split", "program_groups"]), ("sampling/split*", ["data_split", "program_groups", "program_three_parts"]),
    ("plan/feed*", ["program_worlds", "program_sample_weights"]), ("state/labels*", ["program_labels"]),
    ("state/state*", ["program_resume", "program_readers"]), ("loop/trainer.c", ["program_metrics", "program_worlds"]),
    ("report/watch*", ["program_watch"]), ("src/report/*", ["program_report", "program_watch"]), ("src/sweep/claims*", ["program_sweep_shared"]), ("src/sweep/*", ["program_sweep", "program_sweep_ends"]),
    ("schema_suggest*", ["base_schema_alias", "program_mistakes", "program_bad_configs", "program_typos", "train_config_aliases"]),
    ("find_file*", ["program_places"]),
    ("micro_batch*", ["program_batch_norm", "program_worlds", "program_contrastive"]), ("run/check*", ["program_check"]), ("step_log*", ["program_metrics"]),
    ("base/files/io*", ["base_io", "checkpoint_checkpoint_fault", "checkpoint_saver", "program_files", "program_resume"]),
    ("machine*", ["base_processors", "base_cgroup", "program_processes"]), ("log*", ["program_nonfinite", "program_processes"]),
    ("module*", ["base_module", "program_gpu", "device_convolution"]), ("signals*", ["base_signals", "program_resume"]),
    ("bf16/*", ["device_linear", "program_precision"]),
    ("launch*", ["dist_launch", "dist_launch_nodes", "dist_launchers", "program_processes", "program_resume"]),
    ("cpu/sets/elementwise*", ["device_kernels", "model_layers", "program_metrics"]), ("sweep_tensorboard*", ["program_tensorboard"]),
    ("base/files/zip*", ["base_zip", "program_npy", "program_archives", "program_export"]), ("base/files/archive*", ["program_archives", "corpus_archive"]),
    ("comm_check*", ["dist_comm_check", "dist_comm", "program_comm"]), ("comm/mpi/*", ["program_mpi"]),
    ("activity*", ["dist_activity", "dist_store", "program_processes"]), ("process/net*", ["dist_net", "dist_store", "dist_store_messages"]),
    ("process/message*", ["dist_store_frame", "dist_store_untrusted", "dist_launch_nodes", "program_sweep"]),
    ("src/device/cpu/losses*", ["device_sets", "model_loss"]),
    ("src/device/cpu/sets/norm*", ["device_sets_sequence", "model_layers"]), ("src/device/cpu/sets/image*", ["device_sets_image", "model_layers"]),
    ("data/*_config*", ["program_bad_configs", "data_csv", "data_hdf5", "program_places"]),
    ("columns/raw_columns*", ["program_preparation", "program_columns", "program_init"]), ("ema*", ["program_metrics"]),
    ("optimizer*", ["optim_optimizer", "optim_optimizer_groups"]),
    ("elastic*", ["program_elastic"]), ("zero*", ["program_zero", "program_gpu_zero"]),
    ("agreement*", ["train_agreement", "program_agreement"]), ("compute_check*", ["program_check_compute"]), ("changed_rows*", ["program_rows_in_memory"]),
    ("evaluation*", ["program_metrics", "program_inference", "program_contrastive"]), ("metric_table*", ["program_metrics", "program_losses", "train_monitor"]), ("epoch*", ["program_metrics"]),
    ("inference/inference*", ["program_inference", "program_labels"]), ("generate*", ["train_gpt", "program_precision", "program_inference"]),
    ("predictions*", ["program_inference"]), ("loop/recovery*", ["program_nonfinite", "program_resume"]),
    ("run_folder*", ["program_resume", "program_files"]), ("weights*", ["program_weights"]),
    ("dry_run*", ["program_files", "program_gpu_emulated"]), ("plan*", ["program_same_errors", "program_batch_norm", "program_worlds", "program_bad_configs"]),
    ("check*", ["program_same_errors", "program_bad_configs"]), ("init_from*", ["program_weights", "program_saved_config", "program_same_errors"]),
    ("config*", ["program_bad_configs"]), ("metrics/metrics*", ["program_resume", "program_readers"]), ("loop/ledger*", ["program_audit"]), ("loop/trace*", ["program_replay"]),
    ("state*", ["checkpoint_checkpoint", "program_resume"]),
    ("save*", ["checkpoint_saver", "program_save", "program_resume"]),
    ("run.c", ["program_resume", "program_worlds", "program_agreement", "program_best", "program_baseline", "program_metrics", "program_processes"]),
    ("step.c", ["program_worlds", "program_nonfinite", "program_resume"]), ("loop/loop.c", ["program_resume", "program_nonfinite"]),
    ("report*", ["program_processes"]), ("progress*", ["program_best", "program_processes"]), ("monitor*", ["train_monitor", "program_best"]),
    ("event_file*", ["train_event_file", "program_tensorboard"]), ("run_list*", ["program_runs"]),
]


# Tests that take too long for every mutant of their files: the others of their program run.
SLOW = {"test_killed_at_every_io_call_of_the_first_saves", "test_every_failing_call_leaves_a_good_folder", "test_kill_at_random_moments",
        "test_ranks_share_unbound_processors", "test_a_quota_is_respected", "test_a_mask_is_respected"}
# Tests that allocate more than 8 GiB at once where so much is free, which LeakSanitizer does not do: they would notice every mutant.
LARGE = {"test_check_compares_the_memory"}


def layer_of(path):
    return path.split("/")[1]


def is_excluded(path):
    return any(fnmatch.fnmatch(path, pattern) for pattern in UNTESTED)


# ---- which mutants ----

def changed_lines(revision):
    """path -> numbers of the lines that differ from a revision."""
    diff = subprocess.run(["git", "diff", "-U0", revision, "--", "src"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines, path = collections.defaultdict(set), None
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line[6:]
        elif line.startswith("@@"):
            first, count = re.search(r"\+(\d+)(?:,(\d+))?", line).groups()
            lines[path].update(range(int(first), int(first) + int(count or 1)))
    return lines


def source_files(options):
    names = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "src"], cwd=ROOT, capture_output=True,
                           text=True, check=True).stdout.split("\n")
    wanted = [n for n in sorted(set(names)) if n.endswith((".c", ".h")) and n.count("/") > 1 and os.path.exists(os.path.join(ROOT, n))]
    return [n for n in wanted if layer_of(n) in (options.layer or LAYERS) and not is_excluded(n) and
            (not options.files or any(fnmatch.fnmatch(n, pattern) for pattern in options.files))]


def drawn(options):
    """Mutants in the order of the seed, without end to spare: (path, mutation). Each line is as likely as another, and on a line each kind."""
    changed = changed_lines(options.since) if options.since else None
    by_line = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in source_files(options):
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            for m in mutations.mutations(f.read()):
                if changed is None or m.line in changed.get(path, ()):
                    by_line[path, m.line][m.kind].append(m)
    chance = random.Random(options.seed)
    lines = sorted(by_line)
    chance.shuffle(lines)
    for place in lines:
        kinds = by_line[place]
        yield place[0], chance.choice(kinds[chance.choice(sorted(kinds))])


def accepted():
    """(path, before, after) -> reason, from the list's blocks of a path, '- line', '+ line' and '= reason'."""
    found, path, before, after = {}, None, None, None
    with open(ACCEPTED, encoding="utf-8") as f:
        for line in f:
            mark, text = line[:2], line[2:].strip()
            if mark == "- ":
                before = text
            elif mark == "+ ":
                after = text
            elif mark == "= ":
                found[path, before, after] = text
            elif line.strip() and not line.startswith("#"):
                path = line.strip()
    return found


def report_outdated():
    """Prints the entries of the list that no longer are mutants of their file; returns whether there are any."""
    wanted = collections.defaultdict(set)
    for path, before, after in accepted():
        wanted[path].add((before, after))
    outdated = []
    for path, mutants in wanted.items():
        if os.path.exists(os.path.join(ROOT, path)):
            mutants -= {(m.before.strip(), m.after.strip()) for m in mutations.mutations(read_bytes(os.path.join(ROOT, path)).decode())}
        outdated += [(path, *m) for m in sorted(mutants)]
    for path, before, after in outdated:
        print(f"tests/accepted_mutants.txt: {path}: no mutant of the code any more; update or remove it\n    - {before}\n    + {after}")
    return bool(outdated)


# ---- building ----

def copy_tree():
    """The working tree's files in SOURCE, written only where they differ, so that nothing is built twice."""
    names = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True,
                           check=True).stdout.decode().split("\0")[:-1]
    wanted = {n for n in names if os.path.isfile(os.path.join(ROOT, n))}
    for folder, _, files in os.walk(SOURCE):
        for name in files:
            if os.path.relpath(os.path.join(folder, name), SOURCE) not in wanted:
                os.unlink(os.path.join(folder, name))
    for name in wanted:
        here, there = os.path.join(ROOT, name), os.path.join(SOURCE, name)
        text = read_bytes(here)
        if name.endswith("CMakeLists.txt") or name.endswith(".cmake"):
            for before, after in BUILD_CHANGES:
                text = text.replace(before, after)
        if not os.path.exists(there) or read_bytes(there) != text:
            os.makedirs(os.path.dirname(there), exist_ok=True)
            with open(there, "wb") as f:
                f.write(text)
            shutil.copymode(here, there)


def read_bytes(path):
    with open(path, "rb") as f:
        return f.read()


def ninja(*targets):
    return subprocess.run(["ninja", "-C", BUILD, *targets], capture_output=True, text=True)


def prepare():
    """Configures and builds everything without a mutant."""
    os.makedirs(SOURCE, exist_ok=True)
    copy_tree()
    launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    linker = "-fuse-ld=lld" if shutil.which("ld.lld") else ""
    done = subprocess.run(["cmake", "-S", SOURCE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS_RELEASE=-O1 -g0 -w -fsanitize=leak",
                           "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -g0 -fsanitize=leak", f"-DCMAKE_EXE_LINKER_FLAGS={linker}", f"-DCMAKE_SHARED_LINKER_FLAGS={linker}",
                           "-DCMAKE_LINK_DEPENDS_NO_SHARED=ON", "-DHDF5_ARCHIVE=OFF", "-DDDPTRAIN_SHARED_LIBRARIES=ON", "-DDDPTRAIN_CUDA=OFF",
                           "-DDDPTRAIN_EMULATION=OFF", *launcher],
                          capture_output=True, text=True)
    if done.returncode == 0:
        done = ninja()
    if done.returncode:
        sys.exit(done.stdout[-4000:] + done.stderr + "mutate: the unchanged code does not build")


def objects_by_source():
    """path -> the objects of the program that it is compiled into."""
    found, target = collections.defaultdict(list), None
    for line in ninja("-t", "deps").stdout.splitlines():
        if line and not line.startswith((" ", "ninja:")):
            target = line.split(":")[0]
        elif line.startswith(" ") and not target.startswith("tests/"):
            path = os.path.relpath(os.path.normpath(os.path.join(BUILD, line.strip())), SOURCE)
            if path.startswith("src/"):
                found[path].append(target)
    return found


# ---- tests ----

class Test:
    def __init__(self, entry):
        properties = {p["name"]: p["value"] for p in entry["properties"]}
        self.name, self.command = entry["name"], entry["command"]
        self.environment = dict(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", []))
        self.folder = properties.get("WORKING_DIRECTORY", BUILD)
        self.is_check = self.name.split("_")[0] in LAYERS
        self.is_timed = self.name.startswith("dist_") or bool({"dist", "fault"} & set(properties.get("LABELS", [])))  # may fail for the machine's load
        self.target = None if self.name.startswith("program_") else self.name
        self.seconds, self.has_passed = 10.0, False  # until it has passed once

    def start(self, cases):
        environment = {**os.environ, **self.environment, "TMPDIR": TEMPORARY}
        command = self.command
        if self.is_check:  # each test is reported when it ends
            environment["CK_TAP_LOG_FILE_NAME"] = "-"
            command = ["stdbuf", "-oL", *command]
        elif self.name.startswith("program_"):
            *command, module = command
            command += ["--failfast", *(cases or quick_tests(self.folder, module) or [module])]
        return subprocess.Popen(command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, start_new_session=True)

    def run(self, stop, cases=()):
        """'passed', 'failed' with the last line that says so, 'timed out', or 'stopped' when [stop] is set. [cases]: only these of a program."""
        begin, limit = time.monotonic(), 60 + 4 * self.seconds if self.has_passed else 250
        process, said = self.start(cases), b""
        os.set_blocking(process.stdout.fileno(), False)
        outcome = None
        while outcome is None:
            select.select([process.stdout], [], [], 0.05)
            said += process.stdout.read() or b""
            failed = re.search(rb"^not ok.*$", said, re.M)
            if failed:
                outcome = "failed", failed[0].decode(errors="replace")
            elif process.poll() is not None:
                good = process.returncode in (0, 77)
                outcome = ("passed", "") if good else ("failed", self.last_words(said))
            elif time.monotonic() > begin + limit:
                outcome = "timed out", self.name
            elif stop.is_set():
                outcome = "stopped", ""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()
        if outcome[0] == "passed" and not self.has_passed:
            self.seconds, self.has_passed = self.seconds if cases else round(time.monotonic() - begin, 2), True
        return outcome

    @staticmethod
    def last_words(said):
        lines = said.decode(errors="replace").split("\n")
        return next((line for line in lines if line.startswith(("FAIL:", "ERROR:"))), " ".join(lines[-3:])[-200:])


def quick_tests(folder, module):
    """The names of a program's tests without those of SLOW and LARGE; none: all."""
    names, case = [], None
    for line in read_bytes(os.path.join(folder, module + ".py")).decode().splitlines():
        found = re.match(r"class (\w+)|    def (test_\w+)", line)
        case = found[1] if found and found[1] else case
        if found and found[2]:
            names.append(f"{module}.{case}.{found[2]}")
    quick = [n for n in names if n.split(".")[2] not in SLOW | LARGE]
    return quick if len(quick) < len(names) else []


def all_tests():
    listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=BUILD, capture_output=True, text=True, check=True).stdout
    return {entry["name"]: Test(entry) for entry in json.loads(listed)["tests"] if "command" in entry}


def noticed_before():
    """How often each test was the one that noticed a mutant of a layer, in earlier runs here: (layer, test) -> count."""
    found = collections.Counter()
    for path in glob.glob(os.path.join(WORK, "results-*.jsonl")):
        found.update((layer_of(r["path"]), r["test"]) for r in results_of(path) if r["outcome"] == "noticed")
    return found


def tests_of(path, tests, max_seconds, noticed):
    """The tests of a file's layer: those that know the file, then all others, those first that noticed most in their time."""
    layer, stem = layer_of(path), os.path.splitext(os.path.basename(path))[0]
    words = [w for w in re.split(r"_", stem) if w not in ("dataset", "comm")]
    unit = sorted((n for n in tests if n.startswith(layer + "_")), key=lambda n: tests[n].seconds)
    near = [n for n in [*unit, *PROGRAMS[layer]] if any(len(w) > 2 and w in n for w in words)]
    first = next((names for pattern, names in FIRST if fnmatch.fnmatch(path, "*" + pattern)), [])
    others = sorted((n for n in [*unit, *PROGRAMS[layer]] if n in tests and (tests[n].seconds <= max_seconds or not tests[n].has_passed)),
                    key=lambda n: tests[n].seconds / (0.5 + noticed[layer, n]))
    ordered = dict.fromkeys([*first, *near, *others])
    return [tests[n] for n in ordered if n in tests], len(dict.fromkeys(n for n in [*first, *near] if n in tests))


def clean():
    """Removes everything that a test has started or written."""
    if os.getpid() == 1:  # of a namespace
        try:
            os.kill(-1, signal.SIGKILL)
            while os.waitpid(-1, 0):
                pass
        except OSError:
            pass
    for folder in (TEMPORARY, "/dev/shm") if os.getpid() == 1 else (TEMPORARY,):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)


def first_failure(tests, jobs):
    """The first test that fails, (outcome, name, words), or None. One whose result may depend on the machine's load must fail twice."""
    stop, found = threading.Event(), []

    def run(test):
        if stop.is_set():
            return
        outcome, words = test.run(stop)
        if outcome == "failed" and test.is_timed:
            outcome, words = test.run(stop)
        if outcome in ("failed", "timed out") and not stop.is_set():
            found.append((outcome, test.name, words))
            stop.set()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, tests))
    return found[0] if found else None


def run_tests(path, tests, jobs, max_seconds, noticed):
    ordered, near = tests_of(path, tests, max_seconds, noticed)
    for group in (ordered[:near], ordered[near:]):
        targets = {t.target or "ddptrain" for t in group}
        if group and ninja(*targets).returncode:
            return "failed", "build", "does not link"
        failure = first_failure(group, jobs)
        if failure:
            return failure
    return None


def load_seconds(tests):
    """Of the tests that have passed in earlier runs here."""
    path = os.path.join(WORK, "seconds.json")
    for name, seconds in (json.loads(read_bytes(path)) if os.path.exists(path) else {}).items():
        if name in tests:
            tests[name].seconds, tests[name].has_passed = seconds, True


def save_seconds(tests):
    with open(os.path.join(WORK, "seconds.json"), "w", encoding="utf-8") as f:
        json.dump({name: test.seconds for name, test in tests.items() if test.has_passed}, f)


def is_sound(test, outcome, words, objects):
    """Whether a test that failed with [words] and never passed before passes on the unchanged code, which is in SOURCE again; one that timed
    out or depends on the machine's load must each time."""
    if test.has_passed and outcome != "timed out" and not test.is_timed:
        return True
    ninja(*objects, test.target or "ddptrain")
    cases = re.findall(r"^(?:FAIL|ERROR): .*\((test_[\w.]+)\)", words)
    passes = any(test.run(threading.Event(), cases)[0] == "passed" for _ in range(2))
    clean()
    print(f"unchanged: {test.name} {'passes' if passes else 'fails'}", flush=True)
    return passes


# ---- one mutant ----

def digest(objects):
    return [hashlib.sha256(read_bytes(os.path.join(BUILD, o))).digest() for o in objects]


def try_mutant(path, mutation, objects, unchanged, tests, noticed, options):
    """(outcome, test, words); outcome: does not compile, same code, noticed, timed out, survived. [unchanged]: the objects' digests. The
    objects stay changed until the next build."""
    there = os.path.join(SOURCE, path)
    original = read_bytes(there)
    lines = original.decode().split("\n")
    assert lines[mutation.line - 1] == mutation.before
    lines[mutation.line - 1] = mutation.after
    try:
        with open(there, "w", encoding="utf-8") as f:
            f.write("\n".join(lines))
        if ninja(*objects).returncode:
            return "does not compile", "", ""
        if digest(objects) == unchanged:
            return "same code", "", ""
        failure = run_tests(path, tests, options.jobs, options.max_seconds, noticed)
        clean()
        if not failure:
            return "survived", "", ""
        return ("timed out" if failure[0] == "timed out" else "noticed"), failure[1], failure[2]
    finally:
        with open(there, "wb") as f:
            f.write(original)


def summary(results, listed):
    print(f"\n{'layer':8} {'mutants':>8} {'noticed':>8} {'survived':>9} {'rate':>7}   not counted: same code, same behaviour (listed), not compiled")
    for layer in (*LAYERS, "all"):
        mine = [r for r in results if layer in (layer_of(r["path"]), "all")]
        count = collections.Counter(r["outcome"] for r in mine)
        same = sum(r["outcome"] == "survived" and listed.get(key(r), "").startswith("same behaviour") for r in mine)
        noticed, survived = count["noticed"] + count["timed out"], count["survived"] - same
        if mine:
            rate = 100 * noticed / max(1, noticed + survived)
            print(f"{layer:8} {noticed + survived:8} {noticed:8} {survived:9} {rate:6.1f} %   {count['same code']}, {same}, {count['does not compile']}")


def key(result):
    return result["path"], result["before"].strip(), result["after"].strip()


def run_all(options):
    prepare()
    os.makedirs(TEMPORARY, exist_ok=True)
    tests, objects, listed, results = all_tests(), objects_by_source(), accepted(), []
    load_seconds(tests)
    begin, noticed = time.monotonic(), noticed_before()
    clean()
    chosen = [(p, m) for p, m in drawn(options) if len(objects[p]) in range(1, MAX_OBJECTS + 1)]
    counted, tried = 0, 0
    path_of_results = os.path.join(WORK, f"results-{options.seed}.jsonl")
    tried_before = results_by_mutant(path_of_results) if getattr(options, "continue") else {}
    if options.again:
        results, chosen = survivors_of(path_of_results)
        options.count = len(results) + len(chosen)
        counted = len(results)
    unchanged = {p: digest(objects[p]) for p in {p for p, _ in chosen}}
    with open(path_of_results, "a" if tried_before else "w", encoding="utf-8") as log:
        log.writelines(json.dumps(r) + "\n" for r in results)
        while counted < options.count and tried < len(chosen):
            block = sorted(chosen[tried:tried + min(BLOCK, options.count - counted)], key=lambda c: c[0])
            tried += len(block)
            for path, m in block:
                at = time.monotonic()
                if (path, m.line, m.after) in tried_before:
                    result = tried_before[path, m.line, m.after]
                    results.append(result)
                    counted += result["outcome"] in ("noticed", "timed out", "survived")
                    continue
                if (path, m.before.strip(), m.after.strip()) in listed and not options.again:
                    outcome, test, words = "survived", "", ""
                else:
                    outcome, test, words = try_mutant(path, m, objects[path], unchanged[path], tests, noticed, options)
                retries = 0
                while test in tests and not is_sound(tests[test], outcome, words, objects[path]):
                    if tests[test].has_passed and retries < 2:
                        tests[test].seconds *= 2
                        retries += 1
                    else:
                        print(f"mutate: {test} is left out: it fails on the unchanged code", flush=True)
                        del tests[test]
                    outcome, test, words = try_mutant(path, m, objects[path], unchanged[path], tests, noticed, options)
                save_seconds(tests)
                result = {"path": path, "line": m.line, "kind": m.kind, "outcome": outcome, "before": m.before, "after": m.after, "test": test,
                          "words": words, "seconds": round(time.monotonic() - at, 1)}
                results.append(result)
                counted += outcome in ("noticed", "timed out", "survived")
                noticed[layer_of(path), test] += outcome == "noticed"
                log.write(json.dumps(result) + "\n")
                log.flush()
                show(result, listed)
    summary(results, listed)
    print(f"seed {options.seed}: {len(results)} mutants in {time.monotonic() - begin:.0f} s")
    return int(report_outdated() or any(r["outcome"] == "survived" and key(r) not in listed for r in results))


def results_of(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def results_by_mutant(path):
    return {(r["path"], r["line"], r["after"]): r for r in results_of(path)}


def survivors_of(path):
    """The results of a run that need no second try, and the mutants that survived it and are still possible."""
    results = results_of(path)
    lines = {p: read_bytes(os.path.join(ROOT, p)).decode().split("\n") for p in {r["path"] for r in results}
             if os.path.exists(os.path.join(ROOT, p))}
    kept, again = [], []
    for r in results:
        same = [n for n, line in enumerate(lines.get(r["path"], []), 1) if line == r["before"]]
        number = min(same, key=lambda n: abs(n - r["line"])) if same else None  # lines above may have come or gone
        if r["outcome"] == "survived" and number:
            again.append((r["path"], mutations.Mutation(number, r["kind"], r["before"], r["after"])))
        elif r["outcome"] != "survived":
            kept.append(r)
    return kept, again


def show(result, listed):
    print(f"{result['path']}:{result['line']}: {result['kind']}: {result['outcome']} {result['test']} ({result['seconds']} s)", flush=True)
    if result["outcome"] == "survived":
        print(f"    - {result['before'].strip()}\n    + {result['after'].strip()}\n    = {listed.get(key(result), 'not listed')}", flush=True)


def in_namespaces():
    """Starts this script again as the first process of namespaces of its own."""
    if os.getpid() == 1:
        subprocess.run(["mount", "-t", "tmpfs", "none", "/dev/shm"], check=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_BYTES, MAX_BYTES))
        return
    user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    os.execvp("unshare", ["unshare", *user, "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, *sys.argv])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50, help="mutants that compile to other code")
    parser.add_argument("--layer", "--floor", action="append", choices=LAYERS)
    parser.add_argument("--files", action="append", metavar="PATTERN", help="paths as in 'src/dist/*'")
    parser.add_argument("--since", metavar="REV", help="only lines that differ from this revision")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests that run at once")
    parser.add_argument("--max-seconds", type=float, default=float("inf"), help="leave out tests that took longer when they passed first, except those that know the file")
    parser.add_argument("--again", action="store_true", help="try the survivors of the last run of this seed once more")
    parser.add_argument("--continue", action="store_true", help="keep the results of an interrupted run of this seed")
    parser.add_argument("--list", action="store_true", help="print the first mutants, build nothing")
    options = parser.parse_args()
    if options.list:
        for _, (path, m) in zip(range(options.count), drawn(options)):
            print(f"{path}:{m.line}: {m.kind}\n    - {m.before.strip()}\n    + {m.after.strip()}")
        return int(report_outdated())
    in_namespaces()
    return run_all(options)


if __name__ == "__main__":
    sys.exit(main())
