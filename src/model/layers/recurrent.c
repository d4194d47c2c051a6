/* lstm, gru and rnn: torch.nn.LSTM, GRU and RNN over (length, features), with batch_first. Between the input and the
 * output everything is in the order of time: (length, rows, ...). */
#include "device/recurrent.h"

#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "model/build.h"
#include "model/init.h"
#include "model/layers/layers.h"

enum output { OUTPUT_ALL, OUTPUT_LAST };

struct recurrent_config {
    int64_t hidden_size, num_layers;
    bool bias, bidirectional, carry_state;
    double dropout;
    int nonlinearity; /* index into nonlinearities; rnn only */
    int output;
    struct string_list initial_state, last_state;
};

static const char *const nonlinearities[] = {"tanh", "relu", NULL};
static const char *const outputs[] = {"all", "last", NULL};

#define ROWS                                                                                                           \
    SCHEMA_ROW(INT, struct recurrent_config, hidden_size, .flags = SCHEMA_REQUIRED, .min = 1, .max = 1 << 20,          \
               .doc = "Features of the state."),                                                                       \
        SCHEMA_ROW(INT, struct recurrent_config, num_layers, .fallback = "1", .min = 1, .max = 1000,                   \
                   .doc = "Layers, each of which takes the outputs of the one before."),                               \
        SCHEMA_ROW(BOOL, struct recurrent_config, bias, .fallback = "true", .doc = "Whether the layers have biases."), \
        SCHEMA_ROW(BOOL, struct recurrent_config, bidirectional, .fallback = "false",                                  \
                   .doc = "Whether each layer also runs from the last step to the first; the outputs of both "         \
                          "directions are concatenated."),                                                             \
        SCHEMA_ROW(REAL, struct recurrent_config, dropout, .fallback = "0", .min = 0, .max = 1,                        \
                   .doc = "Probability of dropout between layers."),                                                   \
        SCHEMA_ROW(CHOICE, struct recurrent_config, output, .fallback = "all", .choices = outputs,                     \
                   .doc =                                                                                              \
                       "`all`: the outputs of all steps, (length, features); `last`: the state after the last step, "  \
                       "of the reverse direction the one after the first step (PyTorch's h_n of the last layer)."),    \
        SCHEMA_ROW(BOOL, struct recurrent_config, carry_state, .fallback = "false",                                    \
                   .doc = "Whether a row begins with the state at the end of the same row of the batch before, "       \
                          "without a gradient through it, in each epoch from 0 or the learned `initial_state` on "     \
                          "(Keras' stateful): for `sampler.type: batchify`. Needs `sampler.global_batch_size`."),      \
        SCHEMA_ROW(STRING_LIST, struct recurrent_config, initial_state, .fallback = "null",                            \
                   .doc = "The state before the first step, 0 without it: `learned` makes it parameters, `h0` and of " \
                          "an LSTM `c0`, of shape (num_layers * directions, 1, hidden_size), zeros at first. Names "   \
                          "of layers before this one: their outputs of shape (num_layers * directions, hidden_size), " \
                          "`h`, or of an LSTM `[h, c]`, such as the `last_state` of an encoder."),                     \
        SCHEMA_ROW(STRING_LIST, struct recurrent_config, last_state, .fallback = "null",                               \
                   .doc = "Names for the states of all layers after the last step, (num_layers * directions, "         \
                          "hidden_size), which other layers take by them: `h`, or of an LSTM `[h, c]` (PyTorch's h_n " \
                          "and c_n).")

static const struct schema_row gated_rows[] = {ROWS, {0}};
static const struct schema_row rnn_rows[] = {
    ROWS,
    SCHEMA_ROW(CHOICE, struct recurrent_config, nonlinearity, .fallback = "tanh", .choices = nonlinearities,
               .doc = "The function of the state."),
    {0},
};
static const struct schema lstm_schema =
    SCHEMA("model.layers.lstm", struct recurrent_config, .rows = gated_rows, .shorthand = "hidden_size");
static const struct schema gru_schema =
    SCHEMA("model.layers.gru", struct recurrent_config, .rows = gated_rows, .shorthand = "hidden_size");
static const struct schema rnn_schema =
    SCHEMA("model.layers.rnn", struct recurrent_config, .rows = rnn_rows, .shorthand = "hidden_size");

static const struct recurrent_config *config_of(const struct layer *layer) { return layer->config; }
static size_t layers_of(const struct layer *layer) { return (size_t)config_of(layer)->num_layers; }
static size_t directions_of(const struct layer *layer) { return config_of(layer)->bidirectional ? 2 : 1; }
static size_t steps_of(const struct layer *layer) { return (size_t)layer->in.size[0]; }
static size_t hidden_of(const struct layer *layer) { return (size_t)config_of(layer)->hidden_size; }
static size_t outputs_of(const struct layer *layer) { return directions_of(layer) * hidden_of(layer); }

static enum recurrent_cell cell_of(const struct layer *layer) {
    if (layer->type == &layer_lstm) return RECURRENT_LSTM;
    if (layer->type == &layer_gru) return RECURRENT_GRU;
    return config_of(layer)->nonlinearity ? RECURRENT_RELU : RECURRENT_TANH;
}

static size_t width_of(const struct layer *layer) { return recurrent_gates(cell_of(layer)) * hidden_of(layer); }

/* Inputs of layer [l] of the stack. */
static size_t inputs_of(const struct layer *layer, size_t l) {
    return l == 0 ? (size_t)layer->in.size[1] : outputs_of(layer);
}

static size_t most_columns(const struct layer *layer) {
    size_t in = inputs_of(layer, 0), out = outputs_of(layer);
    return in > out ? in : out;
}

/* The outputs and, of an LSTM, the cell states. */
static size_t state_count(const struct layer *layer) { return cell_of(layer) == RECURRENT_LSTM ? 2 : 1; }
/* The states of a row are (layers * directions, hidden) each. */
static size_t units_of(const struct layer *layer) { return layers_of(layer) * directions_of(layer); }
static size_t state_size(const struct layer *layer) { return units_of(layer) * hidden_of(layer); }

/* The states after the last step that are parts of the output, behind [output_size] other elements. */
static size_t last_states(const struct layer *layer) { return config_of(layer)->last_state.count; }
static size_t output_size(const struct layer *layer) {
    return (config_of(layer)->output == OUTPUT_LAST ? 1 : steps_of(layer)) * outputs_of(layer);
}

static bool is_learned(const struct recurrent_config *c) {
    return c->initial_state.count == 1 && strcmp(c->initial_state.items[0], "learned") == 0;
}
static bool has_learned_state(const struct layer *layer) { return is_learned(config_of(layer)); }
/* The inputs behind the first: the states before the first step. */
static bool has_given_state(const struct layer *layer) { return layer->in_count > 1; }

static bool has_dropout(const struct layer *layer) { return config_of(layer)->dropout > 0; }

/* Whether the input of a later layer is not simply the output of the one before. */
static bool has_own_inputs(const struct layer *layer) { return directions_of(layer) == 2 || has_dropout(layer); }

/* ---- parameters ---- */

enum { WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH };

