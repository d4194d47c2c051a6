/* The coordinator of a sweep: its queue of runs, its progress messages, and its one loop: runs go to idle workers,
 * reports come back. What the table has is never done again; what was in progress in a worker that ended is handed out
 * again. */
#include "sweep/sweep.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "base/stop.h"
#include "dist/process/net.h"
#include "sweep/claims.h"
#include "sweep/compare.h"
#include "sweep/sweep_folder.h"
#include "sweep/sweep_tensorboard.h"
#include "sweep/tpe.h"
#include "sweep/trials.h"
#include "sweep/workers/slot.h"
#include "sweep/workers/worker.h"
#include "train/metrics/report.h"

static int64_t runs_of(const struct sweep_config *sweep) { return sweep->trials * sweep->runs; }

/* ---- which run is next ---- */

/* Runs are handed out in the order of their numbers; the list of runs to repeat is short, so it is searched. */

struct run_queue {
    const struct sweep_config *config;
    struct trials *trials; /* TPE's points are set in it */
    struct tpe *tpe;       /* NULL: another method */
    struct claims *claims; /* NULL: all trials are this process's */
    struct retry *retries; /* runs that were handed out before */
    size_t retry_count, retry_capacity;
    int64_t next, end;   /* the first run that was never handed out, of those up to [end] */
    const int64_t *kept; /* trials whose runs are trained again; NULL: not yet */
    int64_t kept_count;
    int64_t checked;             /* runs of kept that were handed out */
    struct sweep_folder *folder; /* of the runs */
    const char *no_gpu;          /* as worker_options' */
    struct log *log;
};

/* A run that was handed out before. */
struct retry {
    int64_t run;
    int losses;      /* workers that were lost with it */
    bool is_waiting; /* to be handed out */
};

static void run_queue_close(struct run_queue *q) {
    free(q->retries);
    tpe_destroy(q->tpe);
}

/* The entry of [run], which is added if there is none. */
static struct retry *retry_of(struct run_queue *q, int64_t run) {
    for (size_t i = 0; i < q->retry_count; i++)
        if (q->retries[i].run == run) return &q->retries[i];
    if (q->retry_count == q->retry_capacity) {
        q->retry_capacity = q->retry_capacity * 2 + 8;
        q->retries = status_need(realloc(q->retries, q->retry_capacity * sizeof *q->retries));
    }
    q->retries[q->retry_count] = (struct retry){.run = run};
    return &q->retries[q->retry_count++];
}

/* [run] is handed out again. */
static void run_queue_repeat(struct run_queue *q, int64_t run) { retry_of(q, run)->is_waiting = true; }

/* The worker of [run] was lost; returns how many have been. */
static int run_queue_count_loss(struct run_queue *q, int64_t run) { return ++retry_of(q, run)->losses; }

/* From now on only the runs of the trials [kept] (count), with run folders. The array is not copied. */
static void run_queue_keep(struct run_queue *q, const int64_t *kept, int64_t count) {
    q->kept = kept;
    q->kept_count = count;
    q->retry_count = 0;
}

/* The value of a pruned run of a trial. */
static void observe_pruned(const struct run_queue *q, int64_t trial, struct observation *o) {
    for (int64_t r = 0; r < q->config->runs; r++) {
        const struct trial_run *run = trials_run(q->trials, trial * q->config->runs + r);
        if (run->state != TRIAL_PRUNED) continue;
        o->epochs = run->epochs;
        o->values[0] = q->config->metric.goal == SWEEP_MAXIMIZE ? -run->value : run->value;
    }
}

/* TPE is to know a trial that runs or has ended. */
static void run_queue_observe(struct run_queue *q, int64_t trial) {
    struct observation o = {.is_running = false};
    if (!q->tpe || !trials_point(q->trials, trial, &o.point)) return;
    struct trial_summary summary = trials_summary(q->trials, trial);
    o.is_running = summary.state == TRIAL_PENDING;
    o.is_complete = summary.state == TRIAL_COMPLETE;
    trials_metrics(q->trials, trial, o.values);
    if (summary.state == TRIAL_PRUNED) observe_pruned(q, trial, &o);
    tpe_observe(q->tpe, (size_t)trial, &o);
}

static void run_queue_open(struct run_queue *q, const struct sweep_config *config, struct trials *trials) {
    *q = (struct run_queue){.config = config, .trials = trials, .end = config->trials * config->runs};
    if (config->method == SWEEP_TPE) q->tpe = tpe_create(&config->space, 1 + config->other_metrics.count);
    for (int64_t trial = 0; q->tpe && trial < config->trials; trial++) run_queue_observe(q, trial);
}

/* TPE's point of a trial, from the trials that have ended or run. */
static void suggest(const struct run_queue *q, int64_t trial, struct point *out) {
    struct rng rng;
    sweep_rng(q->config, trial, &rng);
    tpe_suggest(q->tpe, &rng, out);
}

/* The other runs of a trial are not done when one was pruned. They are when one has failed: else the table would depend
 * on which run came first. */
static bool is_due(const struct run_queue *q, int64_t run) {
    if (q->claims && !claims_has(q->claims, run / q->config->runs)) return false;
    return trials_run(q->trials, run)->state == TRIAL_PENDING &&
           trials_summary(q->trials, run / q->config->runs).state != TRIAL_PRUNED;
}

static bool next_retry(struct run_queue *q, int64_t *run) {
    for (size_t i = 0; i < q->retry_count; i++) {
        if (!q->retries[i].is_waiting) continue;
        q->retries[i].is_waiting = false;
        *run = q->retries[i].run;
        if (q->kept || is_due(q, *run)) return true;
    }
    return false;
}

static bool next_pending(struct run_queue *q, int64_t *run) {
    while (q->next < q->end) {
        *run = q->next++;
        if (is_due(q, *run)) return true;
    }
    return false;
}

static bool next_kept(struct run_queue *q, int64_t *run) {
    int64_t runs = q->config->runs;
    if (q->checked >= q->kept_count * runs) return false;
    *run = q->kept[q->checked / runs] * runs + q->checked % runs;
    q->checked++;
    return true;
}

/* The job of the next run; *got false: there is none now. */
static status run_queue_next(struct run_queue *q, struct worker_job *job, bool *got) {
    int64_t run;
    *got = next_retry(q, &run) || (q->kept ? next_kept : next_pending)(q, &run);
    if (!*got) return OK;
    int64_t trial = run / q->config->runs;
    *job = (struct worker_job){.run = run, .is_kept = q->kept || q->config->kept == INT64_MAX};
    bool has_point = trials_point(q->trials, trial, &job->point);
    if (!has_point) {
        suggest(q, trial, &job->point);
        TRY(sweep_folder_continue_trial(q->folder, q->config, trial, q->no_gpu, q->log, &job->point));
    }
    trials_set_point(q->trials, trial, &job->point);
    if (!has_point) run_queue_observe(q, trial);
    return OK;
}

/* Trials of a shared sweep that this process has claimed; OK without any. */
static status run_queue_claim(struct run_queue *q) {
    int64_t first, end;
    bool has = q->claims && !q->kept && q->next == q->end;
    if (has) TRY(claims_next(q->claims, &first, &end, &has));
    if (!has) return OK;
    q->next = first * q->config->runs;
    q->end = end * q->config->runs;
    return OK;
}

/* ---- progress messages ---- */

/* On a terminal a line that moves; in a batch log at most one line every 10 s, and one for each new best. */

struct sweep_report {
    struct log *log;
    const struct sweep_config *sweep;
    const struct trials *trials;
    const char *folder;
    int workers;
    double started, shown, printed; /* of the first line, the last progress, the last line */
    double last_end;                /* when the last run ended */
    int64_t before;                 /* runs that had ended when this process started */
    bool is_done;                   /* nothing is left to do */
    int64_t best;                   /* trial; -1: none yet */
    double best_value;
};

