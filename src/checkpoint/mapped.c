/* Each tensor of the file becomes pieces of parameters; then each parameter's pieces are compared with its shape, and
 * at last, when all match, the values are copied. mapped_report.c describes the result. */
#include "checkpoint/mapped.h"

#include <string.h>

#include "base/buffer.h"
#include "checkpoint/mapped_internal.h"

/* ---- tensors to pieces ---- */

static struct param_slot *find_slot(struct tensor_mapping *m, const char *name) {
    for (size_t i = 0; i < m->slot_count; i++)
        if (strcmp(slot_param(&m->slots[i])->name, name) == 0) return &m->slots[i];
    const struct safetensors_alias *alias = loading_find_alias(&m->loading, name);
    return alias ? find_slot(m, alias->of) : NULL;
}

static void add_piece(struct tensor_mapping *m, struct param_slot *slot, const struct tensor_piece *piece) {
    struct tensor_piece *copy = arena_alloc(m->arena, sizeof *copy);
    struct tensor_piece **end = &slot->pieces;
    *copy = *piece;
    while (*end && (*end)->part <= copy->part) end = &(*end)->next;
    copy->next = *end;
    *end = copy;
}

/* The name without the prefix of the map. */
static const char *stripped_name(const struct tensor_mapping *m, const char *own) {
    size_t prefix = strlen(m->map.prefix);
    return strncmp(own, m->map.prefix, prefix) == 0 ? own + prefix : own;
}

static bool matches(const struct tensor_mapping *m, const char *pattern, const char *own) {
    return weight_pattern_matches(pattern, own) || weight_pattern_matches(pattern, stripped_name(m, own));
}

static bool is_skipped(const struct tensor_mapping *m, const char *own) {
    const struct string_list *skip = &m->source->skip;
    for (size_t i = 0; i < skip->count; i++)
        if (matches(m, skip->items[i], own)) return true;
    return false;
}

static const struct weight_rule *find_rule(const struct tensor_mapping *m, const char *stripped) {
    for (size_t i = 0; i < m->map.count; i++)
        if (weight_pattern_matches(m->map.rules[i].pattern, stripped)) return &m->map.rules[i];
    return NULL;
}

/* The tensor's dimensions as the rule gives them to the model. */
static void apply_layout(struct tensor_piece *piece) {
    const struct safetensors_entry *e = &piece->entry;
    piece->dims = e->dims;
    memcpy(piece->shape, e->shape, sizeof piece->shape);
    if (piece->layout != LAYOUT_TRANSPOSED || e->dims != 2) return;
    piece->shape[0] = e->shape[1];
    piece->shape[1] = e->shape[0];
}

static void add_target(struct tensor_mapping *m, struct tensor_use *use, const char *name, struct tensor_piece *piece,
                       bool is_divided) {
    struct param_slot *slot = find_slot(m, name);
    if (!slot) {
        use->missing = name;
        return;
    }
    const struct param *param = slot_param(slot);
    if (is_divided) {
        piece->is_divided = true;
        piece->rows = param->shape[0];
    }
    use->is_used = true;
    add_piece(m, slot, piece);
    piece->first_row += piece->rows;
}

/* Adds the pieces of the tensor [name] of the file, which is [own] without prefixes of wrappers. */
static status add_tensor(struct tensor_mapping *m, const char *name, const char *own, const json_t *entry) {
    struct tensor_use *use = &m->uses[m->use_count++];
    const char *stripped = stripped_name(m, own);
    use->name = own;
    use->is_skipped = is_skipped(m, own);
    const struct weight_rule *rule = use->rule = use->is_skipped ? NULL : find_rule(m, stripped);
    if (use->is_skipped || (rule && rule->target_count == 0)) return OK;
    struct tensor_piece piece = {.tensor = own, .row_to_add = rule ? rule->row_to_add : -1};
    piece.layout = rule ? rule->layout : LAYOUT_UNSTATED;
    piece.part = rule ? rule->part : 0;
    piece.parts = rule ? rule->parts : 0;
    TRY(safetensors_entry(&m->loading.file, name, entry, &piece.entry));
    apply_layout(&piece);
    for (size_t i = 0; rule && i < rule->target_count; i++)
        add_target(m, use, weight_pattern_replace(rule->pattern, stripped, rule->targets[i], m->arena), &piece,
                   rule->target_count > 1);
    if (!rule) add_target(m, use, own, &piece, false);
    return use->is_used ? loading_check_type(&m->loading, name, &piece.entry) : OK;
}

