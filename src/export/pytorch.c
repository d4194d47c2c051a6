/* pytorch: the training of a config as a Python script of PyTorch, which needs nothing of this program: the same rows
 * in the same order, the same initial weights, passes and updates. Layers, losses, optimizers, schedules and formats of
 * data say in templates what they are in PyTorch; here are the places of the templates and what stands around them.
 * Functions that PyTorch lacks are in pytorch.py, of which a script has those that it uses. */
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "data/dataset/dataset.h"
#include "data/sampling/split.h"
#include "export/formats.h"
#include "model/init_rules.h"
#include "model/layers/layers.h"
#include "model/model.h"
#include "model/objective.h"
#include "train/plan/plan.h"

/* The texts of this folder's Python. */
static const struct {
    const char *name, *code;
} files[] = {
#include "export/texts.inc"
};

struct script {
    const char *source; /* the config or run as the user named it */
    const struct config *config;
    const struct plan *plan;
    const struct model *model;
    struct arena *arena;
    bool is_validation; /* the file of dataset.validation is written */
    struct text data, network, training;
};

static status refuse(const char *what) {
    return status_new(STATUS_USAGE, "%s cannot be expressed in a PyTorch script", what);
}

/* ---- what no script has ---- */

static status check_config(const struct config *c) {
    const struct dataset_config *d = &c->dataset;
    const struct {
        bool is_given;
        const char *key;
    } keys[] = {
        {c->train.precision != TRAIN_FLOAT32, "train.precision"},
        {c->determinism.mode == DETERMINISM_ELASTIC, "determinism.mode elastic"},
        {c->train.early_stop.monitor.metric || c->train.early_stop.patience != SCHEMA_NO_INT, "train.early_stop"},
        {c->train.on_nonfinite.policy != NONFINITE_STOP, "train.on_nonfinite.policy"},
        {c->train.accumulate_weighting != WEIGHTING_TORCH && c->train.accumulate > 1, "train.accumulate_weighting"},
        {c->model.has_init_from, "model.init_from"},
        {c->dist.gradient_compression != COMPRESSION_NONE, "dist.gradient_compression"},
        {strcmp(c->checkpoint.resume, "auto") != 0 && strcmp(c->checkpoint.resume, "never") != 0,
         "checkpoint.resume FILE"},
        {c->sampler.type == SAMPLER_WEIGHTED && (c->sampler.uneven || c->has_losses),
         "sampler.type weighted with losses or uneven"},
        {c->sampler.per_rank, "sampler.per_rank"},
        {d->window.group != NULL, "dataset.window.group"},
        {d->window.has_history, "dataset.window.history"},
        {d->window.steps > 0 && split_has_test(&d->split), "dataset.window with test rows"},
        {d->weights != NULL, "dataset.weights"},
        {d->filter != NULL, "dataset.filter"},
        {d->drops_missing_targets, "dataset.drop_missing_targets"},
        {d->others.count > 0, "a list of files in dataset.path"},
        {d->layout != LAYOUT_NCHW, "dataset.layout"},
        {d->target_scale != TARGET_SCALE_NONE && c->has_losses, "dataset.target_scale with losses"},
        {d->scale.per_feature, "dataset.scale.per_feature"},
        {d->has_csv, "dataset.csv"},
        {d->has_missing, "dataset.missing"},
        {d->window.steps > 0 && d->split.folds > 0, "dataset.window with folds"},
        {d->split.group != NULL, "dataset.split.group"},
        {d->validation.others.count > 0, "a list of files in dataset.validation"},
        {split_has_test(&d->split) && (d->split.stratify || !d->split.shuffle || d->split.folds > 0),
         "dataset.split with test rows, but without shuffle or with stratify or folds"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].is_given) return refuse(keys[i].key);
    return OK;
}

/* ---- data ---- */

static void add_names(struct text *out, const struct string_list *names, const char *fallback) {
    text_add(out, "[");
    for (size_t i = 0; i < names->count; i++) {
        text_add(out, i ? ", " : "");
        text_add_json(out, names->items[i]);
    }
    if (!names->count && fallback) text_add_json(out, fallback);
    text_add(out, "]");
}

/* The names of the config, else those of the columns of a table, else [fallback]. */
static void add_columns(const struct script *s, const struct string_list *names, enum column_role role,
                        const char *fallback, struct text *out) {
    struct column_list columns = dataset_columns(s->plan->dataset);
    const char **found = arena_alloc(s->arena, (columns.count + 1) * sizeof *found);
    size_t count = 0;
    for (size_t i = 0; i < columns.count; i++)
        if (columns.items[i].role == role) found[count++] = columns.items[i].name;
    bool is_table = columns.format && strcmp(columns.format, "csv") == 0;
    add_names(out, names->count || !is_table ? names : &(struct string_list){found, count}, fallback);
}

/* Whether the file has targets: not, if all are inputs. */
static bool reads_targets(const struct script *s) {
    const struct dataset_info *info = &s->plan->info;
    bool reads = !s->plan->objective;
    for (size_t i = 0; i < info->target_count; i++) reads = reads || !info->targets[i].is_input;
    return reads;
}

static bool data_place(void *script, const char *name, struct text *out) {
    const struct script *s = script;
    const struct dataset_config *d = &s->config->dataset;
    const struct synthetic_config *y = &d->synthetic;
    bool has_stride = d->tokens.stride != SCHEMA_NO_INT;
    if (strcmp(name, "path") == 0) {
        text_add_json(out, s->is_validation ? d->validation.path : d->path);
    } else if (strcmp(name, "inputs") == 0) {
        add_columns(s, &d->inputs, COLUMN_INPUT, "x", out);
    } else if (strcmp(name, "targets") == 0) {
        add_columns(s, &d->targets, COLUMN_TARGET, reads_targets(s) ? "y" : NULL, out);
    } else if (strcmp(name, "labels") == 0) {
        const char *labels = s->is_validation ? d->validation.targets : dataset_target_name(s->plan->dataset);
        if (labels)
            text_add_json(out, labels);
        else
            text_add(out, "None");
    } else if (strcmp(name, "text") == 0) {
        text_printf(out, "%lld, %lld, ", (long long)d->text.block_size, (long long)d->text.stride);
        text_add_double(out, d->text.truncate);
    } else if (strcmp(name, "tokens") == 0) {
        text_printf(out, "\"<u%d\", %lld, %lld", d->tokens.type == TOKEN_UINT16 ? 2 : 4,
                    (long long)d->tokens.block_size, (long long)(has_stride ? d->tokens.stride : d->tokens.block_size));
    } else if (strcmp(name, "synthetic") == 0) {
        static const char *const kinds[] = {"uniform", "linear", "classes"};
        text_printf(out, "\"%s\", %lld, [", kinds[y->kind], (long long)y->rows);
        for (size_t i = 0; i < y->inputs.count; i++)
            text_printf(out, "%s%lld", i ? ", " : "", (long long)y->inputs.items[i]);
        text_printf(out, "], %lld, ", (long long)(y->kind == SYNTHETIC_CLASSES ? y->classes : y->targets));
        text_add_double(out, y->noise);
        text_printf(out, ", seed=%lld", (long long)y->seed);
    } else {
        return false;
    }
    return true;
}

