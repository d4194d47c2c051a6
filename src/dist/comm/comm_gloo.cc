/* The backend on Gloo's TCP transport: a C++ module that exports one symbol, a table of C functions that throw no
 * exceptions. Small messages of lane 0 are "quick"; with two ranks, medium messages are, too, in pieces. Everything
 * else is made of messages by collectives.c. Each has links of its own (links.hpp), made when two ranks first use one.
 */
#include <gloo/transport/buffer.h>
#include <gloo/transport/unbound_buffer.h>
#include <gloo/types.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "dist/comm/gloo/links.hpp"

extern "C" {
#include "dist/comm/collectives.h"
#include "dist/comm/combine.h"
extern const struct comm_backend ddptrain_comm_gloo;
}

namespace {

using namespace ddptrain_gloo;

/* ---- messages of any size ---- */

/* Gloo's thread reads and writes the sockets. The two lanes have links of their own: a thread that connects waits for
 * others, and must not hold up the other thread. */

constexpr uint8_t kMessageSlot = 0x62;
/* Messages of other sizes do not match: ranks in different calls wait until their deadline. Gloo would end the process
 * for a message that is longer than its buffer, and accept a shorter one. */
gloo::Slot slot_of_size(size_t size) { return gloo::Slot::build(kMessageSlot, static_cast<uint32_t>(size)); }

/* So many complete messages are kept for a while: Gloo's thread may not have left the last ones yet, and the destructor
 * of a message would wait for it, for milliseconds on a busy machine. */
constexpr size_t kDone = 64;

struct Messages;

/* What the functions of collectives.c get; a C struct. */
struct MessagesGroup {
    struct collectives collectives; /* first */
    Messages *messages;
};

struct Messages {
    explicit Messages(Network &shared)
        : network(shared), timeout(to_milliseconds(shared.timeout())), lanes{{shared, "lane0/"}, {shared, "lane1/"}} {
        static const struct collectives_transport transport = {begin, connect, post, wait};
        group.messages = this;
        status failure = collectives_create(&group.collectives, shared.rank(), shared.world(), &transport);
        if (failure) throw StoreFailure(failure);
    }
    ~Messages() { collectives_free(&group.collectives); }
    Messages(const Messages &) = delete;
    Messages &operator=(const Messages &) = delete;

    /* Gives up the messages that are not complete. */
    void forget(int lane) {
        for (auto &set : lanes[lane].sets) set.clear();
    }

    /* After Network::end_calls. Gloo does not tell a message of which a part has been transferred that its connection
     * has failed. May be called from any thread. */
    void end_waits() {
        std::lock_guard<std::mutex> lock(mutex);
        for (Lane &lane : lanes) {
            if (!lane.waiting) continue;
            lane.waiting->abortWaitRecv();
            lane.waiting->abortWaitSend();
        }
    }

    MessagesGroup group = {};

  private:
    struct Message {
        std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
        bool is_send;
    };
    struct Lane {
        Lane(Network &network, const std::string &kind) : links(network, kind) {}
        Links links;
        std::vector<Message> sets[COLLECTIVES_SETS];
        std::deque<Message> done;
        gloo::transport::UnboundBuffer *waiting = nullptr; /* for this one; guarded by the mutex */
        Clock::time_point deadline;
    };

    static Messages &of(void *group) { return *static_cast<MessagesGroup *>(group)->messages; }

    static void begin(void *group, int lane) { of(group).lanes[lane].deadline = Clock::now() + of(group).timeout; }

    static status connect(void *group, int lane, const int *peers, int count) {
        return guard([&] { of(group).lanes[lane].links.need(peers, count); });
    }

    static status post(void *group, int lane, int set, int peer, void *data, size_t size, bool is_send) {
        return guard([&] {
            Links &links = of(group).lanes[lane].links;
            auto buffer = links.context(peer).createUnboundBuffer(data, size);
            if (is_send)
                buffer->send(1 - links.index(peer), slot_of_size(size));
            else
                buffer->recv(1 - links.index(peer), slot_of_size(size));
            of(group).lanes[lane].sets[set].push_back({std::move(buffer), is_send});
        });
    }

    /* While it exists, end_waits ends a wait for the buffer. */
    class Waiting {
      public:
        Waiting(Messages &messages, Lane &lane, gloo::transport::UnboundBuffer *buffer)
            : messages_(messages), lane_(lane) {
            std::lock_guard<std::mutex> lock(messages_.mutex);
            messages_.network.throw_if_aborted();
            lane_.waiting = buffer;
        }
        ~Waiting() {
            std::lock_guard<std::mutex> lock(messages_.mutex);
            lane_.waiting = nullptr;
        }
        Waiting(const Waiting &) = delete;
        Waiting &operator=(const Waiting &) = delete;

