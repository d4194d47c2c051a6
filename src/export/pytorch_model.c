/* The model of a PyTorch script: nn.Sequential, or a class whose forward has a line for each layer. */
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "export/export.h"
#include "export/pytorch.h"
#include "model/init.h"
#include "model/layers/layers.h"

/* ---- the model: an expression for each tensor ---- */

struct call {
    struct script *s;
    const struct layer *layer;
    const struct graph_node *node;
    const char **inputs; /* expressions */
    const struct shape *in;
    size_t out_start; /* of the template in the text */
};

static void add_lengths(struct text *out, size_t number) {
    if (number)
        text_printf(out, "lengths%zu", number);
    else
        text_add(out, "None");
}

/* Whether its memory is in the order of its dimensions: not that of channels last. */
static bool is_row_major(const struct shape *shape) {
    size_t channels = (size_t)shape->size[0];
    return !shape->is_channels_last || shape->dims < 2 || channels == 1 || channels == shape_elements(shape);
}

static bool layer_place(void *context, const char *name, struct text *out) {
    const struct call *c = context;
    const struct layer *l = c->layer;
    const struct params *params = &c->s->model->params;
    const int64_t *first = l->param_count ? params->items[l->first_param].shape : (int64_t[]){0, 0};
    struct layer_facts facts = layer_facts_of(l);
    if (strcmp(name, "x") == 0) {
        text_add(out, c->inputs[0]);
    } else if (strcmp(name, "x1") == 0) {
        text_add(out, c->inputs[1]);
    } else if (strcmp(name, "xs") == 0) {
        for (size_t i = 0; i < c->node->in_count; i++) text_printf(out, "%s%s", i ? ", " : "", c->inputs[i]);
    } else if (strcmp(name, "x_formula") == 0) {
        l->type->add_formula(l, c->inputs, out);
    } else if (strcmp(name, "in") == 0) {
        text_printf(out, "%lld", (long long)c->in->size[c->in->dims - 1]);
    } else if (strcmp(name, "channels") == 0) {
        text_printf(out, "%lld", (long long)c->in->size[0]);
    } else if (strcmp(name, "first") == 0) {
        const struct model_input *input = l->config;
        text_printf(out, "%zu:%zu", input->first, input->first + l->out_size);
    } else if (strcmp(name, "d") == 0) {
        text_printf(out, "%d", c->in->dims < 3 ? 1 : c->in->dims - 1);
    } else if (strcmp(name, "batch_norm") == 0) {
        bool is_synchronous = l->type->sums_over_ranks && l->type->sums_over_ranks(l);
        text_printf(out, is_synchronous ? "SyncBatchNorm" : "nn.BatchNorm%dd", c->in->dims < 3 ? 1 : c->in->dims - 1);
    } else if (strcmp(name, "rows") == 0) {
        text_printf(out, "%lld", (long long)first[0]);
    } else if (strcmp(name, "columns") == 0) {
        text_printf(out, "%lld", (long long)first[1]);
    } else if (strcmp(name, "number") == 0) {
        text_printf(out, "%u", l->stream);
    } else if (strcmp(name, "order") == 0) {
        if (!is_row_major(&l->out)) text_add(out, ", channels_last=True");
    } else if (strcmp(name, "stream") == 0) {
        if (strstr(text_string(out) + c->out_start, "dropout=")) text_printf(out, ", stream=%u", l->stream);
    } else if (strcmp(name, "shape") == 0) {
        script_add_sizes(out, &l->out, 0);
    } else if (strcmp(name, "lengths") == 0) {
        add_lengths(out, facts.lengths);
    } else {
        return false;
    }
    return true;
}

/* The type whose template a layer has: its own or, of a part of another one, that one's. */
static const struct layer_type *type_of(const struct layer *layer) {
    return layer->type->pytorch || !layer->entry ? layer->type : layer->entry;
}

/* A part of a layer whose last part is the whole in PyTorch, or a change of the memory's order. */
static bool passes_on(const struct layer *layer) {
    const char *template = layer->type->pytorch;
    return template ? strcmp(template, "{x}") == 0 && !layer->type->pytorch_lengths : strchr(layer->name, '/') != NULL;
}

#define VARIABLES "xabcdefghjklnopqrstuvwyz" /* not i and m, which a script uses */

/* How tensors are named while the nodes are written. */
struct naming {
    struct script *s;
    size_t *origin;    /* (tensor_count) the tensor whose value it is, apart from its shape */
    size_t *last_read; /* (tensor_count) of an origin: the node; SIZE_MAX: the result */
    size_t holds[sizeof VARIABLES];
    const char **value; /* (tensor_count) of an origin: a variable */
    const char **codes; /* (layer_count) that make the modules */
    struct text modules, forward;
};

