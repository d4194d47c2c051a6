/* Writing and reading one checkpoint. When its verified bytes are opened, all datasets are listed, without libhdf5
 * where the file is as this program writes it. So after the comparison nothing can fail, and either all entries are
 * filled or none. */
#include "checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/files/io.h"
#include "base/files/sealed.h"
#include "base/scoped.h"
#include "checkpoint/checkpoint_hdf5.h"
#include "checkpoint/checkpoint_image.h"
#include "checkpoint/inspect.h"
#include "checkpoint/loading.h"

#define MAX_PATHS (64 << 20) /* bytes of the paths of all datasets, which a small file may link many times */

struct stored_dataset {
    char *path;
    struct hdf5_shape shape;
};

struct checkpoint {
    char *path;
    unsigned char *image; /* (seal.image_size) */
    struct seal seal;
    struct stored_dataset *datasets; /* (count, of capacity), in the order of the file */
    size_t count, capacity, path_bytes;
    size_t next; /* the one behind the last that was found */
};

status checkpoint_write(const char *dir, const char *name, const struct entry *entries, size_t count) {
    struct image *image;
    TRY(image_create(entries, count, false, &image));
    image_reference(image, entries, count);
    size_t others;
    status s = checkpoint_clean(dir, &others);
    if (s == OK) s = checkpoint_write_image(dir, name, image);
    image_destroy(image);
    return s;
}

/* In a child process: parses everything that reading the image parses. */
static status parse_image(void *context) {
    struct checkpoint *checkpoint = context;
    hid_t file;
    TRY(hdf5_open_image(checkpoint->path, checkpoint->image, checkpoint->seal.image_size, &file));
    TRY(hdf5_parse_all(file, checkpoint->path));
    H5Fclose(file);
    return OK;
}

static status add_dataset(struct checkpoint *c, const char *path, const struct hdf5_shape *shape) {
    c->path_bytes += strlen(path) + 1;
    if (c->path_bytes > MAX_PATHS)
        return status_data("%s: the names of its datasets have more than %d MiB", c->path, MAX_PATHS >> 20);
    if (c->count == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 64;
        struct stored_dataset *more = realloc(c->datasets, capacity * sizeof *more);
        if (!more) return status_memory("opening %s", c->path);
        c->datasets = more;
        c->capacity = capacity;
    }
    char *copy = strdup(path);
    if (!copy) return status_memory("opening %s", c->path);
    c->datasets[c->count++] = (struct stored_dataset){copy, *shape};
    return OK;
}

static void forget_datasets(struct checkpoint *c) {
    while (c->count > 0) free(c->datasets[--c->count].path);
    c->path_bytes = 0;
}

static bool list_plain(void *context, const char *path, const struct hdf5_plain *dataset) {
    struct hdf5_shape shape = hdf5_describe_plain(dataset);
    status s = add_dataset(context, path, &shape);
    bool is_added = s == OK;
    status_free(s);
    return is_added; /* if not, the library's way says why */
}

static status list_dataset(void *context, const char *path, hid_t dataset) {
    struct checkpoint *checkpoint = context;
    struct hdf5_shape shape;
    TRY(hdf5_describe(dataset, checkpoint->path, &shape));
    return add_dataset(checkpoint, path, &shape);
}

static status check_version(const struct checkpoint *checkpoint, int64_t version) {
    if (version == 0) return status_data("%s: not a checkpoint of ddptrain", checkpoint->path);
    if (version <= CHECKPOINT_FORMAT_VERSION) return OK;
    return status_data("%s: written by a newer ddptrain (format %lld; this one reads up to %d)", checkpoint->path,
                       (long long)version, CHECKPOINT_FORMAT_VERSION);
}

static status open_with_library(struct checkpoint *checkpoint) {
    hid_t file;
    TRY(hdf5_try_in_child(checkpoint->path, parse_image, checkpoint));
    TRY(hdf5_open_image(checkpoint->path, checkpoint->image, checkpoint->seal.image_size, &file));
    status s = check_version(checkpoint, hdf5_checkpoint_version(file));
    if (!s) s = hdf5_walk(file, checkpoint->path, list_dataset, checkpoint);
    H5Fclose(file);
    return s;
}

