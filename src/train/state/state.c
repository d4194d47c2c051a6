/* The same list of entries is used to save, load and compare a state. */
#include "train/state/state.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/scoped.h"
#include "device/cpu/parallel.h"
#include "train/state/data_entries.h"

#define FINGERPRINT "data/fingerprint"
#define SAMPLER "data/sampler"
#define MAX_OTHER_ENTRIES 40           /* counters, the scaler and texts */
#define MAX_COUNTER ((int64_t)1 << 53) /* exact as a double, too */

static void add(struct state *state, struct entry entry) {
    assert(state->entry_count < state->max_entries);
    state->entries[state->entry_count++] = entry;
}

static struct entry tensor(struct arena *arena, const char *group, const struct param *p, float *data) {
    struct entry e = {
        .path = arena_printf(arena, "%s/%s", group, p->name), .type = ENTRY_FLOAT32, .dims = p->dims, .data = data};
    memcpy(e.shape, p->shape, (size_t)p->dims * sizeof *e.shape);
    return e;
}

/* Adds an entry for each parameter; returns the index of the first. */
static size_t add_tensors(struct state *state, const struct params *params, const char *group) {
    size_t first = state->entry_count;
    for (size_t i = 0; i < params->count; i++) add(state, tensor(state->arena, group, &params->items[i], NULL));
    return first;
}

static const char *optimizer_group(const struct state *state, size_t index) {
    return arena_printf(state->arena, "optimizer/%s", state->optimizer->buffer_names[index]);
}

/* Frozen parameters have no optimizer state. */
static void add_optimizer(struct state *state, size_t index) {
    const struct params *params = &state->model->params;
    const char *group = optimizer_group(state, index);
    state->optimizer_first[index] = state->entry_count;
    for (size_t i = 0; i < params->count; i++) {
        struct entry e = tensor(state->arena, group, &params->items[i], NULL);
        if (!params->items[i].is_frozen && optimizer_state_shape(state->optimizer, index, &params->items[i], e.shape))
            add(state, e);
    }
}

/* The state of lbfgs: vectors over all trained parameters with the gaps between them, and numbers. */
static void add_lbfgs(struct state *state) {
    const struct lbfgs *o = state->optimizer->lbfgs;
    for (size_t i = 0; o && i < LBFGS_VECTORS; i++) {
        struct lbfgs_vectors v = lbfgs_vectors(o, i);
        add(state, (struct entry){.path = arena_printf(state->arena, "optimizer/lbfgs/%s", v.name),
                                  .type = ENTRY_FLOAT32,
                                  .dims = 2,
                                  .shape = {(int64_t)v.count, (int64_t)o->size},
                                  .data = v.values});
    }
    if (o)
        add(state, (struct entry){.path = "optimizer/lbfgs/numbers",
                                  .type = ENTRY_FLOAT64,
                                  .dims = 1,
                                  .shape = {(int64_t)o->number_count},
                                  .data = o->numbers});
}

#define MAX_COUNTERS 32

