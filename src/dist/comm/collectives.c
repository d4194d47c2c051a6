/* A message is posted, then waited for as a part of a set; two sets alternate where a chunk is combined while the next
 * is transferred. */
#include "dist/comm/collectives.h"

#include <stdlib.h>
#include <string.h>

#include "dist/comm/combine.h"

#define CHUNK ((size_t)256 << 10)       /* bytes of a slice that are combined at once */
#define PAIR_CHUNK ((size_t)512 << 10)  /* the same between two ranks, */
#define PAIR_PIECE ((size_t)32 << 10)   /* and of up to four of these, which MPI sends without asking the receiver */
#define CHAIN_CHUNK ((size_t)128 << 10) /* and along a chain */
#define SMALL_SLICE ((size_t)16 << 10)  /* bytes of a slice below which rounds are fewer, and bytes more */
#define PIECE ((size_t)4 << 20)         /* bytes that are exchanged in rounds at once */
#define CHAIN_SHARE ((size_t)256 << 10) /* bytes for each rank from which on a chain is faster than rounds */
#define FEW_BYTES ((size_t)64 << 10)    /* what each of few ranks sends whole, */
#define FEW_TOTAL ((size_t)256 << 10)   /* and all of them together: more bytes take longer than a second round */
#define MAX_DIRECT_RANKS 16             /* so few exchange large messages directly */
#define MAX_ROUNDS 32                   /* log2 of the number of ranks */
#define CHAIN_SLOTS 4                   /* chunks of a chain in memory */

/* A call on one lane. */
struct call {
    struct collectives *c;
    struct collectives_lane *lane;
    int number; /* of the lane */
    int rank, world;
};

static struct call begin(void *group, int lane) {
    struct collectives *c = group;
    if (c->transport->begin) c->transport->begin(c, lane);
    return (struct call){c, &c->lanes[lane], lane, c->rank, c->world};
}

/* ---- messages ---- */

/* *out: [size] bytes, valid until the next call of the lane. */
static status reserve(const struct call *c, size_t size, char **out) {
    struct collectives_lane *lane = c->lane;
    if (lane->scratch_size < size) {
        free(lane->scratch);
        lane->scratch = malloc(size);
        lane->scratch_size = lane->scratch ? size : 0;
    }
    *out = lane->scratch;
    return *out ? OK : status_memory("communication");
}

static status post_send(const struct call *c, int set, int peer, const void *data, size_t size) {
    if (!size) return OK;
    return c->c->transport->post(c->c, c->number, set, peer, (void *)(uintptr_t)data, size, true);
}

static status post_recv(const struct call *c, int set, int peer, void *data, size_t size) {
    return size ? c->c->transport->post(c->c, c->number, set, peer, data, size, false) : OK;
}

static status wait(const struct call *c, int set) { return c->c->transport->wait(c->c, c->number, set); }

static status wait_all(const struct call *c) {
    for (int set = 0; set < COLLECTIVES_SETS; set++) TRY(wait(c, set));
    return OK;
}

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

static int rank_after(const struct call *c, int steps) { return (c->rank + steps) % c->world; }

static int rank_before(const struct call *c, int steps) { return (c->rank + c->world - steps % c->world) % c->world; }

static void copy(void *to, const void *from, size_t size) {
    if (to != from && size) memmove(to, from, size);
}

/* ---- peers ---- */

static status connect_to(const struct call *c, int count) {
    const struct collectives_transport *transport = c->c->transport;
    return transport->connect ? transport->connect(c->c, c->number, c->lane->peers, count) : OK;
}

static status connect_peer(const struct call *c, int peer) {
    c->lane->peers[0] = peer;
    return connect_to(c, 1);
}

static status connect_all(const struct call *c) {
    for (int step = 1; step < c->world; step++) c->lane->peers[step - 1] = rank_after(c, step);
    return connect_to(c, c->world - 1);
}

static bool is_few(const struct call *c) { return c->world <= COLLECTIVES_FEW; }

/* Those of gather_blocks and exchange_blocks. */
static status connect_rounds(const struct call *c) {
    int count = 0;
    if (is_few(c)) return connect_all(c);
    for (int step = 1; step < c->world; step *= 2) {
        c->lane->peers[count++] = rank_after(c, step);
        if (2 * step != c->world) c->lane->peers[count++] = rank_before(c, step);
    }
    return connect_to(c, count);
}

static status connect_ring(const struct call *c) {
    c->lane->peers[0] = rank_after(c, 1);
    c->lane->peers[1] = rank_before(c, 1);
    return connect_to(c, c->world == 2 ? 1 : 2);
}

