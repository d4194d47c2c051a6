/* start_data: what stands at another place in the data of a run than in those of the checkpoint whose weights it starts
 * from (model.init_from). Weights are taken by position: of other columns, categories or classes they are used without
 * a failure, which may be intended. */
#ifndef TRAIN_START_DATA_H
#define TRAIN_START_DATA_H

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "data/dataset/dataset.h"

/* Adds the first differences of the input columns, the categories of a column and the classes: "input 1 was 'a' in its
 * training and is 'b' now, class 0 ..."; nothing where one of them has no names. STATUS_DATA when the entries of the
 * checkpoint are damaged. */
status start_data_compare(struct checkpoint *checkpoint, const struct dataset *dataset, struct text *out);

/* The same for a file of `ddptrain export`, which has no categories: the texts of its columns and labels. A text that
 * is NULL or of another program is not compared. */
void start_data_compare_texts(const char *columns, const char *labels, const struct dataset *dataset, struct text *out);

#endif
