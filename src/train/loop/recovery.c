/* The findings are gathered by all ranks, so that every rank reports the same message. */
#include "train/loop/recovery.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "train/loop/averaging/averaging.h"
#include "train/loop/rank_sync.h"
#include "train/nonfinite/diagnosis.h"

#define HOST_SIZE 64

/* The finding of a rank; fixed-size, so that it can be gathered as bytes. */
struct finding {
    bool is_found;
    char host[HOST_SIZE];
    char what[DIAGNOSIS_SIZE];
};

/* [shard]: of [batch]; NULL: no shards. */
static bool run(struct trainer *t, const struct diagnosis *diagnosis, const struct batch *batch,
                const struct elastic_shard *shard, char *what) {
    struct pass pass = trainer_pass(t, batch->rows, true);
    if (shard) pass.draws.first_row = shard->first;
    if (shard) pass.draws.row_stride = 1;
    return diagnosis_run(diagnosis, batch, &pass, what);
}

static void search_shards(struct trainer *t, const struct diagnosis *diagnosis, const struct batch *batch,
                          struct finding *finding) {
    size_t number = (size_t)t->state->counters.batch;
    for (size_t i = 0; i < elastic_shard_count(t->averaging.elastic) && !finding->is_found; i++) {
        struct elastic_shard shard = elastic_shard(t->averaging.elastic, batch, number, i);
        if (shard.batch.rows) finding->is_found = run(t, diagnosis, &shard.batch, &shard, finding->what);
    }
}

/* Runs the micro-batches of the step again until the diagnosis finds a non-finite number. */
static status search(struct trainer *t, const struct bad_step *bad, struct finding *finding) {
    struct diagnosis diagnosis = {.model = t->model,
                                  .loss = t->loss,
                                  .loss_config = t->loss_config,
                                  .dataset = t->dataset,
                                  .sums = &t->memory.results->sums,
                                  .has_gradients = t->averaging.method->keeps_gradients};
    struct counters *c = &t->state->counters;
    int64_t batch_after = c->batch;
    status s = loader_seek(t->loader, bad->first.epoch, (size_t)bad->first.batch);
    for (size_t i = 0; !s && i < bad->batches && !finding->is_found; i++) {
        struct batch host, batch;
        c->batch = bad->first.batch + (int64_t)i;
        s = feed_next(t->feed, t->loader, &host, &batch);
        if (!s && t->averaging.elastic)
            search_shards(t, &diagnosis, &batch, finding);
        else if (!s && batch.rows > 0)
            finding->is_found = run(t, &diagnosis, &batch, NULL, finding->what);
    }
    c->batch = batch_after;
    return status_first(s, loader_seek(t->loader, c->epoch, (size_t)c->batch));
}

/* [out]: the finding of the first rank that has one, "on rank 1 (host b): the output of layer 2 (linear) for row 17 of
 * the training data"; empty: none. All ranks. */
static status gather_finding(struct trainer *t, const struct finding *own, struct text *out) {
    size_t world = (size_t)comm_world_size(t->comm);
    struct finding *all = calloc(world, sizeof *all);
    if (!all) return status_memory("the reports of the ranks");
    status s = comm_all_gather(t->comm, own, sizeof *own, COMM_UINT8, all);
    for (size_t r = 0; !s && r < world && !out->length; r++) {
        if (!all[r].is_found) continue;
        if (world > 1) text_printf(out, "on rank %zu (host %s): ", r, all[r].host);
        text_add(out, all[r].what);
    }
    free(all);
    return s;
}

/* [out]: the origin of the non-finite number, the same on all ranks; empty: not found. */
static status explain(struct trainer *t, const struct bad_step *bad, struct text *out) {
    struct finding own = {0};
    const char *averaged = t->averaging.method->keeps_gradients ? diagnosis_gradient(t->model, t->device) : NULL;
    gethostname(own.host, sizeof own.host - 1);
    TRY(search(t, bad, &own));
    TRY(recordings_agree(t->recordings)); /* the searches of the ranks differ in their passes */
    TRY(gather_finding(t, &own, out));
    if (!out->length && averaged)
        text_printf(out, "the average of the gradients of %s, while those of each rank are finite", averaged);
    return OK;
}

