/* pytorch: the training of a config as a Python script of PyTorch, which needs nothing of this program: the same rows
 * in the same order, the same initial weights, passes and updates. Layers, losses, optimizers, schedules and formats of
 * data say in templates what they are in PyTorch; here are the places of the templates and what stands around them.
 * Functions that PyTorch lacks are in pytorch.py, of which a script has those that it uses. */
#include <string.h>

#include "base/files/io.h"
#include "base/scoped.h"
#include "data/dataset/dataset.h"
#include "data/sampling/split.h"
#include "export/formats.h"
#include "export/pytorch.h"
#include "model/objective.h"

/* The texts of this folder's Python. */
static const struct {
    const char *name, *code;
} files[] = {
#include "export/texts.inc"
};

/* ---- what all parts use ---- */

status script_refuse(const char *what) { return status_usage("%s cannot be expressed in a PyTorch script", what); }

void script_add_real(struct text *out, const char *before, double value, const char *after) {
    text_add(out, before);
    text_add_double(out, value);
    text_add(out, after);
}

void script_add_text(struct text *out, const char *before, const char *text, const char *after) {
    text_add(out, before);
    text ? text_add_json(out, text) : text_add(out, "None");
    text_add(out, after);
}

void script_add_names(struct text *out, const struct string_list *names, const char *fallback) {
    bool is_given = names->count || !fallback;
    text_add_json_list(out, is_given ? names->items : &fallback, is_given ? names->count : 1);
}

void script_add_numbers(struct text *out, const struct real_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        text_add(out, i ? ", " : "");
        text_add_double(out, list->items[i]);
    }
}

void script_add_sizes(struct text *out, const struct shape *shape, int from) {
    for (int d = from; d < shape->dims; d++)
        text_printf(out, "%s%lld", d > from ? ", " : "", (long long)shape->size[d]);
}

const struct shape *script_shape_of(const struct script *s, size_t tensor) {
    const struct planned_tensor *t = &s->model->tensors[tensor];
    return t->scores ? t->scores : &t->shape;
}

size_t script_output_lengths(const struct script *s) {
    return s->plan->objective ? 0 : s->model->tensors[s->model->output].shape.lengths;
}

/* The last dimension are the classes, and those before it positions. */
static bool script_has_classes_last(const struct script *s, const struct loss_type *loss, size_t tensor) {
    const struct planned_tensor *t = &s->model->tensors[tensor];
    bool is_of_positions = !t->scores && t->shape.dims > 1 && !script_output_lengths(s);
    return loss->wants_classes && !loss->aligns_targets && is_of_positions;
}

/* ---- what no script has ---- */

static bool is_csv(const struct dataset_config *d) {
    const struct dataset_format *format = d->path ? dataset_format_of(d, d->path) : NULL;
    return format && strcmp(format->name, "csv") == 0;
}

static status check_config(const struct config *c) {
    const struct dataset_config *d = &c->dataset;
    const struct {
        bool is_given;
        const char *key;
    } keys[] = {
        {c->train.precision == TRAIN_FLOAT16 && c->train.steps != SCHEMA_NO_INT,
         "train.precision float16 with train.steps, of which skipped steps do not count,"},
        {c->determinism.mode == DETERMINISM_ELASTIC, "determinism.mode elastic"},
        {c->train.on_nonfinite.policy != NONFINITE_STOP, "train.on_nonfinite.policy"},
        {c->train.accumulate_weighting != WEIGHTING_TORCH && c->train.accumulate > 1, "train.accumulate_weighting"},
        {c->dist.gradient_compression != COMPRESSION_NONE, "dist.gradient_compression"},
        {strcmp(c->checkpoint.resume, "auto") != 0 && strcmp(c->checkpoint.resume, "never") != 0,
         "checkpoint.resume FILE"},
        {c->sampler.type == SAMPLER_WEIGHTED && (c->sampler.uneven || c->has_losses),
         "sampler.type weighted with losses or uneven"},
        {c->sampler.per_rank, "sampler.per_rank"},
        {c->sampler.type == SAMPLER_EXTENSION, "sampler.order"},
        {c->sampler.type == SAMPLER_BATCHIFY, "sampler.type batchify"},
        {d->window.group != NULL, "dataset.window.group"},
        {d->window.has_history, "dataset.window.history"},
        {d->window.steps > 0 && split_has_test(&d->split), "dataset.window with test rows"},
        {d->weights != NULL, "dataset.weights"},
        {d->filter && !is_csv(d), "dataset.filter of a database"},
        {d->layout != LAYOUT_NCHW, "dataset.layout"},
        {d->target_scale != TARGET_SCALE_NONE && c->has_losses, "dataset.target_scale with losses"},
        {d->scale.per_feature, "dataset.scale.per_feature"},
        {d->window.steps > 0 && d->split.folds > 0, "dataset.window with folds"},
        {d->split.group && d->window.steps > 0, "dataset.split.group with dataset.window"},
        {d->split.group && split_has_test(&d->split), "dataset.split.group with test rows"},
        {d->image.labels && (d->has_csv || d->has_missing), "dataset.csv and dataset.missing of dataset.image.labels"},
        {split_has_test(&d->split) && (d->split.stratify || !d->split.shuffle || d->split.folds > 0),
         "dataset.split with test rows, but without shuffle or with stratify or folds"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].is_given) return script_refuse(keys[i].key);
    return OK;
}
/* ---- the training ---- */