static size_t param_of(const struct layer *layer, size_t l, size_t d, size_t which) {
    size_t of_each = config_of(layer)->bias ? 4 : 2;
    return layer->first_param + (l * directions_of(layer) + d) * of_each + which;
}

static const float *value_of(const struct layer *layer, const struct params *params, size_t l, size_t d, size_t which) {
    if (which >= BIAS_IH && !config_of(layer)->bias) return NULL;
    return params_value(params, param_of(layer, l, d, which));
}

static float *gradient_of(const struct layer *layer, const struct params *params, size_t l, size_t d, size_t which) {
    if (which >= BIAS_IH && !config_of(layer)->bias) return NULL;
    return params_gradient(params, param_of(layer, l, d, which));
}

/* That of the states [k], which all layers and directions have together. */
static size_t learned_param(const struct layer *layer, size_t k) { return param_of(layer, layers_of(layer), 0, k); }

static void declare_states(const struct layer *layer, struct planning *planning) {
    const int64_t shape[] = {(int64_t)units_of(layer), 1, (int64_t)hidden_of(layer)};
    for (size_t k = 0; has_learned_state(layer) && k < state_count(layer); k++)
        layer_declare(layer, planning, k ? "c0" : "h0", 3, shape);
}

static void declare(const struct layer *layer, struct planning *planning, size_t l, size_t d) {
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    int64_t width = (int64_t)width_of(layer);
    const int64_t shapes[][2] = {
        {width, (int64_t)inputs_of(layer, l)}, {width, (int64_t)hidden_of(layer)}, {width, 0}, {width, 0}};
    for (size_t i = 0; i < (config_of(layer)->bias ? 4 : 2); i++)
        params_declare(planning->params, planning->arena,
                       arena_printf(planning->arena, "%s.%s_l%zu%s", layer->name, names[i], l, d ? "_reverse" : ""),
                       i < BIAS_IH ? 2 : 1, shapes[i]);
}

/* ---- carried state ---- */

/* With carry_state the state after the last step is kept: in training of the rows of the global batch, in a buffer of
 * the model, so that a checkpoint has it; outside of it, and position by position, of the rows of a pass. A row of both
 * is (layers, states, hidden). The first batch begins with 0 or a learned state, the only one that a gradient reaches.
 */

static bool carries(const struct layer *layer) { return config_of(layer)->carry_state; }
static size_t kept_floats(const struct layer *layer) { return state_count(layer) * state_size(layer); }
static bool keeps_state(const struct layer *layer) { return carries(layer) || layer->cached_positions; }
static bool has_gradient_of_start(const struct layer *layer) {
    return has_learned_state(layer) || has_given_state(layer);
}
static bool has_start(const struct layer *layer) { return keeps_state(layer) || has_gradient_of_start(layer); }
/* Whether the rows begin with the state that the pass before has kept. */
static bool continues(const struct layer *layer, const struct pass *pass) {
    return keeps_state(layer) && (layer->cached_positions ? pass->position > 0 : pass->continues_rows);
}

/* ---- memory ---- */

/* Floats of layer->saved of one row: the input in the order of time; of each direction of each layer gates, states and
 * outputs; the inputs of later layers, if they have their own; two gradients; the states before the first step; the
 * gradients of these, and of those after the last step, of one direction. */
static size_t saved_floats(const struct layer *layer) {
    size_t hidden = hidden_of(layer), directions = directions_of(layer), layers = layers_of(layer);
    size_t own = width_of(layer) + (recurrent_states(cell_of(layer)) + 1) * hidden;
    size_t inputs = has_own_inputs(layer) ? (layers - 1) * outputs_of(layer) : 0;
    return steps_of(layer) *
               (inputs_of(layer, 0) + layers * directions * own + inputs + directions * most_columns(layer)) +
           (has_start(layer) ? kept_floats(layer) : 0) +
           ((has_gradient_of_start(layer) ? state_count(layer) : 0) + last_states(layer)) * hidden;
}

/* Layer->saved of the present pass. */
struct saved {
    float *input, *inputs; /* inputs: of layers from the second on; NULL: the outputs before them */
    float *gates, *states, *h;
    float *start;                  /* (layers, directions, states, rows, hidden); NULL: 0 */
    float *of_start, *of_end;      /* (states, rows, hidden): gradients; NULL: there are none */
    float *gradient, *other;       /* (steps, rows, most_columns); other: only with two directions */
    size_t values, width, columns; /* steps * rows; of states */
};

static struct saved saved_of(const struct layer *layer, size_t rows) {
    size_t n = rows * steps_of(layer), units = layers_of(layer) * directions_of(layer), hidden = hidden_of(layer);
    struct saved s = {.input = layer->saved, .values = n, .width = width_of(layer)};
    s.columns = recurrent_states(cell_of(layer)) * hidden;
    s.gates = s.input + n * inputs_of(layer, 0);
    s.states = s.gates + units * n * s.width;
    s.h = s.states + units * n * s.columns;
    s.gradient = s.h + units * n * hidden;
    s.other = s.gradient + n * most_columns(layer);
    float *end = s.gradient + directions_of(layer) * n * most_columns(layer);
    s.inputs = has_own_inputs(layer) ? end : NULL;
    if (s.inputs) end += (layers_of(layer) - 1) * n * outputs_of(layer);
    s.start = has_start(layer) ? end : NULL;
    if (s.start) end += rows * kept_floats(layer);
    s.of_start = has_gradient_of_start(layer) ? end : NULL;
    if (s.of_start) end += state_count(layer) * rows * hidden;
    s.of_end = last_states(layer) ? end : NULL;
    return s;
}

static struct recurrent_shape shape_of(const struct layer *layer, const struct pass *pass, size_t d) {
    return (struct recurrent_shape){cell_of(layer),   pass->rows, steps_of(layer),
                                    hidden_of(layer), d == 1,     pass_lengths(pass, &layer->in)};
}

/* Layer->runtime. */
struct runtime {
    float *bias;    /* one row of gates */
    float *scratch; /* the device's */
    float *kept;    /* (batch, kept_floats) outside of training; NULL: no state is kept */
    double *sums;   /* the device's, (rows of the global batch, kept_floats); NULL: no state is carried */
};

static struct runtime *runtime_of(const struct layer *layer) { return layer->runtime; }

/* One direction of layer [l]. */
static struct recurrent_arrays arrays_of(const struct layer *layer, const struct pass *pass, const struct saved *s,
                                         size_t l, size_t d) {
    size_t unit = l * directions_of(layer) + d, n = s->values;
    struct recurrent_arrays a = {.weight = value_of(layer, pass->params, l, d, WEIGHT_HH),
                                 .gates = s->gates + unit * n * s->width,
                                 .states = s->states + unit * n * s->columns,
                                 .h = s->h + unit * n * hidden_of(layer),
                                 .scratch = runtime_of(layer)->scratch};
    if (s->start) {
        size_t values = pass->rows * hidden_of(layer);
        a.h_start = s->start + unit * state_count(layer) * values;
        if (state_count(layer) == 2) a.c_start = a.h_start + values;
    }
    if (cell_of(layer) == RECURRENT_GRU) a.bias = value_of(layer, pass->params, l, d, BIAS_HH);
    return a;
}