#define WARNED_EACH 3

static bool is_power_of_ten(int64_t number) {
    while (number >= 10 && number % 10 == 0) number /= 10;
    return number == 1;
}

static void begin_event(struct trainer *t, enum metrics_event event, const char *why) {
    const struct counters *c = &t->state->counters;
    metrics_begin(t->outputs.metrics, event);
    metrics_int(t->outputs.metrics, "epoch", c->epoch);
    metrics_int(t->outputs.metrics, "batch", c->batch);
    metrics_int(t->outputs.metrics, "step", c->step);
    metrics_text(t->outputs.metrics, "reason", why);
}

/* Only the first three warnings, then the 10th, 100th ... are printed: a run may skip a step in every epoch. */
static void warn(struct trainer *t, enum metrics_event event, const char *what, const char *then) {
    int64_t number = ++t->recovery.warnings;
    if (number < WARNED_EACH)
        log_warning(t->outputs.log, "%s; %s", what, then);
    else if (number == WARNED_EACH)
        log_warning(t->outputs.log, "%s; %s. From now on only the 10th, 100th ... such step is reported%s", what, then,
                    event == METRICS_SKIPPED ? "; all are in metrics.jsonl" : "");
    else if (is_power_of_ten(number))
        log_warning(t->outputs.log, "%s; %s (number %lld since the start)", what, then, (long long)number);
    begin_event(t, event, what);
}

static status stop(const char *what, const char *why) {
    return status_new(STATUS_NOT_FINITE,
                      "%s; %snothing was saved after it. Try a smaller optimizer.lr or train.clip_grad_norm, and look "
                      "for extreme values in the data",
                      what, why);
}

static status skip(struct trainer *t, const char *what) {
    struct counters *c = &t->state->counters;
    char why[96];
    if (c->skipped_in_row >= t->config->train.on_nonfinite.max) {
        bool is_one = c->skipped_in_row == 1;
        snprintf(why, sizeof why, "%lld step%s skipped before; ", (long long)c->skipped_in_row,
                 is_one ? " was" : "s in a row were");
        return stop(what, why);
    }
    guard_restore_buffers(t->recovery.guard, &t->model->buffers);
    c->skipped++;
    c->skipped_in_row++;
    if (!t->outputs.metrics) return OK;
    warn(t, METRICS_SKIPPED, what, "the step is skipped");
    return metrics_end(t->outputs.metrics);
}

bool recovery_is_overflow(const struct trainer *t, bool is_loss_finite) {
    const struct train_config *c = &t->config->train;
    return is_loss_finite && c->precision == TRAIN_FLOAT16 &&
           loss_scale_can_overflow(&c->grad_scaler, &t->state->counters.loss_scale);
}

status recovery_overflow(struct trainer *t) {
    struct counters *c = &t->state->counters;
    double before = loss_scale_value(&t->config->train.grad_scaler, &c->loss_scale);
    char what[112];
    loss_scale_update(&t->config->train.grad_scaler, &c->loss_scale, true);
    c->skipped++;
    if (!t->outputs.metrics) return OK;
    snprintf(what, sizeof what, "gradients overflowed float16: the loss scale is reduced from %.10g to %.10g", before,
             c->loss_scale.scale);
    begin_event(t, METRICS_SKIPPED, what);
    return metrics_end(t->outputs.metrics);
}

static status reload(struct trainer *t) {
    struct checkpoint *checkpoint;
    char *path;
    TRY(checkpoint_open_newest(run_folder_checkpoints(t->outputs.folder), t->outputs.log, &checkpoint, &path));
    if (!checkpoint) return status_new(STATUS_NOT_FINITE, "there is no checkpoint to roll back to");
    int64_t world_size = t->state->counters.world_size;
    status s = state_load(t->state, checkpoint, path, "--fresh to start over");
    t->state->counters.world_size = world_size;
    if (t->state->counters.pending_end == PENDING_END_OF_EPOCH) /* batches of this number of ranks */
        t->state->counters.batch = (int64_t)loader_batches(t->loader);
    checkpoint_close(checkpoint);
    free(path);
    return s ? s : metrics_rewind(t->outputs.metrics, t->state->counters.metrics_bytes, t->state->counters.step);
}

