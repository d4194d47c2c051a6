/* The backend on Gloo's TCP transport: a C++ module that exports one symbol, a table of C functions that throw no
 * exceptions. Small messages of lane 0 use the mesh of quick.hpp; with two ranks, medium messages use it, too, in
 * pieces. Everything else uses the mesh of bulk.hpp. */
#include <algorithm>
#include <cstring>
#include <memory>

#include "dist/comm/gloo/bulk.hpp"
#include "dist/comm/gloo/mesh.hpp"
#include "dist/comm/gloo/quick.hpp"
#include "dist/comm/gloo/sockets.hpp"

extern "C" {
#include "dist/comm/combine.h"
#include "dist/comm/comm_backend.h"
extern const struct comm_backend ddptrain_comm_gloo;
}

namespace {

using namespace ddptrain_gloo;

/* ---- the group ---- */

/* The kind of a call on the quick mesh: compared between ranks. */
enum Kind : uint32_t { kBarrier = 1, kGather, kScatter, kBroadcast, kReduceScatter, kReduce };

uint32_t what(Kind kind, int root, comm_type type = COMM_UINT8, comm_op op = COMM_SUM) {
    return static_cast<uint32_t>(kind) | static_cast<uint32_t>(type) << 4 | static_cast<uint32_t>(op) << 8 |
           static_cast<uint32_t>(root + 1) << 12;
}

class Group {
  public:
    explicit Group(const comm_setup &setup)
        : rank_(setup.rank), world_(setup.world_size), device_(open_device(setup.address, ticker_)),
          bulk_(setup, device_), quick_(setup, device_) {
        ticker_.run(false);
    }
    ~Group() { ticker_.run(true); }

    void reduce(int lane, void *data, size_t count, comm_type type, comm_op op, int root) {
        size_t bytes = count * comm_type_size(type);
        if (is_in_pieces(lane, bytes, root)) return reduce_pieces(data, count, type, op);
        if (!is_quick(lane, bytes)) return bulk_.reduce(lane, data, count, type, op, root);
        quick_.exchange(data, bytes, what(kReduce, root, type, op), bytes);
        if (root == COMM_ALL || root == rank_) combine(data, quick_.payloads(0), world_, count, type, op);
    }

    void reduce_scatter(int lane, const void *data, size_t count, comm_type type, comm_op op, void *out) {
        size_t bytes = count * comm_type_size(type), all = bytes * static_cast<size_t>(world_);
        if (!is_quick(lane, all)) return bulk_.reduce_scatter(lane, data, count, type, op, out);
        quick_.exchange(data, all, what(kReduceScatter, COMM_ALL, type, op), all);
        combine(out, quick_.payloads(static_cast<size_t>(rank_) * bytes), world_, count, type, op);
    }

    void gather(int lane, const void *data, const size_t *sizes, void *out, int root) {
        size_t total = 0;
        for (int r = 0; r < world_; r++) total += sizes[r];
        if (!is_quick(lane, *std::max_element(sizes, sizes + world_)))
            return bulk_.gather(lane, data, sizes, out, root);
        quick_.exchange(data, sizes[rank_], what(kGather, root), total);
        if (root != COMM_ALL && root != rank_) return;
        char *to = static_cast<char *>(out);
        for (int r = 0; r < world_; to += sizes[r++]) std::memcpy(to, quick_.payload(r), sizes[r]);
    }

    void scatter(int lane, const void *data, size_t size, void *out, int root) {
        size_t all = size * static_cast<size_t>(world_);
        if (!is_quick(lane, all)) return bulk_.scatter(lane, data, size, out, root);
        quick_.exchange(data, root == rank_ ? all : 0, what(kScatter, root), size);
        std::memcpy(out, quick_.payload(root) + static_cast<size_t>(rank_) * size, size);
    }

    void broadcast(int lane, void *data, size_t size, int root) {
        if (!is_quick(lane, size)) return bulk_.broadcast(lane, data, size, root);
        quick_.exchange(data, root == rank_ ? size : 0, what(kBroadcast, root), size);
        if (root != rank_) std::memcpy(data, quick_.payload(root), size);
    }

    void barrier(int lane) {
        if (lane != 0) return bulk_.barrier(lane);
        quick_.exchange(nullptr, 0, what(kBarrier, COMM_ALL), 0);
    }

    void send(int lane, const void *data, size_t size, int to) { bulk_.send(lane, data, size, to); }
    void recv(int lane, void *data, size_t size, int from) { bulk_.recv(lane, data, size, from); }

    void abort() const { sockets_.shut_down(); }

  private:
    PeerSockets sockets_; /* first: lists the sockets that are open before the members below open theirs */
    bool is_quick(int lane, size_t bytes) const { return lane == 0 && quick_.fits(bytes); }

    bool is_in_pieces(int lane, size_t bytes, int root) const {
        return lane == 0 && world_ == 2 && root == COMM_ALL && bytes > kPieceBytes && bytes <= kPiecesBytes;
    }

    void reduce_pieces(void *data, size_t count, comm_type type, comm_op op) {
        const size_t size = comm_type_size(type), piece = kPieceBytes / size;
        for (size_t begin = 0; begin < count; begin += piece) {
            char *at = static_cast<char *>(data) + begin * size;
            size_t n = std::min(piece, count - begin);
            quick_.exchange(at, n * size, what(kReduce, COMM_ALL, type, op), count * size);
            combine(at, quick_.payloads(0), 2, n, type, op);
        }
    }

    int rank_, world_;
    Ticker ticker_; /* must outlive the device */
    std::shared_ptr<gloo::transport::Device> device_;
    Bulk bulk_;
    Quick quick_;
};

/* ---- the table ---- */

Group &group_of(void *group) { return *static_cast<Group *>(group); }

status create(const comm_setup *setup, void **out) {
    return guard([&] {
        SignalsBlocked blocked;
        *out = new Group(*setup);
    });
}

void destroy(void *group) {
    status_free(guard([&] { delete static_cast<Group *>(group); }));
}

void abort_calls(void *group) { group_of(group).abort(); }

status reduce(void *group, int lane, void *data, size_t count, comm_type type, comm_op op, int root) {
    return guard([&] { group_of(group).reduce(lane, data, count, type, op, root); });
}

status reduce_scatter(void *group, int lane, const void *data, size_t count, comm_type type, comm_op op, void *out) {
    return guard([&] { group_of(group).reduce_scatter(lane, data, count, type, op, out); });
}

status gather(void *group, int lane, const void *data, const size_t *sizes, void *out, int root) {
    return guard([&] { group_of(group).gather(lane, data, sizes, out, root); });
}

status scatter(void *group, int lane, const void *data, size_t size, void *out, int root) {
    return guard([&] { group_of(group).scatter(lane, data, size, out, root); });
}

status broadcast(void *group, int lane, void *data, size_t size, int root) {
    return guard([&] { group_of(group).broadcast(lane, data, size, root); });
}

status barrier(void *group, int lane) {
    return guard([&] { group_of(group).barrier(lane); });
}

status send(void *group, int lane, const void *data, size_t size, int to) {
    return guard([&] { group_of(group).send(lane, data, size, to); });
}

status recv(void *group, int lane, void *data, size_t size, int from) {
    return guard([&] { group_of(group).recv(lane, data, size, from); });
}

} // namespace

const struct comm_backend ddptrain_comm_gloo = {"gloo",         create,  destroy, abort_calls, reduce,  nullptr,
                                                reduce_scatter, gather,  scatter, broadcast,   barrier, send,
                                                recv,           nullptr, nullptr, nullptr};