#define BAR_WIDTH 24
#define LINE_SECONDS 10
#define BEST_SHOWN 5
#define FRONT_SHOWN 20

static int64_t ended(const struct sweep_report *r) {
    return runs_of(r->sweep) - trials_count(r->trials, TRIAL_PENDING);
}

/* "12 pruned, 1 failed" with a comma before it; nothing where there are none. */
static void add_counts(const struct sweep_report *r, struct text *out) {
    for (int state = TRIAL_PRUNED; state <= TRIAL_FAILED; state++)
        if (trials_count(r->trials, state))
            text_printf(out, ", %" PRId64 " %s", trials_count(r->trials, state), trial_states[state]);
}

static const char *noun(const struct sweep_report *r) { return r->sweep->runs > 1 ? "run" : "trial"; }

/* The rate is that when the last run ended: time without an end does not make the rest longer. A rest that has passed
 * is not known. */
static void add_progress(const struct sweep_report *r, struct text *out) {
    int64_t here = ended(r) - r->before;
    double rate = (double)here / fmax(r->last_end - r->started, 1e-6);
    text_printf(out, "%" PRId64 " of %" PRId64 " %ss", ended(r), runs_of(r->sweep), noun(r));
    add_counts(r, out);
    char best[32];
    report_metric(r->sweep->metric.name, r->best_value, best);
    if (r->best >= 0) text_printf(out, ", best %s (trial %" PRId64 ")", best, r->best);
    if (here == 0) return;
    text_printf(out, ", %.3g %ss/s", rate, noun(r));
    double left = (double)(runs_of(r->sweep) - ended(r)) / rate - (clock_seconds() - r->last_end);
    char duration[32];
    report_duration(left, duration);
    if (left > 0) text_printf(out, ", %s left", duration);
}

static void add_point(const struct sweep_report *r, int64_t trial, struct text *out) {
    struct point point;
    if (r->sweep->list) {
        for (const char *const *word = r->sweep->list[trial]; *word; word++) text_printf(out, "  %s", *word);
        return;
    }
    trials_point(r->trials, trial, &point);
    for (size_t i = 0; i < r->sweep->space.count; i++) {
        if (!space_is_active(&r->sweep->space, i, &point)) continue;
        text_printf(out, "  %s=", r->sweep->space.items[i].path);
        space_write(&r->sweep->space, i, &point, out);
    }
}

static void warn_of_goal(const struct sweep_report *r) {
    const struct sweep_metric *metric = &r->sweep->metric;
    const char *usual = sweep_goal_name(sweep_goal_of(metric->name));
    if (metric->goal != (int)sweep_goal_of(metric->name))
        log_warning(r->log, "metric.goal is %s, although the usual goal of %s is %s; leave goal out to %s it",
                    sweep_goal_name((enum sweep_goal)metric->goal), metric->name, usual, usual);
}

static bool has_word(const char *const *words, const char *word) {
    while (*words && strcmp(*words, word) != 0) words++;
    return *words != NULL;
}

/* Adds a sentence for each KEY=VALUE word of [words] that [others] lack. */
static void add_warnings_of_words(const struct sweep_report *r, const char *const *words, const char *const *others,
                                  struct text *out) {
    for (; *words; words++) {
        if (has_word(others, *words)) continue;
        SCOPED_STRING key = text_format("%.*s", (int)strcspn(*words, "="), *words);
        comparability_explain_key(key, r->sweep->metric.name, out);
    }
}

/* A warning for each parameter that changes what the metric means; of a list the first trials that differ in one. */
static void warn_of_parameters(const struct sweep_report *r) {
    const struct sweep_config *sweep = r->sweep;
    SCOPED_TEXT warnings = {0};
    for (size_t i = 0; i < sweep->space.count; i++) {
        const struct parameter *p = &sweep->space.items[i];
        const char *own[] = {p->path, NULL}, **keys = p->keys ? p->keys : own;
        for (; (p->kind != PARAMETER_VALUES || p->count > 1) && *keys; keys++)
            comparability_explain_key(*keys, sweep->metric.name, &warnings);
    }
    for (int64_t i = 1; sweep->list && i < sweep->trials && !warnings.length; i++) {
        add_warnings_of_words(r, sweep->list[i], sweep->list[0], &warnings);
        if (!warnings.length) add_warnings_of_words(r, sweep->list[0], sweep->list[i], &warnings);
    }
    for (const char *line = text_string(&warnings); *line; line += strcspn(line, "\n") + 1)
        log_warning(r->log, "%.*s", (int)strcspn(line, "\n"), line);
}

/* A warning for each word for all trials whose key, or the section around it, a parameter sets in every trial. */
static void warn_of_overrides(const struct sweep_report *r) {
    const struct sweep_config *sweep = r->sweep;
    for (size_t i = 0; i < sweep->overrides.count; i++)
        for (size_t k = 0; k < sweep->space.count; k++) {
            const struct parameter *p = &sweep->space.items[k];
            const char *word = sweep->overrides.items[i], *own[] = {p->path, NULL};
            for (const char **key = p->keys ? p->keys : own; p->condition_count == 0 && *key; key++) {
                size_t length = strlen(*key);
                if (strncmp(word, *key, length) == 0 && (word[length] == '=' || word[length] == '.'))
                    log_warning(r->log, "%s has no effect on the trials: parameters.%s sets it in each of them", word,
                                p->path);
            }
        }
}

static void sweep_report_start(struct sweep_report *r) {
    r->started = r->shown = r->printed = r->last_end = clock_seconds();
    r->before = ended(r);
    r->best = -1;
    r->best_value = NAN;
    int64_t best;
    if (trials_best(r->trials, 1, &best) == 1) {
        r->best = best;
        r->best_value = trials_summary(r->trials, best).mean;
    }
    log_line(r->log, "%s: %" PRId64 " trial%s%s (%s), %d worker%s", r->folder, r->sweep->trials,
             text_plural((uint64_t)r->sweep->trials, "s"), r->sweep->runs > 1 ? " of several runs" : "",
             sweep_method_name((enum sweep_method)r->sweep->method), r->workers,
             text_plural((uint64_t)r->workers, "s"));
    warn_of_goal(r);
    warn_of_parameters(r);
    warn_of_overrides(r);
    if (r->before > 0)
        log_line(r->log, "continuing: %" PRId64 " of %" PRId64 " %ss have ended", r->before, runs_of(r->sweep),
                 noun(r));
}

/* "0.123 +- 0.004", of accuracies "97.31 % +- 0.42 %" */
static void add_mean(const struct sweep_report *r, const struct trial_summary *s, struct text *out) {
    char mean[32], error[32];
    report_metric(r->sweep->metric.name, s->mean, mean);
    report_metric_error(r->sweep->metric.name, s->error, error);
    text_add(out, mean);
    if (!isnan(s->error)) text_printf(out, " +- %s", error);
}

/* it has ended, and is in the table */
static void sweep_report_run(struct sweep_report *r, int64_t run) {
    int64_t trial = run / r->sweep->runs;
    struct trial_summary s = trials_summary(r->trials, trial);
    const struct trial_run *result = trials_run(r->trials, run);
    SCOPED_TEXT line = {0};
    r->last_end = clock_seconds();
    if (result->state == TRIAL_FAILED && trials_count(r->trials, TRIAL_FAILED) <= 3)
        log_warning(r->log, "trial %" PRId64 " failed: %s", trial, result->message ? result->message : "");
    if (s.state == TRIAL_COMPLETE && trials_is_better(r->sweep, s.mean, r->best_value)) {
        r->best = trial;
        r->best_value = s.mean;
        text_printf(&line, "trial %" PRId64 ": %s ", trial, r->sweep->metric.name);
        add_mean(r, &s, &line);
        add_point(r, trial, &line);
        log_line(r->log, "%s", text_string(&line));
    }
}

