/* Cross entropy: the loss and its gradient in one kernel, a warp or a block for each position (rows.cuh). The largest
 * logit and the denominator are computed in one pass over the row, the gradient in a second one. The second pass goes
 * backwards, and long rows use large blocks, of which a multiprocessor runs one or two at a time, so that it mostly
 * hits the cache (50304 logits are 101 KB in 16 bits, or 201; an H200 has 132 multiprocessors and 50 MB). Long rows of
 * 16-bit logits, of which two fit into the shared memory of a multiprocessor, are read once and kept there (held_rows).
 * The formulas are those of cpu/losses.c; sums over positions are in double. */
#include <climits>
#include <cmath>

#include "device/cuda/product.cuh"
#include "device/cuda/rows.cuh"

#define LONG 16384 /* logits of a row for a large block */
#define LONG_THREADS 1024
/* Blocks of held_rows on a multiprocessor; those of 8.6, 8.9 and 12.x have 1536 threads. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 800 && __CUDA_ARCH__ != 900 && __CUDA_ARCH__ / 10 != 100
#define HELD_BLOCKS 1
#else
#define HELD_BLOCKS 2
#endif
#define HELD_STATIC 1024      /* bytes of shared memory of held_rows beside the logits, at most */
#define GROUP 4               /* loads of a thread without a test between them */
#define FEW 128               /* positions for one block */
#define FEW_LOGITS (32 << 10) /* of them */

/* State of a thread for a row: its softmax, and the first position of the largest logit. */
struct row_state {
    struct row_softmax softmax;
    unsigned best;

    /* Numbers j to j + 3. */
    template <bool IS_FAST> __device__ void take(float4 v, unsigned j) {
        float largest = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
        if (largest > softmax.largest) best = j + (v.x == largest ? 0 : v.y == largest ? 1 : v.z == largest ? 2 : 3);
        softmax.take<IS_FAST>(v);
    }
};

struct row_state_join {
    __device__ struct row_state operator()(struct row_state a, struct row_state b) const {
        bool is_b =
            b.softmax.largest > a.softmax.largest || (b.softmax.largest == a.softmax.largest && b.best < a.best);
        return {row_softmax_join()(a.softmax, b.softmax), is_b ? b.best : a.best};
    }
    __device__ struct row_state from_lane(struct row_state a, int way) const {
        return {row_softmax_join().from_lane(a.softmax, way), __shfl_xor_sync(0xffffffffu, a.best, way)};
    }
};

