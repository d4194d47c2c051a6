/* launcher_channel: a rank's side of the two sockets to its launcher, and the packets that travel on them. A process
 * that ddptrain did not start has no launcher: nothing is sent then, and nothing arrives. */
#ifndef DIST_LAUNCHER_CHANNEL_H
#define DIST_LAUNCHER_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LAUNCHER_MAX_SENTENCE 2048
#define LAUNCHER_MAX_SESSION 96

/* Seconds for ranks to end by themselves after another was given up because nothing had moved for much longer. */
#define STANDSTILL_GRACE 1.0

enum launcher_message {
    MESSAGE_FAILURE,     /* launcher_report's */
    MESSAGE_NEWS,        /* the failure that ends the job: code, number: the rank, sentence */
    MESSAGE_STANDSTILL,  /* the same: the rank was silent or hung */
    MESSAGE_INCARNATION, /* number: the incarnation of the store, which rejected this rank */
    MESSAGE_RESUMED,     /* number: the step from which this start resumes; sentence: the run folder */
    MESSAGE_SAVED,       /* number: the step of a complete checkpoint */
    MESSAGE_JOINED, /* number: this rank has joined the store; rank 0: a rank that hears what happens to it; -1: all */
    MESSAGE_LINK,   /* launcher_send_link's; number: the rank at the other end */
    MESSAGE_DEATH,  /* from the launcher: number: a rank of this node, sentence: " was killed by SIGKILL" */
    MESSAGE_END     /* from the launcher: it ends this rank, because another has failed */
};

struct launcher_packet {
    int32_t message, code; /* enum launcher_message */
    int64_t number;
    uint8_t session[LAUNCHER_MAX_SESSION]; /* of a link */
    char sentence[LAUNCHER_MAX_SENTENCE];
};

/* Just before this rank exits: reports the failure (NULL: none). true: the launcher has it and prints it, so this rank
 * should not. */
bool launcher_report(status failure);

/* While the rank runs; from any thread. */
void launcher_send(enum launcher_message message, int code, int64_t number, const char *sentence);

/* Sends a duplicate of [fd], a connection to [rank] of another node, with its authentication [session] (size), which
 * must not be used here any more: the link between launchers. */
void launcher_send_link(int rank, int fd, const void *session, size_t size);
bool launcher_wants_link(void); /* whether this rank should make one */

/* How another rank of this node died; *rank is -1 when the launcher ends this rank because another has failed: the
 * SIGTERM that follows is no request of a user. false: nothing now. */
bool launcher_receive_death(int *rank, char *fate, size_t size);
int launcher_news_fd(void);  /* readable when there is something; -1 without a launcher */
int launcher_pulse_fd(void); /* for pulse_map: the launcher reads it when this rank has died; -1: none */

#endif
