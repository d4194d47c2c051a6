/* update: one optimizer update, from what is known before its first micro-batch to what was measured. Plain values. */
#ifndef TRAIN_UPDATE_H
#define TRAIN_UPDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"
#include "train/nonfinite/guard.h"

struct update {
    /* before its first micro-batch */
    struct guard_place first; /* where its micro-batches begin */
    int64_t step;             /* updates before it */
    float loss_scale;         /* of its gradients; 1 unless train.precision is float16 */
    double lr, momentum;      /* momentum: NAN: the config's */
    bool is_decided;          /* on the device, which makes the update in the last pass */
    bool wants_norm;          /* of the averaged gradients; the same on all ranks */
    bool checks_state;        /* hashes are part of the control all-reduce */

    /* measured; after control_share the same on all ranks, but for has_norm and grad_norm */
    size_t batches; /* micro-batches taken from the loader */
    bool has_norm;
    double grad_norm; /* NAN: not measured */
    struct loss_sums sums;
    double rows;
    double stops; /* ranks that were asked to stop */
    /* ranks whose loss, averaged gradient or running statistic is not finite */
    double nonfinite_losses, nonfinite_gradients, nonfinite_statistics;
    double skips; /* ranks whose device skipped the update (found_inf); 0 unless is_decided */
    double seconds;
};

#endif
