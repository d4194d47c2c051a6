/* losses: the table of losses, and common functions of element-wise losses. */
#pragma once

#include "model/loss.h"

/* The table: a name here, and a `const struct loss_type loss_<name>` in a file of this folder. */
#define LOSS_TYPES(X)                                                                                                  \
    X(cross_entropy)                                                                                                   \
    X(mse)                                                                                                             \
    X(l1)                                                                                                              \
    X(smooth_l1)                                                                                                       \
    X(bce_with_logits)                                                                                                 \
    X(kl_div)                                                                                                          \
    X(nll)                                                                                                             \
    X(huber)                                                                                                           \
    X(poisson_nll)                                                                                                     \
    X(focal)                                                                                                           \
    X(dice)                                                                                                            \
    X(gaussian_nll)                                                                                                    \
    X(cosine_embedding)                                                                                                \
    X(triplet_margin)                                                                                                  \
    X(contrastive)                                                                                                     \
    X(ctc)                                                                                                             \
    X(quantile)                                                                                                        \
    X(expression)                                                                                                      \
    X(kl_normal)                                                                                                       \
    X(soft_cross_entropy)                                                                                              \
    X(hinge_embedding)                                                                                                 \
    X(soft_margin)                                                                                                     \
    X(margin_ranking)                                                                                                  \
    X(multi_margin)                                                                                                    \
    X(multilabel_margin)
#define X(name) extern const struct loss_type loss_##name;
LOSS_TYPES(X)
#undef X

/* Whether it is mse, or cross_entropy without weights and smoothing. */
bool loss_is_mse(const struct loss_type *loss);
bool loss_is_plain_cross_entropy(const struct loss_type *loss, const void *config);

/* struct loss_type's check: each element of the output has one target. */
status loss_check_values(const void *config, const struct shape *output, size_t target_size, int64_t classes);

/* The key `reduction` of losses of elements: PyTorch's mean, or the sum over a row and the mean over rows. */
enum loss_reduction { REDUCTION_MEAN, REDUCTION_BATCHMEAN };
extern const char *const loss_reductions[];
#define LOSS_REDUCTION_ROW(struct_, doc_)                                                                              \
    SCHEMA_ROW(CHOICE, struct struct_, reduction, .fallback = "mean", .choices = loss_reductions, .doc = doc_)

/* Of how many positions of a row a rowwise loss is the mean: those of an output with lengths, each with its parts; 1:
 * the parts are those of the row. */
size_t loss_row_positions(const struct shape *output);

/* An output of [parts] equal parts, which [meaning] describes, or with lengths of as many for each position; with
 * [target_size] not 0 each has as many values as a target row. [name]: of the loss. */
status loss_check_parts(const char *name, size_t parts, const char *meaning, const struct shape *output,
                        size_t target_size);

/* The mean over the rows of the batch, or over their loss_row_positions that are not padding; sets the weights of
 * [options], whose targets are those of a row or position. */
void loss_mean_of_rows(const struct rowwise_options *options, const struct loss_batch *batch);

/* The mean over all elements of the batch that are not padding, or with [options]'s is_row_mean over the rows of the
 * sums of their elements; sets the weights of [options]. */
void loss_mean_of_elements(const struct elementwise_options *options, const struct loss_batch *batch);
