/* Factors of products: one pass reads float32 once, writes 16 bits, and sums columns. A block processes 128 columns of
 * a tile of rows, each warp complete rows, each thread four columns. Sums are computed within a warp, then over the
 * warps of the block, then over the tiles (columns.cuh); their order depends only on the sizes. */
#include "device/cuda/columns.cuh"
#include "device/cuda/product.cuh"

#define WARPS 8
#define COLUMNS 128 /* of a block: 32 threads of a warp x 4 */
#define BLOCKS 1024 /* about as many as a GPU runs at once */
#define MIN_ROWS 32
#define FEW_ROWS 128 /* for one block over all rows, which needs no second kernel */
#define AHEAD 4      /* rows that a thread reads before it writes the first */

struct columns_job {
    const float *from; /* (rows, columns) */
    size_t rows, columns;
    bool is_aligned; /* rows can be read by float4 */
    uint16_t *to;    /* (rows, stride), zeros past the columns; NULL: none */
    size_t stride;
    bool is_bfloat16; /* else float16 */
    size_t tile;      /* rows of a block */
    float *parts;     /* (tiles, columns) sums; NULL: none */
    float *total;     /* (columns), to which the sums of the only tile are added; NULL: there are others */
};

__device__ static float4 load(const struct columns_job *j, size_t row, size_t column) {
    const float *from = j->from + row * j->columns + column;
    if (j->is_aligned && column < j->columns) return *(const float4 *)from;
    float4 v = {0, 0, 0, 0};
    if (column < j->columns) v.x = from[0];
    if (column + 1 < j->columns) v.y = from[1];
    if (column + 2 < j->columns) v.z = from[2];
    if (column + 3 < j->columns) v.w = from[3];
    return v;
}

__global__ static void columns_kernel(struct columns_job j) {
    __shared__ float sums[WARPS][COLUMNS];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    size_t column = (size_t)blockIdx.x * COLUMNS + 4 * lane, first = (size_t)blockIdx.y * j.tile;
    size_t last = first + j.tile < j.rows ? first + j.tile : j.rows;
    float4 sum = {0, 0, 0, 0};
    auto take = [&](size_t row, float4 v) {
        if (j.to && column < j.stride)
            *(uint2 *)(j.to + row * j.stride + column) = {gpu_to_half(j.is_bfloat16, v.x, v.y),
                                                          gpu_to_half(j.is_bfloat16, v.z, v.w)};
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    };
    size_t row = first + warp;
    for (; row + (AHEAD - 1) * WARPS < last; row += AHEAD * WARPS) {
        float4 v[AHEAD];
        for (int k = 0; k < AHEAD; k++) v[k] = load(&j, row + k * WARPS, column);
        for (int k = 0; k < AHEAD; k++) take(row + k * WARPS, v[k]);
    }
    for (; row < last; row += WARPS) take(row, load(&j, row, column));
    if (!j.parts && !j.total) return;
    float *own = sums[warp] + 4 * lane;
    own[0] = sum.x, own[1] = sum.y, own[2] = sum.z, own[3] = sum.w;
    __syncthreads();
    column = (size_t)blockIdx.x * COLUMNS + threadIdx.x;
    if (threadIdx.x >= COLUMNS || column >= j.columns) return;
    float total = 0;
    for (int w = 0; w < WARPS; w++) total += sums[w][threadIdx.x];
    if (j.total)
        j.total[column] += total;
    else
        j.parts[blockIdx.y * j.columns + column] = total;
}

static size_t ceiling(size_t count, size_t of) { return (count + of - 1) / of; }

static size_t stride_of(size_t columns) { return ceiling(columns, 8) * 8; }

