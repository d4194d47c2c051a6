/* These are checks that libhdf5 1.10 does not make: sizes larger than the file, chunks that do not tile the dataset
 * (libhdf5 then reads beyond a buffer), values that were never written. */
#include "data/source/hdf5_check.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/files/hdf5.h"

#define MAX_CHUNK_BYTES 1073741824.0
#define MAX_CHECKED_CHUNKS 64 /* libhdf5 needs n steps to find the n-th */

struct check {
    hid_t dataset, space, plan; /* plan: the creation properties */
    const char *path, *name;
    uint64_t file_bytes;
    size_t value_bytes;
    hsize_t chunk[MAX_DIMS + 1];
};

status hdf5_failure(const char *path, const char *format, ...) {
    char reason[160];
    if (hdf5_lacks_memory()) return status_memory("libhdf5, which reads %s", path);
    hdf5_reason(reason, sizeof reason, "libhdf5 reports no reason");
    va_list arguments;
    va_start(arguments, format);
    status what = status_newv(STATUS_DATA, format, arguments);
    va_end(arguments);
    status s = status_new(STATUS_DATA, "%s: %s: %s", path, status_message(what), reason);
    status_free(what);
    return s;
}

/* "<path>: dataset '<name>' <sentence>" */
static status reject(const struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static status reject(const struct check *c, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    status what = status_newv(STATUS_DATA, format, arguments);
    va_end(arguments);
    status s = status_new(STATUS_DATA, "%s: dataset '%s' %s", c->path, c->name, status_message(what));
    status_free(what);
    return s;
}

/* The bits of a number are inside of its bytes; libhdf5 converts others beyond its buffers. */
static bool has_good_bits(hid_t type) {
    size_t bits = 8 * H5Tget_size(type), precision = H5Tget_precision(type);
    size_t sign, exponent, exponent_bits, mantissa, mantissa_bits;
    int offset = H5Tget_offset(type);
    if (precision == 0 || offset < 0 || (size_t)offset > bits || precision > bits - (size_t)offset) return false;
    if (H5Tget_class(type) == H5T_INTEGER) return true;
    return H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) >= 0 && sign < precision &&
           exponent_bits > 0 && mantissa_bits > 0 && exponent <= precision && mantissa <= precision &&
           exponent_bits <= precision - exponent && mantissa_bits <= precision - mantissa;
}

/* Whether the member [i] of an enumeration of one byte is [value], named [name]. */
static bool is_member(hid_t type, unsigned i, const char *name, uint8_t value) {
    uint8_t number;
    char *found = H5Tget_member_name(type, i);
    bool is = found && strcmp(found, name) == 0 && H5Tget_member_value(type, i, &number) >= 0 && number == value;
    if (found) H5free_memory(found);
    return is;
}

hid_t hdf5_value_type(hid_t dataset) {
    hid_t type = H5Dget_type(dataset);
    if (type < 0 || H5Tget_class(type) != H5T_ENUM || H5Tget_size(type) != 1 || H5Tget_nmembers(type) != 2) return type;
    if (!is_member(type, 0, "FALSE", 0) || !is_member(type, 1, "TRUE", 1)) return type;
    hid_t numbers = H5Tget_super(type);
    H5Tclose(type);
    return numbers;
}

static status check_type(struct check *c, struct hdf5_rows *out) {
    static const char *const names[] = {"integer",  "float",     "time",        "string", "bit field", "opaque",
                                        "compound", "reference", "enumeration", "vlen",   "array"};
    hid_t type = hdf5_value_type(c->dataset);
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    bool is_number = class == H5T_INTEGER || class == H5T_FLOAT, is_good = is_number && has_good_bits(type);
    size_t bytes = c->value_bytes = is_number ? H5Tget_size(type) : 0;
    out->is_bytes = class == H5T_INTEGER && bytes == 1 && H5Tget_sign(type) == H5T_SGN_NONE;
    if (type >= 0) H5Tclose(type);
    out->is_float32 = bytes <= (class == H5T_FLOAT ? 4 : 2);
    if (class == H5T_ENUM)
        return reject(c, "is of an enumeration type that is not that of h5py's booleans; save it with "
                         ".astype('int64')");
    if (!is_number)
        return reject(c, "is of type %s; only integers and floats can be read",
                      class >= 0 && class < H5T_NCLASSES ? names[class] : "unknown");
    if (!is_good) return reject(c, "has numbers whose bits lie outside of their %zu bytes; the file is damaged", bytes);
    if (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || (class == H5T_FLOAT && bytes == 16)) return OK;
    return reject(c, "has numbers of %zu bytes, expected 1, 2, 4 or 8; the file may be damaged", bytes);
}

static status check_shape(const struct check *c, struct hdf5_rows *out) {
    int dims = out->dims = H5Sget_simple_extent_ndims(c->space);
    bool is_good = dims >= 1 && dims <= MAX_DIMS + 1 && H5Sis_simple(c->space) > 0 &&
                   H5Sget_simple_extent_dims(c->space, out->shape, NULL) == dims;
    if (!is_good) return reject(c, "has %d dimensions; rows need 1 to %d", dims, MAX_DIMS + 1);
    out->size = 1;
    for (int i = 1; i < dims; i++) {
        if (out->shape[i] == 0) return reject(c, "has rows of 0 values");
        if (out->shape[i] > (hsize_t)INT_MAX / out->size) return reject(c, "has rows of more than %d values", INT_MAX);
        out->size *= (size_t)out->shape[i];
    }
    if (out->shape[0] > PTRDIFF_MAX / 16 / out->size)
        return reject(c, "says it has %llu rows; the file may be damaged", (unsigned long long)out->shape[0]);
    return OK;
}

