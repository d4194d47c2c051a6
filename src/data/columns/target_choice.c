/* init and a run without dataset.targets choose by this file, so that they choose the same column. */
#include "data/columns/target_choice.h"

#include <strings.h>

bool target_is_usual(const char *name) {
    static const char *const usual[] = {"target", "targets", "label",    "labels", "class",
                                        "y",      "outcome", "survived", "churn"};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strcasecmp(name, usual[i]) == 0) return true;
    return false;
}

const char *target_why(const char *name) { return target_is_usual(name) ? "by its name" : "the last column"; }

void target_choice_add(struct target_choice *choice, size_t column, const char *name, bool has_name) {
    bool is_usual = has_name && target_is_usual(name);
    if (choice->is_usual && !is_usual) return;
    if (choice->has_name && !has_name) return;
    *choice = (struct target_choice){.column = column, .is_usual = is_usual, .has_name = has_name};
}
