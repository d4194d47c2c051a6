/* Reading of configs, checks of keys that belong together, and what follows from a config and the data, the model or
 * the machine. */
#include "train/config/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/expression/expression.h"
#include "base/files/find_file.h"
#include "base/scoped.h"
#include "base/utf8.h"
#include "checkpoint/checkpoint.h"
#include "train/config/extension.h"

/* ---- `losses`: what its entries say of the dataset, and whether they fit it ---- */

static bool has_group(const struct string_groups *groups, const char *only, const char *name) {
    if (groups->count == 0) return strcmp(name, only) == 0;
    for (size_t i = 0; i < groups->count; i++)
        if (strcmp(groups->items[i].name, name) == 0) return true;
    return false;
}

/* The name of the target of [entry]; NULL: it is not clear. */
static const char *target_of(const struct config *c, const struct variant *entry) {
    const struct objective_keys *keys = entry->common;
    const struct string_groups *groups = &c->dataset.target_groups;
    if (keys->target) return keys->target;
    return groups->count == 0 ? DATASET_TARGET_NAME : groups->count == 1 ? groups->items[0].name : NULL;
}

static bool is_target(const struct config *c, const char *name) {
    return has_group(&c->dataset.target_groups, DATASET_TARGET_NAME, name);
}

static bool is_input(const struct config *c, const char *name) {
    return has_group(dataset_input_groups(&c->dataset), DATASET_INPUT_NAME, name);
}

static void add(struct string_list *list, const char *name) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], name) == 0) return;
    list->items[list->count++] = name;
}

static enum target_range range_of(const struct loss_type *loss) {
    return loss->is_binary       ? TARGETS_ARE_PROBABILITIES
           : loss->is_sign       ? TARGETS_ARE_SIGNS
           : loss->is_class_list ? TARGETS_ARE_CLASS_LISTS
                                 : TARGETS_ARE_ANY;
}

static struct ignored_class ignored_of(const struct loss_type *loss, const void *config) {
    if (!loss->ignored) return (struct ignored_class){0};
    return (struct ignored_class){true, loss->ignored(config), loss->ignored_key};
}

/* Of several losses of a target: the class that all of them ignore. */
static void add_class_target(struct dataset_config *d, struct ignored_class *all, const char *name,
                             struct ignored_class ignored) {
    size_t count = d->request.class_targets.count, i = 0;
    add(&d->request.class_targets, name);
    while (strcmp(d->request.class_targets.items[i], name) != 0) i++;
    if (i == count)
        all[i] = ignored;
    else if (all[i].value != ignored.value)
        all[i].is_set = false;
}

static void set_targets(struct config *c, struct arena *arena) {
    struct dataset_config *d = &c->dataset;
    struct string_list *ranges = d->request.range_targets;
    struct string_list *lists[] = {&d->request.class_targets,          &ranges[TARGETS_ARE_ANY],
                                   &ranges[TARGETS_ARE_PROBABILITIES], &ranges[TARGETS_ARE_SIGNS],
                                   &ranges[TARGETS_ARE_CLASS_LISTS],   &d->request.input_targets};
    bool reads_targets = false;
    d->request.target_range = range_of(config_loss(c));
    if (c->losses.count == 0 && config_loss(c)) {
        d->request.ignored = ignored_of(config_loss(c), c->loss.config);
        d->request.balances_classes = loss_is_balanced(config_loss(c), c->loss.config);
    }
    if (c->losses.count == 0) return;
    struct ignored_class *ignored = arena_alloc(arena, c->losses.count * sizeof *ignored);
    d->request.class_targets_ignored = ignored;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        lists[i]->items = arena_alloc(arena, c->losses.count * sizeof *lists[i]->items);
    for (size_t i = 0; i < c->losses.count; i++) {
        const struct loss_type *loss = loss_type_at((size_t)c->losses.items[i].index);
        const char *name = target_of(c, &c->losses.items[i]);
        if (!name || loss->has_no_target) continue;
        if (loss->wants_classes) add_class_target(d, ignored, name, ignored_of(loss, c->losses.items[i].config));
        if (range_of(loss)) add(&ranges[range_of(loss)], name);
        if (is_target(c, name))
            reads_targets = true;
        else
            add(&d->request.input_targets, name);
    }
    d->request.has_losses = true;
    d->request.without_targets = !reads_targets;
}

static void add_names(const struct string_groups *groups, const char *only, struct text *out) {
    if (groups->count == 0) text_printf(out, "%s%s", out->length ? ", " : "", only);
    for (size_t i = 0; i < groups->count; i++) text_printf(out, "%s%s", out->length ? ", " : "", groups->items[i].name);
}

static void check_target(const struct config *c, const struct variant *entry, struct problems *problems) {
    const char *name = target_of(c, entry);
    const struct loss_type *loss = loss_type_at((size_t)entry->index);
    if (loss->has_no_target) {
        if (((const struct objective_keys *)entry->common)->target)
            problems_add(problems, entry->place, "losses", "'%s' has no target; remove target:", entry->name);
        return;
    }
    if (name && is_target(c, name)) return;
    if (name && is_input(c, name)) {
        if (loss->wants_classes || loss->is_class_list)
            problems_add(problems, entry->place, "losses", "the target '%s' is an input, and %s needs classes", name,
                         entry->name);
        return;
    }
    SCOPED_TEXT known = {0};
    add_names(&c->dataset.target_groups, DATASET_TARGET_NAME, &known);
    add_names(dataset_input_groups(&c->dataset), DATASET_INPUT_NAME, &known);
    if (name)
        problems_add(problems, entry->place, "losses",
                     "there is no target '%s'; dataset.targets and dataset.inputs have: %s", name, text_string(&known));
    else
        problems_add(problems, entry->place, "losses", "'%s' needs target: with one of: %s", entry->name,
                     text_string(&known));
}

/* Losses of rows that depend on the other rows of the batch. */
static void check_comparison(const struct config *c, const struct variant *entry, struct problems *problems) {
    if (!loss_type_at((size_t)entry->index)->compares_rows) return;
    if (c->dataset.weights)
        problems_add(
            problems, entry->place, "losses",
            "'%s' compares the rows of a batch with each other, so they cannot have weights; remove dataset.weights",
            entry->name);
    if (c->determinism.mode == DETERMINISM_ELASTIC)
        problems_add(problems, entry->place, "losses",
                     "'%s' compares the rows of a batch with each other, which determinism: elastic computes in "
                     "separate shards; use determinism: torch",
                     entry->name);
}

static void check_targets_used(const struct config *c, const struct node *root, struct problems *problems) {
    const struct string_groups *groups = &c->dataset.target_groups;
    for (size_t g = 0; g < groups->count; g++) {
        bool is_used = false;
        for (size_t i = 0; i < c->losses.count; i++) {
            const char *name = target_of(c, &c->losses.items[i]);
            bool has_target = !loss_type_at((size_t)c->losses.items[i].index)->has_no_target;
            is_used = is_used || (has_target && name && strcmp(name, groups->items[g].name) == 0);
        }
        if (!is_used)
            problems_add(problems, config_place(node_get(root, "losses")), "losses", "no loss uses the target '%s'",
                         groups->items[g].name);
    }
}

/* Whether [name] is the same in a JSON string. */
static bool needs_no_escapes(const char *name) {
    for (; *name; name++)
        if (*name == '"' || *name == '\\' || (unsigned char)*name < ' ') return false;
    return true;
}

