/* One table of rules per architecture. A rule `**` at the end states that all other tensors have PyTorch's layout. */
#include "model/weight_map.h"

#include <stdio.h>
#include <string.h>

#include "base/scoped.h"

struct ready_rule {
    const char *pattern;
    const char *items[2]; /* as in the rules of a config */
};

struct ready_map {
    const char *name, *prefix;
    const struct ready_rule *rules; /* ends with pattern NULL */
};

/* Conv1D of GPT-2 stores (in, out). */
static const struct ready_rule gpt2[] = {
    {"h.*.attn.bias", {"skip"}}, /* the causal mask */
    {"h.*.attn.masked_bias", {"skip"}},
    {"h.*.attn.c_attn.weight", {"h.*.attn.c_attn.weight", "transpose"}},
    {"h.*.attn.c_proj.weight", {"h.*.attn.c_proj.weight", "transpose"}},
    {"h.*.mlp.c_fc.weight", {"h.*.mlp.c_fc.weight", "transpose"}},
    {"h.*.mlp.c_proj.weight", {"h.*.mlp.c_proj.weight", "transpose"}},
    {"**", {"**", "as is"}},
    {NULL, {NULL}},
};

/* The names of Meta's code, with q, k and v in one layer. */
static const struct ready_rule llama[] = {
    {"embed_tokens.weight", {"tok_embeddings.weight"}},
    {"layers.*.input_layernorm.weight", {"layers.*.attention_norm.weight"}},
    {"layers.*.self_attn.q_proj.*", {"layers.*.wqkv.*", "part 1 of 3"}},
    {"layers.*.self_attn.k_proj.*", {"layers.*.wqkv.*", "part 2 of 3"}},
    {"layers.*.self_attn.v_proj.*", {"layers.*.wqkv.*", "part 3 of 3"}},
    {"layers.*.self_attn.o_proj.*", {"layers.*.wo.*"}},
    {"layers.*.self_attn.rotary_emb.inv_freq", {"skip"}},
    {"layers.*.post_attention_layernorm.weight", {"layers.*.ffn_norm.weight"}},
    {"layers.*.mlp.gate_proj.*", {"layers.*.w1.*"}},
    {"layers.*.mlp.up_proj.*", {"layers.*.w3.*"}},
    {"layers.*.mlp.down_proj.*", {"layers.*.w2.*"}},
    {"norm.weight", {"norm.weight"}},
    {"lm_head.weight", {"output.weight"}},
    {NULL, {NULL}},
};

/* Without token types the first one is added to every position. */
static const struct ready_rule bert[] = {
    {"embeddings.word_embeddings.weight", {"word_embeddings.weight"}},
    {"embeddings.position_embeddings.weight", {"position_embeddings.weight"}},
    {"embeddings.token_type_embeddings.weight", {"position_embeddings.weight", "add row 0"}},
    {"embeddings.position_ids", {"skip"}},
    {"embeddings.LayerNorm.*", {"embeddings_norm.*"}},
    {"encoder.layer.*.attention.self.query.*", {"layer.*.attention.in_proj_*", "part 1 of 3"}},
    {"encoder.layer.*.attention.self.key.*", {"layer.*.attention.in_proj_*", "part 2 of 3"}},
    {"encoder.layer.*.attention.self.value.*", {"layer.*.attention.in_proj_*", "part 3 of 3"}},
    {"encoder.layer.*.attention.output.dense.*", {"layer.*.attention.out_proj.*"}},
    {"encoder.layer.*.attention.output.LayerNorm.*", {"layer.*.attention_norm.*"}},
    {"encoder.layer.*.intermediate.dense.*", {"layer.*.intermediate.*"}},
    {"encoder.layer.*.output.dense.*", {"layer.*.output.*"}},
    {"encoder.layer.*.output.LayerNorm.*", {"layer.*.output_norm.*"}},
    {"pooler.dense.*", {"pooler.*"}},
    {"cls.predictions.transform.dense.*", {"transform.*"}},
    {"cls.predictions.transform.LayerNorm.*", {"transform_norm.*"}},
    {"cls.predictions.decoder.*", {"decoder.*"}},
    {"cls.predictions.bias", {"decoder.bias"}},
    {NULL, {NULL}},
};

