/* dataset_config: the `dataset:` section of the config, and which of its keys fit together and to the format. Its own
 * sections are in the folders that use them. */
#include <stdio.h>

#include "base/files/find_file.h"
#include "base/scoped.h"
#include "data/dataset/dataset.h"
#include "data/sampling/split.h"
#include "data/sampling/windows.h"
#include "data/source/row_filter.h"
#include "data/source/source.h"
#include "data/text/tokenizer.h"

/* ---- checks ---- */

static void check_format(const struct dataset_config *dataset, const char *path, struct place place, const char *key,
                         struct problems *problems) {
    if (!path || dataset_format_of(dataset, path)) return;
    SCOPED_TEXT names = {0};
    dataset_format_names(&names);
    problems_add(problems, place, key,
                 "'%s': unknown file extension%s; set dataset.format to one of: %s; a folder of images needs "
                 "dataset.image: {size: [height, width]}",
                 path, dataset_format_advice(path), text_string(&names));
}

/* The format of all files of a list, that of the first. */
static void check_others(const struct dataset_config *dataset, const char *path, const struct string_list *others,
                         struct place place, const char *key, struct problems *problems) {
    const struct dataset_format *format = dataset_format_of(dataset, path);
    for (size_t i = 0; format && i < others->count; i++) {
        const char *file = others->items[i];
        const struct dataset_format *other = dataset_format_of(dataset, file);
        check_format(dataset, file, place, key, problems);
        if (other && other != format)
            problems_add(problems, place, key, "'%s' has format %s, but '%s' has format %s; all must have the same",
                         path, format->name, file, other->name);
    }
}

static void check_validation(const struct dataset_config *dataset, bool is_synthetic, const struct node *where,
                             const char *path, struct problems *problems) {
    const char *file = dataset->validation.path;
    if (!file) return;
    char key[256];
    snprintf(key, sizeof key, "%s.validation", path);
    struct place place = dataset_place(where, "validation");
    if (is_synthetic) {
        problems_add(problems, place, key, "format synthetic has no validation file; use split");
        return;
    }
    check_format(dataset, file, place, key, problems);
    check_others(dataset, file, &dataset->validation.others, place, key, problems);
    const struct dataset_format *format = dataset_format_of(dataset, dataset->path);
    const struct dataset_format *other = dataset_format_of(dataset, file);
    if (format && other && format != other)
        problems_add(problems, place, key, "'%s' has format %s, but '%s' has format %s; both must have the same",
                     dataset->path, format->name, file, other->name);
    if (split_is_given(&dataset->split))
        problems_add(problems, place, key, "split and validation exclude each other; give one");
}

static void check_query(const struct dataset_config *dataset, const struct dataset_format *format,
                        const struct node *where, const char *path, struct problems *problems) {
    bool is_given = dataset->query || dataset->table || dataset->validation.query;
    if (dataset->query && dataset->table)
        problems_add(problems, dataset_place(where, "query"), path, "query and table exclude each other; give one");
    if (is_given && format && !format->has_queries)
        problems_add(problems, dataset_place(where, dataset->query ? "query" : "table"), path,
                     "query and table need a database (format sqlite), not %s", format->name);
}

static void check_group(const struct dataset_config *dataset, const struct dataset_format *format,
                        const struct node *where, const char *path, struct problems *problems) {
    if (!dataset->split.group || !format || format->read_extra) return;
    problems_add(problems, dataset_place(node_get(where, "split"), "group"), path,
                 "split.group: format %s has no names for groups; hdf5, csv, sqlite and npz have", format->name);
}

static void check_tokenizer(const struct dataset_config *dataset, const struct dataset_format *format,
                            const struct node *where, const char *path, struct problems *problems) {
    if (!dataset->tokens.tokenizer || !format) return;
    struct place place = dataset_place(node_get(where, "tokens"), "tokenizer");
    if (format != &dataset_tokens && format != &dataset_tokenized)
        problems_add(problems, place, path, "tokens.tokenizer needs a text or tokens, not format %s", format->name);
    else if (format == &dataset_tokens && strcmp(dataset->tokens.tokenizer, TOKENIZER_OF_WORDS) == 0)
        problems_add(problems, place, path, "tokens.tokenizer: words makes tokens of a text (.txt), not of ids");
    else if (format == &dataset_tokenized && text_config_is_given(&dataset->text))
        problems_add(problems, dataset_place(where, "text"), path,
                     "text describes rows of characters; with tokens.tokenizer give block_size and stride in tokens");
}

