/* Losses on the CPU: sums in double, in parts that do not depend on the number of threads. */
#include "device/losses.h"

#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/loss_formulas.h"

/* Arguments shared by the positions of a batch. */
struct class_pass {
    const struct cpu_kernels *kernels;
    const struct cross_entropy_options *options;
    const float *logits;
    const int64_t *targets;
    size_t positions, classes;
    float factor, *dlogits; /* dlogits NULL: no gradient */
    bool is_plain;          /* few classes, without weights, smoothing and ignored positions */
};

/* Whether position [i] of a batch is padding. */
static bool is_padding(const struct row_weights *rows, size_t i) {
    return rows->lengths && i % rows->positions >= (size_t)rows->lengths[i / rows->positions];
}

static bool is_ignored(const struct cross_entropy_options *o, const int64_t *targets, size_t position) {
    return targets[position] == o->ignored || is_padding(&o->rows, position);
}

static float weight_of(const struct cross_entropy_options *o, int64_t target) {
    return o->weight ? (float)o->weight[target] : 1;
}

/* Of the target at [position]. */
static double weight_at(const struct cross_entropy_options *o, const int64_t *targets, size_t position) {
    return is_ignored(o, targets, position) ? 0 : (double)weight_of(o, targets[position]);
}

static float row_weight(const struct row_weights *rows, size_t row) { return rows->values ? rows->values[row] : 1; }

static float row_weight_at(const struct class_pass *b, size_t position) {
    return b->options->rows.values ? b->options->rows.values[position / b->options->row_positions] : 1;
}

/* Buffer for the exponentials when there is no gradient, one piece at a time. */
#define PIECE 256

static float sum_of_exponentials(const struct class_pass *b, const float *z, float *dz, float *max) {
    float piece[PIECE];
    double sum = 0;
    if (dz) return b->kernels->exponentials(z, dz, max, b->classes);
    if (b->classes <= PIECE) return b->kernels->exponentials(z, piece, max, b->classes);
    *max = z[0];
    for (size_t c = 1; c < b->classes; c++) *max = z[c] > *max ? z[c] : *max;
    for (size_t first = 0; first < b->classes; first += LONG_SUM) {
        size_t last = b->classes - first < LONG_SUM ? b->classes : first + LONG_SUM;
        float part = 0;
        for (size_t c = first; c < last; c++) part += expf(z[c] - *max);
        sum += (double)part;
    }
    return (float)sum;
}

/* [factor], [row_weight]: of the derivative, of the sums.
 * log_softmax = z - max - log(sum exp(z - max)); with smoothing e and weights w the loss is
 * (1 - e) w_t (-logp_t) + e / C sum_c w_c (-logp_c). Adds it; dz: its derivative times the factor. */
static void cross_entropy_row(const struct class_pass *b, const float *z, size_t target, float row_weight, float *dz,
                              struct loss_sums *sums) {
    float factor = b->factor * row_weight;
    const double *weight = b->options->weight;
    float smoothing = b->options->label_smoothing, own_weight = weight_of(b->options, (int64_t)target), max;
    size_t classes = b->classes, best = 0;
    float sum = sum_of_exponentials(b, z, dz, &max);
    while (best + 1 < classes && z[best] != max) best++;
    double shifted = 0, weights = 0; /* sum of w (z - max), sum of w */
    for (size_t c = 0; smoothing != 0 && c < classes; c++) {
        double w = weight ? weight[c] : 1;
        shifted += w * (double)(z[c] - max);
        weights += w;
    }
    float log_sum = logf(sum), spread = smoothing / (float)classes;
    double loss = (1 - (double)smoothing) * (double)own_weight * -(double)(z[target] - max - log_sum);
    if (smoothing != 0) loss -= (double)spread * (shifted - weights * (double)log_sum);
    sums->loss += loss * (double)row_weight;
    sums->correct += best == target ? (double)row_weight : 0;
    sums->scored += (double)row_weight;
    if (!dz) return;
    float own = (1 - smoothing) * own_weight, whole = own + spread * (float)weights, target_share = dz[target] / sum;
    float target_spread = smoothing == 0 ? 0 : spread * (weight ? (float)weight[target] : 1);
    if (smoothing == 0)
        for (size_t c = 0; c < classes; c++) dz[c] = dz[c] / sum * whole * factor;
    else
        for (size_t c = 0; c < classes; c++)
            dz[c] = (dz[c] / sum * whole - spread * (weight ? (float)weight[c] : 1)) * factor;
    dz[target] = (target_share * whole - (own + target_spread)) * factor;
}

