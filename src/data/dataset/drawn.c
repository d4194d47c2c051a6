/* dataset.draw: a sample is a pair or a triplet of rows, drawn by their classes, as in PyTorch's example
 * siamese_network. Which rows, is a function of seed, epoch and position, so it does not depend on ranks, and a run
 * resumes in the middle of an epoch. The rows stay in their table; only positions are drawn. */
#include <stdlib.h>
#include <string.h>

#include "base/numbers/rng.h"
#include "base/scoped.h"
#include "data/dataset/open_dataset.h"

/* ---- keys ---- */

static const char *const types[] = {"none", "pairs", "triplets", NULL};

static const struct schema_row keys[] = {
    SCHEMA_ROW(CHOICE, struct draw_config, type, .fallback = "none", .choices = types,
               .doc = "pairs: the inputs are first and second, and the target is 1 for rows of one class, which every "
                      "other pair has, and 0 for two classes (-1 for a loss that takes 1 and -1). triplets: the inputs "
                      "are anchor and positive, of one class, and negative, of another; without a target. An epoch has "
                      "as many as there are rows. Those for validation are the same after each epoch."),
    SCHEMA_ROW(INT, struct draw_config, seed, .fallback = "0", .min = 0, .max = 4294967295.0, .flags = SCHEMA_INFERENCE,
               .doc = "With the epoch, what is drawn depends on it."),
    {0},
};

const struct schema draw_section = SCHEMA("dataset.draw", struct draw_config, .rows = keys, .shorthand = "type");

static const struct {
    size_t members;
    struct string_groups inputs;
} members_of[] = {
    [DRAW_PAIRS] = {2, {(struct string_group[]){{"first", 1}, {"second", 1}}, 2}},
    [DRAW_TRIPLETS] = {3, {(struct string_group[]){{"anchor", 1}, {"positive", 1}, {"negative", 1}}, 3}},
};

const struct string_groups *dataset_input_groups(const struct dataset_config *config) {
    return config->draw.type ? &members_of[config->draw.type].inputs : &config->input_groups;
}

struct dataset_config drawn_row_config(const struct dataset_config *config) {
    struct dataset_config of_rows = *config;
    struct dataset_request *request = &of_rows.request;
    size_t members = members_of[config->draw.type].members;
    request->target_range = TARGETS_ARE_ANY;
    request->ignored = (struct ignored_class){0};
    request->balances_classes = request->has_losses = false;
    request->without_targets = request->draws_in_order;
    request->class_targets.count = request->input_targets.count = 0;
    for (size_t i = 0; i < TARGET_RANGES; i++) request->range_targets[i].count = 0;
    request->trained_inputs /= members;
    struct real_list *scales[] = {&of_rows.scale.mean, &of_rows.scale.std};
    for (size_t i = 0; i < 2; i++) /* of a checkpoint: one for each value of a sample */
        if (config->scale.is_fitted && scales[i]->count > 1) scales[i]->count /= members;
    return of_rows;
}

/* ---- drawing ---- */

static uint64_t below(uint32_t word, uint64_t count) { return word * count >> 32; }

/* A number below [count] that is not [other]. */
static uint64_t below_without(uint32_t word, uint64_t count, uint64_t other) {
    uint64_t number = below(word, count - 1);
    return number + (number >= other);
}

static bool is_same(uint64_t position) { return position % 2 == 0; }

static int64_t row_of(const struct class_rows *part, uint64_t class, uint32_t word) {
    return part->rows[part->starts[class] + below(word, part->starts[class + 1] - part->starts[class])];
}

/* First a class, then a row of it: classes are equally frequent, however many rows they have. */
static void draw(const struct drawn_samples *samples, const struct class_rows *part, int64_t epoch, uint64_t position,
                 int64_t *rows) {
    bool is_triplet = samples->type == DRAW_TRIPLETS, has_positive = is_triplet || is_same(position);
    uint32_t words[2][4];
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t counter[] = {(uint32_t)position, (uint32_t)(position >> 32), (uint32_t)epoch, i};
        philox(counter, (uint32_t)samples->seed, 0x64726177);
        memcpy(words[i], counter, sizeof counter);
    }
    uint64_t class = below(words[0][0], has_positive ? part->shared : part->classes);
    uint64_t first = below(words[0][1], part->starts[class + 1] - part->starts[class]);
    *rows++ = part->rows[part->starts[class] + first];
    if (has_positive) {
        uint64_t count = part->starts[class + 1] - part->starts[class];
        *rows++ = part->rows[part->starts[class] + below_without(words[0][2], count, first)];
    }
    if (is_triplet || !has_positive)
        *rows = row_of(part, below_without(words[1][0], part->classes, class), words[1][1]);
}

