/* source: the interface of a format. A format only opens a file and reads rows as doubles; everything else (checks of
 * values, classes, split, scaling, caching, fingerprint) is common to all formats: rows/ and sampling/. */
#pragma once

#include "base/buffer.h"
#include "base/dims.h"
#include "base/status.h"
#include "base/text.h"
#include "data/files/files.h"
#include "data/source/config.h"

struct digest;

#define MAX_DIGESTED 1073741824.0 /* bytes of rows; the fingerprint of larger datasets uses a sample */

/* ---- formats ---- */

enum input_kind {
    INPUT_VALUES, /* float32 */
    INPUT_TOKENS  /* int32_t ids, 0 .. vocabulary - 1 */
};

enum target_kind {
    TARGET_CLASS, /* integer classes, int64_t: one per row, or one per token */
    TARGET_VALUES /* float32 values per row */
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

/* How often, and in which order, rows should be read. */
enum row_access {
    ROWS_OF_FILE,  /* once, in the order of the file: they are decompressed or converted each time */
    ROWS_STORED,   /* often, in the order of the file */
    ROWS_IN_MEMORY /* often, in any order */
};

/* An open file: the first member of the struct of each format. */
struct source {
    const struct dataset_format *format;
    size_t rows;
    enum input_kind input_kind;
    int64_t vocabulary;             /* INPUT_TOKENS: number of different tokens */
    size_t stride;                  /* INPUT_TOKENS: row i starts at token i * stride */
    int input_dims;                 /* of one row, at least 1 */
    int64_t input_shape[MAX_DIMS];  /* (input_dims) */
    size_t input_size, target_size; /* values of one row; target_size 0: dataset_request.without_targets */
    int target_dims; /* of one row of a single array of targets; 0: each name is a value, or there are several arrays */
    int64_t target_shape[MAX_DIMS]; /* (target_dims) */
    int64_t classes;                /* number of classes, if known without reading all rows; else 0 */
    bool is_float32;                /* each input is exact in float32 (float, half, 8 and 16 bit integers) */
    bool has_floats;                /* read_stored may read floats */
    bool is_bytes;                  /* each input is 0 .. 255 and is stored as a byte in memory, see read_stored */
    double divide;                  /* inputs are divided by it; 0 from open: no default of the format (1) */
    size_t threads;                 /* with decode: the number of threads that may call it */
    enum row_access access;
    bool is_small; /* always kept in memory, regardless of cache_mb */
    uint64_t file_bytes;
    size_t *left_out; /* (left_out_count) rows of the file, from 0 and rising, that are none of the source's */
    size_t left_out_count;
    const char *target_name;            /* of arrays: the file or the array of the targets; NULL: none, or several */
    const char *note, *warning;         /* for dataset_notes; NULL: none. Owned by the format, as the next three. */
    const char *characters, *tokenizer; /* of dataset_vocabulary, dataset_tokenizer; NULL: none */
    struct string_list labels;          /* of dataset_labels; count 0: none */
    const struct raw_column
        *columns; /* (input_size) of a format with named columns, whose inputs may be missing or no numbers; read then
                     yields raw values, see raw_columns.h. NULL: inputs are numbers. Owned by the format. */
};

/* Keys of the config that only some formats have. */
enum format_key {
    KEY_INPUTS = 1 << 0,
    KEY_TARGETS = 1 << 1,
    KEY_COLUMNS = 1 << 2, /* columns and missing */
    KEY_CSV = 1 << 3,
    KEY_IMAGE = 1 << 4,
    KEY_TEXT = 1 << 5,
    KEY_TOKENS = 1 << 6,
    KEY_SYNTHETIC = 1 << 7
};
#define KEYS_OF_NAMES (KEY_INPUTS | KEY_TARGETS)

/* The values of a row: those of the inputs, the targets, and one weight and one group. */
enum row_value { ROW_INPUT, ROW_TARGET, ROW_WEIGHT, ROW_GROUP };

struct dataset_format {
    const char *name;
    unsigned keys;                 /* enum format_key */
    const char *const *extensions; /* ".h5", NULL-terminated; NULL: the format has no file */
    bool has_layout;               /* supports dataset.layout */
    bool is_folder;                /* the path is a folder, not a file */
    bool reads_patterns;           /* open expands the path (files.h) and checks the files */
    bool concatenates;             /* open reads [path], then dataset_others, as one text */
    bool has_queries;              /* supports dataset.query and table */
    bool has_target_file;          /* dataset.targets is a file, not names in the file of the inputs */

