/* Aliases: where a word applies, and which key of a place it refers to. That every alias of the config names something
 * is in train/test_config_aliases.c. ctest-labels: unit */
#include "base/schema/schema_internal.h"
#include "check_main.h"

TEST(words_are_compared_loosely) {
    static const struct {
        const char *word, *known;
        bool is_same;
    } cases[] = {{"relu", "relu", true},
                 {"ReLU", "relu", true},
                 {"nn.ReLU", "relu", true},
                 {"torch.nn.ReLU()", "relu", true},
                 {"batch-norm", "batch_norm", true},
                 {"BatchNorm", "batch_norm", true},
                 {"batch norm", "batch_norm", true},
                 {"relu6", "relu", false},
                 {"rel", "relu", false},
                 {"", "relu", false},
                 {"()", "relu", false},
                 {"__relu__", "relu", true},
                 {"0.5relu", "relu", false},
                 {"nn.relu(a.tanh)", "relu", true},
                 {"nn.", "nn", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(alias_is_same(cases[i].word, cases[i].known) == cases[i].is_same, "%s", cases[i].word);
}

static const struct schema_alias last_table[] = {
    {.kind = ALIAS_KEY, .place = "", .names = "epochs", .meant = "third"},
    {.kind = ALIAS_KEY, .place = "", .names = "later", .meant = "train.steps"},
    {0},
};
static const struct schema_alias empty_table[] = {{0}};
static const struct schema_alias aliases[] = {
    {.kind = ALIAS_VALUE, .place = "layer", .names = "dense fc", .meant = "linear"},
    {.kind = ALIAS_KEY, .place = "layer.*", .names = "units", .meant = ".out"},
    {.kind = ALIAS_KEY, .place = "layer.conv2d", .names = "filters", .meant = ".out"},
    {.kind = ALIAS_VALUE, .place = "*.padding", .names = "none", .meant = "valid"},
    {.kind = ALIAS_KEY, .names = "anywhere", .meant = "train.epochs"},
    {.kind = ALIAS_KEY, .place = "", .names = "epochs max_epochs", .meant = "train.epochs"},
    {.kind = ALIAS_KEY, .place = "", .names = "epochs", .meant = "second"},
    {0},
};
static const struct schema_alias *table_at(size_t index) {
    static const struct schema_alias *const tables[] = {aliases, empty_table, last_table};
    return index < sizeof tables / sizeof *tables ? tables[index] : NULL;
}

static const struct schema schema = {.name = "s", .alias_table = table_at};

TEST(an_alias_has_its_place) {
    static const struct {
        enum alias_kind kind;
        const char *place, *word;
        int found; /* -1: none */
    } cases[] = {{ALIAS_VALUE, "layer", "Dense", 0},
                 {ALIAS_VALUE, "layer", "nn.FC(3)", 0},
                 {ALIAS_VALUE, "layer", "dense fc", -1},
                 {ALIAS_VALUE, "layers", "dense", -1},
                 {ALIAS_VALUE, "laye", "dense", -1},
                 {ALIAS_KEY, "layer", "dense", -1},
                 {ALIAS_VALUE, "layer", "", -1},
                 {ALIAS_KEY, "layer.linear", "units", 1},
                 {ALIAS_KEY, "layer.", "units", 1},
                 {ALIAS_KEY, "layer", "units", -1},
                 {ALIAS_KEY, "player.linear", "units", -1},
                 {ALIAS_KEY, "layer.conv2d", "filters", 2},
                 {ALIAS_KEY, "layer.conv1d", "filters", -1},
                 {ALIAS_VALUE, "layer.conv2d.padding", "None", 3},
                 {ALIAS_VALUE, "a.padding", "none", 3},
                 {ALIAS_VALUE, ".padding", "none", -1},
                 {ALIAS_VALUE, "padding", "none", -1},
                 {ALIAS_VALUE, "layer.padding.x", "none", -1},
                 {ALIAS_KEY, "", "anywhere", -1}, /* of any place: alias_of_key alone asks for these */
                 {ALIAS_KEY, "", "max-epochs", 5},
                 {ALIAS_KEY, "", "epochs", 5},
                 {ALIAS_KEY, "train", "epochs", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct schema_alias *found = alias_find(&schema, cases[i].kind, cases[i].place, cases[i].word);
        ck_assert_msg(found == (cases[i].found < 0 ? NULL : &aliases[cases[i].found]), "'%s' at '%s'", cases[i].word,
                      cases[i].place);
    }
    ck_assert_ptr_eq(alias_find(&schema, ALIAS_KEY, "", "later"), &last_table[1]);
    ck_assert_ptr_null(alias_find(&schema, ALIAS_KEY, "", "nowhere"));
    ck_assert_ptr_null(alias_find(NULL, ALIAS_KEY, "", "epochs"));
    ck_assert_ptr_null(alias_find(&(struct schema){.name = "s"}, ALIAS_KEY, "", "epochs"));
}

/* Only a key of the place itself, not of one inside or beside it. */
TEST(the_key_of_a_place) {
    static const struct {
        const char *meant, *place, *key;
    } cases[] = {{".out", "layer.linear", "out"},
                 {".out", "", "out"},
                 {"train.epochs", "train", "epochs"},
                 {"train.stop.patience", "train.stop", "patience"},
                 {"train.stop.patience", "train", NULL},
                 {"train.epochs", "trai", NULL},
                 {"training.epochs", "train", NULL},
                 {"train.epochs", "test", NULL},
                 {"train", "train", NULL},
                 {NULL, "train", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct schema_alias alias = {.kind = ALIAS_KEY, .meant = cases[i].meant};
        const char *key = alias_key_of_place(&alias, cases[i].place);
        ck_assert_msg((key == NULL) == (cases[i].key == NULL) && (!key || strcmp(key, cases[i].key) == 0),
                      "%s at %s: %s", cases[i].meant, cases[i].place, key ? key : "none");
    }
}

/* Without the indices of lists; a type of a keyed table has its kind's. */
TEST(the_place_of_a_scope) {
    static const struct schema_variants keyed = {.what = "layer", .is_keyed = true}, plain = {.what = "optimizer"};
    static const struct {
        struct key_scope scope;
        const char *place;
    } cases[] = {{{.path = ""}, ""},
                 {{.path = "train"}, "train"},
                 {{.path = "optimizer.groups.0.match"}, "optimizer.groups.match"},
                 {{.path = "a.10"}, "a"},
                 {{.path = "a.1b.2.c3"}, "a.1b.c3"},
                 {{.path = "0"}, ""},
                 {{.path = "model.layers.3.linear", .variants = &keyed, .type = "linear"}, "layer.linear"},
                 {{.path = "optimizer", .variants = &plain, .type = "adam"}, "optimizer"}};
    SCOPED_ARENA arena = arena_create();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_str_eq(alias_place(&cases[i].scope, arena), cases[i].place);
}

CHECK_MAIN("schema aliases")
