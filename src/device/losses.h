/* losses: sums over a batch, and gradients of its mean. The caller defines the mean: derivatives are multiplied by
 * [factor] (the gradient's scale divided by the count). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct device;
struct tensor;

/* Result of a loss over a batch: sums, not means, so that they add up over batches and ranks. In device memory;
 * operators add to it. */
struct loss_sums {
    double loss;    /* sum over [count] */
    double count;   /* denominator of the mean: rows, elements, or the weights of classes */
    double correct; /* positions, of [scored], whose largest output is the target class; 0 for other losses */
    double scored;  /* both weighted by rows */
};

/* The rows of a batch on all ranks, for a loss that compares rows with each other. All ranks make the same
 * calls of gather, those without rows, too. */
struct all_rows {
    size_t world_size, rank; /* number of ranks; this one */
    const size_t *rows;      /* (world_size) of each */
    size_t max;              /* of them */
    /* all (world_size, bytes), on the host: each rank has set its part, and gets those of all. [user] keeps a
     * failure; then the other parts are not set. */
    void (*gather)(void *user, void *all, size_t bytes);
    /* The same in the memory of a GPU, enqueued on [stream], a multiple of 4 bytes; NULL: gather is used. */
    void (*enqueue)(void *user, void *all, size_t bytes, void *stream);
    void *user;
};

/* Weights of the rows of a batch: each loss, and each derivative, is multiplied by that of its row. */
struct row_weights {
    const float *values; /* (rows), in device memory; NULL: all 1 */
    bool is_counted;     /* loss_sums.count is weighted, too */
    /* Lengths (rows), in device memory: of the [positions] of a row only the first ones count, the others are padding:
     * no loss, no derivative. NULL: all count. Not of losses that compare rows. */
    const int32_t *lengths;
    size_t positions;
    size_t target_size;         /* values of a row of targets, for losses whose targets are of any number */
    const struct all_rows *all; /* for losses whose type compares_rows; NULL: there are no other ranks */
};

struct cross_entropy_options {
    float label_smoothing;
    float margin;         /* multi_margin */
    bool squares;         /* multi_margin: v^2 */
    const double *weight; /* (classes), in host memory; NULL: all 1 */
    int64_t ignored;      /* target that is ignored */
    struct row_weights rows;
    size_t row_positions; /* positions of a row; with rows.values */
};

enum elementwise_loss {
    LOSS_MSE,             /* (x - t)^2 */
    LOSS_L1,              /* |x - t| */
    LOSS_SMOOTH_L1,       /* d = |x - t|:  d < beta ? d^2 / (2 beta) : d - beta / 2 */
    LOSS_BCE_WITH_LOGITS, /* w = 1 + (pos_weight - 1) t:  (1 - t) x + w (log(1 + exp(-|x|)) + max(-x, 0)) */
    LOSS_KL_DIV,          /* t (log t - x), 0 where t is 0 */
    LOSS_KL_DIV_LOG,      /* exp(t) (t - x) */
    LOSS_HUBER,           /* d = |x - t|:  d <= beta ? d^2 / 2 : beta (d - beta / 2) */
    LOSS_QUANTILE,        /* x > t ? (1 - beta) (x - t) : beta (t - x) */
    LOSS_POISSON,         /* x - t log(x + eps) */
    LOSS_POISSON_LOG,     /* exp(x) - t x */
    LOSS_FOCAL,           /* bce_with_logits times a (1 - p)^gamma, p the probability of the target */
    LOSS_HINGE_EMBEDDING, /* t = 1: x, t = -1: max(0, beta - x), else their sum */
    LOSS_SOFT_MARGIN      /* log(1 + exp(-t x)) */
};

struct elementwise_options {
    enum elementwise_loss loss;
    float beta;               /* LOSS_SMOOTH_L1; 0: L1. LOSS_HUBER: its delta. LOSS_QUANTILE: the quantile.
                               * LOSS_HINGE_EMBEDDING: its margin */
    float eps;                /* LOSS_POISSON */
    bool is_full;             /* LOSS_POISSON, LOSS_POISSON_LOG: with Stirling's approximation of log(t!) */
    float alpha, gamma;       /* LOSS_FOCAL: a = alpha t + (1 - alpha) (1 - t); negative: 1 */
    const double *pos_weight; /* LOSS_BCE_WITH_LOGITS: (pos_weights), repeated over the elements; in host memory */
    size_t pos_weights;       /* 0: all 1 */
    size_t pos_weight_run;    /* consecutive elements of one weight, at least 1; with pos_weights */
    bool is_row_mean; /* the mean is over rows, of the sums of their elements: padding does not change the count */
    struct row_weights rows;
    size_t row_elements; /* elements of a row; with rows.values or rows.lengths */
};

enum rowwise_loss {
    ROWWISE_DICE,             /* p = sigmoid(x): 1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth) */
    ROWWISE_GAUSSIAN_NLL,     /* parts mean and v, v >= eps: mean of (log(v) + (mean - t)^2 / v) / 2 */
    ROWWISE_COSINE_EMBEDDING, /* parts x and y: t = 1: 1 - cos(x, y), t = -1: max(0, cos(x, y) - margin) */
    ROWWISE_KL_NORMAL,        /* parts mean and v: sum of (exp(v) + mean^2 - 1 - v) / 2 */
    ROWWISE_TRIPLET_MARGIN,   /* parts anchor, positive, negative: max(0, margin + |a - p + eps| - |a - n + eps|) */
    ROWWISE_MARGIN_RANKING,   /* parts x and y: mean of max(0, margin - t (x - y)) */
    ROWWISE_CROSS_ENTROPY,    /* t' = (1 - smooth) t + smooth / size:  -sum(weight t' log_softmax(x)) */
    /* t are classes, before the first negative one: mean, with 0 for those in t, of the sums over t of
     * max(0, 1 - x[t] + x) */
    ROWWISE_MULTILABEL_MARGIN,
};

