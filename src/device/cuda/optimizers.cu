/* Every update rule of device/rules.h: one kernel with one pass over all buffers, four numbers per thread. */
#include <cmath>
#include <cstdlib>

#include "device/cuda/elements.cuh"

#define NUMBERS (4 * GPU_THREADS) /* of a block */

namespace {

/* The run of each number: a block looks up that of its first number; most blocks are within one run. */
struct run_table {
    struct optimizer_run only;        /* without a table */
    const struct optimizer_run *runs; /* NULL: none */
    const uint32_t *first;            /* (blocks) index into runs */

    __device__ struct optimizer_run at(size_t i) const {
        if (!runs) return only;
        const struct optimizer_run *run = runs + first[blockIdx.x];
        while (run->end <= i) run++;
        return *run;
    }
};

struct update_job {
    struct run_table table;
    const union optimizer_constants *constants;
    const float *clip;
    float *values, *gradients;
    float *states[OPTIMIZER_STATES]; /* NULL: not used */
    unsigned used;                   /* bit k: state k is */
    size_t count;
    bool is_aligned;                    /* four numbers can be read at once */
    struct gpu_half_output half_output; /* values in 16 bits */
};

/* Loads four numbers; with [is_whole] false only the [left] remaining ones, and zeros. */
template <bool is_whole> __device__ void load(float (&v)[4], const float *from, size_t left) {
    if constexpr (is_whole) {
        float4 four = *(const float4 *)from;
        v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
    } else {
        for (size_t l = 0; l < 4; l++) v[l] = l < left ? from[l] : 0;
    }
}

template <bool is_whole> __device__ void store(float *to, const float (&v)[4], size_t left) {
    if constexpr (is_whole)
        *(float4 *)to = {v[0], v[1], v[2], v[3]};
    else
        for (size_t l = 0; l < 4 && l < left; l++) to[l] = v[l];
}

template <bool is_whole>
__device__ void put(const struct gpu_half_output &half_output, size_t i, const float (&v)[4], size_t left) {
    if constexpr (is_whole)
        half_output.put(i, float4{v[0], v[1], v[2], v[3]});
    else
        for (size_t l = 0; l < 4 && l < left; l++) half_output.put(i + l, v[l]);
}

/* Numbers [i, i + 4), whose state is at [at]: all are read before anything is computed. */
template <typename Rule, bool is_whole>
__device__ void update_four(const struct update_job &j, const union optimizer_constants *constants, float factor,
                            size_t i, size_t at, size_t left) {
    const float zeros[4] = {};
    float values[4], gradients[4], states[OPTIMIZER_STATES][4] = {};
    load<is_whole>(values, j.values + i, left);
    load<is_whole>(gradients, j.gradients + i, left);
    for (int k = 0; k < Rule::states; k++)
        if (RULE_USES(j.used, k)) load<is_whole>(states[k], j.states[k] + at, left);
    typename Rule::constants own = Rule::of(*constants);
    unsigned flags = j.used | Rule::flags(own) << OPTIMIZER_STATES;
    for (int l = 0; l < 4; l++) {
        struct rule_number n = {values[l], gradients[l] * factor, {states[0][l], states[1][l], states[2][l]}};
        Rule::update(own, flags, &n);
        values[l] = n.value;
        for (int k = 0; k < Rule::states; k++) states[k][l] = n.state[k];
    }
    store<is_whole>(j.values + i, values, left);
    store<is_whole>(j.gradients + i, zeros, left);
    for (int k = 0; k < Rule::states; k++)
        if (RULE_USES(j.used, k)) store<is_whole>(j.states[k] + at, states[k], left);
    put<is_whole>(j.half_output, i, values, left);
}

template <typename Rule> __global__ void __launch_bounds__(GPU_THREADS) update_kernel(Rule, struct update_job j) {
    size_t i = (size_t)blockIdx.x * NUMBERS + threadIdx.x * 4;
    if (i >= j.count) return;
    const float zeros[4] = {}, factor = *j.clip;
    struct optimizer_run run = j.table.at(i);
    size_t left = run.end - i, at = run.at + (i - run.begin);
    bool is_whole = j.is_aligned && left >= 4;
    if (isnan(factor) || run.constants == OPTIMIZER_SKIP) {
        if (is_whole)
            store<true>(j.gradients + i, zeros, left);
        else
            store<false>(j.gradients + i, zeros, left);
    } else if (is_whole) {
        update_four<Rule, true>(j, j.constants + run.constants, factor, i, at, left);
    } else {
        update_four<Rule, false>(j, j.constants + run.constants, factor, i, at, left);
    }
}

size_t blocks_of(size_t count) { return (count + NUMBERS - 1) / NUMBERS; }

/* A gpu_make of runs: for each block that of its first number. */
void *create_first(const void *p, size_t bytes, size_t *converted_bytes) {
    const struct optimizer_run *runs = (const struct optimizer_run *)p;
    size_t blocks = blocks_of(runs[bytes / sizeof *runs - 1].end);
    *converted_bytes = blocks * sizeof(uint32_t);
    uint32_t *first = (uint32_t *)malloc(*converted_bytes), run = 0;
    for (size_t b = 0; first && b < blocks; b++) {
        while (runs[run].end <= b * NUMBERS) run++;
        first[b] = run;
    }
    return first;
}

/* Extent of the states and of the constants that the runs use. */
struct extent {
    size_t state, constants;
};

struct extent extent_of(const struct optimizer_update *u) {
    struct extent e = {};
    for (const struct optimizer_run *run = u->runs; run < u->runs + u->run_count; run++) {
        if (run->constants == OPTIMIZER_SKIP) continue;
        size_t end = run->at + (run->end - run->begin);
        if (end > e.state) e.state = end;
        if (run->constants >= e.constants) e.constants = run->constants + 1;
    }
    return e;
}

struct run_table table_of(operator_call *c, const struct optimizer_update *u) {
    if (u->run_count == 1) return {u->runs[0], nullptr, nullptr};
    return {{}, c->constant(u->runs, u->run_count), c->constant<uint32_t>(u->runs, u->run_count, create_first)};
}

bool is_aligned(const void *p) { return alignment(p) >= sizeof(float4); }

template <typename Rule> void update_by(struct device *device, const struct optimizer_update *u) {
    operator_call c(device, Rule::text);
    if (u->run_count == 0) return;
    size_t count = u->runs[u->run_count - 1].end;
    struct extent reach = extent_of(u);
    struct gpu_half_output half_output =
        gpu_half_output_parameters(&c, u->values, count); /* before they are reported as written */
    struct update_job j = {.table = table_of(&c, u),
                           .constants = c.in(u->constants, reach.constants),
                           .clip = c.in(u->clip, 1),
                           .values = c.inout(u->values, count),
                           .gradients = c.inout(u->gradients, count),
                           .states = {},
                           .used = 0,
                           .count = count,
                           .is_aligned = true,
                           .half_output = half_output};
    for (int k = 0; k < OPTIMIZER_STATES; k++) {
        j.states[k] = c.inout(u->states[k], reach.state);
        j.used |= (unsigned)(u->states[k] != nullptr) << k;
    }
    j.is_aligned = is_aligned(j.values) && is_aligned(j.gradients) && j.table.only.at % 4 == 0;
    for (int k = 0; k < OPTIMIZER_STATES; k++) j.is_aligned &= is_aligned(j.states[k]);
    if (count > 0) c.launch(update_kernel<Rule>, (unsigned)blocks_of(count), GPU_THREADS, 0, Rule(), j);
    if (half_output.to) c.gpu->parameters.is_current = true; /* both were written */
}

/* The rule and its flags, for the kernel. */
#define X(id, name, states_, always, own_flags)                                                                        \
    struct name##_update {                                                                                             \
        using constants = struct name##_constants;                                                                     \
        static constexpr int states = states_;                                                                         \
        static constexpr const char *text = #name;                                                                     \
        __device__ static constants of(const union optimizer_constants &s) { return s.name; }                          \
        __device__ static unsigned flags(const constants &s) { return own_flags(&s); }                                 \
        __device__ static void update(const constants &s, unsigned flags, struct rule_number *n) {                     \
            name##_rule(&s, flags, n);                                                                                 \
        }                                                                                                              \
    };
