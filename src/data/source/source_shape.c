/* The shapes of rows of two files, which must agree. */
#include <string.h>

#include "data/source/source.h"

#define MIN_SIDE 8 /* pixels; smaller first dimensions are probably channels */

/* The next dimension that is not 1; 0: there are no more. */
static int64_t next(int dims, const int64_t *shape, int *at) {
    while (*at < dims && shape[*at] == 1) ++*at;
    return *at < dims ? shape[(*at)++] : 0;
}

bool source_has_shape(int dims, const int64_t *shape) {
    int at = 0;
    return next(dims, shape, &at) && next(dims, shape, &at);
}

static int64_t elements(int dims, const int64_t *shape) {
    int64_t count = 1;
    for (int i = 0; i < dims; i++) count *= shape[i];
    return count;
}

/* Dimensions of 1 may be missing, and a list of as many values fits any shape. */
static bool are_like_targets(int a_dims, const int64_t *a, int b_dims, const int64_t *b) {
    bool is_equal = true;
    for (int i = 0, j = 0, k = 0; k < MAX_DIMS; k++) is_equal = is_equal && next(a_dims, a, &i) == next(b_dims, b, &j);
    return is_equal || !source_has_shape(a_dims, a) || !source_has_shape(b_dims, b);
}

bool source_is_like(const struct source *a, const struct source *b) {
    return a->input_dims == b->input_dims && memcmp(a->input_shape, b->input_shape, sizeof a->input_shape) == 0 &&
           a->target_size == b->target_size &&
           are_like_targets(a->target_dims, a->target_shape, b->target_dims, b->target_shape);
}

void source_add_shape(int dims, const int64_t *shape, struct text *out) {
    for (int i = 0; i < dims; i++) text_printf(out, "%s%lld", i ? "x" : "", (long long)shape[i]);
    if (dims == 0) text_add(out, "1");
}

bool source_seems_channels_last(int dims, const int64_t *shape) {
    if (dims != 3 || shape[0] < MIN_SIDE || shape[1] < MIN_SIDE) return false;
    return shape[2] == 3 || shape[2] == 4 || (shape[2] == 1 && shape[0] == shape[1]);
}

status source_compare_names(const struct source *a, const struct source *b, bool is_target,
                            const struct string_list *names, const char *where, const char *other) {
    if (names->count < 2 || !a->format->shape_of_name || !b->format->shape_of_name) return OK;
    for (size_t i = 0; i < names->count; i++) {
        int dims[2];
        int64_t shapes[2][MAX_DIMS] = {{0}};
        a->format->shape_of_name(a, is_target, i, &dims[0], shapes[0]);
        b->format->shape_of_name(b, is_target, i, &dims[1], shapes[1]);
        bool is_same = dims[0] == dims[1] && memcmp(shapes[0], shapes[1], sizeof shapes[0]) == 0;
        bool is_like = is_target && elements(dims[0], shapes[0]) == elements(dims[1], shapes[1]) &&
                       are_like_targets(dims[0], shapes[0], dims[1], shapes[1]);
        if (is_same || is_like) continue;
        struct text both = {0};
        source_add_shape(dims[0], shapes[0], &both);
        text_printf(&both, ", but in the %s file ", other);
        source_add_shape(dims[1], shapes[1], &both);
        status s =
            status_new(STATUS_DATA, "%s: rows of '%s' have shape %s", where, names->items[i], text_string(&both));
        text_free(&both);
        return s;
    }
    return OK;
}
