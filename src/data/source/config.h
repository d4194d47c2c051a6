/* config: the `dataset:` section of the config as structs, and what a caller asks for besides its keys. Formats read
 * their own part of it when they open a file; the rows of the schema are in the folders that use them. */
#pragma once

#include "base/dims.h"
#include "base/schema/schema.h"
#include "data/columns/columns.h"
#include "data/columns/preparation.h"
#include "data/csv/csv.h"
#include "data/images/augment.h"
#include "data/images/image.h"

/* `scale:`. When [mean] and [std] are given, [type] is SCALE_NONE. */
struct scale_config {
    int type;                   /* enum scale_type */
    struct real_list mean, std; /* one number, or one per feature (vectors) or channel (N-D rows), with per_feature one
                                   per feature of a step; count 0: not given. Of a checkpoint also one per element */
    bool per_feature;           /* of rows (steps, features): a mean and a scale for each feature */
    /* Not a key: mean and std were fitted in training, so they are applied in double; those of a config are applied to
     * bytes in float32, as torchvision's Normalize does. */
    bool is_fitted;
};

/* `split:`, scikit-learn's train_test_split, or (with [folds]) KFold, or (with [train]) torch's random_split. */
struct split_config {
    double test;       /* fraction of validation rows, or with validation or folds of test rows; 0: no split */
    double validation; /* with test: fraction of the rest for validation; 0: test is the validation part */
    double train;      /* instead, fraction of training rows; 0: not given */
    int64_t folds;     /* instead, number of folds; 0: not given */
    int64_t fold;      /* index of the validation fold; SCHEMA_NO_INT: not given */
    int64_t seed;      /* random_state, or the generator's manual_seed */
    bool shuffle;
    bool stratify;     /* same proportion of each class in both parts; with test and shuffle, or with folds */
    bool time_series;  /* with folds: training rows are those before the fold; later rows are not used */
    const char *group; /* with test or folds: name of the groups of the rows, which are not divided; NULL: none */
};

/* `validation:`, a separate file instead of a split. */
struct validation_config {
    const char *path;          /* NULL: none */
    struct string_list others; /* of a list of paths, all but the first */
    const char *targets;       /* idx: file of its labels; NULL: derived from path */
    const char *query;         /* sqlite; NULL: dataset.query */
};

/* `window:` of a time series, whose rows are in the order of time. A sample is [steps] adjacent rows; its targets are
 * those of [predict_steps] rows, of which the first is [horizon] rows after the last row of the inputs. */
struct window_config {
    int64_t steps; /* 0: a sample is a row */
    int64_t horizon, predict_steps;
    bool has_history;  /* inputs of validation and test windows may be of the rows before those of the part */
    int64_t stride;    /* rows between the starts of two samples, for training and evaluation */
    const char *group; /* name of the series of each row; a window has rows of one series; NULL: one series */
};

/* `draw:` of rows with one class each. A sample is two or three of them, drawn by their classes. */
enum draw_type { DRAW_NONE, DRAW_PAIRS, DRAW_TRIPLETS };
struct draw_config {
    int type; /* enum draw_type */
    int64_t seed;
};

/* `layout:` of images in the file; dataset_read always gives (channels, height, width). */
enum layout { LAYOUT_NCHW, LAYOUT_NHWC };

/* `text:` */
struct text_config {
    int64_t block_size; /* characters of a row */
    int64_t stride;     /* characters between the starts of two rows */
    double truncate;    /* fraction of the file that is used, from its start */
};

/* `tokens:` */
enum token_type { TOKEN_UINT16, TOKEN_UINT32 };
struct tokens_config {
    int type;              /* enum token_type */
    int64_t vocabulary;    /* SCHEMA_NO_INT: the largest token + 1 */
    int64_t block_size;    /* tokens of a row */
    int64_t stride;        /* tokens between the starts of two rows; SCHEMA_NO_INT: block_size */
    const char *tokenizer; /* file of the tokenizer of the ids, or of a text; NULL: none */
};

enum synthetic_kind { SYNTHETIC_UNIFORM, SYNTHETIC_LINEAR, SYNTHETIC_CLASSES };
struct synthetic_config {
    int kind;               /* enum synthetic_kind */
    int64_t rows;           /* training and validation rows together */
    struct int_list inputs; /* shape of one input row */
    int64_t targets;        /* values of one target row */
    int64_t classes;        /* SYNTHETIC_CLASSES */
    double noise;           /* standard deviation */
    int64_t seed;
};

/* ---- what a caller asks for ---- */

/* One of [texts] and [numbers] is NULL. */
struct cell_column {
    const char *name;
    const char *const *texts; /* (rows); NULL: a missing value */
    const double *numbers;    /* (rows); NaN: a missing value */
};

/* Rows of a table in the caller's memory instead of a file, for predictions (dataset_request.cells). Columns are found
 * by name, and a cell means what it would mean in a CSV file. */
struct cells {
    const struct cell_column *columns; /* (column_count) */
    size_t column_count, rows;
};

/* Values that a loss takes: any; 0 to 1; 1 and -1; integers, of which negative ones end a list of classes. */
enum target_range {
    TARGETS_ARE_ANY,
    TARGETS_ARE_PROBABILITIES,
    TARGETS_ARE_SIGNS,
    TARGETS_ARE_CLASS_LISTS,
    TARGET_RANGES
};

/* The class of targets that a loss does not count: it is valid, also where it is negative. */
struct ignored_class {
    bool is_set; /* false: the loss counts all classes */
    int64_t value;
    const char *key; /* of the loss, whose value it is: "ignore_index" */
};

