/* links: Gloo's connections between the ranks of a group, made when two ranks first need one, each authenticated with
 * the job's secret. A link is a Gloo context of two ranks, so that one can fail and be made again without the others.
 */
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/loop.h>

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "base/system/signals.h"
#include "dist/comm/comm_backend.h"
}

namespace ddptrain_gloo {

using Context = gloo::transport::Context;
using Pair = gloo::transport::Pair;
using Clock = std::chrono::steady_clock;
using milliseconds = std::chrono::milliseconds;

inline milliseconds to_milliseconds(double seconds) { return milliseconds(static_cast<int64_t>(seconds * 1000) + 1); }

/* ---- exceptions become failures ---- */

/* A failure of a C function, as an exception. */
struct Failure {
    status failure;
};

/* A failure of the store in a callback from Gloo, as an exception. */
struct StoreFailure : std::runtime_error {
    explicit StoreFailure(status failure) : std::runtime_error(status_message(failure)) { status_free(failure); }
};

/* "[/build/gloo/pair.cc:123] Connection closed" -> "Connection closed" */
std::string without_location(const char *what);

template <class Function> status guard(Function function) {
    try {
        function();
        return OK;
    } catch (const Failure &e) {
        return e.failure;
    } catch (const StoreFailure &e) {
        return status_new(STATUS_PEER, "%s", e.what());
    } catch (const std::bad_alloc &) {
        return status_memory("communication");
    } catch (const std::exception &e) {
        return status_new(STATUS_PEER, "gloo: %s", without_location(e.what()).c_str());
    } catch (...) {
        return status_new(STATUS_BUG, "gloo: unknown exception");
    }
}

/* ---- what the links of a group share ---- */

/* Gloo's thread reads its list of sockets only after an event of one of them, or after 10 ms; removing a socket from
 * the list waits for that, several times per peer. A timer in the list makes the thread read it every 0.1 ms while
 * connections are opened and closed. */
class Ticker : public gloo::transport::tcp::Handler {
  public:
    Ticker();
    ~Ticker() override; /* after the device, whose thread reads it */
    Ticker(const Ticker &) = delete;
    Ticker &operator=(const Ticker &) = delete;

    void attach(gloo::transport::Device &device);
    void run(bool is_running);
    void handleEvents(int events) override;

  private:
    int fd_;
};

class Network {
  public:
    explicit Network(const comm_setup &setup);
    Network(const Network &) = delete;
    Network &operator=(const Network &) = delete;

    int rank() const { return setup_.rank; }
    int world() const { return setup_.world_size; }
    double timeout() const { return setup_.timeout; }
    struct store *store() const {
        return setup_.store;
    }
    const std::string &name() const { return name_; }

    /* While at least one exists, connections are opened and closed quickly. */
    class Busy {
      public:
        explicit Busy(Network &network);
        ~Busy();
        Busy(const Busy &) = delete;
        Busy &operator=(const Busy &) = delete;

      private:
        Network &network_;
    };
    /* Gloo's thread, which is started by the first call. */
    std::shared_ptr<gloo::transport::Device> device();

    /* Ends the blocked calls of all threads, and what they try later. A blocked call of Gloo ends only when its
     * connection is shut down. May be called from any thread. */
    void end_calls();
    void throw_if_aborted() const;
    /* A pair that is being connected; a connected socket. [socket] -1: none. */
    void add(Pair *pair);
    void connected(Pair *pair, int socket);
    void remove(Pair *pair, int socket);

  private:
    std::string name_, address_;
    comm_setup setup_;
    std::unique_ptr<Ticker> ticker_; /* must outlive the device */
    std::shared_ptr<gloo::transport::Device> device_;
    std::atomic<bool> is_aborted_{false};
    std::mutex mutex_; /* guards what follows, device_ and the ticker */
    int busy_ = 0;
    std::set<Pair *> connecting_;
    std::set<int> sockets_;
};

/* ---- the guard ---- */

/* Gloo accepts any connection, and an exception for a message that it does not expect, thrown in its thread, would end
 * the process. The guard takes the place of a listening [pair] in the list of Gloo's thread, then that of its first
 * connection: an exception closes the pair, in a thread of its own: another thread that closes the pair, after an abort
 * or a timeout, holds its lock and waits for Gloo's thread, which therefore must not wait for this lock. Later, when
 * the proofs of both ranks were good, Gloo may replace it. It must outlive the pair. */
class Guard : public gloo::transport::tcp::Handler {
  public:
    /* [near]: a descriptor in whose neighbourhood that of the pair probably is. */
    Guard(gloo::transport::Device &device, Pair &pair, int near);
    /* Before the pair is destroyed: Gloo's thread is in no call of the guard and ignores later ones. */
    void stop();
    void handleEvents(int events) override;

  private:
    template <class Condition> int find(Condition is_it) const;

    std::mutex mutex_; /* guards what follows, and the pair against its end */
    bool is_stopped_ = false;
    std::thread closing_; /* closes the pair after an exception; ended by stop */
    int near_;
    int connection_ = -1; /* descriptor */
    gloo::transport::tcp::Device &device_;
    Pair &pair_;
    gloo::transport::tcp::Handler &handler_; /* of the pair */
    std::vector<char> address_;              /* on which it listens */
};

/* ---- links ---- */

/* The links of one thread, for one kind of messages. */
class Links {
  public:
    /* prepare(peer, pair): called before [peer] may send; with NULL before a pair that has failed is destroyed. [kind]:
     * of the messages, the same on all ranks. */
    using Prepare = std::function<void(int peer, Pair *pair)>;
    Links(Network &network, const std::string &kind, Prepare prepare = nullptr);
    ~Links();

    /* Connects to those of [peers] (count) that have no link yet. They do the same for this rank, in the same call. The
     * addresses for all of them are in the store before this rank waits for any, so no ranks wait for each other. */
    void need(const int *peers, int count);

    /* Of a connected peer. In its context this rank is index(peer), the peer 1 - index(peer). */
    Context &context(int peer) { return *links_.at(peer).context; }
    Pair &pair(int peer) { return *context(peer).getPair(1 - index(peer)); }
    int index(int peer) const { return network_.rank() > peer; }
    int socket(int peer) const { return links_.at(peer).socket; }

  private:
    struct Link {
        std::unique_ptr<Guard> guard;
        std::shared_ptr<Context> context; /* after the guard, which outlives it */
        std::string nonce;
        int attempt = 0, socket = -1;
    };
    std::string key(int from, int to, int attempt) const;
    void publish(int peer, Link &link, double seconds);
    std::string address_of(int peer, const Link &link, Clock::time_point deadline);
    void connect(int peer, Link &link, const std::string &address, double seconds);
    void exchange_proofs(int peer, Link &link, const std::string &nonce, double seconds);
    void close(Link &link, int peer);

    Network &network_;
    std::string kind_;
    Prepare prepare_;
    std::map<int, Link> links_;
    int newest_ = 0; /* descriptor */
};

} // namespace ddptrain_gloo