/* The rows of the parts, as arrays of indices into x and y. */
static void add_split(struct script *s) {
    const struct split_config *c = &s->config->dataset.split;
    const struct dataset_info *info = &s->plan->info;
    struct text *out = &s->data;
    size_t n = info->validation_rows;
    if (s->config->dataset.validation.path) {
        text_add(out, "train, validation = np.arange(count), np.arange(count, len(x))\n");
    } else if (s->config->dataset.window.steps > 0) {
        size_t n_train;
        split_sizes(c, info->windows.rows, &n_train, &n);
        text_printf(out, "train = np.arange(len(x) - %zu)  # rows in the order of time\n", n);
    } else if (split_has_test(c)) {
        text_printf(out,
                    "order = np.random.RandomState(%lld).permutation(len(x))  # train_test_split, twice\n"
                    "test, rest = order[:%zu], order[%zu:]\n"
                    "order = rest[np.random.RandomState(%lld).permutation(len(rest))]\n"
                    "validation, train = order[:%zu], order[%zu:]\n",
                    (long long)c->seed, info->test_rows, info->test_rows, (long long)c->seed, n, n);
    } else if (c->folds > 0) {
        const char *kind = c->time_series ? "time_series_fold(len(x)"
                           : c->stratify  ? "stratified_fold(y"
                                          : "fold(len(x)";
        text_printf(out, "train, validation = %s, %lld, %lld", kind, (long long)c->folds, (long long)c->fold);
        if (c->shuffle && !c->time_series) text_printf(out, ", seed=%lld", (long long)c->seed);
        text_add(out, ")\n");
    } else if (!split_is_given(c)) {
        text_add(out, "train, validation = np.arange(len(x)), []\n");
    } else if (!c->shuffle) {
        text_printf(out, "train, validation = np.split(np.arange(len(x)), [-%zu])\n", n);
    } else if (c->stratify) {
        text_printf(out, "train, validation = stratified_split(y, %zu, %lld)\n", n, (long long)c->seed);
    } else if (c->train > 0) {
        text_printf(out,
                    "order = torch.randperm(len(x), generator=torch.Generator().manual_seed(%lld)).numpy()  # "
                    "random_split\ntrain, validation = order[:-%zu], order[-%zu:]\n",
                    (long long)c->seed, n, n);
    } else {
        text_printf(out,
                    "order = np.random.RandomState(%lld).permutation(len(x))  # train_test_split(random_state=%lld)\n"
                    "validation, train = order[:%zu], order[%zu:]\n",
                    (long long)c->seed, (long long)c->seed, n, n);
    }
}

static void add_numbers(struct text *out, const struct real_list *list) {
    for (size_t i = 0; i < list->count; i++) {
        text_add(out, i ? ", " : "");
        text_add_double(out, list->items[i]);
    }
}

/* scikit-learn's StandardScaler or MinMaxScaler of [name], fitted to the training rows; [each]: the dimension that a
 * pair of numbers is over; "": all. */
static void add_fitted(struct text *out, const char *name, bool is_minmax, const char *each) {
    if (is_minmax)
        text_printf(out, "mean = %s[train].min(%s)\ndeviation = np.asarray(%s[train].max(%s) - mean)\n", name, each,
                    name, each);
    else
        text_printf(out, "mean, deviation = %s[train].mean(%s), np.asarray(%s[train].std(%s))\n", name, each, name,
                    each);
    text_printf(out, "deviation[deviation == 0] = 1\n%s = (%s - mean) / deviation\n", name, name);
}

static void add_target_scale(struct script *s) {
    int type = s->config->dataset.target_scale;
    if (type == TARGET_SCALE_NONE) return;
    text_add(&s->data, "y = y.astype(\"f8\").reshape(len(y), -1)\n");
    if (type == TARGET_SCALE_LOG1P)
        text_add(&s->data, "y = np.log1p(y)\n");
    else
        add_fitted(&s->data, "y", type == TARGET_SCALE_MINMAX, "0");
}

static void add_windows(struct script *s) {
    const struct dataset_windows *w = &s->plan->info.windows;
    if (w->steps)
        text_printf(&s->data, "x, y, train, validation = windows(x, y, len(train), %zu, %zu, %zu, %lld)\n", w->steps,
                    w->first_target, w->target_steps, (long long)s->config->dataset.window.stride);
}

/* Of the features that have this scale. */
static void add_scale_of_columns(struct script *s, const struct preparation *p, enum scale_type scale) {
    enum scale_type *types = arena_alloc(s->arena, p->features * sizeof *types);
    struct text *out = &s->data, list = {0};
    if (!preparation_scales(p, types)) return;
    for (size_t i = 0; i < p->features; i++)
        if (types[i] == scale) text_printf(&list, "%s%zu", list.length ? ", " : "", i);
    if (list.length) {
        text_printf(out, "scaled = x[:, [%s]]\n", text_string(&list));
        add_fitted(out, "scaled", scale == SCALE_MINMAX, "0");
        text_printf(out, "x[:, [%s]] = scaled\n", text_string(&list));
    }
    text_free(&list);
}

static void add_scale(struct script *s) {
    const struct scale_config *c = &s->config->dataset.scale;
    const struct dataset_info *info = &s->plan->info;
    struct text *out = &s->data;
    double divide = dataset_divide(s->plan->dataset);
    const char *each = info->input_dims == 1 || info->windows.steps ? "0" : "";
    bool has_divisor = !(divide >= 1 && divide <= 1);
    if (has_divisor) {
        text_printf(out, "x = x.astype(\"%s\") / np.%s(", c->type != SCALE_NONE ? "f8" : "f4",
                    c->type != SCALE_NONE ? "float64" : "float32");
        text_add_double(out, divide);
        text_add(out, ")\n");
    }
    const struct preparation *preparation = dataset_preparation(s->plan->dataset);
    if (preparation) {
        add_scale_of_columns(s, preparation, SCALE_STANDARD);
        add_scale_of_columns(s, preparation, SCALE_MINMAX);
    } else if (c->type != SCALE_NONE) {
        text_add(out, "x = x.astype(\"f8\")\n");
        add_fitted(out, "x", c->type == SCALE_MINMAX, each);
    } else if (c->mean.count) {
        const char *columns = info->input_dims == 1 || c->mean.count == 1 ? "" : "[:, None, None]";
        text_add(out, "x = (x.astype(\"f4\") - np.array([");
        add_numbers(out, &c->mean);
        text_printf(out, "], \"f4\")%s) / np.array([", columns);
        add_numbers(out, &c->std);
        text_printf(out, "], \"f4\")%s\n", columns);
    }
}

static void add_sizes(struct text *out, const struct shape *shape, int from) {
    for (int d = from; d < shape->dims; d++)
        text_printf(out, "%s%lld", d > from ? ", " : "", (long long)shape->size[d]);
}

/* A tensor as (classes, ...) if the targets classify each of its positions, else as it is. */
static const struct shape *shape_of(const struct script *s, size_t tensor) {
    const struct planned_tensor *t = &s->model->tensors[tensor];
    return t->scores ? t->scores : &t->shape;
}

