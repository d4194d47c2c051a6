/* The rows of an open dataset, and what is known about them. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/files/digest.h"
#include "base/scoped.h"
#include "data/dataset/open_dataset.h"

/* ---- reading ---- */

const struct dataset_info *dataset_info(const struct dataset *dataset) { return &dataset->info; }

size_t dataset_part_rows(const struct dataset_info *info, enum dataset_part part) {
    return part == DATASET_TRAIN ? info->train_rows : part == DATASET_TEST ? info->test_rows : info->validation_rows;
}

bool dataset_is_in_memory(const struct dataset *dataset) { return dataset->is_in_memory; }

void dataset_scaler(const struct dataset *dataset, const double **mean, const double **scale, size_t *features) {
    bool is_window = dataset->window_mean != NULL;
    *mean = is_window ? dataset->window_mean : dataset->scaler.mean;
    *scale = is_window ? dataset->window_scale : dataset->scaler.scale;
    *features = is_window ? dataset->info.input_size : dataset->scaler.features;
}

const char *dataset_vocabulary(const struct dataset *dataset) {
    const struct source *source = dataset->tables[0].source;
    return source ? source->characters : NULL;
}

const char *dataset_tokenizer(const struct dataset *dataset) {
    const struct source *source = dataset->tables[0].source;
    if (dataset->texts.json) return dataset->texts.json;
    return source ? source->tokenizer : NULL;
}

struct string_list dataset_labels(const struct dataset *dataset) {
    return dataset->labels;
}

struct column_list dataset_columns(const struct dataset *dataset) {
    return dataset->columns;
}

const char *dataset_target_name(const struct dataset *dataset) { return dataset->target_name; }

const struct preparation *dataset_preparation(const struct dataset *dataset) {
    return dataset->preparation.count ? &dataset->preparation : NULL;
}

void dataset_describe_columns(const struct dataset *dataset, const struct dataset_config *config, struct text *out) {
    const struct source *source = dataset->tables[0].source;
    if (!dataset->preparation.count || !source) return;
    columns_describe(&dataset->preparation, source->columns, &config->rules, out);
}

struct string_list dataset_notes(const struct dataset *dataset) {
    return dataset->notes;
}

double dataset_divide(const struct dataset *dataset) { return dataset->divide; }

struct row_list dataset_left_out(const struct dataset *dataset, enum dataset_part part) {
    return dataset->left_out[dataset->parts[part].table - dataset->tables];
}

/* The row of the file, from 0, that is [row] of a table whose file has rows that are left out. */
static size_t row_of_file(struct row_list left_out, size_t row) {
    size_t first = 0, end = left_out.count; /* the number of those before the row: the first that is behind it */
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (left_out.items[middle] - middle <= row)
            first = middle + 1;
        else
            end = middle;
    }
    return row + first;
}

/* [index]: in the part. */
static int64_t part_row(const struct dataset *dataset, enum dataset_part part, int64_t index) {
    size_t steps = dataset->info.windows.steps;
    size_t row = selection_row(&dataset->parts[part].rows, (size_t)index) + (steps ? steps - 1 : 0);
    return (int64_t)row_of_file(dataset_left_out(dataset, part), row);
}

size_t dataset_members(const struct dataset *dataset, enum dataset_part part, int64_t epoch, int64_t position,
                       int64_t rows[MAX_MEMBERS]) {
    size_t members = dataset->drawn.members ? dataset->drawn.members : 1;
    rows[0] = position;
    if (dataset->drawn.members) drawn_rows(dataset, part, epoch, &position, 1, rows);
    for (size_t i = 0; i < members; i++) rows[i] = part_row(dataset, part, rows[i]);
    return members;
}

void dataset_add_rows(const struct dataset *dataset, enum dataset_part part, int64_t epoch, int64_t position,
                      struct text *out) {
    int64_t rows[MAX_MEMBERS];
    size_t count = dataset_members(dataset, part, epoch, position, rows);
    for (size_t i = 0; i < count; i++) text_printf(out, "%s%lld", i ? ", " : count > 1 ? "(" : "", (long long)rows[i]);
    if (count > 1) text_add(out, ")");
}

int64_t dataset_row(const struct dataset *dataset, enum dataset_part part, int64_t position) {
    int64_t rows[MAX_MEMBERS];
    dataset_members(dataset, part, 0, position, rows);
    return rows[0];
}

