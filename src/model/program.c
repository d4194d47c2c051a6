/* Makes the lists from the nodes, and runs them. An operand is described once, as in the plan: its memory, whether it
 * is 16 bits in this list, and its 16-bit copy where the plan gives one to the operator (half.h). */
#include "model/program.h"

#include <assert.h>
#include <stdlib.h>

#include "model/half.h"

/* ---- what an instruction runs ---- */

/* Before an operator writes an operand. */
static void clear_copy(const struct tensor *written) {
    if (written->copy) written->copy->is_valid = false;
}

static const struct tensor *if_needed(const struct tensor *t) { return t->data ? t : NULL; }

static void run_layer(const struct instruction *i, const struct pass *pass) {
    i->layer->type->forward(i->layer, pass, (struct operands){.x = i->in, .y = &i->out});
}

static void run_sum(const struct instruction *i, const struct pass *pass) {
    clear_copy(&i->out); /* also of gradients, whose slots are written again */
    pass->ops->add(pass->device, &i->in[0], &i->in[1], &i->out, pass->rows * i->size);
}

static void run_sum_relu(const struct instruction *i, const struct pass *pass) {
    pass->ops->image->add_relu(pass->device, &i->in[0], &i->in[1], &i->out, pass->rows * i->size);
}

static void run_sum_norm(const struct instruction *i, const struct pass *pass) {
    i->layer->type->forward_of_sum(i->layer, pass, &i->in[0], &i->in[1], &i->out, &i->second);
}

static void run_before_gelu(const struct instruction *i, const struct pass *pass) {
    i->layer->type->around_gelu->forward_before(i->layer, pass, i->in, &i->out, &i->second);
}

static void run_after_gelu(const struct instruction *i, const struct pass *pass) {
    i->layer->type->around_gelu->forward_after(i->layer, pass, i->in, &i->out);
}

static void run_recompute(const struct instruction *i, const struct pass *pass) {
    i->layer->type->recompute(i->layer, pass, (struct operands){.x = i->in, .y = &i->out});
}

/* The gradient before a relu that is part of a layer. */
static void run_relu_backward(const struct instruction *i, const struct pass *pass) {
    clear_copy(&i->din[0]);
    pass->ops->image->relu_backward(pass->device, &i->out, &i->dout, &i->din[0], pass->rows * i->size);
}

static void run_layer_backward(const struct instruction *i, const struct pass *pass) {
    const struct tensor *dx = layer_joins(i->layer) ? i->din : if_needed(&i->din[0]);
    for (size_t n = 0; n < i->in_count; n++) clear_copy(&i->din[n]);
    i->layer->type->backward(i->layer, pass, (struct operands){i->in, &i->out, &i->dout, dx});
}

/* in: the output of GELU, and its input, whose gradient is din[0] */
static void run_after_gelu_backward(const struct instruction *i, const struct pass *pass) {
    i->layer->type->around_gelu->backward_after(i->layer, pass, &i->in[0], &i->in[1], &i->dout, if_needed(&i->din[0]));
}

static void run_before_gelu_backward(const struct instruction *i, const struct pass *pass) {
    clear_copy(&i->din[0]);
    i->layer->type->around_gelu->backward_before(i->layer, pass, i->in, &i->dout, if_needed(&i->din[0]));
}

/* ---- operands ---- */

struct making {
    struct model *model;
    struct program *program;
    struct instructions *list; /* that is being made */
};

static struct tensor operand(void *data, bool is_half, struct half_copy *copy) {
    return (struct tensor){.data = data, .is_half = is_half, .copy = data ? copy : NULL};
}

static size_t stride_of(const struct tensor_part *parts, size_t i) {
    return parts && i != SIZE_MAX ? parts[i].stride : 0;
}

static struct half_copy *copy_at(struct half_copy *const *copies, size_t i) { return copies ? copies[i] : NULL; }

