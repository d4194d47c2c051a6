/* Connectionist temporal classification (Graves et al. 2006) on the CPU: probabilities of all alignments by forward and
 * backward recursions over the targets with blanks between them, in log space and double, a row of the batch per
 * thread. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"

/* A row's result. */
struct ctc_result {
    double loss; /* divided by the number of targets */
    bool is_correct;
};

struct ctc_batch {
    const struct ctc_options *options;
    const float *x;         /* (rows, steps, classes) */
    const int64_t *targets; /* (rows, target_size) */
    size_t rows, steps, classes, target_size;
    float factor, *dx; /* dx NULL: no gradient */
    size_t parts;      /* of the rows, each with a workspace of [part_doubles] */
    double *workspace;
    size_t part_doubles;
    struct ctc_result *results; /* (rows) */
};

/* The alignments of a row: its targets with a blank before, between and after them. */
struct alignments {
    const float *x; /* (steps, classes) */
    size_t steps, classes, states, targets;
    int64_t blank;
    const int64_t *target; /* (targets) */
    double *forward;       /* (steps, states), without a gradient (2, states) */
    double *backward;      /* (2, states) */
    double *occupied;      /* (classes) */
    size_t kept;           /* steps of [forward] */
};

static int64_t label(const struct alignments *a, size_t state) { return state % 2 ? a->target[state / 2] : a->blank; }

static double at(const struct alignments *a, size_t step, size_t state) {
    return (double)a->x[step * a->classes + (size_t)label(a, state)];
}

/* log(exp(a) + exp(b) + exp(c)); fmax ignores NaN, so without a finite number the sum of the three decides: NaN if one
 * is. */
static double log_sum(double a, double b, double c) {
    double max = fmax(a, fmax(b, c));
    return isinf(max) ? a + b + c : max + log(exp(a - max) + exp(b - max) + exp(c - max));
}

static double *forward_of(const struct alignments *a, size_t step) { return a->forward + step % a->kept * a->states; }

/* Returns -log of the probability of all alignments. */
static double run_forward(const struct alignments *a) {
    double *now = forward_of(a, 0);
    if (a->steps == 0) return a->states == 1 ? 0 : INFINITY;
    for (size_t s = 0; s < a->states; s++) now[s] = s < 2 ? at(a, 0, s) : -INFINITY;
    for (size_t t = 1; t < a->steps; t++) {
        const double *before = now;
        now = forward_of(a, t);
        for (size_t s = 0; s < a->states; s++) {
            double one = s > 0 ? before[s - 1] : -INFINITY;
            double two = s > 1 && label(a, s) != label(a, s - 2) ? before[s - 2] : -INFINITY;
            now[s] = at(a, t, s) + log_sum(before[s], one, two);
        }
    }
    return -log_sum(now[a->states - 1], a->states > 1 ? now[a->states - 2] : -INFINITY, -INFINITY);
}

/* The probability of each class at a step, given the targets: sum over its states of forward + backward - x. */
static void occupy(const struct alignments *a, size_t step, const double *backward, double loss) {
    const double *forward = forward_of(a, step);
    memset(a->occupied, 0, a->classes * sizeof *a->occupied);
    for (size_t s = 0; s < a->states; s++) {
        double both = forward[s] + backward[s];
        if (both > -INFINITY) a->occupied[label(a, s)] += exp(both + loss - at(a, step, s));
    }
}

/* dx = (exp(x) - occupied) * factor, which is PyTorch's gradient: that of the logits before log_softmax. */
static void run_backward(const struct alignments *a, double loss, float factor, float *dx) {
    for (size_t t = a->steps; t-- > 0;) {
        double *now = a->backward + t % 2 * a->states, *after = a->backward + (t + 1) % 2 * a->states;
        for (size_t s = a->states; s-- > 0;) {
            bool is_last = t + 1 == a->steps;
            double one = s + 1 < a->states ? after[s + 1] : -INFINITY;
            double two = s + 2 < a->states && label(a, s) != label(a, s + 2) ? after[s + 2] : -INFINITY;
            double sum = is_last ? (s + 2 >= a->states ? 0 : -INFINITY) : log_sum(after[s], one, two);
            now[s] = at(a, t, s) + sum;
        }
        occupy(a, t, now, loss);
        for (size_t c = 0; c < a->classes; c++)
            dx[t * a->classes + c] = (float)(exp((double)a->x[t * a->classes + c]) - a->occupied[c]) * factor;
    }
}

