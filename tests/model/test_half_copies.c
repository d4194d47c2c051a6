/* The plan of 16-bit copies: which nodes write and read them, and their memory. A pass that only counts which contents
 * each part of the memory has shows that no product reads an old copy, and that no operator of any model reads memory
 * that has other contents by then. ctest-labels: unit */
#include <stdlib.h>
#include <string.h>

#include "device/internal.h"
#include "model/gradient_cases.h"
#include "model/half.h"

static bool can_be_half(const struct device *device, size_t features) {
    (void)device;
    return features % 8 == 0;
}

static bool never_half(const struct device *device, size_t features) {
    (void)device, (void)features;
    return false;
}

static struct device_ops ops, float32_ops; /* those of the CPU with can_be_half or never_half, in main */
static const struct device device = {.ops = &ops, .description = "a GPU"};
static const struct device float32_device = {.ops = &float32_ops, .description = "a GPU"};

static struct model *plan(const char *layers, const struct device *on, struct document **document) {
    struct shape input = {.dims = 2, .size = {4, 8}}, image = {.dims = 3, .size = {3, 8, 8}};
    struct model *model = NULL;
    ck_assert(!build(layers, strstr(layers, "conv") ? &image : &input, document, &model));
    if (on) ck_assert(!model_adapt_to_device(model, on));
    return model;
}

/* Its output stays in float32 where an addition or another layer reads it. */
#define NORM "{layer_norm: {name: n}}"
#define CONV(channels) "{conv2d: {out: " #channels ", kernel_size: 3, padding: 1}}"

/* Each copy: v: of a value, g: of a gradient, i: of a matrix inside a layer; with rows of so many padded columns; at
 * the times when an operator has it. The first operator writes the matrix, unless that is the input. */
static const struct {
    const char *layers, *copies;
} cases[] = {
    /* the input; the hidden tensor is 16 bits; the loss writes the gradient of the output */
    {"[{linear: 16}, {linear: 16}]", "v 0, g 2 3"},
    /* 12 features are padded: the first product writes the copy */
    {"[{linear: 12}, {linear: 16}]", "v 0, v12 0 1, g12 3 4, g 2 3"},
    /* three layers read the norm's output, and operators run in between; they share the gradient of their sum */
    {"[" NORM ", {residual: {layers: [{linear: 8}], name: r}}, {linear: {out: 8, name: a, from: n}}, "
     "{linear: {out: 8, name: b, from: n}}, {add: {from: [a, b, r, n]}}, {linear: 8}]",
     "v 0 1 3 4, g 10 14 15 17, g 9 10"},
    /* the stream of a transformer: its gradient is written again and again in one slot */
    {"[layer_norm, {residual: [layer_norm, {linear: 8}]}, {residual: [layer_norm, {linear: 8}]}, layer_norm]",
     "g 9 11 12 14"},
    /* without a norm: values are copied, too; an addition changes the gradient after a product has read it */
    {"[softmax, {residual: [{linear: 8}]}, {residual: [{linear: 8}]}, {linear: 8}]", "v 0 1, v 2 3, g 7 9 9 11, g 6 7"},
    /* two layers share the gradient of their sum */
    {"[" NORM ", {linear: {out: 12, name: a}}, {linear: {out: 12, from: n}}, {add: {from: a}}]", "g12 4 6 7"},
    {"[{attention: {heads: 1}}]", "v 0, g 1 2, i 0, i 2"},
    {"[" NORM ", {linear: 8}, {cross_attention: {heads: 1, from: n}}]", "v 0 1 2, v 1 2, g 4 5, g 3 4, i 2, i 4, i 4"},
    /* images of 12 channels; the derivative of a relu is applied before the product */
    {"[" CONV(12) ", relu, " CONV(12) ", {conv_transpose2d: {out: 8, kernel_size: 2}}, batch_norm]",
     "v 0 1, v 1 2, v 2 3, g 11 11, g 9 10, g 8 9"},
    /* one layer reads rows of 12 numbers, the other one has no gaps */
    {"[" CONV(12) ", {adaptive_avg_pool2d: {output_size: 1, name: n}}, {conv2d: {out: 12, kernel_size: 1}}, "
                  "{flatten: {name: c}}, {flatten: {from: n}}, {linear: 12}, {add: {from: c}}]",
     "v 0 1, v 2 3, g 10 11, g 6 9"},
    /* fused: the first product also writes the output of the GELU, while the copy is read */
    {"[layer_norm, {residual: [{linear: 16}, {gelu: {approximate: tanh}}, {linear: 8}]}]", "v 0 1, g 5 7"},
    {"[layer_norm, {residual: [{linear: 40}, {gelu: {approximate: tanh}}, {linear: 8}]}, layer_norm, {residual: "
     "[{linear: 8}, {gelu: {approximate: tanh}}, {linear: 8}]}]",
     "v 0 1, v 4 5 6, g 15 17, g 10 12"},
    /* frozen: no backward keeps the input of the fused layers */
    {"[layer_norm, {linear: 16}, {gelu: {approximate: tanh}}, {linear: 16}, {linear: 8}]\nfreeze: ['0.*', '1.*', "
     "'3.*']",
     "g 5 6"},
};

