/* Results are compared by a hash for each tensor, which on a GPU are of a copy in the host's memory. */
#include "train/loop/compute_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/files/digest.h"
#include "base/scoped.h"
#include "base/system/machine.h"

#define MAX_COMPUTATIONS 3

/* ---- which steps ---- */

/* The choice of a block is kept until a step of another block. */
static bool is_chosen(struct trainer *t) {
    struct compute_check *check = &t->compute_check;
    int64_t every = t->config->train.check_compute.every, step = t->state->counters.step;
    if (every <= 0) return false;
    if (step < check->first || step >= check->first + every || !check->has_block) {
        int64_t block[] = {t->config->seed, step / every};
        check->first = step / every * every;
        check->chosen = check->first + (int64_t)(hash_add(0, block, sizeof block) % (uint64_t)every);
        check->has_block = true;
    }
    return step == check->chosen;
}

static bool has_fault(const struct trainer *t) {
    const struct fault_flip *flip = &t->steps.flip;
    return flip->is_set && flip->part != FLIP_STATE && flip->step == t->state->counters.step;
}

bool compute_check_is_due(struct trainer *t) { return is_chosen(t) || has_fault(t); }

/* ---- the fault of a test: a bit is wrong during the first computation of the step's first piece ---- */

static bool injects(const struct trainer *t, enum fault_flip_part part) {
    return t->compute_check.injects && t->steps.flip.part == part;
}

static void flip_bit(struct device *device, void *values, uint64_t bit) {
    uint8_t *at = (uint8_t *)values + bit / 8, byte = 0;
    status_free(device_download(device, &byte, at, 1));
    byte ^= (uint8_t)(1u << bit % 8);
    device_upload(device, at, &byte, 1);
}

/* The bit counts over the values or gradients of all trained parameters, without the gaps between them. */
static void flip_in_parameters(struct trainer *t, enum fault_flip_part part) {
    const struct params *params = &t->model->params;
    uint64_t bits = 0, bit = t->steps.flip.bit;
    if (!injects(t, part)) return;
    for (size_t i = 0; i < params->count; i++) bits += params->items[i].is_frozen ? 0 : 32 * params->items[i].count;
    bit %= bits ? bits : 1;
    for (size_t i = 0; i < params->count; i++) {
        uint64_t size = params->items[i].is_frozen ? 0 : 32 * params->items[i].count;
        float *values = part == FLIP_WEIGHTS ? params_value(params, i) : params_gradient(params, i);
        if (bit < size) {
            flip_bit(t->device, values, bit);
            return;
        }
        bit -= size;
    }
}

struct activations {
    struct device *device;
    size_t rows;
    uint64_t bit; /* from the next node on */
    bool is_done;
};

/* A value in 16 bits has the lower half of the bits twice. */
static bool visit(void *user, const struct layer *layer, const struct tensor *output, size_t size, size_t tensor) {
    struct activations *a = user;
    uint64_t bits = 32 * (uint64_t)size * a->rows;
    (void)layer, (void)tensor;
    if (a->is_done) return true;
    a->is_done = a->bit < bits;
    if (a->is_done && output->data)
        flip_bit(a->device, output->data, output->is_half ? a->bit / 32 * 16 + a->bit % 16 : a->bit);
    a->bit -= bits;
    return true;
}

const struct tensor *compute_check_forward(struct trainer *t, const struct pass *pass, const float *inputs) {
    const struct model *model = t->model;
    struct activations a = {.device = t->device, .rows = pass->rows, .bit = t->steps.flip.bit};
    uint64_t bits = 0;
    if (!injects(t, FLIP_ACTIVATIONS)) return model_forward(t->model, pass, inputs);
    for (size_t n = 0; n < model->node_count; n++)
        bits += 32 * (uint64_t)model->tensors[model->nodes[n].out].size * pass->rows;
    a.bit %= bits ? bits : 1;
    return model_forward_visited(t->model, pass, inputs, visit, &a);
}

/* ---- one piece ---- */

/* The results in the order in which a pass computes them: running statistics, the loss, gradients from last to first.
 */
static size_t result_count(const struct trainer *t) { return t->model->buffers.count + 1 + t->model->params.count; }