status dataset_train_classes(struct dataset *dataset, int64_t *classes) {
    const struct dataset_rows *train = &dataset->parts[DATASET_TRAIN];
    SCOPED_BUFFER int64_t *all = NULL;
    if (dataset->drawn.members) {
        for (size_t i = 0; i < dataset->info.train_rows; i++) classes[i] = drawn_target(dataset, (int64_t)i);
        return OK;
    }
    TRY(rows_alloc(train->table->rows, sizeof(int64_t), "the classes", &all));
    pthread_mutex_lock(&dataset->reading);
    status s = table_classes(train->table, all);
    pthread_mutex_unlock(&dataset->reading);
    for (size_t i = 0; s == OK && i < dataset->info.train_rows; i++)
        classes[i] = all[selection_row(&train->rows, i) + dataset->info.windows.first_target];
    return s;
}

size_t dataset_target_bytes(const struct dataset_info *info) {
    return info->target_size * (info->target_kind == TARGET_CLASS ? sizeof(int64_t) : sizeof(float));
}

/* Moves targets (count, size) to rows that also have the inputs that are targets. */
static void spread_targets(const struct dataset_info *info, size_t size, size_t count, const float *inputs,
                           float *targets) {
    for (size_t i = count; size > 0 && i-- > 1;)
        memmove(targets + i * info->target_size, targets + i * size, size * sizeof *targets);
    dataset_copy_inputs(info, inputs, count, targets);
}

void dataset_will_read(struct dataset *dataset, enum dataset_part part, const int64_t *positions, size_t count) {
    const struct dataset_rows *from = &dataset->parts[part];
    if (dataset->is_in_memory || dataset->drawn.members) return;
    pthread_mutex_lock(&dataset->reading);
    table_will_read(from->table, &from->rows, positions, count);
    pthread_mutex_unlock(&dataset->reading);
}

static status read_rows(struct dataset *dataset, const struct dataset_rows *from, const int64_t *positions,
                        size_t count, void *inputs, void *targets) {
    bool needs_lock = !dataset->is_in_memory && dataset->info.input_kind != INPUT_TOKENS;
    if (needs_lock) pthread_mutex_lock(&dataset->reading);
    const struct dataset_windows *windows = &dataset->info.windows;
    status s = windows->steps ? table_read_windows(from->table, windows, &from->rows, positions, count, inputs, targets)
                              : table_read(from->table, &from->rows, positions, count, inputs, targets);
    if (needs_lock) pthread_mutex_unlock(&dataset->reading);
    return s;
}

/* ---- samples of dataset.draw ---- */

#define READ_SAMPLES 64 /* whose rows are read at once */

static void set_drawn_target(const struct dataset *dataset, int64_t position, size_t index, void *targets) {
    const struct dataset_info *info = &dataset->info;
    int64_t target = drawn_target(dataset, position);
    if (info->target_kind == TARGET_CLASS)
        ((int64_t *)targets)[index * info->target_size] = target;
    else
        ((float *)targets)[index * info->target_size] = (float)target;
}

/* The rows of a sample are adjacent in the batch. */
static status read_drawn(struct dataset *dataset, enum dataset_part part, int64_t epoch, const int64_t *positions,
                         size_t count, char *inputs, void *targets) {
    const struct drawn_samples *drawn = &dataset->drawn;
    size_t row_bytes = drawn->row_size * sizeof(float);
    for (size_t first = 0, n; first < count; first += n) {
        int64_t rows[READ_SAMPLES * MAX_MEMBERS], classes[READ_SAMPLES * MAX_MEMBERS];
        n = count - first < READ_SAMPLES ? count - first : READ_SAMPLES;
        drawn_rows(dataset, part, epoch, positions + first, n, rows);
        TRY(read_rows(dataset, &dataset->parts[part], rows, n * drawn->members,
                      inputs + first * drawn->members * row_bytes, classes));
        for (size_t i = first; i < first + n && drawn->has_targets; i++)
            set_drawn_target(dataset, positions[i], i, targets);
    }
    dataset_copy_inputs(&dataset->info, (const float *)(const void *)inputs, count, targets);
    return OK;
}

status dataset_read_epoch(struct dataset *dataset, enum dataset_part part, int64_t epoch, const int64_t *positions,
                          size_t count, void *inputs, void *targets) {
    assert(!dataset->is_metadata);
    const struct dataset_rows *from = &dataset->parts[part];
    if (dataset->drawn.members) return read_drawn(dataset, part, epoch, positions, count, inputs, targets);
    TRY(read_rows(dataset, from, positions, count, inputs, targets));
    if (!dataset->info.windows.steps && dataset->info.target_size > from->table->target_size)
        spread_targets(&dataset->info, from->table->target_size, count, inputs, targets);
    return OK;
}

