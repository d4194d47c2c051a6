/* HDF5 files, as h5py writes them: one dataset for the inputs (or several vectors that are concatenated) and one for
 * the targets. Files are not trusted: libhdf5 trusts the metadata of a file, and a damaged or crafted one can make it
 * crash, allocate all memory or read other files. So external links are not followed, filter plugins are not loaded,
 * and each dataset is checked before its values are read. */
#include <hdf5.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "base/files/hdf5.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "base/status.h"
#include "data/source/first_look.h"
#include "data/source/frame.h"
#include "data/source/npy_header.h"
#include "data/source/source.h"

struct hdf5_rows {
    int dims; /* with the rows */
    hsize_t shape[MAX_DIMS + 1];
    size_t size;     /* values of one row */
    bool is_float32; /* each value is exact in float32 */
    bool is_bytes;   /* each value is an unsigned integer of one byte */
};

struct hdf5_chunks;

struct hdf5_piece {
    const char *path; /* not owned, as [fd] */
    int fd;
    uint64_t start;       /* of the values in the file */
    struct npy_header of; /* type, byte order and values of a row; type NULL: read the dataset with libhdf5 */
};

/* ---- checks ---- */

/* These are checks that libhdf5 1.10 does not make: sizes larger than the file, chunks that do not tile the dataset
 * (libhdf5 then reads beyond a buffer), values that were never written. */

#define MAX_CHUNK_BYTES 1073741824.0
#define MAX_CHECKED_CHUNKS 64 /* libhdf5 needs n steps to find the n-th */

struct check {
    hid_t dataset, space, plan; /* plan: the creation properties */
    const char *path, *name;
    uint64_t file_bytes;
    size_t value_bytes;
    hsize_t chunk[MAX_DIMS + 1];
};

/* STATUS_DATA, "<path>: <sentence>: <libhdf5's error>", for the call that just failed in this thread; STATUS_MEMORY
 * where libhdf5 had too little memory. */
