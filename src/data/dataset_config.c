/* The `dataset:` section of the config. */
#include <stdio.h>
#include <string.h>

#include "base/find_file.h"
#include "data/internal.h"

static const char *const format_choices[] = {"auto",
#define X(name) #name,
                                             DATASET_FORMATS(X)
#undef X
                                                 NULL};

static const char *const scale_choices[] = {"none", "standard", "minmax", NULL};

static const struct schema_row scale_rows[] = {
    {.key = "type",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct scale_config, type),
     .fallback = "none",
     .choices = scale_choices,
     .doc = "Fitted on the training rows: standard is scikit-learn's StandardScaler, minmax its MinMaxScaler to 0..1, "
            "in double; per feature for vectors, one pair for all elements of N-D rows."},
    {.key = "mean",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct scale_config, mean),
     .fallback = "[]",
     .doc = "Instead of type, with std: x' = (x - mean) / std, as torchvision's Normalize. One number, or one per "
            "feature (vectors) or per channel (the first dimension of N-D rows)."},
    {.key = "std",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct scale_config, std),
     .fallback = "[]",
     .min = 0,
     .max = 1e300,
     .excludes_min = true,
     .doc = "See mean."},
    {0},
};

static struct place place_of(const struct node *where, const char *key) {
    const struct node *value = node_get(where, key);
    return value ? value->place : where ? where->place : (struct place){0};
}

static void check_scale(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct scale_config *scale = config;
    struct place place = where ? where->place : (struct place){0};
    if (!scale->mean.count != !scale->std.count)
        problems_add(problems, place, path, "mean and std must be given together");
    else if (scale->mean.count && scale->type != SCALE_NONE)
        problems_add(problems, place, path,
                     "type (fitted to the rows) and mean/std (given) exclude each other; give one");
}

static const struct schema scale_schema = {.name = "dataset.scale",
                                           .size = sizeof(struct scale_config),
                                           .rows = scale_rows,
                                           .shorthand = "type",
                                           .check = check_scale};

static const struct schema_row split_rows_table[] = {
    {.key = "test",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct split_config, test),
     .fallback = "0",
     .min = 0,
     .max = 1,
     .excludes_max = true,
     .doc = "Fraction of the rows used for validation (train_test_split's test_size), rounded up; 0: no split."},
    {.key = "train",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct split_config, train),
     .fallback = "0",
     .min = 0,
     .max = 1,
     .excludes_max = true,
     .doc = "Instead of test: fraction of the rows used for training, rounded down, chosen as torch's "
            "random_split([int(train * rows), rest], torch.Generator().manual_seed(seed)); 0: not used."},
    {.key = "folds",
     .type = SCHEMA_INT,
     .offset = FIELD(struct split_config, folds),
     .fallback = "0",
     .min = 0,
     .max = 1000000,
     .doc = "Instead of test: number of folds of a cross-validation, at least 2; the rows of scikit-learn's "
            "KFold(n_splits=folds, shuffle=shuffle, random_state=seed), with stratify StratifiedKFold; 0: not used."},
    {.key = "fold",
     .type = SCHEMA_INT,
     .offset = FIELD(struct split_config, fold),
     .fallback = "null",
     .min = 0,
     .max = 999999,
     .doc = "With folds: the index of the validation fold, from 0, in the order of KFold.split."},
    {.key = "seed",
     .type = SCHEMA_INT,
     .offset = FIELD(struct split_config, seed),
     .fallback = "0",
     .min = 0,
     .max = 4294967295.0,
     .doc = "scikit-learn's random_state; with train the seed of random_split's generator."},
    {.key = "shuffle",
     .type = SCHEMA_BOOL,
     .offset = FIELD(struct split_config, shuffle),
     .fallback = "true",
     .doc = "false: the last rows of the file are the validation rows, or with folds each fold has adjacent rows."},
    {.key = "stratify",
     .type = SCHEMA_BOOL,
     .offset = FIELD(struct split_config, stratify),
     .fallback = "false",
     .doc = "Keep the proportion of each class in both parts (train_test_split's stratify=y), for targets that are "
            "classes; with test and shuffle, or with folds (StratifiedKFold)."},
    {0},
};

