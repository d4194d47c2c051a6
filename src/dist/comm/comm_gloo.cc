/* The backend on Gloo's TCP transport: a C++ module that exports one symbol, a table of C functions that throw no
 * exceptions. Small messages of lane 0 use the mesh "quick"; with two ranks, medium messages use it, too, in
 * pieces. Everything else uses the mesh "bulk". */
#include <dirent.h>
#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>
#include <gloo/types.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "dist/comm/gloo/mesh.hpp"

extern "C" {
#include "dist/comm/combine.h"
#include "dist/comm/comm_backend.h"
extern const struct comm_backend ddptrain_comm_gloo;
}

namespace {

using namespace ddptrain_gloo;

/* ---- sockets ---- */

/* The TCP sockets of a Gloo group. A blocked call of Gloo ends only when its connections are shut down, and Gloo does
 * not expose their descriptors: they are the sockets that this process opened after the group's creation began. The
 * process opens no other TCP connections after the store's. */

/* Created before the group connects. */
class PeerSockets {
  public:
    PeerSockets() {
        each([this](int fd) { before_.push_back(fd); });
    }
    /* Shuts down the group's connections in both directions; does not close the descriptors, which Gloo owns. May be
     * called from any thread. */
    void shut_down() const {
        each([this](int fd) {
            if (std::find(before_.begin(), before_.end(), fd) == before_.end()) shutdown(fd, SHUT_RDWR);
        });
    }

  private:
    /* Calls function(fd) for each connected TCP socket of this process. */
    template <class Function> static void each(Function function) {
        DIR *folder = opendir("/proc/self/fd");
        if (!folder) return;
        while (const dirent *entry = readdir(folder)) {
            int fd = std::atoi(entry->d_name);
            sockaddr_storage peer = {};
            socklen_t size = sizeof peer;
            bool is_connected = getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &size) == 0;
            if (is_connected && (peer.ss_family == AF_INET || peer.ss_family == AF_INET6)) function(fd);
        }
        closedir(folder);
    }
    std::vector<int> before_;
};

/* ---- the bulk mesh ---- */

/* A mesh for messages of any size, on two lanes; Gloo's thread reads and writes the sockets. Every rank sums its own
 * slice of the data, in order of rank, chunk by chunk while the next chunks are transferred. Gloo's ring would transfer
 * as many bytes, but would sum each element in an order that depends on its position. */

constexpr size_t kDirectBytes = 64 << 10;  /* largest message that every rank sends whole to every other */
constexpr size_t kChunkBytes = 256 << 10;  /* chunk of a slice */
constexpr size_t kExchangeBytes = 1 << 20; /* chunk of an exchange between two ranks */
constexpr uint8_t kPartSlot = 0x61, kResultSlot = 0x62, kPairSlot = 0x63; /* no collective of Gloo uses these */

using Clock = std::chrono::steady_clock;
using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

/* One call on one lane: its slots, its deadline, and waits for its messages. */
class Call {
  public:
    Call(Context &context, int lane, milliseconds timeout)
        : context_(context), lane_(lane), deadline_(Clock::now() + timeout) {}

    Buffer buffer(const void *data, size_t bytes) {
        return context_.createUnboundBuffer(const_cast<void *>(data), bytes);
    }
    uint64_t slot(uint8_t kind) const { return gloo::Slot::build(kind, static_cast<uint32_t>(lane_)); }
    void wait_recv(Buffer &buffer) {
        if (!buffer->waitRecv(left())) throw std::runtime_error("aborted");
    }
    void wait_send(Buffer &buffer) {
        if (!buffer->waitSend(left())) throw std::runtime_error("aborted");
    }
    void wait(Buffer &buffer, size_t sends, size_t receives) {
        for (size_t i = 0; i < receives; i++) wait_recv(buffer);
        for (size_t i = 0; i < sends; i++) wait_send(buffer);
    }

  private:
    milliseconds left() const {
        auto rest = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
        return std::max(rest, milliseconds(1));
    }
    Context &context_;
    int lane_;
    Clock::time_point deadline_;
};

/* A rank's slice of an array, in elements. */
struct Slice {
    size_t begin, count;
};

class Bulk {
  public:
    Bulk(const comm_setup &setup, const std::shared_ptr<gloo::transport::Device> &device)
        : rank_(setup.rank), world_(setup.world_size), timeout_(to_milliseconds(setup.timeout)),
          context_(connect_with_retries(setup, device, std::string(setup.name) + "/bulk")) {
        for (auto &lane : lanes_) lane.inputs.resize(world_);
    }