static status hdf5_failure(const char *path, const char *format, ...) {
    char reason[160];
    if (hdf5_lacks_memory()) return status_memory("libhdf5, which reads %s", path);
    hdf5_reason(reason, sizeof reason, "libhdf5 reports no reason");
    va_list arguments;
    va_start(arguments, format);
    status what = status_newv(STATUS_DATA, format, arguments);
    va_end(arguments);
    status s = status_data("%s: %s: %s", path, status_message(what), reason);
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
    status s = status_data("%s: dataset '%s' %s", c->path, c->name, status_message(what));
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

/* The type of the values of [dataset], for H5Tclose; of booleans, as h5py writes them (an enumeration of FALSE and
 * TRUE), that of their numbers, 0 and 1. Negative on failure. */
static hid_t hdf5_value_type(hid_t dataset) {
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
        return reject(c,
                      "is of an enumeration type that is not that of h5py's booleans; save it with .astype('int64')");
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

/* Checks type, shape, filters, layout and storage of the open [dataset], [name] in the file [path] of [file_bytes].
 * STATUS_DATA with the first error. */
static status hdf5_check(hid_t dataset, const char *path, const char *name, uint64_t file_bytes,
                         struct hdf5_rows *shape) {
    struct check c = {.dataset = dataset, .path = path, .name = name, .file_bytes = file_bytes};
    c.space = H5Dget_space(dataset);
    c.plan = H5Dget_create_plist(dataset);
    status s = check_all(&c, shape);
    if (c.space >= 0) H5Sclose(c.space);
    if (c.plan >= 0) H5Pclose(c.plan);
    return s;
}

status hdf5_check_stored(hid_t dataset, const char *path, const char *name, size_t value_bytes) {
    struct hdf5_rows shape = {0};
    struct check c = {.dataset = dataset, .path = path, .name = name, .value_bytes = value_bytes};
    TRY(file_check(path, &c.file_bytes));
    c.space = H5Dget_space(dataset);
    c.plan = H5Dget_create_plist(dataset);
    status s = c.space < 0 || c.plan < 0 ? hdf5_failure(path, "dataset '%s' cannot be read", name) : OK;
    if (!s) s = check_shape(&c, &shape);
    if (!s) s = check_layout(&c, &shape);
    if (c.space >= 0) H5Sclose(c.space);
    if (c.plan >= 0) H5Pclose(c.plan);
    return s;
}

/* ---- compressed chunks ---- */

/* The filters of a chunk are undone from the last to the first. Only one of them may compress, and no shuffle may come
 * after it, so what is expanded are always the bytes of the file. */

#define MAX_FILTERS 32
#define CHECKSUM_BYTES 4    /* of fletcher32, behind the data */
#define SZIP_HEADER_BYTES 4 /* the decoded size, little-endian */

struct hdf5_chunks {
    hid_t dataset;
    const char *path, *name;
    int dims;
    hsize_t shape[MAX_DIMS + 1], chunk[MAX_DIMS + 1];
    size_t bytes; /* of a chunk */
    int filter_count;
    H5Z_filter_t filters[MAX_FILTERS]; /* in the order in which they were applied */
    bool leaves_edges;                 /* chunks that reach over the edge of the dataset are not filtered */
    uint8_t *is_checked;               /* (chunks in a column) */
    uint8_t *raw;                      /* (raw_size) */
    size_t raw_size;
};

static bool compresses(H5Z_filter_t filter) { return filter == H5Z_FILTER_DEFLATE || filter == H5Z_FILTER_SZIP; }

static status read_filters(struct hdf5_chunks *c, hid_t plan) {
    bool is_compressed = false;
    c->filter_count = H5Pget_nfilters(plan);
    if (c->filter_count > MAX_FILTERS) c->filter_count = MAX_FILTERS + 1;
    for (int i = 0; i < c->filter_count; i++) {
        size_t values = 0;
        unsigned flags, config;
        H5Z_filter_t filter = i < MAX_FILTERS
                                  ? H5Pget_filter2(plan, (unsigned)i, &flags, &values, NULL, 0, NULL, &config)
                                  : H5Z_FILTER_ERROR;
        if (filter < 0 || (is_compressed && filter != H5Z_FILTER_FLETCHER32))
            return status_data("%s: dataset '%s' is compressed by filters in an order that is not read; write it again "
                               "with compression='gzip' or none",
                               c->path, c->name);
        c->filters[i] = filter;
        is_compressed = is_compressed || compresses(filter);
    }
    return OK;
}

static status read_plan(struct hdf5_chunks *c, hid_t plan, hid_t type, const struct hdf5_rows *shape) {
    unsigned options = 0;
    if (plan < 0 || type < 0 || H5Pget_chunk(plan, MAX_DIMS + 1, c->chunk) != shape->dims ||
        H5Pget_chunk_opts(plan, &options) < 0)
        return hdf5_failure(c->path, "dataset '%s' cannot be read", c->name);
    TRY(read_filters(c, plan));
    c->leaves_edges = options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS;
    c->dims = shape->dims;
    c->bytes = H5Tget_size(type);
    for (int d = 0; d < c->dims; d++) {
        c->shape[d] = shape->shape[d];
        c->bytes *= (size_t)c->chunk[d]; /* at most 1 GiB, says hdf5_check */
    }
    c->is_checked = calloc((size_t)((c->shape[0] - 1) / c->chunk[0] + 1), 1);
    return c->is_checked ? OK : status_memory("dataset '%s' of %s", c->name, c->path);
}

static bool needs_check(hid_t plan, const struct hdf5_rows *shape) {
    return plan >= 0 && H5Pget_layout(plan) == H5D_CHUNKED && H5Pget_nfilters(plan) > 0 && shape->shape[0] > 0;
}

/* Takes NULL. */
static void hdf5_chunks_close(struct hdf5_chunks *c) {
    if (!c) return;
    free(c->is_checked);
    free(c->raw);
    free(c);
}

/* For the open [dataset], which hdf5_check has accepted with [shape]; all but [shape] is borrowed. *out is NULL where
 * nothing is compressed. STATUS_DATA: filters in an order that cannot be followed. Between hdf5_enter and hdf5_leave,
 * as all calls. */
static status hdf5_chunks_open(hid_t dataset, const char *path, const char *name, const struct hdf5_rows *shape,
                               struct hdf5_chunks **out) {
    *out = NULL;
    hid_t plan = H5Dget_create_plist(dataset), type = H5Dget_type(dataset);
    status s = OK;
    if (needs_check(plan, shape)) {
        struct hdf5_chunks *c = calloc(1, sizeof *c);
        if (c) *c = (struct hdf5_chunks){.dataset = dataset, .path = path, .name = name};
        s = c ? read_plan(c, plan, type, shape) : status_memory("a dataset");
        if (s == OK)
            *out = c;
        else
            hdf5_chunks_close(c);
    }
    if (type >= 0) H5Tclose(type);
    if (plan >= 0) H5Pclose(plan);
    return s;
}

/* ---- one chunk ---- */

/* How much the zlib stream bytes (size) holds; it is not expanded further than just over [limit]. false: it is none. */
static bool inflated_size(const uint8_t *bytes, size_t size, size_t limit, size_t *out) {
    uint8_t piece[32768];
    z_stream z = {.next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (uInt)size}; /* zlib only reads it */
    if (size > UINT32_MAX || inflateInit(&z) != Z_OK) return false;
    int result = Z_OK;
    for (*out = 0; result == Z_OK && *out <= limit;) {
        z.next_out = piece;
        z.avail_out = sizeof piece;
        result = inflate(&z, Z_NO_FLUSH);
        *out += sizeof piece - z.avail_out;
    }
    inflateEnd(&z);
    return result == Z_STREAM_END || *out > limit;
}

/* The size of c->raw (stored) once the filters that [mask] does not name are undone; one that is too large is any such.
 * false: it is not what they write. */
static bool decoded_size(const struct hdf5_chunks *c, size_t stored, uint32_t mask, size_t *size) {
    *size = stored;
    for (int i = c->filter_count - 1; i >= 0; i--) {
        H5Z_filter_t filter = c->filters[i];
        if (mask >> i & 1 || filter == H5Z_FILTER_SHUFFLE) continue;
        if (filter == H5Z_FILTER_DEFLATE) {
            if (!inflated_size(c->raw, *size, c->bytes + CHECKSUM_BYTES * MAX_FILTERS, size)) return false;
            continue;
        }
        if (*size < CHECKSUM_BYTES) return true; /* less than any chunk */
        if (filter == H5Z_FILTER_FLETCHER32)
            *size -= CHECKSUM_BYTES;
        else
            *size = c->raw[0] | (size_t)c->raw[1] << 8 | (size_t)c->raw[2] << 16 | (size_t)c->raw[3] << 24;
    }
    return true;
}

static bool is_edge(const struct hdf5_chunks *c, const hsize_t *start) {
    for (int d = 0; d < c->dims; d++)
        if (c->chunk[d] > c->shape[d] - start[d]) return true;
    return false;
}

static status bad_chunk(const struct hdf5_chunks *c, hsize_t row, const char *what) {
    return status_data("%s: dataset '%s', the chunk of row %llu %s; the file is damaged or crafted", c->path, c->name,
                       (unsigned long long)row, what);
}

static status wrong_size(const struct hdf5_chunks *c, hsize_t row, size_t size) {
    char what[96];
    size_t shown = size > c->bytes ? c->bytes : size;
    snprintf(what, sizeof what, "holds %s%zu byte%s where %zu are needed", size > c->bytes ? "more than " : "", shown,
             shown == 1 ? "" : "s", c->bytes);
    return bad_chunk(c, row, what);
}

/* Compressed data that is twice as long as what it holds is no honest file's. */
static status read_raw(struct hdf5_chunks *c, const hsize_t *start, size_t *stored, uint32_t *mask) {
    hsize_t size;
    if (H5Dget_chunk_storage_size(c->dataset, start, &size) < 0)
        return hdf5_failure(c->path, "dataset '%s' cannot be read", c->name);
    if (size == 0 || size / 2 > c->bytes + 4096) return bad_chunk(c, start[0], "is not what its filters write");
    if (size > c->raw_size) {
        free(c->raw);
        c->raw = malloc((size_t)size);
        c->raw_size = c->raw ? (size_t)size : 0;
        if (!c->raw) return status_memory("a chunk of dataset '%s' of %s", c->name, c->path);
    }
    *stored = (size_t)size;
    if (H5Dread_chunk(c->dataset, H5P_DEFAULT, start, mask, c->raw) >= 0) return OK;
    return hdf5_failure(c->path, "dataset '%s' cannot be read", c->name);
}

static status check_chunk(struct hdf5_chunks *c, const hsize_t *start) {
    size_t stored = 0, size;
    uint32_t mask = 0;
    TRY(read_raw(c, start, &stored, &mask));
    if (c->leaves_edges && is_edge(c, start)) mask = UINT32_MAX;
    if (!decoded_size(c, stored, mask, &size)) return bad_chunk(c, start[0], "is not what its filters write");
    return size == c->bytes ? OK : wrong_size(c, start[0], size);
}

/* ---- the chunks of some rows ---- */

/* The next chunk that begins in the same row; false: there is none. */
static bool next_in_row(const struct hdf5_chunks *c, hsize_t *start) {
    for (int d = c->dims - 1; d > 0; d--) {
        if (c->chunk[d] < c->shape[d] - start[d]) {
            start[d] += c->chunk[d];
            return true;
        }
        start[d] = 0;
    }
    return false;
}

/* Before rows [first] to [first] + [count] - 1 are read; each chunk is expanded at the first call that needs it. Takes
 * NULL. */
static status hdf5_chunks_check(struct hdf5_chunks *c, size_t first, size_t count) {
    if (!c || count == 0) return OK;
    for (hsize_t i = first / c->chunk[0]; i <= (first + count - 1) / c->chunk[0]; i++) {
        hsize_t start[MAX_DIMS + 1] = {i * c->chunk[0]};
        if (c->is_checked[i]) continue;
        do TRY(check_chunk(c, start));
        while (next_in_row(c, start));
        c->is_checked[i] = 1;
    }
    return OK;
}

/* ---- rows in one piece ---- */

/* The types are those of NumPy, whose conversion to doubles is that of npy_header.h. */

/* numpy's float16; negative on failure. */
static hid_t make_half(bool is_big) {
    hid_t half = H5Tcopy(is_big ? H5T_IEEE_F32BE : H5T_IEEE_F32LE);
    bool is_made = half >= 0 && H5Tset_fields(half, 15, 10, 5, 0, 10) >= 0 && H5Tset_size(half, 2) >= 0 &&
                   H5Tset_ebias(half, 15) >= 0;
    if (is_made || half < 0) return half;
    H5Tclose(half);
    return -1;
}

/* Sets out->type and out->is_swapped for a type that NumPy has. */
static void find_type(hid_t type, struct npy_header *out) {
    const bool is_big_here = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    const hid_t halves[] = {make_half(false), make_half(true)};
    const struct {
        const char *name;
        hid_t little, big;
    } known[] = {
        {"float32", H5T_IEEE_F32LE, H5T_IEEE_F32BE}, {"float64", H5T_IEEE_F64LE, H5T_IEEE_F64BE},
        {"float16", halves[0], halves[1]},           {"uint8", H5T_STD_U8LE, H5T_STD_U8BE},
        {"int8", H5T_STD_I8LE, H5T_STD_I8BE},        {"uint16", H5T_STD_U16LE, H5T_STD_U16BE},
        {"int16", H5T_STD_I16LE, H5T_STD_I16BE},     {"uint32", H5T_STD_U32LE, H5T_STD_U32BE},
        {"int32", H5T_STD_I32LE, H5T_STD_I32BE},     {"uint64", H5T_STD_U64LE, H5T_STD_U64BE},
        {"int64", H5T_STD_I64LE, H5T_STD_I64BE},
    };
    for (size_t i = 0; !out->type && i < sizeof known / sizeof *known; i++) {
        bool is_little = known[i].little >= 0 && H5Tequal(type, known[i].little) > 0;
        bool is_big = known[i].big >= 0 && H5Tequal(type, known[i].big) > 0;
        if (!is_little && !is_big) continue;
        out->type = npy_type_named(known[i].name);
        out->is_swapped = out->type->bytes > 1 && is_big != is_big_here;
    }
    for (int i = 0; i < 2; i++)
        if (halves[i] >= 0) H5Tclose(halves[i]);
}

/* Sets [out] for an open dataset that hdf5_check accepted. Call it between hdf5_enter and hdf5_leave. */
static void hdf5_piece_find(hid_t dataset, const struct hdf5_rows *rows, int fd, const char *path,
                            struct hdf5_piece *out) {
    *out = (struct hdf5_piece){.path = path, .fd = fd, .of = {.size = rows->size, .rows = (size_t)rows->shape[0]}};
    haddr_t start = H5Dget_offset(dataset); /* undefined for chunks and for values in the dataset's header */
    hid_t type = hdf5_value_type(dataset);
    if (start != HADDR_UNDEF && type >= 0) find_type(type, &out->of);
    out->start = start;
    if (type >= 0) H5Tclose(type);
}

/* The type has the name [type] ("float32") and the byte order of this machine. */
static bool hdf5_piece_is(const struct hdf5_piece *piece, const char *type) {
    return piece->of.type == npy_type_named(type) && !piece->of.is_swapped;
}

static uint64_t row_bytes(const struct hdf5_piece *piece) { return (uint64_t)piece->of.size * piece->of.type->bytes; }

static status hdf5_piece_read_raw(const struct hdf5_piece *piece, size_t first, size_t count, void *out) {
    uint64_t bytes = row_bytes(piece);
    return npy_read_raw(piece->fd, piece->path, piece->start + first * bytes, out, count * (size_t)bytes);
}

/* Reads rows first .. first + count - 1 as doubles. STATUS_DATA when the file has become shorter. Thread-safe. The raw
 * values are read to the end of [out], so that a conversion does not overwrite values that follow. */
static status hdf5_piece_read(const struct hdf5_piece *piece, size_t first, size_t count, double *out) {
    size_t values = count * piece->of.size, width = piece->of.type->bytes;
    uint8_t *raw = (uint8_t *)out + values * (sizeof *out - width);
    TRY(hdf5_piece_read_raw(piece, first, count, raw));
    npy_header_convert(&piece->of, raw, values, out);
    return OK;
}

/* ---- the format ---- */

#define CHUNK_CACHE_BYTES ((size_t)64 << 20)
#define CHUNK_CACHE_SLOTS 65537 /* a prime number, to avoid collisions of neighbouring chunks */
#define MAX_TRIED_VALUES ((size_t)1 << 24)

enum values { DOUBLES, FLOATS, BYTES };

struct column {
    const char *name;
    hid_t dataset;  /* -1: not open */
    bool is_joined; /* with others to one vector */
    struct hdf5_rows of;
    struct hdf5_chunks *chunks; /* NULL: nothing is compressed */
    struct hdf5_piece piece;
    int dims; /* of a row as it is read */
    int64_t shape[MAX_DIMS];
    struct channels_last layout;
};

struct hdf5 {
    struct source base;
    struct arena *arena;
    const char *path;
    hid_t file; /* -1: not open */
    int descriptor;
    bool is_plain;  /* all columns are pieces of the file, which libhdf5 has not opened */
    uint64_t bytes; /* of the file when it was opened */
    size_t count[ROW_GROUP + 1];
    struct column *columns[ROW_GROUP + 1]; /* (count), by enum row_value */
    const char *group_key;                 /* that names the groups */
};

/* ---- opening ---- */

/* libhdf5 reads zeros behind the end of a file that was truncated. */
static status check_length(const struct hdf5 *h) {
    struct io_info info;
    TRY(io_stat_fd(h->descriptor, h->path, &info));
    if (info.size >= h->bytes) return OK;
    return status_data("%s: the file was truncated after it was opened (%llu bytes of %llu)", h->path,
                       (unsigned long long)info.size, (unsigned long long)h->bytes);
}

/* Gets the file descriptor of the open HDF5 file. */
static status find_descriptor(struct hdf5 *h) {
    struct io_info info;
    void *handle;
    if (H5Fget_vfd_handle(h->file, H5P_DEFAULT, &handle) < 0)
        return hdf5_failure(h->path, "the file cannot be examined");
    h->descriptor = *(int *)handle;
    TRY(io_stat_fd(h->descriptor, h->path, &info));
    h->bytes = info.size;
    return OK;
}

static status open_file(struct hdf5 *h) {
    H5PLset_loading_state(0); /* no plugins */
    htri_t is_hdf5 = H5Fis_hdf5(h->path);
    if (is_hdf5 == 0) return status_data("%s: this is not an HDF5 file", h->path);
    TRY(hdf5_check_memory());
    hid_t access = hdf5_read_access();
    h->file = H5Fopen(h->path, H5F_ACC_RDONLY, access);
    status s = h->file < 0 ? hdf5_failure(h->path, "cannot be opened as HDF5 file") : OK;
    H5Pclose(access);
    return s == OK ? find_descriptor(h) : s;
}

static herr_t add_name(hid_t group, const char *name, const H5L_info_t *info, void *context) {
    (void)group, (void)info;
    struct text *names = context;
    if (names->length > 200) {
        text_add(names, ", ...");
        return 1;
    }
    text_printf(names, "%s%s", names->length ? ", " : "", name);
    return 0;
}

static status missing(const struct hdf5 *h, const char *name) {
    SCOPED_TEXT names = {0};
    H5Literate(h->file, H5_INDEX_NAME, H5_ITER_INC, NULL, add_name, &names);
    return status_data("%s: there is no dataset '%s'; the file has: %s (see dataset.inputs, targets)", h->path, name,
                       names.length ? text_string(&names) : "nothing");
}

/* libhdf5 calls it before it follows an external link, also through a soft link; a negative result prevents it. */
/* NOLINTBEGIN(readability-non-const-parameter) */
static herr_t reject_link(const char *parent_file, const char *parent_group, const char *child_file,
                          const char *child_object, unsigned *access_flags, hid_t access, void *context) {
    (void)parent_file, (void)parent_group, (void)child_file, (void)child_object, (void)access_flags, (void)access;
    (void)context;
    return -1;
}
/* NOLINTEND(readability-non-const-parameter) */

/* Checks that each step of "a/b/c" is a link within this file. */
static status check_links(const struct hdf5 *h, const char *name, hid_t access) {
    char step[1024];
    size_t length = strlen(name);
    if (length >= sizeof step) return missing(h, name);
    for (size_t i = 1; i <= length; i++) {
        if ((name[i] != '/' && name[i] != 0) || name[i - 1] == '/') continue;
        memcpy(step, name, i);
        step[i] = 0;
        H5L_info_t link;
        if (H5Lexists(h->file, step, access) <= 0) return missing(h, name);
        if (H5Lget_info(h->file, step, &link, access) < 0) return hdf5_failure(h->path, "'%s' cannot be found", step);
        if (link.type != H5L_TYPE_HARD && link.type != H5L_TYPE_SOFT)
            return status_data("%s: '%s' is a link to another file, which is not followed", h->path, step);
    }
    return OK;
}

static status open_dataset(const struct hdf5 *h, struct column *column) {
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_elink_cb(access, reject_link, NULL);
    H5Pset_chunk_cache(access, CHUNK_CACHE_SLOTS, CHUNK_CACHE_BYTES, H5D_CHUNK_CACHE_W0_DEFAULT);
    status s = check_links(h, column->name, access);
    hid_t object = s == OK ? H5Oopen(h->file, column->name, access) : -1;
    if (s != OK)
        ;
    else if (object < 0)
        s = hdf5_failure(h->path, "'%s' cannot be opened", column->name);
    else if (H5Iget_type(object) != H5I_DATASET)
        s = status_data("%s: '%s' is a group, not a dataset; name a dataset in it, such as '%s/x'", h->path,
                        column->name, column->name);
    else
        column->dataset = H5Dopen2(h->file, column->name, access);
    if (s == OK && column->dataset < 0) s = hdf5_failure(h->path, "'%s' cannot be opened", column->name);
    if (object >= 0) H5Oclose(object);
    H5Pclose(access);
    return s;
}

static status open_column(const struct hdf5 *h, struct column *column) {
    if (h->is_plain) return OK; /* it is open */
    TRY(open_dataset(h, column));
    TRY(hdf5_check(column->dataset, h->path, column->name, h->bytes, &column->of));
    column->dims = column->of.dims - 1;
    for (int i = 0; i < column->dims; i++) column->shape[i] = (int64_t)column->of.shape[i + 1];
    hdf5_piece_find(column->dataset, &column->of, h->descriptor, h->path, &column->piece);
    return hdf5_chunks_open(column->dataset, h->path, column->name, &column->of, &column->chunks);
}

/* Finds the dataset without libhdf5. false where that is not possible, or where rows could later not be read without
 * it: of several datasets, or as other values than they are stored. */
static bool find_plain(const struct hdf5 *h, struct column *column, bool is_input) {
    struct hdf5_plain plain;
    uint64_t size = 1;
    if (!hdf5_plain_find(h->descriptor, h->bytes, column->name, &plain)) return false;
    if (plain.dims == 0 || plain.is_text) return false;
    struct hdf5_rows *of = &column->of;
    *of = (struct hdf5_rows){.dims = plain.dims, .is_float32 = plain.value_bytes <= (plain.is_float ? 4 : 2)};
    of->is_bytes = !plain.is_signed && plain.value_bytes == 1;
    for (int i = 0; i < plain.dims; i++) {
        if (plain.shape[i] == 0) return false;
        of->shape[i] = plain.shape[i];
        if (i > 0) column->shape[i - 1] = (int64_t)plain.shape[i];
        if (i > 0) size *= plain.shape[i]; /* the values are in the file */
    }
    if (size > INT_MAX || plain.shape[0] > PTRDIFF_MAX / 16 / size) return false;
    of->size = (size_t)size;
    column->dims = plain.dims - 1;
    char type[16];
    snprintf(type, sizeof type, "%s%zu",
             plain.is_float    ? "float"
             : plain.is_signed ? "int"
                               : "uint",
             8 * plain.value_bytes);
    column->piece = (struct hdf5_piece){
        .path = h->path,
        .fd = h->descriptor,
        .start = plain.start,
        .of = {.type = npy_type_named(type),
               .size = of->size,
               .rows = (size_t)plain.shape[0],
               .is_swapped = plain.value_bytes > 1 && plain.is_big != (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)}};
    return !is_input || !of->is_float32 || hdf5_piece_is(&column->piece, "float32");
}

static bool find_all_plain(const struct hdf5 *h) {
    for (int k = 0; k <= ROW_GROUP; k++)
        if (h->count[k] > 1 || (h->count[k] && !find_plain(h, h->columns[k], k == ROW_INPUT))) return false;
    return true;
}

static void close_descriptor(int descriptor, const char *path) {
    if (descriptor >= 0) status_free(io_close(descriptor, path)); /* nothing was written */
}

static bool open_plain(struct hdf5 *h) {
    struct io_info info;
    status s = io_open(h->path, &h->descriptor);
    if (!s) s = io_stat_fd(h->descriptor, h->path, &info);
    if (!s) h->bytes = info.size;
    h->is_plain = !s && find_all_plain(h);
    if (!h->is_plain) close_descriptor(h->descriptor, h->path);
    status_free(s); /* libhdf5 will find the same */
    return h->is_plain;
}

static void close_columns(struct column *columns, size_t count) {
    for (size_t i = 0; i < count; i++) {
        hdf5_chunks_close(columns[i].chunks);
        channels_last_free(&columns[i].layout);
        if (columns[i].dataset >= 0) H5Dclose(columns[i].dataset);
    }
}

/* ---- rows of one dataset ---- */

/* The selection of out (count, total) for a dataset with rows of shape extent[1..]; negative on failure. A single
 * dataset keeps its number of dimensions, because libhdf5 is many times faster then. */
static hid_t memory_space(const struct column *column, const hsize_t *extent, size_t offset, size_t total) {
    if (column->of.size == total) return H5Screate_simple(column->of.dims, extent, NULL);
    const hsize_t shape[2] = {extent[0], total}, start[2] = {0, offset}, part[2] = {extent[0], column->of.size};
    hid_t space = H5Screate_simple(2, shape, NULL);
    if (space >= 0) H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, part, NULL);
    return space;
}

/* For a read of [count] values: libhdf5 sets all of its buffer for conversions to zero, by default 1 MiB. */
static hid_t transfer_properties(size_t count) {
    size_t min = 4096, max = 1 << 20, wanted = count < max / sizeof(double) ? count * sizeof(double) : max;
    hid_t properties = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_buffer(properties, wanted > min ? wanted : min, NULL, NULL);
    return properties;
}

/* Reads rows of one dataset to columns offset .. offset + size - 1 of out (count, total) with libhdf5. */
static status read_with_library(const struct hdf5 *h, const struct column *column, size_t first, size_t count,
                                enum values as, void *out, size_t offset, size_t total) {
    const hid_t types[] = {[DOUBLES] = H5T_NATIVE_DOUBLE, [FLOATS] = H5T_NATIVE_FLOAT, [BYTES] = H5T_NATIVE_UINT8};
    hsize_t start[MAX_DIMS + 1] = {first}, extent[MAX_DIMS + 1];
    TRY(hdf5_chunks_check(column->chunks, first, count));
    memcpy(extent, column->of.shape, sizeof extent);
    extent[0] = count;
    hid_t space = H5Dget_space(column->dataset), memory = memory_space(column, extent, offset, total);
    hid_t properties = transfer_properties(count * column->of.size);
    bool is_read = space >= 0 && memory >= 0 && properties >= 0 &&
                   H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, extent, NULL) >= 0 &&
                   H5Dread(column->dataset, types[as], memory, space, properties, out) >= 0;
    status s = is_read ? OK
                       : hdf5_failure(h->path, "rows %zu to %zu of dataset '%s' cannot be read", first,
                                      first + count - 1, column->name);
    if (space >= 0) H5Sclose(space);
    if (memory >= 0) H5Sclose(memory);
    if (properties >= 0) H5Pclose(properties);
    return s;
}

