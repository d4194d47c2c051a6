/* target_choice: the column that is the target where nobody has named one: the last with a usual name such as label or
 * class, else the last one that has a name. */
#ifndef DATA_TARGET_CHOICE_H
#define DATA_TARGET_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a column with this name is usually the target. */
bool target_is_usual(const char *name);

/* Why the column was chosen, for people: "by its name" or "the last column". */
const char *target_why(const char *name);

/* Zero-initialise, and add the columns in the order of the file. */
struct target_choice {
    size_t column;
    bool is_usual, has_name;
};

/* [has_name]: in the file. */
void target_choice_add(struct target_choice *choice, size_t column, const char *name, bool has_name);

#endif
