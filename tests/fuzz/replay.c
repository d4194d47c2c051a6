/* Runs a fuzz target over the files of its corpus, without libFuzzer: each file once as it is, and once for every
 * length it can be cut to and every byte it can have changed, as far as [MAX_CHANGES] go. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CHANGES 16
#define MAX_SIZE 65536

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void run(const char *bytes, size_t size) {
    uint8_t *exact = malloc(size ? size : 1); /* so that a read past the end is seen */
    if (!exact) abort();
    memcpy(exact, bytes, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static void run_changed(char *bytes, size_t size) {
    size_t stride = size / MAX_CHANGES + 1;
    for (size_t at = 0; at < size; at += stride) {
        run(bytes, at);
        bytes[at] ^= 0x15;
        run(bytes, size);
        bytes[at] ^= 0x15;
    }
}

int main(int argc, char **argv) {
    size_t files = 0;
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    if (!dir) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 64;
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        char path[4096], bytes[MAX_SIZE];
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        FILE *file = fopen(path, "rb");
        if (!file) abort();
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        run(bytes, size);
        run_changed(bytes, size);
        files++;
    }
    closedir(dir);
    printf("%zu files\n", files);
    return files == 0; /* an empty corpus tests nothing */
}