/* What layer [l] takes: (steps, rows, inputs_of) */
static float *input_of(const struct layer *layer, const struct saved *s, size_t l) {
    if (l == 0) return s->input;
    if (s->inputs) return s->inputs + (l - 1) * s->values * outputs_of(layer);
    return s->h + (l - 1) * s->values * outputs_of(layer);
}

/* The output without the last states. */
static struct shape output_shape(const struct recurrent_config *c, const struct shape *in) {
    int64_t columns = (c->bidirectional ? 2 : 1) * c->hidden_size;
    struct shape out = {.dims = 1, .size = {columns}};
    if (c->output != OUTPUT_LAST)
        out = (struct shape){.dims = 2, .size = {in->size[0], columns}, .lengths = in->lengths};
    return out;
}

static status check_names(const struct string_list *names) {
    for (size_t i = 0; i < names->count; i++)
        if (!*names->items[i] || strpbrk(names->items[i], "./"))
            return status_usage("a name must not be empty or contain '.' or '/', got '%s'", names->items[i]);
    if (names->count == 2 && strcmp(names->items[0], names->items[1]) == 0)
        return status_usage("'%s' is in the list twice", names->items[0]);
    return OK;
}

/* The output, and each of the last states, become tensors of their own. */
static status add_parts(struct builder *builder, const struct layer_entry *e, size_t *out) {
    const struct recurrent_config *c = e->variant->config;
    const struct model *m = builder->model;
    size_t all = *out;
    if (!c->last_state.count) return OK;
    TRY(build_at(e, status_prefix(check_names(&c->last_state), "last_state")));
    const struct shape y = output_shape(c, &m->tensors[m->nodes[m->node_count - 1].in[0]].shape);
    const struct shape state = {.dims = 2, .size = {c->num_layers * (c->bidirectional ? 2 : 1), c->hidden_size}};
    for (size_t k = 0; k < c->last_state.count; k++)
        TRY(build_add_part(builder, e, c->last_state.items[k], shape_elements(&y) + k * shape_elements(&state), &state,
                           all, out));
    *out = all;
    return builder->output_is_read ? build_add_part(builder, e, NULL, 0, &y, all, out) : OK;
}

static const struct string_list *sources(const void *config) {
    const struct recurrent_config *c = config;
    return is_learned(c) ? NULL : &c->initial_state;
}

/* Declares the state of the rows of the global batch. */
static status plan_state(struct layer *layer, struct planning *planning) {
    const struct recurrent_config *c = config_of(layer);
    if (layer->cached_positions &&
        (c->bidirectional || c->output == OUTPUT_LAST || has_given_state(layer) || last_states(layer)))
        return status_usage("it needs all positions at once");
    if (!c->carry_state) return OK;
    if (c->bidirectional)
        return status_usage("carry_state: the reverse direction begins at the end of a row; remove one of "
                            "carry_state and bidirectional");
    if (has_given_state(layer))
        return status_new(
            STATUS_USAGE,
            "carry_state: a row begins with the state of the row before it, not with that of another layer; remove one "
            "of carry_state and initial_state, or write initial_state: learned for the first row");
    if (layer->in.lengths)
        return status_usage("carry_state needs rows without padding: remove padding_idx or carry_state");
    if (!layer->batch_rows)
        return status_usage("carry_state needs sampler.global_batch_size, the number of rows whose state is kept");
    params_declare(planning->buffers, planning->arena, arena_printf(planning->arena, "%s.carried_state", layer->name),
                   2, (const int64_t[]){(int64_t)layer->batch_rows, (int64_t)kept_floats(layer)});
    return OK;
}

/* A state that another layer gives: (layers * directions, hidden), or (hidden) of one layer. */
static status check_state(const struct layer *layer, const char *name, const struct shape *is) {
    const struct shape wanted = {.dims = 2, .size = {(int64_t)units_of(layer), (int64_t)hidden_of(layer)}};
    bool is_vector = units_of(layer) == 1 && is->dims == 1 && is->size[0] == wanted.size[1];
    if (is_vector || shape_is_equal(is, &wanted)) return OK;
    SCOPED_TEXT other = {0};
    text_add(&other, shape_text(&wanted).s);
    if (units_of(layer) == 1) text_printf(&other, ", or %zu", hidden_of(layer));
    return status_usage("initial_state: '%s' is %s, but must be %s: num_layers * directions, hidden_size", name,
                        shape_text(is).s, text_string(&other));
}

static status check_states(const struct layer *layer) {
    const struct string_list *initial = &config_of(layer)->initial_state, *last = &config_of(layer)->last_state;
    const char *wanted = state_count(layer) == 2 ? "two names, [h, c]" : "one name, h";
    if (last->count > state_count(layer)) return status_usage("last_state: expected %s, got %zu", wanted, last->count);
    if (has_given_state(layer) && initial->count != state_count(layer))
        return status_usage("initial_state: expected learned, or %s, got %zu", wanted, initial->count);
    for (size_t i = 0; has_given_state(layer) && i < initial->count; i++)
        TRY(check_state(layer, initial->items[i], &layer->ins[1 + i]));
    return OK;
}

static status plan(struct layer *layer, struct planning *planning) {
    if (layer->in.dims != 2) {
        bool is_table_row = layer->in.dims == 1 && layer->in.input && !layer->in.is_tokens;
        return status_usage("its input must be (length, features), but is %s%s", shape_text(&layer->in).s,
                            is_table_row ? "; dataset.window makes windows of a table" : "");
    }
    TRY(check_states(layer));
    TRY(plan_state(layer, planning));
    for (size_t l = 0; l < layers_of(layer); l++)
        for (size_t d = 0; d < directions_of(layer); d++) declare(layer, planning, l, d);
    declare_states(layer, planning);
    layer->out = output_shape(config_of(layer), &layer->in);
    if (last_states(layer))
        layer->out =
            (struct shape){.dims = 1, .size = {(int64_t)(output_size(layer) + last_states(layer) * state_size(layer))}};
    layer->saved_size = saved_floats(layer);
    return OK;
}

static status alloc(struct layer *layer, struct device *device, size_t batch) {
    bool has_reverse_start = has_start(layer) && directions_of(layer) == 2;
    struct recurrent_shape shape = {cell_of(layer), batch, steps_of(layer), hidden_of(layer), has_reverse_start, NULL};
    size_t floats = device_ops(device)->recurrent->scratch_floats(&shape), kept = batch * kept_floats(layer);
    struct runtime *r = calloc(1, sizeof *r);
    layer->runtime = r;
    if (!r) return status_memory("a recurrent layer");
    TRY(device_alloc(device, params_padded(width_of(layer)) * sizeof(float), "a recurrent layer", (void **)&r->bias));
    TRY(device_alloc(device, floats * sizeof(float), "a recurrent layer", (void **)&r->scratch));
    if (!keeps_state(layer)) return OK;
    if (carries(layer))
        TRY(device_alloc(device, layer->batch_rows * kept_floats(layer) * sizeof *r->sums,
                         "the state of a recurrent layer", (void **)&r->sums));
    return device_alloc(device, kept * sizeof(float), "the state of a recurrent layer", (void **)&r->kept);
}