    void reduce(int lane, void *data, size_t count, comm_type type, comm_op op, int root) {
        Call call(*context_, lane, timeout_);
        if (world_ == 2)
            exchange(call, lane, data, count, type, op, root);
        else if (count * comm_type_size(type) <= kDirectBytes)
            reduce_direct(call, lane, data, count, type, op, root);
        else
            exchange_slices(call, lane, data, count, type, op, root);
    }

    /* data (world, count) */
    void reduce_scatter(int lane, const void *data, size_t count, comm_type type, comm_op op, void *out) {
        Call call(*context_, lane, timeout_);
        std::vector<Slice> slices(world_);
        for (int r = 0; r < world_; r++) slices[r] = {static_cast<size_t>(r) * count, count};
        reduce_own(call, lane, data, slices, type, op, out, [](size_t, size_t) {});
    }

    void gather(int lane, const void *data, const size_t *sizes, void *out, int root) {
        Call call(*context_, lane, timeout_);
        bool is_receiver = root == COMM_ALL || root == rank_;
        Buffer from = call.buffer(data, sizes[rank_]), to;
        size_t receives = 0, sends = 0, total = 0;
        for (int r = 0; r < world_; r++) total += sizes[r];
        if (is_receiver) to = call.buffer(out, total);
        size_t offset = 0;
        for (int r = 0; r < world_; offset += sizes[r++]) {
            if (!is_receiver || sizes[r] == 0) continue;
            if (r == rank_)
                copy(static_cast<char *>(out) + offset, data, sizes[r]);
            else
                to->recv(r, call.slot(kPartSlot), offset, sizes[r]), receives++;
        }
        for (int step = 1; step < world_ && sizes[rank_]; step++) {
            int peer = (rank_ + step) % world_;
            if (root == COMM_ALL || root == peer) from->send(peer, call.slot(kPartSlot)), sends++;
        }
        if (is_receiver) call.wait(to, 0, receives);
        call.wait(from, sends, 0);
    }

    void scatter(int lane, const void *data, size_t size, void *out, int root) {
        Call call(*context_, lane, timeout_);
        if (rank_ != root) {
            Buffer to = call.buffer(out, size);
            to->recv(root, call.slot(kPartSlot));
            call.wait_recv(to);
            return;
        }
        Buffer from = call.buffer(data, size * static_cast<size_t>(world_));
        for (int r = 0; r < world_; r++)
            if (r != rank_) from->send(r, call.slot(kPartSlot), static_cast<size_t>(r) * size, size);
        copy(out, static_cast<const char *>(data) + static_cast<size_t>(rank_) * size, size);
        call.wait(from, static_cast<size_t>(world_) - 1, 0);
    }

    /* The root sends each rank a slice, which that rank sends to all others: no rank sends more than twice the data. */
    void broadcast(int lane, void *data, size_t size, int root) {
        Call call(*context_, lane, timeout_);
        Buffer whole = call.buffer(data, size);
        size_t sends = 0, receives = 0;
        bool is_whole = size <= kDirectBytes || world_ == 2;
        auto post_send = [&](int peer, uint8_t kind, const Slice &s) {
            if (peer != rank_ && s.count) whole->send(peer, call.slot(kind), s.begin, s.count), sends++;
        };
        auto post_recv = [&](int peer, uint8_t kind, const Slice &s) {
            if (peer != rank_ && s.count) whole->recv(peer, call.slot(kind), s.begin, s.count), receives++;
        };
        if (is_whole) {
            for (int r = 0; rank_ == root && r < world_; r++) post_send(r, kPartSlot, {0, size});
            if (rank_ != root) post_recv(root, kPartSlot, {0, size});
        } else if (rank_ == root) {
            for (int r = 0; r < world_; r++) post_send(r, kPartSlot, slice(size, r));
            for (int r = 0; r < world_; r++) post_send(r, kResultSlot, slice(size, root));
        } else {
            Buffer own = call.buffer(data, size);
            Slice mine = slice(size, rank_);
            if (mine.count) own->recv(root, call.slot(kPartSlot), mine.begin, mine.count);
            for (int r = 0; r < world_; r++) post_recv(r, kResultSlot, slice(size, r));
            if (mine.count) call.wait_recv(own);
            for (int r = 0; r < world_; r++)
                if (r != root) post_send(r, kResultSlot, mine);
        }
        call.wait(whole, sends, receives);
    }