static status add_tensors(struct tensor_mapping *m) {
    const char *name;
    json_t *entry;
    m->uses = arena_alloc(m->arena, (json_object_size(m->loading.file.header) + 1) * sizeof *m->uses);
    json_object_foreach(m->loading.file.header, name, entry) {
        const char *own = name + m->loading.prefix.length;
        if (safetensors_is_tensor(name) && !loading_is_batch_counter(own)) TRY(add_tensor(m, name, own, entry));
    }
    return OK;
}

/* ---- comparison ---- */

static bool has_shape(const struct tensor_piece *p, const struct param *param) {
    if (p->layout == LAYOUT_RESHAPED) return p->entry.count == param->count;
    return p->dims == param->dims && memcmp(p->shape, param->shape, (size_t)p->dims * sizeof *p->shape) == 0;
}

static bool has_row(const struct tensor_piece *p, const struct param *param) {
    return p->entry.dims == 2 && param->dims == 2 && p->entry.shape[1] == param->shape[1] &&
           p->row_to_add < p->entry.shape[0];
}

/* Whether the dimensions after the first are equal. */
static bool has_columns(const struct tensor_piece *p, const struct param *param) {
    return p->dims == param->dims && p->dims > 0 &&
           memcmp(p->shape + 1, param->shape + 1, (size_t)(p->dims - 1) * sizeof *p->shape) == 0;
}

/* Whether parts 1 to N are there once each, and together have the rows of the parameter. */
static bool parts_match(const struct param_slot *slot, const struct param *param) {
    int64_t rows = 0;
    int part = 0, parts = 0;
    for (const struct tensor_piece *p = slot->pieces; p; p = p->next) {
        if (p->row_to_add >= 0) continue;
        if (++part != p->part || (parts && parts != p->parts) || !has_columns(p, param)) return false;
        parts = p->parts;
        if (p->shape[0] > param->shape[0]) return false;
        rows += p->shape[0];
    }
    return part == parts && rows == param->shape[0];
}

static bool is_same(const struct tensor_mapping *m, const struct tensor_piece *a, const struct tensor_piece *b) {
    const unsigned char *data = m->loading.file.data;
    return a->entry.dtype == b->entry.dtype && a->layout == b->layout && a->entry.dims == b->entry.dims &&
           a->is_divided == b->is_divided && a->first_row == b->first_row &&
           memcmp(a->entry.shape, b->entry.shape, (size_t)a->entry.dims * sizeof *a->entry.shape) == 0 &&
           memcmp(data + a->entry.offset, data + b->entry.offset, a->entry.count * a->entry.dtype->bytes) == 0;
}

static bool piece_matches(const struct tensor_piece *p, const struct param *param) {
    if (p->row_to_add >= 0) return has_row(p, param);
    if (p->is_divided) return has_columns(p, param) && p->first_row + p->rows <= p->shape[0];
    return has_shape(p, param);
}

static void compare_slot(struct tensor_mapping *m, struct param_slot *slot) {
    const struct param *param = slot_param(slot);
    const struct tensor_piece *whole = NULL;
    for (const struct tensor_piece *p = slot->pieces; p; p = p->next) {
        if (p->row_to_add >= 0 || !whole) {
            if (p->row_to_add < 0) whole = p;
            if (!p->parts && !piece_matches(p, param)) mapped_add_mismatch(m, slot, p, &m->differences);
        } else if (p->parts ? !whole->parts : !is_same(m, whole, p)) {
            text_printf(&m->differences, "\n  %s and %s of the file are both for %s and differ", whole->tensor,
                        p->tensor, param->name);
        }
    }
    slot->is_missing = !whole;
    if (whole && whole->parts && !parts_match(slot, param)) mapped_add_parts(slot, &m->differences);
}

