/* Gloo accepts any connection, so after connecting every two ranks exchange proofs of the job's secret. Addresses are
 * exchanged through the job's store. */
#include "dist/comm/gloo/mesh.hpp"

#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <gloo/types.h>

#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" {
#include "dist/comm/comm_backend.h"
#include "dist/process/env.h"
}

namespace ddptrain_gloo {

namespace {

constexpr uint8_t kProofSlot = 0x60; /* no collective of Gloo uses this prefix */
constexpr int kAttempts = 3;
constexpr double kConnectSeconds[kAttempts] = {10, 20, 60};

void throw_if_failed(status failure) {
    if (failure) throw StoreFailure(failure);
}

class JobStore : public gloo::rendezvous::Store {
  public:
    JobStore(struct store *store, std::string prefix, double timeout)
        : store_(store), prefix_(std::move(prefix)), timeout_(timeout) {}

    void set(const std::string &key, const std::vector<char> &data) override {
        throw_if_failed(store_set(store_, (prefix_ + key).c_str(), data.data(), data.size()));
    }
    std::vector<char> get(const std::string &key) override {
        void *value;
        size_t size;
        throw_if_failed(store_get(store_, (prefix_ + key).c_str(), timeout_, &value, &size));
        std::vector<char> data(static_cast<char *>(value), static_cast<char *>(value) + size);
        std::free(value);
        return data;
    }
    void wait(const std::vector<std::string> &keys) override {
        for (const auto &key : keys) get(key);
    }
    void wait(const std::vector<std::string> &keys, const milliseconds &) override { wait(keys); }

  private:
    struct store *store_;
    std::string prefix_;
    double timeout_;
};

/* ---- proofs of the job's secret ---- */

struct Proof {
    uint8_t bytes[COMM_PROOF];
};

Proof sign(const comm_setup &setup, const std::string &mesh, const std::vector<char> &nonce, int from, int to) {
    text message = {};
    Proof proof;
    if (!comm_proof_message(mesh.c_str(), from, to, nonce.data(), nonce.size(), &message))
        throw std::runtime_error("the nonce of rank 0 does not have " + std::to_string(COMM_NONCE) + " bytes");
    store_sign(setup.store, message.data, message.length, proof.bytes);
    text_free(&message);
    return proof;
}

/* Rank 0 creates the nonce, the others read it from the store. */
std::vector<char> shared_nonce(const comm_setup &setup, JobStore &store) {
    if (setup.rank == 0) {
        std::vector<char> nonce(COMM_NONCE);
        if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
            throw std::runtime_error("getrandom failed");
        store.set("nonce", nonce);
    }
    return store.get("nonce");
}

void exchange_proofs(const comm_setup &setup, Context &context, JobStore &store, const std::string &mesh,
                     double seconds) {
    auto nonce = shared_nonce(setup, store);
    auto slot = gloo::Slot::build(kProofSlot, 0);
    std::vector<Proof> sent(setup.world_size), received(setup.world_size);
    std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> buffers;
    for (int peer = 0; peer < setup.world_size; peer++) {
        if (peer == setup.rank) continue;
        sent[peer] = sign(setup, mesh, nonce, setup.rank, peer);
        buffers.push_back(context.createUnboundBuffer(&received[peer], sizeof(Proof)));
        buffers.back()->recv(peer, slot);
        buffers.push_back(context.createUnboundBuffer(&sent[peer], sizeof(Proof)));
        buffers.back()->send(peer, slot);
    }
    for (size_t i = 0; i < buffers.size(); i += 2) {
        buffers[i]->waitRecv(to_milliseconds(seconds));
        buffers[i + 1]->waitSend(to_milliseconds(seconds));
    }
    for (int peer = 0; peer < setup.world_size; peer++) {
        if (peer == setup.rank) continue;
        Proof expected = sign(setup, mesh, nonce, peer, setup.rank);
        if (!comm_proof_is_good(received[peer].bytes, expected.bytes))
            throw std::runtime_error("the process that connected as rank " + std::to_string(peer) +
                                     " does not have the job's secret");
    }
}

} // namespace

std::string without_location(const char *what) {
    const char *end = what[0] == '[' ? std::strstr(what, "] ") : nullptr;
    std::string text = end ? end + 2 : what;
    return text.substr(0, text.find('\n'));
}

/* ---- the timer ---- */

Ticker::Ticker() : fd_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (fd_ < 0) throw std::runtime_error(std::string("cannot create a timer: ") + std::strerror(errno));
}

Ticker::~Ticker() { close(fd_); }

void Ticker::attach(gloo::transport::Device &device) {
    dynamic_cast<gloo::transport::tcp::Device &>(device).registerDescriptor(fd_, EPOLLIN, this);
}

void Ticker::run(bool is_running) {
    itimerspec every = {};
    if (is_running) every.it_value.tv_nsec = every.it_interval.tv_nsec = 100000;
    timerfd_settime(fd_, 0, &every, nullptr);
}

void Ticker::handleEvents(int) {
    uint64_t ticks;
    if (read(fd_, &ticks, sizeof ticks) < 0) return; /* no tick since the last read */
}

/* ---- connecting ---- */

std::shared_ptr<gloo::transport::Device> open_device(const char *address, Ticker &ticker) {
    gloo::transport::tcp::attr attr;
    const char *interface = std::getenv(INTERFACE_VARIABLE);
    if (interface && *interface)
        attr.iface = interface;
    else
        attr.hostname = address;
    auto device = gloo::transport::tcp::CreateDevice(attr);
    ticker.attach(*device);
    ticker.run(true);
    return device;
}

std::shared_ptr<Context> connect(const comm_setup &setup, std::shared_ptr<gloo::transport::Device> device,
                                 const std::string &mesh, double seconds) {
    JobStore store(setup.store, mesh + "/", setup.timeout);
    auto context = std::make_shared<Context>(setup.rank, setup.world_size);
    context->setTimeout(to_milliseconds(seconds));
    context->connectFullMesh(store, device);
    exchange_proofs(setup, *context, store, mesh, seconds);
    return context;
}

std::string shared_result(const comm_setup &setup, const std::string &mesh, const std::string &mine) {
    JobStore store(setup.store, mesh + "/result/", setup.timeout);
    std::string first;
    store.set(std::to_string(setup.rank), std::vector<char>(mine.begin(), mine.end()));
    for (int rank = 0; rank < setup.world_size && first.empty(); rank++) {
        auto theirs = store.get(std::to_string(rank));
        if (!theirs.empty()) first = "rank " + std::to_string(rank) + ": " + std::string(theirs.begin(), theirs.end());
    }
    return first;
}

std::shared_ptr<Context> connect_with_retries(const comm_setup &setup,
                                              const std::shared_ptr<gloo::transport::Device> &device,
                                              const std::string &name) {
    for (int attempt = 0;; attempt++) {
        std::string mesh = name + std::to_string(attempt), error;
        double seconds = std::min(setup.timeout, kConnectSeconds[attempt]);
        std::shared_ptr<Context> context;
        try {
            context = connect(setup, device, mesh, seconds);
        } catch (const StoreFailure &) {
            throw;
        } catch (const std::exception &e) {
            error = without_location(e.what());
            if (error.empty()) error = "unknown error";
        }
        error = shared_result(setup, mesh, error);
        if (error.empty()) return context;
        if (attempt + 1 == kAttempts) throw std::runtime_error(error);
    }
}

} // namespace ddptrain_gloo
