/* csv_source: the parts of the CSV format that its files share. */
#pragma once

#include "base/arena.h"
#include "base/expression/expression.h"
#include "data/columns/columns.h"
#include "data/columns/preparation.h"
#include "data/columns/raw_columns.h"
#include "data/csv/csv.h"
#include "data/source/row_store.h"
#include "data/source/source.h"

#define NOT_USED SIZE_MAX

struct role {
    bool is_target, is_weight, is_group; /* neither: an input */
    bool has_no_name;                    /* in the file: it is used only where the config names it */
    bool may_be_date;                    /* with csv.orders: all values so far are dates or missing, of an input or a
                                            column that is not used */
    bool is_filtered;                    /* dataset.filter or an expression reads it */
    bool has_inexact;                    /* a note names one of its values (csv_is_inexact) */
    size_t at;                           /* index among the inputs or the targets; NOT_USED */
    size_t booleans;  /* of a target: 1 + the pair of boolean_read of its values; 0: numbers or labels */
    size_t target_at; /* of an input that is a target, too: index among the targets; NOT_USED */
};

/* One of the files of a path. */
struct csv_part {
    const char *path;
    size_t first_row;
    char *text; /* of a file that is read as a whole */
};

struct csv;

/* A value that is a number in the file, not a text. */
struct csv_number {
    bool is_given;
    double value;
    bool is_real; /* the file has it as a double, of which no digits are lost; set also with its text */
};

struct csv_order;
struct row_filter;

/* The records of a kind of file, which is read as a CSV file is. */
struct csv_input {
    const char *unit;   /* of lines (rows): "line" */
    const char *header; /* where the names of the columns are: "line 1" */
    bool reads_many;    /* start may be called for each of several files, csv->path */
    size_t state_bytes; /* of csv->records, which are 0 at first */
    status (*start)(struct csv *csv, const struct dataset_config *config, bool is_validation);
    /* The next record, the names of the columns first: csv->reader.fields (count) and record_line. Its texts stay until
     * the next call. Without csv->roles it has the texts of all columns. A number needs no text if csv_takes_number:
     * csv->numbers of its column is set instead. */
    status (*next)(struct csv *csv, bool *has_record);
    /* Why the file's column [name] is no column of the table, a clause; NULL: it is one, or the file does not have it.
     * May be NULL. */
    const char *(*why_unread)(const struct csv *csv, const char *name);
    void (*close)(struct csv *csv);
};

/* Why a row of new data cannot be read. */
enum bad_reason { BAD_FIELDS, BAD_MISSING, BAD_VALUE, BAD_REASONS };

/* Rows of new data that a trained model cannot read (dataset_csv.c). */
struct bad_rows {
    size_t count;
    status first; /* of the first of them */
    struct bad_kind {
        size_t count;
        const char *path, *text; /* of the first; text "": none */
        size_t line;
    } * kinds; /* (n_columns, BAD_REASONS), with a count; those of BAD_FIELDS are in column 0 */
};

/* A column that the file does not have: an expression of dataset.columns. It is behind those of the file. */
struct computed_column {
    const char *text;
    struct expression *expression;
    size_t *operands; /* (expression->name_count) columns */
    double *values;   /* (expression->name_count) of the current record */
};

struct csv {
    struct source base;
    struct arena *arena;
    const char *path;        /* while rows are read: the current file; then as given, perhaps a pattern */
    struct csv_part *parts;  /* (part_count): the files that the path names */
    size_t part_count, part; /* part: the current one */
    struct csv_reader reader;
    bool is_whole;                 /* files are read as a whole, because one is not UTF-8 */
    const struct csv_input *input; /* how records are read */
    void *records;                 /* the state of [input]; NULL: it has none */
    char decimal;                  /* '.' or ','; 0: not known yet, or as csv_decimal leaves it */
    char thousands;                /* 0: none */
    const char *strip;             /* of csv_strip */
    const char *unclear;           /* the first number that left csv.decimal unclear; NULL: none. Its line */
    size_t unclear_line;

    size_t n_columns;                       /* of the first file, and [computed] */
    size_t n_own;                           /* of the first file alone */
    struct computed_column *computed;       /* (n_columns - n_own) */
    size_t n_fields;                        /* of a record of the current file */
    size_t *fields;                         /* (n_columns): the field of each column in the current file */
    const char **names;                     /* (n_columns) */
    struct name_index by_name;              /* of the columns */
    struct name_index config_targets;       /* dataset.targets */
    size_t default_target;                  /* the column of the targets, if [config_targets] is empty */
    struct column_rules rules;              /* dataset.columns */
    struct role *roles;                     /* (n_columns) */
    size_t *input_columns, *target_columns; /* (input_size), (target_size): column of each value */

