/* document: each syntax error is reported in one sentence with its position; overrides change the tree; no input takes
 * much time or memory or causes a crash. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/document/document.h"
#include "base/schema/schema.h"
#include "check_main.h"
#include "files.h"

/* The problems of [bytes] as one text, malloc'ed; "" when there are none. */
static char *problems_of(const char *bytes, size_t size, bool *has_tree) {
    struct problems problems = {0};
    struct document *document = NULL;
    ck_assert_ptr_null(document_parse("a.yaml", bytes, size, &problems, &document));
    *has_tree = document != NULL;
    status s = problems_status(&problems, STATUS_USAGE);
    char *text = strdup(status_message(s));
    status_free(s);
    problems_free(&problems);
    document_destroy(document);
    return text;
}

static const struct {
    const char *yaml, *expected;
    bool has_tree;
} mistakes[] = {
    {"a: 1\na: 2\n", "a.yaml:2:1: duplicate key 'a'; it is also in line 1", true},
    {"a: {b: 1, c: 2, b: 3}\n", "a.yaml:1:17: duplicate key 'b'; it is also in line 1", true},
    {"a: 1\nb: *x\n",
     "a.yaml:2:4: there is no value with the anchor '&x' above; put a text that starts with '*' in quotes", false},
    {"a: &x [*x]\n",
     "a.yaml:1:8: there is no value with the anchor '&x' above; put a text that starts with '*' in quotes", false},
    {"&x a: 1\n", "a.yaml:1:1: an anchor ('&') of a key, which is not accepted; give it to the value", false},
    {"a: &x b\n*x : 1\n", "a.yaml:2:1: an alias ('*') as a key, which is not accepted; write the key out", false},
    {"a: &x 1\nb:\n  <<: *x\n", "a.yaml:1:4: '<<' takes a mapping, or a list of mappings: <<: *name", false},
    {"a: &x {b: 1}\nb:\n  <<: [*x, 3]\n", "a.yaml:3:12: '<<' takes a mapping, or a list of mappings: <<: *name", false},
    {"a: !!int 3\n", "a.yaml:1:4: a tag ('!'), which is not accepted; put a text that starts with '!' in quotes",
     false},
    {"a: !x [1]\n", "a.yaml:1:4: a tag ('!'), which is not accepted; put a text that starts with '!' in quotes", false},
    {"a: 1\n---\nb: 2\n", "a.yaml:2:1: a second document ('---'); a config is one document", false},
    {"[a, b]: 1\n",
     "a.yaml:1:1: a key must be a text, not a list or mapping; put a text that starts with '[' or '{' in quotes",
     false},
    {"a: {{b}}\n",
     "a.yaml:1:5: a key must be a text, not a list or mapping; put a text that starts with '[' or '{' in quotes",
     false},
    {"? \n: 1\n", "a.yaml:1:2: a key is empty", false},
    {"a: \"x\\0y\"\n", "a.yaml:1:4: a text with a NUL character", false},
    {"a:\n\tb: 1\n", "a.yaml:2:1: a tab; YAML is indented with spaces only", false},
    {"a: @b\n", "a.yaml:1:4: a value cannot start with '@'; put it in quotes", false},
    {"a: b: c\n",
     "a.yaml:1:5: a ':' is not allowed here; check the indentation, or put a text that contains ': ' in quotes", false},
    {"a: [1, 2\nb: 3\n", "a.yaml:2:2: expected ',' or ']' here; a '[' is not closed", false},
    {"a: {b: 1\n", "a.yaml:2:1: expected ',' or '}' here; a '{' is not closed", false},
    {"a: 'b\n", "a.yaml:1:4: the quotes that open here are not closed", false},
    {"a:\n  b: 1\n c: 2\n", "a.yaml:3:2: expected a key here; check the indentation and the quotes of the lines above",
     false},
    {"a:\n  \u00e4: {b,c}.csv\n",
     "a.yaml:2:11: there is text after the } that ends this value; put the whole value in quotes", false},
    {"a: 'b'c\n", "a.yaml:1:7: there is text after the ' that ends this value; put the whole value in quotes", false},
    {"a: *.csv\n", "a.yaml:1:5: a text that starts with '*' or '&' must be in quotes, as the pattern '*.csv'", false},
    {"a: 1\n...\nb: 2\n", "a.yaml:3:1: text after the end of the document", false},
    {"a: 1\nb\n", "a.yaml:3:1: a ':' is missing after this key", false},
    {"a: \"\\d\"\n", "a.yaml:1:5: an unknown escape; in \"...\" write \\\\ for a backslash, or use '...'", false},
    {"%YAML 1.1\n---\na: 1\n", "a.yaml:1:1: a YAML directive ('%'), which is not accepted; remove the line", false},
    {"a: \xff\n", "a.yaml:1:4: not valid UTF-8; save the file as UTF-8", false},
    {"a: \xc0\xaf\n", "a.yaml:1:4: not valid UTF-8; save the file as UTF-8", false},
    {"# \xc3\xa4\na: \xc3\xa4\xed\xa0\x80\n", "a.yaml:2:5: not valid UTF-8; save the file as UTF-8", false},
    {"a: 1\nb: \x01\n", "a.yaml:2:4: a control character; a config is plain text", false},
    {"- 1\n", "a.yaml:1:1: expected a mapping of sections (such as `sampler: {batch_size: 32}`), got a list", false},
    {"hello\n", "a.yaml:1:1: expected a mapping of sections (such as `sampler: {batch_size: 32}`), got a single value",
     false},
    {"a: &x 1\nb: !t 2\na: 3\n",
     "a.yaml:2:4: a tag ('!'), which is not accepted; put a text that starts with '!' in quotes\n"
     "a.yaml:3:1: duplicate key 'a'; it is also in line 1",
     false},
};

