/* labels: the text of the classes, as a checkpoint keeps it ("data/labels": a JSON list, class 0 first), so that other
 * files are numbered as the training file was. */
#ifndef TRAIN_LABELS_H
#define TRAIN_LABELS_H

#include "base/arena.h"
#include "base/schema.h"
#include "base/status.h"

/* As JSON, in [arena]. */
char *labels_write(struct arena *arena, const struct string_list *labels);

/* Back, in [arena]. STATUS_DATA when it is not that. */
status labels_read(struct arena *arena, const char *text, struct string_list *out);

#endif
