/* Convolutions by oneDNN 2, as a module: linking the library would add 20 ms to every start, and a machine may not
 * have it. Images stay channels last; weights are reordered for each primitive. Creating a primitive takes
 * milliseconds and fits one number of rows, so primitives are created before the loop (prepare) and kept; reordered
 * weights, and factors that are rounded to bfloat16, are in the device's workspace while an operator runs. The caller
 * computes the gradient of the bias (../convolution.c). */
#include <dnnl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "device/cpu/onednn/host.h"

#define MAX_ARGUMENTS 4
#define ALIGNMENT 64
#define MAX_PLANS 4 /* numbers of rows: full and last batches of training and evaluation */

static const struct onednn_host *_Atomic host;

/* Held while primitives are created: threads that predict with one model create the same ones at the same time, and
 * oneDNN's cache of primitives then compares what another thread is still changing (ThreadSanitizer, oneDNN 2.6). */
static pthread_mutex_t creation = PTHREAD_MUTEX_INITIALIZER;

struct primitive {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[MAX_ARGUMENTS];
    int count;
};

/* Everything for one number of rows. */
struct convolution_plan {
    size_t rows; /* 0: not created */
    bool has_backward;
    struct primitive forward, backward_data, backward_weights;
    struct primitive reorder_forward, reorder_data, reorder_gradients;
    struct primitive round_source, round_target; /* only in bfloat16 */
    size_t weights_bytes, source_bytes;          /* in the workspace: weights, rounded x, rounded dy */
};

struct device_convolution {
    struct device *device;
    struct convolution c;
    bool is_bf16; /* factors are rounded to bfloat16 */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct convolution_plan plans[MAX_PLANS];
};

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != dnnl_success) goto fail;                                                                         \
    } while (0)

static void primitive_destroy(struct primitive *p) {
    for (int i = 0; i < p->count; i++) dnnl_memory_destroy(p->arguments[i].memory);
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    *p = (struct primitive){0};
}

static void plan_destroy(struct convolution_plan *plan) {
    struct primitive *all[] = {&plan->forward,         &plan->backward_data, &plan->backward_weights,
                               &plan->reorder_forward, &plan->reorder_data,  &plan->reorder_gradients,
                               &plan->round_source,    &plan->round_target};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) primitive_destroy(all[i]);
    plan->rows = 0;
}

static void destroy(struct device_convolution *d) {
    if (!d) return;
    for (size_t i = 0; i < MAX_PLANS; i++) plan_destroy(&d->plans[i]);
    if (d->stream) dnnl_stream_destroy(d->stream);
    if (d->engine) dnnl_engine_destroy(d->engine);
    free(d);
}

/* An argument whose address is passed at each run. */
static bool add_argument(struct device_convolution *d, struct primitive *p, int name, const dnnl_memory_desc_t *md) {
    dnnl_memory_t memory;
    if (dnnl_memory_create(&memory, md, d->engine, DNNL_MEMORY_NONE) != dnnl_success) return false;
    p->arguments[p->count++] = (dnnl_exec_arg_t){name, memory};
    return true;
}

/* For weights in a primitive's order. */
static void count_weights(struct convolution_plan *plan, const dnnl_memory_desc_t *weights) {
    size_t bytes = (dnnl_memory_desc_get_size(weights) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes > plan->weights_bytes) plan->weights_bytes = bytes;
}

static bool run(struct device_convolution *d, struct primitive *p, int count, void *const *addresses) {
    for (int i = 0; i < count; i++) dnnl_memory_set_data_handle(p->arguments[i].memory, addresses[i]);
    return dnnl_primitive_execute(p->primitive, d->stream, p->count, p->arguments) == dnnl_success;
}

/* source, target: images as they are in memory; factor_*: as factors of products */
struct descriptions {
    dnnl_memory_desc_t source, target, factor_source, factor_target, weights, plain_weights, gradients, bias;
    dnnl_dims_t strides, dilations, padding, padding_after;
};

