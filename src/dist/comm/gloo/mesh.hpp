/* mesh: a full mesh of Gloo's connections between the ranks of a group, each authenticated with the job's secret. */
#ifndef DIST_GLOO_MESH_HPP
#define DIST_GLOO_MESH_HPP

#include <gloo/rendezvous/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/loop.h>

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

extern "C" {
#include "base/system/signals.h"
#include "dist/comm/comm_backend.h"
}

namespace ddptrain_gloo {

using Context = gloo::rendezvous::Context;
using milliseconds = std::chrono::milliseconds;

inline milliseconds to_milliseconds(double seconds) { return milliseconds(static_cast<int64_t>(seconds * 1000) + 1); }

/* ---- exceptions become failures ---- */

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

/* ---- connecting ---- */

/* Gloo's threads must leave signals to the main thread. */
class SignalsBlocked {
  public:
    SignalsBlocked() { signals_block_all(&before_); }
    ~SignalsBlocked() { signals_restore(&before_); }

  private:
    sigset_t before_;
};

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

/* Attaches [ticker] to the new device and starts it. */
std::shared_ptr<gloo::transport::Device> open_device(const char *address, Ticker &ticker);

/* [mesh]: name of the mesh, prefix of its keys in the store. [seconds]: to connect; also Gloo's default timeout for
 * later waits. All ranks of the group. */
std::shared_ptr<Context> connect(const comm_setup &setup, std::shared_ptr<gloo::transport::Device> device,
                                 const std::string &mesh, double seconds);

/* The same, with up to three attempts until it succeeds on all ranks: an unauthenticated connection may have been
 * accepted first. All ranks of the group. */
std::shared_ptr<Context> connect_with_retries(const comm_setup &setup,
                                              const std::shared_ptr<gloo::transport::Device> &device,
                                              const std::string &mesh);

/* Exchanges the errors of all ranks, "" for none. Returns the first in order of rank, "" if there is none. All ranks of
 * the group. */
std::string shared_result(const comm_setup &setup, const std::string &mesh, const std::string &mine);

} // namespace ddptrain_gloo

#endif
