/* diagnosis: where numbers stopped being finite. A batch is run again, and the first thing on its way that is not
 * finite is named: the inputs, a parameter, a layer's output, the loss, a gradient or running statistics, with the rows
 * of the dataset. Slow, and only run when a step went wrong. */
#ifndef TRAIN_DIAGNOSIS_H
#define TRAIN_DIAGNOSIS_H

#include <stdbool.h>
#include <stddef.h>

#include "data/dataset.h"
#include "data/loader.h"
#include "model/model.h"

#define DIAGNOSIS_SIZE 256

struct diagnosis {
    struct model *model;
    const struct loss_type *loss;
    const void *loss_config;
    const struct dataset *dataset;
    struct loss_sums *sums; /* on the device, to work with */
    bool has_gradients;     /* the model has room for them */
};

/* Runs [batch], on the device, as in [pass], forward and back, and says what is not finite first, such as "the output
 * of layer 2 (linear) for row 17 of the training data"; false: everything is finite. Overwrites the gradients and moves
 * the running statistics. */
bool diagnosis_run(const struct diagnosis *diagnosis, const struct batch *batch, const struct pass *pass,
                   char text[DIAGNOSIS_SIZE]);

/* The first parameter whose gradient is not finite, in the order in which backward makes them; NULL: none. */
const char *diagnosis_gradient(const struct model *model, struct device *device);

#endif
