/* monitor: the metric that selects the best checkpoint (`checkpoint.best`), ends a run (`train.early_stop`) or reduces
 * the learning rate (`schedule: reduce_on_plateau`). Metrics have the names of the epoch events in metrics.jsonl. */
#pragma once

#include "base/schema/schema.h"
#include "base/status.h"
#include "train/metrics/evaluation.h"
#include "train/metrics/report.h"

enum monitor_mode { MONITOR_AUTO, MONITOR_MIN, MONITOR_MAX };

/* The keys `metric` and `mode`, the first two rows of both sections. */
struct monitor {
    const char *metric; /* NULL: none is monitored */
    int mode;           /* enum monitor_mode */
};
extern const char *const monitor_modes[];

struct early_stop {
    struct monitor monitor;
    int64_t patience; /* SCHEMA_NO_INT: not given */
    double min_delta;
};
extern const struct schema monitor_schema, early_stop_schema;

/* The section with defaults: val_loss when only patience is given, 10 when only a metric is. metric NULL: no early
 * stop. */
struct early_stop early_stop_of(const struct early_stop *config);

/* STATUS_USAGE when epochs do not have the metric, with the reason. [metrics]: train.metrics. */
status monitor_check(const struct monitor *monitor, const struct string_list *metrics, const struct loss_type *loss,
                     const struct variant_list *losses, bool has_validation, int64_t evaluate_every);

/* Whether evaluations measure [metric], not the training itself. */
bool monitor_is_of_validation(const char *metric);

/* The value of [metric] in an epoch and its evaluation ([result], if has_validation); NAN: the epoch does not have it.
 */
double monitor_value(const char *metric, const struct epoch_report *epoch, const struct evaluation_result *result);

/* Whether larger values of monitor->metric are better: what `mode` says, with auto what the metric is. */
bool monitor_is_maximized(const struct monitor *monitor);

/* Whether [value] is better than [best] by more than [min_delta]. NAN is never better; anything else is better than a
 * best of NAN. */
bool monitor_is_better(const struct monitor *monitor, double value, double best, double min_delta);
