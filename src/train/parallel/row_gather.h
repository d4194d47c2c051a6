/* row_gather: the rows of all ranks in a batch, for a loss that compares them (loss_type's compares_rows). How many
 * rows each rank has is known without communication. */
#pragma once

#include "device/losses.h"
#include "dist/comm/comm.h"

struct row_gather;

/* [batch]: rows of a whole batch of a rank. [comm] is not owned. [gpus]: comm_gpu's group, which then gathers in the
 * memory of GPUs; NULL: all rows go through the host. */
status row_gather_create(struct comm *comm, struct comm *gpus, size_t batch, struct row_gather **out);
void row_gather_destroy(struct row_gather *gather); /* takes NULL */

/* Sets the rows that [rank] has in an epoch or evaluation; 0 before. */
void row_gather_set_rows(struct row_gather *gather, int rank, size_t rows);

/* The rows of batch number [index], valid until the next call. NULL for NULL. */
const struct all_rows *row_gather_batch(struct row_gather *gather, size_t index);

/* The failure of the batch: STATUS_PEER. OK for NULL. */
status row_gather_take_failure(struct row_gather *gather);
