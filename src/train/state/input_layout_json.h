/* input_layout_json: what a row of a model's inputs is (data/dataset/input_layout.h), stored in a checkpoint as
 * "data/inputs", so that the model can be used without its dataset. JSON:
 *
 *   {"kind": "values", "shape": [1, 28, 28], "divide": 255, "bytes": true,
 *    "names": [{"name": "image", "shape": [784]}, ...]}
 *
 * kind is "values" or "tokens" (with "vocabulary": their number); "names" only with named inputs; "tokens", of all
 * values or of those of a name, only where they are tokens below this number (num_embeddings). Other keys are ignored;
 * later versions may add them. */
#ifndef TRAIN_INPUT_LAYOUT_JSON_H
#define TRAIN_INPUT_LAYOUT_JSON_H

#include "checkpoint/checkpoint.h"
#include "data/dataset/input_layout.h"

/* As JSON, allocated in [arena]. */
char *input_layout_write(struct arena *arena, const struct input_layout *layout);

/* Reads that of [checkpoint] into [arena]; *has_layout false: it has none. STATUS_DATA when it is damaged. */
status input_layout_read(struct arena *arena, struct checkpoint *checkpoint, struct input_layout *out,
                         bool *has_layout);

#endif
