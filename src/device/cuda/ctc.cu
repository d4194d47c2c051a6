/* Connectionist temporal classification: the recursions of cpu/ctc.c in float32, a block for each row and direction.
 * Backward is forward over the reversed steps and states, so both directions are one code and run at the same time;
 * the gradient of each step is then a block of its own. The numbers of a step are relative to the largest one of the
 * step before, so that they keep their precision over many steps; the loss adds these numbers in double, and the
 * gradient does not depend on them, because it is a share of the step's sum. */
#include <cmath>
#include <cstdint>

#include "device/cuda/rows.cuh"

#define MAX_THREADS 1024 /* of the block of a recursion */
#define SLOPE_THREADS 128
#define NO_TARGET INT32_MAX

namespace {

/* A row's targets, and what its largest outputs say. */
struct ctc_row {
    int32_t count; /* of targets */
    int32_t is_correct;
};

struct ctc_work {
    const float *x; /* (rows, steps, classes) */
    const int64_t *targets;
    const float *weights;   /* (rows) or NULL: all 1 */
    const int32_t *lengths; /* (rows) or NULL: all steps */
    size_t rows, steps, classes, target_size, max_states;
    int64_t blank, padding;
    bool zero_infinity, is_counted;
    float factor;
    float *dx;              /* NULL: no gradient */
    struct ctc_row *row;    /* (rows) */
    int32_t *best;          /* (rows, steps): the class of the largest output */
    int32_t *chain;         /* (rows, target_size): the next target of the same class, with [dx] */
    uint8_t *is_first;      /* (rows, target_size): of its class, with [dx] */
    float *buffers;         /* (rows, 2, 2, max_states): where shared memory is too small; else NULL */
    float *kept;            /* (rows, 2, steps, max_states), with [dx] */
    double *losses;         /* (rows), not divided by the number of targets */
    struct loss_sums *sums; /* (rows) */

    __device__ size_t steps_of(size_t r) const { return lengths ? (size_t)lengths[r] : steps; }
    __device__ size_t states_of(size_t r) const { return 2 * (size_t)row[r].count + 1; }
    __device__ int64_t label(size_t r, size_t state) const {
        return state % 2 ? targets[r * target_size + state / 2] : blank;
    }
    __device__ float at(size_t r, size_t step, size_t state) const {
        return x[(r * steps + step) * classes + (size_t)label(r, state)];
    }
    /* Forward (0) or backward (1), of both in the order of steps and states. */
    __device__ float *kept_of(size_t r, int direction, size_t step) const {
        return kept + ((r * 2 + direction) * steps + step) * max_states;
    }
};

/* ---- the targets and the best classes of a row ---- */

struct best_rows {
    struct ctc_work w;

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        struct best_class best = {-INFINITY, 0};
        for (size_t j = first; j < w.classes; j += 4 * THREADS)
            for (size_t k = j; k < j + 4 && k < w.classes; k++)
                if (w.x[i * w.classes + k] > best.value) best = {w.x[i * w.classes + k], (unsigned)k};
        best = row_join<THREADS>(best, best_class_join());
        if (first == 0) w.best[i] = (int32_t)best.at;
    }
};

/* Whether the best classes of row [r], without repetitions and blanks, are its targets; by a warp. */
__device__ bool decodes_to_targets(const struct ctc_work &w, size_t r, unsigned lane) {
    size_t found = 0, count = (size_t)w.row[r].count, steps = w.steps_of(r);
    const int32_t *best = w.best + r * w.steps;
    bool is_equal = true;
    for (size_t begin = 0; begin < steps; begin += 32) {
        size_t t = begin + lane;
        int32_t own = t < steps ? best[t] : 0;
        bool is_label = t < steps && own != (int32_t)w.blank && (t == 0 || best[t - 1] != own);
        unsigned labels = __ballot_sync(0xffffffffu, is_label);
        size_t place = found + (size_t)__popc(labels & ((1u << lane) - 1));
        if (is_label && (place >= count || w.targets[r * w.target_size + place] != own)) is_equal = false;
        found += (size_t)__popc(labels);
    }
    return __all_sync(0xffffffffu, is_equal) && found == count;
}