static bool has(struct half_copy *const *list, size_t count, const struct half_copy *copy) {
    bool found = false;
    for (size_t i = 0; list && i < count; i++) found = found || list[i] == copy;
    return found;
}

static bool has_inner(const struct layer *layer, const struct half_copy *copy) {
    return layer && has(layer->inner, LAYER_MAX_INNER, copy);
}

/* Whether a node's operators have the copy: in forward, where a sum and the norm after it may be one operator, and in
 * backward. */
static bool has_forward(const struct model *m, const struct graph_node *node, const struct planned_copy *planned) {
    const struct half_copy *copy = &planned->copy;
    bool is_inner = has_inner(node->layer, copy) && planned->piece.first < m->node_count;
    return has(node->in_copies, node->in_count, copy) || node->out_copy == copy || is_inner ||
           (node->precedes_norm && node[1].out_copy == copy);
}

static bool has_backward(const struct model *m, const struct graph_node *node, const struct planned_copy *planned) {
    const struct half_copy *copy = &planned->copy;
    bool is_inner = has_inner(node->layer, copy) && planned->piece.first > m->node_count;
    return node->dy_copy == copy || has(node->dx_copies, node->in_count, copy) || is_inner;
}

/* " 3" */
static void add_time(struct text *out, const struct planned_copy *planned, size_t time) {
    text_printf(out, " %zu", time);
    ck_assert_uint_ge(time + 1, planned->piece.first); /* one earlier: a sum and the norm after it are one operator */
    ck_assert_uint_le(time, planned->piece.last);
}

static void describe(const struct model *m, struct text *out) {
    for (size_t c = 0; c < m->copy_count; c++) {
        const struct planned_copy *planned = &m->copies[c];
        const struct half_copy *copy = &planned->copy;
        size_t columns = copy->columns;
        text_printf(out, "%s%s", c ? ", " : "", planned->layer ? "i" : planned->slot == SIZE_MAX ? "v" : "g");
        if (columns) text_printf(out, "%zu", columns);
        for (size_t i = 0; i < m->node_count; i++)
            if (has_forward(m, &m->nodes[i], planned)) add_time(out, planned, i);
        if (m->loss_copy == copy) add_time(out, planned, m->node_count);
        for (size_t i = m->node_count; i-- > 0;) {
            const struct graph_node *node = &m->nodes[i];
            size_t time = 2 * m->node_count - i;
            if (node->relu_copy == copy) add_time(out, planned, time);
            if (has_backward(m, node, planned)) add_time(out, planned, time);
            for (size_t a = 0; a < node->add_count; a++)
                if (node->adds[a].copy == copy) add_time(out, planned, time);
        }
    }
}

TEST_EACH(which_operators_have_copies, cases) {
    struct document *document;
    struct model *m = plan(cases[_i].layers, &device, &document);
    struct text found = {0};
    describe(m, &found);
    ck_assert_str_eq(text_string(&found), cases[_i].copies);
    text_free(&found);
    model_destroy(m);
    document_destroy(document);
}

/* ---- a pass that counts contents ---- */

/* Every write has a number of its own; what has been written last is in each float of the block. */
struct contents {
    const struct model *model;
    bool writes_copies; /* operators that write a matrix write its copy, too */
    bool joins_sums;    /* a sum and the norm after it are one operator */
    size_t writes, reads;
    size_t *block;                /* (row_floats) */
    size_t *tensors, *recomputed; /* (tensor_count): their last write */
    size_t *slots, *saved;        /* (slot_count), (layer_count) */
    size_t *copies, *copied_from; /* (copy_count), and that of the matrix then; 0: not valid */
};

static size_t write_piece(struct contents *c, const struct piece *piece) {
    c->writes++;
    for (size_t i = 0; i < piece->size; i++) c->block[piece->offset + i] = c->writes;
    return c->writes;
}

