/* report_page: an HTML page about runs and sweeps, in one file that needs nothing else. */
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "report/run_data.h"
#include "report/sweep_data.h"

struct report_summary {
    size_t runs, sweeps, bytes;
};

#define REPORT_MAX_FOLDERS 256

/* Reads the folders [paths] (count, at least 1), each of a run, of a sweep or with runs and sweeps in it, and replaces
 * the file [out] by a page about them. The folders are only read. STATUS_DATA for a folder that is absent or neither;
 * STATUS_USAGE when [out] is a file of another kind. */
status report_page_write(char *const *paths, size_t count, const char *out, struct report_summary *summary);

/* ---- sections about runs, src/report/runs_section.c ---- */

/* State, progress, best epoch, time of each run; what is missing or damaged. */
void runs_section_overview(struct text *out, struct run_data *const *runs, size_t count);
/* Every series that at least one of the runs has, all runs in one plot. */
void runs_section_curves(struct text *out, struct run_data *const *runs, size_t count);
/* Confusion matrices of the newest epochs. */
void runs_section_confusion(struct text *out, struct run_data *const *runs, size_t count);
/* The keys that differ between the runs, and the whole config of each. */
void runs_section_config(struct text *out, struct run_data *const *runs, size_t count);

/* ---- the section about a sweep, src/report/sweep_section.c ---- */

/* Its numbers, the best trials with their commands, plots over the parameters, failures, and curves of the best trials
 * whose run folders are kept. */
status sweep_section_add(struct text *out, const struct sweep_data *sweep);
