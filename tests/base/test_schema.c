/* schema_bind: every spelling of a value is bound, each mistake has its sentence and place, and a one-edit typo of any
 * key is refused with the right suggestion. */
#include <stdio.h>
#include <string.h>

#include "check_main.h"
#include "schema_bound.h"

/* ---- values ---- */

TEST(defaults_are_bound) {
    struct bound b = bind_good("seed: 1");
    const struct example *c = &b.config;
    ck_assert_ptr_null(c->name);
    ck_assert_int_eq(c->seed, 1);
    ck_assert_int_eq(c->sampler.batch_size, 32);
    ck_assert(c->sampler.shuffle && !c->sampler.is_shuffle_given);
    ck_assert(c->sampler.fraction == 0.5);
    ck_assert_int_eq(c->sampler.scale, 0);
    ck_assert_uint_eq(c->layers.count, 0);
    ck_assert_str_eq(c->optimizer.name, "adam");
    const struct example_adam *adam = c->optimizer.config;
    ck_assert(adam->lr == 1e-3 && adam->betas.count == 2 && adam->betas.items[1] == 0.999);
    ck_assert(((const struct example_every *)c->optimizer.common)->weight_decay == 0);
    ck_assert_int_eq(c->optimizer.place.line, 1);
    ck_assert_int_eq(c->schedule.index, -1);
    ck_assert(c->checkpoint.save_every.epochs == SCHEMA_NO_INT);
    ck_assert_str_eq(c->checkpoint.resume, "auto");
    ck_assert_uint_eq(c->train.sizes.count, 2);
    ck_assert_ptr_null(c->train.tags.items);
    ck_assert(isnan(c->train.clip));
    ck_assert(!c->has_validation);
    ck_assert_str_eq(c->validation.path, "");
    unbind(&b);
}

TEST(every_spelling_of_a_value_is_bound) {
    struct bound b = bind_good("name: 42\n"
                               "seed: 1_000\n"
                               "sampler: {batch_size: +8, shuffle: False, fraction: .25, scale: minmax}\n"
                               "optimizer: {lr: 1e-3, betas: [0.5, 1E-1], weight_decay: 3}\n"
                               "schedule: {type: cosine}\n"
                               "checkpoint: {save_every: 50, resume: 'null'}\n"
                               "train: {epochs: -3, sizes: 7, tags: x, clip: ~, device: Null}\n"
                               "validation: {}\n"
                               "model:\n"
                               "  layers:\n"
                               "    - linear: {out: 64, init: {normal: 0.1}, name: fc}\n"
                               "    - relu\n"
                               "    - relu:\n"
                               "    - dropout: 0.25\n"
                               "    - sequential: {layers: [relu, {linear: {out: 2, init: zeros}}], times: 2}\n");
    const struct example *c = &b.config;
    ck_assert_str_eq(c->name, "42");
    ck_assert_int_eq(c->seed, 1000);
    ck_assert_int_eq(c->sampler.batch_size, 8);
    ck_assert(!c->sampler.shuffle && c->sampler.is_shuffle_given);
    ck_assert(c->sampler.fraction == 0.25);
    ck_assert_int_eq(c->sampler.scale, 2);
    const struct example_adam *adam = c->optimizer.config;
    ck_assert_str_eq(c->optimizer.name, "adam"); /* the default's type */
    ck_assert(adam->lr == 1e-3 && adam->betas.items[1] == 0.1);
    ck_assert(((const struct example_every *)c->optimizer.common)->weight_decay == 3);
    ck_assert_str_eq(c->schedule.name, "cosine");
    ck_assert_ptr_null(c->schedule.config);
    ck_assert_ptr_null(c->schedule.common);
    ck_assert_int_eq(c->checkpoint.save_every.epochs, 50);
    ck_assert_str_eq(c->checkpoint.resume, "null");
    ck_assert_int_eq(c->train.epochs, -3);
    ck_assert_uint_eq(c->train.sizes.count, 1);
    ck_assert_int_eq(c->train.sizes.items[0], 7);
    ck_assert_str_eq(c->train.tags.items[0], "x");
    ck_assert_int_eq(c->train.device, -1);
    ck_assert(c->has_validation);
    ck_assert_uint_eq(c->layers.count, 5);
    const struct variant *layers = c->layers.items;
    const struct example_linear *linear = layers[0].config;
    ck_assert_int_eq(linear->out, 64);
    ck_assert_str_eq(linear->init.name, "normal");
    ck_assert(((const struct example_normal *)linear->init.config)->std == 0.1);
    ck_assert_str_eq(((const struct example_layer *)layers[0].common)->name, "fc");
    ck_assert_int_eq(layers[1].index, 1);
    ck_assert_int_eq(layers[1].place.line, 12);
    ck_assert_int_eq(layers[1].place.column, 7);
    ck_assert_ptr_null(layers[1].config);
    ck_assert_str_eq(layers[2].name, "relu");
    ck_assert(((const struct example_dropout *)layers[3].config)->p == 0.25);
    const struct example_nested *nested = layers[4].config;
    ck_assert_uint_eq(nested->layers.count, 2);
    ck_assert_int_eq(nested->times, 2);
    ck_assert_int_eq(((const struct example_linear *)nested->layers.items[1].config)->out, 2);
    unbind(&b);
}

