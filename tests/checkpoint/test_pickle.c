/* pickle: the value of each opcode that is read, the sentence for each damage, and no byte read behind the end.
 * tests/program/test_weights.py reads files of torch.save. ctest-labels: unit */
#include "base/text.h"
#include "check_main.h"
#include "checkpoint/pickle.h"
#include "files.h"
#include "guarded.h"

struct bytes {
    const char *data;
    size_t size;
};
#define BYTES(text)                                                                                                    \
    (struct bytes) { text, sizeof(text) - 1 }

static void add_value(const struct pickle_value *value, struct text *out);

static void add_items(const struct pickle_value *value, char first, char last, struct text *out) {
    text_printf(out, "%c", first);
    for (size_t i = 0; i < value->count; i++) {
        if (i) text_add(out, value->kind == PICKLE_DICT && i % 2 ? ": " : ", ");
        add_value(value->items[i], out);
    }
    text_printf(out, "%c", last);
}

static void add_value(const struct pickle_value *value, struct text *out) {
    switch (value->kind) {
    case PICKLE_NONE:
        text_add(out, "None");
        break;
    case PICKLE_NUMBER:
        text_printf(out, "%lld", (long long)value->number);
        break;
    case PICKLE_REAL:
        text_printf(out, "%g", value->real);
        break;
    case PICKLE_OTHER:
        text_add(out, "?");
        break;
    case PICKLE_TEXT:
        text_printf(out, "'%s'", value->text ? value->text : "?");
        break;
    case PICKLE_TUPLE:
        add_items(value, '(', ')', out);
        break;
    case PICKLE_LIST:
        add_items(value, '[', ']', out);
        break;
    case PICKLE_DICT:
        add_items(value, '{', '}', out);
        break;
    case PICKLE_GLOBAL:
        text_printf(out, "<%s>", value->text);
        break;
    case PICKLE_PERSISTENT:
        add_items(value, '@', ';', out);
        break;
    case PICKLE_CALL:
        add_items(value, '!', ';', out);
    }
}

/* Parses a copy of the bytes that ends at an inaccessible page. */
static status parse(const char *bytes, size_t size, struct text *out) {
    struct arena *arena = arena_create();
    const struct pickle_value *value = NULL;
    void *copy = guarded_copy(bytes, size);
    status s = pickle_parse("a.pt", copy, size, arena, &value);
    if (!s) add_value(value, out);
    guarded_free(copy);
    arena_destroy(arena);
    return s;
}