/* Whether rows can be read to out (count, total) without libhdf5. */
static bool is_in_piece(const struct column *column, enum values as, size_t total) {
    const struct hdf5_piece *piece = &column->piece;
    if (!piece->of.type || column->of.size != total) return false;
    return as == DOUBLES || hdf5_piece_is(piece, as == FLOATS ? "float32" : "uint8");
}

static status read_piece(const struct hdf5 *h, const struct column *column, size_t first, size_t count, enum values as,
                         void *out) {
    status s = as == DOUBLES ? hdf5_piece_read(&column->piece, first, count, out)
                             : hdf5_piece_read_raw(&column->piece, first, count, out);
    status length = s ? check_length(h) : OK;
    if (!length) return s;
    status_free(s);
    return length;
}

/* Reads rows of one dataset, as they are in the file, to columns offset .. offset + size - 1 of out (count, total). */
static status read_rows(const struct hdf5 *h, const struct column *column, size_t first, size_t count, enum values as,
                        void *out, size_t offset, size_t total) {
    if (is_in_piece(column, as, total)) return read_piece(h, column, first, count, as, out);
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    status s = check_length(h);
    if (s == OK) s = read_with_library(h, column, first, count, as, out, offset, total);
    hdf5_leave(&silence);
    return s;
}

static status read_column(const struct hdf5 *h, const struct column *column, size_t first, size_t count, enum values as,
                          void *out, size_t offset, size_t total) {
    static const size_t sizes[] = {[DOUBLES] = sizeof(double), [FLOATS] = sizeof(float), [BYTES] = 1};
    size_t bytes = sizes[as];
    TRY(read_rows(h, column, first, count, as, out, offset, total));
    channels_last_apply(&column->layout, (char *)out + offset * bytes, count, total * bytes, bytes);
    return OK;
}

