/* Losses of elements and rows; cross entropy, ctc and contrastive have files of their own. Sums are in double, in the
 * order of operator_call::sum. */
#include <cmath>

#include "device/cuda/rows.cuh"
#include "device/loss_formulas.h"

/* to[block] (adds: +)= the block's share of [count] sums */
__global__ static void sums_kernel(const struct loss_sums *from, size_t count, bool adds, struct loss_sums *to) {
    struct loss_sums sum = {0, 0, 0, 0};
    size_t step = (size_t)gridDim.x * GPU_THREADS;
    for (size_t i = (size_t)blockIdx.x * GPU_THREADS + threadIdx.x; i < count; i += step)
        sum = gpu_add_sums()(sum, from[i]);
    sum = gpu_reduce(sum, gpu_add_sums());
    if (threadIdx.x == 0) to[blockIdx.x] = adds ? gpu_add_sums()(to[blockIdx.x], sum) : sum;
}

void gpu_add_loss_sums(operator_call *c, const struct loss_sums *rows, size_t count, struct loss_sums *to) {
    size_t blocks = (count + GPU_THREADS - 1) / GPU_THREADS;
    if (blocks > GPU_PARTS) blocks = GPU_PARTS;
    struct loss_sums *parts = c->scratch<struct loss_sums>(blocks);
    c->launch(sums_kernel, (unsigned)blocks, GPU_THREADS, 0, rows, count, false, parts);
    c->launch(sums_kernel, 1, GPU_THREADS, 0, parts, blocks, true, to);
}

/* Whether a position is padding (struct row_weights). */
struct loss_padding {
    const int32_t *lengths; /* NULL: none is */
    size_t positions;

    loss_padding(operator_call *c, const struct row_weights *rows, size_t count)
        : lengths(c->in(rows->lengths, rows->lengths ? count / rows->positions : 0)), positions(rows->positions) {}
    __device__ bool is_at(size_t i) const { return lengths && i % positions >= (size_t)lengths[i / positions]; }
};

const int64_t *gpu_real_targets(operator_call *c, const struct cross_entropy_options *o, const int64_t *targets,
                                size_t positions) {
    const int64_t *from = c->in(targets, positions);
    if (!o->rows.lengths) return from;
    struct loss_padding padding(c, &o->rows, positions);
    int64_t *to = c->scratch<int64_t>(positions), ignored = o->ignored;
    c->each(positions, [=] __device__(size_t i) { to[i] = padding.is_at(i) ? ignored : from[i]; });
    return to;
}

/* The elements of an elementwise loss. */
struct loss_elements {
    const float *x, *t, *rows;
    const double *weights;
    size_t row_elements, period;
    struct elementwise_options options;
    float *dx;

    __device__ float row_weight(size_t i) const { return rows ? rows[i / row_elements] : 1; }
    /* Writes the derivative and returns the loss of element [i]. */
    __device__ double run(size_t i, float factor) const {
        struct slope s =
            slope_of(&options, period ? (float)weights[i / options.pos_weight_run % period] : 1, x[i], t[i]);
        float w = row_weight(i);
        if (dx) dx[i] = s.derivative * (factor * w);
        return (double)s.loss * (double)w;
    }
};

/* *to = the positions of [rows] rows that are not padding. */
static void count_real(operator_call *c, const struct loss_padding &padding, size_t rows, double *to) {
    c->each(1, [=] __device__(size_t) { *to = 0; });
    c->sum(
        rows, [=] __device__(size_t r) { return (double)padding.lengths[r]; }, to);
}

/* Rows of different lengths: the mean is over the elements that are not padding, or over the rows. */
static void elementwise_real(operator_call *c, const struct loss_elements &f, size_t count, float factor,
                             double counted, struct loss_sums *to) {
    const struct elementwise_options *o = &f.options;
    size_t of_position = o->row_elements / o->rows.positions;
    struct loss_padding padding(c, &o->rows, count / of_position);
    double *real = c->scratch<double>(1), share = counted / (double)count, positions = (double)(count / of_position);
    bool is_weighted = f.rows && o->rows.is_counted, is_row_mean = o->is_row_mean;
    count_real(c, padding, count / o->row_elements, real);
    c->sum(
        count,
        [=] __device__(size_t i) {
            float own = is_row_mean ? factor : factor * (float)(positions / *real);
            if (!padding.is_at(i / of_position)) return f.run(i, own);
            if (f.dx) f.dx[i] = 0;
            return 0.0;
        },
        &to->loss);
    c->sum(
        count,
        [=] __device__(size_t i) {
            if (!is_row_mean && padding.is_at(i / of_position)) return 0.0;
            return is_weighted ? share * (double)f.row_weight(i) : share;
        },
        &to->count);
}

