/* The contrastive loss on the CPU. Each rank has the rows of the logits that belong to its own rows, in both
 * directions, and computes them block by block, so that there is never a matrix (rows, all rows). The ranks
 * exchange their normalised rows, and for the gradient the logarithms of the sums of their rows of logits: then each
 * has everything that the gradient of its rows depends on, that of the losses of the other ranks included. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"

#define BLOCK 48                   /* rows of logits that are computed together */
#define MIN_WORK ((size_t)1 << 20) /* multiply-adds of a thread */
#define NORM_EPS 1e-12             /* of torch.nn.functional.normalize */
#define SIDES 2                    /* the embeddings of a row: a and b */

struct contrastive {
    const struct cpu_kernels *kernels;
    size_t rows, first, total, size; /* own rows, the number of rows before them, rows of all ranks */
    float inverse_temperature, factor;
    float weights[SIDES]; /* of the directions: a is classified, b is classified */
    const float *x;       /* (rows, SIDES, size) */
    float *dx;            /* the same; NULL: no gradient */
    double *norms;        /* (rows, SIDES) */
    double *log_sums;     /* (total, SIDES): log(sum(exp(row of logits))) */
    float *all;           /* (total, SIDES, size), normalised */
    double *losses;       /* (rows) */
    size_t parts;         /* of the blocks of rows, each with a workspace of [part_floats] */
    float *workspace;
    size_t part_floats; /* a block of logits, and two rows */
};

/* ---- the rows of all ranks ---- */

static void gather(const struct all_rows *all, void *values, size_t row_bytes) {
    char *bytes = values, *to = bytes;
    all->gather(all->user, values, all->max * row_bytes);
    for (size_t p = 0; p < all->world_size; p++) {
        memmove(to, bytes + p * all->max * row_bytes, all->rows[p] * row_bytes);
        to += all->rows[p] * row_bytes;
    }
}

/* Where the rows of this rank are for gather, as a number of rows. */
static size_t own_place(const struct all_rows *all) { return all ? all->rank * all->max : 0; }

/* y = x / max(|x|, eps) */
static double normalise(const float *x, float *y, size_t size) {
    double squares = 0;
    for (size_t i = 0; i < size; i++) squares += (double)x[i] * (double)x[i];
    double norm = sqrt(squares), divisor = norm > NORM_EPS ? norm : NORM_EPS;
    for (size_t i = 0; i < size; i++) y[i] = (float)((double)x[i] / divisor);
    return norm;
}

static void normalise_rows(const struct contrastive *c, float *y) {
    for (size_t i = 0; i < c->rows * SIDES; i++) c->norms[i] = normalise(c->x + i * c->size, y + i * c->size, c->size);
}

/* dx = (dy - y (y . dy)) / |x|, in place of dy; the norm of a row that is nearly 0 is a constant */
static void undo_normalise(const float *y, double norm, float *dx, size_t size) {
    double along = 0, divisor = norm > NORM_EPS ? norm : NORM_EPS;
    for (size_t i = 0; norm > NORM_EPS && i < size; i++) along += (double)y[i] * (double)dx[i];
    for (size_t i = 0; i < size; i++) dx[i] = (float)(((double)dx[i] - along * (double)y[i]) / divisor);
}

/* ---- logits ---- */

/* z (rows, total) = own rows [first, first + rows) of [side] times all rows of the other side, / temperature */
static void compute_logits(const struct contrastive *c, size_t side, size_t first, size_t rows, float *z) {
    size_t stride = SIDES * c->size;
    struct cpu_product p = {.m = rows,
                            .n = c->total,
                            .k = c->size,
                            .a = c->all + (c->first + first) * stride + side * c->size,
                            .ars = stride,
                            .acs = 1,
                            .b = c->all + (1 - side) * c->size,
                            .brs = 1,
                            .bcs = stride,
                            .c = z,
                            .ldc = c->total,
                            .start = PRODUCT_ZERO};
    c->kernels->product(&p);
    for (size_t i = 0; i < rows * c->total; i++) z[i] *= c->inverse_temperature;
}

