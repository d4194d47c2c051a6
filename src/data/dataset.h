/* dataset: rows of inputs and targets from a file (tables, images, text) or made up (synthetic), split into training
 * and validation rows, scaled by statistics of the training rows. Formats are a table: a new one is a file and a row
 * (docs/data.md). */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/schema.h"
#include "base/status.h"
#include "data/augment.h"
#include "data/columns.h"

#define DATA_MAX_DIMS 8

/* `scale:`. With [mean] and [std] given, [type] stays SCALE_NONE and those numbers are used. */
enum scale_type { SCALE_NONE, SCALE_STANDARD, SCALE_MINMAX };
struct scale_config {
    int type;                   /* enum scale_type */
    struct real_list mean, std; /* one number, or one per feature (vectors) or channel (N-D rows); count 0: not given */
    /* Not a key: mean and std were fitted in training, so they are applied in double, as they were then; those of a
     * config are applied to bytes in float32, as torchvision's Normalize does. */
    bool is_fitted;
};

/* `split:`, scikit-learn's train_test_split, or (with [folds]) KFold, or (with [train]) torch's random_split. */
struct split_config {
    double test;   /* part of the rows that is for validation; 0: no split */
    double train;  /* instead, part of the rows that is for training; 0: not given */
    int64_t folds; /* instead, number of folds; 0: not given */
    int64_t fold;  /* number of the fold that is for validation, from 0; SCHEMA_NO_INT: not given */
    int64_t seed;  /* random_state, or the generator's manual_seed */
    bool shuffle;
    bool stratify; /* each class keeps its share in both parts; with test and shuffle, or with folds */
};

/* `validation:`, a file of its own instead of a split. */
struct validation_config {
    const char *path;    /* NULL: none */
    const char *targets; /* idx: file of its labels; NULL: by the name of path */
};

/* Whether a config asks for validation rows. */
struct dataset_config;
bool dataset_has_validation(const struct dataset_config *config);

/* `layout:` of images in the file; rows are always handed out as (channels, height, width). */
enum layout { LAYOUT_NCHW, LAYOUT_NHWC };

/* `text:` */
struct text_config {
    int64_t block_size; /* characters of a row */
    int64_t stride;     /* characters between the starts of two rows */
    double truncate;    /* first part of the file that is used */
};

/* `tokens:` */
enum token_type { TOKEN_UINT16, TOKEN_UINT32 };
struct tokens_config {
    int type;           /* enum token_type */
    int64_t vocabulary; /* SCHEMA_NO_INT: the largest token + 1 */
    int64_t block_size; /* tokens of a row */
    int64_t stride;     /* tokens between the starts of two rows; SCHEMA_NO_INT: block_size */
};

enum synthetic_kind { SYNTHETIC_UNIFORM, SYNTHETIC_LINEAR, SYNTHETIC_CLASSES };
struct synthetic_config {
    int kind;               /* enum synthetic_kind */
    int64_t rows;           /* training and validation rows together */
    struct int_list inputs; /* shape of one input row */
    int64_t targets;        /* values of one target row */
    int64_t classes;        /* SYNTHETIC_CLASSES */
    double noise;           /* standard deviation */
    int64_t seed;
};

/* `dataset:`. Plain values; train/config.c embeds it. What it points to must live as long as dataset_open runs. */
struct dataset_config {
    const char *path; /* NULL only for synthetic */
    int format;       /* 0: by the extension of the path; else 1 + the index into the table of formats */
    struct string_list inputs, targets; /* names; count 0: the format's default */
    int layout;                         /* enum layout */
    double divide;                      /* inputs are divided by it before they are scaled; NAN: by the format */
    struct scale_config scale;
    struct augment_config augment;
    struct split_config split;
    struct validation_config validation;
    struct text_config text;
    struct tokens_config tokens;
    struct synthetic_config synthetic;
    int64_t prefetch; /* for loader_create: -1 automatic */
    int64_t cache_mb; /* rows are kept in memory when they fit, in MiB */
    /* Not a key: sorted labels of the classes that a model was trained with; count 0: those of the training file. */
    struct string_list classes;
    /* Not a key: the columns that a model was trained with, which are read by name from a file of the same format;
     * count 0: those of the training file. */
    struct column_list columns;
    /* Not a key: targets that stand beside the inputs (HDF5, CSV, IDX) are not read and need not be there; target_size
     * is 0. Not with split.stratify. */
    bool without_targets;
    /* Not a key: target values must lie in [0, 1]. */
    bool targets_are_probabilities;
};
extern const struct schema dataset_schema;

/* Replaces the names of files by where they lie (find_file), for a config read from the file [config_path]. */
status dataset_find_files(struct dataset_config *config, const char *config_path, struct arena *arena);

/* Whether the name is that of a data file other than HDF5, by its extension; and what is in such a file: the columns of
 * a CSV file with their types and ranges, the number and shape of rows of the others. */
