/* A linear layer is three matrix products. Where a product has MANY_UNITS blocks of columns or more, threads split its
 * columns, so that each block of the second factor is packed once; else they split its rows. packed_factor packs the
 * inputs once for the gradient of the weight, whose product would pack them again for every 256 of its rows: a tenth of
 * the time where lines of the inputs map to few sets of the cache. Rows of the first factor map to few sets if the
 * distance between them is a multiple of SAME_SETS floats: a product then copies them for each group of its columns,
 * also a tenth of the time; if they are many, run_product copies them once before it, k + GAP floats apart. */
#include "device/cpu/cpu.h"

#include <string.h>

#include "device/cpu/parallel.h"

#define UNIT 48                       /* rows or columns that are not split: a multiple of the kernels' tiles */
#define MANY_UNITS 16                 /* of columns: enough that an uneven split costs little */
#define MIN_WORK ((size_t)1 << 20)    /* multiply-adds of a thread: 20 us */
#define TALL 512                      /* rows of a product for which its second factor is packed once */
#define MAX_PACKED ((size_t)1 << 22)  /* floats */
#define PART_FLOATS ((size_t)1 << 18) /* of a part of the gradient of a weight, for each thread */
#define SAME_SETS 1024                /* floats between rows that map to the same few sets of the cache */
#define GAP 16                        /* floats between copied rows: a line of the cache */

struct cut {
    const struct cpu_product *whole;
    struct device *device;
    bool by_columns;
};

static void run_part(void *context, size_t first, size_t last) {
    const struct cut *cut = context;
    struct cpu_product p = *cut->whole;
    size_t all = cut->by_columns ? p.n : p.m, from = first * UNIT, to = last * UNIT < all ? last * UNIT : all;
    if (cut->by_columns) {
        p.n = to - from;
        p.b += from * p.bcs;
        p.c += from;
        if (p.row) p.row += from;
    } else {
        p.m = to - from;
        p.a += from * p.ars;
        p.c += from * p.ldc;
    }
    cpu_product(cut->device, &p);
}

static void run_rows(struct device *device, const struct cpu_product *p) {
    struct cut cut = {p, device, p->acs == 1 && p->n >= MANY_UNITS * UNIT};
    size_t units = ((cut.by_columns ? p->n : p->m) + UNIT - 1) / UNIT, work = p->m * p->n * p->k;
    if (work < 2 * MIN_WORK)
        cpu_product(device, p);
    else
        parallel_for(units, 1 + units * MIN_WORK / work, run_part, &cut);
}

struct copy {
    const float *from;
    float *to;
    size_t size, stride, new_stride;
};

static void copy_rows(void *context, size_t first, size_t last) {
    const struct copy *c = context;
    for (size_t i = first; i < last; i++)
        memcpy(c->to + i * c->new_stride, c->from + i * c->stride, c->size * sizeof *c->to);
}

/* How many rows of the first factor are copied at a time. 0: they are not copied, or only by the product. */
static size_t rows_to_copy(struct device *device, const struct cpu_product *p) {
    size_t stride = p->k + GAP;
    if (p->acs != 1 || p->ars % SAME_SETS != 0 || p->m < TALL || p->n < TALL || stride > MAX_PACKED / TALL ||
        !cpu_packs_products(device))
        return 0;
    size_t rows = p->m < MAX_PACKED / stride ? p->m : MAX_PACKED / stride;
    status s = workspace_reserve(device, rows * stride * sizeof(float), "a factor of a product");
    bool is_missing = s != OK;
    status_free(s);
    return is_missing ? 0 : rows;
}

static bool is_shared(struct device *device, const struct cpu_product *p) {
    return p->m * p->n * p->k >= MIN_WORK && cpu_shares_product(device, p);
}

static void run_product(struct device *device, const struct cpu_product *whole) {
    if (whole->m * whole->n * whole->k < MIN_WORK) {
        cpu_product(device, whole);
        return;
    }
    if (is_shared(device, whole)) {
        cpu_shared_product(device, whole);
        return;
    }
    size_t max_rows = rows_to_copy(device, whole);
    if (!max_rows) {
        run_rows(device, whole);
        return;
    }
    struct cpu_product p = *whole;
    p.ars = p.k + GAP;
    p.a = workspace_of(device);
    for (size_t first = 0; first < whole->m; first += p.m, p.c += p.m * p.ldc) {
        p.m = whole->m - first < max_rows ? whole->m - first : max_rows;
        struct copy copy = {whole->a + first * whole->ars, workspace_of(device), p.k, whole->ars, p.ars};
        parallel_for(p.m, parallel_items(p.k), copy_rows, &copy);
        run_rows(device, &p);
    }
}

