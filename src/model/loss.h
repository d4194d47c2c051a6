/* loss: the function that training minimises. Means are PyTorch's; sums and counts are returned so that a mean over
 * batches and ranks is exact. A new loss is a row in a file of losses/, and its name in LOSS_TYPES. */
#pragma once

#include "base/schema/schema.h"
#include "device/device.h"
#include "model/layer.h"

struct model;

extern const struct schema_variants loss_variants;

/* The rows of a batch for a loss, and where the results go. */
struct loss_batch {
    struct device *device;
    const struct shape *shape;         /* of an output */
    const struct tensor *output;       /* (rows, shape) */
    const void *targets;               /* (rows, target_size) classes or values */
    const struct row_weights *weights; /* of the rows */
    size_t rows;
    float scale;                   /* a factor of the gradient */
    const struct tensor *gradient; /* (rows, shape) of the mean loss of this batch; NULL: not wanted */
    struct loss_sums *sums;        /* += those of this batch */
};

struct loss_type {
    struct schema_variant variant;
    const struct schema_alias *aliases; /* of this type and of others of its file; NULL: none */
    bool wants_classes;                 /* targets are classes (int64_t), and accuracy is counted */
    bool is_regression;                 /* targets are values of any unit */
    const char *targets; /* what targets are, for messages; NULL: classes, values of any unit, or probabilities */
    bool is_binary;      /* outputs are logits of yes or no, targets 0 to 1 */
    bool is_sign;        /* targets are 1 or -1 */
    bool is_class_list;  /* targets are values, classes of which the first negative one ends a list */
    bool has_no_target;  /* only in `losses` */
    bool aligns_targets; /* the output has another number of positions than the targets */
    size_t parts;        /* equal vectors of an output, so that it has no elements that match targets; 0: one value for
                            each target */
    const char *parts_meaning;
    /* The function that the loss itself applies to the model's output: "softmax". NULL: none. */
    const char *own_activation;
    bool takes_logarithms; /* outputs are logarithms of probabilities */
    /* Whether outputs are logarithms of what targets are, so that exp(output) predicts a target. NULL: they are not. */
    bool (*predicts_logarithms)(const void *config);
    /* The target that is ignored (ignore_index). NULL: none. */
    int64_t (*ignored)(const void *config);
    const char *ignored_key; /* its key */
    /* The weights of classes in its config, whose word is 1 for `balanced`. NULL: it has none. */
    struct real_list *(*class_weight)(void *config);
    bool divides_by_weights; /* with them the mean is over their sum, not over rows */
    /* Checks that the model's output matches the targets: [target_size] values, or as many positions of [classes]
     * classes. NULL: each element of the output has one target, or with [parts], which parts_meaning describes, each of
     * a part, unless the loss has_no_target. */
    status (*check)(const void *config, const struct shape *output, size_t target_size, int64_t classes);
    /* Allocates what run needs for [rows] rows on each of [world_size] ranks; STATUS_USAGE for a device that cannot
     * compute the loss. NULL: nothing. */
    status (*prepare)(const void *config, struct device *device, const struct shape *output, size_t target_size,
                      size_t rows, size_t world_size);
    void (*run)(const void *config, const struct loss_batch *batch);
    /* Adds what in the loss of these rows, or in its derivative, is not finite first: " in 'log' (character 8 of the
     * expression)". Nothing if all is. NULL: it has no parts. The CPU only; scale, gradient and sums are not used. */
    void (*explain)(const void *config, const struct loss_batch *batch, struct text *out);
    /* The loss of a row depends on the other rows of the batch, on all ranks: each of them calls run for every
     * batch, also without rows, with the weights' [all]. The mean is that of all rows. */
    bool compares_rows;
    /* Why it cannot be of an output whose positions may be padding (struct shape's lengths), and what to do. NULL: run
     * leaves them out (struct row_weights's lengths). */
    const char *without_lengths;
    /* The output and its gradient may be 16 bits; else they are float32. */
    bool accepts_half;
    /* The loss of outputs y and targets t in PyTorch, a template of schema_fill; NULL: it cannot be expressed. */
    const char *pytorch;
    /* Adds the place {formula} of that template; NULL: there is none. */
    void (*add_formula)(const void *config, struct text *out);
    /* Its config is a struct objective: several losses. */
    bool is_objective;
};

/* What targets look like: [size] values, or as many classes below [classes], the smallest of them [first_class]. */
struct loss_targets {
    size_t size;
    int64_t classes, first_class;
    struct shape shape;   /* of a row; 0 dimensions: a list of values, or not known */
    int64_t absent_class; /* the smallest one above [first_class] that no target has; 0: there is none, or not known */
};

/* type->check, or what is checked without it. */
status loss_check_sizes(const struct loss_type *loss, const void *config, const struct shape *output,
                        size_t target_size, int64_t classes);

/* The same for the output of [model], after model_plan, and whether each value has the place of its target: without
 * dimensions of size 1, the shapes of output and target are equal (of classes the output without its classes; of
 * several parts that of a part), or one of them is a list. Parts must lie one after the other; of positions with
 * lengths, those of each position. A failure also says
 * which change of the model or of the labels would help, where that is known. */
status loss_check(const struct loss_type *loss, const void *config, const struct model *model,
                  const struct loss_targets *targets);

/* The same for one of several outputs of [model], a tensor. */
status loss_check_output(const struct loss_type *loss, const void *config, const struct model *model, size_t tensor,
                         const struct loss_targets *targets);

/* The weights of a batch for the loss of [output], one of the outputs of [model], whose last pass was over the batch:
 * [values] (rows; NULL: all 1), and the lengths of its rows. */
struct row_weights loss_weights(const struct model *model, const struct shape *output, const float *values,
                                bool is_counted);

/* type->prepare, if there is one; before the first run with so many rows. */
status loss_prepare(const struct loss_type *loss, const void *config, struct device *device, const struct shape *output,
                    size_t target_size, size_t rows, size_t world_size);

/* type->predicts_logarithms, false without it. */
bool loss_predicts_logarithms(const struct loss_type *loss, const void *config);

/* Whether the weights of classes are `balanced`. */
bool loss_is_balanced(const struct loss_type *loss, const void *config);

/* type->compares_rows; of several losses, whether one of them does. */
bool loss_compares_rows(const struct loss_type *loss, const void *config);

/* Computes the loss of a batch from [output] of model_forward, with the mean of loss times weight (rows; NULL: all 1)
 * over the rows, and its gradient where model_backward reads it. [all]: for a loss that compares rows; NULL: without
 * those of other ranks. */
void loss_run(const struct loss_type *loss, const void *config, struct model *model, const struct tensor *output,
              const void *targets, const float *weights, const struct all_rows *all, size_t rows, float scale,
              struct loss_sums *sums);

/* Adds a sentence with the layer's position in the config if the model ends in a softmax or sigmoid that the loss
 * applies itself: gradients are then small, and training is slow or does not progress; or if it does not end in
 * logarithms that the loss takes. After model_plan. */
void loss_warn_of_activation(const struct loss_type *loss, const struct model *model, struct text *out);

/* The same for one of several outputs of [model], a tensor. */
void loss_warn_of_output(const struct loss_type *loss, const struct model *model, size_t tensor, struct text *out);

const struct loss_type *loss_type_at(size_t index);
size_t loss_type_count(void);
/* Adds the type of an extension. False: there is one of its name. */
bool loss_type_add(const struct loss_type *type);
