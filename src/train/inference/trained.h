/* trained: what a checkpoint says about the data of its training: how other rows are read and scaled, and what the
 * outputs mean. */
#ifndef TRAIN_TRAINED_H
#define TRAIN_TRAINED_H

#include "base/arena.h"
#include "checkpoint/checkpoint.h"
#include "data/dataset.h"

struct trained {
    struct string_list labels;         /* of the classes; count 0: numbers */
    struct string_list targets;        /* names of the targets; count 0: none */
    struct target_scale *target_scale; /* NULL: none */
};

/* Reads them into [arena], and sets what determines how [dataset] reads rows: columns, preparation and scaler of the
 * checkpoint, which are not fitted to the new rows. */
status trained_read(struct arena *arena, struct checkpoint *checkpoint, struct dataset_config *dataset,
                    struct trained *out);

#endif
