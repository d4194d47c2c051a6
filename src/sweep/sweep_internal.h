/* Declarations shared by the files of sweep_config. */
#ifndef SWEEP_SWEEP_INTERNAL_H
#define SWEEP_SWEEP_INTERNAL_H

#include "sweep/sweep_config.h"

/* ---- sweep_trial.c ---- */

/* The config of trial [trial] with the metric and the first fold, but without values of parameters. */
status sweep_fixed_config(const struct sweep_config *sweep, int64_t trial, struct config_file **out);

/* ---- sweep_check.c: what the config of the trials says of a sweep whose file [root] was read without a problem ----
 */

void sweep_check(const struct sweep_config *sweep, const struct node *root, struct problems *problems);

#endif