static void check_folds(const struct split_config *split, const struct node *where, const char *path,
                        struct problems *problems) {
    bool has_fold = split->fold != SCHEMA_NO_INT;
    if (split->folds == 1)
        problems_add(problems, place_of(where, "folds"), path, "folds must be at least 2");
    else if (split->folds == 0 && has_fold)
        problems_add(problems, place_of(where, "fold"), path, "fold needs folds, the number of folds");
    else if (split->folds > 0 && !has_fold)
        problems_add(problems, place_of(where, "folds"), path,
                     "fold is missing: give the index of the validation fold, 0 to %lld", (long long)split->folds - 1);
    else if (has_fold && split->fold >= split->folds)
        problems_add(problems, place_of(where, "fold"), path,
                     "there is no fold %lld; the %lld folds have the indices 0 to %lld", (long long)split->fold,
                     (long long)split->folds, (long long)split->folds - 1);
}

static void check_split(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct split_config *split = config;
    int ways = (split->test > 0) + (split->train > 0) + (split->folds > 0);
    if (ways > 1)
        problems_add(problems, where ? where->place : (struct place){0}, path,
                     "test (as scikit-learn), train (as torch) and folds exclude each other; give one");
    if (split->stratify && !split->folds && (split->test <= 0 || !split->shuffle))
        problems_add(problems, place_of(where, "stratify"), path,
                     "stratify needs test and shuffle, as in train_test_split, or folds");
    check_folds(split, where, path, problems);
}

static const struct schema split_schema = {.name = "dataset.split",
                                           .size = sizeof(struct split_config),
                                           .rows = split_rows_table,
                                           .shorthand = "test",
                                           .check = check_split};

static const struct schema_row validation_rows[] = {
    {.key = "path",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct validation_config, path),
     .others_offset = FIELD(struct validation_config, others),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS,
     .doc = "File of the validation rows, or a list of files, with the same columns or datasets as dataset.path; "
            "instead of split."},
    {.key = "targets",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct validation_config, targets),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS,
     .doc = "IDX, NPY: file of the labels; null: derived from path (images -> labels, x -> y). NPZ: array of the "
            "targets; null: that of dataset.path, or \"y_val\" and \"y_test\" for \"y_train\"."},
    {.key = "query",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct validation_config, query),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS,
     .doc = "SQLite: query of the validation rows; null: dataset.query or table."},
    {0},
};

static const struct schema validation_schema = {.name = "dataset.validation",
                                                .size = sizeof(struct validation_config),
                                                .rows = validation_rows,
                                                .shorthand = "path"};

static const struct schema_row text_rows[] = {
    {.key = "block_size",
     .type = SCHEMA_INT,
     .offset = FIELD(struct text_config, block_size),
     .fallback = "128",
     .min = 1,
     .max = 1e6,
     .doc = "Characters of a row; the targets are the same characters one position later."},
    {.key = "stride",
     .type = SCHEMA_INT,
     .offset = FIELD(struct text_config, stride),
     .fallback = "1",
     .min = 1,
     .max = 1e9,
     .doc = "Characters between the starts of two rows: 1 starts a row at every character (the minGPT tutorial), "
            "block_size uses each character once per epoch."},
    {.key = "truncate",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct text_config, truncate),
     .fallback = "1",
     .min = 0,
     .max = 1,
     .excludes_min = true,
     .doc = "Fraction of the file that is used, from its start."},
    {0},
};

static const struct schema text_schema = {
    .name = "dataset.text", .size = sizeof(struct text_config), .rows = text_rows};

static const char *const token_types[] = {"uint16", "uint32", NULL};