static void run(operator_call *c, struct columns_job j, float *sums) {
    if (j.rows == 0 || j.columns == 0) return;
    size_t across = ceiling(j.to ? j.stride : j.columns, COLUMNS), limit = ceiling(j.rows, MIN_ROWS);
    size_t tiles = across < BLOCKS && (j.rows > FEW_ROWS || !sums) ? BLOCKS / across : 1, columns = j.columns;
    j.tile = ceiling(ceiling(j.rows, tiles < limit ? tiles : limit), WARPS) * WARPS;
    tiles = ceiling(j.rows, j.tile);
    j.is_aligned = j.columns % 4 == 0 && alignment(j.from) >= sizeof(float4);
    const float *parts = j.parts = sums && tiles > 1 ? c->scratch<float>(tiles * columns) : nullptr;
    j.total = tiles > 1 ? nullptr : sums;
    c->launch(columns_kernel, dim3((unsigned)across, (unsigned)tiles), WARPS * 32, 0, j);
    if (!parts) return;
    column_add<1>(c, (unsigned)tiles, columns, parts,
                  [=] __device__(size_t k, const double *total) { sums[k] += (float)*total; });
}

static bool is_half(const operator_call *c) { return gpu_factor_size(c->gpu) == 2; }

static struct columns_job job_of(const operator_call *c, const float *x, size_t rows, size_t columns, uint16_t *to) {
    return {.from = x,
            .rows = rows,
            .columns = columns,
            .is_aligned = false,
            .to = to,
            .stride = stride_of(columns),
            .is_bfloat16 = c->gpu->precision == PRECISION_BFLOAT16,
            .tile = 0,
            .parts = nullptr,
            .total = nullptr};
}

static size_t gaps_of(size_t columns) { return columns % 8 ? columns : 0; }

/* An operand's copy, if it has the layout of rows of [columns], or 0: without gaps. NULL: none. */
static struct half_copy *with_layout(const operator_call *c, struct half_copy *copy, size_t columns) {
    return copy && is_half(c) && copy->columns == gaps_of(columns) ? copy : nullptr;
}

/* Memory for a matrix of [size] numbers, rounded in this call: that of its copy, which is valid from then on, or
 * scratch memory. */
static uint16_t *memory_of(operator_call *c, struct half_copy *copy, size_t size) {
    if (!copy) return c->scratch<uint16_t>(size);
    copy->is_valid = true;
    copy->has_sums = false;
    return copy->memory;
}

struct factor gpu_gradient_factor(operator_call *c, struct gpu_numbers given, float *sums, size_t rows,
                                  size_t columns) {
    const float *dy = given.floats();
    size_t stride = stride_of(columns);
    if (!is_half(c)) {
        if (sums) run(c, job_of(c, dy, rows, columns, nullptr), sums);
        return {dy, columns};
    }
    struct half_copy *copy = with_layout(c, given.copy, columns);
    if (copy && copy->is_valid) {
        if (sums) run(c, job_of(c, dy, rows, columns, nullptr), sums);
        return {copy->memory, stride};
    }
    uint16_t *to = memory_of(c, copy, rows * stride);
    run(c, job_of(c, dy, rows, columns, to), sums);
    return {to, stride};
}

struct factor gpu_factor(operator_call *c, struct gpu_numbers x, size_t rows, size_t columns) {
    if (x.is_half()) return {x.at, columns};
    return gpu_gradient_factor(c, x, nullptr, rows, columns);
}

struct gpu_numbers gpu_gradient_half(operator_call *c, struct gpu_numbers dy, size_t columns) {
    if (dy.is_half() || gaps_of(columns)) return dy;
    const struct half_copy *copy = with_layout(c, dy.copy, 0);
    if (!copy || !copy->is_valid || !copy->has_sums) return dy;
    return {copy->memory, gpu_half_format(c->gpu), nullptr};
}

const uint16_t *gpu_half_copy(operator_call *c, struct gpu_numbers given, size_t count) {
    const float *x = given.floats();
    struct half_copy *copy = with_layout(c, given.copy, 0);
    if (copy && copy->is_valid) return copy->memory;
    bool is_bfloat16 = c->gpu->precision == PRECISION_BFLOAT16;
    uint16_t *to = memory_of(c, copy, count);
    size_t fours = alignment(x) >= sizeof(float4) ? count / 4 : 0;
    c->each(fours + (count - 4 * fours), [=] __device__(size_t i) {
        if (i < fours) {
            float4 v = ((const float4 *)x)[i];
            ((uint2 *)to)[i] = {gpu_to_half(is_bfloat16, v.x, v.y), gpu_to_half(is_bfloat16, v.z, v.w)};
        } else {
            size_t k = i + 3 * fours;
            to[k] = gpu_to_half(is_bfloat16, x[k]);
        }
    });
    return to;
}

