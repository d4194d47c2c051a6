/* stack: checks that the stack can grow as far as needed. Matrix products have a buffer of up to 512 KiB there, and a
 * stack overflow would end the process with SIGSEGV, without a message. */
#pragma once

#include <stddef.h>

#include "base/status.h"

#define STACK_MIN ((size_t)1 << 20)   /* maximum use of one call of a library function */
#define STACK_SPACE ((size_t)3 << 19) /* the same with arguments, environment and callers */

/* Call it first in main. STATUS_USAGE when the stack limit (ulimit -s) is below STACK_SPACE or the memory limit
 * (ulimit -v) leaves less. With a memory limit the stack grows to its full size now. */
status stack_check(void);
