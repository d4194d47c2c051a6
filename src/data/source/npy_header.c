/* The header is the text of a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }. Only what
 * NumPy writes is accepted. */
#include "data/source/npy_header.h"

#include <byteswap.h>
#include <fcntl.h>
#include <string.h>

#include "base/bits.h"
#include "base/files/io.h"
#include "base/scoped.h"

#define MAGIC "\x93NUMPY"
#define MAGIC_SIZE 6
#define PREFIX 8 /* magic and version */

/* ---- types ---- */

/* Reads value i before it writes out[i], which may overlap value i and those before it. */
#define CONVERT(name, type, value)                                                                                     \
    static void name(const void *values, size_t count, double *out) {                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            type raw;                                                                                                  \
            memcpy(&raw, (const char *)values + i * sizeof raw, sizeof raw);                                           \
            out[i] = (double)(value);                                                                                  \
        }                                                                                                              \
    }
CONVERT(of_bool, uint8_t, raw != 0)
CONVERT(of_int8, int8_t, raw)
CONVERT(of_uint8, uint8_t, raw)
CONVERT(of_int16, int16_t, raw)
CONVERT(of_uint16, uint16_t, raw)
CONVERT(of_int32, int32_t, raw)
CONVERT(of_uint32, uint32_t, raw)
CONVERT(of_int64, int64_t, raw)
CONVERT(of_uint64, uint64_t, raw)
CONVERT(of_float16, uint16_t, bits_from_float16(raw))
CONVERT(of_float32, float, raw)
CONVERT(of_float64, double, raw)

static const struct npy_type types[] = {
    {"f4", "float32", 4, true, of_float32}, {"f8", "float64", 8, false, of_float64},
    {"f2", "float16", 2, true, of_float16}, {"u1", "uint8", 1, true, of_uint8},
    {"i1", "int8", 1, true, of_int8},       {"b1", "bool", 1, true, of_bool},
    {"i8", "int64", 8, false, of_int64},    {"u8", "uint64", 8, false, of_uint64},
    {"i4", "int32", 4, false, of_int32},    {"u4", "uint32", 4, false, of_uint32},
    {"i2", "int16", 2, true, of_int16},     {"u2", "uint16", 2, true, of_uint16},
};

const struct npy_type *npy_type_named(const char *name) {
    const struct npy_type *type = types;
    while (strcmp(type->name, name) != 0) type++;
    return type;
}

static bool is_one_of(const char *characters, char c) { return c && strchr(characters, c); }

static status reject_type(const char *name, const char *code, size_t length) {
    SCOPED_TEXT type = {0};
    text_add_bytes(&type, code, length < TEXT_MAX_NAME ? length : TEXT_MAX_NAME);
    char kind = length > 0 && is_one_of("<>|=", code[0]) ? code[length > 1] : length > 0 ? code[0] : 0;
    const char *reason = kind == 'O'   ? "pickled Python objects, which are not read"
                         : kind == '[' ? "records, which are not read; save one array of numbers"
                         : kind == 'U' || kind == 'S'
                             ? "texts; save numbers (for classes numpy.unique(y, return_inverse=True))"
                         : kind == 'c'                ? "complex numbers, which are not read"
                         : kind == 'M' || kind == 'm' ? "dates or times; convert them to numbers"
                                                      : "not integers, floats or booleans of 1, 2, 4 or 8 bytes";
    return status_data("%s: the type of its values, %s%s%s, is %s", name, kind == '[' ? "" : "'",
                       text_name(text_string(&type)).s, kind == '[' ? "" : "'", reason);
}

static status find_type(const char *name, const char *code, size_t length, struct npy_header *header) {
    bool has_order = length > 0 && is_one_of("<>|=", code[0]);
    const char *type = code + has_order;
    for (size_t i = 0; i < sizeof types / sizeof *types && length == has_order + strlen(types[i].code); i++)
        if (memcmp(type, types[i].code, strlen(types[i].code)) == 0) header->type = &types[i];
    if (!header->type) return reject_type(name, code, length);
    bool is_big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    header->is_swapped = header->type->bytes > 1 && (code[0] == '<' || code[0] == '>') && (code[0] == '>') != is_big;
    return OK;
}

