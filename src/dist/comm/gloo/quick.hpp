/* quick: a mesh for small messages in one phase: every rank sends to every other, and each computes the result itself.
 * The calling thread reads the sockets (Gloo's synchronous mode), which avoids a thread switch on both sides. For one
 * thread. */
#ifndef DIST_GLOO_QUICK_HPP
#define DIST_GLOO_QUICK_HPP

#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "dist/comm/gloo/mesh.hpp"

namespace ddptrain_gloo {

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

} // namespace ddptrain_gloo

#endif