static status hash_results(struct trainer *t, const struct loss_sums *sums, uint64_t *hashes) {
    struct params *params = &t->model->params, *buffers = &t->model->buffers;
    struct loss_sums own;
    TRY(device_download(t->device, &own, sums, sizeof own));
    if (buffers->total) TRY(device_map(t->device, (void **)&buffers->values));
    for (size_t i = 0; i < buffers->count; i++)
        *hashes++ = hash_add(0, params_value(buffers, i), buffers->items[i].count * sizeof(float));
    if (buffers->total) TRY(device_unmap(t->device, (void **)&buffers->values, false));
    *hashes++ = hash_add(0, &own, sizeof own);
    TRY(device_map(t->device, (void **)&params->gradients));
    for (size_t i = params->count; i-- > 0; hashes++)
        *hashes = params->items[i].is_frozen
                      ? 0
                      : hash_add(0, params_gradient(params, i), params->items[i].count * sizeof(float));
    return device_unmap(t->device, (void **)&params->gradients, false);
}

/* Gradients are zero before a piece, except those of earlier micro-batches of the step. */
static bool begins_with_zeros(const struct trainer *t, const struct batch_piece *piece) {
    return piece->is_first || t->averaging.elastic;
}

static status save_start(struct trainer *t, const struct batch_piece *piece, struct loss_sums *sums) {
    const struct params *params = &t->model->params, *buffers = &t->model->buffers;
    const struct device_ops *ops = device_ops(t->device);
    if (buffers->total) ops->copy(t->device, F32(buffers->values), F32(t->compute_check.buffers), buffers->total);
    if (!begins_with_zeros(t, piece))
        ops->copy(t->device, F32(params->gradients), F32(t->compute_check.gradients), params->trained);
    return device_download(t->device, sums, piece->sums, sizeof *sums);
}

static void restore_start(struct trainer *t, const struct batch_piece *piece, const struct loss_sums *sums) {
    struct params *params = &t->model->params, *buffers = &t->model->buffers;
    const struct device_ops *ops = device_ops(t->device);
    if (buffers->total) ops->copy(t->device, F32(t->compute_check.buffers), F32(buffers->values), buffers->total);
    if (begins_with_zeros(t, piece))
        params_zero_gradients(params, t->device);
    else
        ops->copy(t->device, F32(t->compute_check.gradients), F32(params->gradients), params->trained);
    device_upload(t->device, piece->sums, sums, sizeof *sums);
}

/* Computes the piece once. */
static status run(struct trainer *t, const struct batch_piece *piece, status (*compute)(void *user), void *user,
                  uint64_t *hashes) {
    flip_in_parameters(t, FLIP_WEIGHTS);
    TRY(compute(user));
    flip_in_parameters(t, FLIP_WEIGHTS); /* back */
    flip_in_parameters(t, FLIP_GRADIENTS);
    return hash_results(t, piece->sums, hashes);
}

/* Whether two results of this rank differ, or where passes exchange numbers, of any rank. */
static status differs(struct trainer *t, const uint64_t *a, const uint64_t *b, bool *is_different) {
    uint8_t flag = memcmp(a, b, result_count(t) * sizeof *a) != 0;
    if (t->compute_check.is_shared) TRY(comm_all_reduce(t->comm, &flag, 1, COMM_UINT8, COMM_MAX));
    *is_different = flag;
    return OK;
}

/* "the gradient of 0.weight" */
static void name_result(const struct trainer *t, size_t index, struct text *out) {
    const struct params *params = &t->model->params, *buffers = &t->model->buffers;
    if (index < buffers->count)
        text_printf(out, "the running statistics %s", buffers->items[index].name);
    else if (index == buffers->count)
        text_add(out, "the loss");
    else
        text_printf(out, "the gradient of %s", params->items[params->count - (index - buffers->count)].name);
}

/* Keeps the first difference of the step. */
static void keep_finding(struct trainer *t, const uint64_t *hashes) {
    size_t count = result_count(t), found = 0;
    const uint64_t *first = hashes, *second = hashes + count, *third = second + count;
    struct compute_finding *finding = &t->compute_check.finding;
    SCOPED_TEXT what = {0};
    if (finding->is_found || memcmp(first, second, count * sizeof *first) == 0) return;
    for (size_t i = 0; i < count; i++)
        if (first[i] != second[i] && found++ == 0) name_result(t, i, &what);
    if (found > 1) text_printf(&what, " and %zu more result%s", found - 1, text_plural(found - 1, "s"));
    finding->is_found = true;
    finding->agrees_with = memcmp(third, second, count * sizeof *third) == 0  ? 2
                           : memcmp(third, first, count * sizeof *third) == 0 ? 1
                                                                              : 0;
    snprintf(finding->what, sizeof finding->what, "%s", text_string(&what));
}