/* Whether its values are those of its memory's tensor, without a change of the shape. */
static bool is_as_stored(const struct model *m, size_t tensor) {
    const struct shape *a = &m->tensors[tensor].shape, *b = &m->tensors[model_root(m, tensor)].shape;
    return m->tensors[tensor].scores || (shape_is_equal(a, b) && is_row_major(a) == is_row_major(b));
}

static void find_origins(struct naming *n) {
    const struct model *m = n->s->model;
    for (size_t t = 0; t < m->tensor_count; t++) n->origin[t] = model_root(m, t);
    for (size_t i = 0; i < m->node_count; i++) {
        const struct graph_node *node = &m->nodes[i];
        if (node->layer && passes_on(node->layer) && !node->layer->has_relu && is_as_stored(m, node->in[0]))
            n->origin[node->out] = n->origin[node->in[0]];
        for (size_t t = 0; t < m->tensor_count; t++) /* views of it */
            if (t != node->out && model_root(m, t) == node->out) n->origin[t] = n->origin[node->out];
    }
    for (size_t i = 0; i < m->node_count; i++)
        for (size_t k = 0; k < m->nodes[i].in_count; k++) n->last_read[n->origin[m->nodes[i].in[k]]] = i;
    n->last_read[n->origin[m->output]] = SIZE_MAX;
    for (size_t i = 0; i < m->output_count; i++) n->last_read[n->origin[m->outputs[i].tensor]] = SIZE_MAX;
}

/* A variable for the output of node [i]: the first that holds nothing which a later node reads. */
static const char *choose(struct naming *n, size_t i) {
    const char *names = VARIABLES;
    for (size_t v = 0; names[v]; v++) {
        if (n->holds[v] != NO_TENSOR && n->last_read[n->holds[v]] > i) continue;
        n->holds[v] = n->s->model->nodes[i].out;
        return arena_printf(n->s->arena, "%c", names[v]);
    }
    return NULL;
}

/* The shape of an input of a layer; if a part of this layer computes it, that of the part's input. */
static const struct shape *input_shape(const struct naming *n, size_t tensor) {
    const struct model *m = n->s->model;
    for (size_t i = 0; i < m->node_count; i++)
        if (m->nodes[i].out == tensor && m->nodes[i].layer && strchr(m->nodes[i].layer->name, '/') &&
            passes_on(m->nodes[i].layer))
            return &m->tensors[m->nodes[i].in[0]].shape;
    return &m->tensors[tensor].shape;
}

/* The expression of a tensor: a variable, or a view of the memory of one with another shape. */
static const char *expression(const struct naming *n, size_t tensor) {
    const struct model *m = n->s->model;
    const struct planned_tensor *t = &m->tensors[tensor];
    const struct shape *to = &t->shape, *from = &m->tensors[model_root(m, tensor)].shape;
    const char *name = n->value[n->origin[tensor]];
    if (t->alias == NO_TENSOR || is_as_stored(m, tensor)) return name;
    if (to->dims == 1 && is_row_major(from)) return arena_printf(n->s->arena, "%s.flatten(1)", name);
    SCOPED_TEXT out = {0};
    text_printf(&out, "%s%s.reshape(len(%s), ", name, is_row_major(from) ? "" : ".movedim(1, -1)", name);
    script_add_sizes(&out, to, is_row_major(to) ? 0 : 1);
    if (!is_row_major(to)) text_printf(&out, ", %lld", (long long)to->size[0]);
    text_add(&out, is_row_major(to) ? ")" : ").movedim(-1, 1)");
    return arena_copy(n->s->arena, text_string(&out));
}

/* The layer whose module has the parameters of a layer: that with which it shares them. */
static const struct layer *module_of(const struct naming *n, const struct layer *layer) {
    const struct model *m = n->s->model;
    for (size_t i = 0; layer->is_sharing && layer->param_count && i < m->layer_count; i++)
        if (m->layers[i].param_count && m->layers[i].first_param == layer->first_param) return &m->layers[i];
    return layer;
}

/* Both calls of a module that is shared have its keys. */
static status check_shared(struct naming *n, const struct layer *layer, const char *code) {
    const struct layer *first = module_of(n, layer), *layers = n->s->model->layers;
    n->codes[layer - layers] = arena_copy(n->s->arena, code);
    if (strcmp(n->codes[first - layers], code) == 0) return OK;
    return status_usage("%s: %s: share: a layer with other keys than those of %s, or with dropout, cannot be expressed "
                        "in a PyTorch script",
                        place_text(layer->place).s, layer->path, first->path);
}

