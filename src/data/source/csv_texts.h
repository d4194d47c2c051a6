/* csv_texts: the fields of a table as texts, for commands that copy rows beside their results. */
#pragma once

#include "base/schema/schema.h"
#include "base/status.h"
#include "base/text.h"
#include "data/csv/csv.h"

struct csv_texts;
struct dataset_config;

/* Reads the rows of a dataset that dataset_has_texts, with those that are left out: [rows];
 * [is_validation]: of its validation files. With one record more than rows for each file the first ones are headers,
 * and the columns are those of the first file, found by name in the others; else there are no headers, and the names
 * are column_1, column_2, ... STATUS_DATA when there is another number of rows or a file is damaged. Of rows with
 * another number of fields, which skips_bad_rows leaves out, the fields that the header has. */
status csv_texts_of(const struct dataset_config *config, bool is_validation, size_t rows, struct csv_texts **out);
void csv_texts_close(struct csv_texts *texts); /* takes NULL */

/* The names of the columns; owned by [texts]. */
struct string_list csv_texts_names(const struct csv_texts *texts);

/* Field [column] of [row], from 0; unquoted; "" for a column that a later file does not have. */
const char *csv_texts_field(const struct csv_texts *texts, size_t row, size_t column);