/* A loss and what it is of; of several losses one of their terms. */
struct term {
    const struct script *s;
    const struct loss_type *loss;
    const void *config; /* with the weights of balanced classes */
    size_t output;      /* the tensor */
    const struct objective_term *of;
    size_t index; /* of [of] */
};

/* "t[:, 3].long()" */
static void add_term_targets(const struct term *term, struct text *out) {
    const struct objective_target *t = &term->of->target;
    const struct shape *y = script_shape_of(term->s, term->output);
    bool is_one = term->loss->wants_classes && t->size == 1;
    text_printf(out, is_one ? "t[:, %zu]" : "t[:, %zu:%zu]", t->first, t->first + t->size);
    if (!is_one && !term->loss->parts && !term->loss->is_class_list) {
        bool classes_first = term->loss->wants_classes && !script_has_classes_last(term->s, term->loss, term->output);
        struct shape of = *y;
        if (term->loss->wants_classes && !classes_first) of.dims--;
        text_add(out, ".reshape(len(t), ");
        script_add_sizes(out, &of, classes_first);
        text_add(out, ")");
    }
    if (term->loss->wants_classes) text_add(out, ".long()");
}

static bool loss_place(void *context, const char *name, struct text *out) {
    const struct term *term = context;
    if (strcmp(name, "y") == 0) {
        text_add(out, "y");
        if (term->of) text_printf(out, "[%zu]", term->index);
        if (script_has_classes_last(term->s, term->loss, term->output)) text_add(out, ".transpose(1, 2)");
    } else if (strcmp(name, "t") == 0) {
        if (term->of)
            add_term_targets(term, out);
        else
            text_add(out, "t");
    } else if (strcmp(name, "formula") == 0) {
        term->loss->add_formula(term->config, out);
    } else if (strcmp(name, "lengths") == 0) {
        text_add(out, script_output_lengths(term->s) ? "lengths" : "None");
    } else if (strcmp(name, "weight") == 0 && term->loss->class_weight) {
        const struct real_list *weights = term->loss->class_weight((void *)(uintptr_t)term->config);
        if (!weights->count) return true;
        text_add(out, term->of ? ", torch.tensor([" : ", class_weights");
        if (term->of) script_add_numbers(out, weights), text_add(out, "], dtype=dtype, device=device)");
    } else {
        return false;
    }
    return true;
}

static status add_term(struct term *term, struct text *out) {
    const struct loss_type *loss = term->loss;
    if (!loss->pytorch) return status_usage("loss %s cannot be expressed in a PyTorch script", loss->variant.name);
    if (term->of && loss->aligns_targets)
        return script_refuse(arena_printf(term->s->arena, "losses with %s", loss->variant.name));
    if (term->of && term->s->model->tensors[term->output].shape.lengths)
        return script_refuse("losses of rows of different lengths");
    return schema_fill(loss->variant.schema, term->config, loss->pytorch, loss_place, term, out);
}

#define IGNORED_BY_DEFAULT (-100) /* ignore_index: in most data no class */

/* What a batch counts for in means, if not its rows, as an expression of outputs y and targets t; NULL: its rows. */
static const char *count_of(const struct script *s) {
    const struct plan *p = s->plan;
    void *config = p->balanced ? p->balanced : (void *)(uintptr_t)p->loss_config;
    if (p->objective || p->loss->aligns_targets) return NULL;
    if (script_output_lengths(s)) return "y[1].sum().item()";
    long long ignored = p->loss->ignored ? (long long)p->loss->ignored(config) : IGNORED_BY_DEFAULT;
    bool ignores =
        ignored != IGNORED_BY_DEFAULT || (p->loss->ignored && (p->info.has_ignored || script_moves_targets(s)));
    if (p->loss->divides_by_weights && p->loss->class_weight(config)->count)
        return arena_printf(s->arena, "class_weights[t[t != %lld]].sum().item()", ignored);
    return ignores ? arena_printf(s->arena, "(t != %lld).sum().item()", ignored) : NULL;
}

