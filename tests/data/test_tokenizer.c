/* Tokenizers: ids and texts of Hugging Face's tokenizers package, refused files, texts as datasets. ctest-labels: unit
 */
#include "data/text/tokenizer.h"

#include "base/utf8.h"
#include "data/text/vocabulary.h"
#include "open.h"

static struct tokenizer *parse(const char *json) {
    struct tokenizer *tokenizer;
    ck_ok(tokenizer_parse("t.json", json, strlen(json), &tokenizer));
    return tokenizer;
}

static void check_case(const struct tokenizer *tokenizer, const json_t *expected) {
    const char *text = json_string_value(json_object_get(expected, "text"));
    const json_t *ids = json_object_get(expected, "ids");
    struct token_list list = {0};
    SCOPED_TEXT bytes = {0}, decoded = {0};
    ck_ok(tokenizer_encode(tokenizer, text, strlen(text), &list));
    ck_assert_msg(list.count == json_array_size(ids), "'%s': %zu tokens", text, list.count);
    for (size_t i = 0; i < list.count; i++)
        ck_assert_msg(list.ids[i] == json_integer_value(json_array_get(ids, i)), "'%s': token %zu", text, i);
    tokenizer_decode(tokenizer, list.ids, list.count, true, &bytes);
    ck_assert_uint_eq(utf8_repair(text_string(&bytes), bytes.length, true, &decoded), bytes.length);
    ck_assert_str_eq(text_string(&decoded), json_string_value(json_object_get(expected, "decoded")));
    free(list.ids);
}

TEST(ids_are_those_of_the_package) {
    json_t *vectors = vectors_load("tokenizers"), *json;
    const char *name;
    json_object_foreach(json_object_get(vectors, "tokenizers"), name, json) {
        struct tokenizer *tokenizer = parse(json_string_value(json));
        const json_t *expected;
        size_t i, checked = 0;
        json_array_foreach(json_object_get(vectors, "cases"), i, expected) {
            if (strcmp(json_string_value(json_object_get(expected, "tokenizer")), name) != 0) continue;
            check_case(tokenizer, expected);
            checked++;
        }
        ck_assert_uint_gt(checked, 50);
        tokenizer_destroy(tokenizer);
    }
    json_decref(vectors);
}

/* All code points: the sums are those of Unicode 16.0.0. */
TEST(classes_of_characters) {
    size_t counts[4] = {0};
    for (uint32_t code = 0; code < UTF8_CODES; code++) counts[unicode_class(code)]++;
    ck_assert_uint_eq(counts[UNICODE_LETTER], 141028);
    ck_assert_uint_eq(counts[UNICODE_NUMBER], 1911);
    ck_assert_uint_eq(counts[UNICODE_SPACE], 25);
    ck_assert_int_eq(unicode_class('_'), UNICODE_OTHER);
    ck_assert_int_eq(unicode_class(0x323af), UNICODE_LETTER);
    ck_assert_int_eq(unicode_class(0x2160), UNICODE_NUMBER);
}

#define BYTES "\"a\": 0, \"b\": 1, \"c\": 2, \"Ġ\": 3, \"ab\": 4, \"abc\": 5, \"é\": 6, \"bc\": 7"
#define MODEL(more)                                                                                                    \
    "\"model\": {\"type\": \"BPE\", \"vocab\": {" BYTES "}, \"merges\": [\"a b\", [\"ab\", \"c\"], \"b c\"]" more "}"
#define WORDS "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}"

static void check_ids(const struct tokenizer *tokenizer, const char *text, const char *expected) {
    struct token_list list = {0};
    SCOPED_TEXT ids = {0};
    ck_ok(tokenizer_encode(tokenizer, text, strlen(text), &list));
    for (size_t i = 0; i < list.count; i++) text_printf(&ids, "%s%d", i ? " " : "", (int)list.ids[i]);
    ck_assert_str_eq(text_string(&ids), expected);
    free(list.ids);
}

