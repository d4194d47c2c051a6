/* The data of a PyTorch script: x and y of the files, split and scaled as in the run, and batches of images. */
#include <math.h>
#include <string.h>

#include "base/expression/expression.h"
#include "base/files/archive.h"
#include "base/scoped.h"
#include "data/csv/csv.h"
#include "data/dataset/dataset.h"
#include "data/files/files.h"
#include "data/sampling/split.h"
#include "data/source/row_filter.h"
#include "export/pytorch.h"
#include "model/objective.h"

/* The names of the config, else those of the columns of a table, else [fallback]. */
static void add_columns(const struct script *s, const struct string_list *names, enum column_role role,
                        const char *fallback, struct text *out) {
    struct column_list columns = dataset_columns(s->plan->dataset);
    const char **found = arena_alloc(s->arena, (columns.count + 1) * sizeof *found);
    size_t count = 0;
    for (size_t i = 0; i < columns.count; i++)
        if (columns.items[i].role == role) found[count++] = columns.items[i].name;
    static const char *const tables[] = {"csv", "sqlite", "images"};
    bool is_table = false;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        is_table = is_table || (columns.format && strcmp(columns.format, tables[i]) == 0);
    script_add_names(out, names->count || !is_table ? names : &(struct string_list){found, count}, fallback);
}

/* Whether the file has targets: not, if all are inputs. */
static bool reads_targets(const struct script *s) {
    const struct dataset_info *info = &s->plan->info;
    bool reads = !s->plan->objective || dataset_drawing(s->plan->dataset).members;
    for (size_t i = 0; i < info->target_count; i++) reads = reads || !info->targets[i].is_input;
    return reads;
}

/* Whether the classes of the rows are texts. */
static bool has_texts(const struct script *s) {
    return dataset_labels(s->plan->dataset).count || dataset_drawing(s->plan->dataset).has_texts;
}

/* The file, or a list of files: those that patterns match now. */
static void add_paths(const struct script *s, struct text *out) {
    const struct string_list *files = &s->files[s->is_validation];
    if (files->count == 1)
        text_add_json(out, files->items[0]);
    else
        script_add_names(out, files, NULL);
}

/* Sets the files of the training and the validation rows, which are of formats that a script reads. */
static status find_files(struct script *s) {
    const struct dataset_config *d = &s->config->dataset;
    const char *paths[] = {d->path, d->validation.path};
    for (int i = 0; i < 2; i++) {
        if (!paths[i]) continue;
        const struct dataset_format *format = dataset_format_of(d, paths[i]);
        bool is_csv = strcmp(format->name, "csv") == 0;
        if (!format->pytorch)
            return status_usage("dataset.format %s cannot be expressed in a PyTorch script", format->name);
        TRY(file_list_expand(paths[i], dataset_others(d, i), s->arena, &s->files[i]));
        if (s->files[i].count > 1 && !is_csv) return script_refuse("several files that are not CSV files");
    }
    return OK;
}

/* The names of the files, and their targets or masks. */
static void add_files(const struct script *s, struct text *out) {
    const struct dataset_config *d = &s->config->dataset;
    const struct validation_config *v = &d->validation;
    const struct image_config *c = &d->image;
    script_add_text(out,
                    c->labels  ? "image_table("
                    : c->masks ? "image_masks("
                               : "image_folder(",
                    s->is_validation ? v->path : d->path, ", ");
    if (c->labels) {
        script_add_text(out, "", s->is_validation ? v->targets : c->labels, ", ");
        script_add_text(out, "", c->column, ", ");
        add_columns(s, &d->targets, COLUMN_TARGET, NULL, out);
        text_add(out, has_texts(s) ? ", texts=True)" : ")");
    } else if (c->masks) {
        script_add_text(out, "", s->is_validation ? v->targets : c->masks, ")");
    } else {
        script_add_text(out, "image_classes(", d->path, "))");
    }
}

static status add_csv_options(const struct script *s, bool are_texts, struct text *out);

static void add_text(struct text *out, const char *key, const char *value) {
    text_printf(out, ", %s=", key);
    text_add_json(out, value);
}

/* What of a database is read. */
static void add_query(const struct script *s, struct text *out) {
    const struct dataset_config *d = &s->config->dataset;
    const char *query = s->is_validation && d->validation.query ? d->validation.query : d->query;
    if (query)
        add_text(out, "query", query);
    else if (d->table)
        add_text(out, "table", d->table);
}