/* loss of a row i += weight (log(sum_j(exp(z_ij))) - z_ii) */
static void add_losses(const struct contrastive *c, size_t side, size_t first, size_t rows, float *z) {
    float *e = z + rows * c->total, max;
    compute_logits(c, side, first, rows, z);
    for (size_t i = first; i < first + rows; i++, z += c->total) {
        double sum = (double)c->kernels->exponentials(z, e, &max, c->total);
        double log_sum = (double)max + log(sum), own = (double)z[c->first + i];
        c->log_sums[SIDES * (c->first + i) + side] = log_sum;
        c->losses[i] += (double)c->weights[side] * (log_sum - own);
    }
}

/* z = the derivatives of the logits of row i, from both directions: those of z_ij in its own, where they are classified
 * over j, and in the other one, where column j is a row:
 *   own weight (exp(z_ij) / sum_k(exp(z_ik)) - [i = j]) + other weight (exp(z_ij - log_sum_j) - [i = j]) */
static void differentiate(const struct contrastive *c, size_t side, size_t i, float *z, float *e) {
    float max, own_share = 0, other_share = 0, *other_e = e + c->total, own = c->weights[side],
               other = c->weights[1 - side];
    float factor = c->factor * c->inverse_temperature;
    const double *log_sums = c->log_sums + (1 - side);
    if (own > 0) own_share = own / c->kernels->exponentials(z, e, &max, c->total);
    if (other > 0) {
        for (size_t j = 0; j < c->total; j++) z[j] = (float)((double)z[j] - log_sums[SIDES * j]);
        c->kernels->exponentials(z, other_e, &max, c->total);
        other_share = other * expf(max);
    }
    for (size_t j = 0; j < c->total; j++) {
        float sum = own > 0 ? own_share * e[j] : 0;
        z[j] = other > 0 ? sum + other_share * other_e[j] : sum;
    }
    z[c->first + i] -= own + other;
    for (size_t j = 0; j < c->total; j++) z[j] *= factor;
}

/* dx of own rows [first, first + rows) of [side] = derivatives of the logits times all rows of the other side */
static void add_gradients(const struct contrastive *c, size_t side, size_t first, size_t rows, float *z) {
    size_t stride = SIDES * c->size, at = side * c->size;
    compute_logits(c, side, first, rows, z);
    for (size_t i = 0; i < rows; i++) differentiate(c, side, first + i, z + i * c->total, z + rows * c->total);
    struct cpu_product p = {.m = rows,
                            .n = c->size,
                            .k = c->total,
                            .a = z,
                            .ars = c->total,
                            .acs = 1,
                            .b = c->all + (1 - side) * c->size,
                            .brs = stride,
                            .bcs = 1,
                            .c = c->dx + first * stride + at,
                            .ldc = stride,
                            .start = PRODUCT_ZERO};
    c->kernels->product(&p);
    for (size_t i = first; i < first + rows; i++)
        undo_normalise(c->all + (c->first + i) * stride + at, c->norms[SIDES * i + side], c->dx + i * stride + at,
                       c->size);
}

/* ---- blocks of rows ---- */

typedef void block_function(const struct contrastive *c, size_t side, size_t first, size_t rows, float *z);

struct loop {
    const struct contrastive *c;
    block_function *run;
    size_t sides;
};

static size_t block_count(size_t rows) { return (rows + BLOCK - 1) / BLOCK; }

static void run_parts(void *context, size_t first, size_t last) {
    const struct loop *l = context;
    const struct contrastive *c = l->c;
    size_t blocks = block_count(c->rows);
    for (size_t part = first; part < last; part++)
        for (size_t block = blocks * part / c->parts; block < blocks * (part + 1) / c->parts; block++) {
            size_t row = block * BLOCK, rows = c->rows - row < BLOCK ? c->rows - row : BLOCK;
            for (size_t side = 0; side < l->sides; side++)
                l->run(c, side, row, rows, c->workspace + part * c->part_floats);
        }
}