/* The targets of row [r] of equal class, as chains. */
__device__ void find_chains(const struct ctc_work &w, size_t r, size_t count) {
    const int64_t *targets = w.targets + r * w.target_size;
    for (size_t k = threadIdx.x; k < count; k += GPU_THREADS) {
        size_t next = k + 1, before = 0;
        while (next < count && targets[next] != targets[k]) next++;
        while (targets[before] != targets[k]) before++;
        w.chain[r * w.target_size + k] = next < count ? (int32_t)next : NO_TARGET;
        w.is_first[r * w.target_size + k] = before == k;
    }
}

/* A block of a row: the number of its targets, whether they are found, chains of equal targets. */
struct describe_row {
    struct ctc_work w;

    __device__ void operator()(size_t r) const {
        size_t count = w.target_size;
        for (size_t k = threadIdx.x; k < w.target_size; k += GPU_THREADS)
            if (w.targets[r * w.target_size + k] == w.padding && k < count) count = k;
        count = gpu_reduce(count, gpu_min());
        if (threadIdx.x == 0) w.row[r].count = (int32_t)count;
        __syncthreads();
        if (w.dx) find_chains(w, r, count);
        if (threadIdx.x >= 32) return;
        bool is_correct = decodes_to_targets(w, r, threadIdx.x);
        if (threadIdx.x == 0) w.row[r].is_correct = is_correct;
    }
};

/* ---- the recursions ---- */

/* log(exp(a) + exp(b) + exp(c)); fmaxf ignores NaN, so without a finite number the sum of the three decides: NaN if one
 * is. */
__device__ float log_sum(float a, float b, float c) {
    float max = fmaxf(a, fmaxf(b, c));
    return isinf(max) ? a + b + c : max + logf(math_exp(a - max) + math_exp(b - max) + math_exp(c - max));
}

/* A direction over row [r]: its step and state 0 are the last ones of the row in backward. */
struct direction {
    const struct ctc_work &w;
    size_t r;
    bool is_back;
    size_t steps, states;

    __device__ size_t step(size_t t) const { return is_back ? steps - 1 - t : t; }
    __device__ size_t state(size_t s) const { return is_back ? states - 1 - s : s; }
    __device__ float at(size_t t, size_t s) const { return w.at(r, step(t), state(s)); }
    /* Whether an alignment may get from state s - 2 to s. */
    __device__ bool can_skip(size_t s) const { return s > 1 && w.label(r, state(s)) != w.label(r, state(s - 2)); }
};

/* The largest number of the block's step, from those of its warps; 0 if all are -inf. */
__device__ float largest_of(const float *warps) {
    float largest = -INFINITY;
    for (unsigned i = 0; i < blockDim.x / 32; i++) largest = fmaxf(largest, warps[i]);
    return largest == -INFINITY ? 0 : largest;
}

/* Each thread computes some states of a step; a step is between two barriers. Returns the sum of what was subtracted.
 * [now], [before]: (states), of which now is that of the last step at the end. */
__device__ double recur(const struct direction &d, float *&now, float *&before) {
    __shared__ float largest[2][MAX_THREADS / 32];
    double subtracted = 0;
    size_t own = threadIdx.x;
    bool can_skip = own < d.states && d.can_skip(own);
    float x = own < d.states && d.steps ? d.at(0, own) : 0; /* of the next step: loaded before the barrier */
    for (size_t t = 0; t < d.steps; t++) {
        float base = t ? largest_of(largest[(t - 1) % 2]) : 0, most = -INFINITY;
        float *to = d.w.kept ? d.w.kept_of(d.r, d.is_back, d.step(t)) : nullptr;
        float *other = before;
        before = now, now = other;
        subtracted += (double)base;
        for (size_t s = own; s < d.states; s += blockDim.x) {
            bool is_own = s == own;
            float value = is_own ? x : d.at(t, s), sum = s < 2 ? 0 : -INFINITY;
            if (t)
                sum = log_sum(before[s], s > 0 ? before[s - 1] : -INFINITY,
                              (is_own ? can_skip : d.can_skip(s)) ? before[s - 2] : -INFINITY);
            value += sum - base;
            now[s] = value;
            if (to) to[d.state(s)] = value;
            most = fmaxf(most, value);
        }
        if (own < d.states && t + 1 < d.steps) x = d.at(t + 1, own);
        for (int way = 16; way > 0; way /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, way));
        if (threadIdx.x % 32 == 0) largest[t % 2][threadIdx.x / 32] = most;
        __syncthreads();
    }
    return subtracted;
}