      private:
        Messages &messages_;
        Lane &lane_;
    };

    static status wait(void *group, int lane, int set) {
        return guard([&] {
            Lane &l = of(group).lanes[lane];
            for (auto &message : l.sets[set]) {
                Waiting waiting(of(group), l, message.buffer.get());
                auto left = std::chrono::duration_cast<milliseconds>(l.deadline - Clock::now());
                left = std::max(left, milliseconds(1));
                bool is_done = message.is_send ? message.buffer->waitSend(left) : message.buffer->waitRecv(left);
                if (!is_done) throw std::runtime_error("aborted");
            }
            for (auto &message : l.sets[set]) l.done.push_back(std::move(message));
            l.sets[set].clear();
            while (l.done.size() > kDone) l.done.pop_front();
        });
    }

    Network &network;
    milliseconds timeout;
    std::mutex mutex;
    Lane lanes[COMM_LANES];
};

/* ---- quick messages ---- */

/* Small messages of every rank for every rank, of which each computes the result itself: up to COLLECTIVES_FEW in one
 * round, else in log2(world) rounds, in which each rank passes on what it has (Bruck's all-gather). The calling thread
 * reads the sockets (Gloo's synchronous mode), which avoids a thread switch on both sides. For one thread. */

/* The largest message; in rounds, the bytes of all ranks together. All write before they read: messages of 64 KiB may
 * fill the sockets' buffers and wait 40 ms. */
constexpr size_t kQuickBytes = 32 << 10;
constexpr size_t kQuickTotalBytes = 256 << 10; /* what a rank may send to all others in one call */
/* Two ranks write to each other before they read: a larger message may fill the sockets' buffers and wait a third of a
 * millisecond until the kernel enlarges them. */
constexpr size_t kPieceBytes = 32 << 10;
/* The largest message in pieces: each takes a round, of 0.03 ms within a machine; a message of any size takes two, and
 * 0.1 ms for Gloo's thread. */
constexpr size_t kPiecesBytes = 128 << 10;

class Quick {
  public:
    explicit Quick(Network &network)
        : rank_(network.rank()), world_(network.world()), is_direct_(world_ <= COLLECTIVES_FEW),
          capacity_(is_direct_ ? std::max<size_t>(1024, std::min(kQuickBytes, kQuickTotalBytes / (world_ - 1)))
                               : kQuickBytes),
          timeout_(network.timeout()), begins_(world_ + 1), inputs_(world_),
          links_(network, "quick/", [this](int peer, Pair *pair) { create_buffers(peer, pair); }) {}

    /* [largest]: bytes of the rank that sends most; [total]: of all together. */
    bool fits(size_t largest, size_t total) const { return (is_direct_ ? largest : total) <= capacity_; }

    /* Sends bytes_of(rank_) bytes to every other rank; payload(rank) returns those of [rank] until the next call. A
     * rank sends its next message only after it has received something of all ranks in this call, so two alternating
     * buffers are never overwritten while they are read. [what] and [size] must be equal on all ranks: they are
     * compared. */
    template <class BytesOf> void exchange(const void *data, uint32_t what, size_t size, BytesOf bytes_of) {
        if (!is_connected_) connect();
        for (int i = 0; i < world_; i++) begins_[i + 1] = begins_[i] + bytes_of((rank_ + i) % world_);
        Header header = {number_++, what, size};
        std::memcpy(own_.data(), &header, sizeof header);
        if (begins_[1]) std::memcpy(own_.data() + sizeof header, data, begins_[1]);
        if (is_direct_) {
            for (int step = 1; step < world_; step++) send(rank_ + step, begins_[1]);
            for (int step = 1; step < world_; step++) receive(rank_ + world_ - step, header);
            return;
        }
        for (int have = 1; have < world_; have *= 2) {
            int n = std::min(have, world_ - have);
            send(rank_ + world_ - have, begins_[n]);
            Peer &from = receive(rank_ + have, header);
            std::memcpy(own_.data() + sizeof header + begins_[have], from.in[1 - from.received].data() + sizeof header,
                        begins_[have + n] - begins_[have]);
        }
    }

    const char *payload(int rank) const {
        if (rank == rank_) return own_.data() + sizeof(Header);
        if (!is_direct_) return own_.data() + sizeof(Header) + begins_[(rank - rank_ + world_) % world_];
        const Peer &peer = peers_.at(rank);
        return peer.in[1 - peer.received].data() + sizeof(Header);
    }

