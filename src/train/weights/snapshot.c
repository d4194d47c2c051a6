/* torch.optim knows the parameters by numbers, in the order in which the script gave them to the optimizer. Which
 * tensor of the state_dict has which number is found here; each buffer of the state then becomes tensors with the names
 * of the state_dict, which are loaded as the weights are. */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "checkpoint/inspect.h"
#include "checkpoint/torch_file.h"
#include "train/weights/weights.h"

#define INSTEAD "; start from its weights with model.init_from"

bool snapshot_is(const char *path) { return foreign_is_torch(path); }

status snapshot_epochs(const char *path, int64_t *epochs) {
    static const char *const keys[] = {"EPOCHS_RUN", "epochs_run", "finished_epoch"};
    struct safetensors file;
    status s = torch_file_read(path, &file);
    const json_t *numbers = json_object_get(file.header, "__metadata__");
    const char *key = NULL, *text = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !text; i++)
        text = json_string_value(json_object_get(numbers, key = keys[i]));
    char *end = "";
    errno = 0;
    *epochs = text ? strtoll(text, &end, 10) : -1;
    if (!s && !text)
        s = status_data("%s: it is a file of torch.save without a number EPOCHS_RUN or finished_epoch, the epochs that "
                        "were run" INSTEAD,
                        path);
    else if (!s && (*end || errno || *epochs < 0))
        s = status_data("%s: %s is %s, but must be the number of epochs that were run" INSTEAD, path, key, text);
    safetensors_close(&file);
    return s;
}

/* A parameter of the script's model. */
struct script_param {
    const char *name; /* in the state_dict */
    struct safetensors_entry entry;
    const struct param *param;        /* that got its values; NULL: none */
    struct optimizer_setting setting; /* of param, also of a frozen one */
    bool is_trained;
    size_t group; /* of the optimizer, by its settings; SIZE_MAX: none, or several */
};

struct snapshot {
    const char *path;
    const struct config *config;
    struct state *state;
    struct safetensors file, optimizer;
    const json_t *groups;        /* of the optimizer: an array of objects */
    struct script_param *params; /* (count) in the order of model.parameters() */
    size_t count;
    struct script_param **numbered; /* (count) by their numbers in the optimizer */
    struct arena *arena;
};

static status reject(const struct snapshot *f, const char *what) {
    return status_usage("%s: %s" INSTEAD, f->path, what);
}

/* ---- the parameters of the script ---- */

static bool is_buffer(const char *name) {
    static const char *const names[] = {"running_mean", "running_var", "num_batches_tracked"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(dot ? dot + 1 : name, names[i]) == 0) return true;
    return false;
}

static status list_params(struct snapshot *f) {
    const char *name;
    json_t *entry;
    json_auto_t *places = json_object(); /* a tied weight has two names in a state_dict, and is one parameter */
    f->params = arena_alloc(f->arena, (json_object_size(f->file.header) + 1) * sizeof *f->params);
    json_object_foreach(f->file.header, name, entry) {
        struct script_param param = {.name = arena_copy(f->arena, name)};
        if (!safetensors_is_tensor(name) || is_buffer(name)) continue;
        TRY(safetensors_entry(&f->file, name, entry, &param.entry));
        const char *place = arena_printf(f->arena, "%zu %zu", param.entry.offset, param.entry.count);
        if (!param.entry.dtype->convert || json_object_get(places, place)) continue;
        json_object_set_new(places, place, json_true());
        f->params[f->count++] = param;
    }
    return OK;
}

/* safetensors_target.used */
static void note_param(void *user, const struct param *param, size_t offset) {
    struct snapshot *f = user;
    const struct params *params = &f->state->model->params;
    bool is_param = param >= params->items && param < params->items + params->count;
    for (size_t i = 0; is_param && i < f->count; i++) {
        if (f->params[i].entry.offset != offset) continue;
        f->params[i].param = param;
        f->params[i].setting = optimizer_plan_setting(f->state->optimizer->plan, &f->config->optimizer, param);
        f->params[i].is_trained = !param->is_frozen;
    }
}

static status load_tensors(const struct snapshot *f, struct safetensors_target *target) {
    SCOPED_TEXT report = {0};
    const struct weight_source *source = &f->config->model.init_from;
    target->is_torch = true;
    return weight_source_is_mapped(source) ? mapped_load(f->path, target, source, &report)
                                           : safetensors_load(f->path, target);
}