TEST(every_digit_of_a_number_counts) {
    char config[1600];
    snprintf(config, sizeof config, "seed: 1\nsampler: {fraction: 0.%0400d1e400}\ntrain: {clip: 2%0500d.5e-500}\n", 0,
             0);
    struct bound b = bind_good(config);
    ck_assert(b.config.sampler.fraction == 0.1);
    ck_assert(b.config.train.clip == 2);
    unbind(&b);
}

TEST(no_mapping_means_all_defaults) {
    SCOPED_ARENA arena = arena_create();
    struct problems problems = {0};
    struct example_sampler sampler;
    schema_bind(&example_sampler_schema, NULL, "sampler", &example_schema, &sampler, arena, &problems);
    ck_assert_uint_eq(problems.count, 0);
    ck_assert_int_eq(sampler.batch_size, 32);
}

/* ---- mistakes ---- */

#define S "seed: 1\n" /* the required key, line 1 */
#define KEYS_OF_ROOT "(keys here: name, seed, sampler, model, optimizer, schedule, checkpoint, train, validation)"
#define KNOWN_LAYERS "(known: linear, relu, dropout, sequential)"

static const struct {
    const char *yaml, *expected;
} mistakes[] = {
    /* keys */
    {"name: x", "c.yaml:1:1: seed: missing; Of every random draw."},
    {S "smapler: {}", "c.yaml:2:1: smapler: unknown key; did you mean 'sampler'? " KEYS_OF_ROOT},
    {S "Sampler: {}", "c.yaml:2:1: Sampler: unknown key; did you mean 'sampler'? " KEYS_OF_ROOT},
    {S "sampler: {shufle: true}",
     "c.yaml:2:11: sampler.shufle: unknown key; did you mean 'shuffle'? (keys here: batch_size, shuffle, fraction, "
     "scale)"},
    {S "sampler: {xyz: 1}", "c.yaml:2:11: sampler.xyz: unknown key (keys here: batch_size, shuffle, fraction, scale)"},
    {S "sampler: {lr: 0.1}", "c.yaml:2:11: sampler.lr: unknown key; did you mean 'optimizer.lr' (for adam, sgd)?"},
    {S "batch_size: 3", "c.yaml:2:1: batch_size: unknown key; did you mean 'sampler.batch_size'?"},
    {S "train: {seed: 3}",
     "c.yaml:2:9: train.seed: unknown key; did you mean 'seed' at the top level (seed: line 1, column 1)?"},
    {S "train: {bias: 3}", "c.yaml:2:9: train.bias: unknown key; it is a key of the layer linear"},
    {S "train: {weight_decay: 3}",
     "c.yaml:2:9: train.weight_decay: unknown key; did you mean 'optimizer.weight_decay'?"},
    {S "optimizer: {type: sgd, lr: 1, betas: 3}",
     "c.yaml:2:31: optimizer.betas: unknown key; it is a key of the optimizer adam, not of sgd"},
    {S "optimizer: {tpye: sgd}",
     "c.yaml:2:13: optimizer.tpye: unknown key; did you mean 'type'? (keys here: type, lr, betas, weight_decay)"},
    {S "schedule: {type: cosine, qqq: 1}", "c.yaml:2:26: schedule.qqq: unknown key (keys here: type)"},
    {S "model: {layers: [{relu: {qqq: 1}}]}", "c.yaml:2:26: model.layers.0.relu.qqq: unknown key (keys here: name)"},
    /* types */
    {"seed: abc", "c.yaml:1:7: seed: expected an integer, got 'abc'"},
    {"seed: [1]", "c.yaml:1:7: seed: expected an integer, got a list"},
    {"seed: {a: 1}", "c.yaml:1:7: seed: expected an integer, got a mapping"},
    {"seed: \"3\"", "c.yaml:1:7: seed: expected an integer, got '3'; remove the quotes"},
    {"seed: 'x'", "c.yaml:1:7: seed: expected an integer, got 'x'"},
    {"seed: 1e3", "c.yaml:1:7: seed: expected an integer, got '1e3'; write it without a point or exponent"},
    {"seed: 3.0", "c.yaml:1:7: seed: expected an integer, got '3.0'; write it without a point or exponent"},
    {"seed: 3.5", "c.yaml:1:7: seed: expected an integer, got '3.5'"},
    {"seed: 0x1F", "c.yaml:1:7: seed: expected an integer, got '0x1F'; write it in decimal"},
    {"seed: 0o17", "c.yaml:1:7: seed: expected an integer, got '0o17'; write it in decimal"},
    {"seed: 017", "c.yaml:1:7: seed: expected an integer, got '017'; write it without a leading 0"},
    {"seed: 07", "c.yaml:1:7: seed: expected an integer, got '07'; write it without a leading 0"},
    {"seed: 1__0", "c.yaml:1:7: seed: expected an integer, got '1__0'"},
    {"seed: 1_", "c.yaml:1:7: seed: expected an integer, got '1_'"},
    {"seed: _1", "c.yaml:1:7: seed: expected an integer, got '_1'"},
    {"seed: true", "c.yaml:1:7: seed: expected an integer, got 'true'"},
    {"seed: 9223372036854775808",
     "c.yaml:1:7: seed: expected an integer, got '9223372036854775808'; it does not fit into 64 bits"},
    {"seed: -9223372036854775808", "c.yaml:1:7: seed: expected an integer, got '-9223372036854775808'; the minimum is "
                                   "-9223372036854775807"},
    {S "train: {clip: nan}", "c.yaml:2:15: train.clip: expected a number, got 'nan'; it must be finite"},
    {S "train: {clip: -.inf}", "c.yaml:2:15: train.clip: expected a number, got '-.inf'; it must be finite"},
    {S "train: {clip: 1e999}", "c.yaml:2:15: train.clip: expected a number, got '1e999'; it is too large"},
    {S "train: {clip: 1e-999}",
     "c.yaml:2:15: train.clip: expected a number, got '1e-999'; it is too small, it would become 0"},
    {S "train: {clip: 0x1p3}", "c.yaml:2:15: train.clip: expected a number, got '0x1p3'"},
    {S "train: {clip: 1e}", "c.yaml:2:15: train.clip: expected a number, got '1e'"},
    {S "train: {clip: .}", "c.yaml:2:15: train.clip: expected a number, got '.'"},
    {S "train: {clip: '0.5'}", "c.yaml:2:15: train.clip: expected a number, got '0.5'; remove the quotes"},
    {S "sampler: {shuffle: yes}", "c.yaml:2:20: sampler.shuffle: expected true or false, got 'yes'; write true"},
    {S "sampler: {shuffle: Off}", "c.yaml:2:20: sampler.shuffle: expected true or false, got 'Off'; write false"},
    {S "sampler: {shuffle: 1}", "c.yaml:2:20: sampler.shuffle: expected true or false, got '1'; write true"},
    {S "sampler: {shuffle: maybe}", "c.yaml:2:20: sampler.shuffle: expected true or false, got 'maybe'"},
    {S "sampler: {shuffle: 'true'}",
     "c.yaml:2:20: sampler.shuffle: expected true or false, got 'true'; remove the quotes"},
    {S "name: [a]", "c.yaml:2:7: name: expected a text, got a list"},
    {S "sampler: {scale: standart}",
     "c.yaml:2:18: sampler.scale: expected one of none, standard, minmax, got 'standart'; did you mean 'standard'?"},
    {S "sampler: {scale: 3}", "c.yaml:2:18: sampler.scale: expected one of none, standard, minmax, got '3'"},
    {S "sampler: 3",
     "c.yaml:2:10: sampler: expected a mapping with the keys batch_size, shuffle, fraction, scale, got '3'"},
    {S "sampler: [1]",
     "c.yaml:2:10: sampler: expected a mapping with the keys batch_size, shuffle, fraction, scale, got a list"},
    {S "train: {sizes: {a: 1}}", "c.yaml:2:16: train.sizes: expected a list of integers, got a mapping"},
    {S "train: {sizes: [1, x, 2.5]}", "c.yaml:2:20: train.sizes.1: expected an integer, got 'x'\n"
                                      "c.yaml:2:23: train.sizes.2: expected an integer, got '2.5'"},
    {S "train: {sizes: [1, [2]]}", "c.yaml:2:20: train.sizes.1: expected an integer, got a list"},
    {S "train: {tags: [a, ~]}", "c.yaml:2:19: train.tags.1: null is not allowed in a list"},
    /* null */
    {"seed:", "c.yaml:1:6: seed: null is not allowed; expected an integer"},
    {S "sampler: {batch_size: null}", "c.yaml:2:23: sampler.batch_size: null is not allowed; expected an integer "
                                      "(leave the key out for the default, 32)"},
    {S "sampler:", "c.yaml:2:9: sampler: null is not allowed; expected a mapping with the keys batch_size, shuffle, "
                   "fraction, scale (leave the key out for the defaults)"},
    {S "optimizer: ~", "c.yaml:2:12: optimizer: null is not allowed; expected an optimizer (leave the key out for the "
                       "default, adam)"},
    /* ranges */
    {"seed: -1", "c.yaml:1:7: seed: must be >= 0, got -1"},
    {S "sampler: {batch_size: 0}", "c.yaml:2:23: sampler.batch_size: must be >= 1, got 0"},
    {S "sampler: {fraction: 1.5}", "c.yaml:2:21: sampler.fraction: must be > 0 and < 1, got 1.5"},
    {S "sampler: {fraction: 0}", "c.yaml:2:21: sampler.fraction: must be > 0 and < 1, got 0"},
    {S "sampler: {fraction: 1}", "c.yaml:2:21: sampler.fraction: must be > 0 and < 1, got 1"},
    {S "train: {epochs: 1000001}", "c.yaml:2:17: train.epochs: must be >= -1000000 and <= 1000000, got 1000001"},
    {S "train: {sizes: [3, 0]}", "c.yaml:2:20: train.sizes.1: must be >= 1, got 0"},
    {S "optimizer: {betas: [0.9, 1]}", "c.yaml:2:26: optimizer.betas.1: must be >= 0 and < 1, got 1"},
    /* types with keys */
    {S "optimizer: adma",
     "c.yaml:2:12: optimizer: unknown optimizer 'adma'; did you mean 'adam'? (known: adam, sgd, none)"},
    {S "optimizer: {type: qqqq, lr: 1}", "c.yaml:2:19: optimizer: unknown optimizer 'qqqq' (known: adam, sgd, none)"},
    {S "optimizer: [adam]", "c.yaml:2:12: optimizer: expected an optimizer, got a list"},
    {S "optimizer: sgd", "c.yaml:2:12: optimizer.lr: missing; The step size."},
    {S "optimizer: {type: sgd}", "c.yaml:2:12: optimizer.lr: missing; The step size."},
    {S "optimizer: {type: [sgd]}", "c.yaml:2:19: optimizer.type: expected the name of the optimizer, got a list"},
    {S "schedule: {}", "c.yaml:2:11: schedule.type: missing; the name of the schedule"},
    {S "model: {layers: [liner]}",
     "c.yaml:2:18: model.layers.0: unknown layer 'liner'; did you mean 'linear'? " KNOWN_LAYERS},
    {S "model: {layers: [relu, {liner: {out: 3}}]}",
     "c.yaml:2:25: model.layers.1: unknown layer 'liner'; did you mean 'linear'? " KNOWN_LAYERS},
    {S "model: {layers: [linear]}", "c.yaml:2:18: model.layers.0.out: missing; Output features."},
    {S "model: {layers: [{linear: }]}", "c.yaml:2:19: model.layers.0.linear.out: missing; Output features."},
    {S "model: {layers: [{linear: 3}]}",
     "c.yaml:2:27: model.layers.0.linear: expected a mapping with the options of the layer, got a single value"},
    {S "model: {layers: [{linear: {out: 3}, name: x}]}",
     "c.yaml:2:18: model.layers.0: expected one key, the type of the layer, got 2 (linear, name); its options go "
     "inside it: linear: {...}"},
    {S "model: {layers: [{}]}",
     "c.yaml:2:18: model.layers.0: expected one key, the type of the layer, got 0; its options go inside it: TYPE: "
     "{...}"},
    {S "model: {layers: [~]}", "c.yaml:2:18: model.layers.0: expected a layer, got null"},
    {S "model: {layers: [[relu]]}", "c.yaml:2:18: model.layers.0: expected a layer, got a list"},
    {S "model: {layers: relu}",
     "c.yaml:2:17: model.layers: expected a list of layers, got 'relu'; start each entry with '- '"},
    {S "model: {layers: {relu: }}",
     "c.yaml:2:17: model.layers: expected a list of layers, got a mapping; start each entry with '- '"},
    {S "model: {layers: [relu, relu, {sequential: {layers: [{linear: {out: 0}}]}}]}",
     "c.yaml:2:68: model.layers.2.sequential.layers.0.linear.out: must be >= 1, got 0"},
    {S "model: {layers: [{linear: {out: 1, init: {normal: {sdt: 1}}}}]}",
     "c.yaml:2:52: model.layers.0.linear.init.normal.sdt: unknown key; did you mean 'std'? (keys here: std)"},
    {S "model: {layers: [{dropout: 2}]}", "c.yaml:2:28: model.layers.0.dropout.p: must be >= 0 and <= 1, got 2"},
    {S "checkpoint: {save_every: abc}", "c.yaml:2:26: checkpoint.save_every.epochs: expected an integer, got 'abc'"},
    /* checks across keys */
    {S "optimizer: {betas: [0.9]}", "c.yaml:2:12: optimizer: betas must be two numbers, got 1"},
    {S "checkpoint: {save_every: {epochs: 1, steps: 1}}",
     "c.yaml:2:26: checkpoint.save_every: give epochs or steps, not both"},
    /* all at once, in order */
    {"sampler:\n  batch_size: 0\n  shufle: 1\ntrain: {sizes: x}\nsampler: 3\n",
     "c.yaml:1:1: seed: missing; Of every random draw.\n"
     "c.yaml:2:15: sampler.batch_size: must be >= 1, got 0\n"
     "c.yaml:3:3: sampler.shufle: unknown key; did you mean 'shuffle'? (keys here: batch_size, shuffle, fraction, "
     "scale)\n"
     "c.yaml:4:16: train.sizes: expected an integer, got 'x'\n"
     "c.yaml:5:1: duplicate key 'sampler'; it is also in line 1"},
    /* control characters are escaped, long values are truncated */
    {S "\"a\\e[31m\\n\": 1", "c.yaml:2:1: a\\x1b[31m\\x0a: unknown key " KEYS_OF_ROOT},
    {"seed: 0123456789012345678901234567890123456789012345678901234567890123456789",
     "c.yaml:1:7: seed: expected an integer, got "
     "'0123456789012345678901234567890123456789012345678901234567890123...'; "
     "write it without a leading 0"},
};