status dataset_read(struct dataset *dataset, enum dataset_part part, const int64_t *positions, size_t count,
                    void *inputs, void *targets) {
    return dataset_read_epoch(dataset, part, 0, positions, count, inputs, targets);
}

/* ---- other values of rows ---- */

status dataset_read_file_targets(struct dataset *dataset, enum dataset_part part, const int64_t *positions,
                                 size_t count, double *targets) {
    const struct dataset_rows *from = &dataset->parts[part];
    const struct dataset_windows *windows = &dataset->info.windows;
    size_t rows = windows->steps ? windows->target_steps : 1, behind = windows->steps ? windows->first_target : 0;
    status s = OK;
    if (!dataset->is_in_memory) pthread_mutex_lock(&dataset->reading);
    for (size_t i = 0; !s && i < count; i++)
        s = table_read_file_targets(from->table, selection_row(&from->rows, (size_t)positions[i]) + behind, rows,
                                    targets + i * dataset->info.target_size);
    if (!dataset->is_in_memory) pthread_mutex_unlock(&dataset->reading);
    return s;
}

void dataset_read_weights(const struct dataset *dataset, enum dataset_part part, const int64_t *positions, size_t count,
                          bool is_divided, float *weights) {
    const struct dataset_rows *from = &dataset->parts[part];
    double divisor = is_divided ? dataset->info.weights.mean : 1;
    for (size_t i = 0; i < count; i++)
        weights[i] = (float)(from->table->weights[selection_row(&from->rows, (size_t)positions[i])] / divisor);
}

status dataset_explain_columns(const struct dataset_config *config, status failure) {
    const struct dataset_format *format = config->path ? dataset_format_of(config, config->path) : NULL;
    bool is_named = config->request.columns.count || config->inputs.count || config->targets.count ||
                    config->request.trained_inputs;
    bool may_be_wrong = status_code(failure) == STATUS_DATA || status_code(failure) == STATUS_USAGE;
    if (!may_be_wrong || !config->request.without_targets || is_named || format != &dataset_csv) return failure;
    status s = status_new(status_code(failure),
                          "%s\nthe checkpoint does not have the names of the columns, so the last column of %s was "
                          "taken for the target; if the file has no target, name its columns: dataset.inputs=[a, b, c]",
                          status_message(failure), config->path);
    status_free(failure);
    return s;
}

/* ---- rows in memory that change ---- */

/* Rows in memory stay as they were read, and are read in every epoch: a bit that flips there has an effect on all later
 * steps. A hash for each block of rows finds it, and where it is. */

#define BLOCK_BYTES 65536 /* of rows, about: as many as a message names */

/* Of all arrays with the rows of [t]; 0: its rows are not in memory. */
static size_t row_bytes(const struct table *t) {
    size_t inputs = (t->inputs ? sizeof *t->inputs : 0) + (t->bytes ? 1 : 0);
    size_t target = t->target_kind == TARGET_CLASS ? sizeof(int64_t) : sizeof(float);
    if (!t->targets) return 0;
    return (t->bytes ? t->input_size : t->stored_size) * inputs +
           t->target_size * (target + (t->file_targets ? sizeof *t->file_targets : 0)) +
           (t->weights ? sizeof *t->weights : 0);
}

static size_t rows_of_block(const struct table *t) {
    size_t bytes = row_bytes(t);
    return bytes < BLOCK_BYTES ? BLOCK_BYTES / bytes : 1;
}

static size_t count_blocks(const struct table *t) {
    return row_bytes(t) ? (t->rows + rows_of_block(t) - 1) / rows_of_block(t) : 0;
}

/* [size]: bytes of a row. */
static uint64_t add_rows(uint64_t hash, const void *rows, size_t size, size_t first, size_t count) {
    return rows ? hash_add(hash, (const char *)rows + first * size, count * size) : hash;
}

static uint64_t hash_block(const struct table *t, size_t first, size_t count) {
    size_t target = t->target_kind == TARGET_CLASS ? sizeof(int64_t) : sizeof(float);
    uint64_t hash = add_rows(0, t->inputs, t->stored_size * sizeof *t->inputs, first, count);
    hash = add_rows(hash, t->bytes, t->input_size, first, count);
    hash = add_rows(hash, t->targets, t->target_size * target, first, count);
    hash = add_rows(hash, t->file_targets, t->target_size * sizeof *t->file_targets, first, count);
    return add_rows(hash, t->weights, sizeof *t->weights, first, count);
}

