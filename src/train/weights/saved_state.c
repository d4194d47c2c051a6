/* The objects of a run are created without their data and without memory for passes. */
#include "train/weights/saved_state.h"

#include "optim/ema.h"
#include "optim/optimizer.h"
#include "train/state/data_entries.h"

struct parts {
    struct device *device;
    struct model *model;
    struct optimizer *optimizer;
    struct ema *ema; /* NULL: none */
    struct state *state;
};

static status create(struct parts *p, const struct config *config, const struct input_layout *inputs) {
    struct dataset_info info = input_layout_info(inputs);
    TRY(config_plan_model(config, &info, 0, false, &p->model));
    struct params *params = &p->model->params;
    TRY(device_create("cpu", &p->device));
    p->model->device = p->device;
    TRY(params_alloc(params, p->device, false));
    TRY(params_alloc(&p->model->buffers, p->device, false));
    TRY(optimizer_create(&config->optimizer, params, p->device, &p->optimizer));
    TRY(ema_create(&config->train.ema, params, p->device, &p->ema));
    return state_create(p->model, p->optimizer, p->ema, NULL, NULL, NULL, &p->state);
}

static void destroy(struct parts *p) {
    state_destroy(p->state);
    ema_destroy(p->ema);
    optimizer_destroy(p->optimizer);
    model_destroy(p->model);
    device_destroy(p->device);
}

static status add_hashes(struct state *state, struct checkpoint *checkpoint, bool with_sha256,
                         struct saved_state *out) {
    static const char *const complete[] = {"model", "optimizer", "ema", NULL};
    const struct params *params = &state->model->params;
    TRY(state_map(state));
    TRY(checkpoint_read(checkpoint, state->entries, state->entry_count, complete));
    out->counters = state->counters;
    out->elements = params->elements;
    out->state = state_hash(state);
    out->parameters = state_hash_floats(0, params->values, params->total);
    if (with_sha256) state_sha256(state, out->sha256);
    return state_unmap(state, false);
}

status saved_state_read(struct checkpoint *checkpoint, const struct config *config, bool with_sha256,
                        struct saved_state *out) {
    struct arena *arena = arena_create();
    struct input_layout inputs;
    struct parts parts = {0};
    bool has_inputs = false;
    *out = (struct saved_state){0};
    status s = input_layout_read(arena, checkpoint, &inputs, &has_inputs);
    if (!s && !has_inputs) s = status_new(STATUS_DATA, "it does not have the shape of the inputs (data/inputs)");
    if (!s) s = create(&parts, config, &inputs);
    if (!s) s = add_hashes(parts.state, checkpoint, with_sha256, out);
    destroy(&parts);
    arena_destroy(arena);
    return s;
}
