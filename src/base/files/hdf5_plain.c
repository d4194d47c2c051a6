/* Finds datasets in HDF5 files of the oldest format, which h5py and this program write, without libhdf5 and so without
 * the child process: both take longer than a short run. Nothing is trusted: each address is inside of the file, and
 * whatever is not exactly as these two write it is left to libhdf5, with its messages. */
#include <string.h>

#include "base/files/hdf5.h"
#include "base/files/io.h"

#define UNDEFINED UINT64_MAX
#define MAX_BLOCKS 8   /* of an object header */
#define MAX_NODES 64   /* of the tree of a group: some hundred links */
#define MAX_ENTRIES 64 /* of a node: twice the largest that libhdf5 writes, so that no file is read for long */

struct metadata {
    int fd;
    uint64_t end;   /* of what the file says to be its own */
    uint64_t start; /* of bytes (size) in the file */
    size_t size;
    uint8_t bytes[4096];
};

/* An object header. */
struct object {
    bool is_group, has_space, has_type, has_layout;
    uint64_t tree, heap; /* of a group */
    uint64_t stored;     /* bytes of the values of a dataset */
    struct hdf5_plain dataset;
};

static uint64_t number(const uint8_t *bytes, int size) {
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; i--) value = value << 8 | bytes[i];
    return value;
}

/* The bytes (size) at [address], until the next call; NULL: they are not in the file, or cannot be read. */
static const uint8_t *at(struct metadata *m, uint64_t address, size_t size) {
    if (size > sizeof m->bytes || address > m->end || size > m->end - address) return NULL;
    if (address < m->start || address - m->start > m->size || size > m->size - (address - m->start)) {
        size_t wanted = m->end - address < sizeof m->bytes ? (size_t)(m->end - address) : sizeof m->bytes;
        m->start = address;
        status s = io_read_at(m->fd, "", m->bytes, wanted, address, &m->size);
        if (s) m->size = 0; /* libhdf5 will find the same */
        status_free(s);
        if (size > m->size) return NULL;
    }
    return m->bytes + (address - m->start);
}

static bool read_superblock(struct metadata *m, uint64_t *root) {
    static const uint8_t head[] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n', 0, 0, 0, 0, 0, 8, 8, 0};
    const uint8_t *b = at(m, 0, 96);
    if (!b || memcmp(b, head, sizeof head) != 0) return false;
    bool is_plain = number(b + 20, 4) == 0 && number(b + 24, 8) == 0 && number(b + 32, 8) == UNDEFINED &&
                    number(b + 40, 8) <= m->end && number(b + 48, 8) == UNDEFINED;
    m->end = number(b + 40, 8);
    *root = number(b + 64, 8);
    return is_plain;
}

/* ---- messages of an object header ---- */

static bool read_space(const uint8_t *b, size_t size, struct object *o) {
    if (size < 8 || o->has_space || b[0] != 1 || b[2] > 1) return false;
    int dims = o->dataset.dims = b[1];
    if (dims < 1 || dims > MAX_DIMS + 1 || size < 8 + (size_t)(8 * dims) * (1 + b[2])) return false;
    for (int i = 0; i < dims; i++) {
        o->dataset.shape[i] = number(b + 8 + (size_t)(8 * i), 8);
        if (b[2] && number(b + 8 + (size_t)(8 * (dims + i)), 8) != o->dataset.shape[i]) return false; /* may grow */
    }
    return o->has_space = true;
}