static status connect_root(const struct call *c, int root) {
    return c->rank == root ? connect_all(c) : connect_peer(c, root);
}

/* ---- rounds ---- */

/* Sets, two of each: what is received and sent, where one is waited for without the other. */
enum { FIRST, SECOND, IN = 0, OUT = 2, RESULT_IN = 4, RESULT_OUT = 6 };

/* The bytes of the blocks from [begin] on, before [end]: block i is of rank + i. sizes (world): of the blocks of each
 * rank. */
static size_t bytes_of(const struct call *c, const size_t *sizes, int begin, int end) {
    size_t bytes = 0;
    for (int i = begin; i < end; i++) bytes += sizes[rank_after(c, i)];
    return bytes;
}

/* The blocks that a round of gather_blocks adds to [have]. */
static int blocks_of_round(const struct call *c, int have) {
    int rest = c->world - have;
    return is_few(c) ? 1 : have < rest ? have : rest;
}

static size_t bytes_of_round(const struct call *c, const size_t *sizes, size_t size, int begin, int n) {
    return sizes ? bytes_of(c, sizes, begin, begin + n) : (size_t)n * size;
}

/* blocks: the data of this rank is block 0, that of rank + i is block i, and is received. Round by round each rank has
 * twice as many (Bruck's all-gather). The receives of the next round are posted before this one is waited for. sizes
 * (world): bytes of each rank; NULL: [size] each. */
static status gather_blocks(const struct call *c, char *blocks, const size_t *sizes, size_t size) {
    TRY(connect_rounds(c));
    size_t at = bytes_of_round(c, sizes, size, 0, 1), in = bytes_of_round(c, sizes, size, 1, 1);
    TRY(post_recv(c, IN, rank_after(c, 1), blocks + at, in));
    for (int have = 1, n, turn = 0; have < c->world; have += n, turn = !turn) {
        n = blocks_of_round(c, have);
        TRY(post_send(c, OUT, rank_before(c, have), blocks, bytes_of_round(c, sizes, size, 0, n)));
        at += in;
        int next = have + n;
        if (next < c->world) {
            in = bytes_of_round(c, sizes, size, next, blocks_of_round(c, next));
            TRY(post_recv(c, IN + !turn, rank_after(c, next), blocks + at, in));
        }
        if (!is_few(c)) TRY(wait(c, IN + turn));
    }
    return wait_all(c);
}

/* The blocks that exchange_blocks moves by [step] ranks: those with its bit. */
static size_t blocks_with(const struct call *c, int step) {
    size_t n = 0;
    for (int i = step; i < c->world; i++) n += (i & step) != 0;
    return n;
}

static size_t half_of(const struct call *c) { return ((size_t)c->world + 1) / 2; }

/* blocks (world, size): block i is sent to rank + i; after the call it is the one of rank - i. packed (2 for sends, 2
 * for receives, half_of, size). In the round of bit k, the blocks that have to travel further by 2^k ranks go there
 * together. */
static status exchange_blocks(const struct call *c, char *blocks, char *packed, size_t size) {
    size_t half = half_of(c) * size;
    TRY(post_recv(c, IN, rank_before(c, 1), packed + 2 * half, blocks_with(c, 1) * size));
    for (int step = 1, turn = 0; step < c->world; step *= 2, turn = !turn) {
        char *out = packed + (turn ? half : 0), *in = packed + (turn ? 3 : 2) * half;
        size_t n = 0;
        TRY(wait(c, OUT + turn));
        for (int i = step; i < c->world; i++)
            if (i & step) memcpy(out + n++ * size, blocks + (size_t)i * size, size);
        TRY(post_send(c, OUT + turn, rank_after(c, step), out, n * size));
        if (2 * step < c->world)
            TRY(post_recv(c, IN + !turn, rank_before(c, 2 * step), packed + (turn ? 2 : 3) * half,
                          blocks_with(c, 2 * step) * size));
        TRY(wait(c, IN + turn));
        for (int i = step; i < c->world; i++) {
            if (!(i & step)) continue;
            memcpy(blocks + (size_t)i * size, in, size);
            in += size;
        }
    }
    return wait_all(c);
}

/* The inputs of combine() in order of rank. */
static const void **inputs_of_blocks(const struct call *c, const char *blocks, size_t size, bool is_after) {
    for (int i = 0; i < c->world; i++)
        c->lane->inputs[is_after ? rank_after(c, i) : rank_before(c, i)] = blocks + (size_t)i * size;
    return c->lane->inputs;
}

