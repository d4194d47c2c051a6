/* named_parts: which values of a row belong to which name, where dataset.inputs or dataset.targets is a mapping. Rows
 * remain vectors of all inputs and of all targets; a name is a range of them. */
#include <math.h>
#include <string.h>

#include "data/dataset/open_dataset.h"

#define MAX_CLASS 16777215 /* targets are float32, and integers above are not all exact */

/* Values of a row of name [index] of the config's list, and their shape. */
static size_t shape_of(const struct source *source, bool is_target, size_t index, int *dims, int64_t *shape) {
    *dims = 1;
    shape[0] = 1;
    if (source->format->shape_of_name) source->format->shape_of_name(source, is_target, index, dims, shape);
    size_t size = 1;
    for (int i = 0; i < *dims; i++) size *= (size_t)shape[i];
    return size;
}

/* Features of the columns before [column]. */
static size_t first_feature(const struct preparation *preparation, size_t column, size_t features) {
    return column < preparation->count ? preparation->items[column].first : features;
}

static status differs(const struct dataset_config *config, const char *key, size_t named, size_t size) {
    return status_new(STATUS_USAGE, "%s: dataset.%s names %zu value%s of a row, but a row has %zu",
                      config->path ? config->path : "synthetic dataset", key, named, text_plural(named, "s"), size);
}

static status name_inputs(const struct dataset_config *config, const struct source *source,
                          const struct preparation *preparation, struct dataset_info *info, struct arena *arena) {
    const struct string_groups *groups = &config->input_groups;
    size_t index = 0, first = 0;
    struct dataset_input *inputs = arena_alloc(arena, (groups->count + 1) * sizeof *inputs);
    for (size_t g = 0; g < groups->count; g++) {
        struct dataset_input *input = &inputs[g];
        *input = (struct dataset_input){.name = arena_copy(arena, groups->items[g].name), .first = first, .dims = 1};
        if (preparation) input->tokens = preparation_tokens(preparation, index, groups->items[g].count);
        for (size_t i = 0; i < groups->items[g].count; i++, index++)
            input->size += preparation ? first_feature(preparation, index + 1, info->input_size) -
                                             first_feature(preparation, index, info->input_size)
                                       : shape_of(source, false, index, &input->dims, input->shape);
        if (groups->items[g].count > 1 || preparation) {
            input->dims = 1;
            input->shape[0] = (int64_t)input->size;
        }
        first += input->size;
    }
    info->inputs = inputs;
    info->input_count = groups->count;
    return groups->count == 0 || first == info->input_size ? OK : differs(config, "inputs", first, info->input_size);
}

const struct ignored_class *dataset_ignored_class(const struct dataset_config *config, const char *target) {
    for (size_t i = 0; i < config->class_targets.count; i++)
        if (strcmp(config->class_targets.items[i], target) == 0) return &config->class_targets_ignored[i];
    return NULL;
}

/* Checks the values of a target in all rows, and counts its classes. */
static status check_target(const struct dataset_config *config, struct table *table, struct dataset_target *target) {
    if (string_list_has(&config->probability_targets, target->name))
        TRY(table_check_range(table, TARGETS_ARE_PROBABILITIES, target->first, target->size));
    if (string_list_has(&config->sign_targets, target->name))
        TRY(table_check_range(table, TARGETS_ARE_SIGNS, target->first, target->size));
    const struct ignored_class *ignored = dataset_ignored_class(config, target->name);
    if (!ignored) return OK;
    struct class_count count;
    class_count_start(&count);
    table->ignored = *ignored;
    TRY(table_count_classes(table, target->first, target->size, &count));
    if (count.classes > MAX_CLASS)
        return status_new(STATUS_DATA, "dataset.targets: '%s' has the class %lld; the largest with `losses` is %d",
                          target->name, (long long)count.classes - 1, MAX_CLASS);
    if (count.classes > target->classes) target->classes = count.classes;
    if (count.first < target->first_class) target->first_class = count.first;
    return OK;
}