/* The line that uses the weight of another layer. */
static void add_tie(struct naming *n, const struct layer *layer) {
    const char *tied = n->s->model->params.items[layer->tied].name, *dot = strrchr(tied, '.');
    if (!layer->tied_count) return;
    text_printf(&n->modules, "        self.get_submodule(\"%s\").weight = self.get_submodule(\"%.*s\").%s\n",
                layer->name, (int)(dot - tied), tied, dot + 1);
}

static status add_layer(struct naming *n, size_t i, const char **inputs) {
    const struct graph_node *node = &n->s->model->nodes[i];
    const struct layer *layer = node->layer;
    const struct layer_type *type = type_of(layer);
    struct layer_facts facts = layer_facts_of(layer);
    struct call call = {n->s, layer, node, inputs, input_shape(n, node->in[0]), 0};
    const char *template = facts.lengths && type->pytorch_with_lengths ? type->pytorch_with_lengths : type->pytorch;
    if (passes_on(layer)) template = "{x}";
    SCOPED_TEXT code = {0};
    if (strpbrk(layer->name, "\"\\{}\n")) return script_refuse("a name with a quote, a backslash or a brace");
    if (!template)
        return status_usage("%s: %s cannot be expressed in a PyTorch script", place_text(layer->place).s, layer->path);
    status s = status_prefix(schema_fill(type->variant.schema, layer->config, template, layer_place, &call, &code),
                             "%s: %s", place_text(layer->place).s, layer->path);
    if (!s && layer->out.lengths && layer->out.lengths != layer->in.lengths && type->pytorch_lengths) {
        text_printf(&n->forward, "        lengths%zu = ", layer->out.lengths);
        s = schema_fill(type->variant.schema, layer->config, type->pytorch_lengths, layer_place, &call, &n->forward);
        text_add(&n->forward, "\n");
    }
    bool is_module = !strstr(template, "{x");
    if (!s && is_module) s = check_shared(n, layer, text_string(&code));
    const char *tokens = facts.reads_tokens && !layer->in.is_tokens ? ".long()" : "";
    if (!s && is_module && (!layer->is_sharing || !layer->param_count)) {
        text_printf(&n->modules, "        put(self, \"%s\", %s)\n", layer->name, text_string(&code));
        add_tie(n, layer);
    }
    const char *name = choose(n, i);
    if (!s && !name) s = script_refuse("a model with so many branches");
    if (!s) n->value[node->out] = name;
    if (!s && is_module) {
        text_printf(&n->forward, "        %s = m(\"%s\")(", name, module_of(n, layer)->name);
        for (size_t k = 0; k < node->in_count; k++)
            text_printf(&n->forward, "%s%s%s", k ? ", " : "", inputs[k], tokens);
        if (facts.lengths && !type->pytorch_with_lengths) text_printf(&n->forward, ", lengths%zu", facts.lengths);
        text_add(&n->forward, ")\n");
    } else if (!s && strcmp(text_string(&code), name) != 0) {
        text_printf(&n->forward, "        %s = %s\n", name, text_string(&code));
    }
    if (!s && layer->has_relu) text_printf(&n->forward, "        %s = F.relu(%s)\n", name, name);
    return s;
}

static status add_node(struct naming *n, size_t i) {
    const struct graph_node *node = &n->s->model->nodes[i];
    const char **inputs = arena_alloc(n->s->arena, node->in_count * sizeof *inputs);
    for (size_t k = 0; k < node->in_count; k++) inputs[k] = expression(n, node->in[k]);
    if (node->layer && n->origin[node->out] != node->out) return OK;
    if (node->layer) return add_layer(n, i, inputs);
    const char *name = choose(n, i);
    if (!name) return script_refuse("a model with so many branches");
    n->value[node->out] = name;
    text_printf(&n->forward, node->has_relu ? "        %s = F.relu(%s + %s)\n" : "        %s = %s + %s\n", name,
                inputs[0], inputs[1]);
    return OK;
}

/* ---- the same as nn.Sequential, for a list of modules whose names are its indices ---- */

struct chain {
    struct text out;
    size_t count;
};

static void add_item(struct chain *chain, const char *code) {
    text_printf(&chain->out, "    %s,\n", code);
    chain->count++;
}

/* Flatten between two layers. */
static bool add_view(const struct script *s, size_t tensor, struct chain *chain) {
    const struct planned_tensor *t = &s->model->tensors[tensor];
    if (t->alias == NO_TENSOR || t->scores ||
        shape_is_equal(&t->shape, &s->model->tensors[model_root(s->model, tensor)].shape))
        return true;
    if (t->shape.dims == 1) add_item(chain, "nn.Flatten()");
    return t->shape.dims == 1;
}