TEST_EACH(mistakes_have_their_sentence, mistakes) {
    struct bound b = bind(mistakes[_i].yaml);
    ck_assert_str_eq(b.problems, mistakes[_i].expected);
    unbind(&b);
}

TEST(overrides_are_checked_like_the_file) {
    struct problems problems = {0};
    struct document *document;
    struct example config;
    ck_assert_ptr_null(document_parse("c.yaml", S, strlen(S), &problems, &document));
    document_override(document, "sampler.batch_size=0", NULL, &problems);
    document_override(document, "optimizer.lrr=1", NULL, &problems);
    schema_bind(&example_schema, document_root(document), "", &example_schema, &config, document_arena(document),
                &problems);
    status s = problems_status(&problems, STATUS_USAGE);
    ck_assert_str_eq(status_message(s),
                     "argument 'sampler.batch_size=0': sampler.batch_size: must be >= 1, got 0\n"
                     "argument 'optimizer.lrr=1': optimizer.lrr: unknown key; did you mean 'lr'? (keys here: type, lr, "
                     "betas, weight_decay)");
    status_free(s);
    problems_free(&problems);
    document_destroy(document);
}

static const struct {
    const char *yaml, *assignment, *expected; /* the tree, or the message */
} short_forms[] = {
    {"checkpoint: {save_every: 3}", "checkpoint.save_every.epochs=5", "{checkpoint: {save_every: {epochs: 5}}}"},
    {"checkpoint: {save_every: 3}", "checkpoint.save_every.steps=5",
     "{checkpoint: {save_every: {epochs: 3, steps: 5}}}"},
    {"checkpoint: {save_every: 3}", "checkpoint.save_every=5", "{checkpoint: {save_every: 5}}"},
    {"checkpoint: {save_every: [3]}", "checkpoint.save_every.steps=5",
     "{checkpoint: {save_every: {epochs: [3], steps: 5}}}"},
    {"checkpoint: {save_every: [3]}", "checkpoint.save_every.0=5", "{checkpoint: {save_every: [5]}}"},
    {"checkpoint: {save_every: x}", "checkpoint.save_every.steps=5",
     "{checkpoint: {save_every: {epochs: x, steps: 5}}}"},
    {"model: {layers: [relu, {dropout: 0.1}]}", "model.layers.1.dropout.p=0.2",
     "{model: {layers: [relu, {dropout: {p: 0.2}}]}}"},
    {"model: {layers: [{sequential: {layers: [{dropout: 0.1}]}}]}", "model.layers.0.sequential.layers.0.dropout.name=d",
     "{model: {layers: [{sequential: {layers: [{dropout: {p: 0.1, name: d}}]}}]}}"},
    {"model: {layers: [{sequential: [{dropout: 0.1}]}]}", "model.layers.0.sequential.0.dropout.name=d",
     "{model: {layers: [{sequential: [{dropout: {p: 0.1, name: d}}]}]}}"},
    {"model: {layers: [{linear: {out: 2, init: {normal: 0.1}}}]}", "model.layers.0.linear.init.normal.std=1",
     "{model: {layers: [{linear: {out: 2, init: {normal: {std: 1}}}}]}}"},
    {"optimizer: sgd", "optimizer.lr=1", "{optimizer: {type: sgd, lr: 1}}"},
    {"model: {layers: [{linear: 3}]}", "model.layers.0.linear.bias=false",
     "argument 'model.layers.0.linear.bias=false': 'model.layers.0.linear' is the value '3', which has no keys; write "
     "model.layers.0.linear={bias: ...}"},
    {"model: {layers: [{dropuot: 0.1}]}", "model.layers.0.dropuot.p=1",
     "argument 'model.layers.0.dropuot.p=1': 'model.layers.0.dropuot' is the value '0.1', which has no keys; write "
     "model.layers.0.dropuot={p: ...}"},
    {"model: {layers: 5}", "model.layers.0=1",
     "argument 'model.layers.0=1': 'model.layers' is the value '5', which has no keys; write model.layers={0: ...}"},
    {"model: {layers: [5]}", "model.layers.0.relu=1",
     "argument 'model.layers.0.relu=1': 'model.layers.0' is the value '5', which has no keys; write "
     "model.layers.0={relu: ...}"},
    {"other: 5", "other.a=1",
     "argument 'other.a=1': 'other' is the value '5', which has no keys; write other={a: ...}"},
    {"seed: 5", "seed.a=1", "argument 'seed.a=1': 'seed' is the value '5', which has no keys; write seed={a: ...}"},
};

