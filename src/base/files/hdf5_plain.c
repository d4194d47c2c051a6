/* Reads HDF5 files of the oldest format, which h5py and this program write, without libhdf5 and so without the child
 * process: both take longer than a short run. Nothing is trusted: each address is inside of the file, and
 * whatever is not exactly as these two write it is left to libhdf5, with its messages. */
#include <string.h>

#include "base/files/hdf5.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "base/text.h"

#define UNDEFINED UINT64_MAX
#define MAX_BLOCKS 8      /* of an object header */
#define MAX_LEVELS 32     /* of groups; hard links can form cycles */
#define MAX_NAME 1024     /* bytes of a link's name, with the zero */
#define MAX_READS 4000000 /* of a file: so that none is read for long */

struct metadata {
    const uint8_t *image; /* the whole file; NULL: it is read from [fd] */
    int fd;
    int reads;
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
    struct hdf5_plain_attributes *attributes; /* NULL: are not read */
};

static uint64_t number(const uint8_t *bytes, int size) {
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; i--) value = value << 8 | bytes[i];
    return value;
}

/* The bytes (size) at [address], until the next call; NULL: they are not in the file, or cannot be read. */
static const uint8_t *at(struct metadata *m, uint64_t address, size_t size) {
    if (address > m->end || size > m->end - address || ++m->reads > MAX_READS) return NULL;
    if (m->image) return m->image + address;
    if (size > sizeof m->bytes) return NULL;
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
    if (dims > MAX_DIMS + 1 || size < 8 + (size_t)(8 * dims) * (1 + b[2])) return false;
    for (int i = 0; i < dims; i++) {
        o->dataset.shape[i] = number(b + 8 + (size_t)(8 * i), 8);
        if (b[2] && number(b + 8 + (size_t)(8 * (dims + i)), 8) != o->dataset.shape[i]) return false; /* may grow */
    }
    return o->has_space = true;
}

static bool is_number(const uint8_t *b, size_t size, struct hdf5_plain *d) {
    static const struct {
        uint8_t exponent_bits;
        uint16_t bias;
    } floats[] = {[2] = {5, 15}, [4] = {8, 127}, [8] = {11, 1023}};
    size_t bytes = d->value_bytes;
    if (size < 12 || (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8)) return false;
    d->is_float = b[0] == 0x11;
    d->is_big = b[1] & 1;
    d->is_signed = d->is_float || b[1] & 8;
    if (b[3] != 0 || number(b + 8, 2) != 0 || number(b + 10, 2) != 8 * bytes) return false;
    if (!d->is_float) return (b[1] & ~9) == 0 && b[2] == 0;
    if (size < 20 || bytes == 1) return false;
    uint8_t mantissa_bits = (uint8_t)(8 * bytes - 1 - floats[bytes].exponent_bits);
    const uint8_t fields[] = {mantissa_bits, floats[bytes].exponent_bits, 0, mantissa_bits};
    return (b[1] & ~1) == 0x20 && b[2] == 8 * bytes - 1 && memcmp(b + 12, fields, sizeof fields) == 0 &&
           number(b + 16, 4) == floats[bytes].bias;
}