/* The entries of [c]; returns their number. */
static size_t list_counters(struct counters *c, struct entry entries[MAX_COUNTERS]) {
    const struct {
        const char *path;
        enum entry_type type;
        void *value;
        bool is_newer; /* checkpoints of early versions do not have it */
    } counters[] = {{"state/epoch", ENTRY_INT64, &c->epoch, false},
                    {"state/batch", ENTRY_INT64, &c->batch, false},
                    {"state/step", ENTRY_INT64, &c->step, false},
                    {"state/samples", ENTRY_INT64, &c->samples, false},
                    {"state/skipped", ENTRY_INT64, &c->skipped, true},
                    {"state/skipped_in_row", ENTRY_INT64, &c->skipped_in_row, true},
                    {"state/world_size", ENTRY_INT64, &c->world_size, false},
                    {"state/metrics_bytes", ENTRY_INT64, &c->metrics_bytes, false},
                    {"state/ledger_bytes", ENTRY_INT64, &c->ledger_bytes, true},
                    {"state/pending_end", ENTRY_INT64, &c->pending_end, true},
                    {"state/best_epoch", ENTRY_INT64, &c->best_epoch, false},
                    {"state/early_stop_wait", ENTRY_INT64, &c->early_stop_wait, true},
                    {"state/plateau_bad_epochs", ENTRY_INT64, &c->plateau.bad_epochs, true},
                    {"state/plateau_cooldown", ENTRY_INT64, &c->plateau.cooldown, true},
                    {"state/plateau_reductions", ENTRY_INT64, &c->plateau.reductions, true},
                    {"state/loss_scale_growth_tracker", ENTRY_INT64, &c->loss_scale.growth_tracker, true},
                    {"state/epoch_loss", ENTRY_FLOAT64, &c->epoch_loss, false},
                    {"state/epoch_count", ENTRY_FLOAT64, &c->epoch_count, false},
                    {"state/epoch_correct", ENTRY_FLOAT64, &c->epoch_correct, false},
                    {"state/epoch_scored", ENTRY_FLOAT64, &c->epoch_scored, true},
                    {"state/epoch_samples", ENTRY_FLOAT64, &c->epoch_samples, false},
                    {"state/epoch_seconds", ENTRY_FLOAT64, &c->epoch_seconds, false},
                    {"state/seconds", ENTRY_FLOAT64, &c->seconds, false},
                    {"state/best_value", ENTRY_FLOAT64, &c->best_value, false},
                    {"state/early_stop_best", ENTRY_FLOAT64, &c->early_stop_best, true},
                    {"state/plateau_best", ENTRY_FLOAT64, &c->plateau.best, true},
                    {"state/loss_scale", ENTRY_FLOAT64, &c->loss_scale.scale, true}};
    const size_t count = sizeof counters / sizeof *counters;
    _Static_assert(sizeof counters / sizeof *counters <= MAX_COUNTERS, "more counters than entries");
    for (size_t i = 0; i < count; i++)
        entries[i] = (struct entry){.path = counters[i].path,
                                    .type = counters[i].type,
                                    .data = counters[i].value,
                                    .is_optional = counters[i].is_newer};
    return count;
}

static void add_counters(struct state *state) {
    struct entry entries[MAX_COUNTERS];
    state->counters_first = state->entry_count;
    state->counter_count = list_counters(&state->counters, entries);
    for (size_t i = 0; i < state->counter_count; i++) add(state, entries[i]);
}

static struct counters no_counters(void) {
    return (struct counters){.best_value = NAN, .early_stop_best = NAN, .plateau.best = NAN};
}

status state_read_counters(struct checkpoint *checkpoint, struct counters *out) {
    struct entry entries[MAX_COUNTERS];
    *out = no_counters();
    return checkpoint_read(checkpoint, entries, list_counters(out, entries), NULL);
}

/* As add, but state_load reads the entry into [loaded] and does not overwrite the state. */
static void add_constant(struct state *state, struct entry entry, void *loaded) {
    add(state, entry);
    state->loaded[state->entry_count - 1] = loaded;
}

/* A text of the checkpoint; text NULL: there is none. */
struct state_text {
    const char *path, *text;
    bool is_optional; /* checkpoints of early versions do not have it */
};

static void add_texts(struct state *state, const struct state_text *texts, size_t count) {
    state->loaded_texts = arena_alloc(state->arena, count * sizeof *state->loaded_texts);
    for (size_t i = 0; i < count; i++)
        if (texts[i].text)
            add_constant(state,
                         (struct entry){.path = texts[i].path,
                                        .type = ENTRY_TEXT,
                                        .data = (void *)(uintptr_t)texts[i].text,
                                        .is_optional = texts[i].is_optional},
                         &state->loaded_texts[state->text_count++]);
}

