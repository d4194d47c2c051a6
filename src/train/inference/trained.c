/* The datasets of a checkpoint: data/columns, data/inputs, data/preparation, data/target_scale, data/labels,
 * data/tokenizer and the scaler. */
#include "train/inference/trained.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/state/class_weights_json.h"
#include "train/state/column_names.h"
#include "train/state/input_layout_json.h"
#include "train/state/labels.h"
#include "train/state/preparation_json.h"
#include "train/state/target_scale_json.h"

static bool is_vector(const struct entry *entry) { return entry->type == ENTRY_FLOAT64 && entry->dims == 1; }

/* Uses the scaler of the checkpoint, which was fitted to the training rows; it is not fitted to the new rows. */
static status use_scaler(struct arena *arena, struct checkpoint *checkpoint, struct dataset_config *dataset) {
    struct entry mean = {.path = "scaler/mean"}, scale = {.path = "scaler/scale"};
    bool has_mean, has_scale;
    TRY(checkpoint_find(checkpoint, &mean, &has_mean));
    TRY(checkpoint_find(checkpoint, &scale, &has_scale));
    if (!has_mean || !has_scale) return OK;
    if (!is_vector(&mean) || !is_vector(&scale) || mean.shape[0] != scale.shape[0])
        return status_new(STATUS_DATA, "the checkpoint's scaler/mean and scaler/scale are not two float64 vectors of "
                                       "the same length; the file was changed");
    mean.data = arena_alloc(arena, (size_t)mean.shape[0] * sizeof(double));
    scale.data = arena_alloc(arena, (size_t)mean.shape[0] * sizeof(double));
    struct entry entries[] = {mean, scale};
    TRY(checkpoint_read(checkpoint, entries, 2, NULL));
    dataset->scale.is_fitted = dataset->scale.mean.count == 0;
    dataset->scale.mean = (struct real_list){.items = mean.data, .count = (size_t)mean.shape[0]};
    dataset->scale.std = (struct real_list){.items = scale.data, .count = (size_t)mean.shape[0]};
    return OK;
}

/* Columns become features, and targets are scaled, as in training. */
static status use_preparation(struct arena *arena, struct checkpoint *checkpoint, struct dataset_config *dataset,
                              struct trained *out) {
    struct preparation *preparation;
    TRY(preparation_read(arena, checkpoint, &preparation));
    TRY(target_scale_read(arena, checkpoint, &out->target_scale));
    dataset->preparation = preparation;
    dataset->trained_target_scale = out->target_scale;
    dataset->is_trained = true;
    return OK;
}

/* Inputs are divided as in training, also those of a file whose format has another default, and tokens are those of the
 * training, also where the file does not have all of them. */
static status use_layout(struct arena *arena, struct checkpoint *checkpoint, struct dataset_config *dataset) {
    struct input_layout layout;
    bool has_layout;
    char *characters;
    TRY(checkpoint_read_text(checkpoint, "data/vocabulary", &characters));
    if (characters) dataset->characters = arena_copy(arena, characters);
    free(characters);
    TRY(input_layout_read(arena, checkpoint, &layout, &has_layout));
    if (has_layout && layout.kind == INPUT_VALUES && !dataset->preparation && layout.dims == 1)
        dataset->trained_inputs = layout.size;
    if (has_layout && layout.kind == INPUT_VALUES && !dataset->preparation && isnan(dataset->divide))
        dataset->divide = layout.divide;
    if (has_layout && layout.kind == INPUT_TOKENS && dataset->tokens.vocabulary == SCHEMA_NO_INT)
        dataset->tokens.vocabulary = layout.vocabulary;
    return OK;
}

/* Reads the labels of the classes and the names of the targets. */
static status read_names(struct arena *arena, struct checkpoint *checkpoint, const struct column_list *columns,
                         struct trained *out) {
    out->targets.items = arena_alloc(arena, (columns->count + 1) * sizeof *out->targets.items);
    for (size_t i = 0; i < columns->count; i++)
        if (columns->items[i].role == COLUMN_TARGET) out->targets.items[out->targets.count++] = columns->items[i].name;
    return labels_load(arena, checkpoint, &out->labels);
}

static status use_tokenizer(struct arena *arena, struct checkpoint *checkpoint, struct dataset_config *dataset) {
    char *json;
    TRY(checkpoint_read_text(checkpoint, "data/tokenizer", &json));
    if (json) dataset->trained_tokenizer = arena_copy(arena, json);
    free(json);
    return OK;
}

/* The keys that are compared; a loss says what the outputs mean, and eval may measure another one. */
static const char *const row_keys[] = {"dataset", NULL};
static const char *const model_keys[] = {"dataset", "model", NULL};
static const char *const prediction_keys[] = {"dataset", "model", "loss", "losses", NULL};