static void check_loss_name(const struct config *c, size_t index, struct problems *problems) {
    const struct variant *entry = &c->losses.items[index];
    const char *name = objective_name(entry);
    if (!*name || strpbrk(name, "./"))
        problems_add(problems, entry->place, "losses", "a name must not be empty or contain '.' or '/', got '%s'",
                     name);
    if (!needs_no_escapes(name))
        problems_add(problems, entry->place, "losses",
                     "a name is a part of names in metrics.jsonl and must not contain '\"', '\\' or a control "
                     "character, got '%s'; give another with name:",
                     name);
    for (size_t other = 0; other < index; other++)
        if (strcmp(name, objective_name(&c->losses.items[other])) == 0)
            problems_add(problems, entry->place, "losses",
                         "two losses have the name '%s'; give one of them another with name:", name);
}

static void check_losses(const struct config *c, const struct node *root, struct problems *problems) {
    const struct node *losses = node_get(root, "losses");
    struct place place = config_place(losses);
    if (c->loss.index < 0 && c->losses.count == 0) {
        if (c->has_losses)
            problems_add(problems, place, "losses", "the list is empty");
        else
            problems_add(problems, config_place(root), "loss",
                         "missing; what training minimizes, such as cross_entropy or mse");
        return;
    }
    if (c->losses.count == 0) {
        if (loss_type_at((size_t)c->loss.index)->has_no_target)
            problems_add(problems, config_place(node_get(root, "loss")), "loss",
                         "'%s' has no target, so it must be in a list: losses: [{type: %s, output: NAME}]",
                         c->loss.name, c->loss.name);
        return;
    }
    if (c->loss.index >= 0) problems_add(problems, place, "losses", "is instead of `loss`; give one of them");
    if (c->losses.count > OBJECTIVE_MAX_TERMS)
        problems_add(problems, place, "losses", "at most %d, got %zu", OBJECTIVE_MAX_TERMS, c->losses.count);
    if (c->dataset.target_scale != TARGET_SCALE_NONE)
        problems_add(problems, place, "losses", "cannot be combined with dataset.target_scale, which is for one loss");
    for (size_t i = 0; i < c->losses.count; i++) {
        const struct variant *entry = &c->losses.items[i];
        check_target(c, entry, problems);
        check_comparison(c, entry, problems);
        if (loss_is_balanced(loss_type_at((size_t)entry->index), entry->config))
            problems_add(problems, entry->place, "losses", "weight: balanced is for `loss`; give a list of numbers");
        check_loss_name(c, i, problems);
    }
    check_targets_used(c, root, problems);
}

/* ---- combinations of keys ---- */

/* One function for each subject; config_check calls all of them, so that all problems are reported together. */

#define MAX_NAME 240 /* bytes; file names have at most 255, and --fresh adds ".N" */

/* The node of [section].[key] in the config [root]; NULL: not given. */
static const struct node *find_key(const struct node *root, const char *section, const char *key) {
    const struct node *node = node_get(root, section);
    return node && node->kind == NODE_MAPPING ? node_get(node, key) : NULL;
}

/* The place of [section].[key], else of the section, else of the config. */
static struct place place_of_key(const struct node *root, const char *section, const char *key) {
    const struct node *node = find_key(root, section, key);
    if (!node) node = node_get(root, section);
    return config_place(node ? node : root);
}

static bool has_control_character(const char *name) {
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < 32 || *c == 127) return true;
    return false;
}

static void check_name(const struct config *c, const struct node *root, struct problems *problems) {
    struct place place = config_place(node_get(root, "name"));
    if (!c->name) return;
    if (strchr(c->name, '/') || !*c->name || strcmp(c->name, ".") == 0 || strcmp(c->name, "..") == 0)
        problems_add(problems, place, "name", "must be a file name without '/', got '%s'", c->name);
    else if (strlen(c->name) > MAX_NAME)
        problems_add(problems, place, "name",
                     "is the name of the run folder, so it must have at most %d bytes, got %zu", MAX_NAME,
                     strlen(c->name));
    else if (has_control_character(c->name))
        problems_add(problems, place, "name",
                     "is the name of the run folder, so it must have no line ends or other control characters");
}

static void check_resume(const struct config *c, const struct node *root, struct problems *problems) {
    const struct node *resume = find_key(root, "checkpoint", "resume");
    static const char *const none[] = {NULL}; /* any other value may be a file */
    SCOPED_TEXT hint = {0};
    if (c->checkpoint.resume && !*c->checkpoint.resume)
        problems_add(problems, config_place(resume), "checkpoint.resume", "must be auto, never or a file, got ''");
    if (resume && resume->kind == NODE_SCALAR)
        schema_suggest_value(&config_schema, "checkpoint.resume", resume->text, none, &hint);
    if (hint.length)
        problems_add(problems, config_place(resume), "checkpoint.resume",
                     "expected auto, never or a file, got '%.40s'; %s", resume->text, text_string(&hint));
}

/* Shards are parts of the batch of all ranks. Sets sampler.shards. */
static void check_elastic(struct config *c, const struct node *root, struct problems *problems) {
    struct place place = config_place(node_get(root, "determinism"));
    if (c->determinism.mode != DETERMINISM_ELASTIC || c->determinism.shards == SCHEMA_NO_INT) return;
    c->sampler.shards = (size_t)c->determinism.shards;
    if (c->sampler.per_rank)
        problems_add(problems, place, "determinism",
                     "elastic runs on any number of ranks, but sampler.per_rank has orders for a certain one; give one "
                     "order for all");
    if (c->sampler.global_batch_size == SCHEMA_NO_INT)
        problems_add(problems, place, "determinism", "elastic needs sampler.global_batch_size, the rows of all ranks");
    else if (c->determinism.shards > c->sampler.global_batch_size)
        problems_add(problems, place, "determinism.shards", "must be at most sampler.global_batch_size, %lld",
                     (long long)c->sampler.global_batch_size);
    if (c->train.precision == TRAIN_FLOAT16)
        problems_add(problems, place, "determinism", "elastic cannot be combined with train.precision: float16");
    if (c->dist.gradient_compression != COMPRESSION_NONE)
        problems_add(problems, place, "determinism",
                     "elastic cannot be combined with dist.gradient_compression: the rounded values would depend on "
                     "the number of processes");
}

/* Other precisions have instructions that not every processor has, or are sums in another order there. */
static void check_portable(const struct config *c, const struct node *root, struct problems *problems) {
    if (!c->determinism.is_portable) return;
    if (c->train.precision != TRAIN_FLOAT32 || c->train.matmul_precision == MATMUL_HIGH)
        problems_add(problems, place_of_key(root, "determinism", "portable"), "determinism.portable",
                     "is for train.precision: float32 with float32_matmul_precision: highest");
}

static void check_backend(const struct config *c, const struct node *root, struct problems *problems) {
    struct place place = place_of_key(root, "dist", "backend");
    const char *name = comm_backend_names[c->dist.backend];
    if (!comm_backend_needs_gpus(c->dist.backend)) return;
    if (c->train.device == DEVICE_CPU)
        problems_add(problems, place, "dist.backend",
                     "%s is for the memory of GPUs and needs train.device: cuda or auto; on the CPU use auto here",
                     name);
    else if (c->determinism.mode == DETERMINISM_ELASTIC)
        problems_add(problems, place, "dist.backend",
                     "determinism: elastic sums its shards in a fixed order, which %s does not support; use auto",
                     name);
}

static void check_extensions(const struct config *c, const struct node *root, struct problems *problems) {
    if (c->extensions.count && c->train.device == DEVICE_CUDA && !extensions_run_on_gpus())
        problems_add(problems, place_of_key(root, "train", "device"), "train.device",
                     "cuda: the types of the extensions are for the CPU; use cpu or auto");
}

/* A setting that does not go with a key. */
struct conflict {
    bool is_set;
    const char *setting, *reason;
};

/* Reports those of [conflicts] (count) that are set. [value]: of the key, with a blank after it; "": its presence. */
static void add_conflicts(const struct conflict *conflicts, size_t count, struct place place, const char *key,
                          const char *value, struct problems *problems) {
    for (size_t i = 0; i < count; i++)
        if (conflicts[i].is_set)
            problems_add(problems, place, key, "%scannot be combined with %s: %s", value, conflicts[i].setting,
                         conflicts[i].reason);
}

