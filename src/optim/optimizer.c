/* The table of optimizers, and the state that all of them have. */
#include "optim/optimizer.h"

#include <math.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "optim/optimizer_groups.h"
#include "optim/optimizers.h"

static const struct optimizer_type *const types[] = {
#define X(name) &optimizer_##name,
    OPTIMIZERS(X)
#undef X
};

const struct optimizer_type *optimizer_type_at(size_t index) {
    return index < sizeof types / sizeof *types ? types[index] : NULL;
}

static const struct schema_variant *variant_at(size_t index) {
    const struct optimizer_type *type = optimizer_type_at(index);
    return type ? &type->variant : NULL;
}

const struct schema_variants optimizer_variants = {.what = "optimizer", .at = variant_at, .common = &optimizer_common};

/* Whether the parameters of any setting need buffer [index]. */
static bool uses_buffer(const struct optimizer_type *type, const struct optimizer_plan *plan, size_t index) {
    if (!type->buffers[index] || !type->uses_buffer) return type->buffers[index];
    bool is_used = false;
    for (size_t i = 0; i < plan->setting_count; i++)
        is_used = is_used || type->uses_buffer(plan->settings[i].config, index);
    return is_used;
}

size_t optimizer_memory(const struct variant *config, const struct optimizer_plan *plan, const struct params *params) {
    const struct optimizer_type *type = optimizer_type_at((size_t)config->index);
    size_t count = 0;
    for (size_t i = 0; i < OPTIMIZER_MAX_BUFFERS; i++) count += uses_buffer(type, plan, i);
    return count * params->trained * sizeof(float);
}

struct optimizer_settings optimizer_settings(const struct variant *config) {
    return optimizer_type_at((size_t)config->index)->settings(config->config);
}

static status fill(struct device *device, float **buffer, size_t count, float value) {
    TRY(device_map(device, (void **)buffer));
    for (size_t i = 0; i < count; i++) (*buffer)[i] = value;
    return device_unmap(device, (void **)buffer, true);
}

static status allocate(struct optimizer *o, const struct params *params) {
    for (size_t i = 0; i < OPTIMIZER_MAX_BUFFERS; i++) {
        if (!uses_buffer(o->type, o->plan, i)) continue;
        float **buffer = &o->buffers[o->buffer_count];
        size_t total = o->shard ? o->shard->total : params->trained;
        TRY(device_alloc(o->device, total * sizeof(float), "the optimizer's state", (void **)buffer));
        o->buffer_names[o->buffer_count++] = o->type->buffers[i];
        float start = o->type->start ? o->type->start(o->config) : 0;
        if (start != 0) TRY(fill(o->device, buffer, total, start));
    }
    size_t bytes = o->plan->setting_count * sizeof *o->constants;
    TRY(buffer_new(bytes, "the optimizer's constants", (void **)&o->planned));
    return device_alloc(o->device, bytes, "the optimizer's constants", (void **)&o->constants);
}

/* Adds the run [begin, end), and before it one that skips the elements since the last run. */
static void add_run(struct optimizer *o, size_t begin, size_t end, size_t at, size_t constants) {
    size_t last_end = o->run_count ? o->runs[o->run_count - 1].end : 0;
    if (last_end < begin) o->runs[o->run_count++] = (struct optimizer_run){last_end, begin, 0, OPTIMIZER_SKIP};
    if (begin < end) o->runs[o->run_count++] = (struct optimizer_run){begin, end, at, constants};
}

/* Adds the runs of the plan, restricted to the ranges of this rank; all other elements are skipped. */
static status add_runs(struct optimizer *o, const struct params *params) {
    const struct optimizer_shard_range all = {0, params->trained, 0};
    const struct optimizer_shard_range *ranges = o->shard ? o->shard->ranges : &all;
    size_t range_count = o->shard ? o->shard->count : 1;
    o->runs = calloc(2 * (o->plan->run_count + range_count) + 1, sizeof *o->runs);
    if (!o->runs) return status_memory("the optimizer");
    for (size_t r = 0; r < o->plan->run_count; r++) {
        const struct optimizer_run *run = &o->plan->runs[r];
        for (size_t i = 0; i < range_count; i++) {
            size_t begin = ranges[i].begin > run->begin ? ranges[i].begin : run->begin;
            size_t end = ranges[i].end < run->end ? ranges[i].end : run->end;
            if (begin < end) add_run(o, begin, end, ranges[i].at + (begin - ranges[i].begin), run->constants);
        }
    }
    add_run(o, params->total, params->total, 0, OPTIMIZER_SKIP);
    return OK;
}