struct rowwise_options {
    enum rowwise_loss loss;
    float smooth, eps, margin;
    const double *weight; /* ROWWISE_CROSS_ENTROPY: (size), in host memory; NULL: all 1 */
    bool is_full;         /* ROWWISE_GAUSSIAN_NLL: with the constant log(2 pi) / 2 */
    bool is_swapped;      /* ROWWISE_TRIPLET_MARGIN: |p - n + eps| where it is less than |a - n + eps| */
    size_t parts;         /* vectors of a row */
    size_t targets;       /* values of a row of targets */
    struct row_weights rows;
    size_t row_masks; /* rows here of a row there; with rows.values. With rows.lengths they are its positions */
};

struct ctc_options {
    int64_t blank, padding; /* the targets of a row end before the first [padding] */
    bool zero_infinity;
    size_t steps, classes; /* of an output */
    struct row_weights rows;
};

struct contrastive_options {
    float temperature;
    bool is_symmetric;          /* the mean of both directions; else a is classified only */
    size_t size;                /* values of an embedding */
    const struct all_rows *all; /* NULL: there are no other ranks */
};

struct loss_ops {
    /* logits (positions, classes), targets (positions). Adds the positions to *sums, count by the weights of the
     * targets; dlogits, unless NULL, = d(mean loss)/dlogits * scale, 0 for ignored targets */
    void (*cross_entropy)(struct device *, const struct cross_entropy_options *, const struct tensor *logits,
                          const int64_t *targets, size_t positions, size_t classes, float scale,
                          const struct tensor *dlogits, struct loss_sums *sums);
    /* The same without softmax, for log-probabilities, and without label_smoothing. */
    void (*nll)(struct device *, const struct cross_entropy_options *, const float *log_probabilities,
                const int64_t *targets, size_t positions, size_t classes, float scale, float *dx,
                struct loss_sums *sums);
    /* With v = margin - x of the target + x, the sum of v over the other classes where v > 0, times the weight of the
     * target, over the number of classes; the count is that of positions. */
    void (*multi_margin)(struct device *, const struct cross_entropy_options *, const float *x, const int64_t *targets,
                         size_t positions, size_t classes, float scale, float *dx, struct loss_sums *sums);
    /* outputs (rows, parts, size), targets (rows, options->targets): sums->loss += over the rows, sums->count += rows;
     * doutputs, unless NULL, = derivative * factor. With lengths those that are padding are left out, and [factor] is
     * multiplied by rows / those that are not. */
    void (*rowwise)(struct device *, const struct rowwise_options *, const float *outputs, const float *targets,
                    size_t rows, size_t size, float factor, float *doutputs, struct loss_sums *sums);
    /* sums->loss += over the elements, sums->count += counted (with rows.is_counted times the mean weight); doutputs
     * (count), unless NULL, = derivative * factor. With lengths, unless is_row_mean, [counted] is multiplied by the
     * share of the elements that are not padding, and [factor] is divided by it. */
    void (*elementwise)(struct device *, const struct elementwise_options *, const float *outputs, const float *targets,
                        size_t count, float factor, double counted, float *doutputs, struct loss_sums *sums);
    /* log_probabilities (rows, steps, classes), targets (rows, options->rows.target_size): adds the loss of each row,
     * of its first rows.lengths steps, divided by its number of targets, and rows to the count; correct are rows whose
     * largest outputs, without repetitions and blanks, are the targets. dx, unless NULL, = (exp(log_probabilities) -
     * probability of each class given the targets) * factor / targets, PyTorch's gradient. */
    void (*ctc)(struct device *, const struct ctc_options *, const float *log_probabilities, const int64_t *targets,
                size_t rows, float factor, float *dx, struct loss_sums *sums);
    /* Allocates the workspace of ctc for [rows] rows. */
    status (*ctc_prepare)(struct device *, size_t rows, size_t steps, size_t classes, size_t target_size);
    /* outputs (rows, 2, size) = a and b, which are divided by their norms. The loss of row i is the cross entropy of
     * the logits a_i b_j / temperature over the rows j of all ranks, with the class i; in the other direction b_i
     * a_j. Adds the loss of the rows of this rank, and rows to the count; doutputs, unless NULL, = d(sum of the losses
     * of the rows of all ranks)/d(outputs) * factor. */
    void (*contrastive)(struct device *, const struct contrastive_options *, const float *outputs, size_t rows,
                        float factor, float *doutputs, struct loss_sums *sums);
    /* Allocates the workspace of contrastive for [rows] rows on each of [world_size] ranks. */
    status (*contrastive_prepare)(struct device *, size_t rows, size_t world_size, size_t size);
    /* classes (rows, count) = x (rows, count), whose values are integers; a row of x is [stride] values long */
    void (*to_classes)(struct device *, const float *x, size_t stride, int64_t *classes, size_t rows, size_t count);
    /* Adds the weighted sum of the means of parts (count), as if it were the mean of [rows] rows; a part that counted
     * nothing adds 0. weights (count): in host memory. */
    void (*combine)(struct device *, const struct loss_sums *parts, const double *weights, size_t count, double rows,
                    struct loss_sums *sums);
};
