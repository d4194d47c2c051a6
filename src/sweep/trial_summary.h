/* trial_summary: the result of a trial, computed from those of its runs, one for each repeat. */
#ifndef SWEEP_TRIAL_SUMMARY_H
#define SWEEP_TRIAL_SUMMARY_H

#include <stddef.h>
#include <stdint.h>

enum trial_state { TRIAL_PENDING, TRIAL_COMPLETE, TRIAL_PRUNED, TRIAL_FAILED };
extern const char *const trial_states[]; /* their names, then NULL */

struct trial_value {
    int state;    /* enum trial_state of the run */
    double value; /* of the metric; NAN: none */
};

struct trial_summary {
    int state; /* enum trial_state: failed if a run has failed, else pruned if one was pruned, complete if all are */
    double
        mean; /* of the values of the complete runs; NAN: there are none, or one has no value or one of 1e150 or more */
    double error;     /* standard error of the mean; NAN for fewer than two runs, or if the mean is */
    int64_t complete; /* runs */
};

/* [runs] (count): those of a trial of [repeats] runs that are known; the others are pending. */
struct trial_summary trial_summary_make(const struct trial_value *runs, size_t count, int64_t repeats);

#endif
