/* Formatting only. */
#include "train/metrics/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/scoped.h"

#define BAR_WIDTH 24
#define EPOCH_LINES 20 /* lines per run in a log file, approximately; more if 10 s pass without one */

void report_duration(double seconds, char text[32]) {
    if (!isfinite(seconds) || seconds < 0) seconds = 0;
    if (seconds < 1)
        snprintf(text, 32, "%.*f ms", seconds < 0.01, seconds * 1000);
    else if (seconds < 60)
        snprintf(text, 32, "%.1f s", seconds);
    else if (seconds < 3600)
        snprintf(text, 32, "%d min %d s", (int)seconds / 60, (int)seconds % 60);
    else if (seconds < 1e8)
        snprintf(text, 32, "%d h %d min", (int)(seconds / 3600), (int)(seconds / 60) % 60);
    else
        snprintf(text, 32, "years");
}

bool report_is_percent(const char *name) {
    static const char ending[] = "accuracy";
    size_t length = strlen(name), size = sizeof ending - 1;
    return length >= size && strcmp(name + length - size, ending) == 0;
}

void report_metric(const char *name, double value, char text[32]) {
    bool is_percent = report_is_percent(name);
    if (isnan(value))
        snprintf(text, 32, "-");
    else
        snprintf(text, 32, is_percent ? "%.2f %%" : "%.6g", is_percent ? 100 * value : value);
}

void report_metric_error(const char *name, double value, char text[32]) {
    bool is_percent = report_is_percent(name);
    snprintf(text, 32, is_percent ? "%.2f %%" : "%.2g", is_percent ? 100 * value : value);
}

void report_start(struct report *report, double fraction) {
    report->started = report->shown = report->printed = clock_seconds();
    report->fraction_at_start = fraction;
}

static bool is_shown_now(struct report *report) {
    if (!log_has_progress(report->log)) return false;
    double now = clock_seconds();
    if (now - report->shown < 0.1) return false;
    report->shown = now;
    return true;
}

/* The content of a progress line. Parts are removed, least important first, until it fits the terminal. */
struct progress_line {
    double fraction, loss, samples_per_second;
    int64_t epoch, step;
    size_t batch, batches; /* of an evaluation; batches 0: training */
    const char *left;
};

enum detail { ALL, NO_RATE, NO_STEP, SHORT_BAR, NO_BAR, NO_EPOCH, NO_LOSS, DETAILS };

static void add_bar(struct text *line, double fraction, int width) {
    int filled = (int)(fraction * width);
    text_add(line, " [");
    for (int i = 0; i < width; i++) text_add(line, i < filled ? "=" : i == filled ? ">" : " ");
    text_add(line, "]");
}

static void write_progress(const struct progress_line *p, enum detail detail, struct text *line) {
    text_clear(line);
    text_printf(line, "%3d %%", (int)(p->fraction * 100));
    if (detail < NO_BAR) add_bar(line, p->fraction, detail < SHORT_BAR ? BAR_WIDTH : BAR_WIDTH / 3);
    if (detail < NO_EPOCH) text_printf(line, " epoch %lld", (long long)p->epoch);
    if (p->batches) {
        text_printf(line, "  evaluating: batch %zu of %zu", p->batch, p->batches);
        return;
    }
    if (detail < NO_STEP) text_printf(line, "  step %lld", (long long)p->step);
    if (detail < NO_LOSS) text_printf(line, "  loss %.4f", p->loss);
    if (detail < NO_RATE) text_printf(line, "  %.0f samples/s", p->samples_per_second);
    text_printf(line, "  %s left", p->left);
}

static void show_progress(const struct report *report, const struct progress_line *p) {
    SCOPED_TEXT line = {0};
    size_t columns = log_width();
    write_progress(p, ALL, &line);
    for (enum detail detail = NO_RATE; detail < DETAILS && line.length >= columns; detail++)
        write_progress(p, detail, &line);
    if (line.length >= columns) line.data[columns - 1] = 0;
    log_progress(report->log, text_string(&line));
}

void report_evaluation(struct report *report, double fraction, int64_t epoch, size_t done, size_t batches) {
    if (!is_shown_now(report)) return;
    show_progress(report,
                  &(struct progress_line){.fraction = fraction, .epoch = epoch, .batch = done + 1, .batches = batches});
}

void report_step(struct report *report, double fraction, int64_t epoch, int64_t step, double loss,
                 double samples_per_second) {
    if (!is_shown_now(report)) return;
    double done = fraction - report->fraction_at_start, seconds = report->shown - report->started;
    char left[32];
    report_duration(done > 0 ? seconds * (1 - fraction) / done : 0, left);
    show_progress(report, &(struct progress_line){.fraction = fraction,
                                                  .loss = loss,
                                                  .samples_per_second = samples_per_second,
                                                  .epoch = epoch,
                                                  .step = step,
                                                  .left = left});
}

/* Four decimals; four significant digits when the number is large. */
static void add_loss(struct text *line, double loss) { text_printf(line, fabs(loss) < 1e5 ? "%.4f" : "%.4g", loss); }