static bool has_16_bits(const struct script *s) { return s->config->train.precision != TRAIN_FLOAT32; }
static bool scales_loss(const struct script *s) { return s->config->train.precision == TRAIN_FLOAT16; }

/* "model(x[part])", with 16 bits under autocast. */
static const char *call_of(const struct script *s, const char *model, const char *inputs) {
    return arena_printf(s->arena, has_16_bits(s) ? "outputs_of(%s, %s)" : "%s(%s)", model, inputs);
}

static void add_autocast(struct script *s) {
    if (has_16_bits(s))
        text_printf(&s->training,
                    "def outputs_of(model, inputs):\n    with torch.autocast(device.type, torch.%s):\n"
                    "        return model(inputs)\n\n\n",
                    scales_loss(s) ? "float16" : "bfloat16");
}

static void add_counts(struct script *s) {
    const struct plan *p = s->plan;
    void *config = p->balanced ? p->balanced : (void *)(uintptr_t)p->loss_config;
    if (!p->objective && p->loss->class_weight && p->loss->class_weight(config)->count) {
        text_add(&s->training, "class_weights = torch.tensor([");
        script_add_numbers(&s->training, p->loss->class_weight(config));
        text_add(&s->training, "], dtype=dtype, device=device)\n\n\n");
    }
    if (count_of(s)) text_printf(&s->training, "def count_of(y, t):\n    return %s\n\n\n", count_of(s));
}

static status add_loss(struct script *s) {
    const struct plan *p = s->plan;
    struct text *out = &s->training;
    add_counts(s);
    bool is_alone = s->config->sampler.uneven || loss_compares_rows(p->loss, p->loss_config);
    if (is_alone) text_add(out, "assert world == 1, \"the script of this loss or sampler is for one process\"\n\n\n");
    text_add(out, "def loss_of(y, t):\n");
    if (has_16_bits(s) && p->objective) text_add(out, "    y = [part.to(dtype) for part in y]\n");
    if (has_16_bits(s) && !p->objective && !script_output_lengths(s)) text_add(out, "    y = y.to(dtype)\n");
    if (script_output_lengths(s) && p->loss->aligns_targets)
        text_add(out, has_16_bits(s) ? "    y, lengths = y[0].to(dtype), y[1]\n" : "    y, lengths = y\n");
    else if (script_output_lengths(s))
        text_add(out, "    y, lengths = y\n    real = real_positions(y.shape[1], lengths)\n    y, t = "
                      "y[real].to(dtype), t[real]\n");
    text_add(out, "    return ");
    struct term term = {s, p->loss, p->balanced ? p->balanced : p->loss_config, s->model->output, NULL, 0};
    if (!p->objective) TRY(add_term(&term, out));
    for (size_t i = 0; p->objective && i < p->objective->count; i++) {
        const struct objective_term *of = &p->objective->terms[i];
        term = (struct term){s, of->loss, of->config, s->model->outputs[i].tensor, of, i};
        text_add(out, i ? " + " : "");
        if (of->weight < 1 || of->weight > 1) text_add_double(out, of->weight), text_add(out, " * ");
        TRY(add_term(&term, out));
    }
    text_add(out, "\n\n\n");
    return OK;
}

/* Whether the script computes the accuracy. */
static bool has_accuracy(const struct script *s) {
    const struct loss_type *loss = s->plan->loss;
    return !s->plan->objective && loss->wants_classes && !loss->aligns_targets && !script_output_lengths(s);
}

/* The inputs of rows, "x[part]". */
static const char *input_of(const struct script *s, const char *rows) {
    if (dataset_drawing(s->plan->dataset).members)
        return script_scales_batches(s)
                   ? arena_printf(s->arena, "inputs_of(drawn(%s).flatten()).reshape(len(%s), -1)", rows, rows)
                   : arena_printf(s->arena, "x[drawn(%s)].flatten(1)", rows);
    return arena_printf(s->arena, script_scales_batches(s) ? "inputs_of(%s)" : "x[%s]", rows);
}

/* The targets of rows; those that are drawn inputs are known batch by batch. */
static const char *targets_of(const struct script *s, const char *rows) {
    return arena_printf(s->arena, script_has_drawn_targets(s) ? "targets_of(%s)" : "y[%s]", rows);
}

/* Loss and, of classes, accuracy over rows; each batch counts by its rows, or by its real positions. The accuracy is
 * that of all positions but the ignored ones, also where the loss has weights of classes. */
