/* The table of a sweep and its report show the same digits, because both get them here. */
#include "sweep/trial_summary.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/numbers/statistics.h"
#include "base/status.h"

#define MAX_VALUE 1e150 /* of base/statistics */

const char *const trial_states[] = {"pending", "complete", "pruned", "failed", NULL};

struct trial_summary trial_summary_make(const struct trial_value *runs, size_t count, int64_t repeats) {
    struct trial_summary s = {.mean = NAN, .error = NAN};
    double *values = calloc(count + 1, sizeof *values);
    bool has[4] = {[TRIAL_PENDING] = (int64_t)count < repeats}, has_all_values = true;
    if (!values) status_exit_without_memory();
    for (size_t i = 0; i < count; i++) {
        has[runs[i].state] = true;
        if (runs[i].state != TRIAL_COMPLETE) continue;
        has_all_values = has_all_values && fabs(runs[i].value) < MAX_VALUE;
        values[s.complete++] = runs[i].value;
    }
    s.state = has[TRIAL_FAILED]    ? TRIAL_FAILED
              : has[TRIAL_PRUNED]  ? TRIAL_PRUNED
              : has[TRIAL_PENDING] ? TRIAL_PENDING
                                   : TRIAL_COMPLETE;
    if (has_all_values && s.complete) s.mean = statistics_mean(values, (size_t)s.complete);
    if (has_all_values && s.complete > 1) s.error = statistics_standard_error(values, (size_t)s.complete);
    free(values);
    return s;
}
