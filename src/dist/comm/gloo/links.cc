/* Both ranks of a link publish an address and a nonce in the job's store and read those of the other. Gloo accepts any
 * connection, so after connecting they exchange proofs of the job's secret, and try again if a stranger connected first
 * or one of them came late. */
#include "dist/comm/gloo/links.hpp"

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <gloo/types.h>

#include <dirent.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

extern "C" {
#include "dist/process/env.h"
#include "dist/process/net.h"
}

namespace ddptrain_gloo {

namespace {

using Address = gloo::transport::tcp::Address;

constexpr uint8_t kProofSlot = 0x60, kReadySlot = 0x61;
constexpr int kAttempts = 4;
/* The first attempt, which a silent stranger ends, is over before a job without progress counts as hung. */
constexpr double kConnectSeconds[kAttempts] = {3, 20, 60, 60};
constexpr int kSpareDescriptors = 4; /* of a call that connects, beyond its connections */
constexpr int kNear = 64;      /* descriptors before and after the newest one, between which the next one probably is */
constexpr int kGlooFactor = 5; /* Gloo waits this many times its timeout for a connection */
/* The store answers one thread of a rank at a time, so a wait for a peer is divided: the other thread may have what the
 * peer is waiting for. */
constexpr double kFirstWait = 0.02, kLongestWait = 1;

/* Gloo's threads must leave signals to the main thread. */
class SignalsBlocked {
  public:
    SignalsBlocked() { signals_block_all(&before_); }
    ~SignalsBlocked() { signals_restore(&before_); }

  private:
    sigset_t before_;
};

/* ---- sockets ---- */

bool is_same(const sockaddr_storage &one, const sockaddr_storage &other) {
    if (one.ss_family != other.ss_family) return false;
    if (one.ss_family == AF_INET6) {
        auto &a = reinterpret_cast<const sockaddr_in6 &>(one), &b = reinterpret_cast<const sockaddr_in6 &>(other);
        return a.sin6_port == b.sin6_port && std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof a.sin6_addr) == 0;
    }
    auto &a = reinterpret_cast<const sockaddr_in &>(one), &b = reinterpret_cast<const sockaddr_in &>(other);
    return one.ss_family == AF_INET && a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr;
}

sockaddr_storage local_address(int fd) {
    sockaddr_storage address = {};
    socklen_t size = sizeof address;
    if (getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size) != 0) address.ss_family = AF_UNSPEC;
    return address;
}

/* AF_UNSPEC: it is not connected. */
sockaddr_storage remote_address(int fd) {
    sockaddr_storage address = {};
    socklen_t size = sizeof address;
    if (getpeername(fd, reinterpret_cast<sockaddr *>(&address), &size) != 0) address.ss_family = AF_UNSPEC;
    return address;
}

bool is_connected(int fd) { return remote_address(fd).ss_family != AF_UNSPEC; }

bool is_listening(int fd) {
    int is_it = 0;
    socklen_t size = sizeof is_it;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_it, &size) == 0 && is_it;
}

/* -1: none. [near]: where to look first; a rank may have thousands. */
template <class Condition> int find_descriptor(int near, Condition is_it) {
    for (int fd = std::max(near - kNear, 0); fd < near + kNear; fd++)
        if (is_it(fd)) return fd;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) throw std::runtime_error(std::string("cannot read /proc/self/fd: ") + std::strerror(errno));
    int found = -1;
    const dirent *entry;
    while (found < 0 && (entry = readdir(folder)))
        if (is_it(std::atoi(entry->d_name))) found = std::atoi(entry->d_name);
    closedir(folder);
    return found;
}

/* The descriptor of a connected pair, which Gloo does not expose: the only connection from the address that this rank
 * has published, or to that of its peer. The local address of the rank that connects does not identify it: Linux lets
 * connections to different peers share a port. */
int socket_of(const Address &own, const Address &peer, int near) {
    int found = find_descriptor(near, [&](int fd) {
        sockaddr_storage there = remote_address(fd);
        return there.ss_family != AF_UNSPEC &&
               (is_same(there, peer.getSockaddr()) || is_same(local_address(fd), own.getSockaddr()));
    });
    if (found < 0) throw std::runtime_error("the connection was closed");
    return found;
}

/* ---- proofs of the job's secret ---- */

struct Proof {
    uint8_t bytes[COMM_PROOF];
};

/* [nonce]: of the rank that checks the proof. */
Proof sign(struct store *store, const std::string &link, const std::string &nonce, int from, int to) {
    text message = {};
    Proof proof;
    if (!comm_proof_message(link.c_str(), from, to, nonce.data(), nonce.size(), &message))
        throw std::runtime_error("the nonce of a rank does not have " + std::to_string(COMM_NONCE) + " bytes");
    store_sign(store, message.data, message.length, proof.bytes);
    text_free(&message);
    return proof;
}

