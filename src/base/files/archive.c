/* Headers of tar are read here, those of zip by zip.h. A general library for archives reads them from their start to
 * their end; rows are needed in any order, so what is kept is a sorted list of names with offsets. */
#include "base/files/archive.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/files/zip.h"
#include "base/scoped.h"

struct archive {
    struct zip zip; /* of tar only path, fd and bytes */
    struct arena *arena;
    bool is_tar;
    struct zip_member *members; /* (count), sorted by name; folders end with '/' and may be missing */
    size_t count, capacity;
    struct zip_member *links; /* (n_links): hard links of tar */
    const char **link_targets;
    size_t n_links, link_capacity;
};

/* ---- names ---- */

static bool ends_with(const char *path, size_t length, const char *extension) {
    size_t tail = strlen(extension);
    return length > tail && strncasecmp(path + length - tail, extension, tail) == 0;
}

static bool is_named(const char *path, size_t length) {
    static const char *const extensions[] = {".zip",     ".tar",     ".tar.gz", ".tgz",
                                             ".tar.bz2", ".tar.zst", ".tar.xz", NULL};
    for (size_t i = 0; extensions[i]; i++)
        if (ends_with(path, length, extensions[i])) return true;
    return false;
}

static bool is_file(const char *path, size_t length) {
    struct io_info info = {0};
    SCOPED_TEXT archive = {0};
    text_add_bytes(&archive, path, length);
    status_free(io_stat(text_string(&archive), &info));
    return info.is_file;
}

size_t archive_in_path(const char *path) {
    for (size_t length = 1; path && length <= strlen(path); length++)
        if ((path[length] == '/' || path[length] == 0) && is_named(path, length) && is_file(path, length))
            return length;
    return 0;
}

/* *out, in the arena: [name] without "." and repeated slashes; NULL: it is the root, or of the metadata that macOS adds
 * to zip archives. */
static status clean_name(struct archive *archive, const char *name, const char **out) {
    SCOPED_TEXT clean = {0};
    bool is_below = *name != '/';
    for (const char *at = name; *at;) {
        size_t length = strcspn(at, "/");
        bool is_folder = at[length] == '/';
        is_below = is_below && !(length == 2 && strncmp(at, "..", 2) == 0);
        if (length > 0 && !(length == 1 && *at == '.')) text_add_bytes(&clean, at, length + is_folder);
        at += length + is_folder;
    }
    *out = clean.length && strncmp(clean.data, "__MACOSX/", 9) != 0 ? arena_copy(archive->arena, clean.data) : NULL;
    return is_below ? OK
                    : status_data("%s: the name '%s' is outside of the archive; make it again with names that neither "
                                  "begin with / nor have ..",
                                  archive->zip.path, name);
}

static status reject_link(const struct archive *archive, const char *name) {
    return status_data(
        "%s: '%s' is a symbolic link; make the archive with the files themselves (tar --dereference, zip "
        "without --symlinks)",
        archive->zip.path, name);
}

static status damaged(const struct archive *archive, const char *what) {
    return status_data("%s: the tar archive is damaged or truncated (%s); copy or make it again", archive->zip.path,
                       what);
}

static void add_member(struct archive *archive, const struct zip_member *member) {
    if (archive->count == archive->capacity) {
        size_t capacity = archive->capacity ? archive->capacity * 2 : 1024;
        struct zip_member *more = arena_alloc(archive->arena, capacity * sizeof *more);
        if (archive->count) memcpy(more, archive->members, archive->count * sizeof *more);
        archive->members = more;
        archive->capacity = capacity;
    }
    archive->members[archive->count++] = *member;
}

/* ---- tar ---- */

/* POSIX's ustar and pax, and the long names of GNU tar: a header of a block, then the content in whole blocks. */

#define BLOCK 512
#define MAX_HEADER_DATA ((uint64_t)1 << 20) /* of long names and pax records */

enum { AT_SIZE = 124, AT_CHECKSUM = 148, AT_TYPE = 156, AT_LINK = 157, AT_MAGIC = 257, AT_PREFIX = 345 };
enum { NAME_LENGTH = 100, PREFIX_LENGTH = 155 };