/* ---- the source ---- */

static void make_columns(struct hdf5 *h, enum row_value kind, const struct string_list *names,
                         const struct string_groups *groups, const char *fallback) {
    size_t count = names->count ? names->count : 1;
    struct column *columns = arena_alloc(h->arena, count * sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        columns[i].name = arena_copy(h->arena, names->count ? names->items[i] : fallback);
        columns[i].dataset = -1;
        columns[i].is_joined = count > 1;
    }
    for (size_t g = 0, i = 0; g < groups->count; i += groups->items[g++].count)
        for (size_t j = i; j < i + groups->items[g].count; j++) columns[j].is_joined = groups->items[g].count > 1;
    h->columns[kind] = columns;
    h->count[kind] = count;
}

/* Opens all datasets of [kind]; *size: values of a row of all of them. */
static status open_columns(const struct hdf5 *h, enum row_value kind, size_t *size) {
    const struct column *first = h->columns[ROW_INPUT];
    *size = 0;
    for (size_t i = 0; i < h->count[kind]; i++) {
        struct column *column = &h->columns[kind][i];
        if (column->name[0] == 0) return status_usage("%s: the name of a dataset is empty", h->path);
        TRY(open_column(h, column));
        if (column->is_joined && column->of.dims > 2)
            return status_data("%s: dataset '%s' has rows of %d dimensions; only vectors can be concatenated", h->path,
                               column->name, column->of.dims - 1);
        if (column->of.shape[0] != first->of.shape[0])
            return status_data("%s: dataset '%s' has %llu rows, but '%s' has %llu", h->path, first->name,
                               (unsigned long long)first->of.shape[0], column->name,
                               (unsigned long long)column->of.shape[0]);
        *size += column->of.size;
    }
    return OK;
}

