/* preparation: how the raw columns of a table (raw_columns.h) become the features of a model: missing values are
 * replaced, categories and dates encoded, in the order of scikit-learn's ColumnTransformer with SimpleImputer,
 * OneHotEncoder(handle_unknown="ignore") and OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1). It
 * is fitted to the training rows and stored in a checkpoint (train/state/data_entries.h). Its struct is plain data,
 * so that exporters can walk it. All values are doubles; the scaler of the dataset (dataset_scaler: StandardScaler or
 * MinMaxScaler, mean 0 and scale 1 for features that are not scaled) is applied to its features, and the result is
 * rounded to float32 once:
 *
 *     raw columns --preparation_encode--> features --(x - mean) / scale--> float32
 */
#pragma once

#include <stddef.h>

#include "base/schema/schema.h"
#include "base/status.h"
#include "data/columns/columns.h"
#include "data/columns/date.h"
#include "data/columns/raw_columns.h"
#include "data/text/tokenizer.h"

/* `scale:` of a column or of all inputs. */
enum scale_type { SCALE_NONE, SCALE_STANDARD, SCALE_MINMAX };

/* The features of a column are, in this order,
 *
 *   number, boolean    its value
 *   date               each of its parts
 *   one_hot            for each category 1 if the value is this category, else 0; all 0 for an unknown category
 *   ordinal            the index of the category; -1 for an unknown category
 *   embedding          the index of the category + 1, a token; 0 for an unknown category
 *   text               the first tokens of the text, then padding
 *
 * and then, with has_indicator, 1 if the value is missing, else 0. */
struct prepared_column {
    const char *name;
    enum column_type type;         /* NUMBER, BOOLEAN, CATEGORY, DATE or TEXT */
    enum missing_rule missing;     /* MISSING_ERROR: a missing value is an error; else it becomes fill */
    double *fill;                  /* (preparation_fill_count); a category: its index, or -1 for an unknown one */
    bool has_indicator;            /* its last feature is 1 where the value is missing */
    enum column_encoding encoding; /* CATEGORY */
    enum unknown_rule unknown;     /* CATEGORY: UNKNOWN_ERROR: an unknown category is an error */
    struct string_list categories; /* CATEGORY: sorted; count > 0 */
    bool are_numbers;              /* CATEGORY: compared as numbers, see raw_columns.h */
    enum date_part *parts;         /* DATE: (part_count), part_count > 0 */
    size_t part_count;
    const char *date_format; /* DATE: of date_parse; NULL: ISO 8601 */
    size_t length;           /* TEXT: tokens of a row, > 0 */
    int32_t padding;         /* TEXT */
    int64_t tokens; /* TEXT, ENCODING_EMBEDDING: num_embeddings of the embedding: all tokens and the padding are below
                       it, also those of categories that only other rows of the file have, so that it is the same in all
                       folds */
    enum scale_type scale; /* of its features but the indicator, one_hot, embedding and text */
    size_t first, width;   /* its features: first .. first + width - 1 of a row, with the indicator */
};

struct source;
struct tokenizer;

struct preparation {
    struct prepared_column *items; /* (count): the inputs, in their order */
    size_t count, features;
};

/* Fits the preparation of [columns] (count) to the raw values of the training rows, with the entries of [rules];
 * [scale] is dataset.scale. All memory is in [arena]. STATUS_USAGE for a rule that does not fit its column, STATUS_DATA
 * for columns without values. */
struct fit_rows {
    struct source *source; /* its rows (source_rows) have the columns; read_column: see dataset_format */
    size_t source_rows;
    status (*read_column)(struct source *source, size_t column, size_t first, size_t count, double *values);
    bool is_in_file_order; /* the training rows are used in the order of the file, else in that of [order] */
    size_t (*row)(const void *selection, size_t position); /* of the training rows; NULL: they are [first] + position */
    const void *selection;
    size_t first, count;
    const struct tokenizer *tokenizer; /* of the columns of texts; NULL: there are none */
};
status preparation_fit(const struct raw_column *columns, size_t count, const struct fit_rows *rows,
                       const struct section_list *rules, enum scale_type scale, struct arena *arena,
                       struct preparation *out);

/* Adds tokenizer.json of the words that the training rows have in the columns of texts (text/tokenizer.h) to [json];
 * rows->tokenizer is not used. */
status preparation_make_tokenizer(const struct raw_column *columns, size_t count, const struct fit_rows *rows,
                                  struct text *json);

/* Rows of features as float32 can be kept with the index of a category instead of one feature for each. The values
 * (preparation_stored_size) of such a row; the features, if no column has many categories. */
size_t preparation_stored_size(const struct preparation *preparation);
/* Features (features), scaled, to stored values, and back. */
void preparation_store(const struct preparation *preparation, const float *features, float *stored);
void preparation_restore(const struct preparation *preparation, const float *stored, float *features);

/* The number of values of prepared_column.fill. */
size_t preparation_fill_count(const struct prepared_column *column);

/* If each of the columns first .. first + count - 1 becomes tokens only: all of these are below it; else 0. */
int64_t preparation_tokens(const struct preparation *preparation, size_t first, size_t count);

/* Sets first, width and features from the other members. */
void preparation_number_features(struct preparation *preparation);

/* A copy of everything in [arena]. */
struct preparation preparation_copy(const struct preparation *preparation, struct arena *arena);

/* For each column NULL, or for each of the texts of a file's column: of a category the index in
 * prepared_column.categories, -1: none; of a text its features (length), by [tokenizer] (NULL: no column is a text). In
 * [arena]. STATUS_DATA for a text that has no tokens in the tokenizer. */
status preparation_map(const struct preparation *preparation, const struct raw_column *columns,
                       const struct tokenizer *tokenizer, struct arena *arena, int32_t ***out);

/* One row: raw (count), in the order of items, to features (features). [maps]: of preparation_map; NULL, without
 * texts: a raw category is the index in prepared_column.categories, or -1. */
void preparation_encode(const struct preparation *preparation, int32_t *const *maps, const double *raw,
                        double *features);

/* The type of scaling of each feature: (features) in [out]. False: no feature is scaled. */
bool preparation_scales(const struct preparation *preparation, enum scale_type *out);

/* The column of a feature. */
size_t preparation_column_of(const struct preparation *preparation, size_t feature);

/* Adds a line for each column: its type, missing values, features. [raw]: the columns of the training file. */
void columns_describe(const struct preparation *preparation, const struct raw_column *raw,
                      const struct section_list *rules, struct text *out);

/* ---- texts ---- */

/* Texts of a column as rows of the same number of tokens. */

/* The number of tokens, of a tokenizer of their own words, that 95 % of the texts of [pool] do not exceed. */
status text_usual_length(const struct text_pool *pool, size_t *out);

/* ---- one value of an array by its rank, without sorting all ---- */

/* Orders values (count, no NaN) so that values[index], index < count, is the one that a sort would put there, no value
 * before it is larger and none behind it is smaller; returns it. */
double select_value(double *values, size_t count, size_t index);