static void add_evaluation(struct script *s) {
    const struct loss_type *loss = s->plan->loss;
    bool has_classes = has_accuracy(s), are_last = script_has_classes_last(s, loss, s->model->output);
    bool counts_apart = has_classes && count_of(s);
    struct text *out = &s->training;
    text_printf(out,
                "@torch.no_grad()\ndef evaluate(model, rows):\n    model.eval()\n    sums, count = np.zeros(%d), 0\n"
                "    for part in torch.as_tensor(rows).split(batch):\n"
                "        outputs, t = %s, %s\n"
                "        n = %s\n",
                has_classes ? 2 : 1, call_of(s, "model", input_of(s, "part")), targets_of(s, "part"),
                count_of(s) ? "count_of(outputs, t)" : "len(part)");
    if (counts_apart)
        text_printf(
            out,
            "        real = t != %lld\n"
            "        count = count + np.array([n, real.sum().item()])\n"
            "        sums += np.array([n * loss_of(outputs, t).item(), ((outputs.argmax(%d) == t) & real).sum().item()",
            loss->ignored ? (long long)loss->ignored((void *)(uintptr_t)s->plan->loss_config)
                          : (long long)IGNORED_BY_DEFAULT,
            are_last ? 2 : 1);
    else
        text_add(out, "        count += n\n        sums += n * np.array([loss_of(outputs, t).item()");
    if (has_classes && !counts_apart)
        text_printf(out, ", (outputs.argmax(%d) == t).double().mean().item()", are_last ? 2 : 1);
    text_add(out, "])\n    model.train()\n    return sums / count\n\n\n");
}

static bool is_weighted(const struct script *s) { return s->config->sampler.type == SAMPLER_WEIGHTED; }
static bool is_indices(const struct script *s) { return s->config->sampler.type == SAMPLER_INDICES; }
static bool is_dataloader(const struct script *s) { return s->config->sampler.type == SAMPLER_DATALOADER; }

/* The sampler, and the numbers of an epoch. */
static void add_sampler(struct script *s) {
    const struct sampler_config *c = &s->config->sampler;
    const struct train_config *t = &s->config->train;
    const char *shuffles = c->shuffle ? "True" : "False", *rows = is_dataloader(s) ? "train" : "sampler";
    struct text *out = &s->training;
    if (c->global_batch_size != SCHEMA_NO_INT)
        text_printf(out, "batch = %lld // world\n", (long long)c->global_batch_size);
    else
        text_printf(out, "batch = %lld\n", (long long)c->batch_size);
    if (is_dataloader(s))
        text_printf(out, "loader = torch.utils.data.DataLoader(range(len(train)), batch, shuffle=%s)\n", shuffles);
    else if (is_weighted(s))
        text_printf(out, "sampler = BalancedSampler(y[torch.as_tensor(train)].cpu(), world, rank, seed=%lld%s)\n",
                    (long long)c->seed, c->drop_last ? ", drop_last=True" : "");
    else if (is_indices(s)) {
        script_add_text(out, "sampler = IndexSampler(", c->path,
                        c->drop_last ? ", world, rank, drop_last=True)\n" : ", world, rank)\n");
    } else
        text_printf(out, "sampler = DistributedSampler(range(len(train)), world, rank, shuffle=%s, seed=%lld%s)\n",
                    shuffles, (long long)c->seed, c->drop_last ? ", drop_last=True" : "");
    text_printf(out, "steps_per_epoch = %s", t->accumulate > 1 ? "math.ceil(" : "");
    text_printf(out, c->drop_last_batch ? "len(%s) // batch" : "math.ceil(len(%s) / batch)", rows);
    if (t->accumulate > 1) text_printf(out, " / %lld)", (long long)t->accumulate);
    if (t->epochs != SCHEMA_NO_INT)
        text_printf(out, "\nepochs = %lld\nsteps = epochs * steps_per_epoch\n", (long long)t->epochs);
    else
        text_printf(out, "\nsteps = %lld\nepochs = math.ceil(steps / steps_per_epoch)\n", (long long)t->steps);
}

static void add_order(struct script *s) {
    struct text *out = &s->training;
    bool are_positions = dataset_augments(s->plan->dataset); /* which augmented() needs */
    if (is_dataloader(s))
        text_add(out, are_positions ? "    batches = list(loader)\n"
                                    : "    batches = [torch.as_tensor(train)[part] for part in loader]\n");
    else
        text_printf(out, "    sampler.set_epoch(epoch)\n    batches = torch.as_tensor(%s).split(batch)\n",
                    are_positions ? "list(sampler)" : "train[list(sampler)]");
    if (dataset_drawing(s->plan->dataset).members) text_add(out, "    drawn.epoch = epoch\n");
    if (s->config->sampler.drop_last_batch)
        text_add(out, "    batches = [rows for rows in batches if len(rows) == batch]\n");
}

/* Whether the schedule is a function of the time. */
static bool has_rates(const struct script *s) {
    const struct variant *schedule = &s->config->schedule;
    int mode;
    return !schedule_is_constant(schedule) && !schedule_monitor(schedule, &mode);
}