/* Keys that only some formats use, and how it is known that one was given: the length of its list, a flag of the
 * schema, or a section that differs from its defaults. */
static const struct {
    const char *key;
    enum format_key bit;
    size_t count_offset, present_offset, offset; /* offset: of [section]; 0: not this way */
    const struct schema *section;
} format_keys[] = {
    {"inputs", KEY_INPUTS, .count_offset = FIELD(struct dataset_config, inputs.count)},
    {"targets", KEY_TARGETS, .count_offset = FIELD(struct dataset_config, targets.count)},
    {"columns", KEY_COLUMNS, .present_offset = FIELD(struct dataset_config, has_rules)},
    {"missing", KEY_COLUMNS, .present_offset = FIELD(struct dataset_config, has_missing)},
    {"csv", KEY_CSV, .present_offset = FIELD(struct dataset_config, has_csv)},
    {"image", KEY_IMAGE, .offset = FIELD(struct dataset_config, image), .section = &image_schema},
    {"text", KEY_TEXT, .offset = FIELD(struct dataset_config, text), .section = &text_section},
    {"tokens", KEY_TOKENS, .offset = FIELD(struct dataset_config, tokens), .section = &tokens_section},
    {"synthetic", KEY_SYNTHETIC, .offset = FIELD(struct dataset_config, synthetic), .section = &synthetic_section},
};
#define FORMAT_KEYS (sizeof format_keys / sizeof *format_keys)

/* Whether [config], a section of the schema, was given as something else than its defaults. */
static bool differs_from_defaults(const struct schema *section, const void *config) {
    SCOPED_ARENA arena = arena_create();
    struct problems problems = {0};
    SCOPED_TEXT differences = {0};
    void *defaults = arena_alloc(arena, section->size);
    schema_bind(section, NULL, "", section, defaults, arena, &problems);
    bool differs = schema_diff(section, defaults, config, &differences) > 0;
    problems_free(&problems);
    return differs;
}

static bool is_given(const struct dataset_config *dataset, size_t index) {
    const char *base = (const char *)dataset;
    if (format_keys[index].section)
        return differs_from_defaults(format_keys[index].section, base + format_keys[index].offset);
    if (format_keys[index].count_offset) return *(const size_t *)(base + format_keys[index].count_offset) > 0;
    return *(const bool *)(base + format_keys[index].present_offset);
}

bool dataset_ignored_key(const struct dataset_config *dataset, size_t index, struct text *out) {
    const struct dataset_format *format = dataset_format_of(dataset, dataset->path);
    for (size_t i = 0; format && i < FORMAT_KEYS; i++) {
        if (format->keys & format_keys[i].bit || !is_given(dataset, i) || index-- > 0) continue;
        text_printf(out, "dataset.%s, which format %s does not use (for", format_keys[i].key, format->name);
        const char *before = " ";
        for (size_t k = 0; dataset_format_at(k); k++) {
            if (!(dataset_format_at(k)->keys & format_keys[i].bit)) continue;
            text_printf(out, "%s%s", before, dataset_format_at(k)->name);
            before = ", ";
        }
        text_add(out, ")");
        return true;
    }
    return false;
}

static void check_dropped(const struct dataset_config *dataset, const struct dataset_format *format,
                          const struct node *where, const char *path, struct problems *problems) {
    struct place place = dataset_place(where, "drop_missing_targets");
    if (!dataset->drops_missing_targets) return;
    if (format && !(format->keys & KEY_COLUMNS))
        problems_add(problems, place, path, "drop_missing_targets is for formats csv and sqlite, not %s", format->name);
    if (dataset->window.steps > 0)
        problems_add(problems, place, path,
                     "drop_missing_targets and window exclude each other, because the rows of a window are adjacent; "
                     "fill the targets in the file");
}

