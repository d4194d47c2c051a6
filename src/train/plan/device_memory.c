/* The modules that allocate memory also compute its size. */
#include "train/plan/device_memory.h"

#include "train/parallel/zero.h"
#include "train/plan/feed.h"

#define MIB (1024.0 * 1024.0)

struct device_memory device_memory_of(const struct config *config, const struct model *model,
                                      const struct optimizer_plan *optimizer, const struct dataset_info *info,
                                      size_t batch, int world_size) {
    size_t values = model->params.total * sizeof(float);
    struct device_memory m = {.average = config->train.ema.decay > 0 ? values : 0,
                              .rounded = config->train.precision == TRAIN_FLOAT32 ? 0 : values / 2,
                              .batches = feed_memory(info, batch)};
    size_t whole = optimizer_memory(&config->optimizer, optimizer, &model->params);
    m.optimizer = zero_memory(&config->dist, &model->params, world_size, whole);
    model_memory(model, batch, &m.parameters, &m.activations);
    return m;
}

static size_t sum_of(const struct device_memory *m) {
    return m->parameters + m->optimizer + m->average + m->activations + m->rounded + m->batches;
}

static void describe(const struct device_memory *m, struct text *out) {
    text_printf(out, "%.2f MiB parameters and gradients, %.2f optimizer, %.2f activations, %.2f batches",
                (double)m->parameters / MIB, (double)m->optimizer / MIB, (double)m->activations / MIB,
                (double)m->batches / MIB);
    if (m->average) text_printf(out, ", %.2f average of the weights", (double)m->average / MIB);
    if (m->rounded) text_printf(out, ", %.2f rounded weights", (double)m->rounded / MIB);
}

status device_memory_check(const struct device_memory *memory, struct device *device) {
    size_t free_bytes, total, sum = sum_of(memory);
    if (device_is_host(device)) return OK;
    TRY(device_memory_info(device, &free_bytes, &total));
    if (sum <= free_bytes) return OK;
    struct text parts = {0};
    describe(memory, &parts);
    status s = status_new(STATUS_USAGE,
                          "%.0f MiB of memory are needed, and %s has %.0f MiB of %.0f MiB free (%s): use a smaller "
                          "sampler.batch_size or model, or more GPUs with dist.zero_stage: 1",
                          (double)sum / MIB, device_describe(device), (double)free_bytes / MIB, (double)total / MIB,
                          text_string(&parts));
    text_free(&parts);
    return s;
}

void device_memory_describe(const struct device_memory *memory, const struct device *device, struct text *out) {
    size_t sum = sum_of(memory), whole = memory->measured ? memory->measured : sum;
    text_printf(out, "GPU memory     %.2f MiB", (double)whole / MIB);
    if (device) text_printf(out, " of %.0f MiB free on %s", (double)memory->free / MIB, device_describe(device));
    text_add(out, memory->measured ? ": " : ", and the workspace of operators: ");
    describe(memory, out);
    if (memory->measured) text_printf(out, ", %.2f workspace of operators", (double)(whole - sum) / MIB);
    text_add(out, "\n");
    if (device && device_code(device)) text_printf(out, "GPU code       %s\n", device_code(device));
}