/* Rejects what needs all gradients at once or a step that can be undone. */
static void check_in_backward(const struct config *c, const struct node *root, struct problems *problems) {
    const struct train_config *t = &c->train;
    char backend[64];
    snprintf(backend, sizeof backend, "dist.backend: %s", comm_backend_names[c->dist.backend]);
    const struct conflict conflicts[] = {
        {t->clip_grad_norm > 0, "train.clip_grad_norm", "the norm is known only when all gradients are"},
        {t->accumulate > 1, "train.accumulate", "gradients of micro-batches are summed before an update"},
        {t->on_nonfinite.policy != NONFINITE_STOP, "train.on_nonfinite: skip or rollback",
         "a part of the step is already applied when a gradient is found not to be finite"},
        {t->precision == TRAIN_FLOAT16, "train.precision: float16", "a step whose gradients overflow is undone"},
        {t->check_compute.every > 0, "train.check_compute", "gradients are compared before an update"},
        {t->device == DEVICE_CUDA, "train.device: cuda", "it is for the CPU only"},
        {comm_backend_needs_gpus(c->dist.backend), backend, "it is for the CPU only"},
        {c->dist.zero_stage > 0, "dist.zero_stage",
         "the shards of the optimizer are updated after gradients are averaged"},
        {c->determinism.mode == DETERMINISM_ELASTIC, "determinism.mode: elastic",
         "the gradients of batch shards are summed before an update"},
    };
    if (!optimizer_is_in_backward(&c->optimizer)) return;
    add_conflicts(conflicts, sizeof conflicts / sizeof *conflicts, place_of_key(root, "optimizer", "in_backward"),
                  "optimizer.in_backward", "", problems);
}

/* Rejects what belongs to one update of each gradient, where a step evaluates many. */
static void check_evaluates(const struct config *c, const struct node *root, struct problems *problems) {
    const struct train_config *t = &c->train;
    const struct conflict conflicts[] = {
        {t->clip_grad_norm > 0, "train.clip_grad_norm", "a step uses many gradients, whose changes it compares"},
        {t->clip_grad_value > 0, "train.clip_grad_value", "a step uses many gradients, whose changes it compares"},
        {t->accumulate > 1, "train.accumulate", "a step evaluates one batch several times; increase the batch"},
        {t->on_nonfinite.policy != NONFINITE_STOP, "train.on_nonfinite: skip or rollback",
         "a step whose later evaluations are not finite cannot be undone"},
        {t->precision != TRAIN_FLOAT32, "train.precision", "changes of gradients are too small for 16 bits"},
        {t->check_compute.every > 0, "train.check_compute", "only the first evaluation of a step would be compared"},
        {t->device == DEVICE_CUDA, "train.device: cuda", "it is for the CPU only"},
        {c->dist.zero_stage > 0, "dist.zero_stage", "a step needs all gradients at once"},
        {optimizer_is_in_backward(&c->optimizer), "optimizer.in_backward", "a step needs all gradients at once"},
        {optimizer_maximizes(&c->optimizer), "optimizer.maximize", "its line search makes the loss smaller"},
        {c->determinism.mode == DETERMINISM_ELASTIC, "determinism.mode: elastic",
         "a step evaluates whole batches, not their shards"},
    };
    if (!optimizer_evaluates(&c->optimizer)) return;
    add_conflicts(conflicts, sizeof conflicts / sizeof *conflicts, place_of_key(root, "optimizer", "type"),
                  "optimizer.type", "lbfgs ", problems);
}

/* Rejects what divides parameters, where an update needs them as a whole. */
static void check_whole_updates(const struct config *c, const struct node *root, struct problems *problems) {
    char backend[64];
    snprintf(backend, sizeof backend, "dist.backend: %s", comm_backend_names[c->dist.backend]);
    const struct conflict conflicts[] = {
        {c->train.device == DEVICE_CUDA, "train.device: cuda", "it is for the CPU only"},
        {comm_backend_needs_gpus(c->dist.backend), backend, "it is for the CPU only"},
        {c->dist.zero_stage > 0, "dist.zero_stage", "an update needs whole parameters, and a shard has parts of them"},
        {optimizer_is_in_backward(&c->optimizer), "optimizer.in_backward",
         "an update needs whole parameters, whose gradients exist in parts"},
    };
    if (!optimizer_needs_whole(&c->optimizer)) return;
    SCOPED_STRING name = text_format("%s ", c->optimizer.name);
    add_conflicts(conflicts, sizeof conflicts / sizeof *conflicts, place_of_key(root, "optimizer", "type"),
                  "optimizer.type", name, problems);
}

/* From stage 2 on a rank never has all gradients at once. */
static void check_zero(const struct config *c, const struct node *root, struct problems *problems) {
    char backend[64];
    snprintf(backend, sizeof backend, "dist.backend: %s", comm_backend_names[c->dist.backend]);
    const struct conflict conflicts[] = {
        {c->train.device == DEVICE_CUDA && !comm_backend_uses_gpus(c->dist.backend), backend,
         "on GPUs it needs NCCL, to average and gather in their memory; use auto or nccl"},
        {c->train.check_compute.every > 0, "train.check_compute", "it compares all gradients of a step"},
        {c->determinism.mode == DETERMINISM_ELASTIC, "determinism.mode: elastic",
         "the gradients of batch shards are summed as a whole"},
    };
    if (c->dist.zero_stage < 2) return;
    add_conflicts(conflicts, sizeof conflicts / sizeof *conflicts, place_of_key(root, "dist", "zero_stage"),
                  "dist.zero_stage", c->dist.zero_stage == 2 ? "2 " : "3 ", problems);
}

/* The expressions of metrics, with their places. */
static void check_formulas(const struct metric_list *list, const struct node *metrics, struct arena *arena,
                           struct problems *problems) {
    struct expression *e = arena_alloc(arena, sizeof *e);
    for (size_t i = 0; i < list->names.count; i++) {
        const struct node *value = list->formulas[i] ? node_get(metrics, list->names.items[i]) : NULL;
        if (value && value->kind == NODE_SEQUENCE && value->count == 1) value = value->items[0]; /* as it is written */
        if (value && value->kind == NODE_SCALAR)
            expression_bind(value, arena_printf(arena, "train.metrics.%s", list->names.items[i]),
                            &(struct expression_options){.names = metric_variables}, e, problems);
    }
}

static void check_metrics(const struct config *c, const struct node *root, struct problems *problems) {
    SCOPED_ARENA arena = arena_create();
    struct metric_list list = metric_list_of(&c->train.metrics, &c->train.metric_groups, arena);
    status s = c->losses.count ? metric_check_terms(&list, &c->losses, &config_schema)
                               : metric_check(&list, config_loss(c), &config_schema);
    if (s) problems_add(problems, place_of_key(root, "train", "metrics"), "train.metrics", "%s", status_message(s));
    status_free(s);
    const struct node *metrics = node_get(node_get(root, "train"), "metrics");
    if (metrics && metrics->kind == NODE_MAPPING) check_formulas(&list, metrics, arena, problems);
}

/* "mse, l1 and huber": the losses whose targets can be scaled. */
static void add_regression_losses(struct text *out) {
    size_t count = 0, added = 0;
    for (size_t i = 0; loss_type_at(i); i++) count += loss_type_at(i)->is_regression;
    for (size_t i = 0; loss_type_at(i); i++) {
        if (!loss_type_at(i)->is_regression) continue;
        text_add(out, added == 0 ? "" : added + 1 == count ? " and " : ", ");
        text_add(out, loss_type_at(i)->variant.name);
        added++;
    }
}

