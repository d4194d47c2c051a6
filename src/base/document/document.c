/* A document is an arena and the root of its tree. Reading, overrides and the list of what is wrong stand together:
 * each sentence names a place in the tree. */
#include "base/document/document.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/files/io.h"
#include "base/scoped.h"
#include "base/status.h"
#include "base/utf8.h"

struct document {
    struct arena *arena;
    struct node *root;
};

/* ---- problems ---- */

/* A problem stores its formatted sentence and its sort key, so it outlives the document. */

struct problem {
    char *text;         /* owned */
    size_t file_length; /* the file's name is the first bytes of text */
    int line, column;
    bool is_override;
};

struct short_text short_text(const char *text) {
    struct short_text result;
    size_t max = sizeof result.s - 4, length = strnlen(text, max + 1);
    if (length <= max) {
        memcpy(result.s, text, length);
        result.s[length] = 0;
        return result;
    }
    length = max;
    while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) length--;
    memcpy(result.s, text, length);
    memcpy(result.s + length, "...", 4);
    return result;
}

struct place_text place_text(struct place place) {
    struct place_text t;
    const char *file = place.file ? place.file : "config";
    if (place.line > 0)
        snprintf(t.s, sizeof t.s, "%.*s:%d:%d", PLACE_FILE, file, place.line, place.column);
    else
        snprintf(t.s, sizeof t.s, "%.*s", PLACE_FILE, file);
    return t;
}

/* Escapes C0, C1 and DEL, which a terminal would interpret. */
static void add_escaped(struct text *out, const char *text) {
    for (size_t left = strlen(text); left > 0;) {
        unsigned code = 0;
        size_t length = utf8_decode(text, left, &code);
        if (length == 0)
            text_printf(out, "\\x%02x", (unsigned char)*text);
        else if (code < 0x20 || (code >= 0x7f && code < 0xa0))
            text_printf(out, "\\x%02x", code);
        else
            text_add_bytes(out, text, length);
        if (length == 0) length = 1;
        text += length;
        left -= length;
    }
}

void problems_add(struct problems *problems, struct place place, const char *key, const char *format, ...) {
    if (problems->count >= PROBLEMS_MAX) {
        problems->left_out++;
        return;
    }
    const char *file = place.file ? place.file : "";
    struct text raw = {0}, line = {0};
    va_list arguments;
    va_start(arguments, format);
    char *sentence = NULL;
    if (vasprintf(&sentence, format, arguments) < 0) status_need(NULL);
    va_end(arguments);

    add_escaped(&line, file);
    size_t file_length = line.length;
    if (place.line > 0) text_printf(&line, ":%d:%d", place.line, place.column);
    if (line.length > 0) text_add(&line, ": ");
    if (key && *key) text_printf(&raw, "%s: ", key);
    text_add(&raw, sentence);
    add_escaped(&line, text_string(&raw));
    free(sentence);
    text_free(&raw);

    if (problems->count == problems->capacity) {
        problems->capacity = problems->capacity ? problems->capacity * 2 : 8;
        problems->items = status_need(realloc(problems->items, problems->capacity * sizeof *problems->items));
    }
    problems->items[problems->count++] = (struct problem){
        .text = line.data,
        .file_length = file_length,
        .line = place.line,
        .column = place.column,
        .is_override = place.line == 0 && strncmp(file, "argument ", 9) == 0,
    };
}

static int compare_problems(const void *left, const void *right) {
    const struct problem *a = *(const struct problem *const *)left, *b = *(const struct problem *const *)right;
    if (a->is_override != b->is_override) return a->is_override ? 1 : -1;
    size_t shorter = a->file_length < b->file_length ? a->file_length : b->file_length;
    int order = a->is_override ? 0 : memcmp(a->text, b->text, shorter);
    if (order == 0 && !a->is_override) order = (a->file_length > b->file_length) - (a->file_length < b->file_length);
    if (order == 0) order = (a->line > b->line) - (a->line < b->line);
    if (order == 0) order = (a->column > b->column) - (a->column < b->column);
    return order ? order : ((uintptr_t)a > (uintptr_t)b) - ((uintptr_t)a < (uintptr_t)b);
}

status problems_status(const struct problems *problems, enum status_code code) {
    if (problems->count == 0) return OK;
    const struct problem **sorted = status_need(calloc(problems->count, sizeof(struct problem *)));
    for (size_t i = 0; i < problems->count; i++) sorted[i] = &problems->items[i];
    qsort(sorted, problems->count, sizeof(struct problem *), compare_problems);
    SCOPED_TEXT all = {0};
    for (size_t i = 0; i < problems->count; i++) text_printf(&all, "%s%s", i ? "\n" : "", sorted[i]->text);
    if (problems->left_out) text_printf(&all, "\n... and %zu more", problems->left_out);
    status s = status_new(code, "%s", text_string(&all));
    free(sorted);
    return s;
}

void problems_free(struct problems *problems) {
    for (size_t i = 0; i < problems->count; i++) free(problems->items[i].text);
    free(problems->items);
    *problems = (struct problems){0};
}

/* ---- a text as a tree ---- */

/* Builds a tree from libyaml's events. libyaml accepts far more than a config needs, and its time is quadratic in
 * nesting and in consecutive blanks. So the bytes are checked before libyaml reads them, and parsing stops at the first
 * level or value above the limit. After an error that leaves the tree complete (a duplicate key) parsing continues. */

struct anchor {
    const char *name;
    struct node *node;
};

struct reader {
    yaml_parser_t yaml;
    const char *bytes; /* (size) the whole text */
    size_t size;
    size_t quote_line, quote_column, quote_end; /* the last quoted text of several lines; 0: none */
    struct place place;                         /* the file; when is_one_place, the place of every node */
    bool is_one_place;
    struct arena *arena;
    struct problems *problems;
    int depth;
    size_t nodes;
    struct anchor *anchors; /* (anchor_count) the nodes that have one, complete ones only */
    size_t anchor_count;
    bool is_incomplete; /* a node was rejected, so the tree must not be used */
    bool is_finished;   /* parsing cannot continue */
};

/* ---- a text as a tree: before libyaml ---- */

static struct place place_at(const struct reader *reader, size_t line, size_t column) {
    if (reader->is_one_place) return reader->place;
    return (struct place){reader->place.file, (int)line, (int)column};
}

/* The line breaks of YAML 1.1, which libyaml follows. */
static bool is_break(unsigned code) {
    return code == '\n' || code == '\r' || code == 0x85 || code == 0x2028 || code == 0x2029;
}