static const struct ready_rule vit[] = {
    {"embeddings.cls_token", {"class_token.weight", "reshape"}},
    {"embeddings.position_embeddings", {"position_embeddings.weight", "reshape"}},
    {"embeddings.patch_embeddings.projection.*", {"patch_embedding.*"}},
    {"encoder.layer.*.layernorm_before.*", {"layer.*.norm_before.*"}},
    {"encoder.layer.*.attention.attention.query.*", {"layer.*.attention.in_proj_*", "part 1 of 3"}},
    {"encoder.layer.*.attention.attention.key.*", {"layer.*.attention.in_proj_*", "part 2 of 3"}},
    {"encoder.layer.*.attention.attention.value.*", {"layer.*.attention.in_proj_*", "part 3 of 3"}},
    {"encoder.layer.*.attention.output.dense.*", {"layer.*.attention.out_proj.*"}},
    {"encoder.layer.*.layernorm_after.*", {"layer.*.norm_after.*"}},
    {"encoder.layer.*.intermediate.dense.*", {"layer.*.intermediate.*"}},
    {"encoder.layer.*.output.dense.*", {"layer.*.output.*"}},
    {"layernorm.*", {"norm.*"}},
    /* the names of transformers 5 in memory */
    {"layers.*.layernorm_before.*", {"layer.*.norm_before.*"}},
    {"layers.*.attention.q_proj.*", {"layer.*.attention.in_proj_*", "part 1 of 3"}},
    {"layers.*.attention.k_proj.*", {"layer.*.attention.in_proj_*", "part 2 of 3"}},
    {"layers.*.attention.v_proj.*", {"layer.*.attention.in_proj_*", "part 3 of 3"}},
    {"layers.*.attention.o_proj.*", {"layer.*.attention.out_proj.*"}},
    {"layers.*.layernorm_after.*", {"layer.*.norm_after.*"}},
    {"layers.*.mlp.fc1.*", {"layer.*.intermediate.*"}},
    {"layers.*.mlp.fc2.*", {"layer.*.output.*"}},
    {NULL, {NULL}},
};

static const struct ready_rule resnet[] = {
    {"layer*.*.downsample.**", {"layer*.*.shortcut.**"}},
    {NULL, {NULL}},
};

static const struct ready_map weight_maps[] = {
    {"gpt2", "transformer.", gpt2}, {"llama", "model.", llama}, {"bert", "bert.", bert},
    {"vit", "vit.", vit},           {"resnet", "", resnet},     {NULL, NULL, NULL},
};

/* ---- maps of a config ---- */

/* A pattern is matched from left to right; each wildcard takes the shortest text that lets the rest match. The number
 * of wildcards and the length of names are limited, because names come from files. */

#define MAX_WILDCARDS 6
#define MAX_LONG_WILDCARDS 2 /* '**' */
#define MAX_NAME 500

/* ---- patterns ---- */

struct capture {
    const char *text;
    size_t length;
};

static bool match(const char *pattern, const char *name, struct capture *captures) {
    while (*pattern && *pattern != '*') {
        if (*pattern++ != *name++) return false;
    }
    if (!*pattern) return !*name;
    bool is_long = pattern[1] == '*';
    for (size_t length = 0;; length++) {
        *captures = (struct capture){name, length};
        if (match(pattern + 1 + is_long, name + length, captures + 1)) return true;
        if (!name[length] || (!is_long && name[length] == '.')) return false;
    }
}

static size_t count_wildcards(const char *pattern, size_t *long_ones) {
    size_t count = 0;
    *long_ones = 0;
    for (const char *p = pattern; (p = strchr(p, '*')); count++) {
        bool is_long = p[1] == '*';
        *long_ones += is_long;
        p += 1 + is_long;
    }
    return count;
}

bool weight_pattern_matches(const char *pattern, const char *name) {
    struct capture captures[MAX_WILDCARDS + 1];
    return strnlen(name, MAX_NAME + 1) <= MAX_NAME && match(pattern, name, captures);
}