static void release(struct layer *layer, struct device *device) {
    struct runtime *r = runtime_of(layer);
    device_free(device, r->bias);
    device_free(device, r->scratch);
    device_free(device, r->kept);
    device_free(device, r->sums);
    free(r);
}

/* reset_parameters draws all of them alike, in their order. A learned state is 0. */
static void init(const struct layer *layer, const struct params *params, struct rng *rng) {
    size_t first = layer->first_param, end = first + layer->param_count, states = end;
    if (has_learned_state(layer)) states = learned_param(layer, 0);
    for (size_t i = first; i < states; i++)
        init_fan_in_uniform(rng, params_drawn(params, i), params->items[i].count, hidden_of(layer));
    for (size_t i = states; i < end; i++) memset(params_value(params, i), 0, params->items[i].count * sizeof(float));
}

/* ---- forward ---- */

/* Between (rows, steps, columns), with [size] elements of each row and more, and [width] of the columns in the order of
 * time. */
static void reorder(const struct layer *layer, const struct pass *pass, const float *from, float *to, size_t size,
                    size_t columns, size_t width, bool is_to_time) {
    size_t steps = steps_of(layer), rows = pass->rows;
    for (size_t t = 0; t < steps; t++) {
        size_t in_rows = t * columns, in_time = t * rows * width;
        if (is_to_time)
            pass->ops->copy_columns(pass->device, from + in_rows, size, to + in_time, width, rows, width);
        else
            pass->ops->copy_columns(pass->device, from + in_time, width, to + in_rows, size, rows, width);
    }
}

/* Number of streams of random numbers that the layers of a model use without this. */
#define STREAMS 16384

/* Dropout of the outputs of layer [l], a step at a time, because a mask depends on the row of the batch. */
static void drop(const struct layer *layer, const struct pass *pass, size_t l, const float *from, float *to) {
    size_t columns = outputs_of(layer), steps = steps_of(layer);
    struct draw_key key = pass->draws;
    for (size_t t = 0; t < steps; t++) {
        size_t at = t * pass->rows * columns;
        key.stream = layer->stream + (uint32_t)(STREAMS * (1 + l * steps + t));
        pass->ops->dropout(pass->device, &key, (float)config_of(layer)->dropout, F32(from + at), F32(to + at),
                           pass->rows, columns);
    }
}

/* The outputs of layer [l] as the input of the next one. */
static void pass_on(const struct layer *layer, const struct pass *pass, const struct saved *s, size_t l) {
    size_t hidden = hidden_of(layer), columns = outputs_of(layer), n = s->values, directions = directions_of(layer);
    bool drops = has_dropout(layer) && pass->is_training;
    float *to = input_of(layer, s, l + 1), *joined = drops ? s->gradient : to;
    const float *h = s->h + l * n * columns;
    if (!s->inputs) return;
    for (size_t d = 0; directions == 2 && d < directions; d++)
        pass->ops->copy_columns(pass->device, h + d * n * hidden, hidden, joined + d * hidden, columns, n, hidden);
    if (drops)
        drop(layer, pass, l, directions == 2 ? joined : h, to);
    else if (directions == 1)
        pass->ops->copy(pass->device, F32(h), F32(to), n * columns);
}

/* bias_ih + bias_hh where a cell only needs their sum */
static const float *bias_of(const struct layer *layer, const struct pass *pass, size_t l, size_t d) {
    const float *bias = value_of(layer, pass->params, l, d, BIAS_IH);
    if (!bias || cell_of(layer) == RECURRENT_GRU) return bias;
    pass->ops->add(pass->device, F32(bias), F32(value_of(layer, pass->params, l, d, BIAS_HH)),
                   F32(runtime_of(layer)->bias), width_of(layer));
    return runtime_of(layer)->bias;
}

/* The place of the last output of direction [d] in its outputs. */
static size_t last_of(const struct layer *layer, size_t rows, size_t d) {
    return d == 0 ? (steps_of(layer) - 1) * rows * hidden_of(layer) : 0;
}

/* Whether the last step of direction [d] is another one in each row. */
static bool gathers(const struct layer *layer, size_t d) { return layer->in.lengths && d == 0; }

/* Where the state of the rows of a pass is kept, [stride] floats apart. */
static float *kept_of(const struct layer *layer, const struct pass *pass, size_t *stride) {
    size_t floats = kept_floats(layer);
    bool is_carried = carries(layer) && pass->is_training;
    *stride = is_carried ? (size_t)pass->draws.row_stride * floats : floats;
    if (!is_carried) return runtime_of(layer)->kept;
    return params_value(pass->buffers, layer->first_buffer) + (size_t)pass->draws.first_row * floats;
}

/* The state [k] of [unit] at the beginning of the rows, [stride] floats apart: a learned one or x; NULL: 0. */
static const float *first_state(const struct layer *layer, const struct pass *pass, const struct tensor *x, size_t unit,
                                size_t k, size_t *stride) {
    const float *all = NULL;
    *stride = has_given_state(layer) ? state_size(layer) : 0;
    if (has_given_state(layer))
        all = floats(&x[1 + k]);
    else if (has_learned_state(layer))
        all = params_value(pass->params, learned_param(layer, k));
    return all ? all + unit * hidden_of(layer) : NULL;
}

/* s->start, from the state that the pass before has kept or that of the beginning of the rows. */
static void start_state(const struct layer *layer, const struct pass *pass, const struct tensor *x,
                        const struct saved *s) {
    size_t hidden = hidden_of(layer), states = state_count(layer), parts = units_of(layer) * states, stride = 0;
    const float *kept = keeps_state(layer) ? kept_of(layer, pass, &stride) : NULL;
    bool is_kept = continues(layer, pass);
    for (size_t i = 0; i < parts; i++) {
        const float *from = is_kept ? kept + i * hidden : first_state(layer, pass, x, i / states, i % states, &stride);
        float *to = s->start + i * pass->rows * hidden;
        if (from)
            pass->ops->copy_columns(pass->device, from, stride, to, hidden, pass->rows, hidden);
        else
            device_zero(pass->device, to, pass->rows * hidden * sizeof *to);
    }
}

/* Each rank has set the state of its own rows: all of them get that of all rows. */
static void share_state(const struct layer *layer, const struct pass *pass) {
    const struct row_share share = {layer->batch_rows, kept_floats(layer), pass->rows, (size_t)pass->draws.first_row,
                                    (size_t)pass->draws.row_stride};
    if (!carries(layer) || !pass->is_training || !pass->all_sum) return;
    pass->ops->recurrent->share_rows(pass->device, pass->all_sum, &share,
                                     params_value(pass->buffers, layer->first_buffer), runtime_of(layer)->sums);
}

static void keep_state(const struct layer *layer, const struct pass *pass, const struct saved *s) {
    size_t hidden = hidden_of(layer), last = last_of(layer, pass->rows, 0), stride;
    float *kept = kept_of(layer, pass, &stride);
    for (size_t l = 0; l < layers_of(layer); l++)
        for (size_t k = 0; k < state_count(layer); k++, kept += hidden) {
            struct recurrent_arrays a = arrays_of(layer, pass, s, l, 0);
            pass->ops->copy_columns(pass->device, (k ? a.states : a.h) + last, hidden, kept, stride, pass->rows,
                                    hidden);
        }
    share_state(layer, pass);
}

