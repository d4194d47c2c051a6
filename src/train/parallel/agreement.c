/* Hashes h of W ranks are equal exactly if W sum(h^2) = sum(h)^2 (Cauchy-Schwarz). They are compared in pieces of 18
 * bits, for which the sums are exact. Only after a difference is the state hashed tensor by tensor. */
#include "train/parallel/agreement.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/digest.h"
#include "base/scoped.h"

#define PIECES (AGREEMENT_NUMBERS / 2)
#define PIECE_BITS 18
#define HOST_SIZE 64

static uint64_t add_floats(uint64_t hash, const float *values, size_t count) {
    return hash_add(hash, values, count * sizeof *values);
}

uint64_t agreement_hash(const struct state *state, bool with_buffers) {
    const struct params *params = &state->model->params, *buffers = &state->model->buffers;
    const struct counters *c = &state->counters;
    int64_t counts[] = {c->epoch, c->batch, c->step, c->samples};
    uint64_t hash = hash_add(0, counts, sizeof counts);
    size_t whole = params->own ? params->total - params->trained : params->total; /* the frozen ones come first */
    hash = add_floats(hash, params->values, whole);
    for (size_t i = 0; !state->optimizer->shard && i < state->optimizer->buffer_count; i++)
        hash = add_floats(hash, state->optimizer->buffers[i], state->optimizer->buffer_floats[i]);
    const struct lbfgs *lbfgs = state->optimizer->lbfgs;
    for (size_t i = 0; lbfgs && i < LBFGS_VECTORS; i++) {
        struct lbfgs_vectors v = lbfgs_vectors(lbfgs, i);
        hash = add_floats(hash, v.values, v.count * lbfgs->size);
    }
    if (lbfgs) hash = hash_add(hash, lbfgs->numbers, lbfgs->number_count * sizeof *lbfgs->numbers);
    if (state->ema && !params->own) hash = add_floats(hash, state->ema->values, params->total);
    return with_buffers ? add_floats(hash, buffers->values, buffers->total) : hash;
}

static uint64_t piece_of(uint64_t hash, int piece) { return hash >> (PIECE_BITS * piece) & ((1u << PIECE_BITS) - 1); }

void agreement_put(uint64_t hash, double *numbers) {
    for (int i = 0; i < PIECES; i++) {
        double piece = (double)piece_of(hash, i);
        numbers[2 * i] = piece;
        numbers[2 * i + 1] = piece * piece;
    }
}

bool agreement_is_equal(const double *sums, int world_size) {
    for (int i = 0; i < PIECES; i++) {
        uint64_t sum = (uint64_t)sums[2 * i], squares = (uint64_t)sums[2 * i + 1];
        if ((uint64_t)world_size * squares != sum * sum) return false;
    }
    return true;
}

/* ---- which rank, in what ---- */

struct rank_hash {
    uint64_t hash;
    char host[HOST_SIZE];
};

/* Optimizer state that is sharded over the ranks has no data here. */
static bool is_tensor(const struct entry *e) { return e->type == ENTRY_FLOAT32 && e->data; }

static size_t elements_of(const struct entry *e) {
    size_t count = 1;
    for (int d = 0; d < e->dims; d++) count *= (size_t)e->shape[d];
    return count;
}

/* *hash: that of more than half of the ranks; false: there is none. */
static bool find_majority(const struct rank_hash *hashes_of_ranks, int world, uint64_t *hash) {
    for (int r = 0; r < world; r++) {
        int count = 0;
        for (int other = 0; other < world; other++) count += hashes_of_ranks[other].hash == hashes_of_ranks[r].hash;
        *hash = hashes_of_ranks[r].hash;
        if (2 * count > world) return true;
    }
    return false;
}

/* " in 0.weight and 2 more tensors": where the hashes of two ranks differ. hashes (count) of each. */
static void add_tensors(const struct state *state, const uint64_t *a, const uint64_t *b, struct text *out) {
    size_t found = 0;
    for (size_t i = 0; i < state->entry_count; i++) {
        const char *path = state->entries[i].path;
        if (a[i] == b[i] || found++) continue;
        text_printf(out, " in %s", strncmp(path, "model/", 6) == 0 ? path + 6 : path);
    }
    if (found > 1) text_printf(out, " and %zu more tensor%s", found - 1, text_plural(found - 1, "s"));
    if (found == 0) text_add(out, " in the counters or between the tensors");
}

