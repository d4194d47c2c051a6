/* Everything is kept in host memory until the update, where rank 0 gets the rows of all ranks. Only this step allocates
 * memory in the loop. */
#include "train/loop/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/bits.h"
#include "base/buffer.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "checkpoint/checkpoint_image.h"
#include "model/half.h"

/* An array with one row for each row of the step. */
struct column {
    const char *name;
    enum entry_type type;
    struct shape shape; /* of a row */
    size_t size, item;  /* elements of a row, bytes of one */
    size_t tensor;      /* of the model, whose value it is; NO_TENSOR: none */
    void *data;         /* (capacity, size) of this rank */
};

#define INPUT_TENSOR 0

enum { NUMBER, RANK, MICRO_BATCH, INPUTS, TARGETS, ACTIVATIONS };

struct trace {
    const char *path, *config_text;
    int64_t step;
    struct arena *arena;
    struct column *columns; /* (count): rows/..., then activations */
    size_t count;
    size_t rows, capacity;             /* of this rank so far */
    float *before, *after, *gradients; /* (params.total) */
    status failure;                    /* of the current pass */
};

/* ---- the columns ---- */

static struct shape vector_of(size_t size) { return (struct shape){.dims = 1, .size = {(int64_t)size}}; }

static void add_column(struct trace *trace, const char *name, enum entry_type type, const struct shape *shape,
                       size_t tensor) {
    struct column *c = &trace->columns[trace->count++];
    *c = (struct column){.name = name,
                         .type = type,
                         .shape = *shape,
                         .size = shape_elements(shape),
                         .item = type == ENTRY_INT64 ? sizeof(int64_t) : sizeof(float),
                         .tensor = tensor};
}

static bool has_column(const struct trace *trace, const char *name) {
    for (size_t i = 0; i < trace->count; i++)
        if (strcmp(trace->columns[i].name, name) == 0) return true;
    return false;
}

/* Whether relu is applied to the output of the node by the node itself. */
static bool ends_with_relu(const struct graph_node *node) {
    if (!node->layer) return node->has_relu;
    enum relu_place place = node->layer->type->relu;
    return node->layer->has_relu && (place == RELU_AFTER || place == RELU_INSIDE);
}

/* Of the output of a layer. That of a part, "e/state", is not inside the one of its layer: "e.state". */
static char *column_name(const struct trace *trace, const struct layer *layer) {
    char *name = arena_printf(trace->arena, "activations/%s", layer->name);
    char *slash = strrchr(name, '/');
    if (strchr(layer->name, '/') && !layer->type->is_input) *slash = '.';
    return name;
}

/* A column for each layer whose output is a view of tensor [root], which is one after a relu or not. */
static void add_views(struct trace *trace, const struct model *model, size_t root, bool has_relu) {
    for (size_t t = 0; t < model->tensor_count; t++) {
        const struct layer *layer = model->tensors[t].producer;
        if (t == root || !layer || model_root(model, t) != root) continue;
        if (layer->type->relu == RELU_ITSELF && !has_relu) continue; /* the layer after it applies it */
        const char *name = column_name(trace, layer);
        if (!has_column(trace, name)) add_column(trace, name, ENTRY_FLOAT32, &model->tensors[t].shape, root);
    }
}

/* A column for each layer whose output the node computes: its own layer and those whose outputs are views of it. */
static void add_node(struct trace *trace, const struct model *model, const struct graph_node *node,
                     const struct layer *last) {
    bool has_relu = ends_with_relu(node), is_sum = !node->layer;
    if (!has_relu && (is_sum || *node->layer->name)) {
        char *name = column_name(trace, is_sum ? last : node->layer);
        do {
            if (is_sum) name = arena_printf(trace->arena, "%s.sum", name);
        } while (is_sum && has_column(trace, name));
        add_column(trace, name, ENTRY_FLOAT32, &model->tensors[node->out].shape, node->out);
    }
    add_views(trace, model, node->out, has_relu);
}

static bool is_internal(const struct model *model, const struct graph_node *node) {
    return node->fusion != FUSION_NONE && node->fusion != FUSION_AFTER_GELU && half_storage_is_fused(model, node);
}

