/* A subtree is identified by its level and its first shard, a multiple of 2^level; the last subtrees may be incomplete,
 * because the number of shards ends. While shards are pushed, complete subtrees wait on a stack for their sibling, like
 * the digits of a binary counter. The remaining subtrees are exchanged in pieces, so that memory does not grow with the
 * number of ranks. */
#include "dist/shard_tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LEVELS 64
#define PIECE_FLOATS (1u << 20) /* of all ranks together, in one exchange */

struct subtree {
    int level;
    size_t first; /* shard */
};

struct stack {
    struct subtree items[2 * MAX_LEVELS];
    size_t count, max_count;
};

struct shard_tree {
    size_t shards, count;
    size_t first, own; /* this rank's shards */
    struct comm *comm;
    struct stack stack;
    float **vectors;          /* (kept): (count) of each subtree on the stack */
    size_t kept, sent, piece; /* piece: floats of a vector in one exchange */
    float *mine, *all;        /* (sent, piece); (world, sent, piece) */
    float **starts;           /* (shards) while summing: the subtree that starts there; NULL: inside of one */
    size_t pushed;
};

void shard_tree_range(size_t shards, int rank, int world_size, size_t *first, size_t *count) {
    size_t world = (size_t)world_size, r = (size_t)rank;
    *first = shards * r / world;
    *count = shards * (r + 1) / world - *first;
}

static bool are_siblings(const struct subtree *left, const struct subtree *right) {
    size_t size = (size_t)1 << left->level;
    return left->level == right->level && left->first % (2 * size) == 0 && right->first == left->first + size;
}

/* Pushes shard [first]. merge(context, i) adds vector i + 1 of the stack to vector i; NULL: nothing. */
static void push(struct stack *stack, size_t first, void (*merge)(void *, size_t), void *context) {
    stack->items[stack->count++] = (struct subtree){0, first};
    if (stack->count > stack->max_count) stack->max_count = stack->count;
    while (stack->count > 1 && are_siblings(&stack->items[stack->count - 2], &stack->items[stack->count - 1])) {
        stack->count--;
        if (merge) merge(context, stack->count - 1);
        stack->items[stack->count - 1].level++;
    }
}

static struct stack stack_of(size_t shards, int rank, int world_size) {
    struct stack stack = {.count = 0};
    size_t first, count;
    shard_tree_range(shards, rank, world_size, &first, &count);
    for (size_t i = 0; i < count; i++) push(&stack, first + i, NULL, NULL);
    return stack;
}

void shard_tree_cost(size_t shards, int world_size, size_t *kept, size_t *sent) {
    *kept = *sent = 1;
    for (int r = 0; r < world_size; r++) {
        struct stack stack = stack_of(shards, r, world_size);
        if (stack.max_count > *kept) *kept = stack.max_count;
        if (stack.count > *sent) *sent = stack.count;
    }
}

static float *new_floats(size_t count) { return calloc(count + 1, sizeof(float)); }

static status allocate(struct shard_tree *t) {
    size_t world = (size_t)comm_world_size(t->comm);
    shard_tree_cost(t->shards, (int)world, &t->kept, &t->sent);
    t->piece = PIECE_FLOATS / (world * t->sent) + 1;
    if (t->piece > t->count) t->piece = t->count;
    t->mine = new_floats(t->sent * t->piece);
    t->all = new_floats(world * t->sent * t->piece);
    t->starts = calloc(t->shards, sizeof *t->starts);
    t->vectors = calloc(t->kept, sizeof *t->vectors);
    bool is_allocated = t->mine && t->all && t->starts && t->vectors;
    for (size_t i = 0; is_allocated && i < t->kept; i++) is_allocated = (t->vectors[i] = new_floats(t->count)) != NULL;
    return is_allocated ? OK : status_memory("the sums of %zu shards", t->shards);
}

status shard_tree_create(size_t shards, size_t count, struct comm *comm, struct shard_tree **out) {
    *out = NULL;
    struct shard_tree *t = calloc(1, sizeof *t);
    if (!t) return status_memory("the sums of %zu shards", shards);
    t->shards = shards;
    t->count = count;
    t->comm = comm;
    shard_tree_range(shards, comm_rank(comm), comm_world_size(comm), &t->first, &t->own);
    status s = allocate(t);
    if (s) shard_tree_destroy(t);
    if (!s) *out = t;
    return s;
}

void shard_tree_destroy(struct shard_tree *t) {
    if (!t) return;
    for (size_t i = 0; t->vectors && i < t->kept; i++) free(t->vectors[i]);
    free(t->vectors);
    free(t->starts);
    free(t->mine);
    free(t->all);
    free(t);
}

void shard_tree_start(struct shard_tree *t) {
    t->stack.count = 0;
    t->pushed = 0;
}

float *shard_tree_leaf(struct shard_tree *t) { return t->vectors[t->stack.count]; }

static void add(float *to, const float *from, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] += from[i];
}

static void merge(void *tree, size_t at) {
    struct shard_tree *t = tree;
    add(t->vectors[at], t->vectors[at + 1], t->count);
}

void shard_tree_push(struct shard_tree *t) {
    assert(t->pushed < t->own);
    push(&t->stack, t->first + t->pushed++, merge, t);
}

/* Sets t->starts for the subtrees of all ranks, whose vectors are in t->all. */
static void set_starts(struct shard_tree *t) {
    int world = comm_world_size(t->comm);
    memset(t->starts, 0, t->shards * sizeof *t->starts);
    for (int r = 0; r < world; r++) {
        struct stack stack = stack_of(t->shards, r, world);
        for (size_t i = 0; i < stack.count; i++)
            t->starts[stack.items[i].first] = t->all + ((size_t)r * t->sent + i) * t->piece;
    }
}

/* Adds siblings, the smallest first; a subtree already contains the sums of the smaller steps. */
static float *sum_piece(struct shard_tree *t, size_t count) {
    set_starts(t);
    for (size_t step = 1; step < t->shards; step *= 2)
        for (size_t i = 0; i + step < t->shards; i += 2 * step)
            if (t->starts[i + step]) add(t->starts[i], t->starts[i + step], count);
    return t->starts[0];
}

status shard_tree_finish(struct shard_tree *t, const float **sum) {
    assert(t->pushed == t->own);
    *sum = t->vectors[0];
    if (comm_world_size(t->comm) == 1 && t->stack.count == 1) return OK;
    for (size_t begin = 0; begin < t->count; begin += t->piece) {
        size_t count = t->count - begin < t->piece ? t->count - begin : t->piece;
        for (size_t i = 0; i < t->stack.count; i++)
            memcpy(t->mine + i * t->piece, t->vectors[i] + begin, count * sizeof(float));
        TRY(comm_all_gather(t->comm, t->mine, t->sent * t->piece, COMM_FLOAT32, t->all));
        memcpy(t->vectors[0] + begin, sum_piece(t, count), count * sizeof(float));
    }
    return OK;
}

void shard_tree_sum(double *values, size_t shards, size_t width) {
    for (size_t step = 1; step < shards; step *= 2)
        for (size_t i = 0; i + step < shards; i += 2 * step)
            for (size_t w = 0; w < width; w++) values[i * width + w] += values[(i + step) * width + w];
}