/* The number of the lengths of the rows of the only output; 0: all positions are real. */
static size_t output_lengths(const struct script *s) {
    return s->plan->objective ? 0 : s->model->tensors[s->model->output].shape.lengths;
}

/* The last dimension are the classes, and those before it positions. */
static bool has_classes_last(const struct script *s, const struct loss_type *loss, size_t tensor) {
    const struct planned_tensor *t = &s->model->tensors[tensor];
    return loss->wants_classes && !t->scores && t->shape.dims > 1 && !output_lengths(s);
}

/* The targets of several losses: those of the file, which are in y, and inputs. */
static void add_named_targets(struct script *s) {
    const struct dataset_info *info = &s->plan->info;
    struct text *out = &s->data;
    size_t at = 0;
    text_add(out, "y = np.concatenate([np.zeros((len(x), 0))");
    for (size_t i = 0; i < info->target_count; i++) {
        const struct dataset_target *t = &info->targets[i];
        size_t first = t->is_input ? t->input_first : at;
        text_printf(out, ", %s.reshape(len(x), -1)[:, %zu:%zu]", t->is_input ? "x" : "y", first, first + t->size);
        if (!t->is_input) at += t->size;
    }
    text_add(out, "], 1)\ny = torch.tensor(y.astype(\"f4\")).to(dtype)\n");
}

static void add_tensors(struct script *s) {
    const struct dataset_info *info = &s->plan->info;
    const struct loss_type *loss = s->plan->loss;
    const struct shape *y = shape_of(s, s->model->output);
    struct text *out = &s->data;
    if (info->input_kind == INPUT_TOKENS) return;
    if (s->plan->objective) add_named_targets(s);
    text_add(out, "x = torch.tensor(x.astype(\"f4\")).to(dtype)\n");
    if (s->plan->objective) return;
    if (loss->wants_classes && info->target_size == 1)
        text_add(out, "y = torch.tensor(y.astype(\"i8\")).flatten()\n");
    else if (loss->wants_classes)
        text_add(out, "y = torch.tensor(y.astype(\"i8\"))\n");
    else if (loss->parts)
        text_printf(out, "y = torch.tensor(y.astype(\"f4\")).to(dtype).reshape(len(y), %zu)\n", info->target_size);
    else
        text_add(out, "y = torch.tensor(y.astype(\"f4\")).to(dtype).reshape(len(y), "), add_sizes(out, y, 0),
            text_add(out, ")\n");
}

/* A column of a table as features: "category(table["Sex"], ["female", "male"], "one_hot")". */
static void add_column(const struct prepared_column *c, struct text *out) {
    static const char *const encodings[] = {"one_hot", "ordinal", "embedding"};
    text_add(out, c->type == COLUMN_CATEGORY  ? "category(table["
                  : c->type == COLUMN_DATE    ? "date(table["
                  : c->type == COLUMN_BOOLEAN ? "boolean(table["
                                              : "number(table[");
    text_add_json(out, c->name);
    text_add(out, "]");
    if (c->type == COLUMN_CATEGORY) {
        text_add(out, ", [");
        for (size_t i = 0; i < c->categories.count; i++) {
            text_add(out, i ? ", " : "");
            if (c->are_numbers)
                text_add(out, c->categories.items[i]);
            else
                text_add_json(out, c->categories.items[i]);
        }
        text_printf(out, "], \"%s\"", encodings[c->encoding]);
    }
    if (c->type == COLUMN_DATE) {
        text_add(out, ", [");
        for (size_t i = 0; i < c->part_count; i++) text_printf(out, "%s\"%s\"", i ? ", " : "", date_parts[c->parts[i]]);
        text_add(out, "]");
    }
    if (c->type == COLUMN_DATE && c->date_format) text_add(out, ", format="), text_add_json(out, c->date_format);
    if (c->missing != MISSING_ERROR) {
        bool is_list = c->type == COLUMN_DATE;
        text_add(out, is_list ? ", fill=[" : ", fill=");
        for (size_t i = 0; i < (is_list ? c->part_count : 1); i++) {
            text_add(out, i ? ", " : "");
            text_add_double(out, c->fill[i]);
        }
        text_add(out, is_list ? "]" : "");
    }
    text_add(out, c->has_indicator ? ", indicator=True)" : ")");
}

/* x and y of a table whose columns are prepared; the numbers that were fitted to its training rows are in the script.
 */
static status add_prepared(struct script *s, const struct preparation *p) {
    const struct dataset_config *d = &s->config->dataset;
    struct text *out = &s->data;
    if (strcmp(dataset_format_of(d, d->path)->name, "csv") != 0) return refuse("dataset.columns of a database");
    text_add(out, "table = pandas.read_csv(");
    text_add_json(out, d->path);
    text_add(out, ", dtype=str)\n");
    if (d->validation.path) {
        text_add(out, "count, other = len(table), pandas.read_csv(");
        text_add_json(out, d->validation.path);
        text_add(out, ", dtype=str)\ntable = pandas.concat([table, other], ignore_index=True)\n");
    }
    text_add(out, "x = np.concatenate([");
    for (size_t i = 0; i < p->count; i++) {
        if (p->items[i].type == COLUMN_TEXT) return refuse("dataset.columns with texts");
        text_add(out, i ? ",\n                    " : "");
        add_column(&p->items[i], out);
    }
    text_add(out, "], 1)\n");
    bool has_labels = dataset_labels(s->plan->dataset).count > 0;
    text_printf(out, "y = columns([%stable[name]%s.to_numpy() for name in ", has_labels ? "" : "pandas.to_numeric(",
                has_labels ? "" : ")");
    add_columns(s, &d->targets, COLUMN_TARGET, NULL, out);
    text_add(out, "])\n");
    return OK;
}

static status check_augmentation(const struct script *s) {
    const struct augment_config *a = &s->config->dataset.augment;
    const struct scale_config *scale = &s->config->dataset.scale;
    const struct {
        bool is_given;
        const char *key;
    } keys[] = {
        {a->random_resized_crop.scale.count > 0, "dataset.augment.random_resized_crop"},
        {rotation_is_on(&a->rotation), "dataset.augment.rotation"},
        {color_jitter_is_on(&a->color_jitter), "dataset.augment.color_jitter"},
        {a->erasing.p > 0 && a->has_erasing, "dataset.augment.erasing"},
        {scale->type != SCALE_NONE || scale->mean.count > 0, "dataset.augment with dataset.scale"},
        {s->plan->info.target_size > 1, "dataset.augment with targets that are images"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].is_given) return refuse(keys[i].key);
    return OK;
}

/* x and y of a format that reads arrays. */
static status add_arrays(struct script *s, const struct dataset_format *format) {
    const struct dataset_config *d = &s->config->dataset;
    if (!format || !format->pytorch)
        return status_new(STATUS_USAGE, "dataset.format %s cannot be expressed in a PyTorch script",
                          format ? format->name : "");
    text_add(&s->data, "x, y = ");
    TRY(schema_fill(&dataset_schema, d, format->pytorch, data_place, s, &s->data));
    text_add(&s->data, "\n");
    if (d->validation.path) {
        const char *join = s->plan->info.input_kind == INPUT_TOKENS ? "torch.cat" : "np.concatenate";
        s->is_validation = true;
        text_add(&s->data, "count, (other_x, other_y) = len(x), ");
        TRY(schema_fill(&dataset_schema, d, format->pytorch, data_place, s, &s->data));
        text_printf(&s->data, "\nx, y = %s([x, other_x]), %s([y, other_y])\n", join, join);
    }
    return OK;
}

