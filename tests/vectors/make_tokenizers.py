"""Writes tokenizers.json: small byte-level BPE, WordPiece and Unigram tokenizers, trained here, and the ids and texts of Hugging Face's tokenizers
package for texts of many scripts, spaces, emoji and code, some of them random. Needs also
the packages sentencepiece and protobuf, which make the table of the normalizer Precompiled."""
import io
import json
import os
import random
import tempfile
import unicodedata

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ADDED = [AddedToken("<|im start|>", special=True), AddedToken("<|im", special=True), AddedToken("<mask>", special=True, lstrip=True),
         AddedToken("<r>", special=True, rstrip=True), AddedToken("<b>", lstrip=True, rstrip=True), AddedToken("   "), AddedToken("é€")]
TEXTS = [
    "", " ", "\n", "Hello world! It's they'll WE'VE don'T I'm 'd 'S 'ſ 'Re", "a  b   c    d\n\n\n  e\t\tf \r\n g\u00a0h\u3000i\u2028j\x85k\x0bl",
    "def f(x):\n    if x > 10:\n        return {'a': x**2, \"b\": [1, 22, 333, 4444, 55555]}  # done\n", "x=1234567890; y=٣٤٥٦٧; z=½²³Ⅷ; 12 345,67",
    "你好，世界。 привет мир; مرحبا بالعالم हिन्दी ไทย 日本語テキスト 한국어", "😀😃 👨‍👩‍👧‍👦 🇩🇪 e\u0301 ß Ǆ \U00016130\U0001e5d0 \U0001f9ff",
    "a<|endoftext|>b <|im start|>c<|im d <|im star", "x  <mask> y <r>  z \n<b>\t w   é€  v<b><r><mask>  ", "!!!\n\n???\r\n...\n x", "a" * 300,
    "ab" * 100 + " " * 40 + "\n" * 30, "\u0378\ue000\U0010ffff\u200b\ufeff", "'", "''s", " 's", "s'", "1'll2", "\r\n\r\n a", " \n", "\u3000a",
    "\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165 \u212b \u2126 \u1e9b\u0323", "a\u0302\u0323 a\u0323\u0302 \u0344 q\u0307\u0323", "\n\u0301e\n\u0301\r\u0301 \u0958",
    "e\u0301<|endoftext|>\u0301x e<|endoftext|>\u0301", "e" + "\u0301" * 40 + "\u0323" * 40,
]

UNIGRAM_TEXTS = [
    "\ufb01x \ufb01\u0301 \u2460\u0301a \uff76\uff9e \u212b\x01b\x01 \u200ba\u200b \u2581\u2581a\u2581b <unk><unk>x \u00bd", "\x01a <unk> a", "\x01",
    "``the'' \u0130 a\u0304 THE path", "  ", " \u2581", "the\n", "abeab\u2581eb aaabbb eeab",
]


def random_text(draw):
    pools = [[chr(c) for c in range(32, 127)], [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000"], ["'s", "'LL", "'ſ", "'"],
             ["the", " of", "hello", "123456", "½", "你好", "привет", "😀", "e\u0301", "<mask>", "<|im", "   ", "é€", " <b> "],
             [chr(draw.choice([draw.randint(1, 0x7FF), draw.randint(0x800, 0xD7FF), draw.randint(0x10000, 0x10FFFF)])) for _ in range(20)]]
    return "".join(draw.choice(draw.choice(pools)) for _ in range(draw.randint(1, 60)))


def train(words, added=(), normalizer=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer, tokenizer.decoder = words, decoders.ByteLevel()
    with open(os.path.join(HERE, "../../datasets/tinyshakespeare.txt"), encoding="utf-8") as file:
        lines = file.read()[:100000].split("\n") + TEXTS
    lines += ["a   b\n\n\n    c 12345 ''s !?!?\r\n\t\t d  \n  "] * 300  # merges of spaces, digits and signs, so that wrong words have other tokens
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False,
                                                             special_tokens=["<|endoftext|>"]))
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    return tokenizer


