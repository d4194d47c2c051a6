/* labels: the labels of the classes, stored in a checkpoint as "data/labels" (a JSON list, class 0 first), so that
 * other files get the same class numbers as the training file. */
#ifndef TRAIN_LABELS_H
#define TRAIN_LABELS_H

#include "base/arena.h"
#include "base/schema/schema.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"

/* [labels] as JSON, allocated in [arena]. */
char *labels_write(struct arena *arena, const struct string_list *labels);

/* Parses [text] into [arena]. STATUS_DATA when it is not a list of strings. */
status labels_read(struct arena *arena, const char *text, struct string_list *out);

/* The labels of a checkpoint in [arena]; count 0: it has none. */
status labels_load(struct arena *arena, struct checkpoint *checkpoint, struct string_list *out);

/* The labels of the newest checkpoint in [folder], as above; count 0 also if there is no checkpoint. */
status labels_load_newest(struct arena *arena, const char *folder, struct string_list *out);

/* For a resume, which needs the same labels: STATUS_DATA with the first class whose label differs. Nothing is compared
 * when one list is empty. [path], [otherwise]: as of column_names_compare. */
status labels_compare(const struct string_list *trained, const struct string_list *now, const char *path,
                      const char *otherwise);

#endif