#define PARTS CPU_LOSS_PARTS
_Static_assert(PARTS <= SHORT_ROWS, "plain_rows is called once for as many positions");

struct parts {
    const struct class_pass *batch;
    struct loss_sums
        *sums; /* (PARTS); of at most PARTS plain positions, which are parts of their own: of all together */
};

static bool is_one_part(const struct class_pass *b) { return b->is_plain && b->positions <= PARTS; }

/* The numbers of cross_entropy_row for positions [first, last), with the exponentials of several rows in one loop. */
static void plain_rows(const struct class_pass *b, size_t first, size_t last, struct parts *p) {
    float block[SHORT_ROWS * SHORT_ROW], max[SHORT_ROWS], log_sum[SHORT_ROWS];
    size_t rows = last - first, classes = b->classes, part = is_one_part(b) ? 0 : first * PARTS / b->positions;
    const float *z = b->logits + first * classes;
    float *dz = b->dlogits ? b->dlogits + first * classes : block, *share = dz;
    b->kernels->short_softmax(z, dz, max, log_sum, rows, classes);
    for (size_t i = 0, end = rows; i < rows; i = end) {
        while (!is_one_part(b) && (end = b->positions * (part + 1) / PARTS - first) <= i) part++;
        if (end > rows) end = rows;
        struct loss_sums sums = p->sums[part];
        for (size_t r = i; r < end; r++, z += classes, share += classes) {
            size_t target = (size_t)b->targets[first + r], best = classes - 1;
            for (size_t c = classes - 1; c-- > 0;)
                best = z[c] >= max[r] ? c : best; /* if equal; a branch is often mispredicted, and NaN would need one */
            sums.loss -= (double)(z[target] - max[r] - log_sum[r]);
            sums.correct += best == target;
            share[target] -= 1;
        }
        sums.scored += (double)(end - i);
        p->sums[part] = sums;
    }
    for (size_t i = 0; b->dlogits && i < rows * classes; i++) dz[i] *= b->factor;
}

static void plain_parts(struct parts *p, size_t first, size_t last) {
    size_t end = p->batch->positions * last / PARTS;
    for (size_t i = p->batch->positions * first / PARTS, next; i < end; i = next) {
        next = end - i < SHORT_ROWS ? end : i + SHORT_ROWS;
        plain_rows(p->batch, i, next, p);
    }
}

static void cross_entropy_parts(void *context, size_t first, size_t last) {
    struct parts *p = context;
    const struct class_pass *b = p->batch;
    if (b->is_plain) {
        plain_parts(p, first, last);
        return;
    }
    for (size_t part = first; part < last; part++)
        for (size_t i = b->positions * part / PARTS; i < b->positions * (part + 1) / PARTS; i++) {
            float *dz = b->dlogits ? b->dlogits + i * b->classes : NULL;
            if (!is_ignored(b->options, b->targets, i))
                cross_entropy_row(b, b->logits + i * b->classes, (size_t)b->targets[i], row_weight_at(b, i), dz,
                                  &p->sums[part]);
            else
                for (size_t c = 0; dz && c < b->classes; c++) dz[c] = 0;
        }
}

/* The sum of weight_at. */
static double sum_of_weights(const struct cross_entropy_options *o, const int64_t *targets, size_t positions) {
    double sum = 0;
    size_t count = 0;
    if (!o->weight && !o->rows.lengths) {
        for (size_t i = 0; i < positions; i++) count += targets[i] != o->ignored;
        return (double)count;
    }
    for (size_t i = 0; i < positions; i++) sum += weight_at(o, targets, i);
    return sum;
}

static void add_parts(const struct class_pass *b, struct loss_sums *sums) {
    struct loss_sums of_parts[PARTS] = {{0}};
    struct parts parts = {b, of_parts};
    parallel_for(PARTS, 1 + PARTS * (PARALLEL_FLOATS / 4) / (b->positions * b->classes + 1), cross_entropy_parts,
                 &parts);
    for (size_t i = 0; i < PARTS; i++) {
        sums->loss += of_parts[i].loss;
        sums->correct += of_parts[i].correct;
        sums->scored += of_parts[i].scored;
    }
}

