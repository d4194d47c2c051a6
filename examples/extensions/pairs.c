/* pairs: the contrastive loss of Hadsell, Chopra and LeCun (2006) over all pairs of rows of a batch, over all
 * processes: two rows of one class should have embeddings at the distance 0, two of different classes at least at
 * [margin]. The target is the class. It is a Siamese network whose pairs are drawn anew in each epoch, with the order
 * of the rows: the model is the network of one side. Both kinds of pairs count half, however many there are of each. */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

struct config {
    double margin;
};

static const struct schema_row keys[] = {
    SCHEMA_ROW(REAL, struct config, margin, .fallback = "1", .min = 0, .max = INFINITY, .excludes_min = true,
               .doc = "Rows of different classes are far enough apart at this distance."),
    {0},
};
static const struct schema schema = {
    .name = "loss.pairs", .size = sizeof(struct config), .rows = keys, .shorthand = "margin"};

static status check(const void *config, const struct shape *output, size_t target_size, int64_t classes) {
    (void)config, (void)classes;
    if (output->dims == 1 && target_size == 1) return OK;
    return status_new(STATUS_USAGE, "pairs needs an embedding for each row, a vector, and one target, its class");
}

/* The rows of all processes, one after another: the class, then the embedding (size); those of this process are from
 * *own on. *count of them. */
static float *gather(const struct row_weights *weights, const float *output, const float *targets, size_t rows,
                     size_t size, size_t *own, size_t *count) {
    const struct all_rows *all = weights->all;
    size_t ranks = all ? all->world_size : 1, rank = all ? all->rank : 0, max = all ? all->max : rows, row = size + 1;
    float *values = calloc(ranks * max * row + 1, sizeof *values);
    if (!values) status_exit_without_memory();
    for (size_t r = 0; r < rows; r++) {
        float *to = values + (rank * max + r) * row;
        to[0] = targets[r];
        memcpy(to + 1, output + r * size, size * sizeof *to);
    }
    if (all) all->gather(all->user, values, max * row * sizeof *values);
    *own = *count = 0;
    for (size_t k = 0; k < ranks; k++) { /* without the space between them */
        size_t n = all ? all->rows[k] : rows;
        if (k == rank) *own = *count;
        memmove(values + *count * row, values + k * max * row, n * row * sizeof *values);
        *count += n;
    }
    return values;
}

static double distance(const float *a, const float *b, size_t size) {
    double sum = 0;
    for (size_t i = 1; i <= size; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum);
}

/* The sums of the losses d^2 and max(0, margin - d)^2 of pairs of one class [1] and of different ones [0], and how many
 * there are. */
static void add_pairs(const float *rows, size_t count, size_t size, double margin, double loss[2], double pairs[2]) {
    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count; k++) {
            const float *a = rows + i * (size + 1), *b = rows + k * (size + 1);
            bool is_same = a[0] == b[0];
            double d = distance(a, b, size), error = is_same ? d : fmax(0, margin - d);
            loss[is_same] += error * error;
            pairs[is_same]++;
        }
}

/* The derivative of the loss for row [i], times [factor]: to (size). */
static void add_slope(const float *rows, size_t count, size_t size, size_t i, double margin, const double pairs[2],
                      double factor, float *to) {
    const float *a = rows + i * (size + 1);
    for (size_t k = 0; k < count; k++) {
        const float *b = rows + k * (size + 1);
        bool is_same = a[0] == b[0];
        double d = distance(a, b, size);
        if (k == i || (!is_same && (d >= margin || d == 0))) continue;
        /* d/da d^2 = 2 (a - b);  d/da (margin - d)^2 = -2 (margin - d) (a - b) / d */
        double slope = (is_same ? 2 : -2 * (margin - d) / d) * 0.5 / pairs[is_same] * factor;
        for (size_t n = 0; n < size; n++) to[n] += (float)(slope * ((double)a[n + 1] - (double)b[n + 1]));
    }
}

static void run(const void *config, const struct loss_batch *b) {
    double margin = ((const struct config *)config)->margin, loss[2] = {0}, pairs[2] = {0}, mean = 0;
    size_t size = shape_elements(b->shape), own, count;
    float *all = gather(b->weights, floats(b->output), b->targets, b->rows, size, &own, &count);
    add_pairs(all, count, size, margin, loss, pairs);
    for (int kind = 0; kind < 2; kind++) mean += pairs[kind] > 0 ? 0.5 * loss[kind] / pairs[kind] : 0;
    double factor = (double)count / (double)(b->rows ? b->rows : 1) * (double)b->scale;
    if (b->gradient) memset(floats(b->gradient), 0, b->rows * size * sizeof(float));
    for (size_t r = 0; b->gradient && r < b->rows; r++)
        add_slope(all, count, size, own + r, margin, pairs, factor, floats(b->gradient) + r * size);
    b->sums->loss += mean * (double)b->rows;
    b->sums->count += (double)b->rows;
    free(all);
}

static const struct loss_type pairs = {
    .variant = {"pairs", &schema, "The contrastive loss of all pairs of rows, of embeddings; targets are classes."},
    .targets = "classes",
    .check = check,
    .run = run,
    .compares_rows = true,
    .without_lengths = "it is of one embedding for each row",
};

DDPTRAIN_EXTENSION(.loss = &pairs);