TEST(merges_by_rank) {
    struct tokenizer *tokenizer = parse("{" MODEL("") ", " WORDS "}");
    ck_assert_uint_eq(tokenizer_size(tokenizer), 8);
    check_ids(tokenizer, "abc bc aabb", "5 3 7 3 0 4 1");
    struct token_list list = {0};
    ck_failure(tokenizer_encode(tokenizer, "abd", 3, &list), STATUS_DATA,
               "the tokenizer has no token for the byte 0x64");
    free(list.ids);
    tokenizer_destroy(tokenizer);

    tokenizer = parse("{" MODEL(", \"unk_token\": \"c\", \"fuse_unk\": false") ", " WORDS "}");
    check_ids(tokenizer, "abdd", "5 2"); /* d is c, which is merged */
    tokenizer_destroy(tokenizer);
}

/* n log n steps: a word of 300,000 bytes takes less than a second, also with sanitizers. */
TEST(long_words) {
    struct tokenizer *tokenizer = parse("{" MODEL("") ", " WORDS "}");
    size_t size = 300000;
    char *word = malloc(size);
    struct token_list list = {0};
    ck_assert_ptr_nonnull(word);
    for (size_t i = 0; i < size; i++) word[i] = "ab"[i % 2];
    ck_ok(tokenizer_encode(tokenizer, word, size, &list));
    ck_assert_uint_eq(list.count, size / 2);
    for (size_t i = 0; i < list.count; i++) ck_assert_int_eq(list.ids[i], 4);
    free(list.ids);
    free(word);
    tokenizer_destroy(tokenizer);
}

#define BERT "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}"
#define PIECES "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}, \"unk_token\": \"a\"}, " BERT
#define SPLIT "\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}"

#define UNIGRAM(pieces, more) "{\"model\": {\"type\": \"Unigram\", \"vocab\": [" pieces "]" more "}"
#define UNIGRAM_WITH(part) UNIGRAM("[\"a\", 0]", "") ", " part "}"
#define TABLE(base64)                                                                                                  \
    UNIGRAM_WITH("\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"" base64 "\"}")

/* The best sum; the longer last piece of equal sums; unknown characters; the last of equal pieces. */
TEST(unigram_pieces) {
    struct tokenizer *tokenizer = parse(UNIGRAM("[\"?\", 0], [\"a\", -1], [\"b\", -1], [\"ab\", -2], [\"ba\", -2], "
                                                "[\"bab\", -2.5], [\"a\", -1]",
                                                ", \"unk_id\": 0") "}");
    check_ids(tokenizer, "ab", "3");
    check_ids(tokenizer, "aba", "6 4");
    check_ids(tokenizer, "baba", "5 6");
    check_ids(tokenizer, "xyaé", "0 6 0");
    check_ids(tokenizer, "?", "0");
    tokenizer_destroy(tokenizer);

    struct token_list list = {0};
    tokenizer = parse(UNIGRAM("[\"a\", -1], [\"ab\", -1]", "") "}");
    check_ids(tokenizer, "aab", "0 1");
    ck_failure(tokenizer_encode(tokenizer, "aé", 3, &list), STATUS_DATA,
               "the tokenizer has neither a token for the character U+00E9 nor an unknown token (model.unk_id)");
    free(list.ids);
    tokenizer_destroy(tokenizer);
}

/* Linear: a word of a million bytes takes less than a second, also with sanitizers. */
TEST(long_unigram_words) {
    struct tokenizer *tokenizer = parse(UNIGRAM("[\"?\", 0], [\"aaaa\", -1], [\"a\", -1]", ", \"unk_id\": 0") "}");
    size_t size = 1000000;
    char *word = malloc(size);
    struct token_list list = {0};
    ck_assert_ptr_nonnull(word);
    memset(word, 'a', size);
    ck_ok(tokenizer_encode(tokenizer, word, size, &list));
    ck_assert_uint_eq(list.count, size / 4);
    free(list.ids);
    free(word);
    tokenizer_destroy(tokenizer);
}