static void cross_entropy(struct device *device, const struct cross_entropy_options *o, const struct tensor *logits,
                          const int64_t *targets, size_t positions, size_t classes, float scale,
                          const struct tensor *dlogits, struct loss_sums *sums) {
    double count = sum_of_weights(o, targets, positions), weighted = 0;
    for (size_t i = 0; i < positions && o->rows.values; i++)
        weighted += weight_at(o, targets, i) * (double)o->rows.values[i / o->row_positions];
    struct class_pass batch = {.kernels = cpu_kernels_of(device),
                               .options = o,
                               .logits = floats(logits),
                               .targets = targets,
                               .positions = positions,
                               .classes = classes,
                               .factor = count > 0 ? scale / (float)count : 0,
                               .dlogits = floats(dlogits)};
    bool has_all =
        count == (double)positions && !o->weight && !o->rows.values && o->label_smoothing == 0; /* none ignored */
    batch.is_plain = has_all && classes >= 2 && classes <= SHORT_ROW;
    if (is_one_part(&batch))
        plain_rows(&batch, 0, positions, &(struct parts){&batch, sums});
    else
        add_parts(&batch, sums);
    sums->count += o->rows.values && o->rows.is_counted ? weighted : count;
}

/* Positions of [count] rows that are not padding. */
static size_t real_positions(const struct row_weights *rows, size_t count) {
    size_t positions = 0;
    for (size_t r = 0; r < count; r++) positions += (size_t)rows->lengths[r];
    return positions;
}

/* Elements of a batch that are not padding. */
static size_t real_elements(const struct elementwise_options *o, size_t count) {
    return real_positions(&o->rows, count / o->row_elements) * (o->row_elements / o->rows.positions);
}

static void elementwise(struct device *device, const struct elementwise_options *o, const float *outputs,
                        const float *targets, size_t count, float factor, double counted, float *doutputs,
                        struct loss_sums *sums) {
    double weights = 0, all = (double)count;
    size_t row_elements = o->rows.values ? o->row_elements : 1, of_position = 1;
    if (o->rows.lengths) of_position = o->row_elements / o->rows.positions;
    if (o->rows.lengths && !o->is_row_mean) {
        all = (double)real_elements(o, count);
        factor *= (float)((double)count / all);
        counted *= all / (double)count;
    }
    for (size_t i = 0; i < count; i++) {
        bool is_real = !is_padding(&o->rows, i / of_position);
        float weight = row_weight(&o->rows, i / row_elements);
        if (is_real || o->is_row_mean) weights += (double)weight;
        if (!is_real) {
            if (doutputs) doutputs[i] = 0;
            continue;
        }
        float pos_weight = o->pos_weights ? (float)o->pos_weight[i / o->pos_weight_run % o->pos_weights] : 1;
        struct slope s = slope_of(o, pos_weight, outputs[i], targets[i]);
        sums->loss += (double)s.loss * (double)weight;
        if (doutputs) doutputs[i] = s.derivative * (factor * weight);
    }
    sums->count += o->rows.values && o->rows.is_counted ? counted * (weights / all) : counted;
}

static void nll(struct device *device, const struct cross_entropy_options *o, const float *log_probabilities,
                const int64_t *targets, size_t positions, size_t classes, float scale, float *dx,
                struct loss_sums *sums) {
    double count = sum_of_weights(o, targets, positions), weighted = 0;
    size_t row_positions = o->rows.values ? o->row_positions : 1;
    float factor = count > 0 ? scale / (float)count : 0;
    for (size_t i = 0; dx && i < positions * classes; i++) dx[i] = 0;
    for (size_t i = 0; i < positions; i++) {
        const float *x = log_probabilities + i * classes;
        size_t target = (size_t)targets[i], best = 0;
        if (is_ignored(o, targets, i)) continue;
        float weight = weight_of(o, targets[i]), of_row = row_weight(&o->rows, i / row_positions);
        for (size_t c = 1; c < classes; c++) best = x[c] > x[best] ? c : best;
        sums->loss -= (double)weight * (double)x[target] * (double)of_row;
        sums->correct += best == target ? (double)of_row : 0;
        sums->scored += (double)of_row;
        weighted += (double)weight * (double)of_row;
        if (dx) dx[i * classes + target] = -weight * (factor * of_row);
    }
    sums->count += o->rows.is_counted ? weighted : count;
}

