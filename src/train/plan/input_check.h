/* input_check: whether a model can use the values of its inputs: tokens of an embedding, lengths of rows. Formats check
 * everything else. */
#ifndef TRAIN_INPUT_CHECK_H
#define TRAIN_INPUT_CHECK_H

#include "data/dataset/dataset.h"
#include "model/model.h"

/* Reads all rows of [dataset]; without [reads_all] only if the model restricts values. STATUS_DATA with the file and
 * the row. */
status input_check(const struct model *model, struct dataset *dataset, const struct dataset_config *config,
                   bool reads_all);

/* STATUS_USAGE for an embedding of a column of texts whose padding_idx is not the column's padding. [preparation]: of
 * the dataset; NULL: none. */
status input_check_padding(const struct model *model, const struct preparation *preparation);

#endif
