/* Graphs of the emulated GPU: a capture records the operations of its streams, a launch repeats them in one new
 * stream per captured stream. */
#include "streams.h"

namespace emulation {

std::vector<std::vector<operation>> with_new_marks(const std::vector<std::vector<operation>> &lanes,
                                                   CUstream_st *const *on) {
    std::map<const mark *, std::shared_ptr<mark>> marks;
    for (size_t i = 0; i < lanes.size(); i++)
        for (const operation &o : lanes[i])
            if (o.record) marks[o.record.get()] = std::make_shared<mark>(mark{false, on[i], 0});
    std::vector<std::vector<operation>> copy(lanes);
    for (auto &lane : copy)
        for (operation &o : lane) {
            if (o.record) o.record = marks[o.record.get()];
            if (o.wait) o.wait = marks[o.wait.get()];
        }
    return copy;
}

namespace {

std::vector<std::unique_ptr<CUgraph_st>> &graphs = /* all graphs that were captured: events may refer to them */
    *new std::vector<std::unique_ptr<CUgraph_st>>;

/* The number of operations of each lane that the first [count] operations of a lane wait for. */
void reach(const CUgraph_st &g, size_t lane, size_t count, std::vector<size_t> *reached) {
    if (count <= (*reached)[lane]) return;
    size_t from = (*reached)[lane];
    (*reached)[lane] = count;
    for (size_t i = from; i < count; i++) {
        const mark *awaited = g.lanes[lane][i].wait.get();
        for (size_t l = 0; awaited && l < g.lanes.size(); l++)
            for (size_t k = 0; k < g.lanes[l].size(); k++)
                if (g.lanes[l][k].record.get() == awaited) reach(g, l, k + 1, reached);
    }
}

/* Whether the capture's own stream waits for all other work. */
bool is_joined(const CUgraph_st &g) {
    std::vector<size_t> reached(g.lanes.size());
    reach(g, 0, g.lanes[0].size(), &reached);
    for (size_t l = 0; l < g.lanes.size(); l++)
        for (size_t k = reached[l]; k < g.lanes[l].size(); k++)
            if (g.lanes[l][k].work || g.lanes[l][k].progress) return false;
    return true;
}

void run_graph(const CUgraphExec_st &executable) {
    std::vector<CUstream_st> lanes(executable.lanes.size());
    std::vector<CUstream_st *> on;
    for (CUstream_st &lane : lanes) on.push_back(&lane);
    auto operations = with_new_marks(executable.lanes, on.data());
    for (size_t i = 0; i < lanes.size(); i++) lanes[i].queue.assign(operations[i].begin(), operations[i].end());
    for (CUstream_st &lane : lanes) run_stream(&lane);
}

} // namespace
} // namespace emulation

using namespace emulation;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    guard g(lock);
    if (sticky != cudaSuccess) return sticky;
    CUstream_st *s = known(stream);
    if (s->graph || is_to_fail("capture")) return result(cudaErrorStreamCaptureUnsupported);
    graphs.push_back(std::make_unique<CUgraph_st>());
    s->graph = graphs.back().get();
    s->graph->lanes.emplace_back();
    s->graph->mode = mode;
    s->graph->by = std::this_thread::get_id();
    s->lane = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    guard g(lock);
    CUgraph_st *captured = known(stream)->graph;
    *graph = nullptr;
    if (!captured || known(stream)->lane != 0) return result(cudaErrorInvalidValue);
    if (captured->mode != cudaStreamCaptureModeRelaxed && captured->by != std::this_thread::get_id())
        return forbid_capture_by(captured, cudaErrorStreamCaptureWrongThread);
    for (CUstream_st *s : streams)
        if (s->graph == captured) s->graph = nullptr;
    captured->is_complete = true;
    cudaError_t error = captured->is_invalid   ? cudaErrorStreamCaptureInvalidated
                        : is_joined(*captured) ? cudaSuccess
                                               : cudaErrorStreamCaptureUnjoined;
    if (error != cudaSuccess) captured->lanes.clear();
    if (error != cudaSuccess) return result(error);
    *graph = captured;
    return sticky;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    guard g(lock);
    CUgraph_st *graph = known(stream)->graph;
    *status = !graph              ? cudaStreamCaptureStatusNone
              : graph->is_invalid ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    std::swap(thread_capture_mode, *mode);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long) {
    guard g(lock);
    if (is_to_fail("graph")) return result(cudaErrorMemoryAllocation);
    *executable = new CUgraphExec_st{graph->lanes};
    return sticky;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return sticky; }

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    guard g(lock);
    graphs_launched++;
    auto kept = std::make_shared<CUgraphExec_st>(*executable);
    return enqueue(stream, [kept]() { run_graph(*kept); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, void *, size_t *count) {
    *count = 0;
    for (const auto &lane : graph->lanes)
        for (const operation &o : lane) *count += o.work || o.progress;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    graph->lanes.clear();
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    delete executable;
    return cudaSuccess;
}