void gpu_add_half_output(operator_call *c, struct gpu_result *y) {
    struct half_copy *copy = c->is_ok() ? with_layout(c, y->copy, 0) : nullptr;
    if (!y->to || !copy) return;
    copy->is_valid = copy->has_sums = true;
    y->half_output = {copy->memory, c->gpu->precision == PRECISION_BFLOAT16};
}

uint16_t *gpu_reserve(operator_call *c, struct gpu_copy *copy, size_t bytes) {
    if (!c->is_ok() || bytes <= copy->bytes) return (uint16_t *)copy->memory;
    if (c->gpu->is_recording) {
        gpu_fail(c->gpu, "a copy in 16 bits", "it needs more memory than in the dry run");
        return nullptr;
    }
    c->check(cudaFree(copy->memory));
    *copy = {};
    c->gpu->moves++;
    if (c->is_ok()) c->check(cudaMalloc(&copy->memory, bytes));
    if (c->is_ok()) copy->bytes = bytes;
    return (uint16_t *)copy->memory;
}

namespace {

/* Four numbers a thread, of parameters. */
struct rounding {
    const float *values;
    uint16_t *to;
    bool is_bfloat16;

    __device__ void operator()(size_t i) const {
        float4 v = ((const float4 *)values)[i];
        ((uint2 *)to)[i] = {gpu_to_half(is_bfloat16, v.x, v.y), gpu_to_half(is_bfloat16, v.z, v.w)};
    }
};

bool is_current(const struct gpu_parameters *p, const float *values, size_t count) {
    return p->is_current && p->copy.source == values && p->copy.count == count;
}

void refresh(operator_call *c, const float *values, size_t count) {
    struct gpu_parameters *p = &c->gpu->parameters;
    bool is_there = is_current(p, values, count);
    uint16_t *to = gpu_reserve(c, &p->copy, count * sizeof *to);
    p->copy.source = values, p->copy.count = count, p->is_current = true;
    if (!is_there) c->each(count / 4, rounding{values, to, c->gpu->precision == PRECISION_BFLOAT16});
}

} // namespace

/* A recording does not round at its start: gpu_replay does before it, if necessary. */
void gpu_round_parameters(struct device *device, const float *values, size_t count) {
    operator_call c(device, "round_parameters");
    struct gpu_parameters *p = &c.gpu->parameters;
    if (!is_half(&c) || count % 4 != 0 || alignment(values) < sizeof(float4)) {
        p->copy.source = nullptr;
        return;
    }
    if (c.gpu->is_recording && !p->required) {
        p->required = p->copy.source = values;
        p->required_count = p->copy.count = count;
        p->is_current = true;
    }
    refresh(&c, values, count);
    p->copy.version = ++c.gpu->versions;
}

void gpu_parameters_refresh(struct gpu_device *gpu, const struct gpu_parameters *recorded) {
    if (!recorded->required || is_current(&gpu->parameters, recorded->required, recorded->required_count)) return;
    operator_call c(&gpu->base, "round_parameters");
    refresh(&c, recorded->required, recorded->required_count);
}

struct gpu_half_output gpu_half_output_parameters(const operator_call *c, const float *values, size_t count) {
    const struct gpu_parameters *p = &c->gpu->parameters;
    const float *of = p->copy.source;
    bool is_inside = of && values >= of && values + count <= of + p->copy.count;
    if (!p->is_current || !is_inside) return {nullptr, false};
    return {(uint16_t *)p->copy.memory + (values - of), c->gpu->precision == PRECISION_BFLOAT16};
}

struct factor gpu_weight_factor(operator_call *c, const float *w, size_t out, size_t in) {
    const struct gpu_copy *copy = &c->gpu->parameters.copy;
    bool is_inside = copy->source && w >= copy->source && w + out * in <= copy->source + copy->count;
    if (!is_half(c) || !is_inside || in != stride_of(in)) return gpu_factor(c, {w, GPU_FLOAT32, nullptr}, out, in);
    const uint16_t *at = (const uint16_t *)copy->memory + (w - copy->source);
    return alignment(at) < 16 ? gpu_factor(c, {w, GPU_FLOAT32, nullptr}, out, in) : (struct factor){at, in};
}
