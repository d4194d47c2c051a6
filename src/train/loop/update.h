/* update: the values of one optimizer update: those known before its first micro-batch, and those measured in it. */
#ifndef TRAIN_UPDATE_H
#define TRAIN_UPDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"
#include "train/nonfinite/guard.h"

struct update {
    /* before its first micro-batch */
    struct data_position first; /* position of its first micro-batch */
    int64_t step;               /* number of updates before it */
    float loss_scale;           /* of its gradients; 1 unless train.precision is float16 */
    double lr, momentum;        /* momentum: NAN: that of the config */
    bool is_device_update;      /* the device makes the update, in the last pass */
    bool needs_norm;            /* the norm of the averaged gradients; the same on all ranks */
    bool checks_state;          /* hashes are part of the control all-reduce */

    /* measured; after control_all_reduce the same on all ranks, except has_norm and grad_norm */
    size_t batches; /* micro-batches */
    bool has_norm;
    double grad_norm; /* NAN: not measured */
    struct loss_sums sums;
    double rows;
    double stops; /* ranks that received a stop request */
    /* ranks whose loss, averaged gradient or running statistic is not finite */
    double nonfinite_losses, nonfinite_gradients, nonfinite_statistics;
    double skips; /* ranks whose device skipped the update (found_inf); 0 unless is_device_update */
    double seconds;
};

#endif