static bool data_place(void *script, const char *name, struct text *out) {
    struct script *s = script;
    const struct dataset_config *d = &s->config->dataset;
    const struct synthetic_config *y = &d->synthetic;
    bool has_stride = d->tokens.stride != SCHEMA_NO_INT;
    if (strcmp(name, "path") == 0) {
        add_paths(s, out);
    } else if (strcmp(name, "inputs") == 0) {
        s->is_group ? text_add(out, "[]") : add_columns(s, &d->inputs, COLUMN_INPUT, "x", out);
    } else if (strcmp(name, "targets") == 0 && s->is_group) {
        script_add_names(out, &(struct string_list){(const char *[]){d->split.group}, 1}, NULL);
    } else if (strcmp(name, "query") == 0) {
        add_query(s, out);
        if (d->drops_missing_targets) text_add(out, ", drop=True");
        if (s->is_group || has_texts(s)) text_add(out, ", texts=True");
    } else if (strcmp(name, "csv") == 0) {
        if (d->filter) add_text(out, "filter", d->filter);
        if (d->drops_missing_targets) text_add(out, ", drop=True");
        s->failure = status_first(s->failure, add_csv_options(s, false, out));
    } else if (strcmp(name, "targets") == 0) {
        add_columns(s, &d->targets, COLUMN_TARGET, reads_targets(s) ? "y" : NULL, out);
    } else if (strcmp(name, "labels") == 0) {
        struct dataset_drawing drawing = dataset_drawing(s->plan->dataset);
        const char *own = drawing.members ? drawing.target_name : dataset_target_name(s->plan->dataset);
        script_add_text(out, "", s->is_validation ? d->validation.targets : own, "");
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
    } else if (strcmp(name, "images") == 0) {
        add_files(s, out);
    } else {
        return false;
    }
    return true;
}

static bool reads_files(const struct script *s) {
    const struct dataset_format *format = dataset_format_of(&s->config->dataset, s->config->dataset.path);
    return format && format->is_folder;
}

/* Whether a batch is scaled when it is used: images of files, and those that change. */
bool script_scales_batches(const struct script *s) { return reads_files(s) || dataset_augments(s->plan->dataset); }

/* ---- tables ---- */

/* A list of texts of read_csv: ", na_values=["?"]" */
static void add_texts(struct text *out, const char *key, const struct string_list *texts) {
    text_printf(out, ", %s=", key);
    script_add_names(out, texts, NULL);
}

/* '.' or ',': what the numbers of the file have, as in csv_decimal. */
static status find_decimal(struct csv_reader *reader, char *decimal) {
    bool has_record = true;
    double value;
    while (has_record && (*decimal == 0 || csv_is_undecided(*decimal))) {
        TRY(csv_next(reader, &has_record));
        for (size_t i = 0; has_record && i < reader->count; i++) csv_decimal(reader->fields[i].text, decimal, &value);
    }
    if (*decimal == 0 || csv_is_undecided(*decimal)) *decimal = '.';
    return OK;
}

/* What of the dialect pandas does not assume. [are_texts]: the table is read as texts. */
static status add_dialect(const struct csv_config *c, struct csv_reader *reader, bool are_texts, struct text *out) {
    static const char *const encodings[] = {NULL, NULL, "utf-16", "latin-1", "cp1252"};
    char decimal = csv_decimal_of(reader, c);
    size_t skipped = reader->comment ? 0 : reader->line - 1; /* comments above the header */
    if (decimal == 0) TRY(find_decimal(reader, &decimal));
    const char delimiter[] = {reader->delimiter, 0}, quote[] = {reader->quote, 0}, comment[] = {reader->comment, 0};
    if (*delimiter == CSV_BLANKS)
        text_add(out, ", sep=r\"\\s+\"");
    else if (*delimiter != ',')
        add_text(out, "sep", delimiter);
    if (!*quote) text_add(out, ", quoting=3");
    if (*quote && *quote != '"') add_text(out, "quotechar", quote);
    if (*comment) add_text(out, "comment", comment);
    if (skipped) text_printf(out, ", skiprows=%zu", skipped);
    if (encodings[c->encoding]) add_text(out, "encoding", encodings[c->encoding]);
    if (c->strip) return script_refuse("dataset.csv.strip");
    if (are_texts && (decimal != '.' || c->thousands))
        return script_refuse("dataset.columns of a file with a decimal comma or separators of thousands");
    if (decimal != '.') text_add(out, ", decimal=\",\"");
    if (c->thousands) add_text(out, "thousands", c->thousands);
    if (c->has_no_header) text_add(out, ", header=None");
    return OK;
}