static void check_filter(const struct dataset_config *dataset, const struct dataset_format *format,
                         const struct node *where, struct problems *problems) {
    struct place place = dataset_place(where, "filter");
    if (!dataset->filter) return;
    if (format && !(format->keys & KEY_COLUMNS))
        problems_add(problems, place, "dataset.filter", "it is for formats csv and sqlite, not %s", format->name);
    SCOPED_ARENA arena = arena_create();
    struct row_filter *filter;
    status s = row_filter_parse(dataset->filter, arena, &filter);
    if (s) problems_add(problems, place, "dataset.filter", "%s", status_message(s));
    status_free(s);
}

/* Columns of texts must have one tokenizer. */
static void check_texts(const struct dataset_config *config, const struct node *where, struct problems *problems) {
    const struct column_rule *rules = config->rules.items, *first = NULL;
    for (size_t i = 0; i < config->rules.count; i++) {
        if (rules[i].type != COLUMN_TEXT) continue;
        const char *known = first && first->tokenizer ? first->tokenizer : "";
        if (first && strcmp(known, rules[i].tokenizer ? rules[i].tokenizer : "") != 0)
            problems_add(problems, dataset_place(where, "columns"), "dataset.columns",
                         "'%.60s' and '%.60s' have different tokenizers; all columns of texts have the same",
                         first->name, rules[i].name);
        first = first ? first : &rules[i];
    }
}

/* Keys that are about the rows of a sample one by one. */
static void check_draw(const struct dataset_config *dataset, const struct node *where, struct problems *problems) {
    const struct {
        const char *key;
        bool is_given;
    } keys[] = {{"window", dataset->window.steps > 0},
                {"weights", dataset->weights != NULL},
                {"target_scale", dataset->target_scale != 0},
                {"inputs", dataset->input_groups.count > 0}};
    for (size_t i = 0; dataset->draw.type && i < sizeof keys / sizeof *keys; i++)
        if (keys[i].is_given)
            problems_add(problems, dataset_place(where, keys[i].key), "dataset.draw",
                         "%s and draw exclude each other%s", keys[i].key,
                         strcmp(keys[i].key, "inputs") == 0 ? ", because draw names the inputs; give a list of columns"
                                                            : "");
}

/* schema.check of `dataset:`. */
static void dataset_check_config(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct dataset_config *dataset = config;
    char key[256];
    snprintf(key, sizeof key, "%s.path", path);
    bool is_synthetic = dataset->format > 0 && !dataset_format_of(dataset, NULL)->extensions;
    if (is_synthetic && dataset->path)
        problems_add(problems, dataset_place(where, "path"), key,
                     "format synthetic generates its rows; remove the path");
    else if (!is_synthetic && !dataset->path)
        problems_add(problems, where ? where->place : (struct place){0}, key,
                     "is missing: give the file of the rows, or format: synthetic");
    check_format(dataset, dataset->path, dataset_place(where, "path"), key, problems);
    check_others(dataset, dataset->path, &dataset->others, dataset_place(where, "path"), key, problems);
    check_validation(dataset, is_synthetic, where, path, problems);
    const struct dataset_format *format = dataset_format_of(dataset, dataset->path);
    check_query(dataset, format, where, path, problems);
    check_tokenizer(dataset, format, where, path, problems);
    check_group(dataset, format, where, path, problems);
    check_dropped(dataset, format, where, path, problems);
    check_filter(dataset, format, where, problems);
    window_check(config, format, where, problems);
    check_draw(dataset, where, problems);
    check_texts(dataset, where, problems);
    if (format && format->is_folder && !dataset->image.size.count)
        problems_add(problems, dataset_place(where, "path"), key,
                     "a folder of images needs dataset.image.size: [height, width] of the rows");
    snprintf(key, sizeof key, "%s.layout", path);
    if (format && dataset->layout == LAYOUT_NHWC && !format->has_layout)
        problems_add(problems, dataset_place(where, "layout"), key, "nhwc needs format hdf5, npy or npz, not %s",
                     format->name);
}

/* ---- keys ---- */

static const char *const format_choices[] = {"auto",
#define X(name) #name,
                                             DATASET_FORMATS(X)
#undef X
                                                 NULL};

