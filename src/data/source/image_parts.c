/* The names that data sets of images have for their parts. */
#include "data/source/image_parts.h"

#include <string.h>
#include <strings.h>

#include "base/files/io.h"

enum image_part image_part_of(const char *name) {
    static const struct {
        const char *name;
        enum image_part part;
    } parts[] = {
        {"train", IMAGE_PART_TRAIN},      {"training", IMAGE_PART_TRAIN},        {"val", IMAGE_PART_VALIDATION},
        {"valid", IMAGE_PART_VALIDATION}, {"validation", IMAGE_PART_VALIDATION}, {"dev", IMAGE_PART_VALIDATION},
        {"test", IMAGE_PART_TEST},        {"testing", IMAGE_PART_TEST}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcasecmp(name, parts[i].name) == 0) return parts[i].part;
    return IMAGE_PART_NONE;
}

status image_parts_find(const char *folder, struct arena *arena, const char *paths[IMAGE_PARTS]) {
    struct io_names names = {0};
    const char *found[IMAGE_PARTS] = {NULL};
    int length = (int)io_length_without_slashes(folder);
    memset(paths, 0, sizeof found);
    status s = io_list(folder, &names);
    for (size_t i = 0; !s && i < names.count; i++) {
        struct io_info info = {0};
        if (*names.items[i] == '.') continue;
        const char *path = arena_printf(arena, "%.*s/%s", length, folder, names.items[i]);
        s = io_stat(path, &info);
        if (!s && info.is_folder) found[image_part_of(names.items[i])] = path;
    }
    io_names_free(&names);
    bool is_divided = found[IMAGE_PART_TRAIN] && (found[IMAGE_PART_VALIDATION] || found[IMAGE_PART_TEST]);
    if (!s && is_divided && !found[IMAGE_PART_NONE]) memcpy(paths, found, sizeof found);
    return s;
}