/* Sets *to, which stays where it is, to the value of a tensor, in backward perhaps a recomputed one; the passes set the
 * address of their inputs. */
static void set_value(const struct making *m, struct tensor *to, size_t tensor, bool is_backward,
                      struct half_copy *copy) {
    const struct model *model = m->model;
    struct program *p = m->program;
    size_t root = model_root(model, tensor);
    void *recomputed = is_backward ? model->tensors[root].recomputed : NULL;
    *to = (struct tensor){.data = recomputed ? recomputed : model->tensors[root].value,
                          .is_half = half_storage_of_value(model, tensor),
                          .copy = copy,
                          .stride = stride_of(model->tensor_parts, root)};
    if (root != 0) return;
    p->inputs[p->input_count++] = to;
}

static struct tensor output_of(const struct model *model, const struct graph_node *node, struct half_copy *copy) {
    struct tensor t = operand(model->tensors[node->out].value, half_storage_of_value(model, node->out), copy);
    t.stride = stride_of(model->tensor_parts, node->out);
    return t;
}

/* Without data for SIZE_MAX. */
static struct tensor gradient(const struct model *model, size_t slot, struct half_copy *copy) {
    void *data = slot == SIZE_MAX ? NULL : model->gradients[slot];
    struct tensor t = operand(data, half_storage_of_gradient(model, slot), copy);
    t.stride = stride_of(model->slot_parts, slot);
    return t;
}

struct tensor model_output_gradient(const struct model *model) {
    struct tensor t = gradient(model, model->output_slot, model->loss_copy);
    clear_copy(&t);
    return t;
}

/* ---- the lists ---- */

static struct instruction *append(const struct making *m, void (*run)(const struct instruction *, const struct pass *),
                                  const struct graph_node *node, size_t in_count) {
    struct arena *arena = m->model->arena;
    struct instruction *i = &m->list->items[m->list->count++];
    *i = (struct instruction){.run = run, .layer = node->layer, .node = node, .in_count = in_count};
    i->in = arena_alloc(arena, in_count * sizeof *i->in);
    i->din = arena_alloc(arena, in_count * sizeof *i->din);
    i->size = m->model->tensors[node->out].size;
    i->time = (size_t)(node - m->model->nodes);
    return i;
}

/* Returns how many nodes it runs. [with_copies]: operators use 16-bit copies of operands. */
static size_t append_forward(const struct making *m, const struct graph_node *node, bool with_copies) {
    const struct model *model = m->model;
    const struct device_ops *ops = device_ops(model->device);
    bool is_fused = half_storage_is_fused(model, node);
    bool with_norm = node->precedes_norm && node[1].layer->type->takes_sum(ops);
    if (is_fused && node->fusion == FUSION_GELU) return 1;
    struct instruction *i = append(m, NULL, node, node->in_count);
    for (size_t n = 0; n < node->in_count; n++)
        set_value(m, &i->in[n], node->in[n], false, with_copies ? copy_at(node->in_copies, n) : NULL);
    i->out = output_of(model, node, with_copies ? node->out_copy : NULL);
    if (with_norm || (is_fused && node->fusion == FUSION_BEFORE_GELU))
        i->second = output_of(model, &node[1], with_copies ? node[1].out_copy : NULL);
    if (with_norm) i->layer = node[1].layer;
    if (is_fused)
        i->run = node->fusion == FUSION_BEFORE_GELU ? run_before_gelu : run_after_gelu;
    else if (!node->layer)
        i->run = with_norm ? run_sum_norm : node->has_relu ? run_sum_relu : run_sum;
    else
        i->run = run_layer;
    return with_norm ? 2 : 1;
}

static void append_recompute(const struct making *m, const struct graph_node *node) {
    struct instruction *i = append(m, run_recompute, node, 1);
    set_value(m, &i->in[0], node->in[0], true, NULL);
    i->out = operand(m->model->tensors[node->out].recomputed, half_storage_of_value(m->model, node->out), NULL);
}

