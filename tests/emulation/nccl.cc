/* NCCL of the emulated GPU, among processes of one host. A file in shared memory, named by the unique id, contains a
 * ring buffer for each pair of ranks. A collective is parts to send, parts to receive, and a function that runs when
 * all are received; sums are added in order of rank. Work runs when its stream runs and never blocks: it is polled
 * until it is complete. */
#include "nccl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "numbers.h"
#include "streams.h"

namespace emulation {
namespace {

constexpr int MAX_RANKS = 8;
constexpr size_t RING = 1 << 18;

struct ring {
    std::atomic<uint64_t> written, read;
    unsigned char bytes[RING];
};

struct shared {
    std::atomic<int> joined, left;
    int device[MAX_RANKS];
    ring rings[MAX_RANKS][MAX_RANKS]; /* [from][to] */
};

/* What must be the same on all ranks of a collective; sent before the data. */
struct header {
    uint32_t kind, number;
    uint64_t bytes;
};

struct part {
    int peer;
    unsigned char *data;
    size_t bytes, done; /* including the header */
    header head;
};

} // namespace
} // namespace emulation

using namespace emulation;

/* Shared by the communicator and its queued work. */
struct communicator_state {
    int rank, world;
    shared *memory;
    std::string path;
    std::atomic<bool> is_aborted;
    std::atomic<int> recorded;  /* tasks in graphs */
    std::vector<float> factors; /* of ncclRedOpCreatePreMulSum */
    std::vector<ncclDataType_t> factor_types;
    uint32_t numbers[MAX_RANKS][2]; /* number of parts sent to and received from each rank */
    bool has_nvls;
    uint32_t nvls_sums; /* sums so far, from a number that differs between runs */
    bool is_blocking;
    int polls;                                   /* before the deferred calls start */
    std::vector<std::function<void()>> deferred; /* calls on a nonblocking communicator */
};

struct ncclComm {
    std::shared_ptr<communicator_state> state;
};

namespace emulation {
namespace {

enum kind { COLLECTIVE = 0x636f6c6c, POINT = 0x70326f70 };
#define RECORDED 0x80000000u /* with a kind: a graph does it, which all ranks must do alike */

/* A collective or a group of sends and receives. */
struct task {
    std::shared_ptr<communicator_state> state;
    cudaStream_t stream;
    kind what;
    std::vector<part> sends, receives;
    std::vector<std::vector<unsigned char>> buffers; /* received parts */
    std::function<void(task &)> finish;
    bool is_numbered, is_recorded;