/* The states after the last step, behind the outputs y. */
static void put_states(const struct layer *layer, const struct pass *pass, const struct saved *s, float *y) {
    size_t hidden = hidden_of(layer), directions = directions_of(layer);
    float *to = y + output_size(layer);
    for (size_t k = 0; k < last_states(layer); k++)
        for (size_t unit = 0; unit < units_of(layer); unit++, to += hidden) {
            struct recurrent_shape shape = shape_of(layer, pass, unit % directions);
            struct recurrent_arrays a = arrays_of(layer, pass, s, unit / directions, unit % directions);
            pass->ops->recurrent->take_last(pass->device, &shape, k ? a.states : a.h, to, layer->out_size);
        }
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct saved s = saved_of(layer, pass->rows);
    if (pass->rows == 0) {
        share_state(layer, pass);
        return;
    }
    if (s.start) start_state(layer, pass, o.x, &s);
    size_t hidden = hidden_of(layer), columns = outputs_of(layer), layers = layers_of(layer), size = layer->out_size;
    reorder(layer, pass, floats(o.x), s.input, layer->in_size, inputs_of(layer, 0), inputs_of(layer, 0), true);
    for (size_t l = 0; l < layers; l++) {
        for (size_t d = 0; d < directions_of(layer); d++) {
            struct recurrent_shape shape = shape_of(layer, pass, d);
            struct recurrent_arrays a = arrays_of(layer, pass, &s, l, d);
            pass->ops->linear_forward(pass->device, F32(input_of(layer, &s, l)),
                                      value_of(layer, pass->params, l, d, WEIGHT_IH), bias_of(layer, pass, l, d), false,
                                      F32(a.gates), s.values, inputs_of(layer, l), s.width);
            pass->ops->recurrent->forward(pass->device, &shape, &a);
        }
        if (l + 1 < layers) pass_on(layer, pass, &s, l);
    }
    if (keeps_state(layer)) keep_state(layer, pass, &s);
    put_states(layer, pass, &s, floats(o.y));
    for (size_t d = 0; d < directions_of(layer); d++) {
        const float *h = arrays_of(layer, pass, &s, layers - 1, d).h;
        if (config_of(layer)->output == OUTPUT_LAST && gathers(layer, d)) {
            struct recurrent_shape shape = shape_of(layer, pass, d);
            pass->ops->recurrent->take_last(pass->device, &shape, h, floats(o.y), size);
        } else if (config_of(layer)->output == OUTPUT_LAST)
            pass->ops->copy_columns(pass->device, h + last_of(layer, pass->rows, d), hidden, floats(o.y) + d * hidden,
                                    size, pass->rows, hidden);
        else
            reorder(layer, pass, h, floats(o.y) + d * hidden, size, columns, hidden, false);
    }
}

/* ---- backward ---- */

/* Where the gradient of the outputs of direction [d] is made. */
static float *output_gradient(const struct layer *layer, const struct saved *s, size_t d) {
    return directions_of(layer) == 2 ? s->other + d * s->values * hidden_of(layer) : s->gradient;
}

/* The gradient of the last layer's outputs from dy. */
static void start_backward(const struct layer *layer, const struct pass *pass, const struct saved *s, const float *dy) {
    size_t hidden = hidden_of(layer), columns = outputs_of(layer), size = layer->out_size;
    for (size_t d = 0; d < directions_of(layer); d++) {
        float *dh = output_gradient(layer, s, d);
        if (config_of(layer)->output == OUTPUT_LAST) {
            device_zero(pass->device, dh, s->values * hidden * sizeof *dh);
            if (gathers(layer, d)) {
                struct recurrent_shape shape = shape_of(layer, pass, d);
                pass->ops->recurrent->put_last(pass->device, &shape, dy, size, dh);
                continue;
            }
            pass->ops->copy_columns(pass->device, dy + d * hidden, size, dh + last_of(layer, pass->rows, d), hidden,
                                    pass->rows, hidden);
        } else {
            reorder(layer, pass, dy + d * hidden, dh, size, columns, hidden, true);
        }
    }
}

/* The gradient of the outputs of layer [l] from that of the next one's input, in s->gradient. */
static void pass_back(const struct layer *layer, const struct pass *pass, const struct saved *s, size_t l) {
    size_t hidden = hidden_of(layer), columns = outputs_of(layer), n = s->values;
    const float *from = s->gradient;
    if (has_dropout(layer) && pass->is_training) {
        float *dropped = input_of(layer, s, l + 1); /* is not needed any more */
        drop(layer, pass, l, from, dropped);
        from = dropped;
        if (directions_of(layer) == 1) pass->ops->copy(pass->device, F32(from), F32(s->gradient), n * columns);
    }
    for (size_t d = 0; directions_of(layer) == 2 && d < 2; d++)
        pass->ops->copy_columns(pass->device, from + d * hidden, columns, output_gradient(layer, s, d), hidden, n,
                                hidden);
}

/* Of the gates' gradients [change] those of each row's first step; the gradients of outputs are not needed any more. */
static const float *first_change(const struct layer *layer, const struct pass *pass, const struct saved *s,
                                 const float *change, size_t d) {
    struct recurrent_shape shape = shape_of(layer, pass, 0);
    if (d == 0) return change;
    shape.hidden = s->width;
    pass->ops->recurrent->take_last(pass->device, &shape, change, s->gradient, s->width);
    return s->gradient;
}

/* The products of all steps of one direction: each step's state before it is that of the step before, and 0 for the
 * first one, or the start. Both biases of an LSTM or an RNN have the same gradient. */
static void add_weight_gradients(const struct layer *layer, const struct pass *pass, const struct saved *s, size_t l,
                                 size_t d) {
    const struct device_ops *ops = pass->ops;
    struct recurrent_arrays a = arrays_of(layer, pass, s, l, d);
    size_t hidden = hidden_of(layer), n = s->values, later = n - pass->rows;
    float *input_bias = gradient_of(layer, pass->params, l, d, BIAS_IH), *sum = runtime_of(layer)->bias;
    float *state_bias = gradient_of(layer, pass->params, l, d, BIAS_HH);
    bool is_gru = cell_of(layer) == RECURRENT_GRU, has_one_sum = !is_gru && input_bias && state_bias;
    const float *change = is_gru ? a.states : a.gates;
    if (has_one_sum) device_zero(pass->device, sum, s->width * sizeof *sum);
    ops->linear_backward_weight(pass->device, F32(a.gates), F32(input_of(layer, s, l)),
                                gradient_of(layer, pass->params, l, d, WEIGHT_IH), has_one_sum ? sum : input_bias, n,
                                inputs_of(layer, l), s->width);
    if (has_one_sum) {
        ops->add(pass->device, F32(input_bias), F32(sum), F32(input_bias), s->width);
        ops->add(pass->device, F32(state_bias), F32(sum), F32(state_bias), s->width);
    } else if (state_bias)
        ops->sequence->sum_rows(pass->device, change, state_bias, n, s->width);
    if (later > 0)
        ops->linear_backward_weight(pass->device, F32(change + (d == 0 ? pass->rows * s->width : 0)),
                                    F32(a.h + (d == 0 ? 0 : pass->rows * hidden)),
                                    gradient_of(layer, pass->params, l, d, WEIGHT_HH), NULL, later, hidden, s->width);
    if (a.h_start)
        ops->linear_backward_weight(pass->device, F32(first_change(layer, pass, s, change, d)), F32(a.h_start),
                                    gradient_of(layer, pass->params, l, d, WEIGHT_HH), NULL, pass->rows, hidden,
                                    s->width);
}