/* -log of the probability of all alignments. */
__device__ double loss_of(const struct direction &d, const float *last, double subtracted) {
    if (d.steps == 0) return d.states == 1 ? 0 : (double)INFINITY;
    float sum = log_sum(last[d.states - 1], d.states > 1 ? last[d.states - 2] : -INFINITY, -INFINITY);
    return -(subtracted + (double)sum);
}

/* Block (row, direction). */
__global__ void __launch_bounds__(MAX_THREADS) ctc_kernel(struct ctc_work w) {
    size_t r = blockIdx.x, states = w.states_of(r);
    struct direction d = {w, r, blockIdx.y == 1, w.steps_of(r), states};
    float *now = w.buffers ? w.buffers + (r * 2 + blockIdx.y) * 2 * w.max_states : gpu_shared<float>();
    float *before = now + w.max_states;
    double subtracted = recur(d, now, before);
    if (d.is_back || threadIdx.x > 0) return;
    double loss = loss_of(d, now, subtracted), count = w.row[r].count ? (double)w.row[r].count : 1;
    double weight = w.weights ? (double)w.weights[r] : 1;
    bool is_ignored = isinf(loss) && w.zero_infinity;
    w.losses[r] = loss;
    w.sums[r] = {is_ignored ? 0 : loss / count * weight, w.is_counted ? weight : 1, w.row[r].is_correct ? weight : 0,
                 weight};
}

/* ---- the gradient ---- */

struct larger {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
    __device__ float from_lane(float a, int way) const { return __shfl_xor_sync(0xffffffffu, a, way); }
};

/* The states of a step: log of the probability of the alignments through each, relative to the same number. */
struct occupation {
    const struct ctc_work &w;
    size_t r, t;
    const float *forward, *backward;

    __device__ float at(size_t s) const {
        float both = forward[s] + backward[s];
        return both > -INFINITY ? both - w.at(r, t, s) : -INFINITY;
    }
};

/* dx = (exp(x) - the share of the states of the class) factor, of a step in which alignments exist. */
__device__ void step_slopes(const struct occupation &o, size_t states, float factor, const float *x, float *dx) {
    const struct ctc_work &w = o.w;
    float largest = -INFINITY, sum = 0, blanks = 0;
    for (size_t s = threadIdx.x; s < states; s += SLOPE_THREADS) largest = fmaxf(largest, o.at(s));
    largest = row_join<SLOPE_THREADS>(largest, larger());
    for (size_t s = threadIdx.x; s < states; s += SLOPE_THREADS) {
        float share = math_exp(o.at(s) - largest);
        sum += share;
        blanks += s % 2 ? 0 : share;
    }
    sum = row_sum<SLOPE_THREADS>(sum);
    blanks = row_sum<SLOPE_THREADS>(blanks);
    for (size_t c = threadIdx.x; c < w.classes; c += SLOPE_THREADS)
        dx[c] = (math_exp(x[c]) - (c == (size_t)w.blank ? blanks / sum : 0)) * factor;
    __syncthreads();
    for (size_t k = threadIdx.x; k < states / 2; k += SLOPE_THREADS) {
        if (!w.is_first[o.r * w.target_size + k]) continue;
        size_t c = (size_t)w.label(o.r, 2 * k + 1);
        float shares = c == (size_t)w.blank ? blanks : 0;
        for (int32_t i = (int32_t)k; i != NO_TARGET; i = w.chain[o.r * w.target_size + (size_t)i])
            shares += math_exp(o.at(2 * (size_t)i + 1) - largest);
        dx[c] = (math_exp(x[c]) - shares / sum) * factor;
    }
}

