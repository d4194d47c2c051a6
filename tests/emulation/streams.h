/* The emulated GPU: streams, events and graphs. A stream is a queue of operations; a mark is a point of a stream that
 * other streams can wait for, created each time an event is recorded. */
#pragma once

#include <thread>

#include "emulation.h"

namespace emulation {

struct mark {
    bool is_done;
    CUstream_st *on; /* NULL: part of a graph, not of a launch */
    double ms;
};

struct operation {
    std::function<void()> work;
    std::shared_ptr<mark> record, wait;
    std::function<bool()> progress; /* polled until it returns true; it makes memory accessible itself */
};

} // namespace emulation

/* [lanes]: the operations of each captured stream, the stream of cudaStreamBeginCapture first. Marks are those of the
 * capture; a launch has its own marks. */
struct CUgraph_st {
    std::vector<std::vector<emulation::operation>> lanes;
    cudaStreamCaptureMode mode;
    std::thread::id by; /* the thread that began the capture */
    bool is_invalid;
    bool is_complete; /* the capture has ended */
};

struct CUgraphExec_st {
    std::vector<std::vector<emulation::operation>> lanes;
};

struct CUstream_st {
    std::deque<emulation::operation> queue;
    unsigned flags;
    bool is_busy; /* one of its operations is running */
    std::thread::id busy_by;
    CUgraph_st *graph; /* the capture that it is part of, or NULL */
    size_t lane;
};

struct CUevent_st {
    unsigned flags;
    std::shared_ptr<emulation::mark> last; /* of the last record, or NULL */
    CUgraph_st *graph;                     /* that it was recorded in, or NULL */
};

namespace emulation {

extern std::vector<CUstream_st *> &streams;
extern thread_local cudaStreamCaptureMode thread_capture_mode; /* cudaThreadExchangeStreamCaptureMode */

CUstream_st *known(cudaStream_t stream); /* aborts if there is no such stream */
/* Runs the first operation of a stream that is not empty, or one that this operation waits for. False: none can run
 * now. */
bool step(CUstream_st *stream);
void run_stream(CUstream_st *stream); /* until it is empty */
void put(CUstream_st *stream, operation &&o);
cudaError_t forbid_capture(); /* cudaSuccess where no stream is captured; else all captures become invalid */
/* For a call on a stream or an event of [captured]: the same, of this capture only, with [error]. */
cudaError_t forbid_capture_by(CUgraph_st *captured, cudaError_t error);
std::vector<std::vector<operation>> with_new_marks(const std::vector<std::vector<operation>> &lanes,
                                                   CUstream_st *const *on);

} // namespace emulation