static void elementwise(struct device *device, const struct elementwise_options *o, const float *outputs,
                        const float *targets, size_t count, float factor, double counted, float *doutputs,
                        struct loss_sums *sums) {
    operator_call c(device, "an elementwise loss");
    struct loss_elements f = {.x = c.in(outputs, count),
                              .t = c.in(targets, count),
                              .rows = c.in(o->rows.values, o->rows.values ? count / o->row_elements : 0),
                              .weights = c.constant(o->pos_weight, o->pos_weights),
                              .row_elements = o->rows.values ? o->row_elements : 1,
                              .period = o->pos_weights,
                              .options = *o,
                              .dx = c.out(doutputs, count)};
    double share = counted / (double)count; /* of an element in the count */
    struct loss_sums *to = c.inout(sums, 1);
    if (!c.is_ok()) return;
    if (o->rows.lengths) {
        elementwise_real(&c, f, count, factor, counted, to);
        return;
    }
    c.sum(
        count, [=] __device__(size_t i) { return f.run(i, factor); }, &to->loss);
    if (f.rows && o->rows.is_counted)
        c.sum(
            count, [=] __device__(size_t i) { return share * (double)f.row_weight(i); }, &to->count);
    else
        c.each(1, [=] __device__(size_t) { to->count += counted; });
}

struct nll_rows {
    const float *x;
    const int64_t *targets;
    const double *weight; /* (classes) or NULL */
    const double *count;  /* the divisor of the mean */
    int64_t ignored;
    size_t classes;
    float scale;
    float *dx;
    double *is_correct;       /* (positions) */
    const float *row_weights; /* NULL: all 1 */
    size_t row_positions;

    __device__ float row_weight(size_t i) const { return row_weights ? row_weights[i / row_positions] : 1; }

    __device__ float weight_of(int64_t target) const {
        return target == ignored ? 0 : weight ? (float)weight[target] : 1;
    }

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        const float *row = x + i * classes;
        int64_t target = targets[i];
        struct best_class best = {-INFINITY, 0xffffffffu};
        float slope = *count > 0 ? -weight_of(target) * (scale / (float)*count * row_weight(i)) : 0;
        for (size_t j = first; j < classes; j += 4 * THREADS)
            for (size_t k = j; k < j + 4 && k < classes; k++) {
                best = best_class_join()(best, {row[k], (unsigned)k});
                if (dx) dx[i * classes + k] = target != ignored && k == (size_t)target ? slope : 0;
            }
        best = row_join<THREADS>(best, best_class_join());
        if (first == 0) is_correct[i] = target != ignored && best.at == (size_t)target ? 1 : 0;
    }
};

static struct nll_rows rows_of_classes(operator_call *c, const struct cross_entropy_options *o, const float *x,
                                       const int64_t *targets, size_t positions, size_t classes, float scale, float *dx,
                                       double *count) {
    return {.x = c->in(x, positions * classes),
            .targets = gpu_real_targets(c, o, targets, positions),
            .weight = c->constant(o->weight, o->weight ? classes : 0),
            .count = count,
            .ignored = o->ignored,
            .classes = classes,
            .scale = scale,
            .dx = c->out(dx, positions * classes),
            .is_correct = c->scratch<double>(positions),
            .row_weights = c->in(o->rows.values, o->rows.values ? positions / o->row_positions : 0),
            .row_positions = o->rows.values ? o->row_positions : 1};
}

static void nll(struct device *device, const struct cross_entropy_options *o, const float *log_probabilities,
                const int64_t *targets, size_t positions, size_t classes, float scale, float *dx,
                struct loss_sums *sums) {
    operator_call c(device, "nll");
    double *count = c.scratch<double>(1);
    struct nll_rows f = rows_of_classes(&c, o, log_probabilities, targets, positions, classes, scale, dx, count);
    struct loss_sums *to = c.inout(sums, 1);
    if (positions == 0 || !c.is_ok()) return;
    c.each(1, [=] __device__(size_t) { *count = 0; });
    c.sum(
        positions, [=] __device__(size_t i) { return (double)f.weight_of(f.targets[i]); }, count);
    rows_start(&c, positions, classes, f);
    c.sum(
        positions,
        [=] __device__(size_t i) {
            int64_t target = f.targets[i];
            if (target == f.ignored) return 0.0;
            return -(double)f.weight_of(target) * (double)f.x[i * f.classes + (size_t)target] * (double)f.row_weight(i);
        },
        &to->loss);
    c.sum(
        positions, [=] __device__(size_t i) { return f.is_correct[i] * (double)f.row_weight(i); }, &to->correct);
    c.sum(
        positions, [=] __device__(size_t i) { return f.targets[i] == f.ignored ? 0.0 : (double)f.row_weight(i); },
        &to->scored);
    if (f.row_weights && o->rows.is_counted)
        c.sum(
            positions, [=] __device__(size_t i) { return (double)f.weight_of(f.targets[i]) * (double)f.row_weight(i); },
            &to->count);
    else
        c.each(1, [=] __device__(size_t) { to->count += *count; });
}