/* The gradients of the states after the last step of a direction, for the operator. */
static void take_end(const struct layer *layer, const struct pass *pass, const struct saved *s, const float *dy,
                     size_t unit, struct recurrent_arrays *a) {
    size_t hidden = hidden_of(layer), values = pass->rows * hidden;
    const float *from = dy + output_size(layer) + unit * hidden;
    for (size_t k = 0; k < last_states(layer); k++)
        pass->ops->copy_columns(pass->device, from + k * state_size(layer), layer->out_size, s->of_end + k * values,
                                hidden, pass->rows, hidden);
    a->dh_end = s->of_end;
    if (last_states(layer) == 2) a->dc_end = s->of_end + values;
}

/* The gradients of the states before the first step, from the operator: to the parameters, or to dx[1] and dx[2]. */
static void put_start(const struct layer *layer, const struct pass *pass, const struct saved *s, size_t unit,
                      const struct tensor *dx) {
    size_t hidden = hidden_of(layer);
    for (size_t k = 0; k < state_count(layer); k++) {
        const float *from = s->of_start + k * pass->rows * hidden;
        if (has_learned_state(layer))
            pass->ops->sequence->sum_rows(pass->device, from,
                                          params_gradient(pass->params, learned_param(layer, k)) + unit * hidden,
                                          pass->rows, hidden);
        else if (dx[1 + k].data)
            pass->ops->copy_columns(pass->device, from, hidden, floats(&dx[1 + k]) + unit * hidden, state_size(layer),
                                    pass->rows, hidden);
    }
}

/* s->gradient = the gradient of the input of layer [l] */
static void input_gradient(const struct layer *layer, const struct pass *pass, const struct saved *s, size_t l) {
    size_t in = inputs_of(layer, l);
    for (size_t d = 0; d < directions_of(layer); d++)
        pass->ops->linear_backward_input(pass->device, F32(arrays_of(layer, pass, s, l, d).gates),
                                         value_of(layer, pass->params, l, d, WEIGHT_IH),
                                         F32(d ? s->other : s->gradient), s->values, in, s->width);
    if (directions_of(layer) == 2)
        pass->ops->add(pass->device, F32(s->gradient), F32(s->other), F32(s->gradient), s->values * in);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    struct saved s = saved_of(layer, pass->rows);
    bool needs_dx = o.dx && o.dx->data, needs_start = s.of_start && !continues(layer, pass);
    if (pass->rows == 0) return;
    start_backward(layer, pass, &s, floats(o.dy));
    for (size_t l = layers_of(layer); l-- > 0;) {
        for (size_t d = 0; d < directions_of(layer); d++) {
            struct recurrent_shape shape = shape_of(layer, pass, d);
            struct recurrent_arrays a = arrays_of(layer, pass, &s, l, d);
            size_t unit = l * directions_of(layer) + d;
            a.dh = output_gradient(layer, &s, d);
            if (s.of_end) take_end(layer, pass, &s, floats(o.dy), unit, &a);
            if (needs_start) a.dh_start = s.of_start;
            if (needs_start && a.c_start) a.dc_start = s.of_start + pass->rows * hidden_of(layer);
            pass->ops->recurrent->backward(pass->device, &shape, &a);
            if (needs_start) put_start(layer, pass, &s, unit, o.dx);
            add_weight_gradients(layer, pass, &s, l, d);
        }
        if (l > 0 || needs_dx) input_gradient(layer, pass, &s, l);
        if (l > 0) pass_back(layer, pass, &s, l - 1);
    }
    if (needs_dx)
        reorder(layer, pass, s.gradient, floats(o.dx), layer->in_size, inputs_of(layer, 0), inputs_of(layer, 0), false);
}

static bool sums_over_ranks(const struct layer *layer) { return carries(layer); }

static size_t multiply_adds(const struct layer *layer) {
    size_t inputs = 0;
    for (size_t l = 0; l < layers_of(layer); l++) inputs += inputs_of(layer, l) + hidden_of(layer);
    return steps_of(layer) * directions_of(layer) * width_of(layer) * inputs;
}

/* ---- in ONNX: the nodes LSTM, GRU and RNN take (length, batch, features), and their gates in another order ---- */

static void facts(const struct layer *layer, struct layer_facts *to) { to->lengths = layer->in.lengths; }

static size_t gate_count(const struct layer *layer) { return recurrent_gates(cell_of(layer)); }

/* PyTorch's gate that ONNX has at [position]: i o f c of i f g o; z r n of r z n. */
static size_t gate_of_onnx(const struct layer *layer, size_t position) {
    static const size_t lstm[4] = {0, 3, 1, 2}, gru[4] = {1, 0, 2};
    return cell_of(layer) == RECURRENT_LSTM  ? lstm[position]
           : cell_of(layer) == RECURRENT_GRU ? gru[position]
                                             : position;
}

/* The parameters [first, first + count) of each direction of layer [l], one after the other, gates in ONNX's order:
 * (directions, count * gates * hidden, columns); columns 0: vectors. */
static const char *parameters(struct onnx_graph *g, const struct layer *layer, size_t l, size_t first, size_t count,
                              int64_t columns) {
    size_t directions = directions_of(layer), part = hidden_of(layer) * (columns ? (size_t)columns : 1);
    float *values = arena_alloc(g->arena, directions * count * gate_count(layer) * part * sizeof *values), *to = values;
    for (size_t d = 0; d < directions; d++)
        for (size_t i = 0; i < count; i++)
            for (size_t k = 0; k < gate_count(layer); k++, to += part)
                memcpy(to, g->m->params[param_of(layer, l, d, first + i)] + gate_of_onnx(layer, k) * part,
                       part * sizeof *to);
    const int64_t shape[] = {(int64_t)directions, (int64_t)(count * gate_count(layer) * hidden_of(layer)), columns};
    return onnx_tensor(g, NULL, ONNX_FLOAT, values, columns ? 3 : 2, shape);
}

static struct text node_attributes(const struct layer *layer) {
    struct text attributes = {0};
    const char *function = cell_of(layer) == RECURRENT_RELU ? "Relu" : "Tanh";
    onnx_int(&attributes, "hidden_size", (int64_t)hidden_of(layer));
    onnx_string(&attributes, "direction", directions_of(layer) == 2 ? "bidirectional" : "forward");
    if (cell_of(layer) == RECURRENT_GRU) onnx_int(&attributes, "linear_before_reset", 1);
    if (gate_count(layer) == 1)
        onnx_strings(&attributes, "activations", (const char *const[]){function, function}, directions_of(layer));
    return attributes;
}