/* The target of a dataset without names of targets. */
static void set_whole_target(const struct source *source, struct dataset_target *target) {
    target->size = source->target_size;
    target->dims = source->target_dims;
    memcpy(target->shape, source->target_shape, sizeof target->shape);
}

static status name_targets(const struct dataset_config *config, struct table *tables, int n_tables,
                           struct dataset_info *info, struct arena *arena) {
    struct string_group whole = {DATASET_TARGET_NAME, config->targets.count};
    struct string_groups groups = config->target_groups;
    const struct source *source = tables[0].source;
    if (source->target_size == 0) groups.count = 0;
    if (groups.count == 0 && source->target_size > 0) groups = (struct string_groups){&whole, 1};
    size_t index = 0, first = 0;
    struct dataset_target *targets =
        arena_alloc(arena, (groups.count + config->input_targets.count + 1) * sizeof *targets);
    for (size_t g = 0; g < groups.count; g++) {
        struct dataset_target *target = &targets[g];
        *target = (struct dataset_target){
            .name = arena_copy(arena, groups.items[g].name), .first = first, .first_class = INT64_MAX};
        for (size_t i = 0; i < groups.items[g].count; i++, index++)
            target->size += shape_of(source, true, index, &target->dims, target->shape);
        if (groups.items[g].count != 1) target->dims = 0;
        if (groups.items == &whole) set_whole_target(source, target);
        first += target->size;
    }
    if (groups.count && first != source->target_size) return differs(config, "targets", first, source->target_size);
    for (size_t g = 0; g < groups.count; g++) {
        for (int i = 0; i < n_tables; i++) TRY(check_target(config, &tables[i], &targets[g]));
        if (!targets[g].classes) targets[g].first_class = 0;
    }
    info->targets = targets;
    info->target_count = groups.count;
    return OK;
}

/* Adds the inputs that are also targets. */
static status add_input_targets(const struct dataset_config *config, struct dataset_info *info) {
    struct dataset_target *targets = (struct dataset_target *)info->targets;
    for (size_t i = 0; i < config->input_targets.count; i++) {
        const char *name = config->input_targets.items[i];
        struct dataset_input whole = {.name = DATASET_INPUT_NAME, .size = info->input_size, .dims = info->input_dims};
        memcpy(whole.shape, info->input_shape, sizeof whole.shape);
        const struct dataset_input *input = info->input_count == 0 ? &whole : NULL;
        for (size_t n = 0; n < info->input_count; n++)
            if (strcmp(info->inputs[n].name, name) == 0) input = &info->inputs[n];
        if (!input || strcmp(input->name, name) != 0)
            return status_new(STATUS_USAGE, "losses: the target '%s' is neither a target nor an input of the dataset",
                              name);
        struct dataset_target *target = &targets[info->target_count++];
        *target = (struct dataset_target){.name = name,
                                          .first = info->target_size,
                                          .size = input->size,
                                          .dims = input->dims,
                                          .is_input = true,
                                          .input_first = input->first};
        memcpy(target->shape, input->shape, sizeof target->shape);
        info->target_size += input->size;
    }
    return OK;
}

status dataset_name_parts(const struct dataset_config *config, struct table *tables, int n_tables,
                          const struct preparation *preparation, struct dataset_info *info, struct arena *arena) {
    TRY(name_inputs(config, tables[0].source, preparation, info, arena));
    if (!config->has_losses) return OK;
    TRY(name_targets(config, tables, n_tables, info, arena));
    return add_input_targets(config, info);
}

void dataset_copy_inputs(const struct dataset_info *info, const float *inputs, size_t count, float *targets) {
    for (size_t t = 0; t < info->target_count; t++) {
        const struct dataset_target *target = &info->targets[t];
        for (size_t i = 0; target->is_input && i < count; i++)
            memcpy(targets + i * info->target_size + target->first, inputs + i * info->input_size + target->input_first,
                   target->size * sizeof *targets);
    }
}
