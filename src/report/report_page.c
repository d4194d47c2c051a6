/* A report as a whole: its frame and elements, which folders it is about, and the order of its sections, which are in
 * runs_section.c and sweep_section.c. Elements are written with their end tags, so that the page is well-formed also
 * for strict readers. */
#include "report/report_page.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/files/io.h"
#include "base/scoped.h"
#include "report/svg.h"
#include "train/folder/run_folder.h"

/* ---- the frame and the elements ---- */

/* The files page.css and page.js. */
static const struct {
    const char *name, *text;
} texts[] = {
#include "report/texts.inc"
};

static const char *text_of(const char *name) {
    size_t i = 0;
    while (strcmp(texts[i].name, name) != 0) i++;
    return texts[i].text;
}

void page_begin(struct text *out, const char *title) {
    text_add(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                  "'unsafe-inline'; script-src 'unsafe-inline'\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                  "<meta name=\"generator\" content=\"ddptrain\">\n<title>");
    html_add(out, title);
    text_printf(out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n<h1>", text_of("page.css"));
    html_add(out, title);
    text_add(out, "</h1>\n");
}

void page_end(struct text *out) {
    text_printf(out, "</main>\n<div id=\"tip\" hidden></div>\n<script>\n%s</script>\n</body>\n</html>\n",
                text_of("page.js"));
}

void page_table_begin(struct text *out, const struct page_heading *headings, size_t count, bool is_sortable) {
    text_printf(out, "<div class=\"scroll\"><table%s>\n<thead><tr>", is_sortable ? " class=\"sortable\"" : "");
    for (size_t i = 0; i < count; i++) {
        text_printf(out, "<th scope=\"col\"%s>", headings[i].is_number ? " class=\"n\"" : "");
        html_add_short(out, headings[i].text, 80);
        text_add(out, "</th>");
    }
    text_add(out, "</tr></thead>\n<tbody>\n");
}

void page_table_end(struct text *out) { text_add(out, "</tbody></table></div>\n"); }

void page_row_begin(struct text *out, const char *class) {
    if (class)
        text_printf(out, "<tr class=\"%s\">", class);
    else
        text_add(out, "<tr>");
}

void page_row_end(struct text *out) { text_add(out, "</tr>\n"); }

void page_cell(struct text *out, const char *text, const char *class) {
    if (class)
        text_printf(out, "<td class=\"%s\">", class);
    else
        text_add(out, "<td>");
    html_add_short(out, text ? text : "", 400);
    text_add(out, "</td>");
}

void page_number(struct text *out, double value) {
    char number[24];
    axis_number(value, number);
    if (isfinite(value))
        text_printf(out, "<td class=\"n\" data-v=\"%.17g\" title=\"%.10g\">%s</td>", value, value, number);
    else
        text_printf(out, "<td class=\"n\">%s</td>", number);
}

void page_hash(struct text *out, const char *sha256) {
    text_add(out, "<td class=\"code hash\" title=\"");
    html_add(out, sha256);
    text_add(out, "\">");
    for (size_t i = 0; i < 16 && sha256[i]; i++) {
        if (i == 8) text_add(out, "<wbr>"); /* a narrow page has two lines */
        html_add(out, (const char[]){sha256[i], 0});
    }
    text_add(out, "</td>");
}

void page_facts_begin(struct text *out) { text_add(out, "<dl>\n"); }

void page_fact(struct text *out, const char *name, const char *text) {
    if (!text || !*text) return;
    text_printf(out, "<div%s><dt>%s</dt><dd>", strlen(text) > 30 ? " class=\"long\"" : "", name);
    html_add_short(out, text, 400);
    text_add(out, "</dd></div>\n");
}

void page_facts_end(struct text *out) { text_add(out, "</dl>\n"); }

static void add_paragraph(struct text *out, const char *class, const char *format, va_list arguments) {
    char sentence[2048];
    vsnprintf(sentence, sizeof sentence, format, arguments);
    text_printf(out, "<p class=\"%s\">", class);
    html_add(out, sentence);
    text_add(out, "</p>\n");
}

void page_notice(struct text *out, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_paragraph(out, "notice", format, arguments);
    va_end(arguments);
}

void page_note(struct text *out, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_paragraph(out, "note", format, arguments);
    va_end(arguments);
}

/* ---- the report ---- */

#define FIRST_LINE "<!DOCTYPE html>\n"

/* A name that was meant for something else is not overwritten. */
static status check_out(const char *path) {
    char first[sizeof FIRST_LINE] = "";
    struct io_info info;
    size_t got = 0;
    int fd;
    TRY(io_stat(path, &info));
    if (!info.exists || (info.is_file && info.size == 0)) return OK;
    if (!info.is_file)
        return status_usage("--out %s: %s; give a file such as report.html", path,
                            info.is_folder ? "is a folder" : "not a regular file");
    TRY(io_open(path, &fd));
    status s = io_read(fd, path, first, sizeof FIRST_LINE - 1, &got);
    s = status_first(s, io_close(fd, path));
    if (!s && strcmp(first, FIRST_LINE) != 0)
        s = status_usage("--out %s: the file exists and is no report; it was not overwritten. Give another name", path);
    return s;
}

struct folders {
    struct run_data **runs;     /* (REPORT_MAX_FOLDERS) */
    struct sweep_data **sweeps; /* (REPORT_MAX_FOLDERS) */
    size_t run_count, sweep_count;
};

/* [is_named]: by the user, so that a folder that is neither a run nor a sweep is a failure; else it is left out. */
static status read_folder(const char *path, bool is_named, struct folders *f, bool *is_read) {
    bool is_sweep, is_run = true;
    *is_read = false;
    TRY(sweep_data_is_sweep(path, &is_sweep));
    if (!is_sweep && !is_named) TRY(run_folder_is_readable(path, &is_run));
    if (!is_sweep && !is_run) return OK;
    if (f->run_count + f->sweep_count == REPORT_MAX_FOLDERS)
        return status_usage("more than %d folders of runs and sweeps; name those that you need", REPORT_MAX_FOLDERS);
    if (is_sweep)
        TRY(sweep_data_read(path, &f->sweeps[f->sweep_count]));
    else
        TRY(run_data_read(path, &f->runs[f->run_count]));
    f->sweep_count += is_sweep;
    f->run_count += !is_sweep;
    *is_read = true;
    return OK;
}

/* run_2 before run_10 */
static int by_name(const void *a, const void *b) { return strverscmp(*(char *const *)a, *(char *const *)b); }

/* Reads the runs and sweeps in [path], such as `runs`; *is_read false: there are none. */
static status read_inside(const char *path, struct folders *f, bool *is_read) {
    SCOPED_NAMES names = {0};
    *is_read = false;
    TRY(io_list(path, &names));
    if (names.count) qsort(names.items, names.count, sizeof *names.items, by_name);
    status s = OK;
    for (size_t i = 0; i < names.count && !s; i++) {
        bool is_one;
        SCOPED_STRING inner = text_path(path, names.items[i]);
        s = read_folder(inner, false, f, &is_one);
        *is_read = *is_read || (!s && is_one);
    }
    return s;
}

/* A run, a sweep, or a folder of them. */
static status read_named(const char *path, struct folders *f) {
    struct io_info info;
    bool is_run, is_sweep, is_read = false;
    TRY(io_stat(path, &info));
    TRY(run_folder_is_readable(path, &is_run));
    TRY(sweep_data_is_sweep(path, &is_sweep));
    if (info.is_folder && !is_run && !is_sweep) TRY(read_inside(path, f, &is_read));
    return is_read ? OK : read_folder(path, true, f, &is_read);
}

static void set_label(struct run_data *run) {
    char *label = status_need(strdup(run->path));
    free(run->label);
    run->label = label;
}

/* Runs of the same name are labelled with their paths. */
static void make_labels_unique(struct folders *f) {
    for (size_t i = 0; i < f->run_count; i++)
        for (size_t k = i + 1; k < f->run_count; k++)
            if (strcmp(f->runs[i]->label, f->runs[k]->label) == 0) {
                set_label(f->runs[i]);
                set_label(f->runs[k]);
            }
}

static void add_title(const struct folders *f, struct text *out) {
    const char *name = f->sweep_count ? f->sweeps[0]->label : f->runs[0]->label;
    size_t others = f->run_count + f->sweep_count - 1;
    text_printf(out, "%s %s", f->sweep_count ? "Sweep" : others ? "Runs" : "Run", name);
    if (others) text_printf(out, " and %zu other%s", others, text_plural(others, "s"));
}

static void add_runs(const struct folders *f, struct text *out) {
    if (f->sweep_count || f->run_count > 1) text_printf(out, "<h2>Run%s</h2>\n", text_plural(f->run_count, "s"));
    runs_section_overview(out, f->runs, f->run_count);
    text_add(out, "<h2>Curves</h2>\n");
    runs_section_curves(out, f->runs, f->run_count);
    runs_section_confusion(out, f->runs, f->run_count);
    runs_section_config(out, f->runs, f->run_count);
}

static status add_sweep(const struct sweep_data *sweep, bool has_title, struct text *out) {
    if (has_title) {
        text_add(out, "<h2>Sweep ");
        html_add(out, sweep->label);
        text_add(out, "</h2>\n");
    }
    return sweep_section_add(out, sweep);
}

static status build(const struct folders *f, struct text *out) {
    SCOPED_TEXT title = {0};
    time_t now = time(NULL);
    struct tm parts;
    char when[64] = "";
    add_title(f, &title);
    page_begin(out, text_string(&title));
    if (localtime_r(&now, &parts)) strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S %z", &parts);
    page_note(out, "Made by ddptrain report, %s.", when);
    for (size_t i = 0; i < f->sweep_count; i++) TRY(add_sweep(f->sweeps[i], f->sweep_count + f->run_count > 1, out));
    if (f->run_count) add_runs(f, out);
    page_end(out);
    return OK;
}

static status write_page(struct folders *f, const char *path, struct report_summary *summary) {
    SCOPED_TEXT page = {0};
    make_labels_unique(f);
    status s = build(f, &page);
    struct io_part part = {page.data, page.length};
    if (!s) s = io_replace(path, &part, 1);
    *summary = (struct report_summary){f->run_count, f->sweep_count, page.length};
    return s;
}

status report_page_write(char *const *paths, size_t count, const char *out, struct report_summary *summary) {
    struct folders f = {calloc(REPORT_MAX_FOLDERS, sizeof *f.runs), calloc(REPORT_MAX_FOLDERS, sizeof *f.sweeps), 0, 0};
    if (!f.runs || !f.sweeps) status_exit_without_memory();
    status s = check_out(out);
    for (size_t i = 0; i < count && !s; i++) s = read_named(paths[i], &f);
    if (!s) s = write_page(&f, out, summary);
    for (size_t i = 0; i < f.run_count; i++) run_data_free(f.runs[i]);
    for (size_t i = 0; i < f.sweep_count; i++) sweep_data_free(f.sweeps[i]);
    free(f.runs);
    free(f.sweeps);
    return s;
}
