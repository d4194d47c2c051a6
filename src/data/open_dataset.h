/* open_dataset: an open dataset, which dataset.c opens and access.c reads. */
#ifndef DATA_OPEN_DATASET_H
#define DATA_OPEN_DATASET_H

#include <pthread.h>

#include "data/rows/table.h"
#include "data/sampling/orders.h"
#include "data/text_columns.h"

struct dataset_rows {
    struct table *table;
    struct selection rows;
};

/* Targets first .. first + channels * height * width - 1 of a row: images of the height and width of the inputs. */
struct moved_target {
    size_t first, channels;
    int64_t fill; /* of pixels from outside the image */
};

struct dataset {
    struct dataset_info info;
    struct table tables[2]; /* the rows; with validation.path, those of the validation file */
    int n_tables;
    struct dataset_rows parts[2];   /* by enum dataset_part */
    int64_t *order;                 /* of the split; NULL: none */
    int64_t *groups;                /* (tables[0].rows) of split.group, until the fingerprint is known; NULL: none */
    struct preparation preparation; /* count 0: none */
    struct text_columns texts;
    struct scaler scaler;
    struct target_scale target_scale;
    struct augment augment;           /* fill NULL: none */
    const struct moved_target *moved; /* (moved_count) the targets that change with the images */
    size_t moved_count;
    struct arena *arena; /* of the labels, columns, notes and the preparation */
    struct string_list labels, notes;
    struct column_list columns;
    pthread_mutex_t reading; /* held while a file is read */
    double divide;           /* of the source, which may be closed */
    bool is_bytes;           /* the same */
    bool is_in_memory, is_metadata;
    int owners;
    struct orders orders; /* of the training rows, where there are several owners */
};

/* Reads dataset.weights, if it is given, and sets the weights of the tables and those of [info]. STATUS_DATA with the
 * place of the first weight that is negative or not finite, or if all of a part are 0. */
status weights_read(const struct dataset_config *config, struct table *tables, int n_tables,
                    const struct selection *train, const struct selection *validation, struct dataset_info *info);

/* Reads the groups of split.group: the rank of each row's group (rows) from 0, for buffer_free, also after a failure,
 * and their number. STATUS_DATA with the place of the first row without a group, or for a single group. */
status groups_read(const struct dataset_config *config, struct table *table, int64_t **groups, size_t *count);

/* With balances_classes: sets the weights of [info], in the arena of [dataset]. STATUS_USAGE unless a row has one
 * class. */
status class_weights_set(struct dataset *dataset, const struct dataset_config *config);

/* Sets inputs and targets of [info], whose sizes are set, and checks the values of the targets: STATUS_DATA with the
 * place of the first that does not fit its loss. [preparation]: NULL: none. */
status dataset_name_parts(const struct dataset_config *config, struct table *tables, int n_tables,
                          const struct preparation *preparation, struct dataset_info *info, struct arena *arena);

/* Prepares dataset_augment, for dataset.augment; after the scaler was fitted and before the source is closed.
 * STATUS_USAGE for rows that are no images, and for targets with positions that cannot be moved. */
status dataset_prepare_augment(struct dataset *dataset, const struct dataset_config *config);

/* The orders of training rows that were drawn; NULL: [dataset] has one owner. */
struct orders *dataset_orders(struct dataset *dataset);

#endif