/* ---- the dictionary ---- */

struct scan {
    const char *at, *end;
};

static void skip_blanks(struct scan *scan) {
    while (scan->at < scan->end && is_one_of(" \t\r\n", *scan->at)) scan->at++;
}

/* Skips blanks, then takes [c] if it is next. */
static bool take(struct scan *scan, char c) {
    skip_blanks(scan);
    if (scan->at == scan->end || *scan->at != c) return false;
    scan->at++;
    return true;
}

static bool take_word(struct scan *scan, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, word, length) != 0) return false;
    scan->at += length;
    return true;
}

/* 'text' or "text" */
static bool take_string(struct scan *scan, const char **text, size_t *length) {
    char quote = take(scan, '\'') ? '\'' : take(scan, '"') ? '"' : 0;
    const char *end = quote ? memchr(scan->at, quote, (size_t)(scan->end - scan->at)) : NULL;
    if (!end) return false;
    *text = scan->at;
    *length = (size_t)(end - scan->at);
    scan->at = end + 1;
    return true;
}

/* A number below 2^48. */
static bool take_number(struct scan *scan, size_t *number) {
    const char *start = scan->at;
    for (*number = 0; scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9'; scan->at++)
        if ((*number = *number * 10 + (size_t)(*scan->at - '0')) >> 48) return false;
    bool is_number = scan->at > start;
    take(scan, 'L'); /* written by Python 2 */
    return is_number;
}

/* "(3, 4)", "(3,)", "()"; dims counts all, shape has the first MAX_DIMS + 1. */
static bool take_shape(struct scan *scan, struct npy_header *header) {
    if (!take(scan, '(')) return false;
    for (header->dims = 0; !take(scan, ')'); header->dims++) {
        size_t number;
        if (header->dims > 64 || !take_number(scan, &number)) return false;
        if (header->dims <= MAX_DIMS) header->shape[header->dims] = number;
        if (!take(scan, ',')) return take(scan, ')') ? ++header->dims : false;
    }
    return true;
}

static status damaged(const char *name) {
    return status_data("%s: the header of the array is damaged or not one that NumPy writes", name);
}

/* One "key: value"; *found gets its bit. */
static status take_entry(const char *name, struct scan *scan, struct npy_header *header, unsigned *found) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    const char *key, *code;
    size_t length, code_length, which = 0;
    if (!take_string(scan, &key, &length) || !take(scan, ':')) return damaged(name);
    while (which < 3 && (length != strlen(keys[which]) || memcmp(key, keys[which], length) != 0)) which++;
    if (which == 3 || *found & 1U << which) return damaged(name);
    *found |= 1U << which;
    skip_blanks(scan);
    if (which == 0 && take(scan, '[')) return reject_type(name, "[...]", 5);
    if (which == 0)
        return take_string(scan, &code, &code_length) ? find_type(name, code, code_length, header) : damaged(name);
    if (which == 2) return take_shape(scan, header) ? OK : damaged(name);
    header->is_fortran = take_word(scan, "True");
    return header->is_fortran || take_word(scan, "False") ? OK : damaged(name);
}

static status parse_dictionary(const char *name, struct scan *scan, struct npy_header *header) {
    unsigned found = 0;
    if (!take(scan, '{')) return damaged(name);
    while (!take(scan, '}')) {
        TRY(take_entry(name, scan, header, &found));
        if (take(scan, ',')) continue;
        if (!take(scan, '}')) return damaged(name);
        break;
    }
    skip_blanks(scan);
    return found == 7 && scan->at == scan->end ? OK : damaged(name);
}

/* ---- the header ---- */

status npy_header_check_shape(const char *name, struct npy_header *header) {
    if (header->dims == 0) return status_data("%s: it is a single number; a dataset needs an array of rows", name);
    if (header->dims > MAX_DIMS + 1)
        return status_data("%s: it has %d dimensions; rows need 1 to %d", name, header->dims, MAX_DIMS + 1);
    header->rows = header->shape[0];
    header->size = 1;
    for (int i = 1; i < header->dims; i++) {
        if (header->shape[i] == 0) return status_data("%s: its rows have 0 values", name);
        if (header->shape[i] > (size_t)INT32_MAX / header->size)
            return status_data("%s: its rows have more than %d values; the file may be damaged", name, INT32_MAX);
        header->size *= header->shape[i];
    }
    if (header->dims == 1 || header->rows <= 1) header->is_fortran = header->dims > 2 && header->is_fortran;
    return OK;
}