static bool add_chain_node(struct naming *n, size_t i, struct chain *chain) {
    const struct graph_node *node = &n->s->model->nodes[i];
    const struct layer *layer = node->layer;
    if (!layer || node->in_count != 1) return false;
    if (passes_on(layer)) return true;
    const struct layer_type *type = type_of(layer);
    struct call call = {n->s, layer, node, (const char *[]){"x"}, input_shape(n, node->in[0]), 0};
    SCOPED_TEXT code = {0};
    bool fits = type->pytorch && !strstr(type->pytorch, "{x") && !layer->is_sharing && !layer->tied_count &&
                !layer_facts_of(layer).lengths && !layer->out.lengths && !layer_facts_of(layer).reads_tokens &&
                add_view(n->s, node->in[0], chain);
    if (fits && layer->has_relu && type->relu == RELU_BEFORE) add_item(chain, "nn.ReLU()");
    status s = fits ? schema_fill(type->variant.schema, layer->config, type->pytorch, layer_place, &call, &code) : OK;
    fits = fits && !s && strcmp(layer->name, arena_printf(n->s->arena, "%zu", chain->count)) == 0;
    status_free(s);
    if (fits) add_item(chain, text_string(&code));
    if (fits && layer->has_relu && type->relu != RELU_BEFORE) add_item(chain, "nn.ReLU()");
    return fits;
}

static bool write_chain(struct naming *n) {
    const struct model *m = n->s->model;
    struct chain chain = {0};
    bool fits = true;
    for (size_t i = 0; fits && i < m->node_count; i++)
        fits = n->origin[m->nodes[i].in[0]] == (i ? n->origin[m->nodes[i - 1].out] : 0) && add_chain_node(n, i, &chain);
    fits = fits && add_view(n->s, m->output, &chain);
    if (fits) text_printf(&n->s->network, "model = nn.Sequential(\n%s)\n", text_string(&chain.out));
    text_free(&chain.out);
    return fits;
}

/* ---- repeated lines as a loop ---- */

/* Blocks of lines that differ only in a number of their names, which counts up ("h.0.ln", "h.1.ln"), and in numbers of
 * random streams, which are a distance apart. */
struct loop {
    size_t first, period, count; /* lines first .. first + period * count - 1 */
    long start;                  /* the number in the first block; -1: not known yet */
    long distance;               /* of streams */
};

static bool ends_with(const char *begin, const char *end, const char *word) {
    size_t length = strlen(word);
    return (size_t)(end - begin) >= length && strncmp(end - length, word, length) == 0;
}

/* Whether [line] is that of [first], [t] blocks later; adds the line of the loop to [out], which may be NULL. */
static bool is_repeated(const char *first, const char *line, long t, struct loop *loop, struct text *out) {
    const char *a = first, *b = line, *quote = NULL;
    size_t quoted = 0; /* where the string began in [out] */
    for (; *a; a++, b++) {
        if (*a == '"') quote = quote ? NULL : a;
        if (*a == '"' && quote && out) quoted = out->length;
        if (*a < '0' || *a > '9' || *b < '0' || *b > '9' || (a > first && a[-1] >= '0' && a[-1] <= '9')) {
            if (*a != *b) return false;
            if (out) text_add_bytes(out, a, 1);
            continue;
        }
        char *end, *other;
        long x = strtol(a, &end, 10), y = strtol(b, &other, 10);
        bool is_index = quote && (a[-1] == '"' || a[-1] == '.') && (*end == '"' || *end == '.');
        bool is_stream = ends_with(first, a, "stream=");
        if (x != y && is_index && y == x + t && (loop->start < 0 || loop->start == x)) {
            loop->start = x;
            SCOPED_TEXT before = {0};
            if (out) text_printf(&before, "f%s{i}", out->data + quoted);
            if (out) out->length = quoted, text_add(out, text_string(&before));
        } else if (x != y && is_stream && (y - x) % t == 0 && (!loop->distance || loop->distance == (y - x) / t)) {
            loop->distance = (y - x) / t;
            if (out) text_printf(out, "%ld + %ld * i", x - loop->distance * loop->start, loop->distance);
        } else if (x == y) {
            if (out) text_add_bytes(out, a, (size_t)(end - a));
        } else {
            return false;
        }
        a = end - 1;
        b = other - 1;
    }
    return !*b;
}