const char *weight_pattern_replace(const char *pattern, const char *name, const char *target, struct arena *arena) {
    struct capture captures[MAX_WILDCARDS + 1] = {{0}};
    SCOPED_TEXT out = {0};
    size_t next = 0;
    match(pattern, name, captures);
    for (const char *t = target; *t;) {
        size_t plain = strcspn(t, "*");
        text_add_bytes(&out, t, plain);
        t += plain;
        if (!*t) break;
        text_add_bytes(&out, captures[next].text, captures[next].length);
        next++;
        t += t[1] == '*' ? 2 : 1;
    }
    return arena_copy(arena, text_string(&out));
}

/* ---- rules ---- */

/* Parses "part 1 of 3" or "add row 0". */
static bool parse_operation(const char *item, struct weight_rule *rule) {
    int part = 0, parts = 0, row = 0, end = 0;
    if (strcmp(item, "transpose") == 0) rule->layout = LAYOUT_TRANSPOSED;
    if (strcmp(item, "as is") == 0) rule->layout = LAYOUT_AS_IS;
    if (strcmp(item, "reshape") == 0) rule->layout = LAYOUT_RESHAPED;
    if (strcmp(item, "transpose") == 0 || strcmp(item, "as is") == 0 || strcmp(item, "reshape") == 0) return true;
    if (sscanf(item, "part %3d of %3d%n", &part, &parts, &end) == 2 && !item[end]) {
        rule->part = part;
        rule->parts = parts;
        return true;
    }
    if (sscanf(item, "add row %6d%n", &row, &end) != 1 || item[end]) return false;
    rule->row_to_add = row;
    return true;
}

static void parse_rule(const char *pattern, const char *const *items, size_t count, struct arena *arena,
                       struct weight_rule *rule) {
    *rule = (struct weight_rule){.pattern = pattern, .row_to_add = -1};
    rule->targets = arena_alloc(arena, (count + 1) * sizeof *rule->targets);
    for (size_t i = 0; i < count; i++)
        if (!parse_operation(items[i], rule) && strcmp(items[i], "skip") != 0)
            rule->targets[rule->target_count++] = items[i];
}

static const struct ready_map *find_ready(const struct weight_source *source) {
    for (size_t i = 0; source->rules.count == 0 && source->map.count == 1 && weight_maps[i].name; i++)
        if (strcmp(source->map.items[0], weight_maps[i].name) == 0) return &weight_maps[i];
    return NULL;
}

static void add_ready(const struct ready_map *ready, struct arena *arena, struct weight_map *out) {
    while (ready->rules[out->count].pattern) out->count++;
    out->prefix = ready->prefix;
    out->rules = arena_alloc(arena, out->count * sizeof *out->rules);
    for (size_t i = 0; i < out->count; i++) {
        const struct ready_rule *r = &ready->rules[i];
        parse_rule(r->pattern, r->items, r->items[1] ? 2 : 1, arena, &out->rules[i]);
    }
}

void weight_map_create(const struct weight_source *source, struct arena *arena, struct weight_map *out) {
    const struct ready_map *ready = find_ready(source);
    *out = (struct weight_map){.prefix = ""};
    if (ready) {
        add_ready(ready, arena, out);
        return;
    }
    out->rules = arena_alloc(arena, (source->rules.count + 1) * sizeof *out->rules);
    size_t at = 0;
    for (size_t i = 0; i < source->rules.count; i++) {
        const struct string_group *g = &source->rules.items[i];
        parse_rule(g->name, source->map.items + at, g->count, arena, &out->rules[out->count++]);
        at += g->count;
    }
}

bool weight_source_is_mapped(const struct weight_source *source) {
    return source->map.count || source->skip.count || source->is_partial;
}

/* ---- the config ---- */

static const char *pattern_problem(const char *pattern) {
    size_t long_ones, count = count_wildcards(pattern, &long_ones);
    if (count > MAX_WILDCARDS) return "has more than 6 wildcards";
    if (long_ones > MAX_LONG_WILDCARDS) return "has more than 2 wildcards '**'";
    if (strstr(pattern, "***")) return "has three '*' in a row; '*' is any text without a dot, '**' any text";
    return *pattern ? NULL : "is empty";
}