static const struct {
    struct bytes pickle;
    const char *value;
} valid[] = {
    {BYTES("N."), "None"},
    {BYTES("\x80\x02N."), "None"},
    {BYTES("\x80\x04\x95\x02\0\0\0\0\0\0\0\x88."), "1"},
    {BYTES("\x89."), "0"},
    {BYTES("K\xff."), "255"},
    {BYTES("M\xfe\xff."), "65534"},
    {BYTES("J\xff\xff\xff\x7f."), "2147483647"},
    {BYTES("J\xfe\xff\xff\xff."), "-2"},
    {BYTES("\x8a\0."), "0"},
    {BYTES("\x8a\1\x7f."), "127"},
    {BYTES("\x8a\1\x80."), "-128"},
    {BYTES("\x8a\2\0\x80."), "-32768"},
    {BYTES("\x8a\5\0\0\0\0\1."), "4294967296"},
    {BYTES("\x8a\7\xff\xff\xff\xff\xff\xff\xff."), "-1"},
    {BYTES("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."), "9223372036854775807"},
    {BYTES("\x8a\x08\0\0\0\0\0\0\0\x80."), "-9223372036854775808"},
    {BYTES("\x8a\x09\1\1\1\1\1\1\1\1\1."), "1.85191e+19"},
    {BYTES("\x8a\x09\0\0\0\0\0\0\0\0\xff."), "-1.84467e+19"},
    {BYTES("G\xbf\xf8\0\0\0\0\0\0."), "-1.5"},
    {BYTES("\x8c\3abc."), "'abc'"},
    {BYTES("X\2\0\0\0ab."), "'ab'"},
    {BYTES("\x8d\1\0\0\0\0\0\0\0a."), "'a'"},
    {BYTES("\x8c\0."), "''"},
    {BYTES("\x8c\3a\0b."), "?"},
    {BYTES("U\2ab."), "?"},
    {BYTES("C\0."), "?"},
    {BYTES("T\1\0\0\0a."), "?"},
    {BYTES("B\1\0\0\0a."), "?"},
    {BYTES("\x8e\2\0\0\0\0\0\0\0ab."), "?"},
    {BYTES("ctorch\nFloatStorage\n."), "<torch FloatStorage>"},
    {BYTES("\x8c\1m\x8c\1n\x93."), "<m n>"},
    {BYTES(")."), "()"},
    {BYTES("]."), "[]"},
    {BYTES("}."), "{}"},
    {BYTES("K\1\x85."), "(1)"},
    {BYTES("K\1K\2\x86."), "(1, 2)"},
    {BYTES("K\1K\2K\3\x87."), "(1, 2, 3)"},
    {BYTES("K\1K\2K\3K\4\x87."), "(2, 3, 4)"},
    {BYTES("(t."), "()"},
    {BYTES("K\1(K\2K\3t\x86."), "(1, (2, 3))"},
    {BYTES("(K\2(K\3l\x86."), "(2, [3])"},
    {BYTES("(K\1NK\2)d."), "{1: None, 2: ()}"},
    {BYTES("]K\1a."), "[1]"},
    {BYTES("]K\1aK\2a."), "[1, 2]"},
    {BYTES("](K\1K\2e(K\3e."), "[1, 2, 3]"},
    {BYTES("](e."), "[]"},
    {BYTES("}K\1K\2s."), "{1: 2}"},
    {BYTES("}(K\1K\2K\3K\4uK\5K\6s."), "{1: 2, 3: 4, 5: 6}"},
    {BYTES("](K\1K\2K\3K\4K\5K\6K\7K\10K\11e."), "[1, 2, 3, 4, 5, 6, 7, 8, 9]"},
    {BYTES("cm\nf\nK\1\x85R."), "!<m f>, (1);"},
    {BYTES("cm\nf\n)\x81."), "!<m f>, ();"},
    {BYTES("ccollections\nOrderedDict\n)R."), "{}"},
    {BYTES("ccollections\nOrderedDict\nK\1\x85R."), "!<collections OrderedDict>, (1);"},
    {BYTES("ccollections\nOrderedDict\n]R."), "!<collections OrderedDict>, [];"},
    {BYTES("N)R."), "!None, ();"},
    {BYTES("K\7Q."), "@7;"},
    {BYTES("K\1K\2b."), "1"},
    {BYTES("K\1K\0020."), "1"},
    {BYTES("K\1(K\2K\0031."), "1"},
    {BYTES("cm\nf\n)R(K\1K\2u."), "!<m f>, ();"}, /* items of an object */
    {BYTES("C\0K\1a."), "?"},
    {BYTES("K\1q\3K\2q\4h\3\x87."), "(1, 2, 1)"},
    {BYTES("K\1r\3\0\0\0j\3\0\0\0\x86."), "(1, 1)"},
    {BYTES("K\1\x94K\2\x94h\0h\1\x86\x86."), "(2, (1, 2))"},
    {BYTES("K\1q\0K\2q\0h\0\x87."), "(1, 2, 2)"},
    {BYTES("K\1q\4."), "1"}, /* the largest number of a memo */
    {BYTES("NK\1."), "1"},
};

TEST_EACH(values_of_each_opcode, valid) {
    SCOPED_TEXT out = {0};
    ck_ok(parse(valid[_i].pickle.data, valid[_i].pickle.size, &out));
    ck_assert_str_eq(text_string(&out), valid[_i].value);
}

TEST_EACH(pickles_that_end_early, valid) {
    for (size_t size = 0; size < valid[_i].pickle.size; size++) {
        struct text out = {0};
        ck_failure(parse(valid[_i].pickle.data, size, &out), STATUS_DATA, "a.pt: its pickle is damaged (");
    }
}

