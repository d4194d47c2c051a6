"""ddptrain report: the page is well-formed HTML that needs no other file, has every number that the docs list, and handles damaged,
hostile, empty and very long folders.
ctest-labels: unit"""
import csv, html.parser, json, math, os, re, resource, shlex, shutil, subprocess, tempfile

import program
from program import DATA, OK, USAGE, WINE

VOID = {"wbr", "meta", "link", "br", "img", "input", "hr"}
SWEEP = """config: base.yaml
method: random
trials: 24
seed: 3
parameters:
  optimizer.lr: {distribution: log_uniform, min: 1.0e-4, max: 1.0e-1}
  sampler.batch_size: {values: [8, 16]}
  model.layers.0.linear.out: {distribution: int_uniform, min: 4, max: 12}
keep: all
"""
START = {"event": "start", "name": "a", "world_size": 1, "parameters": 10, "seed": 1, "train_rows": 5, "val_rows": 2, "batch_size": 1,
         "device": "cpu", "backend": "self", "dataset_fingerprint": "ab", "epoch": 0, "first_step": 1, "startup_seconds": 0.1}


class Page(html.parser.HTMLParser):
    """Elements, texts and what is wrong with them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.source, self.elements, self.open, self.problems, self.declared = text, [], [], [], False
        self.feed(text)
        self.close()
        if self.open:
            self.problems.append(f"not closed: {[e['tag'] for e in self.open]}")

    def handle_decl(self, declaration):
        self.declared = declaration.lower() == "doctype html" and not self.elements

    def handle_starttag(self, tag, attributes, is_closed=False):
        if len({name for name, _ in attributes}) != len(attributes):
            self.problems.append(f"an attribute twice: {tag} {attributes}")
        element = {"tag": tag, "text": "", "parent": self.open[-1]["tag"] if self.open else None, **{f"@{k}": v for k, v in attributes}}
        self.elements.append(element)
        if tag not in VOID and not is_closed:
            self.open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes, True)

    def handle_endtag(self, tag):
        if not self.open or self.open[-1]["tag"] != tag:
            self.problems.append(f"</{tag}> within {[e['tag'] for e in self.open]} at {self.getpos()}")
        else:
            self.open.pop()

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, **attributes):
        return [e for e in self.elements if e["tag"] == tag and all(v in (e.get(f"@{k.rstrip('_')}") or "").split() for k, v in attributes.items())]

    def figures(self):
        """Title -> the elements of the figure."""
        found, current = {}, None
        for e in self.elements:
            if e["tag"] == "figure":
                current = []
            elif e["tag"] == "figcaption":
                found[e["text"]] = current
            if current is not None:
                current.append(e)
        return found


def paths(figure, kind="curve"):
    """Name -> points of the curves of a figure."""
    return {e.get("@data-name"): [tuple(map(float, p.split())) for p in re.findall(r"[ML]([-\d.]+ [-\d.]+)", e["@d"])]
            for e in figure if e["tag"] == "path" and kind in e.get("@class", "").split()
            and e["@d"] != "M1 4H21"}


class Report(program.Case):
    def page(self, *folders, out="page.html", **options):
        self.run_program("report", *folders, "--out", out, **options)
        page = Page(self.read(out))
        self.assertEqual(page.problems, [])
        self.assertTrue(page.declared, "no doctype")
        self.assertEqual([e["tag"] for e in page.elements if e["parent"] is None], ["html"])
        self.assert_alone(page)
        return page

    def assert_alone(self, page):
        """Nothing refers to a place outside the page, and its policy forbids loading."""
        for element in page.elements:
            self.assertNotIn(element["tag"], ("link", "img", "iframe", "object", "embed", "base", "form", "use", "image", "foreignobject"))
            for name, value in element.items():
                self.assertNotRegex(name, r"^@(src|href|xlink:href|action|data|poster|srcset|on\w+)$")
                if name == "@style":
                    self.assertRegex(value, r"^(--v:[\d.e-]+|min-width:\d+px)$")
        self.assertNotRegex(page.source, r"(?i)https?:|//[a-z]|url\(|@import|javascript:")
        policy = [e for e in page.all("meta") if e.get("@http-equiv")]
        self.assertIn("default-src 'none'", policy[0]["@content"])

    def fake(self, events, name="a", config="name: a\n"):
        """A run folder with these events (dictionaries or text of lines)."""
        os.makedirs(self.path("runs", name))
        with open(self.path("runs", name, "metrics.jsonl"), "w") as f:
            for e in events:
                f.write((e if isinstance(e, str) else json.dumps(e)) + "\n")
        if config is not None:
            self.write(f"runs/{name}/config.yaml", config)
        return f"runs/{name}"

    def facts(self, page):
        names, values = page.all("dt"), page.all("dd")
        return {n["text"]: v["text"] for n, v in zip(names, values)}

    def rows(self, page):
        """Texts of all table rows."""
        found = []
        for e in page.elements:
            if e["tag"] == "tr":
                found.append([])
            elif e["tag"] in ("td", "th"):
                found[-1].append(e["text"])
        return found

    # ---- runs ----

    def train(self, *words, config=WINE, name="wine"):
        self.write(f"{name}.yaml", config)
        self.run_program(f"{name}.yaml", "--run-dir", f"runs/{name}", *words)
        return f"runs/{name}"

    def test_the_best_epoch_of_a_run_in_progress(self):
        """Its direction is that of checkpoint.best."""
        events = [{"event": "start", "world_size": 1}] + [{"event": "epoch", "epoch": i, "train_loss": 1, "val_rmse": v, "val_f1": v} for i, v in enumerate((3, 2, 4))]
        cases = (("{metric: val_rmse, mode: auto}", "val_rmse 2 in epoch 2"), ("{metric: val_f1, mode: auto}", "val_f1 4 in epoch 3"),
                 ("{metric: val_rmse, mode: max}", "val_rmse 4 in epoch 3"))
        for i, (best, text) in enumerate(cases):
            run = self.fake(events, f"run-{i}", f"name: a\ncheckpoint: {{best: {best}}}\n")
            self.assertEqual(self.facts(self.page(run))["Best epoch"], text)

    def test_the_result_of_runs(self):
        """In a headline, and as a mark of each run; accuracies are in percent everywhere; a constant learning rate has no plot."""
        epochs = [{"event": "epoch", "epoch": i, "train_loss": 1, "val_loss": 1, "val_accuracy": v} for i, v in enumerate((0.5, 0.9731, 0.75))]
        steps = [{"event": "step", "step": i + 1, "loss": 2, "lr": 0.1, "grad_norm": i} for i in range(5)]
        page = self.page(self.fake([START, *steps, *epochs]))
        self.assertEqual([p["text"] for p in page.all("p", class_="headline")], ["Best result: val_accuracy 97.31 % in epoch 2"])
        self.assertEqual(self.facts(page)["Validation accuracy"], "75.00 %")
        figures = page.figures()
        marks = {title: [e["text"] for e in figure if "best" in e.get("@class", "").split()] for title, figure in figures.items()}
        self.assertEqual({title: texts for title, texts in marks.items() if texts}, {"Validation accuracy": ["validation: best epoch 2, val_accuracy 97.31 %"]})
        self.assertEqual([e["text"] for e in figures["Validation accuracy"] if e.get("@class") == "tick end"], ["50 %", "60 %", "70 %", "80 %", "90 %", "100 %"])
        self.assertNotIn("Learning rate", figures)
        self.assertIn("Gradient norm", figures)
        end = {"event": "end", "epoch": 3, "step": 5, "best_epoch": 2, "best_value": 0.625, "test_loss": 1, "test_accuracy": 0.9, "test_rows": 10}
        other = self.fake([START, *steps[:4], {**steps[4], "lr": 0.05}, *epochs[:2], end], "b")
        self.assertEqual(self.facts(self.page(other))["Test"], "loss 1, accuracy 90.00 % on 10 rows")
        page = self.page("runs/a", other)
        self.assertEqual([e["text"] for e in page.figures()["Validation accuracy"] if "best" in e.get("@class", "").split()],
                         ["a: best epoch 2, val_accuracy 97.31 %", "b: best epoch 2, val_accuracy 62.50 %"])
        self.assertEqual([p["text"] for p in page.all("p", class_="headline")], ["Best result: val_accuracy 97.31 % in epoch 2 of a"])
        self.assertIn("Learning rate", page.figures())

    def test_a_run(self):
        run = self.train("train.metrics=[f1, auc, confusion_matrix]", "schedule.type=cosine")
        page = self.page(run)
        end, epochs, steps = self.events("end", run)[0], self.events("epoch", run), self.events("step", run)
        facts = self.facts(page)
        self.assertEqual(facts["State"], "complete")
        self.assertEqual(facts["Epochs"], "10 of 10")
        self.assertEqual(facts["Steps"], str(end["step"]))
        self.assertEqual(facts["State SHA-256"], end["state_sha256"])
        self.assertNotIn("State SHA-256", [e["text"] for e in page.elements if e["tag"] == "th"], "a table of one run")
        self.assertTrue(1 << 20 < end["peak_memory_bytes"] < 1 << 32)
        self.assertEqual(facts["Memory"], "%.1f MiB at most, rank 0" % (end["peak_memory_bytes"] / (1 << 20)))
        start = self.events("start", run)[0]
        for name, text in (("Parameters", "1091"), ("Rows", "142 + 36 of validation"), ("Batch", "32 rows a process"), ("Processes", f"1 on {start['device']}"),
                           ("Fingerprint of the data", start["dataset_fingerprint"]), ("Folder", run), ("Training loss", "%.6g" % epochs[-1]["train_loss"])):
            self.assertEqual(facts[name], text)
        self.assertRegex(facts["Time of training"], r"^[\d.]+ m?s$")
        self.assertRegex(facts["Throughput"], r"^[\d.]+[kM]? samples/s$")
        self.assertRegex(facts["Last line written"], r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}$")
        self.assertEqual(float(facts["Validation loss"]), float("%.6g" % epochs[-1]["val_loss"]))
        self.assertEqual(facts["Best epoch"], "val_accuracy %.2f %% in epoch %d" % (100 * end["best_value"], end["best_epoch"]))
        figures = page.figures()
        self.assertEqual(set(figures), {"Loss", "Accuracy", "Validation: f1", "Validation: auc", "Loss of each step", "Gradient norm",
                                        "Learning rate", "Samples per second", "Counts of validation rows"})
        ticks = [e for e in figures["Loss"] if "tick mid" == e.get("@class")]
        lines = [e for e in figures["Loss"] if e.get("@class") == "grid" and "V" in e["@d"]]
        self.assertEqual(len(ticks), len(lines))
        self.assertGreater(len(lines), 2)
        loss = paths(figures["Loss"])
        self.assertEqual({k: len(v) for k, v in loss.items()}, {"training": 10, "validation": 10})
        self.assertEqual(len(paths(figures["Loss of each step"])["wine"]), len(steps))
        self.assertEqual(sum("marks" in e.get("@class", "").split() for e in figures["Loss"]), 2)
        self.assertEqual(sum("marks" in e.get("@class", "").split() for e in figures["Loss of each step"]), 0)
        self.check_places(figures["Loss"], loss["validation"], [(e["epoch"] + 1, e["val_loss"]) for e in epochs])
        self.check_places(figures["Learning rate"], paths(figures["Learning rate"])["wine"], [(s["step"], s["lr"]) for s in steps])
        counts = epochs[-1]["val_confusion_matrix"]
        self.assertEqual([int(e["text"]) for e in figures["Counts of validation rows"] if "count" in e.get("@class", "").split()],
                         [n for row in counts for n in row if n])
        cells = [e for e in figures["Counts of validation rows"] if "cell" in e.get("@class", "").split()]
        self.assertEqual(len(cells), len(counts)**2)
        for i, e in enumerate(cells):
            for name, n in (("@x", i % len(counts)), ("@y", i // len(counts))):
                self.assertAlmostEqual(float(e[name]) - float(cells[0][name]), n * float(e["@width"]), delta=0.1)
        for row in (["optimizer.lr", "0.001"], ["model.layers.0.linear.out", "64"], ["dataset.split.test", "0.2"]):
            self.assertIn(row, self.rows(page))

    def check_places(self, figure, points, values, tolerance=0.06):
        """The points of a curve are where the axes say; coordinates have one decimal."""
        svg = next(e for e in figure if e["tag"] == "svg")
        left, top, right, bottom = map(float, svg["@data-box"].split(","))
        x0, x1, _ = map(float, svg["@data-x"].split(","))
        y0, y1, is_log = map(float, svg["@data-y"].split(","))
        self.assertEqual(len(points), len(values))
        for (px, py), (x, y) in zip(points, values):
            share = math.log(y / y0) / math.log(y1 / y0) if is_log else (y - y0) / (y1 - y0)
            self.assertAlmostEqual(px, left + (x - x0) / (x1 - x0) * (right - left), delta=tolerance)
            self.assertAlmostEqual(py, bottom - share * (bottom - top), delta=tolerance)

    def test_ticks_are_at_round_numbers(self):
        page = self.page(self.fake([START, *({"event": "epoch", "epoch": i, "train_loss": 0.37 + 0.231 * i, "val_loss": 10.0 ** -i} for i in range(30))]))
        self.assertIn("Loss (logarithmic)", page.figures())
        ticks = [e["text"] for e in page.figures()["Loss (logarithmic)"] if "tick" in e.get("@class", "").split()]
        self.assertGreater(len(ticks), 8)
        for tick in ticks:
            self.assertRegex(tick, r"^(0|\d0*|\d5|0\.0*\d|1e-\d+)$")

    def test_several_runs(self):
        self.train()
        self.train("optimizer.lr=0.01", "train.epochs=7", name="fast")
        page = self.page("runs/wine", "runs/fast")
        figures = page.figures()
        self.assertEqual({k: len(v) for k, v in paths(figures[next(t for t in figures if t.startswith("Validation loss"))]).items()},
                         {"wine": 10, "fast": 7})
        rows = self.rows(page)
        head = next(r for r in rows if r[0] == "Run" and "optimizer.lr" in r)
        self.assertEqual(sorted(head[1:]), ["name", "optimizer.lr", "train.epochs"] if "name" in head else ["optimizer.lr", "train.epochs"])
        self.assertEqual([r[head.index("optimizer.lr")] for r in rows if r[0] in ("wine", "fast") and len(r) == len(head)], ["0.001", "0.01"])
        hashes = [e["@title"] for e in page.all("td", class_="hash")]
        self.assertEqual(hashes, [self.sha("runs/wine"), self.sha("runs/fast")])

    def test_a_folder_of_runs(self):
        """All runs in it, by the numbers in their names; what is no run is left out."""
        self.train()
        self.train("train.epochs=7", name="fast")
        os.mkdir(self.path("runs/no-run"))
        self.write("runs/notes.txt", "")
        self.run_program("report", "runs", out="runs/report.html: 2 runs, ")
        self.run_program("report", "runs", "runs/fast", "--out", "all.html", out="all.html: 3 runs, ")
        epoch = {"event": "epoch", "epoch": 0, "train_loss": 1, "val_loss": 0.5}
        for name in ("run_10", "run_2", "run_1"):
            self.fake([START, epoch], f"many/{name}")
        self.assert_legends_have_the_colors_of_curves(self.page("runs/many", self.fake([START, epoch, {**epoch, "epoch": 1, "val_f1": 1}, {**epoch, "epoch": 2, "val_f1": 1}], "other"),
                                                                self.fake([START, epoch, {**epoch, "epoch": 1}], "short")))
        head, *rows = [r for r in self.rows(self.page("runs/many")) if "Best val_loss" in r or r[0].startswith("run_")][:4]
        self.assertEqual([(r[0], r[head.index("Best val_loss")]) for r in rows], [(name, "0.5 in epoch 1") for name in ("run_1", "run_2", "run_10")])

    def assert_legends_have_the_colors_of_curves(self, page):
        found = 0
        for figure in page.figures().values():
            items = [e["@data-name"] for e in figure if e["tag"] == "li"]
            keys = [e["@class"] for e in figure if e.get("@d") == "M1 4H21"]
            curves = {e["@data-name"]: e["@class"] for e in figure if e["tag"] == "path" and "@data-name" in e}
            self.assertEqual(dict(zip(items, keys)), curves if items else {})
            found += len(items)
        self.assertGreater(found, 3)

    def test_runs_of_the_same_name_have_their_paths(self):
        for folder in ("x", "y"):
            self.fake([START, *({"event": "step", "step": i, "loss": i, "lr": 1} for i in range(1, 5))], f"{folder}/same")
        page = self.page("runs/x/same", "runs/y/same/")
        self.assertEqual(sorted(paths(page.figures()["Loss of each step"])), ["runs/x/same", "runs/y/same"])

    def test_twenty_runs(self):
        folders = [self.fake([START, *({"event": "step", "step": i, "loss": n + i, "lr": 1} for i in range(1, 5))], f"r{n}") for n in range(20)]
        page = self.page(*folders)
        curves = page.figures()["Loss of each step"]
        self.assertEqual(len(paths(curves)), 20)
        looks = {e["@class"] for e in curves if e["tag"] == "path" and e.get("@data-name")}
        self.assertEqual(len(looks), 20, "two runs look the same")

    def test_an_empty_run(self):
        page = self.page(self.fake([START]))
        self.assertEqual(self.facts(page)["State"], "failed")
        self.assertIn("no step or epoch has ended yet", page.source)
        self.assertIn("There are no curves yet", page.source)
        page = self.page(self.fake([], "b"))
        self.assertEqual(self.facts(page)["State"], "empty")

    def test_what_happened_to_a_run_is_noted(self):
        steps = [{"event": "step", "epoch": 0, "step": i, "loss": 1 / i, "lr": 0.1} for i in (1, 2, 3)]
        others = [{"event": event, "epoch": 0, "step": 3} for event, count in (("skipped", 2), ("rollback", 3), ("checkpoint", 4), ("checkpoint_failed", 5))
                  for _ in range(count)]
        page = self.page(self.fake([START, *steps, *others, {**START, "event": "resume"}]))
        self.assertIn("a: 1 resumed, 2 batches skipped for numbers that are not finite, 3 returns to a checkpoint, 5 checkpoints that did not reach the disk.", page.source)
        self.assertNotIn("damaged", page.source)

    def test_a_killed_run(self):
        steps = [{"event": "step", "epoch": 0, "step": i, "loss": 1 / i, "lr": 0.1} for i in range(1, 9)]
        run = self.fake([START, *steps])
        with open(self.path(run, "metrics.jsonl"), "a") as f:
            f.write('{"event":"step","epoch":0,"step":9,"loss":0.')
        page = self.page(run)
        self.assertEqual(self.facts(page)["State"], "failed")
        self.assertEqual(self.facts(page)["Steps"], "8")
        self.assertIn("the last line of metrics.jsonl is not complete", page.source)
        self.assertEqual(len(paths(page.figures()["Loss of each step"])["a"]), 8)
        self.assertNotIn("There are no curves yet", page.source)
        self.assertNotIn("damaged", page.source)

    def test_damaged_lines_are_counted(self):
        good = [{"event": "step", "step": i, "loss": i, "lr": 1} for i in range(1, 4)]
        bad = ["", "null", "[1]", "{}", '{"event":7}', '{"event":"step","loss":3}', '{"event":"step","step":4,"loss":1', "\0\0\0", '{"event":"step" "step":4}',
               '{"event":"step","step":4,"loss":.5}', "x" * 300000]
        page = self.page(self.fake([START, *good, *bad, {"event": "of the future", "x": [1, {"y": "]}"}]}]))
        self.assertIn(f"{len(bad)} of {len(bad) + 5} lines of metrics.jsonl are damaged", page.source)
        self.assertEqual(len(paths(page.figures()["Loss of each step"])["a"]), 3)

    def test_values_that_are_not_finite_are_gaps(self):
        losses = [3, 2, None, None, 1, 0.5]
        page = self.page(self.fake([START, *({"event": "step", "step": i + 1, "loss": v, "lr": 1} for i, v in enumerate(losses))]))
        figure = page.figures()["Loss of each step"]
        curve = next(e for e in figure if e.get("@data-name"))
        self.assertEqual(re.findall("[ML]", curve["@d"]), ["M", "L", "M", "L"])
        self.assertIn("2 values are not finite", page.source)

    def test_wide_ranges_have_a_logarithmic_axis(self):
        for number, (losses, is_log) in enumerate((([1000, 10, 0.1], True), ([3, 2, 1], False), ([1000, 10, -0.1], False))):
            page = self.page(self.fake([START, *({"event": "step", "step": i + 1, "loss": v, "lr": 1} for i, v in enumerate(losses))], f"r{number}"))
            title = "Loss of each step" + " (logarithmic)" * is_log
            svg = next(e for e in page.figures()[title] if e["tag"] == "svg")
            box, (low, high, log) = ([float(v) for v in svg[name].split(",")] for name in ("@data-box", "@data-y"))
            self.assertEqual(log, is_log)
            place = math.log if is_log else float
            heights = [y for _, y in paths(page.figures()[title])[f"r{number}"]]
            for loss, y in zip(losses, heights, strict=True):
                share = (place(loss) - place(low)) / (place(high) - place(low))
                self.assertAlmostEqual(y, box[3] - share * (box[3] - box[1]), delta=0.1)

    def test_a_long_run(self):
        """10^6 updates: every path is short, and the largest value of all is still there."""
        peak = 777777
        os.makedirs(self.path("runs/long"))
        with open(self.path("runs/long/metrics.jsonl"), "w") as f:
            f.write(json.dumps(START) + "\n")
            f.writelines('{"event":"step","epoch":%d,"step":%d,"loss":%.17g,"lr":0.001,"grad_norm":1.25,"samples":32,"seconds":0.001}\n'
                         % (i // 1000, i, 50 if i == peak else 2 + math.sin(i)) for i in range(1, 1000001))
        start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime  # of the processor, which other programs do not use up
        page = self.page("runs/long")
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start, 60)
        self.assertLess(len(page.source), 1 << 20)
        figure = page.figures()["Loss of each step"]
        for e in figure:
            self.assertLessEqual(len(re.findall("[ML]", e.get("@d", ""))), 2000)
        band = paths(figure, "band")[None]
        svg = next(e for e in figure if e["tag"] == "svg")
        left, top, right, bottom = map(float, svg["@data-box"].split(","))
        x, y = min(band, key=lambda p: p[1])
        self.assertAlmostEqual(x, left + peak / 1e6 * (right - left), delta=2)
        y0, y1, _ = map(float, svg["@data-y"].split(","))
        self.assertAlmostEqual(y, bottom - (50 - y0) / (y1 - y0) * (bottom - top), delta=0.1)
        self.assertEqual(self.facts(page)["Steps"], "1000000")

    def test_hostile_texts(self):
        """Texts of files are texts of the page, wherever they stand."""
        evil = """<script>alert("1")</script><img src=x onerror='alert(2)'>&lt;\x1b[31m\u202e"""
        start = {**START, "device": evil, "backend": evil, "dataset_fingerprint": evil}
        steps = [{"event": "step", "step": i, "loss": i, "lr": 1, "</text><script>": 1, "on\" x": 2, "fine_name": i} for i in (1, 2, 3)]
        name = "a<b>&'\""
        config = "name: \"</td><script>alert(3)</script>\"\n\"<b>key\": [\"'\\\"><script>\"]\n"
        one, two = self.fake([start, *steps], name, config), self.fake([start, *steps], "b", "name: '<i>'\n")
        for page in (self.page(one), self.page(one, two)):
            self.assertEqual(len(page.all("script")), 1)
            self.assertNotIn("alert", page.all("script")[0]["text"])
            self.assertEqual(page.all("img") + page.all("b") + page.all("i"), [])
            self.assertNotRegex(page.source, "[\x00-\x08\x0b-\x1f\x7f\u202e]")
            self.assertIn("<script>alert(\"1\")</script>", page.all("main")[0]["text"])
            self.assertIn("fine_name", page.figures())
            self.assertIn(name, page.all("title")[0]["text"])

    def test_confusion_matrices_that_are_none(self):
        for n, matrix in enumerate(([[1, 2]], [[1, 2], [3]], [[1, -2], [3, 4]], [[1, "2"], [3, 4]], [], {"a": 1}, [[[1]]], "x")):
            page = self.page(self.fake([START, *({"event": "epoch", "epoch": i, "val_loss": 1, "val_confusion_matrix": matrix} for i in range(3))], f"r{n}"))
            self.assertNotIn("Confusion matrix", page.source)

    def test_a_large_confusion_matrix(self):
        for n, title in ((40, "Counts of validation rows"), (150, "150 classes, too many to draw")):
            matrix = [[100 if i == j else 7 if (i, j) == (3, 5) else 0 for j in range(n)] for i in range(n)]
            page = self.page(self.fake([START, {"event": "epoch", "epoch": 0, "val_loss": 1, "val_confusion_matrix": matrix}], f"r{n}"))
            self.assertIn(title, page.figures())
            self.assertIn(["3", "5", "7"], self.rows(page))

    def test_classes_have_the_labels_of_the_data(self):
        """Whatever is in them; without a readable checkpoint, or with one of other classes, they have numbers."""
        names = ["<b>&\"x", "a label that is long", "\u8d64", *(f"kind {i:02d}" for i in range(13))]
        for count in (3, 16):
            used = sorted(names[:count], key=str.encode)
            with open(self.path("t.csv"), "w", newline="") as f:
                writer = csv.writer(f)
                writer.writerow(["u", "v", "kind"])
                writer.writerows([(i * 37 % 101) / 50, (i * 53 % 97) / 50, used[i % count]] for i in range(40 * count))
            run = self.train("train.metrics=[confusion_matrix]", name=f"t{count}", config=WINE.replace(
                "path: datasets/wine.h5, inputs: x, targets: y, scale: standard", "path: t.csv").replace("linear: {out: 3}", f"linear: {{out: {count}}}"))
            figure = self.page(run).figures()["Counts of validation rows"]
            ticks = [e["text"] for e in figure if "tick" in e.get("@class", "").split()]
            self.assertEqual(len(ticks), 2 * count)
            for name in used:
                self.assertEqual(sum(t == name or (len(name) > 16 and t.endswith("...") and name.startswith(t[:-3])) for t in ticks), 2, (name, ticks))
            titles = [e["text"] for e in figure if e["tag"] == "title"]
            self.assertTrue(any(t.startswith(f"target {used[1]}, predicted ") for t in titles), titles)
            if count == 16:
                self.assertTrue(any(row[0] in used and row[1] in used for row in self.rows(self.page(run)) if len(row) == 3))
            for path in self.checkpoints(run):
                with open(path, "r+b") as f:
                    f.write(b"damaged")
            ticks = [e["text"] for e in self.page(run).figures()["Counts of validation rows"] if "tick" in e.get("@class", "").split()]
            self.assertEqual(ticks, [str(i // 2) for i in range(2 * count)])

    # ---- refusals ----

    def test_what_is_refused(self):
        os.makedirs(self.path("empty"))
        for folder, words in (("none", "there is no such folder"), ("empty", "not the folder of a run or a sweep"), ("datasets/wine.h5", "no such folder")):
            self.run_program("report", folder, "--out", "page.html", code=DATA, err=words)
            self.assertFalse(os.path.exists(self.path("page.html")))
        self.run_program("report", code=USAGE)
        run = self.fake([START])
        os.remove(self.path(run, "metrics.jsonl"))
        os.mkfifo(self.path(run, "metrics.jsonl"))
        self.run_program("report", run, "--out", "page.html", code=DATA, err="not a regular file")

    def test_only_a_report_is_overwritten(self):
        run = self.fake([START])
        before = self.read("runs/a/metrics.jsonl")
        for out in ("runs/a/metrics.jsonl", "runs/a"):
            self.run_program("report", run, "--out", out, code=USAGE, err=out)
        self.assertEqual(self.read("runs/a/metrics.jsonl"), before)
        for _ in range(2):
            self.run_program("report", run, out="runs/a/report.html: 1 run")
        self.run_program("report", run, run)
        self.assertTrue(os.path.exists(self.path("report.html")))

    # ---- sweeps ----

    def sweep(self, text, *words, name="test"):
        self.write("base.yaml", WINE.replace("epochs: 10", "epochs: 4"))
        self.write(f"{name}.yaml", text)
        self.run_program("sweep", f"{name}.yaml", *words)
        return f"sweeps/{name}"

    def history(self, folder):
        with open(self.path(folder, "history.jsonl")) as f:
            return [e for e in map(json.loads, f) if e["event"] == "run"]

    def test_a_sweep(self):
        folder = self.sweep(SWEEP)
        page, runs = self.page(folder), self.history(folder)
        best = sorted(runs, key=lambda r: (r["value"], r["trial"]))
        self.assertEqual(self.facts(page)["Trials"], "24 ended of 24")
        self.assertEqual(self.facts(page)["State"], "complete")
        self.assertEqual(self.facts(page)["States"], "24 complete, 0 pruned, 0 failed")
        rows = self.rows(page)
        at = next(i for i, r in enumerate(rows) if r[0] == "Trial")
        self.assertEqual([int(r[0]) for r in rows[at + 1:at + 11]], [r["trial"] for r in best[:10]])
        self.assertEqual([r[1] for r in rows[at + 1:at + 11]], ["%.6g" % r["value"] for r in best[:10]])
        figures = page.figures()
        lr = next(f for t, f in figures.items() if t.endswith("over optimizer.lr"))
        self.assertEqual(sum(e["tag"] == "circle" for e in lr), 24)
        self.assertTrue(next(e for e in lr if e["tag"] == "svg")["@data-x"].endswith(",1"), "not logarithmic")
        words = next(f for t, f in figures.items() if t.endswith("over sampler.batch_size"))
        self.assertEqual([e["text"] for e in words if e["tag"] == "text" and e["text"] in ("8", "16")], ["8", "16"])
        self.assertEqual(len(paths(figures["Parallel coordinates"], "trial")) and
                         sum("trial" in e.get("@class", "").split() for e in figures["Parallel coordinates"]), 24)
        self.assertIn("Importance of the parameters", figures)
        self.assertEqual([p["text"] for p in page.all("p", class_="headline")], [f"Best result: val_loss {best[0]['value']:.6g} in trial {best[0]['trial']:04d}"])
        self.assertIn("<p>Trials: 24 complete</p>", page.source)
        commands = [e["text"] for e in page.all("code") if e["text"].startswith("# trial")]
        self.assertEqual([int(c[8:12]) for c in commands], [r["trial"] for r in best[:5]])
        self.check_best_so_far(page, runs)
        self.check_command(page, folder, best[0])

    def check_commands_of_a_config_with_test_rows(self):
        """Folds leave them out."""
        folder = self.sweep(SWEEP + "repeat: {folds: 2}\n", "trials=1", "dataset.split.validation=0.25", name="three")
        self.assertEqual(self.metrics(f"{folder}/runs/0000/fold-0")[-1]["test_rows"], 36)
        first = next(r for r in self.history(folder) if r["repeat"] == 0)
        self.check_command(self.page(folder), folder, first, "runs/three")
        self.assertEqual(self.metrics("runs/three-0000")[-1]["test_rows"], 36)

    def check_best_so_far(self, page, runs):
        figure = next(f for t, f in page.figures().items() if t.startswith("Best val_loss so far"))
        points, best = paths(figure)["best so far"], [math.inf]
        improvements = 0
        for r in runs:
            improvements += r["value"] < best[-1]
            best.append(min(best[-1], r["value"]))
        self.assertEqual(len(points), 2 * improvements)
        self.assertEqual(points[-1][1], max(p[1] for p in points), "the smallest value is lowest")

    def check_command(self, page, folder, best, run="runs/test"):
        """The printed command trains the same bits."""
        text = page.all("code")[0]["text"]
        command = text.split("\n")[1]
        self.assertRegex(command, "^ddptrain [a-z]+\\.yaml ")
        done = subprocess.run(["sh", "-c", command.replace("ddptrain", program.BINARY, 1)], cwd=self.folder, env=self.environment(),
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(self.sha(f"{run}-%04d" % best["trial"]), best["state_sha256"])

    def test_a_sweep_with_repeats(self):
        folder = self.sweep(SWEEP + "repeat: {seeds: 2, folds: 2}\n", "trials=3", "sampler.batch_size=9")
        page, runs = self.page(folder), self.history(folder)
        values = {}
        for r in runs:
            values.setdefault(r["trial"], []).append(r["value"])
        means = sorted((sum(v) / 4, t) for t, v in values.items())
        best = values[means[0][1]]
        error = math.sqrt(sum((v - means[0][0]) ** 2 for v in best) / 3 / 4)
        rows = self.rows(page)
        row = rows[next(i for i, r in enumerate(rows) if r[0] == "Trial") + 1]
        self.assertEqual(row[:3], ["%04d" % means[0][1], "%.6g \u00b1 %.2g" % (means[0][0], error), "4"])
        self.assertEqual(self.facts(page)["Runs of a trial"], "2 seeds x 2 folds")
        first = next(r for r in runs if r["trial"] == means[0][1] and r["repeat"] == 0)
        self.check_command(page, folder, first)
        self.check_commands_of_a_config_with_test_rows()
        self.assertEqual(sum("error" in e.get("@class", "").split() for e in page.elements), 3 * 3)

    def test_a_sweep_with_several_metrics(self):
        folder = self.sweep(SWEEP + "other_metrics: {train_loss: auto, seconds: minimize}\n", "trials=12")
        page, values = self.page(folder), {}
        for r in self.history(folder):
            values[r["trial"]] = (r["value"], r["metrics"]["train_loss"], r["metrics"]["seconds"])
        front = [t for t, v in values.items() if not any(w != v and all(a <= b for a, b in zip(w, v)) for w in values.values())]
        rows = self.rows(page)
        at = next(i for i, r in enumerate(rows) if r[0] == "Trial")
        self.assertEqual(rows[at][:4], ["Trial", "val_loss", "train_loss", "seconds"])
        shown = rows[at + 1:at + 1 + len(front)]
        self.assertEqual([int(r[0]) for r in shown], sorted(front, key=lambda t: values[t][0]))
        for row in shown:
            self.assertEqual(row[1:4], ["%.6g" % v for v in values[int(row[0])]])
        self.assertIn(f"Pareto front: {len(front)} of 12 complete trials", [e["text"] for e in page.all("h3")])
        self.assertEqual(self.facts(page)["Goals"], "minimum of val_loss, minimum of train_loss, minimum of seconds")
        for name in ("train_loss", "seconds"):
            figure = page.figures()[f"val_loss over {name}"]
            self.assertEqual(sum("top" in e.get("@class", "").split() for e in figure), len(front))

    def test_failed_and_pruned_trials(self):
        folder = self.sweep(SWEEP.replace("{distribution: log_uniform, min: 1.0e-4, max: 1.0e-1}", "{values: [0.001, 0.002, 0.003, 1.0e+30]}") +
                            "early_terminate: {type: asha, min_epochs: 1, reduction_factor: 3}\n", "trials=20")
        runs = self.history(folder)
        counts = [sum(r["state"] == s for r in runs) for s in ("complete", "pruned", "failed")]
        self.assertTrue(all(counts), counts)
        page = self.page(folder)
        self.assertEqual(self.facts(page)["States"], "%d complete, %d pruned, %d failed" % tuple(counts))
        rows = self.rows(page)
        at = next(i for i, r in enumerate(rows) if r[0] == "Runs" and "Reason" in r[1])
        reasons = [r for r in rows[at + 1:] if len(r) == 2 and r[0].isdigit()]
        self.assertEqual(sum(int(r[0]) for r in reasons), counts[2])
        self.assertEqual([int(r[0]) for r in reasons], sorted((int(r[0]) for r in reasons), reverse=True))
        lr = next(f for t, f in page.figures().items() if t.endswith("over optimizer.lr"))
        so_far = next(f for t, f in page.figures().items() if t.startswith("Best val_loss so far"))
        for figure in (lr, so_far):
            self.assertEqual(sum("pruned" in e.get("@class", "").split() for e in figure),
                             sum(r["state"] == "pruned" and r["value"] is not None for r in runs))
        self.assertIn("<p>Trials: " + ", ".join(f"{n} {state}" for n, state in zip(counts, ("complete", "pruned", "failed")) if n) + "</p>", page.source)
        with open(self.path(folder, "history.jsonl")) as f:
            lines = [line for line in f if json.loads(line).get("trial") not in (3, 7)]
        self.write(f"{folder}/history.jsonl", "".join(lines))
        self.assertRegex(self.page(folder).source, r"<p>Trials: [^<]*, 2 to go</p>")

    def test_trials_beyond_the_axis(self):
        """A few that are far worse than the others are at the edge, and the page says how many."""
        folder = self.sweep(SWEEP, "trials=12")
        with open(self.path(folder, "history.jsonl")) as f:
            lines = [json.loads(line) for line in f]
        runs = [line for line in lines if line["event"] == "run"]
        self.assertEqual(len(runs), 12)
        for outliers, words in ((0, None), (1, "1 trial beyond the axis is at its edge."), (2, "2 trials beyond the axis are at its edge.")):
            for i, run in enumerate(runs):
                run["value"] = 1 + 0.01 * i if i >= outliers else 50
            with open(self.path(folder, "history.jsonl"), "w") as f:
                f.writelines(json.dumps(line) + "\n" for line in lines)
            source = self.page(folder).source
            if words:
                self.assertIn(words, source)
            else:
                self.assertNotIn("beyond the axis", source)

    def test_damaged_histories(self):
        folder = self.sweep(SWEEP)
        path = self.path(folder, "history.jsonl")
        with open(path) as f:
            lines = f.readlines()
        bad = ["{\n", "\n", '{"event":"run"}\n', '{"event":"run","trial":-1,"repeat":0,"state":"complete","parameters":{}}\n',
               '{"event":"run","trial":1.5,"repeat":0,"state":"complete"}\n', '{"event":"run","trial":0,"repeat":0,"state":"odd"}\n']
        twice = lines[0].replace('"value":', '"value":0.000001,"old":')
        with open(path, "w") as f:
            f.writelines([*bad, *lines, twice, lines[3][:40]])
        page = self.page(folder)
        self.assertIn(f"{len(bad)} of {len(bad) + 25} lines of history.jsonl are damaged", page.source)
        self.assertIn("The last line of history.jsonl is not complete", page.source)
        self.assertEqual(self.facts(page)["Trials"], "24 ended of 24")
        self.assertIn("1e-06", {r[1] for r in self.rows(page) if len(r) > 4})
        os.truncate(path, 0)
        self.assertIn("No trial has ended yet", self.page(folder).source)
        self.write(f"{folder}/sweep.yaml", "a: [\n")
        self.run_program("report", folder, "--out", "page.html", code=DATA)

    def test_a_list_of_trials(self):
        folder = self.sweep("config: base.yaml\nmethod: list\ntrials: [{optimizer.lr: 0.01}, {optimizer.lr: 0.1, sampler.batch_size: 16}]\n")
        page = self.page(folder)
        rows = self.rows(page)
        at = next(i for i, r in enumerate(rows) if r[0] == "Trial")
        self.assertEqual(rows[at][2:4], ["optimizer.lr", "sampler.batch_size"])
        self.assertEqual(sorted(r[2:4] for r in rows[at + 1:at + 3]), [["0.01", ""], ["0.1", "16"]])

    def test_a_comparison(self):
        """The page has the numbers of `compare`, and commands that repeat A and B from the folder alone, to the same bits."""
        self.write("a.yaml", WINE)
        self.write("b.yaml", WINE.replace("0.001", "0.01"))
        out, _ = self.run_program("compare", "a.yaml", "b.yaml", "train.epochs=3", "--seeds", 6)
        for name in ("a.yaml", "b.yaml"):
            os.remove(self.path(name))
        page = self.page("sweeps/a-or-b")
        pairs = page.figures()["Pairs: val_loss of B over that of A"]
        self.assertEqual(sum(e["tag"] == "circle" for e in pairs), 6)
        facts = self.facts(page)
        self.assertEqual((facts["Config A, trial 0"], facts["Config B, trial 1"]), ("a.yaml", "b.yaml"))
        rows = self.rows(page)
        at = next(i for i, r in enumerate(rows) if r[1:] == ["Config", "Mean", "Standard error"])
        self.assertEqual([r[:2] for r in rows[at + 1:at + 3]], [["A, trial 0", "a.yaml"], ["B, trial 1", "b.yaml"]])
        tests = re.search(r"A - B: (.*)\np-values: paired t-test (.*), Wilcoxon signed-rank test (.*)\n(.*)\n", out)
        self.assertEqual((facts["A - B"], facts["p-value, paired t-test"], facts["p-value, Wilcoxon signed-rank test"]), tests.groups()[:3])
        self.assertIn(tests[4], page.source)
        commands = [e["text"].split("\n") for e in page.all("code") if e["text"].startswith("# trial")]
        self.assertEqual(sorted(c[0] for c in commands), ["# trial 0000", "# trial 0001"])
        with open(self.path("sweeps/a-or-b/trials.csv")) as f:
            states = {int(row["trial"]): row["state_sha256"] for row in csv.DictReader(f) if row["seed"] == "0"}
        for comment, command in commands:
            words = shlex.split(command)[1:]
            self.run_program(*words)
            self.assertEqual(self.sha(words[words.index("--run-dir") + 1]), states[int(comment[-4:])])

    def test_an_unfinished_comparison(self):
        self.write("a.yaml", WINE)
        self.write("b.yaml", WINE.replace("0.001", "0.01"))
        self.run_program("compare", "a.yaml", "b.yaml", "--seeds", 3)
        with open(self.path("sweeps/a-or-b/history.jsonl")) as f:
            lines = f.readlines()
        for ended, notice in ((5, "1 pair is left out, of which a run has failed, has not ended or has no value."), (4, "A test needs two pairs of complete runs with values.")):
            kept = [line for line in lines if json.loads(line)["trial"] == 0 or json.loads(line)["repeat"] < ended - 3]
            self.write("sweeps/a-or-b/history.jsonl", "".join(kept))
            self.assertIn(notice, self.page("sweeps/a-or-b").source)

    def test_hostile_sweeps(self):
        evil = "</title><script>alert(1)</script>"
        os.makedirs(self.path("sweeps/x"))
        parameters = "\n".join(f"  p{i}: {{distribution: log_uniform, min: 1.0e-300, max: 1.0e300}}" for i in range(70))
        self.write("sweeps/x/sweep.yaml", f"config: '{evil}'\nmethod: '{evil}'\nmetric: {{name: '{evil}', goal: maximize}}\ntrials: 1000000000000000000\nrepeat: {{seeds: 1000000000000, folds: 1.0e+15}}\n"
                   f"parameters:\n  '{evil}': {{values: ['{evil}', b]}}\n  bad: [1]\n  worse: {{distribution: uniform, min: 3, max: 3}}\n{parameters}\n")
        with open(self.path("sweeps/x/history.jsonl"), "w") as f:
            for i in range(300):
                f.write(json.dumps({"event": "run", "trial": i, "repeat": 0, "state": "failed" if i % 3 == 0 else "complete",
                                    "parameters": {evil: f"'{evil}{i}'", "p1": "0", "p2": "x", "p3": str(10.0 ** (i - 150))}, "value": (-1.0) ** i * 1e308 if i % 5 else None,
                                    "message": f"{evil} {i}", "epochs": 1, "seconds": 1e308, "state_sha256": evil * 9}) + "\n")
        page = self.page("sweeps/x")
        self.assertEqual(len(page.all("script")), 1)
        self.assertNotRegex(page.source, r"[^a-z](nan|inf)[^a-z]")

    def test_a_large_sweep(self):
        """Plots are thinned, and the best trials are in them."""
        folder = self.sweep(SWEEP)
        lines = []
        for i in range(20000):
            lr = 10 ** (-4 + 3 * (i * 0.618034 % 1))
            lines.append(json.dumps({"event": "run", "trial": i, "repeat": 0, "state": "complete", "value": abs(math.log10(lr) + 2.5) + (i * 0.37 % 1) / 10 + 0.01,
                                     "parameters": {"optimizer.lr": repr(lr), "sampler.batch_size": "8", "model.layers.0.linear.out": str(4 + i % 9)},
                                     "best_epoch": 1, "epochs": 1, "seconds": 0.1, "state_sha256": "0" * 64}) + "\n")
        with open(self.path(folder, "history.jsonl"), "w") as f:
            f.writelines(lines)
        self.write(f"{folder}/sweep.yaml", self.read(f"{folder}/sweep.yaml").replace("trials: 24", "trials: 20000"))
        page = self.page(folder)
        self.assertLess(len(page.source), 3 << 20)
        figures = page.figures()
        lr = next(f for t, f in figures.items() if t.endswith("over optimizer.lr"))
        self.assertTrue(1500 <= sum(e["tag"] == "circle" for e in lr) <= 2010)
        self.assertEqual(sum("top" in e.get("@class", "").split() for e in lr), 10)
        bars = figures["Importance of the parameters"]
        texts = [e["text"] for e in bars if e["tag"] == "text"]
        self.assertEqual(texts[0], "optimizer.lr")
        self.assertGreater(int(texts[1].split()[0]), 80)
        self.assertLess(max(int(t.split()[0]) for t in texts[3::2]), 5)

    def test_a_sweep_and_a_run(self):
        folder, run = self.sweep(SWEEP), self.train()
        page = self.page(folder, run)
        titles = [e["text"] for e in page.all("h2")]
        self.assertEqual(titles[:3], ["Sweep test", "Run", "Curves"])

    # ---- a browser ----

    def test_the_style_and_the_script_are_files(self):
        """Byte for byte, so that what is checked there is what the browser reads."""
        page = self.page(self.fake([START]))
        for tag, name in (("style", "page.css"), ("script", "page.js")):
            with open(os.path.join(program.SOURCE, "src", "report", name)) as f:
                self.assertEqual([e["text"] for e in page.all(tag)], ["\n" + f.read()])

    def find_browser(self):
        browser = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
        if not browser:
            self.skipTest("no chromium is installed: the page was not opened in a browser")
        return browser

    def test_in_a_browser(self):
        browser = self.find_browser()
        self.page(self.sweep(SWEEP), self.train("train.metrics=[confusion_matrix]"))
        dom, page = self.open_page(browser, "page.html"), Page(self.read("page.html"))
        for tag in ("svg", "circle", "path", "table"):
            self.assertEqual(len(dom.all(tag)), len(page.all(tag)))
        self.write("moved.html", self.read("page.html").replace("</body>", f"<script>{self.POINTER}</script></body>"))
        dom = self.open_page(browser, "moved.html")
        epochs, trials = self.events("epoch", "runs/wine"), sorted(self.history("sweeps/test"), key=lambda r: (r["value"], r["trial"]))
        shown = json.loads(dom.all("title")[0]["text"])
        self.assertEqual(shown["lines"][0], "epoch 10")
        for line, name, value in zip(shown["lines"][1:], ("training", "validation"), (epochs[-1]["train_loss"], epochs[-1]["val_loss"])):
            self.assertEqual(line.split(": ")[0], name)
            self.assertAlmostEqual(float(line.split(": ")[1]), value, delta=0.002)
        by_trial = sorted(r["trial"] for r in trials[:10])
        self.assertEqual([int(t) for t in shown["up"]], by_trial)
        self.assertEqual([int(t) for t in shown["down"]], by_trial[::-1])

    def test_other_axes_and_hidden_runs_in_a_browser(self):
        """The state of the page is in its address; a hidden run does not decide about the axes."""
        browser = self.find_browser()
        for name, count, scale in (("short", 10, 1), ("long", 1000, 50)):
            self.fake([START, *({"event": "epoch", "epoch": i, "train_loss": scale / (i + 1), "val_accuracy": 0.5} for i in range(count))], name)
        self.page("runs/short", "runs/long")
        def state(address, click=""):
            self.write("moved.html", self.read("page.html").replace("</body>", f"<script>{click};{self.STATE}</script></body>"))
            return json.loads(self.open_page(browser, "moved.html", address).all("title")[0]["text"])
        linear = state("")
        self.assertEqual((linear["x"][-1], linear["checked"], linear["pressed"]), ("1000", "linear", ["true", "true"] * 2))
        log = state("#axis=log")
        self.assertEqual(log["x"], ["1", "10", "100", "1000"])
        self.assertEqual((log["label"], log["checked"]), ("epoch (logarithmic)", "log"))
        first, last = log["left"]["short"], log["right"]["long"]
        self.assertAlmostEqual((log["right"]["short"] - first) / (last - first), 1 / 3, delta=0.02)  # 10 of 1 to 1000; the last value is a mean
        share = state("#axis=share")
        self.assertEqual((share["x"][0], share["x"][-1], share["label"]), ("0 %", "100 %", "share of the run"))
        self.assertAlmostEqual(share["right"]["short"], share["right"]["long"], delta=1)
        hidden = state("#hide=long")
        self.assertEqual((hidden["x"][-1], hidden["y"][-1], hidden["pressed"], hidden["off"]), ("10", "1", ["true", "false"] * 2, ["long"] * 2))
        self.assertEqual(state("", "document.querySelectorAll('.legend button')[1].click()"), {**hidden, "address": "#hide=long"})
        self.assertEqual(state("#hide=long", "document.querySelectorAll('.legend button')[1].click()"), {**linear, "address": ""})
        self.assertEqual(state("#hide=long&hide=short")["off"], ["short", "long"] * 2)
        self.assertEqual(state("#axis=%25&hide=%25E0%25")["x"], linear["x"])  # texts that nobody wrote

    # What the plot of the losses shows, and the controls.
    STATE = """
        var svg = document.querySelector("svg.plot"), texts = s => Array.from(svg.querySelectorAll(s)).map(e => e.textContent);
        var ends = at => Object.fromEntries(Array.from(svg.querySelectorAll("path[data-name]")).map(p => [p.dataset.name,
            Number(p.getAttribute("d").match(/[ML][^ ]+/g).at(at).slice(1))]));
        document.title = JSON.stringify({x: texts(".tick.mid"), y: texts(".tick.end"), label: texts(".label")[0], left: ends(0), right: ends(-1),
            checked: document.querySelector(".choice :checked").value, address: location.hash,
            pressed: Array.from(document.querySelectorAll(".legend button")).map(b => b.getAttribute("aria-pressed")),
            off: Array.from(document.querySelectorAll(".off path[data-name]")).map(p => p.dataset.name)});"""

    # Moves the pointer to the right end of the plot of the losses, clicks twice on the first heading of the best trials.
    POINTER = """
        var svg = Array.from(document.querySelectorAll("svg.plot")).find(s => s.querySelector("path[data-name=validation]"));
        svg.scrollIntoView();
        var size = svg.getBoundingClientRect(), box = svg.dataset.box.split(",").map(Number), scale = size.width / svg.viewBox.baseVal.width;
        svg.dispatchEvent(new MouseEvent("mousemove", {clientX: size.left + box[2] * scale, clientY: size.top + 50}));
        var lines = document.getElementById("tip").textContent.split("\\n");
        var table = document.querySelector("table.sortable"), column = () => Array.from(table.tBodies[0].rows).map(r => r.cells[0].textContent);
        table.querySelector("th").click();
        var up = column();
        table.querySelector("th").click();
        document.title = JSON.stringify({lines: lines, up: up, down: column()});"""

    def open_page(self, browser, name, address=""):
        profile = tempfile.mkdtemp(dir=self.folder)
        done = subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=2000",
                               f"--user-data-dir={profile}", "--dump-dom", f"file://{os.path.realpath(self.path(name))}{address}"],
                              capture_output=True, text=True, timeout=300, env={**os.environ, "HOME": profile})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotRegex(done.stderr, r"CONSOLE|Refused|Uncaught")
        return Page(done.stdout)