/* The characters that libyaml accepts. */
static bool is_printable(unsigned code) {
    return code == '\t' || is_break(code) || (code >= 0x20 && code < 0x7f) || (code >= 0xa0 && code < 0xfeff) ||
           (code > 0xfeff && code < 0xfffe) || code > 0xffff;
}

/* The error of the character [code] after [blanks] blank ones; NULL: valid. */
static const char *character_error(unsigned code, size_t column, size_t blanks) {
    if (code == 0) return "a NUL character; a config is plain text";
    if (!is_printable(code)) return "a control character; a config is plain text";
    if (code == '%' && column == 1) return "a YAML directive ('%'), which is not accepted; remove the line";
    if (blanks > DOCUMENT_MAX_BLANKS) return "more than 1024 spaces or empty lines in a row";
    return NULL;
}

/* Reports the first invalid character. */
static bool check_characters(const struct reader *reader, const char *bytes, size_t size) {
    size_t line = 1, column = 1;
    size_t blanks = 0;
    for (size_t i = 0, length; i < size; i += length) {
        unsigned code = 0;
        length = utf8_decode(bytes + i, size - i, &code);
        blanks = code == ' ' || code == '\t' || is_break(code) ? blanks + 1 : 0;
        const char *error =
            length == 0 ? "not valid UTF-8; save the file as UTF-8" : character_error(code, column, blanks);
        if (error) {
            problems_add(reader->problems, place_at(reader, line, column), NULL, "%s", error);
            return false;
        }
        bool is_first_of_two = code == '\r' && i + 1 < size && bytes[i + 1] == '\n';
        bool is_new_line = is_break(code) && !is_first_of_two;
        line += is_new_line;
        column = is_new_line ? 1 : column + 1;
    }
    return true;
}

/* ---- a text as a tree: libyaml's errors ---- */

static const struct {
    const char *problem, *sentence;
} yaml_sentences[] = {
    {"mapping values are not allowed in this context",
     "a ':' is not allowed here; check the indentation, or put a text that contains ': ' in quotes"},
    {"could not find expected ':'", "a ':' is missing after this key"},
    {"did not find expected key", "expected a key here; check the indentation and the quotes of the lines above"},
    {"did not find expected node content", "expected a value here"},
    {"did not find expected '-' indicator", "expected '- ' here; check the indentation of this list"},
    {"did not find expected ',' or ']'", "expected ',' or ']' here; a '[' is not closed"},
    {"did not find expected ',' or '}'", "expected ',' or '}' here; a '{' is not closed"},
    {"found unexpected end of stream", "the quotes of a text are not closed"},
    {"block sequence entries are not allowed in this context",
     "a list cannot start here; put '- ' on a line of its own"},
    {"mapping keys are not allowed in this context",
     "a '?' is not allowed here; put a text that contains it in quotes"},
    {"did not find expected alphabetic or numeric character",
     "a text that starts with '*' or '&' must be in quotes, as the pattern '*.csv'"},
    {"did not find expected <document start>", "text after the end of the document"},
    {"found unknown escape character", "an unknown escape; in \"...\" write \\\\ for a backslash, or use '...'"},
};

/* Line [number] (from 1), which may be empty; *length 0 past the end. */
static const char *line_at(const struct reader *reader, size_t number, size_t *length) {
    const char *line = reader->bytes, *end = reader->bytes + reader->size;
    for (; number > 1 && line < end; number--) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        line = next ? next + 1 : end;
    }
    const char *stop = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
    *length = (size_t)((stop ? stop : end) - line);
    return line;
}

/* The column of a key whose ':' has no space after it ("  path:x"); 0 when the line has none. */
static size_t column_of_missing_space(const char *line, size_t length, size_t *word) {
    size_t start = 0;
    while (start < length && (line[start] == ' ' || line[start] == '-')) start++;
    size_t end = start;
    while (end < length && (isalnum((unsigned char)line[end]) || line[end] == '_')) end++;
    bool is_missing = end > start && end + 1 < length && line[end] == ':' && !strchr(" \r/", line[end + 1]);
    *word = end - start;
    return is_missing ? start + 1 : 0;
}

/* libyaml reports "path:x" only in the line below, since it may be the start of a longer text. */
static bool add_missing_space(struct reader *reader) {
    size_t last = reader->yaml.problem_mark.line + 1;
    for (size_t line = last; line > 0 && line + 2 >= last; line--) {
        size_t length, word;
        const char *text = line_at(reader, line, &length);
        size_t column = column_of_missing_space(text, length, &word);
        if (column == 0) continue;
        problems_add(reader->problems, place_at(reader, line, column), NULL,
                     "a space is missing after the ':' of '%.*s:'", (int)(word < 60 ? word : 60), text + column - 1);
        return true;
    }
    return false;
}

/* A quoted text that is not closed continues to the next quotes or to the end of the file. */
static bool add_open_quotes(struct reader *reader, const char *problem) {
    const yaml_parser_t *yaml = &reader->yaml;
    bool is_at_end = strcmp(problem, "found unexpected end of stream") == 0;
    if (is_at_end) {
        problems_add(reader->problems, place_at(reader, yaml->context_mark.line + 1, yaml->context_mark.column + 1),
                     NULL, "the quotes that open here are not closed");
        return true;
    }
    if (reader->quote_line == 0 || reader->quote_end != yaml->problem_mark.line + 1) return false;
    problems_add(reader->problems, place_at(reader, reader->quote_line, reader->quote_column), NULL,
                 "the quotes that open here are closed in line %zu only; close them in this line", reader->quote_end);
    return true;
}

/* A value that starts with '{', '[' or a quote ends with its counterpart: "{a,b}.csv" is a mapping and more text. */
static bool add_text_after(struct reader *reader, const char *problem) {
    const yaml_mark_t *mark = &reader->yaml.problem_mark;
    size_t length, at = 0;
    const char *line = line_at(reader, mark->line + 1, &length);
    if (strcmp(problem, "did not find expected key") != 0 &&
        strcmp(problem, "did not find expected <document start>") != 0)
        return false;
    for (size_t i = 0; i + 1 < mark->column && at < length; i++) {
        uint32_t code;
        at += utf8_decode(line + at, length - at, &code);
    }
    if (mark->column == 0 || at >= length || !strchr("]}\"'", line[at])) return false;
    problems_add(reader->problems, place_at(reader, mark->line + 1, mark->column + 1), NULL,
                 "there is text after the %c that ends this value; put the whole value in quotes", line[at]);
    return true;
}