/* [root]: the rank whose data becomes the result; the others keep theirs. */
static status reduce_small(const struct call *c, void *data, size_t count, enum comm_type type, enum comm_op op,
                           int root) {
    size_t size = count * comm_type_size(type);
    char *blocks;
    TRY(reserve(c, (size_t)c->world * size, &blocks));
    memcpy(blocks, data, size);
    TRY(gather_blocks(c, blocks, NULL, size));
    if (root == COMM_ALL || root == c->rank)
        combine(data, inputs_of_blocks(c, blocks, size, true), c->world, count, type, op);
    return OK;
}

/* Slices of equal size, those of the last ranks partly or wholly beyond the end of the data. */
static status reduce_piece(const struct call *c, char *data, size_t count, enum comm_type type, enum comm_op op) {
    size_t world = (size_t)c->world, element = comm_type_size(type), part = (count + world - 1) / world;
    size_t size = part * element, bytes = count * element;
    char *blocks;
    TRY(reserve(c, (world + 4 * half_of(c)) * size, &blocks));
    for (int i = 0; i < c->world; i++) {
        size_t at = min_size((size_t)rank_after(c, i) * size, bytes), n = min_size(size, bytes - at);
        memcpy(blocks + (size_t)i * size, data + at, n);
        memset(blocks + (size_t)i * size + n, 0, size - n);
    }
    TRY(exchange_blocks(c, blocks, blocks + world * size, size));
    combine(blocks, inputs_of_blocks(c, blocks, size, false), c->world, part, type, op);
    TRY(gather_blocks(c, blocks, NULL, size));
    for (int i = 0; i < c->world; i++) {
        size_t at = min_size((size_t)rank_after(c, i) * size, bytes);
        memcpy(data + at, blocks + (size_t)i * size, min_size(size, bytes - at));
    }
    return OK;
}

static status reduce_in_rounds(const struct call *c, char *data, size_t count, enum comm_type type, enum comm_op op) {
    size_t element = comm_type_size(type), piece = PIECE / element;
    TRY(connect_rounds(c));
    for (size_t at = 0; at < count; at += piece)
        TRY(reduce_piece(c, data + at * element, min_size(piece, count - at), type, op));
    return OK;
}

static status reduce_scatter_in_rounds(const struct call *c, const char *data, size_t count, enum comm_type type,
                                       enum comm_op op, char *out) {
    size_t world = (size_t)c->world, element = comm_type_size(type), part = PIECE / (world * element) + 1;
    char *blocks;
    if (part > count) part = count;
    TRY(reserve(c, (world + 4 * half_of(c)) * part * element, &blocks));
    TRY(connect_rounds(c));
    for (size_t at = 0; at < count; at += part) {
        size_t n = min_size(part, count - at), size = n * element;
        for (int i = 0; i < c->world; i++)
            memcpy(blocks + (size_t)i * size, data + ((size_t)rank_after(c, i) * count + at) * element, size);
        TRY(exchange_blocks(c, blocks, blocks + world * size, size));
        combine(out + at * element, inputs_of_blocks(c, blocks, size, false), c->world, n, type, op);
    }
    return OK;
}

/* ---- two ranks ---- */

/* Two ranks send each other all data: as many bytes as slices and results, in one phase. While a chunk is combined the
 * next is transferred. */
static status reduce_pair(const struct call *c, void *data, size_t count, enum comm_type type, enum comm_op op,
                          int root) {
    size_t element = comm_type_size(type), bytes = count * element;
    bool is_receiver = root == COMM_ALL || root == c->rank, is_sender = root != c->rank;
    size_t chunk = bytes <= 4 * PAIR_PIECE ? PAIR_PIECE : PAIR_CHUNK;
    char *buffers, *mine = data;
    TRY(reserve(c, 2 * chunk, &buffers));
    TRY(connect_ring(c));
    for (size_t posted = 0, at = 0; at < bytes; at += chunk) {
        for (; posted < bytes && posted <= at + chunk; posted += chunk) {
            size_t n = min_size(chunk, bytes - posted);
            int turn = (int)(posted / chunk % 2);
            if (is_receiver) TRY(post_recv(c, turn, 1 - c->rank, buffers + (size_t)turn * chunk, n));
            if (is_sender) TRY(post_send(c, turn, 1 - c->rank, mine + posted, n));
        }
        int turn = (int)(at / chunk % 2);
        TRY(wait(c, turn));
        const void *inputs[2] = {mine + at, mine + at};
        inputs[1 - c->rank] = buffers + (size_t)turn * chunk;
        if (is_receiver) combine(mine + at, inputs, 2, min_size(chunk, bytes - at) / element, type, op);
    }
    return OK;
}

/* ---- slices, direct ---- */

