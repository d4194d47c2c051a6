/* The types are those of NumPy, whose conversion to doubles is that of npy_header.h. */
#include "data/source/hdf5_piece.h"

#include <fcntl.h>

#include "base/files/io.h"

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

void hdf5_piece_find(hid_t dataset, const struct hdf5_rows *rows, int fd, const char *path, struct hdf5_piece *out) {
    *out = (struct hdf5_piece){.path = path, .fd = fd, .of = {.size = rows->size, .rows = (size_t)rows->shape[0]}};
    haddr_t start = H5Dget_offset(dataset); /* undefined for chunks and for values in the dataset's header */
    hid_t type = hdf5_value_type(dataset);
    if (start != HADDR_UNDEF && type >= 0) find_type(type, &out->of);
    out->start = start;
    if (type >= 0) H5Tclose(type);
}

bool hdf5_piece_is(const struct hdf5_piece *piece, const char *type) {
    return piece->of.type == npy_type_named(type) && !piece->of.is_swapped;
}

static uint64_t row_bytes(const struct hdf5_piece *piece) { return (uint64_t)piece->of.size * piece->of.type->bytes; }

status hdf5_piece_read_raw(const struct hdf5_piece *piece, size_t first, size_t count, void *out) {
    size_t bytes = count * (size_t)row_bytes(piece), got;
    TRY(io_read_at(piece->fd, piece->path, out, bytes, piece->start + first * row_bytes(piece), &got));
    if (got == bytes) return OK;
    return status_new(STATUS_DATA, "%s: the file was truncated after it was opened", piece->path);
}

/* The raw values are read to the end of [out], so that a conversion does not overwrite values that follow. */
status hdf5_piece_read(const struct hdf5_piece *piece, size_t first, size_t count, double *out) {
    size_t values = count * piece->of.size, width = piece->of.type->bytes;
    uint8_t *raw = (uint8_t *)out + values * (sizeof *out - width);
    TRY(hdf5_piece_read_raw(piece, first, count, raw));
    npy_header_convert(&piece->of, raw, values, out);
    return OK;
}

void hdf5_piece_will_read(const struct hdf5_piece *piece, size_t row) {
    if (!piece->of.type) return;
    posix_fadvise(piece->fd, (off_t)(piece->start + row * row_bytes(piece)), (off_t)row_bytes(piece),
                  POSIX_FADV_WILLNEED);
}
