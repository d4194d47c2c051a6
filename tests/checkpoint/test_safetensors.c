/* safetensors: numbers of every type, and files whose bytes end at an inaccessible page: each header is accepted, or
 * rejected with its sentence. tests/program/test_weights.py loads whole models. ctest-labels: unit */
#include <math.h>

#include "base/bits.h"
#include "check_main.h"
#include "checkpoint/loading.h"
#include "files.h"
#include "guarded.h"

/* A file of [header] and [data] (size) in guarded memory, *bytes long. */
static void *file_of(const char *header, const void *data, size_t size, size_t *bytes) {
    uint64_t length = strlen(header);
    *bytes = sizeof length + length + size;
    char *file = guarded_malloc(*bytes);
    memcpy(file, &length, sizeof length);
    memcpy(file + sizeof length, header, length);
    if (size) memcpy(file + sizeof length + length, data, size);
    return file;
}

static const struct {
    const char *dtype;
    size_t size;
    unsigned char bytes[24];
    float values[3];
} numbers[] = {
    {"F32", 4, {0, 0, 0x80, 0x3f, 0xff, 0xff, 0x7f, 0xff, 1, 0, 0, 0}, {1, -0x1.fffffep127f, 0x1p-149f}},
    {"F64",
     8,
     {0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0x10, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0x30, 0, 0, 0xf0, 0x3f},
     {1, 1, 0x1.000004p0f}}, /* ties to even */
    {"F16", 2, {0, 0x3c, 1, 0, 0xff, 0xfb}, {1, 0x1p-24f, -65504}},
    {"BF16", 2, {0x80, 0x3f, 1, 0, 0x7f, 0xff}, {1, 0x1p-133f, -0x1.fep127f}},
};

TEST_EACH(numbers_of_every_type, numbers) {
    for (size_t count = 0; count <= 3; count++) {
        char header[256];
        snprintf(header, sizeof header, "{\"w\": {\"dtype\": \"%s\", \"shape\": [%zu], \"data_offsets\": [0, %zu]}}",
                 numbers[_i].dtype, count, count * numbers[_i].size);
        size_t bytes;
        struct safetensors file;
        struct safetensors_entry entry;
        void *memory = file_of(header, numbers[_i].bytes, count * numbers[_i].size, &bytes);
        ck_ok(safetensors_parse("w.safetensors", memory, bytes, &file));
        ck_ok(safetensors_entry(&file, "w", json_object_get(file.header, "w"), &entry));
        ck_assert_uint_eq(entry.count, count);
        ck_assert_int_eq(entry.dims, 1);
        ck_assert_str_eq(entry.dtype->name, numbers[_i].dtype);
        float *values = guarded_malloc(count * sizeof *values);
        entry.dtype->convert(file.data + entry.offset, values, count);
        ck_assert(count == 0 || memcmp(values, numbers[_i].values, count * sizeof *values) == 0);
        guarded_free(values);
        safetensors_close(&file);
        guarded_free(memory);
    }
}

/* float16 and bfloat16 of all bits against their definitions. */
TEST(every_16_bits) {
    static const char *const types[] = {"F16", "BF16"};
    for (uint32_t bits = 0; bits < 2 << 16; bits++) {
        unsigned char half[2] = {bits & 0xff, bits >> 8 & 0xff};
        bool is_bf16 = bits >> 16;
        int fraction_bits = is_bf16 ? 7 : 10, bias = is_bf16 ? 127 : 15, top = is_bf16 ? 0xff : 0x1f;
        int exponent = (int)(bits & 0x7fff) >> fraction_bits, fraction = (int)bits & ((1 << fraction_bits) - 1);
        double one = 1 << fraction_bits;
        double value = exponent == top ? (fraction ? NAN : INFINITY)
                       : exponent      ? ldexp(1 + fraction / one, exponent - bias)
                                       : ldexp(fraction / one, 1 - bias);
        if (bits & 0x8000) value = -value;
        static struct safetensors_entry entry[2];
        if (!entry[is_bf16].dtype) {
            json_t *json = json_pack("{s:s, s:[], s:[i,i]}", "dtype", types[is_bf16], "shape", "data_offsets", 0, 2);
            ck_ok(safetensors_entry(&(struct safetensors){.path = "w", .data_size = 2}, "w", json, &entry[is_bf16]));
            json_decref(json);
        }
        float got;
        entry[is_bf16].dtype->convert(half, &got, 1);
        bool is_same = isnan(value) ? isnan(got) : (double)got == value && !signbit(got) == !signbit(value);
        if (!is_same) ck_abort_msg("%s %04x is %g, not %g", types[is_bf16], bits & 0xffff, (double)got, value);
    }
}