/* The rate, and the momentum, of an update. */
static void add_rates(struct script *s) {
    const char *progress = schedule_counts_steps(&s->config->schedule) ? "step, steps" : "epoch, epochs";
    struct text *out = &s->training;
    text_printf(out,
                "        for group, rate in zip(optimizer.param_groups, rates):\n"
                "            group[\"lr\"] = learning_rate(rate, %s)\n",
                progress);
    if (!schedule_changes_momentum(&s->config->schedule)) return;
    text_printf(out,
                "            value = momentum(rate, %s)\n"
                "            group.update({\"betas\": (value, group[\"betas\"][1])} if \"betas\" in group else "
                "{\"momentum\": value})\n",
                progress);
}

/* Forward and backward of the batch [rows], and its loss. */
static void add_passes(struct script *s) {
    long long accumulate = (long long)s->config->train.accumulate;
    const char *indent = accumulate > 1 ? "            " : "        ";
    bool has_draws = strstr(text_string(&s->network), "stream=") != NULL;
    struct text *out = &s->training;
    if (accumulate > 1)
        text_printf(out,
                    "    for first in range(0, len(batches), %lld):\n        if step == steps:\n            break\n"
                    "        optimizer.zero_grad()\n        own = torch.zeros(2, dtype=torch.float64)\n"
                    "        for rows in batches[first:first + %lld]:\n",
                    accumulate, accumulate);
    else
        text_add(out, "    for rows in batches:\n        if step == steps:\n            break\n"
                      "        optimizer.zero_grad()\n");
    if (has_draws)
        text_printf(out, "%sdraws.rows = np.arange(rank, rank + world * len(rows), world).astype(np.uint64)\n", indent);
    bool augments = dataset_augments(s->plan->dataset);
    if (augments) text_printf(out, "%simages, t = augmented(rows, epoch)\n", indent);
    const char *inputs = augments ? "images" : input_of(s, "rows"), *targets = augments ? "t" : targets_of(s, "rows");
    text_printf(out, count_of(s) ? "%soutputs, t = %s, %s\n" : "%sloss = loss_of(%s, %s)\n", indent,
                call_of(s, "parallel", inputs), targets);
    if (count_of(s)) text_printf(out, "%sloss, n = loss_of(outputs, t), count_of(outputs, t)\n", indent);
    const char *mean = accumulate > 1 ? arena_printf(s->arena, "loss / %lld", accumulate) : "loss";
    text_printf(out,
                scales_loss(s)   ? "%sscaler.scale(%s).backward()\n"
                : accumulate > 1 ? "%s(%s).backward()\n"
                                 : "%s%s.backward()\n",
                indent, mean);
    if (has_draws) text_printf(out, "%sdraws.number += 1\n", indent);
    const char *count = count_of(s) ? "n" : "len(rows)";
    text_printf(out, "%sown %s torch.tensor([loss.item() * %s, %s], dtype=torch.float64)\n", indent,
                accumulate > 1 ? "+=" : "=", count, count);
}

static void add_update(struct script *s) {
    const struct train_config *t = &s->config->train;
    struct text *out = &s->training;
    if (scales_loss(s)) text_add(out, "        scaler.unscale_(optimizer)\n");
    if (t->clip_grad_norm > 0)
        script_add_real(out, "        torch.nn.utils.clip_grad_norm_(model.parameters(), ", t->clip_grad_norm, ")\n");
    if (t->clip_grad_value > 0)
        script_add_real(out, "        torch.nn.utils.clip_grad_value_(model.parameters(), ", t->clip_grad_value, ")\n");
    if (has_rates(s)) add_rates(s);
    if (scales_loss(s))
        text_add(out, "        scale = scaler.get_scale()\n        scaler.step(optimizer)\n        scaler.update()\n"
                      "        if scaler.get_scale() < scale:  # the gradients overflowed\n            continue\n"
                      "        step += 1\n");
    else
        text_add(out, "        optimizer.step()\n        step += 1\n");
    if (t->ema.decay > 0)
        script_add_real(out,
                        "        with torch.no_grad():\n"
                        "            for a, p in zip(average.parameters(), model.parameters()):\n"
                        "                a.lerp_(p, 1 - ",
                        t->ema.decay, " if step > 1 else 1)\n");
    text_add(out, "        if world > 1:\n            dist.all_reduce(own)\n        sums += own\n");
    if (t->log_every <= 0) return;
    text_add(out, "        if rank == 0");
    if (t->log_every > 1) text_printf(out, " and step %% %lld == 0", (long long)t->log_every);
    text_add(out, ":\n            print(f\"step {step}  loss {own[0] / own[1]:.9g}  lr "
                  "{optimizer.param_groups[0]['lr']:.6g}\")\n");
}