static status write_data(struct script *s) {
    const struct dataset_config *d = &s->config->dataset;
    const struct dataset_format *format = dataset_format_of(d, d->path);
    const struct preparation *preparation = dataset_preparation(s->plan->dataset);
    if (dataset_augments(s->plan->dataset)) TRY(check_augmentation(s));
    if (s->plan->objective && dataset_labels(s->plan->dataset).count) return refuse("losses of classes that are texts");
    if (preparation)
        TRY(add_prepared(s, preparation));
    else
        TRY(add_arrays(s, format));
    if (dataset_labels(s->plan->dataset).count)
        text_add(&s->data, "labels, y = np.unique(y, return_inverse=True)  # classes in alphabetical order\n");
    add_split(s);
    add_scale(s);
    add_target_scale(s);
    add_windows(s);
    add_tensors(s);
    return OK;
}

/* ---- the model: an expression for each tensor ---- */

struct call {
    struct script *s;
    const struct layer *layer;
    const struct graph_node *node;
    const char **inputs; /* expressions */
    const struct shape *in;
    size_t out_start; /* of the template in the text */
};

static void add_lengths(struct text *out, size_t number) {
    if (number)
        text_printf(out, "lengths%zu", number);
    else
        text_add(out, "None");
}

static bool layer_place(void *context, const char *name, struct text *out) {
    const struct call *c = context;
    const struct layer *l = c->layer;
    const struct params *params = &c->s->model->params;
    const int64_t *first = l->param_count ? params->items[l->first_param].shape : (int64_t[]){0, 0};
    struct layer_facts facts = layer_facts_of(l);
    if (strcmp(name, "x") == 0) {
        text_add(out, c->inputs[0]);
    } else if (strcmp(name, "x1") == 0) {
        text_add(out, c->inputs[1]);
    } else if (strcmp(name, "xs") == 0) {
        for (size_t i = 0; i < c->node->in_count; i++) text_printf(out, "%s%s", i ? ", " : "", c->inputs[i]);
    } else if (strcmp(name, "in") == 0) {
        text_printf(out, "%lld", (long long)c->in->size[c->in->dims - 1]);
    } else if (strcmp(name, "channels") == 0) {
        text_printf(out, "%lld", (long long)c->in->size[0]);
    } else if (strcmp(name, "first") == 0) {
        const struct model_input *input = l->config;
        text_printf(out, "%zu:%zu", input->first, input->first + l->out_size);
    } else if (strcmp(name, "d") == 0) {
        text_printf(out, "%d", c->in->dims < 3 ? 1 : c->in->dims - 1);
    } else if (strcmp(name, "rows") == 0) {
        text_printf(out, "%lld", (long long)first[0]);
    } else if (strcmp(name, "columns") == 0) {
        text_printf(out, "%lld", (long long)first[1]);
    } else if (strcmp(name, "number") == 0) {
        text_printf(out, "%u", l->stream);
    } else if (strcmp(name, "stream") == 0) {
        if (strstr(text_string(out) + c->out_start, "dropout=")) text_printf(out, ", stream=%u", l->stream);
    } else if (strcmp(name, "shape") == 0) {
        add_sizes(out, &l->out, 0);
    } else if (strcmp(name, "lengths") == 0) {
        add_lengths(out, facts.lengths);
    } else {
        return false;
    }
    return true;
}

/* The type whose template a layer has: its own or, of a part of another one, that one's. */
static const struct layer_type *type_of(const struct layer *layer) {
    return layer->type->pytorch || !layer->entry ? layer->type : layer->entry;
}

/* A part of a layer whose last part is the whole in PyTorch, or a change of the memory's order. */
static bool passes_on(const struct layer *layer) {
    const char *template = layer->type->pytorch;
    return template ? strcmp(template, "{x}") == 0 && !layer->type->pytorch_lengths : strchr(layer->name, '/') != NULL;
}

#define IGNORED_BY_DEFAULT (-100)            /* ignore_index: no class */
#define VARIABLES "xabcdefghjklnopqrstuvwyz" /* not i and m, which a script uses */

/* How tensors are named while the nodes are written. */
struct naming {
    struct script *s;
    size_t *origin;    /* (tensor_count) the tensor whose value it is, apart from its shape */
    size_t *last_read; /* (tensor_count) of an origin: the node; SIZE_MAX: the result */
    size_t holds[sizeof VARIABLES];
    const char **value; /* (tensor_count) of an origin: a variable */
    struct text modules, forward;
};

/* Whether its memory is in the order of its dimensions: not that of channels last. */
static bool is_row_major(const struct shape *shape) {
    size_t channels = (size_t)shape->size[0];
    return !shape->is_channels_last || shape->dims < 2 || channels == 1 || channels == shape_elements(shape);
}

/* Whether its values are those of its memory's tensor, without a change of the shape. */
static bool is_as_stored(const struct model *m, size_t tensor) {
    const struct shape *a = &m->tensors[tensor].shape, *b = &m->tensors[model_root(m, tensor)].shape;
    return m->tensors[tensor].scores || (shape_is_equal(a, b) && is_row_major(a) == is_row_major(b));
}

static void find_origins(struct naming *n) {
    const struct model *m = n->s->model;
    for (size_t t = 0; t < m->tensor_count; t++) n->origin[t] = model_root(m, t);
    for (size_t i = 0; i < m->node_count; i++) {
        const struct graph_node *node = &m->nodes[i];
        if (node->layer && passes_on(node->layer) && !node->layer->has_relu && is_as_stored(m, node->in[0]))
            n->origin[node->out] = n->origin[node->in[0]];
        for (size_t t = 0; t < m->tensor_count; t++) /* views of it */
            if (t != node->out && model_root(m, t) == node->out) n->origin[t] = n->origin[node->out];
    }
    for (size_t i = 0; i < m->node_count; i++)
        for (size_t k = 0; k < m->nodes[i].in_count; k++) n->last_read[n->origin[m->nodes[i].in[k]]] = i;
    n->last_read[n->origin[m->output]] = SIZE_MAX;
    for (size_t i = 0; i < m->output_count; i++) n->last_read[n->origin[m->outputs[i].tensor]] = SIZE_MAX;
}

/* A variable for the output of node [i]: the first that holds nothing which a later node reads. */
static const char *choose(struct naming *n, size_t i) {
    const char *names = VARIABLES;
    for (size_t v = 0; names[v]; v++) {
        if (n->holds[v] != NO_TENSOR && n->last_read[n->holds[v]] > i) continue;
        n->holds[v] = n->s->model->nodes[i].out;
        return arena_printf(n->s->arena, "%c", names[v]);
    }
    return NULL;
}

/* The shape of an input of a layer; if a part of this layer computes it, that of the part's input. */
static const struct shape *input_shape(const struct naming *n, size_t tensor) {
    const struct model *m = n->s->model;
    for (size_t i = 0; i < m->node_count; i++)
        if (m->nodes[i].out == tensor && m->nodes[i].layer && strchr(m->nodes[i].layer->name, '/') &&
            passes_on(m->nodes[i].layer))
            return &m->tensors[m->nodes[i].in[0]].shape;
    return &m->tensors[tensor].shape;
}