static const struct schema_row tokens_rows[] = {
    {.key = "dtype",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct tokens_config, type),
     .fallback = "uint16",
     .choices = token_types,
     .doc = "Type of a token in the file, little-endian."},
    {.key = "vocabulary",
     .type = SCHEMA_INT,
     .offset = FIELD(struct tokens_config, vocabulary),
     .fallback = "null",
     .min = 1,
     .max = INT32_MAX,
     .doc = "Number of tokens of the vocabulary (50257 for GPT-2); null: that of the tokenizer, or the largest token "
            "of the "
            "file + 1 (the file is read once to find it)."},
    {.key = "block_size",
     .type = SCHEMA_INT,
     .offset = FIELD(struct tokens_config, block_size),
     .fallback = "1024",
     .min = 1,
     .max = 1e6,
     .doc = "Tokens of a row; the targets are the same tokens one position later."},
    {.key = "stride",
     .type = SCHEMA_INT,
     .offset = FIELD(struct tokens_config, stride),
     .fallback = "null",
     .min = 1,
     .max = 1e9,
     .doc = "Tokens between the starts of two rows; null: block_size, so that an epoch sees each token once."},
    {.key = "tokenizer",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct tokens_config, tokenizer),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS, /* the fingerprint is compared instead */
     .doc = "tokenizer.json of Hugging Face's tokenizers, byte-level BPE: a text (.txt) is read as its tokens; for ids "
            "(.bin), the tokenizer they were made with. It is kept in checkpoints, for generate."},
    {0},
};

static const struct schema tokens_schema = {
    .name = "dataset.tokens", .size = sizeof(struct tokens_config), .rows = tokens_rows};

static const char *const kind_choices[] = {"uniform", "linear", "classes", NULL};

static const struct schema_row synthetic_rows[] = {
    {.key = "kind",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct synthetic_config, kind),
     .fallback = "uniform",
     .choices = kind_choices,
     .doc =
         "uniform: each row is (torch.rand(inputs), torch.rand(targets)), as the PyTorch tutorial's toy data; "
         "linear: targets are a linear function of the inputs plus noise; classes: one normal distribution per class."},
    {.key = "rows",
     .type = SCHEMA_INT,
     .offset = FIELD(struct synthetic_config, rows),
     .fallback = "2048",
     .min = 1,
     .max = 1e12,
     .doc = "Number of rows."},
    {.key = "inputs",
     .type = SCHEMA_INT_LIST,
     .offset = FIELD(struct synthetic_config, inputs),
     .fallback = "20",
     .min = 1,
     .max = 1e9,
     .doc = "Shape of one input row: 20 for a vector, [3, 32, 32] for an image."},
    {.key = "targets",
     .type = SCHEMA_INT,
     .offset = FIELD(struct synthetic_config, targets),
     .fallback = "1",
     .min = 1,
     .max = 1e9,
     .doc = "Values of one target row (uniform, linear)."},
    {.key = "classes",
     .type = SCHEMA_INT,
     .offset = FIELD(struct synthetic_config, classes),
     .fallback = "3",
     .min = 2,
     .max = 1e6,
     .doc = "Number of classes (classes)."},
    {.key = "noise",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct synthetic_config, noise),
     .fallback = "0.1",
     .min = 0,
     .max = 1e6,
     .doc = "Standard deviation of the noise of the targets (linear), or of a class (classes)."},
    {.key = "seed",
     .type = SCHEMA_INT,
     .offset = FIELD(struct synthetic_config, seed),
     .fallback = "0",
     .doc = "The rows are drawn from PyTorch's generator with this seed (torch.manual_seed)."},
    {0},
};

static void check_synthetic(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct synthetic_config *synthetic = config;
    if (synthetic->inputs.count < 1 || synthetic->inputs.count > MAX_DIMS)
        problems_add(problems, place_of(where, "inputs"), path, "inputs must be a shape of 1 to %d numbers", MAX_DIMS);
}

