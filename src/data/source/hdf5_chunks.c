/* The filters of a chunk are undone from the last to the first. Only one of them may compress, and no shuffle may come
 * after it, so what is expanded are always the bytes of the file. */
#include "data/source/hdf5_chunks.h"

#include <stdlib.h>
#include <zlib.h>

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
            return status_new(STATUS_DATA,
                              "%s: dataset '%s' is compressed by filters in an order that is not read; write it again "
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

status hdf5_chunks_open(hid_t dataset, const char *path, const char *name, const struct hdf5_rows *shape,
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

void hdf5_chunks_close(struct hdf5_chunks *c) {
    if (!c) return;
    free(c->is_checked);
    free(c->raw);
    free(c);
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
    return status_new(STATUS_DATA, "%s: dataset '%s', the chunk of row %llu %s; the file is damaged or crafted",
                      c->path, c->name, (unsigned long long)row, what);
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

status hdf5_chunks_check(struct hdf5_chunks *c, size_t first, size_t count) {
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
