/* The contrastive loss: the method of cpu/contrastive.c. Logits are products of cuBLASLt of as many own rows as fit
 * into a limited workspace, with all rows; they are computed again for the gradient unless all of them fit. The loss
 * and its products are float32 in every precision. Rows of other ranks are gathered in the GPU's memory by the
 * caller's function for it, which can be recorded, else through the host. */
#include <cmath>

#include "device/cuda/product.cuh"
#include "device/cuda/rows.cuh"

#define SIDES 2                        /* the embeddings of a row: a and b */
#define BLOCK_LOGITS ((size_t)4 << 20) /* that are computed together: 16 MiB, which the cache of a large GPU holds */
#define NORM_EPS 1e-12                 /* of torch.nn.functional.normalize */

namespace {

/* The rows of all ranks; own rows are [first, first + rows) of [total]. */
struct contrastive_rows {
    const struct all_rows *all; /* NULL: own rows only, or a dry run */
    size_t rows, first, total;
    size_t places, own_place; /* for gathered rows: those of a rank start at a multiple of the largest number */
};

struct contrastive_rows rows_of(const operator_call *c, const struct all_rows *all, size_t rows) {
    struct contrastive_rows r = {all, rows, 0, rows, rows, 0};
    if (!all && c->gpu->is_dry_run && c->gpu->world_size) r.total = r.places = rows * c->gpu->world_size;
    if (!all) return r;
    r.total = 0;
    r.places = all->world_size * all->max;
    r.own_place = all->rank * all->max;
    for (size_t p = 0; p < all->world_size; p++) {
        r.first += p < all->rank ? all->rows[p] : 0;
        r.total += all->rows[p];
    }
    return r;
}

/* values (world_size, bytes), through the host */
void gather_on_host(operator_call *c, const struct all_rows *all, char *values, size_t bytes) {
    size_t total = all->world_size * bytes, own = all->rank * bytes;
    char *host = (char *)gpu_staging(c->gpu, total / sizeof(double) + 1);
    if (!host) return;
    if (c->is_ok()) c->check(cudaMemcpyAsync(host + own, values + own, bytes, cudaMemcpyDeviceToHost, c->gpu->stream));
    if (c->is_ok()) c->check(cudaStreamSynchronize(c->gpu->stream));
    all->gather(all->user, host, bytes); /* also after a failure: other ranks wait for it */
    if (c->is_ok()) c->check(cudaMemcpyAsync(values, host, total, cudaMemcpyHostToDevice, c->gpu->stream));
}

/* The rows of all ranks one after the other: [values] (places, floats), or a copy without gaps. */
float *gather(operator_call *c, const struct contrastive_rows &r, float *values, size_t floats) {
    const struct all_rows *all = r.all;
    float *compact = r.places > r.rows ? c->scratch<float>(r.total * floats) : nullptr, *to = compact;
    if (!all) return values;
    size_t bytes = all->max * floats * sizeof *values;
    if (!all->enqueue)
        gather_on_host(c, all, (char *)values, bytes);
    else if (c->is_ok())
        all->enqueue(all->user, values, bytes, c->gpu->stream);
    if (r.total == r.places) return values;
    for (size_t p = 0; p < all->world_size; p++) {
        size_t count = all->rows[p] * floats;
        if (count && c->is_ok())
            c->check(cudaMemcpyAsync(to, values + p * all->max * floats, count * sizeof *to, cudaMemcpyDeviceToDevice,
                                     c->gpu->stream));
        to += count;
    }
    return compact;
}

/* ---- norms ---- */

/* y = x / max(|x|, eps) */
struct normalisation {
    const float *x;
    float *y;
    double *norms;
    size_t size;

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        double squares = 0;
        for (size_t j = first; j < size; j += 4 * THREADS)
            for (size_t k = j; k < j + 4 && k < size; k++) squares += (double)x[i * size + k] * (double)x[i * size + k];
        double norm = sqrt(row_join<THREADS>(squares, row_add()));
        double factor = 1 / (norm > NORM_EPS ? norm : NORM_EPS);
        if (first == 0) norms[i] = norm;
        for (size_t j = first; j < size; j += 4 * THREADS)
            for (size_t k = j; k < j + 4 && k < size; k++) y[i * size + k] = (float)((double)x[i * size + k] * factor);
    }
};

/* dx = (dy - y (y . dy)) / |x|; the norm of a row that is nearly 0 is a constant. dy (rows, size); the other rows are
 * [stride] apart. */
struct normalisation_back {
    const float *y, *dy;
    const double *norms;
    float *dx;
    size_t size, stride;

