"""docs/tutorials.md: its configs train, its commands of comm run, and its keys are keys. ctest-labels: dist"""
import os
import re
import shlex

import program


class Tutorials(program.Case):
    def setUp(self):
        super().setUp()
        with open(os.path.join(program.SOURCE, "docs", "tutorials.md"), encoding="utf-8") as f:
            self.page = f.read()

    def test_configs(self):
        configs = re.findall(r"```yaml\n(.*?)```", self.page, re.S)
        self.assertEqual(len(configs), 2)
        for text in configs:
            name = re.search(r"name: (\w+)", text)[1]
            self.write(f"{name}.yaml", text)
            self.run_program(f"{name}.yaml", "--nproc", 2)
            losses = self.losses(f"runs/{name}")
            self.assertGreater(losses[0], 0)
            if len(losses) > 1:
                self.assertLess(losses[-1], losses[0])
        self.run_program("tutorial.yaml", "train.epochs=50", "checkpoint.save_every=10", "--nproc", 4)

    def test_commands_of_comm(self):
        commands = re.findall(r"`ddptrain (comm --show [^`]*)`", self.page)
        self.assertEqual({c.split()[2] for c in commands}, {"send", "all_reduce", "broadcast", "reduce", "scatter", "gather", "all_gather", "all_gather_object", "barrier"})
        for command in commands:
            with self.subTest(command):
                self.run_program(*shlex.split(command), out="rank  before")

    def test_samplers(self):
        """The keys in the last table are accepted."""
        self.write("wine.yaml", program.WINE)
        keys = re.findall(r"`sampler: (\{[^`]*\})`", self.page.split("## Samplers")[1])
        self.assertEqual(len(keys), 6)
        for key in keys:
            if "indices" not in key:
                self.run_program("check", "wine.yaml", f"sampler={key}")