    void barrier(int lane) {
        char mine = 0, theirs;
        Call call(*context_, lane, timeout_);
        Buffer from = call.buffer(&mine, 1), to = call.buffer(&theirs, 1);
        for (int r = 0; r < world_; r++)
            if (r != rank_) to->recv(r, call.slot(kPartSlot)), from->send(r, call.slot(kPartSlot));
        call.wait(to, 0, static_cast<size_t>(world_) - 1);
        call.wait(from, static_cast<size_t>(world_) - 1, 0);
    }

    void send(int lane, const void *data, size_t size, int to) {
        Call call(*context_, lane, timeout_);
        Buffer from = call.buffer(data, size);
        from->send(to, call.slot(kPairSlot));
        call.wait_send(from);
    }

    void recv(int lane, void *data, size_t size, int from) {
        Call call(*context_, lane, timeout_);
        Buffer to = call.buffer(data, size);
        to->recv(from, call.slot(kPairSlot));
        call.wait_recv(to);
    }

  private:
    struct Lane {
        std::vector<char> scratch;
        std::vector<const void *> inputs; /* (world) */
    };

    static void copy(void *to, const void *from, size_t size) {
        if (to != from && size) std::memmove(to, from, size);
    }

    Slice slice(size_t count, int rank) const {
        size_t part = count / static_cast<size_t>(world_), more = count % static_cast<size_t>(world_);
        auto r = static_cast<size_t>(rank);
        return {r * part + std::min(r, more), part + (r < more)};
    }

    char *scratch(int lane, size_t bytes) {
        if (lanes_[lane].scratch.size() < bytes) lanes_[lane].scratch.resize(bytes);
        return lanes_[lane].scratch.data();
    }

    /* Two ranks send each other all data: as many bytes as slices and results, but in one phase instead of two. */
    void exchange(Call &call, int lane, void *data, size_t count, comm_type type, comm_op op, int root) {
        const size_t size = comm_type_size(type), chunk = kExchangeBytes / size;
        const bool is_receiver = root == COMM_ALL || root == rank_, is_sender = root != rank_;
        const int peer = 1 - rank_;
        char *buffers = scratch(lane, 2 * kExchangeBytes), *mine = static_cast<char *>(data);
        Buffer whole = call.buffer(data, count * size);
        Buffer received[2] = {call.buffer(buffers, kExchangeBytes),
                              call.buffer(buffers + kExchangeBytes, kExchangeBytes)};
        auto bytes_of = [&](size_t begin) { return std::min(chunk, count - begin) * size; };
        auto post_recv = [&](size_t begin) {
            if (is_receiver && begin < count)
                received[begin / chunk % 2]->recv(peer, call.slot(kPartSlot), 0, bytes_of(begin));
        };
        post_recv(0);
        post_recv(chunk);
        for (size_t begin = 0; is_sender && begin < count; begin += chunk)
            whole->send(peer, call.slot(kPartSlot), begin * size, bytes_of(begin));
        for (size_t begin = 0; begin < count; begin += chunk) {
            Buffer &theirs = received[begin / chunk % 2];
            if (is_sender) call.wait_send(whole); /* messages to one peer are sent in order */
            if (!is_receiver) continue;
            call.wait_recv(theirs);
            const void *inputs[2] = {mine + begin * size, mine + begin * size};
            inputs[peer] = theirs->ptr;
            combine(mine + begin * size, inputs, 2, bytes_of(begin) / size, type, op);
            post_recv(begin + 2 * chunk);
        }
    }

    /* Every rank sends all its data to every other rank, or to the root. */
    void reduce_direct(Call &call, int lane, void *data, size_t count, comm_type type, comm_op op, int root) {
        size_t bytes = count * comm_type_size(type), sends = 0, receives = 0;
        bool is_receiver = root == COMM_ALL || root == rank_;
        char *buffers = scratch(lane, is_receiver ? bytes * static_cast<size_t>(world_) : 1);
        Buffer from = call.buffer(data, bytes), to = call.buffer(buffers, bytes * static_cast<size_t>(world_));
        auto &inputs = lanes_[lane].inputs;
        for (int r = 0; r < world_; r++) {
            inputs[r] = r == rank_ ? data : buffers + static_cast<size_t>(r) * bytes;
            if (r == rank_ || !is_receiver) continue;
            to->recv(r, call.slot(kPartSlot), static_cast<size_t>(r) * bytes, bytes), receives++;
        }
        for (int step = 1; step < world_; step++) {
            int peer = (rank_ + step) % world_;
            if (root == COMM_ALL || root == peer) from->send(peer, call.slot(kPartSlot)), sends++;
        }
        call.wait(from, sends, 0); /* before [data] is overwritten */
        call.wait(to, 0, receives);
        if (is_receiver) combine(data, inputs.data(), world_, count, type, op);
    }