/* How often the block of [period] lines from [first] on is there. */
static struct loop measure_loop(char *const *lines, size_t count, size_t first, size_t period) {
    struct loop loop = {first, period, 1, -1, 0};
    for (; first + period * (loop.count + 1) <= count; loop.count++)
        for (size_t k = 0; k < period; k++)
            if (!is_repeated(lines[first + k], lines[first + period * loop.count + k], (long)loop.count, &loop, NULL))
                return loop;
    return loop;
}

/* Adds the lines of [text], those of a loop once. */
static void add_folded(struct arena *arena, const struct text *text, struct text *out) {
    size_t count = 0;
    const char *all = text_string(text);
    char **lines = arena_alloc(arena, (text->length + 1) * sizeof *lines);
    for (const char *end; (end = strchr(all, '\n')); all = end + 1)
        lines[count++] = arena_printf(arena, "%.*s", (int)(end - all), all);
    for (size_t i = 0; i < count;) {
        struct loop best = {i, 1, 1, -1, 0};
        for (size_t period = 1; i + 2 * period <= count; period++) {
            struct loop loop = measure_loop(lines, count, i, period);
            if (loop.count > 1 && loop.start >= 0 && loop.count * period > best.count * best.period) best = loop;
        }
        if (best.count > 1 && best.start == 0)
            text_printf(out, "        for i in range(%zu):\n", best.count);
        else if (best.count > 1)
            text_printf(out, "        for i in range(%ld, %ld):\n", best.start, best.start + (long)best.count);
        for (size_t k = 0; k < best.period; k++) {
            text_add(out, best.count > 1 ? "    " : "");
            if (best.count == 1 || !is_repeated(lines[i + k], lines[i + best.period + k], 1, &best, out))
                text_add(out, lines[i + k]);
            text_add(out, "\n");
        }
        i += best.count * best.period;
    }
}

static status write_class(struct naming *n) {
    const struct model *m = n->s->model;
    n->value[0] = "x";
    for (size_t v = 0; v < sizeof n->holds / sizeof *n->holds; v++) n->holds[v] = NO_TENSOR;
    n->holds[0] = 0;
    status s = OK;
    for (size_t i = 0; !s && i < m->node_count; i++) s = add_node(n, i);
    if (s) return s;
    struct text *out = &n->s->network;
    text_add(out, "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n");
    add_folded(n->s->arena, &n->modules, out);
    text_add(out, "\n    def forward(self, x):\n        m = self.get_submodule\n");
    add_folded(n->s->arena, &n->forward, out);
    text_add(out, "        return ");
    if (m->output_count == 0) text_add(&n->s->network, expression(n, m->output));
    if (script_output_lengths(n->s)) text_printf(&n->s->network, ", lengths%zu", script_output_lengths(n->s));
    for (size_t i = 0; i < m->output_count; i++)
        text_printf(&n->s->network, "%s%s", i ? ", " : "", expression(n, m->outputs[i].tensor));
    text_add(&n->s->network, m->output_count == 1 ? ",\n\n\n" : "\n\n\n");
    return OK;
}

static void add_freeze(struct script *s) {
    const struct string_list *patterns = &s->config->model.freeze;
    if (!patterns->count) return;
    text_add(&s->network, "for name, p in model.named_parameters():\n    p.requires_grad_(not "
                          "any(fnmatch.fnmatchcase(name, pattern) for pattern in ");
    script_add_names(&s->network, patterns, "");
    text_add(&s->network, "))\n");
}

status script_write_network(struct script *s) {
    size_t count = s->model->tensor_count;
    struct naming n = {.s = s,
                       .origin = arena_alloc(s->arena, count * sizeof *n.origin),
                       .last_read = arena_alloc(s->arena, count * sizeof *n.last_read),
                       .value = arena_alloc(s->arena, count * sizeof *n.value),
                       .codes = arena_alloc(s->arena, (s->model->layer_count + 1) * sizeof *n.codes)};
    struct text *out = &s->network;
    find_origins(&n);
    text_printf(out, "torch.manual_seed(%lld)\n", (long long)s->config->seed);
    status failure = OK;
    if (s->model->output_count || !write_chain(&n)) {
        text_clear(out);
        failure = write_class(&n);
        text_printf(out, "torch.manual_seed(%lld)\nmodel = Model()\n", (long long)s->config->seed);
    }
    if (!failure) failure = init_rules_write_pytorch(s->model, &s->config->model.init, out);
    if (s->config->model.has_init_from) {
        script_add_text(out, "model.load_state_dict(torch.load(", export_initial_weights(s->path, s->arena),
                        "), strict=False)  # those of model.init_from\n");
    }
    text_add(out, "model.to(device, dtype)\n");
    add_freeze(s);
    text_free(&n.modules);
    text_free(&n.forward);
    return failure;
}