    ~task() { state->recorded -= is_recorded; }
};

thread_local int group_depth;
thread_local std::vector<std::shared_ptr<task>> *grouped; /* leaked with its thread */

size_t size_of(ncclDataType_t type) {
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt64:
    case ncclFloat64:
        return 8;
    default:
        return 4;
    }
}

/* ---- bytes between ranks ---- */

/* Sends as much as fits into the ring; true when all is sent. */
bool push(ring *r, part *p) {
    size_t all = sizeof p->head + p->bytes;
    uint64_t written = r->written.load(std::memory_order_relaxed);
    while (p->done < all && written - r->read.load(std::memory_order_acquire) < RING) {
        bool is_head = p->done < sizeof p->head;
        const unsigned char *from =
            is_head ? (const unsigned char *)&p->head + p->done : p->data + (p->done - sizeof p->head);
        size_t left = is_head ? sizeof p->head - p->done : all - p->done, at = written % RING;
        size_t room = RING - (size_t)(written - r->read.load(std::memory_order_acquire));
        size_t n = std::min({left, room, RING - at});
        memcpy(r->bytes + at, from, n);
        written += n;
        p->done += n;
        r->written.store(written, std::memory_order_release);
    }
    return p->done == all;
}

bool pull(ring *r, part *p) {
    header expected = p->head;
    size_t all = sizeof p->head + p->bytes;
    uint64_t read = r->read.load(std::memory_order_relaxed), there;
    while (p->done < all && (there = r->written.load(std::memory_order_acquire) - read) > 0) {
        bool is_head = p->done < sizeof p->head;
        if (is_head && there < sizeof p->head) return false;
        size_t left = is_head ? sizeof p->head : all - p->done, at = read % RING;
        size_t n = std::min({left, (size_t)there, RING - at});
        header found;
        if (is_head) {
            n = sizeof found;
            for (size_t i = 0; i < n; i++) ((unsigned char *)&found)[i] = r->bytes[(read + i) % RING];
            if (memcmp(&found, &expected, n) != 0)
                die("NCCL: ranks disagree: part %u is %#x of %zu bytes here, part %u %#x of %zu bytes there",
                    expected.number, expected.kind, (size_t)expected.bytes, found.number, found.kind,
                    (size_t)found.bytes);
        } else
            memcpy(p->data + (p->done - sizeof p->head), r->bytes + at, n);
        read += n;
        p->done += n;
        r->read.store(read, std::memory_order_release);
    }
    return p->done == all;
}

/* Whether a ring has free space for a part to send, or bytes of a part to receive. */
bool can_progress(const task &t) {
    const communicator_state &s = *t.state;
    bool is_done = true;
    for (const part &p : t.sends) {
        ring &r = s.memory->rings[s.rank][p.peer];
        bool is_left = p.done < sizeof p.head + p.bytes;
        if (is_left && r.written - r.read < RING) return true;
        is_done = is_done && !is_left;
    }
    for (const part &p : t.receives) {
        ring &r = s.memory->rings[p.peer][s.rank];
        bool is_left = p.done < sizeof p.head + p.bytes;
        if (is_left && r.written > r.read) return true;
        is_done = is_done && !is_left;
    }
    return is_done;
}

/* Advances the task; true when it is complete or the communicator was aborted. */
bool progress(task &t) {
    communicator_state &s = *t.state;
    if (s.is_aborted) return true;
    if (!t.is_numbered) { /* in the order of execution */
        uint32_t what = t.what | (t.is_recorded ? RECORDED : 0);
        for (part &p : t.sends) p.head = {what, s.numbers[p.peer][0]++, p.bytes};
        for (part &p : t.receives) p.head = {what, s.numbers[p.peer][1]++, p.bytes};
        t.is_numbered = true;
    }
    if (!can_progress(t)) return false;
    opened memory;
    bool blocked[MAX_RANKS] = {}, is_done = true;
    for (part &p : t.sends)
        if (!blocked[p.peer] && !push(&s.memory->rings[s.rank][p.peer], &p)) blocked[p.peer] = true, is_done = false;
    std::fill(blocked, blocked + MAX_RANKS, false);
    for (part &p : t.receives)
        if (!blocked[p.peer] && !pull(&s.memory->rings[p.peer][s.rank], &p)) blocked[p.peer] = true, is_done = false;
    if (!is_done) return false;
    if (t.finish) t.finish(t);
    for (part &p : t.sends) p.done = 0; /* a graph may be launched again */
    for (part &p : t.receives) p.done = 0;
    t.is_numbered = false;
    return true;
}

/* ---- reductions ---- */

template <typename T> void combine_as(ncclRedOp_t op, T *sum, const T *other, size_t count) {
    for (size_t i = 0; i < count; i++) {
        T a = sum[i], b = other[i];
        sum[i] = op == ncclProd  ? (T)(a * b)
                 : op == ncclMax ? (a > b ? a : b)
                 : op == ncclMin ? (a < b ? a : b)
                                 : (T)(a + b);
    }
}

void combine(ncclDataType_t type, ncclRedOp_t op, void *sum, const void *other, size_t count) {
    switch (type) {
    case ncclFloat32:
        return combine_as(op, (float *)sum, (const float *)other, count);
    case ncclFloat64:
        return combine_as(op, (double *)sum, (const double *)other, count);
    case ncclInt32:
        return combine_as(op, (int32_t *)sum, (const int32_t *)other, count);
    case ncclInt64:
        return combine_as(op, (int64_t *)sum, (const int64_t *)other, count);
    case ncclUint8:
        return combine_as(op, (uint8_t *)sum, (const uint8_t *)other, count);
    case ncclInt8:
        return combine_as(op, (int8_t *)sum, (const int8_t *)other, count);
    default:
        break;
    }
    cudaDataType as = type == ncclFloat16 ? CUDA_R_16F : CUDA_R_16BF;
    for (size_t i = 0; i < count; i++) {
        float value = load(as, sum, i);
        combine_as<float>(op, &value, std::vector<float>{load(as, other, i)}.data(), 1);
        store(as, sum, i, value);
    }
}

/* out = the sum of the ranks' parts; data[r]: rank r's. In order of rank; with NVLS from another rank in each call. */
void reduce(communicator_state &s, ncclDataType_t type, ncclRedOp_t op, const std::vector<const void *> &data,
            void *out, size_t count) {
    std::vector<unsigned char> sum(count * size_of(type)), scaled(sum.size());
    uint32_t first = s.has_nvls && op == ncclSum ? s.nvls_sums++ % (uint32_t)s.world : 0;
    for (int r = 0; r < s.world; r++) {
        memcpy(scaled.data(), data[((size_t)r + first) % (size_t)s.world], scaled.size());
        if (op > ncclNumOps)
            for (size_t i = 0; i < count; i++) ((float *)scaled.data())[i] *= s.factors[(size_t)(op - ncclNumOps - 1)];
        if (r == 0)
            sum = scaled;
        else
            combine(type, op > ncclNumOps ? ncclSum : op, sum.data(), scaled.data(), count);
    }
    memcpy(out, sum.data(), sum.size());
}

/* ---- tasks ---- */

std::shared_ptr<task> new_task(ncclComm_t comm, cudaStream_t stream, kind what) {
    auto t = std::make_shared<task>();
    t->state = comm->state;
    t->stream = stream;
    t->what = what;
    return t;
}

void add_send(task &t, int peer, const void *data, size_t bytes) {
    t.sends.push_back({peer, (unsigned char *)const_cast<void *>(data), bytes, 0, {}});
}

void add_receive(task &t, int peer, void *data, size_t bytes) {
    t.receives.push_back({peer, (unsigned char *)data, bytes, 0, {}});
}

ncclResult_t start(const std::shared_ptr<task> &t) {
    guard g(lock);
    if (sticky != cudaSuccess) return ncclUnhandledCudaError;
    start_background();
    known(t->stream);
    auto begin = [t]() {
        t->is_recorded = known(t->stream)->graph;
        t->state->recorded += t->is_recorded;
        put(known(t->stream), {nullptr, nullptr, nullptr, [t]() { return progress(*t); }});
    };
    if (t->state->is_blocking) {
        begin();
        return ncclSuccess;
    }
    t->state->deferred.push_back(begin);
    t->state->polls = 2;
    return ncclInProgress;
}

ncclResult_t give(const std::shared_ptr<task> &t) {
    if (is_to_fail("nccl")) return ncclSystemError;
    if (group_depth == 0) return start(t);
    if (!grouped) grouped = new std::vector<std::shared_ptr<task>>;
    grouped->push_back(t);
    return ncclSuccess;
}

void check(const void *p, size_t bytes, const char *who) {
    guard g(lock);
    place where = place_of(p, bytes, who);
    if (bytes && where != DEVICE && where != MANAGED) die("%s is in host memory", who);
}

bool are_good(ncclComm_t comm, ncclRedOp_t op, ncclDataType_t type) {
    if (op <= ncclMin) return true;
    size_t own = (size_t)(op - ncclNumOps - 1);
    return op > ncclNumOps && own < comm->state->factors.size() && comm->state->factor_types[own] == type;
}

/* Reduces the [count] elements at [from] of all ranks, for the ranks in [is_wanted]; rank r reads from offset r
 * [stride].
 */
ncclResult_t reduce_for(const void *from, void *to, size_t count, size_t stride, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
    if (!are_good(comm, op, type)) return ncclInvalidArgument;
    auto t = new_task(comm, stream, COLLECTIVE);
    communicator_state &s = *t->state;
    size_t bytes = count * size_of(type);
    const unsigned char *data = (const unsigned char *)from;
    bool is_wanted = root < 0 || root == s.rank;
    check(data, stride ? (size_t)s.world * bytes : bytes, "NCCL's input");
    if (is_wanted) check(to, bytes, "NCCL's output");
    t->buffers.resize((size_t)s.world);
    for (int r = 0; r < s.world; r++) {
        if (r == s.rank) continue;
        if (root < 0 || root == r) add_send(*t, r, data + (size_t)r * stride * size_of(type), bytes);
        t->buffers[(size_t)r].resize(bytes);
        if (is_wanted) add_receive(*t, r, t->buffers[(size_t)r].data(), bytes);
    }
    if (is_wanted)
        t->finish = [=](task &done) {
            std::vector<const void *> parts;
            for (auto &buffer : done.buffers) parts.push_back(buffer.data());
            parts[(size_t)done.state->rank] = data + (size_t)done.state->rank * stride * size_of(type);
            reduce(*done.state, type, op, parts, to, count);
            if (type == ncclFloat32 && count > 0 && is_to_fail("sum")) *(float *)to = NAN;
        };
    return give(t);
}

} // namespace
} // namespace emulation

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "operation in progress"};
    return (size_t)result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetVersion(int *version) {
    const char *version_text = getenv("DDPTRAIN_EMULATED_NCCL");
    *version = version_text ? atoi(version_text) : NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static std::atomic<int> made;
    *id = {};
    snprintf(id->internal, sizeof id->internal, "/dev/shm/ddptrain-emulated-nccl-%d-%d", (int)getpid(), made++);
    int fd = open(id->internal, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(shared)) != 0) return ncclSystemError;
    close(fd);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int world, ncclUniqueId id, int rank, ncclConfig_t *config) {
    if (is_to_fail("connect")) return ncclSystemError;
    if (world > MAX_RANKS) die("NCCL: no more than %d ranks", MAX_RANKS);
    int fd = open(id.internal, O_RDWR);
    void *p = fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (p == MAP_FAILED) return ncclSystemError;
    auto state = std::make_shared<communicator_state>();
    state->rank = rank;
    state->world = world;
    state->memory = (shared *)p;
    state->path = id.internal;
    int device = 0;
    cudaGetDevice(&device);
    state->memory->device[rank] = physical(device);
    state->is_blocking = config->blocking;
    const char *nvls = getenv("DDPTRAIN_EMULATED_NVLS"), *enabled = getenv("NCCL_NVLS_ENABLE");
    state->has_nvls = nvls && !(enabled && strcmp(enabled, "0") == 0);
    state->nvls_sums = nvls ? (uint32_t)atoi(nvls) : 0;
    if (++state->memory->joined == world) unlink(id.internal);
    *comm = new ncclComm{state};
    while (config->blocking && state->memory->joined < world) usleep(1000);
    return config->blocking ? ncclSuccess : ncclInProgress;
}

