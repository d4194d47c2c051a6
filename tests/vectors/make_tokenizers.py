"""Writes tokenizers.json: small byte-level BPE and WordPiece tokenizers, trained here, and the ids and texts of Hugging Face's tokenizers
package for texts of many scripts, spaces, emoji and code, some of them random."""
import json
import os
import random
import unicodedata

import tokenizers
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


def is_newer(c):
    """A character whose category the package does not know, because it has tables of an early Unicode."""
    kind, pieces = unicodedata.category(c), pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{c}a")
    stripped = normalizers.BertNormalizer(clean_text=False, strip_accents=True, lowercase=False).normalize_str(c)
    cleaned = normalizers.BertNormalizer(clean_text=True, strip_accents=False, lowercase=False).normalize_str(c)
    return kind[0] == "P" and len(pieces) < 3 or kind in ("Mn", "Mc") and bool(stripped) != (kind == "Mc") or kind == "Cf" and cleaned == c


def decode(tokenizer, ids):
    """What this project writes: with WordPiece a blank before each word, without the rules of its decoder for English."""
    if not isinstance(tokenizer.model, models.WordPiece):
        return tokenizer.decode(ids, skip_special_tokens=False)
    tokens = [tokenizer.id_to_token(i) for i in ids]
    return "".join(t if t[0] == "[" and len(t) > 1 else t[2:] if t.startswith("##") and len(t) > 2 else " " + t for t in tokens)


def main():
    byte_level = pre_tokenizers.ByteLevel
    split = [pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level(add_prefix_space=False, use_regex=False)])
             for pattern in (LLAMA3, LLAMA3.replace("{1,3}", ""))]
    made = {"gpt2": train(byte_level(add_prefix_space=False)), "prefix": train(byte_level(add_prefix_space=True), ADDED),
            "llama3": train(split[0], ADDED, ignore_merges=True), "qwen2": train(split[1], normalizer=normalizers.NFC()),
            "bert": train_pieces(100, lowercase=True), "bert_cased": train_pieces(12, lowercase=False, handle_chinese_chars=False),
            "bert_accents": train_pieces(100, clean_text=False, lowercase=True, strip_accents=False)}
    draw = random.Random(7)
    texts = TEXTS + [random_text(draw) for _ in range(40)]
    cases = []
    for name, tokenizer in made.items():
        for text in texts:
            if isinstance(tokenizer.model, models.WordPiece) and any(is_newer(c) for c in text):
                continue
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            cases.append({"tokenizer": name, "text": text, "ids": ids, "decoded": decode(tokenizer, ids)})
    with open(os.path.join(HERE, "tokenizers.json"), "w", encoding="utf-8") as file:
        texts = ",\n".join(json.dumps(name) + ":" + json.dumps(t.to_str(), separators=(",", ":")) for name, t in made.items())
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        file.write(f'{{"by":"tokenizers {tokenizers.__version__}","tokenizers":{{\n{texts}}},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
