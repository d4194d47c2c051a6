/* open_dataset: an open dataset, which dataset.c opens and dataset_rows.c reads. */
#pragma once

#include <pthread.h>

#include "data/dataset/dataset.h"
#include "data/rows/table.h"
#include "data/sampling/sampler.h"

struct dataset_rows {
    struct table *table;
    struct selection rows;
};

/* Targets first .. first + channels * height * width - 1 of a row: images of the height and width of the inputs. */
struct moved_target {
    size_t first, channels;
    int64_t fill; /* of pixels from outside the image */
};

/* The columns of a table whose texts are read as tokens (type: text of dataset.columns). Zero-initialised: there are
 * none. */
struct text_columns {
    char *json; /* of the tokenizer */
    struct tokenizer *tokenizer;
};

/* The rows of a part, sorted by their class. */
struct class_rows {
    int64_t *rows;  /* (rows of the part) positions in the part; NULL: samples are the rows in their order */
    size_t *starts; /* (classes + 1) of the rows of each class that the part has; first those with several rows */
    size_t classes, shared; /* shared: classes with several rows */
};

/* The samples of dataset.draw; members 0: a sample is a row. */
struct drawn_samples {
    enum draw_type type;
    uint64_t seed;
    size_t members, row_size;    /* rows of a sample; values of the inputs of one */
    bool are_signs, has_targets; /* are_signs: pairs of different classes have the target -1, not 0 */
    bool has_texts;              /* the classes of the rows are texts */
    const char *target_name;     /* dataset_target_name of the rows */
    struct class_rows parts[DATASET_PARTS];
};

struct dataset {
    struct dataset_info info;
    struct table tables[2]; /* the rows; with validation.path, those of the validation file */
    int n_tables;
    struct dataset_rows parts[DATASET_PARTS];      /* by enum dataset_part; of windows, their first rows */
    struct row_order order;                        /* of the split */
    struct row_order window_starts[DATASET_PARTS]; /* by enum dataset_part, with dataset.window */
    size_t short_series[DATASET_PARTS]; /* by enum dataset_part: series whose rows are too few for a window */
    size_t first_short[DATASET_PARTS];  /* with short_series: the first row of the first of them in its table */
    struct selection fit;               /* (fit_rows) the training rows of tables[0], to which everything is fitted */
    size_t fit_rows;                    /* without windows info.train_rows */
    int64_t *groups;                /* (tables[0].rows) of dataset_group, until the fingerprint is known; NULL: none */
    size_t group_count;             /* of these */
    struct preparation preparation; /* count 0: none */
    struct text_columns texts;
    struct scaler scaler;
    struct target_scale target_scale;
    struct target_scale window_target_scale; /* the same for all targets of a window */
    double *window_mean, *window_scale; /* (info.input_size) of the scaler, for a window or a drawn sample; or NULL */
    struct drawn_samples drawn;
    struct augment augment;           /* fill NULL: none */
    const struct moved_target *moved; /* (moved_count) the targets that change with the images */
    size_t moved_count;
    struct arena *arena; /* of the labels, columns, notes and the preparation */
    struct string_list labels, notes;
    struct row_list left_out[2]; /* of each table */
    struct column_list columns;
    const char *target_name; /* of the source, which may be closed */
    pthread_mutex_t reading; /* held while a file is read */
    double divide;           /* of the source, which may be closed */
    bool is_bytes;           /* the same */
    bool is_in_memory, is_metadata;
    int owners;
    uint64_t *row_hashes[2]; /* of dataset_hash_rows, for each block of rows of each table */
    double hash_seconds;     /* what they took; 0: there are none */
    struct orders orders;    /* of the training rows, where there are several owners */
};

/* Reads the groups of dataset_group: the rank of each row's group (rows) from 0, for buffer_free, also after a failure,
 * and their number. STATUS_DATA with the place of the first row without a group, or for a single group of a split. */
status groups_read(const struct dataset_config *config, struct table *table, int64_t **groups, size_t *count);

/* Opens the file, or files, [path]; [train] as in struct dataset_format. */
status dataset_open_source(const struct dataset_config *config, const char *path, bool wants_classes,
                           const struct source *train, struct source **out);

/* ---- dataset.window (windowed.c): without it these do nothing ---- */

/* Reads the series of the rows, whose rows must be adjacent. STATUS_USAGE for rows that are not vectors of values,
 * STATUS_DATA with the place of the first row that is not with the others of its series. */
status windowed_open(struct dataset *dataset, const struct dataset_config *config);

/* Whether the last rows of each series are the validation rows. */
bool windowed_splits_series(const struct dataset_config *config);
/* Orders the rows of such a split, the validation rows first, and sets the sizes of both parts. */
void windowed_split(struct dataset *dataset, const struct dataset_config *config);

/* Sets the parts, whose rows are known, to windows. STATUS_DATA for a part that is too short. */
status windowed_assign(struct dataset *dataset, const struct dataset_config *config);

/* Sets the shapes of inputs and targets of [info] to those of windows. STATUS_USAGE for columns that become tokens. */
status windowed_describe(struct dataset *dataset);

/* Adds notes about series that are too short. */
void windowed_note(struct dataset *dataset);

/* The scale of a row, from that of the windows of a checkpoint. */
struct scale_config windowed_row_scale(const struct dataset *dataset, const struct dataset_config *config);

/* Sets the scales of whole windows, when those of rows are fitted. */
void windowed_finish(struct dataset *dataset);

/* ---- dataset.draw (dataset/drawn.c) ---- */

/* The config of the rows that samples are drawn from: with classes as targets, whatever the losses want. */
struct dataset_config drawn_row_config(const struct dataset_config *config);

/* Makes an open dataset of such rows one of samples: sorts the rows by class and sets the shapes of inputs and targets.
 * STATUS_USAGE for rows without one class each and for what does not go with samples, STATUS_DATA for a part whose
 * classes are too few. */
status drawn_open(struct dataset *dataset, const struct dataset_config *config, bool wants_classes);

/* rows (count, members) = the positions of the rows of the samples at positions (count) in [epoch]. */
void drawn_rows(const struct dataset *dataset, enum dataset_part part, int64_t epoch, const int64_t *positions,
                size_t count, int64_t *rows);

/* The target of the sample at [position]. */
int64_t drawn_target(const struct dataset *dataset, int64_t position);

/* ---- other parts ---- */

/* Of the target [target], with `losses:`; NULL: it has no classes. */
const struct ignored_class *dataset_ignored_class(const struct dataset_config *config, const char *target);

/* Prepares dataset_augment, for dataset.augment; after the scaler was fitted and before the source is closed.
 * STATUS_USAGE for rows that are no images, and for targets with positions that cannot be moved. */
status dataset_prepare_augment(struct dataset *dataset, const struct dataset_config *config);

/* The orders of training rows that were drawn; NULL: [dataset] has one owner. */
struct orders *dataset_orders(struct dataset *dataset);
