/* loss: what training makes small. Means are PyTorch's; sums and counts are handed back so that a mean over batches and
 * ranks is exact. A new one is a file in losses/ and a row of the table in loss.c. */
#ifndef MODEL_LOSS_H
#define MODEL_LOSS_H

#include <stdbool.h>

#include "base/schema.h"
#include "device/device.h"
#include "model/layer.h"

struct model;

extern const struct schema_variants loss_variants;

struct loss_type {
    struct schema_variant variant;
    bool wants_classes; /* targets are classes (int64_t), and accuracy is counted */
    bool is_binary;     /* outputs are logits of yes or no, targets 0 or 1 */
    /* The target that does not count. NULL: all do. */
    int64_t (*ignored)(const void *config);
    /* The model's output must fit the targets: [target_size] values, or as many positions of [classes] classes. */
    status (*check)(const void *config, const struct shape *output, size_t target_size, int64_t classes);
    /* sums += this batch; gradient (rows, output), unless NULL, = d(mean loss of this batch)/d(output) * scale */
    void (*run)(const void *config, struct device *device, const struct shape *output_shape, const float *output,
                const void *targets, size_t rows, float scale, float *gradient, struct loss_sums *sums);
    /* The output and its gradient may be 16 bits, as the device has been told (struct narrow). */
    bool takes_narrow;
};

/* The loss of a batch that model_forward made [output] of, with the gradient where model_backward looks for it. */
void loss_run(const struct loss_type *loss, const void *config, struct model *model, const float *output,
              const void *targets, size_t rows, float scale, struct loss_sums *sums);

const struct loss_type *loss_type_at(size_t index);

#endif