    struct csv_number *numbers;      /* (n_columns) of the current record; NULL: all values are texts */
    struct column_builder *builders; /* (input_size) */
    struct raw_column *raw;          /* (input_size), when all rows were read */
    const char *const *missing;      /* texts of inputs that mean a missing value, NULL-terminated */
    bool starts_missing[256];        /* by the first byte of a text: one of them starts with it */
    bool has_missing_number;         /* one of them is a number */
    double *missing_numbers;         /* of these texts; NAN: no number */

    struct row_store store; /* inputs, targets, the weight with weight_column, the group with group_column, the line */
    size_t weight_column, group_column; /* NOT_USED: none */
    const char *group_key;              /* that names the group column */
    bool are_targets_inputs;            /* targets are inputs, too, unless dataset.inputs is given */
    struct text_pool groups;            /* values of the group column; in rows are their indexes */
    struct csv_order *orders;           /* (n_columns) with dataset.window; NULL: the order of time is not checked */
    double *group_values;               /* (groups.count), when all rows were read: see dataset_format.read_extra */
    double **maps; /* (input_size + target_size), when all rows were read: value = maps[i][(size_t)value] unless
                      it is NaN; NULL: the value is a number */
    struct field_plan *plans; /* (n_fields), with has_plans: how plain rows are read */
    bool has_plans;
    struct text_pool labels; /* of the class column, whose values are indexes into it */
    bool has_labels;
    const char **classes; /* (n_classes) sorted, unique labels */
    size_t n_classes;
    struct string_list number_classes; /* [classes], which are different numbers, by value; count 0: they are not */
    bool has_given_classes;            /* [classes] are those of a checkpoint, in the arena */
    bool is_kind_known;                /* another file decides whether the class column has labels */
    bool has_no_header;                /* the first record is a row */
    struct row_filter *filter;         /* rows that it does not keep are left out; NULL: all are kept */
    size_t *filter_columns;            /* (filter->column_count) */
    size_t kept;                       /* the number of rows that it keeps */
    bool drops_missing_targets;        /* rows without a target are left out */
    size_t dropped;                    /* the number of them */
    size_t left_out_capacity;          /* of base.left_out */

    bool is_new;                             /* rows for a trained model: those that it cannot read are counted */
    bool skips_bad;                          /* and left out; else they are an error when all rows were read */
    bool is_left_out;                        /* the current record */
    const struct prepared_column **prepared; /* (input_size) of new rows: how the column was prepared in training; NULL:
                                                it is a number */
    const struct csv *known_classes;         /* of new rows: whose classes are those of the model; NULL: it has none */
    struct bad_rows bad;
};

/* dataset_format.open of a format with records. */
status csv_open(const struct dataset_format *format, const struct dataset_config *config, const char *path,
                bool wants_classes, const struct source *train, struct source **out);

/* The files of a format with records, for csv_start_file, then input->next, of all columns; base.rows is the number of
 * rows before the current one, which the caller counts. For csv_close. */
status csv_open_records(const struct dataset_format *format, const struct dataset_config *config, bool is_validation,
                        struct csv **out);

/* Starts file [part]; its first record is the next one. */
status csv_start_file(struct csv *csv, const struct dataset_config *config, bool is_validation, size_t part);

/* The functions of a format whose source is a struct csv. */
status csv_read_rows(struct source *source, size_t first, size_t count, double *inputs, double *targets);
status csv_read_column(struct source *source, size_t column, size_t first, size_t count, double *values);
void csv_release(struct source *source, size_t row);
void csv_will_read(const struct source *source, size_t row);
status csv_read_extra(struct source *source, enum row_value extra, size_t first, size_t count, double *values);
struct column_list csv_columns(const struct source *source, struct arena *arena);
void csv_describe(const struct source *source, enum row_value kind, size_t row, size_t element, struct text *out);
void csv_close(struct source *source);
/* All of them, in the table of a format that is read from files. */
#define CSV_FUNCTIONS                                                                                                  \
    .read = csv_read_rows, .read_column = csv_read_column, .release = csv_release, .will_read = csv_will_read,         \
    .read_extra = csv_read_extra, .describe = csv_describe, .columns = csv_columns, .close = csv_close

/* Finds the files that the paths of the config name. */
status csv_find_files(struct csv *csv, const struct dataset_config *config, bool is_validation);

/* After the last record of a file: reads the first record of the next file with rows; *has_record false: there is
 * none. Its columns are found by name. */
status csv_next_file(struct csv *csv, const struct dataset_config *config, bool *has_record);

/* Adds a value of the current record. */
status csv_add_input(struct csv *csv, size_t column, const char *text, double *value);
status csv_add_label(struct csv *csv, const char *text, double *value);
status csv_add_boolean(const struct csv *csv, size_t column, const char *text, double *value);
status csv_add_group(struct csv *csv, const char *text, double *value);

