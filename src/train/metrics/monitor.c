/* A name is "val_" or "train_" and the name of a metric. */
#include "train/metrics/monitor.h"

#include <math.h>
#include <string.h>

#include "base/scoped.h"

#define DEFAULT_METRIC "val_loss"
#define DEFAULT_PATIENCE 10
#define PREFIX 4 /* characters of "val_" */

const char *const monitor_modes[] = {"auto", "min", "max", NULL};

#define MONITOR_ROWS                                                                                                   \
    {.key = "metric",                                                                                                  \
     .type = SCHEMA_STRING,                                                                                            \
     .offset = offsetof(struct monitor, metric),                                                                       \
     .fallback = "null",                                                                                               \
     .doc = "A field of the epoch events of metrics.jsonl: val_loss, val_accuracy, val_ and one of train.metrics, "    \
            "train_loss, train_accuracy."},                                                                            \
    {                                                                                                                  \
        .key = "mode", .type = SCHEMA_CHOICE, .offset = offsetof(struct monitor, mode), .fallback = "auto",            \
        .choices = monitor_modes,                                                                                      \
        .doc = "`min`: smaller is better; `max`: larger is better; `auto`: min for losses, perplexity and errors "     \
               "(mae, rmse, mape, max_error), max for all others."                                                     \
    }

static const struct schema_row best_rows[] = {MONITOR_ROWS, {0}};
const struct schema monitor_schema =
    SCHEMA("checkpoint.best", struct monitor, .rows = best_rows, .shorthand = "metric");

static const struct schema_row early_stop_rows[] = {
    MONITOR_ROWS,
    SCHEMA_ROW(
        INT, struct early_stop, patience, .fallback = "null", .flags = SCHEMA_EXTENDS, .min = 1, .max = INFINITY,
        .doc =
            "Evaluations in a row without an improvement after which the run is complete; default with a metric: 10."),
    SCHEMA_ROW(REAL, struct early_stop, min_delta, .fallback = "0", .flags = SCHEMA_EXTENDS, .min = 0, .max = INFINITY,
               .doc = "A change of at most this much is no improvement."),
    {0},
};
const struct schema early_stop_schema =
    SCHEMA("train.early_stop", struct early_stop, .rows = early_stop_rows, .shorthand = "patience");

struct early_stop early_stop_of(const struct early_stop *config) {
    struct early_stop stop = *config;
    if (!stop.monitor.metric && stop.patience != SCHEMA_NO_INT) stop.monitor.metric = DEFAULT_METRIC;
    if (stop.patience == SCHEMA_NO_INT) stop.patience = DEFAULT_PATIENCE;
    return stop;
}

bool monitor_is_of_validation(const char *metric) { return strncmp(metric, "val_", PREFIX) == 0; }

/* Whether the epochs of a run with [loss] have [metric]. */
static bool is_known(const char *metric, const struct string_list *metrics, const struct loss_type *loss) {
    if (strcmp(metric, "train_loss") == 0 || strcmp(metric, "val_loss") == 0) return true;
    bool is_accuracy = strcmp(metric, "train_accuracy") == 0 || strcmp(metric, "val_accuracy") == 0;
    if (is_accuracy && loss->wants_classes) return true;
    return monitor_is_of_validation(metric) && !metric_is_matrix(metric + PREFIX) && !loss->is_objective &&
           string_list_has(metrics, metric + PREFIX);
}

/* Whether [metric] is that of one of several losses: "val_<name>_loss". */
static bool is_of_term(const char *metric, const struct string_list *metrics, const struct variant_list *losses) {
    for (size_t i = 0; i < losses->count && monitor_is_of_validation(metric); i++) {
        const char *name = objective_name(&losses->items[i]), *rest = metric + PREFIX + strlen(name) + 1;
        if (strncmp(metric + PREFIX, name, strlen(name)) != 0 || rest[-1] != '_') continue;
        const struct loss_type *loss = loss_type_at((size_t)losses->items[i].index);
        if (strcmp(rest, "loss") == 0 || (loss->wants_classes && strcmp(rest, "accuracy") == 0)) return true;
        if (string_list_has(metrics, rest) && metric_fits(rest, loss)) return true;
    }
    return false;
}

static status unknown(const char *metric, const struct string_list *metrics, const struct loss_type *loss,
                      const struct variant_list *losses) {
    SCOPED_TEXT known = {0};
    text_printf(&known, "train_loss, val_loss%s", loss->wants_classes ? ", train_accuracy, val_accuracy" : "");
    for (size_t i = 0; i < losses->count; i++) {
        const char *name = objective_name(&losses->items[i]);
        bool has_classes = loss_type_at((size_t)losses->items[i].index)->wants_classes;
        text_printf(&known, ", val_%s_loss", name);
        if (has_classes) text_printf(&known, ", val_%s_accuracy", name);
    }
    for (size_t i = 0; i < metrics->count && losses->count == 0; i++) {
        if (metric_is_matrix(metrics->items[i])) continue;
        if (loss->wants_classes && strcmp(metrics->items[i], "accuracy") == 0) continue;
        text_printf(&known, ", val_%s", metrics->items[i]);
    }
    return status_usage("epochs have no metric '%.60s'; they have %s (train.metrics adds others)", metric,
                        text_string(&known));
}

status monitor_check(const struct monitor *monitor, const struct string_list *metrics, const struct loss_type *loss,
                     const struct variant_list *losses, bool has_validation, int64_t evaluate_every) {
    const char *metric = monitor->metric;
    if (!metric) return OK;
    if (!is_known(metric, metrics, loss) && !is_of_term(metric, metrics, losses))
        return unknown(metric, metrics, loss, losses);
    if (monitor_is_of_validation(metric) && !has_validation)
        return status_usage(
            "%s needs validation rows (dataset.split or dataset.validation); without them use train_loss", metric);
    if (has_validation && evaluate_every == 0)
        return status_usage("nothing is evaluated before the last epoch (train.evaluate_every: 0)");
    return OK;
}

double monitor_value(const char *metric, const struct epoch_report *epoch, const struct evaluation_result *result) {
    if (strcmp(metric, "train_loss") == 0) return epoch->train_loss;
    if (strcmp(metric, "train_accuracy") == 0) return epoch->has_train_accuracy ? epoch->train_accuracy : NAN;
    if (!epoch->has_validation) return NAN;
    if (strcmp(metric, "val_loss") == 0) return epoch->validation_loss;
    for (size_t i = 0; i < result->metric_count; i++)
        if (strcmp(metric + PREFIX, result->metrics[i].name) == 0) return result->metrics[i].value;
    return epoch->validation_accuracy;
}

bool monitor_is_maximized(const struct monitor *monitor) {
    if (monitor->mode != MONITOR_AUTO) return monitor->mode == MONITOR_MAX;
    if (strcmp(monitor->metric, "train_loss") == 0 || strcmp(monitor->metric, "val_loss") == 0) return false;
    return !monitor_is_of_validation(monitor->metric) || !metric_is_error(monitor->metric + PREFIX);
}

bool monitor_is_better(const struct monitor *monitor, double value, double best, double min_delta) {
    if (isnan(value) || isnan(best)) return !isnan(value);
    return monitor_is_maximized(monitor) ? value > best + min_delta : value < best - min_delta;
}
