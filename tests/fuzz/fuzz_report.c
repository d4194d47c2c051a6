/* Any bytes as the files of a run's or a sweep's folder, which `report`, `runs` and `watch` read: metrics.jsonl and
 * config.yaml, or history.jsonl and sweep.yaml. They become a page, a table and lines, or are rejected with a sentence;
 * no text of theirs becomes an HTML element or a control character. A file that grows says the same as a whole one.
 *
 * The first byte chooses: bit 0 a sweep, bit 1 the page, the others where the growing file is cut. Then the two files,
 * with a NUL between them. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/document/document.h"
#include "report/report_page.h"
#include "report/run_data.h"
#include "report/sweep_data.h"
#include "sweep/sweep_folder.h"
#include "sweep/trials.h"
#include "train/folder/run_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static char folder[256]; /* of this process: runs/run and sweep; "": not made yet */

static struct {
    const char *bytes;
    size_t size;
} yaml; /* of the folder that is read */

/* Without a file and its buffer of 1 MiB, which the sanitizer maps and unmaps each time. */
/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's name */
status __wrap_document_read(const char *path, struct problems *problems, struct document **out);
status __wrap_document_read(const char *path, struct problems *problems, struct document **out) {
    return document_parse(path, yaml.bytes, yaml.size, problems, out);
}
/* NOLINTEND(bugprone-reserved-identifier) */

static void must(bool condition) {
    if (!condition) abort();
}

static char *path_of(const char *name) {
    static char paths[4][320];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static const char *const files[] = {"runs/run/metrics.jsonl", "sweep/history.jsonl", "runs/run/config.yaml",
                                    "sweep/sweep.yaml"};
static const char *const folders[] = {"", "runs", "runs/run", "runs/run/checkpoints", "sweep"};

static void remove_folder(void) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) unlink(path_of(files[i]));
    for (size_t i = sizeof folders / sizeof *folders; i-- > 0;) rmdir(path_of(folders[i]));
}

static void write_file(const char *name, int flags, const uint8_t *bytes, size_t size) {
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
    must(fd >= 0 && (size == 0 || write(fd, bytes, size) == (ssize_t)size));
    close(fd);
}

static void make_folder(void) {
    const char *parent = getenv("TMPDIR");
    if (*folder) return;
    snprintf(folder, sizeof folder, "%s/fuzz-report-%d", parent ? parent : "/tmp", (int)getpid());
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) must(mkdir(path_of(folders[i]), 0700) == 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) write_file(files[i], O_TRUNC, NULL, 0);
    atexit(remove_folder);
}

static bool is_ok(status s) {
    must(!s || (status_code(s) == STATUS_DATA && status_message(s)[0]));
    bool is_good = !s;
    status_free(s);
    return is_good;
}

static void check_page(struct text *out) {
    must(!strstr(text_string(out), "<x") && !strstr(text_string(out), "<X"));
    text_free(out);
}

static void check_lines(struct text *out) {
    for (const char *c = text_string(out); *c; c++) must((unsigned char)*c >= ' ' || *c == '\n');
    text_free(out);
}

static void watch_folder(const char *name) {
    struct watch *watch;
    struct text out = {0};
    if (!is_ok(watch_open(path_of(name), &watch))) return;
    is_ok(watch_update(watch));
    for (size_t width = 20; width < 200; width += 60) watch_write(watch, width, width > 100, &out);
    (void)watch_has_ended(watch);
    watch_close(watch);
    check_lines(&out);
}

static void add_run(struct run_data *run, struct text *out) {
    runs_section_overview(out, &run, 1);
    runs_section_curves(out, &run, 1);
    runs_section_confusion(out, &run, 1);
    runs_section_config(out, &run, 1);
}

/* [grown] was read in two parts; a whole one is equal. */
static void compare_run(const struct run_data *grown) {
    struct run_data *whole;
    if (!is_ok(run_data_read(path_of("runs/run"), &whole))) return;
    must(whole->file.lines == grown->file.lines && whole->file.malformed == grown->file.malformed);
    must(whole->curve_count == grown->curve_count && whole->resumes == grown->resumes);
    must(memcmp(&whole->steps, &grown->steps, sizeof whole->steps) == 0);
    run_data_free(whole);
}

static void make_run_page(const uint8_t *bytes, size_t size, size_t cut) {
    struct run_data *run;
    struct text out = {0};
    write_file(files[0], O_TRUNC, bytes, cut);
    if (!is_ok(run_data_read(path_of("runs/run"), &run))) return;
    write_file(files[0], O_APPEND, bytes + cut, size - cut);
    if (is_ok(run_data_update(run))) {
        compare_run(run);
        add_run(run, &out);
    }
    run_data_free(run);
    check_page(&out);
}

static void make_sweep_page(const uint8_t *bytes, size_t size, size_t cut) {
    struct sweep_data *sweep;
    struct text out = {0};
    write_file(files[1], O_TRUNC, bytes, cut);
    if (!is_ok(sweep_data_read(path_of("sweep"), &sweep))) return;
    write_file(files[1], O_APPEND, bytes + cut, size - cut);
    if (is_ok(sweep_data_update(sweep))) is_ok(sweep_section_add(&out, sweep));
    sweep_data_free(sweep);
    check_page(&out);
}

static void list_run(void) {
    struct text table = {0};
    struct trial_run result = {.state = TRIAL_COMPLETE, .epochs = 3};
    enum trial_folder_state state;
    if (is_ok(run_list(path_of("runs"), &table))) check_lines(&table);
    text_free(&table);
    is_ok(trial_folder_compare(path_of("runs/run"), &result, &state));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size < 1) return 0;
    bool is_sweep = bytes[0] & 1;
    const uint8_t *lines = bytes + 1, *end = memchr(lines, 0, size - 1);
    size_t length = end ? (size_t)(end - lines) : size - 1, other = end ? size - 2 - length : 0;
    size_t cut = length * (bytes[0] >> 2) / 63;
    make_folder();
    yaml.bytes = (const char *)(end ? end + 1 : lines);
    yaml.size = other;
    if (bytes[0] & 2) {
        (is_sweep ? make_sweep_page : make_run_page)(lines, length, cut);
        return 0;
    }
    write_file(files[is_sweep], O_TRUNC, lines, length);
    if (!is_sweep) list_run();
    watch_folder(is_sweep ? "sweep" : "runs/run");
    return 0;
}
