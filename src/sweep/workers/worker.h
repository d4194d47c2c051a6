/* worker: a process that trains runs of a sweep, short ones several at once, as they are handed out. It opens each
 * dataset once; those that were open when it was started it shares with the other workers. Runs after one that has
 * computed for long have a run folder, and with it checkpoints, from the start; after short ones, and as the first on
 * the CPU, a run leaves no files unless it is to be kept, has test rows, or takes longer than some seconds (the first:
 * 0.1 s). */
#pragma once

#include <limits.h>
#include <sys/types.h>

#include "dist/process/env.h"
#include "sweep/sweep_config.h"
#include "sweep/workers/dataset_cache.h"

/* To the worker. */
struct worker_job {
    int64_t run;           /* trial * sweep->runs + repeat */
    bool is_kept;          /* with a run folder from its start */
    uint64_t folder_inode; /* the run stops where the folder of the sweep has another; 0: not compared */
    struct point point;
    char
        folder[PATH_MAX]; /* of the sweep, where it was moved; "": as in worker_options. Only its characters are sent */
};

enum worker_event {
    WORKER_EPOCH,   /* an epoch's value; answered by a bool: whether the run is to stop */
    WORKER_DONE,    /* complete */
    WORKER_PRUNED,  /* stopped as the coordinator answered */
    WORKER_FAILED,  /* with a message */
    WORKER_LOST,    /* of a rank that is a worker: its process has ended; message: how */
    WORKER_STOPPED, /* by a signal: the run is to be done by another worker; this one ends */
};

#define WORKER_MESSAGE 1024 /* bytes; a longer message is cut */

/* From the worker. */
struct worker_report {
    int event;       /* enum worker_event */
    int code;        /* enum status_code of WORKER_FAILED */
    bool is_last;    /* of WORKER_EPOCH: it is the last one of train.epochs */
    bool has_folder; /* of WORKER_DONE: the run's folder is written */
    int64_t run, epoch, best_epoch, epochs;
    double value, test, seconds;            /* test: of the test rows, where they were evaluated; NAN: they were not */
    double others[SWEEP_MAX_OTHER_METRICS]; /* of WORKER_DONE, as trial_run's */
    double waits; /* of a job that is kept: seconds that it waited, mostly for the disk, for each that it computed */
    char state_sha256[65];
    char dataset[DATASET_KEY_SIZE], fingerprint[65]; /* of the run's rows; "": unknown, it did not open them itself */
    char message[WORKER_MESSAGE];                    /* as folder of worker_job */
};

struct worker_options {
    const struct sweep_config *sweep;
    const char *folder;         /* the sweep's */
    const struct dist_env *env; /* of this process, as a run of one rank */
    const char *no_gpu;         /* train.device: auto: a clause, why GPUs are not used; NULL: they are */
    int threads;                /* of a run; 0: as many as the library takes */
    int local_workers;          /* of this sweep on this machine */
    bool reports_epochs;        /* WORKER_EPOCH */
};

struct sweep_file;
struct sweep_options;
/* What workers of such a sweep get; [env]: of their runs, one rank. */
struct worker_options worker_options(const struct sweep_file *file, const struct sweep_options *options,
                                     const struct dist_env *env);

/* Starts a worker; *fd: a socket for its jobs and reports, which ends it when it is closed. The worker ends with its
 * parent process. Call it while the process has one thread. */
status worker_start(const struct worker_options *options, struct dataset_cache *cache, pid_t *pid, int *fd);

/* The next message; *got false: the worker has ended, or has sent a part of one. */
status worker_receive(int fd, struct worker_report *report, bool *got);
/* Closes the socket and waits for the end of the process; [by_force]: which is killed. [how]: how it ended, "was ended
 * by signal 9 (Killed)", nothing for exit code 0; NULL: not wanted. */
void worker_end(pid_t pid, int fd, bool by_force, struct text *how);
/* false: the worker has ended. */
bool worker_send_job(int fd, const struct worker_job *job);
bool worker_answer(int fd, bool must_stop);
