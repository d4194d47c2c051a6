/* data_entries: what a checkpoint stores about the data of its training, as JSON in the texts data/..., so that other
 * files are read as in training and the model can be used without its dataset. Later versions may add keys; others than
 * those named here are ignored. */
#pragma once

#include "base/arena.h"
#include "base/schema/schema.h"
#include "checkpoint/checkpoint.h"
#include "data/columns/columns.h"
#include "data/columns/preparation.h"
#include "data/dataset/input_layout.h"
#include "data/rows/target_scale.h"

/* The labels of the classes, "data/labels" (a list, class 0 first), so that other files get the same class numbers as
 * the training file. */

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

/* The columns that a model was trained with, "data/columns", so that other files are read by column name. {"format":
 * "csv", "columns": [{"name": "a", "role": "input"}, ...]}. */

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

/* The weights of classes of `weight: balanced`, "data/class_weights", so that an evaluation of other rows has the loss
 * of the training: a list of numbers, class 0 first. */

/* As JSON, allocated in [arena]. */
char *class_weights_write(struct arena *arena, const struct real_list *weights);

/* Reads those of [checkpoint] into [arena]; count 0: there are none. STATUS_DATA when they are damaged. */
status class_weights_read(struct arena *arena, struct checkpoint *checkpoint, struct real_list *out);

/* The scale of the targets (data/rows/target_scale.h), "data/target_scale", so that predictions and metrics are in the
 * unit of the file. {"type": "standard", "mean": [..], "scale": [..]}: y' = (y - mean) / scale; type log1p: y' = log(1
 * + y). */

/* As JSON, allocated in [arena]. */
char *target_scale_write(struct arena *arena, const struct target_scale *scale);

/* Reads that of [checkpoint] into [arena]; NULL: targets are not scaled. STATUS_DATA when it is damaged. */
status target_scale_read(struct arena *arena, struct checkpoint *checkpoint, struct target_scale **out);

/* What a row of a model's inputs is (data/dataset/input_layout.h), "data/inputs", so that the model can be used without
 * its dataset.
 *
 *   {"kind": "values", "shape": [1, 28, 28], "divide": 255, "bytes": true,
 *    "names": [{"name": "image", "shape": [784]}, ...]}
 *
 * kind is "values" or "tokens" (with "vocabulary": their number); "names" only with named inputs; "tokens", of all
 * values or of those of a name, only where they are tokens below this number (num_embeddings). */

/* As JSON, allocated in [arena]. */
char *input_layout_write(struct arena *arena, const struct input_layout *layout);

/* Reads that of [checkpoint] into [arena]; *has_layout false: it has none. STATUS_DATA when it is damaged. */
status input_layout_read(struct arena *arena, struct checkpoint *checkpoint, struct input_layout *out,
                         bool *has_layout);

/* The preparation of a table's columns (data/columns/preparation.h), "data/preparation", so that other files are
 * prepared as in training.
 *
 *   {"columns": [{"name": "Age", "type": "number", "missing": "median", "fill": [28], "indicator": false,
 *                 "scale": "standard"},
 *                {"name": "Port", "type": "category", ..., "encoding": "one_hot", "unknown": "ignore",
 *                 "categories": ["C", "Q", "S"], "numeric": false},
 *                {"name": "When", "type": "date", ..., "parts": ["year", "month"], "format": null},
 *                {"name": "Review", "type": "text", ..., "length": 64, "padding": 0, "tokens": 30522}]}
 *
 * Means and scales are those of the checkpoint's scaler/mean and scaler/scale, one for each feature. */

/* [preparation] as JSON, allocated in [arena]. */
char *preparation_write(struct arena *arena, const struct preparation *preparation);

/* Reads the preparation of [checkpoint] into [arena]; *out NULL: it has none. STATUS_DATA when it is damaged. */
status preparation_read(struct arena *arena, struct checkpoint *checkpoint, struct preparation **out);

/* For a resume: STATUS_DATA with the first column whose preparation in [checkpoint] is not that of [now] (NULL: none).
 * [path], [otherwise]: as of column_names_compare. */
status preparation_compare(struct checkpoint *checkpoint, const struct preparation *now, const char *path,
                           const char *otherwise);