/* All rows of a tensor that is divided must be used. */
static void compare_divided(struct tensor_mapping *m) {
    for (size_t i = 0; i < m->slot_count; i++)
        for (const struct tensor_piece *p = m->slots[i].pieces; p; p = p->next) {
            int64_t rows = 0;
            if (!p->is_divided || p->first_row) continue;
            for (size_t k = 0; k < m->slot_count; k++)
                for (const struct tensor_piece *other = m->slots[k].pieces; other; other = other->next)
                    if (other->is_divided && strcmp(other->tensor, p->tensor) == 0) rows += other->rows;
            if (p->dims && rows != p->shape[0])
                text_printf(&m->differences,
                            "\n  %s: %lld rows in the file, but the parameters it is divided among have %lld",
                            p->tensor, (long long)p->shape[0], (long long)rows);
        }
}

bool mapped_is_product(const struct tensor_mapping *m, const struct param *param) {
    const struct safetensors_target *target = m->loading.target;
    for (size_t i = 0; i < target->product_count; i++)
        if (strcmp(target->products[i], param->name) == 0) return true;
    return false;
}

/* Whether the tensor matches the parameter only with its dimensions swapped. */
static bool needs_transpose(const struct tensor_piece *p, const struct param *param) {
    if (p->layout == LAYOUT_TRANSPOSED) return p->entry.dims == 2;
    return p->layout == LAYOUT_UNSTATED && p->dims == 2 && param->dims == 2 && p->shape[0] != p->shape[1] &&
           p->shape[0] == param->shape[1] && p->shape[1] == param->shape[0];
}

/* A square matrix has the same shape in both layouts: a rule must state it when other matrices are transposed. */
static void compare_squares(struct tensor_mapping *m) {
    bool is_any_transposed = false;
    for (size_t i = 0; i < m->slot_count; i++)
        for (const struct tensor_piece *p = m->slots[i].pieces; p; p = p->next)
            is_any_transposed |= needs_transpose(p, slot_param(&m->slots[i]));
    for (size_t i = 0; is_any_transposed && i < m->slot_count; i++) {
        const struct param *param = slot_param(&m->slots[i]);
        for (const struct tensor_piece *p = m->slots[i].pieces; p; p = p->next)
            if (p->layout == LAYOUT_UNSTATED && p->dims == 2 && p->shape[0] == p->shape[1] &&
                mapped_is_product(m, param))
                text_printf(
                    &m->differences,
                    "\n  %s of the file is square, so its shape does not show whether it must be transposed like "
                    "others; its rule must have `transpose` or `as is`",
                    p->tensor);
    }
}

static void compare_pattern(struct tensor_mapping *m, const char *key, const char *pattern) {
    for (size_t i = 0; i < m->use_count; i++)
        if (matches(m, pattern, m->uses[i].name)) return;
    text_printf(&m->differences, "\n  %s: the pattern '%s' matches no tensor of the file", key, pattern);
}

/* A pattern without a tensor is a typo; not in a ready map, nor in a map of several models (partial). */
static void compare_patterns(struct tensor_mapping *m) {
    for (size_t i = 0; i < m->source->skip.count; i++) compare_pattern(m, "skip", m->source->skip.items[i]);
    for (size_t i = 0; m->source->rules.count && !m->source->is_partial && i < m->map.count; i++)
        compare_pattern(m, "map", m->map.rules[i].pattern);
}