static void sweep_report_progress(struct sweep_report *r) {
    double now = clock_seconds();
    SCOPED_TEXT line = {0};
    bool has_bar = log_has_progress(r->log);
    if (now - (has_bar ? r->shown : r->printed) < (has_bar ? 0.1 : LINE_SECONDS)) return;
    r->shown = r->printed = now;
    if (has_bar) {
        double fraction = (double)ended(r) / (double)runs_of(r->sweep);
        int filled = (int)(fraction * BAR_WIDTH);
        text_printf(&line, "%3d %% [", (int)(fraction * 100));
        for (int i = 0; i < BAR_WIDTH; i++) text_add(&line, i < filled ? "=" : i == filled ? ">" : " ");
        text_add(&line, "] ");
    }
    add_progress(r, &line);
    if (has_bar && line.length >= log_width()) line.data[log_width() - 1] = 0;
    (has_bar ? log_progress(r->log, text_string(&line)) : log_line(r->log, "%s", text_string(&line)));
}

/* The other metrics of a trial: "  parameters 131". */
static void add_others(const struct sweep_report *r, int64_t trial, struct text *out) {
    for (size_t i = 0; i < r->sweep->other_metrics.count; i++) {
        const char *name = sweep_other_metric(r->sweep, i)->name;
        char value[32];
        report_metric(name, trials_other(r->trials, trial, i), value);
        text_printf(out, "  %s %s", name, value);
    }
}

/* The heading of the Pareto front; returns how many trials it has. */
static int64_t begin_front(const struct sweep_report *r) {
    bool *front = status_need(calloc((size_t)r->sweep->trials + 1, sizeof *front));
    SCOPED_TEXT line = {0};
    int64_t count = trials_front(r->trials, front);
    text_printf(&line, "Pareto front of %s (%s)", r->sweep->metric.name,
                sweep_goal_name((enum sweep_goal)r->sweep->metric.goal));
    for (size_t i = 0; i < r->sweep->other_metrics.count; i++)
        text_printf(&line, ", %s (%s)", sweep_other_metric(r->sweep, i)->name,
                    sweep_goal_name((enum sweep_goal)sweep_other_metric(r->sweep, i)->goal));
    log_line(r->log, "%s: %" PRId64 " trial%s%s", text_string(&line), count, text_plural((uint64_t)count, "s"),
             count > FRONT_SHOWN ? ", the first of them:"
             : count             ? ":"
                                 : "");
    free(front);
    return count;
}

/* The best trials, or the Pareto front by the metric, and how to use the best one, unless its run folder is still to be
 * written. */
static void list_best(const struct sweep_report *r) {
    int64_t best[FRONT_SHOWN], count = trials_best(r->trials, BEST_SHOWN, best);
    if (count && r->sweep->other_metrics.count) {
        int64_t front = begin_front(r);
        count = trials_best(r->trials, front < FRONT_SHOWN ? front : FRONT_SHOWN, best);
    } else if (count) {
        log_line(r->log, "best of %s (%s):", r->sweep->metric.name, r->sweep->runs > 1 ? "mean" : "best epoch");
    }
    for (int64_t i = 0; i < count; i++) {
        struct trial_summary s = trials_summary(r->trials, best[i]);
        SCOPED_TEXT line = {0};
        text_printf(&line, "  trial %04" PRId64 "  ", best[i]);
        add_mean(r, &s, &line);
        add_others(r, best[i], &line);
        add_point(r, best[i], &line);
        log_line(r->log, "%s", text_string(&line));
    }
    if (!count || r->sweep->kept <= 0) return;
    SCOPED_STRING folder = sweep_run_path(r->folder, r->sweep, best[0] * r->sweep->runs);
    SCOPED_STRING path = text_path(folder, "config.yaml");
    SCOPED_TEXT word = {0};
    struct io_info info = {0};
    status_free(io_stat(path, &info));
    text_add_shell(&word, path);
    if (info.exists)
        log_line(r->log, "the best one is a run like any other: ddptrain eval %s --checkpoint best",
                 text_string(&word));
}

static void sweep_report_end(struct sweep_report *r) {
    char duration[32];
    SCOPED_TEXT counts = {0};
    report_duration(clock_seconds() - r->started, duration);
    add_counts(r, &counts);
    log_line(r->log, "%s%" PRId64 " of %" PRId64 " %ss%s in %s; table: %s/trials.csv", r->is_done ? "done: " : "",
             ended(r), runs_of(r->sweep), noun(r), text_string(&counts), duration, r->folder);
    text_clear(&counts);
    trials_explain_values(r->trials, &counts);
    if (counts.length) log_warning(r->log, "%s", text_string(&counts));
    list_best(r);
}

/* ---- the coordinator ---- */

#define MAX_ATTEMPTS 3  /* of a run whose worker was lost */
#define LATE_SECONDS 10 /* for ranks that have not connected when the sweep ends */

#define KEEPERS 8        /* workers that train kept trials again, at most */
#define KEEP_SECONDS 0.1 /* a run that is longer waits for the disk for a small part of the time */

struct coordinator {
    const struct sweep_file *file;
    const struct sweep_config *config;
    const struct sweep_options *options;
    struct log *log;
    struct sweep_folder *folder, *runs_folder; /* runs_folder: where runs are trained; [folder], or of a shared sweep */
    struct claims *claims;                     /* NULL: the sweep is not shared */
    struct trials *trials;
    struct pruner *pruner;
    struct dataset_cache *cache;
    struct worker_slot *slots; /* (slot_count): those of this process, those of other ranks, by rank, then keepers */
    struct pollfd *fds;
    int slot_count, slot_capacity, joined; /* joined: other ranks */
    int job_slots;                         /* the first slots, which get runs; fewer than all: without keepers */
    struct worker_listener *listener;      /* NULL: there are no other ranks */
    struct run_queue queue;
    bool *has_folder;                 /* (runs) a worker of this start has written it */
    bool *has_events;                 /* (runs) of sweep_tensorboard_add */
    int64_t *kept, kept_count;        /* the best trials so far; (config->kept, or with keep: all the trials) */
    bool is_keeping_best;             /* every run has ended: the best ones get their folders */
    bool may_add_keepers;             /* is_keeping_best, and they would help, if the disk is slow */
    bool is_lost;                     /* the folder: nothing is written any more */
    bool has_moved;                   /* the folder: jobs have its path */
    bool is_stopping, is_over_budget; /* no more runs are handed out */
    int64_t out_of_range;             /* folders of trials with numbers >= config->trials */
    double started, stop_at;          /* stop_at: when workers that still run are killed */
    struct sweep_report report;
};

/* ---- reports of workers ---- */

static status add_events(struct coordinator *s, int64_t run) {
    const char *folder = s->claims ? sweep_folder_by_fd(s->folder) : sweep_folder_path(s->folder);
    return sweep_tensorboard_add(folder, s->config, s->trials, run, &s->has_events[run]);
}

/* Whether the best trials may be others with [trial], which has just ended. */
static bool may_be_kept(const struct coordinator *s, int64_t trial, const struct trial_summary *ended) {
    if (ended->state != TRIAL_COMPLETE || s->config->kept == 0) return false;
    if (s->kept_count < s->config->kept) return true;
    bool is_dominated = s->config->other_metrics.count == 0;
    for (int64_t i = 0; i < s->kept_count && !is_dominated; i++)
        is_dominated = trials_dominates(s->trials, s->kept[i], trial);
    if (!is_dominated) return true;
    double worst = trials_summary(s->trials, s->kept[s->kept_count - 1]).mean;
    return !trials_is_better(s->config, worst, ended->mean);
}

