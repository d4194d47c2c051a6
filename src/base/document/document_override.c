/* KEY=VALUE arguments change the tree before schema_bind, so the same rules apply as for the file. */
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/document/document_internal.h"

struct override {
    struct document *document;
    struct problems *problems;
    struct place place;
    char *steps[DOCUMENT_MAX_DEPTH];
    int step_count;
    const struct document_paths *paths; /* NULL: there is no schema */
};

/* The path of the first [count] steps. */
static const char *path_of(const struct override *o, int count) {
    char *path = arena_copy(o->document->arena, count > 0 ? o->steps[0] : "");
    for (int i = 1; i < count; i++) path = arena_printf(o->document->arena, "%s.%s", path, o->steps[i]);
    return path;
}

static bool split_steps(struct override *o, char *key) {
    for (char *step = key, *dot; step; step = dot) {
        dot = strchr(step, '.');
        if (dot) *dot++ = 0;
        if (!*step || o->step_count == DOCUMENT_MAX_DEPTH) {
            problems_add(o->problems, o->place, NULL,
                         *step ? "the key has more than 32 steps"
                               : "expected KEY=VALUE with a dotted key, such as optimizer.lr=0.01");
            return false;
        }
        o->steps[o->step_count++] = step;
    }
    return true;
}

/* Sets what is between the [count] steps from [depth] on. */
static void separate_steps(struct override *o, int depth, int count, char separator) {
    for (int i = depth + 1; i < depth + count; i++) o->steps[i][-1] = separator;
}

/* Makes the [count] steps from [depth] on one step, with the dots between them. */
static void join_steps(struct override *o, int depth, int count) {
    char **steps = o->steps + depth;
    separate_steps(o, depth, count, '.');
    memmove(steps + 1, steps + count, (size_t)(o->step_count - depth - count) * sizeof *steps);
    o->step_count -= count - 1;
}

/* A key may contain dots: steps from [depth] on that are a key of [mapping] together become one step, as many as
 * possible; those of a new key as the schema says. */
static void join_key(struct override *o, const struct node *mapping, int depth) {
    for (int count = o->step_count - depth; count > 0; count--) {
        separate_steps(o, depth, count, '.');
        bool is_known = node_get(mapping, o->steps[depth]) != NULL;
        separate_steps(o, depth, count, 0);
        if (is_known) {
            join_steps(o, depth, count);
            return;
        }
    }
    if (o->paths)
        join_steps(o, depth, (int)o->paths->new_key(o->paths->schema, o->steps, (size_t)o->step_count, (size_t)depth));
}

static struct node *new_mapping(struct override *o, struct place place) {
    struct node *node = arena_alloc(o->document->arena, sizeof *node);
    node->kind = NODE_MAPPING;
    node->place = place;
    return node;
}

/* A copy of the array [from] (count) with space for one more item. */
static void *copy_plus_one(struct override *o, const void *from, size_t count, size_t size) {
    char *to = arena_alloc(o->document->arena, (count + 1) * size);
    if (count > 0) memcpy(to, from, count * size);
    return to;
}

/* The pointer to the value of [key] in [mapping]; an absent key is added, with value NULL. */
static struct node **slot_of_key(struct override *o, struct node *mapping, const char *key) {
    size_t n = mapping->count;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(mapping->keys[i], key) == 0) return &mapping->items[i];
    }
    mapping->items = copy_plus_one(o, mapping->items, n, sizeof(struct node *));
    mapping->keys = copy_plus_one(o, mapping->keys, n, sizeof *mapping->keys);
    mapping->key_places = copy_plus_one(o, mapping->key_places, n, sizeof *mapping->key_places);
    mapping->keys[n] = key;
    mapping->key_places[n] = o->place;
    mapping->count = n + 1;
    return &mapping->items[n];
}

