/* The rank's side of the two sockets to its agent. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dist/internal.h"
#include "dist/launch_internal.h"

/* The descriptor in [variable]; -1 when this process has no agent. */
static int agent_fd(const char *variable) {
    const char *agent = getenv(AGENT_VARIABLE), *number = getenv(variable);
    return agent && number && atol(agent) == (long)getppid() ? atoi(number) : -1;
}

/* A packet, with a duplicate of the descriptor [passed] unless that is -1. */
static bool send_packet(enum launch_message message, int code, int64_t number, const char *text, int passed) {
    int fd = agent_fd(REPORT_FD_VARIABLE);
    if (fd < 0) return false;
    struct launch_packet packet = {.message = (int32_t)message, .code = code, .number = number};
    snprintf(packet.sentence, sizeof packet.sentence, "%s", text);
    struct iovec bytes = {.iov_base = &packet, .iov_len = sizeof packet};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof passed)];
    } control = {0};
    struct msghdr whole = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (passed >= 0) {
        control.header =
            (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof passed)};
        memcpy(CMSG_DATA(&control.header), &passed, sizeof passed);
        whole.msg_control = &control;
        whole.msg_controllen = sizeof control.space;
    }
    ssize_t sent;
    do {
        sent = sendmsg(fd, &whole, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)sizeof packet;
}

bool launch_report(status failure) {
    return failure && send_packet(TELL_FAILURE, (int)status_code(failure), 0, status_message(failure), -1);
}

void launch_tell(enum launch_message message, int code, int64_t number, const char *text) {
    send_packet(message, code, number, text, -1);
}

void launch_tell_link(int rank, int fd) { send_packet(TELL_LINK, 0, rank, "", fd); }

bool launch_wants_link(void) {
    const char *wants = getenv(LINK_VARIABLE);
    return agent_fd(REPORT_FD_VARIABLE) >= 0 && wants && strcmp(wants, "1") == 0;
}

int launch_pulse_fd(void) { return agent_fd(PULSE_FD_VARIABLE); }

int launch_news_fd(void) { return agent_fd(NEWS_FD_VARIABLE); }

bool launch_hear_death(int *rank, char *fate, size_t size) {
    struct launch_packet packet;
    int fd = launch_news_fd();
    ssize_t got;
    do {
        got = fd < 0 ? 0 : recv(fd, &packet, sizeof packet, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof packet || packet.message != TELL_DEATH) return false;
    packet.sentence[sizeof packet.sentence - 1] = 0;
    snprintf(fate, size, "%s", packet.sentence);
    *rank = (int)packet.number;
    return true;
}
