/* Sentences about the tensors of a file and the parameters of a model. */
#include <string.h>

#include "checkpoint/mapped_internal.h"

#define MAX_LISTED 8 /* names in a line of the report */

static void add_tensor(const struct tensor_piece *p, struct text *out) {
    text_printf(out, "%s of the file is ", p->tensor);
    loading_add_shape(out, p->entry.dims, p->entry.shape);
    if (p->layout == LAYOUT_TRANSPOSED && p->entry.dims == 2) {
        text_add(out, ", transposed ");
        loading_add_shape(out, p->dims, p->shape);
    }
}

static void add_param(const struct param *param, struct text *out) {
    text_printf(out, "%s of the model is ", param->name);
    loading_add_shape(out, param->dims, param->shape);
}

/* Whether the tensor has more rows than the table of an embedding. */
static bool is_longer_table(const struct tensor_mapping *m, const struct tensor_piece *piece,
                            const struct param *param) {
    return piece->dims == 2 && param->dims == 2 && piece->shape[1] == param->shape[1] &&
           piece->shape[0] > param->shape[0] && !mapped_is_product(m, param);
}

void mapped_add_mismatch(const struct tensor_mapping *m, const struct param_slot *slot,
                         const struct tensor_piece *piece, struct text *out) {
    const struct param *param = slot_param(slot);
    text_add(out, "\n  ");
    add_tensor(piece, out);
    text_add(out, "; ");
    add_param(param, out);
    if (piece->row_to_add >= 0)
        text_printf(out, ", whose rows cannot be added to row %lld", (long long)piece->row_to_add);
    else if (piece->layout == LAYOUT_UNSTATED && piece->dims == 2 && param->dims == 2 &&
             piece->shape[0] == param->shape[1] && piece->shape[1] == param->shape[0])
        text_add(out, "; it matches with `transpose` in its rule");
    else if (is_longer_table(m, piece, param))
        text_printf(out, "; it matches with `num_embeddings: %lld` of the layer", (long long)piece->shape[0]);
}

void mapped_add_parts(const struct param_slot *slot, struct text *out) {
    int parts = 0;
    text_add(out, "\n  ");
    for (const struct tensor_piece *p = slot->pieces; p; p = p->next) {
        if (p->row_to_add >= 0) continue;
        if (parts) text_add(out, ", ");
        add_tensor(p, out);
        text_printf(out, " (part %d of %d)", p->part, p->parts);
        parts = p->parts > parts ? p->parts : parts;
    }
    text_printf(out, "; %d part%s, each once, must give the rows of ", parts, text_plural((uint64_t)parts, "s"));
    text_printf(out, "%s, and ", slot_param(slot)->name);
    add_param(slot_param(slot), out);
}

void mapped_add_unused(const struct tensor_mapping *m, struct text *out) {
    for (size_t i = 0; i < m->slot_count; i++) {
        const struct param *param = slot_param(&m->slots[i]);
        if (!m->slots[i].is_missing) continue;
        text_printf(out, "\n  %s: ", param->name);
        loading_add_shape(out, param->dims, param->shape);
        text_add(out, " in the model, not in the file");
    }
    for (size_t i = 0; i < m->use_count; i++) {
        const struct tensor_use *use = &m->uses[i];
        if (!use->missing) continue;
        text_printf(out, "\n  %s: in the file, not in the model", use->name);
        if (strcmp(use->missing, use->name) != 0) text_printf(out, ", which has no %s", use->missing);
    }
}

/* ---- the report ---- */

struct listing {
    size_t count;
    struct text names;
};

static void list_name(struct listing *list, const char *name) {
    if (list->count++ < MAX_LISTED) text_printf(&list->names, "%s%s", list->names.length ? ", " : "", name);
}

/* Adds "\n  WHAT: a, b, c and 5 more" and empties the list. */
static void end_list(struct listing *list, const char *what, struct text *out) {
    if (list->count) text_printf(out, "\n  %s: %s", what, text_string(&list->names));
    if (list->count > MAX_LISTED) text_printf(out, " and %zu more", list->count - MAX_LISTED);
    text_free(&list->names);
    *list = (struct listing){0};
}

/* "\n  h.*.c_fc.weight -> h.*.c_fc.weight, transposed: 12 tensors" */
static void report_rule(const struct tensor_mapping *m, const struct weight_rule *rule, struct text *out) {
    size_t used = 0;
    for (size_t i = 0; i < m->use_count; i++) used += m->uses[i].rule == rule && m->uses[i].is_used;
    if (!used) return;
    text_printf(out, "\n  %s -> ", rule->pattern);
    for (size_t i = 0; i < rule->target_count; i++) text_printf(out, "%s%s", i ? ", " : "", rule->targets[i]);
    if (rule->layout == LAYOUT_TRANSPOSED) text_add(out, ", transposed");
    if (rule->layout == LAYOUT_RESHAPED) text_add(out, ", reshaped");
    if (rule->parts) text_printf(out, ", part %d of %d", rule->part, rule->parts);
    if (rule->row_to_add >= 0) text_printf(out, ", row %lld added to each row", (long long)rule->row_to_add);
    text_printf(out, ": %zu tensor%s", used, text_plural(used, "s"));
}

static void report_unused(const struct tensor_mapping *m, struct text *out) {
    struct listing list = {0};
    for (size_t i = 0; i < m->use_count; i++)
        if (m->uses[i].is_skipped) list_name(&list, m->uses[i].name);
    end_list(&list, "not used, as `skip` matches", out);
    for (size_t i = 0; i < m->use_count; i++)
        if (m->uses[i].rule && m->uses[i].rule->target_count == 0) list_name(&list, m->uses[i].name);
    end_list(&list, "not used, as the map has no use for them", out);
    for (size_t i = 0; i < m->use_count; i++)
        if (m->uses[i].missing) list_name(&list, m->uses[i].name);
    end_list(&list, "not used, as the model has no such parameters", out);
    for (size_t i = 0; i < m->slot_count; i++)
        if (m->slots[i].is_missing) list_name(&list, slot_param(&m->slots[i])->name);
    end_list(&list, "keep their initial values, as the file has none", out);
}

void mapped_report(const struct tensor_mapping *m, struct text *out) {
    size_t used = 0, filled = 0, same = 0;
    for (size_t i = 0; i < m->use_count; i++) {
        used += m->uses[i].is_used;
        same += m->uses[i].is_used && !m->uses[i].rule;
    }
    for (size_t i = 0; i < m->slot_count; i++) filled += !m->slots[i].is_missing;
    text_printf(out, "%s: %zu of %zu tensors used, for %zu of %zu parameters", m->loading.file.path, used, m->use_count,
                filled, m->slot_count);
    for (size_t i = 0; i < m->map.count; i++) report_rule(m, &m->map.rules[i], out);
    if (same) text_printf(out, "\n  with the same name: %zu tensor%s", same, text_plural(same, "s"));
    report_unused(m, out);
}