static void check_target_scale(const struct config *c, const struct node *root, struct problems *problems) {
    const struct loss_type *loss = config_loss(c);
    if (c->dataset.target_scale == TARGET_SCALE_NONE || loss->is_regression || c->losses.count) return;
    const char *targets = loss->targets ? loss->targets : loss->wants_classes ? "classes" : "probabilities";
    bool are_values = strcmp(targets, "values") == 0; /* which this loss does not have scaled */
    SCOPED_TEXT losses = {0};
    add_regression_losses(&losses);
    problems_add(problems, place_of_key(root, "dataset", "target_scale"), "dataset.target_scale",
                 "is for the losses %s, but the loss is %s%s%s", text_string(&losses), loss->variant.name,
                 are_values ? "" : ", whose targets are ", are_values ? "" : targets);
}

static bool is_maximized(const char *metric) { return monitor_is_maximized(&(struct monitor){.metric = metric}); }

/* checkpoint.best, train.early_stop and reduce_on_plateau: their metric must be one of metrics.jsonl's epochs. */
static void check_monitors(const struct config *c, const struct node *root, struct problems *problems) {
    const struct early_stop stop = early_stop_of(&c->train.early_stop);
    struct monitor plateau = {0};
    plateau.metric = schedule_monitor(&c->schedule, &plateau.mode);
    const struct {
        const char *section, *key, *path;
        const struct monitor *monitor;
    } monitors[] = {{"checkpoint", "best", "checkpoint.best", &c->checkpoint.best},
                    {"train", "early_stop", "train.early_stop", &stop.monitor},
                    {"schedule", "monitor", "schedule.monitor", &plateau}};
    SCOPED_ARENA arena = arena_create();
    struct metric_list list = metric_list_of(&c->train.metrics, &c->train.metric_groups, arena);
    for (size_t i = 0; i < sizeof monitors / sizeof *monitors; i++) {
        const struct monitor *m = monitors[i].monitor;
        /* the best epoch may be the last one, the only one that is evaluated */
        bool needs_no_more =
            m == &c->checkpoint.best || (m == &plateau && m->metric && !monitor_is_of_validation(m->metric));
        status s = m->metric || m->mode == MONITOR_AUTO
                       ? monitor_check(m, &list.names, config_loss(c), &c->losses, dataset_has_validation(&c->dataset),
                                       needs_no_more ? 1 : c->train.evaluate_every)
                       : status_usage("mode needs metric; give the metric, too");
        if (s)
            problems_add(problems, place_of_key(root, monitors[i].section, monitors[i].key), monitors[i].path, "%s",
                         status_message(s));
        else if (m == &plateau && m->mode == MONITOR_MIN && m->metric && is_maximized(m->metric))
            problems_add(problems, config_place(node_get(root, "schedule")), "schedule.mode",
                         "with min a rising %.60s reduces the learning rate; use mode: max", m->metric);
        status_free(s);
    }
}

/* Whether [metric] of an epoch is the metric [name], of a run with `losses` that of one of them. */
static bool is_metric(const char *metric, const char *name, bool has_losses) {
    if (!metric || !monitor_is_of_validation(metric)) return false;
    size_t length = strlen(metric), end = strlen(name);
    if (length <= end || strcmp(metric + length - end, name) != 0) return false;
    return metric[length - end - 1] == '_' && (has_losses || length - end == strlen("val_"));
}

/* The expression of the metric [name]; "": it is none, or there is no such metric. */
static const char *formula_of(const struct metric_list *list, const char *name) {
    for (size_t i = 0; i < list->names.count; i++)
        if (list->formulas[i] && strcmp(list->names.items[i], name) == 0) return list->formulas[i];
    return "";
}

size_t config_diff(const struct config *before, const struct config *now, struct text *out) {
    size_t count = schema_diff(&config_schema, before, now, out);
    int mode;
    const char *const watched[] = {now->checkpoint.best.metric, early_stop_of(&now->train.early_stop).monitor.metric,
                                   schedule_monitor(&now->schedule, &mode)};
    const struct metric_list *list = &now->train.metric_list;
    for (size_t i = 0; i < list->names.count; i++) {
        const char *name = list->names.items[i], *old = formula_of(&before->train.metric_list, name);
        const char *new = formula_of(list, name);
        bool is_watched = false;
        for (size_t k = 0; k < sizeof watched / sizeof *watched; k++)
            is_watched = is_watched || is_metric(watched[k], name, now->losses.count > 0);
        if (!is_watched || strcmp(old, new) == 0) continue;
        text_printf(out, "  train.metrics.%s: %s -> %s\n", name, *old ? old : "(none)", *new ? new : "(none)");
        count++;
    }
    return count;
}

/* The momentum that a schedule changes must exist. */
static void check_schedule(const struct config *c, const struct node *root, struct problems *problems) {
    struct place place = config_place(node_get(root, "schedule"));
    if (schedule_changes_momentum(&c->schedule) && isnan(optimizer_settings(&c->optimizer).momentum))
        problems_add(problems, place, "schedule",
                     "%s changes the momentum, and this optimizer has none that can change; set optimizer.momentum, or "
                     "cycle_momentum: false",
                     c->schedule.name);
}

void config_check(void *config, const struct node *root, const char *path, struct problems *problems) {
    const struct config *c = config;
    (void)path;
    check_losses(config, root, problems);
    if (c->loss.index < 0 && c->losses.count == 0) return;
    check_elastic(config, root, problems);
    check_portable(c, root, problems);
    check_backend(c, root, problems);
    check_extensions(c, root, problems);
    check_name(c, root, problems);
    check_resume(c, root, problems);
    check_in_backward(c, root, problems);
    check_evaluates(c, root, problems);
    check_whole_updates(c, root, problems);
    check_zero(c, root, problems);
    check_schedule(c, root, problems);
    check_metrics(c, root, problems);
    check_target_scale(c, root, problems);
    check_monitors(c, root, problems);
}

/* ---- reading ---- */

struct config_file {
    struct document *document;
    struct config config;
    struct config_file *base; /* whose values it has besides the optimizer; NULL: its own */
    int users;                /* besides its owner */
};

struct config_source {
    char *path;
    struct document *document;
    char *dataset, *dataset_path; /* dataset.path as a config had it last, and what was found; NULL: none yet */
    struct config_file *last;     /* the last config that was bound as a whole; NULL: none */
    struct arena *words_arena;    /* of last_words (last_count), of the config */
    char **last_words;
    size_t last_count;
};

#define MAX_SHOWN 200      /* bytes of a line in a message */
#define REPLACED "\\ufffd" /* how schema_write_yaml writes a byte that is not UTF-8 */

/* "configs/wine_mlp.yaml" -> "wine_mlp" */
static const char *name_of_file(const char *path, struct arena *arena) {
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    SCOPED_TEXT valid = {0};
    utf8_repair(file, strlen(file), true, &valid);
    char *name = arena_copy(arena, text_string(&valid));
    char *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = 0;
    return name;
}

/* Before config_set_auto_device. */
static void set_device(struct config *c) {
    c->device = c->train.device == DEVICE_CUDA ? DEVICE_CUDA : DEVICE_CPU;
    c->device_reason = NULL;
}

/* The value of [mapping] or list under the first [length] bytes of [key]; NULL: there is none. */
static const struct node *child_of(const struct node *node, const char *key, size_t length) {
    for (size_t i = 0; node->kind == NODE_MAPPING && i < node->count; i++)
        if (strlen(node->keys[i]) == length && strncmp(node->keys[i], key, length) == 0) return node->items[i];
    size_t index = (size_t)strtoull(key, NULL, 10);
    bool is_item = node->kind == NODE_SEQUENCE && *key >= '0' && *key <= '9' && index < node->count;
    return is_item ? node->items[index] : NULL;
}

