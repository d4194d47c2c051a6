/* Each loss has workspaces of its own, into which its columns of outputs and targets are copied, and from which its
 * gradient is copied back. */
#include "model/objective.h"

#include <string.h>

static const struct schema_row key_rows[] = {
    SCHEMA_ROW(STRING, struct objective_keys, output, .fallback = "null",
               .doc = "The name of the layer whose output the loss takes. Null: the last layer."),
    SCHEMA_ROW(STRING, struct objective_keys, target, .fallback = "null",
               .doc = "A name of dataset.targets, or of an input, which is then also the target (`input` where inputs "
                      "have no names). Null: the only target. contrastive, triplet_margin and kl_normal have none."),
    SCHEMA_KEY(REAL, "loss_weight", struct objective_keys, weight, .fallback = "1", .min = 0, .max = INFINITY,
               .doc = "Its factor in the sum that training minimizes (Keras' loss_weights)."),
    SCHEMA_ROW(STRING, struct objective_keys, name, .fallback = "null",
               .doc = "Prefix of its metrics (`mask_loss`), without dots, slashes, quotation marks and backslashes. "
                      "Null: the name of the output, or of the loss."),
    {0},
};
static const struct schema keys = SCHEMA("losses", struct objective_keys, .rows = key_rows);

static const struct schema_variant *variant_at(size_t index) {
    const struct loss_type *type = loss_type_at(index);
    return type ? &type->variant : NULL;
}

const struct schema_variants objective_variants = {
    .what = "loss", .at = variant_at, .common = &keys, .implied = "expression"};

const char *objective_name(const struct variant *entry) {
    const struct objective_keys *k = entry->common;
    return k->name ? k->name : k->output ? k->output : entry->name;
}

static status at_place(const struct objective_term *term, status s) {
    return status_prefix(s, "%s: losses: %s", place_text(term->place).s, term->name);
}

static status find_target(const struct objective_keys *k, const struct objective_target *targets, size_t count,
                          struct objective_target *out) {
    struct text known = {0};
    for (size_t i = 0; i < count; i++) {
        text_printf(&known, "%s%s", i ? ", " : "", targets[i].name);
        if (k->target ? strcmp(k->target, targets[i].name) != 0 : count > 1) continue;
        *out = targets[i];
        text_free(&known);
        return OK;
    }
    status s = k->target ? status_usage("there is no target '%s'; the dataset has: %s", k->target, text_string(&known))
                         : status_usage("it needs `target:` with one of: %s", text_string(&known));
    text_free(&known);
    return s;
}

static status check_term(const struct objective_term *t, const struct model *model) {
    struct loss_targets targets = {.size = t->target.size,
                                   .classes = t->target.classes,
                                   .first_class = t->target.first_class,
                                   .shape = t->target.shape};
    return loss_check_output(t->loss, t->config, model, t->output.tensor, &targets);
}

status objective_plan(const struct variant_list *entries, const struct model *model,
                      const struct objective_target *targets, size_t target_count, size_t target_size,
                      struct objective *out) {
    *out = (struct objective){
        .count = entries->count, .model = model, .output_size = model->out_size, .target_size = target_size};
    for (size_t i = 0; i < entries->count; i++) {
        const struct variant *entry = &entries->items[i];
        const struct objective_keys *k = entry->common;
        struct objective_term *t = &out->terms[i];
        *t = (struct objective_term){.name = objective_name(entry),
                                     .place = entry->place,
                                     .loss = loss_type_at((size_t)entry->index),
                                     .config = entry->config,
                                     .weight = k->weight,
                                     .output = model->outputs[i]};
        out->weights[i] = t->weight;
        if (t->loss->has_no_target) {
            TRY(at_place(t, check_term(t, model)));
            continue;
        }
        if (target_count == 0) continue;
        TRY(at_place(t, find_target(k, targets, target_count, &t->target)));
        TRY(at_place(t, check_term(t, model)));
    }
    return OK;
}

void objective_warn_of_activation(const struct objective *objective, const struct model *model, struct text *out) {
    for (size_t i = 0; i < objective->count && !out->length; i++)
        loss_warn_of_output(objective->terms[i].loss, model, objective->terms[i].output.tensor, out);
}

static size_t target_bytes(const struct objective_term *t) {
    return t->target.size * (t->loss->wants_classes ? sizeof(int64_t) : sizeof(float));
}

