/* Gets the job's secret and rank 0's listening socket. */
#include "dist/store/store_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/digest.h"
#include "base/files/io.h"
#include "base/text.h"
#include "dist/process/net.h"
#include "dist/process/variables.h"

#define MIN_SECRET 16

/* A descriptor that the launcher passed in [variable], now close-on-exec; -1: none. */
static int passed_descriptor(const char *variable) {
    const char *text = getenv(variable);
    if (!text || !*text) return -1;
    int fd = atoi(text);
    if (fd <= 2 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return -1;
    return fd;
}

static void derive_secret(const char *source, const char *value, uint8_t secret[32]) {
    struct text text = {0};
    text_printf(&text, "ddptrain %s:%s", source, value);
    digest_of(text.data, text.length, secret);
    text_free(&text);
}

static int secret_descriptor(const struct dist_env *env) {
    return env->launcher == LAUNCHER_OWN ? passed_descriptor(SECRET_FD_VARIABLE) : -1;
}

status store_secret_find(const struct dist_env *env, uint8_t secret[32]) {
    const char *variable = getenv(SECRET_VARIABLE);
    int fd = secret_descriptor(env);
    if (fd >= 0) return io_read_at(fd, "the job's secret from the launcher", secret, 32, 0, NULL);
    if (store_secret_is_guessable(env)) {
        derive_secret("job", env->job_id, secret);
        return OK;
    }
    if (strlen(variable) < MIN_SECRET)
        return status_new(STATUS_USAGE,
                          SECRET_VARIABLE
                          " has %zu characters, but must have at least %d, so that nobody can guess it; "
                          "set it to the output of 'openssl rand -hex 16', the same on all hosts",
                          strlen(variable), MIN_SECRET);
    derive_secret("secret", variable, secret);
    return OK;
}

bool store_secret_is_guessable(const struct dist_env *env) {
    const char *variable = getenv(SECRET_VARIABLE);
    return secret_descriptor(env) < 0 && (!variable || !*variable);
}

void store_secret_warn(struct log *log) {
    log_warning(log, "anyone who can reach rank 0 can join this job, because its secret is derived from its name; "
                     "set " SECRET_VARIABLE " to the output of 'openssl rand -hex 16', the same on all hosts");
}

status store_listener_find(const struct dist_env *env, int *fd) {
    *fd = env->launcher == LAUNCHER_OWN ? passed_descriptor(STORE_FD_VARIABLE) : -1;
    if (*fd >= 0) {
        int flags = fcntl(*fd, F_GETFL);
        if (flags < 0 || fcntl(*fd, F_SETFL, flags | O_NONBLOCK) != 0)
            return status_errno(STATUS_BUG, errno, "the launcher passed no usable socket in " STORE_FD_VARIABLE);
        return OK;
    }
    return net_listen(env->master_addr, env->master_port, env->local_world_size == env->world_size, fd);
}