/* The options of pandas.read_csv for the file [path]. */
static status add_csv_options(const struct script *s, bool are_texts, struct text *out) {
    const struct dataset_config *d = &s->config->dataset;
    const char *path = s->files[s->is_validation].items[0];
    SCOPED_BUFFER char *text = NULL;
    struct csv_reader reader;
    status failure = csv_open_first(path, &d->csv, &reader, &text);
    if (!failure && text && d->csv.encoding == CSV_ENCODING_AUTO)
        failure = script_refuse("a CSV file that is not UTF-8, without dataset.csv.encoding,");
    if (!failure) failure = add_dialect(&d->csv, &reader, are_texts, out);
    csv_free(&reader);
    if (d->missing.count) add_texts(out, "na_values", &d->missing);
    return failure;
}

/* ---- the rows of the parts ---- */

/* The names of the groups of rows, as an array. */
static status add_groups(struct script *s) {
    const struct dataset_config *d = &s->config->dataset;
    if (!d->split.group) return OK;
    if (dataset_preparation(s->plan->dataset)) {
        script_add_text(&s->data, "groups = table[", d->split.group, "].to_numpy()\n");
        return OK;
    }
    const struct dataset_format *format = dataset_format_of(d, d->path);
    if (d->drops_missing_targets) return script_refuse("dataset.split.group with drop_missing_targets");
    s->is_group = true;
    text_add(&s->data, "_, groups = ");
    TRY(schema_fill(&dataset_schema, d, format->pytorch, data_place, s, &s->data));
    text_add(&s->data, "\n");
    s->is_group = false;
    return s->failure;
}

/* Arrays of indices into x and y. */
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
    } else if (c->group && c->folds > 0) {
        text_printf(out, "train, validation = group_fold(groups, %lld, %lld)\n", (long long)c->folds,
                    (long long)c->fold);
    } else if (c->group) {
        text_printf(out, "train, validation = group_split(groups, %zu, %lld)\n", info->validation_groups,
                    (long long)c->seed);
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
    struct text *out = &s->data;
    SCOPED_TEXT list = {0};
    if (!preparation_scales(p, types)) return;
    for (size_t i = 0; i < p->features; i++)
        if (types[i] == scale) text_printf(&list, "%s%zu", list.length ? ", " : "", i);
    if (list.length) {
        text_printf(out, "scaled = x[:, [%s]]\n", text_string(&list));
        add_fitted(out, "scaled", scale == SCALE_MINMAX, "0");
        text_printf(out, "x[:, [%s]] = scaled\n", text_string(&list));
    }
}

static void add_scale(struct script *s) {
    const struct scale_config *c = &s->config->dataset.scale;
    const struct dataset_info *info = &s->plan->info;
    struct text *out = &s->data;
    double divide = dataset_divide(s->plan->dataset);
    int dims = info->inputs && dataset_drawing(s->plan->dataset).members ? info->inputs->dims : info->input_dims;
    const char *each = dims == 1 || info->windows.steps ? "0" : "";
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
        const char *columns = dims == 1 || c->mean.count == 1 ? "" : "[:, None, None]";
        text_add(out, "x = (x.astype(\"f4\") - np.array([");
        script_add_numbers(out, &c->mean);
        text_printf(out, "], \"f4\")%s) / np.array([", columns);
        script_add_numbers(out, &c->std);
        text_printf(out, "], \"f4\")%s\n", columns);
    }
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
    text_add(out, "], 1)\ny = torch.tensor(y.astype(\"f4\")).to(device, dtype)\n");
}

/* y of values, of the shape of the output; a formula may have other numbers of them. */
static void add_value_targets(struct script *s, const char *y) {
    const struct shape *shape = script_shape_of(s, s->model->output);
    size_t size = s->plan->info.target_size, positions = shape->lengths ? (size_t)shape->size[0] : size;
    bool is_other = s->plan->loss->parts || size != shape_elements(shape);
    text_printf(&s->data, "y = %s.to(device, dtype).reshape(len(y), ", y);
    if (is_other && positions < size)
        text_printf(&s->data, "%zu, %zu)\n", positions, size / positions);
    else if (is_other)
        text_printf(&s->data, "%zu)\n", size);
    else
        script_add_sizes(&s->data, shape, 0), text_add(&s->data, ")\n");
}