/* Whether the largest outputs, without repetitions and blanks, are the targets. */
static bool decodes_to_targets(const struct alignments *a) {
    size_t count = 0, previous = a->classes;
    for (size_t t = 0; t < a->steps; t++) {
        const float *x = a->x + t * a->classes;
        size_t best = 0;
        for (size_t c = 1; c < a->classes; c++) best = x[c] > x[best] ? c : best;
        if (best != previous && (int64_t)best != a->blank) {
            if (count == a->targets || a->target[count] != (int64_t)best) return false;
            count++;
        }
        previous = best;
    }
    return count == a->targets;
}

static struct alignments alignments_of(const struct ctc_batch *b, size_t row, double *workspace) {
    struct alignments a = {.x = b->x + row * b->steps * b->classes,
                           .steps = b->options->rows.lengths ? (size_t)b->options->rows.lengths[row] : b->steps,
                           .classes = b->classes,
                           .blank = b->options->blank,
                           .target = b->targets + row * b->target_size,
                           .kept = b->dx ? b->steps : 2};
    while (a.targets < b->target_size && a.target[a.targets] != b->options->padding) a.targets++;
    a.states = 2 * a.targets + 1;
    a.forward = workspace;
    a.backward = a.forward + a.kept * a.states;
    a.occupied = a.backward + 2 * a.states;
    return a;
}

static void run_row(const struct ctc_batch *b, size_t row, double *workspace) {
    struct alignments a = alignments_of(b, row, workspace);
    const float *weights = b->options->rows.values;
    double loss = run_forward(&a), count = a.targets ? (double)a.targets : 1;
    bool is_ignored = isinf(loss) && b->options->zero_infinity;
    float factor = b->factor / (float)count * (weights ? weights[row] : 1);
    b->results[row] = (struct ctc_result){is_ignored ? 0 : loss / count, decodes_to_targets(&a)};
    if (!b->dx) return;
    float *dx = b->dx + row * b->steps * b->classes;
    size_t used = a.steps * b->classes;
    memset(dx + used, 0, (b->steps * b->classes - used) * sizeof *dx);
    if (isinf(loss))
        for (size_t i = 0; i < used; i++) dx[i] = is_ignored ? 0 : NAN;
    else
        run_backward(&a, loss, factor, dx);
}

static void run_parts(void *context, size_t first, size_t last) {
    const struct ctc_batch *b = context;
    for (size_t part = first; part < last; part++)
        for (size_t row = b->rows * part / b->parts; row < b->rows * (part + 1) / b->parts; row++)
            run_row(b, row, b->workspace + part * b->part_doubles);
}

static size_t threads_for(size_t rows) { return rows < parallel_threads() ? rows : parallel_threads(); }

static size_t part_doubles(size_t steps, size_t classes, size_t target_size) {
    size_t states = 2 * target_size + 1;
    return (steps > 2 ? steps : 2) * states + 2 * states + classes;
}

status cpu_ctc_prepare(struct device *device, size_t rows, size_t steps, size_t classes, size_t target_size) {
    size_t parts = threads_for(rows), doubles = part_doubles(steps, classes, target_size), bytes;
    if (__builtin_mul_overflow(doubles, parts * sizeof(double), &bytes) || steps > SIZE_MAX / sizeof(double) / 4)
        return status_memory("the loss ctc");
    return workspace_reserve(device, bytes + rows * sizeof(struct ctc_result), "the loss ctc");
}

void cpu_ctc(struct device *device, const struct ctc_options *o, const float *x, const int64_t *targets, size_t rows,
             float factor, float *dx, struct loss_sums *sums) {
    size_t steps = o->steps, classes = o->classes, target_size = o->rows.target_size;
    struct ctc_batch batch = {.options = o,
                              .x = x,
                              .targets = targets,
                              .rows = rows,
                              .steps = steps,
                              .classes = classes,
                              .target_size = target_size,
                              .factor = factor,
                              .dx = dx,
                              .parts = threads_for(rows),
                              .workspace = workspace_of(device),
                              .part_doubles = part_doubles(steps, classes, target_size)};
    batch.results = (struct ctc_result *)(batch.workspace + batch.parts * batch.part_doubles);
    parallel_for(batch.parts, 1, run_parts, &batch);
    for (size_t row = 0; row < rows; row++) {
        double weight = o->rows.values ? (double)o->rows.values[row] : 1;
        sums->loss += batch.results[row].loss * weight;
        sums->correct += batch.results[row].is_correct ? weight : 0;
        sums->scored += weight;
        sums->count += o->rows.is_counted ? weight : 1;
    }
}
