/* text_columns: the columns of a table whose texts are read as tokens (type: text of dataset.columns). */
#ifndef DATA_TEXT_COLUMNS_H
#define DATA_TEXT_COLUMNS_H

#include "data/source/source.h"

struct tokenizer;
struct fit_rows;

/* Zero-initialised: there are no such columns. */
struct text_columns {
    char *json; /* of the tokenizer */
    struct tokenizer *tokenizer;
};

/* Reads the tokenizer of the columns, that of the trained model if [config] has one; none is left to text_columns_fit.
 * STATUS_USAGE for a column of texts that shares its input with other columns, STATUS_DATA for a file that cannot be
 * read. */
status text_columns_open(const struct dataset_config *config, const struct source *source, struct text_columns *out);
/* Makes the tokenizer from the words of the training rows, if the columns have none. */
status text_columns_fit(const struct source *source, const struct fit_rows *rows, struct text_columns *texts);
void text_columns_close(struct text_columns *texts);

/* Adds a problem for columns of texts with different tokenizers. */
void text_columns_check(const struct dataset_config *config, const struct node *where, struct problems *problems);

#endif
