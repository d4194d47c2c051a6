/* column_names: the columns that a model was trained with, stored in a checkpoint as "data/columns", so that other
 * files are read by column name. JSON: {"format": "csv", "columns": [{"name": "a", "role": "input"}, ...]}. Other keys
 * of a column are ignored; later versions may add them. */
#ifndef TRAIN_COLUMN_NAMES_H
#define TRAIN_COLUMN_NAMES_H

#include "checkpoint/checkpoint.h"
#include "data/columns/columns.h"

/* [list] as JSON, allocated in [arena]. */
char *column_names_write(struct arena *arena, const struct column_list *list);

/* Reads the columns of [checkpoint] into [arena]; count 0: it has none. STATUS_DATA when they are damaged or a column
 * is repeated. */
status column_names_read(struct arena *arena, struct checkpoint *checkpoint, struct column_list *out);

/* Parses such a text into [arena]. STATUS_DATA as above. */
status column_names_parse(struct arena *arena, const char *text, struct column_list *out);

/* For a resume, which needs the same columns in the same order: STATUS_DATA with the first difference. Nothing is
 * compared when one list is empty or the formats differ. For the message: [path] of the checkpoint; [otherwise]: what
 * may be done instead, such as "--fresh to start over". */
status column_names_compare(const struct column_list *trained, const struct column_list *now, const char *path,
                            const char *otherwise);

#endif
