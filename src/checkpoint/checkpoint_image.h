/* checkpoint_image: the HDF5 file of a state, in memory. libhdf5 makes the file's skeleton once, with a place for every
 * dataset; filling it is then a copy to known offsets. So a running job's second save calls no libhdf5, allocates
 * nothing, and the image is also the snapshot that the background thread writes. Of a state that changes no more large
 * entries need not be copied: the file is then written from pieces, some of the image and some of the state. */
#ifndef CHECKPOINT_IMAGE_H
#define CHECKPOINT_IMAGE_H

#include "base/io.h"
#include "checkpoint/checkpoint.h"

struct image {
    unsigned char *bytes; /* (size): the whole file; buffer_new */
    size_t size;
    uint64_t order; /* state/step of the last fill; 0 without one */
    size_t count;
    struct place_of_entry {
        char *path;
        enum entry_type type;
        int dims;
        int64_t shape[MAX_DIMS];
        size_t size;       /* bytes of the data; of a text: its length */
        uint64_t offset;   /* in bytes */
        const void *data;  /* where it stands, of a place that was not copied; else NULL */
    } * places;            /* (count), in the order of the entries */
    size_t *by_offset;     /* (count) places in the order of the file */
    struct io_part *parts; /* (2 count + 2), for image_parts */
};

/* Makes the skeleton for [entries]; image_fill puts the data in. */
status image_create(const struct entry *entries, size_t count, struct image **out);

/* Whether [entries] have the paths, types and shapes (and lengths of text) that the image was made for. */
bool image_fits(const struct image *image, const struct entry *entries, size_t count);

/* Copies the data of [entries], which must fit. */
void image_fill(struct image *image, const struct entry *entries, size_t count);

/* The same, but an image of more than IMAGE_BORROWS bytes only remembers where the data stand: they must stay as they
 * are while the image is used. The memory that they would fill is not touched, so it costs none. */
#define IMAGE_BORROWS ((size_t)1 << 20)
void image_borrow(struct image *image, const struct entry *entries, size_t count);

/* The file in pieces, in order; *count of them, with room for one more (sealed_write_parts). */
struct io_part *image_parts(const struct image *image, size_t *count);

void image_destroy(struct image *image); /* takes NULL */

#endif
