/* schema_write_yaml and schema_diff: the written config binds to the same struct, bit for bit, and exactly the
 * differences of two configs are listed. */
#include <string.h>

#include "check_main.h"
#include "schema_bound.h"

/* ---- round trip ---- */

static bool same_rows(const struct schema *schema, const void *a, const void *b);

static bool same_variant(const struct schema_row *row, const struct variant *a, const struct variant *b) {
    if (a->index != b->index) return false;
    if (a->index < 0) return true;
    return strcmp(a->name, b->name) == 0 &&
           same_rows(row->variants->at((size_t)a->index)->schema, a->config, b->config) &&
           same_rows(row->variants->common, a->common, b->common);
}

static bool same_text(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

/* Bit for bit, through pointers. */
static bool same_field(const struct schema_row *row, const void *a, const void *b) {
    static const size_t sizes[] = {[SCHEMA_BOOL] = sizeof(bool),
                                   [SCHEMA_INT] = sizeof(int64_t),
                                   [SCHEMA_REAL] = sizeof(double),
                                   [SCHEMA_CHOICE] = sizeof(int)};
    const struct int_list *ints_a = a, *ints_b = b;
    const struct string_list *texts_a = a, *texts_b = b;
    const struct variant_list *list_a = a, *list_b = b;
    const struct section_list *sections_a = a, *sections_b = b;
    switch (row->type) {
    case SCHEMA_STRING:
        return same_text(*(const char *const *)a, *(const char *const *)b);
    case SCHEMA_INT_LIST:
    case SCHEMA_REAL_LIST:
        return ints_a->count == ints_b->count && !ints_a->items == !ints_b->items &&
               (ints_a->count == 0 || memcmp(ints_a->items, ints_b->items, ints_a->count * 8) == 0);
    case SCHEMA_STRING_LIST:
        if (texts_a->count != texts_b->count || !texts_a->items != !texts_b->items) return false;
        for (size_t i = 0; i < texts_a->count; i++)
            if (!same_text(texts_a->items[i], texts_b->items[i])) return false;
        return true;
    case SCHEMA_SECTION:
        return same_rows(row->section, a, b);
    case SCHEMA_SECTION_LIST:
    case SCHEMA_SECTION_MAP:
        if (sections_a->count != sections_b->count) return false;
        for (size_t i = 0; i < sections_a->count; i++)
            if (!same_rows(row->section, (const char *)sections_a->items + i * row->section->size,
                           (const char *)sections_b->items + i * row->section->size))
                return false;
        return true;
    case SCHEMA_VARIANT:
        return same_variant(row, a, b);
    case SCHEMA_VARIANT_LIST:
        if (list_a->count != list_b->count) return false;
        for (size_t i = 0; i < list_a->count; i++)
            if (!same_variant(row, &list_a->items[i], &list_b->items[i])) return false;
        return true;
    default:
        return memcmp(a, b, sizes[row->type]) == 0;
    }
}

static bool same_rows(const struct schema *schema, const void *a, const void *b) {
    for (const struct schema_row *row = schema ? schema->rows : NULL; row && row->key; row++) {
        size_t present = row->present_offset;
        if (present && *((const bool *)a + present) != *((const bool *)b + present)) return false;
        if (!same_field(row, (const char *)a + row->offset, (const char *)b + row->offset)) return false;
    }
    return true;
}

/* The config's text binds to the same config, and that one writes the same text. */
static void check_round_trip(const struct bound *first) {
    struct text yaml = {0}, again = {0}, differences = {0};
    schema_write_yaml(&example_schema, &first->config, &yaml);
    struct bound second = bind_good(text_string(&yaml));
    ck_assert_msg(same_rows(&example_schema, &first->config, &second.config), "%s", text_string(&yaml));
    schema_write_yaml(&example_schema, &second.config, &again);
    ck_assert_str_eq(text_string(&yaml), text_string(&again));
    ck_assert_uint_eq(schema_diff(&example_schema, &first->config, &second.config, &differences), 0);
    ck_assert_str_eq(text_string(&differences), "");
    unbind(&second);
    text_free(&yaml);
    text_free(&again);
}

TEST(a_config_is_written_readably) {
    struct bound b = bind_good("seed: 7\n"
                               "name: no\n"
                               "sampler: {fraction: 1e-8}\n"
                               "optimizer: {type: adam, lr: 0.001}\n"
                               "checkpoint: {save_every: 50}\n"
                               "train: {tags: [a b, c, '1'], sizes: []}\n"
                               "model: {layers: [relu, {linear: {out: 3}}, {sequential: {layers: [{relu: {name: a}}, "
                               "{dropout: }]}}, {linear: {out: 1, init: {normal: 1}}}]}\n");
    struct text yaml = {0};
    schema_write_yaml(&example_schema, &b.config, &yaml);
    ck_assert_str_eq(text_string(&yaml), "name: \"no\"\n"
                                         "seed: 7\n"
                                         "sampler:\n"
                                         "  batch_size: 32\n"
                                         "  fraction: 1e-08\n"
                                         "  scale: none\n"
                                         "model:\n"
                                         "  layers:\n"
                                         "    - relu: {name: null}\n"
                                         "    - linear: {out: 3, bias: true, init: null, name: null}\n"
                                         "    - sequential:\n"
                                         "        layers:\n"
                                         "          - relu: {name: a}\n"
                                         "          - dropout: {p: 0.5, name: null}\n"
                                         "        times: 1\n"
                                         "        name: null\n"
                                         "    - linear:\n"
                                         "        out: 1\n"
                                         "        bias: true\n"
                                         "        init:\n"
                                         "          normal: {std: 1}\n"
                                         "        name: null\n"
                                         "optimizer: {type: adam, lr: 0.001, betas: [0.9, 0.999], weight_decay: 0}\n"
                                         "schedule: null\n"
                                         "checkpoint:\n"
                                         "  save_every: {epochs: 50, steps: null}\n"
                                         "  keep: 3\n"
                                         "  resume: auto\n"
                                         "train:\n"
                                         "  epochs: 100\n"
                                         "  sizes: []\n"
                                         "  tags: [\"a b\", c, \"1\"]\n"
                                         "  clip: null\n"
                                         "  device: auto\n");
    check_round_trip(&b);
    text_free(&yaml);
    unbind(&b);
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 8;
}

static void add_random_text(uint64_t *state, struct text *out) {
    static const char *const pieces[] = {"a",       "B",
                                         " ",       "  ",
                                         ":",       ": ",
                                         "#",       " #",
                                         "'",       "\\\"",
                                         "\\\\",    "\\n",
                                         "\\t",     "\\x07",
                                         "\\u0085", "\\u2028",
                                         "\\ufeff", "\xc3\xa4",
                                         "{",       "}",
                                         "[",       ",",
                                         "- ",      "&",
                                         "*",       "!",
                                         "%",       "@",
                                         "1",       ".",
                                         "null",    "true",
                                         "~",       "\xf0\x9f\x98\x80",
                                         "yes",     "\\x7f"};
    text_add(out, "\"");
    for (uint64_t n = next_random(state) % 6; n > 0; n--)
        text_add(out, pieces[next_random(state) % (sizeof pieces / sizeof *pieces)]);
    if (next_random(state) % 50 == 0)
        for (int i = 0; i < 1000; i++) text_add(out, "\\x20\\n");
    text_add(out, "\"");
}

/* A real number in [0, 1), or of any size. */
static void add_random_real(uint64_t *state, bool is_small, struct text *out) {
    double mantissa = (double)next_random(state) / 0x1p56;
    int exponent = is_small ? 0 : (int)(next_random(state) % 600) - 300;
    text_printf(out, "%.17g", next_random(state) % 4 ? mantissa * pow(10, exponent) : round(mantissa * 1000) / 1024);
}

static void add_random_layers(uint64_t *state, int depth, struct text *out) {
    text_add(out, "[");
    for (uint64_t n = next_random(state) % 4, i = 0; i < n; i++) {
        if (i) text_add(out, ", ");
        uint64_t kind = next_random(state) % (depth < 6 ? 6 : 5);
        if (kind == 0) text_add(out, "relu");
        if (kind == 1) text_printf(out, "{linear: {out: %d, bias: false}}", (int)(next_random(state) % 1000) + 1);
        if (kind == 2) {
            text_add(out, "{linear: {out: 1, init: {normal: ");
            add_random_real(state, false, out);
            text_add(out, "}, name: ");
            add_random_text(state, out);
            text_add(out, "}}");
        }
        if (kind == 3) {
            text_add(out, "{dropout: {p: ");
            add_random_real(state, true, out);
            text_add(out, "}}");
        }
        if (kind == 4) text_add(out, "{linear: {out: 2, init: zeros}}");
        if (kind == 5) {
            text_add(out, "{sequential: {layers: ");
            add_random_layers(state, depth + 1, out);
            text_add(out, "}}");
        }
    }
    text_add(out, "]");
}

static void add_random_config(uint64_t *state, struct text *out) {
    static const char *const optimizers[] = {"adam", "none", "{weight_decay: 1e-300}", "{type: sgd, lr: 1e22}"};
    text_printf(out, "seed: %llu\nname: ", (unsigned long long)next_random(state) << (next_random(state) % 8));
    add_random_text(state, out);
    text_add(out, "\ntrain: {clip: ");
    add_random_real(state, false, out);
    text_add(out, ", tags: [");
    add_random_text(state, out);
    text_add(out, ", ");
    add_random_text(state, out);
    text_printf(out, "], sizes: [%s]}\n", next_random(state) % 2 ? "" : "9223372036854775807, 1");
    text_printf(out, "optimizer: %s\n", optimizers[next_random(state) % 4]);
    if (next_random(state) % 2) text_add(out, "sampler: {shuffle: true}\n");
    if (next_random(state) % 2) text_add(out, "validation: {}\n");
    if (next_random(state) % 2) text_add(out, "checkpoint: {save_every: {steps: 3}}\n");
    text_add(out, "model: {layers: ");
    add_random_layers(state, 0, out);
    text_add(out, "}\n");
}

TEST(random_configs_survive_the_round_trip) {
    uint64_t state = 1;
    for (int round = 0; round < 500; round++) {
        SCOPED_TEXT yaml = {0};
        add_random_config(&state, &yaml);
        struct bound b = bind_good(text_string(&yaml));
        check_round_trip(&b);
        unbind(&b);
    }
}

/* A text with bytes changed, removed or repeated is bound or rejected, without a crash. */
TEST(mutated_configs_do_no_harm) {
    uint64_t state = 7;
    double start = cpu_seconds();
    size_t refused = 0;
    for (int round = 0; round < 3000; round++) {
        SCOPED_TEXT yaml = {0};
        if (round % 2)
            text_add(&yaml, all_keys);
        else
            add_random_config(&state, &yaml);
        for (uint64_t edits = next_random(&state) % 4 + 1; edits > 0; edits--) {
            size_t at = next_random(&state) % yaml.length, count = next_random(&state) % 8 + 1;
            if (count > yaml.length - at) count = yaml.length - at;
            uint64_t kind = next_random(&state) % 4;
            if (kind == 0) yaml.data[at] = (char)(next_random(&state) % 127 + 1);
            if (kind == 1) yaml.data[at] = " \n:{}[],-'\"#&*!|>?"[next_random(&state) % 18];
            if (kind == 2) memset(yaml.data + at, yaml.data[at], count);
            if (kind == 3 && at + count < yaml.length) memmove(yaml.data + at, yaml.data + yaml.length - count, count);
        }
        struct bound b = bind(text_string(&yaml));
        if (*b.problems)
            refused++;
        else
            check_round_trip(&b);
        unbind(&b);
    }
    ck_assert_uint_gt(refused, 500);
    ck_assert(cpu_seconds() - start < 60);
}

/* ---- differences ---- */

static const struct {
    const char *before, *after, *expected;
} differences[] = {
    {"seed: 1", "seed: 1\noptimizer: {type: adam, lr: 1.0e-3}", ""},
    {"seed: 1", "seed: 2", "  seed: 1 -> 2\n"},
    {"seed: 1", "seed: 1\nname: a b", "  name: null -> \"a b\"\n"},
    {"seed: 1", "seed: 1\nsampler: {shuffle: true}", ""},
    {"seed: 1", "seed: 1\nsampler: {scale: minmax, fraction: 0.1}",
     "  sampler.fraction: 0.5 -> 0.1\n  sampler.scale: none -> minmax\n"},
    {"seed: 1", "seed: 1\ntrain: {epochs: 7, clip: 0.1}\ncheckpoint: {keep: 9}", "  train.clip: null -> 0.1\n"},
    {"seed: 1", "seed: 1\noptimizer: {type: sgd, lr: 1}", "  optimizer: adam -> sgd\n"},
    {"seed: 1", "seed: 1\noptimizer: {lr: 0.1, weight_decay: 2}",
     "  optimizer.lr: 0.001 -> 0.1\n  optimizer.weight_decay: 0 -> 2\n"},
    {"seed: 1", "seed: 1\nschedule: cosine", "  schedule: null -> cosine\n"},
    {"seed: 1", "seed: 1\nvalidation: {}", ""},
    {"seed: 1\nmodel: {layers: [relu, relu, {linear: {out: 3}}]}",
     "seed: 1\nmodel: {layers: [relu, dropout, {linear: {out: 4}}, relu]}",
     "  model.layers.1: relu -> dropout\n  model.layers.2.linear.out: 3 -> 4\n  model.layers.3: (none) -> relu\n"},
    {"seed: 1\nmodel: {layers: [relu]}", "seed: 1", "  model.layers.0: relu -> (none)\n"},
    {"seed: 1\nmodel: {layers: [{sequential: {layers: [{linear: {out: 1, init: zeros}}]}}]}",
     "seed: 1\nmodel: {layers: [{sequential: {layers: [{linear: {out: 1, init: {normal: 2}}}]}}]}",
     "  model.layers.0.sequential.layers.0.linear.init: zeros -> normal\n"},
};

TEST_EACH(differences_are_listed, differences) {
    struct bound before = bind_good(differences[_i].before), after = bind_good(differences[_i].after);
    struct text text = {0};
    size_t count = schema_diff(&example_schema, &before.config, &after.config, &text), lines = 0;
    ck_assert_str_eq(text_string(&text), differences[_i].expected);
    for (const char *c = text_string(&text); *c; c++) lines += *c == '\n';
    ck_assert_uint_eq(count, lines);
    text_free(&text);
    unbind(&before);
    unbind(&after);
}

/* ---- templates of Python ---- */

static const struct {
    const char *yaml, *template, *expected;
} templates[] = {
    {"seed: 1\nsampler: {batch_size: 8}", "f({batch_size}, {fraction})", "f(8, 0.5)"},
    {"seed: 1\nsampler: {batch_size: 8, shuffle: false}", "f({,batch_size}{,shuffle:mixes}{,fraction})",
     "f(batch_size=8, mixes=False)"},
    {"seed: 1\nsampler: {batch_size: 32, fraction: 0.50}", "f(1{,batch_size}{,fraction})", "f(1)"},
    {"seed: 1\nsampler: {scale: minmax}", "{x}{!batch_size}: {scale}", "y: \"minmax\""},
};

static bool place(void *context, const char *name, struct text *out) {
    if (strcmp(name, "x") != 0) return false;
    text_add(out, context);
    return true;
}

TEST_EACH(templates_are_filled, templates) {
    struct bound b = bind_good(templates[_i].yaml);
    struct text text = {0};
    ck_assert_ptr_null(
        schema_fill(&example_sampler_schema, &b.config.sampler, templates[_i].template, place, "y", &text));
    ck_assert_str_eq(text_string(&text), templates[_i].expected);
    text_free(&text);
    unbind(&b);
}

TEST(templates_fill_lists_and_null) {
    struct bound b = bind_good("seed: 1\ntrain: {epochs: 1, sizes: 3, tags: [a, 'b\"c']}");
    struct text text = {0};
    ck_assert_ptr_null(schema_fill(&example_train_schema, &b.config.train,
                                   "{sizes} {*sizes} {tags} {clip} {clip|total}", NULL, NULL, &text));
    ck_assert_str_eq(text_string(&text), "3 [3] (\"a\", \"b\\\"c\") None total");
    text_free(&text);
    unbind(&b);
}

TEST(templates_reject) {
    struct bound b = bind_good("seed: 1\nsampler: {batch_size: 8}");
    struct text text = {0};
    status s = schema_fill(&example_sampler_schema, &b.config.sampler, "{!batch_size}", NULL, NULL, &text);
    ck_assert_int_eq(status_code(s), STATUS_USAGE);
    ck_assert_str_eq(status_message(s), "sampler.batch_size cannot be expressed in a PyTorch script");
    status_free(s);
    s = schema_fill(&example_sampler_schema, &b.config.sampler, "{rows}", NULL, NULL, &text);
    ck_assert_int_eq(status_code(s), STATUS_BUG);
    status_free(s);
    text_free(&text);
    unbind(&b);
}

CHECK_MAIN("schema_write")
