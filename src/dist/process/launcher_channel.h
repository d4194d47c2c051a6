/* launcher_channel: a rank's ends of the two sockets to its launcher, and the packets that both sides send. In a
 * process that ddptrain's launcher did not start, nothing is sent or received. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LAUNCHER_MAX_TEXT 2048
#define LAUNCHER_MAX_SESSION 96

/* Seconds for ranks to end by themselves after another rank was found to hang: they have been idle for longer. */
#define HANG_GRACE 1.0

/* Messages of a job that a stop request ended: of a command that saves nothing, and of a run before its training. */
#define STOPPED_ON_REQUEST "stopped on request"
#define STOPPED_BEFORE_TRAINING STOPPED_ON_REQUEST " before training began; there was nothing to save"

enum launcher_message {
    MESSAGE_FAILURE,       /* of this rank, by launcher_report: code, text */
    MESSAGE_JOB_FAILURE,   /* the failure that ends the job: code, number: the rank, text */
    MESSAGE_HANG,          /* the same, of a rank that hung or whose host fell silent */
    MESSAGE_RESTART_COUNT, /* the store rejected this rank; number: the restart count of the store */
    MESSAGE_RESUMED,       /* number: the step from which this start resumes; text: the run folder */
    MESSAGE_SAVED,         /* number: the step of a complete checkpoint */
    MESSAGE_JOINED,        /* number: a rank that has joined the store and gets its reports; -1: all ranks */
    MESSAGE_LINK,          /* by launcher_send_link: number: the rank at the other end; session */
    MESSAGE_RANK_EXIT,     /* from the launcher: number: a rank of this node, text: " was killed by SIGKILL" */
    MESSAGE_TERMINATE      /* from the launcher: it will end this rank, because another has failed */
};

struct launcher_packet {
    int32_t message, code; /* enum launcher_message */
    int64_t number;
    uint8_t session[LAUNCHER_MAX_SESSION]; /* MESSAGE_LINK: a struct message_session */
    char text[LAUNCHER_MAX_TEXT];
};

/* Reports the failure of this rank (NULL: none) just before it exits. true: the launcher prints it, so this rank must
 * not. */
bool launcher_report(status failure);

/* Sends a message to the launcher. From any thread; does not block. */
void launcher_send(enum launcher_message message, int code, int64_t number, const char *text);

/* Sends a duplicate of [fd], a connection to [rank] of another node, with its authentication [session] (size): the link
 * between the launchers of both nodes. The caller must not use connection and session any more. */
void launcher_send_link(int rank, int fd, const void *session, size_t size);
bool launcher_needs_link(void); /* whether this rank must create one */

/* Receives how another rank of this node ended, in [text] (size). *rank is -1 if the launcher is about to end this rank
 * because another has failed: the SIGTERM that follows is not a request of the user. false: no message. */
bool launcher_receive_exit(int *rank, char *text, size_t size);
int launcher_exits_fd(void);    /* readable when launcher_receive_exit has a message; -1 without a launcher */
int launcher_activity_fd(void); /* for activity_map: the launcher reads it after this rank has ended; -1: none */