/* How a message begins that may be about a key. */
struct key_start {
    const char *text;
    size_t length;
    bool is_key;
};

/* schema_key_function */
static void compare_key(void *context, const char *path, const char *const *values) {
    struct key_start *start = context;
    (void)values;
    if (strncmp(path, start->text, start->length) == 0 && (path[start->length] == 0 || path[start->length] == '.'))
        start->is_key = true;
}

#define KEY_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

/* The node of the longest part of [path] that was given; *depth: its number of steps, *rest: what follows it, empty or
 * ".key". */
static const struct node *given_part(const struct node *root, const char *path, size_t *depth, const char **rest) {
    const struct node *node = root;
    *rest = path;
    for (*depth = 0; *depth == 0 || **rest == '.'; ++*depth) {
        const char *step = *depth ? *rest + 1 : path;
        size_t length = strspn(step, KEY_CHARS);
        const struct node *next = length ? child_of(node, step, length) : NULL;
        if (!next) break;
        node = next;
        *rest = step + length;
    }
    return node;
}

/* Not with the name of a file, which may begin as a key does: "dataset.h5: ", "train.steps.csv: ", or with its place,
 * "dataset:3:1: ". */
status config_add_place(const struct config *config, status failure) {
    const char *message = status_message(failure), *rest;
    struct key_start start = {message, strspn(message, KEY_CHARS "."), false};
    size_t depth;
    if (!failure || !config->root) return failure;
    const struct node *node = given_part(config->root, message, &depth, &rest);
    if (depth == 0 || *rest == '/' || (depth == 1 && *rest != ':' && *rest != '.')) return failure;
    if (message[start.length] == ':' && message[start.length + 1] != ' ') return failure;
    if (*rest == '.' && (depth < 2 || node->kind != NODE_MAPPING)) {
        schema_each_key(&config_schema, compare_key, &start);
        if (!start.is_key) return failure;
    }
    return status_prefix(failure, "%s", place_text(node->place).s);
}

/* Fills *out from [document], which it owns also after a failure. */
static status bind(struct document *document, const char *path, bool is_users, struct problems *problems,
                   struct config_file **out) {
    struct config_file *file = calloc(1, sizeof *file);
    struct extension_file *extensions = NULL;
    size_t before = problems->count, count = 0;
    if (!file) {
        document_destroy(document);
        return status_memory("the config");
    }
    file->document = document;
    if (document)
        extensions_load(document_root(document), path, is_users, document_arena(document), problems, &extensions,
                        &count);
    if (document && problems->count == before)
        schema_bind(&config_schema, document_root(document), "", &config_schema, &file->config,
                    document_arena(document), problems);
    if (problems->count == 0 && count) memcpy(file->config.extensions.items, extensions, count * sizeof *extensions);
    if (document) file->config.root = document_root(document);
    set_device(&file->config);
    status s = problems_status(problems, STATUS_USAGE);
    if (s) {
        config_free(file);
        return s;
    }
    set_targets(&file->config, document_arena(document));
    struct train_config *train = &file->config.train;
    train->metric_list = metric_list_of(&train->metrics, &train->metric_groups, document_arena(document));
    if (!file->config.name) file->config.name = name_of_file(path, document_arena(document));
    *out = file;
    return OK;
}

/* Replaces the names of files by paths (find_file). */
static status find_files(struct config *c, const char *path, struct arena *arena) {
    bool is_resume_file = strcmp(c->checkpoint.resume, "auto") != 0 && strcmp(c->checkpoint.resume, "never") != 0;
    TRY(dataset_find_files(&c->dataset, path, arena));
    TRY(find_file(&c->sampler.path, path, arena));
    TRY(find_file_or_folder(&c->model.init_from.file, path, arena));
    return is_resume_file ? find_file(&c->checkpoint.resume, path, arena) : OK;
}

/* Keys that exclude each other: a word for one replaces another one of the file, and that of a file one of its base.
 * Folds replace the validation rows, which are those of test where it stands alone; beside validation or folds its rows
 * are the final test's, and stay. */
#define SPLIT "dataset.split."
static const struct document_alternatives alternatives[] = {
    {{"train.epochs", "train.steps"}, {0}},
    {{"sampler.batch_size", "sampler.global_batch_size"}, {0}},
    {{"dataset.query", "dataset.table"}, {0}},
    {{SPLIT "test", SPLIT "train"}, {0}},
    {{SPLIT "validation", SPLIT "train"}, {0}},
    {{SPLIT "folds", SPLIT "train"}, {0}},
    {{SPLIT "folds", SPLIT "test"}, {"validation", "folds"}},
    {{SPLIT "folds", SPLIT "validation"}, {0}},
    {{SPLIT "fold", SPLIT "train"}, {0}},
    {{SPLIT "fold", SPLIT "validation"}, {0}},
    {{"loss", "losses"}, {0}},
};

/* The value of a key that is not given; NULL: a word cannot say so. */
static const char *none_of(const char *key) {
    bool is_number = strncmp(key, SPLIT, strlen(SPLIT)) == 0 && strcmp(key, SPLIT "fold") != 0;
    return strncmp(key, "loss", 4) == 0 ? NULL : is_number ? "0" : "null";
}

/* Whether a word sets [key] to anything but [none], NULL: to anything. */
static bool is_set(char *const *words, size_t count, const char *key, const char *none) {
    size_t length = strlen(key);
    for (size_t i = 0; i < count; i++)
        if (strncmp(words[i], key, length) == 0 && words[i][length] == '=' &&
            (!none || strcmp(words[i] + length + 1, none) != 0))
            return true;
    return false;
}

/* The mapping of the document that has [key], or the short form of one, which may be this key; NULL: none. */
static const struct node *mapping_with(const struct document *document, const char *key) {
    const struct node *node = document_root(document), *mapping = node;
    for (size_t length; node && *key; key += length + (key[length] == '.')) {
        char step[64];
        length = strcspn(key, ".");
        snprintf(step, sizeof step, "%.*s", (int)length, key);
        if (node->kind != NODE_MAPPING) return node;
        mapping = node;
        node = node_get(node, step);
    }
    return node ? mapping : NULL;
}

static void replace_alternatives(struct document *document, char *const *words, size_t count,
                                 struct problems *problems) {
    for (size_t i = 0; i < 2 * (sizeof alternatives / sizeof *alternatives); i++) {
        const char *key = alternatives[i / 2].keys[i % 2], *other = alternatives[i / 2].keys[1 - i % 2];
        const struct node *mapping = mapping_with(document, key);
        if (!none_of(key) || !is_set(words, count, other, none_of(other)) || is_set(words, count, key, NULL)) continue;
        if (!mapping || !document_replaces(&alternatives[i / 2], i % 2, mapping)) continue;
        SCOPED_STRING word = text_format("%s=%s", key, none_of(key));
        schema_override(&config_schema, document, word, problems);
    }
}

/* Applies the words to [document], which it owns; NULL: it could not be read. */
static status complete(struct document *document, const char *path, char *const *overrides, size_t count,
                       struct problems *problems, struct config_file **out) {
    if (document) replace_alternatives(document, overrides, count, problems);
    for (size_t i = 0; document && i < count; i++) schema_override(&config_schema, document, overrides[i], problems);
    size_t before = problems->count;
    const struct node *base = document ? node_get(document_root(document), "base") : NULL;
    if (base) problems_add(problems, base->place, "base", "is a key of files, not an argument; write it in a config");
    if (document) document_substitute(document, problems);
    if (problems->count > before) {
        document_destroy(document);
        return problems_status(problems, STATUS_USAGE);
    }
    return bind(document, path, true, problems, out);
}

static status free_after(status s, struct config_file **file) {
    if (!s) return OK;
    config_free(*file);
    *file = NULL;
    return s;
}

