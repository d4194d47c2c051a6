/* sockets: the TCP sockets of a Gloo group. A blocked call of Gloo ends only when its connections are shut down, and
 * Gloo does not expose their descriptors: they are the sockets that this process opened after the group's creation
 * began. The process opens no other TCP connections after the store's. */
#ifndef DIST_GLOO_SOCKETS_HPP
#define DIST_GLOO_SOCKETS_HPP

#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace ddptrain_gloo {

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

} // namespace ddptrain_gloo

#endif