/* [IS_FAST]: fast exponentials, for 16-bit logits. */
template <bool IS_FAST> struct cross_entropy_rows {
    struct gpu_numbers logits;
    const int64_t *targets;
    const double *weight;     /* (classes) or NULL */
    const double *count;      /* the divisor of the mean */
    const float *row_weights; /* NULL: all 1 */
    size_t row_positions;
    float smoothing, scale;
    int64_t ignored;
    size_t classes;
    struct loss_sums *sums; /* (positions); count is not set */
    bool is_aligned;
    struct gpu_result dlogits;

    /* Results are not read again soon: for long rows the cache is reserved for the logits. */
    template <unsigned THREADS> __device__ void store(size_t i, size_t j, float4 v) const {
        if (THREADS <= GPU_THREADS || !is_aligned) {
            row_put(dlogits, i * classes, j, classes, is_aligned, v);
            return;
        }
        if (dlogits.to) __stcs((float4 *)(dlogits.to + i * classes + j), v);
        if (dlogits.half_output.to)
            __stcs((uint2 *)(dlogits.half_output.to + i * classes + j), dlogits.half_output.of(v));
    }

    __device__ float row_weight(size_t i) const { return row_weights ? row_weights[i / row_positions] : 1; }

    __device__ float weight_of(size_t c) const { return weight ? (float)weight[c] : 1; }

    /* Sums of w z and of w over the classes. */
    template <unsigned THREADS> __device__ double2 smoothed(const struct gpu_numbers &z, size_t first) const {
        double products = 0, weights = 0;
        for (size_t j = first; j < classes; j += 4 * THREADS)
            for (size_t c = j; c < j + 4 && c < classes; c++) {
                double w = weight ? weight[c] : 1;
                products += w * (double)z.one(c);
                weights += w;
            }
        products = row_join<THREADS>(products, row_add());
        return {products, row_join<THREADS>(weights, row_add())};
    }

    /* Constants of a row's gradient, in registers, because stores may alias. */
    struct row {
        size_t target;
        float largest, share, own, spread, factor;
    };

    __device__ float slope(const struct row &r, float z, size_t c) const {
        float used = smoothing == 0 || c >= classes ? 0 : r.spread * weight_of(c);
        return (row_exp<IS_FAST>(z - r.largest) * r.share - (c == r.target ? r.own + used : used)) * r.factor;
    }

    __device__ float4 slopes(const struct row &r, float4 z, size_t c) const {
        return {slope(r, z.x, c), slope(r, z.y, c + 1), slope(r, z.z, c + 2), slope(r, z.w, c + 3)};
    }

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        struct gpu_numbers z = logits.from(i * classes);
        if (targets[i] == ignored) {
            for (size_t j = first; dlogits.is_wanted() && j < classes; j += 4 * THREADS)
                store<THREADS>(i, j, {0, 0, 0, 0});
            if (first == 0) sums[i] = {0, 0, 0, 0};
            return;
        }
        size_t target = (size_t)targets[i];
        struct row_state all = {{-INFINITY, 0}, 0xffffffffu};
        size_t j = first, step = 4 * THREADS;
        for (; is_aligned && j + (GROUP - 1) * step < classes; j += GROUP * step) {
            uint4 v[GROUP];
            for (size_t k = 0; k < GROUP; k++) v[k] = z.fetch(j + k * step);
            for (size_t k = 0; k < GROUP; k++) all.take<IS_FAST>(z.widen(v[k]), (unsigned)(j + k * step));
        }
        for (; j < classes; j += step) all.take<IS_FAST>(row_load(z, j, classes, is_aligned, -INFINITY), (unsigned)j);
        all = row_join<THREADS>(all, row_state_join());
        double2 smooth = {0, 0};
        if (smoothing != 0) smooth = smoothed<THREADS>(z, first);
        float largest = all.softmax.largest, log_sum = logf(all.softmax.sum), spread = smoothing / (float)classes;
        double counted = *count;
        float row_weight_here = row_weight(i);
        float own = (1 - smoothing) * weight_of(target), whole = own + spread * (float)smooth.y;
        if (first == 0) {
            double loss =
                (1 - (double)smoothing) * (double)weight_of(target) * -(double)(z.one(target) - largest - log_sum);
            if (smoothing != 0)
                loss -= (double)spread * (smooth.x - (double)largest * smooth.y - smooth.y * (double)log_sum);
            double w = row_weight_here;
            sums[i] = {loss * w, 0, all.best == target ? w : 0.0, w};
        }
        struct row r = {target, largest, whole / all.softmax.sum,
                        own,    spread,  counted > 0 ? scale / (float)counted * row_weight_here : 0};
        if (!dlogits.is_wanted()) return;
        size_t left = first < classes ? (classes - first + step - 1) / step : 0; /* fours that are left */
        for (; left > 0 && (left % GROUP > 0 || !is_aligned); left--) {
            j = first + (left - 1) * step;
            float4 v = row_load(z, j, classes, is_aligned, 0);
            store<THREADS>(i, j, slopes(r, v, j));
        }
        for (; left > 0; left -= GROUP) {
            uint4 v[GROUP];
            j = first + (left - GROUP) * step;
            for (size_t k = 0; k < GROUP; k++) v[k] = z.fetch(j + k * step);
            for (size_t k = 0; k < GROUP; k++) store<THREADS>(i, j + k * step, slopes(r, z.widen(v[k]), j + k * step));
        }
    }
};

struct row_max {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
    __device__ float from_lane(float a, int way) const { return __shfl_xor_sync(0xffffffffu, a, way); }
};
struct row_min {
    __device__ unsigned operator()(unsigned a, unsigned b) const { return a < b ? a : b; }
    __device__ unsigned from_lane(unsigned a, int way) const { return __shfl_xor_sync(0xffffffffu, a, way); }
};

/* A block for each position, whose 16-bit logits stay in shared memory; without smoothing and weights of classes. The
 * passes after the first read no memory of the GPU: the largest logit is known before the first exponential, which the
 * general kernel corrects as it proceeds. Each thread reads only what it has written there. */
