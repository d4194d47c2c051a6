/* Functions of the counters. */
#include "train/loop/progress.h"

bool progress_stops_early(const struct config *config, const struct counters *counters) {
    struct early_stop stop = early_stop_of(&config->train.early_stop);
    return stop.monitor.metric && counters->early_stop_wait >= stop.patience;
}

bool progress_is_complete(const struct config *config, const struct counters *counters) {
    if (counters->pending_end) return false;
    if (progress_stops_early(config, counters)) return true;
    if (config->train.epochs != SCHEMA_NO_INT) return counters->epoch >= config->train.epochs;
    return counters->step >= config->train.steps;
}

int64_t progress_attempted_steps(const struct counters *c) { return c->step + c->skipped; }

static int64_t steps_per_epoch(const struct trainer *t) {
    int64_t batches = (int64_t)loader_batches(t->loader), per_step = t->config->train.accumulate;
    return (batches + per_step - 1) / per_step;
}

/* The steps of all epochs; more than can be counted are INT64_MAX. */
static int64_t steps_of_epochs(const struct train_config *c, int64_t steps_per_epoch) {
    int64_t steps;
    return __builtin_mul_overflow(c->epochs, steps_per_epoch, &steps) ? INT64_MAX : steps;
}

int64_t progress_total_steps(const struct trainer *t) {
    const struct train_config *c = &t->config->train;
    return c->steps != SCHEMA_NO_INT ? c->steps : steps_of_epochs(c, steps_per_epoch(t));
}

struct schedule_progress progress_at(const struct train_config *c, int64_t steps_per_epoch, int64_t epoch,
                                     int64_t step) {
    bool has_steps = c->steps != SCHEMA_NO_INT;
    return (struct schedule_progress){.epoch = epoch,
                                      .steps = step,
                                      .total_epochs = has_steps ? (c->steps - 1) / steps_per_epoch + 1 : c->epochs,
                                      .total_steps = has_steps ? c->steps : steps_of_epochs(c, steps_per_epoch)};
}

struct schedule_progress progress_of(const struct trainer *t) {
    const struct counters *c = &t->state->counters;
    struct schedule_progress progress = progress_at(&t->config->train, steps_per_epoch(t), c->epoch, c->step);
    progress.reductions = c->plateau.reductions;
    return progress;
}

double progress_fraction(const struct trainer *t) {
    return (double)t->state->counters.step / (double)progress_total_steps(t);
}

double progress_lr(const struct trainer *t, const struct schedule_progress *progress) {
    return schedule_lr(&t->config->schedule, t->optimizer->lr, progress);
}
