/* Checkpoints are sorted by the step in their seal, which has a checksum: names and times of files are not trusted, and
 * only 128 bytes of each file are read. */
#include "checkpoint/checkpoint_folder.h"

#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "base/files/sealed.h"

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
        char *path = join(dir, names->items[i], "");
        s = status_first(s, io_remove(path));
        free(path);
    }
    return s;
}

status folder_add(const char *dir, const char *name, const struct image *image) {
    TRY(io_make_folders(dir));
    struct io_names names;
    TRY(io_list(dir, &names));
    status_free(remove_temporaries(dir, &names)); /* a failure does not matter for the new file */
    io_names_free(&names);
    char *path = join(dir, name, CHECKPOINT_ENDING);
    size_t count;
    struct io_part *parts = image_parts(image, &count);
    status s = sealed_write_parts(path, parts, count, image->order);
    free(path);
    return s;
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
        char *path = join(dir, names->items[i], "");
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
        struct io_names names;
        struct candidates candidates = {.code = STATUS_DATA};
        TRY(io_stat(dir, &info));
        if (!info.exists) return OK;
        TRY(io_list(dir, &names));
        s = find_candidates(dir, &names, log, &candidates);
        if (s == OK) s = open_first(dir, log, &candidates, round + 1 == MAX_ROUNDS, out, path);
        is_stale = !*out && candidates.removed; /* there must be a newer one */
        candidates_free(&candidates);
        io_names_free(&names);
    }
    return s;
}

/* Removes all but the newest [keep]. The newest that is kept is verified, so that a valid one always remains; damaged
 * files do not count. */
static status prune(const struct candidates *candidates, int64_t keep) {
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
        status invalid = kept ? OK : sealed_verify(path, &seal);
        if (invalid == OK) kept++;
        status_free(invalid); /* reported when it is opened */
    }
    return s;
}

status checkpoint_prune(const char *dir, int64_t keep) {
    struct io_info info;
    struct io_names names;
    struct candidates candidates = {0};
    TRY(io_stat(dir, &info));
    if (!info.exists) return OK;
    TRY(io_list(dir, &names));
    status s = remove_temporaries(dir, &names);
    if (keep > 0) s = status_first(s, find_candidates(dir, &names, NULL, &candidates));
    if (keep > 0 && s == OK) s = prune(&candidates, keep);
    candidates_free(&candidates);
    io_names_free(&names);
    return s;
}