/* The expression of a tensor: a variable, or a view of the memory of one with another shape. */
static const char *expression(const struct naming *n, size_t tensor) {
    const struct model *m = n->s->model;
    const struct planned_tensor *t = &m->tensors[tensor];
    const struct shape *to = &t->shape, *from = &m->tensors[model_root(m, tensor)].shape;
    const char *name = n->value[n->origin[tensor]];
    if (t->alias == NO_TENSOR || is_as_stored(m, tensor)) return name;
    if (to->dims == 1 && is_row_major(from)) return arena_printf(n->s->arena, "%s.flatten(1)", name);
    struct text out = {0};
    text_printf(&out, "%s%s.reshape(len(%s), ", name, is_row_major(from) ? "" : ".movedim(1, -1)", name);
    add_sizes(&out, to, is_row_major(to) ? 0 : 1);
    if (!is_row_major(to)) text_printf(&out, ", %lld", (long long)to->size[0]);
    text_add(&out, is_row_major(to) ? ")" : ").movedim(-1, 1)");
    const char *copy = arena_copy(n->s->arena, text_string(&out));
    text_free(&out);
    return copy;
}

/* The module that has the parameters of a layer: that of the layer with which it shares them. */
static const char *module_of(const struct naming *n, const struct layer *layer) {
    const struct model *m = n->s->model;
    for (size_t i = 0; layer->is_sharing && layer->param_count && i < m->layer_count; i++)
        if (m->layers[i].param_count && m->layers[i].first_param == layer->first_param) return m->layers[i].name;
    return layer->name;
}

/* The line that uses the weight of another layer. */
static void add_tie(struct naming *n, const struct layer *layer) {
    const char *tied = n->s->model->params.items[layer->tied].name, *dot = strrchr(tied, '.');
    if (!layer->tied_count) return;
    text_printf(&n->modules, "        self.get_submodule(\"%s\").weight = self.get_submodule(\"%.*s\").%s\n",
                layer->name, (int)(dot - tied), tied, dot + 1);
}

static status add_layer(struct naming *n, size_t i, const char **inputs) {
    const struct graph_node *node = &n->s->model->nodes[i];
    const struct layer *layer = node->layer;
    const struct layer_type *type = type_of(layer);
    struct layer_facts facts = layer_facts_of(layer);
    struct call call = {n->s, layer, node, inputs, input_shape(n, node->in[0]), 0};
    const char *template = facts.lengths && type->pytorch_with_lengths ? type->pytorch_with_lengths : type->pytorch;
    if (passes_on(layer)) template = "{x}";
    struct text code = {0};
    if (strpbrk(layer->name, "\"\\{}\n")) return refuse("a name with a quote, a backslash or a brace");
    if (!template)
        return status_new(STATUS_USAGE, "%s: %s cannot be expressed in a PyTorch script", place_text(layer->place).s,
                          layer->path);
    status s = status_prefix(schema_fill(type->variant.schema, layer->config, template, layer_place, &call, &code),
                             "%s: %s", place_text(layer->place).s, layer->path);
    if (!s && layer->out.lengths && layer->out.lengths != layer->in.lengths && type->pytorch_lengths) {
        text_printf(&n->forward, "        lengths%zu = ", layer->out.lengths);
        s = schema_fill(type->variant.schema, layer->config, type->pytorch_lengths, layer_place, &call, &n->forward);
        text_add(&n->forward, "\n");
    }
    bool is_module = !strstr(template, "{x");
    const char *tokens = facts.reads_tokens && !layer->in.is_tokens ? ".long()" : "";
    if (!s && is_module && !layer->is_sharing) {
        text_printf(&n->modules, "        put(self, \"%s\", %s)\n", layer->name, text_string(&code));
        add_tie(n, layer);
    }
    const char *name = choose(n, i);
    if (!s && !name) s = refuse("a model with so many branches");
    if (!s) n->value[node->out] = name;
    if (!s && is_module) {
        text_printf(&n->forward, "        %s = m(\"%s\")(", name, module_of(n, layer));
        for (size_t k = 0; k < node->in_count; k++)
            text_printf(&n->forward, "%s%s%s", k ? ", " : "", inputs[k], tokens);
        if (facts.lengths && !type->pytorch_with_lengths) text_printf(&n->forward, ", lengths%zu", facts.lengths);
        text_add(&n->forward, ")\n");
    } else if (!s && strcmp(text_string(&code), name) != 0) {
        text_printf(&n->forward, "        %s = %s\n", name, text_string(&code));
    }
    if (!s && layer->has_relu) text_printf(&n->forward, "        %s = F.relu(%s)\n", name, name);
    text_free(&code);
    return s;
}

static status add_node(struct naming *n, size_t i) {
    const struct graph_node *node = &n->s->model->nodes[i];
    const char **inputs = arena_alloc(n->s->arena, node->in_count * sizeof *inputs);
    for (size_t k = 0; k < node->in_count; k++) inputs[k] = expression(n, node->in[k]);
    if (node->layer && n->origin[node->out] != node->out) return OK;
    if (node->layer) return add_layer(n, i, inputs);
    const char *name = choose(n, i);
    if (!name) return refuse("a model with so many branches");
    n->value[node->out] = name;
    text_printf(&n->forward, node->has_relu ? "        %s = F.relu(%s + %s)\n" : "        %s = %s + %s\n", name,
                inputs[0], inputs[1]);
    return OK;
}

/* ---- the same as nn.Sequential, for a list of modules whose names are its indices ---- */

struct chain {
    struct text out;
    size_t count;
};

static void add_item(struct chain *chain, const char *code) {
    text_printf(&chain->out, "    %s,\n", code);
    chain->count++;
}

/* Flatten between two layers. */
static bool add_view(const struct script *s, size_t tensor, struct chain *chain) {
    const struct planned_tensor *t = &s->model->tensors[tensor];
    if (t->alias == NO_TENSOR || t->scores ||
        shape_is_equal(&t->shape, &s->model->tensors[model_root(s->model, tensor)].shape))
        return true;
    if (t->shape.dims == 1) add_item(chain, "nn.Flatten()");
    return t->shape.dims == 1;
}

static bool add_chain_node(struct naming *n, size_t i, struct chain *chain) {
    const struct graph_node *node = &n->s->model->nodes[i];
    const struct layer *layer = node->layer;
    if (!layer || node->in_count != 1) return false;
    if (passes_on(layer)) return true;
    const struct layer_type *type = type_of(layer);
    struct call call = {n->s, layer, node, (const char *[]){"x"}, input_shape(n, node->in[0]), 0};
    struct text code = {0};
    bool fits = type->pytorch && !strstr(type->pytorch, "{x") && !layer->is_sharing && !layer->tied_count &&
                !layer_facts_of(layer).lengths && !layer->out.lengths && !layer_facts_of(layer).reads_tokens &&
                add_view(n->s, node->in[0], chain);
    if (fits && layer->has_relu && type->relu == RELU_BEFORE) add_item(chain, "nn.ReLU()");
    status s = fits ? schema_fill(type->variant.schema, layer->config, type->pytorch, layer_place, &call, &code) : OK;
    fits = fits && !s && strcmp(layer->name, arena_printf(n->s->arena, "%zu", chain->count)) == 0;
    status_free(s);
    if (fits) add_item(chain, text_string(&code));
    if (fits && layer->has_relu && type->relu != RELU_BEFORE) add_item(chain, "nn.ReLU()");
    text_free(&code);
    return fits;
}

