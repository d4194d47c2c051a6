/* Declarations shared by the files of document and schema. */
#ifndef BASE_DOCUMENT_INTERNAL_H
#define BASE_DOCUMENT_INTERNAL_H

#include "base/document/document.h"
#include "base/utf8.h"

struct document {
    struct arena *arena;
    struct node *root;
};

/* Parses [bytes] to a tree in [arena]. Every node gets its line and column in place.file or, when [is_one_place],
 * [place] itself. [depth]: number of levels above the tree. NULL when the text cannot be parsed or the tree would be
 * incomplete; an empty text gives a null scalar. */
struct node *document_parse_tree(const char *bytes, size_t size, struct place place, bool is_one_place, int depth,
                                 struct arena *arena, struct problems *problems);

/* What the schema of a document says about the path [steps] (count) of an override. */
struct document_paths {
    /* The key of which a scalar or list at the path is the short form (`linear: 16` is {out: 16}); NULL: there is
     * none. */
    const char *(*short_form)(const void *schema, char *const *steps, size_t count);
    /* How many steps from steps[depth] on are one key, which is new in its mapping. */
    size_t (*new_key)(const void *schema, char *const *steps, size_t count, size_t depth);
    const void *schema;
};

/* document_override that also replaces the short forms in its path by mappings. [paths] NULL: as document_override. */
void document_override_by(struct document *document, const char *assignment, const struct document_paths *paths,
                          struct problems *problems);

/* [text] shortened for a message: use short_text(x).s within one expression. */
struct short_text {
    char s[68];
};
struct short_text short_text(const char *text);

#endif
