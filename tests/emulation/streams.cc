/* Streams and events of the emulated GPU. The work of a stream runs only when a call waits for it, and no more of it
 * than the wait requires: a result that is read too early is not available yet, a buffer that is overwritten too early
 * is copied with its new content, and an event without a wait orders nothing. */
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <random>

#include "streams.h"

namespace emulation {

std::recursive_mutex lock;
thread_local cudaStreamCaptureMode thread_capture_mode = cudaStreamCaptureModeGlobal;
std::vector<CUstream_st *> &streams = *new std::vector<CUstream_st *>;

namespace {

unsigned depth;      /* how often its owner has locked the mutex */
unsigned long calls; /* calls that enqueued work or waited */
bool has_background;

double now_ms() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* Sometimes runs an operation of another stream first. */
void mix(CUstream_st *wanted) {
    static std::minstd_rand random(1);
    if (get_settings().streams != settings::RANDOM || random() % 2 == 0) return;
    CUstream_st *other = streams[random() % streams.size()];
    if (other != wanted && !other->is_busy && !other->queue.empty() &&
        (!other->queue.front().wait || other->queue.front().wait->is_done))
        step(other);
}

void satisfy(const std::shared_ptr<mark> &m) {
    while (!m->is_done) {
        mix(m->on);
        if (!m->is_done && !step(m->on)) pause();
    }
}

void work_in_background() {
    for (unsigned long seen = 0;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        guard g(lock);
        bool is_quiet = calls == seen;
        for (size_t i = 0; is_quiet && i < streams.size(); i++)
            if (!streams[i]->queue.empty() && !streams[i]->is_busy) step(streams[i]);
        seen = calls;
    }
}

} // namespace

guard::guard(std::recursive_mutex &mutex) {
    mutex.lock();
    depth++;
}

guard::~guard() {
    depth--;
    lock.unlock();
}

void pause() {
    unsigned held = depth;
    depth = 0;
    for (unsigned i = 0; i < held; i++) lock.unlock();
    usleep(50);
    for (unsigned i = 0; i < held; i++) lock.lock();
    depth = held;
}

CUstream_st *known(cudaStream_t stream) {
    for (CUstream_st *s : streams)
        if (s == stream) return s;
    die("%p is no stream", (void *)stream);
}

bool step(CUstream_st *stream) {
    if (stream->is_busy) {
        if (stream->busy_by == std::this_thread::get_id()) die("a stream waits for itself");
        return false;
    }
    if (stream->queue.empty()) die("an event that is never recorded");
    operation &first = stream->queue.front();
    if (first.wait && !first.wait->is_done) return step(first.wait->on);
    if (first.progress && sticky == cudaSuccess && !first.progress()) return false;
    operation o = std::move(first);
    stream->queue.pop_front();
    stream->is_busy = true;
    stream->busy_by = std::this_thread::get_id();
    if (o.work && sticky == cudaSuccess) {
        opened memory;
        o.work();
    }
    if (o.record) {
        o.record->is_done = true;
        o.record->ms = now_ms();
    }
    stream->is_busy = false;
    return true;
}

void run_stream(CUstream_st *stream) {
    while (!stream->queue.empty() || stream->is_busy) {
        mix(stream);
        if (!stream->queue.empty() || stream->is_busy)
            if (!step(stream)) pause();
    }
}

void put(CUstream_st *stream, operation &&o) {
    calls++;
    if (stream->graph)
        stream->graph->lanes[stream->lane].push_back(std::move(o));
    else
        stream->queue.push_back(std::move(o));
}

bool is_idle() {
    for (CUstream_st *s : streams)
        if (!s->queue.empty() || s->is_busy) return false;
    return true;
}

bool is_capturing(cudaStream_t stream) {
    if (stream) return known(stream)->graph;
    for (CUstream_st *s : streams)
        if (s->graph) return true;
    return false;
}

cudaError_t forbid_capture() {
    cudaError_t error = cudaSuccess;
    for (CUstream_st *s : streams)
        if (s->graph) error = forbid_capture_by(s->graph, cudaErrorStreamCaptureUnsupported);
    return error;
}

cudaError_t forbid_capture_by(CUgraph_st *captured, cudaError_t error) {
    captured->is_invalid = true;
    return result(error);
}

/* As documented for cudaThreadExchangeStreamCaptureMode. */
cudaError_t forbid_unsafe_call() {
    cudaError_t error = cudaSuccess;
    for (CUstream_st *s : streams) {
        const CUgraph_st *g = s->graph;
        if (!g || thread_capture_mode == cudaStreamCaptureModeRelaxed) continue;
        bool is_own = g->by == std::this_thread::get_id();
        bool is_forbidden =
            is_own ? g->mode != cudaStreamCaptureModeRelaxed
                   : thread_capture_mode == cudaStreamCaptureModeGlobal && g->mode == cudaStreamCaptureModeGlobal;
        if (is_forbidden) error = forbid_capture_by(s->graph, cudaErrorStreamCaptureUnsupported);
    }
    return error;
}

/* Work of the default stream waits for all streams that are not nonblocking, and runs at once. */
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
    if (sticky != cudaSuccess) return sticky;
    if (stream && stream != cudaStreamLegacy) {
        put(known(stream), {std::move(work), nullptr, nullptr, nullptr});
        return cudaSuccess;
    }
    cudaError_t error = forbid_capture();
    if (error != cudaSuccess) return error;
    for (size_t i = 0; i < streams.size(); i++)
        if (!(streams[i]->flags & cudaStreamNonBlocking)) run_stream(streams[i]);
    if (sticky == cudaSuccess) {
        opened memory;
        work();
    }
    return sticky;
}

