/* stack: whether this process can have the stack that its functions need. Products keep a panel of up to 512 KiB there,
 * and a stack that cannot grow ends in a signal, without a sentence. */
#ifndef BASE_STACK_H
#define BASE_STACK_H

#include <stddef.h>

#include "base/status.h"

#define STACK_MIN ((size_t)1 << 20)   /* what a function and those that it calls may use */
#define STACK_SPACE ((size_t)3 << 19) /* with arguments, environment and what the callers use */

/* Call it first in main. STATUS_USAGE when the limit of the stack (ulimit -s) is below STACK_SPACE or that of memory
 * (ulimit -v) leaves less; under a limit of memory the stack is made that large now. */
status stack_check(void);

#endif