bool dataset_is_inspected(const char *path);
status dataset_inspect(const char *path, struct text *out);

enum input_kind {
    INPUT_VALUES, /* float32 */
    INPUT_TOKENS  /* int32_t ids, 0 .. vocabulary - 1 */
};

enum target_kind {
    TARGET_CLASS, /* integer classes, int64_t: one per row, or one per token */
    TARGET_VALUES /* float32 values per row */
};

struct dataset_info {
    size_t train_rows, validation_rows; /* train_rows > 0; validation_rows 0: none */
    enum input_kind input_kind;
    int64_t vocabulary;                 /* INPUT_TOKENS; else 0 */
    int input_dims;                     /* of one row: 1 for a vector */
    int64_t input_shape[DATA_MAX_DIMS]; /* {13} for wine; {1, 28, 28} for an image; {block_size} for tokens */
    size_t input_size;                  /* values (4 bytes each) of one input row */
    enum target_kind target_kind;
    int64_t classes;      /* TARGET_CLASS: largest class + 1 over all rows, for tokens the vocabulary; else 0 */
    int64_t first_class;  /* TARGET_CLASS: the smallest class of all rows, where they were counted; else 0 */
    size_t target_size;   /* values of one target row; TARGET_CLASS: 1, for tokens block_size; 0: without_targets */
    char fingerprint[65]; /* SHA-256 (hex) of what the run depends on: shape and all rows in the order of the file or,
                             above 1 GiB of float32 rows, shape, file size and 64 rows; "" for metadata only */
};

struct dataset;

/* Opens, splits and fits the scaler. [wants_classes]: targets must be integer classes >= 0 (cross entropy); else
 * they are read as float32 values. [metadata_only], for `check`: no input is read, nothing is fitted and
 * dataset_read is not allowed. STATUS_DATA with file, dataset or column, and row; a missing file is STATUS_DATA
 * naming path and working directory. */
status dataset_open(const struct dataset_config *config, bool wants_classes, bool metadata_only, struct dataset **out);
void dataset_close(struct dataset *dataset); /* takes NULL */
const struct dataset_info *dataset_info(const struct dataset *dataset);

enum dataset_part { DATASET_TRAIN, DATASET_VALIDATION };

/* Reads [count] rows of [part], given by positions (count) within the part, scaled: inputs (count, input_size), float
 * or, for INPUT_TOKENS, int32_t; targets (count, target_size): int64_t for TARGET_CLASS, float for TARGET_VALUES.
 * Thread-safe. */
status dataset_read(struct dataset *dataset, enum dataset_part part, const int64_t *positions, size_t count,
                    void *inputs, void *targets);

/* The sorted labels of a class column that holds text, class 0 first; count 0: it holds numbers. Lives as long as the
 * dataset. */
struct string_list dataset_labels(const struct dataset *dataset);

/* The columns of the (training) file that are read; count 0: they have no names that could be compared. Lives as long
 * as the dataset. */
struct column_list dataset_columns(const struct dataset *dataset);

/* What a user should know about how the columns were found, a sentence for each file ("a.csv: ..."); count 0: nothing.
 * Lives as long as the dataset. */
struct string_list dataset_notes(const struct dataset *dataset);

/* The row of the file (from 0) that stands at [position] of [part]. */
int64_t dataset_row(const struct dataset *dataset, enum dataset_part part, int64_t position);

/* The classes (train_rows) of the training rows, for TARGET_CLASS with one class per row. */
status dataset_train_classes(struct dataset *dataset, int64_t *classes);

/* Whether training images are augmented. */
bool dataset_augments(const struct dataset *dataset);
/* Does so to the rows that dataset_read read for [epoch]: inputs (count, input_size); [scratch] (input_size). */
void dataset_augment(const struct dataset *dataset, int64_t epoch, const int64_t *positions, size_t count,
                     float *inputs, float *scratch);

/* Bytes of one target row. */
size_t dataset_target_bytes(const struct dataset_info *info);

/* Whether dataset_read is a copy from memory (then a prefetch thread is not worth its wake-ups). */
bool dataset_is_in_memory(const struct dataset *dataset);

/* The characters of a text's tokens, in the order of their ids, as one string of UTF-8, for the checkpoint
 * (data/vocabulary.h reads it again); NULL when the tokens are no characters. Borrowed. */
const char *dataset_vocabulary(const struct dataset *dataset);

/* The scaler, for the checkpoint: mean and scale (features), x' = (x - mean) / scale. features is input_size for
 * vectors, 1 where one pair serves all elements of a row (N-D rows), the first dimension where a pair per channel
 * was given; 0 when nothing is scaled. Borrowed. */
void dataset_scaler(const struct dataset *dataset, const double **mean, const double **scale, size_t *features);

#endif