/* Integers and floats of IEEE 754 that fill their bytes, and texts of a fixed length. */
static bool read_type(const uint8_t *b, size_t size, struct hdf5_plain *d) {
    if (size < 8) return false;
    d->value_bytes = (size_t)number(b + 4, 4);
    d->is_text = b[0] == 0x13;
    if (d->is_text) return (b[1] & 15) <= 2 && b[1] >> 4 <= 1 && b[2] == 0 && b[3] == 0 && d->value_bytes > 0;
    return (b[0] == 0x10 || b[0] == 0x11) && is_number(b, size, d);
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

static size_t padded(size_t size) { return (size + 7) / 8 * 8; }

/* Sets what is asked for where the attribute has one value. */
static bool read_attribute(const uint8_t *b, size_t size, struct hdf5_plain_attributes *attributes) {
    if (size < 8 || b[0] != 1) return false;
    size_t length = (size_t)number(b + 2, 2), type = (size_t)number(b + 4, 2), space = (size_t)number(b + 6, 2);
    size_t start = 8 + padded(length) + padded(type) + padded(space);
    struct hdf5_plain of = {0};
    if (start > size || length == 0 || space < 8) return false;
    const char *name = (const char *)b + 8;
    const uint8_t *scalar = b + 8 + padded(length) + padded(type), *value = b + start;
    if (name[length - 1] != 0 || !read_type(b + 8 + padded(length), type, &of)) return true; /* another one */
    if (scalar[0] != 1 || scalar[1] != 0 || of.value_bytes > size - start) return true;
    if (of.is_text && strcmp(name, "format") == 0 && of.value_bytes < sizeof attributes->format) {
        memcpy(attributes->format, value, of.value_bytes);
        attributes->format[of.value_bytes] = 0;
    }
    bool is_integer = !of.is_text && !of.is_float && of.is_signed && !of.is_big;
    if (is_integer && strcmp(name, "format_version") == 0) {
        uint64_t sign = of.value_bytes < 8 ? (uint64_t)1 << (8 * of.value_bytes - 1) : 0;
        attributes->format_version = (int64_t)((number(value, (int)of.value_bytes) ^ sign) - sign);
    }
    return true;
}

static bool is_skipped(unsigned type) { /* nothing, a comment, two times of modification */
    return type == 0x00 || type == 0x0d || type == 0x0e || type == 0x12;
}

static bool read_message(unsigned type, const uint8_t *b, size_t size, struct object *o) {
    switch (type) {
    case 0x01:
        return read_space(b, size, o);
    case 0x03:
        return !o->has_type && (o->has_type = read_type(b, size, &o->dataset));
    case 0x05:
        return read_fill(b, size);
    case 0x08:
        return read_layout(b, size, o);
    case 0x0c:
        return read_attribute(b, size, o->attributes);
    case 0x11:
        return read_symbol_table(b, size, o);
    default:
        return false; /* filters, values in other files, links of the new format */
    }
}

struct header_block {
    uint64_t start, end;
};

static bool add_block(struct header_block *blocks, size_t *count, uint64_t start, uint64_t size) {
    if (*count == MAX_BLOCKS || size > UINT64_MAX - start) return false;
    blocks[(*count)++] = (struct header_block){start, start + size};
    return true;
}

/* [attributes]: NULL, or what to set. */
static bool read_object(struct metadata *m, uint64_t address, struct hdf5_plain_attributes *attributes,
                        struct object *o) {
    struct header_block blocks[MAX_BLOCKS];
    size_t count = 0;
    *o = (struct object){.attributes = attributes};
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
            if (b[4] > 1 || size % 8 != 0 || size > blocks[i].end - body) return false; /* shared messages */
            blocks[i].start = body + size;
            if (found++ == messages) return false;
            if (is_skipped(type) || (type == 0x0c && !attributes)) continue;
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

struct link {
    uint64_t name;   /* in the heap */
    uint64_t header; /* of its object */
    uint64_t kind;   /* 0, 1: hard */
};

/* A tree of the names of a group: its nodes, and on the lowest level leaves of links. Each is sorted. */
struct tree_node {
    unsigned level; /* 0: its children are leaves */
    uint64_t count;
};

static bool read_node(struct metadata *m, uint64_t address, struct tree_node *node) {
    const uint8_t *b = at(m, address, 24);
    if (!b || memcmp(b, "TREE\0", 5) != 0) return false;
    *node = (struct tree_node){.level = b[5], .count = number(b + 6, 2)};
    return true;
}

static bool read_leaf(struct metadata *m, uint64_t address, uint64_t *count) {
    const uint8_t *b = at(m, address, 8);
    if (!b || memcmp(b, "SNOD\1", 6) != 0) return false;
    *count = number(b + 6, 2);
    return true;
}

static bool read_link(struct metadata *m, uint64_t leaf, uint64_t index, struct link *link) {
    const uint8_t *b = at(m, leaf + 8 + 40 * index, 40);
    if (b) *link = (struct link){.name = number(b, 8), .header = number(b + 8, 8), .kind = number(b + 16, 4)};
    return b != NULL;
}

/* Until the next call of [at]; NULL: there is none of less than MAX_NAME bytes. */
static const char *name_at(struct metadata *m, const struct heap *heap, uint64_t offset) {
    if (offset >= heap->size) return NULL;
    size_t left = heap->size - offset < MAX_NAME ? (size_t)(heap->size - offset) : MAX_NAME;
    const char *name = (const char *)at(m, heap->start + offset, left);
    return name && memchr(name, 0, left) ? name : NULL;
}

/* A search for the link [name] (length) of a group, by the same steps as libhdf5: in a damaged tree, too, it finds no
 * other link. */
struct search {
    struct metadata *m;
    struct heap heap;
    const char *name;
    size_t length;
    uint64_t header; /* of the group, then of what was found */
};

/* *order: as strcmp of what is searched and the name in the heap. */
static bool compare(const struct search *search, uint64_t offset, int *order) {
    const char *name = name_at(search->m, &search->heap, offset);
    if (!name) return false;
    *order = strncmp(search->name, name, search->length);
    if (*order == 0 && name[search->length]) *order = -1;
    return true;
}

/* *order of the child [index] of a node: whether its names are behind, before or around the one that is searched. */
static bool compare_child(const struct search *search, uint64_t node, uint64_t index, uint64_t *child, int *order) {
    const uint8_t *b = at(search->m, node + 24 + 16 * index, 24);
    if (!b) return false;
    uint64_t before = number(b, 8), last = number(b + 16, 8);
    *child = number(b + 8, 8);
    if (!compare(search, before, order)) return false;
    bool is_behind = *order > 0;
    if (is_behind && !compare(search, last, order)) return false;
    if (*order <= 0) *order = is_behind ? 0 : -1;
    return true;
}

/* The same of the link [index] of a leaf. */
static bool compare_link(const struct search *search, uint64_t leaf, uint64_t index, uint64_t *header, int *order) {
    struct link link;
    if (!read_link(search->m, leaf, index, &link) || !compare(search, link.name, order)) return false;
    *header = link.header;
    return *order != 0 || link.kind <= 1;
}

static bool find_in(const struct search *search, uint64_t address, uint64_t count, bool is_leaf, uint64_t *found) {
    int order = 1;
    for (uint64_t low = 0, high = count; low < high && order != 0;) {
        uint64_t middle = (low + high) / 2;
        if (!(is_leaf ? compare_link : compare_child)(search, address, middle, found, &order)) return false;
        if (order < 0) high = middle;
        if (order > 0) low = middle + 1;
    }
    return order == 0;
}

static bool find_link(struct search *search, const struct object *group) {
    struct tree_node node;
    uint64_t address = group->tree, count;
    if (!group->is_group || !read_heap(search->m, group->heap, &search->heap)) return false;
    if (!read_node(search->m, address, &node)) return false;
    for (unsigned level = node.level;; level--) {
        if (node.level != level || !find_in(search, address, node.count, false, &address)) return false;
        if (level == 0) break;
        if (!read_node(search->m, address, &node)) return false;
    }
    return read_leaf(search->m, address, &count) && find_in(search, address, count, true, &search->header);
}

/* ---- datasets ---- */

/* The values fill what is stored for them, which is in the file. */
static bool check_dataset(const struct metadata *m, const struct object *o) {
    const struct hdf5_plain *d = &o->dataset;
    uint64_t bytes = d->value_bytes;
    if (o->is_group || !o->has_space || !o->has_type || !o->has_layout) return false;
    for (int i = 0; i < d->dims; i++)
        if (__builtin_mul_overflow(bytes, d->shape[i], &bytes)) return false;
    return bytes == o->stored && (bytes == 0 || (d->start <= m->end && bytes <= m->end - d->start));
}

bool hdf5_plain_find(int fd, uint64_t file_bytes, const char *name, struct hdf5_plain *out) {
    struct metadata m = {.fd = fd, .end = file_bytes};
    struct search search = {.m = &m};
    struct object o;
    if (!read_superblock(&m, &search.header)) return false;
    for (bool is_last = false; !is_last; name += search.length + 1) {
        search.name = name;
        search.length = strcspn(name, "/");
        is_last = name[search.length] == 0;
        if (search.length == 0 || (search.length == 1 && name[0] == '.')) return false;
        if (!read_object(&m, search.header, NULL, &o)) return false;
        if (!find_link(&search, &o)) return false;
    }
    if (!read_object(&m, search.header, NULL, &o) || !check_dataset(&m, &o)) return false;
    *out = o.dataset;
    return true;
}

struct walk {
    struct metadata *m;
    hdf5_plain_visitor *visit;
    void *context;
    struct text *path;
    int level;
    struct heap heap; /* of the group, whose last name was [last] */
    const char *last;
};

static bool walk_group(const struct walk *walk, const struct object *group);

static bool walk_link(struct walk *walk, const struct link *link) {
    struct object o;
    size_t length = walk->path->length;
    const char *name = name_at(walk->m, &walk->heap, link->name), *last = walk->last;
    if (link->kind > 1 || !name || (last && strcmp(last, name) >= 0)) return false;
    if (!*name || strcmp(name, ".") == 0 || strchr(name, '/')) return false;
    walk->last = name; /* in the image */
    if (!read_object(walk->m, link->header, NULL, &o)) return false;
    text_printf(walk->path, "%s%s", length ? "/" : "", name);
    bool is_plain = o.is_group
                        ? walk_group(walk, &o)
                        : check_dataset(walk->m, &o) && walk->visit(walk->context, text_string(walk->path), &o.dataset);
    walk->path->length = length;
    walk->path->data[length] = 0;
    return is_plain;
}

static bool walk_leaf(struct walk *walk, uint64_t leaf) {
    struct link link;
    uint64_t count;
    if (!read_leaf(walk->m, leaf, &count)) return false;
    for (uint64_t i = 0; i < count; i++)
        if (!read_link(walk->m, leaf, i, &link) || !walk_link(walk, &link)) return false;
    return true;
}

static bool walk_node(struct walk *walk, uint64_t address, const struct tree_node *node) {
    for (uint64_t i = 0; i < node->count; i++) {
        struct tree_node child;
        const uint8_t *b = at(walk->m, address + 32 + 16 * i, 8);
        if (!b) return false;
        uint64_t next = number(b, 8);
        bool is_leaf = node->level == 0, is_good = is_leaf || read_node(walk->m, next, &child);
        if (!is_good || (!is_leaf && child.level + 1 != node->level)) return false;
        if (!(is_leaf ? walk_leaf(walk, next) : walk_node(walk, next, &child))) return false;
    }
    return true;
}

static bool walk_group(const struct walk *walk, const struct object *group) {
    struct walk inner = *walk;
    struct tree_node top;
    inner.last = NULL;
    return inner.level++ < MAX_LEVELS && group->is_group && read_heap(walk->m, group->heap, &inner.heap) &&
           read_node(walk->m, group->tree, &top) && walk_node(&inner, group->tree, &top);
}

bool hdf5_plain_walk(const void *image, size_t size, struct hdf5_plain_attributes *attributes,
                     hdf5_plain_visitor *visit, void *context) {
    struct metadata m = {.image = image, .end = size};
    struct object root;
    uint64_t address;
    SCOPED_TEXT path = {0};
    struct walk walk = {.m = &m, .visit = visit, .context = context, .path = &path};
    *attributes = (struct hdf5_plain_attributes){0};
    return read_superblock(&m, &address) && read_object(&m, address, attributes, &root) && walk_group(&walk, &root);
}
