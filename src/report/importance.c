/* Equal values share the mean of their ranks. */
#include "report/importance.h"

#include <math.h>
#include <stdlib.h>

#include "base/status.h"

struct ranked {
    double value;
    size_t index;
};

/* NAN is the largest. */
static int by_value(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (isnan(x->value) || isnan(y->value)) return isnan(x->value) - isnan(y->value);
    return x->value < y->value ? -1 : x->value > y->value;
}

static void *array(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) status_exit_without_memory();
    return memory;
}

static struct ranked *sorted(const double *values, size_t count) {
    struct ranked *items = array(count, sizeof *items);
    for (size_t i = 0; i < count; i++) items[i] = (struct ranked){values[i], i};
    qsort(items, count, sizeof *items, by_value);
    return items;
}

static bool is_equal(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

/* Index behind the values that equal the one at [from]. */
static size_t end_of_equal(const struct ranked *items, size_t count, size_t from) {
    size_t to = from + 1;
    while (to < count && is_equal(items[to].value, items[from].value)) to++;
    return to;
}

static double *ranks_of(const double *values, size_t count) {
    struct ranked *items = sorted(values, count);
    double *ranks = array(count, sizeof *ranks);
    for (size_t i = 0, end; i < count; i = end) {
        end = end_of_equal(items, count, i);
        for (size_t k = i; k < end; k++) ranks[items[k].index] = (double)(i + end - 1) / 2;
    }
    free(items);
    return ranks;
}

/* The group of each value, from 0 without gaps; returns how many there are. */
static size_t group(const double *values, size_t count, bool is_number, size_t *groups) {
    struct ranked *items = sorted(values, count);
    size_t wanted = (size_t)sqrt((double)count / 5), found = 0, last = 0;
    wanted = wanted < 2 ? 2 : wanted > 10 ? 10 : wanted;
    for (size_t i = 0, end; i < count; i = end) {
        end = end_of_equal(items, count, i);
        size_t bin = is_number && !isnan(items[i].value) ? i * wanted / count : count + i;
        if (i == 0 || bin != last) found++;
        last = bin;
        for (size_t k = i; k < end; k++) groups[items[k].index] = found - 1;
    }
    free(items);
    return found;
}

static double mean_of(const double *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += values[i];
    return sum / (double)count;
}

double importance_share(const double *metric, const double *values, size_t count, bool is_number) {
    if (count < IMPORTANCE_MIN_VALUES) return NAN;
    double *ranks = ranks_of(metric, count), mean = mean_of(ranks, count), total = 0, between = 0;
    size_t *groups = array(count, sizeof *groups), k = group(values, count, is_number, groups);
    double *sums = array(k, sizeof *sums), *sizes = array(k, sizeof *sizes);
    for (size_t i = 0; i < count; i++) {
        total += (ranks[i] - mean) * (ranks[i] - mean);
        sums[groups[i]] += ranks[i];
        sizes[groups[i]]++;
    }
    for (size_t i = 0; i < k; i++) between += sizes[i] * (sums[i] / sizes[i] - mean) * (sums[i] / sizes[i] - mean);
    double within = (total - between) / (double)(count - k); /* k < count is asked for below */
    double share = total == 0 || k < 2 || k >= count ? NAN : (between - (double)(k - 1) * within) / total;
    free(ranks);
    free(groups);
    free(sums);
    free(sizes);
    return isnan(share) ? NAN : fmax(0, share);
}

double importance_correlation(const double *metric, const double *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (isnan(values[i]) || isnan(metric[i])) return NAN;
    if (count < 2) return NAN;
    double *a = ranks_of(metric, count), *b = ranks_of(values, count), mean = (double)(count - 1) / 2;
    double product = 0, of_a = 0, of_b = 0;
    for (size_t i = 0; i < count; i++) {
        product += (a[i] - mean) * (b[i] - mean);
        of_a += (a[i] - mean) * (a[i] - mean);
        of_b += (b[i] - mean) * (b[i] - mean);
    }
    free(a);
    free(b);
    return of_a > 0 && of_b > 0 ? product / sqrt(of_a * of_b) : NAN;
}