static const struct schema_row validation_rows[] = {
    SCHEMA_ROW(STRING, struct validation_config, path, .others_offset = FIELD(struct validation_config, others),
               .fallback = "null", .flags = SCHEMA_EXTENDS,
               .doc = "File of the validation rows, or a list of files, with the same columns or datasets as "
                      "dataset.path; instead of split."),
    SCHEMA_ROW(STRING, struct validation_config, targets, .fallback = "null", .flags = SCHEMA_EXTENDS,
               .doc =
                   "IDX, NPY: file of the labels; null: derived from path (images -> labels, x -> y). NPZ: array of "
                   "the targets; null: that of dataset.path, or \"y_val\" and \"y_test\" for \"y_train\". A folder of "
                   "images with image.labels: the CSV file of its labels; with image.masks: the folder of its masks."),
    SCHEMA_ROW(STRING, struct validation_config, query, .fallback = "null", .flags = SCHEMA_EXTENDS,
               .doc = "SQLite: query of the validation rows; null: dataset.query or table."),
    {0},
};

static const struct schema validation_schema =
    SCHEMA("dataset.validation", struct validation_config, .rows = validation_rows, .shorthand = "path");

static const char *const layouts[] = {"nchw", "nhwc", NULL};

static const struct schema_row dataset_rows[] = {
    SCHEMA_ROW(STRING, struct dataset_config, path, .others_offset = FIELD(struct dataset_config, others),
               .fallback = "null", .flags = SCHEMA_EXTENDS | SCHEMA_INFERENCE, /* the fingerprint is compared instead */
               .doc = "File of the rows, or a pattern (data/part-*.csv) or a list for several files. Relative paths "
                      "are searched in the working directory, then in the folder of the config, then in its parent "
                      "folder; the first match is used and recorded."),
    SCHEMA_ROW(
        CHOICE, struct dataset_config, format, .fallback = "auto", .choices = format_choices, .flags = SCHEMA_INFERENCE,
        .doc =
            "auto: by the extension of path (.h5 .hdf5 .hdf: hdf5, .nc .nc4 .netcdf: netcdf, .parquet .pq .arrow "
            ".feather: parquet, .csv .tsv .csv.gz .tsv.gz .data: csv, .db .sqlite .sqlite3: sqlite, -ubyte -ubyte.gz "
            ".idx .idx.gz: idx, .npy: npy, .npz: npz, .txt: text, .bin: tokens; a folder: images, with image.size)."),
    SCHEMA_ROW(STRING_LIST, struct dataset_config, inputs, .groups_offset = FIELD(struct dataset_config, input_groups),
               .fallback = "[]", .flags = SCHEMA_INFERENCE,
               .doc = "HDF5: names of datasets (x when empty; several vectors are concatenated); NPZ: name of an array "
                      "(x, X, data, images and others when empty); CSV: columns (all but the targets when empty). A "
                      "mapping gives the model several inputs, by name: {image: images/x, table: [age, weight]}."),
    SCHEMA_ROW(STRING_LIST, struct dataset_config, targets,
               .groups_offset = FIELD(struct dataset_config, target_groups), .fallback = "[]",
               .flags = SCHEMA_INFERENCE,
               .doc = "HDF5: names of datasets (y when empty); CSV, and image.labels: columns (when empty the last one "
                      "named label, class, ..., else the last one); IDX, NPY: file of the labels (when empty derived "
                      "from path: images -> labels, x -> y); NPZ: name of an array (y when empty). A mapping names "
                      "targets for `losses`: {kind: y, box: [left, top]}."),
    SCHEMA_ROW(
        STRING, struct dataset_config, weights, .fallback = "null", .flags = SCHEMA_INFERENCE,
        .doc = "HDF5, NPZ: name of a dataset or an array, CSV, SQLite: of a column, with a weight from 0 for each row "
               "(scikit-learn's sample_weight). Training divides the weights by their mean over the training rows and "
               "multiplies the loss of each row; validation losses and metrics are weighted means. Null: all 1."),
    SCHEMA_KEY(SECTION_MAP, "columns", struct dataset_config, rules,
               .present_offset = FIELD(struct dataset_config, has_rules), .section = &column_rule_schema,
               .doc = "CSV: how columns become features, by name: {Age: {missing: median, scale: standard}, Name: "
                      "ignore}. The types of other columns are recognised; their missing values are errors."),
    SCHEMA_ROW(
        STRING_LIST, struct dataset_config, missing, .present_offset = FIELD(struct dataset_config, has_missing),
        .fallback = "[]",
        .doc = "CSV: texts of input columns that mean a missing value, such as ['', NA, '?', -999]; a number stands "
               "for all texts of its value, such as -999.0. []: the texts of pandas' read_csv (empty, NA, N/A, "
               "NaN, null, None and others)."),
    SCHEMA_ROW(STRING, struct dataset_config, filter, .fallback = "null", .flags = SCHEMA_INFERENCE,
               .doc = "CSV, SQLite: the rows that are used, before the split, such as \"year >= 2010 and country in "
                      "['DE', 'FR'] and not price is missing\": == != < <= > >=, and, or, not, in, is missing, "
                      "parentheses. predict of a file uses all rows. null: all rows."),
    SCHEMA_KEY(BOOL, "drop_missing_targets", struct dataset_config, drops_missing_targets, .fallback = "false",
               .doc = "CSV, SQLite: true: rows whose target is a missing value are left out, and the log says how "
                      "many; false: such a value is an error."),
    SCHEMA_ROW(STRING, struct dataset_config, query, .fallback = "null", .flags = SCHEMA_INFERENCE,
               .doc = "SQLite: the query whose rows are read (select ... order by ...)."),
    SCHEMA_ROW(STRING, struct dataset_config, table, .fallback = "null", .flags = SCHEMA_INFERENCE,
               .doc = "SQLite: instead of query, all columns of this table or view; null: the only one of the file."),
    SCHEMA_ROW(SECTION, struct dataset_config, csv, .present_offset = FIELD(struct dataset_config, has_csv),
               .section = &csv_schema, .flags = SCHEMA_INFERENCE,
               .doc = "CSV: how the file is written, where that is not recognised."),
    SCHEMA_ROW(CHOICE, struct dataset_config, layout, .fallback = "nchw", .choices = layouts, .flags = SCHEMA_INFERENCE,
               .doc = "HDF5, NPY, NPZ: order of the dimensions of images in the file: nchw is (rows, channels, height, "
                      "width), nhwc (rows, height, width, channels), also of targets of the same height and width. The "
                      "model always gets (channels, height, width)."),
    SCHEMA_ROW(REAL, struct dataset_config, divide, .fallback = "null", .min = 0, .max = 1e300, .excludes_min = true,
               .doc = "Inputs are divided by this before scaling; null: 255 for IDX images of unsigned bytes (as "
                      "torchvision's ToTensor), else 1."),
    SCHEMA_ROW(SECTION, struct dataset_config, scale, .section = &scale_section,
               .doc = "How inputs are scaled: none, standard, minmax, or {mean: .., std: ..}."),
    SCHEMA_ROW(
        CHOICE, struct dataset_config, target_scale, .fallback = "none", .choices = target_scale_names,
        .doc =
            "How targets are scaled for a loss of values, such as mse, fitted on the training rows, as scikit-learn's "
            "TransformedTargetRegressor: standard (StandardScaler), minmax (MinMaxScaler), log1p (numpy's log1p and "
            "expm1). Losses are those of the scaled targets; predictions and metrics are in the unit of the file."),
    SCHEMA_ROW(
        SECTION, struct dataset_config, augment, .section = &augment_schema, .flags = SCHEMA_INFERENCE,
        .doc = "Random changes of the training images and of their targets for each pixel, drawn again in each epoch."),
    SCHEMA_ROW(SECTION, struct dataset_config, split, .section = &split_section, .flags = SCHEMA_INFERENCE,
               .doc = "Splits the rows into training and validation rows as scikit-learn's train_test_split, or "
                      "(folds:) as its KFold and StratifiedKFold, or (train:) as torch's random_split."),
    SCHEMA_ROW(SECTION, struct dataset_config, window, .flags = SCHEMA_NULLABLE, .section = &window_section,
               .doc = "The rows are a time series, and a sample is a window of adjacent rows: inputs (steps, "
                      "features). A split is in the order of time, and no window has rows of both parts."),
    SCHEMA_ROW(SECTION, struct dataset_config, draw, .section = &draw_section,
               .doc = "Samples are pairs or triplets of rows, drawn by their classes in each epoch anew, as those of a "
                      "Siamese network; the targets of the rows are their classes."),
    SCHEMA_ROW(SECTION, struct dataset_config, validation, .flags = SCHEMA_NULLABLE | SCHEMA_INFERENCE,
               .section = &validation_schema, .doc = "A separate file for validation, instead of split."),
    SCHEMA_ROW(SECTION, struct dataset_config, image, .section = &image_schema,
               .doc = "With a folder of images (format: images), how each becomes a row."),
    SCHEMA_ROW(SECTION, struct dataset_config, text, .section = &text_section,
               .doc = "With format: text, how the text becomes rows."),
    SCHEMA_ROW(SECTION, struct dataset_config, tokens, .section = &tokens_section,
               .doc = "With format: tokens, or a text with a tokenizer, the tokens and how they become rows."),
    SCHEMA_ROW(SECTION, struct dataset_config, synthetic, .section = &synthetic_section, .flags = SCHEMA_INFERENCE,
               .doc = "With format: synthetic, the rows that are generated."),
    SCHEMA_ROW(INT, struct dataset_config, prefetch, .fallback = "-1", .flags = SCHEMA_EXTENDS | SCHEMA_INFERENCE,
               .min = -1, .max = 1024,
               .doc = "Batches that a thread reads ahead; 0: none; -1: 2 for rows in a file, none for rows in memory."),
    SCHEMA_ROW(
        INT, struct dataset_config, cache_mb, .fallback = "1024", .flags = SCHEMA_EXTENDS | SCHEMA_INFERENCE, .min = 0,
        .max = 1e9,
        .doc =
            "Rows are kept in memory when all of them fit in this many MiB per rank (images of bytes as bytes, others "
            "as float32); otherwise they are read from the file when needed; those of CSV and SQLite, whose numbers "
            "are kept as float64, from a temporary file. Text and synthetic rows are always kept in memory."),
    {0},
};