static void run_blocks(const struct contrastive *c, block_function *run, size_t sides) {
    struct loop l = {c, run, sides};
    size_t work = c->rows * c->total * c->size * sides;
    parallel_for(c->parts, 1 + c->parts * MIN_WORK / (work + 1), run_parts, &l);
}

/* ---- functions of the table ---- */

static size_t threads_for(size_t rows) {
    size_t blocks = block_count(rows);
    if (blocks <= 1) return blocks; /* the threads are not needed */
    return blocks < parallel_threads() ? blocks : parallel_threads();
}

static size_t part_floats(size_t total) { return (BLOCK + 2) * total; }

/* Adds a * b * [size] bytes. */
static bool add_bytes(size_t *bytes, size_t a, size_t b, size_t size) {
    size_t count, more;
    return !__builtin_mul_overflow(a, b, &count) && !__builtin_mul_overflow(count, size, &more) &&
           !__builtin_add_overflow(*bytes, more, bytes);
}

status cpu_contrastive_prepare(struct device *device, size_t rows, size_t world_size, size_t size) {
    size_t total, bytes = 0;
    bool fits = !__builtin_mul_overflow(rows, world_size, &total) && total <= SIZE_MAX / (8 * BLOCK) &&
                add_bytes(&bytes, rows, SIDES + 1, sizeof(double)) && add_bytes(&bytes, total, SIDES, sizeof(double)) &&
                add_bytes(&bytes, total, SIDES * sizeof(float), size) &&
                add_bytes(&bytes, threads_for(rows), part_floats(total), sizeof(float));
    return fits ? workspace_reserve(device, bytes, "the loss contrastive") : status_memory("the loss contrastive");
}

/* The parts of the workspace. [places]: rows that gather needs. */
static void divide_workspace(struct contrastive *c, struct device *device, size_t places) {
    double *doubles = workspace_of(device);
    c->losses = doubles;
    c->norms = c->losses + c->rows;
    c->log_sums = c->norms + SIDES * c->rows;
    c->all = (float *)(c->log_sums + SIDES * places);
    c->workspace = c->all + SIDES * places * c->size;
}

void cpu_contrastive(struct device *device, const struct contrastive_options *o, const float *outputs, size_t rows,
                     float factor, float *doutputs, struct loss_sums *sums) {
    const struct all_rows *all = o->all;
    struct contrastive c = {.kernels = cpu_kernels_of(device),
                            .rows = rows,
                            .total = all ? 0 : rows,
                            .size = o->size,
                            .inverse_temperature = 1 / o->temperature,
                            .factor = factor,
                            .weights = {o->is_symmetric ? 0.5f : 1, o->is_symmetric ? 0.5f : 0},
                            .x = outputs,
                            .dx = doutputs,
                            .parts = threads_for(rows)};
    for (size_t p = 0; all && p < all->world_size; p++) {
        c.first += p < all->rank ? all->rows[p] : 0;
        c.total += all->rows[p];
    }
    c.part_floats = part_floats(c.total);
    divide_workspace(&c, device, all ? all->world_size * all->max : rows);
    normalise_rows(&c, c.all + SIDES * own_place(all) * c.size);
    if (all) gather(all, c.all, SIDES * c.size * sizeof *c.all);
    memset(c.losses, 0, rows * sizeof *c.losses);
    run_blocks(&c, add_losses, o->is_symmetric ? SIDES : 1);
    for (size_t i = 0; i < rows; i++) sums->loss += c.losses[i];
    sums->count += (double)rows;
    if (!doutputs) return;
    if (all) {
        memmove(c.log_sums + SIDES * own_place(all), c.log_sums + SIDES * c.first, SIDES * rows * sizeof *c.log_sums);
        gather(all, c.log_sums, SIDES * sizeof *c.log_sums);
    }
    run_blocks(&c, add_gradients, SIDES);
}
