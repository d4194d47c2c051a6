/* Any bytes as an HDF5 file, plain and with a good seal: inspected, opened as a checkpoint and read into a state, or
 * refused with a sentence that names the file. Parsed in this process, so that a crash is seen; tests/proof/fuzz.sh
 * tells crashes within libhdf5, which the product's child process contains, from ours. */
#include <stdlib.h>
#include <string.h>

#include "base/files/sealed.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/inspect.h"
#include "data/text/vocabulary.h"
#include "fuzz/hdf5_file.h"
#include "fuzz/hdf5_mutator.h"
#include "hdf5_in_process.h"
#include "train/state/data_entries.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void must(bool condition) {
    if (!condition) abort();
}

/* Whether it went well; a failure is about the file. */
static bool is_ok(status s) {
    bool is_good = s == OK;
    must(is_good || (status_code(s) == STATUS_DATA && status_message(s)[0]));
    status_free(s);
    return is_good;
}

static void inspect(const char *path) {
    struct text out = {0};
    status s = checkpoint_inspect(path, &out);
    must(!s || strncmp(status_message(s), path, strlen(path)) == 0);
    is_ok(s);
    text_free(&out);
}

static status add_up(void *context, const char *name, int dims, const int64_t *shape, const float *values) {
    uint64_t count = 1;
    uint8_t sum = 0;
    must(strlen(name) < SIZE_MAX && dims <= MAX_DIMS);
    for (int d = 0; d < dims; d++) count *= (uint64_t)shape[d];
    for (uint64_t i = 0; i < count * sizeof *values; i++) sum ^= ((const uint8_t *)values)[i];
    *(uint8_t *)context ^= sum;
    return OK;
}

/* What a resume reads. */
static void read_state(struct checkpoint *checkpoint) {
    static const char *const complete[] = {"model", "optimizer", NULL};
    float weight[2][3], bias[2], average[2][3];
    double mean[3];
    int64_t step = 0;
    char *config = NULL;
    struct entry entries[] = {{"model/0.weight", ENTRY_FLOAT32, 2, {2, 3}, weight, false},
                              {"model/0.bias", ENTRY_FLOAT32, 1, {2}, bias, false},
                              {"optimizer/exp_avg/0.weight", ENTRY_FLOAT32, 2, {2, 3}, average, true},
                              {"scaler/mean", ENTRY_FLOAT64, 1, {3}, mean, true},
                              {"state/step", ENTRY_INT64, 0, {0}, &step, false},
                              {"config", ENTRY_TEXT, 0, {0}, &config, true}};
    is_ok(checkpoint_read(checkpoint, entries, sizeof entries / sizeof *entries, complete));
    free(config);
}

/* Texts that are parsed further. */
static void read_texts(struct checkpoint *checkpoint) {
    struct arena *arena = arena_create();
    struct column_list columns, now = {.format = "csv", .count = 1, .items = &(struct named_column){"a", COLUMN_INPUT}};
    struct string_list classes;
    struct vocabulary *vocabulary;
    char *labels = NULL, *characters = NULL;
    struct entry entries[] = {{"data/labels", ENTRY_TEXT, 0, {0}, &labels, true},
                              {"data/vocabulary", ENTRY_TEXT, 0, {0}, &characters, true}};
    if (is_ok(column_names_read(arena, checkpoint, &columns)))
        is_ok(column_names_compare(&columns, &now, "a", "--fresh"));
    if (is_ok(checkpoint_read(checkpoint, entries, 2, NULL))) {
        if (labels) is_ok(labels_read(arena, labels, &classes));
        if (characters && is_ok(vocabulary_create(characters, &vocabulary))) vocabulary_destroy(vocabulary);
    }
    free(labels);
    free(characters);
    arena_destroy(arena);
}

/* Values whose size the file decides. */
static void read_found(struct checkpoint *checkpoint, size_t file_size) {
    static const char *const paths[] = {"scaler/mean", "scaler/scale", "model/0.weight"};
    for (int i = 0; i < 3; i++) {
        struct entry entry = {.path = paths[i]};
        bool exists;
        uint64_t count = 1;
        if (!is_ok(checkpoint_find(checkpoint, &entry, &exists)) || !exists || entry.type == ENTRY_TEXT) continue;
        for (int d = 0; d < entry.dims; d++) count *= (uint64_t)entry.shape[d];
        must(count <= file_size);
        entry.data = malloc(count * (entry.type == ENTRY_FLOAT32 ? 4 : 8) + 1);
        must(entry.data != NULL);
        is_ok(checkpoint_read(checkpoint, &entry, 1, NULL));
        free(entry.data);
    }
}

static void open_checkpoint(const char *path, size_t file_size) {
    struct checkpoint *checkpoint;
    uint8_t sum = 0;
    bool has;
    if (!is_ok(checkpoint_open(path, &checkpoint))) return;
    read_state(checkpoint);
    read_texts(checkpoint);
    read_found(checkpoint, file_size);
    is_ok(checkpoint_has(checkpoint, "ema", &has));
    is_ok(checkpoint_visit(checkpoint, "model", add_up, &sum));
    checkpoint_close(checkpoint);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct hdf5_file file;
    uint8_t trailer[SEALED_TRAILER_SIZE];
    hdf5_file_create(&file, bytes, size);
    inspect(file.path);
    sealed_trailer(bytes, size, 1, trailer);
    hdf5_file_add(&file, trailer, sizeof trailer);
    inspect(file.path);
    open_checkpoint(file.path, size);
    hdf5_file_remove(&file);
    return 0;
}
