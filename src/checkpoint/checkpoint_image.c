/* The metadata are written here and not by libhdf5, whose start and calls took a third of a run of one step. The format
 * is the oldest, which every reader supports: for each group a header, a tree of one level, its nodes of links and a
 * heap of names; for each dataset a header. All of it is at the start of the file, before the data, which are
 * contiguous and in the order of the entries; there are no times. Equal states give equal bytes. The names of the parts
 * are those of "HDF5 File Format Specification Version 3.0". */
#include "checkpoint/checkpoint_image.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "checkpoint/checkpoint_hdf5.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file's numbers are copied as they are in memory");

static const size_t item_sizes[] = {[ENTRY_FLOAT32] = 4, [ENTRY_FLOAT64] = 8, [ENTRY_INT64] = 8, [ENTRY_TEXT] = 1};

static size_t data_size(const struct entry *entry) {
    if (entry->type == ENTRY_TEXT) return strlen(entry->data);
    size_t size = item_sizes[entry->type];
    for (int d = 0; d < entry->dims; d++) size *= (size_t)entry->shape[d];
    return size;
}

/* ---- the metadata ---- */

#define UNDEFINED UINT64_MAX
#define LEAVES 32    /* nodes of links of a group: twice the k of a tree */
#define MIN_LEAF_K 4 /* half of the links of a node */
#define DATA_ALIGNMENT 8

static const unsigned char zeros[4096];

/* A link of a group that is being written. */
struct link {
    const char *name;
    size_t length;
    uint64_t at_name; /* in the heap of names */
    uint64_t header;
    bool is_group;
    uint64_t tree, heap; /* of a group */
};

struct writer {
    unsigned char *bytes; /* NULL: only counts */
    uint64_t at;
    const struct image_entry **sorted; /* (count) */
    struct link *links;                /* of all groups that are open; as many as there are entries and groups */
    size_t link_count;
    size_t leaf_k, max_links; /* of a group */
    const char *wrong;        /* a path that cannot be in a file */
};

static void put(struct writer *w, uint64_t value, size_t size) {
    for (size_t i = 0; i < size && w->bytes; i++) w->bytes[w->at + i] = (unsigned char)(value >> 8 * i);
    w->at += size;
}

static void put_bytes(struct writer *w, const void *bytes, size_t size) {
    if (w->bytes && size) memcpy(w->bytes + w->at, bytes, size);
    w->at += size;
}

/* Zeros up to the next multiple of 8. */
static void pad(struct writer *w) { put(w, 0, (size_t)(-w->at % 8)); }

static void skip(struct writer *w, uint64_t size) { w->at += size; } /* the memory is zero */

static void put_header(struct writer *w, unsigned messages, uint64_t size) {
    put(w, 1, 2); /* version */
    put(w, messages, 2);
    put(w, 1, 4); /* one link */
    put(w, size, 8);
}

static void put_message(struct writer *w, unsigned type, size_t size) {
    put(w, type, 2);
    put(w, size, 2);
    put(w, type == 0x03 || type == 0x05, 4); /* never changes */
}

static size_t padded(size_t size) { return (size + 7) / 8 * 8; }

static size_t type_size(enum entry_type type) { return type == ENTRY_TEXT ? 8 : type == ENTRY_INT64 ? 12 : 20; }

/* Integers of 4 bytes are ENTRY_INT64 with [bytes] 4. */
static void put_type(struct writer *w, enum entry_type type, uint64_t bytes) {
    if (type == ENTRY_TEXT) {
        put(w, 0x1113, 4); /* UTF-8, padded with zeros */
        put(w, bytes, 4);
        return;
    }
    bool is_float = type != ENTRY_INT64;
    put(w, is_float ? 0x11 | 0x2000 | (8 * bytes - 1) << 16 : 0x10 | 0x0800, 4);
    put(w, bytes, 4);
    put(w, 8 * bytes << 16, 4); /* all bits */
    if (is_float) put(w, bytes == 4 ? 0x7f17000817 : 0x3ff34000b34, 8);
    pad(w);
}