/* [failure] to read the config [path], which may be the data: adds what then helps. */
static status explain_data(status failure, const char *path) {
    if (!failure || !dataset_knows_extension(path)) return failure;
    SCOPED_TEXT word = {0};
    text_add_shell(&word, path);
    status s = status_new(status_code(failure),
                          "%s; if it is a data file, ddptrain init writes a config for it: ddptrain init %s > CONFIG",
                          status_message(failure), text_string(&word));
    status_free(failure);
    return s;
}

static status read_document(const char *path, struct problems *problems, struct document **out) {
    return document_read_merged(path, alternatives, sizeof alternatives / sizeof *alternatives, problems, out);
}

static bool is_sweep(const struct document *document) {
    const struct node *root = document_root(document);
    bool has_trials = node_get(root, "parameters") || node_get(root, "method") || node_get(root, "trials");
    return has_trials && node_get(root, "config") && !node_get(root, "model") && !node_get(root, "dataset");
}

bool config_is_sweep(const char *path) {
    SCOPED_PROBLEMS problems = {0};
    SCOPED_DOCUMENT document = NULL;
    status s = document_read(path, &problems, &document);
    bool is = !s && problems.count == 0 && document && is_sweep(document);
    status_free(s); /* config_load reports it */
    return is;
}

/* A word for a whole section removes what an earlier one has set in it. */
static void reject_lost_words(char *const *words, size_t count, struct problems *problems) {
    for (size_t i = 0; i < count; i++) {
        size_t length = strcspn(words[i], "=");
        for (size_t k = 0; k < i; k++) {
            if (strncmp(words[k], words[i], length) != 0 || words[k][length] != '.') continue;
            SCOPED_STRING argument = text_format("argument '%s'", short_text(words[i]).s);
            problems_add(problems, (struct place){.file = argument}, NULL,
                         "it replaces what '%s' before it has set; give it first", short_text(words[k]).s);
        }
    }
}

status config_load(const char *path, char *const *overrides, size_t count, struct config_file **out) {
    struct problems problems = {0};
    struct document *document = NULL;
    *out = NULL;
    status s = read_document(path, &problems, &document);
    bool is_read = !s && problems.count == 0;
    if (is_read && document && is_sweep(document)) {
        SCOPED_TEXT word = {0};
        text_add_shell(&word, path);
        s = status_usage(
            "%s: this is a sweep of a config; ddptrain sweep %s trains it, and ddptrain check %s checks it", path,
            text_string(&word), text_string(&word));
        document_destroy(document);
        problems_free(&problems);
        return s;
    }
    if (!s) reject_lost_words(overrides, count, &problems);
    if (!s) s = complete(document, path, overrides, count, &problems, out);
    if (!s) s = find_files(&(*out)->config, path, document_arena((*out)->document));
    problems_free(&problems);
    return free_after(is_read ? s : explain_data(s, path), out);
}

status config_source_open(const char *path, struct config_source **out) {
    struct problems problems = {0};
    struct config_source *source = calloc(1, sizeof *source);
    *out = source;
    if (!source) return status_memory("the config");
    source->path = strdup(path);
    status s = source->path ? read_document(path, &problems, &source->document) : status_memory("the config");
    if (!s) s = problems_status(&problems, STATUS_USAGE);
    problems_free(&problems);
    if (!s) return OK;
    config_source_close(source);
    *out = NULL;
    return s;
}

void config_source_close(struct config_source *source) {
    if (!source) return;
    config_free(source->last);
    arena_destroy(source->words_arena);
    document_destroy(source->document);
    free(source->path);
    free(source->dataset);
    free(source->dataset_path);
    free(source);
}

static status find_files_once(struct config_source *source, struct config *c, struct arena *arena) {
    const char *name = c->dataset.path;
    if (name && source->dataset && strcmp(name, source->dataset) == 0) c->dataset.path = source->dataset_path;
    TRY(find_files(c, source->path, arena));
    if (!name || c->dataset.path == source->dataset_path) return OK;
    free(source->dataset);
    free(source->dataset_path);
    source->dataset = strdup(name);
    source->dataset_path = strdup(c->dataset.path);
    return source->dataset && source->dataset_path ? OK : status_memory("the config");
}

static status load_whole(struct config_source *source, char *const *overrides, size_t count, struct config_file **out) {
    SCOPED_PROBLEMS problems = {0};
    *out = NULL;
    status s = complete(document_copy(source->document), source->path, overrides, count, &problems, out);
    if (!s) s = find_files_once(source, &(*out)->config, document_arena((*out)->document));
    return free_after(s, out);
}

/* ---- configs of a source that differ in the optimizer and the seeds alone, as the trials of a sweep often do: the
 * rest is bound and checked once ---- */

static bool begins_with(const char *word, const char *key) { return strncmp(word, key, strlen(key)) == 0; }

static bool may_differ(const char *word) {
    return begins_with(word, "optimizer.") || begins_with(word, "optimizer=") || begins_with(word, "seed=") ||
           begins_with(word, "sampler.seed=");
}

static struct config_file *base_of(struct config_file *file) { return file->base ? file->base : file; }

bool config_has_same_base(const struct config_file *a, const struct config_file *b) {
    return (a->base ? a->base : a) == (b->base ? b->base : b) && a->config.device == b->config.device;
}

/* Whether the words are those of source->last, but for what may differ. */
static bool is_as_last(const struct config_source *source, char *const *words, size_t count) {
    size_t i = 0, k = 0;
    if (!source->last) return false;
    for (;; i++, k++) {
        while (i < count && may_differ(words[i])) i++;
        while (k < source->last_count && may_differ(source->last_words[k])) k++;
        if (i == count || k == source->last_count) return i == count && k == source->last_count;
        if (strcmp(words[i], source->last_words[k]) != 0) return false;
    }
}

/* From now on the next ones may differ from [file]. Variables may be those of any value, and types of
 * extensions are registered by each config. */
static void keep_last(struct config_source *source, char *const *words, size_t count, struct config_file *file) {
    config_free(source->last);
    source->last = NULL;
    arena_destroy(source->words_arena);
    source->words_arena = NULL;
    if (node_get(document_root(source->document), "variables") || file->config.extensions.count) return;
    source->words_arena = arena_create();
    source->last_words = arena_alloc(source->words_arena, (count + 1) * sizeof *source->last_words);
    for (size_t i = 0; i < count; i++) source->last_words[i] = arena_copy(source->words_arena, words[i]);
    source->last_count = count;
    source->last = file;
    config_retain(file);
}

/* source->last with the optimizer and the seeds of the words; *out NULL: they are wrong, which load_whole explains. */
static void load_like_last(struct config_source *source, char *const *words, size_t count, struct config_file **out) {
    SCOPED_PROBLEMS problems = {0};
    struct config_file *file = status_need(calloc(1, sizeof *file));
    file->base = base_of(source->last);
    config_retain(file->base);
    file->document = document_copy(source->document);
    file->config = file->base->config;
    set_device(&file->config);
    for (size_t i = 0; i < count; i++)
        if (may_differ(words[i]) || begins_with(words[i], "sampler"))
            schema_override(&config_schema, file->document, words[i], &problems);
    const struct node *root = document_root(file->document);
    struct config other = file->config; /* what its sampler becomes is not complete */
    struct arena *arena = document_arena(file->document);
    if (!problems.count) schema_bind_key(&config_schema, root, "optimizer", &file->config, arena, &problems);
    if (!problems.count) schema_bind_key(&config_schema, root, "seed", &file->config, arena, &problems);
    if (!problems.count) schema_bind_key(&config_schema, root, "sampler", &other, arena, &problems);
    file->config.sampler.seed = other.sampler.seed;
    if (!problems.count) config_check(&file->config, root, "", &problems);
    *out = problems.count ? NULL : file;
    if (problems.count) config_free(file);
}

