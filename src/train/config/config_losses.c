/* `losses`: what its entries say of the dataset, and whether they fit it. */
#include <string.h>

#include "train/config/config_internal.h"

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
    return has_group(&c->dataset.input_groups, DATASET_INPUT_NAME, name);
}

static void add(struct string_list *list, const char *name) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], name) == 0) return;
    list->items[list->count++] = name;
}

static enum target_range range_of(const struct loss_type *loss) {
    return loss->is_binary ? TARGETS_ARE_PROBABILITIES : loss->is_sign ? TARGETS_ARE_SIGNS : TARGETS_ARE_ANY;
}

static struct ignored_class ignored_of(const struct loss_type *loss, const void *config) {
    if (!loss->ignored) return (struct ignored_class){0};
    return (struct ignored_class){true, loss->ignored(config), loss->ignored_key};
}

/* Of several losses of a target: the class that all of them ignore. */
static void add_class_target(struct dataset_config *d, struct ignored_class *all, const char *name,
                             struct ignored_class ignored) {
    size_t count = d->class_targets.count, i = 0;
    add(&d->class_targets, name);
    while (strcmp(d->class_targets.items[i], name) != 0) i++;
    if (i == count)
        all[i] = ignored;
    else if (all[i].value != ignored.value)
        all[i].is_set = false;
}

void config_set_targets(struct config *c, struct arena *arena) {
    struct dataset_config *d = &c->dataset;
    struct string_list *lists[] = {&d->class_targets, &d->probability_targets, &d->sign_targets, &d->input_targets};
    bool reads_targets = false;
    d->target_range = range_of(config_loss(c));
    if (c->losses.count == 0 && config_loss(c)) {
        d->ignored = ignored_of(config_loss(c), c->loss.config);
        d->balances_classes = loss_is_balanced(config_loss(c), c->loss.config);
    }
    if (c->losses.count == 0) return;
    struct ignored_class *ignored = arena_alloc(arena, c->losses.count * sizeof *ignored);
    d->class_targets_ignored = ignored;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        lists[i]->items = arena_alloc(arena, c->losses.count * sizeof *lists[i]->items);
    for (size_t i = 0; i < c->losses.count; i++) {
        const struct loss_type *loss = loss_type_at((size_t)c->losses.items[i].index);
        const char *name = target_of(c, &c->losses.items[i]);
        if (!name || loss->has_no_target) continue;
        if (loss->wants_classes) add_class_target(d, ignored, name, ignored_of(loss, c->losses.items[i].config));
        if (range_of(loss) == TARGETS_ARE_PROBABILITIES) add(&d->probability_targets, name);
        if (range_of(loss) == TARGETS_ARE_SIGNS) add(&d->sign_targets, name);
        if (is_target(c, name))
            reads_targets = true;
        else
            add(&d->input_targets, name);
    }
    d->has_losses = true;
    d->without_targets = !reads_targets;
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
        if (loss->wants_classes)
            problems_add(problems, entry->place, "losses", "the target '%s' is an input, and %s needs classes", name,
                         entry->name);
        return;
    }
    struct text known = {0};
    add_names(&c->dataset.target_groups, DATASET_TARGET_NAME, &known);
    add_names(&c->dataset.input_groups, DATASET_INPUT_NAME, &known);
    if (name)
        problems_add(problems, entry->place, "losses",
                     "there is no target '%s'; dataset.targets and dataset.inputs have: %s", name, text_string(&known));
    else
        problems_add(problems, entry->place, "losses", "'%s' needs target: with one of: %s", entry->name,
                     text_string(&known));
    text_free(&known);
}

/* Losses of rows that depend on the other rows of the batch. */
static void check_comparison(const struct config *c, const struct variant *entry, struct problems *problems) {
    if (!loss_type_at((size_t)entry->index)->compares_rows) return;
    if (c->dataset.weights)
        problems_add(problems, entry->place, "losses",
                     "'%s' compares the rows of a batch with each other, so they cannot have weights; remove "
                     "dataset.weights",
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

static void check_name(const struct config *c, size_t index, struct problems *problems) {
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

void config_check_losses(const struct config *c, const struct node *root, struct problems *problems) {
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
        check_name(c, i, problems);
    }
    check_targets_used(c, root, problems);
}