static void add_yaml_problem(struct reader *reader) {
    const yaml_parser_t *yaml = &reader->yaml;
    if (!yaml->problem) status_exit_without_memory();
    const char *problem = yaml->problem;
    struct place place = place_at(reader, yaml->problem_mark.line + 1, yaml->problem_mark.column + 1);
    bool is_colon = strcmp(problem, "mapping values are not allowed in this context") == 0 ||
                    strcmp(problem, "could not find expected ':'") == 0;
    if (!reader->is_one_place && add_open_quotes(reader, problem)) return;
    if (!reader->is_one_place && is_colon && add_missing_space(reader)) return;
    if (add_text_after(reader, problem)) return;
    if (strcmp(problem, "found character that cannot start any token") == 0) {
        int c = yaml->buffer.pointer < yaml->buffer.last ? *yaml->buffer.pointer : 0;
        if (c == '\t')
            problems_add(reader->problems, place, NULL, "a tab; YAML is indented with spaces only");
        else
            problems_add(reader->problems, place, NULL, "a value cannot start with '%c'; put it in quotes", c);
        return;
    }
    for (size_t i = 0; i < sizeof yaml_sentences / sizeof *yaml_sentences; i++) {
        if (strcmp(problem, yaml_sentences[i].problem) == 0) {
            problems_add(reader->problems, place, NULL, "%s", yaml_sentences[i].sentence);
            return;
        }
    }
    problems_add(reader->problems, place, NULL, "%s%s%s", problem, yaml->context ? " " : "",
                 yaml->context ? yaml->context : "");
}

/* ---- a text as a tree: events ---- */

static struct place place_of(const struct reader *reader, const yaml_event_t *event) {
    return place_at(reader, event->start_mark.line + 1, event->start_mark.column + 1);
}

static void store_quotes(struct reader *reader, const yaml_event_t *event) {
    yaml_scalar_style_t style = event->data.scalar.style;
    bool is_quoted = style == YAML_SINGLE_QUOTED_SCALAR_STYLE || style == YAML_DOUBLE_QUOTED_SCALAR_STYLE;
    if (!is_quoted || event->start_mark.line == event->end_mark.line) return;
    reader->quote_line = event->start_mark.line + 1;
    reader->quote_column = event->start_mark.column + 1;
    reader->quote_end = event->end_mark.line + 1;
}

/* False when there is no next event; the error is reported. */
static bool next_event(struct reader *reader, yaml_event_t *event) {
    if (!reader->is_finished && yaml_parser_parse(&reader->yaml, event)) {
        if (event->type == YAML_SCALAR_EVENT) store_quotes(reader, event);
        return true;
    }
    if (!reader->is_finished) add_yaml_problem(reader);
    reader->is_finished = true;
    return false;
}

static void reject(struct reader *reader, const yaml_event_t *event, const char *sentence) {
    problems_add(reader->problems, place_of(reader, event), NULL, "%s", sentence);
    reader->is_incomplete = true;
}

static const char *tag_of(const yaml_event_t *event) {
    return (const char *)(event->type == YAML_SCALAR_EVENT           ? event->data.scalar.tag
                          : event->type == YAML_SEQUENCE_START_EVENT ? event->data.sequence_start.tag
                          : event->type == YAML_MAPPING_START_EVENT  ? event->data.mapping_start.tag
                                                                     : NULL);
}

static const char *anchor_of(const yaml_event_t *event) {
    return (const char *)(event->type == YAML_SCALAR_EVENT           ? event->data.scalar.anchor
                          : event->type == YAML_SEQUENCE_START_EVENT ? event->data.sequence_start.anchor
                          : event->type == YAML_MAPPING_START_EVENT  ? event->data.mapping_start.anchor
                                                                     : NULL);
}

/* Counts the node; reports a limit that it exceeds, or a feature of YAML that is not accepted. False: a limit, after
 * which parsing ends. */
static bool check_node(struct reader *reader, const yaml_event_t *event) {
    bool is_nested = event->type == YAML_SEQUENCE_START_EVENT || event->type == YAML_MAPPING_START_EVENT;
    if (is_nested && reader->depth >= DOCUMENT_MAX_DEPTH) {
        problems_add(reader->problems, place_of(reader, event), NULL, "nested deeper than %d levels",
                     DOCUMENT_MAX_DEPTH);
        reader->is_finished = true;
    } else if (++reader->nodes > DOCUMENT_MAX_NODES) {
        problems_add(reader->problems, place_of(reader, event), NULL, "more than %d keys and values",
                     DOCUMENT_MAX_NODES);
        reader->is_finished = true;
    } else if (event->type == YAML_ALIAS_EVENT && reader->is_one_place) {
        reject(reader, event, "an alias ('*'), which is not accepted; write the value out");
    } else if (tag_of(event)) {
        reject(reader, event, "a tag ('!'), which is not accepted; put a text that starts with '!' in quotes");
    } else if (anchor_of(event) && reader->is_one_place) {
        problems_add(reader->problems, place_of(reader, event), NULL,
                     "an anchor ('&'), which is not accepted; put a text that starts with '&' in quotes");
    }
    return !reader->is_finished;
}

/* ---- a text as a tree: anchors, aliases and merge keys ---- */

static void *reallocate(void *block, size_t count, size_t size) {
    block = status_need(realloc(block, count * size));
    return block;
}

/* The name of a node's anchor, in the arena; NULL: it has none. */
static const char *anchor_name(const struct reader *reader, const yaml_event_t *event) {
    const char *name = reader->is_one_place ? NULL : anchor_of(event);
    return name ? arena_copy(reader->arena, name) : NULL;
}

/* The complete [node] has the anchor [name]; a later one of the same name replaces it from there on. */
static void add_anchor(struct reader *reader, const char *name, struct node *node) {
    if (!name) return;
    if (reader->anchor_count == DOCUMENT_MAX_ANCHORS) {
        problems_add(reader->problems, node->place, NULL, "more than %d anchors", DOCUMENT_MAX_ANCHORS);
        reader->is_finished = true;
        return;
    }
    reader->anchors = reallocate(reader->anchors, reader->anchor_count + 1, sizeof *reader->anchors);
    reader->anchors[reader->anchor_count++] = (struct anchor){name, node};
}

/* Levels of the tree, and its nodes in *count. */
static int measure(const struct node *node, size_t *count) {
    int depth = 0;
    *count += 1;
    for (size_t i = 0; i < node->count; i++) {
        int below = measure(node->items[i], count);
        depth = below > depth ? below : depth;
    }
    return depth + (node->kind != NODE_SCALAR);
}