    /* Reads and checks the shape. [path] is NULL for a format without a file. [train]: the training file when this is
     * the validation file, which must have the same columns and class labels; else NULL. */
    status (*open)(const struct dataset_config *config, const char *path, bool wants_classes,
                   const struct source *train, struct source **out);

    /* Reads rows first .. first + count - 1: inputs (count, input_size), targets (count, target_size); either may be
     * NULL. Not thread-safe. */
    status (*read)(struct source *source, size_t first, size_t count, double *inputs, double *targets);

    /* With source.columns: reads raw values of one input of the same rows: values (count). */
    status (*read_column)(struct source *source, size_t column, size_t first, size_t count, double *values);

    /* The rows before [row] are not read again: their memory is freed. NULL: nothing. */
    void (*release)(struct source *source, size_t row);

    /* Reads the ROW_WEIGHT (dataset.weights) or the ROW_GROUP (dataset_group) of the same rows: values (count). Groups
     * are numbers, whose order is that of the groups; NAN: missing. NULL: the format has neither. */
    status (*read_extra)(struct source *source, enum row_value extra, size_t first, size_t count, double *values);

    /* Reads the inputs (count, input_size) of the same rows without the way through doubles: with is_bytes as uint8_t,
     * or with has_floats and [as_floats] as floats. */
    status (*read_stored)(struct source *source, bool as_floats, size_t first, size_t count, void *inputs);

    /* Tells the operating system that the inputs of the row will be read soon, so that it reads the rows of a batch
     * together; NULL: nothing. */
    void (*will_read)(const struct source *source, size_t row);

    /* Instead of read_stored, where a row takes a long time: reads the inputs (input_size) of one row. Thread-safe for
     * different [thread]s below source->threads. */
    status (*decode)(struct source *source, size_t row, size_t thread, uint8_t *inputs);

    /* Instead of read, for INPUT_TOKENS: reads one row, inputs (input_size), targets (target_size). Thread-safe. */
    status (*read_tokens)(const struct source *source, size_t row, int32_t *inputs, int64_t *targets);
    /* With read_tokens: adds the whole dataset, or a sample of it. */
    status (*digest)(const struct source *source, struct digest *digest);

    /* dataset_columns, in [arena] or owned by the source; NULL: none. */
    struct column_list (*columns)(const struct source *source, struct arena *arena);

    /* The shape of a row of name [index] of dataset.inputs or dataset.targets. NULL: each name is one value. */
    void (*shape_of_name)(const struct source *source, bool is_target, size_t index, int *dims, int64_t *shape);

    /* Adds the place of value [element] of [row] for a message: "a.h5: dataset 'x', row 3, column 2". */
    void (*describe)(const struct source *source, enum row_value kind, size_t row, size_t element, struct text *out);

    void (*close)(struct source *source);

    /* How the rows are read as records of texts (csv_open_records); NULL: they have no such columns. */
    const struct csv_input *records;

    /* dataset_inspect: adds what the file [path] contains; NULL: its rows are described. */
    status (*inspect)(const char *path, struct text *out);