status optimizer_create(const struct variant *config, const struct params *params, struct device *device,
                        struct optimizer **out) {
    return optimizer_create_shard(config, params, device, NULL, out);
}

status optimizer_create_shard(const struct variant *config, const struct params *params, struct device *device,
                              const struct optimizer_shard *shard, struct optimizer **out) {
    struct optimizer *o = calloc(1, sizeof *o);
    if (!o) return status_memory("the optimizer");
    o->type = optimizer_type_at((size_t)config->index);
    o->config = config->config;
    o->device = device;
    o->shard = shard;
    status s = optimizer_plan_create(config, params, &o->plan);
    if (!s) s = add_runs(o, params);
    if (!s) s = allocate(o, params);
    if (s) {
        optimizer_destroy(o);
        return s;
    }
    *out = o;
    return OK;
}

void optimizer_destroy(struct optimizer *optimizer) {
    if (!optimizer) return;
    for (size_t i = 0; i < OPTIMIZER_MAX_BUFFERS; i++) device_free(optimizer->device, optimizer->buffers[i]);
    device_free(optimizer->device, optimizer->constants);
    buffer_free(optimizer->planned);
    free(optimizer->runs);
    optimizer_plan_destroy(optimizer->plan);
    free(optimizer);
}

static void run(struct optimizer *o, struct optimizer_update *update) {
    update->rule = o->type->rule;
    update->constants = o->constants;
    for (size_t i = 0, used = 0; i < OPTIMIZER_MAX_BUFFERS; i++)
        update->states[i] = uses_buffer(o->type, o->plan, i) ? o->buffers[used++] : NULL;
    device_ops(o->device)->optimizers->update(o->device, update);
}

void optimizer_plan_step(struct optimizer *optimizer, int64_t t, const struct variant *schedule,
                         const struct schedule_progress *progress) {
    struct optimizer_plan *plan = optimizer->plan;
    double momentum = schedule ? schedule_momentum(schedule, progress) : NAN;
    for (size_t i = 0; i < plan->setting_count; i++) {
        struct optimizer_setting *setting = &plan->settings[i];
        double own = optimizer->type->settings(setting->config).momentum;
        struct optimizer_settings settings = {
            .lr = schedule ? schedule_lr(schedule, setting->lr, progress) : setting->lr,
            .weight_decay = setting->weight_decay,
            .momentum = isnan(momentum) ? own : momentum,
            .product = &setting->product,
        };
        optimizer->planned[i] = optimizer->type->plan(setting->config, &settings, t);
    }
    device_upload(optimizer->device, optimizer->constants, optimizer->planned,
                  plan->setting_count * sizeof *optimizer->planned);
}

void optimizer_run_step(struct optimizer *optimizer, struct params *params, const float *clip) {
    run(optimizer, &(struct optimizer_update){.clip = clip,
                                              .values = params->values,
                                              .gradients = params->gradients,
                                              .runs = optimizer->runs,
                                              .run_count = optimizer->run_count});
}

void optimizer_run_part(struct optimizer *optimizer, struct params *params, size_t begin, size_t end, float *gradients,
                        const float *clip) {
    const struct optimizer_run *run_of = optimizer->plan->runs;
    while (run_of->end <= begin) run_of++; /* a parameter is within one run */
    struct optimizer_run own = {.end = end - begin, .at = begin, .constants = run_of->constants};
    run(optimizer,
        &(struct optimizer_update){
            .clip = clip, .values = params->values + begin, .gradients = gradients, .runs = &own, .run_count = 1});
}

void optimizer_step(struct optimizer *optimizer, struct params *params, int64_t t, const struct variant *schedule,
                    const struct schedule_progress *progress, const float *clip) {
    optimizer_plan_step(optimizer, t, schedule, progress);
    optimizer_run_step(optimizer, params, clip);
}
