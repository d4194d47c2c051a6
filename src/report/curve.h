/* curve: a series of points in bounded memory. Long ones are thinned: neighbours share a bucket, of which the smallest
 * and the largest value stay, so that no peak is lost. Up to CURVE_MAX_POINTS points are kept as they are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CURVE_MAX_BUCKETS 1000
#define CURVE_MAX_POINTS (2 * CURVE_MAX_BUCKETS)

struct curve_point {
    double x, y;
};

struct curve_bucket {
    struct curve_point low, high;
    double sum; /* of the values */
    uint64_t count;
    bool has_gap; /* a value that is not finite is in it or just before it */
};

/* Zero-initialise; curve_free at the end. */
struct curve {
    struct curve_bucket *buckets; /* (count) */
    size_t count, capacity;
    uint64_t width, filled;             /* points of a bucket, of the last one */
    uint64_t values, missing;           /* finite, and not */
    struct curve_point first, last;     /* finite ones */
    struct curve_point lowest, highest; /* the first of equal ones */
    bool has_gap;                       /* the next point begins a new line */
};

/* A [y] that is not finite is a gap. */
void curve_add(struct curve *curve, double x, double y);
/* Calls point(user, x, y, whether a line leads to it) from left to right. */
void curve_visit(const struct curve *curve, void (*point)(void *user, double x, double y, bool is_joined), void *user);
/* The same for a long curve in at most [max] groups of neighbours: the middle of their x, their smallest and largest
 * value and their mean. */
struct curve_group {
    double x, low, high, mean;
    bool is_joined;
};
size_t curve_groups(const struct curve *curve, size_t max, struct curve_group *out);
void curve_free(struct curve *curve);
