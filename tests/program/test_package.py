"""What is installed: program, modules, manual page, completion of shells, examples, the Debian package. ctest-labels: unit"""
import os
import shutil
import subprocess
import unittest

import program
from program import BINARY, SANITIZER, USAGE

BUILD = os.path.dirname(os.path.dirname(BINARY))
IS_BUILD = os.path.exists(os.path.join(BUILD, "cmake_install.cmake"))


def skip_without(*commands):
    missing = [c for c in commands if not shutil.which(c)]
    return unittest.skipIf(missing, f"not installed here: {', '.join(missing)}")


class ManualPage(program.Case):
    def test_names_every_command_and_option(self):
        page, _ = self.run_program("--man")
        usage, _ = self.run_program("--help")
        plain = page.replace("\\-", "-")
        words = {w.strip("[],;:().") for w in usage.split()}
        for word in sorted(w for w in words if w.startswith("--") and w not in ("--help", "--version")):
            self.assertIn(word, plain)
        self.assertEqual(page.count("\n.TP\n\\fBddptrain"), usage.split("\noptions")[0].count(" ddptrain ") - 1)
        for code in (0, 64, 65, 75):
            self.assertIn(f".B {code}\n", page)

    @skip_without("groff")
    def test_is_well_formed(self):
        page, _ = self.run_program("--man")
        checked = subprocess.run(["groff", "-man", "-ww", "-z", "-"], input=page, capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))


class Completion(program.Case):
    def script(self, shell):
        text, _ = self.run_program("--completion", shell)
        self.write(f"completion.{shell}", text)
        return self.path(f"completion.{shell}")

    def bash(self, line, breaks=" \t\n\"'><=;|&(:"):
        command = ('source "$0"; COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDBREAKS=$2; _ddptrain; '
                   'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", command, self.script("bash"), line, breaks], capture_output=True, text=True,
                              cwd=self.path("."))
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    @skip_without("bash")
    def test_bash(self):
        os.makedirs(self.path("data"))
        self.write("data/wine.csv", "")
        self.write("data/iris.csv", "")
        for line, wanted in (("ddptrain ev", ["eval"]),
                             ("ddptrain --help-s", ["--help-sweep"]),
                             ("ddptrain --completion f", ["fish"]),
                             ("ddptrain eval --checkp", ["--checkpoint"]),
                             ("ddptrain sweep --checkp", []),
                             ("ddptrain data/w", ["data/wine.csv"]),
                             ("ddptrain eval --part v", ["validation"]),
                             ("ddptrain eval --part=v", ["validation"]),
                             ("ddptrain a.yaml sampler.batch", ["sampler.batch_size="]),
                             ("ddptrain a.yaml optimizer.type=adag", ["adagrad"]),
                             ("ddptrain a.yaml dataset.split.shuffle=", ["true", "false"]),
                             ("ddptrain a.yaml dataset.path=data/i", ["data/iris.csv"]),
                             ("ddptrain a.yaml train.epochs=", [])):
            with self.subTest(line=line):
                got = self.bash(line)
                self.assertEqual(got if wanted else [w for w in got if os.sep in w], wanted)
        self.assertEqual(self.bash("ddptrain a.yaml optimizer.type=adag", " "), ["optimizer.type=adagrad"])

    @skip_without("zsh")
    def test_zsh(self):
        done = subprocess.run(["zsh", "-f", "-n", self.script("zsh")], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @skip_without("fish")
    def test_fish(self):
        script = self.script("fish")
        for line, wanted in (("ddptrain ev", ["eval"]), ("ddptrain eval --checkp", ["--checkpoint"]),
                             ("ddptrain a.yaml optimizer.type=adag", ["optimizer.type=adagrad"])):
            done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"], capture_output=True,
                                  text=True, env=self.environment({"HOME": self.path(".")}))
            self.assertEqual([w.split("\t")[0] for w in done.stdout.splitlines()], wanted, done.stderr)

    def test_unknown_shell(self):
        for words in (("--completion",), ("--completion", "tcsh")):
            self.run_program(*words, code=USAGE, err="--completion needs the name of a shell: bash, zsh or fish")


