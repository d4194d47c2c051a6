/* Declarations shared by the files of src/data: the interface of a format, the table of rows, the split and the scaler.
 * A format only opens a file and reads rows as doubles; everything else (checks of values, classes, split, scaling,
 * caching, fingerprint) is common to all formats. */
#ifndef DATA_INTERNAL_H
#define DATA_INTERNAL_H

#include "base/buffer.h"
#include "base/digest.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/sampling/orders.h"

#define MAX_DIGESTED 1073741824.0 /* bytes of rows; the fingerprint of larger datasets uses a sample */

/* ---- formats ---- */

/* An open file: the first member of the struct of each format. */
struct source {
    const struct dataset_format *format;
    size_t rows;
    enum input_kind input_kind;
    int64_t vocabulary;             /* INPUT_TOKENS: number of different tokens */
    size_t stride;                  /* INPUT_TOKENS: row i starts at token i * stride */
    int input_dims;                 /* of one row, at least 1 */
    int64_t input_shape[MAX_DIMS];  /* (input_dims) */
    size_t input_size, target_size; /* values of one row; target_size 0: dataset_config.without_targets */
    int64_t classes;                /* number of classes, if known without reading all rows; else 0 */
    bool is_float32;                /* each input is exact in float32 (float, half, 8 and 16 bit integers) */
    bool has_floats;                /* read_floats may be called */
    bool is_bytes;                  /* each input is 0 .. 255 and is stored as a byte in memory, see read_bytes */
    double divide;                  /* inputs are divided by it; 0 from open: no default of the format (1) */
    size_t threads;                 /* with decode: the number of threads that may call it */
    bool is_small;                  /* always kept in memory, regardless of cache_mb */
    uint64_t file_bytes;
    const char *note; /* for dataset_notes; NULL: none. Owned by the format. */
    const struct raw_column
        *columns; /* (input_size) of a format with named columns, whose inputs may be missing or no numbers; read then
                     yields raw values, see raw_columns.h. NULL: inputs are numbers. Owned by the format. */
};

struct dataset_format {
    const char *name;
    const char *const *extensions; /* ".h5", NULL-terminated; NULL: the format has no file */
    bool has_layout;               /* supports dataset.layout */
    bool is_folder;                /* the path is a folder, not a file */
    bool reads_patterns;           /* open expands the path (file_pattern.h) and checks the files */
    bool has_queries;              /* supports dataset.query and table */
    bool has_target_file;          /* dataset.targets is a file, not names in the file of the inputs */

    /* Reads and checks the shape. [path] is NULL for a format without a file. [train]: the training file when this is
     * the validation file, which must have the same columns and class labels; else NULL. */
    status (*open)(const struct dataset_config *config, const char *path, bool wants_classes,
                   const struct source *train, struct source **out);

    /* Reads rows first .. first + count - 1: inputs (count, input_size), targets (count, target_size); either may be
     * NULL. Not thread-safe. */
    status (*read)(struct source *source, size_t first, size_t count, double *inputs, double *targets);

    /* Reads the weights (count) of the same rows, with dataset.weights; NULL: the format has none. */
    status (*read_weights)(struct source *source, size_t first, size_t count, double *weights);
    /* Adds the place of the weight of [row] for a message. */
    void (*describe_weight)(const struct source *source, size_t row, struct text *out);

    /* With has_floats: read for inputs that are exact in float32, without the way through doubles. */
    status (*read_floats)(struct source *source, size_t first, size_t count, float *inputs);

    /* Tells the operating system that the inputs of the row will be read soon, so that it reads the rows of a batch
     * together; NULL: nothing. */
    void (*will_read)(const struct source *source, size_t row);

    /* With is_bytes: reads the inputs (count, input_size) of the same rows. */
    status (*read_bytes)(struct source *source, size_t first, size_t count, uint8_t *inputs);

    /* Instead of read_bytes, where a row takes a long time: reads the inputs (input_size) of one row. Thread-safe for
     * different [thread]s below source->threads. */
    status (*decode)(struct source *source, size_t row, size_t thread, uint8_t *inputs);

    /* Instead of read, for INPUT_TOKENS: reads one row, inputs (input_size), targets (target_size). Thread-safe. */
    status (*read_tokens)(const struct source *source, size_t row, int32_t *inputs, int64_t *targets);
    /* With read_tokens: adds the whole dataset, or a sample of it. */
    status (*digest)(const struct source *source, struct digest *digest);
    /* dataset_vocabulary; NULL: none. */
    const char *(*vocabulary)(const struct source *source);
    /* dataset_tokenizer; NULL: none. */
    const char *(*tokenizer)(const struct source *source);

