/* difference: where two checkpoints differ, tensor by tensor. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/scoped.h"
#include "checkpoint/checkpoint.h"

/* ---- tensors ---- */

struct saved_tensor {
    const char *group, *name;
    int dims;
    int64_t shape[MAX_DIMS];
    const char *bytes; /* float32 (product of shape) */
};

struct saved_tensors {
    struct arena *arena;
    const char *group;          /* that is being read */
    struct saved_tensor *items; /* (count) */
    size_t count, capacity;
};

static status add_tensor(void *context, const char *name, int dims, const int64_t *shape, const float *values) {
    struct saved_tensors *all = context;
    if (all->count == all->capacity) {
        struct saved_tensor *items = arena_alloc(all->arena, (all->capacity * 2 + 64) * sizeof *items);
        if (all->count) memcpy(items, all->items, all->count * sizeof *items);
        all->items = items;
        all->capacity = all->capacity * 2 + 64;
    }
    struct saved_tensor *t = &all->items[all->count++];
    *t = (struct saved_tensor){
        .group = all->group, .name = arena_copy(all->arena, name), .dims = dims, .bytes = (const char *)values};
    if (dims) memcpy(t->shape, shape, (size_t)dims * sizeof *shape);
    return OK;
}

/* 2.weight is before 10.weight. */
static int compare_tensor_names(const void *a, const void *b) {
    const struct saved_tensor *x = a, *y = b;
    return strverscmp(x->name, y->name);
}

static status list_tensors(struct checkpoint *checkpoint, const char *const *groups, struct saved_tensors *out) {
    for (size_t i = 0; groups[i]; i++) {
        bool has = false;
        size_t first = out->count;
        TRY(checkpoint_has(checkpoint, groups[i], &has));
        out->group = groups[i];
        if (has) TRY(checkpoint_visit(checkpoint, groups[i], add_tensor, out));
        if (out->count > first) qsort(out->items + first, out->count - first, sizeof *out->items, compare_tensor_names);
    }
    return OK;
}

static size_t count_values(const struct saved_tensor *t) {
    size_t count = 1;
    for (int d = 0; d < t->dims; d++) count *= (size_t)t->shape[d];
    return count;
}

static void add_name(const struct saved_tensor *t, struct text *out) { text_printf(out, "%s/%s", t->group, t->name); }

static void add_index(const struct saved_tensor *t, size_t index, struct text *out) {
    size_t block = count_values(t);
    for (int d = 0; d < t->dims; d++) {
        block /= (size_t)t->shape[d];
        text_printf(out, "%s%zu", d ? ", " : "[", index / block);
        index %= block;
    }
    if (t->dims) text_add(out, "]");
}

/* "model/0.weight (64, 13)" */
static void add_shape(const struct saved_tensor *t, struct text *out) {
    add_name(t, out);
    for (int d = 0; d < t->dims; d++) text_printf(out, "%s%lld", d ? ", " : " (", (long long)t->shape[d]);
    if (t->dims) text_add(out, ")");
}

/* Values of a file need not be aligned. */
static double value_at(const struct saved_tensor *t, size_t index) {
    float value;
    memcpy(&value, t->bytes + index * sizeof value, sizeof value);
    return (double)value;
}

/* Whether the bits of two tensors differ; adds where to [out], unless it is NULL. */
static bool add_values(const struct saved_tensor *x, const struct saved_tensor *y, const char *const names[2],
                       struct text *out) {
    size_t count = count_values(x), differing = 0, first = 0, size = sizeof(float);
    double largest = 0;
    if (memcmp(x->bytes, y->bytes, count * size) == 0) return false;
    for (size_t i = 0; i < count && out; i++) {
        if (memcmp(x->bytes + i * size, y->bytes + i * size, size) == 0) continue;
        if (differing++ == 0) first = i;
        largest = fmax(largest, fabs(value_at(x, i) - value_at(y, i)));
    }
    if (!out) return true;
    add_name(x, out);
    add_index(x, first, out);
    text_printf(out, " is %.9g in %s and %.9g in %s (%zu of its %zu values differ, by at most %.3g)",
                value_at(x, first), names[0], value_at(y, first), names[1], differing, count, largest);
    return true;
}

/* What is kept beside the parameters depends on the config: an optimizer without momentum has nothing. */
static bool may_be_absent(const struct saved_tensor *t) {
    return strcmp(t->group, "optimizer") == 0 || strcmp(t->group, "ema") == 0;
}

static int compare_places(const struct saved_tensor *x, const struct saved_tensor *y, const char *const *groups) {
    for (size_t i = 0; groups[i] && strcmp(x->group, y->group) != 0; i++) {
        if (strcmp(x->group, groups[i]) == 0) return -1;
        if (strcmp(y->group, groups[i]) == 0) return 1;
    }
    return strverscmp(x->name, y->name);
}

static void add_absent(const struct saved_tensor *t, const char *where, struct text *out) {
    if (out->length || may_be_absent(t)) return;
    add_name(t, out);
    text_printf(out, " is only in %s", where);
}