bool script_has_drawn_targets(const struct script *s) {
    const struct dataset_info *info = &s->plan->info;
    bool is_input = false;
    for (size_t i = 0; i < info->target_count; i++) is_input = is_input || info->targets[i].is_input;
    return is_input && dataset_drawing(s->plan->dataset).members;
}

/* The targets of losses of samples: inputs, which change in each epoch, and the column of y. */
static void add_drawn_targets(struct script *s) {
    const struct dataset_info *info = &s->plan->info;
    text_printf(&s->data, "\n\ndef targets_of(rows):\n    inputs = %s\n    return torch.cat([",
                script_scales_batches(s) ? "inputs_of(drawn(rows).flatten()).reshape(len(rows), -1)"
                                         : "x[drawn(rows)].flatten(1)");
    for (size_t i = 0; i < info->target_count; i++) {
        const struct dataset_target *t = &info->targets[i];
        text_add(&s->data, i ? ", " : "");
        if (t->is_input)
            text_printf(&s->data, "inputs[:, %zu:%zu]", t->input_first, t->input_first + t->size);
        else
            text_add(&s->data, "y[rows]");
    }
    text_add(&s->data, "], 1)\n\n");
}

/* The samples of dataset.draw, whose rows are those of x and whose classes are in y. */
static void add_drawn(struct script *s) {
    struct dataset_drawing drawing = dataset_drawing(s->plan->dataset);
    bool has_test = split_has_test(&s->config->dataset.split);
    struct text *out = &s->data;
    text_printf(out,
                "drawn = Drawn(%zu, y, [train, validation%s], seed=%lld, different=%lld)\ntrain, validation%s = "
                "drawn.parts\ny = drawn.targets\n",
                drawing.members, has_test ? ", test" : "", (long long)s->config->dataset.draw.seed,
                (long long)drawing.different, has_test ? ", test" : "");
    if (!script_scales_batches(s)) text_add(out, "x = torch.tensor(x.astype(\"f4\")).to(device, dtype)\n");
    if (s->plan->objective)
        text_printf(out, "y = y.to(device, dtype)[:, None]\n");
    else if (s->plan->loss->wants_classes)
        text_add(out, "y = y.to(device)\n");
    else
        add_value_targets(s, "y");
    if (script_has_drawn_targets(s)) add_drawn_targets(s);
}

static void add_tensors(struct script *s) {
    const struct dataset_info *info = &s->plan->info;
    const struct loss_type *loss = s->plan->loss;
    struct text *out = &s->data;
    if (info->input_kind == INPUT_TOKENS) {
        text_add(out, "x, y = x.to(device), y.to(device)\n");
        return;
    }
    if (s->plan->objective) add_named_targets(s);
    if (!script_scales_batches(s)) text_add(out, "x = torch.tensor(x.astype(\"f4\")).to(device, dtype)\n");
    if (s->plan->objective) return;
    if (loss->wants_classes && info->target_size == 1)
        text_add(out, "y = torch.tensor(y.astype(\"i8\"), device=device).flatten()\n");
    else if (loss->wants_classes)
        text_add(out, "y = torch.tensor(y.astype(\"i8\"), device=device)\n");
    else
        add_value_targets(s, "torch.tensor(y.astype(\"f4\"))");
}