/* Adds the differences of [keys]; returns their number. */
static size_t diff_configs(const struct config *trained, const struct config *config, const char *const *keys,
                           struct text *out) {
    struct config before = *trained, now = *config;
    before.dataset.window.group = dataset_series(&before.dataset);
    now.dataset.window.group = dataset_series(&now.dataset);
    return schema_diff_keys(&config_schema, keys, SCHEMA_INFERENCE, &before, &now, out);
}

/* STATUS_USAGE with the differences of [keys] if there are any in [decisive]. */
static status compare_configs(struct checkpoint *checkpoint, const struct config *config, const char *const *decisive,
                              const char *const *keys, struct log *log) {
    struct config_file *trained;
    struct text decisive_ones = {0}, differences = {0};
    const char *path = checkpoint_path(checkpoint);
    status s = OK;
    TRY(config_of_checkpoint(checkpoint, &trained));
    if (!trained) {
        log_warning(log, "%s: this version cannot read its config, so the config now cannot be compared with it", path);
        return OK;
    }
    size_t count = 0;
    if (diff_configs(config_of(trained), config, decisive, &decisive_ones))
        count = diff_configs(config_of(trained), config, keys, &differences);
    if (count)
        s = status_new(STATUS_USAGE,
                       "%s: its training had another config; %zu key%s that predictions depend on %s (training -> "
                       "now):\n%s"
                       "leave such keys out on the command line, and give the run folder in place of another config",
                       path, count, text_plural(count, "s"), count == 1 ? "differs" : "differ",
                       text_string(&differences));
    text_free(&decisive_ones);
    text_free(&differences);
    config_free(trained);
    return s;
}

status trained_compare_rows(struct checkpoint *checkpoint, const struct config *config, bool predicts,
                            struct log *log) {
    return compare_configs(checkpoint, config, row_keys, predicts ? prediction_keys : model_keys, log);
}

status trained_compare_config(struct checkpoint *checkpoint, const struct config *config, bool predicts) {
    const char *const *keys = predicts ? prediction_keys : model_keys;
    return compare_configs(checkpoint, config, keys, keys, NULL);
}

static bool are_equal(const struct string_list *a, const struct string_list *b) {
    for (size_t i = 0; a->count == b->count && i < a->count; i++)
        if (strcmp(a->items[i], b->items[i]) != 0) return false;
    return a->count == b->count;
}

status trained_leave_names(struct checkpoint *checkpoint, const struct config *config, struct dataset_config *dataset,
                           bool *left) {
    struct config_file *trained;
    *left = false;
    TRY(config_of_checkpoint(checkpoint, &trained));
    if (!trained) return OK;
    const struct dataset_config *before = &config_of(trained)->dataset, *now = &config->dataset;
    bool is_other =
        dataset_has_other_names(before, now) && now->input_groups.count == 0 && now->target_groups.count == 0;
    struct string_list *lists[] = {&dataset->inputs, &dataset->targets};
    const struct string_list *olds[] = {&before->inputs, &before->targets};
    for (size_t i = 0; is_other && i < 2; i++) {
        if (lists[i]->count == 0 || !are_equal(lists[i], olds[i])) continue;
        lists[i]->count = 0;
        *left = true;
    }
    config_free(trained);
    return OK;
}

status trained_compare_split(struct checkpoint *checkpoint, const struct dataset_config *dataset,
                             const char *fingerprint, const char **why) {
    struct config_file *trained;
    char *before;
    *why = NULL;
    TRY(config_of_checkpoint(checkpoint, &trained));
    if (trained && !dataset_has_same_split(&config_of(trained)->dataset, dataset))
        *why = "dataset.split is not that of the training";
    config_free(trained);
    TRY(checkpoint_read_text(checkpoint, "data/fingerprint", &before));
    if (fingerprint && before && strcmp(before, fingerprint) != 0)
        *why = "the data are not those of the training, so the split is another one";
    free(before);
    return OK;
}

status trained_vocabulary(struct checkpoint *checkpoint, struct vocabulary **out) {
    char *characters, *json = NULL;
    *out = NULL;
    TRY(checkpoint_read_text(checkpoint, "data/vocabulary", &characters));
    status s = characters ? vocabulary_create(characters, out) : OK;
    if (!characters) s = checkpoint_read_text(checkpoint, "data/tokenizer", &json);
    if (!s && json) s = vocabulary_create_tokenizer(json, out);
    free(characters);
    free(json);
    return s;
}

status trained_read(struct arena *arena, struct checkpoint *checkpoint, struct dataset_config *dataset,
                    struct trained *out) {
    *out = (struct trained){0};
    TRY(use_scaler(arena, checkpoint, dataset));
    TRY(column_names_read(arena, checkpoint, &dataset->columns));
    TRY(use_preparation(arena, checkpoint, dataset, out));
    TRY(class_weights_read(arena, checkpoint, &dataset->trained_class_weights));
    TRY(use_layout(arena, checkpoint, dataset));
    TRY(use_tokenizer(arena, checkpoint, dataset));
    return read_names(arena, checkpoint, &dataset->columns, out);
}