    /* dataset_labels; NULL: none. */
    struct string_list (*labels)(const struct source *source);

    /* dataset_columns, in [arena] or owned by the source; NULL: none. */
    struct column_list (*columns)(const struct source *source, struct arena *arena);

    /* The shape of a row of name [index] of dataset.inputs or dataset.targets. NULL: each name is one value. */
    void (*shape_of_name)(const struct source *source, bool is_target, size_t index, int *dims, int64_t *shape);

    /* Adds the place of value [element] of [row] for a message: "a.h5: dataset 'x', row 3, column 2". */
    void (*describe)(const struct source *source, bool is_target, size_t row, size_t element, struct text *out);

    void (*close)(struct source *source);

    /* csv_texts_of: adds the rows with all columns as records of CSV, the names first; NULL: the file is CSV, or it has
     * no such columns. */
    status (*add_records)(const struct dataset_config *config, bool is_validation, struct text *out);

    /* dataset_inspect: adds what the file [path] contains; NULL: its rows are described. */
    status (*inspect)(const char *path, struct text *out);
};

/* The table of formats; dataset_<name>.c defines `const struct dataset_format dataset_<name>`. */
#define DATASET_FORMATS(X) X(hdf5) X(csv) X(sqlite) X(idx) X(npy) X(npz) X(images) X(text) X(tokens) X(synthetic)
#define X(name) extern const struct dataset_format dataset_##name;
DATASET_FORMATS(X)
#undef X

/* The format of dataset_config.cells, which no config can name. */
extern const struct dataset_format dataset_cells;

/* That of a text with dataset.tokens.tokenizer. */
extern const struct dataset_format dataset_tokenized;

/* Row [index] of the table, NULL past its end. */
const struct dataset_format *dataset_format_at(size_t index);

/* The format of [config], or that of the extension of [path]; NULL: unknown. */
const struct dataset_format *dataset_format_of(const struct dataset_config *config, const char *path);

/* Adds "hdf5, csv, ..., synthetic". */
void dataset_format_names(struct text *out);

/* ---- helpers ---- */

/* The files of a list of paths after the first. */
static inline const struct string_list *dataset_others(const struct dataset_config *config, bool is_validation) {
    return is_validation ? &config->validation.others : &config->others;
}

/* STATUS_USAGE: the format reads one file, and [path] and [others] name [count]. */
status files_are_too_many(const char *path, const struct string_list *others, size_t count, const char *format);

/* Checks that [path] is a readable regular file and gets its size. */
status file_check(const char *path, uint64_t *bytes);
/* The same for a folder. */
status folder_check(const char *path);

/* Reads the whole file and appends FILE_PADDING NULs: *text (buffer_free); *size without them. */
#define FILE_PADDING 8
status file_read(const char *path, char **text, size_t *size);

/* Sets the shape of [source] for [count] tokens: row i is tokens i * stride .. + block_size - 1, its targets are the
 * tokens one position later. [what]: "characters" or "tokens". */
status tokens_shape(struct source *source, size_t count, int64_t block_size, int64_t stride, const char *path,
                    const char *what);

/* Reads dataset.tokens.tokenizer, or that of the trained model: its text (buffer_free) and the tokenizer. */
struct tokenizer;
status tokenizer_open(const struct dataset_config *config, char **json, struct tokenizer **out);

/* The number of tokens: dataset.tokens.vocabulary, or that of the tokenizer. */
status tokens_check_vocabulary(const struct dataset_config *config, const struct tokenizer *tokenizer,
                               int64_t *vocabulary);

/* buffer_new for [count] items of [size] bytes, with a check for overflow. */
status rows_alloc(size_t count, size_t size, const char *what, void **out);

/* Adds a line for each column: its type, missing values, features. [raw]: the columns of the training file. */
void columns_describe(const struct preparation *preparation, const struct raw_column *raw,
                      const struct section_list *rules, struct text *out);

/* ---- split ---- */

/* A part of the rows of a table: from order[first] on; order NULL: the order of the table. */
struct selection {
    const int64_t *order;
    size_t first;
};
static inline size_t selection_row(const struct selection *rows, size_t position) {
    return rows->order ? (size_t)rows->order[rows->first + position] : rows->first + position;
}

/* Whether the config has a split. */
bool split_is_given(const struct split_config *config);

