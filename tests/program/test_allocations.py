"""Everything is allocated before the first step, and oneDNN's primitives are made: 50 steps and 3000 steps of one epoch ask for memory
equally often. The calls are counted
by a small library that is preloaded and counts calls of malloc. ctest-labels: unit"""
import os, subprocess, unittest

import program

COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
static atomic_long calls;
void *malloc(size_t n) { calls++; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { calls++; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { calls++; return __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { calls++; return __libc_memalign(a, n); }
void *memalign(size_t a, size_t n) { calls++; return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { calls++; *p = __libc_memalign(a, n); return *p ? 0 : 12; }
__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("ALLOCATIONS_FILE");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (f) { fprintf(f, "%ld\n", (long)calls); fclose(f); }
}
"""

CONFIG = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 30000, inputs: 20, classes: 4, seed: 3}}
sampler: {batch_size: 8}
model: {layers: [{linear: {out: 48}}, gelu, {residual: [{linear: {out: 48}}, {dropout: {p: 0.2}}]}, {linear: {out: 4}}]}
loss: cross_entropy
optimizer: {type: adamw, lr: 0.002}
schedule: {type: cosine, interval: step, t_max: 3000}
train: {steps: 50, clip_grad_norm: 1.0, accumulate: 1}
"""

# a loss that exchanges rows between ranks
PAIRS = CONFIG.replace("loss: cross_entropy", "losses: [{type: contrastive}]")

# a last batch of 16 rows of 32, and validation in batches of 32 and 12; one convolution that goes to oneDNN and one that does not
IMAGES = """
dataset: {format: synthetic, synthetic: {kind: classes, rows: 220, inputs: [3, 16, 16], classes: 4, seed: 3}, split: {test: 0.2}}
sampler: {batch_size: 32}
model: {layers: [{conv2d: {out: 32, kernel_size: 3, stride: 2}}, relu, {conv2d: {out: 96, kernel_size: 5, padding: 2}}, relu,
                 {conv2d: {out: 32, kernel_size: 3}}, flatten, {linear: {out: 4}}]}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.002}
train: {epochs: 2}
"""


@unittest.skipIf(program.SANITIZER, "a sanitizer has its own malloc")
class Allocations(program.Case):
    def count(self, *arguments):
        path = self.path("count")
        if os.path.exists(path):
            os.remove(path)
        self.run_program("test.yaml", "--fresh", "--quiet", *arguments,
                         env={"LD_PRELOAD": self.path("counter.so"), "ALLOCATIONS_FILE": path})
        return sorted(int(n) for n in self.read("count").split())

    def test_steps_allocate_nothing(self):
        self.write("counter.c", COUNTER)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-fno-builtin", "-o", self.path("counter.so"), self.path("counter.c"), "-ldl"], check=True)
        for config, extra in ((CONFIG, []), (CONFIG, ["train.accumulate=3"]), (CONFIG, ["dataset.prefetch=2"]), (PAIRS, [])):
            with self.subTest(extra, loss=config[config.index("loss"):].splitlines()[0]):
                self.write("test.yaml", config)
                few, many = self.count("train.steps=50", *extra), self.count("train.steps=1000", *extra)
                self.assertGreater(few[0], 20)
                # metrics.jsonl's buffer grows a few times by doubling, then is reused
                self.assertLessEqual(many[0] - few[0], 8, f"{few} allocations in 50 steps, {many} in 1000")


class Primitives(program.Case):
    def test_convolutions_are_prepared_before_the_first_step(self):
        """oneDNN logs when it creates a primitive and when it runs one."""
        self.write("test.yaml", IMAGES)
        out, _ = self.run_program("test.yaml", "--quiet", env={"DNNL_VERBOSE": "2"})
        what = [line.split(",")[1].split(":")[0] for line in out.splitlines() if line.startswith("onednn_verbose,")]
        if os.path.exists(os.path.join(os.path.dirname(program.BINARY), "ddptrain_onednn.so")):
            self.assertGreater(what.count("create"), 6)
            self.assertGreater(what.count("exec"), 6)
            self.assertNotIn("create", what[what.index("exec"):])
