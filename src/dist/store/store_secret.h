/* store_secret: what the store of a rank inherits from the launcher or the environment. */
#ifndef DIST_STORE_SECRET_H
#define DIST_STORE_SECRET_H

#include <stdint.h>

#include "base/status.h"
#include "dist/process/env.h"

/* The launcher's file, else the variable DDPTRAIN_SECRET, else something derived from the job id. */
status store_secret_find(const struct dist_env *env, uint8_t secret[32]);

/* Rank 0: the launcher's socket, else a new one on master_addr:master_port. */
status store_listener_find(const struct dist_env *env, int *fd);

#endif