static status load_weights(struct snapshot *f) {
    struct safetensors_target target;
    init_from_target(f->state->model, f->arena, &target);
    target.tensors = &f->file;
    target.used = note_param;
    target.user = f;
    return load_tensors(f, &target);
}

/* ---- the kind of the optimizer, and its settings ---- */

/* Settings of torch.optim that change no number, or that are compared in another way. */
static bool is_other_setting(const char *key) {
    static const char *const keys[] = {"params",         "param_names", "maximize",
                                       "foreach",        "fused",       "capturable",
                                       "differentiable", "initial_lr",  "decoupled_weight_decay"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

static const struct schema_row *row_of(const struct schema *schema, const char *key) {
    for (const struct schema_row *row = schema->rows; row->key; row++)
        if (strcmp(row->key, key) == 0) return row;
    return NULL;
}

static bool is_setting(const struct schema_row *row) {
    return row->type == SCHEMA_REAL || row->type == SCHEMA_REAL_LIST || row->type == SCHEMA_BOOL;
}

/* The settings of a group are those of one class of torch.optim, whose name is not in the file. */
static status check_kind(const struct snapshot *f, const json_t *group) {
    const struct optimizer_type *type = f->state->optimizer->type;
    const json_t *decoupled = json_object_get(group, "decoupled_weight_decay");
    const char *name = type->variant.name, *other = NULL, *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)group, key, value) {
        if (!other && !is_other_setting(key) && !row_of(type->variant.schema, key)) other = key;
    }
    if (other)
        return reject(f, arena_printf(f->arena, "its optimizer is not %s, which has no setting '%.64s'", name, other));
    for (const struct schema_row *row = type->variant.schema->rows; row->key; row++)
        if (is_setting(row) && !is_other_setting(row->key) && !json_object_get(group, row->key))
            return reject(f, arena_printf(f->arena, "its optimizer is not %s, whose setting '%s' it does not have",
                                          name, row->key));
    bool is_decoupled = json_integer_value(decoupled) == 1;
    if (decoupled && ((is_decoupled && strcmp(name, "adam") == 0) || (!is_decoupled && strcmp(name, "adamw") == 0)))
        return reject(f, arena_printf(f->arena, "its optimizer is torch.optim.%s, and that of the config %s",
                                      is_decoupled ? "AdamW" : "Adam", name));
    return OK;
}

static bool is_near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

/* The value of a row as text. */
static void add_setting(const struct schema_row *row, const void *config, struct text *out) {
    const void *value = (const char *)config + row->offset;
    if (row->type == SCHEMA_BOOL) text_add(out, *(const bool *)value ? "true" : "false");
    if (row->type == SCHEMA_REAL) text_add_double(out, *(const double *)value);
    const struct real_list *list = value;
    for (size_t i = 0; row->type == SCHEMA_REAL_LIST && i < list->count; i++) {
        text_add(out, i ? ", " : "[");
        text_add_double(out, list->items[i]);
        if (i + 1 == list->count) text_add(out, "]");
    }
}

static bool is_equal(const struct schema_row *row, const void *config, const json_t *value) {
    const void *own = (const char *)config + row->offset;
    if (row->type == SCHEMA_BOOL) return *(const bool *)own == (json_integer_value(value) != 0);
    if (row->type == SCHEMA_REAL) return is_near(json_number_value(value), *(const double *)own);
    const struct real_list *list = own;
    bool is_same = json_array_size(value) == list->count;
    for (size_t i = 0; is_same && i < list->count; i++)
        is_same = is_near(json_number_value(json_array_get(value, i)), list->items[i]);
    return is_same;
}

