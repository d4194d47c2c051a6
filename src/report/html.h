/* html: adding text that comes from files to a page. */
#ifndef REPORT_HTML_H
#define REPORT_HTML_H

#include "base/text.h"

/* Adds [string] so that it is text, also within a quoted attribute: < > & " ' are escaped, invalid UTF-8, control
 * characters and those that change the writing direction become U+FFFD. */
void html_add(struct text *out, const char *string);
/* The same, cut to [max] bytes with "..." at its end. */
void html_add_short(struct text *out, const char *string, size_t max);

#endif