/* scikit-learn's train_test_split(range(rows), test_size=test, random_state=seed, shuffle=shuffle), or torch's
 * random_split(range(rows), [int(train * rows), rest], torch.Generator().manual_seed(seed)): the sizes of the parts,
 * and their rows in order (rows) from *first_train and *first_validation on. With shuffle false the first rows are the
 * training rows, and order is not used. */
void split_sizes(const struct split_config *config, size_t rows, size_t *n_train, size_t *n_validation);
void split_rows(const struct split_config *config, size_t rows, int64_t *order, size_t *first_train,
                size_t *first_validation);

/* The same with train_test_split's stratify=classes (rows), which must be >= 0: order (rows) gets the validation rows
 * and then the training rows. STATUS_DATA for classes of one row, or more classes than a part has rows. */
status split_rows_stratified(const struct split_config *config, const int64_t *classes, size_t rows, int64_t *order);

/* The rows of scikit-learn's KFold(folds, shuffle=shuffle, random_state=seed), or with [classes] (rows, each >= 0) of
 * StratifiedKFold: order (rows) holds the *n_validation rows of fold number [fold], ascending, and then the training
 * rows. STATUS_DATA for fewer rows than folds, or classes that are all smaller. */
status split_rows_folds(const struct split_config *config, const int64_t *classes, size_t rows, int64_t *order,
                        size_t *n_validation);

/* ---- scaler ---- */

struct scaler {
    bool is_given;          /* by the config, not fitted */
    size_t features;        /* 0: nothing is scaled */
    size_t block;           /* element i of a row uses mean[i / block] and scale[i / block] */
    double *mean, *scale;   /* (features) */
    enum scale_type *types; /* (features) of the fit */
};

/* Sets features and the numbers of the config; before scaler_fit mean is 0 and scale is 1. [preparation]: of the
 * source, whose features are scaled; NULL: none. */
status scaler_create(const struct scale_config *config, const struct source *source,
                     const struct preparation *preparation, struct scaler *scaler);
void scaler_free(struct scaler *scaler);

/* out (count, size) = float32 of (rows (count, size) - mean) / scale, computed in double. */
void scaler_apply(const struct scaler *scaler, const double *rows, size_t count, size_t size, float *out);

/* StandardScaler: the population standard deviation from the sums of d and d^2 of n values, d = x - mean:
 * var = (sum d^2 - (sum d)^2 / n) / n; 1 for a constant feature. */
double standard_deviation(double mean, double correction, double deviation, double n);

/* ---- byte tables ---- */

/* A lookup table: the float32 value of each byte after division and scaling. */
struct byte_table {
    size_t features, block; /* element i of a row uses feature i / block */
    float *values;          /* (features, 256) */
};
float byte_table_value(const struct scaler *scaler, size_t feature, double divide, int byte);
status byte_table_create(const struct scaler *scaler, double divide, size_t size, struct byte_table *table);
void byte_table_free(struct byte_table *table);
/* Converts a row: bytes (features * block) to out (features * block). */
void byte_table_apply(const struct byte_table *table, const uint8_t *bytes, float *out);

/* ---- table ---- */