status config_source_load(struct config_source *source, char *const *overrides, size_t count,
                          struct config_file **out) {
    *out = NULL;
    if (is_as_last(source, overrides, count)) load_like_last(source, overrides, count, out);
    if (*out) return OK;
    TRY(load_whole(source, overrides, count, out));
    keep_last(source, overrides, count, *out);
    return OK;
}

status config_parse(const char *name, const char *text, struct config_file **out) {
    SCOPED_PROBLEMS problems = {0};
    struct document *document = NULL;
    *out = NULL;
    status s = document_parse(name, text, strlen(text), &problems, &document);
    if (!s) s = bind(document, name, false, &problems, out);
    return s;
}

status config_of_checkpoint(struct checkpoint *checkpoint, struct config_file **out) {
    SCOPED_STRING text = NULL;
    *out = NULL;
    TRY(checkpoint_read_text(checkpoint, "config", &text));
    if (text) status_free(config_parse("the checkpoint's config", text, out));
    return OK;
}

/* The first byte that was replaced in a text of schema_write_yaml, where a backslash of a value is two; NULL: none. */
static const char *find_replaced(const char *written) {
    for (const char *at = written; (at = strchr(at, '\\')); at += at[1] ? 2 : 1)
        if (strncmp(at, REPLACED, strlen(REPLACED)) == 0) return at;
    return NULL;
}

/* The end of the number at [at], which is a word of its own there; NULL: there is none. */
static const char *end_of_number(const char *at) {
    char *end;
    if (!strchr("+-.0123456789", *at)) return NULL;
    (void)strtod(at, &end);
    return end != at && strchr(" ,]}\n", *end) ? end : NULL;
}

/* Whether two texts of schema_write_yaml differ in numbers alone, so that one can be read if the other can. */
static bool differ_in_numbers(const char *a, const char *b) {
    for (;;) {
        size_t same = 0;
        while (a[same] && a[same] == b[same]) same++;
        if (!a[same] && !b[same]) return true;
        while (same > 0 && !strchr(" [", a[same - 1])) same--; /* to the start of the word */
        a = end_of_number(a + same);
        b = end_of_number(b + same);
        if (!a || !b) return false;
    }
}

#define ALWAYS_SMALL (DOCUMENT_MAX_BYTES / 2) /* with other numbers it is small enough, too */

/* Of many runs of a process, as of a sweep, only the first one costs the time of reading the text. */
static status read_again(const char *written) {
    static char *last; /* that could be read; NULL: none */
    struct config_file *file;
    if (last && strlen(written) < ALWAYS_SMALL && differ_in_numbers(last, written)) return OK;
    TRY(config_parse("config.yaml", written, &file));
    config_free(file);
    free(last);
    last = strdup(written);
    return OK;
}

status config_check_written(const char *written) {
    const char *at = find_replaced(written);
    if (at) {
        while (at > written && at[-1] != '\n') at--;
        at += strspn(at, " -");
        size_t length = strcspn(at, "\n");
        return status_usage(
            "a name is not valid UTF-8 (\\ufffd), so the config in the run folder, with %.*s, could not "
            "be read again; rename the file or folder, or start ddptrain in the folder of the config",
            (int)(length < MAX_SHOWN ? length : MAX_SHOWN), at);
    }
    return status_prefix(read_again(written),
                         "the config of the run, which has every default, could not be read again; shorten the config");
}

void config_retain(struct config_file *file) { file->users++; }

void config_free(struct config_file *file) {
    if (!file || file->users-- > 0) return;
    document_destroy(file->document);
    config_free(file->base);
    free(file);
}

/* A value in one line. */
static void add_value(const struct node *node, struct text *out) {
    if (node->kind == NODE_SCALAR) {
        text_add_value(out, node->text, MAX_SHOWN);
        return;
    }
    bool is_list = node->kind == NODE_SEQUENCE;
    text_add(out, is_list ? "[" : "{");
    for (size_t i = 0; i < node->count; i++) {
        text_add(out, i ? ", " : "");
        if (!is_list) text_printf(out, "%s: ", node->keys[i]);
        add_value(node->items[i], out);
    }
    text_add(out, is_list ? "]" : "}");
}

#define SOURCE_COLUMN 60 /* where the places are */

/* The lines of the keys below [node], whose dotted path is [path]. */
static void add_sources(const struct node *node, const char *path, struct place place, struct text *out) {
    bool is_one = node->kind != NODE_MAPPING || node->count == 0;
    for (size_t i = 0; !is_one && i < node->count; i++) {
        SCOPED_STRING below = text_format("%s%s%s", path, *path ? "." : "", node->keys[i]);
        add_sources(node->items[i], below, node->key_places[i], out);
    }
    if (!is_one || !*path) return;
    size_t start = out->length;
    if (node->place.line == 0) place = node->place; /* an argument */
    text_printf(out, "%s: ", path);
    add_value(node, out);
    text_pad(out, start, SOURCE_COLUMN);
    text_printf(out, place.line ? "  # %s:%d\n" : "  # %s\n", place.file ? place.file : "", place.line);
}

void config_write_sources(const struct config_file *file, struct text *out) {
    const struct node *root = file->document ? document_root(file->document) : NULL;
    if (root) add_sources(root, "", root->place, out);
}

const struct config *config_of(const struct config_file *file) { return &file->config; }

status config_check_model(const struct config *config, const struct model *model) {
    if (model->params.count == 0)
        return status_usage("model.layers: no layer has parameters, so there is nothing to train");
    if (config->sampler.type != SAMPLER_BATCHIFY && config->sampler.shuffle && model_carries_state(model))
        return status_new(
            STATUS_USAGE,
            "carry_state continues the rows of the batch before, which sampler.shuffle mixes; write sampler.type: "
            "batchify for windows of a text or a series, or sampler.shuffle: false for rows in this order");
    if (config->determinism.mode == DETERMINISM_ELASTIC)
        return model_check_independent(model, "determinism.mode: elastic");
    return config->sampler.uneven ? model_check_independent(model, "sampler.uneven") : OK;
}

status config_check_loss(const struct config *config, const struct model *model, const struct dataset_info *info) {
    struct loss_targets targets = {.size = info->target_size,
                                   .classes = info->classes,
                                   .first_class = info->first_class,
                                   .absent_class = info->absent_class};
    targets.shape.dims = info->target_dims;
    memcpy(targets.shape.size, info->target_shape, sizeof info->target_shape);
    if (config->losses.count) return OK; /* config_plan_objective */
    status s = loss_check(config_loss(config), config->loss.config, model, &targets);
    return status_prefix(s, "%s: loss", place_text(config->loss.place).s);
}

bool config_device_is_auto(const struct config *config) {
    return config->train.device == DEVICE_AUTO && !optimizer_is_in_backward(&config->optimizer) &&
           !optimizer_evaluates(&config->optimizer) && !optimizer_needs_whole(&config->optimizer) &&
           extensions_run_on_gpus();
}

static status set_auto_device(struct config_file *file, const char *why_cpu) {
    struct config *c = &file->config;
    if (!why_cpu) {
        c->device = DEVICE_CUDA;
        if (c->dist.zero_stage < 2 || comm_backend_uses_gpus(c->dist.backend)) return OK;
        return status_new(
            STATUS_USAGE,
            "dist.zero_stage: %lld cannot be combined with dist.backend: %s and train.device: auto, which "
            "is the GPU here: on GPUs it needs NCCL; use dist.backend: auto, or train.device: cpu",
            (long long)c->dist.zero_stage, comm_backend_names[c->dist.backend]);
    }
    c->device_reason = arena_copy(document_arena(file->document), why_cpu);
    if (c->train.precision == TRAIN_FLOAT16) return status_usage("train.precision: float16 needs a GPU: %s", why_cpu);
    if (comm_backend_needs_gpus(c->dist.backend))
        return status_usage("dist.backend: %s is for the memory of GPUs: %s", comm_backend_names[c->dist.backend],
                            why_cpu);
    return OK;
}