/* Whether a worker trains a run of the trial, perhaps in a run folder; also of one that has failed. */
static bool is_in_progress(const struct coordinator *s, int64_t trial) {
    for (int i = 0; i < s->slot_count; i++) {
        int64_t runs[SLOT_MAX_AHEAD];
        int count = slot_list_ahead(&s->slots[i], runs);
        if (s->slots[i].is_busy && s->slots[i].job.run / s->config->runs == trial) return true;
        for (int k = 0; k < count; k++)
            if (runs[k] / s->config->runs == trial) return true;
    }
    return false;
}

/* [log] NULL: without a line for a folder that is left. */
static status remove_trial(struct coordinator *s, int64_t trial, struct log *log) {
    return sweep_folder_remove_trial(s->runs_folder, s->config, trial, trials_run(s->trials, trial * s->config->runs),
                                     log);
}

/* [result] of [run] is in the table from now on. Takes result->message. */
static status record(struct coordinator *s, int64_t run, struct trial_run *result) {
    int64_t trial = run / s->config->runs;
    bool is_pending = trials_run(s->trials, run)->state == TRIAL_PENDING;
    if (s->claims && !(is_pending && claims_has(s->claims, trial))) { /* lost meanwhile, or lost and handed out twice */
        free(result->message);
        return OK;
    }
    if (result->state == TRIAL_COMPLETE && s->pruner) pruner_complete(s->pruner, run);
    trials_add(s->trials, run, result);
    if (s->claims) TRY(claims_add(s->claims, run));
    if (trials_run(s->trials, run)->state == TRIAL_PENDING) return OK; /* lost now */
    run_queue_observe(&s->queue, trial);
    if (!s->claims) TRY(add_events(s, run));
    sweep_report_run(&s->report, run);
    struct trial_summary summary = trials_summary(s->trials, trial);
    bool has_ended = summary.state != TRIAL_PENDING && !is_in_progress(s, trial);
    if (!has_ended || s->config->kept == INT64_MAX) return OK;
    /* run folders are those of the best trials only */
    if (!may_be_kept(s, trial, &summary)) return remove_trial(s, trial, NULL);
    int64_t last = s->kept_count == s->config->kept && s->kept_count ? s->kept[s->kept_count - 1] : -1;
    s->kept_count = trials_best(s->trials, s->config->kept, s->kept);
    bool is_kept = false;
    for (int64_t i = 0; i < s->kept_count; i++) {
        is_kept = is_kept || s->kept[i] == trial;
        if (s->kept[i] == last) last = -1;
    }
    if (last >= 0) TRY(remove_trial(s, last, NULL));
    return is_kept ? OK : remove_trial(s, trial, NULL);
}

static int first_keeper(const struct coordinator *s) { return s->options->workers + s->options->env->world_size - 1; }

/* Where the machine has no memory, processes or descriptors for more workers than the user has asked for: keepers get
 * no further runs. true: [slot] is one, or was beside one, so that its run may succeed without them. */
static bool end_keepers(struct coordinator *s, const struct worker_slot *slot) {
    int first = first_keeper(s);
    bool are_used = false;
    s->job_slots = first;
    s->may_add_keepers = false;
    for (int i = first; i < s->slot_count; i++) are_used = are_used || slot_is_used(&s->slots[i]);
    for (int i = 0; are_used && i < first; i++)
        if (s->slots[i].is_busy) s->slots[i].is_beside_keepers = true; /* it may have failed already */
    for (int i = first; i < s->slot_count; i++)
        if (!s->slots[i].is_busy) slot_end(&s->slots[i], false);
    return are_used || slot - s->slots >= first || slot->is_beside_keepers;
}

/* The worker of a run, or a process of its run, has ended without a result; [how]: "was ended by ...", or nothing
 * (slot_receive). */
static status retry_or_fail_run(struct coordinator *s, int64_t run, const char *how) {
    struct trial_run pruned;
    int64_t trial = run / s->config->runs;
    if (!s->is_keeping_best && trials_must_stop(s->trials, run, &pruned)) return record(s, run, &pruned);
    if (!*how) { /* no loss */
        run_queue_repeat(&s->queue, run);
        return OK;
    }
    int losses = run_queue_count_loss(&s->queue, run);
    if (losses < MAX_ATTEMPTS) {
        log_warning(s->log, "the worker of trial %" PRId64 " %s; the trial is handed out again", trial, how);
        run_queue_repeat(&s->queue, run);
        return OK;
    }
    if (s->is_keeping_best)
        return status_new(STATUS_PEER, "trial %" PRId64 " could not be kept: its worker %s, %d times in a row", trial,
                          how, losses);
    struct trial_run result = {.state = TRIAL_FAILED, .code = STATUS_PEER, .value = NAN};
    result.message = text_format("its worker %s, %d times in a row%s", how, losses,
                                 s->claims ? "" : "; the same command tries it again");
    return record(s, run, &result);
}

/* Short runs with their folders wait for the disk, and files that are written at the same time wait together. A worker
 * that waited [waits] times as long as it computed leaves its processor to as many others; half of them, because a
 * process costs as much processor time as a kept run. */
static void add_keepers(struct coordinator *s, double waits) {
    int workers = s->options->workers;
    int64_t left = s->kept_count * s->config->runs - s->queue.checked + workers;
    int64_t wanted = (int64_t)fmin(fmin(workers * (1 + waits / 2) + 0.5, KEEPERS), (double)left);
    if (!s->may_add_keepers) return;
    s->may_add_keepers = wanted <= workers;
    for (int64_t i = workers; i < wanted && s->slot_count < s->slot_capacity; i++) {
        struct worker_slot *slot = &s->slots[s->slot_count++];
        memset(slot, 0, sizeof *slot); /* too large for the stack */
        slot->env = s->slots[0].env;
        slot->options = s->slots[0].options;
        slot->options.env = &slot->env;
    }
    s->job_slots = s->slot_count;
}

/* The run of a kept trial, done again or read from its folder, must be what the table says. */
static status check_kept(struct coordinator *s, const struct worker_slot *slot, const struct worker_report *r) {
    const struct trial_run *before = trials_run(s->trials, r->run);
    int64_t trial = r->run / s->config->runs;
    if (r->event == WORKER_FAILED && end_keepers(s, slot)) {
        run_queue_repeat(&s->queue, r->run);
        return OK;
    }
    if (r->event == WORKER_FAILED)
        return status_new((enum status_code)r->code, "trial %" PRId64 " could not be kept: %s", trial, r->message);
    add_keepers(s, r->waits);
    if (strcmp(before->state_sha256, r->state_sha256) == 0) return OK;
    return status_new(STATUS_BUG,
                      "trial %" PRId64
                      " gave another state when it was trained again for its run folder: %.16s, before "
                      "%.16s; the number of threads may have changed",
                      trial, r->state_sha256, before->state_sha256);
}

/* With nproc_per_trial a run ends with a lost rank, or with its launcher, as with a lost worker. */
static status take_lost_process(struct coordinator *s, const struct worker_slot *slot, const struct worker_report *r) {
    if (s->is_stopping) return OK;
    if (s->is_keeping_best) end_keepers(s, slot);
    SCOPED_STRING how = text_format("has lost a process (%s)", r->message);
    return retry_or_fail_run(s, r->run, how);
}