static void append_relu_backward(const struct making *m, const struct graph_node *node) {
    struct instruction *i = append(m, run_relu_backward, node, 1);
    i->out = output_of(m->model, node, NULL);
    i->dout = gradient(m->model, node->dy_after_relu, NULL);
    i->din[0] = gradient(m->model, node->dy, node->relu_copy);
}

static void append_layer_backward(const struct making *m, const struct graph_node *node) {
    struct instruction *i = append(m, run_layer_backward, node, node->in_count);
    for (size_t n = 0; n < node->in_count; n++) {
        set_value(m, &i->in[n], node->in[n], true, NULL);
        i->din[n] = gradient(m->model, node->dx[n], copy_at(node->dx_copies, n));
    }
    i->out = output_of(m->model, node, NULL);
    i->dout = gradient(m->model, node->dy, node->dy_copy);
    i->adds_gradients = true;
}

/* One of three fused nodes. The gradient of the GELU's output is never computed. */
static void append_gelu_backward(const struct making *m, const struct graph_node *node) {
    if (node->fusion == FUSION_GELU) return;
    bool is_after = node->fusion == FUSION_AFTER_GELU;
    struct instruction *i = append(m, is_after ? run_after_gelu_backward : run_before_gelu_backward, node, 2);
    set_value(m, &i->in[0], node->in[0], true, NULL);
    if (is_after) set_value(m, &i->in[1], node[-1].in[0], true, NULL);
    i->dout = gradient(m->model, node->dy, node->dy_copy);
    if (is_after)
        i->din[0] = gradient(m->model, node->dx[0] == SIZE_MAX ? SIZE_MAX : node[-1].dx[0], NULL);
    else
        i->din[0] = gradient(m->model, node->dx[0], copy_at(node->dx_copies, 0));
    i->adds_gradients = true;
}

static void append_add(const struct making *m, const struct graph_node *node, const struct slot_add *add) {
    struct instruction *i = append(m, run_sum, node, 2);
    i->in[0] = gradient(m->model, add->a, NULL);
    i->in[1] = gradient(m->model, add->b, NULL);
    i->out = gradient(m->model, add->to, add->copy);
    i->size = m->model->tensors[add->tensor].size;
}

/* After the last instruction of a node: the parameters to whose gradient no earlier layer contributes. [pending]
 * (params.count): layers that have not contributed yet. */
static void set_ready(const struct making *m, const struct layer *layer, size_t *pending) {
    const struct params *params = &m->model->params;
    struct instruction *last = &m->list->items[m->list->count - 1];
    size_t *ready = arena_alloc(m->model->arena, (layer->param_count + layer->tied_count) * sizeof *ready), count = 0;
    for (size_t p = layer->first_param + layer->param_count; p-- > layer->first_param;)
        if (--pending[p] == 0 && !params->items[p].is_frozen) ready[count++] = p;
    for (size_t p = layer->tied + layer->tied_count; p-- > layer->tied;)
        if (--pending[p] == 0 && !params->items[p].is_frozen) ready[count++] = p;
    if (count == 0) return;
    assert(last->node->layer == layer);
    last->ready = ready;
    last->ready_count = count;
}

static bool ends_block(const struct model *model, const struct graph_node *node) {
    return node->block && model->blocks[node->block - 1].last == (size_t)(node - model->nodes);
}

/* Its forward again. */
static void append_block(const struct making *m, const struct repeated_block *block) {
    size_t first = m->list->count;
    for (size_t n = block->first; n <= block->last;) n += append_forward(m, &m->model->nodes[n], false);
    for (size_t i = first; i < m->list->count; i++) m->list->items[i].is_repeated = true;
}

