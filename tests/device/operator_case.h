/* A case: the same operator calls on any device, whose results are compared. Each result is a separate block with a
 * guard page at its end. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check_main.h"
#include "device_work.h"

#define MAX_RESULTS 512

/* Results of a case, in order. */
struct results {
    struct {
        void *memory;
        size_t count;
        bool is_bytes; /* uint8_t that must be the same on all devices, not floats */
    } items[MAX_RESULTS];
    size_t count;
};

static inline void *add_result(struct results *r, size_t count, bool is_bytes) {
    ck_assert_uint_lt(r->count, MAX_RESULTS);
    void *memory = guarded_malloc(count * (is_bytes ? 1 : sizeof(float)));
    r->items[r->count].memory = memory;
    r->items[r->count].count = count;
    r->items[r->count++].is_bytes = is_bytes;
    return memory;
}

static inline float *next(struct results *r, size_t count) { return add_result(r, count, false); }

/* A result with initial values, for an operator that adds to it. */
static inline float *next_from(struct results *r, size_t count, uint64_t seed) {
    float *values = next(r, count), *start = random_values(count, seed);
    memcpy(values, start, count * sizeof *values);
    guarded_free(start);
    return values;
}

static inline uint8_t *next_bytes(struct results *r, size_t count) { return add_result(r, count, true); }

static inline void free_results(struct results *r) {
    for (size_t i = 0; i < r->count; i++) guarded_free(r->items[i].memory);
}

struct operator_case {
    const char *name;
    void (*run)(struct device *, struct results *);
    double tolerance; /* of |a - b| in units of 1 + |a| */
};

/* Runs the case and destroys the device. */
static inline void run_on(struct device *device, const struct operator_case *work, struct results *r) {
    r->count = 0;
    work->run(device, r);
    status s = device_status(device);
    ck_assert_msg(!s, "%s", status_message(s));
    device_destroy(device);
}

static inline bool is_same_result(const struct results *a, const struct results *b, size_t i) {
    size_t bytes = a->items[i].count * (a->items[i].is_bytes ? 1 : sizeof(float));
    return a->items[i].count == b->items[i].count && memcmp(a->items[i].memory, b->items[i].memory, bytes) == 0;
}

/* [what]: the two devices. */
static inline void results_agree(const struct operator_case *work, const struct results *a, const struct results *b,
                                 double tolerance, const char *what) {
    ck_assert_uint_gt(a->count, 0);
    ck_assert_uint_eq(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        ck_assert_uint_eq(a->items[i].count, b->items[i].count);
        for (size_t k = 0; k < a->items[i].count; k++) {
            bool is_bytes = a->items[i].is_bytes;
            double x = is_bytes ? ((uint8_t *)a->items[i].memory)[k] : (double)((float *)a->items[i].memory)[k];
            double y = is_bytes ? ((uint8_t *)b->items[i].memory)[k] : (double)((float *)b->items[i].memory)[k];
            bool is_close = x == y || (isnan(x) && isnan(y)) || (!is_bytes && fabs(x - y) <= tolerance * (1 + fabs(x)));
            if (!is_close) ck_abort_msg("%s: result %zu, value %zu: %s %.9g and %.9g", work->name, i, k, what, x, y);
        }
    }
}