/* What the dataset and the config are, as texts. */
static void add_dataset(struct state *state, const struct dataset *dataset, const char *config_text,
                        const char *sampler) {
    struct arena *arena = state->arena;
    const char *vocabulary = dataset_vocabulary(dataset), *tokenizer = dataset_tokenizer(dataset);
    struct input_layout layout = dataset_input_layout(dataset);
    const struct target_scale *target_scale = dataset_info(dataset)->target_scale;
    const struct real_list *class_weights = &dataset_info(dataset)->class_weights;
    state->fingerprint = arena_copy(arena, dataset_info(dataset)->fingerprint);
    state->sampler = sampler ? arena_copy(arena, sampler) : NULL;
    state->labels = dataset_labels(dataset);
    state->columns = dataset_columns(dataset);
    state->preparation = dataset_preparation(dataset);
    const struct state_text texts[] = {
        {FINGERPRINT, state->fingerprint, false},
        {SAMPLER, state->sampler, true},
        {"data/vocabulary", vocabulary ? arena_copy(arena, vocabulary) : NULL, false},
        {"data/tokenizer", tokenizer ? arena_copy(arena, tokenizer) : NULL, true},
        {"data/inputs", input_layout_write(arena, &layout), true},
        {"data/labels", state->labels.count ? labels_write(arena, &state->labels) : NULL, true},
        {"data/columns", state->columns.count ? column_names_write(arena, &state->columns) : NULL, true},
        {"data/preparation", state->preparation ? preparation_write(arena, state->preparation) : NULL, true},
        {"data/target_scale", target_scale ? target_scale_write(arena, target_scale) : NULL, true},
        {"data/class_weights", class_weights->count ? class_weights_write(arena, class_weights) : NULL, true},
        {"config", arena_copy(arena, config_text), false}};
    add_texts(state, texts, sizeof texts / sizeof *texts);
}

/* The scaler is saved for inference; a resume fits it again to the same rows. */
static void add_scaler(struct state *state, const struct dataset *dataset) {
    const double *mean, *scale;
    size_t features;
    dataset_scaler(dataset, &mean, &scale, &features);
    if (features == 0) return;
    const double *values[] = {mean, scale};
    static const char *const paths[] = {"scaler/mean", "scaler/scale"};
    for (int i = 0; i < 2; i++) {
        double *copy = arena_alloc(state->arena, features * sizeof *copy);
        memcpy(copy, values[i], features * sizeof *copy);
        add_constant(
            state,
            (struct entry){
                .path = paths[i], .type = ENTRY_FLOAT64, .dims = 1, .shape = {(int64_t)features}, .data = copy},
            arena_alloc(state->arena, features * sizeof *copy));
    }
}

static void set_data(struct entry *entry, const struct params *params, float *flat) {
    for (size_t i = 0; i < params->count; i++) entry[i].data = flat ? flat + params->items[i].offset : NULL;
}

void state_set_params(struct state *state, float *full) {
    state->params_full = full;
    set_data(state->entries, &state->model->params, full);
}

void state_set_ema(struct state *state, float *full) {
    if (!state->ema) return;
    state->ema_full = full;
    set_data(state->entries + state->ema_first, &state->model->params, full);
}

status state_map(struct state *state) {
    struct optimizer *o = state->optimizer;
    struct model *model = state->model;
    TRY(model_map(model));
    for (size_t i = 0; i < o->buffer_count; i++) TRY(device_map(o->device, (void **)&o->buffers[i]));
    if (state->ema) TRY(device_map(state->ema->device, (void **)&state->ema->values));
    if (!model->params.own) state_set_params(state, model->params.values);
    set_data(state->entries + state->buffers_first, &model->buffers, model->buffers.values);
    for (size_t i = 0; i < o->buffer_count && !o->shard; i++) state_set_optimizer(state, i, o->buffers[i]);
    if (state->ema && !model->params.own) state_set_ema(state, state->ema->values);
    return OK;
}

status state_unmap(struct state *state, bool has_changed) {
    struct optimizer *o = state->optimizer;
    TRY(model_unmap(state->model, has_changed));
    for (size_t i = 0; i < o->buffer_count; i++) TRY(device_unmap(o->device, (void **)&o->buffers[i], has_changed));
    return state->ema ? device_unmap(state->ema->device, (void **)&state->ema->values, has_changed) : OK;
}

/* Parameters, their average and vectors of the optimizer, which only updates change. */
static void mark_steady(struct state *s) {
    for (size_t i = 0; i < s->counters_first; i++) {
        bool is_buffer = i >= s->buffers_first && i < s->buffers_first + s->model->buffers.count;
        s->is_steady[i] = !is_buffer && s->entries[i].type == ENTRY_FLOAT32;
    }
    for (size_t i = 0; i < s->counter_count; i++) /* save_hash sets it */
        if (s->entries[s->counters_first + i].data == &s->counters.ledger_bytes)
            s->is_steady[s->counters_first + i] = true;
}

