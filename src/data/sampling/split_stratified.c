/* train_test_split(stratify=...), scikit-learn's StratifiedShuffleSplit, with the same random draws: the number of rows
 * of each class in each part, a permutation of each class, then one of each part. Classes are in ascending order. */
#include <math.h>
#include <stdlib.h>

#include "base/numbers/rng.h"
#include "data/sampling/split.h"
#include "data/source/source.h"

/* The rows of each class, in their order. */
struct strata {
    struct member {
        int64_t class, row;
    } * members; /* (rows), by class */
    size_t count;
    size_t *sizes;               /* (count) */
    size_t *train, *test;        /* (count) rows of each class in the two parts */
    double *remainders;          /* (count) */
    int64_t *ties, *permutation; /* (rows) workspaces */
};

static int compare_class_and_row(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    if (x->class != y->class) return x->class < y->class ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static void strata_free(struct strata *s) {
    free(s->members);
    free(s->sizes);
    free(s->train);
    free(s->test);
    free(s->remainders);
    free(s->ties);
    free(s->permutation);
}

/* false: no memory. */
static bool strata_create(const int64_t *classes, size_t rows, struct strata *s) {
    *s = (struct strata){.members = calloc(rows, sizeof *s->members),
                         .sizes = calloc(rows, sizeof *s->sizes),
                         .train = calloc(rows, sizeof *s->train),
                         .test = calloc(rows, sizeof *s->test),
                         .remainders = calloc(rows, sizeof *s->remainders),
                         .ties = calloc(rows, sizeof *s->ties),
                         .permutation = calloc(rows, sizeof *s->permutation)};
    if (!s->members || !s->sizes || !s->train || !s->test || !s->remainders || !s->ties || !s->permutation)
        return false;
    for (size_t i = 0; i < rows; i++) s->members[i] = (struct member){classes[i], (int64_t)i};
    qsort(s->members, rows, sizeof *s->members, compare_class_and_row);
    for (size_t i = 0; i < rows; i++) {
        if (i == 0 || s->members[i].class != s->members[i - 1].class) s->count++;
        s->sizes[s->count - 1]++;
    }
    return true;
}

/* scikit-learn's _approximate_mode: [draws] rows in proportion to [sizes], rounded down, then up for the largest
 * remainders, with random choice among equal ones. */
static void set_proportions(const struct strata *s, const size_t *sizes, size_t draws, struct rng *rng,
                            size_t *shares) {
    size_t sum = 0, missing = draws;
    double last = INFINITY;
    for (size_t i = 0; i < s->count; i++) sum += sizes[i];
    for (size_t i = 0; i < s->count; i++) {
        double exact = (double)sizes[i] / (double)sum * (double)draws;
        shares[i] = (size_t)exact;
        s->remainders[i] = exact - floor(exact);
        missing -= shares[i];
    }
    while (missing > 0 && last > 0) {
        double largest = -1;
        size_t count = 0;
        for (size_t i = 0; i < s->count; i++)
            if (s->remainders[i] < last && s->remainders[i] > largest) largest = s->remainders[i];
        for (size_t i = 0; i < s->count; i++)
            if (s->remainders[i] == largest) s->ties[count++] = (int64_t)i;
        rng_numpy_permutation(rng, s->permutation, count);
        for (size_t i = 0; i < count && missing > 0; i++, missing--) shares[s->ties[s->permutation[i]]]++;
        last = largest;
    }
}

/* Shuffles rows (count). */
static void shuffle(const struct strata *s, struct rng *rng, int64_t *rows, size_t count) {
    rng_numpy_permutation(rng, s->permutation, count);
    for (size_t i = 0; i < count; i++) s->ties[i] = rows[s->permutation[i]];
    for (size_t i = 0; i < count; i++) rows[i] = s->ties[i];
}

static status check_sizes(const struct strata *s, size_t n_train, size_t n_test) {
    size_t first = 0;
    for (size_t i = 0; i < s->count; first += s->sizes[i++])
        if (s->sizes[i] < 2)
            return status_new(STATUS_DATA, "class %lld has only one row; each class needs at least two",
                              (long long)s->members[first].class);
    if (n_train >= s->count && n_test >= s->count) return OK;
    return status_new(STATUS_DATA, "%zu training and %zu validation rows are too few for rows of each of %zu classes",
                      n_train, n_test, s->count);
}

static void draw(const struct strata *s, const struct split_config *config, size_t n_train, size_t n_test,
                 int64_t *order) {
    struct rng rng;
    rng_seed(&rng, (uint64_t)config->seed);
    set_proportions(s, s->sizes, n_train, &rng, s->train);
    for (size_t i = 0; i < s->count; i++) s->sizes[i] -= s->train[i];
    set_proportions(s, s->sizes, n_test, &rng, s->test);
    int64_t *test = order, *train = order + n_test;
    const struct member *members = s->members;
    for (size_t i = 0; i < s->count; i++) {
        size_t size = s->sizes[i] + s->train[i];
        rng_numpy_permutation(&rng, s->permutation, size);
        for (size_t r = 0; r < s->train[i]; r++) *train++ = members[s->permutation[r]].row;
        for (size_t r = 0; r < s->test[i]; r++) *test++ = members[s->permutation[s->train[i] + r]].row;
        members += size;
    }
    shuffle(s, &rng, order + n_test, n_train);
    shuffle(s, &rng, order, n_test);
}

status split_rows_stratified(const struct split_config *config, const int64_t *classes, size_t rows, int64_t *order) {
    struct strata strata;
    size_t n_train, n_test;
    split_sizes(config, rows, &n_train, &n_test);
    bool is_there = strata_create(classes, rows, &strata);
    status s = is_there ? check_sizes(&strata, n_train, n_test) : status_memory("%zu rows", rows);
    if (is_there && !s) draw(&strata, config, n_train, n_test, order);
    strata_free(&strata);
    return s;
}
