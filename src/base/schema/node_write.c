/* Plain scalars stay plain, so that a number stays a number; all others are strings. */
#include <string.h>

#include "base/schema/schema_internal.h"

#define PLAIN "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-/~"

static void write_scalar(const struct node *node, struct text *out) {
    size_t length = strlen(node->text);
    if (!node->is_quoted && length > 0 && strspn(node->text, PLAIN) == length)
        text_add(out, node->text);
    else if (node_is_null(node))
        text_add(out, "null");
    else
        value_add_string(out, node->text);
}

void node_write(const struct node *node, struct text *out) {
    bool is_mapping = node->kind == NODE_MAPPING;
    if (node->kind == NODE_SCALAR) {
        write_scalar(node, out);
        return;
    }
    text_add(out, is_mapping ? "{" : "[");
    for (size_t i = 0; i < node->count; i++) {
        if (i > 0) text_add(out, ", ");
        if (is_mapping) value_add_string(out, node->keys[i]);
        if (is_mapping) text_add(out, ": ");
        node_write(node->items[i], out);
    }
    text_add(out, is_mapping ? "}" : "]");
}
