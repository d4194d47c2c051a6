/* page: the frame of an HTML page with its style (page.css) and its script (page.js), and tables. The page refers to
 * nothing outside itself, and its policy forbids the browser to load anything. */
#pragma once

#include "base/text.h"

void page_begin(struct text *out, const char *title);
void page_end(struct text *out);

struct page_heading {
    const char *text;
    bool is_number; /* stands right, as numbers do */
};

/* A table with these headings (count); [is_sortable]: by a click on a heading, where scripts run. */
void page_table_begin(struct text *out, const struct page_heading *headings, size_t count, bool is_sortable);
void page_table_end(struct text *out);
void page_row_begin(struct text *out, const char *class); /* class NULL: none */
void page_row_end(struct text *out);
/* A cell with text; [class]: "n" for numbers, "code", NULL. */
void page_cell(struct text *out, const char *text, const char *class);
/* A number by axis_number with all its digits for the pointer and for sorting; NAN: "-". */
void page_number(struct text *out, double value);

/* The first 16 digits of a SHA-256, all of them for the pointer. */
void page_hash(struct text *out, const char *sha256);

/* A row of a list of facts: a name and a text; nothing where [text] is NULL or "". */
void page_facts_begin(struct text *out);
void page_fact(struct text *out, const char *name, const char *text);
void page_facts_end(struct text *out);

/* A sentence about what is missing or wrong. */
void page_notice(struct text *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same in small letters, an explanation. */
void page_note(struct text *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
