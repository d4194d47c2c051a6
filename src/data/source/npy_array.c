/* Rows are read with pread. The file is not mapped: a file that another program truncates would end the run with SIGBUS
 * instead of a sentence, and the page cache is the same. */
#include "data/source/npy_array.h"

#include <fcntl.h>
#include <string.h>

#include "base/files/io.h"

static status check_size(const struct npy_array *array, double bytes) {
    double expected = (double)array->of.bytes + npy_header_value_bytes(&array->of);
    if (bytes == expected) return OK;
    return status_new(STATUS_DATA, "%s: it has %.0f bytes, but its header says %.0f; %s", array->name, bytes, expected,
                      bytes < expected ? "copy the file again" : "the file is damaged, or has several arrays");
}

status npy_array_open(int fd, const char *path, uint64_t bytes, struct npy_array *out) {
    void *memory;
    size_t got = 0;
    *out = (struct npy_array){.name = path, .path = path, .fd = fd};
    TRY(buffer_new(NPY_MAX_HEADER, path, &memory));
    status s = io_read_at(fd, path, memory, NPY_MAX_HEADER, 0, &got);
    if (!s && got >= 4 && memcmp(memory, "PK\3\4", 4) == 0)
        s = status_new(STATUS_DATA, "%s: this is an archive of arrays; name it .npz or set dataset.format to npz",
                       path);
    if (!s) s = npy_header_parse(path, memory, got, &out->of);
    if (!s) s = check_size(out, (double)bytes);
    out->start = out->of.bytes;
    buffer_free(memory);
    return s;
}

status npy_array_open_member(const struct zip *zip, const struct zip_member *member, const char *name,
                             struct npy_array *out) {
    void *memory;
    size_t got = 0;
    *out = (struct npy_array){.name = name, .path = zip->path, .fd = zip->fd, .zip = zip, .member = member};
    TRY(buffer_new(NPY_MAX_HEADER, name, &memory));
    status s = zip_read_start(zip, member, memory, NPY_MAX_HEADER, &got);
    if (!s) s = npy_header_parse(name, memory, got, &out->of);
    if (!s) s = check_size(out, (double)member->size);
    out->start = member->start + out->of.bytes;
    buffer_free(memory);
    return s;
}

void npy_array_free(struct npy_array *array) { buffer_free(array->values); }

/* Bytes [offset] .. of the values. */
static status read_values(const struct npy_array *array, uint64_t offset, void *out, size_t size) {
    size_t got;
    if (array->values) {
        memcpy(out, array->values + array->of.bytes + offset, size);
        return OK;
    }
    TRY(io_read_at(array->fd, array->path, out, size, array->start + offset, &got));
    if (got == size) return OK;
    return status_new(STATUS_DATA, "%s: the file was truncated after it was opened", array->path);
}

/* The index among the elements of a row in C order of element [f] in Fortran order. */
static size_t in_c_order(const struct npy_header *of, size_t f) {
    size_t element = 0, block = of->size;
    for (int i = 1; i < of->dims; i++) {
        block /= of->shape[i];
        element += f % of->shape[i] * block;
        f /= of->shape[i];
    }
    return element;
}

/* Each element of the rows is a column of the file, from which [count] adjacent values are read to the end of [out].
 * out (count, size): doubles, or with [bytes] the bytes of the values. */
static status read_fortran(struct npy_array *array, size_t first, size_t count, double *out, uint8_t *bytes) {
    const struct npy_header *of = &array->of;
    size_t width = of->type->bytes, size = of->size;
    void *memory;
    TRY(rows_alloc(count, width + sizeof(double), "values of the dataset", &memory));
    double *values = memory;
    uint8_t *raw = (uint8_t *)(values + count);
    status s = OK;
    for (size_t f = 0; !s && f < size; f++) {
        size_t element = in_c_order(of, f);
        s = read_values(array, ((uint64_t)f * of->rows + first) * width, raw, count * width);
        if (!s && out) npy_header_convert(of, raw, count, values);
        for (size_t i = 0; !s && i < count; i++) {
            if (out)
                out[i * size + element] = values[i];
            else
                bytes[i * size + element] = raw[i];
        }
    }
    buffer_free(memory);
    return s;
}

/* Before every read. */
static status prepare(struct npy_array *array) {
    if (!array->member || !array->member->is_deflated || array->values) return OK;
    return zip_read_all(array->zip, array->member, &array->values);
}

/* The raw values are read to the end of [out], so that a conversion does not overwrite values that follow. */
status npy_array_read(struct npy_array *array, size_t first, size_t count, double *out) {
    const struct npy_header *of = &array->of;
    size_t n = count * of->size, width = of->type->bytes;
    TRY(prepare(array));
    if (of->is_fortran) return read_fortran(array, first, count, out, NULL);
    uint8_t *raw = (uint8_t *)out + n * (sizeof *out - width);
    TRY(read_values(array, (uint64_t)first * of->size * width, raw, n * width));
    npy_header_convert(of, raw, n, out);
    return OK;
}

bool npy_array_has_floats(const struct npy_array *array) {
    return strcmp(array->of.type->name, "float32") == 0 && !array->of.is_swapped && !array->of.is_fortran;
}

void npy_array_will_read(const struct npy_array *array, size_t row) {
    size_t bytes = array->of.size * array->of.type->bytes;
    if (!array->of.is_fortran && (!array->member || !array->member->is_deflated))
        posix_fadvise(array->fd, (off_t)(array->start + (uint64_t)row * bytes), (off_t)bytes, POSIX_FADV_WILLNEED);
}

status npy_array_read_floats(struct npy_array *array, size_t first, size_t count, float *out) {
    size_t row = array->of.size * sizeof *out;
    TRY(prepare(array));
    return read_values(array, (uint64_t)first * row, (uint8_t *)out, count * row);
}

status npy_array_read_bytes(struct npy_array *array, size_t first, size_t count, uint8_t *out) {
    const struct npy_header *of = &array->of;
    TRY(prepare(array));
    if (of->is_fortran) return read_fortran(array, first, count, NULL, out);
    return read_values(array, (uint64_t)first * of->size, out, count * of->size);
}

void npy_array_describe(const struct npy_array *array, size_t row, size_t element, struct text *out) {
    const struct npy_header *of = &array->of;
    text_printf(out, "%s: row %zu", array->name, row);
    if (of->dims == 2) text_printf(out, ", column %zu", element);
    if (of->dims <= 2) return;
    size_t block = of->size;
    for (int i = 1; i < of->dims; i++) {
        block /= of->shape[i];
        text_printf(out, "%s%zu", i == 1 ? ", element [" : ", ", element / block);
        element %= block;
    }
    text_add(out, "]");
}

void npy_array_add_shape(const struct npy_array *array, struct text *out) {
    const struct npy_header *of = &array->of;
    text_printf(out, "%s (", of->type->name);
    for (int i = 0; i < of->dims; i++) text_printf(out, "%s%zu", i ? ", " : "", of->shape[i]);
    text_add(out, of->is_fortran ? "), Fortran order" : ")");
}
