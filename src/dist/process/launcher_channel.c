/* Packets keep their boundaries (SOCK_SEQPACKET), so one call sends or receives a whole one. */
#include "dist/process/launcher_channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dist/process/env.h"

/* The descriptor in [variable]; -1 when this process has no launcher. */
static int launcher_fd(const char *variable) {
    const char *launcher = getenv(LAUNCHER_VARIABLE), *number = getenv(variable);
    return launcher && number && atol(launcher) == (long)getppid() ? atoi(number) : -1;
}

/* Sends a packet, with a duplicate of the descriptor [passed] unless that is -1. */
static bool send_packet(struct launcher_packet *packet, int passed) {
    int fd = launcher_fd(REPORT_FD_VARIABLE);
    if (fd < 0) return false;
    struct iovec bytes = {.iov_base = packet, .iov_len = sizeof *packet};
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
    return sent == (ssize_t)sizeof *packet;
}

static bool send_message(enum launcher_message message, int code, int64_t number, const char *text) {
    struct launcher_packet packet = {.message = (int32_t)message, .code = code, .number = number};
    snprintf(packet.text, sizeof packet.text, "%s", text);
    return send_packet(&packet, -1);
}

bool launcher_report(status failure) {
    return failure && send_message(MESSAGE_FAILURE, status_exit_code(status_code(failure)), 0, status_message(failure));
}

void launcher_send(enum launcher_message message, int code, int64_t number, const char *text) {
    send_message(message, code, number, text);
}

void launcher_send_link(int rank, int fd, const void *session, size_t size) {
    struct launcher_packet packet = {.message = MESSAGE_LINK, .number = rank};
    memcpy(packet.session, session, size);
    send_packet(&packet, fd);
    explicit_bzero(packet.session, sizeof packet.session);
}

bool launcher_needs_link(void) {
    const char *wants = getenv(LINK_VARIABLE);
    return launcher_fd(REPORT_FD_VARIABLE) >= 0 && wants && strcmp(wants, "1") == 0;
}

int launcher_activity_fd(void) { return launcher_fd(ACTIVITY_FD_VARIABLE); }

int launcher_exits_fd(void) { return launcher_fd(EXITS_FD_VARIABLE); }

bool launcher_receive_exit(int *rank, char *text, size_t size) {
    struct launcher_packet packet;
    int fd = launcher_exits_fd();
    ssize_t received;
    do {
        received = fd < 0 ? 0 : recv(fd, &packet, sizeof packet, MSG_DONTWAIT);
    } while (received < 0 && errno == EINTR);
    if (received != (ssize_t)sizeof packet ||
        (packet.message != MESSAGE_RANK_EXIT && packet.message != MESSAGE_TERMINATE))
        return false;
    packet.text[sizeof packet.text - 1] = 0;
    snprintf(text, size, "%s", packet.text);
    *rank = packet.message == MESSAGE_TERMINATE ? -1 : (int)packet.number;
    return true;
}
