/* [size] is the length of the file up to the end of the last complete write. */
#include "train/metrics/append_file.h"

#include <stdlib.h>

#include "base/files/io.h"

status append_file_flush(struct append_file *file) {
    if (file->buffer.length == 0) return OK;
    if (file->is_torn) TRY(io_truncate(file->fd, file->path, file->size));
    status s = io_write(file->fd, file->path, file->buffer.data, file->buffer.length);
    file->is_torn = s != OK;
    TRY(s);
    file->size += file->buffer.length;
    text_clear(&file->buffer);
    return OK;
}

status append_file_truncate(struct append_file *file, uint64_t size) {
    text_clear(&file->buffer);
    if (size >= file->size && !file->is_torn) return OK;
    if (size < file->size) file->size = size;
    return io_truncate(file->fd, file->path, file->size);
}

status append_file_close(struct append_file *file) {
    status s = OK;
    if (file->fd >= 0) {
        s = append_file_flush(file);
        s = status_first(s, io_close(file->fd, file->path));
    }
    text_free(&file->buffer);
    free(file->path);
    *file = (struct append_file){.fd = -1};
    return s;
}