@unittest.skipUnless(IS_BUILD, "not a build folder of CMake")
class Installed(program.Case):
    def test_installed_program_and_configs(self):
        prefix = self.path("prefix")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, capture_output=True)
        config = os.path.join(prefix, "share/doc/ddptrain/examples/wine_mlp.yaml")
        os.makedirs(self.path("anywhere"))
        env = self.environment({"PATH": os.path.join(prefix, "bin") + ":" + os.environ["PATH"]})
        for arguments in ([config, "train.epochs=2"], [config, "train.epochs=2", "--nproc", "2", "--fresh"],
                          [config, "train.epochs=2", "--nproc", "2", "--fresh", *(["dist.backend=gloo"] if self.has_gloo(prefix) else [])]):
            p = subprocess.run(["ddptrain", *arguments], cwd=self.path("anywhere"), env=env, capture_output=True, text=True)
            self.assertEqual(p.returncode, 0, p.stderr)
        self.assertTrue(os.path.exists(self.path("anywhere/runs/wine_mlp/config.yaml")))
        for path in ("bin/ddptrain", "share/man/man1/ddptrain.1.gz", "share/bash-completion/completions/ddptrain",
                     "share/zsh/vendor-completions/_ddptrain", "share/fish/vendor_completions.d/ddptrain.fish",
                     "share/ddptrain/datasets/wine.h5", "share/doc/ddptrain/copyright"):
            self.assertGreater(os.path.getsize(os.path.join(prefix, path)), 0, path)
        env["XDG_CACHE_HOME"] = self.path("cache")
        for arguments in (["extension", "new", "loss", "mine"], ["extension", "build", "mine.c"]):  # with the installed headers
            p = subprocess.run(["ddptrain", *arguments], cwd=self.path("anywhere"), env=env, capture_output=True, text=True)
            self.assertEqual(p.returncode, 0, p.stderr)

    @skip_without("gcc", "pkg-config")
    @unittest.skipIf(SANITIZER, "programs without the sanitizer cannot load the library")
    def test_installed_library(self):
        """Found by pkg-config in a folder that was moved; it finds the modules beside it."""
        subprocess.run(["cmake", "--install", BUILD, "--prefix", self.path("first")], check=True, capture_output=True)
        prefix = self.path("moved")
        os.rename(self.path("first"), prefix)
        found, = [os.path.join(folder, "pkgconfig") for folder, names, _ in os.walk(prefix) if "pkgconfig" in names]
        env = self.environment({"PKG_CONFIG_PATH": found, "LD_LIBRARY_PATH": os.path.dirname(found)})
        example = os.path.join(program.SOURCE, "examples/embed/wine.c")
        subprocess.run(f"gcc -std=c99 -Wall -Wextra -Werror -pedantic {example} $(pkg-config --cflags --libs ddptrain_predict) -o wine", shell=True,
                       check=True, cwd=self.folder, env=env)
        self.run_program(os.path.join(prefix, "share/ddptrain/configs/wine_mlp.yaml"), "train.epochs=50")
        done = subprocess.run(["./wine"], cwd=self.folder, env=env, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("class 1, probability 0.", done.stdout)

    def has_gloo(self, prefix):
        return any("ddptrain_gloo.so" in names for _, _, names in os.walk(prefix))

    @skip_without("cpack", "dpkg-deb", "dpkg-shlibdeps")
    @unittest.skipIf(SANITIZER, "the package is made of a build without sanitizer")
    def test_debian_package(self):
        """packaging/package.sh makes it of a build without GPU; here it is made of the present build."""
        folder = self.path("package")
        made = subprocess.run(["cpack", "-G", "DEB", "-B", folder, "--config", os.path.join(BUILD, "CPackConfig.cmake")],
                              capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        package, = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".deb")]
        control = subprocess.run(["dpkg-deb", "-f", package], check=True, capture_output=True, text=True).stdout
        self.assertIn("Package: ddptrain\n", control)
        self.assertRegex(control, r"Depends: .*libc6 .*libgloo0")
        subprocess.run(["dpkg-deb", "-x", package, self.path("root")], check=True)
        usr = self.path("root/usr")
        program_path = os.path.join(usr, "bin/ddptrain")
        done = subprocess.run([program_path, os.path.join(usr, "share/doc/ddptrain/examples/wine_mlp.yaml"), "train.epochs=2"],
                              cwd=self.path("."), env=self.environment({}), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