static status take_report(struct coordinator *s, struct worker_slot *slot, const struct worker_report *r) {
    static const int states[] = {
        [WORKER_DONE] = TRIAL_COMPLETE, [WORKER_PRUNED] = TRIAL_PRUNED, [WORKER_FAILED] = TRIAL_FAILED};
    bool was_busy = slot->is_busy;
    int64_t run = slot->job.run;
    /* its start met the move */
    bool is_moved = s->has_moved && strcmp(slot->job.folder, sweep_folder_path(s->folder)) != 0;
    slot_end_job(slot, r->seconds);
    if (r->event == WORKER_LOST) return was_busy && !s->is_stopping ? retry_or_fail_run(s, run, r->message) : OK;
    if (r->run != run) return status_new(STATUS_BUG, "a worker has reported another run than its own");
    bool is_lost_by_move = is_moved && r->event == WORKER_FAILED && r->code == STATUS_IO;
    if (is_lost_by_move) run_queue_repeat(&s->queue, r->run);
    if (is_lost_by_move) return OK;
    if (r->event == WORKER_STOPPED) { /* a signal has stopped this worker, or all */
        run_queue_repeat(&s->queue, r->run);
        for (; slot->is_busy; slot_end_job(slot, 0)) run_queue_repeat(&s->queue, slot->job.run);
        if (!slot->connection) slot_end(slot, false); /* it takes no more jobs */
        return OK;
    }
    if (r->event == WORKER_FAILED && r->code == STATUS_PEER) return take_lost_process(s, slot, r);
    if (r->event != WORKER_FAILED) TRY(trials_check_data(s->trials, r->dataset, r->fingerprint));
    if (s->is_keeping_best) return check_kept(s, slot, r);
    bool is_of_system = r->code == STATUS_IO || r->code == STATUS_DIVERGED;
    if (r->event == WORKER_FAILED && is_of_system && s->claims) { /* whoever took it over may have moved its folder */
        bool has;
        TRY(claims_check(s->claims, r->run / s->config->runs, &has));
        if (!has) return OK;
    }
    if (r->event == WORKER_FAILED && is_of_system) /* not because of its values: it is to be done again */
        return status_new((enum status_code)r->code, "trial %" PRId64 ": %s", r->run / s->config->runs, r->message);
    struct trial_run result = {.state = states[r->event],
                               .code = r->code,
                               .best_epoch = r->best_epoch,
                               .epochs = r->epochs,
                               .value = isfinite(r->value) ? r->value : NAN, /* as the history has it */
                               .test = r->event == WORKER_DONE && isfinite(r->test) ? r->test : NAN,
                               .seconds = r->seconds};
    memcpy(result.others, r->others, sizeof result.others);
    bool has_failed = r->event == WORKER_FAILED;
    if (has_failed) { /* its numbers are not those of a complete run */
        result.value = NAN;
        result.best_epoch = result.epochs = 0;
        result.message = status_need(strdup(r->message));
    }
    s->has_folder[r->run] = r->event == WORKER_DONE && r->has_folder;
    if (r->event == WORKER_DONE) memcpy(result.state_sha256, r->state_sha256, sizeof result.state_sha256);
    return record(s, r->run, &result);
}

static status answer_epoch(struct coordinator *s, struct worker_slot *slot, const struct worker_report *r) {
    double value = s->config->metric.goal == SWEEP_MAXIMIZE ? -r->value : r->value;
    bool must_stop = false;
    if (!s->is_keeping_best) {
        must_stop = pruner_report(s->pruner, r->run, r->epoch, value) && !r->is_last;
        TRY(trials_add_epoch(s->trials, r->run, r->epoch, value, must_stop));
    }
    slot_answer(slot, must_stop);
    return OK;
}

static status receive(struct coordinator *s, struct worker_slot *slot) {
    struct worker_report report;
    SCOPED_TEXT how = {0};
    bool was_busy = slot->is_busy, got, is_lost = false;
    int64_t run = slot->job.run, waiting[SLOT_MAX_AHEAD];
    int waiting_count = slot_list_ahead(slot, waiting);
    status failure = slot_receive(slot, &report, &got, &is_lost, &how);
    for (int k = 0; is_lost && k < waiting_count; k++) run_queue_repeat(&s->queue, waiting[k]);
    TRY(failure);
    if (is_lost && s->is_keeping_best) end_keepers(s, slot);
    if (is_lost) return was_busy && !s->is_stopping ? retry_or_fail_run(s, run, text_string(&how)) : OK;
    if (!got) return OK;
    return report.event == WORKER_EPOCH ? answer_epoch(s, slot, &report) : take_report(s, slot, &report);
}

/* ---- the loop ---- */

/* Finds the folder before anything is written by its path. After a move the workers stop, save where their runs are,
 * and continue them at the new path: else a run that has no folder yet would make one at the old path. */
static status follow_folder(struct coordinator *s) {
    bool has_moved;
    status failure = sweep_folder_follow(s->folder, s->log, &has_moved);
    s->is_lost = failure != OK;
    if (failure || !has_moved) return failure;
    const char *path = sweep_folder_path(s->folder);
    if (strlen(path) >= PATH_MAX) return status_new(STATUS_IO, "%s: the path is too long", path);
    s->has_moved = true;
    s->report.folder = path;
    trials_move(s->trials, path);
    for (int i = 0; i < s->slot_count; i++)
        if (s->slots[i].is_busy) slot_stop(&s->slots[i]);
    return OK;
}

static int count_busy(const struct coordinator *s) {
    int busy = 0;
    for (int i = 0; i < s->slot_count; i++) busy += s->slots[i].is_busy;
    return busy;
}

/* *got false: nothing is left to hand out. */
static status next_job(struct coordinator *s, const struct worker_slot *slot, struct worker_job *job, bool *got) {
    TRY(run_queue_next(&s->queue, job, got));
    if (!*got) {
        TRY(run_queue_claim(&s->queue));
        TRY(run_queue_next(&s->queue, job, got));
    }
    if (!*got) return OK;
    if (!slot->is_remote) job->folder_inode = sweep_folder_inode(s->runs_folder);
    if (s->has_moved) snprintf(job->folder, sizeof job->folder, "%s", sweep_folder_path(s->folder));
    return OK;
}

/* Of short runs several are handed out at once, so that a worker need not wait until this process, which shares the
 * processors with others, has taken its report; near the end fewer, because the last ones may be longer. Not where the
 * results of one run decide about another, nor for answers to epochs, which would wait behind the jobs. */
static status assign_ahead(struct coordinator *s) {
    struct worker_job job;
    int64_t share = (runs_of(s->config) - s->queue.next) / (2 * s->slot_count);
    bool got;
    bool is_allowed =
        !s->pruner && !s->is_keeping_best && s->config->method != SWEEP_TPE && s->config->nproc_per_trial == 1;
    for (int i = 0; is_allowed && i < s->slot_count; i++) {
        struct worker_slot *slot = &s->slots[i];
        while (slot->is_busy && slot->ahead_count < slot_wanted_ahead(slot) && slot->ahead_count < share) {
            TRY(next_job(s, slot, &job, &got));
            if (!got) return OK;
            slot_send_ahead(slot, &job);
        }
    }
    return OK;
}

static status assign_runs(struct coordinator *s) {
    for (int i = 0; i < s->job_slots && !s->is_stopping; i++) {
        struct worker_slot *slot = &s->slots[i];
        if (slot->is_busy || (slot->is_remote && !slot->connection)) continue;
        bool got;
        TRY(next_job(s, slot, &slot->job, &got));
        if (!got) return OK;
        slot->is_beside_keepers = false;
        status failure = slot_send_job(slot, s->cache);
        if (failure && i >= first_keeper(s)) {
            status_free(failure);
            run_queue_repeat(&s->queue, slot->job.run);
            end_keepers(s, slot);
            return OK;
        }
        TRY(failure);
    }
    return s->is_stopping ? OK : assign_ahead(s);
}

