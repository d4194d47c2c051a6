/* trials: the results of a sweep: in memory, in history.jsonl (one line for each run, in the order in which they ended,
 * appended; what a sweep continues from after any kill) and in trials.csv (one row for each run, in the order of their
 * numbers, without any clock: the same bytes however often the sweep was interrupted). The coordinator alone writes. */
#pragma once

#include "base/log.h"
#include "sweep/prune.h"
#include "sweep/workers/dataset_cache.h"

enum trial_state { TRIAL_PENDING, TRIAL_COMPLETE, TRIAL_PRUNED, TRIAL_FAILED };
extern const char *const trial_states[]; /* their names, then NULL */

struct trial_value {
    int state;    /* enum trial_state of the run */
    double value; /* of the metric; NAN: none */
};

/* The result of a trial, computed from those of its runs, one for each repeat. The table of a sweep and its report
 * show the same digits, because both get them here. */
struct trial_summary {
    int state; /* enum trial_state: failed if a run has failed, else pruned if one was pruned, complete if all are */
    double
        mean; /* of the values of the complete runs; NAN: there are none, or one has no value or one of 1e150 or more */
    double error;     /* standard error of the mean; NAN for fewer than two runs, or if the mean is */
    int64_t complete; /* runs */
};

/* [runs] (count): those of a trial of [repeats] runs that are known; the others are pending. */
struct trial_summary trial_summary_make(const struct trial_value *runs, size_t count, int64_t repeats);

/* ---- several metrics ---- */

/* Which of the rows of [values] (count, metrics) are on the Pareto front: no other row is as good in all metrics and
 * better in one. Smaller values are better; a row with NAN is not on it, equal rows are all on it. Takes n log n steps
 * for two metrics; for more, also n times the size of the front. */
void pareto_front(const double *values, size_t count, size_t metrics, bool *out);

/* A run. Its number is trial * sweep->runs + repeat. */
struct trial_run {
    int state; /* enum trial_state */
    int code;  /* enum status_code of a failed run */
    int64_t best_epoch, epochs;
    double value;   /* of the metric in the best epoch; NAN: none */
    double test;    /* of a complete run: the metric of its test rows, which decides nothing; NAN: none */
    double seconds; /* of training */
    double others[SWEEP_MAX_OTHER_METRICS]; /* of a complete run: the other metrics in its best epoch; NAN: none */
    char state_sha256[65];                  /* hex; "" of a failed run */
    char *message;                          /* why it failed; NULL: it did not */
};

struct trials;

/* Reads what [folder]/history.jsonl has of an earlier start, without a last line that was not written in full or zero
 * bytes at its end (with a line in [log]), and
 * opens it for appending. Reports of epochs go to [pruner] (NULL: none). STATUS_DATA with the line for a file that is
 * none of this sweep's. */
status trials_open(const char *folder, const struct sweep_config *sweep, struct pruner *pruner, struct log *log,
                   struct trials **out);
/* Of a sweep of several processes (claims.h): the same, but the history is only read; its lines are those of
 * trials_line, and trials_write writes it anew, a line for each run, by number, by the temporary file
 * [temporary] (io_replace_by), in the folder [by_fd] (sweep_folder_by_fd). */
status trials_open_shared(const char *folder, const char *by_fd, const struct sweep_config *sweep,
                          const char *temporary, struct log *log, struct trials **out);
/* The line of the last trials_add, with its end. */
const struct text *trials_line(const struct trials *trials);
/* The next line has all fingerprints again (trials_check_data). */
void trials_repeat_data(struct trials *trials);
/* Reads lines (size) of another process, from line [number] of [path] on. STATUS_DATA: they are none of this sweep's,
 * or their runs were trained on other data. */
status trials_read(struct trials *trials, const char *path, size_t number, const char *lines, size_t size);
/* Run [run] has no result any more. */
void trials_reset(struct trials *trials, int64_t run);
/* The folder of the sweep was moved to [folder]. */
void trials_move(struct trials *trials, const char *folder);
status trials_close(struct trials *trials); /* takes NULL */
/* Runs that have failed because their processes were lost, not because of their values, are to be done again; returns
 * how many. */