status config_set_auto_device(struct config_file *file, const char *why_cpu) {
    return config_add_place(&file->config, set_auto_device(file, why_cpu));
}

enum precision config_precision(const struct config *config) {
    const struct train_config *c = &config->train;
    if (c->precision == TRAIN_BFLOAT16) return PRECISION_BFLOAT16;
    if (c->precision == TRAIN_FLOAT16) return PRECISION_FLOAT16;
    if (config->determinism.is_portable && config->device == DEVICE_CPU) return PRECISION_FLOAT32_PORTABLE;
    return c->matmul_precision == MATMUL_HIGH ? PRECISION_TF32 : PRECISION_FLOAT32;
}

/* Several processes average each gradient in shared memory, in calls that all of them make: each must know that all are
 * on this host, and have rows. */
bool config_updates_in_backward(const struct config *config, const struct dist_env *env, const char **why_not) {
    const struct dist_config *d = &config->dist;
    bool is_wanted = optimizer_is_in_backward(&config->optimizer);
    bool is_known = env->launcher == LAUNCHER_NONE || env->launcher == LAUNCHER_OWN;
    *why_not = NULL;
    if (!is_wanted || env->world_size == 1) return is_wanted;
    if (!is_known || env->local_world_size != env->world_size)
        *why_not = "the processes are not all started on one host by --nproc";
    else if (d->backend != BACKEND_AUTO && d->backend != BACKEND_SHM)
        *why_not = "dist.backend is not shared memory";
    else if (d->gradient_compression != COMPRESSION_NONE)
        *why_not = "dist.gradient_compression rounds gradients that are kept";
    else if (config->sampler.uneven)
        *why_not = "with sampler.uneven a process may have no rows";
    return !*why_not;
}

bool config_ignored(const struct config *config, size_t index, struct text *out) {
    const struct train_config *c = &config->train;
    bool is_on_gpu = config->device == DEVICE_CUDA;
    const struct {
        bool is_ignored;
        const char *line;
    } lines[] = {
        {c->matmul_precision == MATMUL_HIGH && !device_has_tf32(config_device_name(config)),
         "train.float32_matmul_precision: high is for GPUs and for CPUs with AMX, which this one does not have"},
        {c->matmul_precision == MATMUL_HIGH && c->precision != TRAIN_FLOAT32 &&
             device_has_tf32(config_device_name(config)),
         "train.float32_matmul_precision: high is for precision: float32"},
        {c->precision != TRAIN_FLOAT16 && c->has_grad_scaler,
         "train.grad_scaler is for precision: float16; the loss is not scaled"},
        {c->has_cuda_graph && !is_on_gpu, "train.cuda_graph is for GPUs"},
        {config->determinism.is_portable && is_on_gpu, "determinism.portable is for CPUs"},
        {!early_stop_of(&c->early_stop).monitor.metric &&
             (c->early_stop.min_delta > 0 || c->early_stop.monitor.mode != MONITOR_AUTO),
         "train.early_stop needs metric or patience; no run ends early"},
        {c->metrics.count > 0 && !dataset_has_validation(&config->dataset),
         "train.metrics are measured on validation rows, and there are none (dataset.split or dataset.validation)"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (lines[i].is_ignored && index-- == 0) {
            text_add(out, lines[i].line);
            return true;
        }
    return dataset_ignored_key(&config->dataset, index, out);
}

status config_create_device(const struct config *config, const struct dist_env *env, bool is_training,
                            struct device **out) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    struct gpus_process process = dist_env_gpus(env ? env : &alone);
    TRY(device_create_local(config_device_name(config), &process, out));
    enum precision precision = config_precision(config);
    bool splits = is_training && precision == PRECISION_FLOAT32 && config->device == DEVICE_CPU;
    return device_set_precision(*out, splits ? PRECISION_FLOAT32_SPLIT : precision);
}

const struct loss_type *config_loss(const struct config *config) {
    return config->losses.count ? &loss_objective : loss_type_at((size_t)config->loss.index);
}

struct shape dataset_shape(const struct dataset_info *info) {
    struct shape shape = {.dims = info->input_dims,
                          .is_tokens = info->input_kind == INPUT_TOKENS,
                          .vocabulary = info->vocabulary,
                          .tokens = info->input_tokens};
    memcpy(shape.size, info->input_shape, (size_t)info->input_dims * sizeof *shape.size);
    return shape;
}

static struct class_targets targets_of(size_t loss, size_t count) {
    return (struct class_targets){loss_type_at(loss)->wants_classes, count};
}

/* Of the target [name]; NULL: of the only one. */
static size_t target_size(const struct dataset_info *info, const char *name) {
    for (size_t i = 0; i < info->target_count; i++)
        if (!name || strcmp(info->targets[i].name, name) == 0) return info->targets[i].size;
    return 0;
}

size_t config_batch_rows(const struct config *config) {
    return config->sampler.global_batch_size == SCHEMA_NO_INT ? 0 : (size_t)config->sampler.global_batch_size;
}

status config_plan_model(const struct config *config, const struct dataset_info *info, size_t cached_positions,
                         bool by_position, struct model **out) {
    SCOPED_ARENA arena = arena_create();
    struct model_input *inputs = arena_alloc(arena, (info->input_count + 1) * sizeof *inputs);
    const char **outputs = arena_alloc(arena, (config->losses.count + 1) * sizeof *outputs);
    struct class_targets *targets = arena_alloc(arena, (config->losses.count + 1) * sizeof *targets);
    struct place *places = arena_alloc(arena, (config->losses.count + 1) * sizeof *places);
    struct model_names names = {.inputs = inputs,
                                .input_count = info->input_count,
                                .outputs = outputs,
                                .output_places = places,
                                .output_count = config->losses.count,
                                .targets = by_position ? targets : NULL,
                                .cached_positions = cached_positions,
                                .accepts_unused = config->dist.find_unused_parameters,
                                .batch_rows = config_batch_rows(config)};
    struct shape row = dataset_shape(info);
    for (size_t i = 0; i < info->input_count; i++) {
        const struct dataset_input *input = &info->inputs[i];
        inputs[i] = (struct model_input){.name = input->name, .first = input->first, .shape.dims = input->dims};
        inputs[i].shape.tokens = input->tokens;
        memcpy(inputs[i].shape.size, input->shape, (size_t)input->dims * sizeof *input->shape);
    }
    for (size_t i = 0; i < config->losses.count; i++) {
        const struct objective_keys *keys = config->losses.items[i].common;
        outputs[i] = keys->output;
        places[i] = config->losses.items[i].place;
        targets[i] = targets_of((size_t)config->losses.items[i].index, target_size(info, keys->target));
    }
    if (config->losses.count == 0) targets[0] = targets_of((size_t)config->loss.index, info->target_size);
    return model_plan_named(&config->model, &row, &names, out);
}

status config_plan_objective(const struct config *config, const struct model *model, const struct dataset_info *info,
                             struct objective *objective) {
    struct objective_target targets[OBJECTIVE_MAX_TERMS * 2];
    size_t count = 0;
    *objective = (struct objective){0};
    if (config->losses.count == 0) return OK;
    for (; count < info->target_count && count < OBJECTIVE_MAX_TERMS * 2; count++) {
        const struct dataset_target *t = &info->targets[count];
        targets[count] = (struct objective_target){t->name, t->first, t->size, t->classes, t->first_class, {0}};
        targets[count].shape.dims = t->dims;
        memcpy(targets[count].shape.size, t->shape, sizeof t->shape);
    }
    return objective_plan(&config->losses, model, targets, count, info->target_size, objective);
}