/* Ranks that have connected since: each is one more worker. */
static void accept_ranks(struct coordinator *s) {
    struct worker_connection *connection;
    int rank;
    while (s->listener && (connection = worker_accept(s->listener, &rank))) {
        struct worker_slot *slot = &s->slots[s->options->workers + rank - 1];
        if (slot_is_used(slot)) { /* a second process with the same RANK */
            worker_connection_send_command(connection, &(struct worker_command){.type = COMMAND_REJECT});
            worker_connection_close(connection);
            continue;
        }
        slot->connection = connection;
        slot->rank = rank;
        s->joined++;
        s->report.workers++;
    }
}

#define MIN_GATHER 0.0002 /* seconds */
#define MAX_GATHER 0.005

/* Reports of short runs are taken together: waits for half of the time that each worker has jobs for. Not with other
 * ranks, whose connections it accepts. */
static void gather_reports(const struct coordinator *s) {
    double pause = s->listener ? 0 : MAX_GATHER;
    for (int i = 0; i < s->slot_count; i++) {
        const struct worker_slot *slot = &s->slots[i];
        if (slot_is_used(slot)) pause = fmin(pause, slot->ahead_count * (slot->seconds + SLOT_JOB_SECONDS) / 2);
    }
    if (pause >= MIN_GATHER) clock_sleep(pause);
}

static bool has_report(const struct worker_slot *slot) {
    struct pollfd fd = {.fd = slot_fd(slot), .events = POLLIN};
    return slot_is_used(slot) && poll(&fd, 1, 0) > 0;
}

/* All that are there, also in a worker's socket. Their lines are written before their workers get other jobs. */
static status receive_all(struct coordinator *s) {
    status failure = OK;
    for (int i = 0; !failure && i < s->slot_count; i++)
        while (!failure && has_report(&s->slots[i])) failure = receive(s, &s->slots[i]);
    return s->trials ? status_first(failure, trials_flush(s->trials)) : failure; /* NULL: the start has failed */
}

/* [milliseconds]: at most. */
static status wait_for_reports(struct coordinator *s, int milliseconds) {
    struct pollfd *fds = s->fds;
    size_t count = (size_t)s->slot_count;
    for (int i = 0; i < s->slot_count; i++) fds[i] = (struct pollfd){.fd = slot_fd(&s->slots[i]), .events = POLLIN};
    worker_listener_wait(s->listener, fds, &count);
    gather_reports(s);
    int ready = poll(fds, (nfds_t)count, milliseconds);
    if (ready < 0 && errno != EINTR) return status_errno(STATUS_IO, errno, "cannot wait for the workers");
    if (s->folder && !s->is_lost) TRY(follow_folder(s));
    if (ready > 0) TRY(receive_all(s));
    accept_ranks(s);
    return OK;
}

/* Workers save what has checkpoints. */
static void stop_workers(struct coordinator *s) {
    s->is_stopping = true;
    s->stop_at = clock_seconds() + s->options->grace;
    for (int i = 0; i < s->slot_count; i++)
        if (s->slots[i].is_busy) slot_stop(&s->slots[i]);
}

static void check_deadlines(struct coordinator *s) {
    double now = clock_seconds();
    bool stop_requested = stop_is_requested();
    s->is_over_budget = s->is_over_budget || now - s->started > s->config->budget.seconds;
    if (!s->is_stopping && (stop_requested || (s->is_over_budget && !s->is_keeping_best))) stop_workers(s);
    for (int i = 0; s->is_stopping && now > s->stop_at && i < s->slot_count; i++)
        if (s->slots[i].is_busy) slot_end(&s->slots[i], true);
}

/* Workers that train what another process has taken over save and end; their reports do not count. */
static status beat(struct coordinator *s) {
    bool has_lost = false;
    if (s->claims) TRY(claims_beat(s->claims, &has_lost));
    for (int i = 0; has_lost && !s->is_keeping_best && i < s->slot_count; i++)
        if (s->slots[i].is_busy && !claims_has(s->claims, s->slots[i].job.run / s->config->runs))
            slot_stop(&s->slots[i]);
    return OK;
}

/* Of a shared sweep, for whoever looks at it: what all its processes have published by now. */
static status show_shared(struct coordinator *s) {
    bool is_complete;
    TRY(claims_read(s->claims, &is_complete));
    return trials_show(s->trials);
}

/* The folder may be moved between follow_folder and the write: then the next one writes the table, at the new path. */
static status write_own_if_due(struct coordinator *s) {
    const char *path = sweep_folder_path(s->folder);
    status failure = trials_write_if_due(s->trials);
    if (!status_is_system(failure)) return failure;
    status lost = follow_folder(s);
    if (!lost && path == sweep_folder_path(s->folder)) return failure;
    status_free(failure);
    return lost;
}

static status write_if_due(struct coordinator *s) {
    bool is_due;
    if (!s->claims) return write_own_if_due(s);
    TRY(trials_show_is_due(s->trials, &is_due));
    return is_due && !s->is_keeping_best ? show_shared(s) : OK;
}

/* Until nothing is left to hand out and every worker is idle. */
static status run_until_idle(struct coordinator *s) {
    status failure = assign_runs(s);
    while (!failure && count_busy(s) > 0) {
        failure = wait_for_reports(s, 100);
        check_deadlines(s);
        if (!failure) failure = assign_runs(s);
        if (!failure) failure = write_if_due(s);
        if (!failure) failure = beat(s);
        sweep_report_progress(&s->report);
    }
    return failure;
}

static status remove_unless_kept(void *user, int64_t trial) {
    struct coordinator *s = user;
    for (int64_t i = 0; i < s->kept_count; i++)
        if (s->kept[i] == trial) return OK;
    s->out_of_range += trial >= s->config->trials;
    if (trial >= s->config->trials) return OK;
    return sweep_folder_remove_trial(s->folder, s->config, trial, trials_run(s->trials, trial * s->config->runs),
                                     s->log);
}

/* Removes the folders of other trials than those to keep. */
static status remove_others(struct coordinator *s) {
    s->out_of_range = 0;
    TRY(sweep_folder_visit(s->folder, remove_unless_kept, s));
    if (s->out_of_range)
        log_line(s->log,
                 "%s/runs has %" PRId64 " folder%s of trials from number %" PRId64 " on, which trials: %" PRId64
                 " leaves out; nothing is removed there",
                 sweep_folder_path(s->folder), s->out_of_range, text_plural((uint64_t)s->out_of_range, "s"),
                 s->config->trials, s->config->trials);
    return OK;
}

/* The folders of a trial that workers of this start have written, and those of one whose run the user trains further:
 * that is not the run of the table any more. */
static status skip_done(struct coordinator *s) {
    int64_t count = 0;
    for (int64_t i = 0; i < s->kept_count; i++) {
        enum trial_folder_state state = TRIAL_FOLDER_AS_LEFT;
        bool is_done = true;
        for (int64_t k = 0; state != TRIAL_FOLDER_EXTENDED && k < s->config->runs; k++) {
            int64_t run = s->kept[i] * s->config->runs + k;
            SCOPED_STRING path = sweep_run_path(sweep_folder_path(s->folder), s->config, run);
            TRY(trial_folder_compare(path, trials_run(s->trials, run), &state));
            is_done = is_done && s->has_folder[run];
            if (is_done) TRY(trial_folder_is_complete(path, trials_run(s->trials, run), &is_done));
            if (state == TRIAL_FOLDER_EXTENDED)
                log_line(s->log, "%s: its run was trained further than the sweep's; the folder is left as it is", path);
        }
        if (state != TRIAL_FOLDER_EXTENDED && !is_done) s->kept[count++] = s->kept[i];
    }
    s->kept_count = count;
    return OK;
}