std::string new_nonce() {
    std::string nonce(COMM_NONCE, 0);
    if (getrandom(&nonce[0], nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
        throw std::runtime_error("getrandom failed");
    return nonce;
}

} // namespace

std::string without_location(const char *what) {
    const char *end = what[0] == '[' ? std::strstr(what, "] ") : nullptr;
    std::string text = end ? end + 2 : what;
    return text.substr(0, text.find('\n'));
}

/* ---- the guard ---- */

Guard::Guard(gloo::transport::Device &device, Pair &pair, int near)
    : near_(near), device_(dynamic_cast<gloo::transport::tcp::Device &>(device)), pair_(pair),
      handler_(dynamic_cast<gloo::transport::tcp::Handler &>(pair)), address_(pair.address().bytes()) {
    std::lock_guard<std::mutex> lock(mutex_);
    int fd = find([](int i) { return is_listening(i); });
    if (fd >= 0) device_.registerDescriptor(fd, EPOLLIN, this);
}

/* The socket with the address of the pair for which [is_it] holds. */
template <class Condition> int Guard::find(Condition is_it) const {
    const Address own(address_);
    return find_descriptor(near_, [&](int i) { return is_it(i) && is_same(local_address(i), own.getSockaddr()); });
}

void Guard::stop() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        is_stopped_ = true;
    }
    if (closing_.joinable()) closing_.join();
}

void Guard::handleEvents(int events) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (is_stopped_) return;
    try {
        handler_.handleEvents(events);
        if (connection_ >= 0) return;
        connection_ = find(is_connected);
        if (connection_ >= 0) device_.registerDescriptor(connection_, EPOLLIN, this);
    } catch (const std::exception &) {
        is_stopped_ = true;
        SignalsBlocked blocked;
        closing_ = std::thread([this] { pair_.close(); });
    }
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

/* ---- what the links of a group share ---- */

Network::Network(const comm_setup &setup) : name_(setup.name), address_(setup.address), setup_(setup) {
    setup_.name = name_.c_str();
    setup_.address = address_.c_str();
}

Network::Busy::Busy(Network &network) : network_(network) {
    std::lock_guard<std::mutex> lock(network_.mutex_);
    if (network_.busy_++ == 0 && network_.ticker_) network_.ticker_->run(true);
}

Network::Busy::~Busy() {
    std::lock_guard<std::mutex> lock(network_.mutex_);
    if (--network_.busy_ == 0 && network_.ticker_) network_.ticker_->run(false);
}

std::shared_ptr<gloo::transport::Device> Network::device() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (device_) return device_;
    SignalsBlocked blocked;
    gloo::transport::tcp::attr attr;
    const char *interface = std::getenv(INTERFACE_VARIABLE);
    if (interface && *interface)
        attr.iface = interface;
    else
        attr.hostname = address_;
    ticker_ = std::make_unique<Ticker>();
    device_ = gloo::transport::tcp::CreateDevice(attr);
    ticker_->attach(*device_);
    ticker_->run(busy_ > 0);
    return device_;
}

void Network::end_calls() {
    std::lock_guard<std::mutex> lock(mutex_);
    is_aborted_ = true;
    for (Pair *pair : connecting_) pair->close();
    for (int socket : sockets_) shutdown(socket, SHUT_RDWR); /* Gloo owns the descriptor */
}

void Network::throw_if_aborted() const {
    if (is_aborted_) throw std::runtime_error("aborted");
}

void Network::add(Pair *pair) {
    std::lock_guard<std::mutex> lock(mutex_);
    connecting_.insert(pair);
}

void Network::connected(Pair *pair, int socket) {
    std::lock_guard<std::mutex> lock(mutex_);
    connecting_.erase(pair);
    sockets_.insert(socket);
}

void Network::remove(Pair *pair, int socket) {
    std::lock_guard<std::mutex> lock(mutex_);
    connecting_.erase(pair);
    sockets_.erase(socket);
}

/* ---- links ---- */

Links::Links(Network &network, const std::string &kind, Prepare prepare)
    : network_(network), kind_(kind), prepare_(std::move(prepare)) {}

Links::~Links() {
    if (links_.empty()) return;
    Network::Busy busy(network_);
    for (auto &link : links_) close(link.second, link.first);
}

void Links::close(Link &link, int peer) {
    if (!link.context) return;
    if (link.guard) link.guard->stop();
    network_.remove(link.context->getPair(1 - index(peer)).get(), link.socket);
    link.context.reset();
    link.guard.reset();
    link.socket = -1;
}

/* "world/bulk0/2/5-7": also the name of the link in the proofs. */
std::string Links::key(int from, int to, int attempt) const {
    return network_.name() + "/" + kind_ + "/" + std::to_string(attempt) + "/" + std::to_string(from) + "-" +
           std::to_string(to);
}

