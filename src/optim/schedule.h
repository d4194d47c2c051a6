/* schedule: the learning rate as a closed form of the number of epochs or steps done, so that a resume needs no state;
 * only reduce_on_plateau remembers something, in struct plateau. The forms are PyTorch's schedulers'
 * (tests/vectors/sched.json). A new one is a row of the table in schedule.c. */
#ifndef OPTIM_SCHEDULE_H
#define OPTIM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/schema.h"

extern const struct schema_variants schedule_variants;

/* Where the run stands. */
struct schedule_progress {
    int64_t epoch, steps;              /* of the update that comes: its epoch (from 0) and the updates before it */
    int64_t total_epochs, total_steps; /* of the whole run, for types whose length defaults to it */
    int64_t reductions;                /* struct plateau's */
};

/* The learning rate of the update that follows, for an optimizer or group whose own rate is [base_lr]. */
double schedule_lr(const struct variant *schedule, double base_lr, const struct schedule_progress *progress);

/* The momentum (or first beta) of that update; NAN: the optimizer's own. */
double schedule_momentum(const struct variant *schedule, const struct schedule_progress *progress);
bool schedule_changes_momentum(const struct variant *schedule);

/* What reduce_on_plateau remembers: plain numbers, for the checkpoint. Starts as {.best = NAN}. */
struct plateau {
    double best;
    int64_t bad_epochs, cooldown, reductions;
};

/* The number that the schedule wants to see after each evaluation. */
enum schedule_monitor { MONITOR_NOTHING, MONITOR_VAL_LOSS, MONITOR_VAL_ACCURACY, MONITOR_TRAIN_LOSS };
enum schedule_monitor schedule_monitor(const struct variant *schedule);
/* Whether larger values of it are better (mode: max). */
bool schedule_is_max(const struct variant *schedule);

/* ReduceLROnPlateau.step([value]). */
void schedule_observe(const struct variant *schedule, struct plateau *plateau, double value);

#endif
