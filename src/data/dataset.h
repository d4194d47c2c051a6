/* dataset: rows of inputs and targets from a file (tables, images, text) or generated (synthetic), split into training
 * and validation rows, scaled by statistics of the training rows. A new format is a file and a row of a table
 * (docs/adding.md). */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dims.h"
#include "base/schema/schema.h"
#include "base/status.h"
#include "data/columns/columns.h"
#include "data/columns/preparation.h"
#include "data/csv/csv_dialect.h"
#include "data/images/augment.h"
#include "data/images/image.h"
#include "data/rows/target_scale.h"
#include "data/tables/cells.h"

/* `scale:`. When [mean] and [std] are given, [type] is SCALE_NONE. */
struct scale_config {
    int type;                   /* enum scale_type */
    struct real_list mean, std; /* one number, or one per feature (vectors) or channel (N-D rows), with per_feature one
                                   per feature of a step; count 0: not given. Of a checkpoint also one per element */
    bool per_feature;           /* of rows (steps, features): a mean and a scale for each feature */
    /* Not a key: mean and std were fitted in training, so they are applied in double; those of a config are applied to
     * bytes in float32, as torchvision's Normalize does. */
    bool is_fitted;
};

/* `split:`, scikit-learn's train_test_split, or (with [folds]) KFold, or (with [train]) torch's random_split. */
struct split_config {
    double test;       /* fraction of validation rows, or with validation or folds of test rows; 0: no split */
    double validation; /* with test: fraction of the rest for validation; 0: test is the validation part */
    double train;      /* instead, fraction of training rows; 0: not given */
    int64_t folds;     /* instead, number of folds; 0: not given */
    int64_t fold;      /* index of the validation fold; SCHEMA_NO_INT: not given */
    int64_t seed;      /* random_state, or the generator's manual_seed */
    bool shuffle;
    bool stratify;     /* same proportion of each class in both parts; with test and shuffle, or with folds */
    bool time_series;  /* with folds: training rows are those before the fold; later rows are not used */
    const char *group; /* with test or folds: name of the groups of the rows, which are not divided; NULL: none */
};

/* `validation:`, a separate file instead of a split. */
struct validation_config {
    const char *path;          /* NULL: none */
    struct string_list others; /* of a list of paths, all but the first */
    const char *targets;       /* idx: file of its labels; NULL: derived from path */
    const char *query;         /* sqlite; NULL: dataset.query */
};

/* `window:` of a time series, whose rows are in the order of time. A sample is [steps] adjacent rows; its targets are
 * those of [predict_steps] rows, of which the first is [horizon] rows after the last row of the inputs. */
struct window_config {
    int64_t steps; /* 0: a sample is a row */
    int64_t horizon, predict_steps;
    bool has_history;  /* inputs of validation and test windows may be of the rows before those of the part */
    int64_t stride;    /* rows between the starts of two samples, for training and evaluation */
    const char *group; /* name of the series of each row; a window has rows of one series; NULL: one series */
};

/* Whether a config asks for validation rows. */
struct dataset_config;
bool dataset_has_validation(const struct dataset_config *config);

/* Makes all rows those of one part; the column of split.group is still no input. */
void dataset_remove_split(struct dataset_config *config);

/* `layout:` of images in the file; dataset_read always gives (channels, height, width). */
enum layout { LAYOUT_NCHW, LAYOUT_NHWC };

/* `text:` */
struct text_config {
    int64_t block_size; /* characters of a row */
    int64_t stride;     /* characters between the starts of two rows */
    double truncate;    /* fraction of the file that is used, from its start */
};