/* Integers and floats of IEEE 754 that fill their bytes. */
static bool read_type(const uint8_t *b, size_t size, struct object *o) {
    static const struct {
        uint8_t exponent_bits;
        uint16_t bias;
    } floats[] = {[2] = {5, 15}, [4] = {8, 127}, [8] = {11, 1023}};
    if (size < 12 || o->has_type || (b[0] != 0x10 && b[0] != 0x11)) return false;
    uint64_t bytes = number(b + 4, 4);
    struct hdf5_plain *d = &o->dataset;
    if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) return false;
    d->value_bytes = (size_t)bytes;
    d->is_float = b[0] == 0x11;
    d->is_big = b[1] & 1;
    d->is_signed = d->is_float || b[1] & 8;
    o->has_type = b[3] == 0 && number(b + 8, 2) == 0 && number(b + 10, 2) == 8 * bytes;
    if (!d->is_float) return o->has_type = o->has_type && (b[1] & ~9) == 0 && b[2] == 0;
    if (size < 20 || bytes == 1) return false;
    uint8_t mantissa_bits = (uint8_t)(8 * bytes - 1 - floats[bytes].exponent_bits);
    const uint8_t fields[] = {mantissa_bits, floats[bytes].exponent_bits, 0, mantissa_bits};
    o->has_type = o->has_type && (b[1] & ~1) == 0x20 && b[2] == 8 * bytes - 1 &&
                  memcmp(b + 12, fields, sizeof fields) == 0 && number(b + 16, 4) == floats[bytes].bias;
    return o->has_type;
}

static bool read_fill(const uint8_t *b, size_t size) {
    bool is_good = size >= 4 && b[0] == 2 && b[1] >= 1 && b[1] <= 3 && b[2] <= 2 && b[3] <= 1;
    return is_good && (b[3] == 0 || (size >= 8 && number(b + 4, 4) <= size - 8));
}

/* In one piece. */
static bool read_layout(const uint8_t *b, size_t size, struct object *o) {
    if (size < 18 || o->has_layout || b[0] != 3 || b[1] != 1) return false;
    o->dataset.start = number(b + 2, 8);
    o->stored = number(b + 10, 8);
    return o->has_layout = true;
}

static bool read_symbol_table(const uint8_t *b, size_t size, struct object *o) {
    if (size < 16 || o->is_group) return false;
    o->tree = number(b, 8);
    o->heap = number(b + 8, 8);
    return o->is_group = true;
}

static bool is_skipped(unsigned type) { /* nothing, a comment, an attribute, two times of modification */
    return type == 0x00 || type == 0x0d || type == 0x0c || type == 0x0e || type == 0x12;
}

static bool read_message(unsigned type, const uint8_t *b, size_t size, struct object *o) {
    switch (type) {
    case 0x01:
        return read_space(b, size, o);
    case 0x03:
        return read_type(b, size, o);
    case 0x05:
        return read_fill(b, size);
    case 0x08:
        return read_layout(b, size, o);
    case 0x11:
        return read_symbol_table(b, size, o);
    default:
        return false; /* filters, values in other files, links of the new format */
    }
}

struct block {
    uint64_t start, end;
};

static bool add_block(struct block *blocks, size_t *count, uint64_t start, uint64_t size) {
    if (*count == MAX_BLOCKS || size > UINT64_MAX - start) return false;
    blocks[(*count)++] = (struct block){start, start + size};
    return true;
}

static bool read_object(struct metadata *m, uint64_t address, struct object *o) {
    struct block blocks[MAX_BLOCKS];
    size_t count = 0;
    *o = (struct object){0};
    const uint8_t *b = at(m, address, 16);
    if (!b || b[0] != 1) return false;
    uint64_t messages = number(b + 2, 2), found = 0;
    if (!add_block(blocks, &count, address + 16, number(b + 8, 4))) return false;
    for (size_t i = 0; i < count; i++)
        while (blocks[i].end - blocks[i].start >= 8) {
            if (!(b = at(m, blocks[i].start, 8))) return false;
            unsigned type = (unsigned)number(b, 2);
            size_t size = (size_t)number(b + 2, 2);
            uint64_t body = blocks[i].start + 8;
            if (b[4] > 1 || size > blocks[i].end - body) return false; /* shared messages */
            blocks[i].start = body + size;
            if (found++ == messages) return false;
            if (is_skipped(type)) continue;
            if (!(b = at(m, body, size))) return false;
            bool is_block = type == 0x10 && size >= 16;
            if (is_block ? !add_block(blocks, &count, number(b, 8), number(b + 8, 8)) : !read_message(type, b, size, o))
                return false;
        }
    return found == messages;
}

/* ---- groups ---- */

/* The names of a group. */
struct heap {
    uint64_t start, size;
};

