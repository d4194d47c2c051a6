/* All functions of libhdf5 used here exist unchanged from HDF5 1.8 to 1.14. */
#include "checkpoint/checkpoint_hdf5.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"

#define MAX_LEVELS 32 /* of groups; hard links can form cycles */

static herr_t look_for_allocation(unsigned number, const H5E_error2_t *error, void *context) {
    bool *is_found = context;
    (void)number;
    *is_found = *is_found || error->min_num == H5E_NOSPACE || error->min_num == H5E_CANTALLOC;
    return 0;
}

/* Whether libhdf5 could not allocate something, which for a file in memory is memory. */
static bool cannot_allocate(void) {
    bool is_found = false;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, look_for_allocation, &is_found);
    return is_found;
}

status image_failure(enum status_code code, const char *format, ...) {
    char reason[160];
    if (code == STATUS_BUG && cannot_allocate()) return status_memory("a checkpoint");
    hdf5_reason(reason, sizeof reason, "no reason reported");
    va_list arguments;
    va_start(arguments, format);
    status inner = status_newv(code, format, arguments);
    va_end(arguments);
    status s = status_new(code, "%s (libhdf5: %s)", status_message(inner), reason);
    status_free(inner);
    return s;
}

/* File image callbacks that give libhdf5 the caller's memory instead of a copy. */
struct memory {
    void *image;
    size_t size;
};

static void *image_malloc(size_t size, H5FD_file_image_op_t operation, void *data) {
    const struct memory *memory = data;
    (void)operation;
    return size == memory->size ? memory->image : NULL;
}

static void *image_memcpy(void *to, const void *from, size_t size, H5FD_file_image_op_t operation, void *data) {
    (void)size, (void)operation, (void)data;
    return to == from ? to : NULL;
}

static void *image_realloc(void *image, size_t size, H5FD_file_image_op_t operation, void *data) {
    (void)image, (void)size, (void)operation, (void)data;
    return NULL;
}

static herr_t image_free(void *image, H5FD_file_image_op_t operation, void *data) {
    (void)image, (void)operation, (void)data;
    return 0;
}

static void *udata_copy(void *data) {
    struct memory *copy = malloc(sizeof *copy);
    if (copy) *copy = *(struct memory *)data;
    return copy;
}

static herr_t udata_free(void *data) {
    free(data);
    return 0;
}

status hdf5_open_image(const char *name, void *image, size_t size, hid_t *file) {
    *file = -1;
    TRY(hdf5_check_memory());
    struct memory memory = {image, size};
    H5FD_file_image_callbacks_t callbacks = {.image_malloc = image_malloc,
                                             .image_memcpy = image_memcpy,
                                             .image_realloc = image_realloc,
                                             .image_free = image_free,
                                             .udata_copy = udata_copy,
                                             .udata_free = udata_free,
                                             .udata = &memory};
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    char file_name[64]; /* of its own: libhdf5 takes two open files of one name in memory for the same */
    snprintf(file_name, sizeof file_name, HDF5_IN_MEMORY "-%p", image);
    if (H5Pset_fapl_core(access, 65536, 0) >= 0 && H5Pset_file_image_callbacks(access, &callbacks) >= 0 &&
        H5Pset_file_image(access, image, size) >= 0)
        *file = H5Fopen(file_name, H5F_ACC_RDONLY, access);
    status s = *file < 0 ? image_failure(STATUS_DATA, "%s: not a valid HDF5 file", name) : OK;
    H5Pclose(access);
    return s;
}

status hdf5_open_file(const char *path, hid_t *file) {
    *file = -1;
    TRY(hdf5_check_memory());
    H5PLset_loading_state(0);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_file_locking(access, 0, 1);
    *file = H5Fopen(path, H5F_ACC_RDONLY, access);
    status s = *file < 0 ? image_failure(STATUS_DATA, "%s: not an HDF5 file, or damaged", path) : OK;
    H5Pclose(access);
    return s;
}

int64_t hdf5_checkpoint_version(hid_t file) {
    char format[64];
    int64_t version;
    if (!hdf5_read_text(file, "format", format, sizeof format) || strcmp(format, CHECKPOINT_FORMAT) != 0) return 0;
    return hdf5_read_int64(file, "format_version", &version) && version > 0 ? version : 0;
}