struct margin_sums {
    double loss, slopes;
    struct best_class best;
};

struct margin_join {
    __device__ struct margin_sums operator()(struct margin_sums a, struct margin_sums b) const {
        return {a.loss + b.loss, a.slopes + b.slopes, best_class_join()(a.best, b.best)};
    }
    __device__ struct margin_sums from_lane(struct margin_sums a, int way) const {
        return {row_add().from_lane(a.loss, way), row_add().from_lane(a.slopes, way),
                best_class_join().from_lane(a.best, way)};
    }
};

struct margin_rows {
    struct nll_rows o;
    float margin;
    bool squares;
    double *losses; /* (positions) */

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        const float *row = o.x + i * o.classes;
        int64_t target = o.targets[i];
        bool is_ignored = target == o.ignored;
        struct margin_sums sums = {0, 0, {-INFINITY, 0xffffffffu}};
        float share = o.weight_of(target) / (float)o.classes;
        float base = margin - row[is_ignored ? 0 : target];
        float factor = is_ignored ? 0 : share * (o.scale / (float)*o.count * o.row_weight(i));
        for (size_t j = first; j < o.classes; j += 4 * THREADS)
            for (size_t k = j; k < j + 4 && k < o.classes; k++) {
                sums.best = best_class_join()(sums.best, {row[k], (unsigned)k});
                if (!is_ignored && k == (size_t)target) continue;
                struct slope s = margin_slope(squares, base + row[k]);
                sums.loss += (double)s.loss, sums.slopes += (double)s.derivative;
                if (o.dx) o.dx[i * o.classes + k] = s.derivative * factor;
            }
        sums = row_join<THREADS>(sums, margin_join());
        if (first != 0) return;
        o.is_correct[i] = !is_ignored && sums.best.at == (size_t)target ? 1 : 0;
        losses[i] = is_ignored ? 0 : sums.loss * (double)share * (double)o.row_weight(i);
        if (o.dx && !is_ignored) o.dx[i * o.classes + (size_t)target] = -(float)sums.slopes * factor;
    }
};

static void multi_margin(struct device *device, const struct cross_entropy_options *o, const float *outputs,
                         const int64_t *targets, size_t positions, size_t classes, float scale, float *dx,
                         struct loss_sums *sums) {
    operator_call c(device, "multi_margin");
    double *count = c.scratch<double>(1), *losses = c.scratch<double>(positions);
    struct nll_rows f = rows_of_classes(&c, o, outputs, targets, positions, classes, scale, dx, count);
    struct loss_sums *to = c.inout(sums, 1);
    bool is_counted = o->rows.is_counted;
    if (positions == 0 || !c.is_ok()) return;
    c.each(1, [=] __device__(size_t) { *count = 0; });
    c.sum(
        positions, [=] __device__(size_t i) { return f.targets[i] == f.ignored ? 0.0 : 1.0; }, count);
    rows_start(&c, positions, classes, margin_rows{f, o->margin, o->squares, losses});
    c.sum(
        positions, [=] __device__(size_t i) { return losses[i]; }, &to->loss);
    c.sum(
        positions, [=] __device__(size_t i) { return f.is_correct[i] * (double)f.row_weight(i); }, &to->correct);
    c.sum(
        positions, [=] __device__(size_t i) { return f.targets[i] == f.ignored ? 0.0 : (double)f.row_weight(i); },
        &to->scored);
    c.sum(
        positions,
        [=] __device__(size_t i) {
            return f.targets[i] == f.ignored ? 0.0 : is_counted ? (double)f.row_weight(i) : 1.0;
        },
        &to->count);
}

struct rowwise_rows {
    const float *x, *t;
    struct rowwise_options options;
    size_t size, rows;
    float factor;
    float *dx;
    double *losses;           /* (rows) */
    const float *row_weights; /* NULL: all 1 */
    size_t row_masks;
    struct loss_padding padding;
    const double *real; /* rows that are not padding; NULL: all */

    __device__ float row_weight(size_t r) const { return row_weights ? row_weights[r / row_masks] : 1; }

    template <unsigned THREADS> __device__ void leave_out(size_t r, size_t first) const {
        size_t row_size = options.parts * size;
        if (first == 0) losses[r] = 0;
        for (size_t j = first; dx && j < row_size; j += 4 * THREADS)
            for (size_t k = j; k < j + 4 && k < row_size; k++) dx[r * row_size + k] = 0;
    }