static bool is_due(const struct report *report, const struct epoch_report *epoch, bool is_last) {
    int64_t every = report->counts_steps ? 1 : (report->total - 1) / EPOCH_LINES + 1;
    return is_last || epoch->epoch == 1 || epoch->epoch % every == 0 || clock_seconds() - report->printed > 10;
}

/* Parts of an epoch line. They are removed in this order until the line fits the terminal. */
enum epoch_detail { EPOCH_ALL, NO_COMM, NO_ROWS, NO_SPEED, NO_LR, NO_TRAIN_ACCURACY, NO_ACCURACY, EPOCH_DETAILS };

static void write_epoch(const struct report *report, const struct epoch_report *epoch, enum epoch_detail detail,
                        struct text *line) {
    text_clear(line);
    text_printf(line, "epoch %lld", (long long)epoch->epoch);
    if (!report->counts_steps) text_printf(line, "/%lld", (long long)report->total);
    if (isnan(epoch->train_loss)) {
        text_add(line, epoch->has_steps ? "  no training target counts" : "  every step was skipped");
    } else {
        text_add(line, "  train loss ");
        add_loss(line, epoch->train_loss);
    }
    if (epoch->has_train_accuracy && detail < NO_TRAIN_ACCURACY)
        text_printf(line, " accuracy %.2f %%", 100 * epoch->train_accuracy);
    if (epoch->has_validation) {
        text_add(line, "  validation loss ");
        add_loss(line, epoch->validation_loss);
        if (report->has_accuracy && detail < NO_ACCURACY)
            text_printf(line, " accuracy %.2f %%", 100 * epoch->validation_accuracy);
        if (detail < NO_ROWS)
            text_printf(line, " (%lld row%s)", (long long)epoch->validation_rows,
                        text_plural((uint64_t)epoch->validation_rows, "s"));
    }
    if (detail < NO_LR) text_printf(line, "  lr %g", epoch->lr);
    if (detail < NO_SPEED) text_printf(line, "  %.0f samples/s", epoch->samples_per_second);
    if (!isnan(epoch->comm_hidden) && detail < NO_COMM)
        text_printf(line, "  comm hidden %.0f %%", 100 * epoch->comm_hidden);
}

void report_epoch(struct report *report, const struct epoch_report *epoch, bool is_last) {
    if (!report->log || !is_due(report, epoch, is_last)) return;
    report->printed = clock_seconds();
    SCOPED_TEXT line = {0}, fitted = {0};
    size_t columns = log_line_width();
    write_epoch(report, epoch, EPOCH_ALL, &line);
    text_add(&fitted, text_string(&line));
    for (enum epoch_detail detail = NO_COMM; detail < EPOCH_DETAILS && fitted.length > columns; detail++)
        write_epoch(report, epoch, detail, &fitted);
    log_line_fitted(report->log, text_string(&line), text_string(&fitted));
}

#define MAX_SHOWN_CLASSES 20 /* of a confusion matrix */

static void report_matrix(struct log *log, const double *counts, size_t classes) {
    SCOPED_TEXT line = {0};
    log_line(log, "confusion matrix (rows: targets, columns: predictions):");
    for (size_t i = 0; i < classes; i++) {
        text_clear(&line);
        for (size_t j = 0; j < classes; j++) {
            double count = counts[i * classes + j]; /* with weights their sum */
            text_printf(&line, " %7.*f", count == floor(count) ? 0 : 2, count);
        }
        log_line(log, "%s", text_string(&line));
    }
}

static void report_classes(struct log *log, const struct evaluation_result *result, const struct string_list *labels) {
    SCOPED_TEXT line = {0};
    log_line(log, "%-20s %9s %9s %9s %9s %9s", "class", "precision", "recall", "f1", "iou", "targets");
    for (size_t c = 0; c < result->classes; c++) {
        struct class_scores s = metric_class_scores(result->confusion, result->classes, c);
        text_clear(&line);
        if (c < labels->count)
            text_add_value(&line, labels->items[c], TEXT_MAX_NAME);
        else
            text_printf(&line, "%zu", c);
        text_pad(&line, 0, 20);
        log_line(log, "%s %9.4f %9.4f %9.4f %9.4f %9.*f", text_string(&line), s.precision, s.recall, s.f1, s.iou,
                 s.targets == floor(s.targets) ? 0 : 2, s.targets);
    }
}

/* As in the line of an epoch: accuracies in percent, others with four decimals. */
static void add_metric(struct text *line, const char *before, const struct evaluation_metric *metric) {
    char text[32];
    report_metric(metric->name, metric->value, text);
    if (report_is_percent(metric->name) || isnan(metric->value))
        text_printf(line, "%s%s %s", before, metric->name, text);
    else
        text_printf(line, "%s%s %.4f", before, metric->name, metric->value);
}

void report_metrics(struct log *log, const struct evaluation_result *result, const struct string_list *labels) {
    SCOPED_TEXT line = {0};
    for (size_t i = 0; i < result->metric_count; i++) add_metric(&line, i ? ", " : "metrics: ", &result->metrics[i]);
    if (result->metric_count) log_line(log, "%s", text_string(&line));
    if (!result->confusion || result->classes > MAX_SHOWN_CLASSES) return;
    report_matrix(log, result->confusion, result->classes);
    report_classes(log, result, labels);
}