static bool read_heap(struct metadata *m, uint64_t address, struct heap *heap) {
    const uint8_t *b = at(m, address, 32);
    if (!b || memcmp(b, "HEAP\0\0\0\0", 8) != 0) return false;
    heap->size = number(b + 8, 8);
    heap->start = number(b + 24, 8);
    return heap->start <= m->end && heap->size <= m->end - heap->start;
}

static bool is_name(struct metadata *m, const struct heap *heap, uint64_t offset, const char *name, size_t length) {
    if (offset > heap->size || length >= heap->size - offset) return false;
    const uint8_t *b = at(m, heap->start + offset, length + 1);
    return b && memcmp(b, name, length) == 0 && b[length] == 0;
}

/* Sets *object where the link is in this node of symbols. false: the node is damaged, or the link is a soft one. */
static bool find_in_node(struct metadata *m, uint64_t node, const struct heap *heap, const char *name, size_t length,
                         uint64_t *object) {
    const uint8_t *b = at(m, node, 8);
    if (!b || memcmp(b, "SNOD\1", 6) != 0) return false;
    uint64_t count = number(b + 6, 2);
    if (count > MAX_ENTRIES) return false;
    for (uint64_t i = 0; i < count && *object == UNDEFINED; i++) {
        if (!(b = at(m, node + 8 + 40 * i, 40))) return false;
        uint64_t offset = number(b, 8), header = number(b + 8, 8), kind = number(b + 16, 4);
        if (!is_name(m, heap, offset, name, length)) continue;
        if (kind > 1) return false;
        *object = header;
    }
    return true;
}

/* The leaves of a tree are a list from the left to the right. */
static bool find_link(struct metadata *m, const struct object *group, const char *name, size_t length,
                      uint64_t *object) {
    struct heap heap;
    uint64_t node = group->tree;
    *object = UNDEFINED;
    if (!group->is_group || !read_heap(m, group->heap, &heap)) return false;
    for (int i = 0; i < MAX_NODES && node != UNDEFINED; i++) {
        const uint8_t *b = at(m, node, 24);
        if (!b || memcmp(b, "TREE\0", 5) != 0) return false;
        unsigned level = b[5];
        uint64_t count = number(b + 6, 2), right = number(b + 16, 8);
        if (count > MAX_ENTRIES) return false;
        for (uint64_t k = 0; k < count && *object == UNDEFINED; k++) {
            if (!(b = at(m, node + 32 + 16 * k, 8))) return false;
            uint64_t child = number(b, 8);
            if (level > 0) {
                right = child;
                break;
            }
            if (!find_in_node(m, child, &heap, name, length, object)) return false;
        }
        if (*object != UNDEFINED) return true;
        node = right;
    }
    return false;
}

/* ---- datasets ---- */

/* The values fill what is stored for them, which is in the file. */
static bool check_dataset(const struct metadata *m, const struct object *o) {
    const struct hdf5_plain *d = &o->dataset;
    uint64_t bytes = d->value_bytes;
    if (o->is_group || !o->has_space || !o->has_type || !o->has_layout) return false;
    for (int i = 0; i < d->dims; i++)
        if (d->shape[i] == 0 || __builtin_mul_overflow(bytes, d->shape[i], &bytes)) return false;
    return bytes == o->stored && d->start <= m->end && bytes <= m->end - d->start;
}

bool hdf5_plain_find(int fd, uint64_t file_bytes, const char *name, struct hdf5_plain *out) {
    struct metadata m = {.fd = fd, .end = file_bytes};
    struct object o;
    uint64_t address;
    if (!read_superblock(&m, &address)) return false;
    for (;; name++) {
        size_t length = strcspn(name, "/");
        if (!read_object(&m, address, &o)) return false;
        if (length == 0 || (length == 1 && name[0] == '.')) return false;
        if (!find_link(&m, &o, name, length, &address)) return false;
        name += length;
        if (!*name) break;
    }
    if (!read_object(&m, address, &o) || !check_dataset(&m, &o)) return false;
    *out = o.dataset;
    return true;
}
