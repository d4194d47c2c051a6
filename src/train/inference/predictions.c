/* The meaning of outputs: classes, probabilities, names of columns. */
#include "train/inference/predictions.h"

#include <math.h>
#include <string.h>

#include "base/buffer.h"

/* Classes of a position: the last dimension of the output. */
static size_t classes_of(const struct prediction_meaning *m) { return (size_t)m->output->size[m->output->dims - 1]; }

/* Whether a loss of [m] gives probabilities. */
static status check_terms(const struct prediction_meaning *m) {
    for (size_t i = 0; i < m->objective->count; i++) {
        const struct objective_term *t = &m->objective->terms[i];
        if (t->loss->is_binary || (t->loss->wants_classes && t->output.shape.dims == 1)) return OK;
    }
    return m->wants_probabilities
               ? status_new(STATUS_USAGE, "--probabilities: no loss predicts one class per row; --outputs gives logits")
               : OK;
}

status predictions_check(const struct prediction_meaning *m) {
    if (m->objective) return check_terms(m);
    if (m->target_scale && m->target_scale->size != shape_elements(m->output))
        return status_new(STATUS_DATA, "the model has %zu outputs, but its checkpoint has the scale of %zu targets",
                          shape_elements(m->output), m->target_scale->size);
    if (!m->wants_probabilities) return OK;
    if (!m->loss->wants_classes && !m->loss->is_binary)
        return status_new(STATUS_USAGE, "--probabilities: loss %s predicts values, not classes", m->loss->variant.name);
    if (m->loss->wants_classes && m->output->dims != 1)
        return status_new(STATUS_USAGE,
                          "--probabilities needs one class per row, but this model predicts %lld classes per row; "
                          "--outputs gives its logits",
                          (long long)m->output->size[0]);
    return OK;
}

static size_t largest(const float *z, size_t size) {
    size_t best = 0;
    for (size_t i = 1; i < size; i++)
        if (z[i] > z[best]) best = i;
    return best;
}

/* p_c = exp(z_c - max z) / sum */
static void softmax(const float *z, size_t size, float *p) {
    double max = (double)z[largest(z, size)], sum = 0;
    for (size_t c = 0; c < size; c++) sum += exp((double)z[c] - max);
    for (size_t c = 0; c < size; c++) p[c] = (float)(exp((double)z[c] - max) / sum);
}

static float sigmoid(float z) { return (float)(1 / (1 + exp(-(double)z))); }

/* ---- numbers ---- */

status predictions_spread(struct predictions *p, const bool *is_blank, size_t rows) {
    const float *from = p->outputs;
    TRY(buffer_new(rows * p->size * sizeof(float), "the predictions", (void **)&p->own_outputs));
    for (size_t r = 0; r < rows; r++) {
        float *to = p->own_outputs + r * p->size;
        for (size_t i = 0; i < p->size; i++) to[i] = is_blank[r] ? NAN : from[i];
        from += is_blank[r] ? 0 : p->size;
    }
    p->outputs = p->own_outputs;
    p->is_blank = is_blank;
    p->rows = rows;
    return OK;
}

static void choose_classes(struct predictions *p, const struct prediction_meaning *m) {
    size_t classes = m->loss->is_binary ? 1 : classes_of(m);
    for (size_t i = 0; i < p->rows * p->count; i++)
        p->classes[i] = p->is_blank && p->is_blank[i / p->count] ? -1
                        : m->loss->is_binary                     ? p->outputs[i] > 0
                                                                 : (int64_t)largest(p->outputs + i * classes, classes);
}

static void compute_probabilities(struct predictions *p, const struct prediction_meaning *m) {
    bool has_both = m->loss->is_binary && p->size == 1;
    for (size_t r = 0; r < p->rows; r++) {
        const float *z = p->outputs + r * p->size;
        float *to = p->probabilities + r * p->n_probabilities;
        if (has_both) {
            to[0] = sigmoid(-z[0]);
            to[1] = sigmoid(z[0]);
        } else if (m->loss->is_binary) {
            for (size_t i = 0; i < p->size; i++) to[i] = sigmoid(z[i]);
        } else {
            softmax(z, p->size, to);
        }
    }
}

/* What the outputs predict, in the unit of the file. p->values stays NULL where these are the outputs. */
static status make_values(struct predictions *p, const struct prediction_meaning *m) {
    bool is_logarithm = loss_predicts_logarithms(m->loss, m->loss_config);
    if (!m->target_scale && !is_logarithm) return OK;
    TRY(buffer_new(p->rows * p->size * sizeof *p->values, "the predictions", (void **)&p->values));
    for (size_t i = 0; i < p->rows * p->size; i++) {
        double y = is_logarithm ? exp((double)p->outputs[i]) : (double)p->outputs[i];
        p->values[i] = m->target_scale ? target_scale_undo(m->target_scale, i % p->size, y) : y;
    }
    return OK;
}