/* `tokens:` */
enum token_type { TOKEN_UINT16, TOKEN_UINT32 };
struct tokens_config {
    int type;              /* enum token_type */
    int64_t vocabulary;    /* SCHEMA_NO_INT: the largest token + 1 */
    int64_t block_size;    /* tokens of a row */
    int64_t stride;        /* tokens between the starts of two rows; SCHEMA_NO_INT: block_size */
    const char *tokenizer; /* file of the tokenizer of the ids, or of a text; NULL: none */
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

/* Values that a loss takes: any; 0 to 1; 1 and -1. */
enum target_range { TARGETS_ARE_ANY, TARGETS_ARE_PROBABILITIES, TARGETS_ARE_SIGNS };

/* The class of targets that a loss does not count: it is valid, also where it is negative. */
struct ignored_class {
    bool is_set; /* false: the loss counts all classes */
    int64_t value;
    const char *key; /* of the loss, whose value it is: "ignore_index" */
};

/* `dataset:`, embedded in train/config/config.c. Its pointers must stay valid until dataset_open returns. */
struct dataset_config {
    const char *path;                   /* NULL only for synthetic */
    struct string_list others;          /* of a list of paths, all but the first */
    int format;                         /* 0: by the extension of the path; else 1 + index into the table of formats */
    struct string_list inputs, targets; /* names; count 0: the format's default */
    const char *weights;                /* name of the weights of the rows; NULL: none */
    struct string_groups input_groups, target_groups; /* the names that inputs and targets were given under; count 0:
                                                         they are lists */
    const char *query, *table;                        /* sqlite; NULL: not given */
    int layout;                                       /* enum layout */
    double divide; /* inputs are divided by it before scaling; NAN: the format's default */
    struct scale_config scale;
    int target_scale; /* enum target_scale_type */
    struct augment_config augment;
    struct split_config split;
    struct window_config window;
    struct validation_config validation;
    struct image_config image;
    struct text_config text;
    struct tokens_config tokens;
    struct synthetic_config synthetic;
    int64_t prefetch; /* for loader_create; -1: automatic */
    int64_t cache_mb; /* rows are kept in memory up to this size in MiB */
    /* Not a key: sorted labels of the classes that a model was trained with; count 0: those of the training file. */
    struct string_list classes;
    /* Not a key: the columns that a model was trained with, to find them by name in a file of the same format; count 0:
     * those of the training file. */
    struct column_list columns;
    struct csv_config csv;
    /* `columns:`, of struct column_rule. */
    struct section_list rules;
    bool has_rules; /* whether it was given */
    /* `missing:`, texts that mean a missing value; count 0: those of pandas' read_csv. */
    struct string_list missing;
    const char *filter;         /* of row_filter_parse: rows that it does not keep are left out; NULL: none are */
    bool drops_missing_targets; /* rows without a target are left out */
    /* Not a key: with is_trained, rows that the model cannot read are left out, too, instead of an error. */
    bool skips_bad_rows;
    bool has_missing, has_csv; /* whether missing and csv were given */
    /* Not a key: eval and predict: how a model's columns were prepared in training; NULL: they are numbers without
     * missing values. Without is_trained it is fitted to the training rows. */
    const struct preparation *preparation;
    bool is_trained;
    /* Not a key: the characters of a text model's tokens, in the order of their ids; NULL: those of the text. */
    const char *characters;
    /* Not a key: with is_trained, the numbers of a row that have no names; 0: they have, or are not one list. */
    size_t trained_inputs;
    /* Not a key: with is_trained, how targets were scaled in training; NULL: they were not. */
    const struct target_scale *trained_target_scale;
    /* Not a key: with is_trained, the text of the tokenizer of the model, instead of the file; NULL: none. */
    const char *trained_tokenizer;
    /* Not a key: targets (HDF5, CSV, IDX) are not read and need not exist; target_size is 0. Not with split.stratify.
     */
    bool without_targets;
    /* Not a key: with is_trained and without_targets, rows in memory instead of those of [path]; NULL: none. */
    const struct cells *cells;
    /* Not a key: processes of this host that share its processors; 0: one. */
    int local_ranks;
    /* Not a key: what the values of targets must be. */
    enum target_range target_range;
    /* Not a key: of targets that are classes, without `losses:`. */
    struct ignored_class ignored;
    /* Not keys: whether the loss weighs classes by their rows; with is_trained, their weights in training (count 0: not
     * known). */
    bool balances_classes;
    struct real_list trained_class_weights;
    /* Not keys: with `losses:`, the names of targets that are classes, of those with a range, and of inputs that are
     * targets, too. */
    bool has_losses;
    struct string_list class_targets, probability_targets, sign_targets, input_targets;
    const struct ignored_class *class_targets_ignored; /* (class_targets.count) */
};
extern const struct schema dataset_schema;

/* Replaces names of files and folders by the paths that find_file finds, in [arena], for a config read from the file
 * [config_path]; a name without a match stays, and is reported when the dataset is opened. */
status dataset_find_files(struct dataset_config *config, const char *config_path, struct arena *arena);

/* [failure], of a model that does not fit its rows to predict: adds what helps where the last column of a CSV file was
 * taken for the target because nobody has named the columns. Consumes it. */
status dataset_explain_columns(const struct dataset_config *config, status failure);

/* Whether the extension of [path] is that of a data format other than HDF5; dataset_inspect describes such a file: the
 * columns of a CSV file with their types and ranges, the number and shape of rows of the others. */
bool dataset_is_inspected(const char *path);
status dataset_inspect(const char *path, struct text *out);

/* Whether the extension of [path] is that of a format. */
bool dataset_knows_extension(const char *path);
/* Whether the file with this extension is a database, with tables and queries. */
bool dataset_has_queries(const char *path);
/* Whether the names of inputs and targets have another meaning in one of the two: the files have other formats, of
 * which not both are tables. */
bool dataset_has_other_names(const struct dataset_config *a, const struct dataset_config *b);
/* Whether the targets of the file with this extension are in a file of their own. */
bool dataset_has_target_file(const char *path);

/* Whether the rows have columns of texts: csv_texts_of. */
bool dataset_has_texts(const struct dataset_config *config);

enum input_kind {
    INPUT_VALUES, /* float32 */
    INPUT_TOKENS  /* int32_t ids, 0 .. vocabulary - 1 */
};

enum target_kind {
    TARGET_CLASS, /* integer classes, int64_t: one per row, or one per token */
    TARGET_VALUES /* float32 values per row */
};

#define DATASET_INPUT_NAME "input"   /* the inputs of a dataset without named inputs */
#define DATASET_TARGET_NAME "target" /* its targets */

/* Values first .. first + size - 1 of an input row. */
struct dataset_input {
    const char *name;
    size_t first, size;
    int dims;
    int64_t shape[MAX_DIMS];
    int64_t tokens; /* preparation_tokens of its columns */
};

/* Values first .. first + size - 1 of a target row. */
struct dataset_target {
    const char *name;
    size_t first, size;
    int dims; /* 0: a list of values, or not known */
    int64_t shape[MAX_DIMS];
    int64_t classes, first_class; /* of config.class_targets, over all rows; else 0 */
    bool is_input;                /* a copy of the input from [input_first] on, after augmentation */
    size_t input_first;
};

/* With dataset.window: what a sample is. */
struct dataset_windows {
    size_t steps;        /* rows of its inputs; 0: a sample is a row */
    size_t target_steps; /* rows of its targets */
    size_t first_target; /* rows from its first row to the first of its targets */
    size_t features;     /* inputs of a row */
    size_t series;       /* of window.group or split.group; 0: not given */
    size_t rows;         /* of all files */
};

/* Over the training rows. */
struct dataset_weights {
    double min, max, mean;
};

struct dataset_info {
    size_t train_rows, validation_rows, test_rows; /* train_rows > 0; with dataset.window, windows */
    size_t rows; /* of dataset.path; with split.time_series some may be in neither part */
    struct dataset_windows windows;
    enum input_kind input_kind;
    int64_t vocabulary;            /* INPUT_TOKENS; else 0 */
    int input_dims;                /* of one row: 1 for a vector */
    int64_t input_shape[MAX_DIMS]; /* {13} for wine; {1, 28, 28} for an image; {block_size} for tokens */
    size_t input_size;             /* values (4 bytes each) of one input row */
    int64_t input_tokens;          /* INPUT_VALUES: preparation_tokens of all columns */
    enum target_kind target_kind;
    bool is_binary;       /* TARGET_VALUES: of decisions between two classes */
    int64_t classes;      /* TARGET_CLASS: largest class + 1 over all rows, for tokens the vocabulary; else 0 */
    int64_t first_class;  /* TARGET_CLASS: the smallest class of all rows, if they were counted; else 0 */
    int64_t absent_class; /* likewise: the smallest one between the others that does not occur; 0: there is none */
    size_t target_size;   /* values of one target row; TARGET_CLASS: 1, for tokens block_size; 0: without_targets */
    int target_dims;      /* of one target row; 0: a list of values, or not known */
    int64_t target_shape[MAX_DIMS];
    const struct dataset_input *inputs; /* (input_count) named inputs; count 0: they have no names */
    size_t input_count;
    const struct dataset_target
        *targets; /* (target_count), with config.has_losses; all are float values, also classes */
    size_t target_count;
    size_t groups, validation_groups; /* of split.group; 0: none */
    bool has_weights;                 /* of the rows: dataset_read_weights */
    struct dataset_weights weights;
    struct real_list class_weights;          /* (classes) with balances_classes; else count 0 */
    const struct target_scale *target_scale; /* TARGET_VALUES: how dataset_read scales targets; NULL: it does not */
    char fingerprint[65]; /* SHA-256 (hex) of shape and all rows in the order of the file or, above 1 GiB of float32
                             rows, of shape, file size and 64 rows; "" with metadata_only */
};

struct dataset;

/* Opens the file, splits the rows and fits the scaler. [wants_classes]: targets must be integer classes >= 0 (cross
 * entropy); else they are read as float32 values. [metadata_only], for `check`: reads no inputs, fits nothing, and
 * dataset_read is not allowed. STATUS_DATA with the file, the dataset or column, and the row; for a missing file with
 * path and working directory. */
status dataset_open(const struct dataset_config *config, bool wants_classes, bool metadata_only, struct dataset **out);
/* Whether both configs split the same rows into the same parts. */
bool dataset_has_same_split(const struct dataset_config *a, const struct dataset_config *b);
/* The name of the series of each row of windows: window.group or split.group; NULL: none, or there are no windows. */
const char *dataset_series(const struct dataset_config *config);
/* One more owner, for runs one after another over the same rows: each calls dataset_close. Returns [dataset]. */
struct dataset *dataset_retain(struct dataset *dataset);
void dataset_close(struct dataset *dataset); /* takes NULL; the last owner's call frees it */
const struct dataset_info *dataset_info(const struct dataset *dataset);

/* DATASET_TEST: of split_has_test, evaluated at the end of a run; nothing else depends on its rows. */
enum dataset_part { DATASET_TRAIN, DATASET_VALIDATION, DATASET_TEST, DATASET_PARTS };
size_t dataset_part_rows(const struct dataset_info *info, enum dataset_part part);

/* Reads and scales the rows at positions (count) of [part]: inputs (count, input_size), float or, for INPUT_TOKENS,
 * int32_t; targets (count, target_size), int64_t for TARGET_CLASS, float for TARGET_VALUES. Thread-safe. */
status dataset_read(struct dataset *dataset, enum dataset_part part, const int64_t *positions, size_t count,
                    void *inputs, void *targets);

/* Reads the targets (count, target_size) of the same rows before they are scaled, for info->target_scale. Thread-safe.
 */
status dataset_read_file_targets(struct dataset *dataset, enum dataset_part part, const int64_t *positions,
                                 size_t count, double *targets);

/* Tells the operating system that dataset_read will be called for these rows soon, so that it reads them together and
 * while other rows are used. Does nothing for rows in memory; names only the first row of a window. Thread-safe. */
void dataset_will_read(struct dataset *dataset, enum dataset_part part, const int64_t *positions, size_t count);

/* Gets the weights (count) of the same rows, for info->has_weights; [is_divided]: by their mean over the training rows.
 * Thread-safe. */
void dataset_read_weights(const struct dataset *dataset, enum dataset_part part, const int64_t *positions, size_t count,
                          bool is_divided, float *weights);

/* The sorted labels of a class column of texts, class 0 first; count 0: the column has numbers. Owned by the dataset.
 */
struct string_list dataset_labels(const struct dataset *dataset);

/* The columns of the training file that are used; count 0: they have no names. Owned by the dataset. */
struct column_list dataset_columns(const struct dataset *dataset);

/* Where the targets are if they have no names of columns: an array or a file; NULL: not known. Owned by the dataset. */
const char *dataset_target_name(const struct dataset *dataset);

/* How raw columns become features, fitted to the training rows or that of the config; NULL: inputs are numbers, only
 * scaled. Owned by the dataset. */
const struct preparation *dataset_preparation(const struct dataset *dataset);

/* For a dataset that was opened with metadata_only: adds a line for each column of the training file, with its type,
 * its missing values and its features; nothing without a preparation. */
void dataset_describe_columns(const struct dataset *dataset, const struct dataset_config *config, struct text *out);

/* Appends the key of `dataset:` at [index] that the format of its rows does not use, with the formats that do. False:
 * there are no more. */
bool dataset_ignored_key(const struct dataset_config *config, size_t index, struct text *out);

/* Notes for the user about how columns were found, one for each file ("a.csv: ..."). Owned by the dataset. */
struct string_list dataset_notes(const struct dataset *dataset);

/* What inputs are divided by before they are scaled; 1: nothing. */
double dataset_divide(const struct dataset *dataset);

/* The row of the file (from 0) at [position] of [part]; of a window, the last row of its inputs. */
int64_t dataset_row(const struct dataset *dataset, enum dataset_part part, int64_t position);

/* The rows of the same file, from 0 and rising, that are left out (drops_missing_targets, skips_bad_rows). */
struct row_list {
    const size_t *items;
    size_t count;
};
struct row_list dataset_left_out(const struct dataset *dataset, enum dataset_part part);

/* The classes (train_rows) of the training rows, for TARGET_CLASS with one class per row; of windows, those of their
 * first target. */
status dataset_train_classes(struct dataset *dataset, int64_t *classes);

/* Whether training images are augmented. */
bool dataset_augments(const struct dataset *dataset);
/* Augments rows that dataset_read has read, for [epoch]: inputs (count, input_size), and the pixels of targets (count,
 * target_size) that are images alike. [scratch] (dataset_augment_bytes) is a workspace, for values of 8 bytes. */
void dataset_augment(const struct dataset *dataset, int64_t epoch, const int64_t *positions, size_t count,
                     float *inputs, void *targets, void *scratch);
size_t dataset_augment_bytes(const struct dataset *dataset);

/* Sets the targets (count, target_size) that are inputs; dataset_read does it, and dataset_augment's caller again. */
void dataset_copy_inputs(const struct dataset_info *info, const float *inputs, size_t count, float *targets);

/* Bytes of one target row. */
size_t dataset_target_bytes(const struct dataset_info *info);

/* Whether dataset_read only copies from memory (then a prefetch thread costs more than it saves). */
bool dataset_is_in_memory(const struct dataset *dataset);

/* Hashes the rows in memory, once for all owners, so that dataset_find_changed finds bits that flip. Returns how many
 * seconds that takes; 0: no rows are in memory (those of tokens are not counted). */
double dataset_hash_rows(struct dataset *dataset);

struct changed_rows {
    size_t first, last;      /* of the file, from 0; of several files, as if they were one */
    bool is_validation_file; /* of dataset.validation */
};
/* Whether rows in memory have changed since; the first block of them. */
bool dataset_find_changed(const struct dataset *dataset, struct changed_rows *out);

/* The characters of a text's tokens, in the order of their ids, as one UTF-8 string for the checkpoint (see
 * data/text/vocabulary.h); NULL when tokens are not characters. Owned by the dataset. */
const char *dataset_vocabulary(const struct dataset *dataset);

/* The text of tokenizer.json of the tokens, for the checkpoint; NULL: there is no tokenizer. Owned by the dataset. */
const char *dataset_tokenizer(const struct dataset *dataset);

/* The scaler, for the checkpoint: mean and scale (features), x' = (x - mean) / scale. features is input_size for
 * vectors and windows; for N-D rows 1, or the number of channels when a pair per channel was given; 0 without scaling.
 * Owned by the dataset. */
void dataset_scaler(const struct dataset *dataset, const double **mean, const double **scale, size_t *features);

#endif