TEST_EACH(overrides_replace_short_forms, short_forms) {
    struct problems problems = {0};
    struct document *document;
    struct text text = {0};
    const char *yaml = short_forms[_i].yaml;
    ck_assert_ptr_null(document_parse("c.yaml", yaml, strlen(yaml), &problems, &document));
    schema_override(&example_schema, document, short_forms[_i].assignment, &problems);
    status s = problems_status(&problems, STATUS_USAGE);
    if (s)
        text_add(&text, status_message(s));
    else
        node_write(document_root(document), &text);
    ck_assert_str_eq(text_string(&text), short_forms[_i].expected);
    text_free(&text);
    status_free(s);
    problems_free(&problems);
    document_destroy(document);
}

TEST(the_nearest_word_is_suggested) {
    static const char *const known[] = {"lr", "batch_size", "shuffle", "seed", "p", NULL};
    static const struct {
        const char *word, *expected;
    } cases[] = {
        {"lr", "lr"},
        {"rl", "lr"},
        {"l", "lr"},
        {"lrr", "lr"},
        {"lrxx", NULL},
        {"abc", NULL},
        {"BatchSize", "batch_size"},
        {"batch-sze", "batch_size"},
        {"sede", "seed"},
        {"sedex", "seed"},
        /* 5 letters: two edits */ {"shufle", "shuffle"},
        {"shfl", NULL},
        {"q", NULL},
        {"pp", "p"},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *nearest = schema_nearest(cases[i].word, known);
        ck_assert_msg(cases[i].expected ? nearest && strcmp(nearest, cases[i].expected) == 0 : !nearest, "%s: %s",
                      cases[i].word, nearest ? nearest : "(none)");
    }
}