/* Whether a word of a rule is probably a wrong operation: names have no spaces. */
static const char *rule_problem(const struct weight_rule *rule, size_t item_count) {
    size_t unused, wildcards = count_wildcards(rule->pattern, &unused);
    if (rule->target_count == 0)
        return item_count == 1 && !rule->layout && !rule->parts && rule->row_to_add < 0 ? NULL : "names no parameter";
    for (size_t i = 0; i < rule->target_count; i++) {
        if (strchr(rule->targets[i], ' ') || !*rule->targets[i])
            return "has an operation that does not exist; they are transpose, as is, reshape, part K of N, add row K, "
                   "and skip alone";
        if (count_wildcards(rule->targets[i], &unused) > wildcards) return "has more wildcards than its pattern";
    }
    if (rule->parts && (rule->part < 1 || rule->part > rule->parts)) return "has a part that is not from 1 to N";
    if (rule->target_count > 1 && (rule->parts || rule->row_to_add >= 0 || rule->layout == LAYOUT_RESHAPED))
        return "divides a tensor among several parameters, so it cannot also have part, add row or reshape";
    if (rule->row_to_add >= 0 && (rule->parts || rule->layout)) return "has another operation beside add row";
    return NULL;
}

static void check_rules(const struct weight_source *c, const struct node *map, const char *path,
                        struct problems *problems) {
    size_t at = 0;
    for (size_t i = 0; i < c->rules.count; i++) {
        const struct string_group *g = &c->rules.items[i];
        SCOPED_ARENA arena = arena_create();
        struct weight_rule rule;
        parse_rule(g->name, c->map.items + at, g->count, arena, &rule);
        const char *problem = pattern_problem(g->name), *what = "the pattern";
        if (!problem) {
            problem = rule_problem(&rule, g->count);
            what = "the rule of";
        }
        if (problem) problems_add(problems, map->key_places[i], path, "%s '%s' %s", what, g->name, problem);
        at += g->count;
    }
}

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct weight_source *c = config;
    SCOPED_TEXT key = {0}, names = {0};
    const struct node *map = node_get(where, "map");
    text_printf(&key, "%s.map", path);
    if (!c->file && where->count) problems_add(problems, where->place, path, "file is missing; the file of weights");
    for (size_t i = 0; weight_maps[i].name; i++) text_printf(&names, "%s%s", i ? ", " : "", weight_maps[i].name);
    if (map && c->rules.count)
        check_rules(c, map, text_string(&key), problems);
    else if (map && c->map.count && !find_ready(c))
        problems_add(problems, map->place, text_string(&key),
                     "'%s' is no map; expected one of %s, or a mapping from patterns to names", c->map.items[0],
                     text_string(&names));
    for (size_t i = 0; i < c->skip.count; i++) {
        const char *problem = pattern_problem(c->skip.items[i]);
        if (problem)
            problems_add(problems, node_get(where, "skip")->place, path, "skip: the pattern '%s' %s", c->skip.items[i],
                         problem);
    }
}

static const struct schema_row rows[] = {
    SCHEMA_ROW(
        STRING, struct weight_source, file, .fallback = "null",
        .doc =
            "A safetensors file, a state_dict that torch.save wrote, an index of several (.index.json), a folder of "
            "transformers' save_pretrained, or a checkpoint of ddptrain. The prefixes `module.` "
            "(DistributedDataParallel) and `_orig_mod.` (torch.compile) of names are removed, and so is one that all "
            "names share, without a map, where the rest is a name of the model (`model.` of PyTorch Lightning)."),
    SCHEMA_ROW(STRING_LIST, struct weight_source, map, .groups_offset = FIELD(struct weight_source, rules),
               .fallback = "null",
               .doc = "Names and layouts of a file of another program (docs/pytorch.md): `gpt2`, `llama`, `bert` or "
                      "`vit` for Hugging Face's models, `resnet` for torchvision's; or rules `pattern: name` or "
                      "`pattern: [name, transpose]`."),
    SCHEMA_ROW(STRING_LIST, struct weight_source, skip, .fallback = "null",
               .doc =
                   "Tensors of the file that are not used, as patterns: `*` is any text without a dot, `**` any text."),
    SCHEMA_KEY(BOOL, "partial", struct weight_source, is_partial, .fallback = "false",
               .doc = "Parameters without a tensor keep their initial values, and tensors without a parameter are not "
                      "used, instead of an error; both are printed."),
    {0},
};

const struct schema weight_source_schema =
    SCHEMA("model.init_from", struct weight_source, .rows = rows, .shorthand = "file", .check = check);
