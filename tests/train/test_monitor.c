/* Which values are better, which metrics epochs have, and what a section means whose keys are not all given.
 * ctest-labels: unit */
#include "train/metrics/monitor.h"

#include <math.h>

#include "check_main.h"
#include "files.h"

static const struct {
    struct monitor monitor;
    bool wants_more;
} directions[] = {
    {{"val_loss", MONITOR_AUTO}, false},    {{"train_loss", MONITOR_AUTO}, false},
    {{"val_mae", MONITOR_AUTO}, false},     {{"val_perplexity", MONITOR_AUTO}, false},
    {{"val_mcc", MONITOR_AUTO}, true},      {{"val_max_error", MONITOR_AUTO}, false},
    {{"val_accuracy", MONITOR_AUTO}, true}, {{"train_accuracy", MONITOR_AUTO}, true},
    {{"val_f1", MONITOR_AUTO}, true},       {{"val_r2", MONITOR_AUTO}, true},
    {{"val_loss", MONITOR_MAX}, true},      {{"val_f1", MONITOR_MIN}, false},
    {{"val_mae", MONITOR_MIN}, false},      {{"val_f1", MONITOR_MAX}, true},
};

TEST_EACH(better_in_the_direction_of_the_metric, directions) {
    const struct monitor *m = &directions[_i].monitor;
    double up = directions[_i].wants_more ? 1 : -1;
    ck_assert(monitor_is_better(m, 4 + up, 4, 0));
    ck_assert(!monitor_is_better(m, 4 - up, 4, 0));
    ck_assert(!monitor_is_better(m, 4, 4, 0));
    ck_assert(monitor_is_better(m, 4 + up, 4, 0.5));
    ck_assert(!monitor_is_better(m, 4 + up, 4, 1));
    ck_assert(!monitor_is_better(m, 4 + up, 4, 2));
    ck_assert(!monitor_is_better(m, 4 - up, 4, 2));
    ck_assert(monitor_is_better(m, 4 - up, NAN, 2));
    ck_assert(!monitor_is_better(m, NAN, 4, 0));
    ck_assert(!monitor_is_better(m, NAN, NAN, 0));
}

TEST(the_value_of_a_metric) {
    struct evaluation_result result = {.metric_count = 2, .metrics = {{"f1", 0.7}, {"auc", 0.8}}};
    struct epoch_report epoch = {.train_loss = 0.1,
                                 .has_train_accuracy = true,
                                 .train_accuracy = 0.2,
                                 .has_validation = true,
                                 .validation_loss = 0.3,
                                 .validation_accuracy = 0.4};
    static const char *const names[] = {"train_loss",   "train_accuracy", "val_loss",
                                        "val_accuracy", "val_f1",         "val_auc"};
    static const double values[] = {0.1, 0.2, 0.3, 0.4, 0.7, 0.8};
    for (size_t i = 0; i < 6; i++) ck_assert(monitor_value(names[i], &epoch, &result) == values[i]);
    epoch.has_validation = epoch.has_train_accuracy = false; /* all of its steps were skipped; nothing was evaluated */
    ck_assert(monitor_value("train_loss", &epoch, &result) == 0.1);
    for (size_t i = 1; i < 6; i++) ck_assert_msg(isnan(monitor_value(names[i], &epoch, &result)), "%s", names[i]);
}

/* [expected]: a part of the message; NULL: epochs have the metric. */
static const struct {
    const char *metric, *expected;
    bool wants_classes, has_validation;
    int64_t evaluate_every;
} checks[] = {
    {NULL, NULL, true, false, 0},
    {"train_loss", NULL, false, false, 0},
    {"train_accuracy", NULL, true, false, 0},
    {"val_loss", NULL, false, true, 1},
    {"val_accuracy", NULL, true, true, 3},
    {"val_auc", NULL, true, true, 1},
    {"train_accuracy", "no metric 'train_accuracy'; they have train_loss, val_loss, val_accuracy, val_auc (", false,
     true, 1},
    {"val_accuracy", NULL, false, true, 1}, /* of train.metrics, for a binary loss */
    {"val_f1", "no metric 'val_f1'; they have train_loss, val_loss, train_accuracy, val_accuracy, val_auc (", true,
     true, 1},
    {"train_auc", "no metric 'train_auc'", true, true, 1},
    {"avg_auc", "no metric 'avg_auc'", true, true, 1},
    {"val_confusion_matrix", "no metric 'val_confusion_matrix'", true, true, 1},
    {"val_auc", "val_auc needs validation rows", true, false, 1},
    {"val_loss", "val_loss needs validation rows", true, false, 0},
    {"val_loss", "nothing is evaluated before the last epoch (train.evaluate_every: 0)", true, true, 0},
    {"train_loss", "nothing is evaluated before the last epoch (train.evaluate_every: 0)", true, true, 0},
};

TEST_EACH(metrics_that_epochs_have, checks) {
    const char *names[] = {"confusion_matrix", "accuracy", "auc"};
    const struct string_list metrics = {names, 3};
    const struct monitor monitor = {.metric = checks[_i].metric};
    const struct loss_type loss = {.wants_classes = checks[_i].wants_classes};
    const struct variant_list losses = {.count = 0};
    status s = monitor_check(&monitor, &metrics, &loss, &losses, checks[_i].has_validation, checks[_i].evaluate_every);
    if (checks[_i].expected)
        ck_failure(s, STATUS_USAGE, checks[_i].expected);
    else
        ck_ok(s);
}

TEST(an_early_stop_with_defaults) {
    const struct early_stop none = {.patience = SCHEMA_NO_INT}, patience = {.patience = 3},
                            metric = {.monitor.metric = "val_f1", .patience = SCHEMA_NO_INT, .min_delta = 0.5};
    ck_assert_ptr_null(early_stop_of(&none).monitor.metric);
    ck_assert_str_eq(early_stop_of(&patience).monitor.metric, "val_loss");
    ck_assert_int_eq(early_stop_of(&patience).patience, 3);
    ck_assert_str_eq(early_stop_of(&metric).monitor.metric, "val_f1");
    ck_assert_int_eq(early_stop_of(&metric).patience, 10);
    ck_assert(early_stop_of(&metric).min_delta == 0.5);
}

CHECK_MAIN("monitor")