/* Concatenated datasets have column names; a single dataset may have any name. */
static struct column_list columns_of(const struct source *source, struct arena *arena) {
    const struct hdf5 *h = (const struct hdf5 *)source;
    struct column_list list = {.format = dataset_hdf5.name};
    if (h->count[ROW_INPUT] < 2 && h->count[ROW_TARGET] < 2) return list;
    list.count = h->count[ROW_INPUT] + h->count[ROW_TARGET];
    list.items = arena_alloc(arena, list.count * sizeof *list.items);
    for (size_t i = 0; i < h->count[ROW_INPUT]; i++)
        list.items[i] = (struct named_column){h->columns[ROW_INPUT][i].name, COLUMN_INPUT};
    for (size_t i = 0; i < h->count[ROW_TARGET]; i++)
        list.items[h->count[ROW_INPUT] + i] = (struct named_column){h->columns[ROW_TARGET][i].name, COLUMN_TARGET};
    return list;
}

/* Sets *names to those of [role] in the order of the training, if several datasets were concatenated then and are now.
 */
static status use_trained_names(struct hdf5 *h, const struct dataset_config *config, enum column_role role,
                                struct string_list *names) {
    const struct column_list *trained = &config->request.columns;
    size_t count = columns_count(trained, role), used = 0;
    bool is_same_format = trained->count && strcmp(trained->format, dataset_hdf5.name) == 0;
    if (!is_same_format || count < 2 || names->count == 1) return OK;
    TRY(columns_check_key(trained, role, names));
    *names = (struct string_list){.items = arena_alloc(h->arena, count * sizeof *names->items), .count = count};
    for (size_t i = 0; i < trained->count; i++)
        if (trained->items[i].role == role) names->items[used++] = trained->items[i].name;
    return OK;
}

