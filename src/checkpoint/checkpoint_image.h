/* checkpoint_image: the HDF5 file of a state as an image in memory. The metadata and the offset of every dataset are
 * determined once; filling the image is then a copy to known offsets. So the second save of a run allocates nothing,
 * and the image is the snapshot that the background thread writes. For a state that no longer changes large entries
 * need not be copied: the file is then written from parts of the image and of the state.
 */
#pragma once

#include "base/files/io.h"
#include "checkpoint/checkpoint.h"

struct image {
    unsigned char *bytes; /* (stored): the file, or its start up to the data; buffer_new */
    size_t size, stored;
    uint64_t order; /* state/step of the last fill; 0 without one */
    size_t count;
    struct image_entry {
        char *path;
        enum entry_type type;
        int dims;
        int64_t shape[MAX_DIMS];
        size_t size;       /* bytes of the data; of a text: its length */
        uint64_t offset;   /* in bytes */
        const void *data;  /* the caller's data, if it was not copied, or not yet; else NULL */
    } * places;            /* (count), in the order of the entries */
    struct io_part *parts; /* (3 count + 3), for image_parts */
};

/* Creates the metadata and offsets for [entries], without their data. [is_reference]: only image_reference will be
 * called, so that a large image has no memory for the data. */
status image_create(const struct entry *entries, size_t count, bool is_reference, struct image **out);

/* Whether it has memory for the data, as image_fill needs. */
static inline bool image_has_data(const struct image *image) { return image->stored == image->size; }

/* Whether [entries] have the paths, types and shapes (and lengths of text) of the image. */
bool image_fits(const struct image *image, const struct entry *entries, size_t count);

/* Copies the data of [entries]; requires image_fits. */
void image_fill(struct image *image, const struct entry *entries, size_t count);

/* The same in two calls: the first copies the entries that are not steady (count), the second the others, whose data
 * must not change in between. */
void image_fill_first(struct image *image, const struct entry *entries, size_t count, const bool *is_steady);
void image_fill_steady(struct image *image);

/* The same, but an image larger than IMAGE_MAX_COPY only stores pointers to the data, which must not change while the
 * image is used. The memory for the data is not touched then, so it is not allocated by the kernel. */
#define IMAGE_MAX_COPY ((size_t)1 << 20)
void image_reference(struct image *image, const struct entry *entries, size_t count);

/* The parts of the file in order (*count). */
struct io_part *image_parts(const struct image *image, size_t *count);

void image_destroy(struct image *image); /* takes NULL */