static bool write_chain(struct naming *n) {
    const struct model *m = n->s->model;
    struct chain chain = {0};
    bool fits = true;
    for (size_t i = 0; fits && i < m->node_count; i++)
        fits = n->origin[m->nodes[i].in[0]] == (i ? n->origin[m->nodes[i - 1].out] : 0) && add_chain_node(n, i, &chain);
    fits = fits && add_view(n->s, m->output, &chain);
    if (fits) text_printf(&n->s->network, "model = nn.Sequential(\n%s)\n", text_string(&chain.out));
    text_free(&chain.out);
    return fits;
}

/* ---- repeated lines as a loop ---- */

/* Blocks of lines that differ only in a number of their names, which counts up ("h.0.ln", "h.1.ln"), and in numbers of
 * random streams, which are a distance apart. */
struct loop {
    size_t first, period, count; /* lines first .. first + period * count - 1 */
    long start;                  /* the number in the first block; -1: not known yet */
    long distance;               /* of streams */
};

static bool ends_with(const char *begin, const char *end, const char *word) {
    size_t length = strlen(word);
    return (size_t)(end - begin) >= length && strncmp(end - length, word, length) == 0;
}

/* Whether [line] is that of [first], [t] blocks later; adds the line of the loop to [out], which may be NULL. */
static bool is_repeated(const char *first, const char *line, long t, struct loop *loop, struct text *out) {
    const char *a = first, *b = line, *quote = NULL;
    size_t quoted = 0; /* where the string began in [out] */
    for (; *a; a++, b++) {
        if (*a == '"') quote = quote ? NULL : a;
        if (*a == '"' && quote && out) quoted = out->length;
        if (*a < '0' || *a > '9' || *b < '0' || *b > '9' || (a > first && a[-1] >= '0' && a[-1] <= '9')) {
            if (*a != *b) return false;
            if (out) text_add_bytes(out, a, 1);
            continue;
        }
        char *end, *other;
        long x = strtol(a, &end, 10), y = strtol(b, &other, 10);
        bool is_index = quote && (a[-1] == '"' || a[-1] == '.') && (*end == '"' || *end == '.');
        bool is_stream = ends_with(first, a, "stream=");
        if (x != y && is_index && y == x + t && (loop->start < 0 || loop->start == x)) {
            loop->start = x;
            struct text before = {0};
            if (out) text_printf(&before, "f%s{i}", out->data + quoted);
            if (out) out->length = quoted, text_add(out, text_string(&before));
            text_free(&before);
        } else if (x != y && is_stream && (y - x) % t == 0 && (!loop->distance || loop->distance == (y - x) / t)) {
            loop->distance = (y - x) / t;
            if (out) text_printf(out, "%ld + %ld * i", x - loop->distance * loop->start, loop->distance);
        } else if (x == y) {
            if (out) text_add_bytes(out, a, (size_t)(end - a));
        } else {
            return false;
        }
        a = end - 1;
        b = other - 1;
    }
    return !*b;
}

/* How often the block of [period] lines from [first] on is there. */
static struct loop measure_loop(char *const *lines, size_t count, size_t first, size_t period) {
    struct loop loop = {first, period, 1, -1, 0};
    for (; first + period * (loop.count + 1) <= count; loop.count++)
        for (size_t k = 0; k < period; k++)
            if (!is_repeated(lines[first + k], lines[first + period * loop.count + k], (long)loop.count, &loop, NULL))
                return loop;
    return loop;
}

/* Adds the lines of [text], those of a loop once. */
static void add_folded(struct arena *arena, const struct text *text, struct text *out) {
    size_t count = 0;
    const char *all = text_string(text);
    char **lines = arena_alloc(arena, (text->length + 1) * sizeof *lines);
    for (const char *end; (end = strchr(all, '\n')); all = end + 1)
        lines[count++] = arena_printf(arena, "%.*s", (int)(end - all), all);
    for (size_t i = 0; i < count;) {
        struct loop best = {i, 1, 1, -1, 0};
        for (size_t period = 1; i + 2 * period <= count; period++) {
            struct loop loop = measure_loop(lines, count, i, period);
            if (loop.count > 1 && loop.start >= 0 && loop.count * period > best.count * best.period) best = loop;
        }
        if (best.count > 1 && best.start == 0)
            text_printf(out, "        for i in range(%zu):\n", best.count);
        else if (best.count > 1)
            text_printf(out, "        for i in range(%ld, %ld):\n", best.start, best.start + (long)best.count);
        for (size_t k = 0; k < best.period; k++) {
            text_add(out, best.count > 1 ? "    " : "");
            if (best.count == 1 || !is_repeated(lines[i + k], lines[i + best.period + k], 1, &best, out))
                text_add(out, lines[i + k]);
            text_add(out, "\n");
        }
        i += best.count * best.period;
    }
}

static status write_class(struct naming *n) {
    const struct model *m = n->s->model;
    n->value[0] = "x";
    for (size_t v = 0; v < sizeof n->holds / sizeof *n->holds; v++) n->holds[v] = NO_TENSOR;
    n->holds[0] = 0;
    status s = OK;
    for (size_t i = 0; !s && i < m->node_count; i++) s = add_node(n, i);
    if (s) return s;
    struct text *out = &n->s->network;
    text_add(out, "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n");
    add_folded(n->s->arena, &n->modules, out);
    text_add(out, "\n    def forward(self, x):\n        m = self.get_submodule\n");
    add_folded(n->s->arena, &n->forward, out);
    text_add(out, "        return ");
    if (m->output_count == 0) text_add(&n->s->network, expression(n, m->output));
    if (output_lengths(n->s)) text_printf(&n->s->network, ", lengths%zu", output_lengths(n->s));
    for (size_t i = 0; i < m->output_count; i++)
        text_printf(&n->s->network, "%s%s", i ? ", " : "", expression(n, m->outputs[i].tensor));
    text_add(&n->s->network, m->output_count == 1 ? ",\n\n\n" : "\n\n\n");
    return OK;
}

static void add_freeze(struct script *s) {
    const struct string_list *patterns = &s->config->model.freeze;
    if (!patterns->count) return;
    text_add(&s->network, "for name, p in model.named_parameters():\n    p.requires_grad_(not any(fnmatch.fnmatchcase("
                          "name, pattern) for pattern in ");
    add_names(&s->network, patterns, "");
    text_add(&s->network, "))\n");
}

