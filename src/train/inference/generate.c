/* While the text fits in a block, a decoder computes its positions one after the other (struct decoder). After that, or
 * for a model that it cannot compute, the model's input is a whole block that begins with the text so far; the rest
 * does not affect a causal model. When the block is full, its first token is removed for each new one. */
#include "train/inference/inference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/numbers/statistics.h"
#include "base/scoped.h"
#include "base/stop.h"
#include "base/utf8.h"
#include "train/inference/session.h"
#include "train/loop/dry_run.h"

/* ---- decoder: position by position ---- */

/* Computes a causal model of tokens position by position, with the keys and values of earlier positions stored, on the
 * host. */

/* The model is planned for rows of one position; layers that look at earlier positions store what they need of them
 * (layer->cached_positions). The positions of a prompt are the rows of a few passes, so that the weights are read a few
 * times; the outputs of a row do not depend on the others. */
#define MAX_ROWS ((size_t)32)

struct decoder {
    struct plan *plan;
    size_t max_rows, rows; /* positions of a pass: at most, and of the last one */
    size_t position;       /* the next one */
    size_t consumed;       /* tokens so far: more than [position] where the first ones were removed */
    size_t logits;
};

/* Of rows of [block] tokens, each with the next one as its class. */
static struct dataset_info info_of(size_t classes, size_t block) {
    return (struct dataset_info){.input_kind = INPUT_TOKENS,
                                 .vocabulary = (int64_t)classes,
                                 .input_dims = 1,
                                 .input_shape = {(int64_t)block},
                                 .input_size = block,
                                 .target_kind = TARGET_CLASS,
                                 .classes = (int64_t)classes,
                                 .target_size = block};
}

/* *plan is NULL if the model cannot be planned for single positions; the plan for blocks then reports what is wrong. */
static status plan_positions(const struct config *config, size_t classes, size_t block, struct plan **plan) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    const struct dataset_info info = info_of(classes, 1);
    struct plan_options options = {.purpose = PLAN_INFERENCE, .env = &alone, .info = &info, .cached_positions = block};
    status s = plan_create(config, &options, plan);
    if (status_code(s) != STATUS_USAGE) return s;
    status_free(s);
    *plan = NULL;
    return OK;
}

static void decoder_destroy(struct decoder *d) {
    if (!d) return;
    plan_destroy(d->plan);
    free(d);
}

/* For texts of up to [block] tokens below [classes]. *out is NULL if a layer needs all positions at once, or the device
 * is not the host. */
static status decoder_create(struct session *session, size_t classes, size_t block, struct decoder **out) {
    *out = NULL;
    struct decoder *d = calloc(1, sizeof *d);
    if (!d) return status_memory("the decoder");
    d->max_rows = 1;
    status s = plan_positions(session->config, classes, block, &d->plan);
    bool is_possible = !s && d->plan && device_is_host(d->plan->device) && d->plan->model->out_size >= classes;
    if (is_possible && model_has_rows_of_positions(d->plan->model)) d->max_rows = block < MAX_ROWS ? block : MAX_ROWS;
    if (is_possible) s = session_load(session, d->plan, d->max_rows);
    if (s || !is_possible) {
        decoder_destroy(d);
        return s;
    }
    d->logits = d->plan->model->out_size;
    *out = d;
    return OK;
}

/* Logits of a position, at least [classes]. */
static size_t decoder_logits(const struct decoder *d) { return d->logits; }

/* Computes the logits that follow tokens (count), which begin with those of the call before. */
static status decoder_run(struct decoder *d, const int32_t *tokens, size_t count, float *logits) {
    const float *output = NULL;
    for (size_t rows; d->position < count; d->position += rows, d->consumed += rows) {
        rows = count - d->position < d->max_rows ? count - d->position : d->max_rows;
        if (rows != d->rows) TRY(model_prepare(d->plan->model, rows, false));
        d->rows = rows;
        TRY(session_run(d->plan, rows, d->consumed, false, (const float *)(const void *)&tokens[d->position], &output));
        output += (rows - 1) * d->logits;
    }
    return !output ? OK : device_download(d->plan->device, logits, output, d->logits * sizeof *logits);
}

