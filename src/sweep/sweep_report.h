/* sweep_report: the progress messages of a sweep: how far it is, each trial that is better than all before, the best
 * ones at its end. */
#ifndef SWEEP_SWEEP_REPORT_H
#define SWEEP_SWEEP_REPORT_H

#include "sweep/trials.h"

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

void sweep_report_start(struct sweep_report *report);
void sweep_report_run(struct sweep_report *report, int64_t run); /* it has ended, and is in the table */
void sweep_report_progress(struct sweep_report *report);
void sweep_report_end(struct sweep_report *report);

#endif
