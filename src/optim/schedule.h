/* schedule: the learning rate as a closed form of the number of finished epochs or steps, so that a resume needs no
 * state; only reduce_on_plateau has state, struct plateau. The formulas are those of PyTorch
 * (tests/vectors/sched.json). A new type is a row of the table in schedule.c. */
#pragma once

#include "base/schema/schema.h"

extern const struct schema_variants schedule_variants;

/* The progress of a run. */
struct schedule_progress {
    int64_t epoch, steps;              /* of the next update: its epoch (from 0) and the number of updates before it */
    int64_t total_epochs, total_steps; /* of the whole run, for types whose length defaults to it */
    int64_t reductions;                /* of struct plateau */
};

/* The learning rate of the next update for an optimizer or group with [base_lr]. */
double schedule_lr(const struct variant *schedule, double base_lr, const struct schedule_progress *progress);

bool schedule_is_constant(const struct variant *schedule); /* also without a warm-up */

/* The key that gives the schedule a length of its own; NULL: its length is not that of the run. */
const char *schedule_length_key(const struct variant *schedule);
/* Whether it is a one_cycle of a single interval, which trains at the rate of its end. */
bool schedule_has_no_rise(const struct variant *schedule, const struct schedule_progress *progress);

/* The momentum (or first beta) of that update; NAN: that of the optimizer. */
double schedule_momentum(const struct variant *schedule, const struct schedule_progress *progress);
bool schedule_changes_momentum(const struct variant *schedule);

/* Adds the function `name(base, t, total)` of Python: the rate, or [of_momentum] the momentum, after t of total
 * intervals. Not for reduce_on_plateau, of which schedule_write_plateau adds the scheduler; STATUS_USAGE with a
 * warm-up. */
status schedule_write_plateau(const struct variant *schedule, bool is_max, struct text *out);
status schedule_write_pytorch(const struct variant *schedule, const char *name, bool of_momentum, struct text *out);
bool schedule_counts_steps(const struct variant *schedule); /* intervals are updates, not epochs */

/* The state of reduce_on_plateau, part of a checkpoint. Initial value: {.best = NAN}. */
struct plateau {
    double best;
    int64_t bad_epochs, cooldown, reductions;
};

/* The metric that the schedule monitors; NULL: none. *mode: whether smaller or larger values are better, as an enum
 * monitor_mode (train/metrics/monitor.h). */
const char *schedule_monitor(const struct variant *schedule, int *mode);

/* ReduceLROnPlateau.step([value]); is_max: larger values are better. */
void schedule_update_plateau(const struct variant *schedule, struct plateau *plateau, double value, bool is_max);