    /* What reads inputs and targets of all rows in a script of PyTorch, a template of schema_fill for the section
     * `dataset`, with {path}, {inputs}, {targets}: lists of names, and {labels}: the file of targets. NULL: nothing. */
    const char *pytorch;
};

/* The table of formats; dataset_<name>.c defines `const struct dataset_format dataset_<name>`. */
#define DATASET_FORMATS(X)                                                                                             \
    X(hdf5) X(netcdf) X(parquet) X(csv) X(sqlite) X(idx) X(npy) X(npz) X(images) X(text) X(tokens) X(synthetic)
#define X(name) extern const struct dataset_format dataset_##name;
DATASET_FORMATS(X)
#undef X

/* The format of dataset_request.cells, which no config can name. */
extern const struct dataset_format dataset_cells;

/* That of a text with dataset.tokens.tokenizer. */
extern const struct dataset_format dataset_tokenized;

/* Row [index] of the table, NULL past its end. */
const struct dataset_format *dataset_format_at(size_t index);
/* Adds the format of an extension. False: there is one of its name. */
bool dataset_format_add(const struct dataset_format *format);

/* The format of [config], or that of the extension of [path]; NULL: unknown. */
const struct dataset_format *dataset_format_of(const struct dataset_config *config, const char *path);

/* What to do with a file whose extension is of another program, "; unpack it first ..."; "": nothing is known. */
const char *dataset_format_advice(const char *path);

/* Adds "hdf5, csv, ..., synthetic". */
void dataset_format_names(struct text *out);

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

/* ---- helpers ---- */

/* Whether targets of this shape are more than a list of values: two dimensions are not 1. */
bool source_has_shape(int dims, const int64_t *shape);

/* Whether rows of both have the same shape; a list of target values fits any shape of as many. */
bool source_is_like(const struct source *a, const struct source *b);

/* STATUS_DATA: an array of [names], dataset.inputs or dataset.targets, has rows of another shape in [b]; only for
 * several names, where both formats know their shapes; source_is_like compares a single one. [where] begins the
 * message; [other]: what file [b] is, such as "validation". */
status source_compare_names(const struct source *a, const struct source *b, bool is_target,
                            const struct string_list *names, const char *where, const char *other);

/* Whether rows of this shape are probably images (height, width, channels), as of Keras, OpenCV and Pillow. */
bool source_seems_channels_last(int dims, const int64_t *shape);

/* Adds "3x8x8", or "1" for no dimensions. */
void source_add_shape(int dims, const int64_t *shape, struct text *out);

/* ---- channels last ---- */

/* Images that a file stores as (height, width, channels), dataset.layout nhwc, become (channels, height,
 * width). */

/* Zero-initialised it changes nothing. */
struct channels_last {
    size_t channels, pixels;
    void *image; /* (pixels * channels) doubles: workspace; NULL: rows stay as they are */
};

/* STATUS_USAGE: layout nhwc is given, but the rows of [name], an array, have [dims] dimensions and are no images. */
status channels_last_reject(const char *name, int dims);

/* Whether rows of targets of this shape are images as those of the inputs, [image] (height, width, channels): they have
 * three dimensions, and the same height and width. */
bool channels_last_fits(int dims, const int64_t *shape, const int64_t *image);

/* For rows of the shape (height, width, channels), which becomes (channels, height, width). */
status channels_last_create(int64_t shape[3], struct channels_last *out);
void channels_last_free(struct channels_last *layout);

/* Transposes rows (count) of values of [bytes] bytes, at most 8; a row starts [stride] bytes after the one before. */
void channels_last_apply(const struct channels_last *layout, void *rows, size_t count, size_t stride, size_t bytes);

/* The index in the file of element [element] of a row (channels, height, width). */
size_t channels_last_element(const struct channels_last *layout, size_t element);

/* ---- several files as one ---- */

/* The rows of several files of one format, one file after another. */

/* Whether [format] can be joined; others read all files themselves, or only one. */
bool joined_supports(const struct dataset_format *format);

/* As dataset_format.open, for [files] (two or more), which have rows of the same shape. */
status joined_open(const struct dataset_format *format, const struct dataset_config *config,
                   const struct string_list *files, bool wants_classes, const struct source *train,
                   struct source **out);

/* [source], or the first of its files when it is joined; takes NULL. */
const struct source *joined_first(const struct source *source);
