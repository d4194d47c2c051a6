/* Convolutions as graphs of cuDNN's backend API. It is C and, unlike the older calls, accepts the weights in
 * PyTorch's order with channels-last images, adds to a gradient, adds a bias, reports for each engine whether it
 * rounds to TF32 and whether it is deterministic, and creates plans without a GPU.
 *
 * Deterministic engines for 16 bits read and write 16 bits. Tensor core kernels for channels-last images require
 * weights with their channels innermost, too; with PyTorch's order cuDNN would transpose them in each product.
 *
 * Heuristics return engines in the order of expected speed. The first that meets the request and can be finalised is
 * used, with two exceptions. Engines that are compiled at run time, which takes 0.3 to 4 s for each, are used only if
 * no other one does. With 16 bits, without groups and with multiples of 8 channels one that uses tensor cores is
 * preferred: for a kernel of 1 x 1 with a stride of 2 the heuristics name one first that copies its images to another
 * layout and back, ten times slower on an H200. The order does not depend on the load of the machine, so the same run
 * uses the same engines. */
#include "device/cuda/cudnn/plans.h"

#include <cudnn.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CHOICES 64
#define MAX_NOTES 16
#define MAX_DESCRIPTORS 16

/* Names of tensors in a graph. */
enum name { NAME_X = 1, NAME_W, NAME_Y, NAME_BIAS, NAME_SUM };

struct cudnn {
    cudnnHandle_t handle;                /* NULL: plans only */
    cudnnBackendDescriptor_t properties; /* of a GPU that is not present; NULL with a handle */
};

struct convolution_plan {
    cudnnBackendDescriptor_t plan;
    bool adds_bias;
    bool uses_tensor_cores;
    int compilations; /* engines that were compiled in the search for it */
    size_t workspace;
    /* Of the last run: a model's addresses do not change. */
    cudnnBackendDescriptor_t arguments;
    struct plan_operands operands;
};

static status failed(const char *what, cudnnStatus_t code) {
    char reason[256] = "";
    cudnnGetLastErrorString(reason, sizeof reason);
    return status_usage("cuDNN: %s: %s%s%s", what, cudnnGetErrorString(code), reason[0] ? ": " : "", reason);
}

/* The descriptors of a graph, which are destroyed together; after a failure calls do nothing. */
struct descriptors {
    cudnnBackendDescriptor_t items[MAX_DESCRIPTORS];
    int count;
    cudnnStatus_t code;
};

static cudnnBackendDescriptor_t new_descriptor(struct descriptors *descriptors, cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t new = NULL;
    if (descriptors->code == CUDNN_STATUS_SUCCESS) descriptors->code = cudnnBackendCreateDescriptor(type, &new);
    if (descriptors->code == CUDNN_STATUS_SUCCESS) descriptors->items[descriptors->count++] = new;
    return new;
}

static void set(struct descriptors *descriptors, cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (descriptors->code == CUDNN_STATUS_SUCCESS)
        descriptors->code = cudnnBackendSetAttribute(to, name, type, count, values);
}

