/* Classes of the training rows: a warning about those that none has, and `weight: balanced` of a loss of classes:
 * scikit-learn's compute_class_weight, of the training rows. */
#include <math.h>
#include <stdlib.h>

#include "data/dataset/open_dataset.h"

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

static void mark(const int64_t *classes, struct selection rows, size_t count, const struct table *table,
                 int64_t n_classes, bool *marks) {
    for (size_t i = 0; i < count; i++) {
        int64_t of = classes[selection_row(&rows, i)];
        if (of >= 0 && of < n_classes && !(table->ignored.is_set && of == table->ignored.value)) marks[of] = true;
    }
}

/* Marks the classes of all rows of a table as seen, and those of training rows as trained. */
static status mark_classes(struct dataset *dataset, struct table *table, bool *seen, bool *trained) {
    void *classes;
    const struct dataset_info *info = &dataset->info;
    const struct dataset_rows *train = &dataset->parts[DATASET_TRAIN];
    TRY(rows_alloc(table->rows, sizeof(int64_t), "the classes", &classes));
    status s = table_classes(table, classes);
    if (!s) mark(classes, (struct selection){0}, table->rows, table, info->classes, seen);
    if (!s && table == train->table) mark(classes, train->rows, info->train_rows, table, info->classes, trained);
    buffer_free(classes);
    return s;
}

#define MAX_NAMED 5 /* classes of the warning */

static void warn_absent(struct dataset *dataset, const bool *seen, const bool *trained) {
    struct text names = {0};
    size_t count = 0;
    for (size_t c = 0; c < (size_t)dataset->info.classes; c++) {
        if (!seen[c] || trained[c] || ++count > MAX_NAMED) continue;
        text_add(&names, count == 1 ? "" : ", ");
        if (c < dataset->labels.count) {
            text_add(&names, "'");
            text_add_value(&names, dataset->labels.items[c], TEXT_MAX_NAME);
            text_add(&names, "'");
        } else {
            text_printf(&names, "%zu", c);
        }
    }
    if (count > MAX_NAMED) text_printf(&names, " and %zu more", count - MAX_NAMED);
    if (count)
        dataset->notes.items[dataset->notes.count++] = arena_printf(
            dataset->arena,
            "warning: %zu class%s no training row, so that the model cannot learn %s: %s (dataset.split: stratify "
            "divides each class, shuffle mixes sorted rows)",
            count, count == 1 ? " has" : "es have", count == 1 ? "it" : "them", text_string(&names));
    text_free(&names);
}

status classes_warn_absent(struct dataset *dataset, const struct dataset_config *config) {
    const struct dataset_info *info = &dataset->info;
    bool has_classes = info->target_kind == TARGET_CLASS && info->target_size == 1 && info->windows.steps == 0 &&
                       info->input_kind == INPUT_VALUES && info->classes <= MAX_CLASSES;
    if (!has_classes || config->is_trained || config->without_targets || info->validation_rows == 0) return OK;
    bool *seen = calloc((size_t)info->classes + 1, 2 * sizeof *seen), *trained = seen + info->classes + 1;
    if (!seen) return status_memory("%lld classes", (long long)info->classes);
    status s = OK;
    for (int i = 0; !s && i < dataset->n_tables; i++) s = mark_classes(dataset, &dataset->tables[i], seen, trained);
    if (!s) warn_absent(dataset, seen, trained);
    free(seen);
    return s;
}