static status write_network(struct script *s) {
    size_t count = s->model->tensor_count;
    struct naming n = {.s = s,
                       .origin = arena_alloc(s->arena, count * sizeof *n.origin),
                       .last_read = arena_alloc(s->arena, count * sizeof *n.last_read),
                       .value = arena_alloc(s->arena, count * sizeof *n.value)};
    struct text *out = &s->network;
    find_origins(&n);
    text_printf(out, "torch.manual_seed(%lld)\n", (long long)s->config->seed);
    status failure = OK;
    if (s->model->output_count || !write_chain(&n)) {
        text_clear(out);
        failure = write_class(&n);
        text_printf(out, "torch.manual_seed(%lld)\nmodel = Model()\n", (long long)s->config->seed);
    }
    if (!failure) failure = init_rules_write_pytorch(s->model, &s->config->model.init, out);
    text_add(out, "model.to(dtype)\n");
    add_freeze(s);
    text_free(&n.modules);
    text_free(&n.forward);
    return failure;
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
    const struct shape *y = shape_of(term->s, term->output);
    bool is_one = term->loss->wants_classes && t->size == 1;
    text_printf(out, is_one ? "t[:, %zu]" : "t[:, %zu:%zu]", t->first, t->first + t->size);
    if (!is_one && !term->loss->parts) {
        bool classes_first = term->loss->wants_classes && !has_classes_last(term->s, term->loss, term->output);
        struct shape of = *y;
        if (term->loss->wants_classes && !classes_first) of.dims--;
        text_add(out, ".reshape(len(t), ");
        add_sizes(out, &of, classes_first);
        text_add(out, ")");
    }
    if (term->loss->wants_classes) text_add(out, ".long()");
}

static bool loss_place(void *context, const char *name, struct text *out) {
    const struct term *term = context;
    if (strcmp(name, "y") == 0) {
        text_add(out, "y");
        if (term->of) text_printf(out, "[%zu]", term->index);
        if (has_classes_last(term->s, term->loss, term->output)) text_add(out, ".transpose(1, 2)");
    } else if (strcmp(name, "t") == 0) {
        if (term->of)
            add_term_targets(term, out);
        else
            text_add(out, "t");
    } else if (strcmp(name, "weight") == 0) {
        const struct real_list *weights = term->loss->class_weight((void *)(uintptr_t)term->config);
        if (!weights->count) return true;
        text_add(out, term->of ? ", torch.tensor([" : ", class_weights");
        if (term->of) add_numbers(out, weights), text_add(out, "], dtype=dtype)");
    } else {
        return false;
    }
    return true;
}

static status add_term(struct term *term, struct text *out) {
    const struct loss_type *loss = term->loss;
    if (!loss->pytorch)
        return status_new(STATUS_USAGE, "loss %s cannot be expressed in a PyTorch script", loss->variant.name);
    if (term->of && term->s->model->tensors[term->output].shape.lengths)
        return refuse("losses of rows of different lengths");
    return schema_fill(loss->variant.schema, term->config, loss->pytorch, loss_place, term, out);
}

/* What a batch counts for in means, if not its rows, as an expression of outputs y and targets t; NULL: its rows. */
static const char *count_of(const struct script *s) {
    const struct plan *p = s->plan;
    void *config = p->balanced ? p->balanced : (void *)(uintptr_t)p->loss_config;
    if (p->objective) return NULL;
    if (output_lengths(s)) return "y[1].sum().item()";
    if (p->loss->class_weight && p->loss->class_weight(config)->count) return "class_weights[t].sum().item()";
    if (p->loss->ignored && p->loss->ignored(config) != IGNORED_BY_DEFAULT)
        return arena_printf(s->arena, "(t != %lld).sum().item()", (long long)p->loss->ignored(config));
    return NULL;
}