/* Evaluates and prints [part], "validation" or "test". */
static void add_evaluation_of(struct script *s, const char *model, const char *part, const char *indent) {
    bool has_classes = has_accuracy(s);
    text_printf(&s->training, "%smeans = evaluate(%s, %s)\n%sprint(f\"%s loss {means[0]:.9g}%s\")\n", indent, model,
                part, indent, part, has_classes ? " accuracy {means[1]:.2%}" : "");
}

/* What rank 0 prints after an epoch. */
static void add_report(struct script *s) {
    const struct train_config *t = &s->config->train;
    const char *is_last = scales_loss(s) ? "epoch + 1 == epochs" : "step == steps";
    struct text *out = &s->training;
    text_add(out, "    if rank == 0:\n"
                  "        print(f\"epoch {epoch + 1}/{epochs}  train loss {sums[0] / sums[1]:.9g}\")\n");
    if (s->plan->info.validation_rows == 0) return;
    if (t->evaluate_every == 0)
        text_printf(out, "    if rank == 0 and %s:\n", is_last);
    else if (t->evaluate_every > 1)
        text_printf(out, "    if rank == 0 and ((epoch + 1) %% %lld == 0 or %s):\n", (long long)t->evaluate_every,
                    is_last);
    if (ema_is_used(&t->ema))
        text_add(out, "        for a, b in zip(average.buffers(), model.buffers()):\n            a.copy_(b)\n");
    add_evaluation_of(s, ema_is_used(&t->ema) ? "average" : "model", "validation", "        ");
}

/* ---- what a metric decides: early stop, reduce_on_plateau ---- */

static struct monitor plateau_of(const struct script *s) {
    struct monitor plateau = {0};
    plateau.metric = schedule_monitor(&s->config->schedule, &plateau.mode);
    return plateau;
}

/* Sets value to [metric], which all ranks get. */
static status add_metric(struct script *s, const char *metric, const char *indent) {
    struct text *out = &s->training;
    if (strcmp(metric, "train_loss") == 0) {
        text_printf(out, "%svalue = (sums[0] / sums[1]).item()\n", indent);
        return OK;
    }
    bool is_loss = strcmp(metric, "val_loss") == 0;
    bool is_known = has_accuracy(s);
    if (!is_loss && (strcmp(metric, "val_accuracy") != 0 || !is_known))
        return script_refuse(arena_printf(s->arena, "the metric %s", metric));
    text_printf(out,
                "%svalue = torch.tensor(means[%d] if rank == 0 else 0, dtype=torch.float64)\n"
                "%sif world > 1:\n%s    dist.broadcast(value, 0)\n%svalue = value.item()\n",
                indent, is_loss ? 0 : 1, indent, indent, indent);
    return OK;
}

static status add_decisions(struct script *s) {
    struct early_stop stop = early_stop_of(&s->config->train.early_stop);
    struct monitor plateau = plateau_of(s);
    struct text *out = &s->training;
    long long every = (long long)s->config->train.evaluate_every;
    bool has_some = s->plan->info.validation_rows > 0 && every > 1, is_max;
    const char *indent = has_some ? "        " : "    ";
    if (plateau.metric && !monitor_is_of_validation(plateau.metric)) {
        TRY(add_metric(s, plateau.metric, "    "));
        text_add(out, "    scheduler.step(value)\n");
        plateau.metric = NULL;
    }
    if (has_some && (plateau.metric || stop.monitor.metric))
        text_printf(out, "    if (epoch + 1) %% %lld == 0:\n", every);
    if (plateau.metric) {
        TRY(add_metric(s, plateau.metric, indent));
        text_printf(out, "%sscheduler.step(value)\n", indent);
    }
    if (!stop.monitor.metric) return OK;
    is_max = monitor_is_maximized(&stop.monitor);
    TRY(add_metric(s, stop.monitor.metric, indent));
    text_printf(out, "%sbest, waited = (value, 0) if value %c best", indent, is_max ? '>' : '<');
    if (stop.min_delta > 0) script_add_real(out, is_max ? " + " : " - ", stop.min_delta, "");
    text_printf(out, " else (best, waited + 1)\n%sif waited == %lld:  # early stop\n%s    break\n", indent,
                (long long)stop.patience, indent);
    return OK;
}

/* What they begin with. */
static status add_monitors(struct script *s) {
    struct early_stop stop = early_stop_of(&s->config->train.early_stop);
    struct monitor plateau = plateau_of(s);
    if (plateau.metric) TRY(schedule_write_plateau(&s->config->schedule, monitor_is_maximized(&plateau), &s->training));
    if (stop.monitor.metric)
        text_printf(&s->training, "best, waited = %smath.inf, 0\n", monitor_is_maximized(&stop.monitor) ? "-" : "");
    return OK;
}