static void add_columns(struct trace *trace, const struct trainer *t) {
    const struct model *model = t->model;
    const struct dataset_info *info = dataset_info(t->dataset);
    const struct shape one = {0}, inputs = dataset_shape(info), targets = vector_of(info->target_size);
    const struct layer *last = model->layers;
    bool are_classes = info->target_kind == TARGET_CLASS, are_tokens = info->input_kind == INPUT_TOKENS;
    trace->columns =
        arena_alloc(trace->arena, (ACTIVATIONS + model->node_count + model->tensor_count) * sizeof *trace->columns);
    const struct shape members = vector_of(dataset_drawing(t->dataset).members);
    add_column(trace, "rows/number", ENTRY_INT64, members.size[0] ? &members : &one, NO_TENSOR);
    add_column(trace, "rows/rank", ENTRY_INT64, &one, NO_TENSOR);
    add_column(trace, "rows/micro_batch", ENTRY_INT64, &one, NO_TENSOR);
    add_column(trace, "rows/inputs", are_tokens ? ENTRY_INT64 : ENTRY_FLOAT32, &inputs, NO_TENSOR);
    add_column(trace, "rows/targets", are_classes ? ENTRY_INT64 : ENTRY_FLOAT32,
               info->target_size == 1 ? &one : &targets, NO_TENSOR);
    if (!are_tokens) add_views(trace, model, INPUT_TENSOR, false);
    for (size_t n = 0; n < model->node_count; n++) {
        const struct graph_node *node = &model->nodes[n];
        if (node->layer && *node->layer->name) last = node->layer;
        if (!is_internal(model, node)) add_node(trace, model, node, last);
    }
}

status trace_check(const struct config *config, const struct dist_env *env, const char *path, int64_t step) {
    const char *why_not;
    if (!path) return OK;
    if (step < 1) return status_usage("--trace needs --stop-after STEP");
    if (config_updates_in_backward(config, env, &why_not))
        return status_usage("--trace: add optimizer.in_backward=false, which keeps the gradients");
    if (config->dist.zero_stage >= 3 && env->world_size > 1)
        return status_usage(
            "--trace: add dist.zero_stage=2, with which every process has all parameters, and which has "
            "the same bits");
    return OK;
}

status trace_create(const struct trainer *t, const char *path, int64_t step, const char *config_text,
                    struct trace **out) {
    *out = NULL;
    if (!path) return OK;
    struct trace *trace = calloc(1, sizeof *trace);
    if (!trace) return status_memory("the trace of a step");
    *out = trace;
    *trace = (struct trace){.path = path, .config_text = config_text, .step = step, .arena = arena_create()};
    add_columns(trace, t);
    size_t bytes = t->model->params.total * sizeof *trace->before;
    TRY(buffer_new(bytes, "the parameters before a step", (void **)&trace->before));
    TRY(buffer_new(bytes, "the parameters after a step", (void **)&trace->after));
    return buffer_new(bytes, "the gradients of a step", (void **)&trace->gradients);
}

void trace_destroy(struct trace *trace) {
    if (!trace) return;
    for (size_t i = 0; i < trace->count; i++) free(trace->columns[i].data);
    buffer_free(trace->before), buffer_free(trace->after), buffer_free(trace->gradients);
    status_free(trace->failure);
    arena_destroy(trace->arena);
    free(trace);
}

bool trace_is_due(const struct trace *trace, int64_t step) { return trace && step + 1 == trace->step; }

/* ---- during the step ---- */

status trace_begin(struct trainer *t) {
    const struct params *params = &t->model->params;
    t->trace->rows = 0;
    return device_download(t->device, t->trace->before, params->values, params->total * sizeof *params->values);
}

static status reserve(struct trace *trace, size_t rows) {
    if (trace->rows + rows <= trace->capacity) return OK;
    trace->capacity = trace->rows + rows;
    for (size_t i = 0; i < trace->count; i++) {
        struct column *c = &trace->columns[i];
        if (c->size == 0) continue; /* a loss without targets */
        void *data = realloc(c->data, trace->capacity * c->size * c->item);
        if (!data) return status_memory("the rows of a step");
        c->data = data;
    }
    return OK;
}

static void *end_of(const struct trace *trace, const struct column *c) {
    return (char *)c->data + trace->rows * c->size * c->item;
}

/* The float32 numbers of 16 bits (count), which are in the first half of their memory. */
static void widen(float *values, size_t count, bool is_bfloat16) {
    for (size_t i = count; i-- > 0;) {
        uint16_t half;
        memcpy(&half, (const char *)values + i * sizeof half, sizeof half);
        values[i] = is_bfloat16 ? bits_from_bfloat16(half) : bits_from_float16(half);
    }
}

struct visit {
    const struct trainer *trainer;
    size_t rows;
};

static bool keep_output(void *user, const struct layer *layer, const struct tensor *output, size_t size,
                        size_t tensor) {
    const struct visit *v = user;
    const struct trainer *t = v->trainer;
    struct trace *trace = t->trace;
    (void)layer;
    for (size_t i = ACTIVATIONS; i < trace->count && !trace->failure; i++) {
        struct column *c = &trace->columns[i];
        if (c->tensor != tensor || !output->data) continue;
        size_t bytes = v->rows * size * (output->is_half ? sizeof(uint16_t) : sizeof(float));
        trace->failure = device_download(t->device, end_of(trace, c), output->data, bytes);
        if (output->is_half) widen(end_of(trace, c), v->rows * size, t->config->train.precision == TRAIN_BFLOAT16);
    }
    return true;
}