static status check_filters(const struct check *c) {
    H5Z_filter_t filter = 0;
    char name[64] = "";
    if (hdf5_has_known_filters(c->plan, &filter, name, sizeof name)) return OK;
    return reject(c,
                  "is compressed by filter %d (%s), which is not read; write it again with compression='gzip' or none",
                  (int)filter, name[0] ? name : "no name");
}

static status does_not_fit(const struct check *c) {
    return reject(c, "and its values do not fit together; the file is damaged or was not copied to its end");
}

/* One piece, as long as the shape says, inside the file (compact: in the dataset's header). */
static status check_piece(const struct check *c, const struct hdf5_rows *shape, bool is_compact) {
    hsize_t stored = H5Dget_storage_size(c->dataset);
    haddr_t at = is_compact ? 0 : H5Dget_offset(c->dataset);
    double expected = (double)shape->shape[0] * (double)shape->size * (double)c->value_bytes;
    if ((double)stored != expected || stored > c->file_bytes || at > c->file_bytes - stored) return does_not_fit(c);
    return OK;
}

/* The first chunks start where a chunk may start. */
static status check_places(const struct check *c, const struct hdf5_rows *shape, hsize_t chunks) {
    for (hsize_t i = 0; i < chunks && i < MAX_CHECKED_CHUNKS; i++) {
        hsize_t start[MAX_DIMS + 1] = {0}, bytes;
        unsigned mask;
        haddr_t at;
        if (H5Dget_chunk_info(c->dataset, c->space, i, start, &mask, &at, &bytes) < 0)
            return hdf5_failure(c->path, "dataset '%s' cannot be read", c->name);
        if (bytes > c->file_bytes || at > c->file_bytes - bytes) return does_not_fit(c);
        for (int d = 0; d < shape->dims; d++)
            if (start[d] >= shape->shape[d] || start[d] % c->chunk[d] != 0) return does_not_fit(c);
    }
    return OK;
}

/* As many chunks as tile the shape; without filters, as many bytes as they hold. */
static status check_chunks(struct check *c, const struct hdf5_rows *shape) {
    double bytes = (double)c->value_bytes, expected = 1;
    int dims = H5Pget_chunk(c->plan, MAX_DIMS + 1, c->chunk);
    if (dims != shape->dims) return does_not_fit(c);
    for (int i = 0; i < dims; i++) {
        if (c->chunk[i] == 0) return does_not_fit(c);
        bytes *= (double)c->chunk[i];
        hsize_t tiles = shape->shape[i] / c->chunk[i] + (shape->shape[i] % c->chunk[i] != 0);
        expected *= (double)tiles;
    }
    if (bytes > MAX_CHUNK_BYTES) return reject(c, "has chunks of %g bytes; at most 1 GiB is read", bytes);
    hsize_t chunks, stored = H5Dget_storage_size(c->dataset);
    if (H5Dget_num_chunks(c->dataset, c->space, &chunks) < 0)
        return hdf5_failure(c->path, "dataset '%s' cannot be read", c->name);
    if ((double)chunks < expected)
        return reject(c, "has %llu chunks of %g: its other values were never written", (unsigned long long)chunks,
                      expected);
    if ((double)chunks > expected || stored > c->file_bytes) return does_not_fit(c);
    if (H5Pget_nfilters(c->plan) == 0 && (double)stored != (double)chunks * bytes) return does_not_fit(c);
    return check_places(c, shape, chunks);
}

static status check_layout(struct check *c, const struct hdf5_rows *shape) {
    H5D_layout_t layout = H5Pget_layout(c->plan);
    H5D_space_status_t allocated;
    TRY(check_filters(c));
    if (layout == H5D_VIRTUAL || H5Pget_external_count(c->plan) != 0)
        return reject(c, "has its values in other files, which are not followed");
    if (shape->shape[0] == 0) return OK;
    if (H5Dget_space_status(c->dataset, &allocated) < 0)
        return hdf5_failure(c->path, "dataset '%s' cannot be read", c->name);
    if (allocated == H5D_SPACE_STATUS_NOT_ALLOCATED) return reject(c, "was created but its values were never written");
    return layout == H5D_CHUNKED ? check_chunks(c, shape) : check_piece(c, shape, layout == H5D_COMPACT);
}

static status check_all(struct check *c, struct hdf5_rows *shape) {
    if (c->space < 0 || c->plan < 0) return hdf5_failure(c->path, "dataset '%s' cannot be read", c->name);
    TRY(check_type(c, shape));
    TRY(check_shape(c, shape));
    return check_layout(c, shape);
}

status hdf5_check(hid_t dataset, const char *path, const char *name, uint64_t file_bytes, struct hdf5_rows *shape) {
    struct check c = {.dataset = dataset, .path = path, .name = name, .file_bytes = file_bytes};
    c.space = H5Dget_space(dataset);
    c.plan = H5Dget_create_plist(dataset);
    status s = check_all(&c, shape);
    if (c.space >= 0) H5Sclose(c.space);
    if (c.plan >= 0) H5Pclose(c.plan);
    return s;
}