#define TENSOR(name, dtype, shape, offsets)                                                                            \
    "\"" name "\": {\"dtype\": \"" dtype "\", \"shape\": " shape ", \"data_offsets\": " offsets "}"

static const struct {
    const char *header;
    size_t size;
    const char *sentence; /* NULL: accepted */
} headers[] = {
    {"{}", 0, NULL},
    {"{}", 1, "there are 1 unused bytes after the last tensor"},
    {"{\"__metadata__\": {\"format\": \"pt\"}}", 0, NULL},
    {"{" TENSOR("a", "F32", "[]", "[0, 4]") "}", 4, NULL},
    {"{" TENSOR("a", "F32", "[]", "[0, 4]") "}", 5, "there are 1 unused bytes after the last tensor"},
    {"{" TENSOR("a", "F32", "[]", "[0, 4]") "}", 3, "tensor 'a': its values are outside of the file"},
    {"{" TENSOR("a", "F32", "[]", "[0, 3]") "}", 3, "tensor 'a': its data_offsets do not match its shape"},
    {"{" TENSOR("a", "F32", "[]", "[4, 0]") "}", 4, "tensor 'a': its values are outside of the file"},
    {"{" TENSOR("a", "F32", "[]", "[-4, 0]") "}", 4, "tensor 'a': its values are outside of the file"},
    {"{" TENSOR("a", "F32", "[]", "[0, 4, 4]") "}", 4, "tensor 'a': it has no data_offsets"},
    {"{" TENSOR("a", "F32", "[]", "[0, 4.0]") "}", 4, "tensor 'a': it has no data_offsets"},
    {"{" TENSOR("a", "F32", "[]", "[0.0, 4]") "}", 4, "tensor 'a': it has no data_offsets"},
    {"{" TENSOR("a", "F32", "[0]", "[0, 0]") "}", 0, NULL},
    {"{" TENSOR("a", "F32", "[0, 1099511627776]", "[0, 0]") "}", 0, NULL},
    {"{" TENSOR("a", "F32", "[0, 1099511627777]", "[0, 0]") "}", 0, "tensor 'a': its shape is not sensible"},
    {"{" TENSOR("a", "F32", "[-1]", "[0, 0]") "}", 0, "tensor 'a': its shape is not sensible"},
    {"{" TENSOR("a", "F32", "[1.0]", "[0, 4]") "}", 4, "tensor 'a': its shape is not sensible"},
    {"{" TENSOR("a", "F32", "[1099511627776, 1099511627776]", "[0, 4]") "}", 4, "tensor 'a': its shape is not"},
    {"{" TENSOR("a", "F64", "[1099511627776, 4194304]", "[0, 0]") "}", 0, "'a': its data_offsets do not match"},
    {"{" TENSOR("a", "U8", "[1, 1, 1, 1, 1, 1, 1, 2]", "[0, 2]") "}", 2, NULL},
    {"{" TENSOR("a", "U8", "[1, 1, 1, 1, 1, 1, 1, 1, 2]", "[0, 2]") "}", 2,
     "'a': its shape is not a list of at most 8"},
    {"{" TENSOR("a", "U8", "{}", "[0, 1]") "}", 1, "tensor 'a': its shape is not a list of at most 8 numbers"},
    {"{" TENSOR("a", "U16", "[]", "[0, 2]") "}", 2, NULL},
    {"{" TENSOR("a", "U32", "[2]", "[0, 8]") ", " TENSOR("b", "U64", "[1]", "[8, 16]") "}", 16, NULL},
    {"{" TENSOR("a", "F8_E4M3", "[2]", "[0, 2]") ", " TENSOR("b", "F8_E5M2", "[1]", "[2, 3]") "}", 3, NULL},
    {"{" TENSOR("a", "F4", "[]", "[0, 2]") "}", 2, "tensor 'a': its dtype must be F32"},
    {"{\"a\": 1}", 0, "tensor 'a': its dtype must be F32"},
    {"{\"a\": {\"dtype\": 1}}", 0, "tensor 'a': its dtype must be F32"},
    {"[]", 0, "its header is not JSON"},
    {"{\"a\": 1, \"a\": 1}", 0, "its header is not JSON"},
    {"{" TENSOR("b", "I8", "[2]", "[1, 3]") ", " TENSOR("a", "BOOL", "[1]", "[0, 1]") "}", 3, NULL},
    {"{" TENSOR("b", "I8", "[2]", "[1, 3]") ", " TENSOR("a", "I16", "[1]", "[0, 2]") "}", 3,
     "tensor 'b': its values overlap those of another tensor"},
    {"{" TENSOR("b", "I8", "[2]", "[2, 4]") ", " TENSOR("a", "U8", "[1]", "[0, 1]") "}", 4,
     "tensor 'b': there are unused bytes before its values"},
    {"{" TENSOR("b", "I64", "[1]", "[0, 8]") ", " TENSOR("a", "I32", "[0]", "[0, 0]") "}", 8, NULL},
    {"{" TENSOR("b", "I64", "[1]", "[0, 8]") ", " TENSOR("a", "I64", "[1]", "[0, 8]") "}", 8, "overlap"},
};