/* The states [k] before the first step: (layers * directions, batch, hidden) */
static const char *states_onnx(const struct onnx_call *c, size_t k) {
    struct onnx_graph *g = c->g;
    const struct layer *layer = c->layer;
    const int64_t units = (int64_t)units_of(layer), hidden = (int64_t)hidden_of(layer);
    if (has_given_state(layer)) {
        const char *rows = onnx_reshape(g, c->inputs[1 + k], (const int64_t[]){units, hidden}, 2);
        return onnx_transpose(g, rows, (const int64_t[]){1, 0, 2}, 3);
    }
    struct text first = {0}, axis = {0};
    onnx_int(&first, "start", 0);
    onnx_int(&first, "end", 1);
    onnx_int(&axis, "axis", 0);
    const char *sizes[3] = {onnx_numbers(g, &units, 1)};
    sizes[1] = onnx_node1(g, "Shape", c->x, &first);
    sizes[2] = onnx_numbers(g, &hidden, 1);
    const char *shape = onnx_node(g, "Concat", sizes, 3, &axis);
    return onnx_node2(g, "Expand", onnx_param(g, learned_param(layer, k)), shape);
}

/* Layer [l] from x (length, batch, in). [lengths]: int32 (batch), the steps of each row; NULL: all. [states]: as
 * states_onnx; NULL: 0. [ys]: all steps, the last state and the last cell state, as onnx_node_outputs. */
static void layer_onnx(const struct onnx_call *c, size_t l, const char *x, int64_t in, const char *lengths,
                       const char *const *states, const char *ys[3]) {
    static const char *const names[] = {
        [RECURRENT_LSTM] = "LSTM", [RECURRENT_GRU] = "GRU", [RECURRENT_TANH] = "RNN", [RECURRENT_RELU] = "RNN"};
    struct onnx_graph *g = c->g;
    const struct layer *layer = c->layer;
    const int64_t directions = (int64_t)directions_of(layer), first = (int64_t)l * directions;
    struct text attributes = node_attributes(layer);
    const char *weight = parameters(g, layer, l, 0, 1, in);
    const char *inputs[7] = {x, weight, parameters(g, layer, l, 1, 1, (int64_t)hidden_of(layer)), "", "", "", ""};
    size_t count = 3, output_count = ys[2] ? 3 : ys[1] ? 2 : 1;
    if (config_of(layer)->bias) inputs[3] = parameters(g, layer, l, 2, 2, 0), count = 4;
    if (lengths) inputs[4] = lengths, count = 5;
    for (size_t k = 0; states && k < state_count(layer); k++, count = 5 + k)
        inputs[5 + k] = onnx_slice(g, states[k], 0, first, first + directions);
    onnx_node_outputs(g, names[cell_of(layer)], inputs, count, &attributes, ys, output_count);
}

/* (batch, columns) from a state (directions, batch, hidden) */
static const char *rows_onnx(struct onnx_graph *g, const char *state) {
    const char *shape = onnx_numbers(g, (const int64_t[]){0, -1}, 2);
    return onnx_node2(g, "Reshape", onnx_transpose(g, state, (const int64_t[]){1, 0, 2}, 3), shape);
}

static const char *write_onnx(const struct onnx_call *c) {
    struct onnx_graph *g = c->g;
    const struct layer *layer = c->layer;
    static const int64_t swap[] = {1, 0, 2}, joined[] = {0, 0, -1};
    size_t layers = layers_of(layer), parts = 1;
    int64_t columns = (int64_t)(directions_of(layer) * hidden_of(layer));
    const char *x = onnx_transpose(g, c->x, swap, 3), *lengths = NULL, *states[2], *ys[3] = {NULL};
    const char **all = arena_alloc(g->arena, (1 + 2 * layers) * sizeof *all);
    if (layer->in.lengths) lengths = onnx_cast(g, onnx_lengths(g, layer->in.lengths), ONNX_INT32);
    for (size_t k = 0; has_gradient_of_start(layer) && k < state_count(layer); k++) states[k] = states_onnx(c, k);
    for (size_t l = 0; l < layers; l++) {
        bool is_last = config_of(layer)->output == OUTPUT_LAST && l + 1 == layers;
        for (size_t k = 0; k < 3; k++) ys[k] = k <= last_states(layer) ? "" : NULL;
        if (is_last) ys[0] = NULL, ys[1] = "";
        layer_onnx(c, l, x, l ? columns : layer->in.size[1], lengths, has_gradient_of_start(layer) ? states : NULL, ys);
        for (size_t k = 0; k < last_states(layer); k++) all[1 + k * layers + l] = rows_onnx(g, ys[1 + k]);
        parts += last_states(layer);
        if (is_last) break;
        x = onnx_transpose(g, ys[0], (const int64_t[]){0, 2, 1, 3}, 4); /* from (length, directions, ...) */
        x = onnx_node2(g, "Reshape", x, onnx_numbers(g, joined, 3));
    }
    x = config_of(layer)->output == OUTPUT_LAST ? rows_onnx(g, ys[1]) : onnx_transpose(g, x, swap, 3);
    if (parts == 1) return x;
    all[0] = onnx_node2(g, "Reshape", x, onnx_numbers(g, (const int64_t[]){0, -1}, 2));
    return onnx_concat_columns(g, all, parts);
}

/* ---- in C ---- */

/* Floats of the gates of all steps, and behind them of the bias, the state or the sums of one step. */
static size_t work_of(const struct layer *layer) {
    size_t width = recurrent_gates(cell_of(layer)) * hidden_of(layer);
    return ((size_t)layer->in.size[0] + 2) * width;
}

/* One direction of layer [l], from x (steps, in) to y, rows [stride] apart. scratch[0]: work_of */
static void add_direction(const struct c_call *c, size_t l, size_t d, const char *x, size_t in, const char *y) {
    const struct layer *layer = c->layer;
    enum recurrent_cell cell = cell_of(layer);
    size_t hidden = hidden_of(layer), width = recurrent_gates(cell) * hidden, steps = (size_t)layer->in.size[0];
    size_t param = param_of(layer, l, d, 0);
    size_t stride = hidden * directions_of(layer);
    const char *w = c_matrix(c, param), *b = "0", *hidden_bias = "0";
    const char *hidden_w = c_matrix(c, param + 1), *gates = c->scratch[0];
    const char *bias = arena_printf(c->c->arena, "%s + %zu", gates, steps * width);
    const char *state = arena_printf(c->c->arena, "%s + %zu", gates, (steps + 1) * width);
    const char *length = c_length(c, layer->in.lengths, steps), *start[2] = {"0", "0"};
    size_t at = (l * directions_of(layer) + d) * hidden;
    for (size_t k = 0; has_gradient_of_start(layer) && k < state_count(layer); k++) {
        const char *states = has_given_state(layer) ? c->inputs[1 + k] : c_plain(c, learned_param(layer, k));
        start[k] = arena_printf(c->c->arena, "%s + %zu", states, at);
    }
    if (config_of(layer)->bias) b = c_plain(c, param + 2), hidden_bias = c_plain(c, param + 3);
    if (config_of(layer)->bias && cell != RECURRENT_GRU) {
        text_printf(&c->c->body, "    add(%s, %s, %s, %zu);\n", b, hidden_bias, bias, width);
        b = bias;
    }
    text_printf(&c->c->body, "    linear(%s, %s, %s, %s, %s, %zu, %zu);\n", x, w, b, gates, length, in, width);
    if (cell == RECURRENT_LSTM)
        text_printf(&c->c->body, "    lstm(%s, %s, %s, %s, %s, %s, %zu, %s, %zu, %zu);\n", gates, hidden_w, start[0],
                    start[1], state, y, stride, length, hidden, d);
    else if (cell == RECURRENT_GRU)
        text_printf(&c->c->body, "    gru(%s, %s, %s, %s, %s, %s, %zu, %s, %zu, %zu);\n", gates, hidden_w, hidden_bias,
                    start[0], state, y, stride, length, hidden, d);
    else
        text_printf(&c->c->body, "    recurrence(%s, %s, %s, %s, %zu, %s, %zu, %zu, %d);\n", gates, hidden_w, start[0],
                    y, stride, length, hidden, d, cell == RECURRENT_RELU);
    const char *last =
        arena_printf(c->c->arena, "%s + %s * %zu", y, d ? "0" : arena_printf(c->c->arena, "(%s - 1)", length), stride);
    for (size_t k = 0; k < last_states(layer); k++)
        c_columns(c, k ? state : last, 0,
                  arena_printf(c->c->arena, "%s + %zu", c->y, output_size(layer) + k * state_size(layer) + at), 0, 1,
                  hidden);
}