/* Checks that the image is a checkpoint of a known format, and lists its datasets. */
static status open_image(struct checkpoint *checkpoint) {
    struct hdf5_plain_attributes a;
    if (hdf5_plain_walk(checkpoint->image, checkpoint->seal.image_size, &a, list_plain, checkpoint) &&
        strcmp(a.format, CHECKPOINT_FORMAT) == 0 && a.format_version > 0)
        return check_version(checkpoint, a.format_version);
    struct hdf5_silence silence;
    forget_datasets(checkpoint);
    hdf5_enter(&silence);
    status s = open_with_library(checkpoint);
    hdf5_leave(&silence);
    return s;
}

/* A checkpoint without an image. */
static status new_checkpoint(const char *path, struct checkpoint **out) {
    struct checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint || !(checkpoint->path = strdup(path))) {
        free(checkpoint);
        return status_memory("opening %s", path);
    }
    *out = checkpoint;
    return OK;
}

status checkpoint_open(const char *path, struct checkpoint **out) {
    *out = NULL;
    struct io_info info;
    struct checkpoint *checkpoint = NULL;
    TRY(io_stat(path, &info));
    if (!info.exists) return status_data("%s: there is no such checkpoint", path);
    TRY(new_checkpoint(path, &checkpoint));
    status s = sealed_read(path, (void **)&checkpoint->image, &checkpoint->seal);
    if (s == OK) s = open_image(checkpoint);
    if (s != OK) {
        checkpoint_close(checkpoint);
        return status_code(s) == STATUS_DATA ? foreign_explain(path, s) : s;
    }
    *out = checkpoint;
    return OK;
}

/* Moves the bytes of [image] to [checkpoint]. */
static void take_image(struct checkpoint *checkpoint, struct image *image) {
    checkpoint->image = image->bytes;
    checkpoint->seal = (struct seal){.image_size = image->size, .order = image->order};
    image->bytes = NULL;
}

const char *checkpoint_path(const struct checkpoint *checkpoint) { return checkpoint->path; }

status checkpoint_create(const char *name, const struct entry *entries, size_t count, struct checkpoint **out) {
    *out = NULL;
    struct checkpoint *checkpoint = NULL;
    struct image *image;
    TRY(new_checkpoint(name, &checkpoint));
    status s = image_create(entries, count, false, &image);
    if (s == OK) {
        image_fill(image, entries, count);
        take_image(checkpoint, image);
        image_destroy(image);
        s = open_image(checkpoint);
    }
    if (s) checkpoint_close(checkpoint);
    if (!s) *out = checkpoint;
    return s;
}

void checkpoint_close(struct checkpoint *checkpoint) {
    if (!checkpoint) return;
    forget_datasets(checkpoint);
    free(checkpoint->datasets);
    buffer_free(checkpoint->image);
    free(checkpoint->path);
    free(checkpoint);
}

/* NULL: there is none. Entries are mostly asked for in the order of the file. */
static const struct hdf5_shape *find_dataset(struct checkpoint *checkpoint, const char *path) {
    for (size_t i = 0; i < checkpoint->count; i++) {
        size_t at = (checkpoint->next + i) % checkpoint->count;
        if (strcmp(checkpoint->datasets[at].path, path) != 0) continue;
        checkpoint->next = at + 1;
        return &checkpoint->datasets[at].shape;
    }
    return NULL;
}

/* What of the path is behind the [group] that it is in; NULL: it is not in it. */
static const char *path_in_group(const char *path, const char *group) {
    size_t length = strlen(group);
    return strncmp(path, group, length) == 0 && path[length] == '/' ? path + length + 1 : NULL;
}

/* The dataset of the file for one entry. */
struct file_source {
    bool is_found;
    struct hdf5_shape shape;
    char *text; /* ENTRY_TEXT: the copy for the caller */
};

struct comparison {
    const struct checkpoint *checkpoint;
    const char *path; /* of the file */
    const struct entry *entries;
    size_t count;
    bool is_of_weights;          /* [complete] of checkpoint_read is one group */
    struct file_source *sources; /* (count) */
    struct text differences;
    size_t difference_count;
};

/* Begins a line of the list of differences. */
static struct text *add_difference(struct comparison *comparison, const char *path) {
    comparison->difference_count++;
    text_printf(&comparison->differences, "\n  %s: ", path);
    return &comparison->differences;
}

