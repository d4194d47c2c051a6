/* sequence_lengths: rows of different length whose number of steps is an input of its own, the second argument of
 * torch.nn.utils.rnn.pack_padded_sequence. */
#include <math.h>

#include "base/text.h"
#include "model/layers/layers.h"

static status plan(struct layer *layer, struct planning *planning) {
    const struct shape *lengths = layer->in_count == 2 ? &layer->ins[1] : NULL;
    if (!lengths || shape_elements(lengths) != 1 || !lengths->input || lengths->is_tokens)
        return status_usage("it takes a series and its lengths, `from: [series, steps]`, where the lengths "
                            "are one value of the dataset in each row");
    if (layer->in.dims < 2)
        return status_usage("the series must be (positions, features), but is %s", shape_text(&layer->in).s);
    layer->out = layer->in;
    layer->out.lengths = ++*planning->lengths;
    return OK;
}

static void forward(const struct layer *layer, const struct pass *pass, struct operands o) {
    pass->ops->sequence->given_lengths(pass->device, floats(&o.x[1]), pass_lengths(pass, &layer->out), pass->rows,
                                       (size_t)layer->out.size[0]);
    pass->ops->copy(pass->device, &o.x[0], o.y, pass->rows * layer->out_size);
}

static void backward(const struct layer *layer, const struct pass *pass, struct operands o) {
    if (o.dx[0].data) pass->ops->copy(pass->device, o.dy, &o.dx[0], pass->rows * layer->out_size);
}

static status check_row(const struct layer *layer, const struct params *params, const float *row) {
    float length = row[layer->ins[1].input - 1];
    if (length >= 1 && length <= (float)layer->out.size[0] && length == floorf(length)) return OK;
    return status_new(
        STATUS_DATA,
        "value %zu is %g, but %s takes the length of a row, a whole number from 1 to %lld that is not scaled",
        layer->ins[1].input - 1, (double)length, layer->path, (long long)layer->out.size[0]);
}

static void lengths_facts(const struct layer *layer, struct layer_facts *to) { to->unscaled = 2; }

/* The second input has one element; values beyond the positions count as the nearest one. */
static const char *write_onnx(const struct onnx_call *c) {
    struct onnx_graph *g = c->g;
    const int64_t flat = -1, one = 1, positions = c->layer->out.size[0];
    if (!onnx_are_lengths_read(g, c->layer->out.lengths)) return c->x;
    const char *given = onnx_cast(g, onnx_node2(g, "Reshape", c->inputs[1], onnx_numbers(g, &flat, 1)), ONNX_INT64);
    const char *limited = onnx_node2(g, "Min", given, onnx_numbers(g, &positions, 1));
    onnx_set_lengths(g, c->layer->out.lengths, onnx_node2(g, "Max", limited, onnx_numbers(g, &one, 1)));
    return c->x;
}

static void write_c(const struct c_call *c) {
    const char *length = c_length(c, c->layer->out.lengths, 0);
    text_printf(&c->c->body, "    const size_t %s = given_length(*(%s), %zu);\n", length, c->inputs[1],
                (size_t)c->layer->out.size[0]);
    text_printf(&c->c->body, "    if (%s == 0) return 2;\n", length);
    c_columns(c, c->x, c->layer->out_size, c->y, c->layer->out_size, 1, c->layer->out_size);
}

static const struct schema_alias aliases[] = {
    VALUE_ALIAS_NOTE("layer", "Masking pack_padded_sequence PackedSequence", "sequence_lengths",
                     "Tokens have padding_idx of embedding instead"),
    {0},
};

const struct layer_type layer_sequence_lengths = {
    .aliases = aliases,
    .variant = {"sequence_lengths", NULL,
                "Says how many positions of each row are real: `sequence_lengths: {from: [series, steps]}` is "
                "`series`, of whose later positions attention, recurrent layers, means over positions, losses and "
                "metrics take no notice (pack_padded_sequence)."},
    .joins = true,
    .ignores = IGNORES_X_AND_Y,
    .plan = plan,
    .check_row = check_row,
    .facts = lengths_facts,
    .forward = forward,
    .backward = backward,
    .onnx = write_onnx,
    .c = write_c,
    .pytorch = "{x}",
    .pytorch_lengths = "{x1}.flatten().long()",
};