/* The pointer to the entry of [sequence] that step [depth] names; NULL (reported) when there is no such entry. */
static struct node **slot_of_index(struct override *o, struct node *sequence, int depth) {
    const char *step = o->steps[depth];
    size_t digits = strspn(step, "0123456789");
    size_t index = digits > 0 && digits < 8 && !step[digits] ? (size_t)atol(step) : SIZE_MAX;
    if (index < sequence->count) return &sequence->items[index];
    if (sequence->count == 0)
        problems_add(o->problems, o->place, NULL, "'%s' is an empty list", path_of(o, depth));
    else
        problems_add(o->problems, o->place, NULL, "'%s' is a list with the entries 0 to %zu; '%s' is none of them",
                     path_of(o, depth), sequence->count - 1, short_text(step).s);
    return NULL;
}

/* `adam`, `cross_entropy`; not `true` or `3`. */
static bool is_type_name(const struct node *node) {
    if (!isalpha((unsigned char)node->text[0]) || strcmp(node->text, "true") == 0 || strcmp(node->text, "false") == 0)
        return false;
    for (const char *c = node->text; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_') return false;
    return true;
}

/* The key that the value *slot of the first [depth] steps is the short form of, as in `linear: 16`; NULL: none. */
static const char *short_form_of(const struct override *o, const struct node *node, int depth) {
    bool is_index = isdigit((unsigned char)o->steps[depth][0]);
    if (!o->paths || node->kind == NODE_MAPPING || (node->kind == NODE_SEQUENCE && is_index)) return NULL;
    return o->paths->short_form(o->paths->schema, o->steps, (size_t)depth);
}

/* Replaces the value of *slot with {[key]: value}. */
static void wrap(struct override *o, struct node **slot, const char *key) {
    struct node *value = *slot;
    *slot = new_mapping(o, value->place);
    *slot_of_key(o, *slot, key) = value;
    (*slot)->key_places[0] = value->place;
}

/* Replaces an empty *slot, a short form or a type name in it with a mapping, so that it has the key of step [depth];
 * false (reported) for another scalar. */
static bool make_container(struct override *o, struct node **slot, int depth, bool is_entry) {
    struct node *node = *slot;
    if (!node || node_is_null(node)) {
        *slot = new_mapping(o, o->place);
        return true;
    }
    const char *key = short_form_of(o, node, depth);
    if (key) wrap(o, slot, key);
    if (key || node->kind != NODE_SCALAR) return true;
    if (!is_type_name(node)) {
        problems_add(o->problems, o->place, NULL, "'%s' is the value '%s', which has no keys; write %s={%s: ...}",
                     path_of(o, depth), short_text(node->text).s, path_of(o, depth), o->steps[depth]);
        return false;
    }
    if (is_entry && strcmp(node->text, o->steps[depth]) == 0) /* `- linear`, `.linear.out=3` */
        *slot = new_mapping(o, node->place);
    else
        wrap(o, slot, "type");
    return true;
}

void document_override_by(struct document *document, const char *assignment, const struct document_paths *paths,
                          struct problems *problems) {
    struct arena *arena = document->arena;
    struct override o = {.document = document, .problems = problems, .paths = paths};
    o.place.file = arena_printf(arena, "argument '%s'", short_text(assignment).s);
    const char *equals = strchr(assignment, '=');
    if (!equals) {
        problems_add(problems, o.place, NULL, "expected KEY=VALUE, such as optimizer.lr=0.01");
        return;
    }
    char *key = arena_copy(arena, assignment);
    key[equals - assignment] = 0;
    if (!split_steps(&o, key)) return;
    struct node *value =
        document_parse_tree(equals + 1, strlen(equals + 1), o.place, true, o.step_count, arena, problems);
    if (!value) return;

    struct node **slot = &document->root;
    bool is_entry = false;
    for (int depth = 0; depth < o.step_count; depth++) {
        if (!make_container(&o, slot, depth, is_entry)) return;
        is_entry = (*slot)->kind == NODE_SEQUENCE;
        if (!is_entry) join_key(&o, *slot, depth);
        slot = is_entry ? slot_of_index(&o, *slot, depth) : slot_of_key(&o, *slot, o.steps[depth]);
        if (!slot) return;
    }
    *slot = value;
}

void document_override(struct document *document, const char *assignment, struct problems *problems) {
    document_override_by(document, assignment, NULL, problems);
}