/* The slices of an array: slice r, of rank r, begins at element begins[r] and ends at begins[r + 1]. */
struct slices {
    const char *data;
    size_t element; /* bytes */
    size_t count, world;
    bool are_equal; /* world * count elements, count in each slice; else count elements in all */
};

static size_t slice_begin(const struct slices *s, size_t rank) {
    if (s->are_equal) return rank * s->count;
    size_t more = s->count % s->world;
    return rank * (s->count / s->world) + (rank < more ? rank : more);
}

/* *at: byte at which chunk [chunk] of the slice of [rank] begins; its size in bytes, 0: the slice ends before. */
static size_t slice_chunk(const struct slices *s, int rank, size_t chunk, size_t *at) {
    size_t begin = slice_begin(s, (size_t)rank) * s->element, end = slice_begin(s, (size_t)rank + 1) * s->element;
    *at = begin + chunk * CHUNK;
    return *at < end ? min_size(CHUNK, end - *at) : 0;
}

static status post_parts(const struct call *c, const struct slices *s, size_t chunk, char *buffers) {
    size_t at, own = slice_chunk(s, c->rank, chunk, &at), turn = chunk % 2;
    TRY(wait(c, OUT + (int)turn));
    for (int step = 1; step < c->world; step++) {
        int from = rank_before(c, step), to = rank_after(c, step);
        char *buffer = buffers + (turn * s->world + (size_t)from) * CHUNK;
        TRY(post_recv(c, IN + (int)turn, from, buffer, own));
        size_t n = slice_chunk(s, to, chunk, &at);
        TRY(post_send(c, OUT + (int)turn, to, s->data + at, n));
    }
    return OK;
}

/* Results of chunk [chunk] of the other slices, into [data]. A rank posts its messages to another in the order in which
 * that one posts their receives: the parts of two chunks, the result of a chunk, the parts of the next, ... */
static status receive_results(const struct call *c, const struct slices *s, size_t chunk, char *data) {
    size_t at;
    int set = RESULT_IN + (int)(chunk % 2);
    TRY(wait(c, set));
    for (int step = 1; step < c->world; step++) {
        int from = rank_before(c, step);
        size_t n = slice_chunk(s, from, chunk, &at);
        TRY(post_recv(c, set, from, data + at, n));
    }
    return OK;
}

/* out: this rank's result of chunk [chunk]. */
static status send_results(const struct call *c, const struct slices *s, size_t chunk, const char *out, int root) {
    size_t at, own = slice_chunk(s, c->rank, chunk, &at);
    int set = RESULT_OUT + (int)(chunk % 2);
    TRY(wait(c, set));
    for (int step = 1; step < c->world; step++) {
        int to = rank_after(c, step);
        if (root == COMM_ALL || root == to) TRY(post_send(c, set, to, out, own));
    }
    return OK;
}

/* out (own slice): the result of this rank's slice. Chunk by chunk, while the parts of the next are transferred.
 * [data]: where the results of the other slices go, on [root]; NULL: nowhere. */
static status reduce_slices(const struct call *c, const struct slices *s, enum comm_type type, enum comm_op op,
                            char *out, char *data, int root) {
    size_t longest = (slice_begin(s, 1) - slice_begin(s, 0)) * s->element, chunks = (longest + CHUNK - 1) / CHUNK;
    bool is_receiver = data && (root == COMM_ALL || root == c->rank);
    char *buffers;
    TRY(reserve(c, 2 * s->world * CHUNK, &buffers));
    TRY(connect_all(c));
    for (size_t chunk = 0; chunk < 2 && chunk < chunks; chunk++) TRY(post_parts(c, s, chunk, buffers));
    if (is_receiver && chunks) TRY(receive_results(c, s, 0, data));
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        size_t at, n = slice_chunk(s, c->rank, chunk, &at);
        TRY(wait(c, IN + (int)(chunk % 2)));
        for (int r = 0; r < c->world; r++)
            c->lane->inputs[r] = r == c->rank ? s->data + at : buffers + (chunk % 2 * s->world + (size_t)r) * CHUNK;
        char *result = out + chunk * CHUNK;
        if (n) combine(result, c->lane->inputs, c->world, n / s->element, type, op);
        if (data) TRY(send_results(c, s, chunk, result, root));
        if (chunk + 2 < chunks) TRY(post_parts(c, s, chunk + 2, buffers));
        if (is_receiver && chunk + 1 < chunks) TRY(receive_results(c, s, chunk + 1, data));
    }
    return wait_all(c);
}

