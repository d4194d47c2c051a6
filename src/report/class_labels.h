/* class_labels: the names of a run's classes, for its confusion matrix. */
#ifndef REPORT_CLASS_LABELS_H
#define REPORT_CLASS_LABELS_H

#include "base/arena.h"
#include "base/schema/schema.h"
#include "report/run_data.h"

/* The labels of the newest valid checkpoint, one for each class of run->confusion, in [arena]; count 0: the classes are
 * numbers, or there is no such checkpoint. */
struct string_list class_labels_read(const struct run_data *run, struct arena *arena);

#endif
