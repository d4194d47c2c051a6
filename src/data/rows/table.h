/* table: the rows of a source, in memory or read on demand, checked, prepared and scaled. */
#pragma once

#include "data/files/order.h"
#include "data/rows/scaler.h"
#include "data/rows/target_scale.h"

/* A part of the rows of a table, from the row at [first] of the order on, which is not owned. */
struct selection {
    struct row_order order;
    size_t first;
};
static inline size_t selection_row(const struct selection *rows, size_t position) {
    return order_at(&rows->order, rows->first + position);
}

/* A class of a model by the number that stands for its label (labels_as_numbers). */
struct numbered_class {
    double number, index;
};

/* The rows of one source, in memory or read on demand. Rows of tokens are always read on demand. */
struct table {
    struct source *source;                   /* NULL after table_finish when the rows are in memory */
    const struct scaler *scaler;             /* not owned */
    const struct target_scale *target_scale; /* NULL: targets are not scaled; not owned */
    size_t rows, input_size, target_size;    /* input_size: with a preparation its features, else that of the source */
    size_t stored_size;                      /* of a row of [inputs]: input_size, or preparation_stored_size */
    const struct preparation *preparation;   /* NULL: none; not owned */
    int32_t **maps;                          /* of preparation_map; not owned */
    const char *note;                        /* about unknown categories; NULL: there are none */
    double *raw;                             /* (chunk_rows, source->input_size) with a preparation: read buffer */
    enum target_kind target_kind;
    struct ignored_class ignored;         /* of the targets that are classes and are read now */
    const struct numbered_class *classes; /* (class_count), by number: what targets stand for; not owned; count 0: for
                                             themselves */
    size_t class_count;
    float *inputs; /* (rows, stored_size), scaled after table_finish; NULL: not in memory */
    double *exact; /* (rows, input_size): instead, before scaler_fit, if float32 is not exact and the
                      source is read once only */
    double *group; /* (rows, group_size): some features, for table_each; NULL: none */
    size_t group_size;
    bool is_in_file_order;    /* table_each visits the rows in the order of the file, also in memory */
    bool is_streamed;         /* in memory after table_finish, which reads the inputs again */
    uint8_t *bytes;           /* (rows, input_size): instead, for inputs that are bytes */
    struct byte_table values; /* of the bytes, after table_finish */
    void *targets;            /* (rows, target_size) int64_t or float; NULL: not in memory */
    double *file_targets;     /* (rows, target_size) with target_scale: as in the file; NULL: not in memory */
    bool is_raw;              /* in memory and not yet scaled */
    double *weights;          /* (rows) of dataset.weights; NULL: none */

    double *chunk; /* (chunk_rows, max of input_size and target_size): read buffer */
    size_t chunk_rows;
    struct workers *workers; /* with decode; else NULL */
    uint8_t *decoded;        /* (threads, input_size), with workers */
    struct pick *order;      /* (order_capacity): the rows of a batch in the order of the file */
    size_t order_capacity;
};

/* The table owns [source] then, also after a failure. */
status table_create(struct source *source, enum target_kind target_kind, const struct scaler *scaler,
                    struct table *table);
void table_free(struct table *table); /* takes a zeroed table */

/* Reads the raw values of all rows. STATUS_DATA with the place of an infinite one. */
status table_check_raw(struct table *table);

/* Before any other rows are read: from now on inputs are the features of [preparation], which is not owned. STATUS_DATA
 * with the place of the first value that is missing, unknown or not finite and must not be. [is_trained]: the rules are
 * those of a checkpoint, for the message. [tokenizer]: of columns of texts, else NULL. [path]: of the file, for the
 * note. [arena]: for the maps of categories and texts and the note. */
status table_prepare(struct table *table, const struct preparation *preparation, const struct tokenizer *tokenizer,
                     bool is_trained, const char *path, struct arena *arena);

/* Bytes of all rows as they are used, of those that are in memory after table_finish, and of file_targets beside. */
double table_bytes(const struct table *table);
double table_memory_bytes(const struct table *table);
double table_file_target_bytes(const struct table *table);

