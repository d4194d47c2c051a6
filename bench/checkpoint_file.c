/* Times of checkpoints of any size, without a training run:
 *
 *     ninja -C build/release checkpoint_file && build/release/checkpoint_file MEGABYTES FOLDER [ROUNDS]
 *
 * prints a JSON line for each round: seconds of a save (hashed, written, synced, read back), of opening the file from
 * the memory's cache (verified, parsed), and of copying its values. The file is FOLDER/epoch-0001.h5. */
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"

#define TENSORS 30

struct tensors {
    float *values; /* (TENSORS, each) */
    size_t each;
    int64_t step;
    char names[TENSORS][32];
    struct entry entries[TENSORS + 1];
};

static status make_tensors(size_t megabytes, struct tensors *t) {
    uint32_t random = 1;
    t->each = megabytes * 1000000 / sizeof(float) / TENSORS;
    t->step = 1;
    TRY(buffer_new(TENSORS * t->each * sizeof *t->values, "the state", (void **)&t->values));
    for (size_t i = 0; i < TENSORS * t->each; i++)
        t->values[i] = (float)((random = random * 1664525u + 1013904223u) >> 8);
    for (size_t i = 0; i < TENSORS; i++) {
        snprintf(t->names[i], sizeof t->names[i], "model/%zu.weight", i);
        t->entries[i] =
            (struct entry){t->names[i], ENTRY_FLOAT32, 1, {(int64_t)t->each}, t->values + i * t->each, false};
    }
    t->entries[TENSORS] = (struct entry){"state/step", ENTRY_INT64, 0, {0}, &t->step, false};
    return OK;
}

static status measure(struct tensors *t, const char *folder) {
    char path[4096];
    struct checkpoint *checkpoint;
    double start = clock_seconds();
    snprintf(path, sizeof path, "%s/epoch-0001.h5", folder);
    TRY(checkpoint_write(folder, "epoch-0001", t->entries, TENSORS + 1));
    double written = clock_seconds();
    TRY(checkpoint_open(path, &checkpoint));
    double opened = clock_seconds();
    status s = checkpoint_read(checkpoint, t->entries, TENSORS + 1, NULL);
    double read = clock_seconds();
    checkpoint_close(checkpoint);
    printf("{\"save\":%.3f,\"open\":%.3f,\"copy\":%.3f}\n", written - start, opened - written, read - opened);
    fflush(stdout);
    return s;
}

int main(int count, char **arguments) {
    static struct tensors t;
    if (count < 3) {
        fprintf(stderr, "usage: checkpoint_file MEGABYTES FOLDER [ROUNDS]\n");
        return 64;
    }
    status s = make_tensors((size_t)atol(arguments[1]), &t);
    for (long round = 0; !s && round < (count > 3 ? atol(arguments[3]) : 3); round++) s = measure(&t, arguments[2]);
    if (s) fprintf(stderr, "%s\n", status_message(s));
    buffer_free(t.values);
    return s != OK;
}
