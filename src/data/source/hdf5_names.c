/* Datasets of numbers with as many rows belong together. Targets have one of the usual names, those with the most rows
 * first, or there are two datasets and one of them is larger. */
#include "data/source/hdf5_names.h"

#include <string.h>
#include <strings.h>

#include "base/files/hdf5.h"
#include "base/text.h"
#include "data/source/hdf5_check.h"
#include "data/source/source.h"

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

static status look(void *context) {
    struct search *search = context;
    search->count = 0;
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
    struct text names = {0};
    for (size_t i = 0; i < search->count && names.length < 200; i++) {
        text_add(&names, i ? ", " : "");
        text_add_value(&names, search->items[i].name, TEXT_MAX_NAME);
    }
    status s =
        status_new(STATUS_DATA,
                   "%s: it is not clear which datasets are the inputs and the targets; the file has: %s (--target "
                   "names the targets)",
                   search->path, names.length ? text_string(&names) : "no dataset of numbers");
    text_free(&names);
    return s;
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
    status s = is_hdf5 ? hdf5_try_in_child(path, look, search) : OK;
    if (is_hdf5 && !s) s = look(search);
    hdf5_leave(&silence);
    return s || !is_hdf5 ? s : choose(search, target, arena, inputs, targets, unused);
}
