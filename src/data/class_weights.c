/* `weight: balanced` of a loss of classes: scikit-learn's compute_class_weight, of the training rows. */
#include <math.h>
#include <stdlib.h>

#include "data/open_dataset.h"

#define MAX_CLASSES ((int64_t)1 << 24) /* a larger class is rather an identifier than the output of a model */

/* weights (n_classes): rows / (classes * rows of the class), of the rows and classes that are counted. A class without
 * training rows has the weight 1. */
static void weigh(const struct dataset_config *config, const int64_t *classes, size_t rows, size_t n_classes,
                  double *weights) {
    size_t counted = 0, present = 0;
    for (size_t i = 0; i < rows; i++) {
        if (classes[i] < 0 || (config->ignored.is_set && classes[i] == config->ignored.value)) continue;
        weights[classes[i]]++;
        counted++;
    }
    for (size_t c = 0; c < n_classes; c++) present += weights[c] > 0;
    for (size_t c = 0; c < n_classes; c++)
        weights[c] = weights[c] > 0 ? (double)counted / ((double)present * weights[c]) : 1;
}

status class_weights_set(struct dataset *dataset, const struct dataset_config *config) {
    struct dataset_info *info = &dataset->info;
    if (!config->balances_classes || config->without_targets) return OK;
    info->class_weights = config->trained_class_weights;
    if (info->class_weights.count) return OK;
    if (info->target_kind != TARGET_CLASS || info->target_size != 1 || info->input_kind == INPUT_TOKENS)
        return status_new(STATUS_USAGE, "loss.weight: balanced needs one class per row; give a list of numbers");
    if (info->classes > MAX_CLASSES)
        return status_new(STATUS_DATA,
                          "loss.weight: balanced: the largest class is %lld; at most %lld classes are counted",
                          (long long)info->classes - 1, (long long)MAX_CLASSES);
    void *classes;
    size_t n = (size_t)info->classes;
    TRY(rows_alloc(info->train_rows, sizeof(int64_t), "the classes", &classes));
    status s = dataset_train_classes(dataset, classes);
    info->class_weights =
        (struct real_list){.items = arena_alloc(dataset->arena, (n + 1) * sizeof(double)), .count = n};
    for (size_t c = 0; c < n; c++) info->class_weights.items[c] = 0;
    if (!s) weigh(config, classes, info->train_rows, n, info->class_weights.items);
    buffer_free(classes);
    return s;
}