static struct node *copy_node(const struct node *node, struct arena *arena);

/* A copy of the value that the alias of [event] names; NULL (reported): there is none, or it is too large. */
static struct node *read_alias(struct reader *reader, const yaml_event_t *event) {
    const char *name = (const char *)event->data.alias.anchor;
    size_t i = reader->anchor_count;
    while (i > 0 && strcmp(reader->anchors[i - 1].name, name) != 0) i--;
    if (i == 0) {
        problems_add(reader->problems, place_of(reader, event), NULL,
                     "there is no value with the anchor '&%s' above; put a text that starts with '*' in quotes",
                     short_text(name).s);
        reader->is_incomplete = true;
        return NULL;
    }
    if (reader->depth + measure(reader->anchors[i - 1].node, &reader->nodes) > DOCUMENT_MAX_DEPTH) {
        problems_add(reader->problems, place_of(reader, event), NULL, "nested deeper than %d levels",
                     DOCUMENT_MAX_DEPTH);
        reader->is_finished = true;
    } else if (reader->nodes > DOCUMENT_MAX_NODES) {
        problems_add(reader->problems, place_of(reader, event), NULL, "more than %d keys and values",
                     DOCUMENT_MAX_NODES);
        reader->is_finished = true;
    }
    return reader->is_finished ? NULL : copy_node(reader->anchors[i - 1].node, reader->arena);
}

static bool is_start(const yaml_event_t *event) {
    return event->type == YAML_SEQUENCE_START_EVENT || event->type == YAML_MAPPING_START_EVENT;
}

/* Skips the node that starts with [event] and deletes the event. */
static void skip_node(struct reader *reader, yaml_event_t *event) {
    int open = 0;
    for (;;) {
        bool is_end = event->type == YAML_SEQUENCE_END_EVENT || event->type == YAML_MAPPING_END_EVENT;
        if (is_start(event)) {
            open++;
            if (reader->depth + open > DOCUMENT_MAX_DEPTH) {
                problems_add(reader->problems, place_of(reader, event), NULL, "nested deeper than %d levels",
                             DOCUMENT_MAX_DEPTH);
                reader->is_finished = true;
            }
        }
        if (is_end) open--;
        yaml_event_delete(event);
        if (open == 0 || !next_event(reader, event)) return;
    }
}

/* ---- a text as a tree: tree ---- */

/* The children of a collection while it is parsed. */
struct children {
    struct node **items;
    const char **keys;
    struct place *key_places;
    size_t count, capacity;
};

static void children_add(struct children *c, struct node *item, const char *key, struct place key_place) {
    if (c->count == c->capacity) {
        c->capacity = c->capacity ? c->capacity * 2 : 8;
        c->items = reallocate(c->items, c->capacity, sizeof(struct node *));
        c->keys = reallocate(c->keys, c->capacity, sizeof *c->keys);
        c->key_places = reallocate(c->key_places, c->capacity, sizeof *c->key_places);
    }
    c->items[c->count] = item;
    c->keys[c->count] = key;
    c->key_places[c->count++] = key_place;
}

static void children_free(struct children *c) {
    free(c->items);
    free(c->keys);
    free(c->key_places);
}

static int compare_keys(const void *left, const void *right, void *context) {
    const struct children *c = context;
    size_t a = *(const size_t *)left, b = *(const size_t *)right;
    int order = strcmp(c->keys[a], c->keys[b]);
    return order ? order : (a > b) - (a < b);
}

/* Keeps the first of equal keys; reports the others among the first [own] keys, which are not from merge keys. */
static void drop_duplicates(struct reader *reader, struct children *c, size_t own) {
    if (c->count < 2) return;
    size_t *order = reallocate(NULL, c->count, sizeof *order);
    for (size_t i = 0; i < c->count; i++) order[i] = i;
    qsort_r(order, c->count, sizeof *order, compare_keys, c);
    for (size_t i = 1, first = order[0]; i < c->count; i++) {
        if (strcmp(c->keys[order[i]], c->keys[first]) != 0) {
            first = order[i];
            continue;
        }
        struct place earlier = c->key_places[first];
        if (order[i] >= own)
            ; /* the mapping has its own */
        else if (!reader->is_one_place)
            problems_add(reader->problems, c->key_places[order[i]], NULL, "duplicate key '%s'; it is also in line %d",
                         short_text(c->keys[first]).s, earlier.line);
        else
            problems_add(reader->problems, earlier, NULL, "duplicate key '%s'", short_text(c->keys[first]).s);
        c->items[order[i]] = NULL;
    }
    free(order);
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++) {
        if (!c->items[i]) continue;
        c->items[kept] = c->items[i];
        c->keys[kept] = c->keys[i];
        c->key_places[kept++] = c->key_places[i];
    }
    c->count = kept;
}

static void *arena_array(struct arena *arena, const void *from, size_t count, size_t size) {
    void *to = arena_alloc(arena, count * size);
    if (count > 0) memcpy(to, from, count * size);
    return to;
}

static void children_move(struct reader *reader, struct children *c, struct node *node) {
    node->count = c->count;
    node->items = arena_array(reader->arena, c->items, c->count, sizeof(struct node *));
    if (node->kind == NODE_MAPPING) {
        node->keys = arena_array(reader->arena, c->keys, c->count, sizeof *c->keys);
        node->key_places = arena_array(reader->arena, c->key_places, c->count, sizeof *c->key_places);
    }
}

static const char *scalar_text(struct reader *reader, const yaml_event_t *event) {
    size_t length = event->data.scalar.length;
    const char *value = (const char *)event->data.scalar.value;
    if (memchr(value, 0, length)) reject(reader, event, "a text with a NUL character");
    char *text = arena_alloc(reader->arena, length + 1);
    memcpy(text, value, length);
    return text;
}

/* The key of [event], which is deleted; NULL (reported) when it is not a valid key. */
static const char *read_key(struct reader *reader, yaml_event_t *event) {
    const char *key = NULL;
    if (is_start(event)) {
        reject(reader, event,
               "a key must be a text, not a list or mapping; put a text that starts with '[' or '{' in quotes");
        skip_node(reader, event);
        return NULL;
    }
    if (check_node(reader, event) && event->type == YAML_SCALAR_EVENT) {
        bool is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        key = scalar_text(reader, event);
        if (anchor_of(event) && !reader->is_one_place) {
            reject(reader, event, "an anchor ('&') of a key, which is not accepted; give it to the value");
        } else if (is_plain && strcmp(key, "<<") == 0 && reader->is_one_place) {
            reject(reader, event, "a merge key ('<<'), which is not accepted; write the keys out");
            key = NULL;
        } else if (!*key) {
            reject(reader, event, "a key is empty");
            key = NULL;
        }
    }
    if (event->type == YAML_ALIAS_EVENT && !reader->is_one_place)
        reject(reader, event, "an alias ('*') as a key, which is not accepted; write the key out");
    yaml_event_delete(event);
    return key;
}