__global__ void __launch_bounds__(LONG_THREADS, HELD_BLOCKS) held_rows(struct cross_entropy_rows<true> f) {
    uint2 *held = gpu_shared<uint2>() + threadIdx.x; /* (fours of a thread), LONG_THREADS apart */
    size_t i = blockIdx.x;
    unsigned first = 4 * threadIdx.x, classes = (unsigned)f.classes, step = 4 * LONG_THREADS;
    if (f.targets[i] == f.ignored) {
        for (unsigned j = first; f.dlogits.is_wanted() && j < classes; j += step)
            f.template store<LONG_THREADS>(i, j, {0, 0, 0, 0});
        if (threadIdx.x == 0) f.sums[i] = {0, 0, 0, 0};
        return;
    }
    struct gpu_numbers z = f.logits.from(i * f.classes);
    unsigned target = (unsigned)f.targets[i], j = first, at = 0;
    float largest = -INFINITY, sum = 0;
    auto larger = [&](uint2 bits) {
        float4 v = z.widen(uint4{bits.x, bits.y, 0, 0});
        largest = fmaxf(largest, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
    };
    for (; j + (GROUP - 1) * step < classes; j += GROUP * step, at += GROUP * LONG_THREADS) {
        uint2 bits[GROUP];
#pragma unroll
        for (unsigned k = 0; k < GROUP; k++) bits[k] = __ldcs((const uint2 *)((const uint16_t *)z.at + j + k * step));
#pragma unroll
        for (unsigned k = 0; k < GROUP; k++) larger(bits[k]), held[at + k * LONG_THREADS] = bits[k];
    }
    for (; j < classes; j += step, at += LONG_THREADS) {
        uint2 bits = __ldcs((const uint2 *)((const uint16_t *)z.at + j));
        larger(bits);
        held[at] = bits;
    }
    largest = row_join<LONG_THREADS>(largest, row_max());
    float base = largest == -INFINITY ? 0 : largest;
    for (j = first, at = 0; j < classes; j += step, at += LONG_THREADS) {
        float4 v = z.widen(uint4{held[at].x, held[at].y, 0, 0});
        sum += (row_exp<true>(v.x - base) + row_exp<true>(v.y - base)) +
               (row_exp<true>(v.z - base) + row_exp<true>(v.w - base));
    }
    float own = z.one(target); /* before the threads meet: results may replace the logits */
    sum = row_join<LONG_THREADS>(sum, row_add());
    float weight = f.row_weight(i);
    unsigned best = UINT_MAX;
    if (own == largest && own > -INFINITY) { /* else the target is not the first of the largest logits */
        for (j = first, at = 0; best == UINT_MAX && j < classes; j += step, at += LONG_THREADS) {
            float4 v = z.widen(uint4{held[at].x, held[at].y, 0, 0});
            if (v.x == largest || v.y == largest || v.z == largest || v.w == largest)
                best = j + (v.x == largest ? 0 : v.y == largest ? 1 : v.z == largest ? 2 : 3);
        }
        best = row_join<LONG_THREADS>(best, row_min());
    }
    double w = weight, counted = *f.count;
    if (threadIdx.x == 0) f.sums[i] = {-(double)(own - largest - logf(sum)) * w, 0, best == target ? w : 0.0, w};
    if (!f.dlogits.is_wanted()) return;
    float share = 1 / sum, factor = counted > 0 ? f.scale / (float)counted * weight : 0;
    for (j = first, at = 0; j < classes; j += step, at += LONG_THREADS) {
        float4 v = z.widen(uint4{held[at].x, held[at].y, 0, 0});
        v = {row_exp<true>(v.x - largest) * share, row_exp<true>(v.y - largest) * share,
             row_exp<true>(v.z - largest) * share, row_exp<true>(v.w - largest) * share};
        if (j / 4 == target / 4) {
            unsigned k = target % 4;
            v.x -= k == 0, v.y -= k == 1, v.z -= k == 2, v.w -= k == 3;
        }
        f.template store<LONG_THREADS>(i, j, {v.x * factor, v.y * factor, v.z * factor, v.w * factor});
    }
}

/* Starts held_rows, if it can compute [f]. */
static bool start_held(operator_call *c, size_t positions, const struct cross_entropy_rows<true> &f) {
    size_t bytes = (f.classes + 4 * LONG_THREADS - 1) / (4 * LONG_THREADS) * LONG_THREADS * sizeof(uint2);
    bool is_plain = f.logits.is_half() && f.is_aligned && f.smoothing == 0 && !f.weight && f.classes >= LONG;
    if (!is_plain || HELD_BLOCKS * (bytes + HELD_STATIC) > c->gpu->max_shared) return false;
    c->launch(held_rows, (unsigned)positions, LONG_THREADS, bytes, f);
    return true;
}
static bool start_held(operator_call *, size_t, const struct cross_entropy_rows<false> &) { return false; }

/* The sum of values (FEW), in the order of gpu_reduce; at values[0]. */
template <typename T, typename Op> __device__ void few_reduce(T *values, Op op) {
    __syncthreads();
    for (unsigned half = FEW / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) values[threadIdx.x] = op(values[threadIdx.x], values[threadIdx.x + half]);
        __syncthreads();
    }
}

