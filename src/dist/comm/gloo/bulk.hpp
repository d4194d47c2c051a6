/* bulk: a mesh for messages of any size, on two lanes; Gloo's thread reads and writes the sockets. Every rank sums its
 * own slice of the data, in order of rank, chunk by chunk while the next chunks are transferred. Gloo's ring would
 * transfer as many bytes, but would sum each element in an order that depends on its position. */
#ifndef DIST_GLOO_BULK_HPP
#define DIST_GLOO_BULK_HPP

#include <gloo/transport/unbound_buffer.h>
#include <gloo/types.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "dist/comm/gloo/mesh.hpp"

extern "C" {
#include "dist/comm/combine.h"
}

namespace ddptrain_gloo {

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

} // namespace ddptrain_gloo

#endif