static void make_backward(const struct making *m) {
    const struct model *model = m->model;
    size_t *pending = arena_alloc(model->arena, (model->params.count + 1) * sizeof *pending);
    for (size_t n = 0; n < model->node_count; n++) {
        const struct layer *layer = model->nodes[n].dy == SIZE_MAX ? NULL : model->nodes[n].layer;
        for (size_t p = 0; layer && p < layer->param_count; p++) pending[layer->first_param + p]++;
        for (size_t p = 0; layer && p < layer->tied_count; p++) pending[layer->tied + p]++;
    }
    for (size_t n = model->node_count; n-- > 0;) {
        const struct graph_node *node = &model->nodes[n];
        size_t first = m->list->count;
        if (node->dy == SIZE_MAX) continue;
        if (ends_block(model, node)) append_block(m, &model->blocks[node->block - 1]);
        for (size_t r = 0; r < node->recompute_count; r++) append_recompute(m, &model->nodes[node->recompute[r]]);
        if (node->dy_after_relu != SIZE_MAX) append_relu_backward(m, node);
        if (half_storage_is_fused(model, node))
            append_gelu_backward(m, node);
        else if (node->layer)
            append_layer_backward(m, node);
        for (size_t a = 0; a < node->add_count; a++) append_add(m, node, &node->adds[a]);
        for (size_t i = first; i < m->list->count; i++) m->list->items[i].time = model->node_count - n;
        if (node->layer) set_ready(m, node->layer, pending);
    }
}

/* ---- values that are gathered (model_gather_values): the gathers of the plan, which are started and awaited before
 * instructions ---- */

static void add_gathers(const struct model *model, struct instructions *list, int which) {
    const struct group_gather *all = model->gathers[which];
    size_t count = model->gather_counts[which], started = 0, needed = 0;
    for (size_t k = 0; k < list->count; k++) {
        struct instruction *i = &list->items[k];
        i->started.first = started;
        i->needed.first = needed;
        while (started < count && all[started].time <= i->time) started++;
        while (needed < count && all[needed].needed <= i->time) needed++;
        i->started.end = started;
        i->needed.end = needed;
    }
    assert(started == count && needed == count);
}

/* [which]: of the model's gathers, 0 in forward. */
static void gather(struct model *model, const struct instruction *i, int which) {
    const struct group_gather *all = model->gathers[which];
    struct param *params = model->params.items;
    for (size_t g = i->started.first; g < i->started.end; g++)
        model->gather(model->gatherer, all[g].group, g, model->params.values + all[g].at);
    for (size_t g = i->needed.first; g < i->needed.end; g++) {
        const struct gradient_group *group = &model->gradient_groups[all[g].group];
        for (size_t p = group->first; p <= group->last; p++)
            if (!params[p].is_frozen) params[p].value = all[g].at + (params[p].offset - group->begin);
        model->await_gather(model->gatherer, g);
    }
}

void model_forward_without_rows(struct model *model) {
    const struct instructions *list = &model->program->forward[0]; /* that of training has the same gathers */
    for (size_t k = 0; model->gathers[0] && k < list->count; k++) gather(model, &list->items[k], 0);
}

struct program *program_create(struct model *model) {
    struct arena *arena = model->arena;
    struct program *program = arena_alloc(arena, sizeof *program);
    size_t backward = 0, operands = 0; /* at most */
    for (size_t n = 0; n < model->node_count; n++) {
        const struct graph_node *node = &model->nodes[n];
        backward += 3 + node->recompute_count + node->add_count;
        operands += 4 * node->in_count + 1 + node->recompute_count;
    }
    program->inputs = arena_alloc(arena, operands * sizeof(struct tensor *));
    program->backward.items = arena_alloc(arena, backward * sizeof(struct instruction));
    for (int is_training = 0; is_training < 2; is_training++) {
        struct making m = {model, program, &program->forward[is_training]};
        m.list->items = arena_alloc(arena, model->node_count * sizeof(struct instruction));
        model->is_output_half = model->allows_half_output && is_training;
        for (size_t n = 0; n < model->node_count;) n += append_forward(&m, &model->nodes[n], true);
    }
    make_backward(&(struct making){model, program, &program->backward});
    for (int i = 0; i < 2 && model->gathers[0]; i++) add_gathers(model, &program->forward[i], 0);
    if (model->gathers[1]) add_gathers(model, &program->backward, 1);
    return program;
}

