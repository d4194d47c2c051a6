/* Names of outputs: which tensor a layer's `from:` means. A name is known in the list of its layer, after that layer,
 * and in the lists inside it; each copy of a repeat has its own names. */
#include <string.h>

#include "model/build.h"

#define INPUT_NAME "input" /* of the model */

static void collect(struct arena *arena, const struct variant_list *list, struct string_list *out, size_t *capacity);

/* The lists of layers among the keys of a composite. */
static void collect_rows(struct arena *arena, const struct schema *schema, const void *config, struct string_list *out,
                         size_t *capacity) {
    for (const struct schema_row *row = schema ? schema->rows : NULL; row && row->key; row++) {
        const void *field = (const char *)config + row->offset;
        const struct section_list *sections = field;
        if (row->type == SCHEMA_VARIANT_LIST && row->variants->at == layer_variants.at)
            collect(arena, field, out, capacity);
        if (row->type != SCHEMA_SECTION_LIST) continue;
        for (size_t i = 0; i < sections->count; i++)
            collect_rows(arena, row->section, (const char *)sections->items + i * row->section->size, out, capacity);
    }
}

static void collect(struct arena *arena, const struct variant_list *list, struct string_list *out, size_t *capacity) {
    for (size_t i = 0; i < list->count; i++) {
        const struct variant *item = &list->items[i];
        const struct layer_common *common = item->common;
        for (size_t n = 0; common && n < common->from.count; n++) {
            out->items = build_grow(arena, out->items, out->count, capacity, sizeof *out->items);
            out->items[out->count++] = common->from.items[n];
        }
        collect_rows(arena, layer_type_at((size_t)item->index)->variant.schema, item->config, out, capacity);
    }
}

struct string_list build_sources(struct arena *arena, const struct variant_list *list) {
    struct string_list out = {0};
    size_t capacity = 0;
    collect(arena, list, &out, &capacity);
    return out;
}

bool build_is_source(const struct builder *builder, const char *name) {
    for (size_t i = 0; i < builder->sources.count; i++)
        if (strcmp(builder->sources.items[i], name) == 0) return true;
    return false;
}

/* Whether [name] means the model's only input. */
static bool is_input(const struct builder *builder, const char *name) {
    return builder->names->input_count == 0 && strcmp(name, INPUT_NAME) == 0;
}

status build_add_name(struct builder *builder, const char *name, size_t tensor, const char *layer,
                      const struct variant *variant) {
    struct scope *scope = builder->scope;
    if (is_input(builder, name) && build_is_source(builder, name))
        return status_new(STATUS_USAGE, "the name '" INPUT_NAME "' means the model's input in `from:`; choose another");
    for (size_t i = 0; i < scope->count; i++)
        if (strcmp(scope->items[i].name, name) == 0)
            return status_new(STATUS_USAGE, "the name '%s' is already used by another layer of this list", name);
    scope->items =
        build_grow(builder->model->arena, scope->items, scope->count, &scope->capacity, sizeof *scope->items);
    scope->items[scope->count++] = (struct output_name){name, tensor, layer, variant};
    return OK;
}

static status unknown_name(const struct builder *builder, const char *name) {
    size_t count = 1;
    for (const struct scope *scope = builder->scope; scope; scope = scope->outer) count += scope->count;
    struct arena *arena = builder->model->arena;
    const char **known = arena_alloc(arena, (count + 1) * sizeof *known);
    struct text list = {0};
    count = 0;
    for (const struct scope *scope = builder->scope; scope; scope = scope->outer)
        for (size_t i = 0; i < scope->count; i++) known[count++] = scope->items[i].name;
    if (is_input(builder, INPUT_NAME)) known[count++] = INPUT_NAME;
    known[count] = NULL;
    for (size_t i = 0; i < count && list.length < 200; i++) text_printf(&list, "%s%s", i ? ", " : "", known[i]);
    const char *nearest = schema_nearest(name, known);
    status s = status_new(STATUS_USAGE, "no layer before this one has the name '%s'%s%s%s; known here: %s%s", name,
                          nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "",
                          text_string(&list), list.length >= 200 ? ", ..." : "");
    text_free(&list);
    return s;
}

static const struct output_name *find(const struct builder *builder, const char *name) {
    for (const struct scope *scope = builder->scope; scope; scope = scope->outer)
        for (size_t i = 0; i < scope->count; i++)
            if (strcmp(scope->items[i].name, name) == 0) return &scope->items[i];
    return NULL;
}

status build_find(const struct builder *builder, const char *name, size_t *tensor) {
    const struct output_name *found = find(builder, name);
    *tensor = found ? found->tensor : 0;
    return found || is_input(builder, name) ? OK : unknown_name(builder, name);
}

status build_find_layer(const struct builder *builder, const char *name, const struct output_name **out) {
    *out = find(builder, name);
    if (*out && !(*out)->layer) return status_new(STATUS_USAGE, "'%s' is an input, which has no parameters", name);
    return *out ? OK : unknown_name(builder, name);
}

/* The first layer of a model with several inputs. */
static status needs_source(const struct builder *builder) {
    struct text names = {0};
    for (size_t i = 0; i < builder->names->input_count; i++)
        text_printf(&names, "%s%s", i ? ", " : "", builder->names->inputs[i].name);
    status s =
        status_new(STATUS_USAGE, "the model has several inputs, so this layer needs `from:` with one of them: %s",
                   text_string(&names));
    text_free(&names);
    return s;
}

status build_inputs(const struct builder *builder, const struct string_list *from, bool joins, size_t previous,
                    size_t *in, size_t *count) {
    size_t named = from ? from->count : 0;
    *count = 0;
    if (!joins && named > 1)
        return status_new(STATUS_USAGE,
                          "from: this layer takes one output, not %zu; join them first with add, concat or "
                          "multiply",
                          named);
    if (joins && named == 0)
        return status_new(STATUS_USAGE, "joins several outputs, so it needs `from:` with their names (one name: joined "
                                        "with the output of the layer before)");
    if (named >= BUILD_MAX_INPUTS) return status_new(STATUS_USAGE, "from: more than %d names", BUILD_MAX_INPUTS - 1);
    if (named == 0 || (joins && named == 1)) {
        if (previous == NO_TENSOR) return needs_source(builder);
        in[(*count)++] = previous;
    }
    for (size_t i = 0; i < named; i++) TRY(status_prefix(build_find(builder, from->items[i], &in[(*count)++]), "from"));
    return OK;
}

status build_check_read(const struct model *model) {
    for (size_t t = 1; t < model->tensor_count; t++) {
        const struct layer *layer = model->tensors[t].producer;
        if (!layer || model->tensors[t].is_read) continue;
        return status_new(STATUS_USAGE, "%s: %s: no layer takes its output", place_text(layer->place).s, layer->path);
    }
    return OK;
}