/* With slices and a root: the others must keep their data, so their results are elsewhere. */
static status reduce_direct(const struct call *c, char *data, size_t count, enum comm_type type, enum comm_op op,
                            int root) {
    struct slices s = {data, comm_type_size(type), count, (size_t)c->world, false};
    size_t begin = slice_begin(&s, (size_t)c->rank), end = slice_begin(&s, (size_t)c->rank + 1);
    bool is_receiver = root == COMM_ALL || root == c->rank;
    char *kept = is_receiver ? NULL : realloc(c->lane->kept, (end - begin) * s.element + 1);
    if (!is_receiver && !kept) return status_memory("communication");
    if (kept) c->lane->kept = kept;
    return reduce_slices(c, &s, type, op, kept ? kept : data + begin * s.element, data, root);
}

/* ---- a chain ---- */

/* Chunk i passes rank r at step i + r: the rank receives the sum of the ranks before it, adds its own data, and sends
 * the sum on. The last rank has the result at step i + n - 1 and sends it to rank 0, from where it goes around; with a
 * root only there. Every rank waits only for what others do at an earlier step, so none waits for itself: a message
 * that is needed at step t was sent at t - 1, its receive was posted at t - 2, and its slot is used again at t + 2. */
struct chain {
    const struct call *call;
    char *data, *slots; /* (CHAIN_SLOTS, slot_size) */
    char *results; /* (2, slot_size), on the last rank of a reduction to another; then room for a chunk as float32 */
    size_t count, element, elements, slot_size, chunks; /* elements: of a chunk */
    enum comm_type type, wide;                          /* wide: that of the sums on their way */
    enum comm_op op;
    int root;
    bool is_last, gets_result;
    size_t lag; /* steps from a chunk's sum to its result on this rank */
};

static size_t chunk_elements(const struct chain *h, size_t chunk) {
    return min_size(h->elements, h->count - chunk * h->elements);
}

static char *chunk_data(const struct chain *h, size_t chunk) { return h->data + chunk * h->elements * h->element; }

static char *slot_of(const struct chain *h, size_t chunk) { return h->slots + chunk % CHAIN_SLOTS * h->slot_size; }

static status receive_sum(const struct chain *h, size_t chunk) {
    const struct call *c = h->call;
    if (c->rank == 0 || chunk >= h->chunks) return OK;
    size_t size = chunk_elements(h, chunk) * comm_type_size(h->wide);
    return post_recv(c, IN + (int)(chunk % 2), c->rank - 1, slot_of(h, chunk), size);
}

/* The result of a chunk, on the last rank: into the data of those that get it. */
static status send_result(const struct chain *h, size_t chunk) {
    const struct call *c = h->call;
    size_t n = chunk_elements(h, chunk);
    char *sum = slot_of(h, chunk), *result = chunk_data(h, chunk);
    int set = RESULT_OUT + (int)(chunk % 2);
    TRY(wait(c, set));
    if (!h->gets_result) result = h->results + chunk % 2 * h->slot_size;
    if (h->op == COMM_AVG) combine_divide(sum, c->world, n, h->wide);
    if (h->wide != h->type)
        combine_to_half((uint16_t *)(void *)result, (const float *)(const void *)sum, n, h->type);
    else
        memcpy(result, sum, n * h->element);
    int to = h->root == COMM_ALL ? 0 : h->root;
    return to == c->rank ? OK : post_send(c, set, to, result, n * h->element);
}

static status add_own(const struct chain *h, size_t chunk) {
    const struct call *c = h->call;
    size_t n = chunk_elements(h, chunk);
    char *sum = slot_of(h, chunk), *mine = chunk_data(h, chunk), *wide = h->results + 2 * h->slot_size;
    TRY(wait(c, IN + (int)(chunk % 2)));
    if (h->wide != h->type) {
        combine_from_half((float *)(void *)(c->rank ? wide : sum), (const uint16_t *)(const void *)mine, n, h->type);
        mine = wide;
    } else if (c->rank == 0) {
        memcpy(sum, mine, n * h->element);
    }
    const void *inputs[2] = {sum, mine};
    if (c->rank) combine(sum, inputs, 2, n, h->wide, h->op == COMM_AVG ? COMM_SUM : h->op);
    if (h->is_last) return send_result(h, chunk);
    TRY(wait(c, OUT + (int)(chunk % 2)));
    return post_send(c, OUT + (int)(chunk % 2), c->rank + 1, sum, n * comm_type_size(h->wide));
}

/* Results come from the rank before, or with a root from the last. */
static status receive_result(const struct chain *h, size_t chunk) {
    const struct call *c = h->call;
    int from = h->root == COMM_ALL ? rank_before(c, 1) : c->world - 1;
    return post_recv(c, RESULT_IN + (int)(chunk % 2), from, chunk_data(h, chunk),
                     chunk_elements(h, chunk) * h->element);
}

