"""Under srun, mpirun and torchrun a wrong config and a stop are printed once, not by every task. ctest-labels: dist"""
import os
import re
import signal

import program
from program import SLOW, STOPPED, USAGE, free_port

WORLD = 3


def tasks(kind, port):
    """The environment of each task as the launcher sets it."""
    for rank in range(WORLD):
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        r, n = str(rank), str(WORLD)
        yield {"srun": {**place, "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": r, "SLURM_NTASKS": n, "SLURM_STEP_NUM_TASKS": n,
                        "SLURM_LOCALID": r, "SLURM_STEP_TASKS_PER_NODE": n, "SLURM_STEP_NODELIST": "localhost"},
               "mpirun": {**place, "OMPI_COMM_WORLD_RANK": r, "OMPI_COMM_WORLD_SIZE": n, "OMPI_COMM_WORLD_LOCAL_RANK": r,
                          "OMPI_COMM_WORLD_LOCAL_SIZE": n},
               "torchrun": {**place, "RANK": r, "WORLD_SIZE": n, "LOCAL_RANK": r, "LOCAL_WORLD_SIZE": n}}[kind]


class OncePerJob(program.Case):
    def start_all(self, kind, *arguments):
        return [self.start("test.yaml", "--no-progress", *arguments, env=env) for env in tasks(kind, free_port())]

    def finish(self, started, code):
        ends = [(p.communicate(timeout=180 * SLOW)[1], p.returncode) for p in started]
        self.assertEqual([c for _, c in ends], [code] * WORLD, ends)
        return [err for err, _ in ends]

    def test_wrong_config(self):
        cases = [(program.WINE.replace("relu", "rellu"), (), "unknown layer 'rellu'"),
                 (program.WINE, ("optimizer.lrr=1",), "optimizer.lrr: unknown key"),
                 (program.WINE.replace("{linear: {out: 3}}", "{linear: {out: 2}}"), (), "the model's output is 2")]
        for kind in ("srun", "mpirun", "torchrun"):
            for text, arguments, sentence in cases:
                with self.subTest(kind, sentence=sentence):
                    self.write("test.yaml", text)
                    errors = self.finish(self.start_all(kind, *arguments), USAGE)
                    self.assertIn(sentence, errors[0])
                    self.assertEqual(errors[1:], ["", ""])

    def test_stop(self):
        self.write("test.yaml", program.LONG)
        for kind in ("srun", "mpirun", "torchrun"):
            with self.subTest(kind):
                run = f"runs/{kind}"
                started = self.start_all(kind, "--run-dir", run, "train.epochs=1000000")
                self.wait_for(lambda: os.path.exists(self.path(run, "metrics.jsonl")) and len(self.events("step", run)) > 5, what="steps")
                for p in started:
                    p.send_signal(signal.SIGTERM)
                errors = self.finish(started, STOPPED)
                self.assertEqual(len(re.findall("stopped on request after step", "".join(errors))), 1, errors)
                self.assertEqual(errors[1:], ["", ""])
                self.assertEqual(errors[0].count("stopping after this step"), 0 if kind == "torchrun" else 1, errors)

    def test_a_failure_of_one_rank_is_its_own(self):
        """Rank 1 alone has another command line, which is wrong in a way that is not the config's."""
        self.write("test.yaml", program.WINE)
        environments = list(tasks("torchrun", free_port()))
        p = self.start("test.yaml", "--cpu-bind", "none", "--nproc", 2, env=environments[1])
        _, err = p.communicate(timeout=180 * SLOW)
        self.assertEqual(p.returncode, USAGE)
        self.assertIn("--nproc 2: this process is already rank 1 of 3", err)