/* The outputs y (steps, columns) behind the length of the row become 0. */
static void zero_padding(const struct c_call *c, size_t columns, size_t steps) {
    const char *length = c_length(c, c->layer->in.lengths, steps);
    text_printf(&c->c->body, "    memset(%s + %s * %zu, 0, (%zu - %s) * %zu * sizeof(float));\n", c->y, length, columns,
                steps, length, columns);
}

/* scratch[1]: the outputs of two layers; those behind the length of the row are not read. */
static void write_c(const struct c_call *c) {
    const struct layer *layer = c->layer;
    struct arena *arena = c->c->arena;
    size_t steps = (size_t)layer->in.size[0], hidden = hidden_of(layer);
    size_t columns = hidden * directions_of(layer), in = c_last(&layer->in);
    const char *x = c->x, *y = NULL;
    for (size_t l = 0; l < layers_of(layer); l++, x = y, in = columns) {
        bool is_output = l + 1 == layers_of(layer) && config_of(layer)->output != OUTPUT_LAST;
        y = is_output ? c->y : arena_printf(arena, "%s + %zu", c->scratch[1], l % 2 * steps * columns);
        for (size_t d = 0; d < directions_of(layer); d++)
            add_direction(c, l, d, x, in, arena_printf(arena, "%s + %zu", y, d * hidden));
        if (is_output && layer->in.lengths) zero_padding(c, columns, steps);
    }
    const char *last_step =
        arena_printf(arena, "%s + (%s - 1) * %zu", y, c_length(c, layer->in.lengths, steps), columns);
    for (size_t d = 0; d < directions_of(layer) && config_of(layer)->output == OUTPUT_LAST; d++)
        c_columns(c, d == 0 ? last_step : arena_printf(arena, "%s + %zu", y, hidden), 0,
                  arena_printf(arena, "%s + %zu", c->y, d * hidden), 0, 1, hidden);
}

static void c_scratch(const struct layer *layer, size_t sizes[2]) {
    sizes[0] = work_of(layer);
    sizes[1] = 2 * steps_of(layer) * outputs_of(layer);
}

#define RECURRENT                                                                                                      \
    .ignores = IGNORES_X_AND_Y, .keeps_positions = true, .stores_state = true, .sums_over_ranks = sums_over_ranks,     \
    .plan = plan, .alloc = alloc, .release = release, .init = init, .autocast = AUTOCAST_PRODUCT, .forward = forward,  \
    .backward = backward, .sources = sources, .sources_key = "initial_state", .add_parts = add_parts,                  \
    .multiply_adds = multiply_adds, .facts = facts, .onnx = write_onnx, .c = write_c, .c_scratch = c_scratch

/* Names in other programs; the keys of all three types are the same. */
#define KEY_ALIASES(place_)                                                                                            \
    KEY_ALIAS(place_, "units hidden hidden_dim size out features num_units", ".hidden_size"),                          \
        KEY_ALIAS(place_, "layers n_layers num_hidden_layers depth", ".num_layers"),                                   \
        KEY_ALIAS_NOTE(place_, "return_sequences", ".output", "Write 'output: all', or 'output: last' without it"),    \
        KEY_ALIAS_NOTE(place_, "batch_first", NULL, "rows are always (length, features); leave the key out"),          \
        KEY_ALIAS_NOTE(place_, "h0 hx h_0 c0 init_state initial_states initial_hidden hidden_state learned_state",     \
                       ".initial_state", "It is 'learned', or the names of layers that give it"),                      \
        KEY_ALIAS_NOTE(place_, "return_state h_n hn final_state", ".last_state",                                       \
                       "Give names: 'last_state: h', of an lstm '[h, c]'"),                                            \
        KEY_ALIAS(place_, "stateful", ".carry_state"), KEY_ALIAS(place_, "use_bias", ".bias"),                         \
        KEY_ALIAS(place_, "bidir", ".bidirectional")

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("layer", "SimpleRNN recurrent", "rnn"),
    VALUE_ALIAS("layer", "LSTMCell", "lstm"),
    VALUE_ALIAS("layer", "GRUCell", "gru"),
    KEY_ALIASES("layer.lstm"),
    KEY_ALIASES("layer.gru"),
    KEY_ALIASES("layer.rnn"),
    KEY_ALIAS("layer.rnn", "activation", ".nonlinearity"),
    CALL_ALIAS("layer", "lstm", "~ hidden_size num_layers"),
    CALL_ALIAS("layer", "gru", "~ hidden_size num_layers"),
    CALL_ALIAS("layer", "rnn", "~ hidden_size num_layers"),
    {0},
};

const struct layer_type layer_lstm = {
    .aliases = aliases,
    .variant = {"lstm", &lstm_schema, "Long short-term memory over (length, features) (torch.nn.LSTM, batch_first)."},
    RECURRENT,
    .pytorch = "LSTM({in}, "
               "{hidden_size}{,num_layers}{,bias}{,bidirectional}{,output}{,dropout}{stream}{,initial_state}{,last_"
               "state}){!carry_state}",
};
const struct layer_type layer_gru = {
    .variant = {"gru", &gru_schema, "Gated recurrent units over (length, features) (torch.nn.GRU, batch_first)."},
    RECURRENT,
    .pytorch = "GRU({in}, "
               "{hidden_size}{,num_layers}{,bias}{,bidirectional}{,output}{,dropout}{stream}{,initial_state}{,last_"
               "state}){!carry_state}",
};
const struct layer_type layer_rnn = {
    .variant = {"rnn", &rnn_schema, "Elman's recurrent network over (length, features) (torch.nn.RNN, batch_first)."},
    RECURRENT,
    .pytorch = "RNN({in}, "
               "{hidden_size}{,num_layers}{,bias}{,bidirectional}{,output}{,nonlinearity}{,dropout}{stream}{,initial_"
               "state}{,last_state}){!carry_state}",
};