static const struct {
    const char *name;
    size_t size;
} entry_types[] = {[ENTRY_FLOAT32] = {"float32", 4},
                   [ENTRY_FLOAT64] = {"float64", 8},
                   [ENTRY_INT64] = {"int64", 8},
                   [ENTRY_TEXT] = {"text", 1}};

const char *entry_type_name(enum entry_type type) { return entry_types[type].name; }

static void name_type(hid_t type, struct hdf5_shape *shape) {
    static const char *const classes[] = {
        [H5T_TIME] = "time",           [H5T_BITFIELD] = "bits", [H5T_OPAQUE] = "opaque", [H5T_COMPOUND] = "compound",
        [H5T_REFERENCE] = "reference", [H5T_ENUM] = "enum",     [H5T_VLEN] = "lists",    [H5T_ARRAY] = "arrays"};
    H5T_class_t class = H5Tget_class(type);
    size_t bits = H5Tget_size(type) * 8, size = sizeof shape->type_name;
    if (class == H5T_FLOAT)
        snprintf(shape->type_name, size, "float%zu", bits);
    else if (class == H5T_INTEGER)
        snprintf(shape->type_name, size, "%sint%zu", H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "", bits);
    else if (class == H5T_STRING)
        snprintf(shape->type_name, size, "text");
    else if (class >= 0 && (size_t) class < sizeof classes / sizeof *classes && classes[class])
        snprintf(shape->type_name, size, "%s", classes[class]);
    else
        snprintf(shape->type_name, size, "unknown type");
}

static void recognise_type(hid_t type, struct hdf5_shape *shape) {
    shape->item_size = H5Tget_size(type);
    const hid_t expected[] = {
        [ENTRY_FLOAT32] = H5T_IEEE_F32LE, [ENTRY_FLOAT64] = H5T_IEEE_F64LE, [ENTRY_INT64] = H5T_STD_I64LE};
    for (enum entry_type t = ENTRY_FLOAT32; t < ENTRY_TEXT && !shape->is_known; t++) {
        shape->is_known = H5Tequal(type, expected[t]) > 0;
        shape->type = t;
    }
    if (H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 && shape->dims == 0) {
        shape->is_known = true;
        shape->type = ENTRY_TEXT;
    }
    name_type(type, shape);
}

status hdf5_describe(hid_t dataset, const char *name, struct hdf5_shape *shape) {
    *shape = (struct hdf5_shape){0};
    hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset), properties = H5Dget_create_plist(dataset);
    status s = OK;
    if (space < 0 || type < 0 || properties < 0)
        s = image_failure(STATUS_DATA, "%s: a dataset cannot be read", name);
    else {
        shape->dims = H5Sget_simple_extent_dims(space, shape->shape, NULL);
        bool has_shape = shape->dims >= 0 && H5Sget_simple_extent_type(space) != H5S_NULL;
        if (!has_shape) shape->dims = 0;
        recognise_type(type, shape);
        shape->is_contiguous = has_shape && H5Pget_layout(properties) == H5D_CONTIGUOUS &&
                               H5Pget_external_count(properties) == 0 && H5Pget_nfilters(properties) == 0;
        shape->offset = H5Dget_offset(dataset);
    }
    if (properties >= 0) H5Pclose(properties);
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    return s;
}

struct hdf5_shape hdf5_describe_plain(const struct hdf5_plain *dataset) {
    size_t bytes = dataset->value_bytes, size = sizeof((struct hdf5_shape *)NULL)->type_name;
    bool is_integer = !dataset->is_text && !dataset->is_float;
    struct hdf5_shape shape = {
        .dims = dataset->dims, .item_size = bytes, .is_contiguous = true, .offset = dataset->start};
    for (int d = 0; d < dataset->dims; d++) shape.shape[d] = dataset->shape[d];
    shape.is_known = dataset->is_text
                         ? dataset->dims == 0
                         : !dataset->is_big && (is_integer ? dataset->is_signed && bytes == 8 : bytes >= 4);
    shape.type = dataset->is_text ? ENTRY_TEXT : is_integer ? ENTRY_INT64 : bytes == 4 ? ENTRY_FLOAT32 : ENTRY_FLOAT64;
    if (dataset->is_text)
        snprintf(shape.type_name, size, "text");
    else if (is_integer)
        snprintf(shape.type_name, size, "%sint%zu", dataset->is_signed ? "" : "u", bytes * 8);
    else
        snprintf(shape.type_name, size, "float%zu", bytes * 8);
    return shape;
}