/* One edit in words of up to 4 letters, two up to 8, three in longer ones; other words are not suggested. */
TEST(longer_words_may_differ_more) {
    static const char *const words[] = {"ab", "abc", "abcd", "abcde", "abcdefgh", "abcdefghi", "abcdefghijkl"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *const known[] = {words[i], NULL};
        size_t length = strlen(words[i]), limit = length <= 4 ? 1 : length <= 8 ? 2 : 3;
        for (size_t edits = 0; edits <= 4 && edits < length; edits++) {
            char word[16];
            memcpy(word, words[i], length + 1);
            memset(word + length - edits, '_', edits);
            const char *nearest = schema_nearest(word, known);
            ck_assert_msg(nearest == (edits <= limit ? words[i] : NULL), "%s: %s", word, nearest ? nearest : "(none)");
        }
    }
}

/* ---- typos ---- */

/* Binds all_keys with the [length] bytes at [start] replaced by [typo], which must be refused at its place. */
static void check_typo(size_t start, size_t length, const char *typo, int line, int column) {
    struct text yaml = {0};
    text_add_bytes(&yaml, all_keys, start);
    text_printf(&yaml, "%s%s", typo, all_keys + start + length);
    struct bound b = bind(text_string(&yaml));
    char place[64], suggestion[128];
    snprintf(place, sizeof place, "c.yaml:%d:%d: ", line, column);
    snprintf(suggestion, sizeof suggestion, "did you mean '%.*s'?", (int)length, all_keys + start);
    const char *sentence = strstr(b.problems, place);
    ck_assert_msg(sentence, "%s for %.*s:\n%s", typo, (int)length, all_keys + start, b.problems);
    if (length > 1) ck_assert_msg(strstr(sentence, suggestion), "%s: %s", typo, sentence);
    text_free(&yaml);
    unbind(&b);
}

