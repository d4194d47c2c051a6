/* A few rows are enough: an identifier that is the name of an image in each of them is no coincidence. */
#include "data/source/image_names.h"

#include <string.h>

#include "base/buffer.h"
#include "base/files/io.h"
#include "data/csv/csv.h"
#include "data/images/image.h"

#define ROWS 20 /* that are looked for */

/* Whether [folder]/[name] is a file. */
static status find(const char *folder, const char *name, struct arena *arena, bool *exists) {
    struct io_info info = {0};
    status s = io_stat(arena_printf(arena, "%s/%s", folder, name), &info);
    *exists = !s && info.is_file;
    return s;
}

status image_names_complete(const char *folder, const char *text, struct arena *arena, const char **name,
                            bool *exists) {
    static const char *const extensions[] = {".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", NULL};
    *name = arena_copy(arena, text);
    *exists = false;
    if (image_is_named(text)) return find(folder, text, arena, exists);
    for (size_t i = 0; *text && !*exists && extensions[i]; i++) {
        *name = arena_printf(arena, "%s%s", text, extensions[i]);
        TRY(find(folder, *name, arena, exists));
    }
    return OK;
}

/* The header, and the texts of the first column in the first rows. */
static status read_names(struct csv_reader *reader, struct arena *arena, struct image_names *out,
                         struct string_list *texts) {
    bool has_record;
    TRY(csv_next(reader, &has_record));
    if (!has_record) return OK;
    out->columns.items = arena_alloc(arena, reader->count * sizeof *out->columns.items);
    for (; out->columns.count < reader->count; out->columns.count++)
        out->columns.items[out->columns.count] = arena_copy(arena, reader->fields[out->columns.count].text);
    texts->items = arena_alloc(arena, ROWS * sizeof *texts->items);
    while (texts->count < ROWS) {
        TRY(csv_next(reader, &has_record));
        if (!has_record) return OK;
        texts->items[texts->count++] = arena_copy(arena, reader->fields[0].text);
    }
    return OK;
}

static status read_file(const char *path, struct arena *arena, struct image_names *out, struct string_list *texts) {
    static const struct csv_config automatic;
    struct csv_reader reader = {0};
    char *text;
    status s = csv_open_first(path, &automatic, &reader, &text);
    if (!s) s = read_names(&reader, arena, out, texts);
    csv_free(&reader);
    buffer_free(text);
    return s;
}

static status has_all(const char *folder, const struct string_list *texts, struct arena *arena, bool *out) {
    const char *name;
    *out = texts->count > 0;
    for (size_t i = 0; *out && i < texts->count; i++)
        TRY(image_names_complete(folder, texts->items[i], arena, &name, out));
    return OK;
}

/* In [folder] and the folders in it. */
static status find_folder(const char *folder, const char *prefix, const struct string_list *texts, struct arena *arena,
                          struct image_names *out) {
    struct io_names names = {0};
    bool has = false;
    TRY(has_all(folder, texts, arena, &has));
    if (has) out->folder = folder;
    status s = has ? OK : io_list(folder, &names);
    for (size_t i = 0; !s && !has && i < names.count; i++) {
        const char *path = arena_printf(arena, "%s%s", prefix, names.items[i]);
        struct io_info info = {0};
        s = io_stat(path, &info);
        if (!s && info.is_folder) s = has_all(path, texts, arena, &has);
        if (!s && has) out->folder = path;
    }
    io_names_free(&names);
    return s;
}

static status find_images(const char *path, struct arena *arena, struct image_names *out) {
    struct string_list texts = {0};
    const char *slash = strrchr(path, '/');
    TRY(read_file(path, arena, out, &texts));
    if (out->columns.count < 2) return OK;
    if (!*out->columns.items[0] || image_is_named(out->columns.items[0])) return OK; /* there is no header */
    if (!slash) return find_folder(".", "", &texts, arena, out);
    const char *folder = slash == path ? "/" : arena_printf(arena, "%.*s", (int)(slash - path), path);
    return find_folder(folder, arena_printf(arena, "%.*s", (int)(slash - path) + 1, path), &texts, arena, out);
}

void image_names_find(const char *path, struct arena *arena, struct image_names *out) {
    *out = (struct image_names){0};
    status_free(
        find_images(path, arena, out)); /* texts that are too long for a name, folders that cannot be read, ... */
}