void drawn_rows(const struct dataset *dataset, enum dataset_part part, int64_t epoch, const int64_t *positions,
                size_t count, int64_t *rows) {
    const struct drawn_samples *s = &dataset->drawn;
    for (size_t i = 0; i < count; i++, rows += s->members)
        if (s->parts[part].rows)
            draw(s, &s->parts[part], epoch, (uint64_t)positions[i], rows);
        else
            for (size_t k = 0; k < s->members; k++) rows[k] = positions[i] * (int64_t)s->members + (int64_t)k;
}

int64_t drawn_target(const struct dataset *dataset, int64_t position) {
    return is_same((uint64_t)position) ? 1 : dataset->drawn.are_signs ? -1 : 0;
}

struct dataset_drawing dataset_drawing(const struct dataset *dataset) {
    const struct drawn_samples *s = &dataset->drawn;
    return (struct dataset_drawing){.members = s->members,
                                    .different = drawn_target(dataset, 1),
                                    .has_texts = s->has_texts,
                                    .target_name = s->target_name};
}

/* ---- opening ---- */

struct class_row {
    int64_t class, position;
};

static int by_class(const void *left, const void *right) {
    const struct class_row *a = left, *b = right;
    int order = (a->class > b->class) - (a->class < b->class);
    return order ? order : (a->position > b->position) - (a->position < b->position);
}

/* Adds the rows first .. end - 1, of one class, to [part]. */
static void add_class(struct class_rows *part, const struct class_row *sorted, size_t first, size_t end) {
    size_t at = part->classes ? part->starts[part->classes] : 0;
    for (size_t i = first; i < end; i++) part->rows[at + i - first] = sorted[i].position;
    part->starts[++part->classes] = at + end - first;
    part->shared += end - first > 1;
}

/* Sets [part], classes with several rows first. Rows of a negative class, which losses leave out, are in none. */
static void group_rows(const struct class_row *sorted, size_t count, struct class_rows *part) {
    for (int pass = 0; pass < 2; pass++)
        for (size_t first = 0, end; first < count; first = end) {
            for (end = first; end < count && sorted[end].class == sorted[first].class;) end++;
            if (sorted[first].class >= 0 && (end - first > 1) == (pass == 0)) add_class(part, sorted, first, end);
        }
}

static status sort_part(struct dataset *dataset, enum dataset_part which, const int64_t *classes, const char *path) {
    static const char *const names[] = {
        [DATASET_TRAIN] = "training", [DATASET_VALIDATION] = "validation", [DATASET_TEST] = "test"};
    struct class_rows *part = &dataset->drawn.parts[which];
    size_t count = dataset_part_rows(&dataset->info, which);
    SCOPED_BUFFER struct class_row *sorted = NULL;
    part->rows = arena_alloc(dataset->arena, (count + 1) * sizeof *part->rows);
    part->starts = arena_alloc(dataset->arena, (count + 2) * sizeof *part->starts);
    part->starts[0] = 0;
    TRY(rows_alloc(count, sizeof(struct class_row), "the classes", &sorted));
    for (size_t i = 0; i < count; i++)
        sorted[i] = (struct class_row){classes[selection_row(&dataset->parts[which].rows, i)], (int64_t)i};
    qsort(sorted, count, sizeof *sorted, by_class);
    group_rows(sorted, count, part);
    if (part->classes > 1 && part->shared > 0) return OK;
    return status_new(
        STATUS_DATA,
        "%s: dataset.draw: samples need two classes, one of them with two rows, but %zu %s row%s %s %zu class%s",
        path ? path : "synthetic dataset", count, names[which], text_plural(count, "s"), count == 1 ? "has" : "have",
        part->classes, text_plural(part->classes, "es"));
}

static status sort_rows(struct dataset *dataset, const struct dataset_config *config) {
    for (enum dataset_part part = DATASET_TRAIN; part < DATASET_PARTS; part++) {
        struct table *table = dataset->parts[part].table;
        SCOPED_BUFFER int64_t *classes = NULL;
        if (dataset_part_rows(&dataset->info, part) == 0) continue;
        TRY(rows_alloc(table->rows, sizeof(int64_t), "the classes", &classes));
        TRY(table_classes(table, classes));
        bool is_own = part == DATASET_VALIDATION && config->validation.path;
        TRY(sort_part(dataset, part, classes, is_own ? config->validation.path : config->path));
    }
    return OK;
}

/* Samples that are the rows one after another. */
static status count_in_order(struct dataset *dataset, const struct dataset_config *config) {
    size_t members = dataset->drawn.members, *rows = &dataset->info.train_rows;
    if (*rows % members)
        return status_new(
            STATUS_DATA,
            "%s: %zu row%s cannot be divided into %s: %zu rows, one after another, are a sample (dataset.draw)",
            config->path ? config->path : "the rows", *rows, text_plural(*rows, "s"), types[config->draw.type],
            members);
    *rows /= members;
    return OK;
}

