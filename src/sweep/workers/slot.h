/* slot: a worker of the coordinator: a process of its own, or another rank. */
#pragma once

#include "sweep/workers/dataset_cache.h"
#include "sweep/workers/worker_connection.h"

#define SLOT_MAX_AHEAD 32

struct worker_slot {
    bool is_remote;
    int rank;                             /* of a connection */
    struct worker_connection *connection; /* NULL: a process, or a rank that has not connected */
    pid_t pid;                            /* 0: no process */
    int fd;
    bool is_busy;
    bool is_beside_keepers; /* of the coordinator: keepers that have ended since ran beside the job in progress */
    struct worker_job job;  /* the one in progress */
    struct worker_job ahead[SLOT_MAX_AHEAD]; /* (ahead_count) from ahead_first on, a ring: sent, but not begun */
    int ahead_first, ahead_count;
    bool has_ended; /* a job: then [seconds] is the mean training of the last ones */
    double seconds;
    struct dist_env env; /* of its runs */
    struct worker_options options;
};

/* Whether there is a process, or the rank is connected. */
bool slot_is_used(const struct worker_slot *slot);
/* Readable when there is a report, or the worker has ended; -1: it is not used. */
int slot_fd(const struct worker_slot *slot);

/* Hands slot->job to the worker; a process is started if there is none. A worker that has ended is found by the next
 * slot_receive. */
status slot_send_job(struct worker_slot *slot, struct dataset_cache *cache);
/* Hands one more job to a busy process, which begins it after its own and those that wait. */
void slot_send_ahead(struct worker_slot *slot, const struct worker_job *job);
/* The job in progress, which has trained for [seconds], was reported: the next one that waits, if any, is in progress
 * now. */
void slot_end_job(struct worker_slot *slot, double seconds);
/* The runs of the jobs that wait; returns their number. */
int slot_list_ahead(const struct worker_slot *slot, int64_t runs[SLOT_MAX_AHEAD]);
/* How many jobs are to wait: as many as take about SLOT_AHEAD_SECONDS. 0 for a rank, whose process may be replaced. */
#define SLOT_AHEAD_SECONDS 0.1
#define SLOT_JOB_SECONDS 3e-5 /* of a job beside its training, at least */
int slot_wanted_ahead(const struct worker_slot *slot);
/* To WORKER_EPOCH. */
void slot_answer(struct worker_slot *slot, bool must_stop);
/* The worker saves and ends its run. */
void slot_stop(struct worker_slot *slot);
/* The sweep has ended with [code]; for a rank. */
void slot_end_rank(struct worker_slot *slot, int code);

/* The next report; *got false: it is not there in full yet. *is_lost: the worker has ended, the rank was lost; then the
 * slot is unused and [how] is a clause, "was ended by signal 9 (Killed)". Empty: the worker has ended as it should,
 * because a signal has stopped it after a run; it has not begun the job in progress. */
status slot_receive(struct worker_slot *slot, struct worker_report *report, bool *got, bool *is_lost, struct text *how);

/* Ends the worker; [by_force]: without waiting for its run. */
void slot_end(struct worker_slot *slot, bool by_force);
