/* A table of file formats and their first bytes. */
#include "checkpoint/foreign.h"

#include <string.h>

#include "base/files/io.h"

#define HEAD 512

struct head {
    unsigned char bytes[HEAD];
    size_t size;
    uint64_t file_size;
};

static bool starts_with(const struct head *head, const char *magic, size_t size) {
    return head->size >= size && memcmp(head->bytes, magic, size) == 0;
}

/* The little-endian length of a JSON header, and its opening brace. */
static bool is_safetensors(const struct head *head) {
    uint64_t length = 0;
    for (int i = 0; head->size > 8 && i < 8; i++) length |= (uint64_t)head->bytes[i] << (8 * i);
    return length >= 2 && head->bytes[8] == '{' && length <= head->file_size - 8;
}

/* A zip archive, or the older pickle of protocol 2. */
static bool is_torch(const struct head *head) {
    return starts_with(head, "PK\003\004", 4) || starts_with(head, "\200\002", 2);
}

static bool is_numpy(const struct head *head) { return starts_with(head, "\223NUMPY", 6); }

static bool is_empty(const struct head *head) { return head->file_size == 0; }

static bool is_text(const struct head *head) {
    for (size_t i = 0; i < head->size; i++) {
        unsigned char c = head->bytes[i];
        if (c < 32 && c != '\t' && c != '\n' && c != '\r') return false;
    }
    return head->size > 0;
}

static const struct {
    bool (*is)(const struct head *head);
    const char *sentence;
} kinds[] = {
    {is_empty, "an empty file"},
    {is_safetensors,
     "a safetensors file, which has weights but not the state of a run; start a run from it with model.init_from"},
    {is_torch,
     "a file of torch.save, which has weights but not the state of a run; start a run from it with model.init_from"},
    {is_numpy, "a file of numpy.save, not a checkpoint"},
    {is_text, "a text file, not a checkpoint; those are the .h5 files in checkpoints/ of a run folder"},
};

static status read_head(const char *path, struct head *head) {
    struct io_info info;
    int fd;
    *head = (struct head){0};
    TRY(io_open(path, &fd));
    status s = io_stat_fd(fd, path, &info);
    if (!s && info.is_file) s = io_read_at(fd, path, head->bytes, HEAD, 0, &head->size);
    if (!s && !info.is_file) s = status_new(STATUS_DATA, "%s: not a regular file", path);
    head->file_size = info.size;
    return status_first(s, io_close(fd, path));
}

status foreign_explain(const char *path, status failure) {
    struct head head;
    status unread = read_head(path, &head);
    for (size_t i = 0; !unread && i < sizeof kinds / sizeof *kinds; i++) {
        if (!kinds[i].is(&head)) continue;
        status_free(failure);
        return status_new(STATUS_DATA, "%s: %s", path, kinds[i].sentence);
    }
    status_free(unread);
    return failure;
}

static bool begins_as(const char *path, bool (*is)(const struct head *)) {
    struct head head;
    status unread = read_head(path, &head);
    bool result = !unread && is(&head);
    status_free(unread);
    return result;
}

bool foreign_is_safetensors(const char *path) { return begins_as(path, is_safetensors); }

bool foreign_is_torch(const char *path) { return begins_as(path, is_torch); }