static size_t space_size(int dims) { return 8 + (size_t)dims * 16; }

static void put_space(struct writer *w, int dims, const int64_t *shape) {
    put(w, 1, 1);
    put(w, (uint64_t)dims, 1);
    put(w, dims > 0, 6);
    for (int i = 0; i < 2 * dims; i++) put(w, (uint64_t)shape[i % dims], 8); /* the shape and its maximum */
}

/* What a dataset has in the file: texts of 0 bytes do not exist. */
static uint64_t stored_bytes(const struct image_entry *place) {
    return place->type == ENTRY_TEXT && place->size == 0 ? 1 : place->size;
}

static uint64_t put_dataset(struct writer *w, const struct image_entry *place) {
    static const unsigned char fill[] = {2, 1, 1, 1, 0, 0, 0, 0}; /* allocated early, never written */
    uint64_t header = w->at, stored = stored_bytes(place);
    size_t space = space_size(place->dims), type = padded(type_size(place->type));
    put_header(w, 4, 4 * 8 + space + type + 8 + 24);
    put_message(w, 0x01, space);
    put_space(w, place->dims, place->shape);
    put_message(w, 0x03, type);
    put_type(w, place->type, place->type == ENTRY_TEXT ? stored : item_sizes[place->type]);
    put_message(w, 0x05, sizeof fill);
    put_bytes(w, fill, sizeof fill);
    put_message(w, 0x08, 24);
    put(w, 0x0103, 2); /* contiguous */
    put(w, stored ? place->offset : UNDEFINED, 8);
    put(w, stored, 8);
    pad(w);
    return header;
}

static void put_attribute(struct writer *w, const char *name, enum entry_type type, uint64_t bytes, const void *value) {
    size_t length = strlen(name) + 1;
    put_message(w, 0x0c, 8 + padded(length) + padded(type_size(type)) + 8 + padded((size_t)bytes));
    put(w, 1, 2);
    put(w, length, 2);
    put(w, type_size(type), 2);
    put(w, 8, 2);
    put_bytes(w, name, length);
    pad(w);
    put_type(w, type, bytes);
    put_space(w, 0, NULL);
    put_bytes(w, value, (size_t)bytes);
    pad(w);
}

/* ---- groups ---- */

static void put_heap(struct writer *w, struct link *links, size_t count) {
    uint64_t size = 8; /* an empty name first */
    for (size_t i = 0; i < count; i++) {
        links[i].at_name = size;
        size += padded(links[i].length + 1);
    }
    put_bytes(w, "HEAP\0\0\0", 8);
    put(w, size, 8);
    put(w, 1, 8); /* nothing is free */
    put(w, w->at + 8, 8);
    skip(w, 8);
    for (size_t i = 0; i < count; i++) {
        put_bytes(w, links[i].name, links[i].length);
        put(w, 0, 1);
        pad(w);
    }
}

static void put_leaf(struct writer *w, const struct link *links, size_t count) {
    uint64_t end = w->at + 8 + 40 * 2 * w->leaf_k;
    put_bytes(w, "SNOD\1", 6);
    put(w, count, 2);
    for (size_t i = 0; i < count; i++) {
        put(w, links[i].at_name, 8);
        put(w, links[i].header, 8);
        put(w, links[i].is_group, 8);
        put(w, links[i].tree, 8);
        put(w, links[i].heap, 8);
    }
    w->at = end;
}

