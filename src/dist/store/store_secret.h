/* store_secret: the secret and the listening socket that a rank gets from the launcher or the environment. */
#ifndef DIST_STORE_SECRET_H
#define DIST_STORE_SECRET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "base/status.h"
#include "dist/process/env.h"

/* The secret: from the launcher's file, else from the variable DDPTRAIN_SECRET (STATUS_USAGE: too short), else derived
 * from the job id, which others can guess. */
status store_secret_find(const struct dist_env *env, uint8_t secret[32]);
bool store_secret_is_guessable(const struct dist_env *env);
/* A warning for rank 0 of several hosts with such a secret. */
void store_secret_warn(struct log *log);

/* Rank 0: *fd is the launcher's listening socket, else a new one on master_addr:master_port. */
status store_listener_find(const struct dist_env *env, int *fd);

#endif