/* Every deletion and swap, and insertions and replacements by some letters, of the key at [start]. */
static size_t check_typos(size_t start, size_t length, int line, int column) {
    static const char letters[] = "aesz_0";
    const char *key = all_keys + start;
    size_t count = 0;
    char typo[64];
    for (size_t i = 0; i <= length; i++) {
        for (const char *c = letters; *c; c++) {
            snprintf(typo, sizeof typo, "%.*s%c%.*s", (int)i, key, *c, (int)(length - i), key + i);
            check_typo(start, length, typo, line, column);
            count++;
            if (i == length || key[i] == *c) continue;
            typo[i] = *c;
            snprintf(typo + i + 1, sizeof typo - i - 1, "%.*s", (int)(length - i - 1), key + i + 1);
            check_typo(start, length, typo, line, column);
            count++;
        }
        if (i < length && length > 1) {
            snprintf(typo, sizeof typo, "%.*s%.*s", (int)i, key, (int)(length - i - 1), key + i + 1);
            check_typo(start, length, typo, line, column);
            count++;
        }
        if (i + 1 < length && key[i] != key[i + 1]) {
            snprintf(typo, sizeof typo, "%.*s", (int)length, key);
            typo[i] = key[i + 1];
            typo[i + 1] = key[i];
            check_typo(start, length, typo, line, column);
            count++;
        }
    }
    return count;
}

