/* The plan of 16-bit copies: which nodes write and read them, and their memory. A pass that only counts which contents
 * each part of the memory has shows that no product reads an old copy. ctest-labels: unit */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/internal.h"
#include "model/half_copies.h"
#include "model/half_storage.h"
#include "model/model_fixture.h"

static bool applies(const struct device *device, size_t features) {
    (void)device;
    return features % 8 == 0;
}

static bool applies_never(const struct device *device, size_t features) {
    (void)device, (void)features;
    return false;
}

static void set(struct device *device, struct half_operands operands) { (void)device, (void)operands; }

static const struct half_ops half_ops = {.applies = applies, .set = set}, no_half_ops = {.applies = applies_never};
static const struct sequence_ops sequence = {.max_head_size = 256};
static struct device_ops ops = {.sequence = &sequence, .half = &half_ops}; /* images': the CPU's, in main */
static struct device_ops float32_ops = {.sequence = &sequence, .half = &no_half_ops};
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

static bool has(const struct half_copies *list, const struct planned_copy *planned) {
    bool found = false;
    for (size_t i = 0; i < list->count; i++) found = found || list->items[i] == &planned->copy;
    return found;
}

/* " 3" if the operators at [time] have the copy */
static void add_time(struct text *out, const struct half_copies *list, const struct planned_copy *planned,
                     size_t time) {
    if (!has(list, planned)) return;
    text_printf(out, " %zu", time);
    ck_assert_uint_ge(time + 1, planned->piece.first); /* one earlier: a sum and the norm after it are one operator */
    ck_assert_uint_le(time, planned->piece.last);
}

static void describe(const struct model *m, struct text *out) {
    for (size_t c = 0; c < m->copy_count; c++) {
        const struct planned_copy *planned = &m->copies[c];
        size_t columns = planned->copy.columns;
        text_printf(out, "%s%s", c ? ", " : "", planned->layer ? "i" : planned->slot == SIZE_MAX ? "v" : "g");
        if (columns) text_printf(out, "%zu", columns);
        for (size_t i = 0; i < m->node_count; i++) add_time(out, &m->nodes[i].copies, planned, i);
        add_time(out, &m->loss_copies, planned, m->node_count);
        for (size_t i = m->node_count; i-- > 0;) {
            const struct graph_node *node = &m->nodes[i];
            size_t time = 2 * m->node_count - i;
            add_time(out, &node->relu_copies, planned, time);
            add_time(out, &node->backward_copies, planned, time);
            for (size_t a = 0; a < node->add_count; a++) add_time(out, &node->adds[a].copies, planned, time);
        }
    }
}

START_TEST(which_operators_have_copies) {
    struct document *document;
    struct model *m = plan(cases[_i].layers, &device, &document);
    struct text found = {0};
    describe(m, &found);
    ck_assert_str_eq(text_string(&found), cases[_i].copies);
    text_free(&found);
    model_destroy(m);
    document_destroy(document);
}
END_TEST

/* ---- a pass that counts contents ---- */

/* Every write has a number of its own; what has been written last is in each float of the block. */
struct contents {
    const struct model *model;
    bool writes_copies; /* operators that write a matrix write its copy, too */
    size_t writes, reads;
    size_t *block;                /* (row_floats) */
    size_t *tensors, *slots;      /* (tensor_count), (slot_count): their last write */
    size_t *copies, *copied_from; /* (copy_count): their last write, and that of the matrix then; 0: not valid */
};

static size_t write_piece(struct contents *c, const struct piece *piece) {
    c->writes++;
    for (size_t i = 0; i < piece->size; i++) c->block[piece->offset + i] = c->writes;
    return c->writes;
}

static void check_piece(const struct contents *c, const struct piece *piece, size_t write) {
    for (size_t i = 0; i < piece->size; i++) ck_assert_uint_eq(c->block[piece->offset + i], write);
}

static size_t matrix_write(const struct contents *c, const struct planned_copy *planned) {
    return planned->slot != SIZE_MAX ? c->slots[planned->slot] : c->tensors[planned->tensor];
}

static void write_copy(struct contents *c, size_t i) {
    c->copies[i] = write_piece(c, &c->model->copies[i].piece);
    c->copied_from[i] = matrix_write(c, &c->model->copies[i]);
}

/* An operator with [list] has written the matrix. */
static void write_copies(struct contents *c, const struct half_copies *list, size_t tensor, size_t slot) {
    for (size_t i = 0; i < c->model->copy_count; i++) {
        const struct planned_copy *planned = &c->model->copies[i];
        if (planned->layer || planned->tensor != tensor || planned->slot != slot || !has(list, planned)) continue;
        c->copied_from[i] = 0;
        if (c->writes_copies) write_copy(c, i);
    }
}

static void write_tensor(struct contents *c, const struct half_copies *list, size_t tensor) {
    c->tensors[tensor] = write_piece(c, &c->model->tensors[tensor].piece);
    write_copies(c, list, tensor, SIZE_MAX);
}

static void write_slot(struct contents *c, const struct half_copies *list, size_t slot) {
    if (slot == SIZE_MAX) return;
    c->slots[slot] = write_piece(c, &c->model->slots[slot]);
    write_copies(c, list, SIZE_MAX, slot);
}

/* A product reads the matrix: the copy that it has is that of the matrix as it is, in memory that is still its own. */
static void read_copies(struct contents *c, const struct half_copies *list, size_t tensor, size_t slot) {
    for (size_t i = 0; i < c->model->copy_count; i++) {
        const struct planned_copy *planned = &c->model->copies[i];
        if (planned->layer || planned->tensor != tensor || planned->slot != slot || !has(list, planned)) continue;
        c->reads++;
        if (!c->copied_from[i]) write_copy(c, i);
        ck_assert_uint_eq(c->copied_from[i], matrix_write(c, planned));
        check_piece(c, &planned->piece, c->copies[i]);
    }
}