static status pass_result(const struct chain *h, size_t chunk) {
    const struct call *c = h->call;
    int set = RESULT_OUT + (int)(chunk % 2);
    TRY(wait(c, RESULT_IN + (int)(chunk % 2)));
    if (h->root != COMM_ALL || c->rank == c->world - 2) return OK;
    TRY(wait(c, set));
    return post_send(c, set, c->rank + 1, chunk_data(h, chunk), chunk_elements(h, chunk) * h->element);
}

static status run_chain(const struct chain *h) {
    const struct call *c = h->call;
    bool receives = h->gets_result && !h->is_last;
    for (size_t chunk = 0; chunk < 2; chunk++) TRY(receive_sum(h, chunk));
    for (size_t i = 0; i < h->chunks + (receives ? h->lag : 0); i++) {
        if (i < h->chunks) TRY(add_own(h, i));
        if (receives && i >= h->lag) TRY(pass_result(h, i - h->lag));
        TRY(receive_sum(h, i + 2)); /* the rank before sends it before the result below */
        if (receives && i + 2 >= h->lag && i + 2 - h->lag < h->chunks) TRY(receive_result(h, i + 2 - h->lag));
    }
    return wait_all(c);
}

static status reduce_chain(const struct call *c, char *data, size_t count, enum comm_type type, enum comm_op op,
                           int root) {
    bool is_half = type == COMM_BFLOAT16 || type == COMM_FLOAT16;
    struct chain h = {.call = c,
                      .data = data,
                      .count = count,
                      .element = comm_type_size(type),
                      .type = type,
                      .wide = is_half ? COMM_FLOAT32 : type,
                      .op = op,
                      .root = root,
                      .is_last = c->rank == c->world - 1,
                      .gets_result = root == COMM_ALL || root == c->rank,
                      .lag = (size_t)(root == COMM_ALL ? c->world : c->world - root),
                      .slot_size = CHAIN_CHUNK};
    h.elements = CHAIN_CHUNK / comm_type_size(h.wide);
    h.chunks = (count + h.elements - 1) / h.elements;
    TRY(reserve(c, (CHAIN_SLOTS + 3) * h.slot_size, &h.slots));
    h.results = h.slots + CHAIN_SLOTS * h.slot_size;
    TRY(connect_ring(c));
    if (root != COMM_ALL && root != c->world - 1) {
        if (h.is_last) TRY(connect_peer(c, root));
        if (root == c->rank) TRY(connect_peer(c, c->world - 1));
    }
    return run_chain(&h);
}

/* ---- reductions ---- */

status collectives_reduce(void *group, int lane, void *data, size_t count, enum comm_type type, enum comm_op op,
                          int root) {
    struct call c = begin(group, lane);
    size_t world = (size_t)c.world, bytes = count * comm_type_size(type);
    bool is_direct = world <= MAX_DIRECT_RANKS;
    bool is_small =
        bytes * world <= COLLECTIVES_SMALL || (is_few(&c) && bytes <= FEW_BYTES && bytes * world <= FEW_TOTAL);
    if (world == 2) return reduce_pair(&c, data, count, type, op, root);
    if ((root == COMM_ALL || !is_direct) && is_small) return reduce_small(&c, data, count, type, op, root);
    if (root == COMM_ALL && !is_few(&c) && bytes / world < (is_direct ? SMALL_SLICE : CHAIN_SHARE))
        return reduce_in_rounds(&c, data, count, type, op);
    return is_direct ? reduce_direct(&c, data, count, type, op, root) : reduce_chain(&c, data, count, type, op, root);
}

status collectives_reduce_scatter(void *group, int lane, const void *data, size_t count, enum comm_type type,
                                  enum comm_op op, void *out) {
    struct call c = begin(group, lane);
    struct slices s = {data, comm_type_size(type), count, (size_t)c.world, true};
    if (c.world > MAX_DIRECT_RANKS) return reduce_scatter_in_rounds(&c, data, count, type, op, out);
    return reduce_slices(&c, &s, type, op, out, NULL, COMM_ALL);
}

/* ---- data movement ---- */