/* ---- text ---- */

struct generator {
    const struct generate_options *options;
    struct vocabulary *vocabulary;
    struct session session;
    struct decoder *decoder; /* NULL: the model cannot be computed position by position, or the text is too long */
    struct plan *plan;       /* NULL while there is a decoder, as the rest */
    struct device *device;   /* the plan's, as the model */
    struct model *model;
    struct rng rng;
    size_t block;          /* tokens of an input */
    size_t classes;        /* of the model; at least one per token */
    size_t logits;         /* of a position; at least one per token; the others are never sampled */
    int32_t *tokens;       /* (block) */
    void *own_tokens;      /* (block) on the device */
    float *last;           /* (logits) of the last token, on the host */
    size_t length;         /* of the text in the block */
    double *probabilities; /* (vocabulary) */
    float *sorted;         /* (vocabulary): scratch */
};

/* The tokens of the training, which may be more than those of a tokenizer that is given now. */
static status use_trained_size(struct generator *g) {
    const struct input_layout *inputs = &g->session.inputs;
    size_t own = vocabulary_size(g->vocabulary);
    bool is_known = g->session.has_inputs && inputs->kind == INPUT_TOKENS && inputs->vocabulary > 0;
    if (is_known && (size_t)inputs->vocabulary > g->classes) g->classes = (size_t)inputs->vocabulary;
    if (!is_known || (size_t)inputs->vocabulary >= own) return OK;
    return status_new(
        STATUS_USAGE,
        "the model was trained with %lld tokens, and the tokenizer has %zu; train with it: dataset.tokens.tokenizer",
        (long long)inputs->vocabulary, own);
}

static status open_vocabulary(struct generator *g) {
    const struct dataset_config *dataset = &g->session.config->dataset;
    const struct tokens_config *tokens = &dataset->tokens;
    if (g->session.dataset.request.preparation) /* its columns of texts may have a tokenizer, too */
        return status_usage("generate needs a model of texts, and this one reads the columns of a table; use predict");
    TRY(session_vocabulary(&g->session, &g->vocabulary));
    if (!g->vocabulary && tokens->tokenizer) TRY(vocabulary_open_tokenizer(tokens->tokenizer, &g->vocabulary));
    if (!g->vocabulary)
        return status_usage("generate needs a model of texts, and this checkpoint has no vocabulary; for a model of "
                            "token ids give their tokenizer: dataset.tokens.tokenizer=tokenizer.json");
    bool has_characters = vocabulary_has_characters(g->vocabulary);
    g->block = (size_t)(has_characters ? dataset->text.block_size : tokens->block_size);
    g->classes = vocabulary_size(g->vocabulary);
    if (!has_characters && tokens->vocabulary != SCHEMA_NO_INT && (size_t)tokens->vocabulary > g->classes)
        g->classes = (size_t)tokens->vocabulary;
    return has_characters ? OK : use_trained_size(g);
}

/* Opens the model that computes whole blocks. */
static status open_model(struct generator *g) {
    size_t classes = g->classes;
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    const struct dataset_info info = info_of(classes, g->block);
    struct plan_options options = {.purpose = PLAN_INFERENCE, .env = &alone, .info = &info};
    TRY(plan_create(g->session.config, &options, &g->plan));
    g->device = g->plan->device;
    g->model = g->plan->model;
    g->logits = g->model->out_size / g->block;
    if (g->model->out_size % g->block != 0 || g->logits < classes)
        return status_usage("the model's output is not one logit per position and token (%zu x %zu)", g->block,
                            classes);
    TRY(session_load(&g->session, g->plan, 1));
    TRY(device_alloc(g->device, g->block * sizeof *g->tokens, "the text", &g->own_tokens));
    struct batch batch = {.rows = 1, .inputs = g->own_tokens};
    TRY(dry_run_forward(g->model, g->device, NULL, NULL, &batch));
    buffer_free(g->last);
    return buffer_new(g->logits * sizeof *g->last, "the logits", (void **)&g->last);
}

