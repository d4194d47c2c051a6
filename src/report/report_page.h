/* report_page: an HTML page about runs and sweeps, in one file that needs nothing else. */
#ifndef REPORT_REPORT_PAGE_H
#define REPORT_REPORT_PAGE_H

#include <stddef.h>

#include "base/status.h"

struct report_summary {
    size_t runs, sweeps, bytes;
};

#define REPORT_MAX_FOLDERS 256

/* Reads the folders [paths] (count, at least 1), each of a run, of a sweep or with runs and sweeps in it, and replaces
 * the file [out] by a page about them. The folders are only read. STATUS_DATA for a folder that is absent or neither;
 * STATUS_USAGE when [out] is a file of another kind. */
status report_page_write(char *const *paths, size_t count, const char *out, struct report_summary *summary);

#endif
