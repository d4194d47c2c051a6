/* Declarations shared by the files that read the file of a sweep: sweep_config.c, sweep_schema.c, sweep_parameters.c,
 * sweep_trial.c and sweep_check.c. */
#ifndef SWEEP_SWEEP_CONFIG_INTERNAL_H
#define SWEEP_SWEEP_CONFIG_INTERNAL_H

#include "sweep/sweep_config.h"

#define SWEEP_MAX_TRIALS 10000000

/* ---- sweep_parameters.c ---- */

/* Reads `parameters` into sweep->space, or the list of `trials` into sweep->list and sweep->trials, with memory of
 * [arena]. Adds each problem with its place. */
void sweep_read_parameters(const struct node *node, struct sweep_config *sweep, struct arena *arena,
                           struct problems *problems);
void sweep_read_list(const struct node *list, struct sweep_config *sweep, struct arena *arena,
                     struct problems *problems);
/* Add them as YAML; nothing where there are none. */
void sweep_write_parameters(const struct sweep_config *sweep, struct text *out);
void sweep_write_list(const struct sweep_config *sweep, struct text *out);

/* ---- sweep_trial.c ---- */

/* The config of trial [trial] with the metric and the first fold, but without values of parameters. */
status sweep_fixed_config(const struct sweep_config *sweep, int64_t trial, struct config_file **out);

/* ---- sweep_check.c: what the config of the trials says of a sweep whose file [root] was read without a problem ----
 */

void sweep_check(const struct sweep_config *sweep, const struct node *root, struct problems *problems);

#endif