/* ---- passes ---- */

/* The caller's pass with the model's part filled in. */
static struct pass complete(const struct model *model, const struct pass *pass, const float *inputs) {
    struct pass own = *pass;
    own.ops = device_ops(pass->device);
    own.params = &model->params;
    own.buffers = &model->buffers;
    own.lengths = model->lengths;
    own.lengths_stride = model->batch;
    for (size_t i = 0; i < model->program->input_count; i++)
        model->program->inputs[i]->data = (void *)(uintptr_t)inputs;
    return own;
}

/* Starts a pass; parameters must not change until it ends. */
static struct pass begin(struct model *model, const struct pass *pass, const float *inputs) {
    const struct device_ops *ops = device_ops(pass->device);
    model->is_output_half = model->allows_half_output && pass->is_training;
    if (ops->round_parameters && !model->params.value_floats) /* products round values that are gathered */
        ops->round_parameters(pass->device, model->params.values, model->params.total);
    half_copies_begin(model);
    return complete(model, pass, inputs);
}

const float *model_output(const struct model *model, const float *inputs) {
    size_t root = model_root(model, model->output);
    return root == 0 ? inputs : model->tensors[root].value;
}

/* Ends a pass. */
static const struct tensor *end(struct model *model, const float *inputs) {
    model->result =
        operand((void *)(uintptr_t)model_output(model, inputs), half_storage_of_value(model, model->output), NULL);
    return &model->result;
}

const struct tensor *model_forward(struct model *model, const struct pass *pass, const float *inputs) {
    struct pass own = begin(model, pass, inputs);
    const struct instructions *list = &model->program->forward[pass->is_training];
    for (size_t i = 0; i < list->count; i++) {
        gather(model, &list->items[i], 0);
        list->items[i].run(&list->items[i], &own);
    }
    return end(model, inputs);
}

/* Shows an output, also one with gaps between its positions, as an array without gaps. */
static bool visit_output(const struct model *model, const struct pass *pass, const struct layer *layer,
                         const struct tensor *out, size_t tensor, output_visitor *visit, void *user) {
    const struct planned_tensor *planned = &model->tensors[tensor];
    if (!out->stride) return visit(user, layer, out, planned->size, tensor);
    size_t channels = (size_t)planned->shape.size[0], positions = pass->rows * planned->size / channels;
    float *dense = malloc(pass->rows * planned->size * sizeof *dense);
    if (!dense) status_exit_without_memory();
    pass->ops->copy_columns(pass->device, floats(out), out->stride, dense, channels, positions, channels);
    bool continues = visit(user, layer, F32(dense), planned->size, tensor);
    pass->ops->copy_columns(pass->device, dense, channels, floats(out), out->stride, positions, channels);
    free(dense);
    return continues;
}

const struct tensor *model_forward_visited(struct model *model, const struct pass *pass, const float *inputs,
                                           output_visitor *visit, void *user) {
    struct pass own = begin(model, pass, inputs);
    const struct instructions *list = &model->program->forward[pass->is_training];
    const struct layer *layer = model->layers;
    for (size_t k = 0; k < list->count; k++) {
        const struct instruction *i = &list->items[k];
        const struct graph_node *node = i->node;
        gather(model, i, 0);
        i->run(i, &own);
        for (int second = 0; second < (i->second.data ? 2 : 1); second++) {
            const struct tensor *out = second ? &i->second : &i->out;
            if (node[second].layer) layer = node[second].layer;
            if (!visit_output(model, &own, layer, out, node[second].out, visit, user)) return NULL;
        }
    }
    return end(model, inputs);
}