static const struct {
    struct bytes pickle;
    const char *message;
} invalid[] = {
    {BYTES("."), "a value is missing at byte 1"},
    {BYTES("(."), "a value is missing at byte 2"},
    {BYTES("t."), "a mark is missing at byte 1"},
    {BYTES("K\1t."), "a mark is missing at byte 3"},
    {BYTES("]e."), "a mark is missing"},
    {BYTES("(e."), "a value is missing"},
    {BYTES("\x85."), "a value is missing"},
    {BYTES("K\1\x86."), "a value is missing"},
    {BYTES("(K\1\x86."), "a value is missing"},
    {BYTES("K\1K\2\x87."), "a value is missing"},
    {BYTES("K\1a."), "a value is missing"},
    {BYTES("K\1K\2s."), "a value is missing"},
    {BYTES("K\1K\2a."), "items of no container"},
    {BYTES("}K\1a."), "items of no container"},
    {BYTES("]K\1K\2s."), "items of no container"},
    {BYTES(")K\1a."), "items of no container"},
    {BYTES("}(K\1u."), "items of no container"},
    {BYTES("](K\1K\2u."), "items of no container"},
    {BYTES("}(K\1K\2e."), "items of no container"},
    {BYTES("(K\1d."), "a key has no value"},
    {BYTES("K\1\x8c\1n\x93."), "a name is not a text"},
    {BYTES("\x8c\1nK\1\x93."), "a name is not a text"},
    {BYTES("\x8c\1n\x93."), "a value is missing"},
    {BYTES("\x93."), "a value is missing"},
    {BYTES("h\0."), "a memo is not set"},
    {BYTES("K\1q\2h\1."), "a memo is not set"},
    {BYTES("K\1q\0h\x7f."), "a memo is not set"},
    {BYTES("K\1q\0h\x80."), "a memo is not set"},
    {BYTES("q\0."), "a value is missing"},
    {BYTES("K\1q\5."), "a memo's number is too large"},
    {BYTES("K\1r\xff\xff\xff\xff."), "a memo's number is too large"},
    {BYTES("R."), "a value is missing"},
    {BYTES(")R."), "a value is missing"},
    {BYTES("Q."), "a value is missing"},
    {BYTES("b."), "a value is missing"},
    {BYTES("K\1b."), "a value is missing"},
    {BYTES("0."), "a value is missing"},
    {BYTES("1."), "a mark is missing"},
    {BYTES("K\0011."), "a mark is missing"},
    {BYTES("\x8d\xff\xff\xff\xff\xff\xff\xff\xff\x61."), "it ends early"},
    {BYTES("\x8e\xff\xff\xff\xff\xff\xff\xff\xff\x61."), "it ends early"},
    {BYTES("ctorch."), "it ends early"},
    {BYTES("ctorch\nFloatStorage."), "it ends early"},
    {BYTES("I1\n."), "the opcode 0x49, which a file of tensors does not need"},
};

TEST_EACH(damaged_pickles, invalid) {
    struct text out = {0};
    ck_failure(parse(invalid[_i].pickle.data, invalid[_i].pickle.size, &out), STATUS_DATA, invalid[_i].message);
}

/* K 1, the opcode with number [memo], and in front of the end [get]; the bytes between are PROTO, which does nothing.
 */
static status parse_memo(size_t put, size_t get, struct text *out) {
    char pickle[602];
    for (size_t i = 0; i < sizeof pickle; i++) pickle[i] = i % 2 ? 2 : (char)0x80;
    const char start[] = {'K', 1, 'r', (char)put, (char)(put >> 8), 0, 0, '0'};
    const char end[] = {'j', (char)get, (char)(get >> 8), 0, 0, '.'};
    memcpy(pickle, start, sizeof start);
    memcpy(pickle + sizeof pickle - sizeof end, end, sizeof end);
    return parse(pickle, sizeof pickle, out);
}

TEST(numbers_of_memos) {
    static const size_t puts[] = {0, 63, 64, 65, 127, 128, 129, 300, 601};
    for (size_t i = 0; i < sizeof puts / sizeof *puts; i++) {
        struct text out = {0};
        ck_ok(parse_memo(puts[i], puts[i], &out));
        ck_assert_str_eq(text_string(&out), "1");
        text_free(&out);
        ck_failure(parse_memo(puts[i], puts[i] + 1, &out), STATUS_DATA, "a memo is not set");
        if (puts[i]) ck_failure(parse_memo(puts[i], 2 * puts[i], &out), STATUS_DATA, "a memo is not set");
        ck_failure(parse_memo(puts[i], 60000, &out), STATUS_DATA, "a memo is not set");
    }
}

TEST(sizes) {
    struct text out = {0};
    size_t most = (size_t)8 << 20;
    SCOPED_MEMORY char *pickle = calloc(1, most + 1);
    for (size_t i = 0; i < most; i++) pickle[i] = i % 2 ? 2 : (char)0x80;
    memcpy(pickle + most - 2, "N.", 2);
    ck_ok(parse(pickle, most, &out));
    ck_assert_str_eq(text_string(&out), "None");
    text_free(&out);
    ck_failure(parse(pickle, most + 1, &out), STATUS_DATA,
               "a.pt: its pickle has 8388609 bytes; that of tensors has at most 8388608");
}

TEST(bytes_behind_the_end) {
    SCOPED_TEXT out = {0};
    ck_ok(parse("K\1.I\n", 5, &out));
    ck_assert_str_eq(text_string(&out), "1");
}

CHECK_MAIN("pickle")
