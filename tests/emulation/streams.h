/* The emulated GPU: streams, events and graphs. A stream is a queue of operations; a mark is a point of a stream that
 * others may wait for, made anew each time an event is recorded. */
#ifndef EMULATION_STREAMS_H
#define EMULATION_STREAMS_H

#include <thread>

#include "emulation.h"

namespace emulation {

struct mark {
    bool is_done;
    CUstream_st *on; /* NULL: of a graph that has not been launched */
    double ms;
};

struct operation {
    std::function<void()> work;
    std::shared_ptr<mark> record, wait;
    std::function<bool()> progress; /* asked until it is true; it opens memory itself */
};

} // namespace emulation

/* [lanes]: the operations of each captured stream, the capture's own first. Marks are those of the capture; a launch
 * has its own instead. */
struct CUgraph_st {
    std::vector<std::vector<emulation::operation>> lanes;
    bool is_invalid;
    bool is_whole; /* the capture has ended */
};

struct CUgraphExec_st {
    std::vector<std::vector<emulation::operation>> lanes;
};

struct CUstream_st {
    std::deque<emulation::operation> queue;
    unsigned flags;
    bool is_busy; /* an operation of it runs */
    std::thread::id busy_by;
    CUgraph_st *graph; /* that it is captured into, or NULL */
    size_t lane;
};

struct CUevent_st {
    unsigned flags;
    std::shared_ptr<emulation::mark> last; /* recorded last, or NULL */
    CUgraph_st *graph;                     /* in which, or NULL */
};

namespace emulation {

extern std::vector<CUstream_st *> &streams;

CUstream_st *known(cudaStream_t stream); /* dies if there is no such stream */
/* Its first operation, or one that it waits for; it has one. False: nothing could be done now. */
bool step(CUstream_st *stream);
void run_stream(CUstream_st *stream); /* to its end */
void put(CUstream_st *stream, operation &&o);
cudaError_t forbid_capture(); /* cudaSuccess where no stream is captured; else the capture is spoiled */
std::vector<std::vector<operation>> with_new_marks(const std::vector<std::vector<operation>> &lanes,
                                                   CUstream_st *const *on);

} // namespace emulation

#endif
