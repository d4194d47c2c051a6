/* optimizers: the table of optimizers, and schema rows that several of them use. */
#pragma once

#include <float.h>
#include <math.h>

#include "optim/optimizer.h"

/* A name here, and a `const struct optimizer_type optimizer_<name>` in a file of this folder. */
#define OPTIMIZERS(X)                                                                                                  \
    X(sgd)                                                                                                             \
    X(adam)                                                                                                            \
    X(adamw)                                                                                                           \
    X(adagrad) X(rmsprop) X(lion) X(nadam) X(radam) X(adamax) X(adadelta) X(rprop) X(asgd) X(lbfgs) X(adafactor) X(muon)
#define X(name) extern const struct optimizer_type optimizer_##name;
OPTIMIZERS(X)
#undef X

/* The row of a number >= 0. */
#define OPTIMIZER_REAL(struct_, name_, fallback_, doc_)                                                                \
    SCHEMA_ROW(REAL, struct struct_, name_, .fallback = fallback_, .min = 0, .max = INFINITY, .doc = doc_)

#define OPTIMIZER_BOOL(struct_, name_, doc_) SCHEMA_ROW(BOOL, struct struct_, name_, .fallback = "false", .doc = doc_)

#define OPTIMIZER_DECOUPLED(struct_)                                                                                   \
    OPTIMIZER_BOOL(struct_, decoupled_weight_decay,                                                                    \
                   "Multiply values by 1 - lr * weight_decay instead of adding to the gradient, as AdamW does.")

/* Of adam and adamw, and of the parameters that muon leaves to adamw. */
struct adam_config {
    struct real_list betas; /* first: see optimizer_check_betas */
    double lr, eps, weight_decay;
    bool amsgrad;
    int arithmetic; /* enum adam_arithmetic */
};
enum adam_arithmetic { ADAM_TORCH2, ADAM_TORCH1 };

/* Two betas, each >= 0 and < 1. The schema of a struct that begins with them checks their number by
 * optimizer_check_betas. */
#define OPTIMIZER_BETAS(struct_, fallback_, doc_)                                                                      \
    SCHEMA_ROW(REAL_LIST, struct struct_, betas, .fallback = fallback_, .min = 0, .max = 1, .excludes_max = true,      \
               .doc = doc_)
/* What is added to a denominator. For [eps] 0 it is the smallest normal number, which changes no sum with the root of a
 * mean of squares that is not 0: a gradient that was always 0, as in the padding between parameters, makes no update
 * instead of 0 / 0. */
static inline float optimizer_eps(double eps) { return eps > (double)FLT_MIN ? (float)eps : FLT_MIN; }

/* As torch.lerp, whose form depends on the weight. */
static inline float optimizer_lerp(float from, float to, float weight) {
    return weight < 0.5f ? fmaf(weight, to - from, from) : fmaf(weight - 1, to - from, to);
}

void optimizer_check_betas(void *config, const struct node *where, const char *path, struct problems *problems);
