/* column_names: the columns that a model was trained with, as a checkpoint keeps them ("data/columns": JSON, {"format":
 * "csv", "columns": [{"name": "a", "role": "input"}, ...]}), so that other files are read by name. Further keys of a
 * column are for later versions, and are passed over. */
#ifndef TRAIN_COLUMN_NAMES_H
#define TRAIN_COLUMN_NAMES_H

#include "checkpoint/checkpoint.h"
#include "data/columns.h"

/* As JSON, in [arena]. */
char *column_names_write(struct arena *arena, const struct column_list *list);

/* Those of [checkpoint], in [arena]; count 0: it has none. STATUS_DATA when they are damaged or a column is repeated.
 */
status column_names_read(struct arena *arena, struct checkpoint *checkpoint, struct column_list *out);

/* For a resume, which needs the very columns of the training, in the order of [trained]: STATUS_DATA with the first
 * difference of [now]. Lists of which one is empty, or of different formats, are not compared. [path] of the
 * checkpoint, for the message. */
status column_names_compare(const struct column_list *trained, const struct column_list *now, const char *path);

#endif