/* Rejects a dataset that is named twice; only values may be input and target (autoencoders). */
static status check_names(const struct hdf5 *h, bool wants_classes) {
    const struct column *all[] = {h->columns[ROW_INPUT], h->columns[ROW_TARGET]};
    size_t counts[] = {h->count[ROW_INPUT], h->count[ROW_TARGET]};
    for (size_t i = 0; i < h->count[ROW_INPUT] + h->count[ROW_TARGET]; i++)
        for (size_t j = i + 1; j < h->count[ROW_INPUT] + h->count[ROW_TARGET]; j++) {
            bool first = i >= counts[0], second = j >= counts[0];
            const char *name = all[first][first ? i - counts[0] : i].name;
            if (strcmp(name, all[second][second ? j - counts[0] : j].name) != 0) continue;
            if (first != second && !wants_classes) continue;
            return status_data("%s: dataset '%s' is used twice, as %s; see dataset.inputs and dataset.targets", h->path,
                               name,
                               first != second ? "input and as target"
                               : first         ? "target"
                                               : "input");
        }
    return OK;
}

/* The column (0 or 1) of the key [key], with one value a row. */
static status open_single(const struct hdf5 *h, enum row_value kind, const char *key, const char *what) {
    size_t size;
    TRY(status_prefix(open_columns(h, kind, &size), "%s", key));
    if (h->count[kind] == 0 || size == 1) return OK;
    return status_data("%s: %s: dataset '%s' has %zu values a row instead of one%s", key, h->path,
                       h->columns[kind]->name, size, what);
}

static status open_and_check(struct hdf5 *h) {
    if (!h->is_plain) TRY(open_file(h));
    TRY(open_columns(h, ROW_INPUT, &h->base.input_size));
    TRY(open_columns(h, ROW_TARGET, &h->base.target_size));
    TRY(open_single(h, ROW_WEIGHT, "dataset.weights", " weight"));
    return open_single(h, ROW_GROUP, h->group_key, "");
}

/* Reads the first and the last row as training does, to find errors that libhdf5 reports only for values. Skips rows of
 * more than MAX_TRIED_VALUES values, which would take too much time and memory. */
static status try_rows(const struct hdf5 *h, enum row_value kind) {
    const struct column *columns = h->columns[kind];
    for (size_t i = 0; i < h->count[kind]; i++) {
        size_t size = columns[i].of.size, rows = (size_t)columns[i].of.shape[0];
        enum values as = columns[i].of.is_bytes ? BYTES : DOUBLES;
        void *row = size > MAX_TRIED_VALUES || rows == 0 ? NULL : malloc(size * sizeof(double));
        status s = row ? read_with_library(h, &columns[i], 0, 1, as, row, 0, size) : OK;
        if (row && s == OK) s = read_with_library(h, &columns[i], rows - 1, 1, DOUBLES, row, 0, size);
        free(row);
        TRY(s);
    }
    return OK;
}

/* In a child process, whose copy of [context] is lost with it. */
static status look(void *context) {
    struct hdf5 *h = context;
    TRY(open_and_check(h));
    TRY(try_rows(h, ROW_INPUT));
    TRY(try_rows(h, ROW_WEIGHT));
    TRY(try_rows(h, ROW_GROUP));
    return try_rows(h, ROW_TARGET);
}

static status open_with_library(struct hdf5 *h) {
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    status s = hdf5_try_in_child(h->path, look, h);
    if (!s) s = open_and_check(h);
    hdf5_leave(&silence);
    return s;
}

