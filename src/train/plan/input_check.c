/* Rows are read as batches are, so that what is checked is what the model gets. */
#include "train/plan/input_check.h"

#include "base/buffer.h"
#include "model/operation.h"

#define ROWS 256 /* at a time */

struct checked {
    const struct model *model;
    struct dataset *dataset;
    const char *validation_path, *path;
    float *inputs;
    void *targets;
    int64_t positions[ROWS];
};

static status check_part(struct checked *c, enum dataset_part part, size_t rows) {
    size_t size = dataset_info(c->dataset)->input_size;
    const char *path = part == DATASET_VALIDATION && c->validation_path ? c->validation_path : c->path;
    for (size_t first = 0, count; first < rows; first += count) {
        count = rows - first < ROWS ? rows - first : ROWS;
        for (size_t i = 0; i < count; i++) c->positions[i] = (int64_t)(first + i);
        TRY(dataset_read(c->dataset, part, c->positions, count, c->inputs, c->targets));
        for (size_t i = 0; i < count; i++)
            TRY(status_prefix(model_check_row(c->model, c->inputs + i * size), "%s: row %lld",
                              path ? path : "the dataset",
                              (long long)dataset_row(c->dataset, part, (int64_t)(first + i))));
    }
    return OK;
}

status input_check(const struct model *model, struct dataset *dataset, const struct dataset_config *config,
                   bool reads_all) {
    const struct dataset_info *info = dataset_info(dataset);
    struct checked c = {
        .model = model, .dataset = dataset, .path = config->path, .validation_path = config->validation.path};
    if (!reads_all && !model_checks_rows(model)) return OK;
    TRY(buffer_new(ROWS * info->input_size * sizeof *c.inputs, "rows of the dataset", (void **)&c.inputs));
    status s = buffer_new(ROWS * dataset_target_bytes(info) + 1, "rows of the dataset", &c.targets);
    if (!s) s = check_part(&c, DATASET_TRAIN, info->train_rows);
    if (!s) s = check_part(&c, DATASET_VALIDATION, info->validation_rows);
    if (!s) s = check_part(&c, DATASET_TEST, info->test_rows);
    buffer_free(c.inputs);
    buffer_free(c.targets);
    return s;
}

/* The first element of a row of all inputs that [tensor] has; SIZE_MAX: it is the output of a layer that computes. */
static size_t first_of_input(const struct model *model, size_t tensor) {
    if (tensor == 0) return 0;
    for (size_t i = 0; i < model->node_count; i++) {
        if (model->nodes[i].out != tensor || !model->nodes[i].layer) continue;
        struct operation op = operation_of(model->nodes[i].layer);
        return op.kind == OPERATION_INPUT ? op.start : SIZE_MAX;
    }
    return SIZE_MAX;
}

static status check_padding(const struct layer *layer, int32_t padding, const struct prepared_column *column) {
    if (column->type != COLUMN_TEXT || padding < 0 || padding == column->padding) return OK;
    return status_new(STATUS_USAGE, "%s: %s: padding_idx is %d, but the column '%.60s' has the padding %d",
                      place_text(layer->place).s, layer->path, padding, column->name, column->padding);
}

status input_check_padding(const struct model *model, const struct preparation *preparation) {
    for (size_t i = 0; preparation && i < model->node_count; i++) {
        const struct graph_node *node = &model->nodes[i];
        if (!node->layer) continue;
        struct operation op = operation_of(node->layer);
        if (op.kind != OPERATION_EMBEDDING && op.kind != OPERATION_EMBEDDING_BAG) continue;
        size_t first = first_of_input(model, node->in[0]);
        if (first >= preparation->features) continue;
        TRY(check_padding(node->layer, op.padding, &preparation->items[preparation_column_of(preparation, first)]));
    }
    return OK;
}