static void set_descriptor(struct descriptors *descriptors, cudnnBackendDescriptor_t to,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    set(descriptors, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static cudnnBackendDescriptor_t finalize(struct descriptors *descriptors, cudnnBackendDescriptor_t items) {
    if (descriptors->code == CUDNN_STATUS_SUCCESS) descriptors->code = cudnnBackendFinalize(items);
    return items;
}

static void descriptors_destroy(struct descriptors *descriptors) {
    while (descriptors->count > 0) cudnnBackendDestroyDescriptor(descriptors->items[--descriptors->count]);
}

static bool is_half(enum precision precision) {
    return precision == PRECISION_BFLOAT16 || precision == PRECISION_FLOAT16;
}

static cudnnDataType_t type_of(enum precision precision) {
    if (precision == PRECISION_BFLOAT16) return CUDNN_DATA_BFLOAT16;
    return precision == PRECISION_FLOAT16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

/* [sizes] in PyTorch's order: (rows, channels, height, width) or the weights' */
static cudnnBackendDescriptor_t tensor(struct descriptors *descriptors, enum name name, cudnnDataType_t type,
                                       const int64_t sizes[4], const int64_t strides[4]) {
    cudnnBackendDescriptor_t t = new_descriptor(descriptors, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t own_name = name, alignment = 16; /* of cudaMalloc and of parameters, which start at multiples of 64 bytes */
    bool is_virtual = name == NAME_SUM;
    set(descriptors, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(descriptors, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes);
    set(descriptors, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(descriptors, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &own_name);
    set(descriptors, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(descriptors, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    return finalize(descriptors, t);
}

static cudnnBackendDescriptor_t images(struct descriptors *descriptors, enum name name, cudnnDataType_t type,
                                       size_t rows, const struct image_shape *i) {
    int64_t height = (int64_t)i->height, width = (int64_t)i->width, channels = (int64_t)i->channels;
    return tensor(descriptors, name, type, (int64_t[]){(int64_t)rows, channels, height, width},
                  (int64_t[]){height * width * channels, 1, width * channels, channels});
}

static cudnnBackendDescriptor_t weights(struct descriptors *descriptors, enum precision precision,
                                        const struct convolution *c) {
    int64_t out = (int64_t)c->out.channels, in = (int64_t)(c->in.channels / c->groups);
    int64_t height = (int64_t)c->window.kernel[0], width = (int64_t)c->window.kernel[1];
    const int64_t torch[4] = {in * height * width, height * width, width, 1};
    const int64_t last[4] = {in * height * width, 1, width * in, in};
    return tensor(descriptors, NAME_W, type_of(precision), (int64_t[]){out, in, height, width},
                  is_half(precision) ? last : torch);
}

static cudnnBackendDescriptor_t window(struct descriptors *descriptors, const struct convolution *convolution) {
    const struct window *w = &convolution->window;
    cudnnBackendDescriptor_t c = new_descriptor(descriptors, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    int64_t dims = 2, before[2], after[2], dilation[2], stride[2];
    for (int d = 0; d < 2; d++) {
        size_t in = d == 0 ? convolution->in.height : convolution->in.width;
        size_t out = d == 0 ? convolution->out.height : convolution->out.width;
        before[d] = (int64_t)w->padding[d];
        after[d] = (int64_t)window_padding_after(w, d, in, out);
        dilation[d] = (int64_t)w->dilation[d];
        stride[d] = (int64_t)w->stride[d];
    }
    set(descriptors, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    set(descriptors, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
        &(cudnnDataType_t){CUDNN_DATA_FLOAT});
    set(descriptors, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
        &(cudnnConvolutionMode_t){CUDNN_CROSS_CORRELATION});
    set(descriptors, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before);
    set(descriptors, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, after);
    set(descriptors, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    set(descriptors, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    return finalize(descriptors, c);
}

/* The attributes of each pass. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, window, w, x, y;
} operations[] = {
    [PLAN_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    [PLAN_BACKWARD_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    [PLAN_BACKWARD_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};

static cudnnBackendDescriptor_t convolve(struct descriptors *descriptors, const struct plan_request *request,
                                         cudnnBackendDescriptor_t y) {
    const struct convolution *c = request->convolution;
    cudnnBackendDescriptor_t o = new_descriptor(descriptors, operations[request->pass].type);
    float alpha = 1, beta = request->pass == PLAN_BACKWARD_WEIGHT && !is_half(request->precision);
    set(descriptors, o, operations[request->pass].alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    set(descriptors, o, operations[request->pass].beta, CUDNN_TYPE_FLOAT, 1, &beta);
    set_descriptor(descriptors, o, operations[request->pass].window, window(descriptors, c));
    set_descriptor(descriptors, o, operations[request->pass].w, weights(descriptors, request->precision, c));
    set_descriptor(descriptors, o, operations[request->pass].x,
                   images(descriptors, NAME_X, type_of(request->precision), request->rows, &c->in));
    set_descriptor(descriptors, o, operations[request->pass].y, y);
    return finalize(descriptors, o);
}

/* y = sum + bias */
static cudnnBackendDescriptor_t add_bias(struct descriptors *descriptors, cudnnBackendDescriptor_t sum, size_t channels,
                                         cudnnBackendDescriptor_t y) {
    int64_t size = (int64_t)channels;
    cudnnBackendDescriptor_t mode = new_descriptor(descriptors, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), o;
    set(descriptors, mode, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
        &(cudnnPointwiseMode_t){CUDNN_POINTWISE_ADD});
    set(descriptors, mode, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
        &(cudnnDataType_t){CUDNN_DATA_FLOAT});
    finalize(descriptors, mode);
    o = new_descriptor(descriptors, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(descriptors, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode);
    set_descriptor(descriptors, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, sum);
    set_descriptor(
        descriptors, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
        tensor(descriptors, NAME_BIAS, CUDNN_DATA_FLOAT, (int64_t[]){1, size, 1, 1}, (int64_t[]){size, 1, size, size}));
    set_descriptor(descriptors, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    return finalize(descriptors, o);
}

static cudnnBackendDescriptor_t graph(struct descriptors *descriptors, const struct cudnn *cudnn,
                                      const struct plan_request *request) {
    const struct image_shape *out = &request->convolution->out;
    cudnnDataType_t type = type_of(request->precision);
    cudnnBackendDescriptor_t nodes[2], y = images(descriptors, NAME_Y, type, request->rows, out), sum = y;
    int64_t count = 0;
    if (request->adds_bias) sum = images(descriptors, NAME_SUM, CUDNN_DATA_FLOAT, request->rows, out);
    nodes[count++] = convolve(descriptors, request, sum);
    if (request->adds_bias) nodes[count++] = add_bias(descriptors, sum, out->channels, y);
    cudnnBackendDescriptor_t g = new_descriptor(descriptors, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (cudnn->handle) set(descriptors, g, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &cudnn->handle);
    set(descriptors, g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, nodes);
    return finalize(descriptors, g);
}

static bool is_compiled_at_run_time(cudnnBackendDescriptor_t engine) {
    cudnnBackendBehaviorNote_t notes[MAX_NOTES];
    int64_t count = 0;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, MAX_NOTES, &count,
                                 notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) return true;
    return false;
}

/* What an engine does. */
struct engine_traits {
    bool is_compiled, uses_tensor_cores;
};

/* Whether an engine rounds as requested and sums in the same order each time. */
static bool meets_request(cudnnBackendDescriptor_t choice, const struct plan_request *request,
                          struct engine_traits *traits) {
    cudnnBackendDescriptor_t engine = NULL;
    cudnnBackendNumericalNote_t notes[MAX_NOTES];
    int64_t count = 0;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) return false;
    bool is_known = cudnnBackendGetAttribute(choice, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                             &count, &engine) == CUDNN_STATUS_SUCCESS &&
                    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                             MAX_NOTES, &count, notes) == CUDNN_STATUS_SUCCESS;
    *traits = (struct engine_traits){.is_compiled = is_known && is_compiled_at_run_time(engine)};
    cudnnBackendDestroyDescriptor(engine);
    for (int64_t i = 0; is_known && i < count; i++) {
        bool is_core = notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        traits->uses_tensor_cores |= is_core;
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
            notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
            (request->precision == PRECISION_FLOAT32 &&
             (is_core || notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)))
            return false;
    }
    return is_known;
}

static void destroy(struct convolution_plan *p) {
    if (!p) return;
    if (p->arguments) cudnnBackendDestroyDescriptor(p->arguments);
    if (p->plan) cudnnBackendDestroyDescriptor(p->plan);
    free(p);
}

/* Creates the plan of [choice] in [p], if its workspace is small enough. */
static bool create_plan(struct cudnn *cudnn, cudnnBackendDescriptor_t choice, size_t workspace,
                        struct convolution_plan *p) {
    struct descriptors descriptors = {0};
    int64_t bytes = 0, count = 0;
    cudnnBackendDescriptor_t plan = new_descriptor(&descriptors, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (cudnn->handle)
        set(&descriptors, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &cudnn->handle);
    else
        set_descriptor(&descriptors, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, cudnn->properties);
    set_descriptor(&descriptors, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, choice);
    finalize(&descriptors, plan);
    if (descriptors.code == CUDNN_STATUS_SUCCESS)
        descriptors.code = cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                                    &count, &bytes);
    if (descriptors.code != CUDNN_STATUS_SUCCESS || (size_t)bytes > workspace) {
        descriptors_destroy(&descriptors);
        return false;
    }
    p->plan = plan;
    p->workspace = (size_t)bytes;
    return true;
}

/* Gets the choices of the heuristics; the caller destroys each of the [choices]. */
static cudnnStatus_t get_choices(struct cudnn *cudnn, cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode,
                                 cudnnBackendDescriptor_t *choices, int64_t *count) {
    struct descriptors descriptors = {0};
    cudnnBackendDescriptor_t heuristics = new_descriptor(&descriptors, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(&descriptors, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(&descriptors, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (cudnn->properties)
        set_descriptor(&descriptors, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, cudnn->properties);
    finalize(&descriptors, heuristics);
    if (descriptors.code == CUDNN_STATUS_SUCCESS)
        descriptors.code = cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CHOICES, count, choices);
    descriptors_destroy(&descriptors);
    return descriptors.code;
}

/* The first of the choices whose engine is compiled at run time or not, as [is_compiled]; with [needs_cores] of those
 * that use tensor cores. */
static bool choose_among(struct cudnn *cudnn, const cudnnBackendDescriptor_t *choices, int64_t count, bool is_compiled,
                         bool needs_cores, const struct plan_request *request, struct convolution_plan *p) {
    for (int64_t i = 0; i < count; i++) {
        struct engine_traits traits;
        if (!meets_request(choices[i], request, &traits) || traits.is_compiled != is_compiled) continue;
        if (needs_cores && !traits.uses_tensor_cores) continue;
        p->uses_tensor_cores = traits.uses_tensor_cores;
        p->compilations += traits.is_compiled;
        if (create_plan(cudnn, choices[i], request->workspace, p)) return true;
    }
    return false;
}

static bool choose(struct cudnn *cudnn, cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode,
                   const struct plan_request *request, struct convolution_plan *p) {
    cudnnBackendDescriptor_t choices[MAX_CHOICES] = {NULL};
    int64_t count = 0;
    bool is_found = false, is_there = true;
    for (int i = 0; i < MAX_CHOICES; i++)
        is_there = is_there && cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &choices[i]) ==
                                   CUDNN_STATUS_SUCCESS;
    if (is_there && get_choices(cudnn, graph, mode, choices, &count) == CUDNN_STATUS_SUCCESS) {
        if (count > MAX_CHOICES) count = MAX_CHOICES;
        const struct convolution *c = request->convolution;
        bool prefers_cores = is_half(request->precision) && c->groups == 1 && c->in.channels % 8 == 0 &&
                             c->out.channels % 8 == 0; /* other channels would be padded in each run */
        is_found = (prefers_cores && choose_among(cudnn, choices, count, false, true, request, p)) ||
                   choose_among(cudnn, choices, count, false, false, request, p) ||
                   choose_among(cudnn, choices, count, true, false, request, p);
    }
    for (int i = 0; i < MAX_CHOICES; i++)
        if (choices[i]) cudnnBackendDestroyDescriptor(choices[i]);
    return is_found;
}

static status plan(struct cudnn *cudnn, const struct plan_request *request, struct convolution_plan **out) {
    struct descriptors descriptors = {0};
    *out = NULL;
    struct convolution_plan *p = calloc(1, sizeof *p);
    if (!p) return status_memory("a plan of cuDNN");
    cudnnBackendDescriptor_t g = graph(&descriptors, cudnn, request);
    status s = descriptors.code == CUDNN_STATUS_SUCCESS ? OK : failed("a convolution", descriptors.code);
    bool is_found =
        descriptors.code == CUDNN_STATUS_SUCCESS &&
        (choose(cudnn, g, CUDNN_HEUR_MODE_A, request, p) || choose(cudnn, g, CUDNN_HEUR_MODE_FALLBACK, request, p));
    p->adds_bias = request->adds_bias;
    descriptors_destroy(&descriptors);
    if (is_found)
        *out = p;
    else
        destroy(p);
    return s;
}

static size_t workspace_of(const struct convolution_plan *p) { return p->workspace; }

static int compilations_of(const struct convolution_plan *p) { return p->compilations; }

static bool uses_tensor_cores(const struct convolution_plan *p) { return p->uses_tensor_cores; }

/* Sets the addresses of the plan's operands. */
static cudnnStatus_t set_operands(struct convolution_plan *p, const struct plan_operands *o) {
    struct descriptors descriptors = {0};
    const int64_t names[] = {NAME_X, NAME_W, NAME_Y, NAME_BIAS};
    const void *const addresses[] = {o->x, o->w, o->y, o->bias};
    int64_t count = p->adds_bias ? 4 : 3;
    cudnnBackendDescriptor_t v = new_descriptor(&descriptors, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&descriptors, v, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, names);
    set(&descriptors, v, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses);
    set(&descriptors, v, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &o->workspace);
    finalize(&descriptors, v);
    if (descriptors.code != CUDNN_STATUS_SUCCESS) {
        descriptors_destroy(&descriptors);
        return descriptors.code;
    }
    if (p->arguments) cudnnBackendDestroyDescriptor(p->arguments);
    p->arguments = v;
    p->operands = *o;
    return CUDNN_STATUS_SUCCESS;
}

static const char *run(struct cudnn *cudnn, struct convolution_plan *p, const struct plan_operands *o) {
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
    if (!p->arguments || memcmp(&p->operands, o, sizeof *o) != 0) code = set_operands(p, o);
    if (code == CUDNN_STATUS_SUCCESS) code = cudnnBackendExecute(cudnn->handle, p->plan, p->arguments);
    return code == CUDNN_STATUS_SUCCESS ? NULL : cudnnGetErrorString(code);
}

static void close_cudnn(struct cudnn *cudnn) {
    if (!cudnn) return;
    if (cudnn->properties) cudnnBackendDestroyDescriptor(cudnn->properties);
    if (cudnn->handle) cudnnDestroy(cudnn->handle);
    free(cudnn);
}

static status open_cudnn(void *stream, struct cudnn **out) {
    struct cudnn *cudnn = calloc(1, sizeof *cudnn);
    *out = NULL;
    if (!cudnn) return status_memory("a plan of cuDNN");
    cudnnStatus_t code = cudnnCreate(&cudnn->handle);
    if (code == CUDNN_STATUS_SUCCESS) code = cudnnSetStream(cudnn->handle, stream);
    if (code == CUDNN_STATUS_SUCCESS) {
        *out = cudnn;
        return OK;
    }
    status s = failed("it cannot be used", code);
    close_cudnn(cudnn);
    return s;
}

static status open_for(const char *properties, struct cudnn **out) {
    struct descriptors descriptors = {0};
    struct cudnn *cudnn = calloc(1, sizeof *cudnn);
    *out = NULL;
    if (!cudnn) return status_memory("a plan of cuDNN");
    cudnn->properties = new_descriptor(&descriptors, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(&descriptors, cudnn->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
        (int64_t)strlen(properties), properties);
    finalize(&descriptors, cudnn->properties);
    if (descriptors.code == CUDNN_STATUS_SUCCESS) {
        *out = cudnn;
        return OK;
    }
    status s = failed("the properties of a GPU", descriptors.code);
    close_cudnn(cudnn);
    return s;
}

extern const struct cudnn_module ddptrain_cudnn_plans;
const struct cudnn_module ddptrain_cudnn_plans = {.open = open_cudnn,
                                                  .open_for = open_for,
                                                  .close = close_cudnn,
                                                  .plan = plan,
                                                  .workspace = workspace_of,
                                                  .compilations = compilations_of,
                                                  .uses_tensor_cores = uses_tensor_cores,
                                                  .run = run,
                                                  .destroy = destroy};