static status compare(struct tensor_mapping *m) {
    for (size_t i = 0; i < m->slot_count; i++) compare_slot(m, &m->slots[i]);
    compare_divided(m);
    compare_squares(m);
    compare_patterns(m);
    if (!m->source->is_partial) mapped_add_unused(m, &m->differences);
    if (!m->differences.length) return OK;
    return status_new(STATUS_DATA, "%s: does not match the model:%s", m->loading.file.path,
                      text_string(&m->differences));
}

/* ---- values ---- */

/* Copies rows of [values], the tensor in the file's layout, to [to], or adds one row to each row there. */
static void place_values(const struct tensor_piece *p, const struct param *param, const float *values, float *to) {
    size_t columns = p->dims == 2 ? (size_t)p->shape[1] : 0, rows = p->dims ? (size_t)p->shape[0] : 1;
    size_t first = (size_t)p->first_row, count = p->is_divided ? (size_t)p->rows : rows;
    if (p->row_to_add >= 0) {
        for (size_t i = 0; columns > 0 && i < param->count; i++)
            to[i] += values[(size_t)p->row_to_add * columns + i % columns];
    } else if (p->layout == LAYOUT_TRANSPOSED && p->dims == 2) {
        for (size_t r = 0; r < count; r++)
            for (size_t c = 0; c < columns; c++) to[r * columns + c] = values[c * rows + first + r];
    } else {
        size_t row = p->entry.count / (rows ? rows : 1);
        memcpy(to, values + first * row, count * row * sizeof *to);
    }
}

static status fill_piece(struct tensor_mapping *m, const struct tensor_piece *p, const struct param *param, float *to) {
    float *values;
    TRY(buffer_new(p->entry.count * sizeof *values, "a tensor of the file", (void **)&values));
    p->entry.dtype->convert(m->loading.file.data + p->entry.offset, values, p->entry.count);
    status s = loading_check_finite(&m->loading, p->tensor, &p->entry, values);
    if (!s) place_values(p, param, values, to);
    buffer_free(values);
    return s;
}

static status fill_slot(struct tensor_mapping *m, const struct param_slot *slot) {
    float *to = params_value(slot->set, slot->index);
    bool is_whole = false;
    for (const struct tensor_piece *p = slot->pieces; p; p = p->next) {
        if (p->row_to_add >= 0 || (is_whole && !p->parts)) continue; /* later; an equal copy */
        TRY(fill_piece(m, p, slot_param(slot), to));
        is_whole = true;
        to += p->parts ? p->entry.count : 0;
    }
    for (const struct tensor_piece *p = slot->pieces; p && is_whole; p = p->next)
        if (p->row_to_add >= 0) TRY(fill_piece(m, p, slot_param(slot), params_value(slot->set, slot->index)));
    return OK;
}

/* ---- all ---- */

static void add_slots(struct tensor_mapping *m) {
    const struct safetensors_target *target = m->loading.target;
    for (size_t s = 0; s < target->set_count; s++) m->slot_count += target->sets[s]->count;
    m->slots = arena_alloc(m->arena, (m->slot_count + 1) * sizeof *m->slots);
    struct param_slot *slot = m->slots;
    for (size_t s = 0; s < target->set_count; s++)
        for (size_t i = 0; i < target->sets[s]->count; i++)
            *slot++ = (struct param_slot){.set = target->sets[s], .index = i};
}

static status load(struct tensor_mapping *m, struct text *report) {
    add_slots(m);
    TRY(add_tensors(m));
    TRY(compare(m));
    for (size_t i = 0; i < m->slot_count; i++) TRY(fill_slot(m, &m->slots[i]));
    mapped_report(m, report);
    return OK;
}

status mapped_load(const char *path, const struct safetensors_target *target, const struct weight_source *source,
                   struct text *report) {
    struct tensor_mapping m = {.loading = {.target = target}, .source = source, .arena = arena_create()};
    weight_map_create(source, m.arena, &m.map);
    status s = loading_open(&m.loading, path);
    if (!s) s = load(&m, report);
    text_free(&m.differences);
    loading_close(&m.loading);
    arena_destroy(m.arena);
    return s;
}
