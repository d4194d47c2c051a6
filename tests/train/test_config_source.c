/* A config of a source is the one that config_load reads, and none of them changes the others. ctest-labels: unit */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "check_main.h"
#include "train/config/config.h"

#define PATH SOURCE_DIR "/configs/wine_mlp.yaml"

/* The config as YAML, or the error. */
static char *written(status s, struct config_file *file) {
    struct text out = {0};
    if (s)
        text_add(&out, status_message(s));
    else
        schema_write_yaml(&config_schema, config_of(file), &out);
    status_free(s);
    config_free(file);
    return out.data;
}

TEST(loads_as_the_file_does) {
    static char *words[][2] = {{"optimizer.lr=0.5", "train.epochs=3"},
                               {"optimizer={type: sgd, momentum: 0.9}", "model.layers.0.linear.out=7"},
                               {"dataset.path=datasets/wine.csv", "dataset.targets=class"},
                               {"optimizer.lr=x", "no.such.key=1"},
                               {"dataset.path=datasets/none.h5", "dataset.format=hdf5"},
                               {"optimizer.lr=0.25", "name=other"}};
    size_t count = sizeof words / sizeof *words;
    struct config_source *source;
    ck_assert_ptr_null(config_source_open(PATH, &source));
    for (size_t i = 0; i < 3 * count; i++) {
        struct config_file *files[2];
        char *const *two = words[i * 5 % count];
        status a = config_load(PATH, two, i % 3, &files[0]), b = config_source_load(source, two, i % 3, &files[1]);
        SCOPED_MEMORY char *expected = written(a, files[0]), *got = written(b, files[1]);
        ck_assert_str_eq(got, expected);
    }
    config_source_close(source);
}

TEST(a_missing_file_is_reported) {
    struct config_source *source;
    status s = config_source_open("none/such.yaml", &source);
    ck_assert_int_eq(status_code(s), STATUS_USAGE);
    ck_assert_ptr_null(source);
    ck_assert_ptr_nonnull(strstr(status_message(s), "cannot read config 'none/such.yaml'"));
    status_free(s);
}

/* A text is read again unless it differs from the last one in numbers alone. */
TEST(a_written_config_is_read_again) {
    static const struct {
        const char *text;
        bool is_right;
    } cases[] = {
        {"optimizer: {type: sgd, lr: 0.1}\n", true},     {"optimizer: {type: sgd, lr: 0.25}\n", true},
        {"optimizer: {type: sgd, lr: 1e-05}\n", true},   {"optimizer: {type: sgd, lr: 1x}\n", false},
        {"optimizer: {type: sgd, lr: 0.1, 7}\n", false}, {"optimizer: {type: sgd, lr: 0.1}\n", true},
        {"optimizer: {type: sgd, lr: [0.1}\n", false},   {"optimizer: {type: sgd, lr: 0.1]\n", false},
        {"optimizer: {type: sgd, lr: }\n", false},       {"optimizer: {type: sgd, 0.1: 0.1}\n", false},
        {"optimizer: {type: sgd, lr: 0.3}\n", true},     {"optimizer: {type: no, lr: 0.3}\n", false},
    };
    static const char rest[] = "dataset: {path: a.csv}\nmodel: {layers: [{linear: {out: 3}}]}\nloss: mse\n"
                               "train: {epochs: 1}\n";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SCOPED_TEXT text = {0};
        text_printf(&text, "%s%s", cases[i].text, rest);
        status s = config_check_written(text_string(&text));
        ck_assert_msg(!s == cases[i].is_right, "%s: %s", cases[i].text, s ? status_message(s) : "could be read");
        status_free(s);
    }
}

CHECK_MAIN("config_source")
