/* target_scale_json: the scale of the targets (data/rows/target_scale.h), stored in a checkpoint as
 * "data/target_scale", so that predictions and metrics are in the unit of the file. JSON: {"type": "standard", "mean":
 * [..], "scale": [..]}: y' = (y - mean) / scale; type log1p: y' = log(1 + y). */
#ifndef TRAIN_TARGET_SCALE_JSON_H
#define TRAIN_TARGET_SCALE_JSON_H

#include "checkpoint/checkpoint.h"
#include "data/rows/target_scale.h"

/* As JSON, allocated in [arena]. */
char *target_scale_write(struct arena *arena, const struct target_scale *scale);

/* Reads that of [checkpoint] into [arena]; NULL: targets are not scaled. STATUS_DATA when it is damaged. */
status target_scale_read(struct arena *arena, struct checkpoint *checkpoint, struct target_scale **out);

#endif
