/* report_page: an HTML page about runs and sweeps, in one file that needs nothing else. */
#pragma once

#include "base/log.h"
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

/* ---- the frame of a page with its style (page.css) and its script (page.js), and its elements. The page refers to
 * nothing outside itself, and its policy forbids the browser to load anything ---- */

void page_begin(struct text *out, const char *title);
void page_end(struct text *out);

struct page_heading {
    const char *text;
    bool is_number; /* stands right, as numbers do */
};

/* A table with these headings (count); [is_sortable]: by a click on a heading, where scripts run. */
void page_table_begin(struct text *out, const struct page_heading *headings, size_t count, bool is_sortable);
void page_table_end(struct text *out);
void page_row_begin(struct text *out, const char *class); /* class NULL: none */
void page_row_end(struct text *out);
/* A cell with text; [class]: "n" for numbers, "code", NULL. */
void page_cell(struct text *out, const char *text, const char *class);
/* A number by axis_number with all its digits for the pointer and for sorting; NAN: "-". */
void page_number(struct text *out, double value);

/* The first 16 digits of a SHA-256, all of them for the pointer. */
void page_hash(struct text *out, const char *sha256);

/* A row of a list of facts: a name and a text; nothing where [text] is NULL or "". */
void page_facts_begin(struct text *out);
void page_fact(struct text *out, const char *name, const char *text);
void page_facts_end(struct text *out);

/* A sentence about what is missing or wrong. */
void page_notice(struct text *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same in small letters, an explanation. */
void page_note(struct text *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

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

/* ---- what a run has recorded, for other programs, src/report/run_export.c: its metrics as a CSV file, or as a run in
 * the file store of MLflow, with the keys of its config as parameters ---- */

/* Whether [format] is one of these. */
bool run_export_has(const char *format);

/* Writes what the run folder [path] has: `metrics-csv` the file [out], `mlflow` a run in the folder [out], a store,
 * which is made if it is not there; of the folder of a sweep a run for each trial with a run folder. STATUS_DATA:
 * [path] is none of these, or has no metrics. */
status run_export(const char *format, const char *path, const char *out, struct log *log);

/* ---- the state of a run or a sweep as lines of text, src/report/watch.c: from its files alone, also of one on another
 * host, over a shared file system ---- */

struct watch;

/* [path]: the folder of a run or of a sweep; STATUS_DATA for any other. */
status watch_open(const char *path, struct watch **out);
/* Whether there is no such folder yet: nothing has this name, or the folder is still empty or being created. */
status watch_is_absent(const char *path, bool *out);
/* Reads what was added to the files. */
status watch_update(struct watch *watch);
void watch_close(struct watch *watch); /* takes NULL */

/* Adds lines of at most [width] columns. [has_blocks]: the terminal shows the block characters of UTF-8. Texts of the
 * files are printable (text_add_value). */
void watch_write(const struct watch *watch, size_t width, bool has_blocks, struct text *out);

/* Whether nothing more is to come: the run or the sweep has ended, or no process of this host has it and its files have
 * not changed for WATCH_SILENCE seconds. One that has not begun is waited for. */
#define WATCH_SILENCE 60
bool watch_has_ended(const struct watch *watch);
