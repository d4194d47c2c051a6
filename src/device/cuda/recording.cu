/* Recordings of GPU operators: CUDA graphs, captured from the stream while operators are enqueued once. */
#include <cstdlib>

#include "device/cuda/gpu.cuh"

struct device_recording {
    cudaGraphExec_t work;
    uint64_t moves;                   /* gpu->moves when it was recorded */
    struct gpu_parameters parameters; /* the copy that it requires, and its state afterwards */
};

static struct gpu_device *gpu_of(const struct device *device) { return (struct gpu_device *)device; }

static void check(struct gpu_device *gpu, cudaError_t error) {
    if (error != cudaSuccess) gpu_fail_with(gpu, "a CUDA graph", error);
}

/* Saves the state of the parameters' copy: the recording must not depend on whether it is current now. */
static void save_parameters(struct gpu_device *gpu) {
    gpu->parameters_before = gpu->parameters;
    gpu->parameters.copy.source = nullptr;
    gpu->parameters.is_current = false;
    gpu->parameters.required = nullptr;
}

/* A failure during capture has no effects, because nothing ran. */
static status cancel(struct gpu_device *gpu) {
    status why = status_new(gpu->failure_code, "%s", gpu->failure);
    gpu->failure[0] = 0;
    cudaGetLastError();
    return why;
}

uint64_t gpu_moves(const struct device *device) { return gpu_of(device)->moves; }

status gpu_record_begin(struct device *device, status *why) {
    struct gpu_device *gpu = gpu_of(device);
    *why = OK;
    TRY(device_status(device));
    check(gpu, cudaSetDevice(gpu->gpu));
    gpu_flush_values(gpu);
    check(gpu, cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
    gpu->is_recording = gpu->failure[0] == 0;
    if (gpu->is_recording)
        save_parameters(gpu);
    else
        *why = cancel(gpu);
    return OK;
}

static struct device_recording *create(struct gpu_device *gpu, cudaGraph_t graph) {
    struct device_recording *recording = (struct device_recording *)calloc(1, sizeof *recording);
    if (!recording) {
        gpu_fail_as(gpu, STATUS_MEMORY, "a CUDA graph", "out of memory");
        return nullptr;
    }
    recording->moves = gpu->moves;
    recording->parameters = gpu->parameters;
    /* the NCCL part keeps the priority of its stream */
    check(gpu, cudaGraphInstantiate(&recording->work, graph, cudaGraphInstantiateFlagUseNodePriority));
    if (!gpu->failure[0]) return recording;
    free(recording);
    return nullptr;
}

status gpu_record_end(struct device *device, struct device_recording **out, status *why) {
    struct gpu_device *gpu = gpu_of(device);
    cudaGraph_t graph = nullptr;
    *out = nullptr;
    *why = OK;
    gpu->is_recording = false;
    check(gpu, cudaStreamEndCapture(gpu->stream, &graph));
    if (!gpu->failure[0]) *out = create(gpu, graph);
    gpu->parameters = gpu->parameters_before;
    if (graph) cudaGraphDestroy(graph);
    if (!*out) *why = cancel(gpu);
    return OK;
}

bool gpu_replay(struct device *device, const struct device_recording *recording) {
    struct gpu_device *gpu = gpu_of(device);
    if (recording->moves != gpu->moves) return false;
    cudaSetDevice(gpu->gpu);
    gpu_parameters_refresh(gpu, &recording->parameters);
    gpu_flush_values(gpu);
    if (recording->moves != gpu->moves) return false;
    if (!gpu->failure[0]) check(gpu, cudaGraphLaunch(recording->work, gpu->stream));
    gpu->parameters = recording->parameters;
    gpu->parameters.copy.version = ++gpu->versions;
    return true;
}

void gpu_recording_destroy(struct device *device, struct device_recording *recording) {
    cudaSetDevice(gpu_of(device)->gpu);
    cudaGraphExecDestroy(recording->work);
    free(recording);
}