UPDATE_RULES(X)
#undef X

} // namespace

static void update(struct device *device, const struct optimizer_update *u) {
    static void (*const rules[])(struct device *, const struct optimizer_update *) = {
#define X(id, name, states, always, own_flags) update_by<name##_update>,
        UPDATE_RULES(X)
#undef X
    };
    rules[u->rule](device, u);
}

static void average(struct device *device, float weight, const float *clip, const float *values, float *mean,
                    size_t count) {
    operator_call c(device, "average");
    const float *from = c.in(values, count), *factor = c.in(clip, 1);
    float *to = c.inout(mean, count);
    elements(
        &c, count, to, {nullptr, false},
        [=] __device__(float v, float m) { return isnan(*factor) ? m : average_rule(weight, v, m); }, from,
        (const float *)to);
}

static void save_or_restore(struct device *device, const float *clip, float *values, float *saved, size_t count) {
    operator_call c(device, "save_or_restore");
    const float *factor = c.in(clip, 1);
    float *own = c.inout(values, count), *other = c.inout(saved, count);
    size_t fours = is_aligned(own) && is_aligned(other) ? count / 4 : 0;
    c.each(count - 3 * fours, [=] __device__(size_t i) {
        bool is_held = isnan(*factor);
        const float *from = is_held ? other : own;
        float *to = is_held ? own : other;
        if (i < fours)
            ((float4 *)to)[i] = ((const float4 *)from)[i];
        else
            to[i + 3 * fours] = from[i + 3 * fours];
    });
}

static void clamp(struct device *device, float limit, float *x, size_t count) {
    operator_call c(device, "clamp");
    float *to = c.inout(x, count);
    elements(
        &c, count, to, {nullptr, false}, [=] __device__(float v) { return clamp_rule(limit, v); }, (const float *)to);
}

const struct optimizer_ops gpu_optimizers = {
    .update = update, .average = average, .save_or_restore = save_or_restore, .clamp = clamp};
