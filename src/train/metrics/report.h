/* report: the output of rank 0 during training: a progress bar on a terminal, otherwise a line per epoch (fewer in long
 * runs), and a summary at the end. All ranks may call it: with a NULL log nothing is printed. */
#pragma once

#include "base/log.h"
#include "train/metrics/evaluation.h"

struct report {
    struct log *log;   /* not owned; NULL: no output */
    bool counts_steps; /* the run's length is in steps, not epochs */
    int64_t total;     /* epochs or steps */
    bool has_accuracy;
    double started; /* monotonic time of the first step of this process */
    double fraction_at_start;
    double shown;   /* monotonic time of the last progress line */
    double printed; /* monotonic time of the last epoch line */
};

struct epoch_report {
    int64_t epoch;     /* epochs finished */
    double train_loss; /* NAN: every step was skipped, or no target counts */
    bool has_steps;    /* false: every step was skipped */
    bool has_train_accuracy, has_validation;
    double train_accuracy, validation_loss, validation_accuracy;
    int64_t validation_rows;
    double samples_per_second, lr;
    double comm_hidden; /* reducer_hidden, on rank 0; NAN: not printed */
};

/* [fraction]: of the run that is already done (a resume). */
void report_start(struct report *report, double fraction);
/* After a step: [fraction] of the run is done. Updates one line at most ten times a second; it is shorter than the
 * terminal is wide. */
void report_step(struct report *report, double fraction, int64_t epoch, int64_t step, double loss,
                 double samples_per_second);
/* The same before batch [done] of an evaluation of [batches]. */
void report_evaluation(struct report *report, double fraction, int64_t epoch, size_t done, size_t batches);
void report_epoch(struct report *report, const struct epoch_report *epoch, bool is_last);

/* The metrics of the last evaluation, and of up to 20 classes the confusion matrix and the scores of each class.
 * [labels]: of the classes; count 0: they are numbers. */
void report_metrics(struct log *log, const struct evaluation_result *result, const struct string_list *labels);

/* Whether a metric is shown in percent: an accuracy, whose name ends in "accuracy". */
bool report_is_percent(const char *name);
/* The value of a metric for people into [text] (32): accuracies in percent with two decimals, others with six digits,
 * one that is not defined as "-". */
void report_metric(const char *name, double value, char text[32]);
/* The same of its standard error: others with two digits. */
void report_metric_error(const char *name, double value, char text[32]);

/* "3 s", "2 min 5 s", "1 h 12 min" into [text] (32). */
void report_duration(double seconds, char text[32]);
