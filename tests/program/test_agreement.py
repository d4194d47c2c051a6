"""A bit that flips in one rank's state is found within train.check_state_every steps and before any save, and the rank is
named. ctest-labels: dist fault"""
import re

import program
from program import DIVERGED, USAGE

WEIGHTS = 13 * 64 * 32  # bits of 0.weight
MODEL = (13 * 64 + 64 + 64 * 3 + 3) * 32


class Flips(program.Case):
    def flipped(self, rank, step, bit, *arguments, code=DIVERGED):
        return self.run_program("test.yaml", *arguments, code=code, env={"DDPTRAIN_FAULT_FLIP": f"{rank}:{step}:{bit}"})[1]

    def assert_unhurt(self, step, run="runs/test"):
        """No checkpoint is of a later step than the flip."""
        for checkpoint in self.events("checkpoint", run):
            self.assertLessEqual(checkpoint["step"], step)

    given_files = {"test.yaml": program.WINE}

    def test_minority_is_named(self):
        for bit, tensor in ((5, "0.weight"), (WEIGHTS + 3, "0.bias"), (MODEL - 1, "2.bias"), (MODEL + 40, "0.weight and 1 more tensor")):  # the moment moves its weight
            err = self.flipped(1, 7, bit, "--nproc", 3, "--fresh", "train.check_state_every=4")
            self.assertRegex(err, rf"the states of the ranks differ after epoch 4, step 8: rank 1 \(host [^)]+\) differs in {re.escape(tensor)}")
            self.assertEqual(err.count("differ after"), 1, err)
            self.assert_unhurt(7)
            self.assert_no_leftovers()

    def test_two_ranks_do_not_show_which_differs(self):
        err = self.flipped(0, 3, 12, "--nproc", 2, "train.check_state_every=1")
        self.assertRegex(err, r"rank 1 \(host [^)]+\) differs in 0\.weight.* from rank 0 \(host [^)]+\)")
        self.assertIn("it is unknown on which of them", err)

    def test_each_rank_that_differs_is_named(self):
        place = {"WORLD_SIZE": "5", "LOCAL_WORLD_SIZE": "5", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(program.free_port())}
        bits = {1: 5, 4: WEIGHTS + 3}
        ranks = [self.start("test.yaml", "train.check_state_every=1", env={**place, "RANK": str(r), "LOCAL_RANK": str(r),
                                                                           **({"DDPTRAIN_FAULT_FLIP": f"{r}:2:{bits[r]}"} if r in bits else {})}) for r in range(5)]
        messages = [p.communicate(timeout=180 * program.SLOW)[1] for p in ranks]
        self.assertEqual([p.returncode for p in ranks], [DIVERGED] * 5, messages)
        self.assertRegex(messages[0], r": rank 1 \(host [^)]+\) differs in 0\.weight; rank 4 \(host [^)]+\) differs in 0\.bias\. ")

    def test_found_before_a_save(self):
        """No comparison before the save: the save itself compares; the same command continues from the last good checkpoint."""
        for best, flips in (([], ((9, 0, 30), (5, 2, MODEL * 2 + 7))), (["checkpoint.best=train_loss"], ((19, 1, 1), (12, 0, 31)))):
            self.run_program("test.yaml", "--nproc", 3, "--run-dir", "runs/whole", "--fresh", *best)
            for step, rank, bit in flips:
                err = self.flipped(rank, step, bit, "--nproc", 3, "--fresh", "train.check_state_every=0", *best)
                self.assertIn(f"rank {rank} ", err)
                self.assert_unhurt(step)
                self.run_program("test.yaml", "--nproc", 3, *best)
                self.assertEqual(self.sha(), self.sha("runs/whole"))
                self.assertEqual(self.losses(), self.losses("runs/whole"))

    def test_a_restart_may_help(self):
        """States that differ may be an accident of one memory, so all start again from the last checkpoint; this flip comes again there."""
        err = self.flipped(1, 9, 5, "--nproc", 2, "--max-restarts", 1, "train.check_state_every=1", "checkpoint.save_every=1")
        self.assertEqual(err.count("the states of the ranks differ"), 2, err)
        self.assertIn("1 restart without a new checkpoint: no further restart", err)

    def test_a_flip_that_breaks_numbers(self):
        """The top bit of an exponent makes a loss that is not finite; the rank is the cause, not the data."""
        self.write("test.yaml", program.WINE.replace("lr: 0.001", "lr: 0.001").replace("relu", "relu, {linear: {out: 64, bias: false}}, relu"))
        for policy in ("stop", "skip"):
            err = self.flipped(2, 2, 32 * 40 + 30, "--nproc", 3, "--fresh", "train.check_state_every=0", f"train.on_nonfinite={policy}")
            self.assertRegex(err, r"rank 2 \(host [^)]+\) differs in 0\.weight")

    def test_alone_and_in_words(self):
        self.flipped(0, 2, 9, code=0)  # one rank has nothing to compare with
        self.assertIn("DDPTRAIN_FAULT_FLIP", self.run_program("test.yaml", "--fresh", code=USAGE, env={"DDPTRAIN_FAULT_FLIP": "1:x"})[1])