/* hashes (world, entry_count) */
static status describe(const struct state *state, const struct rank_hash *hashes_of_ranks, const uint64_t *hashes,
                       int world) {
    const struct counters *c = &state->counters;
    SCOPED_TEXT out = {0};
    uint64_t majority;
    bool has_majority = find_majority(hashes_of_ranks, world, &majority);
    int reference = 0;
    while (has_majority && hashes_of_ranks[reference].hash != majority) reference++;
    text_printf(&out, "the states of the ranks differ after epoch %lld, step %lld: ", (long long)c->epoch,
                (long long)c->step);
    bool is_first = true;
    for (int r = 0; r < world; r++) {
        if (hashes_of_ranks[r].hash == hashes_of_ranks[reference].hash) continue;
        text_printf(&out, "%srank %d (host %s) differs", is_first ? "" : "; ", r, hashes_of_ranks[r].host);
        add_tensors(state, hashes + (size_t)reference * state->entry_count, hashes + (size_t)r * state->entry_count,
                    &out);
        if (!has_majority) text_printf(&out, " from rank %d (host %s)", reference, hashes_of_ranks[reference].host);
        is_first = false;
    }
    return status_new(STATUS_DIVERGED,
                      "%s. Memory, a processor or the program failed%s; nothing was saved after it, so the same "
                      "command continues from the newest checkpoint",
                      text_string(&out), has_majority ? "" : "; it is unknown on which of them");
}

static status explain(const struct state *state, bool with_buffers, const struct rank_hash *hashes_of_ranks,
                      struct comm *comm) {
    const struct params *buffers = &state->model->buffers;
    size_t count = state->entry_count, world = (size_t)comm_world_size(comm);
    uint64_t *own = calloc(count * (world + 1), sizeof *own), *all = own ? own + count : NULL;
    if (!own) return status_memory("the hashes of the ranks");
    for (size_t i = 0; i < count; i++) {
        const struct entry *e = &state->entries[i];
        const float *data = e->data;
        bool is_buffer = is_tensor(e) && data >= buffers->values && data < buffers->values + buffers->total;
        if (is_tensor(e) && (with_buffers || !is_buffer)) own[i] = add_floats(0, data, elements_of(e));
    }
    status s = comm_all_gather(comm, own, count, COMM_INT64, all);
    if (!s) s = describe(state, hashes_of_ranks, all, (int)world);
    free(own);
    return s;
}

status agreement_check(const struct state *state, bool with_buffers, struct comm *comm) {
    size_t world = (size_t)comm_world_size(comm);
    if (world == 1) return OK;
    struct rank_hash own = {.hash = agreement_hash(state, with_buffers)}, *all = calloc(world, sizeof *all);
    if (!all) return status_memory("the hashes of the ranks");
    gethostname(own.host, sizeof own.host - 1);
    status s = comm_all_gather(comm, &own, sizeof own, COMM_UINT8, all);
    bool is_equal = true;
    for (size_t r = 1; r < world; r++) is_equal = is_equal && all[r].hash == all[0].hash;
    if (!s && !is_equal) s = explain(state, with_buffers, all, comm);
    free(all);
    return s;
}

void agreement_fault(const struct fault_flip *flip, const struct state *state, int rank) {
    if (!flip->is_set || flip->part != FLIP_STATE || flip->rank != rank || flip->step != state->counters.step) return;
    uint64_t bits = 0, bit = flip->bit;
    for (size_t i = 0; i < state->entry_count; i++)
        if (is_tensor(&state->entries[i])) bits += 32 * (uint64_t)elements_of(&state->entries[i]);
    if (bits == 0) return;
    bit %= bits;
    for (size_t i = 0; i < state->entry_count; i++) {
        if (!is_tensor(&state->entries[i])) continue;
        uint64_t size = 32 * (uint64_t)elements_of(&state->entries[i]);
        if (bit < size) {
            ((uint8_t *)state->entries[i].data)[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            return;
        }
        bit -= size;
    }
}