static size_t rows_from(const struct table *t, size_t first) {
    size_t left = t->rows - first, block = rows_of_block(t);
    return left < block ? left : block;
}

double dataset_hash_rows(struct dataset *dataset) {
    if (dataset->hash_seconds > 0) return dataset->hash_seconds;
    double start = clock_seconds();
    size_t all = 0;
    for (int i = 0; i < dataset->n_tables; i++) {
        const struct table *t = &dataset->tables[i];
        size_t blocks = count_blocks(t);
        dataset->row_hashes[i] = arena_alloc(dataset->arena, (blocks + 1) * sizeof *dataset->row_hashes[i]);
        for (size_t b = 0, first = 0; b < blocks; first += rows_from(t, first), b++)
            dataset->row_hashes[i][b] = hash_block(t, first, rows_from(t, first));
        all += blocks;
    }
    if (all) dataset->hash_seconds = fmax(clock_seconds() - start, 1e-9);
    return dataset->hash_seconds;
}

bool dataset_find_changed(const struct dataset *dataset, struct changed_rows *out) {
    for (int i = 0; i < dataset->n_tables && dataset->hash_seconds > 0; i++) {
        const struct table *t = &dataset->tables[i];
        for (size_t b = 0, first = 0; b < count_blocks(t); first += rows_from(t, first), b++) {
            if (hash_block(t, first, rows_from(t, first)) == dataset->row_hashes[i][b]) continue;
            size_t last = first + rows_from(t, first) - 1;
            *out = (struct changed_rows){.first = row_of_file(dataset->left_out[i], first),
                                         .last = row_of_file(dataset->left_out[i], last),
                                         .is_validation_file = i > 0};
            return true;
        }
    }
    return false;
}

/* ---- augmentation ---- */

/* dataset.augment: which values of a row are images, and their changes. Targets with a place in the image must move
 * with it: those of its height and width do, others are refused. */

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
        return status_new(
            STATUS_USAGE,
            "dataset.augment.color_jitter needs images of 1 or 3 channels (RGB), but these have %zu; remove it",
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
    SCOPED_TEXT shape = {0};
    source_add_shape(target->dims, target->shape, &shape);
    return status_usage("dataset.augment moves the pixels of the inputs, but cannot move those of the targets (%s); %s",
                        text_string(&shape), advice);
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
    return status_usage("dataset.augment moves the pixels of the inputs, but cannot move targets that are lists of as "
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
    if (!config->request.has_losses)
        return plan_target(dataset, info->target_kind == TARGET_CLASS ? &config->request.ignored : NULL, &whole, moved,
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
        SCOPED_TEXT shape = {0};
        source_add_shape(source->input_dims, source->input_shape, &shape);
        return status_usage("dataset.augment needs images, (channels, height, width), but a row is %s",
                            text_string(&shape));
    }
    float *fill;
    TRY(rows_alloc((size_t)source->input_shape[0], sizeof *fill + sizeof(struct color_range), "the augmentation",
                   &fill));
    *augment = (struct augment){.config = config->augment,
                                .channels = (size_t)source->input_shape[0],
                                .height = (size_t)source->input_shape[1],
                                .width = (size_t)source->input_shape[2],
                                .fill = fill};
    augment->colors = (struct color_range *)(void *)(augment->fill + augment->channels);
    augment_prepare(augment);
    for (size_t c = 0; c < augment->channels; c++) {
        augment->fill[c] = scaled_black(source, &dataset->scaler, c);
        augment->colors[c] = color_range(source, &dataset->scaler, c);
    }
    if (config->request.is_trained) return OK; /* eval and predict change nothing */
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
    size_t members = dataset->drawn.members ? dataset->drawn.members : 1, size = info->input_size / members;
    int64_t *from = scratch;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < members; k++) /* of a sample, each image in its own way */
            augment_image(augment, epoch, positions[i] * (int64_t)members + (int64_t)k,
                          inputs + (i * members + k) * size, scratch);
        if (!dataset->moved_count) continue;
        augment_pixels(augment, epoch, positions[i], from);
        move_targets(dataset, from, (char *)targets + i * dataset_target_bytes(info),
                     (char *)(from + augment->height * augment->width));
    }
}

/* ---- the baseline ---- */

/* Targets are in memory as losses get them, so nothing is read and nothing is scaled here. */

const char *const baseline_names[] = {[BASELINE_CLASS] = "always the most frequent class",
                                      [BASELINE_MEAN] = "always the mean of the training rows",
                                      [BASELINE_LAST] = "always the last value"};

#define MAX_CLASSES ((int64_t)1 << 24)