static const struct schema synthetic_schema = {.name = "dataset.synthetic",
                                               .size = sizeof(struct synthetic_config),
                                               .rows = synthetic_rows,
                                               .check = check_synthetic};

static const char *const layouts[] = {"nchw", "nhwc", NULL};

static const struct schema_row dataset_rows[] = {
    {.key = "path",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct dataset_config, path),
     .others_offset = FIELD(struct dataset_config, others),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS, /* the fingerprint is compared instead */
     .doc = "File of the rows, or a pattern (data/part-*.csv) or a list for several files. Relative paths are searched "
            "in the "
            "working directory, then in the folder of the config, "
            "then in its parent folder; the first match is used and recorded."},
    {.key = "format",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct dataset_config, format),
     .fallback = "auto",
     .choices = format_choices,
     .doc = "auto: by the extension of path (.h5 .hdf5 .hdf: hdf5, .csv .tsv .csv.gz .tsv.gz: csv, .db .sqlite "
            ".sqlite3: sqlite, -ubyte "
            "-ubyte.gz .idx .idx.gz: idx, "
            ".npy: npy, .npz: npz, .txt: text, .bin: tokens; a folder: images, "
            "with image.size)."},
    {.key = "inputs",
     .type = SCHEMA_STRING_LIST,
     .offset = FIELD(struct dataset_config, inputs),
     .groups_offset = FIELD(struct dataset_config, input_groups),
     .fallback = "[]",
     .doc = "HDF5: names of datasets (x when empty; several vectors are concatenated); NPZ: name of an array (x, X, "
            "data, images and others when empty); CSV: columns (all but the targets when empty). A mapping gives the "
            "model several inputs, by name: {image: images/x, table: [age, weight]}."},
    {.key = "targets",
     .type = SCHEMA_STRING_LIST,
     .offset = FIELD(struct dataset_config, targets),
     .groups_offset = FIELD(struct dataset_config, target_groups),
     .fallback = "[]",
     .doc = "HDF5: names of datasets (y when empty); CSV: columns (the last one when empty); IDX, NPY: file of the "
            "labels (when empty derived from path: images -> labels, x -> y); NPZ: name of an array (y when empty). A "
            "mapping names targets for `losses`: {kind: y, box: [left, top]}."},
    {.key = "weights",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct dataset_config, weights),
     .fallback = "null",
     .doc = "HDF5, NPZ: name of a dataset or an array, CSV, SQLite: of a column, with a weight from 0 for each row "
            "(scikit-learn's sample_weight). Training divides the weights by their mean over the training rows and "
            "multiplies the loss of each row; validation losses and metrics are weighted means. Null: all 1."},
    {.key = "columns",
     .type = SCHEMA_SECTION_MAP,
     .offset = FIELD(struct dataset_config, rules),
     .present_offset = FIELD(struct dataset_config, has_rules),
     .section = &column_rule_schema,
     .doc = "CSV: how columns become features, by name: {Age: {missing: median, scale: standard}, Name: ignore}. The "
            "types of other columns are recognised; their missing values are errors."},
    {.key = "missing",
     .type = SCHEMA_STRING_LIST,
     .offset = FIELD(struct dataset_config, missing),
     .present_offset = FIELD(struct dataset_config, has_missing),
     .fallback = "[]",
     .doc =
         "CSV: texts of input columns that mean a missing value, such as ['', NA, '?']; []: those of pandas' read_csv "
         "(empty, NA, N/A, NaN, null, None and others)."},
    {.key = "query",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct dataset_config, query),
     .fallback = "null",
     .doc = "SQLite: the query whose rows are read (select ... order by ...)."},
    {.key = "table",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct dataset_config, table),
     .fallback = "null",
     .doc = "SQLite: instead of query, all columns of this table or view; null: the only one of the file."},
    {.key = "csv",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct dataset_config, csv),
     .present_offset = FIELD(struct dataset_config, has_csv),
     .section = &csv_schema,
     .doc = "CSV: how the file is written, where that is not recognised."},
    {.key = "layout",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct dataset_config, layout),
     .fallback = "nchw",
     .choices = layouts,
     .doc = "HDF5, NPY, NPZ: order of the dimensions of images in the file: nchw is (rows, channels, height, width), "
            "nhwc (rows, "
            "height, width, channels). The model always gets (channels, height, width)."},
    {.key = "divide",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct dataset_config, divide),
     .fallback = "null",
     .min = 0,
     .max = 1e300,
     .excludes_min = true,
     .doc = "Inputs are divided by this before scaling; null: 255 for IDX images of unsigned bytes (as torchvision's "
            "ToTensor), else 1."},
    {.key = "scale",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct dataset_config, scale),
     .section = &scale_schema,
     .doc = "How inputs are scaled: none, standard, minmax, or {mean: .., std: ..}."},
    {.key = "target_scale",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct dataset_config, target_scale),
     .fallback = "none",
     .choices = target_scale_names,
     .doc =
         "How targets are scaled for a loss of values (mse, l1, smooth_l1, huber), fitted on the training rows, as "
         "scikit-learn's TransformedTargetRegressor: standard (StandardScaler), minmax (MinMaxScaler), log1p (numpy's "
         "log1p and expm1). Losses are those of the scaled targets; predictions and metrics are in the unit of the "
         "file."},
    {.key = "augment",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct dataset_config, augment),
     .section = &augment_schema,
     .doc = "Random changes of the training images, drawn again in each epoch."},
    {.key = "split",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct dataset_config, split),
     .section = &split_schema,
     .doc = "Splits the rows into training and validation rows as scikit-learn's train_test_split, or (folds:) as "
            "its KFold and StratifiedKFold, or (train:) as torch's random_split."},
    {.key = "validation",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct dataset_config, validation),
     .flags = SCHEMA_NULLABLE,
     .section = &validation_schema,
     .doc = "A separate file for validation, instead of split."},
    {.key = "image",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct dataset_config, image),
     .section = &image_schema,
     .doc = "With a folder of images (format: images), how each becomes a row."},
    {.key = "text",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct dataset_config, text),
     .section = &text_schema,
     .doc = "With format: text, how the text becomes rows."},
    {.key = "tokens",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct dataset_config, tokens),
     .section = &tokens_schema,
     .doc = "With format: tokens, or a text with a tokenizer, the tokens and how they become rows."},
    {.key = "synthetic",
     .type = SCHEMA_SECTION,
     .offset = FIELD(struct dataset_config, synthetic),
     .section = &synthetic_schema,
     .doc = "With format: synthetic, the rows that are generated."},
    {.key = "prefetch",
     .type = SCHEMA_INT,
     .offset = FIELD(struct dataset_config, prefetch),
     .fallback = "-1",
     .flags = SCHEMA_EXTENDS,
     .min = -1,
     .max = 1024,
     .doc = "Batches that a thread reads ahead; 0: none; -1: 2 for rows in a file, none for rows in memory."},
    {.key = "cache_mb",
     .type = SCHEMA_INT,
     .offset = FIELD(struct dataset_config, cache_mb),
     .fallback = "1024",
     .flags = SCHEMA_EXTENDS,
     .min = 0,
     .max = 1e9,
     .doc = "Rows are kept in memory when all of them fit in this many MiB per rank (images of bytes as bytes, others "
            "as float32); otherwise they are read from the file when needed; those of CSV and SQLite, whose numbers "
            "are kept as float64, from a temporary file. Text and synthetic rows are always kept in memory."},
    {0},
};

