"""Columns of texts that are read as tokens: the ids, training, evaluation, prediction, resume, what is rejected. ctest-labels: unit"""
import csv
import io
import json
import os
import random
import sqlite3

import program
from program import DATA, USAGE

CONFIG = """
dataset:
  path: train.csv
  targets: stars
  split: {test: 0.25, seed: 1}
  columns: {review: {type: text, tokenizer: tokenizer.json, length: 6}}
sampler: {batch_size: 8}
model: {layers: [{embedding: {embedding_dim: 8, num_embeddings: 259, padding_idx: 258}}, {mean: 1}, {linear: 2}]}
loss: cross_entropy
optimizer: {type: adam, lr: 0.05}
train: {epochs: 30}
"""


def byte_letters():
    """GPT-2's letters of the bytes."""
    usual = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in usual}
    for b in range(256):
        letters.setdefault(b, chr(256 + len(letters) - len(usual)))
    return letters


def tokenizer(padding=True):
    vocab = {byte_letters()[b]: b for b in range(256)}
    return {"model": {"type": "BPE", "vocab": {**vocab, "th": 256, "the": 257}, "merges": ["t h", "th e"]},
            "added_tokens": [{"id": 258, "content": "<pad>", "special": True}] if padding else [],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}, "decoder": {"type": "ByteLevel"}}


def encode(text, length=6, padding=258):
    """The ids of a text, by the tokenizer above: bytes, but "th" and "the"."""
    data, ids = text.encode(), []
    while data:
        token = next((t for t in (b"the", b"th") if data.startswith(t)), data[:1])
        ids.append({b"the": 257, b"th": 256}.get(token, token[0]))
        data = data[len(token):]
    return (ids + [padding] * length)[:length]


def reviews(count):
    words = ["good", "the good", "very good", "bad", "the bad", "not bad", "é bad", "5"]
    return [(words[i % 8] + "!" * (i % 5), "high" if "good" in words[i % 8] else "low") for i in range(count)]


