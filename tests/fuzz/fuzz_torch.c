/* Any bytes as a file of torch.save, and as the pickle in one: read, or rejected with a sentence that names the file,
 * never a crash. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/pickle.h"
#include "checkpoint/torch_file.h"
#include "fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void expect_sentence(status s, const char *path) {
    if (s && (status_code(s) != STATUS_DATA || strncmp(status_message(s), path, strlen(path)) != 0)) abort();
    status_free(s);
}

static void read_pickle(const uint8_t *bytes, size_t size) {
    struct arena *arena = arena_create();
    const struct pickle_value *value;
    uint8_t *exact = malloc(size ? size : 1); /* so that a read past the end is seen */
    if (!exact) abort();
    if (size) memcpy(exact, bytes, size);
    expect_sentence(pickle_parse("fuzz.pkl", exact, size, arena, &value), "fuzz.pkl: ");
    free(exact);
    arena_destroy(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    const char *path = "fuzz.pt";
    memory_file_set(0, path, bytes, size);
    struct safetensors file;
    expect_sentence(torch_file_read(path, &file), path);
    safetensors_close(&file);
    expect_sentence(torch_file_read_optimizer(path, &file), path);
    safetensors_close(&file);
    memory_files_check_closed();
    read_pickle(bytes, size);
    return 0;
}