def train_pieces(max_chars, **options):
    """A tokenizer like BERT's."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=max_chars))
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizers.BertNormalizer(**options), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    with open(os.path.join(HERE, "../../datasets/tinyshakespeare.txt"), encoding="utf-8") as file:
        lines = file.read()[:40000].split("\n") + 3 * TEXTS
    tokenizer.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=500, show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    return tokenizer


def charsmap():
    """A small table like that of T5, made by SentencePiece."""
    rules = {"\ufb01": "fi", "\u2460": "1", "\u00bd": "1\u20442", "e\u0301": "\u00e9", "\u212b": "\u00c5", "\uff76": "\u30ab", "\uff76\uff9e": "\u30ac", "\x01": "",
             **{space: " " for space in "\t\n\r\u00a0\u3000\u200b"}, "\r\n": " "}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.writelines("\t".join(" ".join(f"{ord(c):X}" for c in part) for part in rule) + "\n" for rule in rules.items())
        file.flush()
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c"] * 9), model_writer=model, vocab_size=8, hard_vocab_limit=False,
                                                 normalization_rule_tsv=file.name, minloglevel=2)
    return sentencepiece_model_pb2.ModelProto.FromString(model.getvalue()).normalizer_spec.precompiled_charsmap


def train_unigram(steps, words, decoder, added=ADDED[2:4]):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizers.Sequence(steps), words, decoder
    with open(os.path.join(HERE, "../../datasets/tinyshakespeare.txt"), encoding="utf-8") as file:
        lines = file.read()[:40000].split("\n") + 3 * (TEXTS + UNIGRAM_TEXTS)
    tokenizer.train_from_iterator(lines, trainers.UnigramTrainer(vocab_size=500, show_progress=False, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>"))
    tokenizer.add_special_tokens(list(added))
    tokenizer.add_tokens(["\ufb01nd"])  # found in the normalized text
    return tokenizer


def with_bytes(tokenizer):
    """The same with byte_fallback, as of models whose unknown characters are bytes."""
    text = json.loads(tokenizer.to_str())
    text["model"]["byte_fallback"] = True
    text["added_tokens"] = [token for token in text["added_tokens"] if token["id"] < len(text["model"]["vocab"])]
    text["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    return Tokenizer.from_str(json.dumps(text))


def is_newer(c):
    """A character whose category the package does not know, because it has tables of an early Unicode."""
    kind, pieces = unicodedata.category(c), pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{c}a")
    stripped = normalizers.BertNormalizer(clean_text=False, strip_accents=True, lowercase=False).normalize_str(c)
    cleaned = normalizers.BertNormalizer(clean_text=True, strip_accents=False, lowercase=False).normalize_str(c)
    return kind[0] == "P" and len(pieces) < 3 or kind in ("Mn", "Mc") and bool(stripped) != (kind == "Mc") or kind == "Cf" and cleaned == c


def is_unassigned(c):
    """A character without a category here that the package changes, because it has tables of a late Unicode."""
    return unicodedata.category(c) == "Cn" and normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase()]).normalize_str(c) != c


def decode(tokenizer, ids):
    """What this project writes: with WordPiece a blank before each word, without the rules of its decoder for English."""
    if not isinstance(tokenizer.model, models.WordPiece):
        return tokenizer.decode(ids, skip_special_tokens=False)
    tokens = [tokenizer.id_to_token(i) for i in ids]
    return "".join(t if t[0] == "[" and len(t) > 1 else t[2:] if t.startswith("##") and len(t) > 2 else " " + t for t in tokens)


def unigrams():
    """As of T5 in new and old files, and others; scores that are whole numbers make equal sums."""
    metaspace, table = pre_tokenizers.Metaspace, normalizers.Precompiled(charsmap())
    blanks, parts = Regex(" {2,}"), decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    made = {"unigram": train_unigram([normalizers.Strip(left=False), table, normalizers.Replace(blanks, "\u2581")], metaspace(), decoders.Metaspace()),
            "unigram_words": train_unigram([table, normalizers.Replace(blanks, " ")], pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace()]),
                                           decoders.Metaspace()),
            "unigram_first": train_unigram([normalizers.NFKC(), normalizers.Replace(blanks, " ")], metaspace(prepend_scheme="first"),
                                           decoders.Metaspace(prepend_scheme="first")),
            "unigram_bytes": with_bytes(train_unigram([normalizers.Replace("``", '"'), normalizers.Replace("th", "ht"), normalizers.NFKD(), normalizers.Lowercase()],
                                                      metaspace(prepend_scheme="never"), parts))}
    draw, pieces = random.Random(3), {"<unk>": 0.0, "\u2581": -1.0}
    for _ in range(60):
        pieces["".join(draw.choice("abe\u2581") for _ in range(draw.randint(1, 5)))] = -float(draw.randint(0, 4))
    made["unigram_ties"] = Tokenizer(models.Unigram(list(pieces.items()), 0, False))
    made["unigram_ties"].pre_tokenizer, made["unigram_ties"].decoder = metaspace(split=False), decoders.Metaspace()
    return made


def main():
    byte_level = pre_tokenizers.ByteLevel
    split = [pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level(add_prefix_space=False, use_regex=False)])
             for pattern in (LLAMA3, LLAMA3.replace("{1,3}", ""))]
    made = {"gpt2": train(byte_level(add_prefix_space=False)), "prefix": train(byte_level(add_prefix_space=True), ADDED),
            "llama3": train(split[0], ADDED, ignore_merges=True), "qwen2": train(split[1], normalizer=normalizers.NFC()),
            "bert": train_pieces(100, lowercase=True), "bert_cased": train_pieces(12, lowercase=False, handle_chinese_chars=False),
            "bert_accents": train_pieces(100, clean_text=False, lowercase=True, strip_accents=False), **unigrams()}
    draw = random.Random(7)
    texts = TEXTS + [random_text(draw) for _ in range(40)]
    cases = []
    for name, tokenizer in made.items():
        is_unigram = isinstance(tokenizer.model, models.Unigram)
        for text in texts + (UNIGRAM_TEXTS if is_unigram else []):
            if isinstance(tokenizer.model, models.WordPiece) and any(is_newer(c) for c in text) or is_unigram and any(is_unassigned(c) for c in text):
                continue
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            cases.append({"tokenizer": name, "text": text, "ids": ids, "decoded": decode(tokenizer, ids)})
    with open(os.path.join(HERE, "tokenizers.json"), "w", encoding="utf-8") as file:
        texts = ",\n".join(json.dumps(name) + ":" + json.dumps(t.to_str(), separators=(",", ":")) for name, t in made.items())
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        file.write(f'{{"by":"tokenizers {tokenizers.__version__}","tokenizers":{{\n{texts}}},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