static status write_training(struct script *s) {
    const struct config *c = s->config;
    struct text *out = &s->training;
    bool has_schedule = has_rates(s);
    TRY(add_loss(s));
    add_autocast(s);
    if (s->plan->info.validation_rows > 0) add_evaluation(s);
    if (has_schedule) {
        TRY(schedule_write_pytorch(&c->schedule, "learning_rate", false, out));
        text_add(out, "\n\n");
    }
    if (schedule_changes_momentum(&c->schedule)) {
        TRY(schedule_write_pytorch(&c->schedule, "momentum", true, out));
        text_add(out, "\n\n");
    }
    if (optimizer_evaluates(&c->optimizer)) return script_refuse("the optimizer lbfgs");
    TRY(optimizer_write_pytorch(&c->optimizer, out));
    if (has_schedule) text_add(out, "rates = [group[\"lr\"] for group in optimizer.param_groups]\n");
    if (scales_loss(s))
        TRY(schema_fill(
            &loss_scale_schema, &c->train.grad_scaler,
            "scaler = "
            "torch.amp.GradScaler(device.type{,init_scale}{,growth_factor}{,backoff_factor}{,growth_interval})\n",
            NULL, NULL, out));
    TRY(add_monitors(s));
    add_sampler(s);
    if (c->train.ema.decay > 0) text_add(out, "average = copy.deepcopy(model)\n");
    if (strstr(text_string(&s->network), "stream=")) text_printf(out, "draws.seed = %lld\n", (long long)c->seed);
    text_printf(out,
                "parallel = DistributedDataParallel(model%s) if world > 1 else model\n"
                "step = 0\n"
                "for epoch in range(epochs):\n",
                c->dist.find_unused_parameters ? ", find_unused_parameters=True" : "");
    add_order(s);
    text_add(out, "    sums = torch.zeros(2, dtype=torch.float64)  # of the losses of rows, and their number\n");
    add_passes(s);
    add_update(s);
    add_report(s);
    TRY(add_decisions(s));
    text_add(out, "if rank == 0:\n");
    if (s->plan->info.test_rows) add_evaluation_of(s, "model", "test", "    ");
    script_add_text(out, "    torch.save(model.state_dict(), ", arena_printf(s->arena, "%s.pt", c->name),
                    ")\nif world > 1:\n    dist.destroy_process_group()\n");
    return OK;
}

/* ---- the file ---- */