uint64_t hdf5_values(const struct hdf5_shape *shape) {
    uint64_t values;
    return hdf5_product(shape->shape, shape->dims, &values) ? values : UINT64_MAX;
}

uint64_t hdf5_bytes(const struct hdf5_shape *shape) {
    uint64_t bytes;
    return __builtin_mul_overflow(hdf5_values(shape), (uint64_t)shape->item_size, &bytes) ? UINT64_MAX : bytes;
}

void text_add_shape(struct text *text, int dims, const hsize_t *shape) {
    if (dims == 0) text_add(text, "scalar");
    for (int d = 0; d < dims; d++) text_printf(text, "%s%llu", d ? ", " : "(", (unsigned long long)shape[d]);
    if (dims) text_add(text, ")");
}

/* An iteration over the datasets of a file. */
struct walk {
    const char *name; /* of the file */
    hdf5_visitor *visit;
    void *context;
    uint64_t objects; /* visited so far */
};

static status walk_group(struct walk *walk, hid_t group, const char *path, int depth);

/* The links of a group. H5Literate goes through a group once; to find a link by its index takes as long as the group
 * is. */
struct level {
    struct walk *walk;
    const char *path; /* of the group, "" or with a slash at its end */
    int depth;
    hsize_t index; /* of the next link */
    status failure;
};

/* A name with a slash would be a path, which may lead through an external link to another file. */
static hid_t open_link(hid_t group, const char *name, hsize_t index) {
    if (!*name || strcmp(name, ".") == 0 || strchr(name, '/'))
        return H5Oopen_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, index, H5P_DEFAULT);
    return H5Oopen(group, name, H5P_DEFAULT);
}

static status walk_child(struct level *level, hid_t group, const char *name) {
    struct walk *walk = level->walk;
    if (walk->objects++ == HDF5_MAX_OBJECTS)
        return status_data("%s: the file has more than %d objects", walk->name, HDF5_MAX_OBJECTS);
    hid_t child = open_link(group, name, level->index);
    if (child < 0) return image_failure(STATUS_DATA, "%s: '%s%s' cannot be opened", walk->name, level->path, name);
    SCOPED_TEXT child_path = {0};
    text_printf(&child_path, "%s%s", level->path, name);
    H5I_type_t kind = H5Iget_type(child);
    status s = OK;
    if (kind == H5I_DATASET)
        s = walk->visit(walk->context, child_path.data, child);
    else if (kind == H5I_GROUP) {
        text_add(&child_path, "/");
        s = walk_group(walk, child, child_path.data, level->depth + 1);
    }
    H5Oclose(child);
    return s;
}

static herr_t visit_link(hid_t group, const char *name, const H5L_info_t *info, void *context) {
    struct level *level = context;
    if (info->type == H5L_TYPE_HARD) level->failure = walk_child(level, group, name);
    level->index++;
    return level->failure != OK;
}

static status walk_group(struct walk *walk, hid_t group, const char *path, int depth) {
    struct level level = {.walk = walk, .path = path, .depth = depth};
    if (depth > MAX_LEVELS)
        return status_data("%s: groups nest deeper than %d levels: '%s'", walk->name, MAX_LEVELS, path);
    herr_t result = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, visit_link, &level);
    if (level.failure || result >= 0) return level.failure;
    return image_failure(STATUS_DATA, "%s: '%s' cannot be listed", walk->name, path);
}

status hdf5_walk(hid_t file, const char *name, hdf5_visitor *visit, void *context) {
    hid_t open = H5Oopen(file, "/", H5P_DEFAULT);
    if (open < 0) return image_failure(STATUS_DATA, "%s: '/' cannot be opened", name);
    struct walk walk = {.name = name, .visit = visit, .context = context};
    status s = walk_group(&walk, open, "", 0);
    H5Oclose(open);
    return s;
}

static status parse_dataset(void *context, const char *path, hid_t dataset) {
    struct hdf5_shape shape;
    (void)path;
    return hdf5_describe(dataset, context, &shape);
}

status hdf5_parse_all(hid_t file, const char *name) {
    hdf5_checkpoint_version(file);
    return hdf5_walk(file, name, parse_dataset, (void *)(uintptr_t)name);
}
