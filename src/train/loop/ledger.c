/* All threads hash the parameters, so a line costs a part of a step on few cores as on many. */
#include "train/loop/ledger.h"

#include "base/files/digest.h"
#include "base/scoped.h"
#include "base/system/machine.h"

/* ---- which steps have a line ---- */

#define MAX_COST 0.008 /* of the time of the steps */

/* Seconds, bytes and floating-point operations a second, of fast processors with many cores. */
struct costs {
    double line, hashing; /* writing a line; bytes of parameters, with their copy to the host */
    double step, memory, arithmetic;
};

static int64_t automatic_interval(const struct trainer *t) {
    static const struct costs of_cpu = {4e-6, 2e11, 3e-6, 2e11, 1e13}, of_gpu = {1e-4, 5e9, 5e-5, 3e12, 5e14};
    const struct costs *c = device_is_host(t->device) ? &of_cpu : &of_gpu;
    double elements = (double)t->model->params.elements, rows = (double)t->batch * (double)t->config->train.accumulate;
    double line = c->line + elements * sizeof(float) / c->hashing;
    /* an update reads and writes 28 bytes a parameter at least, and each multiplies and adds thrice for a row */
    double step = c->step + elements * 28 / c->memory + elements * rows * 6 / c->arithmetic;
    int64_t every = 1;
    while ((double)every * step * MAX_COST < line) every *= 2;
    return every;
}

int64_t ledger_interval(const struct trainer *t) {
    const struct ledger_config *c = &t->config->train.ledger;
    if (c->mode == LEDGER_OFF) return 0;
    return c->every == SCHEMA_NO_INT ? automatic_interval(t) : c->every;
}

static bool has_line(const struct trainer *t, int64_t step) { return t->ledger_every && step % t->ledger_every == 0; }

bool ledger_is_due(const struct trainer *t) { return has_line(t, t->state->counters.step); }

/* ---- lines ---- */

status ledger_open(struct trainer *t, const char *path, int64_t bytes) {
    SCOPED_TEXT lost = {0};
    status s = metrics_check(path, bytes, &lost);
    if (!s && lost.length)
        log_warning(t->outputs.log, "%s: lines of earlier steps are lost, which audit will report", text_string(&lost));
    TRY(s);
    TRY(metrics_open(path, bytes, &t->outputs.ledger));
    status damage = metrics_chain(t->outputs.ledger);
    if (status_code(damage) != STATUS_DATA) return damage;
    log_warning(t->outputs.log, "%s; the ledger begins anew", status_message(damage));
    status_free(damage);
    return metrics_rewind(t->outputs.ledger, 0, 0);
}

static void begin(struct metrics *ledger, enum metrics_event event, const struct counters *c) {
    metrics_begin(ledger, event);
    metrics_int(ledger, "epoch", c->epoch);
    metrics_int(ledger, "step", c->step);
}

static status add_state(struct trainer *t) {
    TRY(state_map(t->state));
    metrics_hash(t->outputs.ledger, "state", state_hash(t->state));
    return state_unmap(t->state, false);
}

status ledger_start(struct trainer *t, const char *program, const char *config_text, bool is_elastic) {
    struct metrics *ledger = t->outputs.ledger;
    char hex[DIGEST_HEX_SIZE], processor[128];
    if (!ledger) return OK;
    digest_hex_of(config_text, strlen(config_text), hex);
    if (!processor_model(processor, sizeof processor)) processor[0] = 0;
    begin(ledger, metrics_size(ledger) ? METRICS_RESUME : METRICS_START, &t->state->counters);
    metrics_int(ledger, "version", LEDGER_VERSION);
    metrics_text(ledger, "program", program);
    metrics_text(ledger, "processor", processor);
    metrics_text(ledger, "device", device_describe(t->device));
    metrics_int(ledger, "world_size", comm_world_size(t->comm));
    metrics_int(ledger, "portable", t->config->determinism.is_portable);
    metrics_int(ledger, "elastic", is_elastic);
    metrics_text(ledger, "config_sha256", hex);
    metrics_text(ledger, "dataset_fingerprint", dataset_info(t->dataset)->fingerprint);
    if (t->sampler->indices && *t->sampler->indices->digest)
        metrics_text(ledger, "sampler_sha256", t->sampler->indices->digest);
    metrics_int(ledger, "every", t->ledger_every);
    metrics_text(ledger, "config", config_text);
    if (!t->averaging.zero) TRY(add_state(t)); /* else rank 0 has a part of it */
    return metrics_end(ledger);
}

status ledger_step(struct trainer *t, const struct update *update) {
    struct metrics *ledger = t->outputs.ledger;
    const struct params *params = &t->model->params;
    uint64_t hash = 0;
    if (!has_line(t, update->step + 1)) return OK;
    if (params->own) {
        TRY(model_map(t->model));
        TRY(zero_hash_params(t->averaging.zero, params, t->comm, &hash));
        TRY(model_unmap(t->model, false));
    }
    if (!ledger) return OK;
    begin(ledger, METRICS_STEP, &t->state->counters);
    metrics_hash(ledger, "rows", loader_hash_rows(t->loader, (size_t)update->first.batch, update->batches));
    metrics_real(ledger, "loss", update->sums.loss / update->sums.count);
    metrics_real(ledger, "grad_norm", update->grad_norm);
    if (!params->own) {
        TRY(model_map(t->model));
        hash = state_hash_floats(0, params->values, params->total);
        TRY(model_unmap(t->model, false));
    }
    metrics_hash(ledger, "parameters", hash);
    return metrics_end(ledger);
}

status ledger_checkpoint(struct trainer *t, const struct state *state, const char *name, int64_t *bytes) {
    struct metrics *ledger = t->outputs.ledger;
    if (!ledger) return OK;
    begin(ledger, METRICS_CHECKPOINT, &state->counters);
    metrics_int(ledger, "batch", state->counters.batch);
    if (state->counters.pending_end) metrics_int(ledger, "pending", 1);
    metrics_text(ledger, "name", name);
    metrics_hash(ledger, "state", state_hash(state));
    TRY(metrics_end(ledger));
    return metrics_flush(ledger, bytes);
}

status ledger_end(struct trainer *t, enum metrics_event event, const char *state_sha256) {
    begin(t->outputs.ledger, event, &t->state->counters);
    metrics_text(t->outputs.ledger, "state_sha256", state_sha256);
    return metrics_end(t->outputs.ledger);
}