/* Transposes the inputs that are images, and targets of their height and width. */
static status set_layout(struct hdf5 *h) {
    int64_t image[3] = {0};
    for (size_t i = 0; i < h->count[ROW_INPUT]; i++) {
        struct column *input = &h->columns[ROW_INPUT][i];
        if (input->dims != 3) continue;
        if (!image[0]) memcpy(image, input->shape, sizeof image);
        TRY(channels_last_create(input->shape, &input->layout));
    }
    const char *name = arena_printf(h->arena, "dataset '%s' of %s", h->columns[ROW_INPUT]->name, h->path);
    if (!image[0]) return channels_last_reject(name, h->columns[ROW_INPUT]->dims);
    for (size_t i = 0; i < h->count[ROW_TARGET]; i++) {
        struct column *target = &h->columns[ROW_TARGET][i];
        if (channels_last_fits(target->dims, target->shape, image))
            TRY(channels_last_create(target->shape, &target->layout));
    }
    return OK;
}

static void set_shape(const struct column *column, int *dims, int64_t *shape) {
    *dims = column->dims;
    memcpy(shape, column->shape, sizeof column->shape);
}

static void make_column(struct hdf5 *h, enum row_value kind, const char *name) {
    make_columns(h, kind, &(const struct string_list){&name, 1}, &(struct string_groups){0}, NULL);
}

static status open_all(struct hdf5 *h, const struct dataset_config *config, bool wants_classes) {
    struct source *base = &h->base;
    struct string_list inputs = config->inputs, targets = config->targets;
    TRY(use_trained_names(h, config, COLUMN_INPUT, &inputs));
    TRY(use_trained_names(h, config, COLUMN_TARGET, &targets));
    make_columns(h, ROW_INPUT, &inputs, &config->input_groups, "x");
    if (!config->request.without_targets) make_columns(h, ROW_TARGET, &targets, &config->target_groups, "y");
    if (config->weights && !config->request.without_targets) make_column(h, ROW_WEIGHT, config->weights);
    h->group_key = dataset_group_key(config);
    if (dataset_group(config)) make_column(h, ROW_GROUP, dataset_group(config));
    TRY(check_names(h, wants_classes));
    TRY(open_plain(h) ? open_and_check(h) : open_with_library(h));
    if (config->layout == LAYOUT_NHWC) TRY(set_layout(h));
    const struct column *first = h->columns[ROW_INPUT], *target = h->columns[ROW_TARGET];
    base->rows = (size_t)first->of.shape[0];
    base->input_dims = 1;
    base->input_shape[0] = (int64_t)base->input_size;
    base->is_float32 = true;
    for (size_t i = 0; i < h->count[ROW_INPUT]; i++) base->is_float32 = base->is_float32 && first[i].of.is_float32;
    base->has_floats = h->count[ROW_INPUT] == 1 && base->is_float32;
    if (h->count[ROW_TARGET] == 1) set_shape(target, &base->target_dims, base->target_shape);
    if (h->count[ROW_TARGET] == 1) base->target_name = target->name;
    if (h->count[ROW_INPUT] > 1 || first->of.dims == 1) return OK;
    set_shape(first, &base->input_dims, base->input_shape);
    base->is_bytes = first->of.is_bytes;
    return OK;
}

static void shape_of_name(const struct source *source, bool is_target, size_t index, int *dims, int64_t *shape) {
    const struct hdf5 *h = (const struct hdf5 *)source;
    set_shape(&h->columns[is_target ? ROW_TARGET : ROW_INPUT][index], dims, shape);
    if (*dims > 0) return;
    *dims = 1;
    shape[0] = 1;
}

static void close_hdf5(struct source *source) {
    struct hdf5 *h = (struct hdf5 *)source;
    struct hdf5_silence silence;
    if (h->file >= 0) hdf5_enter(&silence);
    for (int k = 0; k <= ROW_GROUP; k++) close_columns(h->columns[k], h->count[k]);
    if (h->file >= 0) {
        H5Fclose(h->file);
        hdf5_leave(&silence);
    }
    if (h->is_plain) close_descriptor(h->descriptor, h->path);
    arena_destroy(h->arena);
    free(h);
}

static status open_hdf5(const struct dataset_config *config, const char *path, bool wants_classes,
                        const struct source *train, struct source **out) {
    (void)train;
    struct hdf5 *h = calloc(1, sizeof *h);
    if (!h) return status_memory("a dataset");
    h->base.format = &dataset_hdf5;
    h->arena = arena_create();
    h->path = arena_copy(h->arena, path);
    h->file = -1;
    status s = open_all(h, config, wants_classes);
    if (s) close_hdf5(&h->base);
    if (!s) *out = &h->base;
    return s;
}

/* ---- reading ---- */

static status read_columns(const struct hdf5 *h, enum row_value kind, size_t first, size_t count, double *out,
                           size_t total) {
    size_t offset = 0;
    for (size_t i = 0; i < h->count[kind]; i++) {
        TRY(read_column(h, &h->columns[kind][i], first, count, DOUBLES, out, offset, total));
        offset += h->columns[kind][i].of.size;
    }
    return OK;
}

static status read_hdf5(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    const struct hdf5 *h = (struct hdf5 *)source;
    if (inputs) TRY(read_columns(h, ROW_INPUT, first, count, inputs, source->input_size));
    return targets ? read_columns(h, ROW_TARGET, first, count, targets, source->target_size) : OK;
}

static status read_stored(struct source *source, bool as_floats, size_t first, size_t count, void *inputs) {
    const struct hdf5 *h = (struct hdf5 *)source;
    return read_column(h, h->columns[ROW_INPUT], first, count, as_floats ? FLOATS : BYTES, inputs, 0,
                       source->input_size);
}

static void will_read(const struct source *source, size_t row) {
    const struct hdf5 *h = (const struct hdf5 *)source;
    for (size_t i = 0; i < h->count[ROW_INPUT]; i++) {
        const struct hdf5_piece *piece = &h->columns[ROW_INPUT][i].piece;
        if (piece->of.type) npy_will_read(piece->fd, piece->start + row * row_bytes(piece), (size_t)row_bytes(piece));
    }
}

static status read_extra(struct source *source, enum row_value extra, size_t first, size_t count, double *values) {
    return read_columns((struct hdf5 *)source, extra, first, count, values, 1);
}

static void describe_hdf5(const struct source *source, enum row_value kind, size_t row, size_t element,
                          struct text *out) {
    const struct hdf5 *h = (const struct hdf5 *)source;
    const struct column *column = h->columns[kind];
    for (; element >= column->of.size; column++) element -= column->of.size;
    element = channels_last_element(&column->layout, element);
    text_printf(out, "%s: dataset '%s', row %zu", h->path, column->name, row);
    if (kind == ROW_WEIGHT || kind == ROW_GROUP) return;
    struct npy_header of = {.dims = column->of.dims, .size = column->of.size};
    for (int i = 0; i < of.dims; i++) of.shape[i] = (size_t)column->of.shape[i];
    npy_add_element(&of, element, out);
}

