"""Samplers of extensions: the rows that they yield are those that are trained on, on any number of ranks and after a resume; what they
do wrong is one sentence. ctest-labels: dist"""
import os
import shutil

import h5py
import numpy as np

import program
from program import DATA, OK, PEER, STOPPED, USAGE

EXAMPLES = os.path.join(program.SOURCE, "examples/extensions")
ROWS = 45
CONFIG = """
name: test
extensions: [own.c]
dataset: {path: rows.h5}
sampler: {batch_size: 8, order: own}
model: {layers: [{linear: {out: 8}}, relu, {linear: {out: 3}}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 3}
"""
OWN = """#include "extension.h"
static status draw(const void *config, const struct sampler_rows *rows, const void *state, struct sampler_epoch *epoch) {
    size_t number = (size_t)epoch->number, length = rows->rows;
    (void)config, (void)state, (void)length;
    for (size_t i = 0; i < LENGTH; i++) sampler_yield(epoch, ROW);
    return RESULT;
}
static size_t length(const void *config, size_t rows) { return (void)config, (void)rows, LENGTH_SAID; }
static const struct sampler_type own = {.variant = {"own", NULL, "Own."}, .each_row_once = ONCE, .length = length, .draw = draw};
DDPTRAIN_EXTENSION(.sampler = &own);
"""

GROUP = """
static status start(const void *config, const struct sampler_rows *rows, void **state) {
    struct comm *group = NULL, *ranks = rows->ranks;
    int rank = comm_rank(ranks), members[] = {MEMBERS};
    int64_t own = 10 + rank, all[2] = {0};
    (void)config, (void)state, (void)rank;
    TRY(comm_new_group(ranks, "ends", members, 2, &group));
    if (group) TRY(comm_all_gather(group, &own, 1, COMM_INT64, all));
    if (CALLS) TRY(comm_broadcast(ranks, all, 2, COMM_INT64, 0));
    comm_destroy(group);
    return !(CALLS) || (all[0] == 12 && all[1] == 10) ? OK : status_new(STATUS_DATA, "%d gathered %d and %d", rank, (int)all[0], (int)all[1]);
}
"""