static bool describe(const struct convolution *c, dnnl_data_type_t factor, size_t rows, struct descriptions *m) {
    const struct window *w = &c->window;
    dnnl_dims_t source = {(int64_t)rows, (int64_t)c->in.channels, (int64_t)c->in.height, (int64_t)c->in.width};
    dnnl_dims_t target = {(int64_t)rows, (int64_t)c->out.channels, (int64_t)c->out.height, (int64_t)c->out.width};
    dnnl_dims_t grouped = {(int64_t)c->groups, (int64_t)(c->out.channels / c->groups),
                           (int64_t)(c->in.channels / c->groups), (int64_t)w->kernel[0], (int64_t)w->kernel[1]};
    dnnl_dims_t bias = {(int64_t)c->out.channels};
    bool has_groups = c->groups > 1;
    const int64_t *weights = has_groups ? grouped : grouped + 1;
    for (int i = 0; i < 2; i++) {
        m->strides[i] = (int64_t)w->stride[i];
        m->dilations[i] = (int64_t)w->dilation[i] - 1;
        m->padding[i] = (int64_t)w->padding[i];
        m->padding_after[i] = (int64_t)window_padding_after(w, i, (size_t)source[2 + i], (size_t)target[2 + i]);
    }
    CHECK(dnnl_memory_desc_init_by_tag(&m->source, 4, source, dnnl_f32, dnnl_nhwc));
    CHECK(dnnl_memory_desc_init_by_tag(&m->target, 4, target, dnnl_f32, dnnl_nhwc));
    CHECK(dnnl_memory_desc_init_by_tag(&m->factor_source, 4, source, factor, dnnl_nhwc));
    CHECK(dnnl_memory_desc_init_by_tag(&m->factor_target, 4, target, factor, dnnl_nhwc));
    CHECK(dnnl_memory_desc_init_by_tag(&m->weights, 4 + has_groups, weights, factor, dnnl_format_tag_any));
    CHECK(dnnl_memory_desc_init_by_tag(&m->gradients, 4 + has_groups, weights, dnnl_f32, dnnl_format_tag_any));
    CHECK(dnnl_memory_desc_init_by_tag(&m->plain_weights, 4 + has_groups, weights, dnnl_f32,
                                       has_groups ? dnnl_goihw : dnnl_oihw));
    CHECK(dnnl_memory_desc_init_by_tag(&m->bias, 1, bias, dnnl_f32, dnnl_a));
    return true;
fail:
    return false;
}

static bool create_reorder(struct device_convolution *d, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                           bool adds, struct primitive *out) {
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t after = NULL;
    dnnl_primitive_desc_t description = NULL;
    bool is_created = false;
    if (adds) {
        CHECK(dnnl_primitive_attr_create(&attributes));
        CHECK(dnnl_post_ops_create(&after));
        CHECK(dnnl_post_ops_append_sum(after, 1));
        CHECK(dnnl_primitive_attr_set_post_ops(attributes, after));
    }
    CHECK(dnnl_reorder_primitive_desc_create(&description, from, d->engine, to, d->engine, attributes));
    CHECK(dnnl_primitive_create(&out->primitive, description));
    is_created = add_argument(d, out, DNNL_ARG_FROM, from) && add_argument(d, out, DNNL_ARG_TO, to);
fail:
    if (description) dnnl_primitive_desc_destroy(description);
    if (after) dnnl_post_ops_destroy(after);
    if (attributes) dnnl_primitive_attr_destroy(attributes);
    return is_created;
}

static bool create_forward(struct device_convolution *d, const struct descriptions *m, struct convolution_plan *plan,
                           dnnl_primitive_desc_t *hint) {
    dnnl_convolution_desc_t description;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t after = NULL;
    struct primitive *p = &plan->forward;
    bool is_created = false;
    CHECK(dnnl_dilated_convolution_forward_desc_init(
        &description, dnnl_forward_training, dnnl_convolution_direct, &m->factor_source, &m->weights,
        d->c.has_bias ? &m->bias : NULL, &m->target, m->strides, m->dilations, m->padding, m->padding_after));
    CHECK(dnnl_primitive_attr_create(&attributes));
    if (d->c.has_relu) {
        CHECK(dnnl_post_ops_create(&after));
        CHECK(dnnl_post_ops_append_eltwise(after, 1, dnnl_eltwise_relu, 0, 0));
        CHECK(dnnl_primitive_attr_set_post_ops(attributes, after));
    }
    CHECK(dnnl_primitive_desc_create(hint, &description, attributes, d->engine, NULL));
    CHECK(dnnl_primitive_create(&p->primitive, *hint));
    const dnnl_memory_desc_t *weights = dnnl_primitive_desc_query_md(*hint, dnnl_query_weights_md, 0);
    count_weights(plan, weights);
    is_created = add_argument(d, p, DNNL_ARG_SRC, &m->factor_source) && add_argument(d, p, DNNL_ARG_DST, &m->target) &&
                 add_argument(d, p, DNNL_ARG_WEIGHTS, weights) &&
                 (!d->c.has_bias || add_argument(d, p, DNNL_ARG_BIAS, &m->bias)) &&
                 create_reorder(d, &m->plain_weights, weights, false, &plan->reorder_forward);
fail:
    if (after) dnnl_post_ops_destroy(after);
    if (attributes) dnnl_primitive_attr_destroy(attributes);
    return is_created;
}

