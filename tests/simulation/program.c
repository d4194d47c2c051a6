/* The program: main, the command `train` and the choice between launcher and rank are the product's files, included
 * here so that their static variables can be saved and loaded for each process. */
#undef _FORTIFY_SOURCE
#include "simulation.h"

#define main program_main
#include "../../cmd/ddptrain/main.c"
#undef main
#include "../../cmd/ddptrain/train.c"
#include "../../src/base/stop.c"

/* All static variables of main.c and stop.c: CMakeLists.txt compares the lists. */
static volatile sig_atomic_t *const variables[] = {&is_requested, &is_deferred,   &is_rank,     &is_silent,
                                                   &is_quiet,     &saves_nothing, &forwarded_to};
#define VARIABLES (sizeof variables / sizeof *variables)

const struct program_state program_initial = {.values = {0, 0, 0, 0, 0, 0, -1}};

void program_save(struct program_state *state) {
    for (size_t i = 0; i < VARIABLES; i++) state->values[i] = *variables[i];
    state->first_request = first_request;
}

void program_load(const struct program_state *state) {
    for (size_t i = 0; i < VARIABLES; i++) *variables[i] = state->values[i];
    first_request = state->first_request;
}

/* ---- functions of the command that are not simulated ---- */

bool help_print(int argc, char **argv, status *s) {
    (void)argc;
    (void)argv;
    (void)s;
    return false;
}

/* The config is valid and is not read. */
static struct config no_config;
status __wrap_config_load(const char *path, char *const *overrides, size_t count, struct config_file **out);
status __wrap_config_load(const char *path, char *const *overrides, size_t count, struct config_file **out) {
    (void)path;
    (void)overrides;
    (void)count;
    *out = (struct config_file *)(void *)&no_config;
    return OK;
}
void __wrap_config_free(struct config_file *file);
void __wrap_config_free(struct config_file *file) { (void)file; }
const struct config *__wrap_config_of(const struct config_file *file);
const struct config *__wrap_config_of(const struct config_file *file) {
    (void)file;
    return &no_config;
}
bool __wrap_config_device_is_auto(const struct config *config);
bool __wrap_config_device_is_auto(const struct config *config) {
    (void)config;
    return false;
}
const char *__wrap_config_device_name(const struct config *config);
const char *__wrap_config_device_name(const struct config *config) {
    (void)config;
    return "cpu";
}
bool __wrap_parallel_is_given(void);
bool __wrap_parallel_is_given(void) { return true; }

/* libhdf5 would allocate for the process that comes first what all of them use. */
void __wrap_hdf5_skip_end(void);
void __wrap_hdf5_skip_end(void) {}
