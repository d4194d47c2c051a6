/* A document is an arena and the root of its tree; reading is in document_parse.c, overrides in
 * document_override.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/document/document_internal.h"
#include "base/files/io.h"

static struct node *empty_mapping(struct arena *arena, struct place place) {
    struct node *node = arena_alloc(arena, sizeof *node);
    node->kind = NODE_MAPPING;
    node->place = place;
    return node;
}

status document_parse(const char *name, const char *bytes, size_t size, struct problems *problems,
                      struct document **out) {
    *out = NULL;
    struct arena *arena = arena_create();
    struct place place = {arena_copy(arena, name), 1, 1};
    struct node *root = document_parse_tree(bytes, size, place, false, 0, arena, problems);
    if (root && node_is_null(root)) root = empty_mapping(arena, place);
    if (root && root->kind != NODE_MAPPING) {
        problems_add(problems, root->place, NULL,
                     "expected a mapping of sections (such as `sampler: {batch_size: 32}`), got %s",
                     root->kind == NODE_SEQUENCE ? "a list" : "a single value");
        root = NULL;
    }
    if (!root) {
        arena_destroy(arena);
        return OK;
    }
    struct document *document = arena_alloc(arena, sizeof *document);
    *document = (struct document){.arena = arena, .root = root};
    *out = document;
    return OK;
}

/* A name that is a file, where [path] is a run folder or has another ending; else "". In [arena]. */
static const char *other_name(const char *path, int error, struct arena *arena) {
    const char *dot = strrchr(path, '.');
    int stem = dot && !strchr(dot, '/') ? (int)(dot - path) : (int)strlen(path);
    const char *names[] = {arena_printf(arena, "%s/config.yaml", path), arena_printf(arena, "%s.yaml", path),
                           arena_printf(arena, "%.*s.yaml", stem, path), arena_printf(arena, "%.*s.yml", stem, path)};
    for (size_t i = error == EISDIR ? 0 : 1; i < (error == EISDIR ? 1 : sizeof names / sizeof *names); i++) {
        struct io_info info;
        status unseen = io_stat(names[i], &info);
        bool is_there = !unseen && info.is_file;
        status_free(unseen);
        if (is_there) return names[i];
    }
    return "";
}

static status cannot_read(const char *path, int error) {
    struct arena *arena = arena_create();
    const char *name = error == EISDIR || error == ENOENT ? other_name(path, error, arena) : "";
    status s = status_new(STATUS_USAGE, "cannot read config '%s': %s%s%s%s", path, strerror(error),
                          *name ? "; did you mean '" : "", name, *name ? "'?" : "");
    arena_destroy(arena);
    return s;
}

#define HDF5_SIGNATURE "\x89HDF\r\n\x1a\n"

static bool is_hdf5(const char *bytes, size_t size) {
    return size >= sizeof HDF5_SIGNATURE - 1 && memcmp(bytes, HDF5_SIGNATURE, sizeof HDF5_SIGNATURE - 1) == 0;
}

status document_read(const char *path, struct problems *problems, struct document **out) {
    *out = NULL;
    FILE *file = fopen(path, "rbe");
    if (!file) return cannot_read(path, errno);
    char *bytes = malloc(DOCUMENT_MAX_BYTES + 1); /* one more, to detect a larger file */
    size_t size = bytes ? fread(bytes, 1, DOCUMENT_MAX_BYTES + 1, file) : 0;
    int error = !bytes ? ENOMEM : ferror(file) ? errno : 0;
    fclose(file);
    status s = OK;
    if (error)
        s = cannot_read(path, error);
    else if (is_hdf5(bytes, size))
        s = status_new(STATUS_USAGE,
                       "%s: an HDF5 file, not a config; the config comes first, a checkpoint is given by --checkpoint "
                       "FILE, and data by dataset.path=FILE",
                       path);
    else
        s = document_parse(path, bytes, size, problems, out);
    free(bytes);
    return s;
}

const struct node *document_root(const struct document *document) { return document->root; }

struct arena *document_arena(struct document *document) {
    return document->arena;
}

/* Keys, their places and texts are never changed, so the copy shares them. */
static struct node *copy_node(const struct node *node, struct arena *arena) {
    struct node *copy = arena_alloc(arena, sizeof *copy);
    *copy = *node;
    if (node->count == 0) return copy;
    copy->items = arena_alloc(arena, node->count * sizeof *copy->items);
    for (size_t i = 0; i < node->count; i++) copy->items[i] = copy_node(node->items[i], arena);
    return copy;
}

struct document *document_copy(const struct document *document) {
    struct arena *arena = arena_create();
    struct document *copy = arena_alloc(arena, sizeof *copy);
    *copy = (struct document){.arena = arena, .root = copy_node(document->root, arena)};
    return copy;
}

void document_destroy(struct document *document) {
    if (document) arena_destroy(document->arena);
}

const struct node *node_get(const struct node *mapping, const char *key) {
    if (!mapping || mapping->kind != NODE_MAPPING) return NULL;
    for (size_t i = 0; i < mapping->count; i++)
        if (strcmp(mapping->keys[i], key) == 0) return mapping->items[i];
    return NULL;
}

bool node_is_null(const struct node *node) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    if (node->kind != NODE_SCALAR || node->is_quoted) return false;
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
        if (strcmp(node->text, nulls[i]) == 0) return true;
    return false;
}

struct node *node_parse(const char *text, struct place place, struct arena *arena, struct problems *problems) {
    return document_parse_tree(text, strlen(text), place, true, 0, arena, problems);
}
