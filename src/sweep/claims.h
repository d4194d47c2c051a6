/* claims: which process trains which trials, where several processes share a sweep without a coordinator (sweep
 * --share): started at any time, on any host that sees the folder, ended by any means.
 *
 * All they know of each other is files in <sweep>/shared:
 *
 *   blocks/<first>.<n>  A block is a range of trials from <first> on; the blocks follow each other without a gap. What
 *                       happened to it is a list of entries, n = 0, 1, 2 ... An entry is a claim by a process (the
 *                       first one says how many trials the block has), or the results of runs by the process that has
 *                       the claim, the lines of history.jsonl. The last result of a process gives the claim back.
 *   members/<id>/alive  changes several times during a lease as long as process <id> runs
 *   members/<id>/runs   run folders of its trials, which no other process writes
 *
 * Atomic is only link(2): an entry is a file that was written and synced under another name, and gets its name where
 * that is free. This holds on NFS and Lustre, and there is no lock (flock, fcntl), no rename over a file that others
 * read, and no clock that two hosts compare. Nothing is ever changed or deleted in blocks.
 *
 * So each entry is decided once, by one process, which knows all entries before it. A result is published only by the
 * process that still has the claim: if another one took it over meanwhile, its claim has the name that the result would
 * get. That holds for a process that was suspended for any time. Each run has exactly one published result; at a kill
 * at any moment runs that were published are durable, and others are done again.
 *
 * A claim is dead when its process is: on the same host if the kernel says so, else if its file did not change during a
 * lease of the observer's monotonic clock, in several observations. A process that was wrongly given up loses time, but
 * nothing else. Whoever takes over continues from the checkpoints: it links or copies them, and never touches the dead
 * one's files.
 *
 * Blocks of short trials take about a second, so the cost of a trial is some microseconds: a process reads each entry
 * once, and never lists a folder of blocks. When all trials have results one process claims the end of the sweep, in
 * the same way: it writes history.jsonl and the tables, and keeps the best trials. */
#pragma once

#include "base/log.h"
#include "sweep/trials.h"

#define CLAIMS_ID_SIZE 96
/* "node17-4711-8f3a01c2", unique. */
void claims_make_id(char id[CLAIMS_ID_SIZE]);

struct claims;
struct claims_options {
    const char *folder; /* of the sweep */
    const char *by_fd;  /* the same, for files of this process and their names (sweep_folder_by_fd) */
    const char *id;
    double lease;                               /* seconds */
    void (*observe)(void *user, int64_t trial); /* a result of another process is in the table; NULL: not wanted */
    void *user;
};

/* Joins the sweep, whose folder is open. The results of others get into [trials]. */
status claims_open(const struct claims_options *options, const struct sweep_config *sweep, struct trials *trials,
                   struct log *log, struct claims **out);
/* Takes NULL. After it others need not wait for the lease. */
void claims_close(struct claims *claims);
/* Of this process, for its runs. */
const char *claims_folder(const struct claims *claims);

/* To be called some times a second: shows others that this process is there. After a long pause of this process it
 * finds the claims that were lost: *has_lost. */
status claims_beat(struct claims *claims, bool *has_lost);

/* More work: trials [*first, *end), of which those with results are to be skipped. false: there is none now. */
status claims_next(struct claims *claims, int64_t *first, int64_t *end, bool *has);
/* Whether this process has the claim of the trial. */
bool claims_has(const struct claims *claims, int64_t trial);
/* The same, where it may have been lost since the last look: then the trial has no result of this process any more. */
status claims_check(struct claims *claims, int64_t trial, bool *has);
/* Run [run] of a claimed trial was just added to the table. Results are published when the block is complete, or after
 * some seconds. */
status claims_add(struct claims *claims, int64_t run);
/* Publishes what has ended, and gives all claims back. */
status claims_give_back(struct claims *claims);
/* Reads what is new of others. *is_complete: every run has a published result. */
status claims_read(struct claims *claims, bool *is_complete);

/* ---- the end ---- */

enum claims_end {
    CLAIMS_END_WAIT, /* another process does it */
    CLAIMS_END_MINE, /* this one, until claims_end_done */
    CLAIMS_END_DONE  /* since claims_open */
};
status claims_end(struct claims *claims, enum claims_end *out);
/* *is_mine: it was done by this process; else another one took it over. */
status claims_end_done(struct claims *claims, bool *is_mine);

/* The run folders of a trial, of whichever process has them, are in this process's folder from now on: to continue them
 * there. *is_kept: the folder of the sweep has them, complete. */
status claims_collect(struct claims *claims, int64_t trial, bool *is_kept);
/* Moves them to the folder of the sweep. */
status claims_keep(struct claims *claims, int64_t trial);
/* Removes the run folders in those of all processes. */
status claims_remove_rest(struct claims *claims);
