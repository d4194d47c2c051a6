/* The shapes of rows of two files, which must agree. */
#include <string.h>

#include "data/internal.h"

/* The next dimension that is not 1; 0: there are no more. */
static int64_t next(const struct source *source, int *at) {
    while (*at < source->target_dims && source->target_shape[*at] == 1) ++*at;
    return *at < source->target_dims ? source->target_shape[(*at)++] : 0;
}

/* Whether a row has more than a list of target values. */
static bool has_shape(const struct source *source) {
    int at = 0;
    return next(source, &at) && next(source, &at);
}

static bool has_like_targets(const struct source *a, const struct source *b) {
    if (a->target_size != b->target_size) return false;
    bool is_equal = true;
    for (int i = 0, j = 0, k = 0; k < MAX_DIMS; k++) is_equal = is_equal && next(a, &i) == next(b, &j);
    return is_equal || !has_shape(a) || !has_shape(b);
}

bool source_is_like(const struct source *a, const struct source *b) {
    return a->input_dims == b->input_dims && memcmp(a->input_shape, b->input_shape, sizeof a->input_shape) == 0 &&
           has_like_targets(a, b);
}

void source_add_shape(int dims, const int64_t *shape, struct text *out) {
    for (int i = 0; i < dims; i++) text_printf(out, "%s%lld", i ? "x" : "", (long long)shape[i]);
    if (dims == 0) text_add(out, "1");
}

status source_compare_names(const struct source *a, const struct source *b, bool is_target,
                            const struct string_list *names) {
    if (names->count < 2 || !a->format->shape_of_name || !b->format->shape_of_name) return OK;
    for (size_t i = 0; i < names->count; i++) {
        int dims[2];
        int64_t shapes[2][MAX_DIMS] = {{0}};
        a->format->shape_of_name(a, is_target, i, &dims[0], shapes[0]);
        b->format->shape_of_name(b, is_target, i, &dims[1], shapes[1]);
        if (dims[0] == dims[1] && memcmp(shapes[0], shapes[1], sizeof shapes[0]) == 0) continue;
        struct text both = {0};
        source_add_shape(dims[0], shapes[0], &both);
        text_add(&both, ", but in the validation file ");
        source_add_shape(dims[1], shapes[1], &both);
        status s = status_new(STATUS_DATA, "dataset.validation: rows of '%s' have shape %s", names->items[i],
                              text_string(&both));
        text_free(&both);
        return s;
    }
    return OK;
}