static void add_wanted(struct text *text, const struct entry *entry, bool with_type) {
    hsize_t shape[MAX_DIMS];
    for (int d = 0; d < entry->dims; d++) shape[d] = (hsize_t)entry->shape[d];
    if (with_type) text_printf(text, "%s ", entry_type_name(entry->type));
    text_add_shape(text, entry->dims, shape);
}

static void add_found(struct text *text, const struct hdf5_shape *shape, bool with_type) {
    if (with_type) text_printf(text, "%s ", shape->type_name);
    text_add_shape(text, shape->dims, shape->shape);
}

static bool has_same_type(const struct entry *entry, const struct hdf5_shape *shape) {
    return shape->is_known && shape->type == entry->type;
}

static bool has_same_shape(const struct entry *entry, const struct hdf5_shape *shape) {
    if (shape->dims != entry->dims) return false;
    for (int d = 0; d < entry->dims; d++)
        if (shape->shape[d] != (hsize_t)entry->shape[d]) return false;
    return true;
}

/* Compares the entry with the dataset of the file and adds a line when they differ. */
static status compare_entry(struct checkpoint *checkpoint, struct comparison *comparison, size_t i) {
    const struct entry *entry = &comparison->entries[i];
    struct file_source *source = &comparison->sources[i];
    const struct hdf5_shape *shape = find_dataset(checkpoint, entry->path);
    source->is_found = shape != NULL;
    if (!source->is_found) {
        if (entry->is_optional) return OK;
        struct text *text = add_difference(comparison, entry->path);
        add_wanted(text, entry, true);
        text_add(text, " in the config, not in the file");
        return OK;
    }
    source->shape = *shape;
    bool same_type = has_same_type(entry, &source->shape);
    if (same_type && has_same_shape(entry, &source->shape)) return OK;
    struct text *text = add_difference(comparison, entry->path);
    add_found(text, &source->shape, !same_type);
    text_add(text, " in the file, ");
    add_wanted(text, entry, !same_type);
    text_add(text, " in the config");
    return OK;
}

/* Checks that the bytes of the dataset at [path] are within the image. */
static status check_place(const struct checkpoint *checkpoint, const char *path, const struct hdf5_shape *shape) {
    uint64_t size = hdf5_bytes(shape), whole = checkpoint->seal.image_size;
    if (shape->is_contiguous && (size == 0 || (size <= whole && shape->offset <= whole - size))) return OK;
    return status_data("%s: '%s' has a storage layout that this version cannot read", checkpoint->path, path);
}

/* Checks the offset of the dataset, and copies a text. */
static status prepare(const struct checkpoint *checkpoint, const struct entry *entry, struct file_source *source) {
    if (!source->is_found) return OK;
    TRY(check_place(checkpoint, entry->path, &source->shape));
    if (entry->type != ENTRY_TEXT) return OK;
    uint64_t size = hdf5_bytes(&source->shape);
    source->text = strndup((const char *)checkpoint->image + source->shape.offset, size);
    return source->text ? OK : status_memory("'%s' of %s", entry->path, checkpoint->path);
}

static bool has_entry(const struct comparison *comparison, const char *path) {
    for (size_t i = 0; i < comparison->count; i++)
        if (strcmp(comparison->entries[i].path, path) == 0) return true;
    return false;
}

/* Weights alone are loaded without the states of rows (carry_state). */
static status report_extra(struct comparison *comparison, const char *path, const struct hdf5_shape *shape) {
    if (has_entry(comparison, path) || (comparison->is_of_weights && loading_is_carried_state(path))) return OK;
    struct text *text = add_difference(comparison, path);
    add_found(text, shape, true);
    text_add(text, " in the file, not in the config");
    return OK;
}

/* A counter that is 0 has no effect. */
static status reject_unknown_counter(struct comparison *comparison, const char *path, const struct hdf5_shape *shape) {
    int64_t value = 0;
    if (has_entry(comparison, path)) return OK;
    if (!shape->is_known || shape->type != ENTRY_INT64 || shape->dims != 0) return OK;
    TRY(check_place(comparison->checkpoint, path, shape));
    memcpy(&value, comparison->checkpoint->image + shape->offset, sizeof value);
    if (value == 0) return OK;
    return status_data("%s: '%s' is %lld, a counter that this version does not have; resume with the newer ddptrain "
                       "that wrote the file",
                       comparison->path, path, (long long)value);
}