    /* out (own slice's count): the result of this rank's slice. Calls done(offset, count) after each chunk of it. */
    template <class Done>
    void reduce_own(Call &call, int lane, const void *data, const std::vector<Slice> &slices, comm_type type,
                    comm_op op, void *out, Done done) {
        const size_t size = comm_type_size(type), chunk = kChunkBytes / size;
        const char *in = static_cast<const char *>(data);
        const Slice own = slices[rank_];
        char *buffers = scratch(lane, 2 * static_cast<size_t>(world_) * kChunkBytes);
        std::vector<Buffer> received(2 * static_cast<size_t>(world_));
        auto post_recv = [&](size_t begin) {
            if (begin >= own.count) return;
            size_t turn = begin / chunk % 2, bytes = std::min(chunk, own.count - begin) * size;
            for (int r = 0; r < world_; r++)
                if (r != rank_) received[turn * world_ + r]->recv(r, call.slot(kPartSlot), 0, bytes);
        };
        for (size_t i = 0; i < received.size(); i++) received[i] = call.buffer(buffers + i * kChunkBytes, kChunkBytes);
        post_recv(0);
        post_recv(chunk);

        Slice last = slices.back(), first = slices.front();
        Buffer whole = call.buffer(data, (last.begin + last.count) * size);
        size_t sends = 0;
        for (size_t begin = 0; begin < first.count; begin += chunk) /* the first slice is one of the longest */
            for (int step = 1; step < world_; step++) {
                int peer = (rank_ + step) % world_;
                if (begin >= slices[peer].count) continue;
                whole->send(peer, call.slot(kPartSlot), (slices[peer].begin + begin) * size,
                            std::min(chunk, slices[peer].count - begin) * size);
                sends++;
            }

        auto &inputs = lanes_[lane].inputs;
        for (size_t begin = 0; begin < own.count; begin += chunk) {
            size_t turn = begin / chunk % 2, count = std::min(chunk, own.count - begin);
            for (int r = 0; r < world_; r++) {
                inputs[r] = in + (own.begin + begin) * size;
                if (r == rank_) continue;
                call.wait_recv(received[turn * world_ + r]);
                inputs[r] = received[turn * world_ + r]->ptr;
            }
            combine(static_cast<char *>(out) + begin * size, inputs.data(), world_, count, type, op);
            post_recv(begin + 2 * chunk);
            done(begin, count);
        }
        call.wait(whole, sends, 0);
    }

    /* Results are received into [data] while it is still being sent: safe, because a peer sends the result of its slice
     * only after it has received this rank's part of that slice. */
    void exchange_slices(Call &call, int lane, void *data, size_t count, comm_type type, comm_op op, int root) {
        const size_t size = comm_type_size(type), chunk = kChunkBytes / size;
        const bool is_receiver = root == COMM_ALL || root == rank_;
        std::vector<Slice> slices(world_);
        for (int r = 0; r < world_; r++) slices[r] = slice(count, r);
        const Slice own = slices[rank_];
        std::vector<char> kept(is_receiver ? 0 : own.count * size); /* this rank's data must not change */
        char *out = is_receiver ? static_cast<char *>(data) + own.begin * size : kept.data();
        Buffer whole = call.buffer(data, count * size), result = call.buffer(out, own.count * size);
        size_t sends = 0, receives = 0;
        for (int r = 0; r < world_ && is_receiver; r++)
            for (size_t begin = 0; r != rank_ && begin < slices[r].count; begin += chunk, receives++)
                whole->recv(r, call.slot(kResultSlot), (slices[r].begin + begin) * size,
                            std::min(chunk, slices[r].count - begin) * size);
        reduce_own(call, lane, data, slices, type, op, out, [&](size_t begin, size_t elements) {
            for (int step = 1; step < world_; step++) {
                int peer = (rank_ + step) % world_;
                if (root != COMM_ALL && root != peer) continue;
                result->send(peer, call.slot(kResultSlot), begin * size, elements * size);
                sends++;
            }
        });
        call.wait(whole, 0, receives);
        call.wait(result, sends, 0);
    }

    int rank_, world_;
    milliseconds timeout_;
    std::shared_ptr<Context> context_;
    Lane lanes_[COMM_LANES];
};

/* ---- the quick mesh ---- */

/* A mesh for small messages in one phase: every rank sends to every other, and each computes the result itself. The
 * calling thread reads the sockets (Gloo's synchronous mode), which avoids a thread switch on both sides. For one
 * thread. */