class OwnSamplers(program.Case):
    def setUp(self):
        super().setUp()
        self.env = {"XDG_CACHE_HOME": self.path("cache")}
        self.write("config.yaml", CONFIG)
        random = np.random.default_rng(7)
        self.y = random.integers(0, 3, ROWS)
        self.y[:3] = [0, 1, 2]
        with h5py.File(self.path("rows.h5"), "w") as f:
            f["x"], f["y"] = random.normal(size=(ROWS, 5)).astype("f4"), self.y

    def run_own(self, *arguments, code=OK):
        return self.run_program(*arguments, code=code, env=self.env)

    def write_own(self, row="(i * 7 + number * 11) % 45", length="rows->rows", said="rows", once="true", result="OK"):
        text = OWN.replace("LENGTH_SAID", said).replace("LENGTH", length).replace("ROW)", row + ")").replace("ONCE", once).replace("RESULT", result)
        self.write("own.c", text)

    def train(self, *overrides, run="runs/test", nproc=1, code=OK):
        _, err = self.run_own("config.yaml", "--fresh", "--run-dir", run, "--nproc", nproc, *overrides, code=code)
        return self.sha(run) if code == OK else err

    def rows(self, step, run="runs/test"):
        """The numbers of the rows of a step, of all ranks."""
        self.run_own("replay", run, "--step", step, "--out", "step.h5")
        with h5py.File(self.path("step.h5")) as f:
            rows = f["rows/number"][:]
        os.remove(self.path("step.h5"))
        return rows

    def test_rows_are_those_that_are_yielded(self):
        """As the file of `type: indices` with the same rows; an epoch may also be longer or shorter than the data."""
        for length in ROWS, 29, 70:
            self.write_own("(i * 7 + number * 11) % 45", str(length), str(length), "true" if length == ROWS else "false")
            np.save(self.path("order.npy"), [[(i * 7 + e * 11) % 45 for i in range(length)] for e in range(3)])
            for nproc, keys in ((1, ()), (2, ()), (2, ("sampler.uneven=true",)), (3, ("sampler.drop_last=true",))):
                with self.subTest(length=length, nproc=nproc, keys=keys):
                    expected = self.train("sampler.order=null", "sampler.type=indices", "sampler.path=order.npy", *keys, run="runs/file", nproc=nproc)
                    self.assertEqual(self.train(*keys, nproc=nproc), expected)
        self.assertIn("sampler        own: 70 rows in an epoch", self.run_own("check", "config.yaml")[0])
        elastic = ("determinism={mode: elastic, shards: 4}", "sampler.batch_size=null", "sampler.global_batch_size=12")
        self.assertEqual(len({self.train(*elastic, nproc=n) for n in (1, 2, 3)}), 1)

    def test_resume(self):
        """In the middle of an epoch of 6 steps, and at its end."""
        self.write_own()
        for nproc in 1, 2:
            whole = self.train(run="runs/whole", nproc=nproc)
            for step in 1, 3, 4, 6:
                self.run_own("config.yaml", "--fresh", "--stop-after", step, "--nproc", nproc, code=STOPPED)
                self.run_own("config.yaml", "--nproc", nproc)
                self.assertEqual(self.sha(), whole)
            self.assertIn("all equal", self.run_own("audit", "runs/test", "--all")[0])

    def test_by_class(self):
        shutil.copy(os.path.join(EXAMPLES, "by_class.c"), self.path("own.c"))
        for nproc in 1, 2:
            self.train("sampler={order: by_class, global_batch_size: 6}", nproc=nproc)
            used = []
            for step in range(1, 8):
                rows = self.rows(step)
                used.extend(rows)
                self.assertEqual(list(np.bincount(self.y[rows], minlength=3)), [2, 2, 2])
        smallest = np.flatnonzero(self.y == np.argmin(np.bincount(self.y)))
        for row in smallest:  # all rows of a class are used before one is used again
            self.assertGreaterEqual(used.count(row), 42 // 3 // len(smallest))
        self.write("config.yaml", CONFIG.replace("order: own", "order: by_class").replace("{out: 3}", "{out: 1}").replace("cross_entropy", "mse"))
        self.assertIn("sampler.order by_class: it needs one class for each row as target", self.train(code=USAGE))

    def test_curriculum(self):
        """Each process computes its share; the order is the same on any number of them."""
        shutil.copy(os.path.join(EXAMPLES, "curriculum.c"), self.path("own.c"))
        with h5py.File(self.path("rows.h5")) as f:
            hardness = (f["x"][:].astype("f8")**2).sum(1)
        rank = np.argsort(np.argsort(hardness))
        steps = {}
        for nproc in 1, 2, 3, 4:
            self.train("sampler={order: {type: curriculum, start: 0.2, epochs: 3}, global_batch_size: 12}", nproc=nproc)
            for step in 1, 4, 5, 9, 12:
                rows = list(self.rows(step))
                if nproc == 1 or (step % 4 and nproc < 4):  # with 2 or 3 of 45 rows the last batch is padded
                    self.assertEqual(sorted(rows), sorted(steps.setdefault(step, rows)), (nproc, step))
                self.assertLess(max(rank[rows]), 9 if step <= 4 else 27 if step <= 8 else 45)
        self.assertGreater(max(rank[steps[9] + steps[12]]), 27)

    def test_length_buckets(self):
        shutil.copy(os.path.join(EXAMPLES, "length_buckets.c"), self.path("own.c"))
        lengths = np.random.default_rng(3).permutation(ROWS) % 20
        with h5py.File(self.path("rows.h5"), "a") as f:
            del f["x"]
            f["x"] = (np.arange(1, 21) <= lengths[:, None]).astype("f4") * 3
        for nproc in 1, 2:
            self.train("sampler={order: {type: length_buckets, batch: 8}, global_batch_size: 8, uneven: true}", nproc=nproc)
            used = [self.rows(step) for step in range(1, 7)]
            self.assertEqual(sorted(np.concatenate(used)), list(range(ROWS)))
            for rows in used:
                self.assertLessEqual(np.ptp(lengths[rows]), 5)
            self.assertNotEqual(sorted(lengths[used[0]]), list(sorted(lengths)[:8]))

    def test_wrong_samplers(self):
        cases = [
            (dict(row="i == 17 ? 150 : i"), DATA, "sampler.order own: epoch 1: index 17 is row 150, but the 45 training rows are numbered 0 to 44"),
            (dict(row="number == 2 && i == 3 ? 45 : i"), DATA, "sampler.order own: epoch 3: index 3 is row 45, but"),
            (dict(row="number == 2 && i == 9 ? 4 : i"), DATA, "sampler.order own: epoch 3: index 9 is row 4, as index 4 is, but it says that it has each row once"),
            (dict(length="rows->rows - 1"), DATA, "sampler.order own: epoch 1 has 44 rows, but its length is 45"),
            (dict(length="length + (number == 2)"), DATA, "sampler.order own: epoch 3 has 46 rows, but its length is 45"),
            (dict(said="rows - 3"), DATA, "sampler.order own: its length is 42, but it says that it has each of the 45 training rows once"),
            (dict(said="0", once="false"), DATA, "sampler.order own: its length is 0, but an epoch has 1 to"),
            (dict(row="(i + call()) % 45", once="false"), DATA, "sampler.order own: epoch 1: index 0 was row 1 in a first draw and is row 3 in a second one; a draw must depend on the epoch alone"),
            (dict(result='status_new(STATUS_DATA, "no more rows")'), DATA, "sampler.order own: epoch 1: no more rows"),
        ]
        for keys, code, message in cases:
            with self.subTest(message):
                self.write_own(**keys)
                self.write("own.c", "#include <stddef.h>\nstatic inline size_t call(void) { static size_t n; return 1 + n++ / 45; }\n" + self.read("own.c"))
                for nproc in 1, 2:
                    err = self.train(nproc=nproc, code=code)
                    self.assertIn(message, err)
        self.write_own()
        for keys, message in ((["sampler.type=weighted"], "order is a sampler of its own, and type is weighted; give one of the two"),
                              (["sampler.order=null", "sampler.type=extension"], "type extension needs order, a sampler of an extension"),
                              (["sampler.order=other"], "unknown sampler 'other' (known: own)"),
                              (["extensions=[]"], "unknown sampler 'own' (there is none; an extension can define one)"),
                              (["sampler.order.size=3"], "unknown key")):
            self.assertIn(message, self.run_own("check", "config.yaml", *keys, code=USAGE)[1])
        self.assertIn("sampler.order cannot be expressed in a PyTorch script",
                      self.run_own("export", "config.yaml", "--format", "pytorch", "--out", "x.py", code=USAGE)[1])

    def test_ranks_that_differ(self):
        """The first index that differs, the same sentence on all ranks."""
        self.write_own("(i + (number == 2 && comm_rank(rows->ranks) == 2 && i >= 20 && i < 22 ? 41 - 2 * i : 0)) % 45")
        self.train(nproc=2)
        err = self.train(nproc=3, code=DATA)
        self.assertIn("sampler.order own: epoch 3: index 20 is row 21 on rank 2, but row 20 on rank 0; all ranks must draw the same order", err)
        self.write_own("i % 45", "rows->rows", 'rows + (getenv("RANK") && *getenv("RANK") == \'1\')', "false")
        self.write("own.c", "#include <stdlib.h>\n" + self.read("own.c"))
        self.assertRegex(self.train(nproc=2, code=None) or "", "rows of sampler.order: 4[56]")

    def test_groups_of_ranks(self):
        """A group of some ranks; members that differ, and a rank that does not call, are one sentence."""
        self.write_own()
        source = self.read("own.c").replace(".draw = draw", ".start = start, .draw = draw").replace("static size_t length", GROUP + "static size_t length")
        different = "the ranks make different groups: rank 0 'ends' of the ranks 2, 0, rank 1 'ends' of the ranks 2, 1; all must call comm_new_group"
        for members, calls, nproc, code, message in [
                ("2, 0", "1", 3, OK, ""), ("2, 0", "1", 4, OK, ""), ("2, rank == 1", "1", 3, USAGE, different),
                ("2, 0", "1", 2, USAGE, "the group 'ends' names rank 2, but the ranks are numbered 0 to 1"), ("1, 1", "1", 2, USAGE, "the group 'ends' names rank 1 twice"),
                ("2, 0", "rank != 1", 3, PEER, "is in another call")]:
            with self.subTest(members=members, calls=calls, nproc=nproc):
                self.write("own.c", source.replace("MEMBERS", members).replace("CALLS", calls))
                err = self.train("dist.timeout=10", nproc=nproc, code=code)
                self.assertIn(message, err)
                if code != OK:
                    self.assertIn("sampler.order own: ", err)
                    self.assertLessEqual(err.count("\n"), 2, err)
        # a barrier of one rank is not taken for a call of the program
        self.write("own.c", source.replace("MEMBERS", "0, 1").replace("CALLS", "0").replace("    comm_destroy", "    if (rank == 0) TRY(comm_barrier(ranks));\n    comm_destroy"))
        err = self.train("dist.timeout=60", nproc=2, code=PEER)
        self.assertRegex(err, "sampler.order own: .*(here it is barrier of 0 bytes|is in another call: barrier of 0 bytes)")
        self.write("own.c", source.replace("MEMBERS", "0, 1").replace("CALLS", "0").replace("    comm_destroy", "    for (int i = 0; i < 40; i++) TRY(comm_new_group(ranks, \"more\", members, 2, &group));\n    comm_destroy"))
        err = self.train("dist.timeout=60", nproc=2, code=USAGE)
        self.assertIn("groups of ranks, and no more are possible at once; an extension must destroy those that it no longer needs", err)

    def test_extension_test(self):
        self.write_own()
        self.assertIn("20 epochs of 64 rows in range, each training row once", self.run_own("extension", "new", "sampler", "mine", code=OK) and
                      self.run_own("extension", "test", "mine.c")[0])
        self.assertIn("20 epochs of 45 rows in range", self.run_own("extension", "test", "own.c", "config.yaml")[0])
        self.write_own("number == 15 && i == 3 ? 45 : i")
        self.assertIn("own.c: sampler.order own: epoch 16: index 3 is row 45", self.run_own("extension", "test", "own.c", "config.yaml", code=DATA)[1])
        self.write("config.yaml", CONFIG.replace(", order: own", ""))
        self.assertIn("the config has no sampler.order: own", self.run_own("extension", "test", "own.c", "config.yaml", code=USAGE)[1])
