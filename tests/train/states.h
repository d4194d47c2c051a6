/* states: a small training state for the tests of checkpoints. */
#pragma once

#include "checkpoint/checkpoint.h"
#include "files.h"

struct state {
    float weight[2][3], bias[2];
    double mean[3];
    int64_t step, epochs[2];
    const char *config;
    float nothing[1];
};

#define STATE_ENTRIES 8

/* A state that depends on [step]. */
static inline struct state make_state(int64_t step) {
    struct state state = {.step = step, .epochs = {step / 2, -1}, .config = "name: test\nseed: 42 # \xc3\xa9\n"};
    for (int i = 0; i < 6; i++) state.weight[i / 3][i % 3] = (float)step + (float)i / 7;
    for (int i = 0; i < 2; i++) state.bias[i] = -(float)(step * i);
    for (int i = 0; i < 3; i++) state.mean[i] = 1e300 / (double)(i + step + 1);
    return state;
}

static inline void list_entries(struct state *state, struct entry entries[STATE_ENTRIES]) {
    entries[0] = (struct entry){"model/0.weight", ENTRY_FLOAT32, 2, {2, 3}, state->weight, false};
    entries[1] = (struct entry){"model/0.bias", ENTRY_FLOAT32, 1, {2}, state->bias, false};
    entries[2] = (struct entry){"optimizer/exp_avg/0.weight", ENTRY_FLOAT32, 2, {2, 3}, state->weight, false};
    entries[3] = (struct entry){"state/step", ENTRY_INT64, 0, {0}, &state->step, false};
    entries[4] = (struct entry){"state/epochs", ENTRY_INT64, 1, {2}, state->epochs, false};
    entries[5] = (struct entry){"scaler/mean", ENTRY_FLOAT64, 1, {3}, state->mean, false};
    entries[6] = (struct entry){"config", ENTRY_TEXT, 0, {0}, (void *)(uintptr_t)state->config, false};
    entries[7] = (struct entry){"model/empty", ENTRY_FLOAT32, 2, {0, 4}, state->nothing, false};
}

static inline status write_state(const char *folder, const char *name, int64_t step) {
    struct state state = make_state(step);
    struct entry entries[STATE_ENTRIES];
    list_entries(&state, entries);
    return checkpoint_write(folder, name, entries, STATE_ENTRIES);
}

/* Reads the complete state; *step is its step, and every other value must be that of make_state(step). */
static inline status read_state(struct checkpoint *checkpoint, int64_t *step) {
    struct state state = {0};
    struct entry entries[STATE_ENTRIES];
    char *config = NULL;
    list_entries(&state, entries);
    entries[6].data = &config;
    static const char *const complete[] = {"model", "optimizer", "state", "scaler", NULL};
    status s = checkpoint_read(checkpoint, entries, STATE_ENTRIES, complete);
    if (s == OK) {
        struct state expected = make_state(state.step);
        ck_assert_mem_eq(state.weight, expected.weight, sizeof state.weight);
        ck_assert_mem_eq(state.bias, expected.bias, sizeof state.bias);
        ck_assert_mem_eq(state.mean, expected.mean, sizeof state.mean);
        ck_assert_mem_eq(state.epochs, expected.epochs, sizeof state.epochs);
        ck_assert_str_eq(config, expected.config);
        *step = state.step;
    }
    free(config);
    return s;
}

static inline void assert_state(const char *path, int64_t step) {
    struct checkpoint *checkpoint;
    int64_t found = -1;
    ck_ok(checkpoint_open(path, &checkpoint));
    ck_ok(read_state(checkpoint, &found));
    ck_assert_int_eq(found, step);
    checkpoint_close(checkpoint);
}

/* The step of the newest checkpoint of [folder], -1 without one; *s: the failure. */
static inline int64_t newest_step(const char *folder, status *s) {
    struct checkpoint *checkpoint;
    char *path;
    int64_t step = -1;
    *s = checkpoint_open_newest(folder, NULL, &checkpoint, &path);
    if (checkpoint) ck_ok(read_state(checkpoint, &step));
    ck_assert((checkpoint == NULL) == (path == NULL));
    checkpoint_close(checkpoint);
    free(path);
    return step;
}
