/* run_export: what a run has recorded, for other programs: its metrics as a CSV file, or as a run in the file store of
 * MLflow, with the keys of its config as parameters. */
#pragma once

#include "base/log.h"
#include "base/status.h"

/* Whether [format] is one of these. */
bool run_export_has(const char *format);

/* Writes what the run folder [path] has: `metrics-csv` the file [out], `mlflow` a run in the folder [out], a store,
 * which is made if it is not there; of the folder of a sweep a run for each trial with a run folder. STATUS_DATA:
 * [path] is none of these, or has no metrics. */
status run_export(const char *format, const char *path, const char *out, struct log *log);