/* What headers before that of a file say about it. */
struct extended {
    const char *name, *link; /* NULL: its own */
    bool has_size, is_sparse;
    uint64_t size;
};

/* An octal number, or with the highest bit one of 8 bits for each byte, as GNU tar writes large sizes. */
static bool read_number(const uint8_t *field, size_t length, uint64_t *out) {
    size_t i = 0;
    *out = 0;
    if (field[0] == 0x80) {
        for (i = 1; i < length; i++) {
            if (*out >> 55) return false;
            *out = *out << 8 | field[i];
        }
        return true;
    }
    while (i < length && field[i] == ' ') i++;
    for (; i < length && field[i] >= '0' && field[i] <= '7'; i++) {
        if (*out >> 60) return false;
        *out = *out << 3 | (uint64_t)(field[i] - '0');
    }
    return i == length || field[i] == ' ' || field[i] == 0;
}

/* The sum of the bytes with blanks for the sum itself; historic programs add signed bytes. */
static bool has_checksum(const uint8_t *header) {
    uint64_t sum = 0, expected;
    int64_t with_signs = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        uint8_t byte = i >= AT_CHECKSUM && i < AT_CHECKSUM + 8 ? ' ' : header[i];
        sum += byte;
        with_signs += (int8_t)byte;
    }
    return read_number(header + AT_CHECKSUM, 8, &expected) &&
           (sum == expected || (with_signs >= 0 && (uint64_t)with_signs == expected));
}

static const char *copy_field(struct arena *arena, const uint8_t *field, size_t length) {
    return arena_printf(arena, "%.*s", (int)strnlen((const char *)field, length), (const char *)field);
}

static const char *name_of(struct arena *arena, const uint8_t *header) {
    const char *name = copy_field(arena, header, NAME_LENGTH);
    bool is_posix = memcmp(header + AT_MAGIC, "ustar", 6) == 0;
    if (!is_posix || !header[AT_PREFIX]) return name;
    return arena_printf(arena, "%s/%s", copy_field(arena, header + AT_PREFIX, PREFIX_LENGTH), name);
}

/* A record of pax is "LENGTH KEY=VALUE\n", its length that of the whole. */
static status read_records(struct archive *archive, char *at, size_t left, struct extended *next) {
    while (left > 0) {
        char *key, *end;
        size_t length = (size_t)strtoull(at, &key, 10);
        if (*key != ' ' || length > left || length < (size_t)(key - at) + 2 || at[length - 1] != '\n')
            return damaged(archive, "its pax records");
        at[length - 1] = 0;
        char *value = strchr(++key, '=');
        if (!value) return damaged(archive, "its pax records");
        *value++ = 0;
        if (strcmp(key, "path") == 0) next->name = arena_copy(archive->arena, value);
        if (strcmp(key, "linkpath") == 0) next->link = arena_copy(archive->arena, value);
        if (strncmp(key, "GNU.sparse.", 11) == 0) next->is_sparse = true;
        if (strcmp(key, "size") == 0) {
            next->size = strtoull(value, &end, 10);
            next->has_size = true;
            if (end == value || *end) return damaged(archive, "its pax records");
        }
        at += length;
        left -= length;
    }
    return OK;
}

/* The content of a header that is about the next one. */
static status read_extended(struct archive *archive, char type, uint64_t start, uint64_t size, struct extended *next) {
    if (size > MAX_HEADER_DATA) return damaged(archive, "a name that is too long");
    char *text = arena_alloc(archive->arena, (size_t)size + 1);
    TRY(io_read_at(archive->zip.fd, archive->zip.path, text, (size_t)size, start, NULL));
    text[size] = 0;
    if (type == 'x' || type == 'X') return read_records(archive, text, (size_t)size, next);
    *(type == 'L' ? &next->name : &next->link) = text;
    return OK;
}