/* One assertion for all: each costs a message to the runner. */
static void check_piece(const struct contents *c, const struct piece *piece, size_t write) {
    bool is_there = true;
    for (size_t i = 0; i < piece->size; i++) is_there &= c->block[piece->offset + i] == write;
    ck_assert_msg(is_there, "an operator reads memory that another one has written since");
}

static size_t matrix_write(const struct contents *c, const struct planned_copy *planned) {
    return planned->slot != SIZE_MAX ? c->slots[planned->slot] : c->tensors[planned->tensor];
}

static void write_copy(struct contents *c, size_t i) {
    c->copies[i] = write_piece(c, &c->model->copies[i].piece);
    c->copied_from[i] = matrix_write(c, &c->model->copies[i]);
}

/* An operator has written a matrix and has its copy. */
static void write_its_copy(struct contents *c, const struct half_copy *copy) {
    for (size_t i = 0; i < c->model->copy_count; i++) {
        if (&c->model->copies[i].copy != copy) continue;
        c->copied_from[i] = 0;
        if (c->writes_copies) write_copy(c, i);
    }
}

static void write_tensor(struct contents *c, const struct half_copy *copy, size_t tensor) {
    c->tensors[tensor] = write_piece(c, &c->model->tensors[tensor].piece);
    write_its_copy(c, copy);
}

static void write_slot(struct contents *c, const struct half_copy *copy, size_t slot) {
    if (slot == SIZE_MAX) return;
    c->slots[slot] = write_piece(c, &c->model->slots[slot]);
    write_its_copy(c, copy);
}

/* A product reads the matrix: the copy that it has is that of the matrix as it is, in memory that is still its own. */
static void read_copy(struct contents *c, const struct half_copy *copy) {
    for (size_t i = 0; i < c->model->copy_count; i++) {
        const struct planned_copy *planned = &c->model->copies[i];
        if (&planned->copy != copy) continue;
        c->reads++;
        if (!c->copied_from[i]) write_copy(c, i);
        ck_assert_uint_eq(c->copied_from[i], matrix_write(c, planned));
        check_piece(c, &planned->piece, c->copies[i]);
    }
}

/* The model's inputs, tensor 0, are not in the block. */
static void read_tensor(const struct contents *c, size_t tensor) {
    size_t root = model_root(c->model, tensor);
    if (root > 0) check_piece(c, &c->model->tensors[root].piece, c->tensors[root]);
}

static void read_slot(const struct contents *c, size_t slot) {
    if (slot != SIZE_MAX) check_piece(c, &c->model->slots[slot], c->slots[slot]);
}

static size_t index_of(const struct contents *c, const struct graph_node *node) {
    return (size_t)(node->layer - c->model->layers);
}

static void read_inputs(struct contents *c, const struct graph_node *node) {
    for (size_t n = 0; n < node->in_count; n++) {
        if (node->in_copies) read_copy(c, node->in_copies[n]);
        read_tensor(c, node->in[n]);
    }
}

static void write_outputs(struct contents *c, const struct graph_node *node) {
    if (node->layer) c->saved[index_of(c, node)] = write_piece(c, &node->layer->saved_piece);
    write_tensor(c, node->out_copy, node->out);
}

/* What an operator writes does not overlap what it reads. The first of three fused layers writes two outputs. */
static void run_forward(struct contents *c) {
    for (size_t i = 0; i < c->model->node_count; i++) {
        const struct graph_node *node = &c->model->nodes[i];
        bool is_fused = half_storage_is_fused(c->model, node), joins = c->joins_sums && node->precedes_norm;
        if (is_fused && node->fusion == FUSION_GELU) continue;
        read_inputs(c, node);
        write_outputs(c, node);
        if (is_fused && node->fusion == FUSION_BEFORE_GELU) write_tensor(c, node[1].out_copy, node[1].out);
        if (joins) write_outputs(c, &node[1]), i++;
        read_inputs(c, node);
        if (joins) read_tensor(c, node->out);
    }
}

/* A value that backward reads, which may have been recomputed. */
static void read_in_backward(const struct contents *c, size_t tensor) {
    size_t root = model_root(c->model, tensor);
    const struct piece *recomputed = &c->model->tensors[root].recomputed_piece;
    if (recomputed->size)
        check_piece(c, recomputed, c->recomputed[root]);
    else
        read_tensor(c, root);
}