TEST_EACH(headers_are_checked, headers) {
    static const char zeros[16];
    size_t bytes;
    void *file = file_of(headers[_i].header, zeros, headers[_i].size, &bytes);
    status s = safetensors_check("w.safetensors", file, bytes);
    if (headers[_i].sentence) {
        ck_assert_msg(strncmp(status_message(s), "w.safetensors: ", 15) == 0, "%s", status_message(s));
        ck_failure(s, STATUS_DATA, headers[_i].sentence);
    } else
        ck_ok(s);
    guarded_free(file);
}

/* Shorter than its length, than its header, and than the length of the header says. */
TEST(truncated_files) {
    static const char header[] = "{" TENSOR("a", "F32", "[2]", "[0, 8]") "}";
    static const float values[2] = {1, 2};
    size_t bytes;
    char *file = file_of(header, values, sizeof values, &bytes);
    for (size_t size = 0; size < bytes; size++) {
        char *part = guarded_copy(file, size);
        const char *sentence = size < 8                       ? "not a safetensors file (too short)"
                               : size < 8 + sizeof header - 1 ? "not a safetensors file, or truncated"
                                                              : "are outside of the file (is the file truncated?)";
        ck_failure(safetensors_check("w", part, size), STATUS_DATA, sentence);
        guarded_free(part);
    }
    ck_ok(safetensors_check("w", file, bytes));
    guarded_free(file);
}

/* The comparisons of names grow as n log n. */
#define TENSORS 100000
TEST(many_tensors) {
    SCOPED_MEMORY struct param *items = calloc(TENSORS, sizeof *items);
    float *values = calloc(TENSORS, sizeof *values), three = 3;
    char(*names)[16] = calloc(TENSORS, sizeof *names);
    json_t *header = json_object();
    for (size_t i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof *names, "t.%zu", i * 7919 % TENSORS); /* each once */
        items[i] = (struct param){.name = names[i], .dims = 1, .shape = {1}, .count = 1, .value = i};
    }
    for (size_t i = 0; i < TENSORS; i++)
        json_object_set_new(header, names[i],
                            json_pack("{s:s, s:[i], s:[i,i]}", "dtype", "F32", "shape", 1, "data_offsets", 0, 4));
    const struct safetensors file = {
        .path = "many", .data = (unsigned char *)&three, .data_size = sizeof three, .header = header};
    const struct params params = {.items = items, .count = TENSORS, .values = values}, *set = &params;
    size_t comparisons = 0;
    struct safetensors_target target = {.sets = &set, .set_count = 1, .tensors = &file, .comparisons = &comparisons};
    ck_ok(safetensors_load("many", &target));
    ck_assert_uint_lt(comparisons, 10 * TENSORS * 17);
    for (size_t i = 0; i < TENSORS; i++) ck_assert(values[i] == three);
    struct text report = {0};
    comparisons = 0;
    ck_ok(mapped_load("many", &target, &(struct weight_source){.is_partial = true}, &report));
    ck_assert_uint_lt(comparisons, 10 * TENSORS * 17);
    text_free(&report);
    json_decref(header);
    free(values), free(names);
}

CHECK_MAIN("safetensors")
