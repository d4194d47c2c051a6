/* comm_check: checks a process group: every collective, type and operation, at sizes around the thresholds between the
 * algorithms of the backends, against the same arithmetic done serially. For `ddptrain comm` and the tests. */
#pragma once

#include "dist/comm/comm.h"

/* Called before each part, number [done] of [total], and often within it; [checks]: results compared so far. */
typedef void comm_check_progress(void *context, const char *part, size_t done, size_t total, size_t checks);

/* [progress] may be NULL; [context] is passed to it. *checks: collective calls whose result was compared. A wrong
 * result is STATUS_BUG with the call, the element and both values; this rank then makes no further calls, so the calls
 * of the other ranks time out. All ranks. */
status comm_check(struct comm *comm, comm_check_progress *progress, void *context, size_t *checks);

/* ---- measurements ---- */

/* Measures how long a collective takes, as nccl-tests does: rounds of many calls between barriers, the
 * time of the slowest rank, the median of the rounds. For `ddptrain comm`. */

/* X(enum constant, name in tables, factor of the bus bandwidth for n ranks). The factor makes bandwidths of different
 * collectives and numbers of ranks comparable: the bytes that the link of a rank transfers (nccl-tests,
 * doc/PERFORMANCE.md). */
#define COMM_MEASURES(X)                                                                                               \
    X(MEASURE_ALL_REDUCE, "all_reduce", 2.0 * (n - 1) / n)                                                             \
    X(MEASURE_ALL_REDUCE_COPIED, "all_reduce, any memory", 2.0 * (n - 1) / n)                                          \
    X(MEASURE_LIBRARY_SUM, "MPI_Allreduce", 2.0 * (n - 1) / n)                                                         \
    X(MEASURE_REDUCE_SCATTER, "reduce_scatter", (n - 1) / n)                                                           \
    X(MEASURE_ALL_GATHER, "all_gather", (n - 1) / n)                                                                   \
    X(MEASURE_BROADCAST, "broadcast", 1.0)                                                                             \
    X(MEASURE_SEND_RECV, "send, recv", 1.0)

enum comm_measure {
#define X(name, label, factor) name,
    COMM_MEASURES(X)
#undef X
        COMM_MEASURE_COUNT
};

/* Whether the group has it: all but MEASURE_ALL_REDUCE_COPIED on GPUs and MEASURE_LIBRARY_SUM without a library's
 * all-reduce. */
bool comm_measure_exists(enum comm_measure measure, struct comm *comm);
const char *comm_measure_name(enum comm_measure measure);
/* Bus bandwidth divided by (bytes / time). */
double comm_measure_factor(enum comm_measure measure, int world_size);

struct comm_measurer;

/* For messages of up to [max_bytes] bytes, the parts of all ranks together. world_size > 1. All ranks. */
status comm_measurer_create(struct comm *comm, size_t max_bytes, struct comm_measurer **out);
void comm_measurer_destroy(struct comm_measurer *measurer); /* takes NULL */

/* *seconds: time of one call with float32 data of [bytes] bytes, the parts of all ranks together; for send and recv: of
 * one direction. All ranks. */
status comm_measurer_run(struct comm_measurer *measurer, enum comm_measure measure, size_t bytes, double *seconds);
