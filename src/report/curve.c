/* A series of points in bounded memory. When all buckets are in use, neighbours are merged in pairs and each has twice
 * the width from then on. */
#include "report/curve.h"

#include <math.h>
#include <stdlib.h>

#include "base/status.h"

static struct curve_bucket merged(const struct curve_bucket *a, const struct curve_bucket *b) {
    return (struct curve_bucket){.low = b->low.y < a->low.y ? b->low : a->low,
                                 .high = b->high.y > a->high.y ? b->high : a->high,
                                 .sum = a->sum + b->sum,
                                 .count = a->count + b->count,
                                 .has_gap = a->has_gap || b->has_gap};
}

static void halve(struct curve *c) {
    for (size_t i = 0; i < c->count / 2; i++) c->buckets[i] = merged(&c->buckets[2 * i], &c->buckets[2 * i + 1]);
    c->count /= 2;
    c->width *= 2;
    c->filled = c->width;
}

static struct curve_bucket *new_bucket(struct curve *c) {
    if (c->width == 0) c->width = 1;
    if (c->count == CURVE_MAX_BUCKETS) halve(c);
    if (c->count == c->capacity) {
        c->capacity = c->capacity ? 2 * c->capacity : 16;
        c->buckets = status_need(realloc(c->buckets, c->capacity * sizeof *c->buckets));
    }
    c->filled = 0;
    return &c->buckets[c->count++];
}

void curve_add(struct curve *c, double x, double y) {
    struct curve_point point = {x, y};
    if (!isfinite(y) || !isfinite(x)) {
        c->missing++;
        c->has_gap = true;
        return;
    }
    struct curve_bucket bucket = {point, point, y, 1, c->has_gap};
    if (c->values++ == 0) c->first = c->lowest = c->highest = point;
    if (y < c->lowest.y) c->lowest = point;
    if (y > c->highest.y) c->highest = point;
    c->last = point;
    c->has_gap = false;
    if (c->count == 0 || c->filled == c->width) {
        struct curve_bucket *added = new_bucket(c);
        *added = bucket;
    } else {
        c->buckets[c->count - 1] = merged(&c->buckets[c->count - 1], &bucket);
    }
    c->filled++;
}

void curve_visit(const struct curve *c, void (*point)(void *user, double x, double y, bool is_joined), void *user) {
    double x = NAN;
    for (size_t i = 0; i < c->count; i++) {
        const struct curve_bucket *b = &c->buckets[i];
        struct curve_point a = b->low, z = b->high;
        if (z.x < a.x) a = b->high, z = b->low;
        point(user, a.x, a.y, i > 0 && !b->has_gap);
        if (z.x != a.x) point(user, z.x, z.y, true);
        x = z.x;
    }
    if (c->count && c->last.x != x) point(user, c->last.x, c->last.y, true);
}

size_t curve_groups(const struct curve *c, size_t max, struct curve_group *out) {
    size_t each = (c->count + max - 1) / max, count = 0;
    for (size_t i = 0; i < c->count; count++) {
        struct curve_bucket all = c->buckets[i];
        double from = fmin(all.low.x, all.high.x), to = fmax(all.low.x, all.high.x);
        for (size_t k = 1; k < each && i + k < c->count; k++) {
            const struct curve_bucket *b = &c->buckets[i + k];
            to = fmax(b->low.x, b->high.x);
            all = merged(&all, b);
        }
        out[count] = (struct curve_group){(from + to) / 2, all.low.y, all.high.y, all.sum / (double)all.count,
                                          i > 0 && !all.has_gap};
        i += each;
    }
    return count;
}

void curve_free(struct curve *c) {
    free(c->buckets);
    *c = (struct curve){0};
}
