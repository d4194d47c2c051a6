/* A walk over the error stack that keeps its first entry. */
#include "base/hdf5.h"

#include <stdio.h>

struct reason {
    char *text;
    size_t size;
};

static herr_t keep_innermost(unsigned number, const H5E_error2_t *error, void *context) {
    struct reason *reason = context;
    if (number == 0 && error->desc) snprintf(reason->text, reason->size, "%s", error->desc);
    return 0;
}

void hdf5_reason(char *text, size_t size, const char *otherwise) {
    struct reason reason = {text, size};
    snprintf(text, size, "%s", otherwise);
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &reason);
}