static void multi_margin(struct device *device, const struct cross_entropy_options *o, const float *outputs,
                         const int64_t *targets, size_t positions, size_t classes, float scale, float *dx,
                         struct loss_sums *sums) {
    struct cross_entropy_options counted = *o;
    counted.weight = NULL;
    double count = sum_of_weights(&counted, targets, positions), weighted = 0;
    size_t row_positions = o->rows.values ? o->row_positions : 1;
    for (size_t i = 0; dx && i < positions * classes; i++) dx[i] = 0;
    for (size_t i = 0; i < positions; i++) {
        const float *x = outputs + i * classes;
        size_t target = (size_t)targets[i], best = 0;
        if (is_ignored(o, targets, i)) continue;
        float of_row = row_weight(&o->rows, i / row_positions), share = weight_of(o, targets[i]) / (float)classes;
        float factor = share * (scale / (float)count * of_row);
        double loss = 0, slopes = 0;
        for (size_t c = 0; c < classes; c++) {
            struct slope s = margin_slope(o->squares, o->margin - x[target] + x[c]);
            best = x[c] > x[best] ? c : best;
            if (c == target) continue;
            loss += (double)s.loss, slopes += (double)s.derivative;
            if (dx) dx[i * classes + c] = s.derivative * factor;
        }
        if (dx) dx[i * classes + target] = -(float)slopes * factor;
        sums->loss += loss * (double)share * (double)of_row;
        sums->correct += best == target ? (double)of_row : 0;
        sums->scored += (double)of_row;
        weighted += (double)of_row;
    }
    sums->count += o->rows.is_counted ? weighted : count;
}

static float largest(const float *x, size_t count) {
    float max = x[0];
    for (size_t i = 1; i < count; i++) max = x[i] > max ? x[i] : max;
    return max;
}

static void rowwise(struct device *device, const struct rowwise_options *o, const float *outputs, const float *targets,
                    size_t rows, size_t size, float factor, float *doutputs, struct loss_sums *sums) {
    double weights = 0, real = (double)rows;
    size_t row_masks = o->rows.values ? o->row_masks : 1, row_size = o->parts * size;
    if (o->rows.lengths) {
        real = (double)real_positions(&o->rows, rows / o->rows.positions);
        factor *= (float)((double)rows / real);
    }
    for (size_t r = 0; r < rows; r++) {
        struct rowwise_sums all = {0, 0, 0};
        if (is_padding(&o->rows, r)) {
            for (size_t i = 0; doutputs && i < row_size; i++) doutputs[r * row_size + i] = 0;
            continue;
        }
        const float *x = outputs + r * row_size, *t = o->targets ? targets + r * o->targets : NULL;
        float max = o->loss == ROWWISE_CROSS_ENTROPY ? largest(x, size) : 0;
        for (size_t i = 0; i < size; i++) all = rowwise_add(all, rowwise_sums_of(o, x, t, size, i, max));
        float weight = row_weight(&o->rows, r / row_masks);
        sums->loss += rowwise_loss(o, all, t, size) * (double)weight;
        weights += (double)weight;
        for (size_t i = 0; doutputs && i < row_size; i++)
            doutputs[r * row_size + i] = rowwise_slope(o, all, x, t, size, i, max) * (factor * weight);
    }
    sums->count += o->rows.is_counted ? weights : real;
}

static void to_classes(struct device *device, const float *x, size_t stride, int64_t *classes, size_t rows,
                       size_t count) {
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < count; i++) classes[r * count + i] = (int64_t)x[r * stride + i];
}

static void combine(struct device *device, const struct loss_sums *parts, const double *weights, size_t count,
                    double rows, struct loss_sums *sums) {
    double total = 0;
    for (size_t i = 0; i < count; i++)
        if (parts[i].count != 0) total += weights[i] * (parts[i].loss / parts[i].count);
    sums->loss += total * rows;
    sums->count += rows;
}

const struct loss_ops cpu_losses = {.cross_entropy = cross_entropy,
                                    .nll = nll,
                                    .multi_margin = multi_margin,
                                    .rowwise = rowwise,
                                    .elementwise = elementwise,
                                    .to_classes = to_classes,
                                    .combine = combine,
                                    .ctc = cpu_ctc,
                                    .ctc_prepare = cpu_ctc_prepare,
                                    .contrastive = cpu_contrastive,
                                    .contrastive_prepare = cpu_contrastive_prepare};