status state_create(struct model *model, struct optimizer *optimizer, struct ema *ema, const struct dataset *dataset,
                    const char *config_text, const char *sampler, struct state **out) {
    struct arena *arena = arena_create();
    struct state *s = arena_alloc(arena, sizeof *s);
    s->arena = arena;
    s->model = model;
    s->optimizer = optimizer;
    s->ema = ema;
    s->counters = no_counters();
    s->max_entries = model->params.count * (2 + OPTIMIZER_MAX_BUFFERS) + model->buffers.count + MAX_OTHER_ENTRIES;
    s->entries = arena_alloc(arena, s->max_entries * sizeof *s->entries);
    s->loaded = arena_alloc(arena, s->max_entries * sizeof *s->loaded);
    s->is_steady = arena_alloc(arena, s->max_entries * sizeof *s->is_steady);
    add_tensors(s, &model->params, "model");
    s->buffers_first = add_tensors(s, &model->buffers, "model");
    for (size_t i = 0; i < optimizer->buffer_count; i++) add_optimizer(s, i);
    add_lbfgs(s);
    if (ema) s->ema_first = add_tensors(s, &model->params, "ema");
    add_counters(s);
    if (dataset) add_scaler(s, dataset);
    if (dataset) add_dataset(s, dataset, config_text, sampler);
    mark_steady(s);
    *out = s;
    return OK;
}

static void free_loaded(struct state *state) {
    for (size_t i = 0; i < state->text_count; i++) {
        free(state->loaded_texts[i]);
        state->loaded_texts[i] = NULL;
    }
}

void state_destroy(struct state *state) {
    if (!state) return;
    free_loaded(state);
    arena_destroy(state->arena);
}

void state_set_optimizer(struct state *state, size_t index, float *full) {
    const struct params *params = &state->model->params;
    state->optimizer_full[index] = full;
    struct entry *entry = &state->entries[state->optimizer_first[index]];
    for (size_t i = 0, at = 0; i < params->count; i++) {
        int64_t shape[MAX_DIMS];
        if (params->items[i].is_frozen) continue;
        size_t count = optimizer_state_shape(state->optimizer, index, &params->items[i], shape);
        if (count) entry++->data = full ? full + at : NULL;
        at += params_padded(count);
    }
}

/* Adds optional entries for optimizer state of parameters that are frozen now, so that a file with them is accepted;
 * their data is not used. */
static size_t add_unused(struct state *state, struct entry *entries) {
    const struct params *params = &state->model->params;
    size_t count = 0;
    for (size_t b = 0; b < state->optimizer->buffer_count; b++)
        for (size_t i = 0; i < params->count; i++) {
            if (!params->items[i].is_frozen) continue;
            struct entry e = tensor(state->arena, optimizer_group(state, b), &params->items[i], NULL);
            size_t elements = optimizer_state_shape(state->optimizer, b, &params->items[i], e.shape);
            if (!elements) continue;
            e.data = arena_alloc(state->arena, elements * sizeof(float));
            e.is_optional = true;
            entries[count++] = e;
        }
    return count;
}

/* The entries for checkpoint_read: texts and scaler are read into their own memory. */
static struct entry *entries_for_loading(struct state *state, size_t *count) {
    size_t max = state->entry_count + state->optimizer->buffer_count * state->model->params.count;
    struct entry *entries = arena_alloc(state->arena, max * sizeof *entries);
    memcpy(entries, state->entries, state->entry_count * sizeof *entries);
    *count = state->entry_count + add_unused(state, entries + state->entry_count);
    for (size_t i = 0; i < state->entry_count; i++)
        if (state->loaded[i]) entries[i].data = state->loaded[i];
    return entries;
}

static status check_fingerprint(const struct state *state, struct checkpoint *checkpoint, const char *path,
                                const char *otherwise) {
    SCOPED_STRING before = NULL;
    const char *now = state->fingerprint;
    struct entry entry = {.path = FINGERPRINT, .type = ENTRY_TEXT, .data = &before};
    TRY(checkpoint_read(checkpoint, &entry, 1, NULL));
    status s = OK;
    if (strcmp(before, now) != 0)
        s = status_new(
            STATUS_DATA,
            "%s: it was trained on other data (fingerprint %.12s..., now %.12s...); use the same dataset, or %s", path,
            before, now, otherwise);
    return s;
}

