/* suggest: looks at a data file and says how it could be used: which column is the target, what the targets are, which
 * columns need rules. For the config that `ddptrain init` writes. */
#pragma once

#include "base/arena.h"
#include "data/dataset/dataset.h"

/* A column of a CSV file or a database. */
struct column_suggestion {
    const char *name;
    size_t missing;     /* rows without value */
    size_t texts;       /* different texts; 0: numbers */
    const char *rule;   /* its entry of `columns:`, as YAML; NULL: none is needed */
    const char *reason; /* for the rule, for people: "12 values are missing" */
    bool repeats;       /* an identifier that several rows have */
};

#define SUGGESTED_IMAGE_SIZE 64 /* height and width of images of a folder that are larger and of several sizes */

/* The rows of a text: dataset.text.block_size and stride of the suggestion. */
#define SUGGEST_TEXT_BLOCK 64
#define SUGGEST_TEXT_STRIDE 32

struct suggestion {
    const char *format; /* "csv" */
    const char *path;   /* of the rows of the training; that of suggest() if it is not divided */
    bool is_image_folder;
    int64_t image_size[2], image_channels;     /* of the images of a folder: dataset.image.size, channels */
    bool are_images_resized;                   /* not all have this size */
    const char *validation, *test;             /* folders of images for these parts; NULL: none */
    bool is_channels_last;                     /* rows are probably images (height, width, channels) */
    const char *labels, *image_column;         /* the CSV file of the labels of the images, its column of their names */
    const char *table, *other_tables;          /* of a database with several; else NULL */
    const char *inputs;                        /* the name, where it is not the default of the format; else NULL */
    const char *group;                         /* an identifier of rows that belong together; NULL: none */
    size_t window;                             /* a series: dataset.window.steps; 0: rows are samples */
    const char *time;                          /* a column whose dates rise from row to row; NULL: none */
    struct string_list unused;                 /* HDF5: other datasets with as many rows */
    bool has_no_header;                        /* of a CSV file, which is recognised; columns are named 0, 1, 2, ... */
    size_t missing_targets;                    /* rows of a table whose target is missing */
    char thousands;                            /* of a CSV file, the separator that was recognised; 0: none */
    const char *thousands_text;                /* a number with it */
    const char *strip, *strip_text;            /* characters around its numbers, a number with some; NULL: none */
    struct string_list warnings;               /* about the file, without "warning: " */
    struct string_list missing;                /* for dataset.missing; count 0: the default */
    const char *missing_mark, *missing_column; /* a text of missing that is no default, and a column that has it */
    const char *target;                        /* the name; NULL: the default of the format */
    const char *target_why;                    /* it was chosen, as "by its name"; NULL: not known */
    struct column_suggestion *columns;         /* (column_count): the inputs of a table; 0: the format has no columns */
    size_t column_count;
    const char *text;      /* the input of sentences; NULL: none */
    size_t text_length;    /* tokens of a row */
    size_t rows, features; /* of a row, about, for a CSV file with categories */
    enum input_kind input_kind;
    int input_dims;
    int64_t input_shape[MAX_DIMS];
    enum target_kind target_kind;
    int64_t classes;          /* TARGET_CLASS: logits that are needed */
    size_t smallest_class;    /* rows of the smallest class; 0: not known */
    size_t target_size;       /* TARGET_VALUES: values of a row */
    struct string_list names; /* of the classes; count 0: numbers */
    bool has_one_target;      /* the same for all rows, so that there is nothing to learn */
    bool has_number_labels;   /* the names are numbers, for which the target needs the rule `category` */
};

/* What is given of a CSV file; the rest is recognised. */
struct csv_choice {
    const struct csv_config *dialect; /* NULL: nothing */
    bool has_header_key;              /* dialect->has_no_header is given, not a default */
};

/* [target]: the name of the column or dataset with the targets; NULL: a CSV column with a usual name such as target,
 * label or class, else the last one. Memory in [arena]. STATUS_USAGE for a target that cannot be one, STATUS_DATA for a
 * file that cannot be read. */
status suggest(const char *path, const char *target, const struct csv_choice *csv, struct arena *arena,
               struct suggestion *out);