    template <unsigned THREADS> __device__ void run(size_t r, size_t first) const {
        size_t row_size = options.parts * size;
        const float *row = x + r * row_size, *target = options.targets ? t + r * options.targets : NULL;
        struct rowwise_sums s = {0, 0, 0};
        if (padding.is_at(r)) {
            leave_out<THREADS>(r, first);
            return;
        }
        float max = 0;
        if (options.loss == ROWWISE_CROSS_ENTROPY) {
            max = -INFINITY;
            for (size_t j = first; j < size; j += 4 * THREADS)
                for (size_t k = j; k < j + 4 && k < size; k++) max = row[k] > max ? row[k] : max;
            max = row_join<THREADS>(max, row_larger());
        }
        for (size_t j = first; j < size; j += 4 * THREADS)
            for (size_t k = j; k < j + 4 && k < size; k++)
                s = rowwise_add(s, rowwise_sums_of(&options, row, target, size, k, max));
        s.a = row_join<THREADS>(s.a, row_add());
        s.b = row_join<THREADS>(s.b, row_add());
        s.c = row_join<THREADS>(s.c, row_add());
        float weight = row_weight(r), own = real ? factor * (float)((double)rows / *real) : factor;
        if (first == 0) losses[r] = rowwise_loss(&options, s, target, size) * (double)weight;
        for (size_t j = first; dx && j < row_size; j += 4 * THREADS)
            for (size_t k = j; k < j + 4 && k < row_size; k++)
                dx[r * row_size + k] = rowwise_slope(&options, s, row, target, size, k, max) * (own * weight);
    }
};

static void rowwise(struct device *device, const struct rowwise_options *o, const float *outputs, const float *targets,
                    size_t rows, size_t size, float factor, float *doutputs, struct loss_sums *sums) {
    operator_call c(device, "a rowwise loss");
    double *real = o->rows.lengths ? c.scratch<double>(1) : NULL;
    struct rowwise_rows f = {.x = c.in(outputs, rows * o->parts * size),
                             .t = c.in(o->targets ? targets : NULL, rows * o->targets),
                             .options = *o,
                             .size = size,
                             .rows = rows,
                             .factor = factor,
                             .dx = c.out(doutputs, rows * o->parts * size),
                             .losses = c.scratch<double>(rows),
                             .row_weights = c.in(o->rows.values, o->rows.values ? rows / o->row_masks : 0),
                             .row_masks = o->rows.values ? o->row_masks : 1,
                             .padding = {&c, &o->rows, rows},
                             .real = real};
    struct loss_sums *to = c.inout(sums, 1);
    f.options.weight = c.constant(o->weight, o->weight ? size : 0);
    if (rows == 0 || !c.is_ok()) return;
    if (real) count_real(&c, f.padding, rows / o->rows.positions, real);
    rows_start(&c, rows, size, f);
    c.sum(
        rows, [=] __device__(size_t i) { return f.losses[i]; }, &to->loss);
    if (f.row_weights && o->rows.is_counted)
        c.sum(
            rows, [=] __device__(size_t i) { return f.padding.is_at(i) ? 0.0 : (double)f.row_weight(i); }, &to->count);
    else
        c.each(1, [=] __device__(size_t) { to->count += real ? *real : (double)rows; });
}

static void to_classes(struct device *device, const float *values, size_t stride, int64_t *classes, size_t rows,
                       size_t count) {
    operator_call c(device, "to_classes");
    if (rows == 0 || count == 0) return;
    const float *x = c.in(values, (rows - 1) * stride + count);
    int64_t *to = c.out(classes, rows * count);
    c.each(rows * count, [=] __device__(size_t n) { to[n] = (int64_t)x[n / count * stride + n % count]; });
}

static void combine(struct device *device, const struct loss_sums *parts, const double *weights, size_t count,
                    double rows, struct loss_sums *sums) {
    operator_call c(device, "combine");
    const struct loss_sums *from = c.in(parts, count);
    const double *w = c.constant(weights, count);
    struct loss_sums *to = c.inout(sums, 1);
    if (!c.is_ok()) return;
    c.each(1, [=] __device__(size_t) {
        double total = 0;
        for (size_t i = 0; i < count; i++)
            if (from[i].count != 0) total += w[i] * (from[i].loss / from[i].count);
        to->loss += total * rows;
        to->count += rows;
    });
}

const struct loss_ops gpu_losses = {.cross_entropy = gpu_cross_entropy,
                                    .nll = nll,
                                    .multi_margin = multi_margin,
                                    .rowwise = rowwise,
                                    .elementwise = elementwise,
                                    .ctc = gpu_ctc,
                                    .ctc_prepare = gpu_ctc_prepare,
                                    .contrastive = gpu_contrastive,
                                    .contrastive_prepare = gpu_contrastive_prepare,
                                    .to_classes = to_classes,
                                    .combine = combine};
