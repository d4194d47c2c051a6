/* watch: the state of a run or a sweep as lines of text, from its files alone: also of one on another host, over a
 * shared file system. */
#pragma once

#include "base/status.h"
#include "base/text.h"

struct watch;

/* [path]: the folder of a run or of a sweep; STATUS_DATA for any other. */
status watch_open(const char *path, struct watch **out);
/* Whether there is no such folder yet: nothing has this name, or the folder is still empty or being created. */
status watch_is_absent(const char *path, bool *out);
/* Reads what was added to the files. */
status watch_update(struct watch *watch);
void watch_close(struct watch *watch); /* takes NULL */

/* Adds lines of at most [width] columns. [has_blocks]: the terminal shows the block characters of UTF-8. Texts of the
 * files are printable (text_add_value). */
void watch_write(const struct watch *watch, size_t width, bool has_blocks, struct text *out);

/* Whether nothing more is to come: the run or the sweep has ended, or no process of this host has it and its files have
 * not changed for WATCH_SILENCE seconds. One that has not begun is waited for. */
#define WATCH_SILENCE 60
bool watch_has_ended(const struct watch *watch);