/* The classes of a checkpoint. */
void csv_copy_classes(struct csv *csv, const struct string_list *classes);
/* When all rows were read: labels become their index in the sorted labels of [train], of a checkpoint or of this file.
 * [is_binary]: the loss takes two. */
status csv_number_labels(struct csv *csv, bool is_binary, const struct csv *train);

/* STATUS_DATA: the value of the current record is missing, or "'x' is not <what>", such as "a number; write ...". */
status csv_reject_value(const struct csv *csv, size_t column, const char *text, const char *what, const char *advice);

/* Whether a number of another kind of file is used as it is; else its text is compared, or is part of messages. */
bool csv_takes_number(const struct csv *csv, size_t column, double value);

/* The records of another kind of file have [count] fields. */
status csv_make_fields(struct csv_reader *reader, const char *path, size_t count);

/* The text of a field of another kind of file without a value: one that means a missing value in this column. */
const char *csv_missing_in(const struct csv *csv, size_t column);

/* Writes a number of another kind of file as the text of a value: where it is compared as text, with as few digits as a
 * CSV file has, 0.1 instead of 0.10000000000000001. */
#define CSV_REAL 32
void csv_format_real(const struct csv *csv, size_t column, double value, char text[CSV_REAL]);

/* ---- new rows (dataset_csv.c) ---- */

/* Whether a missing value of the column is an error in new rows. */
bool csv_needs_value(const struct csv *csv, size_t column);

/* [failure]: of the current record, at [column] with [text]; consumed. Of new rows, it is counted and is_left_out
 * is set. Other rows, and other kinds of failures: they are returned. */
status csv_leave_out(struct csv *csv, size_t column, enum bad_reason reason, const char *text, status failure);

/* Sets the targets of a row of the store that are inputs, too. */
void csv_copy_targets(const struct csv *csv, double *row);

/* With dataset.window, where the columns of inputs were started: which columns may have dates; each value of these is
 * then added, with its row of the store, whose group is set. After all rows: source.warning if they are not in the
 * order of time. */
void csv_order_add(struct csv *csv, size_t column, const char *text, const double *row);

/* The index of the group in a row of the store. */
size_t csv_group_at(const struct csv *csv);

/* When all rows were read: gives the groups values in the order of numpy.unique, of numbers or of texts. */
void csv_number_groups(struct csv *csv);

/* Makes a note if different texts of [pool], of [column], are one of [sorted], because they are equal as numbers. */
void csv_note_merged(struct csv *csv, size_t column, const struct text_pool *pool, const struct string_list *sorted);

/* The name of column [index], from 0, whose header is [text]: that, or if it is empty "Unnamed: 0", as pandas'. In
 * [arena]. */
const char *csv_name(const char *text, size_t index, struct arena *arena);

/* Whether [text] means a missing value. */
bool csv_is_missing(const struct csv *csv, const char *text);

/* The file of a row, and its line (row) there; 0: it cannot be read again. */
const char *csv_path_of(const struct csv *csv, size_t row);
size_t csv_line_of(const struct csv *csv, size_t row);

/* A text of the file, escaped for messages; in the arena of [csv]. */
const char *csv_printable(const struct csv *csv, const char *text);

/* "a.csv:line 3: column 'x'": of the current record, or of a row; in the arena of [csv]. */
const char *csv_place(const struct csv *csv, size_t column);
const char *csv_place_of(const struct csv *csv, size_t row, size_t column);

/* `inspect` of a file. */
status csv_inspect(const char *path, struct text *out);

/* Adds a clause to the note about the file. */
void csv_add_note(struct csv *csv, const char *clause);

bool csv_is_utf8(const char *text);

/* Whether pandas' read_csv takes the text for a missing value. */
bool csv_means_missing(const char *text);
/* These texts; NULL past the last. */
const char *csv_missing_text(size_t index);

/* Reads the header, or names the columns of a file without one by those of the model, and chooses the inputs and
 * targets: from [train], the training file, NULL: from the checkpoint or the config. */
status csv_read_header(struct csv *csv, const struct dataset_config *config, const struct csv *train);
status csv_choose_columns(struct csv *csv, const struct dataset_config *config, const struct csv *train);

/* Whether the columns of a model that was trained with a CSV file are known. */
bool csv_has_trained_columns(const struct dataset_config *config);

/* The column [name]; STATUS_DATA: there is none, though [known_from], "dataset.filter", has it; NULL: not known. */
status csv_find_column(const struct csv *csv, const char *name, const char *known_from, size_t *column);

/* The columns of [csv] in the model's order. */
struct column_list csv_columns_of(const struct csv *csv, struct arena *arena);