static void put_tree(struct writer *w, const struct link *links, size_t count, uint64_t leaves) {
    size_t per_leaf = 2 * w->leaf_k, leaf_count = (count + per_leaf - 1) / per_leaf;
    uint64_t end = w->at + 24 + 8 * (2 * LEAVES + 1);
    put_bytes(w, "TREE\0", 6);
    put(w, leaf_count, 2);
    put(w, UNDEFINED, 8); /* no siblings */
    put(w, UNDEFINED, 8);
    put(w, 0, 8);
    for (size_t i = 0; i < leaf_count && i < LEAVES; i++) {
        size_t last = (i + 1) * per_leaf < count ? (i + 1) * per_leaf : count;
        put(w, leaves + i * (8 + 40 * per_leaf), 8);
        put(w, links[last - 1].at_name, 8);
    }
    w->at = end;
}

/* The heap, leaves and tree of a group whose objects are written. */
static void put_links(struct writer *w, struct link *links, size_t count, struct link *group) {
    group->heap = w->at;
    put_heap(w, links, count);
    uint64_t leaves = w->at;
    for (size_t i = 0; i < count; i += 2 * w->leaf_k)
        put_leaf(w, links + i, count - i < 2 * w->leaf_k ? count - i : 2 * w->leaf_k);
    group->tree = w->at;
    put_tree(w, links, count, leaves);
    if (count > w->max_links) w->max_links = count;
}

static void put_group_message(struct writer *w, const struct link *group) {
    put_message(w, 0x11, 16);
    put(w, group->tree, 8);
    put(w, group->heap, 8);
}

/* The objects of the sorted places [first, last), which are in [group], and its links. [skipped]: bytes of each path up
 * to the group. */
static void put_objects(struct writer *w, size_t first, size_t last, size_t skipped, struct link *group) {
    size_t base = w->link_count;
    for (size_t i = first, next; i < last; i = next) {
        const char *path = w->sorted[i]->path, *name = path + skipped;
        struct link link = {.name = name, .length = strcspn(name, "/")};
        const struct link *before = w->link_count > base ? &w->links[w->link_count - 1] : NULL;
        link.is_group = name[link.length] == '/';
        if (link.length == 0 ||
            (before && before->length == link.length && memcmp(before->name, name, link.length) == 0))
            w->wrong = path;
        for (next = i + 1; link.is_group && next < last; next++)
            if (strncmp(w->sorted[next]->path + skipped, name, link.length + 1) != 0) break;
        if (link.is_group) {
            put_objects(w, i, next, skipped + link.length + 1, &link);
            link.header = w->at;
            put_header(w, 1, 24);
            put_group_message(w, &link);
        } else {
            link.header = put_dataset(w, w->sorted[i]);
        }
        w->links[w->link_count++] = link;
    }
    put_links(w, w->links + base, w->link_count - base, group);
    w->link_count = base;
}

/* ---- the file ---- */

static void put_superblock(struct writer *w, uint64_t file_bytes, const struct link *root) {
    w->at = 0;
    put_bytes(w, "\x89HDF\r\n\x1a\n", 8);
    put(w, 0, 5);      /* versions */
    put(w, 0x0808, 3); /* bytes of an address and of a length */
    put(w, w->leaf_k, 2);
    put(w, LEAVES / 2, 2);
    put(w, 0, 4);
    put(w, 0, 8); /* the base of all addresses */
    put(w, UNDEFINED, 8);
    put(w, file_bytes, 8);
    put(w, UNDEFINED, 8);
    put(w, 0, 8); /* the link to the root */
    put(w, root->header, 8);
    put(w, 1, 8);
    put(w, root->tree, 8);
    put(w, root->heap, 8);
}

/* Returns the size of the metadata. */
static uint64_t put_metadata(struct writer *w, const struct image *image) {
    struct link root = {0};
    w->at = 96; /* behind the superblock */
    w->max_links = w->link_count = 0;
    put_objects(w, 0, image->count, 0, &root);
    root.header = w->at;
    put_header(w, 3, 0);
    put_group_message(w, &root);
    put_attribute(w, "format", ENTRY_TEXT, strlen(CHECKPOINT_FORMAT), CHECKPOINT_FORMAT);
    put_attribute(w, "format_version", ENTRY_INT64, 4, &(int32_t){CHECKPOINT_FORMAT_VERSION});
    uint64_t size = w->at;
    w->at = root.header;
    put_header(w, 3, size - root.header - 16);
    put_superblock(w, image->size, &root);
    return size;
}

