/* dataset: rows of inputs and targets from a file (tables, images, text) or generated (synthetic), split into training
 * and validation rows, scaled by statistics of the training rows. A new format is a file and a row of a table
 * (docs/adding.md). */
#pragma once

#include "base/dims.h"
#include "base/schema/schema.h"
#include "base/status.h"
#include "data/rows/target_scale.h"
#include "data/source/source.h"

/* Whether a config asks for validation rows. */
bool dataset_has_validation(const struct dataset_config *config);

/* Makes all rows those of one part; the column of split.group is still no input. */
void dataset_remove_split(struct dataset_config *config);

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
    int64_t classes, first_class; /* of dataset_request.class_targets and of class lists, over all rows; else 0 */
    bool is_input;                /* a copy of the input from [input_first] on, after augmentation */
    size_t input_first;
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
    bool is_binary;      /* TARGET_VALUES: of decisions between two classes */
    int64_t classes;     /* of classes and class lists: largest class + 1 over all rows, for tokens the vocabulary; else
                            0 */
    int64_t first_class; /* TARGET_CLASS: the smallest class of all rows, if they were counted; else 0 */
    int64_t absent_class; /* likewise: the smallest one between the others that does not occur; 0: there is none */
    bool has_ignored;     /* TARGET_CLASS: whether the loss ignores a target */
    size_t target_size;   /* values of one target row; TARGET_CLASS: 1, for tokens block_size; 0: without_targets */
    int target_dims;      /* of one target row; 0: a list of values, or not known */
    int64_t target_shape[MAX_DIMS];
    const struct dataset_input *inputs; /* (input_count) named inputs; count 0: they have no names */
    size_t input_count;
    const struct dataset_target
        *targets; /* (target_count), with dataset_request.has_losses; all are float values, also classes */
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
/* Adds the first value in which the rows of two datasets differ, in the order of the files of [configs], with its place
 * and both values; nothing where all are equal. [wants_classes] as in dataset_open, whose failures it has. */
status dataset_find_difference(const struct dataset_config *const configs[2], const bool wants_classes[2],
                               struct text *out);
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

/* The same for the samples of dataset.draw in [epoch]; dataset_read has those of epoch 0, also for validation. */
status dataset_read_epoch(struct dataset *dataset, enum dataset_part part, int64_t epoch, const int64_t *positions,
                          size_t count, void *inputs, void *targets);

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

/* The row of the file (from 0) at [position] of [part]; of a window, the last row of its inputs; of a sample of
 * dataset.draw, the first one in epoch 0. */
int64_t dataset_row(const struct dataset *dataset, enum dataset_part part, int64_t position);
/* The rows of the file of the sample of dataset.draw at [position] in [epoch] (0 for other parts than the training
 * rows), and their number; else that of dataset_row, and 1. */
#define MAX_MEMBERS 3
size_t dataset_members(const struct dataset *dataset, enum dataset_part part, int64_t epoch, int64_t position,
                       int64_t rows[MAX_MEMBERS]);
/* Adds these rows: "17", or of a sample "(17, 23)". */
void dataset_add_rows(const struct dataset *dataset, enum dataset_part part, int64_t epoch, int64_t position,
                      struct text *out);

/* What draws the samples of dataset.draw; members 0: nothing does. [different]: the target of a pair of two classes.
 * [has_texts], [target_name]: of the classes of the rows, as dataset_labels and dataset_target_name. */
struct dataset_drawing {
    size_t members;
    int64_t different;
    bool has_texts;
    const char *target_name;
};
struct dataset_drawing dataset_drawing(const struct dataset *dataset);

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

/* ---- how well the targets of validation rows are predicted from the training targets alone, without their inputs
 * scikit-learn's DummyClassifier and DummyRegressor ---- */

enum baseline_kind {
    BASELINE_NONE,
    BASELINE_CLASS, /* always the most frequent class of the training rows */
    BASELINE_MEAN,  /* always the mean of the training rows, of each target */
    BASELINE_LAST   /* of windows: the target in the last row of the inputs */
};
/* "always the most frequent class", ...; (BASELINE_NONE) NULL. */
extern const char *const baseline_names[];

struct baseline {
    enum baseline_kind kind;
    double accuracy;          /* BASELINE_CLASS: over the targets that the loss counts */
    double squared, absolute; /* of the others: means of the errors of targets as they are scaled for the loss */
};

/* One pass over the targets of both parts. BASELINE_NONE where they are not in memory, are tokens, have weights or
 * names, or there are no validation rows. */
struct baseline baseline_of(const struct dataset *dataset);
