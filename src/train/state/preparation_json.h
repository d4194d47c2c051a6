/* preparation_json: the preparation of a table's columns (data/columns/preparation.h), stored in a checkpoint as
 * "data/preparation", so that other files are prepared as in training. JSON:
 *
 *   {"columns": [{"name": "Age", "type": "number", "missing": "median", "fill": [28], "indicator": false,
 *                 "scale": "standard"},
 *                {"name": "Port", "type": "category", ..., "encoding": "one_hot", "unknown": "ignore",
 *                 "categories": ["C", "Q", "S"], "numeric": false},
 *                {"name": "When", "type": "date", ..., "parts": ["year", "month"], "format": null},
 *                {"name": "Review", "type": "text", ..., "length": 64, "padding": 0, "tokens": 30522}]}
 *
 * Means and scales are those of the checkpoint's scaler/mean and scaler/scale, one for each feature. Other keys are
 * ignored; later versions may add them. */
#ifndef TRAIN_PREPARATION_JSON_H
#define TRAIN_PREPARATION_JSON_H

#include "checkpoint/checkpoint.h"
#include "data/columns/preparation.h"

/* [preparation] as JSON, allocated in [arena]. */
char *preparation_write(struct arena *arena, const struct preparation *preparation);

/* Reads the preparation of [checkpoint] into [arena]; *out NULL: it has none. STATUS_DATA when it is damaged. */
status preparation_read(struct arena *arena, struct checkpoint *checkpoint, struct preparation **out);

/* For a resume: STATUS_DATA with the first column whose preparation in [checkpoint] is not that of [now] (NULL: none).
 * [path], [otherwise]: as of column_names_compare. */
status preparation_compare(struct checkpoint *checkpoint, const struct preparation *now, const char *path,
                           const char *otherwise);

#endif