size_t objective_memory(const struct objective *o, size_t batch) {
    size_t row = 0;
    for (size_t i = 0; i < o->count; i++)
        row += 2 * o->terms[i].output.size * sizeof(float) + target_bytes(&o->terms[i]);
    return o->count * sizeof *o->sums + batch * row;
}

status objective_alloc(struct objective *o, struct device *device, size_t batch) {
    o->device = device;
    TRY(device_alloc(device, o->count * sizeof *o->sums, "the sums of the losses", (void **)&o->sums));
    for (size_t i = 0; i < o->count; i++) {
        struct objective_term *t = &o->terms[i];
        size_t bytes = batch * t->output.size * sizeof(float);
        TRY(device_alloc(device, bytes, "the outputs of a loss", (void **)&t->outputs));
        TRY(device_alloc(device, bytes, "the gradient of a loss", (void **)&t->gradient));
        if (t->target.size) TRY(device_alloc(device, batch * target_bytes(t), "the targets of a loss", &t->targets));
    }
    return OK;
}

void objective_free(struct objective *o) {
    if (!o->device) return;
    for (size_t i = 0; i < o->count; i++) {
        device_free(o->device, o->terms[i].outputs);
        device_free(o->device, o->terms[i].gradient);
        device_free(o->device, o->terms[i].targets);
        o->terms[i].outputs = o->terms[i].gradient = NULL;
        o->terms[i].targets = NULL;
    }
    device_free(o->device, o->sums);
    o->sums = NULL;
    o->device = NULL;
}

void objective_split(const struct objective *o, struct device *device, const float *outputs, const void *targets,
                     size_t rows) {
    const struct device_ops *ops = device_ops(device);
    for (size_t i = 0; i < o->count; i++) {
        const struct objective_term *t = &o->terms[i];
        const float *from = (const float *)targets + t->target.first;
        size_t size = t->output.size, target = t->target.size;
        ops->copy_columns(device, outputs + t->output.first, o->output_size, t->outputs, size, rows, size);
        if (target == 0) continue;
        if (t->loss->wants_classes)
            ops->losses->to_classes(device, from, o->target_size, t->targets, rows, target);
        else
            ops->copy_columns(device, from, o->target_size, t->targets, target, rows, target);
    }
}

void objective_host_targets(const struct objective *o, size_t term, const void *targets, size_t rows, void *out) {
    const struct objective_term *t = &o->terms[term];
    size_t size = t->target.size;
    for (size_t r = 0; r < rows; r++) {
        const float *from = (const float *)targets + r * o->target_size + t->target.first;
        for (size_t i = 0; i < size; i++)
            if (t->loss->wants_classes)
                ((int64_t *)out)[r * size + i] = (int64_t)from[i];
            else
                ((float *)out)[r * size + i] = from[i];
    }
}

static status prepare(const void *config, struct device *device, const struct shape *output, size_t target_size,
                      size_t rows, size_t world_size) {
    const struct objective *o = config;
    for (size_t i = 0; i < o->count; i++) {
        const struct objective_term *t = &o->terms[i];
        TRY(at_place(t, loss_prepare(t->loss, t->config, device, &t->output.shape, t->target.size, rows, world_size)));
    }
    return OK;
}

static void run(const void *config, const struct loss_batch *b) {
    const struct objective *o = config;
    const struct device_ops *ops = device_ops(b->device);
    objective_split(o, b->device, floats(b->output), b->targets, b->rows);
    device_zero(b->device, o->sums, o->count * sizeof *o->sums);
    for (size_t i = 0; i < o->count; i++) {
        const struct objective_term *t = &o->terms[i];
        if (b->rows == 0 && !t->loss->compares_rows) continue;
        struct row_weights own = loss_weights(o->model, &t->output.shape, b->weights->values, b->weights->is_counted);
        own.target_size = t->target.size;
        own.all = b->weights->all;
        t->loss->run(t->config, &(struct loss_batch){b->device, &t->output.shape, F32(t->outputs), t->targets, &own,
                                                     b->rows, b->scale * (float)t->weight,
                                                     b->gradient ? F32(t->gradient) : NULL, &o->sums[i]});
        if (b->gradient)
            ops->copy_columns(b->device, t->gradient, t->output.size, floats(b->gradient) + t->output.first,
                              o->output_size, b->rows, t->output.size);
    }
    ops->losses->combine(b->device, o->sums, o->weights, o->count, (double)b->rows, b->sums);
}

const struct loss_type loss_objective = {
    .variant = {"losses", NULL, "Several losses."}, .prepare = prepare, .run = run, .is_objective = true};