static status compare(struct checkpoint *checkpoint, struct comparison *comparison, const char *const *complete) {
    for (size_t i = 0; i < comparison->count; i++) TRY(compare_entry(checkpoint, comparison, i));
    for (; complete && *complete; complete++) {
        bool is_state = strcmp(*complete, "state") == 0;
        for (size_t i = 0; i < checkpoint->count; i++) {
            const struct stored_dataset *d = &checkpoint->datasets[i];
            if (!path_in_group(d->path, *complete)) continue;
            TRY((is_state ? reject_unknown_counter : report_extra)(comparison, d->path, &d->shape));
        }
    }
    if (comparison->difference_count)
        return status_data("%s: the checkpoint does not match the config:%s", checkpoint->path,
                           text_string(&comparison->differences));
    for (size_t i = 0; i < comparison->count; i++)
        TRY(prepare(checkpoint, &comparison->entries[i], &comparison->sources[i]));
    return OK;
}

static void fill(const struct checkpoint *checkpoint, struct entry *entry, struct file_source *source) {
    if (!source->is_found) return;
    if (entry->type == ENTRY_TEXT) {
        *(char **)entry->data = source->text;
        source->text = NULL;
        return;
    }
    size_t size = hdf5_bytes(&source->shape);
    if (size && entry->data) memcpy(entry->data, checkpoint->image + source->shape.offset, size);
}

status checkpoint_read(struct checkpoint *checkpoint, struct entry *entries, size_t count,
                       const char *const *complete) {
    struct comparison comparison = {.checkpoint = checkpoint,
                                    .path = checkpoint->path,
                                    .entries = entries,
                                    .count = count,
                                    .is_of_weights = complete && complete[0] && !complete[1]};
    comparison.sources = calloc(count ? count : 1, sizeof *comparison.sources);
    status s =
        comparison.sources ? compare(checkpoint, &comparison, complete) : status_memory("reading %s", checkpoint->path);
    for (size_t i = 0; i < count && comparison.sources; i++) {
        if (s == OK) fill(checkpoint, &entries[i], &comparison.sources[i]);
        free(comparison.sources[i].text);
    }
    free(comparison.sources);
    text_free(&comparison.differences);
    return s;
}

status checkpoint_find(struct checkpoint *checkpoint, struct entry *entry, bool *exists) {
    const struct hdf5_shape *shape = find_dataset(checkpoint, entry->path);
    *exists = false;
    if (!shape || !shape->is_known || shape->dims > MAX_DIMS) return OK;
    TRY(check_place(checkpoint, entry->path, shape));
    *exists = true;
    entry->type = shape->type;
    entry->dims = shape->dims;
    for (int d = 0; d < shape->dims; d++) entry->shape[d] = (int64_t)shape->shape[d];
    return OK;
}

status checkpoint_read_text(struct checkpoint *checkpoint, const char *path, char **out) {
    struct entry entry = {.path = path, .type = ENTRY_TEXT, .data = out, .is_optional = true};
    *out = NULL;
    return checkpoint_read(checkpoint, &entry, 1, NULL);
}

status checkpoint_has(struct checkpoint *checkpoint, const char *group, bool *has) {
    *has = false;
    for (size_t i = 0; i < checkpoint->count && !*has; i++) {
        const char *path = checkpoint->datasets[i].path;
        *has = path_in_group(path, group) || strcmp(path, group) == 0;
    }
    return OK;
}

status checkpoint_visit(struct checkpoint *checkpoint, const char *group, checkpoint_visitor *visit, void *context) {
    for (size_t i = 0; i < checkpoint->count; i++) {
        const struct stored_dataset *dataset = &checkpoint->datasets[i];
        const struct hdf5_shape *shape = &dataset->shape;
        const char *name = path_in_group(dataset->path, group);
        if (!name || !shape->is_known || shape->type != ENTRY_FLOAT32 || shape->dims > MAX_DIMS) continue;
        int64_t dims[MAX_DIMS];
        TRY(check_place(checkpoint, dataset->path, shape));
        for (int d = 0; d < shape->dims; d++) dims[d] = (int64_t)shape->shape[d];
        const void *values = checkpoint->image + shape->offset;
        TRY(visit(context, name, shape->dims, dims, values));
    }
    return OK;
}

/* ---- the folder of the checkpoints of a run ---- */

/* Checkpoints are sorted by the step in their seal, which has a checksum: names and times of files are not trusted, and
 * only 128 bytes of each file are read. */

