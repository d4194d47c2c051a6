"""Job scripts that `submit` writes: their words, with programs that stand for those of the queues, which run the script. ctest-labels: dist"""
import os
import re
import shutil
import subprocess
import time

import program

CONFIG = """
name: wine
dataset: {path: datasets/wine.csv, targets: target, split: {test: 0.2, seed: 42}}
sampler: {batch_size: 32}
model: {layers: [{linear: 16}, relu, {linear: 3}]}
loss: cross_entropy
train: {epochs: 4}
"""
# what starts the ranks: here one process, whose words come after the options
STARTS = {"slurm": "srun", "pbs": "mpirun", "lsf": "mpirun", "sge": "mpirun", "flux": "flux"}
SUBMITS = {"slurm": "sbatch", "pbs": "qsub", "lsf": "bsub", "sge": "qsub", "flux": "flux"}


class Submit(program.Case):
    def setUp(self):
        super().setUp()
        self.write("wine.yaml", CONFIG.replace("datasets/wine.csv", "datasets/wine.h5").replace("targets: target", "inputs: x, targets: y"))
        os.makedirs(self.path("bin"))

    def stand_in(self, name, text):
        self.write(f"bin/{name}", "#!/bin/bash\n" + text)
        os.chmod(self.path(f"bin/{name}"), 0o755)

    def environment_of(self, **more):
        return {"PATH": self.path("bin") + ":/usr/bin:/bin", **more}

    def submit(self, *words, **options):
        return self.run_program("submit", "wine.yaml", *words, **options)

    def script(self, queue, *words):
        out, _ = self.submit("--queue", queue, "--nodes", "2", "--nproc", "4", "--time", "1:29:31", *words)
        self.assertIn(f"wine.{queue}.sh: 2 nodes, 4 processes on each, 1:29:31\nsubmit it: {SUBMITS[queue]} ", out)
        return self.read(f"wine.{queue}.sh")

    def test_words(self):
        expected = {"slurm": ["#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=4", "#SBATCH --time=1:29:31", "#SBATCH --signal=TERM@60", "#SBATCH --job-name=wine"],
                    "pbs": ["#PBS -N wine", "#PBS -l select=2:ncpus=4:mpiprocs=4", "#PBS -l walltime=1:29:31"],
                    "lsf": ["#BSUB -n 8", '#BSUB -R "span[ptile=4]"', "#BSUB -W 1:30", '#BSUB -Q "75"', "#BSUB -o wine-%J.log"],
                    "sge": ["#$ -pe mpi 8", "#$ -l h_rt=1:29:31", "#$ -r y"],
                    "flux": ["#flux: --nodes=2", "#flux: --nslots=8", "#flux: --time-limit=5371s", "#flux: --output=wine-{{id}}.log"]}
        for queue, lines in expected.items():
            text = self.script(queue, "train.epochs=5", "--run-dir", "it's")
            self.assertLessEqual(set(lines), set(text.splitlines()), queue)
            self.assertIn("--no-progress wine.yaml train.epochs=5 --run-dir 'it'\\''s'", text)
            self.assertIsNone(re.search(r"@[A-Z]+@", text))
            self.assertTrue(os.access(self.path(f"wine.{queue}.sh"), os.X_OK))
            subprocess.run(["bash", "-n", self.path(f"wine.{queue}.sh")], check=True)
            if shutil.which("shellcheck"):
                subprocess.run(["shellcheck", self.path(f"wine.{queue}.sh")], check=True)

    def test_a_short_job_is_not_stopped_when_it_begins(self):
        for time, margin in (("0:01:00", 6), ("0:10:00", 60), ("1:00:00", 60)):
            self.submit("--queue", "slurm", "--time", time)
            self.assertIn(f"#SBATCH --signal=TERM@{margin}\n", self.read("wine.slurm.sh"))

    def test_a_script_runs_and_requeues_itself(self):
        """A run that is stopped is queued again, and the same script ends it; the program knows when the job ends."""
        for name in ("srun", "mpirun"):
            self.stand_in(name, 'echo "$DDPTRAIN_END_TIME" >end-time; while [ "${1#-}" != "$1" ]; do case $1 in --*=*) shift;; *) shift 2;; esac; done; exec "$@"\n')
        for name in ("scontrol", "qsub"):
            self.stand_in(name, f'echo "{name} $*" >>queued\n')
        self.stand_in("flux", 'case $1 in hostlist) echo n1;; run) shift; exec mpirun "$@";; *) echo "flux $*" >>queued;; esac\n')
        for queue in STARTS:
            self.script(queue, "--run-dir", f"runs/{queue}", "--out", f"wine.{queue}.sh")
            more = self.environment_of(SLURM_JOB_ID="17", PBS_O_WORKDIR=self.path())
            text = self.read(f"wine.{queue}.sh").replace("--no-progress wine.yaml", "--no-progress wine.yaml --stop-after 3")
            self.write("stopped.sh", text)
            codes = []
            for script in ("stopped.sh", f"wine.{queue}.sh"):
                codes.append(subprocess.run(["bash", script], cwd=self.path(), env={**self.environment(), **more}, capture_output=True, timeout=300).returncode)
                left = int(self.read("end-time")) - time.time()
                self.assertTrue(5271 < left <= 5371, left)
            self.assertEqual(codes, [99 if queue == "sge" else 75, 0], queue)
        script = self.path("wine.{}.sh")
        self.assertEqual(self.read("queued").splitlines(), ["scontrol requeue 17", "qsub " + script.format("pbs"), "flux --parent batch " + script.format("flux")])
        self.run_program("wine.yaml")
        for queue in STARTS:
            self.assertEqual(self.sha(f"runs/{queue}"), self.sha("runs/wine"))

    def test_now_and_the_queue_of_this_host(self):
        for name in ("sbatch", "bsub", "qsub", "flux"):
            self.stand_in(name, f'echo "{name} $*"; [ {name} != bsub ] || /usr/bin/head -1; exit 3\n')
        for name, queue, more in (("qsub", "sge", {"SGE_ROOT": "/x"}), ("sbatch", "slurm", {}), ("bsub", "lsf", {}), ("flux", "flux", {}), ("qsub", "pbs", {})):
            out, _ = self.submit("--time", "0:10:00", "--now", code=3, env={"PATH": self.path("bin"), **more})
            path = self.path(f"wine.{queue}.sh")
            words = {"bsub": "bsub \n#!/bin/bash", "flux": f"flux batch {path}"}.get(name, f"{name} {path}")
            self.assertEqual(out.splitlines()[1:], words.splitlines())
            if not more:
                os.remove(self.path(f"bin/{name}"))

    def test_options_of_the_run(self):
        self.assertIn(" wine.yaml --run-dir x --grace 120 --quiet\n", self.script("slurm", "--run-dir", "x", "--grace", "120", "--quiet"))
        out, _ = self.submit("--queue", "lsf", "--time", "1:00:00", "--out", "my job.sh")
        self.assertIn(f"submit it: bsub < '{self.path('my job.sh')}'\n", out)
        for words in (["--max-restarts", 2], ["--master-addr", "h"], ["--master-port", 3000], ["--node-rank", 1], ["--standalone"]):
            _, err = self.submit("--queue", "slurm", "--nodes", 1 if "--standalone" in words else 2, "--time", "1:00:00", *words, code=program.USAGE)
            self.assertIn("submit does not accept --standalone, --node-rank, --master-addr, --master-port and --max-restarts: the queue", err)

    def test_no_file_is_named_as_the_standard_output(self):
        """Of --out, which other commands than predict and certify do not take as that."""
        self.run_program("wine.yaml", "train.epochs=1", "--run-dir", "run")
        self.write("own.c", "")
        for words in (("submit", "wine.yaml", "--time", "1:00:00", "--queue", "pbs"), ("report", "run"), ("export", "run", "--format", "c"), ("export", "run", "--format", "metrics-csv"),
                      ("replay", "run", "--step", "1"), ("extension", "build", "own.c")):
            self.run_program(*words, "--out", "-", code=program.USAGE, err=f"--out -: {words[0]} writes a file, not to standard output; give it a name")
        self.assertEqual(self.run_program("certify", "run", "--out", "-")[0], self.run_program("certify", "run")[0])
        self.assertEqual(self.run_program("predict", "run", "--out", "-")[0], self.run_program("predict", "run")[0])
        self.assertNotIn("-", os.listdir(self.path()))

    def test_a_sweep(self):
        self.write("search.yaml", "config: wine.yaml\nmethod: grid\nmetric: {name: val_loss, goal: minimize}\nparameters: {optimizer.lr: {values: [0.1, 0.01]}}\n")
        self.run_program("submit", "search.yaml", "--queue", "slurm", "--time", "100:00:00", "--out", "my job.sh")
        text = self.read("my job.sh")
        self.assertIn("#SBATCH --time=100:00:00\n", text)
        self.assertIn("srun --kill-on-bad-exit=0 ", text)
        self.assertIn(" sweep --no-progress search.yaml\n", text)
        self.assertIn(f"#     sbatch '{self.path('my job.sh')}'\n", text)

    def test_wrong_words(self):
        nothing = {"PATH": self.path("bin")}
        for words, message in ((["--queue", "slurm"], "--time H:MM:SS is missing: the time limit of the job, such as 1:00:00"),
                               (["--queue", "slurm", "--time", "1:00"], "--time: expected hours, minutes and seconds, such as 1:00:00, got '1:00'"),
                               (["--queue", "slurm", "--time", "0:00:59"], "--time 0:00:59: a job needs a minute or more"),
                               (["--queue", "torque", "--time", "1:00:00"], "--queue: expected slurm, pbs, lsf, flux or sge, got 'torque'"),
                               (["--time", "1:00:00"], "no queue is found here (sbatch, qsub, bsub, flux); give --queue slurm|pbs|lsf|flux|sge"),
                               (["--queue", "pbs", "--time", "1:00:00", "--nproc", "gpu"], "--nproc: submit needs the processes of a node, 1 to 4096, got 'gpu'"),
                               (["--queue", "pbs", "--time", "1:00:00", "train.epoch=5"], "did you mean 'epochs'")):
            _, err = self.submit(*words, code=program.USAGE, env=nothing)
            self.assertIn(message, err)
        _, err = self.submit("--queue", "lsf", "--time", "1:00:00", "--now", code=program.IO, env=nothing)
        self.assertIn("cannot start bsub: No such file or directory", err)
        _, err = self.submit("--queue", "lsf", "--time", "1:00:00", "--out", "missing/x.sh", code=program.IO)
        self.assertIn("missing/x.sh", err)
        os.mkfifo(self.path("fifo"))
        for name, message in (("wine.yaml", "the file exists and is no script of submit; it was not overwritten. Give another name"),
                              ("fifo", "it exists and is not a regular file; choose another name"), ("bin", "it exists and is not a regular file")):
            _, err = self.submit("--queue", "lsf", "--time", "1:00:00", "--out", name, code=program.USAGE)
            self.assertIn(f"--out {name}: {message}", err)
        self.run_program("wine.yaml", "--time", "1:00:00", code=program.USAGE, err="--time is for submit; 'train' does not accept it")