static void check_format(const struct dataset_config *dataset, const char *path, struct place place, const char *key,
                         struct problems *problems) {
    if (!path || dataset_format_of(dataset, path)) return;
    struct text names = {0};
    dataset_format_names(&names);
    problems_add(problems, place, key, "'%s': unknown file extension; set dataset.format to one of: %s", path,
                 text_string(&names));
    text_free(&names);
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
    struct place place = place_of(where, "validation");
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
        problems_add(problems, place_of(where, "query"), path, "query and table exclude each other; give one");
    if (is_given && format && !format->has_queries)
        problems_add(problems, place_of(where, dataset->query ? "query" : "table"), path,
                     "query and table need a database (format sqlite), not %s", format->name);
}

/* Whether keys of `text:` are given; the config of a run has all of them. */
static bool has_text_keys(const struct text_config *text) {
    return text->block_size != 128 || text->stride != 1 || text->truncate != 1; /* the fallbacks of text_rows */
}

static void check_tokenizer(const struct dataset_config *dataset, const struct dataset_format *format,
                            const struct node *where, const char *path, struct problems *problems) {
    if (!dataset->tokens.tokenizer || !format) return;
    struct place place = place_of(node_get(where, "tokens"), "tokenizer");
    if (format != &dataset_tokens && format != &dataset_tokenized)
        problems_add(problems, place, path, "tokens.tokenizer needs a text or tokens, not format %s", format->name);
    else if (format == &dataset_tokenized && has_text_keys(&dataset->text))
        problems_add(problems, place_of(where, "text"), path,
                     "text describes rows of characters; with tokens.tokenizer give block_size and stride in tokens");
}