#define CHECKPOINT_ENDING ".h5"
#define MAX_ROUNDS 10 /* attempts when files are removed at the same time */

struct candidate {
    char *path;
    uint64_t order;
};

struct candidates {
    struct candidate *items; /* the newest first */
    size_t count;
    size_t invalid;        /* files with the extension that are not valid */
    size_t removed;        /* files that were removed after they were listed */
    enum status_code code; /* STATUS_DATA; the code of the first file that the system could not read */
    struct text reasons;   /* one line for each invalid file */
};

static char *join(const char *dir, const char *name, const char *ending) {
    struct text path = {0};
    text_printf(&path, "%s/%s%s", dir, name, ending);
    return path.data;
}

static bool ends_with(const char *name, const char *ending) {
    size_t length = strlen(name), end = strlen(ending);
    return length > end && strcmp(name + length - end, ending) == 0;
}

/* The rest of a name after its counter ("epoch-0001", "step-00000001"); NULL: it has another form. */
static const char *after_counter(const char *name) {
    bool is_epoch = strncmp(name, "epoch-", 6) == 0;
    size_t min_digits = is_epoch ? 4 : 8, digits;
    if (!is_epoch && strncmp(name, "step-", 5) != 0) return NULL;
    name += is_epoch ? 6 : 5;
    digits = strspn(name, "0123456789");
    return digits < min_digits || (digits > min_digits && *name == '0') ? NULL : name + digits;
}

bool checkpoint_has_ending(const char *name) { return ends_with(name, CHECKPOINT_ENDING); }

bool checkpoint_is_name(const char *name) {
    const char *rest = after_counter(name);
    return rest && strcmp(rest, CHECKPOINT_ENDING) == 0;
}

/* "epoch-0001.h5.tmp-17", "best.h5.tmp-17" */
static bool is_temporary(const char *name) {
    size_t best = sizeof CHECKPOINT_BEST - 1;
    const char *rest = strncmp(name, CHECKPOINT_BEST, best) == 0 ? name + best : after_counter(name);
    return rest && io_is_temporary(name) && strncmp(rest, CHECKPOINT_ENDING ".tmp-", sizeof CHECKPOINT_ENDING + 4) == 0;
}

static status remove_temporaries(const char *dir, const struct io_names *names) {
    status s = OK;
    for (size_t i = 0; i < names->count; i++) {
        if (!is_temporary(names->items[i])) continue;
        SCOPED_STRING path = join(dir, names->items[i], "");
        s = status_first(s, io_remove(path));
    }
    return s;
}

status checkpoint_clean(const char *dir, size_t *count) {
    SCOPED_NAMES names = {0};
    TRY(io_make_folders(dir));
    TRY(io_list(dir, &names));
    status_free(remove_temporaries(dir, &names)); /* a failure does not matter for the new file */
    *count = names.count;
    return OK;
}

status checkpoint_write_image(const char *dir, const char *name, const struct image *image) {
    TRY(io_make_folders(dir));
    SCOPED_STRING path = join(dir, name, CHECKPOINT_ENDING);
    size_t count;
    const struct io_part *parts = image_parts(image, &count);
    return sealed_write_parts(path, parts, count, image->order);
}

static bool is_removed(const char *path) {
    struct io_info info;
    status s = io_stat(path, &info);
    bool is_absent = s == OK && !info.exists;
    status_free(s);
    return is_absent;
}

/* Counts a file that cannot be opened: it is invalid (with a warning), or was pruned in the meantime. */
static void skip_file(struct candidates *candidates, struct log *log, const char *path, status reason) {
    if (is_removed(path))
        candidates->removed++;
    else {
        log_warning(log, "skipped a checkpoint: %s", status_message(reason));
        text_printf(&candidates->reasons, "\n  %s", status_message(reason));
        candidates->invalid++;
        if (status_is_system(reason) && candidates->code == STATUS_DATA) candidates->code = status_code(reason);
    }
    status_free(reason);
}

static bool has_training_name(const struct candidate *c) { return checkpoint_is_name(strrchr(c->path, '/') + 1); }

/* The newest first; among copies the one with a name of training first. */
static int compare_order(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->order != y->order) return x->order < y->order ? 1 : -1;
    if (has_training_name(x) != has_training_name(y)) return has_training_name(x) ? -1 : 1;
    return strcmp(y->path, x->path);
}

