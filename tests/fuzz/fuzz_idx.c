/* Any bytes as the two files of an IDX dataset, plain or compressed: read, or refused with a sentence, never a crash.
 * The first two bytes say where the labels start. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A file in memory; its path (32). */
static int memory_file(const uint8_t *bytes, size_t size, char *path) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size) abort();
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

static void read_rows(struct dataset *dataset) {
    const struct dataset_info *info = dataset_info(dataset);
    int64_t positions[4] = {0, (int64_t)info->train_rows - 1, 0, (int64_t)info->train_rows / 2};
    float *inputs = malloc(4 * info->input_size * sizeof *inputs);
    void *targets = malloc(4 * dataset_target_bytes(info));
    if (!inputs || !targets) abort();
    status_free(dataset_read(dataset, DATASET_TRAIN, positions, 4, inputs, targets));
    free(inputs);
    free(targets);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char images[32], labels[32];
    if (size < 2) return 0;
    size_t cut = ((size_t)bytes[0] << 8 | bytes[1]) % (size - 1);
    int fds[2] = {memory_file(bytes + 2, cut > size - 2 ? size - 2 : cut, images),
                  memory_file(bytes + 2 + cut, size - 2 - cut, labels)};
    const char *names[] = {labels};
    struct dataset_config config = {
        .path = images, .targets = {.items = names, .count = 1}, .divide = (double)NAN, .cache_mb = bytes[0] % 2};
    while (dataset_format_at((size_t)config.format) != &dataset_idx) config.format++;
    config.format++;
    for (int wants_classes = 0; wants_classes < 2; wants_classes++) {
        struct dataset *dataset;
        status s = dataset_open(&config, wants_classes, false, &dataset);
        if (s == OK) read_rows(dataset);
        if (s != OK && status_message(s)[0] == 0) abort();
        dataset_close(dataset);
        status_free(s);
    }
    close(fds[0]);
    close(fds[1]);
    return 0;
}
