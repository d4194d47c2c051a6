/* comparison_section: the part of a report about a comparison of two configs: the paired tests of `ddptrain compare`.
 */
#ifndef REPORT_COMPARISON_SECTION_H
#define REPORT_COMPARISON_SECTION_H

#include "base/text.h"
#include "report/sweep_data.h"

/* Nothing for a sweep that is not a comparison. */
void comparison_section_add(struct text *out, const struct sweep_data *sweep);

#endif