const struct tensor *trace_forward(struct trainer *t, const struct pass *pass, const float *inputs) {
    struct visit v = {t, pass->rows};
    if (!t->trace->failure) t->trace->failure = reserve(t->trace, pass->rows);
    return model_forward_visited(t->model, pass, inputs, keep_output, &v);
}

static status keep_inputs(const struct trainer *t, const struct batch *batch) {
    const struct trace *trace = t->trace;
    const struct column *inputs = &trace->columns[INPUTS], *targets = &trace->columns[TARGETS];
    size_t count = batch->rows * inputs->size;
    if (targets->size)
        TRY(device_download(t->device, end_of(trace, targets), batch->targets,
                            batch->rows * targets->size * targets->item));
    TRY(device_download(t->device, end_of(trace, inputs), batch->inputs, count * sizeof(float)));
    for (size_t i = ACTIVATIONS; i < trace->count; i++) {
        const struct column *c = &trace->columns[i];
        if (c->tensor == INPUT_TENSOR && c->size == inputs->size)
            memcpy(end_of(trace, c), end_of(trace, inputs), count * sizeof(float));
    }
    int64_t *tokens = end_of(trace, inputs);
    for (size_t i = count; inputs->type == ENTRY_INT64 && i-- > 0;) {
        int32_t token;
        memcpy(&token, (const char *)tokens + i * sizeof token, sizeof token);
        tokens[i] = token;
    }
    return OK;
}

status trace_piece(struct trainer *t, const struct update *update, const struct batch_piece *piece) {
    struct trace *trace = t->trace;
    const struct batch *batch = &piece->batch;
    status failure = trace->failure;
    trace->failure = OK;
    TRY(failure);
    if (batch->rows == 0) return OK;
    int64_t *numbers = end_of(trace, &trace->columns[NUMBER]), *ranks = end_of(trace, &trace->columns[RANK]);
    int64_t *micro_batches = end_of(trace, &trace->columns[MICRO_BATCH]);
    for (size_t i = 0; i < batch->rows; i++) {
        int64_t rows[MAX_MEMBERS];
        size_t members = dataset_members(t->dataset, DATASET_TRAIN, update->first.epoch, batch->positions[i], rows);
        memcpy(numbers + i * members, rows, members * sizeof *rows);
        ranks[i] = comm_rank(t->comm);
        micro_batches[i] = (int64_t)piece->number - update->first.batch;
    }
    TRY(keep_inputs(t, batch));
    trace->rows += batch->rows;
    return OK;
}

/* With ZeRO a rank has its shard of the average alone, with stage 2 in memory of its own. */
status trace_gradients(struct trainer *t) {
    const struct params *params = &t->model->params;
    float *gradients = t->trace->gradients, *own = zero_own_gradients(t->averaging.zero);
    if (own) {
        TRY(device_map(t->device, (void **)&own));
        TRY(zero_gather_array(t->averaging.zero, own, gradients, t->comm));
        return device_unmap(t->device, (void **)&own, false);
    }
    TRY(device_download(t->device, gradients, params->gradients, params->trained * sizeof *gradients));
    return zero_all_gather_array(t->averaging.zero, gradients, t->comm);
}

/* ---- the file ---- */

/* row (positions, channels) -> (channels, positions) */
static void put_channels_first(const struct column *c, float *rows, size_t count, float *scratch) {
    size_t channels = (size_t)c->shape.size[0], positions = c->size / channels;
    for (size_t r = 0; r < count; r++, rows += c->size) {
        memcpy(scratch, rows, c->size * sizeof *rows);
        for (size_t i = 0; i < c->size; i++) rows[i % channels * positions + i / channels] = scratch[i];
    }
}

/* *data: the rows of all ranks on rank 0, malloc'ed; else NULL. */
static status gather(struct trainer *t, const struct column *c, void **data, size_t *rows) {
    size_t row = c->size * c->item, total = 0, *sizes = calloc((size_t)comm_world_size(t->comm), sizeof *sizes);
    if (!sizes) return status_memory("the rows of all ranks");
    status s = comm_gather_bytes(t->comm, c->data, t->trace->rows * row, 0, data, sizes);
    for (int r = 0; r < comm_world_size(t->comm); r++) total += sizes[r];
    free(sizes);
    *rows = total / row;
    if (s || !*data || !c->shape.is_channels_last) return s;
    float *scratch = malloc(row);
    if (!scratch) return status_memory("the rows of all ranks");
    put_channels_first(c, *data, *rows, scratch);
    free(scratch);
    return OK;
}