/* Whether [key] of the file is the merge key. */
static bool is_merge_key(const struct reader *reader, const char *key) {
    return key && !reader->is_one_place && strcmp(key, "<<") == 0;
}

/* Adds the keys of the mappings below merge keys, [merges]. */
static void add_merged_keys(struct reader *reader, struct children *c, const struct children *merges) {
    for (size_t m = 0; m < merges->count; m++) {
        struct node *value = merges->items[m];
        bool is_list = value->kind == NODE_SEQUENCE;
        for (size_t i = 0; i < (is_list ? value->count : 1); i++) {
            const struct node *from = is_list ? value->items[i] : value;
            if (from->kind != NODE_MAPPING) {
                problems_add(reader->problems, from->place, NULL,
                             "'<<' takes a mapping, or a list of mappings: <<: *name");
                reader->is_incomplete = true;
            }
            for (size_t k = 0; from->kind == NODE_MAPPING && k < from->count; k++)
                children_add(c, from->items[k], from->keys[k], from->key_places[k]);
        }
    }
}

static struct node *read_node(struct reader *reader, yaml_event_t *event);

/* [merges]: the values of merge keys. */
static void read_children(struct reader *reader, struct node *node, struct children *c, struct children *merges) {
    yaml_event_t event;
    while (next_event(reader, &event)) {
        if (event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            return;
        }
        const char *key = NULL;
        struct place key_place = place_of(reader, &event);
        if (node->kind == NODE_MAPPING) {
            key = read_key(reader, &event);
            if (!next_event(reader, &event)) return;
            if (!key) {
                skip_node(reader, &event);
                continue;
            }
        }
        struct node *item = read_node(reader, &event);
        if (item) children_add(is_merge_key(reader, key) ? merges : c, item, key, key_place);
    }
}

/* Parses the node that starts with [event], which is deleted. NULL when it was rejected or parsing is finished. */
static struct node *read_node(struct reader *reader, yaml_event_t *event) {
    if (!check_node(reader, event) || event->type == YAML_ALIAS_EVENT) {
        bool is_alias = !reader->is_finished && event->type == YAML_ALIAS_EVENT && !reader->is_one_place;
        struct node *copy = is_alias ? read_alias(reader, event) : NULL;
        yaml_event_delete(event);
        return copy;
    }
    struct node *node = arena_alloc(reader->arena, sizeof *node);
    const char *anchor = anchor_name(reader, event);
    node->place = place_of(reader, event);
    if (event->type == YAML_SCALAR_EVENT) {
        node->kind = NODE_SCALAR;
        node->text = scalar_text(reader, event);
        node->is_quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        add_anchor(reader, anchor, node);
        yaml_event_delete(event);
        return node;
    }
    node->kind = event->type == YAML_SEQUENCE_START_EVENT ? NODE_SEQUENCE : NODE_MAPPING;
    yaml_event_delete(event);

    struct children children = {0}, merges = {0};
    reader->depth++;
    read_children(reader, node, &children, &merges);
    reader->depth--;
    if (!reader->is_finished) {
        size_t own = children.count;
        add_merged_keys(reader, &children, &merges);
        if (node->kind == NODE_MAPPING) drop_duplicates(reader, &children, own);
        children_move(reader, &children, node);
        add_anchor(reader, anchor, node);
    }
    children_free(&children);
    children_free(&merges);
    return reader->is_finished ? NULL : node;
}

static struct node *null_node(struct reader *reader) {
    struct node *node = arena_alloc(reader->arena, sizeof *node);
    node->kind = NODE_SCALAR;
    node->place = place_at(reader, 1, 1);
    node->text = "";
    return node;
}

/* Events: stream start, [document start, node, document end], stream end. */
static struct node *read_stream(struct reader *reader) {
    struct node *root = NULL;
    yaml_event_t event;
    while (next_event(reader, &event)) {
        yaml_event_type_t type = event.type;
        if (type == YAML_STREAM_START_EVENT || type == YAML_DOCUMENT_END_EVENT) {
            yaml_event_delete(&event);
        } else if (type == YAML_STREAM_END_EVENT) {
            yaml_event_delete(&event);
            return root || reader->is_incomplete ? root : null_node(reader);
        } else if (type == YAML_DOCUMENT_START_EVENT) {
            if (root) {
                reject(reader, &event, "a second document ('---'); a config is one document");
                reader->is_finished = true;
            }
            yaml_event_delete(&event);
        } else {
            root = read_node(reader, &event);
        }
    }
    return NULL;
}

/* Letters, digits and '_', '.', '+', '-' inside: a scalar in YAML, for which libyaml is not needed. */
static bool is_word(const char *bytes, size_t size) {
    if (size == 0 || !isalnum((unsigned char)bytes[0])) return false;
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)bytes[i]) && (bytes[i] == 0 || !strchr("_.+-", bytes[i]))) return false;
    return true;
}

static struct node *word_node(const char *bytes, size_t size, struct place place, struct arena *arena) {
    struct node *node = arena_alloc(arena, sizeof *node);
    char *text = arena_alloc(arena, size + 1);
    memcpy(text, bytes, size);
    *node = (struct node){.kind = NODE_SCALAR, .place = place, .text = text};
    return node;
}

#define MAX_WORDS 64