/* The calls on a nonblocking communicator are on its stream when this returns ncclSuccess, not before. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
    guard g(lock);
    communicator_state &s = *comm->state;
    if (s.polls > 0 && --s.polls == 0) {
        for (auto &begin : s.deferred) begin();
        s.deferred.clear();
    }
    if (s.polls > 0) {
        *result = ncclInProgress;
        return ncclSuccess;
    }
    *result = s.memory->joined < s.world ? ncclInProgress : ncclSuccess;
    for (int r = 0; *result == ncclSuccess && r < s.world; r++)
        if (r != s.rank && s.memory->device[r] == s.memory->device[s.rank] && !getenv("NCCL_HOSTID"))
            *result = ncclInvalidUsage; /* duplicate GPU */
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->state->is_aborted = true;
    if (comm->state->memory->joined < comm->state->world) unlink(comm->state->path.c_str());
    while (comm->state->recorded > 0) usleep(1000); /* as NCCL: until no graph contains a call of it */
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(ncclComm_t, void *memory, size_t bytes, void **handle) {
    check(memory, bytes, "ncclCommRegister");
    *handle = memory;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t, void *) { return ncclSuccess; }

ncclResult_t ncclMemAlloc(void **memory, size_t bytes) {
    return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *memory) {
    return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *factor, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
    if (type != ncclFloat32 || residence != ncclScalarHostImmediate) die("NCCL: a factor that is not emulated");
    comm->state->factors.push_back(*(float *)factor);
    comm->state->factor_types.push_back(type);
    *op = (ncclRedOp_t)(ncclNumOps + comm->state->factors.size());
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclGroupStart() {
    group_depth++;
    return ncclSuccess;
}

/* Sends and receives become one task; else two ranks could each wait for the other to receive. */
ncclResult_t ncclGroupEnd() {
    if (--group_depth > 0 || !grouped) return ncclSuccess;
    std::vector<std::shared_ptr<task>> tasks;
    tasks.swap(*grouped);
    std::shared_ptr<task> points;
    ncclResult_t result = ncclSuccess;
    for (auto &t : tasks) {
        if (t->what == COLLECTIVE) {
            result = start(t);
        } else if (!points) {
            points = t;
        } else {
            points->sends.insert(points->sends.end(), t->sends.begin(), t->sends.end());
            points->receives.insert(points->receives.end(), t->receives.begin(), t->receives.end());
        }
    }
    if (points && (result == ncclSuccess || result == ncclInProgress)) result = start(points);
    return result;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return reduce_for(from, to, count, 0, type, op, -1, comm, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    return reduce_for(from, to, count, 0, type, op, root, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    return reduce_for(from, to, count, count, type, op, -1, comm, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    auto t = new_task(comm, stream, COLLECTIVE);
    size_t bytes = count * size_of(type);
    unsigned char *all = (unsigned char *)to, *own = all + (size_t)t->state->rank * bytes;
    check(from, bytes, "ncclAllGather's input");
    check(to, bytes * (size_t)t->state->world, "ncclAllGather's output");
    for (int r = 0; r < t->state->world; r++) {
        if (r == t->state->rank) continue;
        add_send(*t, r, from, bytes);
        add_receive(*t, r, all + (size_t)r * bytes, bytes);
    }
    t->finish = [=](task &) { memmove(own, from, bytes); };
    return give(t);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    auto t = new_task(comm, stream, COLLECTIVE);
    size_t bytes = count * size_of(type);
    check(to, bytes, "ncclBroadcast");
    for (int r = 0; root == t->state->rank && r < t->state->world; r++)
        if (r != root) add_send(*t, r, from, bytes);
    if (root == t->state->rank)
        t->finish = [=](task &) { memmove(to, from, bytes); };
    else
        add_receive(*t, root, to, bytes);
    return give(t);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    auto t = new_task(comm, stream, POINT);
    check(from, count * size_of(type), "ncclSend");
    add_send(*t, peer, from, count * size_of(type));
    return give(t);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    auto t = new_task(comm, stream, POINT);
    check(to, count * size_of(type), "ncclRecv");
    add_receive(*t, peer, to, count * size_of(type));
    return give(t);
}
