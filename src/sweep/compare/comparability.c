/* Keys that differ are those of schema_diff, and paths of data, which it leaves to the fingerprints. */
#include "sweep/compare/comparability.h"

#include <string.h>

#include "base/files/io.h"

static const char *const of_loss[] = {"loss", "losses", "dataset.weights", "dataset.target_scale", NULL};
static const char *const of_rows[] = {
    "dataset.path",       "dataset.query", "dataset.table",  "dataset.targets",   "dataset.split",
    "dataset.validation", "dataset.text",  "dataset.tokens", "dataset.synthetic", NULL};

/* Whether [text] begins with a key of [keys] or one below it: "loss.weight: 1 -> 2", or a key alone. */
static bool is_about(const char *text, const char *const *keys) {
    for (size_t i = 0; keys[i]; i++) {
        size_t length = strlen(keys[i]);
        if (strncmp(text, keys[i], length) == 0 && strchr(".:", text[length]))
            return true; /* strchr finds the end, too */
    }
    return false;
}

static bool is_same_file(const char *a, const char *b) {
    struct io_info one, other;
    status s = io_stat(a, &one);
    if (!s) s = io_stat(b, &other);
    bool is_same = !s && one.exists && io_is_same(&one, &other);
    status_free(s);
    return is_same;
}

static void add_text(const char *key, const char *a, const char *b, struct text *out) {
    a = a ? a : "null";
    b = b ? b : "null";
    if (strcmp(a, b) != 0 && !is_same_file(a, b)) text_printf(out, "  %s: %s -> %s\n", key, a, b);
}

/* "losses.1.loss_weight" */
static bool is_weight_of_term(const char *text) {
    if (strncmp(text, "losses.", 7) != 0) return false;
    const char *member = text + 7 + strspn(text + 7, "0123456789"), *weight = ".loss_weight";
    return strncmp(member, weight, strlen(weight)) == 0;
}

/* Whether a difference in [text] changes what the loss [metric] is; that of one of `losses` is without its weight. */
static bool changes_loss(const char *text, const char *metric) {
    size_t length = strlen(metric);
    bool is_loss = length >= 4 && strcmp(metric + length - 4, "loss") == 0;
    bool is_sum = strcmp(metric, "val_loss") == 0 || strcmp(metric, "train_loss") == 0;
    return is_loss && is_about(text, of_loss) && (is_sum || !is_weight_of_term(text));
}

/* Adds the differences that change the loss [metric], or NULL: which rows it is of: "loss.label_smoothing: 0 in A, 0.1
 * in B; ...". */
static void add_differences(const char *lines, const char *metric, struct text *out) {
    for (const char *line = lines; *line; line += strcspn(line, "\n") + 1) {
        const char *arrow = strstr(line, " -> ");
        if (!arrow || !(metric ? changes_loss(line + 2, metric) : is_about(line + 2, of_rows))) continue;
        int before = (int)(arrow - line - 2), after = (int)strcspn(arrow + 4, "\n");
        text_printf(out, "%s%.*s in A, %.*s in B", out->length ? "; " : "", before, line + 2, after, arrow + 4);
    }
}

void comparability_explain(const struct config *a, const struct config *b, const char *metric, struct text *out) {
    struct text lines = {0}, loss = {0}, rows = {0};
    schema_diff(&config_schema, a, b, &lines);
    add_text("dataset.path", a->dataset.path, b->dataset.path, &lines);
    add_text("dataset.validation.path", a->dataset.validation.path, b->dataset.validation.path, &lines);
    add_text("dataset.validation.query", a->dataset.validation.query, b->dataset.validation.query, &lines);
    add_differences(text_string(&lines), metric, &loss);
    add_differences(text_string(&lines), NULL, &rows);
    if (loss.length)
        text_printf(out,
                    "%s is not comparable, the losses are defined differently (%s); --metric names another metric\n",
                    metric, text_string(&loss));
    if (rows.length)
        text_printf(out, "%s may not be comparable, it may be of other rows or targets (%s)\n", metric,
                    text_string(&rows));
    text_free(&lines);
    text_free(&loss);
    text_free(&rows);
}

void comparability_explain_key(const char *key, const char *metric, struct text *out) {
    if (changes_loss(key, metric))
        text_printf(out,
                    "%s is not comparable between trials that differ in %s, which changes what the loss is; choose "
                    "another metric, such as val_accuracy, val_auc or val_mae\n",
                    metric, key);
    else if (is_about(key, of_rows))
        text_printf(out,
                    "%s may not be comparable between trials that differ in %s, it may be of other rows or targets\n",
                    metric, key);
}