static status add_link(struct archive *archive, const char *name, const char *target) {
    const char *clean;
    TRY(clean_name(archive, target, &clean));
    if (archive->n_links == archive->link_capacity) {
        size_t count = archive->n_links, capacity = count ? count * 2 : 64;
        struct zip_member *links = arena_alloc(archive->arena, capacity * sizeof *links);
        const char **targets = arena_alloc(archive->arena, capacity * sizeof *targets);
        if (count) memcpy(links, archive->links, count * sizeof *links);
        if (count) memcpy(targets, archive->link_targets, count * sizeof *targets);
        archive->links = links;
        archive->link_targets = targets;
        archive->link_capacity = capacity;
    }
    archive->links[archive->n_links] = (struct zip_member){.name = name};
    archive->link_targets[archive->n_links++] = clean ? clean : "";
    return OK;
}

/* A header that is not about the next one; [next]: what those before it say. */
static status add_tar_member(struct archive *archive, const uint8_t *header, uint64_t start, uint64_t size,
                             const struct extended *next) {
    char type = (char)header[AT_TYPE];
    const char *stored = next->name ? next->name : name_of(archive->arena, header), *name;
    bool is_folder = type == '5' || type == 'D';
    if (type && !strchr("01257DSM", type)) return OK; /* devices, labels of volumes, global records */
    TRY(clean_name(archive, stored, &name));
    if (!name) return OK;
    if (type == '2') return reject_link(archive, name);
    if (type == 'S' || next->is_sparse)
        return status_data("%s: '%s' is stored as a sparse file; make the archive without --sparse", archive->zip.path,
                           name);
    if (type == 'M')
        return status_data("%s: '%s' begins in another volume; make one archive of all files", archive->zip.path, name);
    if (type == '1')
        return add_link(archive, name,
                        next->link ? next->link : copy_field(archive->arena, header + AT_LINK, NAME_LENGTH));
    if (is_folder && name[strlen(name) - 1] != '/') name = arena_printf(archive->arena, "%s/", name);
    add_member(archive, &(struct zip_member){.name = name, .packed = size, .size = size, .start = start});
    return OK;
}

