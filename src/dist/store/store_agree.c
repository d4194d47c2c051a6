/* store_agree: rank 0 publishes its text in pieces; every other rank compares it with its own and publishes the
 * differences; rank 0 combines them and publishes the result. The texts of other ranks are not transferred. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/store/store.h"
#include "dist/store/store_internal.h"

#define PIECE 60000
#define MAX_LINES 8
#define MAX_SHOWN 3 /* ranks whose lines are in the message */

struct agreement {
    struct store *store;
    unsigned number;
    double timeout;
};

static status set_part(const struct agreement *a, const char *part, int index, const void *value, size_t size) {
    char key[64];
    snprintf(key, sizeof key, "agree/%u/%s/%d", a->number, part, index);
    return store_set(a->store, key, value, size);
}

static status get_part(const struct agreement *a, const char *part, int index, struct text *out) {
    char key[64];
    void *value;
    size_t size;
    snprintf(key, sizeof key, "agree/%u/%s/%d", a->number, part, index);
    TRY(store_get(a->store, key, a->timeout, &value, &size));
    text_add_bytes(out, value, size);
    free(value);
    return OK;
}

/* The last piece is shorter than PIECE. */
static status publish(const struct agreement *a, const char *text) {
    size_t length = strlen(text), size = PIECE;
    for (int i = 0; size == PIECE; i++, text += size, length -= size) {
        size = length < PIECE ? length : PIECE;
        TRY(set_part(a, "text", i, text, size));
    }
    return OK;
}

static status fetch(const struct agreement *a, struct text *out) {
    for (int i = 0;; i++) {
        size_t before = out->length;
        TRY(get_part(a, "text", i, out));
        if (out->length - before < PIECE) return OK;
    }
}

static size_t line_length(const char *text) { return strcspn(text, "\n"); }

/* Adds the first lines in which mine differs from rank 0's to [out]. */
static void compare(int rank, const char *zero, const char *mine, struct text *out) {
    for (int shown = 0; *zero || *mine;) {
        size_t a = line_length(zero), b = line_length(mine);
        if (a != b || memcmp(zero, mine, a) != 0) {
            if (shown++ == MAX_LINES) {
                text_add(out, "\n  ...");
                return;
            }
            text_printf(out, "\n  rank 0: %.*s\n  rank %d: %.*s", (int)(a < 200 ? a : 200), zero, rank,
                        (int)(b < 200 ? b : 200), mine);
        }
        zero += a + (zero[a] == '\n');
        mine += b + (mine[b] == '\n');
    }
}

/* On other ranks than 0: publishes the difference. */
static status publish_difference(const struct agreement *a, int rank, const char *mine) {
    struct text zero = {0}, difference = {0};
    status failure = fetch(a, &zero);
    bool is_equal = !failure && strcmp(text_string(&zero), mine) == 0;
    if (!failure && !is_equal) {
        compare(rank, text_string(&zero), mine, &difference);
        if (difference.length == 0) text_add(&difference, "\n  (in the newline at the end)");
    }
    if (!failure) failure = set_part(a, "difference", rank, text_string(&difference), difference.length);
    text_free(&zero);
    text_free(&difference);
    return failure;
}

/* On rank 0: adds the message with all differences to [result]; nothing if all texts are equal. */
static status collect(const struct agreement *a, int world_size, const char *what, struct text *result) {
    struct text ranks = {0}, lines = {0}, difference = {0};
    int different = 0;
    status failure = OK;
    for (int r = 1; r < world_size && !failure; r++) {
        text_clear(&difference);
        failure = get_part(a, "difference", r, &difference);
        if (failure || difference.length == 0) continue;
        if (different++ < MAX_SHOWN) text_add(&lines, difference.data);
        if (different <= 16) text_printf(&ranks, "%s%d", different > 1 ? ", " : "", r);
    }
    if (different)
        text_printf(result, "%s is not the same on all ranks: rank%s %s%s differ%s from rank 0%s", what,
                    different > 1 ? "s" : "", text_string(&ranks), different > 16 ? ", ..." : "",
                    different > 1 ? "" : "s", text_string(&lines));
    text_free(&ranks);
    text_free(&lines);
    text_free(&difference);
    return failure;
}

static status exchange(const struct agreement *a, const char *what, const char *text, struct text *result) {
    int rank = store_rank(a->store);
    if (rank == 0) {
        TRY(publish(a, text));
        TRY(collect(a, store_world_size(a->store), what, result));
        return set_part(a, "result", 0, text_string(result), result->length);
    }
    TRY(publish_difference(a, rank, text));
    return get_part(a, "result", 0, result);
}

status store_agree(struct store *store, const char *what, const char *text, double timeout) {
    if (store_world_size(store) == 1) return OK;
    struct agreement a = {.store = store, .number = store_next_agreement(store), .timeout = timeout};
    struct text result = {0};
    status failure = exchange(&a, what, text, &result);
    if (!failure && result.length > 0) failure = status_new(STATUS_USAGE, "%s", result.data);
    text_free(&result);
    return failure;
}