static void recompute(struct contents *c, const struct graph_node *node) {
    read_in_backward(c, node->in[0]);
    c->recomputed[node->out] = write_piece(c, &c->model->tensors[node->out].recomputed_piece);
    read_in_backward(c, node->in[0]);
}

static void read_for_backward(struct contents *c, const struct graph_node *node) {
    const struct layer *layer = node->layer;
    bool is_fused = half_storage_is_fused(c->model, node);
    if (!layer) return;
    read_copy(c, node->dy_copy);
    read_slot(c, node->dy);
    if (is_fused && node->fusion == FUSION_AFTER_GELU) read_tensor(c, node[-1].in[0]);
    for (size_t n = 0; !(layer->type->ignores & IGNORES_X) && n < node->in_count; n++) read_in_backward(c, node->in[n]);
    if (!(layer->type->ignores & IGNORES_Y)) read_tensor(c, node->out);
    check_piece(c, &layer->saved_piece, c->saved[index_of(c, node)]);
}

static void write_gradients(struct contents *c, const struct graph_node *node) {
    bool is_after = half_storage_is_fused(c->model, node) && node->fusion == FUSION_AFTER_GELU;
    if (is_after) write_slot(c, NULL, node[-1].dx[0]); /* its own gradient is not computed */
    for (size_t n = 0; node->layer && !is_after && n < node->in_count; n++) {
        ck_assert_msg(node->dx[n] == SIZE_MAX || node->dx[n] != node->dy, "a layer writes what it reads");
        if (node->layer->adds_to_dx) read_slot(c, node->dx[n]);
        write_slot(c, node->dx_copies ? node->dx_copies[n] : NULL, node->dx[n]);
    }
}

static void run_backward_of(struct contents *c, const struct graph_node *node) {
    for (size_t n = 0; n < node->recompute_count; n++) recompute(c, &c->model->nodes[node->recompute[n]]);
    if (node->dy_after_relu != SIZE_MAX) {
        read_tensor(c, node->out);
        read_slot(c, node->dy_after_relu);
        write_slot(c, node->relu_copy, node->dy);
    }
    if (!half_storage_is_fused(c->model, node) || node->fusion != FUSION_GELU) {
        read_for_backward(c, node);
        write_gradients(c, node);
        read_for_backward(c, node);
    }
    for (size_t a = 0; a < node->add_count; a++) {
        read_slot(c, node->adds[a].a);
        read_slot(c, node->adds[a].b);
        write_slot(c, node->adds[a].copy, node->adds[a].to);
    }
}

static void run_backward(struct contents *c) {
    const struct model *m = c->model;
    write_slot(c, m->loss_copy, m->output_slot);
    read_tensor(c, m->output); /* by the loss */
    for (size_t i = m->node_count; i-- > 0;)
        if (m->nodes[i].dy != SIZE_MAX) run_backward_of(c, &m->nodes[i]);
    read_tensor(c, m->output);
}

