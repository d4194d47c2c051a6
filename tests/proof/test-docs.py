#!/usr/bin/env python3
"""Runs the commands of README.md and of the pages below literally, in order, in a fresh clone of HEAD in a temporary folder, as
a reader would. HOME is a temporary folder, too. Needs what scripts/train.sh needs, and git; ccache, where it is installed, shortens it.

    tests/proof/test-docs.py [--keep]          --keep leaves the clone and prints its path

A command block is an indented block, or a fenced one (sh, bash, console, or without a language), one of whose lines starts with a command:
a program of COMMANDS, of the clone or of the PATH. Lines after one that starts with `$ ` are output. Two spaces end a command: what
follows explains it. "is rejected" there means that it must end with exit code 64. A block that needs what is not here has
`<!-- not run: reason -->` above it; any other must run.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGES = ["README.md", "docs/first-run.md", "docs/experiments.md", "docs/export.md", "docs/embed.md", "docs/report.md"]
COMMANDS = {"ddptrain", "cmake", "cc", "export", "cd", "srun", "torchrun", "mpirun", "tensorboard", "sudo", "apt", "pip"}
NOT_RUN = {"./scripts/test.sh": "a stage of it runs this script"}
WINE = "ddptrain configs/wine_mlp.yaml"
# What a page takes for granted, as shell commands: files of the reader's, runs of the pages before.
GIVEN = {
    "README.md": "cp datasets/wine.csv mine.csv; cp configs/wine_mlp.yaml a.yaml; sed 's/lr: 0.001/lr: 0.01/' a.yaml >b.yaml",
    "docs/first-run.md": "rm -r runs; cp datasets/wine.h5 new.h5; { yes '#' | head -19; printf 'sampler:\\n  shufle: true\\n'; yes '#' | head -10; "
    "printf 'optimizer: {type: adam,  lr: -1}\\n'; } >bad.yaml",
    "docs/experiments.md": "rm -r runs sweeps; sed 's/lr: 0.001/lr: 0.01/' configs/wine_mlp.yaml >wine_b.yaml",
    "docs/export.md": WINE,
    "docs/embed.md": "",
    "docs/report.md": WINE + " optimizer.lr=0.01 --run-dir runs/fast",
}


def is_command(word, clone):
    if "/" in word:
        path = clone / word
        return path.is_file() and os.access(path, os.X_OK) or word.startswith("build/release/bin/")
    return word in COMMANDS or word == "$"


def blocks(text):
    """The indented and fenced blocks as (number of the first line, lines, language or None, not run)."""
    lines, found, at, marked = text.split("\n"), [], 0, False
    while at < len(lines):
        line = lines[at]
        fence = re.match(r"( *)```(\w*)", line)
        if fence:
            first = at = at + 1
            while not lines[at].lstrip().startswith("```"):
                at += 1
            found.append((first + 1, lines[first:at], fence[2] or "text", marked))
            marked = False
        elif line.startswith("    ") and (at == 0 or lines[at - 1] == "" or lines[at - 1].startswith("    ")):
            first = at
            while at < len(lines) and (lines[at].startswith("    ") or lines[at] == "" and lines[at + 1 : at + 2] and lines[at + 1].startswith("    ")):
                at += 1
            found.append((first + 1, [a[4:] for a in lines[first:at]], None, marked))
            marked = False
            continue
        elif line.startswith("<!-- not run: "):
            marked = True
        elif line:
            marked = False
        at += 1
    return found


def commands(page, clone):
    """(place, command, exit code) of each command of a page that is to be run."""
    found = []
    for number, lines, language, marked in blocks((clone / page).read_text()):
        words = [line.split()[0] for line in lines if line.strip()]
        if language not in (None, "text", "sh", "bash", "console") or marked:
            continue
        if language in (None, "text") and not any(is_command(word, clone) for word in words):
            continue
        with_output = any(line.startswith("$ ") for line in lines)
        for at, line in enumerate(lines):
            if not line.strip() or with_output and not line.startswith("$ "):
                continue
            command, explanation = (re.split(r" {2,}", line.removeprefix("$ ").strip(), maxsplit=1) + [""])[:2]
            if command not in NOT_RUN:
                rejected = explanation.startswith("is rejected") or "unknown key" in "".join(lines[at + 1 : at + 2])
                found.append((f"{page}:{number + at}", command, 64 if rejected else 0))
    return found


def run_page(page, clone, environment):
    script = [GIVEN[page]]
    found = commands(page, clone)
    for place, command, code in found:
        script.append(f"printf '\\n== {place}: %s\\n' {shell_quote(command)}")
        script.append(command)
        script.append(f"code=$?; [ $code = {code} ] || {{ echo '{place}: exit code '$code', expected {code}'; exit 1; }}")
    begin = time.monotonic()
    result = subprocess.run(["bash", "-c", "\n".join(script)], cwd=clone, env=environment, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if result.returncode != 0:
        print(result.stdout[-6000:])
        sys.exit(f"test-docs: a command of {page} failed: see above")
    print(f"{page}: {len(found)} commands, {time.monotonic() - begin:.0f} s", flush=True)
    return result.stdout


def shell_quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def without_numbers(text):
    """Numbers depend on the processor: what remains of a line must be the same."""
    text = re.sub(r"[0-9a-f]{16}$", "#", text)
    text = re.sub(r"cpu \([^)]*\)", "cpu", text)
    return re.sub(r"\d[\d.]*( [mµ]?s\b)?", "#", re.sub(r" +", " ", text)).strip()


def check_output(page, heading, log, clone):
    """Every line of the block below a heading is a line of the log, except numbers; `...` ends a line or is one."""
    text = (clone / page).read_text()
    after = text[text.index(heading) :]
    known = [without_numbers(line) for line in log.split("\n")]
    for line in blocks(after)[0][1]:
        expected = without_numbers(line.split("...")[0])
        if not any(line.startswith(expected) for line in known):
            sys.exit(f"test-docs: {page}, '{heading}': no such line of output: {line}")


def check_config(clone, environment):
    """The config that README.md shows is that of the sample, except comments: both resolve to the same."""
    shown = re.search(r"```yaml\n(.*?)```", (clone / "README.md").read_text(), re.S)[1]
    (clone / "shown.yaml").write_text(shown)
    resolved = []
    for config in ("configs/wine_mlp.yaml", "shown.yaml"):
        subprocess.run(["ddptrain", config, "--run-dir", "runs/resolved", "--fresh", "--quiet"], cwd=clone, env=environment, check=True)
        resolved.append((clone / "runs/resolved/config.yaml").read_text())
    if resolved[0] != resolved[1]:
        sys.exit("test-docs: the config in README.md is not configs/wine_mlp.yaml")


def main():
    root = Path(__file__).resolve().parents[2]
    folder = Path(tempfile.mkdtemp(prefix="ddptrain-docs-"))
    clone, home = folder / "ddptrain", folder / "home"
    try:
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", "--shared", root, clone], check=True)
        environment = {name: value for name, value in os.environ.items()
                       if name in ("LANG", "TERM", "USER", "TMPDIR") or name.startswith("CCACHE_") or name.lower().endswith("_proxy")}
        environment |= {"HOME": str(home), "PATH": f"{home}/.local/bin:" + os.environ["PATH"]}
        if shutil.which("ccache"):  # objects of this checkout serve, too
            environment |= {"CCACHE_BASEDIR": str(clone), "CCACHE_NOHASHDIR": "1"}
            if "CCACHE_DIR" not in environment:
                environment["CCACHE_DIR"] = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True).stdout.strip()
        for page in PAGES:
            log = run_page(page, clone, environment)
            if page == "README.md":
                check_output(page, "## What you get", log, clone)
                check_config(clone, environment)
    finally:
        if "--keep" in sys.argv:
            print(clone)
        else:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
