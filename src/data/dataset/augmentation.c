/* dataset.augment: which values of a row are images, and their changes. Targets with a place in the image must move
 * with it: those of its height and width do, others are refused. */
#include <string.h>

#include "data/dataset/open_dataset.h"

static float scaled_black(const struct source *source, const struct scaler *scaler, size_t channel) {
    size_t feature = scaler->features > 1 ? channel : 0;
    if (source->is_bytes) return byte_table_value(scaler, feature, source->divide, 0);
    return scaler->features ? (float)((0 - scaler->mean[feature]) / scaler->scale[feature]) : 0;
}

/* ---- colours ---- */

/* Bytes are shares of 255, other values are shares of 1 already. */
static struct color_range color_range(const struct source *source, const struct scaler *scaler, size_t channel) {
    size_t feature = scaler->features > 1 ? channel : 0;
    double largest = source->is_bytes ? 255 / source->divide : 1;
    double mean = scaler->features ? scaler->mean[feature] : 0, scale = scaler->features ? scaler->scale[feature] : 1;
    return (struct color_range){(float)(scale / largest), (float)(mean / largest)};
}

#define CHECKED_ROWS 64

static bool is_no_share(double value) { return value < 0 || value > 1; }

/* The first training rows of values that are not bytes must be 0 .. 1. */
static status check_colors(struct dataset *dataset) {
    const struct dataset_rows *train = &dataset->parts[DATASET_TRAIN];
    size_t channels = dataset->augment.channels, count = dataset->info.train_rows;
    if (channels != 1 && channels != 3)
        return status_new(STATUS_USAGE,
                          "dataset.augment.color_jitter needs images of 1 or 3 channels (RGB), but these have %zu; "
                          "remove it",
                          channels);
    if (dataset->is_metadata || train->table->source->is_bytes) return OK;
    for (size_t i = 0; i < count && i < CHECKED_ROWS; i++)
        TRY(table_check_inputs(train->table, selection_row(&train->rows, i), is_no_share,
                               "is not from 0 to 1, as dataset.augment.color_jitter needs it; if 255 is the largest "
                               "value, write dataset.divide: 255"));
    return OK;
}

/* ---- which targets move ---- */

/* "dataset.augment moves the pixels of the inputs, but ...; <advice>" */
static status refuse(const struct dataset_target *target, const char *advice) {
    struct text shape = {0};
    source_add_shape(target->dims, target->shape, &shape);
    status s = status_new(STATUS_USAGE,
                          "dataset.augment moves the pixels of the inputs, but cannot move those of the targets (%s); "
                          "%s",
                          text_string(&shape), advice);
    text_free(&shape);
    return s;
}

/* Whether the height and the width of [target] are those of the inputs. */
static bool is_image(const struct augment *augment, const struct dataset_target *target) {
    return target->dims >= 2 && target->shape[target->dims - 2] == (int64_t)augment->height &&
           target->shape[target->dims - 1] == (int64_t)augment->width;
}

#define MIN_LISTED_PIXELS 256 /* lists of fewer values may be labels */

/* A list of as many values as pixels is an image, too. */
static status check_list(const struct augment *augment, const struct dataset_target *target) {
    size_t pixels = augment->height * augment->width;
    if (pixels < MIN_LISTED_PIXELS || target->size % pixels) return OK;
    return status_new(STATUS_USAGE,
                      "dataset.augment moves the pixels of the inputs, but cannot move targets that are lists of as "
                      "many values (%zu); store them as (rows, %zu, %zu, %zu)",
                      target->size, target->size / pixels, augment->height, augment->width);
}

/* Adds [target] to *moved (count), if it moves. [ignored]: NULL for values. */
static status plan_target(const struct dataset *dataset, const struct ignored_class *ignored,
                          const struct dataset_target *target, struct moved_target *moved, size_t *count) {
    const struct augment *augment = &dataset->augment;
    const struct target_scale *scale = dataset->info.target_scale;
    if (!is_image(augment, target) && source_has_shape(target->dims, target->shape))
        return refuse(target, "remove dataset.augment; or, if the targets have no place in the image, store them as "
                              "lists (rows, values)");
    if (!is_image(augment, target)) return check_list(augment, target);
    if (scale && scale->type != TARGET_SCALE_LOG1P)
        return refuse(target, "dataset.target_scale scales each pixel for itself; remove one of the two");
    moved[(*count)++] = (struct moved_target){.first = target->first,
                                              .channels = target->size / (augment->height * augment->width),
                                              .fill = ignored && ignored->is_set ? ignored->value : 0};
    return OK;
}

