/* metrics.jsonl: the lines before a checkpoint are on disk, and truncated lines are removed. ctest-labels: unit */
#include "train/metrics/metrics.h"

#include "base/fault.h"
#include "check_main.h"
#include "files.h"

static void note_sync(void *context, enum fault_call call, const char *path) {
    if (call == CALL_SYNC && strstr(path, "metrics.jsonl")) ++*(int *)context;
}

static void add_line(struct metrics *metrics, int64_t step) {
    metrics_begin(metrics, METRICS_STEP);
    metrics_step(metrics, step);
    ck_ok(metrics_end(metrics));
}

/* A checkpoint contains the size of the file: after a power loss the file must be that long. */
TEST(a_checkpoint_has_its_lines) {
    char *folder = make_folder(), *path = path_in(folder, "metrics.jsonl");
    struct metrics *metrics;
    int syncs = 0;
    int64_t bytes;
    ck_ok(metrics_open(path, 0, &metrics));
    add_line(metrics, 1);
    fault_set(&(struct fault){.kind = FAULT_NONE, .watch = note_sync, .context = &syncs});
    ck_ok(metrics_flush(metrics, &bytes));
    ck_assert_int_eq(syncs, 0);
    ck_ok(metrics_sync(metrics));
    ck_assert_int_eq(syncs, 1);
    ck_ok(metrics_sync(metrics)); /* there is nothing new */
    ck_assert_int_eq(syncs, 1);
    ck_ok(metrics_rewind(metrics, 0, 0));
    add_line(metrics, 1); /* as many bytes as before */
    ck_ok(metrics_flush(metrics, &bytes));
    ck_ok(metrics_sync(metrics));
    fault_set(NULL);
    ck_assert_int_eq(syncs, 2);
    add_line(metrics, 2);
    ck_ok(metrics_close(metrics));
    size_t size;
    char *text = slurp(path, &size);
    ck_assert_int_lt(bytes, (int64_t)size);
    ck_assert_int_eq(text[bytes - 1], '\n');
    free(text);

    ck_ok(metrics_open(path, bytes, &metrics));
    add_line(metrics, 3);
    ck_ok(metrics_close(metrics));
    text = slurp(path, &size);
    ck_assert(strstr(text, "\"step\":1") && !strstr(text, "\"step\":2") && strstr(text, "\"step\":3"));
    free(text);
    free(path);
    remove_folder(folder);
}

TEST(a_failing_disk_is_reported) {
    char *folder = make_folder(), *path = path_in(folder, "metrics.jsonl");
    struct metrics *metrics;
    int64_t bytes;
    ck_ok(metrics_open(path, 0, &metrics));
    for (int64_t at = 1; at <= 2; at++) { /* the write, the sync */
        add_line(metrics, at);
        fault_set(&(struct fault){.kind = FAULT_EIO, .at = at});
        status s = metrics_flush(metrics, &bytes);
        if (!s) s = metrics_sync(metrics);
        fault_set(NULL);
        ck_failure(s, STATUS_IO, "metrics.jsonl");
    }
    ck_ok(metrics_close(metrics));
    free(path);
    remove_folder(folder);
}

/* Only a complete last line is used. */
TEST(the_last_event) {
    char *folder = make_folder(), *path = path_in(folder, "metrics.jsonl"), longer[5000];
    bool is_last = true;
    ck_ok(metrics_ends_with(path, METRICS_END, &is_last)); /* no such file */
    ck_assert(!is_last);
    snprintf(longer, sizeof longer, "{\"event\":\"step\"%4500s}\n{\"event\":\"end\"}\n", "");
    static const char *const texts[][2] = {{"", ""},
                                           {"\n", ""},
                                           {"{\"event\":\"end\"}\n", "end"},
                                           {"{\"event\":\"end\"}", ""},
                                           {"{\"event\":\"end\"}\n{\"event\":\"start\"}\n", "start"},
                                           {"{\"event\":\"end\"}\n{\"event\":\"start\"", ""},
                                           {"{\"event\":\"ends\"}\n", "ends"},
                                           {NULL, "end"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = texts[i][0] ? texts[i][0] : longer;
        spill(path, text, strlen(text));
        ck_ok(metrics_ends_with(path, METRICS_END, &is_last));
        ck_assert_msg(is_last == (strcmp(texts[i][1], "end") == 0), "'%s'", text);
        ck_ok(metrics_ends_with(path, METRICS_START, &is_last));
        ck_assert_msg(is_last == (strcmp(texts[i][1], "start") == 0), "'%s'", text);
    }
    free(path);
    remove_folder(folder);
}

/* An incomplete last line hides no complete one. */
TEST(the_newest_complete_lines) {
    char *folder = make_folder(), *path = path_in(folder, "metrics.jsonl");
#define STEP "{\"event\":\"step\",\"step\":7}\n"
#define EPOCH "{\"event\":\"epoch\",\"epoch\":3}\n"
#define END "{\"event\":\"end\",\"epoch\":3}\n"
    static const struct {
        const char *text, *step, *epoch, *other;
        bool is_other_last;
    } files[] = {{STEP EPOCH, STEP, EPOCH, EPOCH, true},
                 {STEP EPOCH "{\"event\":\"step\",\"st", STEP, EPOCH, EPOCH, false},
                 {STEP EPOCH "{\"event\":\"epoch\",\"epoch\":4", STEP, EPOCH, EPOCH, false},
                 {STEP EPOCH END "{\"ev", STEP, EPOCH, END, false},
                 {STEP "{\"event\":\"epoch\"", STEP, NULL, NULL, false},
                 {"{\"event\":\"epoch\",\"epoch\":4}", NULL, NULL, NULL, false}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct metrics_lines lines;
        spill(path, files[i].text, strlen(files[i].text));
        ck_ok(metrics_read(path, &lines));
        ck_assert_pstr_eq(lines.step, files[i].step);
        ck_assert_pstr_eq(lines.epoch, files[i].epoch);
        ck_assert_pstr_eq(lines.other, files[i].other);
        ck_assert_int_eq(lines.is_other_last, files[i].is_other_last);
        metrics_lines_free(&lines);
    }
    free(path);
    remove_folder(folder);
}

CHECK_MAIN("metrics")
