/* The sums of an epoch include its applied steps only. */
#include "train/loop/step_log.h"

#include "train/loop/progress.h"

static void count_step(struct counters *c, const struct update *update) {
    c->skipped_in_row = 0;
    c->samples += (int64_t)update->rows;
    c->epoch_loss += update->sums.loss;
    c->epoch_count += update->sums.count;
    c->epoch_correct += update->sums.correct;
    c->epoch_scored += update->sums.scored;
    c->epoch_samples += update->rows;
    c->epoch_seconds += update->seconds;
    c->seconds += update->seconds;
}

static status write_metrics(struct trainer *t, const struct update *update, double loss) {
    metrics_begin(t->outputs.metrics, METRICS_STEP);
    metrics_int(t->outputs.metrics, "epoch", t->state->counters.epoch);
    metrics_step(t->outputs.metrics, update->step + 1);
    metrics_real(t->outputs.metrics, "loss", loss);
    metrics_rate(t->outputs.metrics, "lr", update->lr);
    metrics_real(t->outputs.metrics, "grad_norm", update->grad_norm);
    if (t->config->train.precision == TRAIN_FLOAT16)
        metrics_real(t->outputs.metrics, "loss_scale", (double)update->loss_scale);
    metrics_int(t->outputs.metrics, "samples", (int64_t)update->rows);
    metrics_real(t->outputs.metrics, "seconds", update->seconds);
    return metrics_end(t->outputs.metrics);
}

status step_log_write(struct trainer *t, const struct update *update) {
    struct counters *c = &t->state->counters;
    int64_t every = t->config->train.log_every, step = update->step + 1;
    count_step(c, update);
    activity_step(t->activity, step, update->seconds);
    if (t->outputs.metrics) activity_phase(t->activity, ACTIVITY_LOGGING);
    double loss = update->sums.loss / update->sums.count;
    double elapsed = c->epoch_seconds > 0 ? c->epoch_seconds : update->seconds;
    double done = (double)step / (double)progress_total_steps(t);
    report_step(&t->outputs.report, done, c->epoch + 1, step, loss, c->epoch_samples / elapsed);
    return t->outputs.metrics && every > 0 && step % every == 0 ? write_metrics(t, update, loss) : OK;
}