static void set_inputs(struct dataset *dataset) {
    struct dataset_info *info = &dataset->info;
    struct drawn_samples *s = &dataset->drawn;
    struct dataset_input *inputs = arena_alloc(dataset->arena, s->members * sizeof *inputs);
    for (size_t i = 0; i < s->members; i++) {
        inputs[i] = (struct dataset_input){.name = members_of[s->type].inputs.items[i].name,
                                           .first = i * s->row_size,
                                           .size = s->row_size,
                                           .dims = info->input_dims,
                                           .tokens = info->input_tokens};
        memcpy(inputs[i].shape, info->input_shape, sizeof inputs[i].shape);
    }
    info->inputs = inputs;
    info->input_count = s->members;
    info->input_size *= s->members;
    info->input_dims = 1;
    memset(info->input_shape, 0, sizeof info->input_shape);
    info->input_shape[0] = (int64_t)info->input_size;
}

static void set_targets(struct dataset *dataset, const struct dataset_config *config, bool wants_classes) {
    struct dataset_info *info = &dataset->info;
    const struct dataset_request *request = &config->request;
    const struct string_groups *groups = &config->target_groups;
    bool has_target = dataset->drawn.has_targets;
    info->target_kind = wants_classes ? TARGET_CLASS : TARGET_VALUES;
    info->is_binary = !wants_classes && request->target_range == TARGETS_ARE_PROBABILITIES;
    bool has_lists = request->target_range == TARGETS_ARE_CLASS_LISTS;
    info->classes = has_target && (wants_classes || has_lists) ? 2 : 0;
    info->first_class = info->absent_class = 0;
    info->target_size = has_target;
    info->target_dims = 0;
    dataset->labels.count = 0;
    dataset->target_name = NULL;
    if (request->balances_classes && has_target) {
        info->class_weights = (struct real_list){.items = arena_alloc(dataset->arena, 2 * sizeof(double)), .count = 2};
        info->class_weights.items[0] = info->class_weights.items[1] = 1; /* the pairs are balanced */
    }
    if (!request->has_losses) return;
    struct dataset_target *target = arena_alloc(dataset->arena, (1 + request->input_targets.count) * sizeof *target);
    *target = (struct dataset_target){
        .name = groups->count ? groups->items[0].name : DATASET_TARGET_NAME,
        .size = 1,
        .classes = request->class_targets.count || request->range_targets[TARGETS_ARE_CLASS_LISTS].count ? 2 : 0};
    info->targets = target;
    info->target_count = has_target;
}

/* The scale of each value of a sample; one number for all stays one. */
static void repeat_scale(struct dataset *dataset) {
    const struct scaler *scaler = &dataset->scaler;
    size_t size = dataset->info.input_size;
    if (scaler->features == 0) return;
    dataset->window_mean = arena_alloc(dataset->arena, size * sizeof(double));
    dataset->window_scale = arena_alloc(dataset->arena, size * sizeof(double));
    for (size_t i = 0; i < size; i++) {
        size_t feature = i % dataset->drawn.row_size / scaler->block;
        dataset->window_mean[i] = scaler->mean[feature];
        dataset->window_scale[i] = scaler->scale[feature];
    }
}

status drawn_open(struct dataset *dataset, const struct dataset_config *config, bool wants_classes) {
    struct drawn_samples *s = &dataset->drawn;
    struct dataset_info *info = &dataset->info;
    bool in_order = config->request.draws_in_order, is_pair = config->draw.type == DRAW_PAIRS;
    if (!in_order && (info->input_kind == INPUT_TOKENS || info->target_size != 1))
        return status_usage("dataset.draw: it needs one class per row, but a row has %zu targets", info->target_size);
    if (!in_order && !is_pair && !config->request.has_losses)
        return status_usage("dataset.draw: triplets have no target; write `losses: [{type: triplet_margin, "
                            "output: NAME}]` in place of `loss`");
    *s = (struct drawn_samples){.type = (enum draw_type)config->draw.type,
                                .seed = (uint64_t)config->draw.seed,
                                .members = members_of[config->draw.type].members,
                                .row_size = info->input_size,
                                .are_signs = config->request.target_range == TARGETS_ARE_SIGNS ||
                                             config->request.range_targets[TARGETS_ARE_SIGNS].count > 0,
                                .has_targets = is_pair && !in_order};
    s->has_texts = dataset->labels.count > 0;
    s->target_name = dataset->target_name;
    TRY(in_order ? count_in_order(dataset, config) : sort_rows(dataset, config));
    set_inputs(dataset);
    set_targets(dataset, config, wants_classes);
    repeat_scale(dataset);
    return OK;
}