/* The classes of all rows of some tables; class_count_start before the first. */
#define CLASS_COUNT_SEEN 256
struct class_count {
    int64_t classes, first;      /* the largest class + 1, 0: there is none; the smallest, INT64_MAX: there is none */
    bool has_ignored;            /* whether a target is the class that the loss ignores */
    bool seen[CLASS_COUNT_SEEN]; /* whether class i occurs */
};
static inline void class_count_start(struct class_count *count) { *count = (struct class_count){.first = INT64_MAX}; }
/* The smallest class above [first] and below [classes] that does not occur, as far as CLASS_COUNT_SEEN; 0: none. */
int64_t class_count_absent(const struct class_count *count);

/* Reads all targets and adds the classes of their elements [begin, begin + size). STATUS_DATA with the place of a value
 * that is not a class. */
status table_count_classes(struct table *table, size_t begin, size_t size, struct class_count *out);

/* Calls visit(context, row, targets (target_size)) with the targets of each row of the file, unscaled, in its order. */
typedef void target_visitor(void *context, size_t row, const double *targets);
status table_each_target(struct table *table, target_visitor *visit, void *context);

/* Reads all targets; STATUS_DATA with the place of the first that cannot be scaled by log1p. */
status table_check_log1p(struct table *table);

/* Sets mean and scale to the targets of the training rows, as StandardScaler or MinMaxScaler does; log1p: nothing. */
status target_scale_fit(struct target_scale *scale, struct table *table, const struct selection *rows, size_t count);

/* The same for the inputs of one row, before scaling; the source is open. */
status table_check_inputs(struct table *table, size_t row, bool (*is_wrong)(double), const char *why);

#define TABLE_MAX_FLOAT_CLASS 16777215 /* of targets that are float32: integers above are not all exact */

/* The same as table_check_targets for those that are not in [range]; of class lists, *classes becomes larger than each
 * class. */
status table_check_range(struct table *table, enum target_range range, size_t first, size_t size, int64_t *classes);

/* Reads all rows into memory. [needs_fit]: the scaler is not fitted yet. [digest]: NULL, or as for table_digest. */
status table_load(struct table *table, bool needs_fit, struct digest *digest);

/* Gets the classes (rows) of all rows, with one target. Values are the classes 0 and 1; STATUS_DATA with the place of
 * the first that is neither. */
status table_classes(struct table *table, int64_t *classes);

/* Adds all rows to [digest] in the order of the file, each value with the precision of the file. */
status table_digest(struct table *table, struct digest *digest);

/* Adds the size of the file and some rows at equal distances. */
status table_sample(struct table *table, struct digest *digest);

/* Calls visit(context, row (input_size)) with each of the given rows, unscaled; in the given order when in memory, else
 * in the order of the file. */
status table_each(struct table *table, const struct selection *rows, size_t count,
                  void (*visit)(void *, const double *), void *context);

/* How many features table_each should visit at once, so that the rows of a source that is read in the order of the file
 * can be visited in another order; all: features are not divided. */
size_t table_feature_group(const struct table *table);
/* For table_each: the rows then have the features first .. first + count - 1 only; until count is all of them. */
status table_load_features(struct table *table, size_t first, size_t count);

/* Call it after scaler_fit: scales rows in memory and closes their source. */
status table_finish(struct table *table);

/* Reads the rows at positions[i] of [rows]. Thread-safe for rows in memory and tokens. */
status table_read(struct table *table, const struct selection *rows, const int64_t *positions, size_t count,
                  void *inputs, void *targets);

/* Reads windows, whose first rows are at positions[i] of [rows]: inputs (count, steps, input_size), targets (count,
 * target_steps, target_size). Thread-safe for rows in memory. */
status table_read_windows(struct table *table, const struct dataset_windows *windows, const struct selection *rows,
                          const int64_t *positions, size_t count, float *inputs, void *targets);

/* Reads the targets (count, target_size) of rows first .. first + count - 1 of the file, before target_scale; from the
 * scaled ones they cannot be computed: 0 would be a small number. Thread-safe for rows in memory. */
status table_read_file_targets(struct table *table, size_t first, size_t count, double *targets);

/* Tells the operating system that table_read will be called for these rows soon. Not thread-safe. */
void table_will_read(struct table *table, const struct selection *rows, const int64_t *positions, size_t count);

/* Fits mean and scale to the training rows: StandardScaler (population variance, constant feature: 1) or
 * MinMaxScaler. [name]: of the dataset, for the sentence of a failure. */
status scaler_fit(struct scaler *scaler, const char *name, struct table *table, const struct selection *rows,
                  size_t count);