cudaError_t run_all() {
    calls++;
    for (size_t i = 0; i < streams.size(); i++) run_stream(streams[i]);
    return sticky;
}

void start_background() {
    guard g(lock);
    if (has_background) return;
    has_background = true;
    std::thread(work_in_background).detach();
}

} // namespace emulation

using namespace emulation;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    guard g(lock);
    if (sticky != cudaSuccess) return sticky;
    if (is_to_fail("stream")) return result(cudaErrorMemoryAllocation);
    *stream = new CUstream_st{{}, flags, false, {}, nullptr, 0};
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *smallest, int *greatest) {
    *smallest = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    guard g(lock);
    CUstream_st *s = known(stream);
    if (s->graph) die("a stream is destroyed while it is captured");
    run_stream(s);
    streams.erase(std::find(streams.begin(), streams.end(), s));
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    guard g(lock);
    if (!stream || stream == cudaStreamLegacy) return enqueue(nullptr, []() {});
    CUstream_st *s = known(stream);
    if (s->graph) return forbid_capture_by(s->graph, cudaErrorStreamCaptureUnsupported);
    calls++;
    run_stream(s);
    if (is_idle()) idle_waits++;
    return sticky;
}

cudaError_t cudaDeviceSynchronize() {
    guard g(lock);
    cudaError_t error = forbid_capture();
    return error == cudaSuccess ? run_all() : error;
}

/* A query makes progress: it runs one operation. */
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    guard g(lock);
    CUstream_st *s = known(stream);
    if (s->graph) return forbid_capture_by(s->graph, cudaErrorStreamCaptureUnsupported);
    if (sticky != cudaSuccess || (s->queue.empty() && !s->is_busy)) return sticky;
    step(s);
    return cudaErrorNotReady;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *data) {
    guard g(lock);
    return enqueue(stream, [function, data]() { function(data); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    guard g(lock);
    if (sticky != cudaSuccess || !event->last) return sticky; /* never recorded: nothing to wait for */
    CUstream_st *s = known(stream);
    if (event->graph && !event->graph->is_complete && !s->graph) { /* joins the capture */
        s->graph = event->graph;
        s->lane = s->graph->lanes.size();
        s->graph->lanes.emplace_back();
    }
    if (s->graph != event->graph) {
        if (s->graph) s->graph->is_invalid = true;
        return result(cudaErrorStreamCaptureUnsupported);
    }
    put(s, {nullptr, nullptr, event->last, nullptr});
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    guard g(lock);
    *event = new CUevent_st{flags, nullptr, nullptr};
    return sticky;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    guard g(lock);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    guard g(lock);
    if (sticky != cudaSuccess) return sticky;
    CUstream_st *s = known(stream);
    event->last = std::make_shared<mark>(mark{false, s->graph ? nullptr : s, 0});
    event->graph = s->graph;
    put(s, {nullptr, event->last, nullptr, nullptr});
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    guard g(lock);
    if (event->graph) return forbid_capture_by(event->graph, cudaErrorCapturedEvent);
    calls++;
    if (event->last) satisfy(event->last);
    if (is_idle()) idle_waits++;
    return sticky;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    guard g(lock);
    if (event->graph) return forbid_capture_by(event->graph, cudaErrorCapturedEvent);
    if (sticky != cudaSuccess || !event->last || event->last->is_done) return sticky;
    step(event->last->on);
    return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    guard g(lock);
    if (!start->last || !end->last || start->graph || end->graph ||
        (start->flags | end->flags) & cudaEventDisableTiming)
        return result(cudaErrorInvalidResourceHandle);
    if (!start->last->is_done || !end->last->is_done) return cudaErrorNotReady;
    *ms = (float)(end->last->ms - start->last->ms);
    return sticky;
}