    template <unsigned THREADS> __device__ void run(size_t i, size_t first) const {
        double along = 0, norm = norms[i * SIDES];
        const float *own = y + i * stride, *slopes = dy + i * size;
        for (size_t j = first; norm > NORM_EPS && j < size; j += 4 * THREADS)
            for (size_t k = j; k < j + 4 && k < size; k++) along += (double)own[k] * (double)slopes[k];
        along = row_join<THREADS>(along, row_add());
        double factor = 1 / (norm > NORM_EPS ? norm : NORM_EPS);
        for (size_t j = first; j < size; j += 4 * THREADS)
            for (size_t k = j; k < j + 4 && k < size; k++)
                dx[i * stride + k] = (float)(((double)slopes[k] - along * (double)own[k]) * factor);
    }
};

/* ---- logits ---- */

struct contrastive {
    struct contrastive_rows r;
    size_t size, block_rows; /* own rows whose logits are computed together */
    bool keeps_logits;       /* of both sides, for the gradient */
    float inverse_temperature, factor;
    float weights[SIDES];   /* of the directions: a is classified, b is classified */
    float *dx;              /* (rows, SIDES, size) */
    double *norms;          /* (rows, SIDES) */
    float *own_log_sums;    /* (rows, SIDES): log(sum(exp(row of logits))) */
    const float *y;         /* (total, SIDES, size), normalised */
    const float *log_sums;  /* (total, SIDES) */
    float *z;               /* (block_rows, total), for each side if keeps_logits */
    float *dy;              /* (block_rows, size) */
    struct loss_sums *sums; /* (sides, rows) */

    const float *side_of(size_t row, size_t side) const { return y + (row * SIDES + side) * size; }
};

/* z (rows, total) = own rows [first, first + rows) of [side] times all rows of the other side; returns z. */
float *compute_logits(operator_call *c, const struct contrastive &f, size_t side, size_t first, size_t rows,
                      bool is_known) {
    float *z = f.z + (f.keeps_logits ? side * f.block_rows * f.r.total : 0);
    struct gpu_product p = {.transpose_a = CUBLAS_OP_T,
                            .transpose_b = CUBLAS_OP_N,
                            .m = f.r.total,
                            .n = rows,
                            .k = f.size,
                            .a = {f.side_of(0, 1 - side), SIDES * f.size},
                            .b = {f.side_of(f.r.first + first, side), SIDES * f.size},
                            .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                            .c = z,
                            .is_float32 = true};
    if (!is_known) gpu_multiply(c, &p);
    return z;
}

/* loss of a row = weight (log(sum_j(exp(z_ij))) - z_ii) */
struct logits_loss {
    const float *z;
    size_t total, first; /* first: the class of row 0 */
    float inverse_temperature, weight;
    double counted;
    float *log_sums;
    struct loss_sums *sums;

    template <unsigned THREADS> __device__ void run(size_t i, size_t begin) const {
        struct row_softmax softmax = {-INFINITY, 0};
        const float *row = z + i * total;
        for (size_t j = begin; j < total; j += 4 * THREADS) {
            float4 v = row_load(row, j, total, false, -INFINITY);
            softmax.take({v.x * inverse_temperature, v.y * inverse_temperature, v.z * inverse_temperature,
                          v.w * inverse_temperature});
        }
        softmax = row_join<THREADS>(softmax, row_softmax_join());
        if (begin > 0) return;
        float log_sum = softmax.largest + logf(softmax.sum);
        double own = (double)(row[first + i] * inverse_temperature);
        log_sums[i * SIDES] = log_sum;
        sums[i] = {(double)weight * ((double)log_sum - own), counted, 0, 0};
    }
};

void add_losses(operator_call *c, const struct contrastive &f, size_t side, size_t first, size_t rows) {
    const float *z = compute_logits(c, f, side, first, rows, false);
    rows_start(c, rows, f.r.total,
               logits_loss{z, f.r.total, f.r.first + first, f.inverse_temperature, f.weights[side],
                           side == 0 ? 1.0 : 0.0, f.own_log_sums + first * SIDES + side,
                           f.sums + side * f.r.rows + first});
}

/* z = the derivatives of the logits, from both directions: those of z_ij in its own, where they are classified over j,
 * and in the other one, where column j is a row:
 *   own weight (exp(z_ij - log_sum_i) - [i = j]) + other weight (exp(z_ij - log_sum_j) - [i = j]) */