constexpr size_t kQuickBytes = 64 << 10;       /* the largest message */
constexpr size_t kQuickTotalBytes = 256 << 10; /* what a rank may send to all others in one call */
/* Two ranks write to each other before they read: a larger message may fill the sockets' buffers and wait a third of a
 * millisecond until the kernel enlarges them. */
constexpr size_t kPieceBytes = 32 << 10;
constexpr size_t kPiecesBytes = 1 << 20; /* largest message for which pieces are faster than the bulk mesh */

class Quick {
  public:
    Quick(const comm_setup &setup, std::shared_ptr<gloo::transport::Device> device)
        : rank_(setup.rank), world_(setup.world_size),
          capacity_(std::max<size_t>(1024, std::min(kQuickBytes, kQuickTotalBytes / (setup.world_size - 1)))),
          context_(connect(setup, std::move(device), mesh_of(setup), setup.timeout)), peers_(world_), inputs_(world_) {
        out_.resize(sizeof(Header) + capacity_);
        for (int peer = 0; peer < world_; peer++) {
            if (peer == rank_) continue;
            auto &pair = context_->getPair(peer);
            for (int turn = 0; turn < 2; turn++) {
                auto &in = peers_[peer].in[turn];
                in.resize(sizeof(Header) + capacity_);
                peers_[peer].receive[turn] = pair->createRecvBuffer(turn, in.data(), in.size());
                peers_[peer].send[turn] = pair->createSendBuffer(turn, out_.data(), out_.size());
            }
        }
        /* No rank may send before every rank has its buffers. */
        shared_result(setup, mesh_of(setup), "");
        for (int peer = 0; peer < world_; peer++)
            if (peer != rank_) context_->getPair(peer)->setSync(true, false);
    }

    bool fits(size_t bytes) const { return bytes <= capacity_; }

    /* Sends [bytes] bytes to every other rank; payload(rank) returns those of [rank] until the call after the next. A
     * rank sends its next message only after it has received all messages of this call, so two alternating buffers are
     * never overwritten while they are read. [what] and [size] must be equal on all ranks: they are compared. */
    void exchange(const void *data, size_t bytes, uint32_t what, size_t size) {
        turn_ = static_cast<int>(number_ & 1);
        Header header = {number_++, what, size};
        std::memcpy(out_.data(), &header, sizeof header);
        if (bytes) std::memcpy(out_.data() + sizeof header, data, bytes);
        for (int step = 1; step < world_; step++) {
            auto &send = peers_[(rank_ + step) % world_].send[turn_];
            send->send(0, sizeof header + bytes);
            send->waitSend();
        }
        for (int step = 1; step < world_; step++) {
            int peer = (rank_ + world_ - step) % world_;
            peers_[peer].receive[turn_]->waitRecv();
            compare(peer, header);
        }
    }

    const char *payload(int rank) const {
        const auto &bytes = rank == rank_ ? out_ : peers_[rank].in[turn_];
        return bytes.data() + sizeof(Header);
    }

    /* (world): the payloads in order of rank, each from byte [offset] on. */
    const void *const *payloads(size_t offset) {
        for (int rank = 0; rank < world_; rank++) inputs_[rank] = payload(rank) + offset;
        return inputs_.data();
    }

  private:
    static std::string mesh_of(const comm_setup &setup) { return std::string(setup.name) + "/quick"; }

    struct Header {
        uint32_t number, what;
        uint64_t bytes;
    };
    struct Peer {
        std::vector<char> in[2];
        std::unique_ptr<gloo::transport::Buffer> receive[2], send[2];
    };

    void compare(int peer, const Header &mine) const {
        Header theirs;
        std::memcpy(&theirs, peers_[peer].in[turn_].data(), sizeof theirs);
        if (std::memcmp(&mine, &theirs, sizeof mine) != 0)
            throw std::runtime_error("rank " + std::to_string(peer) + " is in another collective call (number " +
                                     std::to_string(theirs.number) + " with " + std::to_string(theirs.bytes) +
                                     " bytes; here number " + std::to_string(mine.number) + " with " +
                                     std::to_string(mine.bytes) + " bytes)");
    }

    int rank_, world_;
    size_t capacity_;
    std::shared_ptr<Context> context_; /* must outlive the buffers */
    std::vector<char> out_;
    std::vector<Peer> peers_;
    std::vector<const void *> inputs_;
    uint32_t number_ = 0;
    int turn_ = 0;
};

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
                                                recv,           nullptr, nullptr, nullptr,     false,   nullptr};