static status plan_targets(struct dataset *dataset, const struct dataset_config *config) {
    const struct dataset_info *info = &dataset->info;
    struct moved_target *moved = arena_alloc(dataset->arena, (info->target_count + 1) * sizeof *moved);
    struct dataset_target whole = {.size = info->target_size, .dims = info->target_dims};
    memcpy(whole.shape, info->target_shape, sizeof whole.shape);
    dataset->moved = moved;
    if (info->target_size == 0) return OK;
    if (!config->has_losses)
        return plan_target(dataset, info->target_kind == TARGET_CLASS ? &config->ignored : NULL, &whole, moved,
                           &dataset->moved_count);
    for (size_t i = 0; i < info->target_count; i++) {
        const struct dataset_target *target = &info->targets[i];
        if (target->is_input) continue;
        TRY(plan_target(dataset, dataset_ignored_class(config, target->name), target, moved, &dataset->moved_count));
    }
    return OK;
}

/* ---- the changes ---- */

status dataset_prepare_augment(struct dataset *dataset, const struct dataset_config *config) {
    const struct source *source = dataset->tables[0].source;
    struct augment *augment = &dataset->augment;
    if (!augment_is_on(&config->augment)) return OK;
    if (source->input_dims != 3 || source->input_kind == INPUT_TOKENS) {
        struct text shape = {0};
        source_add_shape(source->input_dims, source->input_shape, &shape);
        status s = status_new(STATUS_USAGE, "dataset.augment needs images, (channels, height, width), but a row is %s",
                              text_string(&shape));
        text_free(&shape);
        return s;
    }
    void *memory;
    TRY(rows_alloc((size_t)source->input_shape[0], sizeof(float) + sizeof(struct color_range), "the augmentation",
                   &memory));
    *augment = (struct augment){.config = config->augment,
                                .channels = (size_t)source->input_shape[0],
                                .height = (size_t)source->input_shape[1],
                                .width = (size_t)source->input_shape[2],
                                .fill = memory};
    augment->colors = (struct color_range *)(void *)(augment->fill + augment->channels);
    augment_prepare(augment);
    for (size_t c = 0; c < augment->channels; c++) {
        augment->fill[c] = scaled_black(source, &dataset->scaler, c);
        augment->colors[c] = color_range(source, &dataset->scaler, c);
    }
    if (config->is_trained) return OK; /* eval and predict change nothing */
    if (augment->color_jitter.is_on) TRY(check_colors(dataset));
    return augment_moves(&config->augment) ? plan_targets(dataset, config) : OK;
}

bool dataset_augments(const struct dataset *dataset) { return dataset->augment.fill != NULL; }

size_t dataset_augment_bytes(const struct dataset *dataset) {
    size_t pixels = dataset->augment.height * dataset->augment.width, inputs = dataset->info.input_size * sizeof(float);
    size_t moved = 2 * pixels * sizeof(int64_t); /* the pixels that they were, and those of a channel */
    return dataset->moved_count && moved > inputs ? moved : inputs;
}

/* Each pixel of a channel becomes the pixel [from], or [fill]; values have [bytes] bytes. */
static void move_channel(const int64_t *from, size_t pixels, const void *fill, size_t bytes, char *channel,
                         char *scratch) {
    memcpy(scratch, channel, pixels * bytes);
    for (size_t i = 0; i < pixels; i++)
        memcpy(channel + i * bytes, from[i] < 0 ? fill : scratch + (size_t)from[i] * bytes, bytes);
}

static void move_targets(const struct dataset *dataset, const int64_t *from, char *row, char *scratch) {
    size_t pixels = dataset->augment.height * dataset->augment.width;
    for (size_t i = 0; i < dataset->moved_count; i++) {
        const struct moved_target *moved = &dataset->moved[i];
        const float value = (float)moved->fill;
        bool is_class = dataset->info.target_kind == TARGET_CLASS;
        const void *fill = is_class ? (const void *)&moved->fill : &value;
        size_t bytes = is_class ? sizeof(int64_t) : sizeof(float);
        for (size_t c = 0; c < moved->channels; c++)
            move_channel(from, pixels, fill, bytes, row + (moved->first + c * pixels) * bytes, scratch);
    }
}

void dataset_augment(const struct dataset *dataset, int64_t epoch, const int64_t *positions, size_t count,
                     float *inputs, void *targets, void *scratch) {
    const struct dataset_info *info = &dataset->info;
    const struct augment *augment = &dataset->augment;
    int64_t *from = scratch;
    for (size_t i = 0; i < count; i++) {
        augment_image(augment, epoch, positions[i], inputs + i * info->input_size, scratch);
        if (!dataset->moved_count) continue;
        augment_pixels(augment, epoch, positions[i], from);
        move_targets(dataset, from, (char *)targets + i * dataset_target_bytes(info),
                     (char *)(from + augment->height * augment->width));
    }
}
