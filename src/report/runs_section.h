/* runs_section: the parts of a report about runs. */
#ifndef REPORT_RUNS_SECTION_H
#define REPORT_RUNS_SECTION_H

#include "base/text.h"
#include "report/run_data.h"

/* State, progress, best epoch, time of each run; what is missing or damaged. */
void runs_section_overview(struct text *out, struct run_data *const *runs, size_t count);
/* Every series that at least one of the runs has, all runs in one plot. */
void runs_section_curves(struct text *out, struct run_data *const *runs, size_t count);
/* Confusion matrices of the newest epochs. */
void runs_section_confusion(struct text *out, struct run_data *const *runs, size_t count);
/* The keys that differ between the runs, and the whole config of each. */
void runs_section_config(struct text *out, struct run_data *const *runs, size_t count);

#endif