/* A block for each step of a row. */
__global__ void __launch_bounds__(SLOPE_THREADS) ctc_slopes_kernel(struct ctc_work w) {
    size_t t = blockIdx.x % w.steps, r = blockIdx.x / w.steps, i = blockIdx.x * w.classes;
    bool is_infinite = isinf(w.losses[r]), is_used = t < w.steps_of(r);
    float count = w.row[r].count ? (float)w.row[r].count : 1, constant = is_used && !w.zero_infinity ? NAN : 0;
    if (is_used && !is_infinite) {
        struct occupation o = {w, r, t, w.kept_of(r, 0, t), w.kept_of(r, 1, t)};
        step_slopes(o, w.states_of(r), w.factor / count * (w.weights ? w.weights[r] : 1), w.x + i, w.dx + i);
    } else {
        for (size_t c = threadIdx.x; c < w.classes; c += SLOPE_THREADS) w.dx[i + c] = constant;
    }
}

unsigned threads_for(size_t states) { return (unsigned)(states < MAX_THREADS ? (states + 31) / 32 * 32 : MAX_THREADS); }

} // namespace

status gpu_ctc_prepare(struct device *, size_t rows, size_t steps, size_t classes, size_t target_size) {
    size_t positions, bytes; /* blocks of the gradient; of ctc_work.kept */
    bool fits = !__builtin_mul_overflow(rows, steps, &positions) && positions < INT32_MAX && classes < INT32_MAX &&
                target_size < INT32_MAX &&
                !__builtin_mul_overflow(positions * sizeof(float), 2 * (2 * target_size + 1), &bytes);
    return fits ? OK : status_memory("the loss ctc");
}

void gpu_ctc(struct device *device, const struct ctc_options *o, const float *log_probabilities, const int64_t *targets,
             size_t rows, float factor, float *dx, struct loss_sums *sums) {
    operator_call c(device, "ctc");
    size_t steps = o->steps, classes = o->classes, target_size = o->rows.target_size, states = 2 * target_size + 1;
    size_t shared = 2 * states * sizeof(float);
    struct ctc_work w = {.x = c.in(log_probabilities, rows * steps * classes),
                         .targets = c.in(targets, rows * target_size),
                         .weights = c.in(o->rows.values, rows),
                         .lengths = c.in(o->rows.lengths, rows),
                         .rows = rows,
                         .steps = steps,
                         .classes = classes,
                         .target_size = target_size,
                         .max_states = states,
                         .blank = o->blank,
                         .padding = o->padding,
                         .zero_infinity = o->zero_infinity,
                         .is_counted = o->rows.is_counted,
                         .factor = factor,
                         .dx = c.out(dx, rows * steps * classes),
                         .row = c.scratch<struct ctc_row>(rows),
                         .best = c.scratch<int32_t>(rows * steps),
                         .chain = c.scratch<int32_t>(dx ? rows * target_size : 0),
                         .is_first = c.scratch<uint8_t>(dx ? rows * target_size : 0),
                         .buffers = shared > GPU_SHARED ? c.scratch<float>(rows * 4 * states) : nullptr,
                         .kept = dx ? c.scratch<float>(rows * 2 * steps * states) : nullptr,
                         .losses = c.scratch<double>(rows),
                         .sums = c.scratch<struct loss_sums>(rows)};
    struct loss_sums *to = c.inout(sums, 1);
    if (rows == 0 || !c.is_ok()) return;
    rows_start(&c, rows * steps, classes, best_rows{w});
    c.rows(rows, describe_row{w});
    c.launch(ctc_kernel, dim3((unsigned)rows, dx ? 2 : 1), threads_for(states), w.buffers ? 0 : shared, w);
    if (dx && steps) c.launch(ctc_slopes_kernel, (unsigned)(rows * steps), SLOPE_THREADS, 0, w);
    gpu_add_loss_sums(&c, w.sums, rows, to);
}