static bool is_name_part(char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether [code] calls, or derives from, [name] (length). */
static bool uses(const char *code, const char *name, size_t length) {
    for (const char *at = code; (at = strstr(at, name)); at += length) {
        bool begins = at == code || (!is_name_part(at[-1]) && at[-1] != '.' && at[-1] != '"');
        if (begins && strchr("(.),", at[length])) return true;
    }
    return false;
}

#define MAX_PIECES 128
#define GAP "\n\n\n"

/* A function or class of pytorch.py. */
struct helper {
    const char *code, *name;
    size_t name_length;
    bool is_used;
};

static size_t read_pieces(struct arena *arena, struct helper *pieces) {
    size_t count = 0;
    const char *at = strstr(files[0].code, GAP), *next; /* behind the comment */
    for (; at && count < MAX_PIECES; at = next) {
        at += strlen(GAP);
        next = strstr(at, GAP);
        size_t size = next ? (size_t)(next - at) : strlen(at) - 1;
        const char *name = strncmp(at, "class ", 6) == 0 ? at + 6 : strncmp(at, "def ", 4) == 0 ? at + 4 : at;
        pieces[count++] =
            (struct helper){arena_printf(arena, "%.*s", (int)size, at),
                            arena_printf(arena, "%.*s", (int)strcspn(name, "( :"), name), strcspn(name, "( :"), false};
    }
    return count;
}

/* Those that [script] and the used ones need. */
static void add_pieces(struct arena *arena, const char *script, struct text *out) {
    struct helper pieces[MAX_PIECES];
    size_t count = read_pieces(arena, pieces);
    for (bool has_new = true; has_new;) {
        has_new = false;
        for (size_t i = 0; i < count; i++) {
            bool is_used = uses(script, pieces[i].name, pieces[i].name_length);
            for (size_t k = 0; k < count && !is_used; k++)
                is_used = pieces[k].is_used && k != i && uses(pieces[k].code, pieces[i].name, pieces[i].name_length);
            has_new = has_new || (is_used && !pieces[i].is_used);
            pieces[i].is_used = is_used;
        }
    }
    for (size_t i = 0; i < count; i++)
        if (pieces[i].is_used) text_printf(out, "\n\n%s\n", pieces[i].code);
}

static void add_imports(const char *code, struct text *out) {
    static const struct {
        const char *use, *line;
    } lines[] = {
        {"concurrent.futures.", "import concurrent.futures"},
        {"copy.", "import copy"},
        {"fnmatch.", "import fnmatch"},
        {"functools.", "import functools"},
        {"gzip.", "import gzip"},
        {"math.", "import math"},
        {"os.", "import os"},
        {"sqlite3.", "import sqlite3"},
        {"", ""},
        {"h5py.", "import h5py"},
        {"np.", "import numpy as np"},
        {"pandas.", "import pandas"},
        {"PIL.Image.", "import PIL.Image"},
        {"PIL.ImageOps.", "import PIL.ImageOps"},
        {"torch.", "import torch"},
        {"dist.", "import torch.distributed as dist"},
        {"dist.nn.", "import torch.distributed.nn"},
        {"nn.", "from torch import nn"},
        {"F.", "from torch.nn import functional as F"},
        {"DistributedDataParallel(", "from torch.nn.parallel import DistributedDataParallel"},
        {"DistributedSampler(", "from torch.utils.data import DistributedSampler"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        size_t length = strlen(lines[i].use);
        if (length == 0 || uses(code, lines[i].use, length - 1)) text_printf(out, "%s\n", lines[i].line);
    }
}

/* Where the model is: on GPUs if there is one for each process of the host, as with train.device: auto. NCCL reduces
 * gradients on GPUs, Gloo the losses, which are on the CPU. */
static void add_device(const struct train_config *t, struct text *out) {
    bool may_be_gpu = t->device != DEVICE_CPU, is_high = t->matmul_precision == MATMUL_HIGH;
    text_add(out, "device = torch.device(\"cpu\")\n");
    if (may_be_gpu)
        text_printf(out,
                    "if torch.cuda.device_count() >= int(os.environ.get(\"LOCAL_WORLD_SIZE\", 1)):\n"
                    "    device = torch.device(\"cuda\", int(os.environ.get(\"LOCAL_RANK\", 0)))\n"
                    "    torch.cuda.set_device(device)\n"
                    "    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = %s\n",
                    is_high ? "True" : "False");
    text_printf(out, "if world > 1:\n    dist.init_process_group(%s)\n",
                may_be_gpu ? "\"gloo\" if device.type == \"cpu\" else \"cpu:gloo,cuda:nccl\"" : "\"gloo\"");
}

static void write_script(struct script *s, struct text *out) {
    SCOPED_TEXT body = {0}, pieces = {0};
    text_printf(&body, "\n\ndtype = torch.float32  # with torch.float64 the same run with less rounding\n"
                       "rank, world = int(os.environ.get(\"RANK\", 0)), int(os.environ.get(\"WORLD_SIZE\", 1))\n");
    add_device(&s->config->train, &body);
    text_printf(&body, "\n# ---- data ----\n\n%s\n# ---- model ----\n\n%s\n# ---- training ----\n\n%s",
                text_string(&s->data), text_string(&s->network), text_string(&s->training));
    add_pieces(s->arena, text_string(&body), &pieces);
    SCOPED_TEXT all = {0};
    text_printf(&all, "%s\n%s", text_string(&pieces), text_string(&body));
    SCOPED_TEXT source = {0};
    text_add_value(&source, s->source, TEXT_MAX_LINE);
    text_printf(
        out,
        "# The training of %s in PyTorch, written by `ddptrain export`: the same rows, initial weights and updates.\n"
        "#\n#     python3 train.py\n#     torchrun --standalone --nproc_per_node=2 train.py\n\n",
        text_string(&source));
    add_imports(text_string(&all), out);
    text_printf(out, "%s%s", text_string(&pieces), text_string(&body));
}

static status write_script_file(const struct config *config, const char *source, const char *path, struct log *log) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    const struct plan_options options = {.purpose = PLAN_CHECK, .reads_all = true, .env = &alone};
    struct plan *plan = NULL;
    struct script s = {.source = source, .path = path, .config = config, .arena = arena_create()};
    SCOPED_TEXT out = {0};
    status failure = check_config(config);
    if (!failure) failure = plan_create(config, &options, &plan);
    s.plan = plan;
    s.model = plan ? plan->model : NULL;
    if (!failure) failure = script_write_data(&s);
    if (!failure) failure = script_write_network(&s);
    if (!failure) failure = write_training(&s);
    if (!failure) {
        write_script(&s, &out);
        struct io_part part = {out.data, out.length};
        failure = io_replace(path, &part, 1);
    }
    if (!failure) log_line(log, "%s: a PyTorch script; the run begins with the initial weights of the config", path);
    text_free(&s.data);
    text_free(&s.network);
    text_free(&s.training);
    plan_destroy(plan);
    arena_destroy(s.arena);
    return failure;
}

const struct export_format export_pytorch = {
    .name = "pytorch", .extension = ".py", .write_training = write_script_file};