/* ---- parameters whose gradients do not all exist at once, because each is consumed as soon as it is complete
 * (model_split_gradients) ---- */

static void gradients_start(struct model *model) {
    device_zero(model->device, model->params.gradients, model->kept_gradients * sizeof(float));
}

static void gradients_before(const struct model *model, const struct layer *layer) {
    for (size_t i = layer->first_param; i < layer->first_param + layer->param_count; i++) {
        const struct param *p = &model->params.items[i];
        if (model->use_counts[i] == 1 && !p->part)
            device_zero(model->device, params_gradient(&model->params, i), p->count * sizeof(float));
    }
}

static void gradients_after(const struct model *model, size_t param, const struct gradient_receiver *receiver) {
    const struct param *p = &model->params.items[param];
    if (!p->part) receiver->receive(receiver->user, param, 0, p->count, params_gradient(&model->params, param));
}

/* ---- groups of gradients (model_group_gradients) ---- */

static void begin_group(struct model *model, size_t param, group_begins *begins, void *user) {
    struct gradient_group *group = NULL;
    if (model->gradient_group_of[param] != SIZE_MAX) group = &model->gradient_groups[model->gradient_group_of[param]];
    if (!group || group->has_begun) return;
    group->has_begun = true;
    if (begins) begins(user, model->gradient_group_of[param]);
    device_zero(model->device, model->params.gradients + group->piece.offset, group->piece.size * sizeof(float));
}

static void begin_groups(struct model *model, const struct layer *layer, group_begins *begins, void *user) {
    for (size_t p = layer->first_param; p < layer->first_param + layer->param_count; p++)
        begin_group(model, p, begins, user);
    for (size_t p = layer->tied; p < layer->tied + layer->tied_count; p++) begin_group(model, p, begins, user);
}

void model_backward_in_groups(struct model *model, const struct pass *pass, const float *inputs, group_begins *begins,
                              gradient_ready *ready, void *user) {
    const struct instructions *list = &model->program->backward;
    struct pass own = {0};
    if (pass) own = complete(model, pass, inputs);
    for (size_t g = 0; g < model->gradient_group_count; g++) model->gradient_groups[g].has_begun = false;
    for (size_t k = 0; k < list->count; k++) {
        const struct instruction *i = &list->items[k];
        gather(model, i, 1);
        if (i->adds_gradients) begin_groups(model, i->layer, begins, user);
        own.is_repeated = i->is_repeated;
        if (pass) i->run(i, &own);
        for (size_t r = 0; ready && r < i->ready_count; r++) ready(user, i->ready[r]);
    }
}

/* ---- backward ---- */

/* [receiver] or [ready], or neither. */
static void run_backward(struct model *model, const struct pass *pass, const float *inputs,
                         const struct gradient_receiver *receiver, gradient_ready *ready, void *user) {
    struct pass own = complete(model, pass, inputs);
    const struct instructions *list = &model->program->backward;
    own.receiver = receiver;
    if (receiver) gradients_start(model);
    for (size_t k = 0; k < list->count; k++) {
        const struct instruction *i = &list->items[k];
        if (receiver && i->adds_gradients) gradients_before(model, i->layer);
        own.is_repeated = i->is_repeated;
        i->run(i, &own);
        for (size_t r = 0; r < i->ready_count; r++) {
            if (receiver) gradients_after(model, i->ready[r], receiver);
            if (ready) ready(user, i->ready[r]);
        }
    }
}

void model_backward(struct model *model, const struct pass *pass, const float *inputs, gradient_ready *ready,
                    void *user) {
    assert(!model->params.gradient_floats); /* else not all gradients have memory */
    run_backward(model, pass, inputs, NULL, ready, user);
}

void model_backward_in_parts(struct model *model, const struct pass *pass, const float *inputs,
                             const struct gradient_receiver *receiver) {
    run_backward(model, pass, inputs, receiver, NULL, NULL);
}