/* Two passes; returns how many products have read a copy. */
static size_t run_passes(const struct model *m, bool writes_copies, bool joins_sums) {
    struct contents c = {.model = m, .writes_copies = writes_copies, .joins_sums = joins_sums};
    size_t **all[] = {&c.block, &c.tensors, &c.recomputed, &c.slots, &c.saved, &c.copies, &c.copied_from};
    size_t counts[] = {m->row_floats,  m->tensor_count, m->tensor_count, m->slot_count,
                       m->layer_count, m->copy_count,   m->copy_count};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ck_assert_ptr_nonnull(*all[i] = calloc(counts[i] + 1, sizeof **all[i]));
    for (int pass = 0; pass < 2; pass++) {
        memset(c.copied_from, 0, m->copy_count * sizeof *c.copied_from);
        c.tensors[0] = ++c.writes;
        run_forward(&c);
        run_backward(&c);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(*all[i]);
    return c.reads;
}

TEST_LOOP(no_product_reads_an_old_copy, 0, 2 * (int)(sizeof cases / sizeof *cases)) {
    struct document *document;
    struct model *m = plan(cases[_i / 2].layers, &device, &document);
    for (int joins_sums = 0; joins_sums < 2; joins_sums++) ck_assert_uint_gt(run_passes(m, _i % 2, joins_sums), 0);
    model_destroy(m);
    document_destroy(document);
}

/* Models whose backward recomputes values, and whose GELU is fused where the device has 16 bits. */
static const char *const more_cases[] = {
    "[" CONV(8) ", batch_norm, relu, " CONV(8) ", batch_norm, relu, " CONV(
        8) ", batch_norm, relu, flatten, {linear: 8}]",
    "[" CONV(8) ", {residual: [" CONV(8) ", batch_norm, relu, " CONV(8) ", batch_norm]}, relu, batch_norm, " CONV(
        8) "]",
    "[{linear: 16}, {gelu: {approximate: tanh}}, {linear: 8}, {linear: 40}, {gelu: {approximate: tanh}}, {linear: 8}]",
    "[{linear: 8}, {residual: [layer_norm]}, {residual: [rms_norm]}, {linear: 8}]", /* dx is not added to dy itself */
    "[{linear: 8}, {residual: [layer_norm, {linear: 32}, {gelu: {approximate: tanh}}, {linear: 8}]}, "
    "{residual: [layer_norm, {linear: 24}, {scaled_dot_product_attention: {heads: 1}}, {linear: 8}]}, "
    "{residual: [layer_norm, {linear: 32}, {gelu: {approximate: tanh}}, {linear: 8}, relu]}, layer_norm]",
};
#define LAYERS ((int)(sizeof layer_cases / sizeof *layer_cases))
#define MORE ((int)(sizeof more_cases / sizeof *more_cases))

/* Of every type of layer, too: with 16-bit storage, and without, as on the CPU. */
TEST_LOOP(no_operator_reads_other_contents, 0, 2 * (LAYERS + MORE)) {
    int which = _i / 2;
    struct document *document;
    struct model *m;
    if (which < LAYERS) {
        struct shape input = input_of((size_t)which);
        ck_assert(!build(layer_cases[which].layers, &input, &document, &m));
    } else {
        m = plan(more_cases[which - LAYERS], NULL, &document);
    }
    ck_assert(!model_adapt_to_device(m, _i % 2 ? &device : &float32_device));
    for (int way = 0; way < 4; way++) run_passes(m, way % 2, way / 2);
    model_destroy(m);
    document_destroy(document);
}

/* Copies have memory of the block, which no other content in use overlaps, and model_memory counts it. */
static void check_memory(const struct model *m, const struct planned_copy *planned, const struct piece *other) {
    const struct piece *own = &planned->piece;
    if (other == own || !other->size || other->last < own->first || other->first > own->last) return;
    ck_assert(other->offset >= own->offset + own->size || own->offset >= other->offset + other->size);
    ck_assert_uint_le(own->offset + own->size, m->row_floats);
}

TEST_EACH(copies_have_memory, cases) {
    struct document *document, *other_document;
    struct model *m = plan(cases[_i].layers, &device, &document);
    struct model *without = plan(cases[_i].layers, &float32_device, &other_document);
    for (size_t c = 0; c < m->copy_count; c++) {
        const struct planned_copy *planned = &m->copies[c];
        size_t columns = planned->copy.columns;
        size_t numbers = columns ? planned->size / columns * ((columns + 7) / 8 * 8) : planned->size;
        ck_assert_uint_eq(planned->piece.size, (numbers + 1) / 2);
        for (size_t t = 1; t < m->tensor_count; t++) check_memory(m, planned, &m->tensors[t].piece);
        for (size_t i = 0; i < m->layer_count; i++) check_memory(m, planned, &m->layers[i].saved_piece);
        for (size_t i = 0; i < m->slot_count; i++) check_memory(m, planned, &m->slots[i]);
        for (size_t i = 0; i < m->copy_count; i++) check_memory(m, planned, &m->copies[i].piece);
    }
    ck_assert_uint_eq(without->copy_count, 0); /* in float32 nothing is rounded */
    model_destroy(m), model_destroy(without);
    document_destroy(document), document_destroy(other_document);
}

/* At the start of a pass no copy is valid. */
TEST(a_pass_begins_without_copies) {
    struct document *document;
    struct model *m = plan("[{attention: {heads: 1}}]", &device, &document);
    ck_assert_uint_gt(m->copy_count, 0);
    for (size_t i = 0; i < m->copy_count; i++) m->copies[i].copy.is_valid = true;
    half_copies_begin(m);
    for (size_t i = 0; i < m->copy_count; i++) ck_assert(!m->copies[i].copy.is_valid);
    model_destroy(m);
    document_destroy(document);
}

int main(void) {
    struct device *cpu;
    if (device_create("cpu", &cpu)) return 1;
    float32_ops = ops = *device_ops(cpu);
    ops.can_be_half = can_be_half, float32_ops.can_be_half = never_half;
    int failed = check_suite("half_copies");
    device_destroy(cpu);
    return failed;
}