/* With keep: all, the complete trials of an earlier start that kept fewer. */
static status list_without_folder(struct coordinator *s) {
    s->kept_count = 0;
    for (int64_t run = 0; run < runs_of(s->config); run++) {
        int64_t trial = run / s->config->runs;
        struct io_info info;
        bool is_listed = s->kept_count && s->kept[s->kept_count - 1] == trial;
        if (is_listed || trials_summary(s->trials, trial).state != TRIAL_COMPLETE) continue;
        SCOPED_STRING path = sweep_run_path(sweep_folder_path(s->folder), s->config, run);
        TRY(io_stat(path, &info));
        if (!info.exists) s->kept[s->kept_count++] = trial;
    }
    return OK;
}

/* Of a shared sweep: run folders of the trials to keep come from the processes that trained them; what is complete in
 * the sweep's folder stays. */
static status collect_kept(struct coordinator *s) {
    int64_t count = 0;
    for (int64_t i = 0; i < s->kept_count; i++) {
        bool is_kept;
        TRY(claims_collect(s->claims, s->kept[i], &is_kept));
        if (!is_kept) s->kept[count++] = s->kept[i];
    }
    s->kept_count = count;
    return OK;
}

/* Not on a GPU, whose memory is for [workers] processes. */
static bool may_add_keepers(const struct coordinator *s) {
    const struct config *base = sweep_file_base(s->file);
    bool is_on_cpu = s->options->no_gpu || base->train.device == DEVICE_CPU;
    double longest = 0;
    for (int64_t i = 0; i < s->kept_count; i++)
        longest = fmax(longest, trials_run(s->trials, s->kept[i] * s->config->runs)->seconds);
    bool is_short = longest <= KEEP_SECONDS && s->config->nproc_per_trial == 1;
    return is_on_cpu && is_short && s->config->kept != INT64_MAX;
}

/* Every run has ended: the best ones get their folders, all others lose them. */
static status keep_best(struct coordinator *s) {
    s->is_keeping_best = true;
    TRY(follow_folder(s));
    /* event files of an earlier start that was killed, or did not write them */
    for (int64_t run = 0; run < runs_of(s->config); run++)
        if (trials_run(s->trials, run)->state != TRIAL_PENDING) TRY(add_events(s, run));
    if (s->config->kept == INT64_MAX) {
        TRY(list_without_folder(s));
    } else {
        s->kept_count = trials_best(s->trials, s->config->kept, s->kept);
        TRY(remove_others(s));
    }
    TRY(skip_done(s));
    if (s->claims) TRY(collect_kept(s));
    run_queue_keep(&s->queue, s->kept, s->kept_count);
    s->may_add_keepers = may_add_keepers(s);
    TRY(run_until_idle(s));
    for (int64_t i = 0; s->claims && !s->is_stopping && i < s->kept_count; i++) TRY(claims_keep(s->claims, s->kept[i]));
    return OK;
}

/* Of runs that an earlier start told to stop, but whose workers did not report it any more. Their checkpoints may be
 * behind the epoch of the decision, where a worker would not ask for it again. */
static status record_pruned(struct coordinator *s) {
    struct trial_run result;
    for (int64_t run = 0; run < runs_of(s->config); run++)
        if (trials_must_stop(s->trials, run, &result)) TRY(record(s, run, &result));
    return OK;
}

static status train_all(struct coordinator *s) {
    s->started = clock_seconds();
    sweep_report_start(&s->report);
    TRY(record_pruned(s));
    TRY(run_until_idle(s));
    return s->is_stopping ? OK : keep_best(s);
}

/* ---- a sweep that several processes share ---- */

#define SHARED_PAUSE 0.05 /* seconds, of a process that has nothing to do now */

static status pause_shared(struct coordinator *s) {
    clock_sleep(SHARED_PAUSE);
    check_deadlines(s);
    sweep_report_progress(&s->report);
    TRY(follow_folder(s));
    TRY(write_if_due(s));
    return beat(s);
}

/* Until every run of the sweep has a published result. */
static status train_shared(struct coordinator *s) {
    bool is_complete = false;
    while (!is_complete && !s->is_stopping) {
        TRY(run_until_idle(s));
        if (!s->is_stopping) TRY(claims_read(s->claims, &is_complete));
        if (!is_complete && !s->is_stopping) TRY(pause_shared(s));
    }
    return claims_give_back(s->claims);
}

/* One process keeps the best trials and writes the tables; the others wait for it. */
static status end_shared(struct coordinator *s) {
    enum claims_end end = CLAIMS_END_WAIT;
    while (!s->is_stopping && end != CLAIMS_END_DONE) {
        bool is_mine = false;
        TRY(claims_end(s->claims, &end));
        if (end == CLAIMS_END_WAIT) TRY(pause_shared(s));
        if (end != CLAIMS_END_MINE) continue;
        TRY(keep_best(s));
        if (s->is_stopping) return OK;
        TRY(trials_write(s->trials));
        TRY(claims_remove_rest(s->claims));
        TRY(claims_end_done(s->claims, &is_mine));
    }
    return OK;
}

static status train_all_shared(struct coordinator *s) {
    s->started = clock_seconds();
    sweep_report_start(&s->report);
    TRY(train_shared(s));
    return s->is_stopping ? show_shared(s) : end_shared(s);
}

static void observe_other(void *user, int64_t trial) {
    struct coordinator *s = user;
    run_queue_observe(&s->queue, trial);
}

static status check_shared(const struct coordinator *s) {
    if (s->config->early_terminate.type != PRUNE_NONE)
        return status_usage(
            "--share: early_terminate compares the epochs of all runs, which processes of a shared sweep "
            "do not see; leave one of the two out");
    if (s->config->confirm.seeds != SCHEMA_NO_INT)
        return status_new(
            STATUS_USAGE,
            "--share: confirm is for one process; leave it out, and compare the kept runs with ddptrain compare");
    if (s->options->lease < 1 || s->options->lease > 1e6)
        return status_usage("--lease: expected 1 to 1000000 seconds, got %g", s->options->lease);
    return OK;
}

static void set_folder(struct coordinator *s) {
    s->queue.folder = s->runs_folder;
    s->queue.no_gpu = s->options->no_gpu;
    s->queue.log = s->log;
}

static status open_shared(struct coordinator *s) {
    char id[CLAIMS_ID_SIZE];
    claims_make_id(id);
    TRY(check_shared(s));
    TRY(sweep_folder_open_shared(s->options->folder, id, s->file, &s->folder));
    const char *folder = sweep_folder_path(s->folder);
    TRY(trials_open_shared(folder, sweep_folder_by_fd(s->folder), s->config, sweep_folder_temporary(s->folder), s->log,
                           &s->trials));
    run_queue_open(&s->queue, s->config, s->trials);
    s->queue.end = 0;
    struct claims_options options = {.folder = folder,
                                     .by_fd = sweep_folder_by_fd(s->folder),
                                     .id = id,
                                     .lease = s->options->lease,
                                     .observe = observe_other,
                                     .user = s};
    TRY(claims_open(&options, s->config, s->trials, s->log, &s->claims));
    s->queue.claims = s->claims;
    s->runs_folder = sweep_folder_of_member(claims_folder(s->claims));
    set_folder(s);
    return OK;
}

/* ---- start and end ---- */

/* What workers share is opened before they start. A dataset that cannot be opened may be right in trials. STATUS_DATA:
 * an earlier start has trained on other rows. */
static status open_base_dataset(struct coordinator *s) {
    char key[DATASET_KEY_SIZE];
    struct dataset *dataset;
    status failure = dataset_cache_open(s->cache, sweep_file_base(s->file), key, &dataset);
    status_free(failure);
    if (failure) return OK;
    /* workers whose runs have several processes do not open the dataset, and do not report its fingerprint */
    bool is_first = s->config->nproc_per_trial > 1 && trials_count(s->trials, TRIAL_PENDING) == runs_of(s->config);
    const char *fingerprint = dataset_info(dataset)->fingerprint;
    failure =
        is_first ? trials_check_data(s->trials, key, fingerprint) : trials_compare_data(s->trials, key, fingerprint);
    dataset_close(dataset);
    return failure;
}