/* The rows of sampler.path must be those of the epochs before, whatever their file is called. */
static status check_sampler(const struct state *state, struct checkpoint *checkpoint, const char *path,
                            const char *otherwise) {
    SCOPED_STRING before = NULL;
    if (!state->sampler) return OK;
    TRY(checkpoint_read(checkpoint, &(struct entry){.path = SAMPLER, .type = ENTRY_TEXT, .data = &before}, 1, NULL));
    status s = OK;
    if (strcmp(before, state->sampler) != 0)
        s = status_data(
            "%s: its sampler.path had other rows (SHA-256 %.12s..., now %.12s...); use the same file, or %s", path,
            before, state->sampler, otherwise);
    return s;
}

/* Before check_fingerprint, whose message is less specific. */
static status check_columns(const struct state *state, struct checkpoint *checkpoint, const char *path,
                            const char *otherwise) {
    SCOPED_ARENA arena = arena_create();
    struct column_list trained;
    TRY(status_prefix(column_names_read(arena, checkpoint, &trained), "%s", path));
    return column_names_compare(&trained, &state->columns, path, otherwise);
}

/* The fingerprint has the numbers of the classes, not their labels. */
static status check_labels(const struct state *state, struct checkpoint *checkpoint, const char *path,
                           const char *otherwise) {
    SCOPED_ARENA arena = arena_create();
    struct string_list trained;
    TRY(status_prefix(labels_load(arena, checkpoint, &trained), "%s", path));
    return labels_compare(&trained, &state->labels, path, otherwise);
}

/* Counters are used as sizes and positions, so each must be in a valid range. */
static status check_counters(const struct state *state, struct checkpoint *checkpoint, const char *path) {
    for (size_t i = 0; i < state->counter_count; i++) {
        const struct entry *counter = &state->entries[state->counters_first + i];
        if (counter->type != ENTRY_INT64) continue;
        int64_t value = 0;
        struct entry entry = {
            .path = counter->path, .type = ENTRY_INT64, .data = &value, .is_optional = counter->is_optional};
        TRY(checkpoint_read(checkpoint, &entry, 1, NULL));
        if (value < 0 || value > MAX_COUNTER)
            return status_data("%s: %s is %lld; expected 0 to %lld", path, counter->path, (long long)value,
                               (long long)MAX_COUNTER);
    }
    return OK;
}

/* The data that the state was computed from. */
static status check_dataset(const struct state *state, struct checkpoint *checkpoint, const char *path,
                            const char *otherwise) {
    if (!state->fingerprint) return OK;
    TRY(check_columns(state, checkpoint, path, otherwise));
    TRY(preparation_compare(checkpoint, state->preparation, path, otherwise));
    TRY(check_labels(state, checkpoint, path, otherwise));
    TRY(check_fingerprint(state, checkpoint, path, otherwise));
    return check_sampler(state, checkpoint, path, otherwise);
}

status state_load(struct state *state, struct checkpoint *checkpoint, const char *path, const char *otherwise) {
    static const char *const complete[] = {"model", "optimizer", "ema", "state", NULL};
    TRY(check_dataset(state, checkpoint, path, otherwise));
    TRY(check_counters(state, checkpoint, path));
    free_loaded(state);
    state->counters.pending_end = PENDING_NONE; /* files of earlier versions do not have it */
    size_t count;
    struct entry *entries = entries_for_loading(state, &count);
    return checkpoint_read(checkpoint, entries, count, complete);
}

/* Calls visit(user, bytes, size) for the pieces of the state, without the padding between tensors. */
typedef void visit_function(void *user, const void *bytes, size_t size);

static void visit_params(const struct params *params, const float *flat, visit_function *visit, void *user) {
    for (size_t i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];
        visit(user, flat + p->offset, p->count * sizeof *flat);
    }
}

static void visit_optimizer(const struct state *state, size_t index, visit_function *visit, void *user) {
    const struct params *params = &state->model->params;
    for (size_t i = 0, at = 0; i < params->count; i++) {
        int64_t shape[MAX_DIMS];
        if (params->items[i].is_frozen) continue;
        size_t count = optimizer_state_shape(state->optimizer, index, &params->items[i], shape);
        if (count) visit(user, state->optimizer_full[index] + at, count * sizeof(float));
        at += params_padded(count);
    }
}

