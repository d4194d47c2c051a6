/* libhdf5's core driver writes the metadata to memory that this file owns. All metadata are at the start of the file,
 * and libhdf5 never writes the data, so its memory has only the metadata and the state exists once, in the image. The
 * file format is the oldest, which every reader supports. Datasets are contiguous, allocated early and without times:
 * equal states give equal bytes. */
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

/* The handles for creating datasets. */
struct creator {
    hid_t file, links, properties;
};

static status create_dataset(const struct creator *creator, struct image_entry *place) {
    hsize_t dims[MAX_DIMS];
    for (int d = 0; d < place->dims; d++) dims[d] = (hsize_t)place->shape[d];
    hid_t space = place->dims ? H5Screate_simple(place->dims, dims, NULL) : H5Screate(H5S_SCALAR), type = -1;
    hid_t dataset = -1;
    if (space >= 0) type = hdf5_file_type(place->type, place->size ? place->size : 1); /* no texts of 0 bytes exist */
    if (type >= 0)
        dataset = H5Dcreate2(creator->file, place->path, type, space, creator->links, creator->properties, H5P_DEFAULT);
    status s = OK;
    if (dataset < 0)
        s = image_failure(STATUS_BUG, "checkpoint: '%s' cannot be created", place->path);
    else if (place->size && (place->offset = H5Dget_offset(dataset)) == HADDR_UNDEF)
        s = image_failure(STATUS_BUG, "checkpoint: '%s' has no offset", place->path);
    if (dataset >= 0) H5Dclose(dataset);
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    return s;
}

static status create_attributes(hid_t file) {
    int32_t version = CHECKPOINT_FORMAT_VERSION;
    hid_t scalar = H5Screate(H5S_SCALAR), text = -1, format = -1, number = -1;
    bool is_good =
        scalar >= 0 && (text = hdf5_file_type(ENTRY_TEXT, strlen(CHECKPOINT_FORMAT))) >= 0 &&
        (format = H5Acreate2(file, "format", text, scalar, H5P_DEFAULT, H5P_DEFAULT)) >= 0 &&
        (number = H5Acreate2(file, "format_version", H5T_STD_I32LE, scalar, H5P_DEFAULT, H5P_DEFAULT)) >= 0 &&
        H5Awrite(format, text, CHECKPOINT_FORMAT) >= 0 && H5Awrite(number, H5T_NATIVE_INT32, &version) >= 0;
    status s = is_good ? OK : image_failure(STATUS_BUG, "checkpoint: no attributes");
    if (number >= 0) H5Aclose(number);
    if (format >= 0) H5Aclose(format);
    if (text >= 0) H5Tclose(text);
    if (scalar >= 0) H5Sclose(scalar);
    return s;
}

/* The memory of libhdf5's core driver: the metadata at the start of the file. */
struct metadata {
    unsigned char *bytes;
    size_t size, capacity;
};

static void *metadata_malloc(size_t size, H5FD_file_image_op_t operation, void *data) {
    (void)size, (void)operation, (void)data;
    return NULL; /* the file starts empty */
}

static void *metadata_realloc(void *bytes, size_t size, H5FD_file_image_op_t operation, void *data) {
    struct metadata *metadata = data;
    (void)bytes, (void)operation;
    if (size > metadata->capacity) {
        size_t capacity = metadata->capacity * 2 < size ? size : metadata->capacity * 2;
        unsigned char *more = realloc(metadata->bytes, capacity);
        if (!more) return NULL;
        metadata->bytes = more;
        metadata->capacity = capacity;
    }
    metadata->size = size;
    return metadata->bytes;
}

static herr_t metadata_free(void *bytes, H5FD_file_image_op_t operation, void *data) {
    (void)bytes, (void)operation, (void)data;
    return 0;
}

static void *udata_copy(void *data) { return data; }

static herr_t udata_free(void *data) {
    (void)data;
    return 0;
}

/* The number of groups in the path of place [i] that are not in the path of the previous place. */
static size_t new_groups(const struct image *image, size_t i) {
    const char *path = image->places[i].path, *before = i ? image->places[i - 1].path : "";
    size_t same = 0, count = 0;
    while (path[same] && path[same] == before[same]) same++;
    for (const char *c = path + same; *c; c++) count += *c == '/';
    return count;
}

/* An upper bound of the size of the metadata: headers, heaps of names and tree nodes. If it were too small, libhdf5
 * would put metadata after the data, and its memory would cover the whole file. */
static hsize_t max_metadata_size(const struct image *image) {
    hsize_t size = 2048;
    for (size_t i = 0; i < image->count; i++)
        size += 512 + 4 * strlen(image->places[i].path) + 1536 * new_groups(image, i);
    return size;
}

static hid_t core_access(const struct image *image, struct metadata *metadata, status *s) {
    H5FD_file_image_callbacks_t callbacks = {.image_malloc = metadata_malloc,
                                             .image_realloc = metadata_realloc,
                                             .image_free = metadata_free,
                                             .udata_copy = udata_copy,
                                             .udata_free = udata_free,
                                             .udata = metadata};
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    bool is_set = access >= 0 && H5Pset_fapl_core(access, 1, 0) >= 0 &&
                  H5Pset_file_image_callbacks(access, &callbacks) >= 0 &&
                  H5Pset_meta_block_size(access, max_metadata_size(image)) >= 0;
    *s = is_set ? OK : image_failure(STATUS_BUG, "checkpoint: no properties of a file");
    return access;
}

