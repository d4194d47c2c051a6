/* saved_state: the state in the file of a checkpoint with the hashes that a ledger has of it (train/loop/ledger.h). It
 * needs no data: the model is planned from its config and from the shape of the inputs in the file. */
#pragma once

#include "base/files/digest.h"
#include "checkpoint/checkpoint.h"
#include "train/config/config.h"
#include "train/state/state.h"

struct saved_state {
    struct counters counters;
    size_t elements;              /* parameters */
    uint64_t state, parameters;   /* state_hash; state_hash_floats of the parameters with their padding */
    char sha256[DIGEST_HEX_SIZE]; /* state_sha256; "" unless it is asked for */
};

/* [config]: the one in the checkpoint. STATUS_DATA for tensors that are not those of the config, and for a file of a
 * version without the shape of the inputs, which had no ledgers. In the memory of the host. */
status saved_state_read(struct checkpoint *checkpoint, const struct config *config, bool with_sha256,
                        struct saved_state *out);