const struct schema dataset_schema =
    SCHEMA("dataset", struct dataset_config, .rows = dataset_rows, .check = dataset_check_config);

status dataset_find_files(struct dataset_config *config, const char *config_path, struct arena *arena) {
    const struct dataset_format *format = dataset_format_of(config, config->path);
    status (*find)(const char **path, const char *config_path, struct arena *arena) =
        format && format->is_folder ? find_folder : find_file;
    TRY(find(&config->path, config_path, arena));
    TRY(find(&config->validation.path, config_path, arena));
    for (size_t i = 0; i < config->others.count; i++) TRY(find(&config->others.items[i], config_path, arena));
    for (size_t i = 0; i < config->validation.others.count; i++)
        TRY(find(&config->validation.others.items[i], config_path, arena));
    TRY((config->image.masks ? find_folder : find_file)(&config->validation.targets, config_path, arena));
    TRY(find_folder(&config->image.masks, config_path, arena));
    TRY(find_file(&config->image.labels, config_path, arena));
    if (!config->tokens.tokenizer || strcmp(config->tokens.tokenizer, TOKENIZER_OF_WORDS) != 0)
        TRY(find_file(&config->tokens.tokenizer, config_path, arena));
    struct column_rule *rules = config->rules.items;
    for (size_t i = 0; i < config->rules.count; i++) TRY(find_file(&rules[i].tokenizer, config_path, arena));
    for (size_t i = 0; format && format->has_target_file && i < config->targets.count; i++)
        TRY(find_file(&config->targets.items[i], config_path, arena));
    return OK;
}

/* ---- what a config says ---- */

bool dataset_has_validation(const struct dataset_config *config) {
    return split_is_given(&config->split) || config->validation.path;
}

void dataset_remove_split(struct dataset_config *config) {
    config->split = (struct split_config){.group = config->split.group};
}

bool dataset_has_same_split(const struct dataset_config *a, const struct dataset_config *b) {
    SCOPED_TEXT differences = {0};
    return schema_diff(&split_section, &a->split, &b->split, &differences) == 0;
}

const char *dataset_series(const struct dataset_config *config) {
    return config->window.steps ? dataset_group(config) : NULL;
}