static status compressed(const struct archive *archive, const uint8_t *header) {
    static const struct {
        const char *magic, *program;
    } kinds[] = {{"\x1f\x8b", "gunzip"},
                 {"BZh", "bunzip2"},
                 {"\xfd"
                  "7zXZ",
                  "unxz"},
                 {"\x28\xb5\x2f\xfd", "unzstd"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (memcmp(header, kinds[i].magic, strlen(kinds[i].magic)) == 0)
            return status_data("%s: the archive is compressed as a whole, so a file in it cannot be read alone; "
                               "decompress it first: %s --keep FILE",
                               archive->zip.path, kinds[i].program);
    return status_data("%s: this is neither a tar nor a zip archive", archive->zip.path);
}

static bool is_zero(const uint8_t *block) {
    for (size_t i = 0; i < BLOCK; i++)
        if (block[i]) return false;
    return true;
}

/* Folders, links and devices have no content, whatever their size says. */
static bool has_content(char type) { return !type || !strchr("123456", type); }

static status read_tar(struct archive *archive) {
    const struct zip *file = &archive->zip;
    struct extended next = {0};
    for (uint64_t at = 0; file->bytes - at >= BLOCK;) {
        uint8_t header[BLOCK];
        uint64_t size;
        TRY(io_read_at(file->fd, file->path, header, sizeof header, at, NULL));
        if (is_zero(header)) return OK;
        if (!has_checksum(header)) return at ? damaged(archive, "a header") : compressed(archive, header);
        char type = (char)header[AT_TYPE];
        bool is_extended = type && strchr("xXLK", type);
        if (!read_number(header + AT_SIZE, 12, &size)) return damaged(archive, "a size");
        if (next.has_size && !is_extended) size = next.size;
        if (!has_content(type)) size = 0;
        at += BLOCK;
        if (size > file->bytes - at) return damaged(archive, "it ends within a file");
        if (is_extended) {
            TRY(read_extended(archive, type, at, size, &next));
        } else {
            TRY(add_tar_member(archive, header, at, size, &next));
            next = (struct extended){0};
        }
        uint64_t blocks = (size + BLOCK - 1) / BLOCK * BLOCK;
        if (blocks > file->bytes - at) return damaged(archive, "it ends within a file");
        at += blocks;
    }
    return file->bytes < BLOCK ? compressed(archive, (const uint8_t[BLOCK]){0}) : damaged(archive, "its end");
}

/* ---- zip ---- */

static status read_zip(struct archive *archive) {
    TRY(zip_list(archive->zip.fd, archive->zip.path, archive->zip.bytes, archive->arena, &archive->zip));
    for (size_t i = 0; i < archive->zip.count; i++) {
        struct zip_member member = archive->zip.members[i];
        TRY(clean_name(archive, member.name, &member.name));
        if (!member.name) continue;
        if (S_ISLNK(member.mode)) return reject_link(archive, member.name);
        add_member(archive, &member);
    }
    return OK;
}

/* ---- the tree ---- */

static int compare_members(const void *left, const void *right) {
    return strcmp(((const struct zip_member *)left)->name, ((const struct zip_member *)right)->name);
}

/* The first member that is not before [name]. */
static size_t lower_bound(const struct archive *archive, const char *name) {
    size_t first = 0, count = archive->count;
    while (count > 0) {
        size_t half = count / 2;
        if (strcmp(archive->members[first + half].name, name) < 0) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first;
}

static const struct zip_member *find_member(const struct archive *archive, const char *name) {
    size_t at = lower_bound(archive, name);
    bool is_found = at < archive->count && strcmp(archive->members[at].name, name) == 0;
    return is_found ? &archive->members[at] : NULL;
}

/* [folder]: "cat/", "" for the root. */
static bool has_folder(const struct archive *archive, const char *folder) {
    size_t at = lower_bound(archive, folder), length = strlen(folder);
    return length == 0 || (at < archive->count && strncmp(archive->members[at].name, folder, length) == 0);
}

static void sort_members(struct archive *archive) {
    if (archive->count) qsort(archive->members, archive->count, sizeof *archive->members, compare_members);
}

static status resolve_links(struct archive *archive) {
    size_t count = archive->count;
    for (size_t i = 0; i < archive->n_links; i++) {
        archive->count = count; /* those that are sorted */
        const struct zip_member *target = find_member(archive, archive->link_targets[i]);
        if (!target)
            return status_data("%s: '%s' is a link to '%s', which is not in the archive", archive->zip.path,
                               archive->links[i].name, archive->link_targets[i]);
        const char *name = archive->links[i].name;
        archive->links[i] = *target;
        archive->links[i].name = name;
    }
    archive->count = count;
    for (size_t i = 0; i < archive->n_links; i++) add_member(archive, &archive->links[i]);
    sort_members(archive);
    return OK;
}

static status check_names(const struct archive *archive) {
    struct text folder = {0};
    status s = OK;
    for (size_t i = 0; !s && i < archive->count; i++) {
        const char *name = archive->members[i].name;
        bool is_folder = name[strlen(name) - 1] == '/';
        if (is_folder) continue;
        text_free(&folder);
        text_printf(&folder, "%s/", name);
        bool is_twice = i + 1 < archive->count && strcmp(archive->members[i + 1].name, name) == 0;
        if (is_twice || has_folder(archive, text_string(&folder)))
            s = status_data("%s: the archive has the name '%s' twice; make it again", archive->zip.path, name);
    }
    text_free(&folder);
    return s;
}

static status read_names(struct archive *archive) {
    uint8_t start[4] = {0};
    size_t got;
    TRY(io_read_at(archive->zip.fd, archive->zip.path, start, sizeof start, 0, &got));
    bool is_zip = memcmp(start, "PK\3\4", 4) == 0 || memcmp(start, "PK\5\6", 4) == 0;
    archive->is_tar = !is_zip && !ends_with(archive->zip.path, strlen(archive->zip.path), ".zip");
    TRY(archive->is_tar ? read_tar(archive) : read_zip(archive));
    sort_members(archive);
    TRY(resolve_links(archive));
    return check_names(archive);
}

status archive_open(const char *path, struct archive **out) {
    size_t length = archive_in_path(path);
    *out = NULL;
    if (length == 0) return OK;
    struct arena *arena = arena_create();
    struct archive *archive = arena_alloc(arena, sizeof *archive);
    struct io_info info;
    *archive = (struct archive){.arena = arena, .zip = {.path = arena_printf(arena, "%.*s", (int)length, path)}};
    status s = io_open(archive->zip.path, &archive->zip.fd);
    if (!s) s = io_stat_fd(archive->zip.fd, archive->zip.path, &info);
    if (!s) {
        archive->zip.bytes = info.size;
        s = read_names(archive);
    }
    if (s) archive_close(archive);
    if (!s) *out = archive;
    return s;
}

void archive_close(struct archive *archive) {
    if (!archive) return;
    status_free(io_close(archive->zip.fd, archive->zip.path));
    arena_destroy(archive->arena);
}

/* The part of [path] after the archive's own: "" or "cat/1.jpg". */
static const char *name_in(const struct archive *archive, const char *path) {
    path += strlen(archive->zip.path);
    while (*path == '/') path++;
    return strcmp(path, ".") == 0 ? "" : path;
}

/* As a folder: with a slash at its end, but for the root. */
static void add_folder(const char *name, struct text *out) {
    text_add(out, name);
    if (out->length && out->data[out->length - 1] != '/') text_add(out, "/");
}

status archive_stat(const struct archive *archive, const char *path, struct io_info *info) {
    if (!archive) return io_stat(path, info);
    const char *name = name_in(archive, path);
    const struct zip_member *member = *name ? find_member(archive, name) : NULL;
    SCOPED_TEXT folder = {0};
    add_folder(name, &folder);
    bool is_folder = has_folder(archive, text_string(&folder));
    *info = (struct io_info){.exists = member || is_folder,
                             .is_file = member && !is_folder,
                             .is_folder = is_folder,
                             .size = member ? member->size : 0};
    return OK;
}

status archive_list(const struct archive *archive, const char *folder, struct io_names *names) {
    if (!archive) return io_list(folder, names);
    SCOPED_TEXT prefix = {0};
    size_t capacity = 0;
    bool has_memory = true;
    *names = (struct io_names){0};
    add_folder(name_in(archive, folder), &prefix);
    const char *start = text_string(&prefix);
    if (!has_folder(archive, start)) return status_data("%s: there is no such folder in the archive", folder);
    for (size_t i = lower_bound(archive, start); i < archive->count && has_memory; i++) {
        const char *name = archive->members[i].name;
        if (strncmp(name, start, prefix.length) != 0) break;
        name += prefix.length;
        size_t length = strcspn(name, "/");
        const char *last = names->count ? names->items[names->count - 1] : "";
        if (length == 0 || (strncmp(last, name, length) == 0 && last[length] == 0)) continue;
        if (names->count == capacity) {
            capacity = capacity ? capacity * 2 : 64;
            char **more = realloc(names->items, capacity * sizeof *more);
            if (more) names->items = more;
            has_memory = more != NULL;
        }
        if (has_memory) names->items[names->count] = strndup(name, length);
        has_memory = has_memory && names->items[names->count];
        names->count += has_memory;
    }
    if (names->count) qsort(names->items, names->count, sizeof *names->items, text_compare);
    if (!has_memory) io_names_free(names);
    return has_memory ? OK : status_memory("the names of files");
}

static status read_plain(const char *path, void *bytes, size_t size, size_t *got) {
    int fd;
    TRY(io_open(path, &fd));
    status s = io_read(fd, path, bytes, size, got);
    return status_first(s, io_close(fd, path));
}

status archive_read(const struct archive *archive, const char *path, void *bytes, size_t size, size_t *got) {
    if (!archive) return read_plain(path, bytes, size, got);
    const struct zip_member *found = find_member(archive, name_in(archive, path));
    if (!found) return status_data("%s: there is no such file in the archive", path);
    struct zip_member member = *found;
    if (!archive->is_tar) TRY(zip_locate(&archive->zip, &member));
    if (size < member.size) return zip_read_start(&archive->zip, &member, bytes, size, got);
    *got = (size_t)member.size;
    return zip_read_to(&archive->zip, &member, bytes);
}
