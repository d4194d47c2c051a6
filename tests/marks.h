/* For tests whose loops have many assertions: Check writes the place of each to a pipe, in case that the test crashes
 * after it, and here only that of one in another line than the one before. For tests only. */
#pragma once

#include <check.h>

static inline void mark_line(const char *file, int line) {
    static _Thread_local int marked;
    if (line != marked) _mark_point(file, line);
    marked = line;
}
#define _mark_point mark_line