static bool create_backward_data(struct device_convolution *d, const struct descriptions *m,
                                 struct convolution_plan *plan, dnnl_primitive_desc_t hint) {
    dnnl_convolution_desc_t description;
    dnnl_primitive_desc_t primitive_description = NULL;
    struct primitive *p = &plan->backward_data;
    bool is_created = false;
    CHECK(dnnl_dilated_convolution_backward_data_desc_init(&description, dnnl_convolution_direct, &m->source,
                                                           &m->weights, &m->factor_target, m->strides, m->dilations,
                                                           m->padding, m->padding_after));
    CHECK(dnnl_primitive_desc_create(&primitive_description, &description, NULL, d->engine, hint));
    CHECK(dnnl_primitive_create(&p->primitive, primitive_description));
    const dnnl_memory_desc_t *weights = dnnl_primitive_desc_query_md(primitive_description, dnnl_query_weights_md, 0);
    count_weights(plan, weights);
    is_created = add_argument(d, p, DNNL_ARG_DIFF_SRC, &m->source) &&
                 add_argument(d, p, DNNL_ARG_DIFF_DST, &m->factor_target) &&
                 add_argument(d, p, DNNL_ARG_WEIGHTS, weights) &&
                 create_reorder(d, &m->plain_weights, weights, false, &plan->reorder_data);
fail:
    if (primitive_description) dnnl_primitive_desc_destroy(primitive_description);
    return is_created;
}

static bool create_backward_weights(struct device_convolution *d, const struct descriptions *m,
                                    struct convolution_plan *plan, dnnl_primitive_desc_t hint) {
    dnnl_convolution_desc_t description;
    dnnl_primitive_desc_t primitive_description = NULL;
    struct primitive *p = &plan->backward_weights;
    bool is_created = false;
    CHECK(dnnl_dilated_convolution_backward_weights_desc_init(&description, dnnl_convolution_direct, &m->factor_source,
                                                              &m->gradients, NULL, &m->factor_target, m->strides,
                                                              m->dilations, m->padding, m->padding_after));
    CHECK(dnnl_primitive_desc_create(&primitive_description, &description, NULL, d->engine, hint));
    CHECK(dnnl_primitive_create(&p->primitive, primitive_description));
    const dnnl_memory_desc_t *weights =
        dnnl_primitive_desc_query_md(primitive_description, dnnl_query_diff_weights_md, 0);
    count_weights(plan, weights);
    is_created = add_argument(d, p, DNNL_ARG_SRC, &m->factor_source) &&
                 add_argument(d, p, DNNL_ARG_DIFF_DST, &m->factor_target) &&
                 add_argument(d, p, DNNL_ARG_DIFF_WEIGHTS, weights) &&
                 create_reorder(d, weights, &m->plain_weights, true, &plan->reorder_gradients);
fail:
    if (primitive_description) dnnl_primitive_desc_destroy(primitive_description);
    return is_created;
}

static bool create_rounding(struct device_convolution *d, const struct descriptions *m, struct convolution_plan *plan) {
    return create_reorder(d, &m->source, &m->factor_source, false, &plan->round_source) &&
           create_reorder(d, &m->target, &m->factor_target, false, &plan->round_target);
}