status npy_header_parse(const char *name, const uint8_t *bytes, size_t size, struct npy_header *out) {
    *out = (struct npy_header){0};
    if (size < PREFIX + 2 || memcmp(bytes, MAGIC, MAGIC_SIZE) != 0)
        return status_data("%s: this is not an array as numpy.save writes it", name);
    int version = bytes[MAGIC_SIZE];
    if (version < 1 || version > 3)
        return status_data("%s: version %d of the .npy format is not known; 1 to 3 are", name, version);
    size_t counter = version == 1 ? 2 : 4, length = 0;
    if (size < PREFIX + counter) return damaged(name);
    for (size_t i = counter; i-- > 0;) length = length << 8 | bytes[PREFIX + i];
    out->bytes = PREFIX + counter + length;
    if (out->bytes > NPY_MAX_HEADER || out->bytes > size) return damaged(name);
    const char *text = (const char *)bytes + PREFIX + counter;
    while (length > 0 && text[length - 1] == '\n') length--;
    TRY(parse_dictionary(name, &(struct scan){text, text + length}, out));
    return npy_header_check_shape(name, out);
}

static size_t count_values(int dims, const size_t *shape) {
    size_t count = 1;
    for (int i = 0; i < dims; i++) count *= shape[i];
    return count;
}

void npy_add_indices(int dims, const size_t *shape, size_t at, struct text *out) {
    size_t block = count_values(dims, shape);
    for (int i = 0; i < dims; i++) {
        block /= shape[i];
        text_printf(out, "%s%zu", i ? ", " : "", at / block);
        at %= block;
    }
}

size_t npy_in_c_order(int dims, const size_t *shape, size_t at) {
    size_t index = 0, block = count_values(dims, shape);
    for (int i = 0; i < dims; i++) {
        block /= shape[i];
        index += at % shape[i] * block;
        at /= shape[i];
    }
    return index;
}

void npy_add_element(const struct npy_header *header, size_t element, struct text *out) {
    if (header->dims == 2) text_printf(out, ", column %zu", element);
    if (header->dims <= 2) return;
    text_add(out, ", element [");
    npy_add_indices(header->dims - 1, header->shape + 1, element, out);
    text_add(out, "]");
}

double npy_header_value_bytes(const struct npy_header *header) {
    return (double)header->rows * (double)header->size * (double)header->type->bytes;
}

/* ---- values ---- */

/* Files are read with pread, not mapped: a file that another program truncates would end the run with SIGBUS instead of
 * a sentence, and the page cache is the same. */
status npy_read_raw(int fd, const char *path, uint64_t offset, void *out, size_t size) {
    size_t got;
    TRY(io_read_at(fd, path, out, size, offset, &got));
    return got == size ? OK : status_data("%s: the file was truncated after it was opened", path);
}

void npy_will_read(int fd, uint64_t offset, size_t size) {
    posix_fadvise(fd, (off_t)offset, (off_t)size, POSIX_FADV_WILLNEED); /* a hint: a failure is ignored */
}

static void swap(void *values, size_t count, size_t bytes) {
    uint16_t *two = values;
    uint32_t *four = values;
    uint64_t *eight = values;
    for (size_t i = 0; bytes == 2 && i < count; i++) two[i] = bswap_16(two[i]);
    for (size_t i = 0; bytes == 4 && i < count; i++) four[i] = bswap_32(four[i]);
    for (size_t i = 0; bytes == 8 && i < count; i++) eight[i] = bswap_64(eight[i]);
}

void npy_header_convert(const struct npy_header *header, void *values, size_t count, double *out) {
    if (header->is_swapped) swap(values, count, header->type->bytes);
    header->type->convert(values, count, out);
}
