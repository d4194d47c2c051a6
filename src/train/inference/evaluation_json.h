/* evaluation_json: the line that `eval` prints. */
#ifndef TRAIN_EVALUATION_JSON_H
#define TRAIN_EVALUATION_JSON_H

#include "base/text.h"
#include "train/metrics/evaluation.h"

/* Adds the result as a line of JSON; numbers that are not finite are null. [part]: of the dataset; [labels]: of the
 * classes, none where they are numbers. */
void evaluation_json_add(const struct evaluation_result *result, const char *part, const struct string_list *labels,
                         struct text *out);

#endif