void Links::publish(int peer, Link &link, double seconds) {
    auto device = network_.device();
    link.context = device->createContext(index(peer), 2);
    link.context->setTimeout(to_milliseconds(seconds / kGlooFactor));
    auto &pair = link.context->createPair(1 - index(peer));
    network_.add(pair.get());
    link.guard = std::make_unique<Guard>(*device, *pair, newest_);
    link.nonce = new_nonce();
    auto address = pair->address().bytes();
    std::string value = link.nonce + std::string(address.begin(), address.end());
    status failure =
        store_set(network_.store(), key(network_.rank(), peer, link.attempt).c_str(), value.data(), value.size());
    if (failure) throw StoreFailure(failure);
}

/* What the peer has published: its nonce, then its address. */
std::string Links::address_of(int peer, const Link &link, Clock::time_point deadline) {
    for (double wait = kFirstWait;; wait = std::min(2 * wait, kLongestWait)) {
        void *value;
        size_t size;
        auto start = Clock::now();
        status failure =
            store_take(network_.store(), key(peer, network_.rank(), link.attempt).c_str(), wait, &value, &size);
        bool is_over = Clock::now() - start >= to_milliseconds(wait / 2);
        if (!failure) {
            std::string found(static_cast<char *>(value), size);
            std::free(value);
            if (found.size() <= COMM_NONCE) throw std::runtime_error("the address of a rank is too short");
            return found;
        }
        StoreFailure last(failure);
        network_.throw_if_aborted();
        if (!is_over || Clock::now() > deadline) throw last; /* not over: no answer but a lost rank */
        std::this_thread::sleep_for(milliseconds(1));        /* the other thread, which waits for the store, gets it */
    }
}

void Links::exchange_proofs(int peer, Link &link, const std::string &nonce, double seconds) {
    const int rank = network_.rank(), other = 1 - index(peer);
    Proof sent = sign(network_.store(), key(rank, peer, link.attempt), nonce, rank, peer), received = {};
    Proof expected = sign(network_.store(), key(peer, rank, link.attempt), link.nonce, peer, rank);
    char ready = 1, is_ready = 0;
    auto in = link.context->createUnboundBuffer(&received, sizeof received);
    auto out = link.context->createUnboundBuffer(&sent, sizeof sent);
    auto ready_in = link.context->createUnboundBuffer(&is_ready, 1);
    auto ready_out = link.context->createUnboundBuffer(&ready, 1);
    in->recv(other, gloo::Slot::build(kProofSlot, 0));
    ready_in->recv(other, gloo::Slot::build(kReadySlot, 0));
    out->send(other, gloo::Slot::build(kProofSlot, 0));
    in->waitRecv(to_milliseconds(seconds));
    out->waitSend(to_milliseconds(seconds));
    if (!comm_proof_is_good(received.bytes, expected.bytes))
        throw std::runtime_error("the process that connected as rank " + std::to_string(peer) +
                                 " does not have the job's secret");
    if (prepare_) prepare_(peer, &pair(peer));
    ready_out->send(other, gloo::Slot::build(kReadySlot, 0));
    ready_in->waitRecv(to_milliseconds(seconds));
    ready_out->waitSend(to_milliseconds(seconds));
}

void Links::connect(int peer, Link &link, const std::string &address, double seconds) {
    auto &pair = link.context->getPair(1 - index(peer));
    network_.throw_if_aborted();
    std::vector<char> bytes(address.begin() + COMM_NONCE, address.end());
    const Address own = dynamic_cast<const Address &>(pair->address()); /* another one on a pair that has connected */
    pair->connect(bytes);
    link.socket = newest_ = socket_of(own, Address(bytes), newest_);
    network_.connected(pair.get(), link.socket);
    network_.throw_if_aborted(); /* a later abort shuts the socket down */
    exchange_proofs(peer, link, address.substr(0, COMM_NONCE), seconds);
}

void Links::need(const int *peers, int count) {
    std::vector<int> missing;
    for (int i = 0; i < count; i++)
        if (!links_.count(peers[i])) missing.push_back(peers[i]);
    if (missing.empty()) return;
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    /* The store has reserved those for rank 0 as the root of gathers, for other ranks only those of all-reduce. */
    status failure = net_check_descriptors(static_cast<int>(missing.size()) + kSpareDescriptors, nullptr);
    if (failure) throw Failure{failure};
    Network::Busy busy(network_);
    auto deadline = Clock::now() + to_milliseconds(network_.timeout());
    auto seconds = [&](const Link &link) { return std::min(network_.timeout(), kConnectSeconds[link.attempt]); };
    for (int peer : missing) publish(peer, links_[peer], seconds(links_[peer]));
    for (int peer : missing) {
        Link &link = links_[peer];
        for (;;) {
            std::string address = address_of(peer, link, deadline);
            try {
                connect(peer, link, address, seconds(link));
                break;
            } catch (const StoreFailure &) {
                throw;
            } catch (const std::exception &) {
                network_.throw_if_aborted();
                if (link.attempt + 1 == kAttempts || Clock::now() > deadline) throw;
            }
            if (prepare_) prepare_(peer, nullptr);
            close(link, peer);
            link.attempt++;
            publish(peer, link, seconds(link));
        }
    }
}

} // namespace ddptrain_gloo
