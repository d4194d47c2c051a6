/* scoped: local variables that are freed where their block ends, on every way out of it: SCOPED_TEXT why = {0}; What the
 * function gives away is an ordinary struct text. */
#pragma once

#include "base/text.h"

#define SCOPED_TEXT __attribute__((cleanup(text_free))) struct text