static void read_inputs(struct contents *c, const struct graph_node *node) {
    for (size_t n = 0; node->layer && node->layer->type->copies && n < node->in_count; n++) {
        size_t tensor = model_root(c->model, node->in[n]);
        read_copies(c, &node->copies, tensor, SIZE_MAX);
        check_piece(c, &c->model->tensors[tensor].piece, c->tensors[tensor]);
    }
}

/* What an operator writes does not overlap what it reads. The first of three fused layers writes two outputs. */
static void run_forward(struct contents *c) {
    for (size_t i = 0; i < c->model->node_count; i++) {
        const struct graph_node *node = &c->model->nodes[i];
        read_inputs(c, node);
        write_tensor(c, &node->copies, node->out);
        if (node->fusion == FUSION_BEFORE_GELU) write_tensor(c, &node->copies, node[1].out);
        read_inputs(c, node);
    }
}

static void read_gradient(struct contents *c, const struct graph_node *node) {
    if (!node->layer || !node->layer->type->copies) return;
    read_copies(c, &node->backward_copies, SIZE_MAX, node->dy);
    check_piece(c, &c->model->slots[node->dy], c->slots[node->dy]);
}

static void run_backward(struct contents *c) {
    const struct model *m = c->model;
    write_slot(c, &m->loss_copies, m->output_slot);
    for (size_t i = m->node_count; i-- > 0;) {
        const struct graph_node *node = &m->nodes[i];
        if (node->dy == SIZE_MAX) continue;
        if (node->dy_after_relu != SIZE_MAX) write_slot(c, &node->relu_copies, node->dy);
        read_gradient(c, node);
        for (size_t n = 0; node->layer && n < node->in_count; n++) write_slot(c, &node->backward_copies, node->dx[n]);
        read_gradient(c, node);
        for (size_t a = 0; a < node->add_count; a++) write_slot(c, &node->adds[a].copies, node->adds[a].to);
    }
}

START_TEST(no_product_reads_an_old_copy) {
    struct document *document;
    struct model *m = plan(cases[_i / 2].layers, &device, &document);
    struct contents c = {.model = m, .writes_copies = _i % 2};
    c.block = calloc(m->row_floats + 1, sizeof *c.block);
    c.tensors = calloc(m->tensor_count, sizeof *c.tensors);
    c.slots = calloc(m->slot_count + 1, sizeof *c.slots);
    c.copies = calloc(m->copy_count + 1, sizeof *c.copies);
    c.copied_from = calloc(m->copy_count + 1, sizeof *c.copied_from);
    ck_assert(c.block && c.tensors && c.slots && c.copies && c.copied_from);
    for (int pass = 0; pass < 2; pass++) {
        memset(c.copied_from, 0, m->copy_count * sizeof *c.copied_from);
        c.tensors[0] = ++c.writes;
        run_forward(&c);
        run_backward(&c);
    }
    ck_assert_uint_gt(c.reads, 0);
    free(c.block), free(c.tensors), free(c.slots), free(c.copies), free(c.copied_from);
    model_destroy(m);
    document_destroy(document);
}
END_TEST

/* Copies have memory of the block, which no other content in use overlaps, and model_memory counts it. */
static void check_memory(const struct model *m, const struct planned_copy *planned, const struct piece *other) {
    const struct piece *own = &planned->piece;
    if (other == own || !other->size || other->last < own->first || other->first > own->last) return;
    ck_assert(other->offset >= own->offset + own->size || own->offset >= other->offset + other->size);
    ck_assert_uint_le(own->offset + own->size, m->row_floats);
}

START_TEST(copies_have_memory) {
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
END_TEST

/* At the start of a pass the copies belong to its matrices, as large as its number of rows, and none is valid. */
START_TEST(a_pass_begins_without_copies) {
    struct document *document;
    struct model *m = plan("[{attention: {heads: 1}}]", &device, &document);
    float inputs[1], saved[1];
    m->gradients = arena_alloc(m->arena, m->slot_count * sizeof *m->gradients);
    for (size_t i = 0; i < m->slot_count; i++) m->gradients[i] = inputs + i;
    m->layers[0].saved = saved;
    for (size_t i = 0; i < m->copy_count; i++) m->copies[i].copy.is_valid = true;
    half_copies_begin(m, 5, inputs);
    for (size_t i = 0; i < m->copy_count; i++) {
        const struct planned_copy *planned = &m->copies[i];
        ck_assert(!planned->copy.is_valid);
        ck_assert_uint_eq(planned->copy.count, 5 * planned->size);
        if (planned->tensor == 0) ck_assert_ptr_eq(planned->copy.of, inputs);
        if (planned->slot != SIZE_MAX) ck_assert_ptr_eq(planned->copy.of, m->gradients[planned->slot]);
        if (planned->layer) ck_assert_uint_eq((size_t)(planned->copy.of - saved), 5 * planned->first);
    }
    model_destroy(m);
    document_destroy(document);
}
END_TEST

int main(void) {
    struct device *cpu;
    if (device_create("cpu", &cpu)) return 1;
    float32_ops.image = ops.image = device_ops(cpu)->image;
    float32_ops.convolution = ops.convolution = device_ops(cpu)->convolution;
    const int count = sizeof cases / sizeof *cases;
    const struct check_loop loops[] = {EACH(which_operators_have_copies, cases),
                                       LOOP(no_product_reads_an_old_copy, 0, 2 * count),
                                       EACH(copies_have_memory, cases), ONCE(a_pass_begins_without_copies)};
    int failed = check_run("half_copies", loops, sizeof loops / sizeof *loops);
    device_destroy(cpu);
    return failed;
}