    /* (world): the payloads in order of rank, each from byte [offset] on. */
    const void *const *payloads(size_t offset) {
        for (int rank = 0; rank < world_; rank++) inputs_[rank] = payload(rank) + offset;
        return inputs_.data();
    }

  private:
    struct Header {
        uint32_t number, what;
        uint64_t bytes;
    };
    struct Peer {
        std::vector<char> in[2];
        std::unique_ptr<gloo::transport::Buffer> receive[2], send[2];
        int sent = 0, received = 0; /* which of two buffers is the next */
    };

    void create_buffers(int peer, Pair *pair) {
        peers_.erase(peer); /* those of a pair that has failed */
        if (!pair) return;
        for (int turn = 0; turn < 2; turn++) {
            auto &in = peers_[peer].in[turn];
            in.resize(sizeof(Header) + capacity_);
            peers_[peer].receive[turn] = pair->createRecvBuffer(turn, in.data(), in.size());
            peers_[peer].send[turn] = pair->createSendBuffer(turn, own_.data(), own_.size());
        }
    }

    void connect() {
        std::vector<int> peers;
        for (int step = 1; step < world_; step = is_direct_ ? step + 1 : 2 * step)
            for (int peer : {rank_ + step, rank_ + world_ - step}) peers.push_back(peer % world_);
        own_.resize(sizeof(Header) + capacity_);
        links_.need(peers.data(), static_cast<int>(peers.size()));
        timeval limit = {static_cast<time_t>(timeout_), static_cast<suseconds_t>(timeout_ * 1e6) % 1000000};
        for (auto &peer : peers_) {
            links_.pair(peer.first).setSync(true, false);
            setsockopt(links_.socket(peer.first), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
            setsockopt(links_.socket(peer.first), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        }
        is_connected_ = true;
    }

    void send(int to, size_t bytes) {
        Peer &peer = peers_.at(to % world_);
        peer.send[peer.sent]->send(0, sizeof(Header) + bytes);
        peer.send[peer.sent]->waitSend();
        peer.sent = 1 - peer.sent;
    }

    Peer &receive(int from, const Header &mine) {
        Peer &peer = peers_.at(from % world_);
        Header theirs;
        peer.receive[peer.received]->waitRecv();
        std::memcpy(&theirs, peer.in[peer.received].data(), sizeof theirs);
        peer.received = 1 - peer.received;
        if (std::memcmp(&mine, &theirs, sizeof mine) == 0) return peer;
        throw std::runtime_error("rank " + std::to_string(from % world_) + " is in another collective call (number " +
                                 std::to_string(theirs.number) + " with " + std::to_string(theirs.bytes) +
                                 " bytes; here number " + std::to_string(mine.number) + " with " +
                                 std::to_string(mine.bytes) + " bytes)");
    }

    int rank_, world_;
    bool is_direct_, is_connected_ = false;
    size_t capacity_;
    double timeout_;
    std::vector<char> own_;      /* a header, this rank's bytes, and in rounds those of the ranks after it */
    std::vector<size_t> begins_; /* (world + 1): where the bytes of the i-th rank after this one begin */
    std::vector<const void *> inputs_;
    uint32_t number_ = 0;
    Links links_; /* must outlive the buffers */
    std::map<int, Peer> peers_;
};

/* ---- the group ---- */

/* The kind of a quick call: compared between ranks. */
enum Kind : uint32_t { kBarrier = 1, kGather, kScatter, kBroadcast, kReduceScatter, kReduce };

uint32_t what(Kind kind, int root, comm_type type = COMM_UINT8, comm_op op = COMM_SUM) {
    return static_cast<uint32_t>(kind) | static_cast<uint32_t>(type) << 4 | static_cast<uint32_t>(op) << 8 |
           static_cast<uint32_t>(root + 1) << 12;
}

class Group {
  public:
    explicit Group(const comm_setup &setup) : rank_(setup.rank), world_(setup.world_size), network_(setup) {}

    void reduce(int lane, void *data, size_t count, comm_type type, comm_op op, int root) {
        size_t bytes = count * comm_type_size(type);
        if (is_in_pieces(lane, bytes, root)) return reduce_pieces(data, count, type, op);
        if (!is_quick(lane, bytes, bytes * static_cast<size_t>(world_)))
            return must(lane, collectives_reduce(&messages_.group, lane, data, count, type, op, root));
        quick_.exchange(data, what(kReduce, root, type, op), bytes, [&](int) { return bytes; });
        if (root == COMM_ALL || root == rank_) combine(data, quick_.payloads(0), world_, count, type, op);
    }

    void reduce_scatter(int lane, const void *data, size_t count, comm_type type, comm_op op, void *out) {
        size_t bytes = count * comm_type_size(type), all = bytes * static_cast<size_t>(world_);
        if (!is_quick(lane, all, all * static_cast<size_t>(world_)))
            return must(lane, collectives_reduce_scatter(&messages_.group, lane, data, count, type, op, out));
        quick_.exchange(data, what(kReduceScatter, COMM_ALL, type, op), all, [&](int) { return all; });
        combine(out, quick_.payloads(static_cast<size_t>(rank_) * bytes), world_, count, type, op);
    }

    void gather(int lane, const void *data, const size_t *sizes, void *out, int root) {
        size_t total = 0;
        for (int r = 0; r < world_; r++) total += sizes[r];
        if (!is_quick(lane, *std::max_element(sizes, sizes + world_), total))
            return must(lane, collectives_gather(&messages_.group, lane, data, sizes, out, root));
        quick_.exchange(data, what(kGather, root), total, [&](int r) { return sizes[r]; });
        if (root != COMM_ALL && root != rank_) return;
        char *to = static_cast<char *>(out);
        for (int r = 0; r < world_; to += sizes[r++]) std::memcpy(to, quick_.payload(r), sizes[r]);
    }

    void scatter(int lane, const void *data, size_t size, void *out, int root) {
        size_t all = size * static_cast<size_t>(world_);
        if (!is_quick(lane, all, all))
            return must(lane, collectives_scatter(&messages_.group, lane, data, size, out, root));
        quick_.exchange(data, what(kScatter, root), size, [&](int r) { return r == root ? all : 0; });
        std::memcpy(out, quick_.payload(root) + static_cast<size_t>(rank_) * size, size);
    }

    void broadcast(int lane, void *data, size_t size, int root) {
        if (!is_quick(lane, size, size))
            return must(lane, collectives_broadcast(&messages_.group, lane, data, size, root));
        quick_.exchange(data, what(kBroadcast, root), size, [&](int r) { return r == root ? size : 0; });
        if (root != rank_) std::memcpy(data, quick_.payload(root), size);
    }

    void barrier(int lane) {
        if (lane != 0) return must(lane, collectives_barrier(&messages_.group, lane));
        quick_.exchange("", what(kBarrier, COMM_ALL), 0, [](int) { return 0; });
    }

    void send(int lane, const void *data, size_t size, int to) {
        must(lane, collectives_send(&messages_.group, lane, data, size, to));
    }
    void recv(int lane, void *data, size_t size, int from) {
        must(lane, collectives_recv(&messages_.group, lane, data, size, from));
    }

    void end_calls() {
        network_.end_calls();
        messages_.end_waits();
    }

  private:
    /* After a failure Gloo's thread must not touch the caller's memory any more. */
    void must(int lane, status failure) {
        if (!failure) return;
        messages_.forget(lane);
        throw Failure{failure};
    }

    bool is_quick(int lane, size_t largest, size_t total) const { return lane == 0 && quick_.fits(largest, total); }

    bool is_in_pieces(int lane, size_t bytes, int root) const {
        return lane == 0 && world_ == 2 && root == COMM_ALL && bytes > kPieceBytes && bytes <= kPiecesBytes;
    }

    void reduce_pieces(void *data, size_t count, comm_type type, comm_op op) {
        const size_t size = comm_type_size(type), piece = kPieceBytes / size;
        for (size_t begin = 0; begin < count; begin += piece) {
            char *at = static_cast<char *>(data) + begin * size;
            size_t n = std::min(piece, count - begin);
            quick_.exchange(at, what(kReduce, COMM_ALL, type, op), count * size, [&](int) { return n * size; });
            combine(at, quick_.payloads(0), 2, n, type, op);
        }
    }

    int rank_, world_;
    Network network_;
    Messages messages_{network_};
    Quick quick_{network_};
};

/* ---- the table ---- */

Group &group_of(void *group) { return *static_cast<Group *>(group); }

status create(const comm_setup *setup, void **out) {
    return guard([&] { *out = new Group(*setup); });
}

void destroy(void *group) {
    status_free(guard([&] { delete static_cast<Group *>(group); }));
}

void abort_calls(void *group) { group_of(group).end_calls(); }

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
                                                recv,           nullptr, nullptr, nullptr,     true,    nullptr};