static status roll_back(struct trainer *t, const char *what, struct data_position position,
                        struct data_position written) {
    struct counters *c = &t->state->counters;
    char why[96];
    guard_discard_before(t->recovery.guard, written); /* positions before it are not reached again */
    if (!guard_skip(t->recovery.guard, position)) {
        snprintf(why, sizeof why, "%lld roll-backs to the newest checkpoint did not help; ",
                 (long long)t->config->train.on_nonfinite.max);
        return stop(what, why);
    }
    TRY(state_map(t->state));
    TRY(zero_gather(t->averaging.zero, t->state, t->comm));
    if (t->outputs.saver) TRY(reload(t));
    TRY(rank_sync_state(t));
    TRY(state_unmap(t->state, true));
    TRY(loader_seek(t->loader, c->epoch, (size_t)c->batch));
    if (!t->outputs.metrics) return OK;
    char then[96];
    snprintf(then, sizeof then, "back to epoch %lld, step %lld; its batches are skipped", (long long)c->epoch + 1,
             (long long)c->step);
    warn(t, METRICS_ROLLBACK, what, then);
    return metrics_end(t->outputs.metrics);
}

status recovery_roll_back(struct trainer *t, struct data_position written) {
    struct recovery_state *recovery = &t->recovery;
    status s = roll_back(t, text_string(&recovery->reason), recovery->position, written);
    text_free(&recovery->reason);
    return s;
}

/* Requests a roll-back for the reason [what], which is moved; the micro-batches at [position] are skipped after it. */
static status request_roll_back(struct trainer *t, struct text *what, struct data_position position) {
    text_free(&t->recovery.reason);
    t->recovery.reason = *what;
    t->recovery.position = position;
    *what = (struct text){0};
    return OK;
}

status recovery_run(struct trainer *t, const struct bad_step *bad, bool *needs_roll_back) {
    const struct counters *c = &t->state->counters;
    struct text what = {0}, where = {0};
    TRY(rank_sync_verify(t, false)); /* a rank with a different state is reported instead */
    text_printf(&what, "%s not finite in epoch %lld, step %lld", bad->what, (long long)bad->first.epoch + 1,
                (long long)c->step + 1);
    status s = explain(t, bad, &where);
    if (where.length) text_printf(&what, " (first %s)", text_string(&where));
    text_free(&where);
    switch (t->config->train.on_nonfinite.policy) {
    case NONFINITE_SKIP:
        s = s ? s : skip(t, text_string(&what));
        break;
    case NONFINITE_ROLLBACK:
        s = s ? s : request_roll_back(t, &what, bad->first);
        *needs_roll_back = true;
        break;
    default:
        s = s ? s : stop(text_string(&what), "");
        break;
    }
    text_free(&what);
    return s;
}

status recovery_of_parameter(struct trainer *t, const char *parameter, struct data_position last) {
    const struct counters *c = &t->state->counters;
    struct text what = {0};
    text_printf(&what, "the parameter %s is not finite after epoch %lld, step %lld", parameter, (long long)c->epoch,
                (long long)c->step);
    bool rolls_back = t->config->train.on_nonfinite.policy == NONFINITE_ROLLBACK;
    status s = rolls_back ? request_roll_back(t, &what, last) : stop(text_string(&what), "");
    text_free(&what);
    return s;
}

status recovery_open(struct trainer *t) {
    return guard_create(&t->config->train.on_nonfinite, &t->model->buffers, t->device, &t->recovery.guard);
}

void recovery_close(struct trainer *t) {
    guard_destroy(t->recovery.guard);
    t->recovery.guard = NULL;
    text_free(&t->recovery.reason);
}

void recovery_prepare(struct trainer *t) { guard_keep_buffers(t->recovery.guard, &t->model->buffers); }

bool recovery_skips(const struct trainer *t, struct data_position position) {
    return guard_is_skipped(t->recovery.guard, position);
}