TEST(typos_of_every_key_are_rejected) {
    struct bound whole = bind_good(all_keys);
    unbind(&whole);
    size_t count = 0;
    int line = 1;
    for (const char *at = all_keys; *at; at = strchr(at, '\n') + 1, line++) {
        const char *key = at + strspn(at, " -");
        count += check_typos((size_t)(key - all_keys), strcspn(key, ":"), line, (int)(key - at) + 1);
    }
    ck_assert_uint_gt(count, 2500);
}

/* A megabyte of mistakes takes no longer than a few seconds. */
TEST(a_megabyte_of_mistakes_is_handled_at_once) {
    static const char *const heads[] = {"", "seed: [", "model: {layers: [", "model: {layers: [", "train: {sizes: ["};
    static const char *const formats[] = {"key%d: 1\n", "x%d,", "liner%d,", "{linear: {out: x%d}},", "x%d,"};
    static const char *const tails[] = {"", "]", "]}", "]}", "]}"};
    for (size_t k = 0; k < sizeof heads / sizeof *heads; k++) {
        SCOPED_TEXT yaml = {0};
        text_add(&yaml, heads[k]);
        for (int i = 0; i < 15000; i++) text_printf(&yaml, formats[k], i);
        text_add(&yaml, tails[k]);
        double start = cpu_seconds();
        struct bound b = bind(text_string(&yaml));
        ck_assert_msg(cpu_seconds() - start < 20, "%s took %g s", formats[k], cpu_seconds() - start);
        ck_assert(*b.problems);
        ck_assert_uint_lt(strlen(b.problems), 40000);
        unbind(&b);
    }
}

CHECK_MAIN("schema")
