/* What the files of src/data share: the interface of a format, rows kept in memory or read when asked for, the split
 * and the scaler. A format only opens a file and hands out rows as doubles; everything else (checks of values, classes,
 * split, scaling, caching, fingerprint) is written once, above it. */
#ifndef DATA_INTERNAL_H
#define DATA_INTERNAL_H

#include "base/buffer.h"
#include "base/digest.h"
#include "base/text.h"
#include "data/dataset.h"

#define MOST_DIGESTED 1073741824.0 /* bytes of rows; more are fingerprinted by a sample */

/* ---- formats ---- */

/* An opened file. Formats put this first in a struct of their own. */
struct source {
    const struct dataset_format *format;
    size_t rows;
    enum input_kind input_kind;
    int64_t vocabulary;                 /* INPUT_TOKENS: how many tokens there are */
    size_t stride;                      /* INPUT_TOKENS: row i starts at token i * stride */
    int input_dims;                     /* of one row, at least 1 */
    int64_t input_shape[DATA_MAX_DIMS]; /* (input_dims) */
    size_t input_size, target_size;     /* values of one row; target_size 0: dataset_config.without_targets */
    int64_t classes;                    /* class targets: how many, when known without reading; else 0 */
    bool is_float32;                    /* each input is exact in float32 (float, half, 8 and 16 bit integers) */
    bool is_bytes;                      /* each input is 0 .. 255: they stay bytes in memory, see read_bytes */
    double divide;                      /* inputs are divided by it; 0 from open: the format has no wish (1) */
    bool is_small;                      /* always kept in memory, whatever cache_mb says */
    uint64_t file_bytes;
    const char *note; /* for dataset_notes; NULL: none. Owned by the format. */
};

struct dataset_format {
    const char *name;
    const char *const *extensions; /* ".h5", NULL-terminated; NULL: the format has no file */
    bool has_layout;               /* dataset.layout is for it */

    /* Reads what is needed to know the shape, and checks it. [path] is NULL for a format without a file. [like] (may
     * be NULL) is the training file when this is the validation file: columns and class labels are as there. */
    status (*open)(const struct dataset_config *config, const char *path, bool wants_classes, const struct source *like,
                   struct source **out);

    /* Rows first .. first + count - 1: inputs (count, input_size), targets (count, target_size); either may be NULL.
     * One call at a time. */
    status (*read)(struct source *source, size_t first, size_t count, double *inputs, double *targets);

    /* With is_bytes: the same rows, inputs (count, input_size). */
    status (*read_bytes)(struct source *source, size_t first, size_t count, uint8_t *inputs);

    /* Instead of read, for INPUT_TOKENS, whose rows need no conversion, check or copy of their own: one row, inputs
     * (input_size), targets (target_size). Any number of threads. */
    status (*read_tokens)(const struct source *source, size_t row, int32_t *inputs, int64_t *targets);
    /* With read_tokens: adds all that the rows depend on, or as much as a sample. */
    status (*digest)(const struct source *source, struct digest *digest);
    /* dataset_vocabulary; NULL: none. */
    const char *(*vocabulary)(const struct source *source);

    /* dataset_labels; NULL: none. */
    struct string_list (*labels)(const struct source *source);

    /* dataset_columns, in [arena] or the source's; NULL: none. */
    struct column_list (*columns)(const struct source *source, struct arena *arena);

    /* Adds the place of value [element] of [row] as a user finds it: "a.h5: dataset 'x', row 3, column 2". */
    void (*describe)(const struct source *source, bool is_target, size_t row, size_t element, struct text *out);

    void (*close)(struct source *source);
};

/* The table: a name here, and a `const struct dataset_format dataset_<name>` in dataset_<name>.c. */
#define DATASET_FORMATS(X) X(hdf5) X(csv) X(idx) X(text) X(tokens) X(synthetic)
#define X(name) extern const struct dataset_format dataset_##name;
DATASET_FORMATS(X)
#undef X

/* Row [index] of the table, NULL past its end. */
const struct dataset_format *dataset_format_at(size_t index);

/* The format that [config] names, or that of the extension of [path]; NULL when neither says. */
const struct dataset_format *dataset_format_of(const struct dataset_config *config, const char *path);

/* "hdf5, csv, ..., synthetic" */
void dataset_format_names(struct text *out);

/* ---- helpers ---- */

/* Checks that [path] is a regular file that can be opened and gives its size. */
status file_check(const char *path, uint64_t *bytes);

/* *text: the whole file and a NUL behind it (buffer_free); *size without the NUL. */
status file_read(const char *path, char **text, size_t *size);

/* The shape of [source] whose rows are blocks of [count] tokens: row i is tokens i * stride .. + block_size - 1, its
 * targets are the same one token later. [what]: "characters" or "tokens". */
status tokens_shape(struct source *source, size_t count, int64_t block_size, int64_t stride, const char *path,
                    const char *what);

/* buffer_new for [count] items of [size] bytes; also refuses products that overflow. */
status rows_alloc(size_t count, size_t size, const char *what, void **out);

/* ---- split ---- */

/* Rows of a table by position: order (NULL: all rows in the order of the table), from its [first] on. */
struct selection {
    const int64_t *order;
    size_t first;
};
static inline size_t selection_row(const struct selection *rows, size_t position) {
    return rows->order ? (size_t)rows->order[rows->first + position] : rows->first + position;
}

/* Whether the config asks for a split. */
bool split_is_given(const struct split_config *config);

