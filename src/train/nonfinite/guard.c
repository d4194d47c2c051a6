/* No communication here: all ranks make the same calls. */
#include "train/nonfinite/guard.h"

#include <stdlib.h>

static const char *const policies[] = {"stop", "skip", "rollback", NULL};

static const struct schema_row rows[] = {
    {.key = "policy",
     .type = SCHEMA_CHOICE,
     .offset = offsetof(struct guard_config, policy),
     .fallback = "stop",
     .flags = SCHEMA_EXTENDS,
     .choices = policies,
     .doc = "`stop`: the run ends with 76; `skip`: the step is not applied (as torch.amp.GradScaler does); `rollback`: "
            "the newest checkpoint is loaded and the batches of that step are skipped."},
    {.key = "max",
     .type = SCHEMA_INT,
     .offset = offsetof(struct guard_config, max),
     .fallback = "10",
     .flags = SCHEMA_EXTENDS,
     .min = 1,
     .max = 1 << 20,
     .doc = "Steps in a row that may be skipped, or roll-backs since the newest checkpoint; one more ends the run with "
            "76."},
    {0},
};
const struct schema guard_schema = {
    .name = "train.on_nonfinite", .size = sizeof(struct guard_config), .rows = rows, .shorthand = "policy"};

status guard_create(const struct guard_config *config, const struct params *buffers, struct device *device,
                    struct guard **out) {
    *out = NULL;
    struct guard *guard = calloc(1, sizeof *guard);
    if (!guard) return status_memory("the list of skipped micro-batches");
    guard->config = config;
    guard->device = device;
    bool skips = config->policy == NONFINITE_SKIP, rolls_back = config->policy == NONFINITE_ROLLBACK;
    status s = OK;
    if (skips)
        s = device_alloc(device, buffers->total * sizeof *guard->buffers, "the running statistics before a step",
                         (void **)&guard->buffers);
    if (rolls_back) guard->skipped = calloc((size_t)config->max, sizeof *guard->skipped);
    if (!s && rolls_back && !guard->skipped) s = status_memory("the list of skipped micro-batches");
    if (s) {
        guard_destroy(guard);
        return s;
    }
    *out = guard;
    return OK;
}

void guard_destroy(struct guard *guard) {
    if (!guard) return;
    device_free(guard->device, guard->buffers);
    free(guard->skipped);
    free(guard);
}

void guard_keep_buffers(struct guard *guard, const struct params *buffers) {
    if (guard->buffers && buffers->total)
        device_ops(guard->device)->copy(guard->device, buffers->values, guard->buffers, buffers->total);
}

void guard_restore_buffers(const struct guard *guard, struct params *buffers) {
    if (guard->buffers && buffers->total)
        device_ops(guard->device)->copy(guard->device, guard->buffers, buffers->values, buffers->total);
}

bool guard_is_skipped(const struct guard *guard, struct data_position position) {
    for (size_t i = 0; i < guard->skipped_count; i++)
        if (guard->skipped[i].epoch == position.epoch && guard->skipped[i].batch == position.batch) return true;
    return false;
}

bool guard_skip(struct guard *guard, struct data_position position) {
    if ((int64_t)guard->skipped_count >= guard->config->max) return false;
    guard->skipped[guard->skipped_count++] = position;
    return true;
}

void guard_discard_before(struct guard *guard, struct data_position position) {
    size_t kept = 0;
    for (size_t i = 0; i < guard->skipped_count; i++) {
        struct data_position g = guard->skipped[i];
        bool is_before = g.epoch < position.epoch || (g.epoch == position.epoch && g.batch < position.batch);
        if (!is_before) guard->skipped[kept++] = g;
    }
    guard->skipped_count = kept;
}