static void add_counts(struct script *s) {
    const struct plan *p = s->plan;
    void *config = p->balanced ? p->balanced : (void *)(uintptr_t)p->loss_config;
    if (!p->objective && p->loss->class_weight && p->loss->class_weight(config)->count) {
        text_add(&s->training, "class_weights = torch.tensor([");
        add_numbers(&s->training, p->loss->class_weight(config));
        text_add(&s->training, "], dtype=dtype)\n\n\n");
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
    if (output_lengths(s))
        text_add(out,
                 "    y, lengths = y\n    real = real_positions(y.shape[1], lengths)\n    y, t = y[real], t[real]\n");
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

/* Loss and, of classes, accuracy over rows; each batch counts by its rows, or by its real positions. */
static void add_evaluation(struct script *s) {
    bool has_classes = !s->plan->objective && s->plan->loss->wants_classes && !output_lengths(s);
    bool are_last = has_classes_last(s, s->plan->loss, s->model->output);
    struct text *out = &s->training;
    text_printf(out,
                "@torch.no_grad()\ndef evaluate(model, rows):\n    model.eval()\n    sums, count = np.zeros(%d), 0\n",
                has_classes ? 2 : 1);
    text_printf(out,
                "    for part in torch.as_tensor(rows).split(batch):\n"
                "        outputs, t = model(x[part]), y[part]\n"
                "        n = %s\n"
                "        count += n\n"
                "        sums += n * np.array([loss_of(outputs, t).item()",
                count_of(s) ? "count_of(outputs, t)" : "len(part)");
    if (has_classes) text_printf(out, ", (outputs.argmax(%d) == t).double().mean()", are_last ? 2 : 1);
    text_printf(out, "])\n    model.train()\n    means = sums / count\n    return f\"loss {means[0]:.9g}%s\"\n\n\n",
                has_classes ? " accuracy {means[1]:.2%}" : "");
}

static void add_real(struct text *out, const char *before, double value, const char *after) {
    text_add(out, before);
    text_add_double(out, value);
    text_add(out, after);
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
        text_printf(out, "sampler = BalancedSampler(y[torch.as_tensor(train)], world, rank, seed=%lld%s)\n",
                    (long long)c->seed, c->drop_last ? ", drop_last=True" : "");
    else if (is_indices(s)) {
        text_add(out, "sampler = IndexSampler(");
        text_add_json(out, c->path);
        text_printf(out, ", world, rank%s)\n", c->drop_last ? ", drop_last=True" : "");
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
    if (is_dataloader(s))
        text_add(out, "    batches = [torch.as_tensor(train[part]) for part in loader]\n");
    else
        text_add(out, "    sampler.set_epoch(epoch)\n"
                      "    batches = torch.as_tensor(train[list(sampler)]).split(batch)\n");
    if (s->config->sampler.drop_last_batch)
        text_add(out, "    batches = [rows for rows in batches if len(rows) == batch]\n");
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

/* Random changes of the images of a batch; [rows] are positions in the training rows before. */
static void add_augmentation(struct script *s, const char *indent) {
    const struct augment_config *a = &s->config->dataset.augment;
    text_printf(&s->training,
                "%spositions, rows = rows, torch.as_tensor(train)[rows]\n"
                "%simages = augmented(x[rows], positions, epoch, seed=%lld, padding=%lld, flips=(",
                indent, indent, (long long)a->seed, (long long)a->random_crop.padding);
    text_add_double(&s->training, a->horizontal_flip);
    text_add(&s->training, ", ");
    text_add_double(&s->training, a->vertical_flip);
    text_add(&s->training, "))\n");
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
    if (dataset_augments(s->plan->dataset)) add_augmentation(s, indent);
    const char *inputs = dataset_augments(s->plan->dataset) ? "images" : "x[rows]";
    text_printf(out,
                count_of(s) ? "%soutputs, t = parallel(%s), y[rows]\n" : "%sloss = loss_of(parallel(%s), y[rows])\n",
                indent, inputs);
    if (count_of(s)) text_printf(out, "%sloss, n = loss_of(outputs, t), count_of(outputs, t)\n", indent);
    text_printf(out, accumulate > 1 ? "%s(loss / %lld).backward()\n" : "%sloss.backward()\n", indent, accumulate);
    if (has_draws) text_printf(out, "%sdraws.number += 1\n", indent);
    const char *count = count_of(s) ? "n" : "len(rows)";
    text_printf(out, "%sown %s torch.tensor([loss.item() * %s, %s], dtype=torch.float64)\n", indent,
                accumulate > 1 ? "+=" : "=", count, count);
}

static void add_update(struct script *s) {
    const struct train_config *t = &s->config->train;
    struct text *out = &s->training;
    if (t->clip_grad_norm > 0)
        add_real(out, "        torch.nn.utils.clip_grad_norm_(model.parameters(), ", t->clip_grad_norm, ")\n");
    if (t->clip_grad_value > 0)
        add_real(out, "        torch.nn.utils.clip_grad_value_(model.parameters(), ", t->clip_grad_value, ")\n");
    if (strcmp(s->config->schedule.name, "constant") != 0) add_rates(s);
    text_add(out, "        optimizer.step()\n        step += 1\n");
    if (t->ema.decay > 0)
        add_real(out,
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

/* What rank 0 prints after an epoch. */
static void add_report(struct script *s) {
    const struct train_config *t = &s->config->train;
    struct text *out = &s->training;
    text_add(out, "    if rank == 0:\n"
                  "        print(f\"epoch {epoch + 1}/{epochs}  train loss {sums[0] / sums[1]:.9g}\")\n");
    if (s->plan->info.validation_rows == 0) return;
    if (t->evaluate_every == 0)
        text_add(out, "    if rank == 0 and step == steps:\n");
    else if (t->evaluate_every > 1)
        text_printf(out, "    if rank == 0 and ((epoch + 1) %% %lld == 0 or step == steps):\n",
                    (long long)t->evaluate_every);
    if (ema_is_used(&t->ema))
        text_add(out, "        for a, b in zip(average.buffers(), model.buffers()):\n            a.copy_(b)\n");
    text_printf(out, "        print(\"validation \" + evaluate(%s, validation))\n",
                ema_is_used(&t->ema) ? "average" : "model");
}

static status write_training(struct script *s) {
    const struct config *c = s->config;
    struct text *out = &s->training;
    bool has_schedule = strcmp(c->schedule.name, "constant") != 0;
    TRY(add_loss(s));
    if (s->plan->info.validation_rows > 0) add_evaluation(s);
    if (has_schedule) {
        TRY(schedule_write_pytorch(&c->schedule, "learning_rate", false, out));
        text_add(out, "\n\n");
    }
    if (schedule_changes_momentum(&c->schedule)) {
        TRY(schedule_write_pytorch(&c->schedule, "momentum", true, out));
        text_add(out, "\n\n");
    }
    TRY(optimizer_write_pytorch(&c->optimizer, out));
    if (has_schedule) text_add(out, "rates = [group[\"lr\"] for group in optimizer.param_groups]\n");
    add_sampler(s);
    if (c->train.ema.decay > 0) text_add(out, "average = copy.deepcopy(model)\n");
    if (strstr(text_string(&s->network), "stream=")) text_printf(out, "draws.seed = %lld\n", (long long)c->seed);
    text_add(out, "parallel = DistributedDataParallel(model) if world > 1 else model\n"
                  "step = 0\n"
                  "for epoch in range(epochs):\n");
    add_order(s);
    text_add(out, "    sums = torch.zeros(2, dtype=torch.float64)  # of the losses of rows, and their number\n");
    add_passes(s);
    add_update(s);
    add_report(s);
    text_add(out, "if rank == 0:\n");
    if (s->plan->info.test_rows) text_add(out, "    print(\"test \" + evaluate(model, test))\n");
    text_add(out, "    torch.save(model.state_dict(), ");
    text_add_json(out, arena_printf(s->arena, "%s.pt", c->name));
    text_add(out, ")\n");
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
        {"copy.", "import copy"},
        {"fnmatch.", "import fnmatch"},
        {"gzip.", "import gzip"},
        {"math.", "import math"},
        {"os.", "import os"},
        {"", ""},
        {"h5py.", "import h5py"},
        {"np.", "import numpy as np"},
        {"pandas.", "import pandas"},
        {"torch.", "import torch"},
        {"dist.", "import torch.distributed as dist"},
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

static void write_script(struct script *s, struct text *out) {
    struct text body = {0}, pieces = {0};
    text_printf(&body,
                "\n\ndtype = torch.float32  # with torch.float64 the same run with less rounding\n"
                "rank, world = int(os.environ.get(\"RANK\", 0)), int(os.environ.get(\"WORLD_SIZE\", 1))\n"
                "if world > 1:\n    dist.init_process_group(\"gloo\")\n\n# ---- data ----\n\n%s\n# ---- model "
                "----\n\n%s\n# ---- training "
                "----\n\n%s",
                text_string(&s->data), text_string(&s->network), text_string(&s->training));
    add_pieces(s->arena, text_string(&body), &pieces);
    struct text all = {0};
    text_printf(&all, "%s\n%s", text_string(&pieces), text_string(&body));
    struct text source = {0};
    text_add_value(&source, s->source, TEXT_MAX_LINE);
    text_printf(
        out,
        "# The training of %s in PyTorch, written by `ddptrain export`: the same rows, initial weights and updates.\n"
        "#\n#     python3 train.py\n#     torchrun --standalone --nproc_per_node=2 train.py\n\n",
        text_string(&source));
    text_free(&source);
    add_imports(text_string(&all), out);
    text_printf(out, "%s%s", text_string(&pieces), text_string(&body));
    text_free(&all);
    text_free(&body);
    text_free(&pieces);
}

static status write_script_file(const struct config *config, const char *source, const char *path, struct log *log) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    const struct plan_options options = {.purpose = PLAN_CHECK, .reads_all = true, .env = &alone};
    struct plan *plan = NULL;
    struct script s = {.source = source, .config = config, .arena = arena_create()};
    struct text out = {0};
    status failure = check_config(config);
    if (!failure) failure = plan_create(config, &options, &plan);
    s.plan = plan;
    s.model = plan ? plan->model : NULL;
    if (!failure) failure = write_data(&s);
    if (!failure) failure = write_network(&s);
    if (!failure) failure = write_training(&s);
    if (!failure) {
        write_script(&s, &out);
        struct io_part part = {out.data, out.length};
        failure = io_replace(path, &part, 1);
    }
    if (!failure) log_line(log, "%s: a PyTorch script; the run begins with the initial weights of the config", path);
    text_free(&out);
    text_free(&s.data);
    text_free(&s.network);
    text_free(&s.training);
    plan_destroy(plan);
    arena_destroy(s.arena);
    return failure;
}

const struct export_format export_pytorch = {
    .name = "pytorch", .extension = ".py", .write_training = write_script_file};
