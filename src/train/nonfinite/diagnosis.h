/* diagnosis: finds the origin of non-finite numbers. It runs a batch again and names the first non-finite array: the
 * inputs, a parameter, a layer's output, the loss, a gradient or running statistics, with the rows of the dataset.
 * Slow; only used after a non-finite step. */
#ifndef TRAIN_DIAGNOSIS_H
#define TRAIN_DIAGNOSIS_H

#include <stdbool.h>
#include <stddef.h>

#include "data/dataset/dataset.h"
#include "data/dataset/loader.h"
#include "model/model.h"

#define DIAGNOSIS_SIZE 256

struct diagnosis {
    struct model *model;
    const struct loss_type *loss;
    const void *loss_config;
    const struct dataset *dataset;
    struct loss_sums *sums; /* on the device; scratch */
    bool has_gradients;     /* the model has memory for them */
};

/* Runs [batch], on the device, forward and backward as in [pass]. [text] is the first array that is not finite, such as
 * "the output of layer 2 (linear) for row 17 of the training data"; false: everything is finite. Overwrites the
 * gradients and changes the running statistics. */
bool diagnosis_run(const struct diagnosis *diagnosis, const struct batch *batch, const struct pass *pass,
                   char text[DIAGNOSIS_SIZE]);

/* The first parameter, in the order of backward, whose gradient is not finite; NULL: none. */
const char *diagnosis_gradient(const struct model *model, struct device *device);

#endif
