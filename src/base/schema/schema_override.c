/* Overrides know from the schema which values of their path are short forms. */
#include <ctype.h>

#include "base/schema/schema_internal.h"

/* The section of a value of [row], which the steps after *at may describe: an index or a name, the type of a layer;
 * NULL: it has none, or its type cannot be seen from the path (an optimizer's). Advances *at to the last of these
 * steps. */
static const struct schema *section_of(const struct schema_row *row, char *const *steps, size_t count, size_t *at) {
    bool is_list = row->type == SCHEMA_SECTION_LIST || row->type == SCHEMA_SECTION_MAP;
    int index;
    if ((is_list || row->type == SCHEMA_VARIANT_LIST) && ++*at >= count) return NULL;
    if (is_list || row->type == SCHEMA_SECTION) return row->section;
    if (row->type < SCHEMA_VARIANT || !row->variants->is_keyed || ++*at >= count) return NULL;
    const struct schema_variant *type = variants_find(row->variants, steps[*at], &index);
    return type ? type->schema : NULL;
}

/* The section at the path [steps] (count); NULL: there is none. *of_names: of the values of the mapping at the path,
 * whose keys are names of the user's; NULL: they are not. */
static const struct schema *section_at(const struct schema *root, char *const *steps, size_t count,
                                       const struct schema **of_names) {
    const struct schema *section = root;
    *of_names = NULL;
    for (size_t i = 0; section && i < count; i++) {
        const struct schema_row *row = schema_row(section, steps[i]);
        if (!row && section->shorthand && isdigit((unsigned char)steps[i][0])) { /* an index of a list that is one */
            if (i == 0) return NULL;
            row = schema_row(section, section->shorthand);
            i--;
        }
        if (row && row->type == SCHEMA_SECTION_MAP && i + 1 == count) *of_names = row->section;
        section = row ? section_of(row, steps, count, &i) : NULL;
    }
    return section;
}

static const char *short_form(const void *root, char *const *steps, size_t count) {
    const struct schema *of_names, *section = section_at(root, steps, count, &of_names);
    return section ? section->shorthand : NULL;
}

static size_t new_key(const void *root, char *const *steps, size_t count, size_t depth) {
    const struct schema *schema = root, *of_names;
    size_t end = depth + 1;
    if (schema->has_path_keys && schema->has_path_keys(steps, depth)) return count - depth;
    section_at(schema, steps, depth, &of_names);
    while (of_names && end < count && !schema_row(of_names, steps[end])) end++;
    return end - depth;
}

void schema_override(const struct schema *root, struct document *document, const char *assignment,
                     struct problems *problems) {
    struct document_paths paths = {short_form, new_key, root};
    document_override_by(document, assignment, &paths, problems);
}
