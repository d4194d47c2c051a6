/* The labels are in the checkpoints only, so the newest one is read. A page is made also if that fails. */
#include "report/class_labels.h"

#include "train/state/labels.h"

struct string_list class_labels_read(const struct run_data *run, struct arena *arena) {
    struct string_list labels;
    status failure = labels_load_newest(arena, arena_printf(arena, "%s/checkpoints", run->path), &labels);
    bool is_right = !failure && labels.count == run->classes;
    status_free(failure);
    return is_right ? labels : (struct string_list){0};
}
