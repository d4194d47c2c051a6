/* sweep_section: the part of a report about a sweep. */
#ifndef REPORT_SWEEP_SECTION_H
#define REPORT_SWEEP_SECTION_H

#include "base/text.h"
#include "report/sweep_data.h"

/* Its numbers, the best trials with their commands, plots over the parameters, failures, and curves of the best trials
 * whose run folders are kept. */
status sweep_section_add(struct text *out, const struct sweep_data *sweep);

#endif
