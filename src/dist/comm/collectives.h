/* collectives: every collective made of messages between two ranks, for backends that can only send and receive (Gloo's
 * connections, MPI's messages). The same code for each of them, so results have the same bits: every element is
 * combined in order of rank (combine.h), whatever the size, the number of ranks and the way of the messages.
 *
 * The way depends on bytes and ranks n; "direct" is a message from every rank to every other:
 *
 *     small data (128 KiB of all ranks together; of few    few ranks direct, else each rank gets the data of all in
 *     ranks 256 KiB, and 64 KiB of each)                   log2(n) rounds (Bruck's all-gather), and combines it
 *     up to 16 ranks                                       direct: each rank combines one slice, and sends the result
 *     more ranks, up to CHAIN_SHARE bytes for each rank    the same slices in 2 log2(n) rounds, piece by piece
 *     more bytes                                           a chain in order of rank: rank 0 sends chunks to 1, which
 *                                                          adds its own and sends the sum to 2, ...; the results go
 *                                                          around. Each rank sends twice the data
 *
 * So with more than 16 ranks each has at most 2 log2(n) peers (the root of a large gather or scatter has all others),
 * and the scratch memory of a lane is at most about 12 MiB for any n. 16-bit floats travel along the chain as float32.
 */
#pragma once

#include "dist/comm/comm_backend.h"

#define COLLECTIVES_SETS 8                    /* of messages: what is waited for together */
#define COLLECTIVES_SMALL ((size_t)128 << 10) /* bytes of all ranks together that each rank may get whole */
#define COLLECTIVES_FEW 8                     /* ranks that send each other small data in one round */

/* How messages travel. Messages of a lane from one rank to another arrive in order. */
struct collectives_transport {
    /* A call begins on [lane]: its deadline. */
    void (*begin)(void *group, int lane);
    /* Connects to [peers] (count), which do the same for this rank in this call. NULL: there is nothing to do */
    status (*connect)(void *group, int lane, const int *peers, int count);
    /* Begins to send or to receive [size] > 0 bytes, as a part of [set]; does not wait for the peer. */
    status (*post)(void *group, int lane, int set, int peer, void *data, size_t size, bool is_send);
    /* Waits until all messages of [set] are complete. */
    status (*wait)(void *group, int lane, int set);
};

/* The first member of a backend's group, which is passed to the functions of the transport. */
struct collectives {
    int rank, world;
    const struct collectives_transport *transport;
    struct collectives_lane {
        char *scratch;
        size_t scratch_size; /* bytes: the most that a call has needed */
        char *kept;          /* the result of a slice on a rank whose data must not change */
        const void **inputs; /* (world) */
        int *peers;          /* those of a call */
    } lanes[COMM_LANES];
};

status collectives_create(struct collectives *c, int rank, int world, const struct collectives_transport *transport);
void collectives_free(struct collectives *c); /* what it owns */

/* The functions of struct comm_backend. [group]: begins with a struct collectives. */
status collectives_reduce(void *group, int lane, void *data, size_t count, enum comm_type type, enum comm_op op,
                          int root);
status collectives_reduce_scatter(void *group, int lane, const void *data, size_t count, enum comm_type type,
                                  enum comm_op op, void *out);
status collectives_gather(void *group, int lane, const void *data, const size_t *sizes, void *out, int root);
status collectives_scatter(void *group, int lane, const void *data, size_t size, void *out, int root);
status collectives_broadcast(void *group, int lane, void *data, size_t size, int root);
status collectives_barrier(void *group, int lane);
status collectives_send(void *group, int lane, const void *data, size_t size, int to);
status collectives_recv(void *group, int lane, void *data, size_t size, int from);