static void compare_tensors(const struct saved_tensors *a, const struct saved_tensors *b, const char *const *groups,
                            const char *const names[2], struct text *out) {
    size_t i = 0, j = 0, common = 0, differing = 0;
    SCOPED_TEXT absent = {0};
    while (i < a->count || j < b->count) {
        const struct saved_tensor *x = &a->items[i], *y = &b->items[j];
        int order = i == a->count ? 1 : j == b->count ? -1 : compare_places(x, y, groups);
        if (order) {
            add_absent(order < 0 ? x : y, names[order > 0], &absent);
            i += order<0, j += order> 0;
            continue;
        }
        i++, j++, common++;
        bool is_like = x->dims == y->dims && memcmp(x->shape, y->shape, sizeof x->shape) == 0;
        if (is_like && !add_values(x, y, names, differing ? NULL : out)) continue;
        if (!is_like && !differing) {
            add_shape(x, out);
            text_printf(out, " of %s is ", names[0]);
            add_shape(y, out);
            text_printf(out, " in %s", names[1]);
        }
        differing++;
    }
    if (differing > 1) text_printf(out, "; %zu of %zu tensors differ", differing, common);
    if (absent.length) text_printf(out, "%s%s", differing ? "; " : "", text_string(&absent));
}

/* ---- whole numbers ---- */

/* *values: of the dataset [path], malloc'ed; NULL: there is none of whole numbers. */
static status read_integers(struct checkpoint *checkpoint, const char *path, int64_t **values, size_t *count) {
    struct entry entry = {.path = path};
    bool exists;
    *values = NULL, *count = 1;
    TRY(checkpoint_find(checkpoint, &entry, &exists));
    if (!exists || entry.type != ENTRY_INT64) return OK;
    for (int d = 0; d < entry.dims; d++) *count *= (size_t)entry.shape[d];
    *values = entry.data = calloc(*count + 1, sizeof **values);
    return *values ? checkpoint_read(checkpoint, &entry, 1, NULL) : status_memory("%s", path);
}

static void compare_integers(const char *path, int64_t *const values[2], const size_t counts[2],
                             const char *const names[2], struct text *out) {
    size_t count = counts[0] < counts[1] ? counts[0] : counts[1], differing = 0, first = 0;
    for (size_t i = count; i-- > 0;)
        if (values[0][i] != values[1][i]) first = i, differing++;
    if (differing) {
        text_add(out, path);
        if (counts[0] > 1) text_printf(out, "[%zu]", first);
        text_printf(out, " is %lld in %s and %lld in %s", (long long)values[0][first], names[0],
                    (long long)values[1][first], names[1]);
        if (count > 1) text_printf(out, " (%zu of its %zu values differ)", differing, count);
    }
    if (counts[0] != counts[1])
        text_printf(out, "%s%s has %zu values in %s and %zu in %s", differing ? "; " : "", path, counts[0], names[0],
                    counts[1], names[1]);
}

static status find_integers(struct checkpoint *const files[2], const char *path, const char *const names[2],
                            struct text *out) {
    int64_t *values[2] = {0};
    size_t counts[2];
    status s = read_integers(files[0], path, &values[0], &counts[0]);
    if (!s) s = read_integers(files[1], path, &values[1], &counts[1]);
    if (!s && values[0] && values[1]) compare_integers(path, values, counts, names, out);
    free(values[0]), free(values[1]);
    return s;
}

/* ---- texts, and numbers of float64 ---- */

/* *bytes: a text with its NUL, or numbers, malloc'ed; NULL: there is none. */
static status read_bytes(struct checkpoint *checkpoint, const char *path, char **bytes, size_t *size) {
    struct entry entry = {.path = path};
    bool exists;
    *bytes = NULL, *size = 0;
    TRY(checkpoint_find(checkpoint, &entry, &exists));
    if (!exists || entry.type == ENTRY_TEXT) {
        TRY(checkpoint_read_text(checkpoint, path, bytes));
        *size = *bytes ? strlen(*bytes) + 1 : 0;
    } else if (entry.type == ENTRY_FLOAT64) {
        *size = sizeof(double);
        for (int d = 0; d < entry.dims; d++) *size *= (size_t)entry.shape[d];
        entry.data = *bytes = malloc(*size + 1);
        return *bytes ? checkpoint_read(checkpoint, &entry, 1, NULL) : status_memory("%s", path);
    }
    return OK;
}

static status find_bytes(struct checkpoint *const files[2], const char *path, const char *const names[2],
                         struct text *out) {
    char *bytes[2] = {0};
    size_t sizes[2];
    status s = read_bytes(files[0], path, &bytes[0], &sizes[0]);
    if (!s) s = read_bytes(files[1], path, &bytes[1], &sizes[1]);
    bool differ = !s && (sizes[0] != sizes[1] || (sizes[0] && memcmp(bytes[0], bytes[1], sizes[0]) != 0));
    if (differ) text_printf(out, "%s of %s is another one than that of %s", path, names[0], names[1]);
    free(bytes[0]), free(bytes[1]);
    return s;
}

status checkpoint_find_difference(struct checkpoint *const files[2], const char *const *groups,
                                  const char *const *others, const char *const names[2], struct text *out) {
    SCOPED_ARENA arena = arena_create();
    struct saved_tensors tensors[2] = {{.arena = arena}, {.arena = arena}};
    size_t before = out->length;
    status s = list_tensors(files[0], groups, &tensors[0]);
    if (!s) s = list_tensors(files[1], groups, &tensors[1]);
    if (!s) compare_tensors(&tensors[0], &tensors[1], groups, names, out);
    for (size_t i = 0; !s && others[i] && out->length == before; i++) {
        s = find_integers(files, others[i], names, out);
        if (!s && out->length == before) s = find_bytes(files, others[i], names, out);
    }
    return s;
}

status checkpoint_compare(const char *const paths[2], const char *const *groups, const char *const *others,
                          const char *const names[2], struct text *out) {
    struct checkpoint *files[2] = {0};
    status s = checkpoint_open(paths[0], &files[0]);
    if (!s) s = checkpoint_open(paths[1], &files[1]);
    if (!s) s = checkpoint_find_difference(files, groups, others, names, out);
    checkpoint_close(files[0]), checkpoint_close(files[1]);
    return s;
}