/* By name in each group: a slash is less than all other characters. */
static int compare_places(const void *a, const void *b) {
    const unsigned char *x = (const unsigned char *)(*(const struct image_entry *const *)a)->path,
                        *y = (const unsigned char *)(*(const struct image_entry *const *)b)->path;
    while (*x && *x == *y) x++, y++;
    return (*x == '/' ? 0 : *x + 1) - (*y == '/' ? 0 : *y + 1);
}

/* Sets the offset of each place behind the metadata (size), and the size of the file. */
static void place_data(struct image *image, uint64_t metadata) {
    image->size = (size_t)metadata;
    for (size_t i = 0; i < image->count; i++) {
        uint64_t stored = stored_bytes(&image->places[i]);
        if (stored == 0) continue;
        image->places[i].offset = (image->size + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT;
        image->size = (size_t)(image->places[i].offset + stored);
    }
}

static size_t count_links(const struct image *image) {
    size_t count = image->count;
    for (size_t i = 0; i < image->count; i++)
        for (const char *c = image->places[i].path; *c; c++) count += *c == '/';
    return count;
}

static status write_metadata(struct writer *w, struct image *image, bool is_reference) {
    w->leaf_k = MIN_LEAF_K;
    put_metadata(w, image); /* counts the links of a group */
    if (w->max_links > 2 * LEAVES * w->leaf_k) w->leaf_k = (w->max_links - 1) / (2 * LEAVES) + 1;
    if (w->wrong) return status_new(STATUS_BUG, "checkpoint: '%s' cannot be created", w->wrong);
    if (w->leaf_k > INT16_MAX) return status_new(STATUS_BUG, "checkpoint: a group of %zu entries", w->max_links);
    uint64_t metadata = put_metadata(w, image);
    place_data(image, metadata);
    bool has_data = !is_reference || image->size <= IMAGE_MAX_COPY;
    image->stored = has_data ? image->size : (size_t)metadata;
    TRY(buffer_new(image->stored, "the checkpoint", (void **)&image->bytes));
    w->bytes = image->bytes;
    put_metadata(w, image);
    return OK;
}

static status create_metadata(struct image *image, bool is_reference) {
    struct writer w = {.sorted = calloc(image->count + 1, sizeof *w.sorted),
                       .links = calloc(count_links(image) + 1, sizeof *w.links)};
    image->parts = calloc(3 * image->count + 3, sizeof *image->parts);
    status s = OK;
    if (!w.sorted || !w.links || !image->parts) s = status_memory("the %zu entries of a checkpoint", image->count);
    for (size_t i = 0; i < image->count && !s; i++) w.sorted[i] = &image->places[i];
    if (!s) qsort(w.sorted, image->count, sizeof *w.sorted, compare_places);
    if (!s) s = write_metadata(&w, image, is_reference);
    free(w.sorted);
    free(w.links);
    return s;
}

static status copy_places(struct image *image, const struct entry *entries, size_t count) {
    image->places = calloc(count ? count : 1, sizeof *image->places);
    if (!image->places) return status_memory("the %zu entries of a checkpoint", count);
    for (size_t i = 0; i < count; i++) {
        struct image_entry *place = &image->places[i];
        assert(entries[i].dims <= MAX_DIMS && (entries[i].type != ENTRY_TEXT || entries[i].dims == 0));
        place->path = strdup(entries[i].path);
        if (!place->path) return status_memory("the %zu entries of a checkpoint", count);
        place->type = entries[i].type;
        place->dims = entries[i].dims;
        memcpy(place->shape, entries[i].shape, sizeof(int64_t) * (size_t)entries[i].dims);
        place->size = data_size(&entries[i]);
        image->count = i + 1;
    }
    return OK;
}

status image_create(const struct entry *entries, size_t count, bool is_reference, struct image **out) {
    *out = NULL;
    struct image *image = calloc(1, sizeof *image);
    if (!image) return status_memory("a checkpoint");
    status s = copy_places(image, entries, count);
    if (s == OK) s = create_metadata(image, is_reference);
    if (s) image_destroy(image);
    if (!s) *out = image;
    return s;
}

bool image_fits(const struct image *image, const struct entry *entries, size_t count) {
    if (image->count != count) return false;
    for (size_t i = 0; i < count; i++) {
        const struct image_entry *place = &image->places[i];
        if (strcmp(place->path, entries[i].path) != 0 || place->type != entries[i].type ||
            place->dims != entries[i].dims || place->size != data_size(&entries[i]) ||
            memcmp(place->shape, entries[i].shape, sizeof(int64_t) * (size_t)place->dims) != 0)
            return false;
    }
    return true;
}

static void set_data(struct image *image, const struct entry *entries, size_t count) {
    assert(image_fits(image, entries, count));
    image->order = 0;
    for (size_t i = 0; i < count; i++) {
        struct image_entry *place = &image->places[i];
        place->data = place->size ? entries[i].data : NULL;
        bool is_step = place->type == ENTRY_INT64 && place->dims == 0 && strcmp(place->path, "state/step") == 0;
        if (is_step && *(const int64_t *)entries[i].data > 0)
            image->order = (uint64_t) * (const int64_t *)entries[i].data;
    }
}

/* Copies the data, except those of the entries [is_left] (count; NULL: none). */
static void copy_data(struct image *image, const bool *is_left) {
    assert(image_has_data(image));
    for (size_t i = 0; i < image->count; i++) {
        struct image_entry *place = &image->places[i];
        if (!place->data || (is_left && is_left[i])) continue;
        memcpy(image->bytes + place->offset, place->data, place->size);
        place->data = NULL;
    }
}

void image_fill(struct image *image, const struct entry *entries, size_t count) {
    set_data(image, entries, count);
    copy_data(image, NULL);
}

void image_fill_first(struct image *image, const struct entry *entries, size_t count, const bool *is_steady) {
    set_data(image, entries, count);
    copy_data(image, is_steady);
}

void image_fill_steady(struct image *image) { copy_data(image, NULL); }

void image_reference(struct image *image, const struct entry *entries, size_t count) {
    set_data(image, entries, count);
    if (image->size <= IMAGE_MAX_COPY) copy_data(image, NULL);
}

/* Adds the bytes [begin, end) of the file, between data. A place has at most 8 bytes of zeros. */
static void add_part(const struct image *image, size_t begin, size_t end, size_t *count) {
    size_t middle = begin < image->stored ? (end < image->stored ? end : image->stored) : begin;
    if (begin < middle) image->parts[(*count)++] = (struct io_part){image->bytes + begin, middle - begin};
    for (size_t size; middle < end; middle += size) {
        size = end - middle < sizeof zeros ? end - middle : sizeof zeros;
        image->parts[(*count)++] = (struct io_part){zeros, size};
    }
}

struct io_part *image_parts(const struct image *image, size_t *count) {
    size_t done = 0;
    *count = 0;
    for (size_t i = 0; i < image->count; i++) {
        const struct image_entry *place = &image->places[i];
        if (!place->data) continue;
        add_part(image, done, place->offset, count);
        image->parts[(*count)++] = (struct io_part){place->data, place->size};
        done = place->offset + place->size;
    }
    add_part(image, done, image->size, count);
    return image->parts;
}

void image_destroy(struct image *image) {
    if (!image) return;
    for (size_t i = 0; image->places && i < image->count; i++) free(image->places[i].path);
    free(image->places);
    free(image->parts);
    buffer_free(image->bytes);
    free(image);
}