/* ---- names ---- */

static void name_predictions(struct predictions *p, const struct prediction_meaning *m, struct arena *arena) {
    bool is_classification = m->loss->wants_classes || m->loss->is_binary;
    p->names = arena_alloc(arena, (p->count + 1) * sizeof *p->names);
    p->has_target_names = m->targets.count == p->count && !(is_classification && p->count == 1);
    for (size_t i = 0; i < p->count; i++)
        p->names[i] = p->has_target_names ? m->targets.items[i]
                      : p->count == 1     ? "prediction"
                                          : arena_printf(arena, "prediction_%zu", i);
}

/* The labels of the classes, or the names of several binary targets. */
static void name_probabilities(struct predictions *p, const struct prediction_meaning *m, struct arena *arena) {
    bool has_targets = m->loss->is_binary && p->size > 1;
    struct string_list known = has_targets ? m->targets : m->labels;
    bool is_known = !has_targets || known.count == p->size;
    p->probability_names = arena_alloc(arena, (p->n_probabilities + 1) * sizeof *p->probability_names);
    for (size_t i = 0; i < p->n_probabilities; i++)
        p->probability_names[i] = is_known && i < known.count ? known.items[i]
                                  : has_targets               ? arena_printf(arena, "probability_%zu", i)
                                                              : arena_printf(arena, "%zu", i);
}

static status make_part(struct predictions *p, const struct prediction_meaning *m, struct arena *arena) {
    p->count = m->loss->wants_classes ? p->size / classes_of(m) : p->size;
    name_predictions(p, m, arena);
    if (!m->loss->wants_classes && !m->loss->is_binary) return make_values(p, m);
    if (m->loss->wants_classes || p->size == 1) p->labels = m->labels;
    TRY(buffer_new(p->rows * p->count * sizeof *p->classes, "the predictions", (void **)&p->classes));
    choose_classes(p, m);
    if (!m->wants_probabilities) return OK;
    p->n_probabilities = m->loss->is_binary && p->size == 1 ? 2 : p->size;
    name_probabilities(p, m, arena);
    TRY(buffer_new(p->rows * p->n_probabilities * sizeof(float), "the probabilities", (void **)&p->probabilities));
    compute_probabilities(p, m);
    return OK;
}

/* ---- several losses ---- */

static struct prediction_meaning meaning_of_term(const struct prediction_meaning *m, size_t term) {
    const struct objective_term *t = &m->objective->terms[term];
    bool has_classes = t->loss->is_binary || (t->loss->wants_classes && t->output.shape.dims == 1);
    return (struct prediction_meaning){.loss = t->loss,
                                       .loss_config = t->config,
                                       .output = &t->output.shape,
                                       .wants_probabilities = m->wants_probabilities && has_classes};
}

/* The columns of the part have the name of its loss, with the number of the value where it has several. */
static void name_part(struct predictions *p, struct arena *arena) {
    for (size_t i = 0; i < p->count; i++)
        p->names[i] = p->count == 1 ? p->name : arena_printf(arena, "%s_%zu", p->name, i);
    for (size_t i = 0; i < p->n_probabilities; i++)
        p->probability_names[i] = arena_printf(arena, "%s_probability_%zu", p->name, i);
}

/* The part of a loss: its columns of the outputs. */
static status make_term(const struct predictions *p, const struct prediction_meaning *m, size_t term,
                        struct predictions *part, struct arena *arena) {
    const struct objective_term *t = &m->objective->terms[term];
    size_t size = t->output.size;
    float *outputs;
    *part = (struct predictions){.rows = p->rows, .size = size, .is_blank = p->is_blank, .name = t->name};
    TRY(buffer_new(p->rows * size * sizeof *outputs, "the predictions", (void **)&outputs));
    part->outputs = part->own_outputs = outputs;
    for (size_t r = 0; r < p->rows; r++)
        memcpy(outputs + r * size, p->outputs + r * p->size + t->output.first, size * sizeof *outputs);
    struct prediction_meaning meaning = meaning_of_term(m, term);
    TRY(make_part(part, &meaning, arena));
    name_part(part, arena);
    return OK;
}

status predictions_make(struct predictions *p, const struct prediction_meaning *m, struct arena *arena) {
    TRY(predictions_check(m));
    if (!m->objective) return make_part(p, m, arena);
    p->part_count = m->objective->count;
    p->parts = arena_alloc(arena, p->part_count * sizeof *p->parts);
    for (size_t i = 0; i < p->part_count; i++) TRY(make_term(p, m, i, &p->parts[i], arena));
    return OK;
}

void predictions_free(struct predictions *p) {
    for (size_t i = 0; i < p->part_count; i++) predictions_free(&p->parts[i]);
    buffer_free(p->own_outputs);
    buffer_free(p->classes);
    buffer_free(p->values);
    buffer_free(p->probabilities);
}