static status open_decoder(struct generator *g) {
    TRY(decoder_create(&g->session, g->classes, g->block, &g->decoder));
    if (!g->decoder) return open_model(g);
    return buffer_new(decoder_logits(g->decoder) * sizeof *g->last, "the logits", (void **)&g->last);
}

static status open_all(struct generator *g) {
    size_t classes = vocabulary_size(g->vocabulary);
    TRY(open_decoder(g));
    TRY(buffer_new(g->block * sizeof *g->tokens, "the text", (void **)&g->tokens));
    TRY(buffer_new(classes * sizeof *g->probabilities, "the probabilities", (void **)&g->probabilities));
    return buffer_new(classes * sizeof *g->sorted, "the probabilities", (void **)&g->sorted);
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* exp((z - max z) / temperature) */
static double weight_of(const struct generator *g, float logit, float max) {
    return exp((double)(logit - max) / g->options->temperature);
}

/* The minimum logit of the fewest of (count) sorted tokens whose probabilities sum to top_p. */
static float nucleus_threshold(const struct generator *g, size_t count) {
    const float *sorted = g->sorted;
    double sum = 0, part = 0;
    for (size_t i = 0; i < count; i++) sum += weight_of(g, sorted[i], sorted[0]);
    for (size_t i = 0; i + 1 < count; i++) {
        part += weight_of(g, sorted[i], sorted[0]);
        if (part >= g->options->top_p * sum) return sorted[i];
    }
    return sorted[count - 1];
}

/* The minimum logit of the tokens that are sampled: first top_k, then top_p of the rest. */
static float threshold(struct generator *g, const float *logits, size_t classes) {
    size_t count = g->options->top_k > 0 ? (size_t)g->options->top_k : classes;
    if (count > classes) count = classes;
    if (count == classes && g->options->top_p >= 1) return -INFINITY;
    memcpy(g->sorted, logits, classes * sizeof *logits);
    qsort(g->sorted, classes, sizeof *g->sorted, descending);
    return g->options->top_p < 1 ? nucleus_threshold(g, count) : g->sorted[count - 1];
}

/* p(c) = exp((z_c - max z) / temperature) among the most likely; the sample is the first c whose cumulative sum exceeds
 * u */
static size_t sample(struct generator *g, const float *logits) {
    size_t classes = vocabulary_size(g->vocabulary), best = statistics_largest(logits, classes), last = best;
    if (g->options->temperature <= 0) return best;
    float min = threshold(g, logits, classes);
    double sum = 0;
    for (size_t c = 0; c < classes; c++) {
        g->probabilities[c] = logits[c] >= min ? weight_of(g, logits[c], logits[best]) : 0;
        sum += g->probabilities[c];
    }
    double u = rng_uniform53(&g->rng) * sum;
    for (size_t c = 0; c < classes; c++) {
        if (g->probabilities[c] <= 0) continue;
        last = c;
        u -= g->probabilities[c];
        if (u < 0) return c;
    }
    return last;
}

/* Whether the model carries a state over rows: a text may then be longer than a block, which the decoder has in its
 * state. */
static bool is_endless(const struct generator *g) {
    return g->decoder && model_has_endless_positions(g->decoder->plan->model);
}

/* Removes the first token of a full block; the decoder's positions are wrong from then on, unless they are endless. */
static status append(struct generator *g, int32_t token) {
    if (g->length == g->block && is_endless(g)) {
        TRY(decoder_run(g->decoder, g->tokens, g->length, g->last));
        g->decoder->position--;
    } else if (g->length == g->block) {
        decoder_destroy(g->decoder);
        g->decoder = NULL;
    }
    if (g->length == g->block) memmove(g->tokens, g->tokens + 1, --g->length * sizeof *g->tokens);
    g->tokens[g->length++] = token;
    return OK;
}

static status encode_prompt(struct generator *g) {
    int32_t *ids;
    size_t count;
    const char *source = g->options->prompt_source;
    TRY(status_prefix(vocabulary_encode(g->vocabulary, g->options->prompt, &ids, &count), "%s", source));
    status s = OK;
    for (size_t i = 0; i < count && !s; i++) s = append(g, ids[i]);
    free(ids);
    TRY(s);
    return count ? OK : status_usage("%s: at least one character is needed", source);
}

/* Passes the complete characters of the bytes so far to [sink]; false: it wants no more. */
static bool write_characters(struct text *bytes, bool is_end, struct text *piece, generate_sink *sink, void *context) {
    text_clear(piece);
    size_t used = utf8_repair(text_string(bytes), bytes->length, is_end, piece), left = bytes->length - used;
    char rest[4];
    memcpy(rest, text_string(bytes) + used, left); /* a part of a character */
    text_clear(bytes);
    text_add_bytes(bytes, rest, left);
    return piece->length == 0 || sink(context, text_string(piece));
}

/* How many bytes at the end of [bytes] may be the beginning of [stop]. */
static size_t begun(const struct text *bytes, const char *stop) {
    size_t count = strlen(stop) - 1;
    if (count > bytes->length) count = bytes->length;
    while (count > 0 && memcmp(bytes->data + bytes->length - count, stop, count) != 0) count--;
    return count;
}

/* Moves the bytes that are written now from [all] to [bytes]: up to the stop text, or to what may be its beginning.
 * True: the stop text was found. */
static bool take_text(const struct generate_options *options, struct text *all, struct text *bytes) {
    const char *stop = options->stop_text, *end = NULL;
    if (stop && all->length) end = memmem(all->data, all->length, stop, strlen(stop));
    size_t left = stop && !end ? begun(all, stop) : 0, count = end ? (size_t)(end - all->data) : all->length - left;
    text_add_bytes(bytes, text_string(all), count);
    if (left) memmove(all->data, all->data + count, left);
    all->length = left;
    return end != NULL;
}

/* Computes g->last. */
static status run_model(struct generator *g) {
    if (g->decoder) return decoder_run(g->decoder, g->tokens, g->length, g->last);
    if (!g->plan) TRY(plan_explain_memory(NULL, open_model(g)));
    const float *output;
    device_upload(g->device, g->own_tokens, g->tokens, g->block * sizeof *g->tokens);
    TRY(session_run(g->plan, 1, 0, false, g->own_tokens, &output));
    return device_download(g->device, g->last, output + (g->length - 1) * g->logits, g->logits * sizeof *g->last);
}

static status write_text(struct generator *g, generate_sink *sink, void *context) {
    SCOPED_TEXT all = {0}, bytes = {0}, piece = {0};
    stop_defer();
    status s = OK;
    bool has_ended = !sink(context, g->options->prompt);
    for (int64_t i = 0; i < g->options->characters && !has_ended; i++) {
        if (stop_is_requested()) s = status_new(STATUS_STOPPED, "stopped on request");
        if (!s) s = run_model(g);
        if (s) break;
        int32_t next = (int32_t)sample(g, g->last);
        s = append(g, next);
        if (s) break;
        vocabulary_decode(g->vocabulary, &next, 1, &all);
        has_ended = take_text(g->options, &all, &bytes);
        has_ended = !write_characters(&bytes, false, &piece, sink, context) || has_ended;
    }
    text_add_bytes(&bytes, text_string(&all), all.length);
    write_characters(&bytes, true, &piece, sink, context);
    return s;
}

status generate_text(const struct config *config, const struct generate_options *options, struct log *log,
                     generate_sink *sink, void *context) {
    struct generator g = {.options = options};
    const struct session_options opening = {.weights = options->weights, .config = config, .predicts = true};
    rng_seed(&g.rng, (uint64_t)options->seed);
    status s = session_open(&opening, log, &g.session);
    if (!s) s = session_read(&g.session);
    if (!s) s = open_vocabulary(&g);
    if (!s) s = plan_explain_memory(NULL, open_all(&g));
    if (!s) s = encode_prompt(&g);
    if (!s) s = write_text(&g, sink, context);
    decoder_destroy(g.decoder);
    buffer_free(g.tokens);
    buffer_free(g.last);
    if (g.device) device_free(g.device, g.own_tokens);
    buffer_free(g.probabilities);
    buffer_free(g.sorted);
    plan_destroy(g.plan);
    vocabulary_destroy(g.vocabulary);
    session_close(&g.session);
    return s;
}
