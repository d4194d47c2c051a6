/* Opens datasets from a config in YAML, as a run would. For tests only. */
#pragma once

#include <math.h>

#include "check_main.h"
#include "data/dataset/dataset.h"
#include "data/dataset/loader.h"
#include "data/sampling/sampler.h"
#include "files.h"
#include "vectors.h"

/* Binds [yaml] with [schema]; its problems are one failure. Call document_destroy(*document) after the use of config.
 */
static inline status bind_yaml(const struct schema *schema, const char *yaml, void *config,
                               struct document **document) {
    struct problems problems = {0};
    status s = document_parse("c.yaml", yaml, strlen(yaml), &problems, document);
    if (s == OK && *document)
        schema_bind(schema, document_root(*document), schema->name, schema, config, document_arena(*document),
                    &problems);
    if (s == OK) s = problems_status(&problems, STATUS_USAGE);
    problems_free(&problems);
    return s;
}

static inline status open_yaml_as(const char *yaml, bool wants_classes, bool metadata_only, struct dataset **out) {
    struct dataset_config config;
    struct document *document = NULL;
    *out = NULL;
    status s = bind_yaml(&dataset_schema, yaml, &config, &document);
    if (s == OK) s = dataset_open(&config, wants_classes, metadata_only, out);
    document_destroy(document);
    return s;
}

static inline void close_scoped(struct dataset **dataset) { dataset_close(*dataset); }
#define SCOPED_DATASET __attribute__((cleanup(close_scoped))) struct dataset *

/* printf the config, then open */
static inline status open_yaml(struct dataset **out, bool wants_classes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline status open_yaml(struct dataset **out, bool wants_classes, const char *format, ...) {
    char *yaml;
    va_list arguments;
    va_start(arguments, format);
    ck_assert_int_ge(vasprintf(&yaml, format, arguments), 0);
    va_end(arguments);
    status s = open_yaml_as(yaml, wants_classes, false, out);
    free(yaml);
    return s;
}

/* The rows (sampler_own_length) that a rank gets in an epoch. */
static inline void draw_indices(const struct sampler_config *config, size_t rows, int64_t epoch, int rank, int world,
                                int64_t *indices) {
    struct row_order order = {0};
    ck_ok(sampler_alloc(config, rows, &order));
    sampler_draw(config, rows, epoch, &order);
    size_t length = sampler_own_length(config, rows, rank, world);
    for (size_t i = 0; i < length; i += 5)
        sampler_rows_of(&order, rows, rank, world, i, length - i < 5 ? length - i : 5, indices + i);
    order_free(&order);
}

/* All rows of a part in its order: inputs (rows, input_size), targets. Free both. */
static inline void read_part(struct dataset *dataset, enum dataset_part part, float **inputs, void **targets) {
    const struct dataset_info *info = dataset_info(dataset);
    size_t rows = part == DATASET_TRAIN ? info->train_rows : info->validation_rows;
    *inputs = calloc(rows * info->input_size + 1, sizeof **inputs);
    *targets = calloc(rows * info->target_size + 1, 8);
    int64_t *positions = calloc(rows + 1, sizeof *positions);
    for (size_t i = 0; i < rows; i++) positions[i] = (int64_t)i;
    ck_ok(dataset_read(dataset, part, positions, rows, *inputs, *targets));
    free(positions);
}
