/* sockets: Gloo frees a blocked call only when its connections end, and does not say which descriptors they are: those
 * of this process that came after the group was begun. Nothing else here opens TCP connections after the store's. */
#ifndef DIST_GLOO_SOCKETS_HPP
#define DIST_GLOO_SOCKETS_HPP

#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace ddptrain_gloo {

/* Made before the group connects. */
class PeerSockets {
  public:
    PeerSockets() {
        each([this](int fd) { before_.push_back(fd); });
    }
    /* Ends the group's connections in both directions; the descriptors stay Gloo's. From any thread. */
    void shut_down() const {
        each([this](int fd) {
            if (std::find(before_.begin(), before_.end(), fd) == before_.end()) shutdown(fd, SHUT_RDWR);
        });
    }

  private:
    /* Connected TCP sockets. */
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