/* A column of a table as features: "category(table["Sex"], ["female", "male"], "one_hot")". */
static void add_column(const struct prepared_column *c, struct text *out) {
    static const char *const encodings[] = {"one_hot", "ordinal", "embedding"};
    const char *function = c->type == COLUMN_CATEGORY  ? "category(table["
                           : c->type == COLUMN_DATE    ? "date(table["
                           : c->type == COLUMN_BOOLEAN ? "boolean(table["
                                                       : "numeric(table[";
    script_add_text(out, function, c->name, "]");
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
    if (c->type == COLUMN_DATE && c->date_format) script_add_text(out, ", format=", c->date_format, "");
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

/* A table of texts, whose columns are prepared. */
static status add_table(struct script *s) {
    const struct dataset_config *d = &s->config->dataset;
    const char *path = s->is_validation ? d->validation.path : d->path;
    struct text *out = &s->data;
    if (strcmp(dataset_format_of(d, path)->name, "csv") == 0) {
        text_add(out, "read_table(");
        add_paths(s, out);
        text_add(out, ", dtype=str");
        TRY(add_csv_options(s, true, out));
    } else {
        text_add(out, "read_database(");
        add_paths(s, out);
        add_query(s, out);
    }
    text_add(out, ")");
    if (d->filter) {
        text_add(out, ".loc[read_table(");
        add_paths(s, out);
        TRY(add_csv_options(s, false, out));
        script_add_text(out, ").query(", d->filter, ").index]");
    }
    if (d->drops_missing_targets) {
        text_add(out, ".dropna(subset=");
        add_columns(s, &d->targets, COLUMN_TARGET, NULL, out);
        text_add(out, ")");
    }
    text_add(out, d->filter || d->drops_missing_targets ? ".reset_index(drop=True)" : "");
    return OK;
}

static bool is_target(const struct script *s, const char *name) {
    struct column_list columns = dataset_columns(s->plan->dataset);
    bool is = false;
    for (size_t i = 0; i < columns.count; i++)
        is = is || (columns.items[i].role == COLUMN_TARGET && strcmp(columns.items[i].name, name) == 0);
    return is;
}

/* The columns that are expressions of others. */
static status add_computed(struct script *s) {
    const struct dataset_config *d = &s->config->dataset;
    const struct column_rule *rules = d->rules.items;
    const char *variables[EXPRESSION_MAX_VARIABLES];
    struct expression *e = arena_alloc(s->arena, sizeof *e);
    struct text *out = &s->data;
    for (size_t i = 0; i < EXPRESSION_MAX_VARIABLES; i++) variables[i] = arena_printf(s->arena, "x%zu", i);
    for (size_t r = 0; r < d->rules.count; r++) {
        SCOPED_TEXT formula = {0};
        size_t at;
        if (!rules[r].expression) continue;
        if (d->drops_missing_targets && is_target(s, rules[r].name))
            return script_refuse("dataset.drop_missing_targets with a target that is an expression");
        const struct expression_options options = {.is_of_numbers = true, .python = variables};
        TRY(expression_parse(rules[r].expression, &options, e, &at, &formula));
        const char *names[EXPRESSION_MAX_VARIABLES];
        for (size_t i = 0; i < e->name_count; i++) {
            char *name = arena_alloc(s->arena, EXPRESSION_MAX_TEXT + 1);
            expression_name(e, i, name);
            names[i] = name;
        }
        script_add_text(out, "table[", rules[r].name, "] = computed(table, ");
        script_add_names(out, &(struct string_list){names, e->name_count}, NULL);
        text_add(out, ", lambda ");
        for (size_t i = 0; i < e->name_count; i++) text_printf(out, "%s%s", i ? ", " : "", variables[i]);
        text_printf(out, ": %s)\n", text_string(&formula));
    }
    return OK;
}

/* Texts in quotes that begin with a tab or end in blanks, which read_table removes. */
static status check_blanks(const struct script *s, const struct string_list *texts) {
    const struct dataset_config *d = &s->config->dataset;
    if (strcmp(dataset_format_of(d, d->path)->name, "csv") != 0) return OK;
    for (size_t i = 0; i < texts->count; i++) {
        size_t length = strlen(texts->items[i]);
        if (*texts->items[i] == '\t') return script_refuse("a text with a tab at its start, in quotes,");
        if (length && strchr(" \t", texts->items[i][length - 1]))
            return script_refuse("a text with blanks at its end, in quotes,");
    }
    return OK;
}

/* x and y of a table whose columns are prepared; the numbers that were fitted to its training rows are in the script.
 */
static status add_prepared(struct script *s, const struct preparation *p) {
    const struct dataset_config *d = &s->config->dataset;
    struct text *out = &s->data;
    text_add(out, "table = ");
    TRY(add_table(s));
    text_add(out, "\n");
    if (d->validation.path) {
        s->is_validation = true;
        text_add(out, "count, other = len(table), ");
        TRY(add_table(s));
        text_add(out, "\ntable = pandas.concat([table, other], ignore_index=True)\n");
    }
    TRY(add_computed(s));
    text_add(out, "x = np.concatenate([");
    for (size_t i = 0; i < p->count; i++) {
        if (p->items[i].type == COLUMN_TEXT) return script_refuse("dataset.columns with texts");
        TRY(check_blanks(s, &p->items[i].categories));
        text_add(out, i ? ",\n                    " : "");
        add_column(&p->items[i], out);
    }
    text_add(out, "], 1)\n");
    bool has_labels = has_texts(s);
    text_printf(out, "y = columns([%stable[name]%s.to_numpy() for name in ", has_labels ? "" : "pandas.to_numeric(",
                has_labels ? "" : ")");
    add_columns(s, &d->targets, COLUMN_TARGET, NULL, out);
    text_add(out, "])\n");
    return OK;
}

/* ---- images, whose bytes become inputs batch by batch ---- */

static status check_batches(const struct script *s) {
    const struct dataset_config *d = &s->config->dataset;
    double divide = dataset_divide(s->plan->dataset);
    bool has_unit = (divide >= 1 && divide <= 1) || (divide >= 255 && divide <= 255);
    const struct {
        bool is_given;
        const char *key;
    } keys[] = {
        {d->image.dct_scaling, "dataset.image.dct_scaling"},
        {!has_unit && color_jitter_is_on(&d->augment.color_jitter), "dataset.augment.color_jitter with dataset.divide"},
        {s->plan->objective && dataset_augments(s->plan->dataset), "dataset.augment with losses"},
        {s->plan->objective && reads_files(s), "losses of images in a folder"},
        {dataset_preparation(s->plan->dataset) != NULL, "dataset.columns of images"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].is_given) return script_refuse(keys[i].key);
    return OK;
}

/* What a decoder of files does: ", (224, 224), 256" */
static void add_decoding(const struct image_config *c, struct text *out) {
    size_t height, width;
    image_rows(c, &height, &width);
    text_printf(out, ", (%zu, %zu), ", height, width);
    if (c->resize.count == 2)
        text_printf(out, "(%lld, %lld)", (long long)c->resize.items[0], (long long)c->resize.items[1]);
    else if (c->resize.count)
        text_printf(out, "%lld", (long long)c->resize.items[0]);
    else if (c->crop == CROP_NONE)
        text_printf(out, "(%zu, %zu)", height, width);
    else
        text_printf(out, "%zu", height > width ? height : width);
}

static bool has_batch_scale(const struct script *s) {
    const struct scale_config *c = &s->config->dataset.scale;
    return c->type != SCALE_NONE || c->mean.count > 0;
}

/* After x and y are names of files: x become their bytes, and y those of masks. */
static void add_decoders(struct script *s) {
    const struct image_config *c = &s->config->dataset.image;
    struct text *out = &s->data;
    text_add(out, "x = Images(x");
    add_decoding(c, out);
    text_add(out, c->channels == 1 ? ", \"L\"" : "");
    text_add(out, c->exif_orientation ? ", upright=True)\n" : ")\n");
    if (dataset_is_in_memory(s->plan->dataset)) text_add(out, "x = x[range(len(x))]\n");
    if (!c->masks) return;
    text_add(out, "y = Masks(y");
    add_decoding(c, out);
    text_add(out, s->plan->loss->wants_classes ? ")[range(len(y))]\n" : ")[range(len(y))] > 0\n");
}

/* mean and deviation, of all values or of each channel. */
static void add_batch_scale(struct script *s) {
    const struct scale_config *c = &s->config->dataset.scale;
    struct text *out = &s->data;
    double divide = dataset_divide(s->plan->dataset);
    if (c->type != SCALE_NONE && reads_files(s) && !dataset_is_in_memory(s->plan->dataset)) {
        script_add_real(out, "counts, values = byte_counts(x, train), np.arange(256) / ", divide, "\n");
        text_add(out,
                 c->type == SCALE_MINMAX
                     ? "values = values[counts > 0]\nmean, deviation = values.min(), values.max() - values.min() or 1\n"
                     : "mean = counts @ values / counts.sum()\n"
                       "deviation = np.sqrt(counts @ (values - mean) ** 2 / counts.sum()) or 1\n");
    } else if (c->type != SCALE_NONE) {
        script_add_real(out, "values = x[train].astype(\"f8\") / ", divide, "\n");
        text_add(out, c->type == SCALE_MINMAX ? "mean, deviation = values.min(), values.max() - values.min() or 1\n"
                                              : "mean, deviation = values.mean(), values.std() or 1\n");
    } else if (c->mean.count == 1 && c->std.count == 1) {
        script_add_real(out, "mean, deviation = ", c->mean.items[0], ", ");
        script_add_real(out, "", c->std.items[0], "\n");
    } else if (c->mean.count) {
        text_add(out, "mean, deviation = (torch.tensor(numbers, dtype=dtype)[:, None, None] for numbers in ([");
        script_add_numbers(out, &c->mean);
        text_add(out, "], [");
        script_add_numbers(out, &c->std);
        text_add(out, "]))\n");
    }
}

/* "x[rows].to(dtype) / 255" */
static void add_values(struct script *s) {
    double divide = dataset_divide(s->plan->dataset);
    bool are_tensors = !reads_files(s) || dataset_is_in_memory(s->plan->dataset);
    text_add(&s->data, are_tensors ? "x[rows].to(dtype)" : "torch.tensor(x[rows]).to(dtype)");
    if (!(divide >= 1 && divide <= 1)) script_add_real(&s->data, " / ", divide, "");
}

static void add_range(struct text *out, double low, double high) {
    script_add_real(out, "(", low, ", ");
    script_add_real(out, "", high, ")");
}

static void add_color_jitter(struct script *s) {
    struct color_jitter jitter = color_jitter_create(&s->config->dataset.augment.color_jitter);
    double divide = dataset_divide(s->plan->dataset);
    bool may_be_bytes = divide >= 1 && divide <= 1;
    struct text *out = &s->data;
    if (!jitter.is_on) return;
    if (may_be_bytes) text_add(out, "    largest = 255 if x.dtype == torch.uint8 else 1\n");
    text_add(out, may_be_bytes ? "    images = largest * color_jitter(images / largest, draw"
                               : "    images = color_jitter(images, draw");
    for (enum color color = 0; color < COLORS; color++) {
        text_add(out, ", ");
        if (jitter.changes[color])
            add_range(out, jitter.low[color], jitter.high[color]);
        else
            text_add(out, "None");
    }
    text_add(out, ")\n");
}

/* The lines that move the pixels of [what], "images" or "t"; [fill]: those from outside. */
static void add_moves(struct script *s, const char *what, long long fill) {
    const struct augment_config *a = &s->config->dataset.augment;
    bool is_target = strcmp(what, "t") == 0;
    struct text *out = &s->data;
    const char *end = fill ? arena_printf(s->arena, ", fill=%lld)\n", fill) : ")\n";
    if (a->random_crop.padding)
        text_printf(out, "    %s = random_crop(%s, draw, %lld%s", what, what, (long long)a->random_crop.padding, end);
    if (a->random_resized_crop.scale.count) {
        const double *scale = a->random_resized_crop.scale.items, *ratio = a->random_resized_crop.ratio.items;
        text_printf(out, "    %s = random_resized_crop(%s, draw, ", what, what);
        add_range(out, scale[0], scale[1]), text_add(out, ", "), add_range(out, ratio[0], ratio[1]);
        text_add(out, is_target ? ", nearest=True)\n" : ")\n");
    }
    if (a->horizontal_flip > 0)
        text_printf(out, "    %s = random_flip(%s, draw, ", what, what),
            script_add_real(out, "", a->horizontal_flip, ", dim=3)\n");
    if (a->vertical_flip > 0)
        text_printf(out, "    %s = random_flip(%s, draw, ", what, what),
            script_add_real(out, "", a->vertical_flip, ", dim=2)\n");
    struct random_rotation rotation = rotation_create(&a->rotation);
    if (!rotation.is_on) return;
    text_printf(out, "    %s = random_rotation(%s, draw, ", what, what);
    add_range(out, rotation.degrees[0], rotation.degrees[1]);
    text_add(out, rotation.is_bilinear && !is_target ? ", bilinear=True)\n" : end);
}

bool script_moves_targets(const struct script *s) {
    const struct dataset_info *i = &s->plan->info;
    return augment_moves(&s->config->dataset.augment) && i->target_dims >= 2 &&
           i->target_shape[i->target_dims - 2] == i->input_shape[1] &&
           i->target_shape[i->target_dims - 1] == i->input_shape[2];
}

static void add_augmentation(struct script *s) {
    const struct augment_config *a = &s->config->dataset.augment;
    const struct ignored_class *ignored = &s->config->dataset.request.ignored;
    bool has_classes = s->plan->loss->wants_classes;
    size_t members = dataset_drawing(s->plan->dataset).members;
    struct text *out = &s->data;
    const char *words = members ? arena_printf(s->arena, "(positions.numpy()[:, None] * %zu + np.arange(%zu)).ravel()",
                                               members, members)
                                : "positions.numpy()";
    text_printf(
        out,
        "\n\ndef augmented(positions, epoch):\n"
        "    \"\"\"Inputs and targets at these positions of the training rows, changed as in this epoch of the "
        "run.\"\"\"\n"
        "    rows, draw = torch.as_tensor(train)[positions], functools.partial(random_words, %s, epoch, %lld)\n",
        words, (long long)a->seed);
    if (members) text_add(out, "    samples, rows = rows, drawn(rows).flatten()\n");
    text_add(out, "    images = ");
    add_values(s);
    text_add(out, "\n");
    add_moves(s, "images", 0);
    add_color_jitter(s);
    if (has_batch_scale(s)) text_add(out, "    images = (images - mean) / deviation\n");
    if (a->has_erasing && a->erasing.p > 0) {
        script_add_real(out, "    images = random_erasing(images, draw, ", a->erasing.p, ", ");
        add_range(out, a->erasing.scale.items[0], a->erasing.scale.items[1]), text_add(out, ", ");
        add_range(out, a->erasing.ratio.items[0], a->erasing.ratio.items[1]), text_add(out, ")\n");
    }
    if (members) {
        text_add(out, "    return images.reshape(len(samples), -1).to(device), y[samples]\n\n");
        return;
    }
    if (!script_moves_targets(s)) {
        text_add(out, "    return images.to(device), y[rows]\n\n");
        return;
    }
    bool has_channels = !has_classes && script_shape_of(s, s->model->output)->dims == 3;
    text_add(out, has_channels ? "    t = y[rows].cpu()\n" : "    t = y[rows].cpu()[:, None]\n");
    add_moves(s, "t", has_classes && ignored->is_set ? (long long)ignored->value : 0);
    text_add(out, has_channels ? "    return images.to(device), t.to(device)\n\n"
                               : "    return images.to(device), t[:, 0].to(device)\n\n");
}

/* The functions that make batches. */
static void add_batches(struct script *s) {
    struct text *out = &s->data;
    if (!reads_files(s) || dataset_is_in_memory(s->plan->dataset))
        text_add(out, reads_files(s) ? "x = torch.tensor(x)\n"
                                     : "x = torch.tensor(x if x.dtype == np.uint8 else x.astype(\"f4\"))\n");
    text_add(out, "\n\ndef inputs_of(rows):\n    return ");
    text_add(out, has_batch_scale(s) ? "((" : "(");
    add_values(s);
    text_add(out, has_batch_scale(s) ? " - mean) / deviation).to(device)\n" : ").to(device)\n");
    if (dataset_augments(s->plan->dataset))
        add_augmentation(s);
    else
        text_add(out, "\n");
}

/* x and y of a format that reads arrays. */
static status add_arrays(struct script *s, const struct dataset_format *format) {
    const struct dataset_config *d = &s->config->dataset;
    const char *paths[] = {d->path, d->validation.path, d->image.masks, d->validation.targets};
    for (size_t i = 0; format->is_folder && i < sizeof paths / sizeof *paths; i++)
        if (paths[i] && archive_in_path(paths[i]))
            return status_usage("%s: a PyTorch script reads images of folders; unpack the archive", paths[i]);
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
    return s->failure;
}

static status check_filter(const struct script *s) {
    const char *text = s->config->dataset.filter;
    struct row_filter *filter;
    if (!text) return OK;
    TRY(row_filter_parse(text, s->arena, &filter));
    if (filter->has_escapes) return script_refuse("dataset.filter with a quote or a backslash in a text");
    return filter->asks_for_missing ? script_refuse("dataset.filter with 'is missing'") : OK;
}

status script_write_data(struct script *s) {
    const struct dataset_config *d = &s->config->dataset;
    const struct dataset_format *format = dataset_format_of(d, d->path);
    const struct preparation *preparation = dataset_preparation(s->plan->dataset);
    bool has_classes = reads_files(s) && !d->image.labels && !d->image.masks; /* those of the folders */
    TRY(check_filter(s));
    TRY(find_files(s));
    if (script_scales_batches(s)) TRY(check_batches(s));
    if (s->plan->objective && dataset_labels(s->plan->dataset).count)
        return script_refuse("losses of classes that are texts");
    if (preparation)
        TRY(add_prepared(s, preparation));
    else
        TRY(add_arrays(s, format));
    if (reads_files(s)) add_decoders(s);
    const struct string_list labels = dataset_labels(s->plan->dataset);
    if (!has_classes) TRY(check_blanks(s, &labels));
    if (labels.count && !has_classes)
        text_add(&s->data, "labels, y = np.unique(y, return_inverse=True)  # classes in alphabetical order\n");
    TRY(add_groups(s));
    add_split(s);
    if (script_scales_batches(s))
        add_batch_scale(s);
    else
        add_scale(s);
    if (d->draw.type != DRAW_NONE) {
        add_drawn(s);
    } else {
        add_target_scale(s);
        add_windows(s);
        add_tensors(s);
    }
    if (script_scales_batches(s)) add_batches(s);
    return OK;
}