static status gather_direct(const struct call *c, const void *data, const size_t *sizes, char *out, int root) {
    bool is_receiver = root == COMM_ALL || root == c->rank;
    TRY(root == COMM_ALL ? connect_all(c) : connect_root(c, root));
    for (int r = 0; is_receiver && r < c->world; out += sizes[r++]) {
        if (r == c->rank)
            copy(out, data, sizes[r]);
        else
            TRY(post_recv(c, FIRST, r, out, sizes[r]));
    }
    for (int step = 1; step < c->world; step++) {
        int to = rank_after(c, step);
        if (root == COMM_ALL || root == to) TRY(post_send(c, FIRST, to, data, sizes[c->rank]));
    }
    return wait(c, FIRST);
}

static status gather_in_rounds(const struct call *c, const void *data, const size_t *sizes, char *out, int root) {
    char *blocks, *to = out;
    TRY(reserve(c, bytes_of(c, sizes, 0, c->world) + 1, &blocks));
    copy(blocks, data, sizes[c->rank]);
    TRY(gather_blocks(c, blocks, sizes, 0));
    if (root != COMM_ALL && root != c->rank) return OK;
    const char *from = blocks + bytes_of(c, sizes, 0, (c->world - c->rank) % c->world); /* of rank 0 */
    for (int r = 0; r < c->world; from += sizes[r], to += sizes[r], r++) {
        if (r == c->rank) from = blocks;
        memcpy(to, from, sizes[r]);
    }
    return OK;
}

/* In each of n - 1 steps every rank sends the block that it got in the step before to the rank after it. */
static status gather_around(const struct call *c, const void *data, const size_t *sizes, char *out) {
    TRY(connect_ring(c));
    size_t begin = 0;
    for (int r = 0; r < c->rank; r++) begin += sizes[r];
    copy(out + begin, data, sizes[c->rank]);
    size_t sent = begin, total = begin;
    for (int r = c->rank; r < c->world; r++) total += sizes[r];
    for (int step = 1, own = c->rank; step < c->world; step++) {
        int from = rank_before(c, step);
        size_t at = (own == 0 ? total : sent) - sizes[from];
        TRY(post_recv(c, FIRST, rank_before(c, 1), out + at, sizes[from]));
        TRY(post_send(c, FIRST, rank_after(c, 1), out + sent, sizes[own]));
        TRY(wait(c, FIRST));
        own = from;
        sent = at;
    }
    return OK;
}

status collectives_gather(void *group, int lane, const void *data, const size_t *sizes, void *out, int root) {
    struct call c = begin(group, lane);
    size_t total = 0;
    for (int r = 0; r < c.world; r++) total += sizes[r];
    bool is_direct = c.world <= MAX_DIRECT_RANKS;
    if (is_few(&c) || (root != COMM_ALL && (is_direct || total > COLLECTIVES_SMALL)))
        return gather_direct(&c, data, sizes, out, root);
    if (total <= (is_direct ? COLLECTIVES_SMALL : PIECE)) return gather_in_rounds(&c, data, sizes, out, root);
    return is_direct ? gather_direct(&c, data, sizes, out, root) : gather_around(&c, data, sizes, out);
}

/* A binomial tree. */
static status broadcast_tree(const struct call *c, void *data, size_t size, int root) {
    int from_root = (c->rank + c->world - root) % c->world, step = 1, count = 0;
    while (step < c->world && !(from_root & step)) step *= 2;
    if (from_root) c->lane->peers[count++] = rank_before(c, step);
    for (int below = step / 2; below; below /= 2)
        if (from_root + below < c->world) c->lane->peers[count++] = rank_after(c, below);
    TRY(connect_to(c, count));
    if (from_root) TRY(post_recv(c, FIRST, rank_before(c, step), data, size));
    TRY(wait(c, FIRST));
    for (step /= 2; step; step /= 2)
        if (from_root + step < c->world) TRY(post_send(c, FIRST, rank_after(c, step), data, size));
    return wait(c, FIRST);
}

/* The root sends each rank a slice, which that rank sends to all others: no rank sends more than twice the data. */
static status broadcast_slices(const struct call *c, char *data, size_t size, int root) {
    struct slices s = {data, 1, size, (size_t)c->world, false};
    size_t own = slice_begin(&s, (size_t)c->rank), bytes = slice_begin(&s, (size_t)c->rank + 1) - own;
    TRY(connect_all(c));
    for (int r = 0; c->rank == root && r < c->world; r++) {
        size_t begin = slice_begin(&s, (size_t)r);
        if (r != root) TRY(post_send(c, FIRST, r, data + begin, slice_begin(&s, (size_t)r + 1) - begin));
    }
    if (c->rank != root) TRY(post_recv(c, FIRST, root, data + own, bytes));
    TRY(wait(c, FIRST));
    for (int step = 1; step < c->world; step++) {
        int from = rank_before(c, step), to = rank_after(c, step);
        size_t begin = slice_begin(&s, (size_t)from);
        if (c->rank != root) TRY(post_recv(c, FIRST, from, data + begin, slice_begin(&s, (size_t)from + 1) - begin));
        if (to != root) TRY(post_send(c, FIRST, to, data + own, bytes));
    }
    return wait(c, FIRST);
}