static status find_candidates(const char *dir, const struct io_names *names, struct log *log,
                              struct candidates *candidates) {
    candidates->items = calloc(names->count + 1, sizeof *candidates->items);
    if (!candidates->items) return status_memory("the list of %s", dir);
    for (size_t i = 0; i < names->count; i++) {
        if (!ends_with(names->items[i], CHECKPOINT_ENDING)) continue;
        struct seal seal;
        char *path = text_path(dir, names->items[i]);
        status s = sealed_read_seal(path, &seal);
        if (s == OK) {
            candidates->items[candidates->count++] = (struct candidate){path, seal.order};
            continue;
        }
        skip_file(candidates, log, path, s);
        free(path);
    }
    if (candidates->count) qsort(candidates->items, candidates->count, sizeof *candidates->items, compare_order);
    return OK;
}

static void candidates_free(struct candidates *candidates) {
    for (size_t i = 0; i < candidates->count; i++) free(candidates->items[i].path);
    free(candidates->items);
    text_free(&candidates->reasons);
    *candidates = (struct candidates){0};
}

/* Opens the first valid one; *out NULL when there is none. [is_last]: the caller will not retry after removed files. */
static status open_first(const char *dir, struct log *log, struct candidates *candidates, bool is_last,
                         struct checkpoint **out, char **path) {
    for (size_t i = 0; i < candidates->count; i++) {
        status s = checkpoint_open(candidates->items[i].path, out);
        if (s == OK) {
            *path = candidates->items[i].path;
            candidates->items[i].path = NULL;
            return OK;
        }
        skip_file(candidates, log, candidates->items[i].path, s);
    }
    if ((candidates->removed && !is_last) || candidates->invalid == 0) return OK;
    return status_new(candidates->code, "%s: none of its %zu checkpoints is valid:%s", dir, candidates->invalid,
                      text_string(&candidates->reasons));
}

status checkpoint_open_newest(const char *dir, struct log *log, struct checkpoint **out, char **path) {
    *out = NULL;
    *path = NULL;
    bool is_stale = true;
    status s = OK;
    for (int round = 0; round < MAX_ROUNDS && is_stale && s == OK; round++) {
        struct io_info info;
        SCOPED_NAMES names = {0};
        struct candidates candidates = {.code = STATUS_DATA};
        TRY(io_stat(dir, &info));
        if (!info.exists) return OK;
        TRY(io_list(dir, &names));
        s = find_candidates(dir, &names, log, &candidates);
        if (s == OK) s = open_first(dir, log, &candidates, round + 1 == MAX_ROUNDS, out, path);
        is_stale = !*out && candidates.removed; /* there must be a newer one */
        candidates_free(&candidates);
    }
    return s;
}

/* Whether [path] is DIR/[written].h5. */
static bool is_written(const char *path, const char *written) {
    const char *name = strrchr(path, '/') + 1;
    size_t length = written ? strlen(written) : 0;
    return written && strncmp(name, written, length) == 0 && strcmp(name + length, CHECKPOINT_ENDING) == 0;
}

/* Removes all but the newest [keep]. The newest that is kept is verified, unless it was just [written], so that a valid
 * one always remains; damaged files do not count. */
static status prune(const struct candidates *candidates, int64_t keep, const char *written) {
    status s = OK;
    int64_t kept = 0;
    for (size_t i = 0; i < candidates->count; i++) {
        const char *path = candidates->items[i].path;
        if (!checkpoint_is_name(strrchr(path, '/') + 1)) continue; /* a copy */
        if (kept == keep) {
            s = status_first(s, io_remove(path));
            continue;
        }
        struct seal seal;
        status invalid = kept || is_written(path, written) ? OK : sealed_verify(path, &seal);
        if (invalid == OK) kept++;
        status_free(invalid); /* reported when it is opened */
    }
    return s;
}

status checkpoint_prune(const char *dir, int64_t keep, const char *written) {
    struct io_info info;
    SCOPED_NAMES names = {0};
    struct candidates candidates = {0};
    TRY(io_stat(dir, &info));
    if (!info.exists) return OK;
    TRY(io_list(dir, &names));
    status s = remove_temporaries(dir, &names);
    if (keep > 0) s = status_first(s, find_candidates(dir, &names, NULL, &candidates));
    if (keep > 0 && s == OK) s = prune(&candidates, keep, written);
    candidates_free(&candidates);
    return s;
}
