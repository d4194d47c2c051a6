/* The rates are computed from the lengths of the config in the run folder and of the new one, at the step where the run
 * ended. */
#include "train/run/schedule_warnings.h"

#include <jansson.h>
#include <math.h>

#include "train/metrics/metrics_read.h"

/* A smaller change of the rate needs no warning. */
#define SMALL_CHANGE 0.1

/* Where the run in a folder has ended. */
struct position {
    int64_t epoch, step; /* finished ones; step 0: none is known */
};

static struct schedule_progress progress_at(const struct plan *plan, const struct config *config, int64_t epoch,
                                            int64_t step) {
    int64_t per_epoch = plan->steps > 0 ? (int64_t)plan->steps : 1;
    const struct train_config *train = &config->train;
    bool has_steps = train->steps != SCHEMA_NO_INT;
    return (struct schedule_progress){.epoch = epoch,
                                      .steps = step,
                                      .total_epochs = has_steps ? (train->steps - 1) / per_epoch + 1 : train->epochs,
                                      .total_steps = has_steps ? train->steps
                                                     : train->epochs > INT64_MAX / per_epoch
                                                         ? INT64_MAX
                                                         : train->epochs * per_epoch};
}

static double rate_at(const struct plan *plan, const struct config *config, int64_t epoch, int64_t step) {
    struct schedule_progress progress = progress_at(plan, config, epoch, step);
    return schedule_lr(&config->schedule, optimizer_settings(&config->optimizer).lr, &progress);
}

static bool read_event(const char *line, struct position *out) {
    json_t *event = line ? json_loads(line, 0, NULL) : NULL;
    json_t *epoch = json_object_get(event, "epoch"), *step = json_object_get(event, "step");
    bool is_read = json_is_integer(epoch) && json_is_integer(step) && json_integer_value(epoch) >= 0 &&
                   json_integer_value(step) > 0;
    if (is_read) *out = (struct position){json_integer_value(epoch), json_integer_value(step)};
    json_decref(event);
    return is_read;
}

/* By the event `end` or `stopped`, or of a run that was killed by the newest step. */
static status read_position(const char *folder, struct position *out) {
    struct text path = {0};
    struct metrics_lines lines;
    *out = (struct position){0};
    text_printf(&path, "%s/metrics.jsonl", folder);
    status s = metrics_read(text_string(&path), &lines);
    text_free(&path);
    TRY(s);
    bool is_end = metrics_line_is(lines.other, METRICS_END) || metrics_line_is(lines.other, METRICS_STOPPED);
    if (!is_end || !lines.is_other_last || !read_event(lines.other, out)) read_event(lines.step, out);
    metrics_lines_free(&lines);
    return OK;
}

static status load_old(const char *folder, struct config_file **out) {
    struct text path = {0};
    text_printf(&path, "%s/config.yaml", folder);
    status s = config_load(text_string(&path), NULL, 0, out);
    text_free(&path);
    return s;
}

static void compare(const struct plan *plan, const struct config *old, const struct position *at, struct text *out) {
    const struct config *config = plan->config;
    int64_t per_epoch = plan->steps > 0 ? (int64_t)plan->steps : 1;
    if (old->train.epochs == config->train.epochs && old->train.steps == config->train.steps) return;
    bool is_after_epoch = at->epoch > 0 && at->step == at->epoch * per_epoch;
    double last = rate_at(plan, old, at->epoch - is_after_epoch, at->step - 1);
    double next = rate_at(plan, config, at->epoch, at->step);
    if (fabs(next - last) <= SMALL_CHANGE * fmax(next, last)) return;
    text_printf(out,
                "the schedule takes its length from the run, which is now longer or shorter: after step %lld the "
                "learning rate changes from %.3g to %.3g; give the schedule a length of its own, %s, to avoid it",
                (long long)at->step, last, next, schedule_length_key(&config->schedule));
}

static void warn_of_extension(const struct plan *plan, const char *folder, struct text *out) {
    struct config_file *old = NULL;
    struct position at;
    status s = read_position(folder, &at);
    if (!s && at.step > 0) s = load_old(folder, &old);
    if (!s && old) compare(plan, config_of(old), &at, out);
    config_free(old);
    status_free(s);
}

void schedule_warn(const struct plan *plan, const char *folder, struct text *out) {
    const struct config *config = plan->config;
    struct schedule_progress progress = progress_at(plan, config, 0, 0);
    double rate = rate_at(plan, config, 0, 0);
    if (schedule_has_no_rise(&config->schedule, &progress))
        text_printf(
            out,
            "schedule: one_cycle has a single interval, which is its end, so the learning rate is %.3g; give it "
            "more intervals: more train.epochs, or schedule.interval: step",
            rate);
    else if (schedule_length_key(&config->schedule))
        warn_of_extension(plan, folder, out);
}