static void check_dataset(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct dataset_config *dataset = config;
    char key[256];
    snprintf(key, sizeof key, "%s.path", path);
    bool is_synthetic = dataset->format > 0 && !dataset_format_of(dataset, NULL)->extensions;
    if (is_synthetic && dataset->path)
        problems_add(problems, place_of(where, "path"), key, "format synthetic generates its rows; remove the path");
    else if (!is_synthetic && !dataset->path)
        problems_add(problems, where ? where->place : (struct place){0}, key,
                     "is missing: give the file of the rows, or format: synthetic");
    check_format(dataset, dataset->path, place_of(where, "path"), key, problems);
    check_others(dataset, dataset->path, &dataset->others, place_of(where, "path"), key, problems);
    check_validation(dataset, is_synthetic, where, path, problems);
    const struct dataset_format *format = dataset_format_of(dataset, dataset->path);
    check_query(dataset, format, where, path, problems);
    check_tokenizer(dataset, format, where, path, problems);
    if (format && format->is_folder && !dataset->image.size.count)
        problems_add(problems, place_of(where, "path"), key,
                     "a folder of images needs dataset.image.size: [height, width] of the rows");
    snprintf(key, sizeof key, "%s.layout", path);
    if (format && dataset->layout == LAYOUT_NHWC && !format->has_layout)
        problems_add(problems, place_of(where, "layout"), key, "nhwc needs format hdf5, npy or npz, not %s",
                     format->name);
}

const struct schema dataset_schema = {
    .name = "dataset", .size = sizeof(struct dataset_config), .rows = dataset_rows, .check = check_dataset};

status dataset_find_files(struct dataset_config *config, const char *config_path, struct arena *arena) {
    const struct dataset_format *format = dataset_format_of(config, config->path);
    status (*find)(const char **path, const char *config_path, struct arena *arena) =
        format && format->is_folder ? find_folder : find_file;
    TRY(find(&config->path, config_path, arena));
    TRY(find(&config->validation.path, config_path, arena));
    for (size_t i = 0; i < config->others.count; i++) TRY(find(&config->others.items[i], config_path, arena));
    for (size_t i = 0; i < config->validation.others.count; i++)
        TRY(find(&config->validation.others.items[i], config_path, arena));
    TRY(find_file(&config->validation.targets, config_path, arena));
    TRY(find_file(&config->tokens.tokenizer, config_path, arena));
    for (size_t i = 0; format && format->has_target_file && i < config->targets.count; i++)
        TRY(find_file(&config->targets.items[i], config_path, arena));
    return OK;
}