static const char *const extensions[] = {".h5", ".hdf5", ".hdf", NULL};
const struct dataset_format dataset_hdf5 = {.name = "hdf5",
                                            .keys = KEYS_OF_NAMES,
                                            .extensions = extensions,
                                            .has_layout = true,
                                            .open = open_hdf5,
                                            .read = read_hdf5,
                                            .read_stored = read_stored,
                                            .will_read = will_read,
                                            .read_extra = read_extra,
                                            .columns = columns_of,
                                            .shape_of_name = shape_of_name,
                                            .describe = describe_hdf5,
                                            .close = close_hdf5,
                                            .pytorch = "read_hdf5({path}, {inputs}, {targets})"};

/* ---- names for init ---- */

/* Datasets of numbers with as many rows belong together. Targets have one of the usual names, those with the most rows
 * first, or there are two datasets and one of them is larger. */

#define MAX_DATASETS 64
#define MAX_NAME 256

struct found {
    char name[MAX_NAME];
    hsize_t rows, size; /* of a row */
};

struct search {
    const char *path;
    struct found items[MAX_DATASETS];
    size_t count;
};

static void add_dataset(struct search *search, const char *name, hid_t dataset) {
    hsize_t shape[MAX_DIMS + 1];
    hid_t space = H5Dget_space(dataset), type = hdf5_value_type(dataset);
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    int dims = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    bool is_good = dims >= 1 && dims <= MAX_DIMS + 1 && (class == H5T_INTEGER || class == H5T_FLOAT) &&
                   H5Sget_simple_extent_dims(space, shape, NULL) == dims && search->count < MAX_DATASETS;
    if (is_good) {
        struct found *found = &search->items[search->count++];
        snprintf(found->name, sizeof found->name, "%s", name);
        found->rows = shape[0];
        found->size = 1;
        for (int i = 1; i < dims; i++) found->size *= shape[i];
    }
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
}

static herr_t visit(hid_t file, const char *name, const H5L_info_t *info, void *context) {
    struct search *search = context;
    if (info->type != H5L_TYPE_HARD || strlen(name) >= MAX_NAME) return 0;
    hid_t object = H5Oopen(file, name, H5P_DEFAULT);
    if (object >= 0 && H5Iget_type(object) == H5I_DATASET) add_dataset(search, name, object);
    if (object >= 0) H5Oclose(object);
    return 0;
}

static status look_for_names(void *context) {
    struct search *search = context;
    search->count = 0;
    TRY(hdf5_check_memory());
    hid_t access = hdf5_read_access();
    hid_t file = H5Fopen(search->path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    if (file < 0) return hdf5_failure(search->path, "cannot be opened as HDF5 file");
    bool is_visited = H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, visit, search) >= 0;
    status s = is_visited ? OK : hdf5_failure(search->path, "its datasets cannot be listed");
    H5Fclose(file);
    return s;
}

static const struct found *find(const struct search *search, const char *name) {
    for (size_t i = 0; i < search->count; i++)
        if (strcmp(search->items[i].name, name) == 0) return &search->items[i];
    return NULL;
}

/* By the last part of the path. */
static bool has_usual_name(const char *name) {
    static const char *const usual[] = {"y", "target", "targets", "label", "labels", "class", "classes", "y_train"};
    const char *last = strrchr(name, '/');
    last = last ? last + 1 : name;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strcasecmp(last, usual[i]) == 0) return true;
    return false;
}

static const struct found *find_targets(const struct search *search) {
    const struct found *items = search->items, *best = NULL;
    for (size_t i = 0; i < search->count; i++)
        if (has_usual_name(items[i].name) && (!best || items[i].rows > best->rows)) best = &items[i];
    if (best) return best;
    if (search->count != 2 || items[0].rows != items[1].rows || items[0].size == items[1].size) return NULL;
    return items[0].size < items[1].size ? &items[0] : &items[1];
}

/* The only other dataset with as many rows, or the one with the longest rows. */
static const struct found *find_inputs(const struct search *search, const struct found *targets) {
    const struct found *best = NULL;
    bool is_tied = false;
    for (size_t i = 0; i < search->count; i++) {
        const struct found *found = &search->items[i];
        if (found == targets || found->rows != targets->rows) continue;
        is_tied = best && found->size == best->size;
        if (!best || found->size > best->size) best = found;
    }
    return is_tied ? NULL : best;
}

static status not_clear(const struct search *search) {
    SCOPED_TEXT names = {0};
    for (size_t i = 0; i < search->count && names.length < 200; i++) {
        text_add(&names, i ? ", " : "");
        text_add_value(&names, search->items[i].name, TEXT_MAX_NAME);
    }
    return status_data("%s: it is not clear which datasets are the inputs and the targets; the file has: %s "
                       "(--target names the targets)",
                       search->path, names.length ? text_string(&names) : "no dataset of numbers");
}

/* The other datasets with as many rows. */
static void list_unused(const struct search *search, const struct found *x, const struct found *y, struct arena *arena,
                        struct string_list *unused) {
    unused->items = arena_alloc(arena, (search->count + 1) * sizeof *unused->items);
    for (size_t i = 0; i < search->count; i++) {
        const struct found *found = &search->items[i];
        if (found != x && found != y && found->rows == y->rows)
            unused->items[unused->count++] = arena_copy(arena, found->name);
    }
}

static status choose(const struct search *search, const char *target, struct arena *arena, const char **inputs,
                     const char **targets, struct string_list *unused) {
    const struct found *x = find(search, "x"), *y = find(search, target ? target : "y");
    bool have_usual_names = x && y;
    if (target && !y) return OK; /* opening the dataset says that it does not exist */
    if (!y) y = find_targets(search);
    if (y && !x) x = find_inputs(search, y);
    if (!x || !y) return not_clear(search);
    list_unused(search, x, y, arena, unused);
    if (have_usual_names) return OK;
    *inputs = arena_copy(arena, x->name);
    *targets = arena_copy(arena, y->name);
    return OK;
}

status hdf5_names_find(const char *path, const char *target, struct arena *arena, const char **inputs,
                       const char **targets, struct string_list *unused) {
    struct search *search = arena_alloc(arena, sizeof *search);
    uint64_t bytes;
    *inputs = *targets = NULL;
    *unused = (struct string_list){0};
    TRY(file_check(path, &bytes));
    search->path = path;
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    bool is_hdf5 = H5Fis_hdf5(path) > 0; /* if not, opening the dataset says so */
    status s = is_hdf5 ? hdf5_try_in_child(path, look_for_names, search) : OK;
    if (is_hdf5 && !s) s = look_for_names(search);
    hdf5_leave(&silence);
    return s || !is_hdf5 ? s : choose(search, target, arena, inputs, targets, unused);
}
