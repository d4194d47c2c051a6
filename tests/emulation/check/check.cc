/* Tests of the emulated GPU itself: what must work, and what must be detected. Each case runs in its own process, which
 * must exit with 0, or must abort. */
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "cuda_runtime.h"

namespace {

constexpr int THREADS = 64;

void expect(bool is_true, const char *what) {
    if (is_true) return;
    printf("  not so: %s\n", what);
    fflush(stdout);
    _exit(9);
}

template <typename... P, typename... A>
void launch(cudaStream_t stream, void (*kernel)(P...), dim3 grid, A... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = THREADS;
    config.stream = stream;
    expect(cudaLaunchKernelEx(&config, kernel, (P)arguments...) == cudaSuccess, "a launch");
}

struct gpu {
    cudaStream_t stream, other;
    float *memory, *pinned; /* (THREADS) */
    gpu() {
        expect(cudaStreamCreate(&stream) == cudaSuccess && cudaStreamCreate(&other) == cudaSuccess, "streams");
        expect(cudaMalloc(&memory, THREADS * sizeof(float)) == cudaSuccess, "memory");
        expect(cudaMallocHost(&pinned, THREADS * sizeof(float)) == cudaSuccess, "pinned memory");
        for (int i = 0; i < THREADS; i++) pinned[i] = -1;
    }
    void fetch(cudaStream_t s) { cudaMemcpyAsync(pinned, memory, THREADS * sizeof(float), cudaMemcpyDeviceToHost, s); }
};

/* ---- kernels ---- */

__global__ void number(float *to, float first) { to[threadIdx.x] = first + (float)threadIdx.x; }

__global__ void reverse(float *to, bool has_barrier) {
    __shared__ float values[THREADS];
    values[threadIdx.x] = (float)threadIdx.x;
    if (has_barrier) __syncthreads();
    to[threadIdx.x] = values[THREADS - 1 - threadIdx.x];
}

__global__ void sum_of_warps(float *to) {
    float sum = (float)threadIdx.x;
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    to[threadIdx.x] = sum;
}

__global__ void return_early() {
    if (threadIdx.x == 7) return;
    __syncthreads();
}

__global__ void diverge() {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}

__global__ void omit_a_lane() {
    if (threadIdx.x != 3) __shfl_down_sync(0xffffffffu, 1, 1);
}

/* Thread 0 reads a number that the last thread writes before, after a wait of the block, of the warp or none. */
enum wait_of { NO_WAIT, WARP_WAIT, BLOCK_WAIT };
__global__ void hand_over(float *to, int writer, int wait) {
    float *shared = (float *)emulated_shared_bytes();
    if ((int)threadIdx.x == writer) shared[3] = 1;
    if (wait == WARP_WAIT) __syncwarp();
    if (wait == BLOCK_WAIT) __syncthreads();
    if (threadIdx.x == 0) to[0] = shared[3];
}

__global__ void write_at(float *to, int i) { to[i] = 1; }

/* What copy_around omits. */
enum omission { NOTHING, THE_COMMIT, THE_WAIT, THE_BARRIER, A_GROUP, THE_ALIGNMENT, THE_END };

/* Every thread copies two values in two groups; its neighbour reads them. */
__global__ void copy_around(float *to, const float *from, int omitted) {
    float *shared = (float *)emulated_shared_bytes();
    unsigned own = threadIdx.x, other = own ^ 32;
    for (unsigned i = 0; i < 2; i++) {
        unsigned at = omitted == THE_ALIGNMENT ? 1 : 0;
        emulated_copy(shared + 4 * (own + i * THREADS), from + own % 8 * 4 + at, 16, i == 0 || own % 2 == 0, __FILE__,
                      __LINE__);
        if (omitted != THE_COMMIT) emulated_copy_commit();
    }
    if (omitted == THE_END) return;
    if (omitted != THE_WAIT) emulated_copy_wait(1);
    if (omitted != THE_BARRIER) __syncthreads();
    to[own] = shared[4 * other + 3];
    __syncthreads();
    if (omitted != A_GROUP) emulated_copy_wait(0);
    to[own] += shared[4 * (own + THREADS) + 2];
    if (omitted == A_GROUP) emulated_copy_wait(0);
}

/* ---- what works ---- */

/* Runs the kernel and aborts where a value is wrong. */
void copy_without(omission what) {
    gpu g;
    cudaLaunchConfig_t config = {};
    config.gridDim = 2;
    config.blockDim = THREADS;
    config.dynamicSmemBytes = 2 * THREADS * 16;
    config.stream = g.stream;
    float *from;
    expect(cudaMalloc((void **)&from, THREADS * sizeof(float)) == cudaSuccess, "memory");
    launch(g.stream, number, 1, from, 0.0f);
    expect(cudaLaunchKernelEx(&config, copy_around, g.memory, (const float *)from, (int)what) == cudaSuccess,
           "a launch");
    g.fetch(g.stream);
    cudaStreamSynchronize(g.stream);
    for (int i = 0; i < THREADS; i++) {
        float second = i % 2 == 0 ? (float)(i % 8 * 4 + 2) : 0;
        if (g.pinned[i] != (float)((i ^ 32) % 8 * 4 + 3) + second) abort();
    }
}

void copies_late() { copy_without(NOTHING); }

void computes() {
    gpu g;
    launch(g.stream, reverse, 1, g.memory, true);
    g.fetch(g.stream);
    cudaStreamSynchronize(g.stream);
    for (int i = 0; i < THREADS; i++) expect(g.pinned[i] == (float)(THREADS - 1 - i), "a block's exchange");
    launch(g.stream, sum_of_warps, 1, g.memory);
    g.fetch(g.stream);
    cudaStreamSynchronize(g.stream);
    expect(g.pinned[0] == 496 && g.pinned[63] == 1520, "a warp's sum");
}

/* Work runs late: a result is not available before a wait for it; pinned memory is read when the copy runs. */
void is_late() {
    gpu g;
    launch(g.stream, number, 1, g.memory, 0.0f);
    g.fetch(g.stream);
    expect(g.pinned[5] == -1, "a result before the wait");
    cudaStreamSynchronize(g.stream);
    expect(g.pinned[5] == 5, "a result");
    cudaMemcpyAsync(g.memory, g.pinned, 4, cudaMemcpyHostToDevice, g.stream);
    g.pinned[0] = 77;
    float pageable = 3, back = 0;
    cudaMemcpyAsync(g.memory + 1, &pageable, 4, cudaMemcpyHostToDevice, g.stream);
    pageable = 4;
    cudaMemcpyAsync(&back, g.memory + 1, 4, cudaMemcpyDeviceToHost, g.stream);
    expect(back == 3, "pageable memory, read and written before the calls return");
    g.fetch(g.stream);
    cudaStreamSynchronize(g.stream);
    expect(g.pinned[0] == 77, "pinned memory, read late");
}

void events_order_streams() {
    for (int waits = 0; waits < 2; waits++) {
        gpu g;
        cudaEvent_t done;
        cudaEventCreate(&done);
        launch(g.stream, number, 1, g.memory, 10.0f);
        cudaEventRecord(done, g.stream);
        if (waits) cudaStreamWaitEvent(g.other, done, 0);
        g.fetch(g.other);
        cudaStreamSynchronize(g.other);
        expect((g.pinned[0] == 10) == (waits == 1), "the other stream sees only what it waited for");
    }
}

void graphs_run_again() {
    gpu g;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaEvent_t fork, join;
    cudaEventCreate(&fork);
    cudaEventCreate(&join);
    for (int joins = 0; joins < 2; joins++) {
        cudaStreamBeginCapture(g.stream, cudaStreamCaptureModeGlobal);
        launch(g.stream, number, 1, g.memory, 1.0f);
        cudaEventRecord(fork, g.stream);
        cudaStreamWaitEvent(g.other, fork, 0);
        g.fetch(g.other);
        cudaEventRecord(join, g.other);
        if (joins) cudaStreamWaitEvent(g.stream, join, 0);
        cudaError_t ended = cudaStreamEndCapture(g.stream, &graph);
        expect(ended == (joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined), "a stream that is not joined");
    }
    expect(cudaGraphInstantiate(&executable, graph) == cudaSuccess, "a graph");
    expect(g.pinned[2] == -1, "a capture does nothing");
    for (int i = 0; i < 2; i++) {
        launch(g.stream, number, 1, g.memory, 50.0f);
        cudaGraphLaunch(executable, g.stream);
        cudaStreamSynchronize(g.stream);
        expect(g.pinned[2] == 3, "a graph's result");
        g.pinned[2] = -1;
    }
}

/* What a thread may not do while it captures; each is an error and makes the capture invalid. */
cudaError_t allocate(gpu *) {
    void *memory = nullptr;
    return cudaMalloc(&memory, 4);
}
cudaError_t allocate_pinned(gpu *) {
    void *memory = nullptr;
    return cudaHostAlloc(&memory, 4, cudaHostAllocDefault);
}
cudaError_t free_memory(gpu *g) { return cudaFree(g->memory); }
cudaError_t register_memory(gpu *) {
    static char page[4096];
    cudaError_t error = cudaHostRegister(page, sizeof page, cudaHostRegisterDefault);
    return error == cudaSuccess ? cudaHostUnregister(page) : error;
}
cudaError_t wait_for_stream(gpu *g) { return cudaStreamSynchronize(g->stream); }
cudaError_t query_stream(gpu *g) { return cudaStreamQuery(g->stream); }
cudaError_t query_event(gpu *g) {
    cudaEvent_t event;
    cudaEventCreate(&event);
    cudaEventRecord(event, g->stream);
    return cudaEventQuery(event);
}

cudaError_t in_capture(gpu *g, cudaStreamCaptureMode mode, cudaError_t (*call)(gpu *), bool is_elsewhere,
                       cudaError_t *ended) {
    cudaGraph_t graph;
    cudaError_t error = cudaSuccess;
    expect(cudaStreamBeginCapture(g->stream, mode) == cudaSuccess, "a capture begins");
    if (is_elsewhere)
        std::thread([&]() { error = call(g); }).join();
    else
        error = call(g);
    *ended = cudaStreamEndCapture(g->stream, &graph);
    return error;
}

void captures_forbid_calls() {
    struct {
        cudaError_t (*call)(gpu *);
        cudaError_t error;
        bool is_unsafe; /* forbidden because it may wait for other work: depends on the modes */
    } calls[] = {{allocate, cudaErrorStreamCaptureUnsupported, true},
                 {allocate_pinned, cudaErrorStreamCaptureUnsupported, true},
                 {free_memory, cudaErrorStreamCaptureUnsupported, true},
                 {register_memory, cudaErrorStreamCaptureUnsupported, true},
                 {wait_for_stream, cudaErrorStreamCaptureUnsupported, false},
                 {query_stream, cudaErrorStreamCaptureUnsupported, false},
                 {query_event, cudaErrorCapturedEvent, false}};
    for (const auto &c : calls)
        for (int mode = cudaStreamCaptureModeGlobal; mode <= cudaStreamCaptureModeRelaxed; mode++)
            for (bool is_elsewhere : {false, true}) {
                gpu g;
                cudaError_t ended;
                cudaError_t error = in_capture(&g, (cudaStreamCaptureMode)mode, c.call, is_elsewhere, &ended);
                bool is_allowed = c.is_unsafe && (mode == cudaStreamCaptureModeRelaxed ||
                                                  (is_elsewhere && mode == cudaStreamCaptureModeThreadLocal));
                expect(error == (is_allowed ? cudaSuccess : c.error), "a call during a capture");
                expect(ended == (is_allowed ? cudaSuccess : cudaErrorStreamCaptureInvalidated), "the capture after it");
            }
}

void captures_end_in_their_thread() {
    gpu g;
    cudaGraph_t graph;
    cudaError_t error = cudaSuccess;
    cudaStreamBeginCapture(g.stream, cudaStreamCaptureModeThreadLocal);
    std::thread([&]() { error = cudaStreamEndCapture(g.stream, &graph); }).join();
    expect(error == cudaErrorStreamCaptureWrongThread, "a capture that another thread ends");
    expect(cudaStreamEndCapture(g.stream, &graph) == cudaErrorStreamCaptureInvalidated, "it is invalid then");
}

void memory_is_counted() {
    size_t before = 0, after = 0, all = 0;
    void *memory = nullptr;
    cudaMemGetInfo(&before, &all);
    expect(cudaMalloc(&memory, all) == cudaSuccess, "all memory");
    cudaMemGetInfo(&after, &all);
    expect(before == all && after == 0, "none left");
    void *more = nullptr;
    expect(cudaMalloc(&more, 1) == cudaErrorMemoryAllocation, "more than is free");
    cudaFree(memory);
    cudaMemGetInfo(&after, &all);
    expect(after == all, "memory after cudaFree");
}

/* ---- what is detected ---- */

void copy_without_commit() { copy_without(THE_COMMIT); }
void copy_without_wait() { copy_without(THE_WAIT); }
void copy_without_barrier() { copy_without(THE_BARRIER); }
void copy_without_a_group() { copy_without(A_GROUP); }
void copy_without_alignment() { copy_without(THE_ALIGNMENT); }
void copy_without_end() { copy_without(THE_END); }

void finish(gpu *g) { cudaStreamSynchronize(g->stream); }

void missing_barrier() {
    gpu g;
    launch(g.stream, reverse, 1, g.memory, false);
    g.fetch(g.stream);
    finish(&g);
    for (int i = 0; i < THREADS; i++)
        if (g.pinned[i] != (float)(THREADS - 1 - i)) abort();
}

void thread_that_returned() {
    gpu g;
    launch(g.stream, return_early, 1);
    finish(&g);
}

void two_barriers() {
    gpu g;
    launch(g.stream, diverge, 1);
    finish(&g);
}

void missing_lane() {
    gpu g;
    launch(g.stream, omit_a_lane, 1);
    finish(&g);
}

void host_reads() {
    gpu g;
    launch(g.stream, number, 1, g.memory, 0.0f);
    finish(&g);
    printf("%g\n", (double)g.memory[0]);
}

void kernel_writes_past_the_end() {
    gpu g;
    launch(g.stream, write_at, 1, g.memory, THREADS);
    finish(&g);
}

void kernel_writes_before() {
    gpu g;
    launch(g.stream, write_at, 1, g.memory, -1);
    finish(&g);
    cudaFree(g.memory);
}

void kernel_uses_freed_memory() {
    gpu g;
    cudaFree(g.memory);
    launch(g.stream, write_at, 1, g.memory, 0);
    finish(&g);
}

void copy_beyond_the_end() {
    gpu g;
    cudaMemcpyAsync(g.pinned, g.memory + 1, THREADS * sizeof(float), cudaMemcpyDeviceToHost, g.stream);
}

void pageable_memory_in_a_graph() {
    gpu g;
    float value = 1;
    cudaStreamBeginCapture(g.stream, cudaStreamCaptureModeGlobal);
    cudaMemcpyAsync(g.memory, &value, 4, cudaMemcpyHostToDevice, g.stream);
}

void hand_over_from(int writer, int wait) {
    gpu g;
    cudaLaunchConfig_t config = {};
    config.gridDim = 2;
    config.blockDim = THREADS;
    config.dynamicSmemBytes = 64;
    config.stream = g.stream;
    expect(cudaLaunchKernelEx(&config, hand_over, g.memory, writer, wait) == cudaSuccess, "a launch");
    expect(cudaDeviceSynchronize() == cudaSuccess, "a wait");
}

void hand_over_with_waits() {
    hand_over_from(0, NO_WAIT);
    hand_over_from(31, WARP_WAIT);
    hand_over_from(63, BLOCK_WAIT);
}

[[maybe_unused]] void hand_over_without_a_wait() { hand_over_from(1, NO_WAIT); }
[[maybe_unused]] void hand_over_to_another_warp() { hand_over_from(32, WARP_WAIT); }

const struct {
    const char *name;
    void (*run)();
    bool dies;
} cases[] = {
    {"shared memory is read after a wait", hand_over_with_waits, false},
#ifdef EMULATION_RACES
    {"shared memory is read without a wait", hand_over_without_a_wait, true},
    {"shared memory is read after a wait of another warp", hand_over_to_another_warp, true},
#endif
    {"computes", computes, false},
    {"is late", is_late, false},
    {"events order streams", events_order_streams, false},
    {"graphs run again", graphs_run_again, false},
    {"captures forbid calls", captures_forbid_calls, false},
    {"captures end in their thread", captures_end_in_their_thread, false},
    {"memory is counted", memory_is_counted, false},
    {"copies to shared memory", copies_late, false},
    {"a copy that is not committed", copy_without_commit, true},
    {"a copy that is not waited for", copy_without_wait, true},
    {"a copy that other threads read without a barrier", copy_without_barrier, true},
    {"a copy of a later group", copy_without_a_group, true},
    {"a copy that is not aligned", copy_without_alignment, true},
    {"a copy that is pending at the end", copy_without_end, true},
    {"a missing barrier", missing_barrier, true},
    {"a thread that returned before a barrier", thread_that_returned, true},
    {"two different barriers", two_barriers, true},
    {"a missing lane", missing_lane, true},
    {"the host reads the GPU's memory", host_reads, true},
    {"a kernel writes past the end of an allocation", kernel_writes_past_the_end, true},
    {"a kernel writes before an allocation", kernel_writes_before, true},
    {"a kernel uses freed memory", kernel_uses_freed_memory, true},
    {"a copy beyond the end", copy_beyond_the_end, true},
    {"pageable memory in a graph", pageable_memory_in_a_graph, true},
};

} // namespace

int main() {
    int failed = 0;
    for (const auto &c : cases) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            c.run();
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        bool is_good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        bool has_aborted = WIFSIGNALED(status) || (!is_good && WEXITSTATUS(status) != 9); /* sanitizers exit */
        bool is_right = c.dies ? has_aborted : is_good;
        printf("%s: %s\n", c.name, is_right ? "ok" : "FAILED");
        failed += !is_right;
    }
    return failed != 0;
}