static void prepare_slots(struct coordinator *s) {
    int n = s->options->workers;
    for (int i = 0; i < s->slot_count; i++) {
        struct worker_slot *slot = &s->slots[i];
        slot->is_remote = i >= n;
        slot->env = *s->options->env;
        slot->env.rank = 0;
        slot->env.world_size = 1;
        if (s->options->env->world_size == 1 && s->options->env->launcher == LAUNCHER_NONE) {
            slot->env.local_rank = i;
            slot->env.local_world_size = n;
        }
        slot->options = worker_options(s->file, s->options, &slot->env);
        slot->options.reports_epochs = s->pruner != NULL;
        if (s->claims) slot->options.folder = claims_folder(s->claims);
    }
}

static status listen_for_ranks(struct coordinator *s) {
    const struct dist_env *env = s->options->env;
    SCOPED_TEXT what = {0};
    sweep_write_all(s->file, &what);
    TRY(worker_listen(env, text_string(&what), &s->listener));
    bool is_one_host = env->local_world_size == env->world_size || net_is_loopback_host(env->master_addr);
    if (!is_one_host && dist_env_secret_is_guessable(env)) log_warning(s->log, "%s", dist_env_secret_warning);
    return OK;
}

/* Ranks that have not connected yet would try until their timeout; connected ones end with [code]. */
static void end_ranks(struct coordinator *s, enum status_code code) {
    double deadline = clock_seconds() + LATE_SECONDS;
    int expected = s->options->env->world_size - 1;
    while (s->listener && s->joined < expected && clock_seconds() < deadline && !stop_is_requested())
        status_free(wait_for_reports(s, 50));
    for (int i = 0; i < s->slot_count; i++) slot_end_rank(&s->slots[i], (int)code);
}

static status open_alone(struct coordinator *s) {
    if (s->options->env->world_size > 1) TRY(listen_for_ranks(s));
    TRY(sweep_folder_open(s->options->folder, s->options->is_fresh, s->file, s->log, &s->folder));
    s->pruner = pruner_create(&s->config->early_terminate, s->config->runs);
    TRY(trials_open(sweep_folder_path(s->folder), s->config, s->pruner, s->log, &s->trials));
    int64_t lost = trials_retry_lost(s->trials);
    if (lost)
        log_line(s->log, "trying %" PRId64 " run%s again whose workers were lost at an earlier start", lost,
                 text_plural((uint64_t)lost, "s"));
    run_queue_open(&s->queue, s->config, s->trials);
    s->runs_folder = s->folder;
    set_folder(s);
    return OK;
}

static status open_all(struct coordinator *s) {
    int64_t kept = s->config->kept == INT64_MAX ? s->config->trials : s->config->kept;
    s->kept = calloc((size_t)kept + 1, sizeof *s->kept);
    s->slot_count = s->job_slots = first_keeper(s);
    s->slot_capacity = s->slot_count + KEEPERS;
    s->slots = calloc((size_t)s->slot_capacity, sizeof *s->slots);
    s->fds = calloc((size_t)s->slot_capacity + WORKER_LISTENER_DESCRIPTORS, sizeof *s->fds);
    s->has_folder = calloc((size_t)runs_of(s->config), sizeof *s->has_folder);
    s->has_events = calloc((size_t)runs_of(s->config), sizeof *s->has_events);
    if (!s->kept || !s->has_folder || !s->has_events || !s->slots || !s->fds) return status_memory("the sweep");
    if (s->options->is_shared)
        TRY(open_shared(s));
    else
        TRY(open_alone(s));
    s->cache = dataset_cache_create();
    prepare_slots(s);
    s->report = (struct sweep_report){.log = s->log,
                                      .sweep = s->config,
                                      .trials = s->trials,
                                      .folder = sweep_folder_path(s->folder),
                                      .workers = s->options->workers};
    return OK;
}

/* Every trial that has ended has failed. */
static status all_failed(const struct coordinator *s) {
    if (trials_count(s->trials, TRIAL_FAILED) == 0 || trials_count(s->trials, TRIAL_COMPLETE) > 0 ||
        trials_count(s->trials, TRIAL_PRUNED) > 0)
        return OK;
    for (int64_t run = 0; run < runs_of(s->config); run++) {
        const struct trial_run *r = trials_run(s->trials, run);
        if (r->state == TRIAL_FAILED)
            return status_new((enum status_code)r->code, "every trial failed; the first: %s",
                              r->message ? r->message : "");
    }
    return OK;
}

static status report_result(struct coordinator *s) {
    s->report.is_done = !s->is_stopping;
    if (s->is_over_budget && s->is_stopping)
        log_line(s->log, "the budget of %g s is over; run the same command again to continue",
                 s->config->budget.seconds);
    sweep_report_end(&s->report);
    if (stop_is_requested() && s->is_stopping)
        return status_new(STATUS_STOPPED,
                          "stopped on request after %" PRId64 " of %" PRId64
                          " runs; run the same command again to continue",
                          runs_of(s->config) - trials_count(s->trials, TRIAL_PENDING), runs_of(s->config));
    return all_failed(s);
}

static void close_all(struct coordinator *s) {
    for (int i = 0; s->slots && i < s->slot_count; i++) slot_end(&s->slots[i], s->slots[i].is_busy);
    worker_listener_close(s->listener);
    free(s->fds);
    dataset_cache_destroy(s->cache);
    pruner_destroy(s->pruner);
    claims_close(s->claims);
    status_free(trials_close(s->trials));
    if (s->runs_folder != s->folder) sweep_folder_close(s->runs_folder);
    sweep_folder_close(s->folder);
    free(s->slots);
    free(s->kept);
    free(s->has_folder);
    free(s->has_events);
    run_queue_close(&s->queue);
}

/* What a sweep of one process writes at its end, also after a [failure]. */
static status write_all(struct coordinator *s, status failure) {
    if (!s->is_lost) failure = status_first(failure, follow_folder(s));
    if (!failure && s->is_stopping) failure = trials_add_stop(s->trials);
    return s->is_lost ? failure : status_first(failure, trials_write(s->trials));
}

#define DELETION_SECONDS 1 /* from the first file of a folder to the folder itself */

/* A system call that has failed where somebody deletes the folder: the folder is the last that they delete. */
static status explain_deletion(struct coordinator *s, status failure) {
    double end = clock_seconds() + DELETION_SECONDS;
    while (failure && !s->is_lost && status_is_system(failure) && clock_seconds() < end) {
        status lost = follow_folder(s);
        if (!lost) clock_sleep(DELETION_SECONDS / 20.0);
        if (lost) status_free(failure), failure = lost;
    }
    return failure;
}

status sweep_run(const struct sweep_file *file, const struct sweep_options *options, struct log *log) {
    struct coordinator s = {.file = file, .config = sweep_file_config(file), .options = options, .log = log};
    status failure = open_all(&s);
    bool is_open = !failure;
    if (is_open) failure = open_base_dataset(&s);
    if (is_open && !failure) failure = s.claims ? explain_deletion(&s, train_all_shared(&s)) : train_all(&s);
    if (is_open && !s.claims) failure = write_all(&s, failure);
    failure = sweep_folder_explain(s.folder, failure);
    log_progress(log, NULL);
    if (is_open && options->folder_now) text_add(options->folder_now, sweep_folder_path(s.folder));
    if (!failure) failure = report_result(&s);
    if (s.listener) end_ranks(&s, status_code(failure));
    close_all(&s);
    return failure;
}