TEST(huge_unigram_pieces) {
    SCOPED_TEXT json = {0};
    struct tokenizer *tokenizer;
    text_add(&json, "{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"");
    for (size_t i = 0; i < 1025; i++) text_add(&json, "a");
    text_add(&json, "\", 0]]}}");
    ck_failure(tokenizer_parse("t.json", text_string(&json), json.length, &tokenizer), STATUS_DATA,
               "t.json: model.vocab: the piece 0 has 1025 bytes; at most 1024 are supported");
}

/* Tables whose numbers point outside leave the text as it is. */
TEST(damaged_tables_of_characters) {
    static const char *const tables[] = {
        TABLE("BAAAAP////8="), /* the first offset is beyond the trie */
        TABLE("BAAAAAAAAAA="), /* no child */
        "{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 0]]}}",
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        struct tokenizer *tokenizer = parse(tables[i]);
        check_ids(tokenizer, "aa", "0 0");
        tokenizer_destroy(tokenizer);
    }
}

/* The words of a text in their order, line ends, other words; what is decoded. */
TEST(words_of_a_text) {
    static const char text[] = "a b,\n<eos>  \tb,\u00a0\u00e9\n", other[] = " b, x\n\na\na";
    static const int32_t ids[] = {0, 1, 2, 2, 1, 3, 2}, other_ids[] = {1, 4, 2, 2, 0, 2, 0};
    struct text json = {0}, decoded = {0};
    struct token_list list = {0};
    ck_ok(tokenizer_write_words(text, strlen(text), &json));
    ck_assert_ptr_nonnull(
        strstr(text_string(&json), "\"vocab\":{\"a\":0,\"b,\":1,\"<eos>\":2,\"\u00e9\":3,\"<unk>\":4}"));
    struct tokenizer *tokenizer = parse(text_string(&json));
    ck_assert_uint_eq(tokenizer_size(tokenizer), 5);
    ck_ok(tokenizer_encode(tokenizer, text, strlen(text), &list));
    ck_assert_uint_eq(list.count, 7);
    ck_assert_mem_eq(list.ids, ids, sizeof ids);
    list.count = 0;
    ck_ok(tokenizer_encode(tokenizer, other, strlen(other), &list));
    ck_assert_uint_eq(list.count, 7);
    ck_assert_mem_eq(list.ids, other_ids, sizeof other_ids);
    tokenizer_decode(tokenizer, list.ids, list.count, true, &decoded);
    ck_assert_str_eq(text_string(&decoded), " b, <unk>\n\n a\n a");
    list.count = 0;
    ck_ok(tokenizer_encode(tokenizer, " \t", 2, &list));
    ck_assert_uint_eq(list.count, 0);
    free(list.ids);
    text_free(&json);
    text_free(&decoded);
    tokenizer_destroy(tokenizer);
}

static const struct {
    const char *json, *message;
} refused[] = {
    {"{", "t.json:1:1: this is not JSON: string or '}' expected near end of file"},
    {"[]", "t.json: it has no model; is this a tokenizer.json of Hugging Face?"},
    {"{\"model\": {\"type\": \"Char\"}}",
     "t.json: the model 'Char' is not supported; byte-level BPE (as of GPT-2 and Llama 3), WordPiece (as of BERT), "
     "Unigram (as of T5) and WordLevel are"},
    {"{\"model\": {\"type\": \"WordPiece\"}, " WORDS "}",
     "t.json: pre_tokenizer of a WordPiece model must be BertPreTokenizer; others are not supported"},
    {PIECES ", \"normalizer\": {\"type\": \"NFC\"}}",
     "t.json: the normalizer of a WordPiece model must be null or BertNormalizer; others are not supported"},
    {PIECES ", \"decoder\": {\"type\": \"ByteLevel\"}}",
     "t.json: the decoder of a WordPiece model must be WordPiece; others are not supported"},
    {PIECES ", \"added_tokens\": [{\"id\": 3, \"content\": \"x\"}]}",
     "t.json: added token 1: normalized is not supported with a WordPiece model"},
    {"{\"model\": {\"type\": \"WordPiece\", \"max_input_chars_per_word\": 0}, " BERT "}",
     "t.json: model.max_input_chars_per_word is not a number from 1 to 10000"},
    {"{" MODEL(", \"byte_fallback\": true") ", " WORDS "}", "t.json: model.byte_fallback is not supported"},
    {"{" MODEL(", \"dropout\": 0.1") ", " WORDS "}", "t.json: model.dropout makes tokens random"},
    {"{" MODEL(", \"end_of_word_suffix\": \"</w>\"") ", " WORDS "}",
     "t.json: model.end_of_word_suffix is not supported"},
    {"{" MODEL(", \"unk_token\": \"?\"") ", " WORDS "}", "t.json: model.unk_token is not in the vocabulary"},
    {"{" MODEL(", \"unk_token\": \"a\", \"fuse_unk\": true") ", " WORDS "}", "t.json: model.fuse_unk is not supported"},
    {"{" MODEL("") "}", "t.json: pre_tokenizer must be ByteLevel, or a Sequence of Split"},
    {"{" MODEL("") ", \"pre_tokenizer\": {\"type\": \"Whitespace\"}}", "t.json: pre_tokenizer must be ByteLevel"},
    {"{" MODEL("") ", \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"use_regex\": false}}",
     "t.json: pre_tokenizer: ByteLevel without use_regex is not supported"},
    {"{" MODEL("") ", \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}]}}",
     "t.json: pre_tokenizer must be ByteLevel"},
    {"{" MODEL(
         "") ", \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
             "{\"Regex\": \"x\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", \"use_regex\": false, "
             "\"add_prefix_space\": false}]}}",
     "t.json: pre_tokenizer: the regular expression of Split is not supported; those of GPT-2, Llama 3 and Qwen 2 are"},
    {"{" MODEL("") ", " WORDS ", \"normalizer\": {\"type\": \"NFKC\"}}",
     "t.json: the normalizer 'NFKC' is not supported; it must be null or NFC"},
    {"{" MODEL("") ", " WORDS ", \"normalizer\": {\"type\": \"NFC\"}, \"added_tokens\": [{\"id\": 9000, \"content\": "
                   "\"\u00e9\", \"normalized\": true}]}",
     "t.json: added token '\u00e9': normalized by NFC and not ASCII, which is not supported"},
    {"{" MODEL("") ", " WORDS ", \"decoder\": {\"type\": \"Metaspace\"}}",
     "t.json: the decoder is not supported; it must be ByteLevel"},
    {"{\"model\": {\"vocab\": {\"a\": 1048576}, \"merges\": []}, " WORDS "}",
     "t.json: the id of the token 'a' is not a number from 0 to 1048575"},
    {"{\"model\": {\"vocab\": {\"a\": -1}, \"merges\": []}, " WORDS "}", "t.json: the id of the token 'a' is not"},
    {"{\"model\": {\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}, " WORDS "}",
     "t.json: the tokens 'b' and another have the id 0"},
    {"{\"model\": {\"vocab\": {\"\": 0}, \"merges\": []}, " WORDS "}", "t.json: the token 0 has no characters"},
    {"{\"model\": {\"vocab\": {}, \"merges\": []}, " WORDS "}", "t.json: the vocabulary is empty"},
    {"{\"model\": {\"vocab\": [], \"merges\": []}, " WORDS "}", "t.json: model.vocab is not an object"},
    {"{\"model\": {\"vocab\": {" BYTES "}}, " WORDS "}", "t.json: model.merges is not a list"},
    {"{\"model\": {\"vocab\": {" BYTES "}, \"merges\": [\"a\"]}, " WORDS "}", "t.json: merge 1 is not two tokens"},
    {"{\"model\": {\"vocab\": {" BYTES "}, \"merges\": [\"a b c\"]}, " WORDS "}", "t.json: merge 1 is not two tokens"},
    {"{\"model\": {\"vocab\": {" BYTES "}, \"merges\": [[\"a\", 1]]}, " WORDS "}", "t.json: merge 1 is not two tokens"},
    {"{\"model\": {\"vocab\": {" BYTES "}, \"merges\": [\"a b\", \"a x\"]}, " WORDS "}",
     "t.json: merge 2: 'x' is not in the vocabulary"},
    {"{\"model\": {\"vocab\": {" BYTES "}, \"merges\": [\"a c\"]}, " WORDS "}",
     "t.json: merge 1: its result is not in the vocabulary"},
    {"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, \"unk_token\": \"a\"}, " WORDS "}",
     "t.json: pre_tokenizer of a WordLevel model must be WhitespaceSplit; others are not supported"},
    {"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}}, " SPLIT "}", "t.json: model.unk_token is missing"},
    {"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, \"unk_token\": \"a\"}, " SPLIT
     ", \"normalizer\": {\"type\": \"Lowercase\"}}",
     "t.json: the normalizer of a WordLevel model must be null or Replace of a text; others are not supported"},
    {"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, \"unk_token\": \"a\"}, " SPLIT
     ", \"decoder\": {\"type\": \"ByteLevel\"}}",
     "t.json: the decoder of a WordLevel model must be null; others are not supported"},
    {"{\"model\": {\"type\": \"Unigram\"}}",
     "t.json: model.vocab of a Unigram model is not a list of pieces and scores"},
    {UNIGRAM("", "") "}", "t.json: the vocabulary is empty"},
    {UNIGRAM("[\"a\", 0]", ", \"unk_id\": 1") "}", "t.json: model.unk_id is not the number of a piece, 0 to 0"},
    {UNIGRAM("[\"a\", 0]", ", \"unk_id\": \"a\"") "}", "t.json: model.unk_id is not the number of a piece, 0 to 0"},
    {UNIGRAM("[\"a\", NaN]", "") "}", "t.json:1:49: this is not JSON: invalid token near 'NaN'"},
    {UNIGRAM("[\"a\", 1e999]", "") "}", "t.json:1:51: this is not JSON: real number overflow near '1e999'"},
    {UNIGRAM("[\"a\", 0], [\"b\", null]", "") "}",
     "t.json: model.vocab: item 1 is not a piece and its score, a finite number"},
    {UNIGRAM("\"a\"", "") "}", "t.json: model.vocab: item 0 is not a piece and its score, a finite number"},
    {UNIGRAM("[\"\", 0]", "") "}", "t.json: the token 0 has no characters"},
    {UNIGRAM("[\"a\", 0]", ", \"alpha\": 0.1") "}", "t.json: model.alpha makes tokens random, which is not supported"},
    {UNIGRAM_WITH("\"pre_tokenizer\": {\"type\": \"Whitespace\"}"),
     "t.json: pre_tokenizer of a Unigram model must be null, Metaspace or a Sequence of WhitespaceSplit and Metaspace"},
    {UNIGRAM_WITH("\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"ab\"}"),
     "t.json: pre_tokenizer: the replacement of Metaspace is not one character other than white space"},
    {UNIGRAM_WITH("\"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"last\"}"),
     "t.json: decoder: the prepend_scheme 'last' of Metaspace is not always, first or never"},
    {UNIGRAM_WITH("\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
                  "{\"String\": \"_\"}, "
                  "\"content\": \" \"}, {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}"),
     "t.json: the decoder of a Unigram model must be null, Metaspace or a Sequence of one Metaspace or Replace by a"},
    {UNIGRAM_WITH("\"decoder\": {\"type\": \"ByteLevel\"}"),
     "t.json: the decoder of a Unigram model must be null, Metaspace"},
    {UNIGRAM_WITH(
         "\"normalizer\": {\"type\": \"Strip\"}, \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": "
         "\"_\", \"prepend_scheme\": \"first\"}"),
     "t.json: pre_tokenizer: the prepend_scheme first is not supported with WhitespaceSplit, or with a normalizer "
     "that"},
    {UNIGRAM_WITH("\"normalizer\": {\"type\": \"Nmt\"}"),
     "t.json: the normalizer 'Nmt' is not supported with this model; Precompiled, NFC"},
    {UNIGRAM_WITH("\"normalizer\": {\"type\": \"Sequence\"}"), "t.json: normalizer: Sequence has no list normalizers"},
    {UNIGRAM_WITH("\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"x+\"}, \"content\": \"\"}"),
     "t.json: normalizer: Replace is supported for a text and for the regular expression ' {2,}' only"},
    {UNIGRAM_WITH("\"normalizer\": {\"type\": \"Precompiled\"}"),
     "t.json: normalizer: Precompiled has no precompiled_charsmap"},
    {TABLE("A-=="), "t.json: normalizer: precompiled_charsmap is not base64"},
    {TABLE("AAA"), "t.json: normalizer: precompiled_charsmap is not base64"},
    {TABLE("AAA="), "t.json: normalizer: precompiled_charsmap has 2 bytes; it begins with a size of 4"},
    {TABLE("AAAAAA=="),
     "t.json: normalizer: precompiled_charsmap is truncated: a trie of 0 numbers, but 0 bytes follow"},
    {TABLE("CAAAAAAAAAA="),
     "t.json: normalizer: precompiled_charsmap is truncated: a trie of 2 numbers, but 4 bytes follow"},
    {TABLE("BAAAAAAAAAD/"), "t.json: normalizer: the strings of precompiled_charsmap are not valid UTF-8"},
    {"{" MODEL("") ", " WORDS ", \"added_tokens\": {}}", "t.json: added_tokens is not a list"},
    {"{" MODEL("") ", " WORDS ", \"added_tokens\": [{\"id\": 9}]}", "t.json: added token 1 has no content"},
    {"{" MODEL("") ", " WORDS ", \"added_tokens\": [{\"id\": 1, \"content\": \"x\"}]}",
     "t.json: added token 'x' has the id 1, but the vocabulary has another token of this id"},
    {"{" MODEL("") ", " WORDS ", \"added_tokens\": [{\"id\": 9, \"content\": \"x\", \"single_word\": true}]}",
     "t.json: added token 'x': single_word is not supported"},
};

TEST(refuses_what_is_not_supported) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct tokenizer *tokenizer;
        status s = tokenizer_parse("t.json", refused[i].json, strlen(refused[i].json), &tokenizer);
        ck_assert_msg(s && !tokenizer, "accepted: %s", refused[i].json);
        ck_failure(s, STATUS_DATA, refused[i].message);
    }
}