void linear_forward(struct device *device, const struct tensor *x, const float *w, const float *bias, bool has_relu,
                    const struct tensor *y, size_t rows, size_t in, size_t out) {
    struct cpu_product p = {.m = rows,
                            .n = out,
                            .k = in,
                            .a = floats(x),
                            .ars = in,
                            .acs = 1,
                            .b = w,
                            .brs = 1,
                            .bcs = in,
                            .c = floats(y),
                            .ldc = out,
                            .start = bias ? PRODUCT_ROW : PRODUCT_ZERO,
                            .row = bias,
                            .has_relu = has_relu};
    run_product(device, &p);
}

void linear_backward_input(struct device *device, const struct tensor *dy, const float *w, const struct tensor *dx,
                           size_t rows, size_t in, size_t out) {
    struct cpu_product p = {.m = rows,
                            .n = in,
                            .k = out,
                            .a = floats(dy),
                            .ars = out,
                            .acs = 1,
                            .b = w,
                            .brs = in,
                            .bcs = 1,
                            .c = floats(dx),
                            .ldc = in,
                            .start = PRODUCT_ZERO};
    run_product(device, &p);
}

struct columns {
    void (*add_rows)(float *sum, const float *x, size_t rows, size_t size, size_t stride);
    const float *x;
    float *sum;
    size_t rows, size;
};

static void sum_columns(void *context, size_t first, size_t last) {
    const struct columns *c = context;
    size_t from = first * UNIT, to = last * UNIT < c->size ? last * UNIT : c->size;
    c->add_rows(c->sum + from, c->x + from, c->rows, to - from, c->size);
}

/* The second factor, packed in the workspace. NULL: it is packed by the product. */
static const float *packed_factor(struct device *device, const struct cpu_product *p) {
    size_t floats = (p->n + CPU_PACK_COLUMNS) * p->k;
    if (p->m < TALL || floats > MAX_PACKED || p->m * p->n * p->k < 2 * MIN_WORK || !cpu_packs_products(device) ||
        is_shared(device, p))
        return NULL;
    status s = workspace_reserve(device, floats * sizeof(float), "a factor of a product");
    bool is_missing = s != OK;
    status_free(s);
    if (is_missing) return NULL;
    cpu_kernels_of(device)->pack(p, workspace_of(device));
    return workspace_of(device);
}

/* dw (out, in) from dy (rows, out) and x (rows, in) */
static struct cpu_product weight_product(enum product_start start, const float *dy, const float *x, float *dw,
                                         size_t rows, size_t in, size_t out) {
    return (struct cpu_product){.m = out,
                                .n = in,
                                .k = rows,
                                .a = dy,
                                .ars = 1,
                                .acs = out,
                                .b = x,
                                .brs = in,
                                .bcs = 1,
                                .c = dw,
                                .ldc = in,
                                .start = start};
}

/* dbias (out) += column sums of dy (rows, out); dbias may be NULL */
static void bias_gradient(struct device *device, const float *dy, float *dbias, size_t rows, size_t out) {
    if (!dbias) return;
    struct columns c = {cpu_kernels_of(device)->add_rows, dy, dbias, rows, out};
    parallel_for((out + UNIT - 1) / UNIT, parallel_items(rows * UNIT), sum_columns, &c);
}

void linear_backward_weight(struct device *device, const struct tensor *tdy, const struct tensor *x, float *dw,
                            float *dbias, size_t rows, size_t in, size_t out) {
    const float *dy = floats(tdy);
    struct cpu_product p = weight_product(PRODUCT_ADD, dy, floats(x), dw, rows, in, out);
    p.packed = packed_factor(device, &p);
    run_product(device, &p);
    bias_gradient(device, dy, dbias, rows, out);
}

/* Rows of a part: so many that each thread's stay in its second-level cache, if the second factor is packed. */
static size_t part_rows(const struct cpu_product *whole, size_t max_rows) {
    size_t min = UNIT * parallel_threads(), rows = PART_FLOATS * parallel_threads() / whole->n / UNIT * UNIT;
    if (rows < min) rows = min;
    return whole->packed && rows < max_rows ? rows : max_rows;
}

void linear_backward_weight_in_parts(struct device *device, const float *dy, const float *x, float *dw, float *dbias,
                                     size_t rows, size_t in, size_t out, size_t max_rows,
                                     const struct part_receiver *receiver) {
    struct cpu_product p = weight_product(PRODUCT_ZERO, dy, x, dw, rows, in, out);
    p.packed = packed_factor(device, &p);
    size_t step = part_rows(&p, max_rows);
    bool shares = is_shared(device, &p); /* as all of it, however few rows the last part has */
    if (dbias) memset(dbias, 0, out * sizeof *dbias);
    bias_gradient(device, dy, dbias, rows, out);
    for (size_t first = 0; first < out; first += p.m, p.a += p.m) {
        p.m = out - first < step ? out - first : step;
        if (shares)
            cpu_shared_product(device, &p);
        else
            run_product(device, &p);
        receiver->receive(receiver->user, first, p.m);
    }
}
