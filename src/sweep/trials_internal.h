/* Declarations shared by the files of trials. */
#ifndef SWEEP_TRIALS_INTERNAL_H
#define SWEEP_TRIALS_INTERNAL_H

#include "sweep/trials.h"

#define MAX_DATA 256 /* datasets whose fingerprints are compared */

struct data_seen {
    char dataset[DATASET_KEY_SIZE], fingerprint[65];
};

/* What a run without a result has reported; as for a pruner, smaller values are better. */
struct reported {
    int64_t epoch, best_epoch; /* the last one, the best one; 0: none */
    double best;
    bool must_stop; /* after the last one */
};

struct trials {
    const struct sweep_config *sweep;
    struct reported *reported;  /* (trials * sweep->runs) */
    struct trial_run *runs;     /* (trials * sweep->runs) */
    struct trial_value *values; /* (sweep->runs): workspace of trials_summary */
    double *points;             /* (trials, parameters) */
    bool *has_point;            /* (trials) */
    int64_t counts[4];          /* by enum trial_state */
    char *history, *table, *summary;
    int fd;
    struct text line;
    struct data_seen data[MAX_DATA]; /* (data_count): the first [data_written] are in the history */
    size_t data_count, data_written;
};

/* trials.c: the result of run [run] is [result], whose message is taken. */
void trials_set_run(struct trials *trials, int64_t run, const struct trial_run *result);

/* trials.c: what trials_add_epoch adds to the history. */
void trials_set_epoch(struct trials *trials, int64_t run, int64_t epoch, double value, bool must_stop);

/* trials_history.c: reads the lines of history.jsonl, and removes a last one that was not written in full, or zero
 * bytes. Reports of epochs go to [pruner] (NULL: none). */
status trials_read_history(struct trials *trials, struct pruner *pruner, struct log *log);

#endif
