/* weight_map: rules that give the tensors of another program's file the names and layouts of a model's parameters. */
#pragma once

#include "base/arena.h"
#include "base/schema/schema.h"

/* `model.init_from:` of the config. */
struct weight_source {
    const char *file;           /* NULL: none */
    struct string_list map;     /* the name of a ready map; or all items of [rules] */
    struct string_groups rules; /* pattern: names and operations */
    struct string_list skip;    /* patterns of tensors that are not used */
    bool is_partial;            /* tensors that are not used and parameters without a tensor are no error */
};
extern const struct schema weight_source_schema;

/* Whether names or layouts may differ between file and model. */
bool weight_source_is_mapped(const struct weight_source *source);

enum weight_layout {
    LAYOUT_UNSTATED,
    LAYOUT_AS_IS,      /* as the model's, stated by the rule */
    LAYOUT_TRANSPOSED, /* (in, out) */
    LAYOUT_RESHAPED    /* the same numbers in another shape */
};

struct weight_rule {
    const char *pattern;
    const char **targets; /* (target_count): names of parameters; several: the tensor's rows are divided among them;
                             none: the tensor is not used */
    size_t target_count;
    enum weight_layout layout;
    int part, parts;    /* rows of the parameter: part [part], from 1, of [parts]; 0: the whole */
    int64_t row_to_add; /* of the tensor, added to each row of the parameter; -1: none */
};

struct weight_map {
    const char *prefix; /* removed from the names that begin with it; "" for none */
    struct weight_rule *rules;
    size_t count;
};

/* The rules of a checked source; those of a tensor are the first ones that match. */
void weight_map_create(const struct weight_source *source, struct arena *arena, struct weight_map *out);

/* Whether [name] matches: '*' stands for any text without a dot, '**' for any text. */
bool weight_pattern_matches(const char *pattern, const char *name);

/* [target] with the texts that the wildcards of [pattern] stand for in [name], which matches. */
const char *weight_pattern_replace(const char *pattern, const char *name, const char *target, struct arena *arena);
