/* The YAML is written as text, because of its comments. */

#include <string.h>
#include <strings.h>

#include "base/document/document.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "data/dataset/suggest.h"
#include "train/config/config.h"

/* ---- scalars ---- */

/* Whether YAML reads [word] as this text without quotes. */
static bool is_plain(const char *word) {
    static const char *const other[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", NULL};
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (!*word || !strchr(letters, word[0])) return false;
    if (word[strspn(word, "_-./0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")]) return false;
    SCOPED_TEXT lower = {0};
    for (const char *c = word; *c; c++) text_add_bytes(&lower, (const char[]){(char)(*c | 32)}, 1);
    bool is_text = true;
    for (size_t i = 0; other[i]; i++) is_text = is_text && strcmp(text_string(&lower), other[i]) != 0;
    return is_text;
}

static void add_scalar(struct text *out, const char *word) {
    if (is_plain(word))
        text_add(out, word);
    else
        text_add_json(out, word);
}

static void add_key(struct text *out, const char *before, const char *word, const char *after) {
    text_add(out, before);
    add_scalar(out, word);
    text_add(out, after);
}

/* Adds the letters of [word] up to [end] that a file name may have. */
static void add_word(struct text *out, const char *word, const char *end) {
    for (; word < end; word++) {
        char c = *word;
        bool is_usual =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        text_add_bytes(out, is_usual ? &c : "_", 1);
    }
}

/* Whether many files or folders have the name, which is in [name, end). */
static bool is_common(const char *name, const char *end) {
    static const char *const common[] = {"train", "training", "data", "dataset", "test", "table", "images", "x", "all"};
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (strlen(common[i]) == (size_t)(end - name) && strncasecmp(common[i], name, (size_t)(end - name)) == 0)
            return true;
    return false;
}

static const char *name_before(const char *path, const char *end) {
    while (end > path && end[-1] != '/') end--;
    return end;
}

/* The name of the run folder: that of the file without its extensions, of train/ and the like after that of its folder;
 * [target]: given, so that each has a run of its own. */
static void add_name(struct text *out, const char *path, const char *target) {
    const char *last = path + io_length_without_slashes(path), *name = name_before(path, last), *end = name;
    while (end < last && *end != '.') end++;
    size_t start = out->length;
    const char *folder_end = name > path ? name - 1 : path, *folder = name_before(path, folder_end);
    if (is_common(name, end) && folder < folder_end && *folder != '.') {
        add_word(out, folder, folder_end);
        text_add(out, "_");
    }
    add_word(out, name, end);
    if (out->length == start) text_add(out, "first");
    if (!target) return;
    text_add(out, "_");
    add_word(out, target, target + strlen(target));
}

#define MAX_WARNING 1000 /* bytes */
#define PATIENCE 15      /* epochs without improvement */

/* A comment shows one line of a file's text. */
static void add_shown(struct text *out, const char *word) { text_add_value(out, word, TEXT_MAX_NAME); }

static void show(struct text *out, const char *before, const char *word, const char *after) {
    text_add(out, before);
    add_shown(out, word);
    text_add(out, after);
}

/* ---- data ---- */

static void add_rule(const char *name, const char *rule, const char *reason, bool is_first, struct text *out) {
    if (is_first) text_add(out, "  columns:               # other columns are used as they are; see docs/tables.md\n");
    text_add(out, "    ");
    add_scalar(out, name);
    text_printf(out, ": %s   # %s\n", rule, reason);
}

static void add_columns(const struct suggestion *s, struct text *out) {
    bool has_rule = s->has_number_labels;
    if (has_rule) add_rule(s->target, "category", "its numbers are the names of classes", true, out);
    for (size_t i = 0; i < s->column_count; i++) {
        const struct column_suggestion *c = &s->columns[i];
        if (!c->rule) continue;
        add_rule(c->name, c->rule, c->reason, !has_rule, out);
        has_rule = true;
    }
}

static void add_unused(const struct suggestion *s, struct text *out) {
    if (!s->unused.count) return;
    text_add(out, "  # not used, though with as many rows: ");
    for (size_t i = 0; i < s->unused.count; i++) {
        text_add(out, i ? ", " : "");
        add_shown(out, s->unused.items[i]);
    }
    text_add(out, "; a mapping in inputs takes several, by name: docs/models.md\n");
}

static void add_missing(const struct suggestion *s, struct text *out) {
    if (!s->missing.count) return;
    text_add(out, "  missing: [");
    for (size_t i = 0; i < s->missing.count; i++) {
        text_add(out, i ? ", " : "");
        add_scalar(out, s->missing.items[i]);
    }
    show(out, "]   # texts that mean a missing value, such as '", s->missing_mark, "' in column '");
    add_shown(out, s->missing_column);
    text_add(out, "'\n");
}

static bool can_stratify(const struct suggestion *s) {
    double validation = (double)s->rows * 0.2;
    return s->target_kind == TARGET_CLASS && s->input_kind == INPUT_VALUES && s->smallest_class >= 2 &&
           validation >= (double)s->classes;
}

static void add_validation(const struct suggestion *s, struct text *out) {
    add_key(out, "  validation: ", s->validation, "\n");
    if (!s->test) return;
    show(out, "  # after the training: ddptrain eval CONFIG ", s->test, "\n");
}

static void add_split(const struct suggestion *s, struct text *out) {
    if (s->window) {
        text_add(out, "  split: {test: 0.2}     # the last fifth of the rows validates\n");
        return;
    }
    if (s->validation)
        add_validation(s, out);
    else if (s->rows < 5)
        text_add(out, "  # split: 0.2           # too few rows for validation\n");
    else if (s->input_kind == INPUT_TOKENS)
        text_add(out, "  split: {test: 0.1, shuffle: false}   # the end of the file validates\n");
    else if (s->group) {
        add_key(out, "  split: {test: 0.2, seed: 42, group: ", s->group,
                "}   # rows with the same value stay together, in a fifth of the values\n");
    } else
        text_printf(out, "  split: {test: 0.2, seed: 42%s}   # a fifth of the rows validates%s\n",
                    can_stratify(s) ? ", stratify: true" : "",
                    can_stratify(s) ? ", with the same share of each class" : "");
    if (!s->time) return;
    show(out, "  # the dates in column '", s->time,
         "' rise: to predict later rows from earlier ones, take split: {test: 0.2, shuffle: false}, whose\n"
         "  # validation rows are the last ones; for a model that reads several rows, such as an lstm, see\n"
         "  # dataset.window in docs/windows.md\n");
}

static void add_target_note(const struct suggestion *s, struct text *out) {
    if (s->target_kind == TARGET_VALUES) {
        text_add(out, "a number is predicted");
        return;
    }
    text_printf(out, "%lld class%s", (long long)s->classes, text_plural((size_t)s->classes, "es"));
    for (size_t i = 0; i < s->names.count && i < 5; i++) {
        text_add(out, i ? ", " : ": ");
        add_shown(out, s->names.items[i]);
    }
    if (s->names.count > 5) text_add(out, ", ...");
}

static void add_image(const struct suggestion *s, struct text *out) {
    text_printf(out, "  image: {size: [%lld, %lld]", (long long)s->image_size[0], (long long)s->image_size[1]);
    if (s->image_channels == 1) text_add(out, ", channels: 1");
    if (s->labels) {
        text_add(out, ", labels: ");
        add_scalar(out, s->labels);
    }
    text_add(out, s->are_images_resized ? "}  # each image is resized, and its middle cut out\n"
                                        : "}  # the size of the images\n");
    if (!s->labels) return;
    show(out, "  # the images are those that column '", s->image_column, "' names; its other columns may be targets\n");
}

static void add_warnings(const struct suggestion *s, struct text *out) {
    for (size_t i = 0; i < s->warnings.count; i++) {
        text_add(out, "  # warning: ");
        text_add_value(out, s->warnings.items[i], MAX_WARNING);
        text_add(out, "\n");
    }
    if (s->has_one_target)
        text_printf(out, "  # warning: all rows have the same target, so that there is nothing to learn; %s\n",
                    s->is_image_folder && !s->labels ? "each class needs a folder of its own"
                                                     : "name another one by --target NAME");
}

/* ---- how a CSV file is written ---- */

static const char csv_key[] = "dataset.csv.";

static bool is_csv_key(const char *override, const char *key) {
    size_t start = sizeof csv_key - 1, length = strlen(key);
    return strncmp(override, csv_key, start) == 0 && strncmp(override + start, key, length) == 0;
}

/* Binds the overrides to dataset.csv. [arena] must live as long as *out. */
static status read_csv_choice(char *const *overrides, size_t count, struct arena *arena, struct csv_config *config,
                              struct csv_choice *out) {
    struct problems problems = {0};
    SCOPED_DOCUMENT document = NULL;
    *out = (struct csv_choice){0};
    if (count == 0) return OK;
    for (size_t i = 0; i < count; i++)
        out->has_header_key = out->has_header_key || is_csv_key(overrides[i], "no_header=");
    status s = document_parse("init", "", 0, &problems, &document);
    for (size_t i = 0; !s && i < count; i++) schema_override(&config_schema, document, overrides[i], &problems);
    if (!s)
        schema_bind(&csv_schema, node_get(node_get(document_root(document), "dataset"), "csv"), "dataset.csv",
                    &csv_schema, config, arena, &problems);
    if (!s) s = problems_status(&problems, STATUS_USAGE);
    problems_free(&problems);
    if (!s) {
        config->delimiter = config->delimiter ? arena_copy(arena, config->delimiter) : NULL;
        config->quote = config->quote ? arena_copy(arena, config->quote) : NULL;
        config->decimal = config->decimal ? arena_copy(arena, config->decimal) : NULL;
        config->thousands = config->thousands ? arena_copy(arena, config->thousands) : NULL;
        config->strip = config->strip ? arena_copy(arena, config->strip) : NULL;
        config->comment = config->comment ? arena_copy(arena, config->comment) : NULL;
        out->dialect = config;
    }
    return s;
}

/* `csv:` with the keys that were recognised and those of the overrides. */
static void add_csv(const struct suggestion *s, char *const *overrides, size_t count, struct text *out) {
    SCOPED_TEXT keys = {0};
    if (s->has_no_header) text_add(&keys, ", no_header: true");
    if (s->strip) text_printf(&keys, ", strip: \"%s\"", s->strip);
    if (s->thousands) text_printf(&keys, ", thousands: \"%c\"", s->thousands);
    for (size_t i = 0; i < count; i++) {
        const char *key = overrides[i] + sizeof csv_key - 1;
        size_t length = strcspn(key, "=");
        text_printf(&keys, ", %.*s: %s", (int)length, key, key + length + (key[length] == '='));
    }
    if (keys.length) text_printf(out, "  csv: {%s}", text_string(&keys) + 2);
    if (s->has_no_header) text_add(out, "   # the first line is a row, and the columns are named 0, 1, 2, ...");
    const char *shown[] = {s->strip_text, s->thousands_text};
    for (size_t i = 0, count_shown = s->has_no_header; i < sizeof shown / sizeof *shown; i++) {
        if (!shown[i]) continue;
        text_add(out, count_shown++ ? "; numbers such as '" : "   # numbers such as '");
        add_shown(out, shown[i]);
        text_add(out, "'");
    }
    if (keys.length) text_add(out, "\n");
}

static void add_csv_note(const struct suggestion *s, const char *path, struct text *notes) {
    if (!s->has_no_header) return;
    add_shown(notes, path);
    text_add(notes, ": the first line seems to be a row, so the columns are named 0, 1, 2, ...; if it has the names, "
                    "write dataset.csv.no_header=false after the file\n");
}

#define MAX_IGNORED 10 /* columns that are noted */

/* What was chosen, and why: "t.csv: the target is 'y', the last column: 2 classes". */
static void add_notes(const struct suggestion *s, const char *path, struct text *notes) {
    size_t ignored = 0;
    if (s->target && s->target_why) {
        add_shown(notes, path);
        text_add(notes, ": the target is '");
        add_shown(notes, s->target);
        text_printf(notes, "', %s: ", s->target_why);
        add_target_note(s, notes);
        text_add(notes, "; --target COLUMN takes another\n");
    }
    if (s->window) {
        text_add(notes, s->time ? "  a series in the order of '" : "  a series in the order of the file");
        if (s->time) add_shown(notes, s->time);
        text_printf(notes, "%s: forecasts from windows of %zu rows\n", s->time ? "'" : "", s->window);
    }
    for (size_t i = 0; i < s->column_count; i++) {
        const struct column_suggestion *c = &s->columns[i];
        if (!c->rule || strcmp(c->rule, "ignore") != 0 || ignored++ >= MAX_IGNORED) continue;
        text_add(notes, "  ignored: '");
        add_shown(notes, c->name);
        text_printf(notes, "', %s\n", c->reason);
    }
    if (ignored > MAX_IGNORED)
        text_printf(notes, "  ignored: %zu more columns, each with its reason in the config\n", ignored - MAX_IGNORED);
    if (s->group) show(notes, "  rows with the same '", s->group, "' stay together in the split\n");
    for (size_t i = 0; i < s->warnings.count; i++) {
        text_add(notes, "  warning: ");
        text_add_value(notes, s->warnings.items[i], MAX_WARNING);
        text_add(notes, "\n");
    }
    if (s->column_count)
        text_add(notes, "  look at dataset.columns in the config: only you know which columns new rows will have\n");
}

static void add_dataset(const struct suggestion *s, char *const *overrides, size_t count, struct text *out) {
    add_key(out, "dataset:\n  path: ", s->path, "\n");
    if (s->table) {
        text_add(out, "  table: ");
        add_scalar(out, s->table);
        text_printf(out, "   # the others are: %s\n", s->other_tables);
    }
    add_csv(s, overrides, count, out);
    if (s->is_image_folder) add_image(s, out);
    if (s->is_channels_last) text_add(out, "  layout: nhwc         # rows seem to be (height, width, channels)\n");
    if (s->inputs) add_key(out, "  inputs: ", s->inputs, "\n");
    if (s->target) {
        add_key(out, "  targets: ", s->target, "   # ");
        add_target_note(s, out);
        text_add(out, "\n");
    }
    if (s->missing_targets)
        text_printf(out, "  drop_missing_targets: true   # %zu row%s without a target\n", s->missing_targets,
                    text_plural(s->missing_targets, "s"));
    add_warnings(s, out);
    add_unused(s, out);
    add_missing(s, out);
    add_columns(s, out);
    if (strcmp(s->format, "text") == 0)
        text_printf(out, "  text: {block_size: %d, stride: %d}   # a row is %d characters, one starts at every %dnd\n",
                    SUGGEST_TEXT_BLOCK, SUGGEST_TEXT_STRIDE, SUGGEST_TEXT_BLOCK, SUGGEST_TEXT_STRIDE);
    if (strcmp(s->format, "tokens") == 0) text_add(out, "  tokens: {block_size: 128}   # uint16 by default\n");
    if (s->input_kind == INPUT_VALUES && !s->text)
        text_add(out, "  scale: standard        # inputs get mean 0 and deviation 1\n");
    if (s->window)
        text_printf(out,
                    "  window: {steps: %zu, history: true}   # the value of the next row is forecast from those of %zu "
                    "rows;\n  # of the first rows for validation they are training rows\n",
                    s->window, s->window);
    if (s->input_kind == INPUT_VALUES && s->input_dims == 2 && !s->window)
        text_add(out,
                 "  # all inputs together; of windows of a series, (steps, features), each feature by itself with\n"
                 "  # scale: {type: standard, per_feature: true}\n");
    if (s->target_kind == TARGET_VALUES)
        text_add(out, "  target_scale: standard # targets, too; predictions are in the unit of the file\n");
    add_split(s, out);
}

/* ---- model ---- */

static int64_t outputs_of(const struct suggestion *s) {
    int64_t classes = s->classes > 2 ? s->classes : 2;
    return s->target_kind == TARGET_CLASS ? classes : (int64_t)s->target_size;
}

static void add_head(const struct suggestion *s, struct text *out) {
    text_printf(out, "    - linear: {out: %lld}   # %s\n", (long long)outputs_of(s),
                s->target_kind == TARGET_CLASS ? "one for each class" : "one for each target");
}

/* The width: the next power of two from the number of inputs on, 32 to 256. Numbers of a table are predicted better by
 * two layers of 128 or more, also from few rows; classes are not (bench/tables.py). */
static void add_mlp(const struct suggestion *s, struct text *out) {
    bool has_values = s->target_kind == TARGET_VALUES && !s->window;
    size_t width = has_values ? 128 : 32;
    size_t inputs = s->window ? s->window * s->features : s->features;
    while (width < 256 && width < inputs) width *= 2;
    text_add(out, "model:\n  layers:\n");
    if (s->window) text_add(out, "    # for long series: {lstm: {hidden_size: 32}} in place of the first three\n");
    if (s->input_dims > 1) text_add(out, "    - flatten\n");
    text_printf(out, "    - linear: {out: %zu}   # the number of inputs comes from the data\n    - relu\n", width);
    if (has_values || s->rows >= 500) text_printf(out, "    - linear: {out: %zu}\n    - relu\n", width);
    add_head(s, out);
}

/* The mean of the vectors of a text's words. */
static void add_words(const struct suggestion *s, struct text *out) {
    text_add(
        out,
        "model:\n  layers:\n"
        "    - embedding_bag: {embedding_dim: 64, padding_idx: 0}   # the mean of the vectors of a text's words\n");
    add_head(s, out);
}

static bool is_image(const struct suggestion *s) {
    return s->input_kind == INPUT_VALUES && s->input_dims == 3 && s->input_shape[1] >= 8 && s->input_shape[2] >= 8;
}

/* Convolutions and poolings until an image is about 7 wide. */
static void add_cnn(const struct suggestion *s, struct text *out) {
    int64_t height = s->input_shape[1], width = s->input_shape[2], channels = 16;
    text_printf(out, "model:                   # images are (%lld, %lld, %lld)\n  layers:\n",
                (long long)s->input_shape[0], (long long)height, (long long)width);
    for (int i = 0; i < 6 && height >= 8 && width >= 8; i++) {
        height /= 2;
        width /= 2;
        text_printf(out,
                    "    - conv2d: {out: %lld, kernel_size: 3, padding: 1}\n    - relu\n"
                    "    - max_pool2d: 2      # (%lld, %lld, %lld)\n",
                    (long long)channels, (long long)channels, (long long)height, (long long)width);
        if (channels < 128) channels *= 2;
    }
    text_add(out, "    - flatten\n    - linear: {out: 64}\n    - relu\n");
    add_head(s, out);
}

static void add_gpt(const struct suggestion *s, struct text *out) {
    text_printf(out,
                "model:                   # a small GPT\n"
                "  layers:\n"
                "    - embedding: {embedding_dim: 64}\n"
                "    - positional_embedding\n"
                "    - repeat:\n"
                "        times: 2\n"
                "        layers:\n"
                "          - residual:\n"
                "              layers: [layer_norm, {linear: {out: 192}}, {scaled_dot_product_attention: {heads: 4, "
                "causal: true}}, {linear: {out: 64}}]\n"
                "          - residual:\n"
                "              layers: [layer_norm, {linear: {out: 256}}, gelu, {linear: {out: 64}}]\n"
                "    - layer_norm\n"
                "    - linear: {out: %lld}   # one for each of the vocabulary\n",
                (long long)s->classes);
}

/* ---- training ---- */

static int batch_size(const struct suggestion *s) {
    if (s->input_kind == INPUT_TOKENS) return 32;
    return s->rows < 500 ? 16 : s->rows < 5000 ? 32 : s->rows < 50000 ? 64 : 128;
}

static int epochs(const struct suggestion *s) {
    if (s->input_kind == INPUT_TOKENS) return s->rows < 1000 ? 20 : s->rows < 10000 ? 5 : 1;
    if (is_image(s)) return s->rows < 1000 ? 100 : 30;
    return s->rows < 20000 ? 300 : 100;
}

static void add_training(const struct suggestion *s, struct text *out) {
    bool has_classes = s->target_kind == TARGET_CLASS, has_validation = s->validation || s->rows >= 5;
    text_printf(out, "\nloss: %s\n\noptimizer: {type: adam, lr: 0.001}\n\ntrain:\n  epochs: %d\n",
                has_classes ? "cross_entropy" : "mse", epochs(s));
    if (has_validation && s->input_kind == INPUT_VALUES)
        text_printf(out,
                    "  early_stop: {metric: val_loss, patience: %d}   # ends after %d epochs without improvement\n",
                    PATIENCE, PATIENCE);
    if (!has_classes)
        text_add(out, "  metrics: [mae, r2]     # in the unit of the file; the loss is of scaled targets\n");
    if (has_validation)
        text_add(out, "\ncheckpoint:\n  best: val_loss         # kept as checkpoints/best.h5, which eval, predict and "
                      "export take\n");
}

static void add_head_comment(const struct suggestion *s, const char *path, struct text *out) {
    text_add(out, "# Written by ddptrain init for ");
    add_shown(out, path);
    text_printf(out, ": %s, %zu row%s. Every key: ddptrain --help-config\n#\n", s->format, s->rows,
                text_plural(s->rows, "s"));
    text_add(out, "#     ddptrain check CONFIG           shapes, memory\n"
                  "#     ddptrain CONFIG                 train\n"
                  "#     ddptrain predict CONFIG NEW     new rows\n\n");
}

status first_config_write(const char *path, const char *target, char *const *overrides, size_t count, struct text *out,
                          struct text *notes) {
    SCOPED_ARENA arena = arena_create();
    struct suggestion s;
    struct csv_config config;
    struct csv_choice csv;
    status failure = read_csv_choice(overrides, count, arena, &config, &csv);
    if (!failure) failure = suggest(path, target, &csv, arena, &s);
    if (!failure && target && !s.target) s.target = target;
    if (!failure) {
        add_head_comment(&s, path, out);
        text_add(out, "name: ");
        add_name(out, path, target);
        text_add(out, "\nseed: 42\n\n");
        add_dataset(&s, overrides, count, out);
        add_csv_note(&s, path, notes);
        add_notes(&s, path, notes);
        text_printf(out, "\nsampler: {batch_size: %d, shuffle: true}\n\n", batch_size(&s));
        if (s.input_kind == INPUT_TOKENS)
            add_gpt(&s, out);
        else if (s.text)
            add_words(&s, out);
        else if (is_image(&s))
            add_cnn(&s, out);
        else
            add_mlp(&s, out);
        add_training(&s, out);
        if (out->length > DOCUMENT_MAX_BYTES)
            failure =
                status_usage("%s: a config that names its ignored columns has %.1f MiB, and the maximum is 1 MiB; "
                             "leave out columns that are no inputs",
                             path, (double)out->length / (1 << 20));
    }
    return failure;
}