class Texts(program.Case):
    def csv(self, name, rows, header=("review", "stars")):
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([header, *rows])
        return self.write(name, out.getvalue())

    def setUp(self):
        super().setUp()
        self.write("test.yaml", CONFIG)
        self.write("tokenizer.json", json.dumps(tokenizer()))
        self.csv("train.csv", reviews(80))

    def fails(self, *arguments, code=USAGE):
        return self.run_program("check", "test.yaml", *arguments, code=code)[1]

    def write_ids(self, rows):
        self.csv("ids.csv", [(*encode(text), stars) for text, stars in rows], (*[f"t{i}" for i in range(6)], "stars"))

    def test_tokens_are_those_of_a_table_of_ids(self):
        """The same losses as with the ids in columns, for texts that are cut, padded, numbers, not ASCII and over two lines."""
        rows = [(text + extra, stars) for text, stars in reviews(80) for extra in (" of all the thirty others", "", "\n\u00e9")]
        self.csv("train.csv", rows)
        self.write_ids(rows)
        self.run_program("test.yaml", "--run-dir", "runs/texts")
        self.run_program("test.yaml", "dataset.columns=null", "dataset.path=ids.csv", "--run-dir", "runs/ids")
        self.assertEqual(self.losses("runs/texts"), self.losses("runs/ids"))
        self.assertLess(self.losses("runs/texts")[-1], 0.1)

    def test_rows_in_a_file_and_a_validation_file(self):
        self.csv("val.csv", reviews(13))
        arguments = ("dataset.split=null", "dataset.validation=val.csv")
        self.run_program("test.yaml", *arguments, "--run-dir", "runs/memory")
        self.run_program("test.yaml", *arguments, "dataset.cache_mb=0", "--run-dir", "runs/file")
        self.assertEqual(self.losses("runs/memory"), self.losses("runs/file"))

    def test_scale_does_not_change_tokens(self):
        self.run_program("test.yaml", "--run-dir", "runs/plain")
        self.run_program("test.yaml", "dataset.scale=standard", "--run-dir", "runs/scaled")
        self.assertEqual(self.losses("runs/plain"), self.losses("runs/scaled"))

    def test_the_model_has_its_tokenizer(self):
        self.run_program("test.yaml")
        self.csv("new.csv", reviews(9))
        before = self.run_program("eval", "runs/test", "new.csv")[0], self.run_program("predict", "runs/test", "new.csv")[0]
        os.remove(os.path.join(self.folder, "tokenizer.json"))
        after = self.run_program("eval", "runs/test", "new.csv")[0], self.run_program("predict", "runs/test", "new.csv")[0]
        self.assertEqual(before, after)
        self.csv("unlabelled.csv", [("not bad",), ("the good",)], ("review",))
        self.run_program("predict", "runs/test", "unlabelled.csv")

    def test_resume(self):
        self.run_program("test.yaml", "--run-dir", "runs/whole")
        self.run_program("test.yaml", "train.epochs=10", "--run-dir", "runs/parts")
        self.run_program("test.yaml", "--run-dir", "runs/parts")
        self.assertEqual(self.sha("runs/whole"), self.sha("runs/parts"))
        error = self.run_program("test.yaml", "dataset.columns.review.length=5", "train.epochs=40", "--run-dir", "runs/parts", code=None)[1]
        self.assertRegex(error, "length")

    def test_a_table_beside_the_text(self):
        rows = [(i % 7, text, stars) for i, (text, stars) in enumerate(reviews(80))]
        self.csv("train.csv", rows, ("age", "review", "stars"))
        self.assertIn("column 'review' is a text, whose tokens are an input of their own; give the other columns another name, as in "
                      "dataset.inputs: {words: [review], numbers: [...]}, or ignore them", self.fails())
        self.write("test.yaml", CONFIG.replace("  targets: stars", "  targets: stars\n  inputs: {words: [review], numbers: [age]}\n  scale: standard").replace(
            "{layers: [{embedding: {", "{layers: [{embedding: {from: words, ").replace("{mean: 1},", "{mean: 1}, {concat: {from: numbers}},"))
        self.run_program("test.yaml")
        self.assertLess(self.losses()[-1], 0.2)

    def test_two_processes(self):
        self.run_program("test.yaml", "--run-dir", "runs/one")
        self.run_program("test.yaml", "--nproc", "2", "sampler.batch_size=4", "--run-dir", "runs/two")
        self.assert_close(self.losses("runs/one"), self.losses("runs/two"), 1e-5)

    def test_database(self):
        with sqlite3.connect(os.path.join(self.folder, "train.db")) as database:
            database.execute("create table r (review text, stars text)")
            database.executemany("insert into r values (?, ?)", reviews(80))
        self.run_program("test.yaml", "--run-dir", "runs/csv")
        self.run_program("test.yaml", "dataset.path=train.db", "--run-dir", "runs/db")
        self.assertEqual(self.losses("runs/csv"), self.losses("runs/db"))

    def test_padding(self):
        self.write("tokenizer.json", json.dumps(tokenizer(padding=False)))
        self.assertIn("dataset.columns.review: the tokenizer has no padding token; write padding: ID, of a token that no text has; "
                      "258 is the first id that no token has (num_embeddings: 259)", self.fails())
        self.assertIn("padding is not the id of a token; 258 is", self.fails("dataset.columns.review.padding=259"))
        self.run_program("check", "test.yaml", "dataset.columns.review.padding=258", out="6 tokens, num_embeddings: 259, padding_idx: 258")
        self.write("tokenizer.json", json.dumps({**tokenizer(padding=False), "padding": {"pad_id": 3, "pad_token": "x"}}))
        self.assertIn("6 tokens, num_embeddings: 258, padding_idx: 3", self.run_program("check", "test.yaml", "model.layers.0.embedding.padding_idx=3")[0])

    def test_padding_of_the_embedding(self):
        for layer in ("embedding", "embedding_bag"):
            self.write("test.yaml", CONFIG.replace("{embedding: {", "{%s: {" % layer).replace("padding_idx: 258", "padding_idx: 0"))
            if layer == "embedding_bag":
                self.write("test.yaml", self.read("test.yaml").replace(" {mean: 1},", ""))
            self.assertRegex(self.fails(), f"test.yaml:.*{layer}: padding_idx is 0, but the column 'review' has the padding 258")
        self.csv("train.csv", [(i % 7, *row) for i, row in enumerate(reviews(80))], ("age", "review", "stars"))
        self.write("test.yaml", CONFIG.replace("  targets: stars", "  targets: stars\n  inputs: {numbers: [age], words: [review]}").replace(
            "{layers: [{embedding: {", "{layers: [{embedding: {from: words, ").replace("{mean: 1},", "{mean: 1}, {concat: {from: numbers}},"))
        self.run_program("check", "test.yaml")
        self.write("test.yaml", self.read("test.yaml").replace("padding_idx: 258", "padding_idx: 1"))
        self.assertIn("padding_idx is 1, but the column 'review' has the padding 258", self.fails())
        self.run_program("check", "test.yaml", "model.layers.0.embedding.padding_idx=null")

    def test_missing_texts(self):
        self.csv("train.csv", [*reviews(20), ("", "low")])
        self.assertIn("column 'review': missing value; remove the row, or write dataset.columns: {review: {missing: constant, fill: TEXT}}",
                      self.fails("--data", code=DATA))
        self.write("test.yaml", CONFIG.replace("length: 6", "length: 6, missing: constant, fill: good"))
        self.run_program("test.yaml", "--run-dir", "runs/filled")
        self.write("test.yaml", CONFIG)
        self.csv("train.csv", [*reviews(20), ("good", "low")])
        self.run_program("test.yaml", "--run-dir", "runs/written")
        self.assertEqual(self.losses("runs/filled"), self.losses("runs/written"))

    def test_wrong_configs(self):
        for new, sentence in (("{type: number, length: 6}", "tokenizer, length and padding are for type: text"),
                              ("{type: category, tokenizer: tokenizer.json}", "tokenizer, length and padding are for type: text"),
                              ("{type: text, tokenizer: tokenizer.json, scale: standard}", "tokens of a text are not scaled; remove scale"),
                              ("{type: text, tokenizer: tokenizer.json, missing: mean}", "missing: constant with fill: TEXT"),
                              ("{type: text, tokenizer: tokenizer.json, length: 0}", "length"),
                              ("{type: text, tokenizer: tokenizer.json, encoding: embedding}", "encoding and unknown are for categories"),
                              ("{type: text, tokenizer: a.json}, b: {type: text, tokenizer: b.json}",
                               "'review' and 'b' have different tokenizers; all columns of texts have the same"),
                              ("{type: text, tokenizer: a.json}, b: {type: text}",
                               "'review' and 'b' have different tokenizers; all columns of texts have the same")):
            self.write("test.yaml", CONFIG.replace("{type: text, tokenizer: tokenizer.json, length: 6}", new))
            self.assertIn(sentence, self.fails())
        self.write("test.yaml", CONFIG)
        os.remove(os.path.join(self.folder, "tokenizer.json"))
        self.assertIn("cannot read the tokenizer 'tokenizer.json' (dataset.columns): No such file or directory", self.fails(code=DATA))

    def test_exports_are_refused(self):
        self.run_program("test.yaml", "train.epochs=1")
        for name in ("model.c", "model.onnx"):
            error = self.run_program("export", "runs/test", "--out", name, code=USAGE)[1]
            self.assertIn("the column 'review' is a text, and an exported model has no tokenizer", error)

    def test_generate_is_refused(self):
        self.run_program("test.yaml", "train.epochs=1")
        error = self.run_program("generate", "runs/test", "--prompt", "the", code=USAGE)[1]
        self.assertIn("generate needs a model of texts, and this one reads the columns of a table; use predict", error)

    def test_words_of_the_training_rows(self):
        """The tokenizer that is made has the words that occur twice in the training rows, not those of other rows, and is that of a file."""
        rows = [("the good", "high"), ("Once good", "high"), ("the bad", "low"), ("bad", "low"), ("later later", "low"), ("later", "low")]
        self.csv("train.csv", rows)
        self.write("test.yaml", CONFIG.replace("tokenizer: tokenizer.json, ", "").replace(
            "split: {test: 0.25, seed: 1}", "split: {test: 0.33, shuffle: false}").replace(", num_embeddings: 259, padding_idx: 258", ", padding_idx: 0"))
        self.assertIn("6 tokens, num_embeddings: 260, padding_idx: 0", self.run_program("check", "test.yaml")[0])
        self.run_program("test.yaml", "--run-dir", "runs/made")
        letters = byte_letters()
        vocab = {"[PAD]": 0, **{letters[b]: 1 + b for b in range(256)}, **{letters[32] + word: 257 + i for i, word in enumerate(("bad", "good", "the"))}}
        self.write("words.json", json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": [], "ignore_merges": True}, "padding": {"pad_id": 0},
                                             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}))
        self.run_program("test.yaml", "dataset.columns.review.tokenizer=words.json", "--run-dir", "runs/file")
        self.assertEqual(self.losses("runs/made"), self.losses("runs/file"))
        self.run_program("test.yaml", "dataset.cache_mb=0", "--run-dir", "runs/rows_in_the_file")
        self.assertEqual(self.losses("runs/made"), self.losses("runs/rows_in_the_file"))
        self.run_program("test.yaml", "train.epochs=10", "--run-dir", "runs/parts")
        self.run_program("test.yaml", "--run-dir", "runs/parts")
        self.assertEqual(self.sha("runs/made"), self.sha("runs/parts"))

    def test_a_table_of_sentences_in_two_commands(self):
        """init FILE, then the config: classes far above the most frequent one; new rows have unknown words, or are empty."""
        random_words = random.Random(1)
        others = [f"word{i}" for i in range(60)]

        def sentence(label):
            words = [random_words.choice(others) for _ in range(random_words.randrange(3, 30))] + [{"yes": "fine", "no": "dull"}[label]]
            random_words.shuffle(words)
            return " ".join(words), label

        self.csv("rev.csv", [(i, *sentence("no" if i % 3 else "yes")) for i in range(600)], ("id", "review", "label"))
        config = self.run_program("init", "rev.csv")[0]
        self.assertRegex(config, r"review: \{type: text, length: (\d|\d\d|1\d\d|2[0-5]\d)\} ")
        self.write("rev.yaml", config)
        self.run_program("rev.yaml")
        self.csv("new.csv", [sentence("no" if i % 2 else "yes") for i in range(200)] + [("such an unseen dull évening", "no")], ("review", "label"))
        self.assertGreater(json.loads(self.run_program("eval", "rev.yaml", "new.csv")[0].splitlines()[-1])["accuracy"], 0.95)
        self.csv("empty.csv", [("fine",), ("",), ("unseen dull dull",)], ("review",))
        self.assertIn("empty.csv:line 3: column 'review'", self.run_program("predict", "rev.yaml", "empty.csv", code=DATA)[1])
        self.assertEqual(self.run_program("predict", "rev.yaml", "empty.csv", "--skip-bad-rows")[0].count("\n"), 4)

    def test_init_with_missing_texts_and_numbers_as_target(self):
        rows = [(f"{'good' if i % 2 else 'bad'} words of number {i}", i % 2 * 1.5 + i % 7 / 100) for i in range(200)] + [("", 0.75)]
        self.csv("rev.csv", rows, ("review", "stars"))
        config = self.run_program("init", "rev.csv")[0]
        self.assertIn('missing: constant, fill: " "}', config)
        self.write("rev.yaml", config)
        self.run_program("rev.yaml", "train.epochs=60")
        self.assertGreater(self.events("epoch", "runs/rev")[-1]["val_r2"], 0.8)
        self.csv("new.csv", [("",), ("good words",)], ("review",))
        self.assertEqual(self.run_program("predict", "rev.yaml", "new.csv")[0].count("\n"), 3)

    def test_init_takes_no_sentences_as_target(self):
        rows = [(i, ("spam", "ham")[i % 2], f"this is the message number {i}") for i in range(60)]
        self.csv("sms.csv", rows, ("v0", "v1", "v2"))
        self.run_program("init", "sms.csv", out="v2: {type: text, length: 8}", err="the target is 'v1', the last column without sentences: 2 classes")
        self.csv("sms.csv", rows, ("v0", "v1", "label"))
        self.assertIn("the target 'label' has too many different texts", self.run_program("init", "sms.csv", code=USAGE)[1])

    def test_init_of_a_text_beside_columns(self):
        self.csv("rev.csv", [(f"this is the review number {i}", i % 7 / 2, "ab"[i % 2]) for i in range(60)], ("review", "price", "label"))
        self.assertIn("ignored: 'review', 60 different texts in 60 rows; as tokens: {type: text}, an input of its own (docs/text.md)",
                      self.run_program("init", "rev.csv")[1])