TEST_EACH(mistakes_are_named_at_their_place, mistakes) {
    bool has_tree;
    SCOPED_MEMORY char *text = problems_of(mistakes[_i].yaml, strlen(mistakes[_i].yaml), &has_tree);
    ck_assert_str_eq(text, mistakes[_i].expected);
    ck_assert_int_eq(has_tree, mistakes[_i].has_tree);
}

static bool is_same(const struct node *a, const struct node *b) {
    bool same = a->kind == b->kind && a->count == b->count;
    if (same && a->kind == NODE_SCALAR) same = strcmp(a->text, b->text) == 0;
    for (size_t i = 0; same && i < a->count; i++)
        same = is_same(a->items[i], b->items[i]) && (a->kind != NODE_MAPPING || strcmp(a->keys[i], b->keys[i]) == 0);
    return same;
}

/* The same tree as that of a text without anchors and merge keys; an alias is a copy, which an override changes alone.
 */
TEST(aliases_are_copies) {
    static const struct {
        const char *yaml, *same;
    } cases[] = {
        {"a: &x 1\nb: *x\n", "a: 1\nb: 1\n"},
        {"a: &x [1, {c: 2}]\nb: [*x, *x]\n", "a: [1, {c: 2}]\nb: [[1, {c: 2}], [1, {c: 2}]]\n"},
        {"a: &x 1\nb: &x 2\nc: *x\n", "a: 1\nb: 2\nc: 2\n"},
        {"a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n", "a: {b: 1, c: 2}\nd: {c: 3, b: 1}\n"},
        {"a: &x {b: 1}\nd: &y {b: 2, e: 3}\nf: {<<: [*x, *y], g: 4}\n",
         "a: {b: 1}\nd: {b: 2, e: 3}\nf: {g: 4, b: 1, e: 3}\n"},
        {"a: &x {b: &y {c: 1}}\nd: {<<: *x}\ne: *y\n", "a: {b: {c: 1}}\nd: {b: {c: 1}}\ne: {c: 1}\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct problems problems = {0};
        struct document *one, *other;
        ck_ok(document_parse("a.yaml", cases[i].yaml, strlen(cases[i].yaml), &problems, &one));
        ck_ok(document_parse("a.yaml", cases[i].same, strlen(cases[i].same), &problems, &other));
        ck_assert_uint_eq(problems.count, 0);
        ck_assert_msg(is_same(document_root(one), document_root(other)), "%s", cases[i].yaml);
        document_destroy(one);
        document_destroy(other);
    }
    struct problems problems = {0};
    struct document *document;
    static const char text[] = "a: &x {b: 1}\nc: *x\n";
    ck_ok(document_parse("a.yaml", text, sizeof text - 1, &problems, &document));
    document_override(document, "a.b=2", NULL, &problems);
    ck_assert_uint_eq(problems.count, 0);
    ck_assert_str_eq(node_get(node_get(document_root(document), "c"), "b")->text, "1");
    document_destroy(document);
}

TEST(nul_bytes_are_rejected) {
    bool has_tree;
    SCOPED_MEMORY char *text = problems_of("a: 1\0b: 2\n", 10, &has_tree);
    ck_assert_str_eq(text, "a.yaml:1:5: a NUL character; a config is plain text");
}

TEST(an_empty_file_is_an_empty_mapping) {
    static const char *const empty[] = {"", "\n", "# nothing\n", "---\n", "~\n", "\xef\xbb\xbf"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        struct problems problems = {0};
        struct document *document;
        ck_assert_ptr_null(document_parse("a.yaml", empty[i], strlen(empty[i]), &problems, &document));
        ck_assert_uint_eq(problems.count, 0);
        ck_assert_int_eq(document_root(document)->kind, NODE_MAPPING);
        ck_assert_uint_eq(document_root(document)->count, 0);
        ck_assert_str_eq(document_root(document)->place.file, "a.yaml");
        document_destroy(document);
    }
    document_destroy(NULL);
}

TEST(trees_are_written_in_one_line) {
    static const char yaml[] = "a:\n  b: [1, 'x y', {}]\n  c d: 'x: y'\n  e: []\n";
    struct problems problems = {0};
    struct document *document, *again;
    struct text line = {0}, second = {0};
    ck_assert_ptr_null(document_parse("a.yaml", yaml, sizeof yaml - 1, &problems, &document));
    node_write(document_root(document), &line);
    ck_assert_str_eq(line.data, "{a: {b: [1, \"x y\", {}], \"c d\": \"x: y\", e: []}}");
    ck_assert_ptr_null(document_parse("a.yaml", line.data, line.length, &problems, &again));
    node_write(document_root(again), &second);
    ck_assert_str_eq(second.data, line.data);
    text_free(&line), text_free(&second);
    document_destroy(document), document_destroy(again);
}

TEST(nodes_know_their_place) {
    static const char yaml[] =
        "\xef\xbb\xbf# \xc3\xa4\na: 1\nb:\n  - \"2\"\n  - {c: ~, \xc3\xa4: |\n      text\n    }\r\nd: null\n";
    struct problems problems = {0};
    struct document *document;
    ck_assert_ptr_null(document_parse("a.yaml", yaml, sizeof yaml - 1, &problems, &document));
    ck_assert_ptr_null(document); /* a block scalar is not allowed in braces */
    problems_free(&problems);

    static const char good[] =
        "# \xc3\xa4\na: 1\nb:\n  - \"2\"\n  - {\xc3\xa4: ~, c: x}\nd: null\ne: ''\nf: |\n  text\n";
    ck_assert_ptr_null(document_parse("a.yaml", good, sizeof good - 1, &problems, &document));
    ck_assert_uint_eq(problems.count, 0);
    const struct node *root = document_root(document), *b = node_get(root, "b");
    ck_assert_uint_eq(root->count, 5);
    ck_assert_int_eq(root->key_places[1].line, 3);
    ck_assert_int_eq(root->key_places[1].column, 1);
    ck_assert_int_eq(node_get(root, "a")->place.column, 4);
    ck_assert(!node_get(root, "a")->is_quoted);
    ck_assert_int_eq(b->kind, NODE_SEQUENCE);
    ck_assert(b->items[0]->is_quoted);
    ck_assert_int_eq(b->items[1]->key_places[1].line, 5);
    ck_assert_int_eq(b->items[1]->key_places[1].column, 12);
    ck_assert(node_is_null(node_get(b->items[1], "\xc3\xa4")));
    ck_assert(node_is_null(node_get(root, "d")));
    ck_assert(!node_is_null(node_get(root, "e")));
    ck_assert_str_eq(node_get(root, "f")->text, "text\n");
    ck_assert(node_get(root, "f")->is_quoted);
    ck_assert_ptr_null(node_get(root, "g"));
    ck_assert_ptr_null(node_get(NULL, "g"));
    document_destroy(document);
}

/* ---- overrides ---- */

static void add_tree(const struct node *node, struct text *out) {
    if (node->kind == NODE_SCALAR) {
        text_add(out, node->text);
        return;
    }
    text_add(out, node->kind == NODE_MAPPING ? "{" : "[");
    for (size_t i = 0; i < node->count; i++) {
        text_printf(out, "%s", i ? ", " : "");
        if (node->kind == NODE_MAPPING) text_printf(out, "%s: ", node->keys[i]);
        add_tree(node->items[i], out);
    }
    text_add(out, node->kind == NODE_MAPPING ? "}" : "]");
}

static const struct {
    const char *yaml, *assignment, *expected; /* the tree, or the problem */
} overrides[] = {
    {"a: 1", "a=2", "{a: 2}"},
    {"a: 1", "b=2", "{a: 1, b: 2}"},
    {"", "a.b.c=0.1", "{a: {b: {c: 0.1}}}"},
    {"a: {b: 1}", "a.c=[1, {x: 2}]", "{a: {b: 1, c: [1, {x: 2}]}}"},
    {"a:", "a.b=1", "{a: {b: 1}}"},
    {"loss: mse", "loss.smoothing=0.1", "{loss: {type: mse, smoothing: 0.1}}"},
    {"loss: mse", "loss.type=l1", "{loss: {type: l1}}"},
    {"l: [{linear: {out: 3}}, relu]", "l.0.linear.out=9", "{l: [{linear: {out: 9}}, relu]}"},
    {"l: [linear]", "l.0.linear.out=9", "{l: [{linear: {out: 9}}]}"},
    {"l: [1, 2]", "l.1={a: b}", "{l: [1, {a: b}]}"},
    {"a: 1", "a=x=y", "{a: x=y}"},
    {"a: 1", "a=", "{a: }"},
    {"a: 1", "a", "argument 'a': expected KEY=VALUE, such as optimizer.lr=0.01"},
    {"a: 1", "=1", "argument '=1': expected KEY=VALUE with a dotted key, such as optimizer.lr=0.01"},
    {"a: 1", "a..b=1", "argument 'a..b=1': expected KEY=VALUE with a dotted key, such as optimizer.lr=0.01"},
    {"a: 1", "a.b=1", "argument 'a.b=1': 'a' is the value '1', which has no keys; write a={b: ...}"},
    {"a: true", "a.b=1", "argument 'a.b=1': 'a' is the value 'true', which has no keys; write a={b: ...}"},
    {"l: [1, 2]", "l.2=1", "argument 'l.2=1': 'l' is a list with the entries 0 to 1; '2' is none of them"},
    {"l: [1, 2]", "l.x=1", "argument 'l.x=1': 'l' is a list with the entries 0 to 1; 'x' is none of them"},
    {"l: []", "l.0=1", "argument 'l.0=1': 'l' is an empty list"},
    {"a: {b: {l: [1]}}", "a.b.l.5=1",
     "argument 'a.b.l.5=1': 'a.b.l' is a list with the entries 0 to 0; '5' is none of them"},
    {"a: {b: x-y}", "a.b.c=1", "argument 'a.b.c=1': 'a.b' is the value 'x-y', which has no keys; write a.b={c: ...}"},
    {"a: x_1", "a.b=1", "{a: {type: x_1, b: 1}}"},
    {"a: {b.c: 1}", "a.b.c=2", "{a: {b.c: 2}}"}, /* a key may have dots */
    {"a: {b.c: {d: 1}}", "a.b.c.d=2", "{a: {b.c: {d: 2}}}"},
    {"a: {b: {c: 1}, b.c: {d.e: 1}}", "a.b.c.d.e=2", "{a: {b: {c: 1}, b.c: {d.e: 2}}}"},
    {"a: {b.c: 1}", "a.b.d=2", "{a: {b.c: 1, b: {d: 2}}}"},
    {"a: {b.c: [1]}", "a.b.c.1=2",
     "argument 'a.b.c.1=2': 'a.b.c' is a list with the entries 0 to 0; '1' is none of them"},
    {"a: 1", "a={b", "argument 'a={b': expected ',' or '}' here; a '{' is not closed"},
    {"a: 1", "a={b: 1, b: 2}", "argument 'a={b: 1, b: 2}': duplicate key 'b'"},
    {"a: 1", "a=*x", "argument 'a=*x': an alias ('*'), which is not accepted; write the value out"},
    {"a: 1", "a={b,c}.csv",
     "argument 'a={b,c}.csv': there is text after the } that ends this value; put the whole value in quotes"},
    {"a: 1", "a=[bc].csv",
     "argument 'a=[bc].csv': there is text after the ] that ends this value; put the whole value in quotes"},
    {"a: 1", "a=\x1b[31m", "argument 'a=\\x1b[31m': a control character; a config is plain text"},
    {"a: 1", "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a=1",
     "argument 'a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a....': the key has more than 32 steps"},
};

TEST_EACH(overrides_change_the_tree, overrides) {
    struct problems problems = {0};
    struct document *document;
    ck_assert_ptr_null(document_parse("a.yaml", overrides[_i].yaml, strlen(overrides[_i].yaml), &problems, &document));
    struct document *copy = document_copy(document);
    struct text text = {0}, before = {0}, after = {0};
    add_tree(document_root(document), &before);
    document_override(copy, overrides[_i].assignment, NULL, &problems);
    status s = problems_status(&problems, STATUS_USAGE);
    if (s)
        text_add(&text, status_message(s));
    else
        add_tree(document_root(copy), &text);
    ck_assert_str_eq(text_string(&text), overrides[_i].expected);
    add_tree(document_root(document), &after); /* the tree that was copied is as before */
    ck_assert_str_eq(text_string(&after), text_string(&before));
    text_free(&text), text_free(&before), text_free(&after);
    document_destroy(copy);
    status_free(s);
    problems_free(&problems);
    document_destroy(document);
}

TEST(overrides_are_read_as_files_are) {
    static const char *const words[] = {"1",        "0.001",        "1e-05",        "true",
                                        "null",     "a-b",          "a.b",          "x+y",
                                        "1--",      "0_1",          "a..",          "[0.9, 0.999]",
                                        "[1]",      "{a: 1, b: x}", "{type: null}", "[]",
                                        "-1",       ".5",           "+2",           "~",
                                        "x y",      "'1'",          "a:b",          "1 # x",
                                        "[a,b]",    "[a, ]",        "[a,  b]",      "[ a]",
                                        "[a ]",     "{}",           "{a: 1, a: 2}", "{a:1}",
                                        "{a: }",    "{a: 1,b: 2}",  "{null: 1}",    "{1: 2}",
                                        "[a, [b]]", "{a: [1]}",     "[a b]",        "[a , b]",
                                        "[a, b",    "{a, b: 1}",    "{a: 1, b}",    "[a: 1]",
                                        "['1', 2]"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct problems problems = {0};
        struct document *documents[2];
        struct text text = {0}, word = {0};
        text_printf(&text, "a: %s\n", words[i]);
        text_printf(&word, "a=%s", words[i]);
        ck_assert_ptr_null(document_parse("a.yaml", text_string(&text), text.length, &problems, &documents[0]));
        ck_assert_ptr_null(document_parse("a.yaml", "{}", 2, &problems, &documents[1]));
        document_override(documents[1], text_string(&word), NULL, &problems);
        const struct node *of_file = documents[0] ? node_get(document_root(documents[0]), "a") : NULL;
        const struct node *of_word = node_get(document_root(documents[1]), "a");
        if (of_file && of_word) {
            ck_assert_int_eq(of_word->kind, of_file->kind);
            ck_assert_int_eq(of_word->is_quoted, of_file->is_quoted);
            text_clear(&text), text_clear(&word);
            add_tree(of_file, &text), add_tree(of_word, &word);
            ck_assert_str_eq(text_string(&word), text_string(&text));
        }
        ck_assert_msg(!of_word == !of_file, "%s", words[i]);
        ck_assert_msg(of_word || i > 15, "%s", words[i]);
        text_free(&text), text_free(&word);
        problems_free(&problems);
        document_destroy(documents[0]), document_destroy(documents[1]);
    }
}

TEST(overridden_nodes_have_the_arguments_place) {
    struct problems problems = {0};
    struct document *document;
    ck_assert_ptr_null(document_parse("a.yaml", "a: 1", 4, &problems, &document));
    document_override(document, "b.c=[1]", NULL, &problems);
    const struct node *root = document_root(document), *c = node_get(node_get(root, "b"), "c");
    ck_assert_str_eq(root->key_places[1].file, "argument 'b.c=[1]'");
    ck_assert_int_eq(root->key_places[1].line, 0);
    ck_assert_str_eq(c->items[0]->place.file, "argument 'b.c=[1]'");
    ck_assert_int_eq(c->items[0]->place.line, 0);
    document_destroy(document);
}

/* ---- problems ---- */

TEST(problems_are_sorted_and_bounded) {
    struct problems problems = {0};
    ck_assert_ptr_null(problems_status(&problems, STATUS_USAGE));
    problems_add(&problems, (struct place){"argument 'x=1'", 0, 0}, "x", "fourth");
    problems_add(&problems, (struct place){"a", 2, 1}, "k", "third");
    problems_add(&problems, (struct place){"a", 1, 9}, NULL, "second");
    problems_add(&problems, (struct place){"a", 1, 2}, "", "first %d", 1);
    problems_add(&problems, (struct place){"argument 'a=1'", 0, 0}, "x", "fif\nth \xc3\xa4\x7f\xc2\x85\xff");
    problems_add(&problems, (struct place){"a", 0, 0}, NULL, "zeroth");
    status s = problems_status(&problems, STATUS_DATA);
    ck_assert_str_eq(status_message(s),
                     "a: zeroth\na:1:2: first 1\na:1:9: second\na:2:1: k: third\n"
                     "argument 'x=1': x: fourth\nargument 'a=1': x: fif\\x0ath \xc3\xa4\\x7f\\x85\\xff");
    ck_assert_int_eq(status_code(s), STATUS_DATA);
    status_free(s);
    for (int i = 0; i < 200; i++) problems_add(&problems, (struct place){"a", 3, 1}, NULL, "more");
    s = problems_status(&problems, STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(status_message(s), "\n... and 106 more"));
    status_free(s);
    problems_free(&problems);
    ck_assert_uint_eq(problems.count, 0);
}

/* ---- files ---- */

TEST(files_are_read) {
    char *folder = make_folder(), *path = path_in(folder, "c.yaml"), *missing = path_in(folder, "missing.yaml");
    struct problems problems = {0};
    struct document *document;
    spill(path, "a: 1\n", 5);
    ck_assert_ptr_null(document_read(path, &problems, &document));
    ck_assert_str_eq(node_get(document_root(document), "a")->text, "1");
    ck_assert_str_eq(document_root(document)->place.file, path);
    document_destroy(document);

    char *unreadable[] = {missing, folder};
    static const char *const reasons[] = {"No such file or directory", "Is a directory"};
    for (int i = 0; i < 2; i++) {
        status s = document_read(unreadable[i], &problems, &document);
        ck_assert_int_eq(status_code(s), STATUS_USAGE);
        ck_assert_ptr_nonnull(strstr(status_message(s), unreadable[i]));
        ck_assert_ptr_nonnull(strstr(status_message(s), reasons[i]));
        ck_assert_ptr_null(document);
        status_free(s);
    }
    ck_assert_uint_eq(problems.count, 0);
    ck_assert_ptr_null(document_read("/dev/zero", &problems, &document)); /* endless */
    status s = problems_status(&problems, STATUS_USAGE);
    ck_assert_str_eq(status_message(s), "/dev/zero: larger than 1 MiB, the maximum for a config");
    status_free(s);
    problems_free(&problems);
    free(missing);
    free(path);
    remove_folder(folder);
}

/* ---- hostile input ---- */

/* [head] once, [body] as often as it fits into [size] bytes before [tail]. */
static char *repeated(const char *head, const char *body, const char *tail, size_t size) {
    char *bytes = malloc(size + 1);
    size_t used = strlen(head), end = strlen(tail), step = strlen(body);
    memcpy(bytes, head, used);
    for (; used + step + end <= size; used += step) memcpy(bytes + used, body, step);
    memcpy(bytes + used, tail, end + 1);
    return bytes;
}

static char *blanks_between(const char *head, char blank, size_t count, const char *body, const char *tail) {
    struct text start = {0};
    text_add(&start, head);
    for (size_t i = 0; i < count; i++) text_add_bytes(&start, &blank, 1);
    char *bytes = repeated(text_string(&start), body, tail, DOCUMENT_MAX_BYTES);
    text_free(&start);
    return bytes;
}

#define TOO_DEEP "nested deeper than 32 levels"
#define TOO_MANY "more than 65536 keys and values"
#define TOO_BLANK "more than 1024 spaces or empty lines in a row"

static const struct {
    const char *head, *body, *tail, *expected; /* expected: part of the problems; "": none */
    char blank;                                /* after head, [blanks] of them */
    size_t blanks;
} monsters[] = {
    {"", "[", "", "a.yaml:1:33: " TOO_DEEP, 0, 0},
    {"", "{a: ", "", "a.yaml:1:129: " TOO_DEEP, 0, 0},
    {"", "{", "", "a key must be a text", 0, 0},
    {"a: ", "[\n", "", TOO_DEEP, 0, 0},
    {"", "- ", "", "a.yaml:1:65: " TOO_DEEP, 0, 0},
    {"", "? ", "", "a key must be a text", 0, 0},
    {"? ", "[", "", TOO_DEEP, 0, 0},
    {"<<: ", "[", "", TOO_DEEP, 0, 0},
    {"a: [", "a,", "]", TOO_MANY, 0, 0},
    {"a: [", "{},", "]", TOO_MANY, 0, 0},
    {"a: {", "? ,", "}", "a key is empty", 0, 0},
    {"a: 1\n", "a: 1\n", "", TOO_MANY, 0, 0},
    {"a: 1\n", "%TAG !a! b\n", "", "a YAML directive", 0, 0},
    {"a: 1\n...\n", "%TAG !a! b\n", "", "a YAML directive", 0, 0},
    {"a: ", "&a ", "", "expected a key here", 0, 0},
    {"a: [", "&a 1,", "]", "more than 1024 anchors", 0, 0},
    {"a: ", "!a ", "", "a tag", 0, 0},
    {"a: [", "*a,", "]", "there is no value with the anchor '&a' above", 0, 0},
    {"a: &a [1]\nb: [", "*a,", "]", TOO_MANY, 0, 0},
    {"a: &a [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c "
     "[*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: [",
     "*c,", "]", TOO_MANY, 0, 0},
    {"a: \"", "\\n", "\"", "", 0, 0},
    {"a: \"", "x ", "\"", "", 0, 0},
    {"a: \"", "x \n ", "\"", "", 0, 0},
    {"a: '", "''", "'", "", 0, 0},
    {"a: ", "x ", "", "", 0, 0},
    {"a: ", "x\n\n ", "", "", 0, 0},
    {"a: |\n", " x\n\n", "", "", 0, 0},
    {"a: >\n", " x\n\n", "", "", 0, 0},
    {"", "#\n", "", "", 0, 0},
    {"", "#\n", "", "", '\n', 1024},
    {"", "#\n", "", TOO_BLANK, '\n', 1025},
    {"", "---\n", "", "a second document", 0, 0},
    {"", "...\n", "", "expected a value here", 0, 0},
    {"", "\xc2\x85", "", TOO_BLANK, 0, 0},
    {"", "\r", "", TOO_BLANK, 0, 0},
    {"", "a", "", "got a single value", 0, 0},
    {"", "\"a\": ", "", "a ':' is not allowed here", 0, 0},
    {"", "a: ", "", "a ':' is not allowed here", 0, 0},
    {"a: x", "y ", "", "", ' ', 1000},
    {"a: x", "y ", "", TOO_BLANK, ' ', 2000},
    {"a: x", " y\n", "", "", '\n', 1000},
    {"a: x", " y\n", "", TOO_BLANK, '\n', 2000},
    {"a: |", " y\n", "", "", '\n', 1000},
    {"a: >", " y\n", "", "", '\n', 1000},
    {"a: \"", "y ", "\"", "", ' ', 1000},
};

/* KiB */
static long peak_memory(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* Any input of 1 MiB is handled within seconds; libyaml alone takes minutes for some of these. */
TEST_EACH(a_megabyte_of_anything_is_handled_at_once, monsters) {
    SCOPED_MEMORY char *bytes =
        monsters[_i].blanks ? blanks_between(monsters[_i].head, monsters[_i].blank, monsters[_i].blanks,
                                             monsters[_i].body, monsters[_i].tail)
                            : repeated(monsters[_i].head, monsters[_i].body, monsters[_i].tail, DOCUMENT_MAX_BYTES);
    bool has_tree;
    long memory = peak_memory();
    double start = cpu_seconds();
    SCOPED_MEMORY char *text = problems_of(bytes, strlen(bytes), &has_tree);
    double seconds = cpu_seconds() - start;
    memory = peak_memory() - memory;
    if (*monsters[_i].expected || !has_tree)
        ck_assert_msg(*monsters[_i].expected && strstr(text, monsters[_i].expected), "monster %d: %.300s", _i, text);
    else
        ck_assert_str_eq(text, "");
    const char *sanitizer = getenv("DDPTRAIN_SANITIZER"); /* sanitizers need more memory */
    bool is_sanitized = sanitizer && *sanitizer;
    ck_assert_msg(seconds < 5, "monster %d took %g s", _i, seconds);
    if (!is_sanitized) ck_assert_msg(memory <= 16 << 10, "monster %d took %ld KiB", _i, memory);
}

TEST(more_than_a_megabyte_is_not_parsed) {
    SCOPED_MEMORY char *bytes = repeated("", "a", "", DOCUMENT_MAX_BYTES + 1);
    bool has_tree;
    SCOPED_MEMORY char *text = problems_of(bytes, strlen(bytes), &has_tree);
    ck_assert_str_eq(text, "a.yaml: larger than 1 MiB, the maximum for a config");
}

TEST(thirty_two_levels_are_fine) {
    char yaml[200] = "";
    for (int i = 0; i < DOCUMENT_MAX_DEPTH; i++) strcat(yaml, "{a: ");
    strcat(yaml, "1");
    for (int i = 0; i < DOCUMENT_MAX_DEPTH; i++) strcat(yaml, "}");
    bool has_tree;
    SCOPED_MEMORY char *text = problems_of(yaml, strlen(yaml), &has_tree);
    ck_assert_str_eq(text, "");
    ck_assert(has_tree);
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Every sentence is one line that starts with the file's name. */
static void check_sentences(const char *text) {
    for (const char *line = text; line && *line;) {
        ck_assert_msg(strncmp(line, "a.yaml:", 7) == 0 || strncmp(line, "... and ", 8) == 0, "%s", text);
        line = strchr(line, '\n');
        if (line) line++;
    }
}

TEST(random_bytes_do_no_harm) {
    static const char alphabet[] = "{}[]:,-?!&*|>'\"%@`# \n\n\t\r~<=abc019._\\xu\x85\xc2\xe2";
    uint64_t state = 42;
    double start = cpu_seconds();
    for (int round = 0; round < 6000; round++) {
        char bytes[256];
        size_t size = next_random(&state) % sizeof bytes;
        for (size_t i = 0; i < size; i++) {
            uint64_t r = next_random(&state);
            bytes[i] = round % 3 == 0 ? (char)(r >> 8) : alphabet[(r >> 8) % (sizeof alphabet - 1)];
        }
        bool has_tree;
        SCOPED_MEMORY char *text = problems_of(bytes, size, &has_tree);
        ck_assert(has_tree || *text);
        check_sentences(text);
    }
    ck_assert(cpu_seconds() - start < 30);
}

CHECK_MAIN("document")
