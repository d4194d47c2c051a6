/* Interface of ddptrain_cudnn.so: convolutions of cuDNN, each a plan for one pass and one number of rows. It is a
 * separate module, opened by ddptrain_cuda.so at the first convolution, so that models without one run without cuDNN.
 */
#pragma once

#include "device/device.h"

enum plan_pass {
    PLAN_FORWARD,         /* y = x * w [+ bias] */
    PLAN_BACKWARD_INPUT,  /* dx = of dy and w */
    PLAN_BACKWARD_WEIGHT, /* dw += of dy and x; with 16 bits dw = */
};

struct plan_request {
    const struct convolution *convolution;
    size_t rows;
    enum plan_pass pass;
    /* With 16 bits x, w and y have that type, sums are float32, and the weights have their channels innermost: (out,
     * kernel height, kernel width, in); else all are float32, and the weights are in PyTorch's order. */
    enum precision precision;
    bool adds_bias;   /* PLAN_FORWARD; never a relu: cuDNN's does not guarantee that NaN is not changed */
    size_t workspace; /* bytes that a plan may use */
};

/* Addresses on the GPU; x, w and y are also used for their gradients. */
struct plan_operands {
    const void *x, *w, *bias, *y;
    void *workspace;
};

struct cudnn; /* a handle, or the properties of a GPU that is not present */
struct convolution_plan;

struct cudnn_module {
    /* For the current GPU; [stream]: a cudaStream_t. STATUS_USAGE with cuDNN's reason. */
    status (*open)(void *stream, struct cudnn **out);
    /* To create plans for a GPU with these [properties] (JSON, as cuDNN writes it); they cannot run. */
    status (*open_for)(const char *properties, struct cudnn **out);
    void (*close)(struct cudnn *); /* takes NULL */
    /* The first choice of cuDNN's heuristics that is deterministic and meets the request, if possible one that is not
     * compiled at run time, and with 16 bits, without groups and with multiples of 8 channels one that uses tensor
     * cores; [out] NULL without a failure: there is none. */
    status (*plan)(struct cudnn *, const struct plan_request *, struct convolution_plan **out);
    size_t (*workspace)(const struct convolution_plan *); /* bytes */
    /* Number of engines that were compiled in the search for it, each of which takes up to seconds; for tests. */
    int (*compilations)(const struct convolution_plan *);
    bool (*uses_tensor_cores)(const struct convolution_plan *);
    /* Enqueues it on the stream. Returns the failure, or NULL. */
    const char *(*run)(struct cudnn *, struct convolution_plan *, const struct plan_operands *);
    void (*destroy)(struct convolution_plan *); /* takes NULL */
};