/* "[0.9, 0.999]" or "{metric: val_loss, mode: min}", of words alone; NULL: something else, which libyaml reads. */
static struct node *words_node(const char *bytes, size_t size, struct place place, struct arena *arena) {
    bool is_mapping = size >= 3 && bytes[0] == '{' && bytes[size - 1] == '}';
    if (!is_mapping && !(size >= 3 && bytes[0] == '[' && bytes[size - 1] == ']')) return NULL;
    const char *at = bytes + 1, *end = bytes + size - 1;
    size_t max = 1;
    for (const char *c = at; c < end; c++) max += *c == ',';
    if (max > MAX_WORDS) return NULL;
    struct node *node = arena_alloc(arena, sizeof *node);
    *node = (struct node){.kind = is_mapping ? NODE_MAPPING : NODE_SEQUENCE, .place = place};
    node->items = arena_alloc(arena, max * sizeof *node->items);
    if (is_mapping) node->keys = arena_alloc(arena, max * sizeof *node->keys);
    if (is_mapping) node->key_places = arena_alloc(arena, max * sizeof *node->key_places);
    for (; node->count < max; at++, node->count++) {
        const char *last = memchr(at, ',', (size_t)(end - at));
        if (!last) last = end;
        if (node->count > 0 && *at++ != ' ') return NULL;
        if (is_mapping) {
            const char *colon = memchr(at, ':', (size_t)(last - at));
            if (!colon || colon + 2 > last || colon[1] != ' ' || !is_word(at, (size_t)(colon - at))) return NULL;
            const char *key = word_node(at, (size_t)(colon - at), place, arena)->text;
            if (node_get(node, key) || strcmp(key, "null") == 0) return NULL;
            node->keys[node->count] = key;
            node->key_places[node->count] = place;
            at = colon + 2;
        }
        if (last < at || !is_word(at, (size_t)(last - at))) return NULL;
        node->items[node->count] = word_node(at, (size_t)(last - at), place, arena);
        at = last;
    }
    return node;
}

/* Parses [bytes] to a tree in [arena]. Every node gets its line and column in place.file or, when [is_one_place],
 * [place] itself. [depth]: number of levels above the tree. NULL when the text cannot be parsed or the tree would be
 * incomplete; an empty text gives a null scalar. */
static struct node *document_parse_tree(const char *bytes, size_t size, struct place place, bool is_one_place,
                                        int depth, struct arena *arena, struct problems *problems) {
    struct reader reader = {
        .place = place, .is_one_place = is_one_place, .arena = arena, .problems = problems, .depth = depth};
    if (size > DOCUMENT_MAX_BYTES) {
        problems_add(problems, (struct place){place.file, 0, 0}, NULL, "larger than 1 MiB, the maximum for a config");
        return NULL;
    }
    if (size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) { /* the byte order mark of Windows editors */
        bytes += 3;
        size -= 3;
    }
    if (is_one_place && is_word(bytes, size)) return word_node(bytes, size, place, arena);
    struct node *words = is_one_place && depth < DOCUMENT_MAX_DEPTH ? words_node(bytes, size, place, arena) : NULL;
    if (words) return words;
    if (!check_characters(&reader, bytes, size)) return NULL;
    reader.bytes = bytes;
    reader.size = size;
    if (!yaml_parser_initialize(&reader.yaml)) status_exit_without_memory();
    yaml_parser_set_encoding(&reader.yaml, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.yaml, (const unsigned char *)bytes, size);
    struct node *root = read_stream(&reader);
    yaml_parser_delete(&reader.yaml);
    free(reader.anchors);
    return reader.is_finished || reader.is_incomplete ? NULL : root;
}

/* ---- documents ---- */

static struct node *empty_mapping(struct arena *arena, struct place place) {
    struct node *node = arena_alloc(arena, sizeof *node);
    node->kind = NODE_MAPPING;
    node->place = place;
    return node;
}

/* The root of a file, a mapping; NULL: it cannot be parsed. */
static struct node *parse_root(const char *name, const char *bytes, size_t size, struct arena *arena,
                               struct problems *problems) {
    struct place place = {arena_copy(arena, name), 1, 1};
    struct node *root = document_parse_tree(bytes, size, place, false, 0, arena, problems);
    if (root && node_is_null(root)) root = empty_mapping(arena, place);
    if (!root || root->kind == NODE_MAPPING) return root;
    problems_add(problems, root->place, NULL,
                 "expected a mapping of sections (such as `sampler: {batch_size: 32}`), got %s",
                 root->kind == NODE_SEQUENCE ? "a list" : "a single value");
    return NULL;
}

status document_parse(const char *name, const char *bytes, size_t size, struct problems *problems,
                      struct document **out) {
    *out = NULL;
    struct arena *arena = arena_create();
    struct node *root = parse_root(name, bytes, size, arena, problems);
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
    SCOPED_ARENA arena = arena_create();
    const char *name = error == EISDIR || error == ENOENT ? other_name(path, error, arena) : "";
    return status_usage("cannot read config '%s': %s%s%s%s", path, strerror(error), *name ? "; did you mean '" : "",
                        name, *name ? "'?" : "");
}

#define HDF5_SIGNATURE "\x89HDF\r\n\x1a\n"

static bool is_hdf5(const char *bytes, size_t size) {
    return size >= sizeof HDF5_SIGNATURE - 1 && memcmp(bytes, HDF5_SIGNATURE, sizeof HDF5_SIGNATURE - 1) == 0;
}

/* *bytes (size): of the file, malloc'ed. */
static status read_file(const char *path, char **bytes_, size_t *size_) {
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
        s = status_usage(
            "%s: an HDF5 file, not a config; the config comes first, a checkpoint is given by --checkpoint "
            "FILE, and data by dataset.path=FILE",
            path);
    if (s) free(bytes);
    *bytes_ = s ? NULL : bytes;
    *size_ = size;
    return s;
}

