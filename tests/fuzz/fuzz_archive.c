/* Any bytes as a tar or zip archive: every file of its tree is listed, has the length that its size says, and is read;
 * or the archive is rejected with a sentence, never a crash. */
#include <stdlib.h>

#include "base/files/archive.h"
#include "base/text.h"
#include "fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#define MAX_READ 65536

static void read_file(const struct archive *archive, const char *path, uint64_t size) {
    size_t got = 0;
    uint8_t *content = malloc(MAX_READ);
    if (!content) abort();
    status s = archive_read(archive, path, content, size < MAX_READ ? (size_t)size : MAX_READ, &got);
    if (!s && got != (size < MAX_READ ? size : MAX_READ)) abort();
    status_free(s);
    free(content);
}

static void read_folder(const struct archive *archive, const char *folder, int depth) {
    struct io_names names;
    status s = archive_list(archive, folder, &names);
    if (s) abort(); /* it is in the tree */
    for (size_t i = 0; i < names.count && depth < 16; i++) {
        struct text path = {0};
        struct io_info info;
        text_printf(&path, "%s/%s", folder, names.items[i]);
        status_free(archive_stat(archive, text_string(&path), &info));
        if (info.is_file == info.is_folder) abort();
        if (info.is_file) read_file(archive, text_string(&path), info.size);
        if (info.is_folder) read_folder(archive, text_string(&path), depth + 1);
        text_free(&path);
    }
    io_names_free(&names);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    const char *paths[] = {"fuzz.tar", "fuzz.zip"};
    for (int i = 0; i < 2; i++) {
        struct archive *archive;
        memory_file_set(0, paths[i], bytes, size);
        status s = archive_open(paths[i], &archive);
        if (s && status_message(s)[0] == 0) abort();
        if (!s) read_folder(archive, paths[i], 0);
        archive_close(archive);
        status_free(s);
    }
    memory_files_check_closed();
    return 0;
}