/* The targets (info.target_size) of row [position] of [part], which are adjacent also in a window. */
static size_t first_target(const struct dataset *dataset, const struct dataset_rows *part, size_t position) {
    return (selection_row(&part->rows, position) + dataset->info.windows.first_target) * part->table->target_size;
}

static bool is_counted(const struct table *table, int64_t class, int64_t classes) {
    return class >= 0 && class < classes && !(table->ignored.is_set && class == table->ignored.value);
}

static struct baseline of_classes(const struct dataset *dataset) {
    const struct dataset_info *info = &dataset->info;
    const struct dataset_rows *train = &dataset->parts[DATASET_TRAIN],
                              *validation = &dataset->parts[DATASET_VALIDATION];
    SCOPED_BUFFER size_t *counts = NULL;
    if (info->classes <= MAX_CLASSES)
        status_free(buffer_new((size_t)info->classes * sizeof *counts, "the classes", &counts));
    size_t right = 0, counted = 0;
    int64_t frequent = 0;
    if (!counts) return (struct baseline){BASELINE_NONE, 0, 0, 0};
    for (size_t i = 0; i < info->train_rows; i++) {
        const int64_t *targets = (const int64_t *)train->table->targets + first_target(dataset, train, i);
        for (size_t k = 0; k < info->target_size; k++)
            if (is_counted(train->table, targets[k], info->classes)) counts[targets[k]]++;
    }
    for (int64_t c = 1; c < info->classes; c++)
        if (counts[c] > counts[frequent]) frequent = c;
    for (size_t i = 0; i < info->validation_rows; i++) {
        const int64_t *targets = (const int64_t *)validation->table->targets + first_target(dataset, validation, i);
        for (size_t k = 0; k < info->target_size; k++) {
            if (!is_counted(validation->table, targets[k], info->classes)) continue;
            right += targets[k] == frequent;
            counted++;
        }
    }
    return (struct baseline){.kind = counted ? BASELINE_CLASS : BASELINE_NONE,
                             .accuracy = (double)right / (double)(counted ? counted : 1)};
}

/* The mean (info.target_size) of each training target. */
static void find_means(const struct dataset *dataset, double *means) {
    const struct dataset_info *info = &dataset->info;
    const struct dataset_rows *train = &dataset->parts[DATASET_TRAIN];
    for (size_t i = 0; i < info->train_rows; i++) {
        const float *targets = (const float *)train->table->targets + first_target(dataset, train, i);
        for (size_t k = 0; k < info->target_size; k++) means[k] += targets[k];
    }
    for (size_t k = 0; k < info->target_size; k++) means[k] /= (double)info->train_rows;
}

static struct baseline of_values(const struct dataset *dataset) {
    const struct dataset_info *info = &dataset->info;
    const struct dataset_rows *validation = &dataset->parts[DATASET_VALIDATION];
    const float *all = validation->table->targets;
    size_t of_row = validation->table->target_size, steps = info->windows.steps;
    struct baseline b = {.kind = steps ? BASELINE_LAST : BASELINE_MEAN};
    double *means = steps ? NULL : calloc(info->target_size, sizeof *means);
    if (!steps && !means) return (struct baseline){BASELINE_NONE, 0, 0, 0};
    if (means) find_means(dataset, means);
    for (size_t i = 0; i < info->validation_rows; i++) {
        const float *targets = all + first_target(dataset, validation, i);
        const float *last = all + (selection_row(&validation->rows, i) + (steps ? steps - 1 : 0)) * of_row;
        for (size_t k = 0; k < info->target_size; k++) {
            double error = targets[k] - (means ? means[k] : last[k % of_row]);
            b.squared += error * error;
            b.absolute += fabs(error);
        }
    }
    free(means);
    b.squared /= (double)(info->validation_rows * info->target_size);
    b.absolute /= (double)(info->validation_rows * info->target_size);
    return b;
}

struct baseline baseline_of(const struct dataset *dataset) {
    const struct dataset_info *info = &dataset->info;
    bool has_rows = info->validation_rows && info->target_size && !info->has_weights && !info->target_count &&
                    !dataset->drawn.members;
    bool is_read =
        has_rows && dataset->parts[DATASET_TRAIN].table->targets && dataset->parts[DATASET_VALIDATION].table->targets;
    if (!is_read || info->input_kind == INPUT_TOKENS) return (struct baseline){BASELINE_NONE, 0, 0, 0};
    return info->target_kind == TARGET_CLASS ? of_classes(dataset) : of_values(dataset);
}
