/* open_dataset: an open dataset, which dataset.c opens and access.c reads. */
#ifndef DATA_OPEN_DATASET_H
#define DATA_OPEN_DATASET_H

#include <pthread.h>

#include "data/internal.h"

struct dataset_rows {
    struct table *table;
    struct selection rows;
};

struct dataset {
    struct dataset_info info;
    struct table tables[2]; /* the rows; with validation.path, those of the validation file */
    int n_tables;
    struct dataset_rows parts[2];   /* by enum dataset_part */
    int64_t *order;                 /* of the split; NULL: none */
    struct preparation preparation; /* count 0: none */
    struct scaler scaler;
    struct target_scale target_scale;
    struct augment augment; /* fill NULL: none */
    struct arena *arena;    /* of the labels, columns, notes and the preparation */
    struct string_list labels, notes;
    struct column_list columns;
    pthread_mutex_t reading; /* held while a file is read */
    double divide;           /* of the source, which may be closed */
    bool is_bytes;           /* the same */
    bool is_in_memory, is_metadata;
    int owners;
    struct orders orders; /* of the training rows, where there are several owners */
};

#endif
