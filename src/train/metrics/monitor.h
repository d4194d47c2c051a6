/* monitor: a metric of the epochs that decides something: which checkpoint is the best (`checkpoint.best`), when a run
 * stops early (`train.early_stop`). Metrics have the names of metrics.jsonl's epoch events. */
#ifndef TRAIN_MONITOR_H
#define TRAIN_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/schema.h"
#include "base/status.h"
#include "train/metrics/evaluation.h"
#include "train/metrics/report.h"

enum monitor_mode { MONITOR_AUTO, MONITOR_MIN, MONITOR_MAX };

/* Its keys are `metric` and `mode`, the first two rows of a section. */
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

/* The section as it acts: val_loss and 10 where one of the two is not given; metric NULL: there is no early stop. */
struct early_stop early_stop_of(const struct early_stop *config);

/* Whether epochs have the metric: STATUS_USAGE with what is missing. [metrics]: train.metrics. */
status monitor_check(const struct monitor *monitor, const struct string_list *metrics, const struct loss_type *loss,
                     bool has_validation, int64_t evaluate_every);

/* The value in an epoch with its evaluation ([result], where the epoch has one); NAN: it has none. */
double monitor_value(const char *metric, const struct epoch_report *epoch, const struct evaluation_result *result);

/* Whether [value] is better than [best] by more than [min_delta]. NAN is never better; anything else is better than a
 * best of NAN. */
bool monitor_is_better(const struct monitor *monitor, double value, double best, double min_delta);

#endif