#define DATASET_INPUT_NAME "input"   /* the inputs of a dataset without named inputs */
#define DATASET_TARGET_NAME "target" /* its targets */

/* What a caller asks for besides the keys. */
struct dataset_request {
    /* Of a trained model: */
    bool is_trained;
    struct string_list classes; /* sorted labels of its classes; count 0: those of the training file */
    struct column_list columns; /* its columns, to find them by name in a file of the same format; count 0: those of the
                                   training file */
    const struct preparation *preparation; /* how its columns were prepared; NULL: they are numbers without missing
                                              values. Without is_trained it is fitted to the training rows */
    const char *characters; /* of the tokens of a text model, in the order of their ids; NULL: those of the text */
    size_t trained_inputs;  /* numbers of a row that have no names; 0: they have, or are not one list */
    const struct target_scale *trained_target_scale; /* how targets were scaled; NULL: they were not */
    const char *trained_tokenizer;                   /* text of its tokenizer, instead of the file; NULL: none */
    struct real_list trained_class_weights;          /* count 0: not known */
    bool draws_in_order; /* with [draw]: samples are the rows one after another, as for predictions of new rows */
    bool skips_bad_rows; /* rows that it cannot read are left out, too, instead of an error */

    /* Of the losses: */
    enum target_range target_range; /* what the values of targets must be */
    struct ignored_class ignored;   /* of targets that are classes, without `losses:` */
    bool balances_classes;          /* the loss weighs classes by their rows */
    bool has_losses; /* `losses:`: then the names of targets that are classes, of those of each range but any, and of
                        inputs that are targets, too */
    struct string_list class_targets, range_targets[TARGET_RANGES], input_targets;
    const struct ignored_class *class_targets_ignored; /* (class_targets.count) */

    /* Of the caller: */
    bool without_targets;      /* targets (HDF5, CSV, IDX) are not read and need not exist; target_size is 0. Not with
                                  split.stratify */
    const struct cells *cells; /* with is_trained and without_targets, rows in memory instead of those of the path;
                                  NULL: none */
    int local_ranks;           /* processes of this host that share its processors; 0: one */
};

/* `dataset:`, embedded in train/config/config.c. Its pointers must stay valid until dataset_open returns. */
struct dataset_config {
    const char *path;                   /* NULL only for synthetic */
    struct string_list others;          /* of a list of paths, all but the first */
    int format;                         /* 0: by the extension of the path; else 1 + index into the table of formats */
    struct string_list inputs, targets; /* names; count 0: the format's default */
    const char *weights;                /* name of the weights of the rows; NULL: none */
    struct string_groups input_groups, target_groups; /* the names that inputs and targets were given under; count 0:
                                                         they are lists */
    const char *query, *table;                        /* sqlite; NULL: not given */
    int layout;                                       /* enum layout */
    double divide; /* inputs are divided by it before scaling; NAN: the format's default */
    struct scale_config scale;
    int target_scale; /* enum target_scale_type */
    struct augment_config augment;
    struct split_config split;
    struct window_config window;
    struct draw_config draw;
    struct validation_config validation;
    struct image_config image;
    struct text_config text;
    struct tokens_config tokens;
    struct synthetic_config synthetic;
    int64_t prefetch; /* for loader_create; -1: automatic */
    int64_t cache_mb; /* rows are kept in memory up to this size in MiB */
    struct csv_config csv;
    /* `columns:`, of struct column_rule. */
    struct section_list rules;
    bool has_rules; /* whether it was given */
    /* `missing:`, texts that mean a missing value; count 0: those of pandas' read_csv. */
    struct string_list missing;
    const char *filter;             /* of row_filter_parse: rows that it does not keep are left out; NULL: none are */
    bool drops_missing_targets;     /* rows without a target are left out */
    bool has_missing, has_csv;      /* whether missing and csv were given */
    struct dataset_request request; /* not a key */
};
/* The sections of `dataset:`. */
extern const struct schema scale_section, split_section, window_section, draw_section, text_section, tokens_section,
    synthetic_section;

/* Whether keys of `text:` are given; the config of a run has all of them. */
bool text_config_is_given(const struct text_config *text);

/* The place of the value of [key] in [where], else of [where]; NULL: none. */
static inline struct place dataset_place(const struct node *where, const char *key) {
    const struct node *value = node_get(where, key);
    return value ? value->place : where ? where->place : (struct place){0};
}

/* Whether the rows are divided by groups, dataset.split.group. */
static inline bool dataset_splits_groups(const struct dataset_config *config) {
    return config->split.group && (config->split.test > 0 || config->split.folds > 0);
}

/* The name of the groups that are read, those of the split or the series of windows; NULL: none. */
static inline const char *dataset_group(const struct dataset_config *config) {
    bool has_windows = config->window.steps > 0;
    if (has_windows && config->window.group) return config->window.group;
    return has_windows || dataset_splits_groups(config) ? config->split.group : NULL;
}

/* The key that has it, for messages. */
static inline const char *dataset_group_key(const struct dataset_config *config) {
    bool is_series = config->window.steps > 0 && config->window.group && !dataset_splits_groups(config);
    return is_series ? "dataset.window.group" : "dataset.split.group";
}

/* The names of the inputs: those of the config, or of the samples of [draw]; count 0: they have none. */
const struct string_groups *dataset_input_groups(const struct dataset_config *config);

/* The files of a list of paths after the first. */
static inline const struct string_list *dataset_others(const struct dataset_config *config, bool is_validation) {
    return is_validation ? &config->validation.others : &config->others;
}