/* Chunk by chunk from rank to rank. */
static status broadcast_chain(const struct call *c, char *data, size_t size, int root) {
    bool is_first = c->rank == root, is_last = rank_after(c, 1) == root;
    size_t chunks = (size + CHAIN_CHUNK - 1) / CHAIN_CHUNK;
    TRY(connect_ring(c));
    for (size_t i = 0; i < chunks + 1; i++) { /* receive chunk i, send chunk i - 1 */
        size_t at = i * CHAIN_CHUNK, before = at - CHAIN_CHUNK;
        if (i < chunks && !is_first)
            TRY(post_recv(c, FIRST, rank_before(c, 1), data + at, min_size(CHAIN_CHUNK, size - at)));
        TRY(wait(c, SECOND));
        if (i && !is_last)
            TRY(post_send(c, SECOND, rank_after(c, 1), data + before, min_size(CHAIN_CHUNK, size - before)));
        TRY(wait(c, FIRST));
    }
    return wait(c, SECOND);
}

status collectives_broadcast(void *group, int lane, void *data, size_t size, int root) {
    struct call c = begin(group, lane);
    size_t small = c.world <= MAX_DIRECT_RANKS ? COLLECTIVES_SMALL : (size_t)c.world * (CHAIN_CHUNK / 4);
    if (size <= small || c.world == 2) return broadcast_tree(&c, data, size, root);
    if (c.world <= MAX_DIRECT_RANKS) return broadcast_slices(&c, data, size, root);
    return broadcast_chain(&c, data, size, root);
}

status collectives_scatter(void *group, int lane, const void *data, size_t size, void *out, int root) {
    struct call c = begin(group, lane);
    size_t total = (size_t)c.world * size;
    char *whole;
    if (c.world > MAX_DIRECT_RANKS && total <= COLLECTIVES_SMALL) {
        TRY(reserve(&c, total, &whole));
        if (c.rank == root) memcpy(whole, data, total);
        TRY(broadcast_tree(&c, whole, total, root));
        memcpy(out, whole + (size_t)c.rank * size, size);
        return OK;
    }
    TRY(connect_root(&c, root));
    for (int r = 0; r < c.world; r++) {
        const char *part = c.rank == root ? (const char *)data + (size_t)r * size : NULL;
        if (part && r == root) copy(out, part, size);
        if (part && r != root) TRY(post_send(&c, FIRST, r, part, size));
    }
    if (c.rank != root) TRY(post_recv(&c, FIRST, root, out, size));
    return wait(&c, FIRST);
}

status collectives_barrier(void *group, int lane) {
    struct call c = begin(group, lane);
    char *bytes;
    TRY(reserve(&c, (size_t)c.world, &bytes));
    bytes[0] = 0;
    return gather_blocks(&c, bytes, NULL, 1);
}

status collectives_send(void *group, int lane, const void *data, size_t size, int to) {
    struct call c = begin(group, lane);
    TRY(connect_peer(&c, to));
    TRY(post_send(&c, FIRST, to, data, size));
    return wait(&c, FIRST);
}

status collectives_recv(void *group, int lane, void *data, size_t size, int from) {
    struct call c = begin(group, lane);
    TRY(connect_peer(&c, from));
    TRY(post_recv(&c, FIRST, from, data, size));
    return wait(&c, FIRST);
}

/* ---- create and free ---- */

status collectives_create(struct collectives *c, int rank, int world, const struct collectives_transport *transport) {
    *c = (struct collectives){.rank = rank, .world = world, .transport = transport};
    for (int lane = 0; lane < COMM_LANES; lane++) {
        c->lanes[lane].inputs = calloc((size_t)world, sizeof *c->lanes[lane].inputs);
        c->lanes[lane].peers = calloc((size_t)world + MAX_ROUNDS, sizeof *c->lanes[lane].peers);
        if (c->lanes[lane].inputs && c->lanes[lane].peers) continue;
        collectives_free(c);
        return status_memory("a process group");
    }
    return OK;
}

void collectives_free(struct collectives *c) {
    for (int lane = 0; lane < COMM_LANES; lane++) {
        free(c->lanes[lane].scratch);
        free(c->lanes[lane].kept);
        free(c->lanes[lane].inputs);
        free(c->lanes[lane].peers);
        c->lanes[lane] = (struct collectives_lane){0};
    }
}
