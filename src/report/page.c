/* The elements of an HTML page: its frame, tables, facts, notes. Elements are written with their end tags, so that the
 * page is well-formed also for strict readers. */
#include "report/page.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "report/svg.h"

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