static bool reserve(struct device_convolution *d, const struct descriptions *m, struct convolution_plan *plan) {
    size_t bytes = plan->weights_bytes;
    if (d->is_bf16) {
        plan->source_bytes = (dnnl_memory_desc_get_size(&m->factor_source) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        bytes += plan->source_bytes + dnnl_memory_desc_get_size(&m->factor_target);
    }
    status s = host->workspace_reserve(d->device, bytes, "a convolution");
    bool is_found = s == OK;
    host->status_free(s);
    return is_found;
}

static bool create_plan(struct device_convolution *d, size_t rows, bool has_backward, struct convolution_plan *plan) {
    struct descriptions m;
    dnnl_primitive_desc_t hint = NULL;
    plan_destroy(plan);
    pthread_mutex_lock(&creation);
    plan->weights_bytes = plan->source_bytes = 0;
    bool is_created =
        describe(&d->c, d->is_bf16 ? dnnl_bf16 : dnnl_f32, rows, &m) && create_forward(d, &m, plan, &hint) &&
        (!has_backward || (create_backward_data(d, &m, plan, hint) && create_backward_weights(d, &m, plan, hint))) &&
        (!d->is_bf16 || create_rounding(d, &m, plan)) && reserve(d, &m, plan);
    if (hint) dnnl_primitive_desc_destroy(hint);
    pthread_mutex_unlock(&creation);
    if (is_created) {
        plan->rows = rows;
        plan->has_backward = has_backward;
    } else {
        plan_destroy(plan);
    }
    return is_created;
}

/* The plan for [rows]; created now if necessary, in the first free slot, else in the last one. NULL: out of memory. */
static struct convolution_plan *plan_for(struct device_convolution *d, size_t rows, bool has_backward) {
    for (size_t i = 0; i < MAX_PLANS; i++) {
        struct convolution_plan *plan = &d->plans[i];
        bool is_found = plan->rows == rows;
        if (is_found && (plan->has_backward || !has_backward)) return plan;
        if (!is_found && plan->rows && i + 1 < MAX_PLANS) continue;
        return create_plan(d, rows, has_backward, plan) ? plan : NULL;
    }
    return NULL;
}

static status create(struct device *device, const struct convolution *c, size_t rows, struct device_convolution **out) {
    struct device_convolution *d = calloc(1, sizeof *d);
    if (!d) return host->status_memory("a convolution");
    d->device = device;
    d->c = *c;
    d->is_bf16 = host->is_rounded(device, c);
    if (dnnl_engine_create(&d->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags) != dnnl_success ||
        !plan_for(d, rows, true)) {
        destroy(d);
        return host->status_new(STATUS_BUG, "oneDNN cannot create this convolution");
    }
    *out = d;
    return OK;
}

static status prepare(struct device_convolution *d, size_t rows, bool is_training) {
    if (plan_for(d, rows, is_training)) return OK;
    return host->status_new(STATUS_BUG, "oneDNN cannot create this convolution for %zu rows", rows);
}

/* x, or it rounded in the workspace. NULL: out of memory. */
static void *source_of(struct device_convolution *d, struct convolution_plan *plan, const float *x) {
    char *rounded = (char *)host->workspace_of(d->device) + plan->weights_bytes;
    void *const round[] = {(float *)x, rounded};
    if (!d->is_bf16) return (float *)x;
    return run(d, &plan->round_source, 2, round) ? rounded : NULL;
}

/* The same of dy. */
static void *target_of(struct device_convolution *d, struct convolution_plan *plan, const float *dy) {
    char *rounded = (char *)host->workspace_of(d->device) + plan->weights_bytes + plan->source_bytes;
    void *const round[] = {(float *)dy, rounded};
    if (!d->is_bf16) return (float *)dy;
    return run(d, &plan->round_target, 2, round) ? rounded : NULL;
}

static void forward(struct device_convolution *d, const float *x, const float *w, const float *bias, float *y,
                    size_t rows) {
    struct convolution_plan *plan = plan_for(d, rows, false);
    void *weights = host->workspace_of(d->device), *source = plan ? source_of(d, plan, x) : NULL;
    void *const reorder[] = {(float *)w, weights}, *const all[] = {source, y, weights, (float *)bias};
    if (source && run(d, &plan->reorder_forward, 2, reorder) && run(d, &plan->forward, plan->forward.count, all))
        return;
    size_t count = rows * d->c.out.height * d->c.out.width * d->c.out.channels;
    for (size_t i = 0; i < count; i++) y[i] = NAN; /* out of memory: the run ends because its loss is not finite */
}

static void backward(struct device_convolution *d, const float *x, const float *w, const float *dy, float *dx,
                     float *dw, float *dbias, size_t rows) {
    (void)dbias; /* computed by the caller */
    struct convolution_plan *plan = plan_for(d, rows, true);
    void *weights = host->workspace_of(d->device), *target = plan ? target_of(d, plan, dy) : NULL;
    void *source = target && dw ? source_of(d, plan, x) : NULL;
    if (!target) return;
    void *const gradients[] = {source, target, weights}, *const sums[] = {weights, dw};
    void *const reorder[] = {(float *)w, weights}, *const data[] = {dx, target, weights};
    if (source) {
        run(d, &plan->backward_weights, 3, gradients);
        run(d, &plan->reorder_gradients, 2, sums);
    }
    if (!dx) return;
    run(d, &plan->reorder_data, 2, reorder);
    run(d, &plan->backward_data, 3, data);
}

const struct convolution_kernels *ddptrain_onednn_open(const struct onednn_host *opened_by) {
    static const struct convolution_kernels ops = {
        .create = create, .destroy = destroy, .prepare = prepare, .forward = forward, .backward = backward};
    atomic_store(&host, opened_by);
    return &ops;
}
