/* recorded_run: the folder of a run as the commands see it that verify it (audit, certify): its ledger, metrics.jsonl,
 * configs and checkpoints. Each is compared with the others; nothing is repeated and no data are read. Failures are
 * STATUS_DIVERGED where two of them differ, with file and line, and STATUS_DATA where one cannot be read. */
#pragma once

#include "base/files/digest.h"
#include "checkpoint/checkpoint.h"
#include "command.h"
#include "train/config/config.h"
#include "train/metrics/monitor.h"
#include "train/state/state.h"

/* A config that starts had. */
struct recorded_config {
    const char *sha256, *text; /* text NULL: not in the folder */
    struct config_file *file;  /* of [text] */
};

/* The name of a checkpoint, and its line. */
struct recorded_name {
    const char *name;
    size_t line;
};

/* A line of an epoch in metrics.jsonl. */
struct recorded_epoch {
    int64_t epoch; /* from 0 */
    const struct ledger_line *line;
    double best, stop, plateau; /* of the metrics of checkpoint.best, train.early_stop and the schedule; NAN: none */
    double train_loss;
};

/* What is fitted to the data, or read from them, is the same in all checkpoints of a run. */
#define RECORDED_CONSTANTS 10
struct recorded_constants {
    const char *path; /* of the file; NULL: not read */
    char sha256[RECORDED_CONSTANTS][DIGEST_HEX_SIZE];
};

struct recorded_run {
    struct arena *arena;
    const char *folder;
    struct ledger_file ledger, metrics; /* metrics: of metrics.jsonl; count 0: there is none */
    struct recorded_epoch *epochs;      /* (epoch_count) in order */
    size_t epoch_count;
    struct recorded_config *configs; /* (config_count) the newest start's first */
    size_t config_count;
    struct recorded_name *names; /* (name_count), in order of names and lines */
    size_t name_count;
    struct monitor monitor;                         /* of the best epoch */
    bool has_validation;                            /* rows */
    const char *newest, *best;                      /* paths of the newest checkpoint and of best.h5; NULL: none */
    struct counters newest_counters, best_counters; /* in them */
    int64_t best_step;                              /* best_step -1: there is no best.h5 */
    int64_t best_epoch;                             /* from 1; 0: none */
    bool is_best_compared;                          /* the ledger has a hash of the state in best.h5 */
    const struct ledger_line *best_since; /* of metrics.jsonl: a resume since which it is the best; NULL: of the run */
    bool lacks_end;                       /* metrics.jsonl has no end of the run, which the ledger has */
    struct recorded_constants newest_constants, best_constants, repeated_constants;
    status late; /* a difference that a repetition may say better: of which tensor, of which line */
};

/* Reads and compares everything. Close it also after a failure; with OK [late] may be one. */
status recorded_run_read(const char *folder, struct recorded_run *out);
void recorded_run_close(struct recorded_run *run);

/* The text of the config of a start; NULL: not in the folder. */
const char *recorded_config(const struct recorded_run *run, const struct ledger_line *start);
/* [path]; NULL: there is no such file. */
const char *recorded_file(const char *path);
/* The file of the checkpoint of line [index], unless a later line has the same name; NULL: there is none. */
const char *recorded_checkpoint(const struct recorded_run *run, size_t index);
/* The file of the checkpoint of line [index], and best.h5 if it has the same step, with the one that a repetition has
 * saved. */
status recorded_compare_checkpoint(struct recorded_run *run, size_t index, struct checkpoint *repeated);
/* What predictions need besides the tensors, in the newest checkpoint and in best.h5, with that of the first
 * repetition.
 */
status recorded_compare_constants(struct recorded_run *run, struct checkpoint *repeated);

/* The last line of an epoch, from 0; NULL: there is none. */
const struct ledger_line *recorded_find_epoch(const struct recorded_run *run, int64_t epoch);
/* The line of a run that has ended or was stopped; NULL: it has not. */
const struct ledger_line *recorded_end(const struct ledger_file *file);

/* STATUS_DIVERGED with file and number of a line of metrics.jsonl. */
status recorded_metrics_differ(const struct recorded_run *run, const struct ledger_line *line, const char *why);
/* The same with the first field of [line], of metrics.jsonl, that [other] has otherwise, or where [is_whole] has not.
 * [where]: what [other] is. Times are not compared. */
status recorded_compare_fields(const struct recorded_run *run, const struct ledger_line *line,
                               const struct ledger_line *other, bool is_whole, const char *where);