/* All of a few positions in one block, a warp for each at a time: the bits of the kernels for many. [is_weighted]: the
 * count is weighted by rows, too. */
template <bool IS_FAST>
__global__ void __launch_bounds__(LONG_THREADS)
    few_positions(size_t positions, struct cross_entropy_rows<IS_FAST> f, bool is_weighted, struct loss_sums *to) {
    __shared__ double counts[FEW], weighted[FEW];
    __shared__ struct loss_sums sums[FEW];
    size_t i = threadIdx.x;
    if (i < FEW) {
        bool is_counted = i < positions && f.targets[i] != f.ignored;
        counts[i] = is_counted ? (double)f.weight_of((size_t)f.targets[i]) : 0;
        weighted[i] = is_counted && is_weighted ? counts[i] * (double)f.row_weight(i) : counts[i];
        sums[i] = {0, 0, 0, 0};
    }
    few_reduce(counts, gpu_add());
    few_reduce(weighted, gpu_add());
    f.count = counts;
    f.sums = sums;
    for (size_t row = threadIdx.x / 32; row < positions; row += LONG_THREADS / 32)
        f.template run<32>(row, threadIdx.x % 32 * 4);
    few_reduce(sums, gpu_add_sums());
    if (threadIdx.x > 0) return;
    *to = gpu_add_sums()(*to, sums[0]);
    to->count += weighted[0];
}

template <bool IS_FAST>
static void run(operator_call &c, const struct cross_entropy_options *o, const struct tensor *logits,
                const int64_t *targets, size_t positions, size_t classes, float scale, const struct tensor *dlogits,
                struct loss_sums *sums) {
    double *count = c.scratch<double>(1);
    bool is_weighted = o->rows.values && o->rows.is_counted;
    double *weighted = is_weighted ? c.scratch<double>(1) : count;
    struct cross_entropy_rows<IS_FAST> f = {
        .logits = c.in(logits, positions *classes), .targets = gpu_real_targets(&c, o, targets, positions),
        .weight = c.constant(o->weight, o->weight ? classes : 0), .count = count,
        .row_weights = c.in(o->rows.values, o->rows.values ? positions / o->row_positions : 0),
        .row_positions = o->rows.values ? o->row_positions : 1, .smoothing = o->label_smoothing, .scale = scale,
        .ignored = o->ignored, .classes = classes, .sums = c.scratch<struct loss_sums>(positions), .is_aligned = false,
        .dlogits = c.out(dlogits, positions *classes)
    };
    struct loss_sums *to = c.inout(sums, 1);
    f.is_aligned = rows_are_aligned(f.logits, classes) && f.dlogits.has_fours();
    gpu_add_half_output_rows(&c, &f.dlogits, classes);
    if (positions == 0 || !c.is_ok()) return;
    if (positions <= FEW && classes <= ROWS_LONG && positions * classes <= FEW_LOGITS) {
        c.launch(few_positions<IS_FAST>, 1, LONG_THREADS, 0, positions, f, is_weighted, to);
        return;
    }
    c.each(1, [=] __device__(size_t) { *count = 0; });
    c.sum(
        positions,
        [=] __device__(size_t i) {
            return f.targets[i] == f.ignored ? 0.0 : (double)f.weight_of((size_t)f.targets[i]);
        },
        count);
    if (is_weighted) {
        c.each(1, [=] __device__(size_t) { *weighted = 0; });
        c.sum(
            positions,
            [=] __device__(size_t i) {
                if (f.targets[i] == f.ignored) return 0.0;
                return (double)f.weight_of((size_t)f.targets[i]) * (double)f.row_weight(i);
            },
            weighted);
    }
    bool is_started = start_held(&c, positions, f);
    if (!is_started && classes >= LONG)
        c.launch(rows_kernel<LONG_THREADS, struct cross_entropy_rows<IS_FAST>>, (unsigned)positions, LONG_THREADS, 0,
                 positions, f);
    else if (!is_started)
        rows_start(&c, positions, classes, f);
    gpu_add_loss_sums(&c, f.sums, positions, to);
    c.each(1, [=] __device__(size_t) { to->count += *weighted; });
}

void gpu_cross_entropy(struct device *device, const struct cross_entropy_options *o, const struct tensor *logits,
                       const int64_t *targets, size_t positions, size_t classes, float scale,
                       const struct tensor *dlogits, struct loss_sums *sums) {
    operator_call c(device, "cross_entropy");
    auto *start = logits->is_half ? run<true> : run<false>;
    start(c, o, logits, targets, positions, classes, scale, dlogits, sums);
}