/* (rows, shape); with too many dimensions (rows, size) */
static struct entry entry_of(const struct column *c, size_t rows, void *data) {
    struct entry e = {
        .path = c->name, .type = c->type, .dims = 1 + c->shape.dims, .shape = {(int64_t)rows}, .data = data};
    if (e.dims > MAX_DIMS) e.dims = 2;
    for (int d = 1; d < e.dims; d++) e.shape[d] = c->shape.size[d - 1];
    if (e.dims == 2) e.shape[1] = (int64_t)c->size;
    return e;
}

static struct entry entry_of_param(struct trace *trace, const char *group, const struct param *p, float *values) {
    struct entry e = {.path = arena_printf(trace->arena, "%s/%s", group, p->name),
                      .type = ENTRY_FLOAT32,
                      .dims = p->dims,
                      .data = values + p->offset};
    memcpy(e.shape, p->shape, sizeof e.shape);
    return e;
}

/* Parameters, gradients and scalars: entries (at most 4 params + 5). Returns their number. */
static size_t add_entries(struct trainer *t, const struct update *update, double *numbers, int64_t *counts,
                          float *updates, struct entry *entries) {
    struct trace *trace = t->trace;
    const struct params *params = &t->model->params;
    size_t n = 0;
    numbers[0] = update->sums.loss / update->sums.count;
    numbers[1] = update->grad_norm;
    counts[0] = trace->step;
    counts[1] = update->first.epoch + 1;
    entries[n++] = (struct entry){.path = "config", .type = ENTRY_TEXT, .data = (void *)(uintptr_t)trace->config_text};
    entries[n++] = (struct entry){.path = "step", .type = ENTRY_INT64, .data = &counts[0]};
    entries[n++] = (struct entry){.path = "epoch", .type = ENTRY_INT64, .data = &counts[1]};
    entries[n++] = (struct entry){.path = "loss", .type = ENTRY_FLOAT64, .data = &numbers[0]};
    entries[n++] = (struct entry){.path = "gradient_norm", .type = ENTRY_FLOAT64, .data = &numbers[1]};
    for (size_t i = 0; i < params->total; i++) updates[i] = trace->after[i] - trace->before[i];
    for (size_t i = 0; i < params->count; i++) {
        const struct param *p = &params->items[i];
        entries[n++] = entry_of_param(trace, "parameters/before", p, trace->before);
        entries[n++] = entry_of_param(trace, "parameters/after", p, trace->after);
        entries[n++] = entry_of_param(trace, "update", p, updates);
        if (!p->is_frozen) entries[n++] = entry_of_param(trace, "gradients", p, trace->gradients);
    }
    return n;
}

static status write_file(const char *path, const struct entry *entries, size_t count) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct image *image;
    TRY(image_create(entries, count, true, &image));
    image_reference(image, entries, count);
    SCOPED_STRING folder = io_folder_of(path);
    char *stem = strndup(name, strlen(name) - strlen(".h5"));
    status s = stem ? checkpoint_write_image(folder, stem, image) : status_memory("a path");
    free(stem);
    image_destroy(image);
    return s;
}

/* [entries] have room for all columns. */
static status gather_and_write(struct trainer *t, struct entry *entries, size_t count, void **gathered) {
    struct trace *trace = t->trace;
    size_t rows = 0;
    for (size_t i = 0; i < trace->count; i++) {
        if (trace->columns[i].size == 0) continue;
        TRY(gather(t, &trace->columns[i], &gathered[i], &rows));
        if (gathered[i]) entries[count++] = entry_of(&trace->columns[i], rows, gathered[i]);
    }
    return comm_rank(t->comm) == 0 ? write_file(trace->path, entries, count) : OK;
}

status trace_write(struct trainer *t, const struct update *update) {
    struct trace *trace = t->trace;
    const struct params *params = &t->model->params;
    double numbers[2];
    int64_t counts[2];
    float *updates;
    void **gathered = arena_alloc(trace->arena, trace->count * sizeof *gathered);
    struct entry *entries = arena_alloc(trace->arena, (5 + 4 * params->count + trace->count) * sizeof *entries);
    TRY(device_download(t->device, trace->after, params->values, params->total * sizeof *params->values));
    TRY(buffer_new(params->total * sizeof *updates, "the update of a step", (void **)&updates));
    memset(gathered, 0, trace->count * sizeof *gathered);
    size_t count = add_entries(t, update, numbers, counts, updates, entries);
    status s = gather_and_write(t, entries, count, gathered);
    for (size_t i = 0; i < trace->count; i++) free(gathered[i]);
    buffer_free(updates);
    return s;
}