static void visit_state(const struct state *state, visit_function *visit, void *user) {
    const struct params *params = &state->model->params;
    const struct counters *c = &state->counters;
    int64_t counts[] = {c->epoch, c->batch, c->step, c->samples};
    visit_params(params, state->params_full, visit, user);
    visit_params(&state->model->buffers, state->model->buffers.values, visit, user);
    for (size_t b = 0; b < state->optimizer->buffer_count; b++) visit_optimizer(state, b, visit, user);
    for (size_t i = 0; state->optimizer->lbfgs && i < LBFGS_VECTORS; i++) {
        struct lbfgs_vectors v = lbfgs_vectors(state->optimizer->lbfgs, i);
        visit(user, v.values, v.count * state->optimizer->lbfgs->size * sizeof *v.values);
    }
    if (state->optimizer->lbfgs)
        visit(user, state->optimizer->lbfgs->numbers,
              state->optimizer->lbfgs->number_count * sizeof *state->optimizer->lbfgs->numbers);
    if (state->ema) visit_params(params, state->ema_full, visit, user);
    visit(user, counts, sizeof counts);
}

static void add_to_digest(void *digest, const void *bytes, size_t size) { digest_add(digest, bytes, size); }

void state_sha256(const struct state *state, char hex[DIGEST_HEX_SIZE]) {
    struct digest digest;
    uint8_t hash[DIGEST_SIZE];
    digest_start(&digest);
    visit_state(state, add_to_digest, &digest);
    digest_finish(&digest, hash);
    digest_hex(hash, hex);
}

#define PIECE ((size_t)1 << 16) /* floats */
#define MAX_PIECES 64           /* of a loop */

struct pieces {
    const float *values; /* (count) */
    size_t count;
    uint64_t hashes[MAX_PIECES];
};

static void hash_pieces(void *context, size_t first, size_t last) {
    struct pieces *p = context;
    for (size_t i = first; i < last; i++) {
        size_t left = p->count - i * PIECE, count = left < PIECE ? left : PIECE;
        p->hashes[i] = hash_add(0, p->values + i * PIECE, count * sizeof *p->values);
    }
}

#define PART (MAX_PIECES * PIECE) /* of a long array */

/* values (count, at most PART) of a long array */
static uint64_t hash_part(uint64_t seed, const float *values, size_t count) {
    struct pieces p = {.values = values, .count = count};
    size_t pieces = (count + PIECE - 1) / PIECE;
    parallel_for(pieces, 2, hash_pieces, &p);
    return hash_add(seed, p.hashes, pieces * sizeof *p.hashes);
}

uint64_t state_hash_floats(uint64_t seed, const float *values, size_t count) {
    if (count <= PIECE) return hash_add(seed, values, count * sizeof *values);
    for (size_t first = 0; first < count; first += PART)
        seed = hash_part(seed, values + first, count - first < PART ? count - first : PART);
    return seed;
}

status state_hasher_start(struct state_hasher *h, size_t total) {
    *h = (struct state_hasher){.total = total};
    return buffer_new((total < PART ? total : PART) * sizeof *h->part, "a part of the parameters", (void **)&h->part);
}

void state_hasher_add(struct state_hasher *h, const float *values, size_t count) {
    while (count > 0) {
        size_t space = PART - h->filled, n = count < space ? count : space;
        if (values)
            memcpy(h->part + h->filled, values, n * sizeof *values);
        else
            memset(h->part + h->filled, 0, n * sizeof *values);
        h->filled += n;
        h->done += n;
        count -= n;
        if (values) values += n;
        if (h->filled < PART) continue;
        h->hash = hash_part(h->hash, h->part, PART);
        h->filled = 0;
    }
}

uint64_t state_hasher_finish(struct state_hasher *h) {
    assert(h->done == h->total || !h->part);
    if (h->part && h->total <= PIECE)
        h->hash = hash_add(0, h->part, h->filled * sizeof *h->part);
    else if (h->part && h->filled)
        h->hash = hash_part(h->hash, h->part, h->filled);
    buffer_free(h->part);
    return h->hash;
}

static void add_to_hash(void *hash, const void *bytes, size_t size) {
    uint64_t *h = hash;
    *h = size % sizeof(float) ? hash_add(*h, bytes, size) : state_hash_floats(*h, bytes, size / sizeof(float));
}

uint64_t state_hash(const struct state *state) {
    uint64_t hash = 0;
    visit_state(state, add_to_hash, &hash);
    return hash;
}