/* scikit-learn's train_test_split(range(rows), test_size=test, random_state=seed, shuffle=shuffle), or torch's
 * random_split(range(rows), [int(train * rows), rest], torch.Generator().manual_seed(seed)): how many rows each part
 * gets, and which. With shuffle false the first rows train and the last validate, and there is no order. */
void split_sizes(const struct split_config *config, size_t rows, size_t *n_train, size_t *n_validation);
void split_rows(const struct split_config *config, size_t rows, int64_t *order, size_t *first_train,
                size_t *first_validation);

/* The same with train_test_split's stratify=classes (rows), which must be >= 0: order (rows) holds the validation rows
 * and then the training rows. STATUS_DATA for classes that are too small, or too many for a part. */
status split_rows_stratified(const struct split_config *config, const int64_t *classes, size_t rows, int64_t *order);

/* The rows of scikit-learn's KFold(folds, shuffle=shuffle, random_state=seed), or with [classes] (rows, each >= 0) of
 * StratifiedKFold: order (rows) holds the *n_validation rows of fold number [fold], ascending, and then the training
 * rows. STATUS_DATA for fewer rows than folds, or classes that are all smaller. */
status split_rows_folds(const struct split_config *config, const int64_t *classes, size_t rows, int64_t *order,
                        size_t *n_validation);

/* ---- scaler ---- */

struct scaler {
    bool is_given;        /* by the config, not fitted */
    size_t features;      /* 0: nothing is scaled */
    size_t block;         /* elements of a row that share a pair: element i uses pair i / block */
    double *mean, *scale; /* (features) */
};

/* Sets features, and the given numbers; a scaler that has to be fitted starts as mean 0, scale 1. */
status scaler_create(const struct scale_config *config, const struct source *source, struct scaler *scaler);
void scaler_free(struct scaler *scaler);

/* out (count, size) = float32 of (rows (count, size) - mean) / scale, computed in double. */
void scaler_apply(const struct scaler *scaler, const double *rows, size_t count, size_t size, float *out);

/* ---- bytes ---- */

/* The float32 of each byte, divided and scaled. */
struct levels {
    size_t features, block; /* element i of a row uses feature i / block */
    float *values;          /* (features, 256) */
};
float levels_value(const struct scaler *scaler, size_t feature, double divide, int byte);
status levels_create(const struct scaler *scaler, double divide, size_t size, struct levels *levels);
void levels_free(struct levels *levels);
/* out (features * block) of a row of bytes (features * block) */
void levels_apply(const struct levels *levels, const uint8_t *bytes, float *out);

/* ---- table ---- */

/* The rows of one source, in memory or read when asked for. Rows of tokens are handed through. */
struct table {
    struct source *source;       /* NULL once the rows are in memory for good */
    const struct scaler *scaler; /* borrowed */
    size_t rows, input_size, target_size;
    enum target_kind target_kind;
    float *inputs;        /* (rows, input_size), scaled after table_finish; NULL: not in memory */
    double *exact;        /* (rows, input_size): instead, while a scaler is fitted to values finer than float32 */
    uint8_t *bytes;       /* (rows, input_size): instead, for inputs that are bytes */
    struct levels levels; /* what the bytes become, after table_finish */
    void *targets;        /* (rows, target_size) int64_t or float; NULL: not in memory */
    bool is_raw;          /* in memory and not yet scaled */

    double *chunk; /* (chunk_rows, largest of input_size and target_size): where rows are read to */
    size_t chunk_rows;
    struct pick *order; /* (order_capacity): the rows of a batch in the order of the file */
    size_t order_capacity;
};

/* Takes [source], also when it fails. */
status table_create(struct source *source, enum target_kind target_kind, const struct scaler *scaler,
                    struct table *table);
void table_free(struct table *table); /* takes a zeroed table */

/* Bytes of memory that table_load needs for good. */
double table_bytes(const struct table *table);

/* Reads all targets once and gives the largest class + 1, and the smallest. */
status table_count_classes(struct table *table, int64_t *classes, int64_t *first);

/* Reads all targets once; STATUS_DATA with the place of the first that is not in [0, 1]. */
status table_check_probabilities(struct table *table);

/* Reads all rows into memory. [waits_for_fit]: the scaler is not ready yet. [digest] NULL or as for table_digest. */
status table_load(struct table *table, bool waits_for_fit, struct digest *digest);

/* classes (rows) of all rows. */
status table_classes(struct table *table, int64_t *classes);

/* Adds all rows to [digest]: as many bytes of each value as the file knows, in the order of the file. */
status table_digest(struct table *table, struct digest *digest);

/* Adds the file's size and some rows, evenly spaced. */
status table_sample(struct table *table, struct digest *digest);

/* Calls visit(context, row (input_size)) with each of the given rows as the file has them; in the order given when in
 * memory, in that of the file otherwise. */
status table_each(struct table *table, const struct selection *rows, size_t count,
                  void (*visit)(void *, const double *), void *context);

/* The scaler is ready: scales rows in memory and lets their source go. */
status table_finish(struct table *table);

/* The rows at positions[i] of [rows]. Rows in memory and tokens: any number of threads; else one at a time. */
status table_read(struct table *table, const struct selection *rows, const int64_t *positions, size_t count,
                  void *inputs, void *targets);

/* Fits mean and scale to the training rows: StandardScaler (population variance, constant feature: 1) or
 * MinMaxScaler. */
status scaler_fit(struct scaler *scaler, enum scale_type type, struct table *table, const struct selection *rows,
                  size_t count);

#endif