status compute_check_piece(struct trainer *t, const struct batch_piece *piece, status (*compute)(void *user),
                           void *user) {
    struct compute_check *check = &t->compute_check;
    size_t count = result_count(t);
    bool is_checked = is_chosen(t), is_different;
    struct loss_sums sums;
    check->injects = has_fault(t) && t->steps.flip.rank == comm_rank(t->comm) && piece->is_first && piece->index == 0;
    TRY(save_start(t, piece, &sums));
    TRY(run(t, piece, compute, user, check->hashes));
    check->injects = false;
    if (!is_checked) return OK;
    for (size_t i = 1; i < MAX_COMPUTATIONS; i++) {
        restore_start(t, piece, &sums);
        TRY(run(t, piece, compute, user, check->hashes + i * count));
        TRY(differs(t, check->hashes, check->hashes + count, &is_different));
        if (!is_different) return OK;
    }
    keep_finding(t, check->hashes);
    return OK;
}

/* ---- the report ---- */

static void add_finding(const struct compute_finding *f, size_t rank, struct text *out) {
    static const char *const verdicts[] = {"a third computation agrees with neither",
                                           "a third computation agrees with the first, so the second was wrong",
                                           "a third computation agrees with the second, so the first was wrong"};
    text_printf(out, "%son rank %zu (host %s, %s): %s; %s", out->length ? "; " : "", rank, f->host, f->processor,
                f->what, verdicts[f->agrees_with]);
}

status compute_check_report(struct trainer *t, int64_t step) {
    size_t world = (size_t)comm_world_size(t->comm);
    struct compute_finding *own = &t->compute_check.finding, *all = calloc(world, sizeof *all);
    SCOPED_TEXT out = {0};
    if (!all) return status_memory("the reports of the ranks");
    gethostname(own->host, sizeof own->host - 1);
    if (!device_is_host(t->device) || !processor_model(own->processor, sizeof own->processor))
        snprintf(own->processor, sizeof own->processor, "%s", device_describe(t->device));
    status s = comm_all_gather(t->comm, own, sizeof *own, COMM_UINT8, all);
    for (size_t r = 0; !s && r < world; r++)
        if (all[r].is_found) add_finding(&all[r], r, &out);
    if (!s)
        s = status_new(STATUS_DIVERGED,
                       "step %lld of epoch %lld was computed twice from the same numbers, and the results differ %s. "
                       "Memory or the processor failed there; nothing was saved after it, so the same command "
                       "continues from the newest checkpoint. If that host is named again, leave it out",
                       (long long)step + 1, (long long)t->state->counters.epoch + 1, text_string(&out));
    free(all);
    return s;
}

/* ---- opened ---- */

status compute_check_open(struct trainer *t) {
    struct compute_check *check = &t->compute_check;
    const struct params *params = &t->model->params, *buffers = &t->model->buffers;
    if (!fault_flip_read(&t->steps.flip))
        return status_new(
            STATUS_USAGE,
            "DDPTRAIN_FAULT_FLIP: expected RANK:STEP:BIT, or after it :weights, :activations or :gradients");
    bool has_flip = t->steps.flip.is_set && t->steps.flip.part != FLIP_STATE && t->averaging.hooks->keeps_gradients;
    check->is_on = t->config->train.check_compute.every > 0 || has_flip;
    if (!check->is_on) return OK;
    status dependent = model_check_independent(t->model, "a repetition");
    check->is_shared = comm_world_size(t->comm) > 1 && (dependent || loss_compares_rows(t->loss, t->loss_config));
    status_free(dependent);
    TRY(buffer_new(MAX_COMPUTATIONS * result_count(t) * sizeof *check->hashes, "the hashes of a step",
                   (void **)&check->hashes));
    TRY(device_alloc(t->device, buffers->total * sizeof *check->buffers, "the saved running statistics",
                     (void **)&check->buffers));
    bool keeps_earlier = t->config->train.accumulate > 1 && !t->averaging.elastic;
    return device_alloc(t->device, (keeps_earlier ? params->trained : 0) * sizeof *check->gradients,
                        "the saved gradients", (void **)&check->gradients);
}

void compute_check_close(struct trainer *t) {
    struct compute_check *check = &t->compute_check;
    if (!t->device) return;
    buffer_free(check->hashes);
    device_free(t->device, check->buffers);
    device_free(t->device, check->gradients);
}
