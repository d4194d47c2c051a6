/* A node is named after the tensor that it computes. Views and changes of the order in memory are not drawn. */
#include "train/plan/plan_graph.h"

#include "base/arena.h"
#include "model/operation.h"

/* For each tensor: the one of the node that computes its values. */
static size_t *nodes_of(const struct model *m, struct arena *arena) {
    size_t *nodes = arena_alloc(arena, m->tensor_count * sizeof *nodes);
    for (size_t t = 0; t < m->tensor_count; t++) nodes[t] = t;
    for (size_t s = 0; s < m->node_count; s++) {
        const struct graph_node *node = &m->nodes[s];
        bool is_reorder = node->layer && operation_of(node->layer).kind == OPERATION_REORDER;
        if (is_reorder) nodes[node->out] = nodes[model_root(m, node->in[0])];
    }
    for (size_t t = 0; t < m->tensor_count; t++) nodes[t] = nodes[model_root(m, t)];
    return nodes;
}

/* A text within quotes of DOT. */
static void add_quoted(const char *value, struct text *out) {
    for (; *value; value++) text_printf(out, "%s%c", *value == '"' || *value == '\\' ? "\\" : "", *value);
}

static void add_node(const struct model *m, const struct graph_node *node, struct text *out) {
    const struct layer *layer = node->layer;
    size_t parameters = 0;
    text_printf(out, "    t%zu [label=\"", node->out);
    if (layer) {
        add_quoted(layer->name, out);
        text_printf(out, "%s%s", *layer->name ? "\\n" : "", layer->type->variant.name);
        for (size_t p = 0; p < layer->param_count; p++) parameters += m->params.items[layer->first_param + p].count;
    }
    text_printf(out, "%s%s\\n", layer ? "" : "+", (layer ? layer->has_relu : node->has_relu) ? ", relu" : "");
    shape_print(&m->tensors[node->out].shape, out);
    if (parameters && !layer->is_sharing)
        text_printf(out, "\\n%zu parameter%s", parameters, text_plural(parameters, "s"));
    text_add(out, "\"];\n");
}

void plan_graph(const struct model *model, const char *name, struct text *out) {
    struct arena *arena = arena_create();
    const size_t *nodes = nodes_of(model, arena);
    text_add(out, "digraph \"");
    add_quoted(name, out);
    text_add(out, "\" {\n    node [shape=box];\n    t0 [label=\"inputs\\n");
    shape_print(&model->in, out);
    text_add(out, "\", shape=oval];\n");
    for (size_t s = 0; s < model->node_count; s++) {
        const struct graph_node *node = &model->nodes[s];
        if (nodes[node->out] != node->out) continue;
        add_node(model, node, out);
        for (size_t i = 0; i < node->in_count; i++)
            text_printf(out, "    t%zu -> t%zu;\n", nodes[node->in[i]], node->out);
    }
    text_printf(out, "    output [shape=oval];\n    t%zu -> output;\n}\n", nodes[model->output]);
    arena_destroy(arena);
}