static void add_difference(const char *key, const char *here, const json_t *there, struct text *out) {
    SCOPED_STRING value = json_dumps(there, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    text_printf(out, "%s%s %s (here %s)", out->length ? ", " : "", key, value ? value : "?", here);
}

/* Compares the settings of a group with those of one of its parameters. */
static void compare_settings(const struct snapshot *f, const json_t *group, const struct optimizer_setting *setting,
                             struct text *out) {
    const struct schema *schema = f->state->optimizer->type->variant.schema;
    const json_t *first = json_object_get(group, "initial_lr"), *lr = first ? first : json_object_get(group, "lr");
    bool is_scheduled = !first && !schedule_is_constant(&f->config->schedule);
    SCOPED_TEXT here = {0};
    for (const struct schema_row *row = schema->rows; row->key; row++) {
        bool is_lr = strcmp(row->key, "lr") == 0, is_decay = strcmp(row->key, "weight_decay") == 0;
        double own = is_lr ? setting->lr : setting->weight_decay;
        const json_t *value = is_lr ? lr : json_object_get(group, row->key);
        text_clear(&here);
        if (is_lr || is_decay)
            text_add_double(&here, own);
        else if (is_setting(row))
            add_setting(row, setting->config, &here);
        bool is_same = is_lr || is_decay ? is_near(json_number_value(value), own)
                                         : !is_setting(row) || is_equal(row, setting->config, value);
        if (value && !is_same && !(is_lr && is_scheduled)) add_difference(row->key, text_string(&here), value, out);
    }
    bool maximizes = optimizer_maximizes(&f->config->optimizer);
    bool other = json_integer_value(json_object_get(group, "maximize")) != 0;
    if (other != maximizes) add_difference("maximize", maximizes ? "true" : "false", json_boolean(other), out);
}

/* ---- the numbers of the parameters ---- */

static const json_t *numbers_of(const struct snapshot *f, size_t group) {
    return json_object_get(json_array_get(f->groups, group), "params");
}

/* Leaves those out that are not trained, of scripts that give an optimizer only the others. */
static void keep_trained(struct snapshot *f) {
    size_t count = 0;
    for (size_t i = 0; i < f->count; i++)
        if (f->params[i].is_trained) f->params[count++] = f->params[i];
    f->count = count;
}

/* Each number once; with names some parameters may have none. */
static status check_numbers(struct snapshot *f, bool is_named) {
    size_t total = 0, trained = 0;
    bool *is_seen = arena_alloc(f->arena, f->count + 1);
    for (size_t g = 0; g < json_array_size(f->groups); g++) total += json_array_size(numbers_of(f, g));
    for (size_t i = 0; i < f->count; i++) trained += f->params[i].is_trained;
    if (total == trained && !is_named) keep_trained(f);
    if (is_named ? total > f->count : total != f->count)
        return reject(
            f, arena_printf(f->arena, "its optimizer has %zu parameter%s, and its state_dict %zu%s", total,
                            text_plural(total, "s"), f->count,
                            trained == f->count
                                ? ""
                                : arena_printf(f->arena,
                                               ", of which %zu are trained (model.freeze); it must have all or those",
                                               trained)));
    for (size_t g = 0; g < json_array_size(f->groups); g++)
        for (size_t i = 0; i < json_array_size(numbers_of(f, g)); i++) {
            const json_t *number = json_array_get(numbers_of(f, g), i);
            json_int_t n = json_is_integer(number) ? json_integer_value(number) : -1;
            if (n < 0 || n >= (json_int_t)total || is_seen[n])
                return reject(f, "the numbers of the parameters in its optimizer's groups are not 0, 1, 2, ...");
            is_seen[n] = true;
        }
    return OK;
}

/* The name without the prefixes of DistributedDataParallel and torch.compile, which one side may have. */
static const char *unwrapped(const char *name) {
    const char *const wrappers[] = {"module.", "_orig_mod."};
    for (size_t i = 0; i < 4; i++)
        if (strncmp(name, wrappers[i % 2], strlen(wrappers[i % 2])) == 0) name += strlen(wrappers[i % 2]);
    return name;
}

static struct script_param *find_name(const struct snapshot *f, const char *name) {
    for (size_t i = 0; name && i < f->count; i++)
        if (strcmp(unwrapped(f->params[i].name), unwrapped(name)) == 0) return &f->params[i];
    return NULL;
}

/* Gives number [index] of a group to a parameter. */
static void set_number(struct snapshot *f, size_t group, size_t index, struct script_param *param) {
    f->numbered[json_integer_value(json_array_get(numbers_of(f, group), index))] = param;
}

/* Whether all groups have param_names, as of optimizers that got model.named_parameters(). */
static bool has_names(const struct snapshot *f) {
    bool found = json_array_size(f->groups) > 0;
    for (size_t g = 0; found && g < json_array_size(f->groups); g++) {
        const json_t *names = json_object_get(json_array_get(f->groups, g), "param_names");
        found = json_array_size(names) == json_array_size(numbers_of(f, g)) && json_is_array(names);
    }
    return found;
}

static status number_by_names(struct snapshot *f) {
    for (size_t g = 0; g < json_array_size(f->groups); g++)
        for (size_t i = 0; i < json_array_size(numbers_of(f, g)); i++) {
            const json_t *names = json_object_get(json_array_get(f->groups, g), "param_names");
            const char *name = json_string_value(json_array_get(names, i));
            struct script_param *param = find_name(f, name);
            if (!param)
                return reject(f,
                              arena_printf(f->arena, "its optimizer has the parameter '%.200s', and its state_dict not",
                                           name ? name : "?"));
            set_number(f, g, i, param);
        }
    return OK;
}

static double number_in(const json_t *group, const char *key) { return json_number_value(json_object_get(group, key)); }

/* Before its schedule, if the file has that. */
static double rate_of(const json_t *group) {
    return number_in(group, json_object_get(group, "initial_lr") ? "initial_lr" : "lr");
}

/* The one group with the weight decay of the parameter's setting, of several with its rate, too; SIZE_MAX: there is not
 * one. */
static size_t group_of(const struct snapshot *f, const struct script_param *param) {
    const struct optimizer_setting *setting = &param->setting;
    size_t found = SIZE_MAX;
    for (int compares_rate = 0; param->param && compares_rate < 2; compares_rate++) {
        size_t matches = 0;
        for (size_t g = 0; g < json_array_size(f->groups); g++) {
            const json_t *group = json_array_get(f->groups, g);
            if (!is_near(number_in(group, "weight_decay"), setting->weight_decay)) continue;
            if (compares_rate && !is_near(rate_of(group), setting->lr)) continue;
            matches++;
            found = g;
        }
        if (matches == 1) return found;
    }
    return SIZE_MAX;
}

static int compare_names(const void *a, const void *b) {
    return strcmp((*(struct script_param *const *)a)->name, (*(struct script_param *const *)b)->name);
}

/* In the order of the model, or of their names. */
static status number_group(struct snapshot *f, size_t group, bool by_name) {
    struct script_param **members = arena_alloc(f->arena, (f->count + 1) * sizeof *members);
    size_t count = 0, size = json_array_size(numbers_of(f, group));
    bool is_only = json_array_size(f->groups) == 1;
    for (size_t i = 0; i < f->count; i++)
        if (is_only || f->params[i].group == group) members[count++] = &f->params[i];
    if (count != size)
        return reject(f, arena_printf(f->arena,
                                      "group %zu of its optimizer has %zu parameter%s with weight_decay %g and lr %g, "
                                      "and by optimizer.decay and optimizer.groups of the config %zu have them",
                                      group, size, text_plural(size, "s"),
                                      number_in(json_array_get(f->groups, group), "weight_decay"),
                                      rate_of(json_array_get(f->groups, group)), count));
    if (by_name) qsort(members, count, sizeof *members, compare_names);
    for (size_t i = 0; i < count; i++) set_number(f, group, i, members[i]);
    return OK;
}

/* A tensor of the state of a parameter; false: there is none. */
static bool find_state(const struct snapshot *f, size_t number, const char *buffer, const json_t **entry) {
    *entry = json_object_get(f->optimizer.header, arena_printf(f->arena, "%zu/%s", number, buffer));
    return *entry;
}

/* Whether the shapes of the state are those of the parameters. */
static bool shapes_match(const struct snapshot *f) {
    const struct optimizer *o = f->state->optimizer;
    for (size_t i = 0; i < f->count; i++)
        for (size_t b = 0; b < o->buffer_count; b++) {
            const struct script_param *p = f->numbered[i];
            const json_t *entry, *shape;
            if (!find_state(f, i, o->buffer_names[b], &entry)) continue;
            shape = json_object_get(entry, "shape");
            if (json_array_size(shape) != (size_t)p->entry.dims) return false;
            for (int d = 0; d < p->entry.dims; d++)
                if (json_integer_value(json_array_get(shape, (size_t)d)) != p->entry.shape[d]) return false;
        }
    return true;
}

static status number_groups(struct snapshot *f, bool by_name) {
    for (size_t g = 0; g < json_array_size(f->groups); g++) TRY(number_group(f, g, by_name));
    return OK;
}

/* Whether the numbers are the order of the model over all groups, as where each parameter has its own group. Rates are
 * those of the config, or each the same multiple of them, as of a schedule. */
static bool number_in_order(struct snapshot *f) {
    size_t next = 0;
    for (size_t g = 0; g < json_array_size(f->groups); g++) {
        const json_t *group = json_array_get(f->groups, g), *first = json_array_get(f->groups, 0);
        for (size_t i = 0; i < json_array_size(numbers_of(f, g)); i++) {
            const struct script_param *param = &f->params[next];
            double lr = rate_of(group) * f->params[0].setting.lr, expected = rate_of(first) * param->setting.lr;
            if (!param->param || !is_near(number_in(group, "weight_decay"), param->setting.weight_decay) ||
                fabs(lr - expected) > 1e-6 * fabs(expected))
                return false;
            set_number(f, g, i, &f->params[next++]);
        }
    }
    return shapes_match(f);
}

/* The shape of number [index] of group [first], followed by those of [second]. */
static const struct safetensors_entry *shape_at(const struct snapshot *f, size_t first, size_t second, size_t index) {
    size_t count = json_array_size(numbers_of(f, first));
    const json_t *numbers = numbers_of(f, index < count ? first : second);
    json_int_t number = json_integer_value(json_array_get(numbers, index < count ? index : index - count));
    return &f->numbered[number]->entry;
}

/* Whether two groups have the same settings, and the same shapes in either order. */
static bool are_alike(const struct snapshot *f, size_t a, size_t b) {
    const json_t *one = json_array_get(f->groups, a), *other = json_array_get(f->groups, b);
    size_t count = json_array_size(numbers_of(f, a)) + json_array_size(numbers_of(f, b));
    bool is_alike = json_array_size(numbers_of(f, a)) > 0 && json_array_size(numbers_of(f, b)) > 0 &&
                    is_near(number_in(one, "weight_decay"), number_in(other, "weight_decay")) &&
                    is_near(rate_of(one), rate_of(other));
    for (size_t i = 0; is_alike && i < count; i++) {
        const struct safetensors_entry *x = shape_at(f, a, b, i), *y = shape_at(f, b, a, i);
        is_alike = x->dims == y->dims && memcmp(x->shape, y->shape, (size_t)x->dims * sizeof *x->shape) == 0;
    }
    return is_alike;
}

/* Adds the first two groups whose order in the script cannot be known. Scripts with a group for each parameter make
 * them in a loop over the model's. */
static void warn_of_order(const struct snapshot *f, struct text *warning) {
    size_t count = f->state->optimizer->buffer_count ? json_array_size(f->groups) : 0;
    if (count == f->count) return;
    for (size_t a = 0; a < count; a++)
        for (size_t b = a + 1; b < count; b++) {
            if (!are_alike(f, a, b)) continue;
            text_printf(warning,
                        "groups %zu and %zu of its optimizer have the same settings and shapes, and no names: they are "
                        "taken in the order of the model; where the script lists them in another order, give its "
                        "optimizer the names ((name, parameter), PyTorch 2.6)",
                        a, b);
            return;
        }
}

/* Scripts with several groups list their parameters in the order of the model, or sorted by name (minGPT). */
static status number_by_settings(struct snapshot *f, struct text *warning) {
    size_t bytes = f->count * sizeof(struct script_param *);
    if (json_array_size(f->groups) > 1 && number_in_order(f)) {
        warn_of_order(f, warning);
        return OK;
    }
    for (size_t i = 0; i < f->count; i++) f->params[i].group = group_of(f, &f->params[i]);
    TRY(number_groups(f, false));
    if (json_array_size(f->groups) == 1) return OK;
    struct script_param **in_order = arena_alloc(f->arena, bytes + 1);
    memcpy(in_order, f->numbered, bytes);
    bool is_in_order = shapes_match(f);
    TRY(number_groups(f, true));
    bool is_sorted = shapes_match(f), is_same = memcmp(in_order, f->numbered, bytes) == 0;
    if (is_in_order && is_sorted && !is_same && f->state->optimizer->buffer_count)
        return reject(f, "the groups of its optimizer may list their parameters in the order of the model or sorted by "
                         "name, and the shapes fit both; give the optimizer their names ((name, parameter), PyTorch "
                         "2.6)");
    if (!is_sorted) memcpy(f->numbered, in_order, bytes);
    return OK;
}

static status number_params(struct snapshot *f, struct text *warning) {
    bool is_named = has_names(f);
    f->numbered = arena_alloc(f->arena, (f->count + 1) * sizeof *f->numbered);
    TRY(check_numbers(f, is_named));
    return is_named ? number_by_names(f) : number_by_settings(f, warning);
}

/* ---- the state ---- */

static bool is_buffer_name(const struct optimizer *o, const char *name) {
    for (size_t b = 0; b < o->buffer_count; b++)
        if (strcmp(o->buffer_names[b], name) == 0) return true;
    return false;
}

/* What follows from the number of the update. */
static bool is_counted(const char *name) {
    return strcmp(name, "step") == 0 || strcmp(name, "mu_product") == 0 || strcmp(name, "eta") == 0 ||
           strcmp(name, "mu") == 0;
}

static status take_step(const struct snapshot *f, double step, int64_t *updates) {
    if (isfinite(step) && step != floor(step))
        return reject(f,
                      arena_printf(f->arena, "its optimizer has made %g updates, which is not a whole number", step));
    if (!(step >= 1 && step <= (double)((int64_t)1 << 53)) || (*updates >= 0 && *updates != (int64_t)step))
        return reject(f, "its optimizer has not made the same number of updates of each parameter");
    *updates = (int64_t)step;
    return OK;
}

/* Whether the state [name], "3/step", is of a frozen parameter, which scripts may have trained before. */
static bool is_frozen_state(const struct snapshot *f, const char *name) {
    size_t number = (size_t)strtoull(name, NULL, 10);
    return number < f->count && f->numbered[number] && !f->numbered[number]->is_trained;
}

/* Sets *updates to the `step` of all parameters, if there is one, and rejects a state that the optimizer has not. */
static status read_steps(const struct snapshot *f, int64_t *updates) {
    const struct optimizer *o = f->state->optimizer;
    const json_t *numbers = json_object_get(f->optimizer.header, "__metadata__");
    const char *name;
    json_t *value;
    *updates = -1;
    json_object_foreach(f->optimizer.header, name, value) {
        const char *slash = strchr(name, '/');
        struct safetensors_entry entry;
        float step;
        if (!safetensors_is_tensor(name)) continue;
        if (!is_buffer_name(o, slash + 1) && !is_counted(slash + 1))
            return reject(f, arena_printf(f->arena,
                                          "its optimizer has the state '%.64s', and %s with the keys of the config not",
                                          slash + 1, f->config->optimizer.name));
        if (strcmp(slash, "/step") != 0 || is_frozen_state(f, name)) continue;
        TRY(safetensors_entry(&f->optimizer, name, value, &entry));
        if (entry.count != 1 || !entry.dtype->convert) return safetensors_bad(&f->optimizer, name, "it is no number");
        entry.dtype->convert(f->optimizer.data + entry.offset, &step, 1);
        TRY(take_step(f, (double)step, updates));
    }
    json_object_foreach((json_t *)(uintptr_t)numbers, name, value) {
        const char *slash = strchr(name, '/');
        if (slash && strcmp(slash, "/step") == 0 && !is_frozen_state(f, name))
            TRY(take_step(f, json_number_value(value), updates));
    }
    return OK;
}

/* The state in the file for one of the buffers, under the names of the state_dict. */
static json_t *state_header(const struct snapshot *f, const char *buffer) {
    json_t *header = json_object();
    for (size_t i = 0; i < f->count; i++) {
        const json_t *entry;
        if (f->numbered[i] && f->numbered[i]->is_trained && find_state(f, i, buffer, &entry))
            json_object_set(header, f->numbered[i]->name, (json_t *)(uintptr_t)entry);
    }
    return header;
}

/* Loads a buffer as parameters with the names and shapes of the trained ones. */
static status load_buffer(const struct snapshot *f, size_t index) {
    const struct params *params = &f->state->model->params;
    const struct optimizer *o = f->state->optimizer;
    struct params states = {.items = arena_alloc(f->arena, (params->count + 1) * sizeof *states.items),
                            .values = f->state->optimizer_full[index]};
    size_t at = 0;
    for (size_t i = 0; i < params->count; i++) {
        struct param *state = &states.items[states.count];
        *state = params->items[i];
        if (state->is_frozen) continue;
        state->value = at;
        at += params_padded(state->count);
        states.count++;
    }
    struct safetensors_target target;
    const struct params *set = &states;
    struct safetensors file = f->optimizer;
    init_from_target(f->state->model, f->arena, &target);
    target.sets = &set;
    target.set_count = 1;
    target.tensors = &file;
    file.header = state_header(f, o->buffer_names[index]);
    status s = load_tensors(f, &target);
    json_decref(file.header);
    return status_prefix(s, "the state %s of the optimizer", o->buffer_names[index]);
}

/* A rule that adds rows of several tensors is one for weights. */
static status check_map(const struct snapshot *f) {
    struct weight_map map = {0};
    if (weight_source_is_mapped(&f->config->model.init_from))
        weight_map_create(&f->config->model.init_from, f->arena, &map);
    for (size_t i = 0; i < map.count; i++)
        if (map.rules[i].row_to_add >= 0)
            return reject(f, "the map of model.init_from adds weights, which the state of an optimizer has no use for");
    return OK;
}

/* The first trained parameter of a group; NULL: none. */
static const struct script_param *trained_of(const struct snapshot *f, size_t group) {
    for (size_t i = 0; i < json_array_size(numbers_of(f, group)); i++) {
        const struct script_param *param = f->numbered[json_integer_value(json_array_get(numbers_of(f, group), i))];
        if (param && param->is_trained) return param;
    }
    return NULL;
}

static status load_optimizer(struct snapshot *f, int64_t *updates, struct text *warning) {
    const struct optimizer *o = f->state->optimizer;
    bool has_state = o->buffer_count > 0 || o->lbfgs;
    f->groups = json_object_get(json_object_get(f->optimizer.header, "__metadata__"), "param_groups");
    if (f->state->ema || (has_state && (o->type->whole || o->lbfgs)))
        return reject(f, arena_printf(f->arena, "%s also has a state, which is not read from files of torch.save",
                                      f->state->ema ? "train.ema" : f->config->optimizer.name));
    if (!f->groups && has_state)
        return reject(
            f, arena_printf(
                   f->arena,
                   "it has no state_dict of an optimizer, such as optimizer_state of the script, and %s has a state",
                   f->config->optimizer.name));
    if (!f->groups || o->type->whole) return OK;
    for (size_t g = 0; g < json_array_size(f->groups); g++) TRY(check_kind(f, json_array_get(f->groups, g)));
    TRY(number_params(f, warning));
    TRY(read_steps(f, updates));
    TRY(check_map(f));
    SCOPED_TEXT differences = {0};
    for (size_t g = 0; g < json_array_size(f->groups); g++) {
        const struct script_param *param = trained_of(f, g);
        if (param) compare_settings(f, json_array_get(f->groups, g), &param->setting, &differences);
    }
    if (differences.length)
        text_printf(warning, "%sits optimizer has other settings, and those of the config are used: %s",
                    warning->length ? "; " : "", text_string(&differences));
    for (size_t b = 0; b < o->buffer_count; b++) TRY(load_buffer(f, b));
    return OK;
}

status snapshot_load(const char *path, const struct config *config, struct state *state, int64_t *updates,
                     struct text *warning) {
    struct snapshot f = {.path = path, .config = config, .state = state, .arena = arena_create()};
    *updates = -1;
    status s = torch_file_read(path, &f.file);
    if (!s) s = list_params(&f);
    if (!s) s = load_weights(&f);
    safetensors_close(&f.file);
    if (!s) s = torch_file_read_optimizer(path, &f.optimizer);
    if (!s) s = load_optimizer(&f, updates, warning);
    safetensors_close(&f.optimizer);
    arena_destroy(f.arena);
    return status_prefix(s, "checkpoint.resume");
}