int64_t trials_retry_lost(struct trials *trials);

const struct trial_run *trials_run(const struct trials *trials, int64_t run);
struct trial_summary trials_summary(const struct trials *trials, int64_t trial);
/* The mean of the test rows' metric over the complete runs of a trial; NAN: one of them has none. */
double trials_test(const struct trials *trials, int64_t trial);

/* The mean of other metric [index] over the complete runs of a trial; NAN: one of them has none. */
double trials_other(const struct trials *trials, int64_t trial, size_t index);
/* All metrics of a trial, the metric first; smaller ones are better: those that are maximised are negated. NAN: the
 * trial is not complete. out (1 + other metrics) */
void trials_metrics(const struct trials *trials, int64_t trial, double *out);
/* Which trials (sweep->trials) are on the Pareto front of the complete ones; returns how many. */
int64_t trials_front(const struct trials *trials, bool *out);
/* Whether complete trial [a] is as good as complete trial [b] in all metrics and better in one. */
bool trials_dominates(const struct trials *trials, int64_t a, int64_t b);

/* The point of a trial; false: it has none yet (tpe). */
bool trials_point(const struct trials *trials, int64_t trial, struct point *out);
void trials_set_point(struct trials *trials, int64_t trial, const struct point *point);

/* Run [run] has ended; takes run->message. */
void trials_add(struct trials *trials, int64_t run, const struct trial_run *result);
/* On return the lines of trials_add are in the file, if not on disk. The other functions that write do the same. */
status trials_flush(struct trials *trials);
/* A value that a pruner was given. [must_stop]: the run is told to stop after this epoch, and does. */
status trials_add_epoch(struct trials *trials, int64_t run, int64_t epoch, double value, bool must_stop);
/* Whether run [run] was told to stop but has no result: its worker was lost since, at this start or an earlier one.
 * *out: its result then, by the values of its epochs; the time of training is 0. */
bool trials_must_stop(const struct trials *trials, int64_t run, struct trial_run *out);
/* The sweep has stopped in order, with runs left to do. */
status trials_add_stop(struct trials *trials);
/* History on disk, and trials.csv as of now; with repeats also summary.csv, one row for each trial. */
status trials_write(struct trials *trials);
/* The same in a running sweep: the history after TRIALS_SECONDS, the tables so rarely that all their versions together
 * take about TRIALS_FRACTION of the time, whatever the number of rows: trials_pause(seconds) after one that took
 * [seconds]. */
#define TRIALS_SECONDS 2
#define TRIALS_FRACTION 0.02
status trials_write_if_due(struct trials *trials);
double trials_pause(double seconds);

/* Of a sweep of several processes: the same files as of now in <sweep>/shared, where any of the processes writes them
 * for whoever looks; trials.csv and summary.csv in the folder of the sweep are links to them until the end. The sweep
 * itself does not read them: a process that was suspended may write old ones at any time. */
status trials_show(struct trials *trials);
/* Whether nobody has done it for the time of trials_write_if_due, to be asked some times a second. */
status trials_show_is_due(struct trials *trials, bool *out);

/* The rows of the dataset with key [dataset] (dataset_cache_open) have this fingerprint. STATUS_DATA: before, or at an
 * earlier start, they had another. The next line of the history has what is new. "": nothing is known. */
status trials_check_data(struct trials *trials, const char *dataset, const char *fingerprint);
/* The same, but what is new is not kept. */
status trials_compare_data(const struct trials *trials, const char *dataset, const char *fingerprint);

/* How many runs have ended, and in which state. */
int64_t trials_count(const struct trials *trials, int state);

/* Adds a sentence about complete runs without a value of the metric: how many they are, and the likely reason; nothing
 * where every run has a value. */
void trials_explain_values(const struct trials *trials, struct text *out);

/* Whether value [a] is better than [b]; NAN is worse than all. */
bool trials_is_better(const struct sweep_config *sweep, double a, double b);
/* The numbers of the best complete trials (at most count), the best first; returns how many there are. Of equal ones
 * the first. With other metrics those on the Pareto front come before the rest, both by the metric. */
int64_t trials_best(const struct trials *trials, int64_t count, int64_t *out);