void differentiate(operator_call *c, const struct contrastive &f, size_t side, size_t first, size_t rows, float *z) {
    float own = f.weights[side], other = f.weights[1 - side], inverse = f.inverse_temperature,
          factor = f.factor * inverse;
    const float *log_sums = f.log_sums;
    size_t total = f.r.total, begin = f.r.first + first;
    c->each(rows * total, [=] __device__(size_t n) {
        size_t i = begin + n / total, j = n % total;
        float v = z[n] * inverse, sum = 0;
        if (own > 0) sum += own * math_exp(v - log_sums[i * SIDES + side]);
        if (other > 0) sum += other * math_exp(v - log_sums[j * SIDES + (1 - side)]);
        z[n] = (sum - (i == j ? own + other : 0)) * factor;
    });
}

/* dx of own rows [first, first + rows) of [side] = derivatives of the logits times all rows of the other side */
void add_gradients(operator_call *c, const struct contrastive &f, size_t side, size_t first, size_t rows) {
    size_t stride = SIDES * f.size;
    float *z = compute_logits(c, f, side, first, rows, f.keeps_logits);
    struct gpu_product p = {.transpose_a = CUBLAS_OP_N,
                            .transpose_b = CUBLAS_OP_N,
                            .m = f.size,
                            .n = rows,
                            .k = f.r.total,
                            .a = {f.side_of(0, 1 - side), stride},
                            .b = {z, f.r.total},
                            .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                            .c = f.dy,
                            .is_float32 = true};
    differentiate(c, f, side, first, rows, z);
    gpu_multiply(c, &p);
    rows_start(c, rows, f.size,
               normalisation_back{f.side_of(f.r.first + first, side), f.dy, f.norms + first * SIDES + side,
                                  f.dx + first * stride + side * f.size, f.size, stride});
}

typedef void block_function(operator_call *c, const struct contrastive &f, size_t side, size_t first, size_t rows);

void run_blocks(operator_call *c, const struct contrastive &f, block_function *run, size_t sides) {
    for (size_t first = 0; first < f.r.rows && c->is_ok(); first += f.block_rows)
        for (size_t side = 0; side < sides; side++)
            run(c, f, side, first, f.r.rows - first < f.block_rows ? f.r.rows - first : f.block_rows);
}

} // namespace

status gpu_contrastive_prepare(struct device *device, size_t rows, size_t world_size, size_t size) {
    size_t total, floats;
    bool fits = !__builtin_mul_overflow(rows, world_size, &total) && total < INT32_MAX &&
                !__builtin_mul_overflow(total * 2 * SIDES * sizeof(float), size, &floats);
    ((struct gpu_device *)device)->world_size = world_size;
    return fits ? OK : status_memory("the loss contrastive");
}

void gpu_contrastive(struct device *device, const struct contrastive_options *o, const float *outputs, size_t rows,
                     float factor, float *doutputs, struct loss_sums *sums) {
    operator_call c(device, "contrastive");
    struct contrastive_rows r = rows_of(&c, o->all, rows);
    size_t size = o->size, sides = o->is_symmetric ? SIDES : 1, fitting = r.total ? BLOCK_LOGITS / r.total : 0;
    const float *x = c.in(outputs, rows * SIDES * size);
    float *y = c.scratch<float>(r.places * SIDES * size), *log_sums = c.scratch<float>(r.places * SIDES);
    struct contrastive f = {.r = r,
                            .size = size,
                            .block_rows = fitting < 1      ? 1
                                          : fitting < rows ? fitting
                                                           : rows,
                            .keeps_logits = doutputs && o->is_symmetric && fitting >= rows,
                            .inverse_temperature = 1 / o->temperature,
                            .factor = factor,
                            .weights = {o->is_symmetric ? 0.5f : 1, o->is_symmetric ? 0.5f : 0},
                            .dx = c.out(doutputs, rows * SIDES * size),
                            .norms = c.scratch<double>(rows * SIDES),
                            .own_log_sums = log_sums + r.own_place * SIDES,
                            .y = nullptr,
                            .log_sums = nullptr,
                            .z = nullptr,
                            .dy = nullptr,
                            .sums = c.scratch<struct loss_sums>(sides * rows)};
    struct loss_sums *to = c.inout(sums, 1);
    f.z = c.scratch<float>(f.block_rows * r.total * (f.keeps_logits ? SIDES : 1));
    f.dy = c.scratch<float>(doutputs ? f.block_rows * size : 0);
    rows_start(&c, rows * SIDES, size, normalisation{x, y + r.own_place * SIDES * size, f.norms, size});
    f.y = gather(&c, r, y, SIDES * size);
    run_blocks(&c, f, add_losses, sides);
    if (rows) gpu_add_loss_sums(&c, f.sums, sides * rows, to);
    if (!doutputs) return;
    f.log_sums = gather(&c, r, log_sums, SIDES);
    run_blocks(&c, f, add_gradients, SIDES);
}