/* The properties of links and datasets. */
static status create_properties(struct creator *creator) {
    creator->links = H5Pcreate(H5P_LINK_CREATE);
    bool is_set = creator->links >= 0 && H5Pset_create_intermediate_group(creator->links, 1) >= 0 &&
                  (creator->properties = H5Pcreate(H5P_DATASET_CREATE)) >= 0 &&
                  H5Pset_layout(creator->properties, H5D_CONTIGUOUS) >= 0 &&
                  H5Pset_alloc_time(creator->properties, H5D_ALLOC_TIME_EARLY) >= 0 &&
                  H5Pset_fill_time(creator->properties, H5D_FILL_TIME_NEVER) >= 0 &&
                  H5Pset_obj_track_times(creator->properties, 0) >= 0;
    return is_set ? OK : image_failure(STATUS_BUG, "checkpoint: no properties of datasets");
}

static status create_file(struct image *image, struct metadata *metadata, hsize_t *size) {
    struct creator creator = {.file = -1, .links = -1, .properties = -1};
    status s;
    TRY(hdf5_check_memory());
    hid_t access = core_access(image, metadata, &s);
    if (s == OK) s = create_properties(&creator);
    if (s == OK && (creator.file = H5Fcreate(HDF5_IN_MEMORY, H5F_ACC_TRUNC, H5P_DEFAULT, access)) < 0)
        s = image_failure(STATUS_BUG, "checkpoint: no image");
    if (s == OK) s = create_attributes(creator.file);
    for (size_t i = 0; i < image->count && s == OK; i++) s = create_dataset(&creator, &image->places[i]);
    if (s == OK && H5Fget_filesize(creator.file, size) < 0) s = image_failure(STATUS_BUG, "checkpoint: no image");
    if (creator.file >= 0 && H5Fclose(creator.file) < 0 && s == OK)
        s = image_failure(STATUS_BUG, "checkpoint: the image cannot be closed");
    if (creator.properties >= 0) H5Pclose(creator.properties);
    if (creator.links >= 0) H5Pclose(creator.links);
    if (access >= 0) H5Pclose(access);
    return s;
}

/* Insertion sort, because libhdf5 places entries nearly in their order. */
static status sort_places(struct image *image) {
    image->by_offset = calloc(image->count + 1, sizeof *image->by_offset);
    image->parts = calloc(3 * image->count + 3, sizeof *image->parts);
    if (!image->by_offset || !image->parts) return status_memory("the %zu entries of a checkpoint", image->count);
    for (size_t i = 0; i < image->count; i++) {
        size_t at = i;
        for (; at > 0 && image->places[image->by_offset[at - 1]].offset > image->places[i].offset; at--)
            image->by_offset[at] = image->by_offset[at - 1];
        image->by_offset[at] = i;
    }
    return OK;
}

#define MAX_GAP ((size_t)4096)
static const unsigned char zeros[MAX_GAP];

/* Where the data begin, if behind them there are only short gaps between them; else the size of the file. [metadata]:
 * bytes of the file that libhdf5 has written. */
static size_t start_of_data(const struct image *image, size_t metadata) {
    size_t start = image->size, done = image->size;
    for (size_t i = 0; i < image->count; i++) {
        const struct image_entry *place = &image->places[image->by_offset[i]];
        if (!place->size) continue;
        if (start == image->size) start = done = place->offset;
        if (place->offset - done > MAX_GAP) return image->size;
        done = place->offset + place->size;
    }
    return metadata <= start && image->size - done <= MAX_GAP ? start : image->size;
}

static status create_metadata(struct image *image, bool is_reference) {
    struct metadata metadata = {0};
    hsize_t size = 0;
    status s = create_file(image, &metadata, &size);
    if (s == OK) {
        image->size = size > metadata.size ? (size_t)size : metadata.size;
        s = sort_places(image);
    }
    if (s == OK) {
        bool has_data = !is_reference || image->size <= IMAGE_MAX_COPY;
        image->stored = has_data ? image->size : start_of_data(image, metadata.size);
        s = buffer_new(image->stored, "the checkpoint", (void **)&image->bytes);
    }
    if (s == OK) memcpy(image->bytes, metadata.bytes, metadata.size);
    for (size_t i = 0; i < image->count && s == OK; i++)
        if (image->places[i].size && image->places[i].offset + image->places[i].size > image->size)
            s = status_new(STATUS_BUG, "checkpoint: '%s' is outside of the image", image->places[i].path);
    free(metadata.bytes);
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
    struct hdf5_silence silence;
    struct image *image = calloc(1, sizeof *image);
    if (!image) return status_memory("a checkpoint");
    status s = copy_places(image, entries, count);
    if (s == OK) {
        hdf5_enter(&silence);
        s = create_metadata(image, is_reference);
        hdf5_leave(&silence);
    }
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

/* Adds the bytes [begin, end) of the file, between data. */
static void add_part(const struct image *image, size_t begin, size_t end, size_t *count) {
    size_t middle = begin < image->stored ? (end < image->stored ? end : image->stored) : begin;
    if (begin < middle) image->parts[(*count)++] = (struct io_part){image->bytes + begin, middle - begin};
    if (middle < end) image->parts[(*count)++] = (struct io_part){zeros, end - middle};
}

struct io_part *image_parts(const struct image *image, size_t *count) {
    size_t done = 0;
    *count = 0;
    for (size_t i = 0; i < image->count; i++) {
        const struct image_entry *place = &image->places[image->by_offset[i]];
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
    free(image->by_offset);
    free(image->parts);
    buffer_free(image->bytes);
    free(image);
}