/* The rows of one source, in memory or read on demand. Rows of tokens are always read on demand. */
struct table {
    struct source *source;                   /* NULL after table_finish when the rows are in memory */
    const struct scaler *scaler;             /* not owned */
    const struct target_scale *target_scale; /* NULL: targets are not scaled; not owned */
    size_t rows, input_size, target_size;    /* input_size: with a preparation its features, else that of the source */
    const struct preparation *preparation;   /* NULL: none; not owned */
    int64_t **maps;                          /* of preparation_map; not owned */
    const char *note;                        /* about unknown categories; NULL: there are none */
    double *raw;                             /* (chunk_rows, source->input_size) with a preparation: read buffer */
    enum target_kind target_kind;
    bool has_ignored_class;
    int64_t ignored_class;    /* of targets that are classes: it is valid and not counted */
    float *inputs;            /* (rows, input_size), scaled after table_finish; NULL: not in memory */
    double *exact;            /* (rows, input_size): instead, before scaler_fit, if float32 is not exact */
    uint8_t *bytes;           /* (rows, input_size): instead, for inputs that are bytes */
    struct byte_table values; /* of the bytes, after table_finish */
    void *targets;            /* (rows, target_size) int64_t or float; NULL: not in memory */
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

/* Allocates the read buffers for the input_size, the target_size and the preparation of the table. */
status table_alloc_chunk(struct table *table);

/* Reads raw values of all rows: (rows, source->input_size) in *raw, for buffer_free, also after a failure; NULL: they
 * are only checked, because the source is not small. STATUS_DATA with the place of an infinite one. */
status table_read_raw(struct table *table, double **raw);

/* Before any other rows are read: from now on inputs are the features of [preparation], which is not owned. STATUS_DATA
 * with the place of the first value that is missing, unknown or not finite and must not be. [is_trained]: the rules are
 * those of a checkpoint, for the message. [path]: of the file, for the note. [arena]: for the maps of categories and
 * the note. */
status table_prepare(struct table *table, const struct preparation *preparation, bool is_trained, const char *path,
                     struct arena *arena);

/* Bytes of memory that the rows need after table_finish. */
double table_bytes(const struct table *table);

/* Reads all targets and gets the largest class + 1 and the smallest class of their elements [begin, begin + size).
 * STATUS_DATA with the place of a value that is not a class. */
status table_count_classes(struct table *table, size_t begin, size_t size, int64_t *classes, int64_t *first);

/* Calls visit(context, row, targets (target_size)) with the targets of each row of the file, unscaled, in its order. */
typedef void target_visitor(void *context, size_t row, const double *targets);
status table_each_target(struct table *table, target_visitor *visit, void *context);

/* Reads all targets; STATUS_DATA with the place of the first that cannot be scaled by log1p. */
status table_check_log1p(struct table *table);

/* Sets mean and scale to the targets of the training rows, as StandardScaler or MinMaxScaler does; log1p: nothing. */
status target_scale_fit(struct target_scale *scale, struct table *table, const struct selection *rows, size_t count);

/* Reads all targets; STATUS_DATA with the place of the first of the values first .. first + size - 1 of a row that
 * is_wrong; [why]: the end of the sentence. */
status table_check_targets(struct table *table, size_t first, size_t size, bool (*is_wrong)(double), const char *why);

/* The same for those that are not in [range]. */
status table_check_range(struct table *table, enum target_range range, size_t first, size_t size);

/* Reads all rows into memory. [needs_fit]: the scaler is not fitted yet. [digest]: NULL, or as for table_digest. */
status table_load(struct table *table, bool needs_fit, struct digest *digest);

/* Gets the classes (rows) of all rows. */
status table_classes(struct table *table, int64_t *classes);

/* Adds all rows to [digest] in the order of the file, each value with the precision of the file. */
status table_digest(struct table *table, struct digest *digest);

/* Adds the size of the file and some rows at equal distances. */
status table_sample(struct table *table, struct digest *digest);

/* Calls visit(context, row (input_size)) with each of the given rows, unscaled; in the given order when in memory, else
 * in the order of the file. */
status table_each(struct table *table, const struct selection *rows, size_t count,
                  void (*visit)(void *, const double *), void *context);

/* Call it after scaler_fit: scales rows in memory and closes their source. */
status table_finish(struct table *table);

/* Reads the rows at positions[i] of [rows]. Thread-safe for rows in memory and tokens. */
status table_read(struct table *table, const struct selection *rows, const int64_t *positions, size_t count,
                  void *inputs, void *targets);

/* Tells the operating system that table_read will be called for these rows soon. Not thread-safe. */
void table_will_read(struct table *table, const struct selection *rows, const int64_t *positions, size_t count);

/* Whether table_read_floats may be called. */
bool table_has_floats(const struct table *table);

/* Reads the inputs of a row of the file. */
status table_read_floats(const struct table *table, size_t row, float *inputs, bool *is_finite);

/* Fits mean and scale to the training rows: StandardScaler (population variance, constant feature: 1) or
 * MinMaxScaler. */
status scaler_fit(struct scaler *scaler, struct table *table, const struct selection *rows, size_t count);

/* ---- weights ---- */

/* Reads dataset.weights, if it is given, and sets the weights of the tables and those of [info]. STATUS_DATA with the
 * place of the first weight that is negative or not finite, or if all of a part are 0. */
status weights_read(const struct dataset_config *config, struct table *tables, int n_tables,
                    const struct selection *train, const struct selection *validation, struct dataset_info *info);

/* ---- named parts ---- */

/* Sets inputs and targets of [info], whose sizes are set, and checks the values of the targets: STATUS_DATA with the
 * place of the first that does not fit its loss. [preparation]: NULL: none. */
status dataset_name_parts(const struct dataset_config *config, struct table *tables, int n_tables,
                          const struct preparation *preparation, struct dataset_info *info, struct arena *arena);

/* ---- dataset ---- */

/* The orders of training rows that were drawn; NULL: [dataset] has one owner. */
struct orders *dataset_orders(struct dataset *dataset);

#endif
