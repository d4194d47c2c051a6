/* Any bytes as an SQLite database: read or described, or rejected with a sentence, never a crash. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/dataset/dataset.h"
#include "data/source/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char path[32];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct dataset_config config = {.path = path, .divide = (double)NAN, .cache_mb = 1};
    while (dataset_format_at((size_t)config.format) != &dataset_sqlite) config.format++;
    config.format++;
    struct dataset *dataset;
    status s = dataset_open(&config, true, false, &dataset);
    if (s && status_message(s)[0] == 0) abort();
    dataset_close(dataset);
    status_free(s);
    struct text out = {0};
    status_free(dataset_sqlite.inspect(path, &out));
    text_free(&out);
    close(fd);
    return 0;
}