/* The texts of Python's bytes.decode(errors="replace"). */
TEST(repairs_utf8) {
    static const struct {
        const char *bytes, *text;
        size_t left; /* bytes that may be the start of a character */
    } cases[] = {
        {"a\xc3\xa9", "aé", 0},          {"\xff", "\ufffd", 0},
        {"\xe2\x82", "\ufffd", 2},       {"\xe2\x82x", "\ufffdx", 0},
        {"\xc3", "\ufffd", 1},           {"\xf0\x9f\x98", "\ufffd", 3},
        {"\xf0\x9f\x98\x80", "😀", 0},    {"\xed\xa0\x80", "\ufffd\ufffd\ufffd", 0},
        {"\xc0\xaf", "\ufffd\ufffd", 0}, {"\xf4\x90", "\ufffd\ufffd", 0},
        {"\x80\x80", "\ufffd\ufffd", 0}, {"\xe2\xe2\x82", "\ufffd\ufffd", 2},
        {"\xf5", "\ufffd", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SCOPED_TEXT whole = {0}, part = {0};
        size_t size = strlen(cases[i].bytes);
        ck_assert_uint_eq(utf8_repair(cases[i].bytes, size, true, &whole), size);
        ck_assert_str_eq(text_string(&whole), cases[i].text);
        ck_assert_msg(utf8_repair(cases[i].bytes, size, false, &part) == size - cases[i].left, "case %zu", i);
    }
}

static void check_row(struct dataset *dataset, int64_t position, size_t size, const int32_t *inputs, int64_t last) {
    int32_t x[4];
    int64_t y[4];
    ck_ok(dataset_read(dataset, DATASET_TRAIN, &position, 1, x, y));
    ck_assert_mem_eq(x, inputs, size * sizeof *x);
    ck_assert_int_eq(y[size - 1], last);
}

TEST(texts_and_ids_with_a_tokenizer) {
    char *folder = make_folder(), *text = path_in(folder, "t.txt"), *ids = path_in(folder, "t.bin");
    SCOPED_MEMORY char *json = path_in(folder, "t.json"), *other = path_in(folder, "v.txt");
    const char *tokenizer = "{" MODEL("") ", " WORDS "}";
    struct dataset *dataset;
    spill(text, "abc bc aabb", 11);
    spill(other, "bc bc bc", 8);
    spill(ids, (uint16_t[]){5, 3, 7, 3, 0, 4, 1}, 14);
    spill(json, tokenizer, strlen(tokenizer));
    const char *paths[] = {text, ids};
    for (size_t i = 0; i < 2; i++) {
        ck_ok(
            open_yaml(&dataset, true, "{path: %s, tokens: {tokenizer: %s, block_size: 2, stride: 1}}", paths[i], json));
        ck_assert_int_eq(dataset_info(dataset)->vocabulary, 8);
        ck_assert_int_eq(dataset_info(dataset)->classes, 8);
        ck_assert_uint_eq(dataset_info(dataset)->train_rows, 5);
        ck_assert_str_eq(dataset_tokenizer(dataset), tokenizer);
        ck_assert_ptr_null(dataset_vocabulary(dataset));
        check_row(dataset, 0, 2, (int32_t[]){5, 3}, 7);
        check_row(dataset, 4, 2, (int32_t[]){0, 4}, 1);
        dataset_close(dataset);
        ck_ok(open_yaml(&dataset, true, "{path: %s, tokens: {tokenizer: %s, block_size: 3, vocabulary: 64}}", paths[i],
                        json));
        ck_assert_int_eq(dataset_info(dataset)->vocabulary, 64);
        ck_assert_uint_eq(dataset_info(dataset)->train_rows, 2);
        dataset_close(dataset);
        ck_failure(open_yaml(&dataset, true, "{path: %s, tokens: {tokenizer: %s, block_size: 3, vocabulary: 7}}",
                             paths[i], json),
                   STATUS_USAGE, "dataset.tokens.vocabulary is 7, but the tokenizer has 8 tokens");
    }
    ck_ok(open_yaml(&dataset, true, "{path: %s, validation: %s, tokens: {tokenizer: %s, block_size: 2}}", text, other,
                    json));
    ck_assert_uint_eq(dataset_info(dataset)->validation_rows, 2);
    dataset_close(dataset);

    ck_failure(open_yaml(&dataset, true, "{path: %s, text: {block_size: 8}, tokens: {tokenizer: %s}}", text, json),
               STATUS_USAGE, "with tokens.tokenizer give block_size and stride in tokens");
    ck_failure(open_yaml(&dataset, true, "{path: x.csv, tokens: {tokenizer: %s}}", json), STATUS_USAGE,
               "tokens.tokenizer needs a text or tokens, not format csv");
    ck_failure(open_yaml(&dataset, true, "{path: %s, tokens: {tokenizer: %s/none.json}}", text, folder), STATUS_DATA,
               "(dataset.tokens.tokenizer): No such file or directory");
    ck_failure(open_yaml(&dataset, true, "{path: %s, tokens: {tokenizer: %s}}", text, folder), STATUS_DATA,
               "(dataset.tokens.tokenizer): it is not a regular file");
    spill(other, "ab\nab\xff", 6);
    ck_failure(open_yaml(&dataset, true, "{path: %s, tokens: {tokenizer: %s}}", other, json), STATUS_DATA,
               "v.txt: line 2: byte 6 of the file is not valid UTF-8");
    spill(other, "ab\0b", 4);
    ck_failure(open_yaml(&dataset, true, "{path: %s, tokens: {tokenizer: %s}}", other, json), STATUS_DATA,
               "v.txt: line 1: byte 3 of the file is 0");
    spill(other, "abd", 3);
    ck_failure(open_yaml(&dataset, true, "{path: %s, tokens: {tokenizer: %s}}", other, json), STATUS_DATA,
               "v.txt: the tokenizer has no token for the byte 0x64");
    remove_folder(folder);
    free(text), free(ids);
}

/* A checkpoint's data/tokenizer. */
TEST(vocabularies_of_tokenizers) {
    struct vocabulary *vocabulary;
    int32_t *ids;
    size_t count;
    SCOPED_TEXT text = {0};
    ck_ok(vocabulary_create_tokenizer("{" MODEL("") ", " WORDS "}", &vocabulary));
    ck_assert(!vocabulary_has_characters(vocabulary));
    ck_assert_uint_eq(vocabulary_size(vocabulary), 8);
    ck_ok(vocabulary_encode(vocabulary, "abc bc", &ids, &count));
    ck_assert_uint_eq(count, 3);
    vocabulary_decode(vocabulary, ids, count, &text);
    ck_assert_str_eq(text_string(&text), "abc bc");
    free(ids);
    ck_failure(vocabulary_encode(vocabulary, "ab\xff", &ids, &count), STATUS_USAGE,
               "byte 3 of the text is not valid UTF-8");
    ck_assert_ptr_null(ids);
    vocabulary_destroy(vocabulary);
    ck_failure(vocabulary_create_tokenizer("{}", &vocabulary), STATUS_DATA, "the model's tokenizer: it has no model");
}

CHECK_MAIN("tokenizer")