status document_read(const char *path, struct problems *problems, struct document **out) {
    char *bytes;
    size_t size;
    *out = NULL;
    TRY(read_file(path, &bytes, &size));
    status s = document_parse(path, bytes, size, problems, out);
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

/* ---- base files ---- */

/* Reading of a file with those that it is based on. */
struct merger {
    struct arena *arena;
    struct problems *problems;
    const struct document_alternatives *alternatives; /* (alternative_count) */
    size_t alternative_count;
    const char
        *open[DOCUMENT_MAX_BASES + 1]; /* (depth) the files that are being read, each the base of the one before */
    int depth;
    size_t files;
};

static bool has_value(const struct node *mapping, const char *key) {
    const struct node *value = node_get(mapping, key);
    char *end;
    if (!value || node_is_null(value)) return false;
    return value->kind != NODE_SCALAR || strtod(value->text, &end) != 0 || end == value->text || *end != 0;
}

bool document_replaces(const struct document_alternatives *alternatives, size_t k, const struct node *before) {
    const char *const *unless = alternatives->unless;
    return !unless[0] || (k == 1 && !has_value(before, unless[0]) && !has_value(before, unless[1]));
}

/* The name of the key [at] of the mapping at the dotted [path]; NULL: it is one of another mapping. */
static const char *name_in(const char *path, const char *at) {
    size_t length = strlen(path);
    if (strncmp(at, path, length) != 0 || (length && at[length] != '.')) return NULL;
    const char *name = at + length + (length > 0);
    return strchr(name, '.') ? NULL : name;
}

/* Whether [own] has a key that replaces [key] of [base], both mappings at [path]. */
static bool is_replaced(const struct merger *m, const char *path, const char *key, const struct node *base,
                        const struct node *own) {
    for (size_t i = 0; i < 2 * m->alternative_count; i++) {
        const struct document_alternatives *both = &m->alternatives[i / 2];
        const char *name = name_in(path, both->keys[i % 2]), *other = name_in(path, both->keys[1 - i % 2]);
        if (!name || !other || strcmp(name, key) != 0 || !node_get(own, other)) continue;
        if (document_replaces(both, i % 2, base)) return true;
    }
    return false;
}

static bool is_type_name(const struct node *node);

/* [base] as a mapping that [own], a mapping of the same key, extends: its type name is {type: name}. NULL: it is
 * replaced as a whole: another kind of value, or another type, whose keys do not go with those of [own]. */
static struct node *extended(struct merger *m, struct node *base, const struct node *own) {
    if (node_get(own, "expression") && !node_get(own, "type")) return NULL; /* loss: {expression: ...} is a type */
    const struct node *type = node_get(own, "type");
    if (base->kind == NODE_SCALAR && !type && !base->is_quoted && is_type_name(base) && !node_is_null(base)) {
        struct node *mapping = empty_mapping(m->arena, base->place);
        const char *key = "type";
        mapping->count = 1;
        mapping->items = arena_array(m->arena, &base, 1, sizeof base);
        mapping->keys = arena_array(m->arena, &key, 1, sizeof key);
        mapping->key_places = arena_array(m->arena, &base->place, 1, sizeof base->place);
        return mapping;
    }
    if (base->kind != NODE_MAPPING) return NULL;
    const struct node *before = node_get(base, "type");
    bool is_other = type && before && type->kind == NODE_SCALAR && before->kind == NODE_SCALAR &&
                    strcmp(type->text, before->text) != 0;
    return is_other ? NULL : base;
}

/* Whether [own], null, removes the value [base] of a base: a section, a list, or a value of the top level such as
 * `schedule: cosine`, which then has its default. Whether it removes another single value depends on the schema. */
static bool is_removed(const struct node *base, struct node *own, const char *path) {
    own->is_over_base = node_is_null(own);
    return own->is_over_base && (base->kind != NODE_SCALAR || !*path);
}

/* [base] with the keys of [own], both mappings at the dotted [path]; lists and single values are replaced. */
static struct node *merge(struct merger *m, const struct node *base, const struct node *own, const char *path) {
    struct children c = {0};
    struct node *merged = empty_mapping(m->arena, own->place);
    for (size_t i = 0; i < base->count; i++) {
        const char *key = base->keys[i];
        size_t k = 0;
        while (k < own->count && strcmp(own->keys[k], key) != 0) k++;
        struct node *value = base->items[i];
        if (k < own->count) {
            struct node *replacement = own->items[k];
            if (is_removed(value, replacement, path)) continue;
            struct node *below = replacement->kind == NODE_MAPPING ? extended(m, value, replacement) : NULL;
            const char *at = *path ? arena_printf(m->arena, "%s.%s", path, key) : key;
            value = below ? merge(m, below, replacement, at) : replacement;
        } else if (is_replaced(m, path, key, base, own)) {
            continue;
        }
        children_add(&c, value, key, k < own->count ? own->key_places[k] : base->key_places[i]);
    }
    for (size_t i = 0; i < own->count; i++)
        if (!node_get(base, own->keys[i])) children_add(&c, own->items[i], own->keys[i], own->key_places[i]);
    children_move(&(struct reader){.arena = m->arena}, &c, merged);
    children_free(&c);
    return merged;
}

/* The mapping without [key]. */
static struct node *without_key(struct arena *arena, const struct node *mapping, const char *key) {
    struct node *copy = arena_alloc(arena, sizeof *copy);
    *copy = *mapping;
    copy->items = arena_array(arena, mapping->items, mapping->count, sizeof *mapping->items);
    copy->keys = arena_array(arena, mapping->keys, mapping->count, sizeof *mapping->keys);
    copy->key_places = arena_array(arena, mapping->key_places, mapping->count, sizeof *mapping->key_places);
    copy->count = 0;
    for (size_t i = 0; i < mapping->count; i++) {
        if (strcmp(mapping->keys[i], key) == 0) continue;
        copy->items[copy->count] = mapping->items[i];
        copy->keys[copy->count] = mapping->keys[i];
        copy->key_places[copy->count++] = mapping->key_places[i];
    }
    return copy;
}

/* A file that another one names, from the folder of that one. In [arena]. */
static const char *beside(struct arena *arena, const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    if (*name == '/' || !slash) return arena_copy(arena, name);
    return arena_printf(arena, "%.*s/%s", (int)(slash - path), path, name);
}

static struct node *read_merged(struct merger *m, const char *path, const char *bytes, size_t size);

/* The base [entry] of the file [path]; NULL (reported): it cannot be used. */
static struct node *read_base(struct merger *m, const char *path, const struct node *entry) {
    struct io_info info, other;
    SCOPED_STRING bytes = NULL;
    size_t size = 0;
    if (entry->kind != NODE_SCALAR || node_is_null(entry) || !*entry->text) {
        problems_add(m->problems, entry->place, "base", "expected the name of a file, or a list of names");
        return NULL;
    }
    const char *name = beside(m->arena, path, entry->text);
    status s = io_stat(name, &info);
    for (int i = 0; !s && info.exists && i < m->depth; i++) {
        s = io_stat(m->open[i], &other);
        if (!s && io_is_same(&info, &other))
            s = status_usage("'%s' is based on itself: it names %s, which is being read", path, name);
    }
    if (!s && ++m->files > DOCUMENT_MAX_BASES) s = status_usage("more than %d files", DOCUMENT_MAX_BASES);
    if (!s) s = read_file(name, &bytes, &size);
    if (s) problems_add(m->problems, entry->place, "base", "%s", status_message(s));
    struct node *root = s ? NULL : read_merged(m, name, bytes, size);
    status_free(s);
    return root;
}

/* The tree of the file [path] with [bytes] (size) on top of its bases, the later one on top of the earlier one. NULL:
 * it cannot be used; what is wrong is reported. */
static struct node *read_merged(struct merger *m, const char *path, const char *bytes, size_t size) {
    struct node *own = parse_root(path, bytes, size, m->arena, m->problems), *all = NULL;
    const struct node *bases = own ? node_get(own, "base") : NULL;
    if (!bases) return own;
    bool is_list = bases->kind == NODE_SEQUENCE, is_whole = true;
    m->open[m->depth++] = path;
    for (size_t i = 0; i < (is_list ? bases->count : 1); i++) {
        struct node *base = read_base(m, path, is_list ? bases->items[i] : bases);
        is_whole = is_whole && base;
        if (base) all = all ? merge(m, all, base, "") : base;
    }
    m->depth--;
    own = without_key(m->arena, own, "base");
    return !is_whole ? NULL : all ? merge(m, all, own, "") : own;
}

status document_read_merged(const char *path, const struct document_alternatives *alternatives, size_t count,
                            struct problems *problems, struct document **out) {
    struct merger m = {.problems = problems, .alternatives = alternatives, .alternative_count = count};
    char *bytes;
    size_t size;
    *out = NULL;
    TRY(read_file(path, &bytes, &size));
    m.arena = arena_create();
    struct node *root = read_merged(&m, path, bytes, size);
    free(bytes);
    if (!root) {
        arena_destroy(m.arena);
        return OK;
    }
    *out = arena_alloc(m.arena, sizeof **out);
    **out = (struct document){.arena = m.arena, .root = root};
    return OK;
}

/* ---- variables ---- */

/* Replacement of ${name} by the value of `variables: {name: ...}`. */
struct substitution {
    struct arena *arena;
    struct problems *problems;
    const struct node *variables; /* a mapping */
    int depth;                    /* variables whose value is being replaced */
    size_t nodes, bytes;          /* that it has made */
    bool *used;                   /* (variables->count) */
};

static bool is_name_character(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The length of a reference at the start of [text], "${name}"; 0: it is none. */
static size_t reference_at(const char *text) {
    size_t length = 2;
    if (text[0] != '$' || text[1] != '{') return 0;
    while (is_name_character(text[length])) length++;
    return length > 2 && text[length] == '}' ? length + 1 : 0;
}

static struct node *substitute(struct substitution *s, struct node *node);

/* Whether values that contain each other make a tree that is larger than a config may be; it is reported once. */
static bool is_too_large(const struct substitution *s) {
    return s->nodes > DOCUMENT_MAX_NODES || s->bytes > DOCUMENT_MAX_BYTES;
}

static void count(struct substitution *s, size_t nodes, size_t bytes, struct place place) {
    bool was_too_large = is_too_large(s);
    s->nodes += nodes;
    s->bytes += bytes;
    if (!was_too_large && is_too_large(s))
        problems_add(s->problems, place, NULL, "with the values of its variables the config is larger than 1 MiB");
}

/* The value of the variable of the reference [text] (length); NULL (reported): it has none. */
static struct node *value_of(struct substitution *s, const char *text, size_t length, struct place place) {
    char *name = arena_printf(s->arena, "%.*s", (int)(length - 3), text + 2);
    const struct node *value = node_get(s->variables, name);
    for (size_t i = 0; value && i < s->variables->count; i++)
        s->used[i] = s->used[i] || s->variables->items[i] == value;
    if (!value) {
        SCOPED_TEXT known = {0};
        for (size_t i = 0; i < s->variables->count; i++)
            text_printf(&known, "%s%s", i ? ", " : "", s->variables->keys[i]);
        problems_add(s->problems, place, NULL, "there is no variable '%s'; variables: has %s", short_text(name).s,
                     known.length ? text_string(&known) : "none");
        return NULL;
    }
    if (s->depth == DOCUMENT_MAX_DEPTH) {
        problems_add(s->problems, place, NULL, "the variable '%s' is its own value, or one of its values is",
                     short_text(name).s);
        return NULL;
    }
    s->depth++;
    struct node *copy = substitute(s, copy_node(value, s->arena));
    s->depth--;
    return copy;
}

/* [node] with the texts of the variables in its text. */
static void substitute_parts(struct substitution *s, struct node *node) {
    SCOPED_TEXT out = {0};
    for (const char *at = node->text; *at;) {
        size_t length = reference_at(at);
        if (at[0] == '$' && reference_at(at + 1)) { /* $${name} is ${name} */
            length = reference_at(at + 1);
            text_add_bytes(&out, at + 1, length);
            at += length + 1;
            continue;
        }
        if (!length) {
            text_add_bytes(&out, at++, 1);
            continue;
        }
        const struct node *value = value_of(s, at, length, node->place);
        if (value && value->kind != NODE_SCALAR)
            problems_add(s->problems, node->place, NULL,
                         "the variable in '%s' is a list or a mapping, which cannot be a part of a text",
                         short_text(node->text).s);
        else if (value)
            text_add(&out, value->text);
        at += length;
    }
    node->text = arena_copy(s->arena, text_string(&out));
    count(s, 0, out.length, node->place);
}

/* The node with variables replaced in it: a text that is one reference becomes its value, of any kind. */
static struct node *substitute(struct substitution *s, struct node *node) {
    if (s->depth) count(s, 1, 0, node->place);
    for (size_t i = 0; i < node->count && !is_too_large(s); i++) node->items[i] = substitute(s, node->items[i]);
    if (node->kind != NODE_SCALAR || !strchr(node->text, '$') || is_too_large(s)) return node;
    if (reference_at(node->text) == strlen(node->text)) {
        struct node *value = value_of(s, node->text, strlen(node->text), node->place);
        return value ? value : node;
    }
    substitute_parts(s, node);
    return node;
}

void document_substitute(struct document *document, struct problems *problems) {
    const struct node *variables = node_get(document->root, "variables");
    struct substitution s = {.arena = document->arena, .problems = problems, .variables = variables};
    if (!variables) return;
    if (variables->kind != NODE_MAPPING) {
        problems_add(problems, variables->place, "variables", "expected a mapping from names to values");
        return;
    }
    s.used = arena_alloc(document->arena, variables->count + 1);
    document->root = substitute(&s, without_key(document->arena, document->root, "variables"));
    for (size_t i = 0; i < variables->count; i++) /* a misspelled one would change nothing */
        if (!s.used[i] && variables->items[i]->place.line == 0)
            problems_add(problems, variables->items[i]->place, NULL, "no value of the config uses the variable '%s'",
                         short_text(variables->keys[i]).s);
}

/* ---- overrides ---- */

/* KEY=VALUE arguments change the tree before schema_bind, so the same rules apply as for the file. */

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

void document_override(struct document *document, const char *assignment, const struct document_paths *paths,
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
