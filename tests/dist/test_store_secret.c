/* The job's secret comes from the launcher's file, else from the user's variable, else from the job's name.
 * ctest-labels: unit */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check_main.h"
#include "dist/process/env.h"
#include "files.h"

struct secret {
    uint8_t bytes[32];
};

/* A file with 32 bytes of [value], as the launcher passes it, named in the environment. */
static int pass_file(uint8_t value) {
    uint8_t bytes[32];
    char text[16];
    int fd = memfd_create("secret", 0);
    memset(bytes, value, sizeof bytes);
    ck_assert_int_eq(pwrite(fd, bytes, sizeof bytes, 0), sizeof bytes);
    snprintf(text, sizeof text, "%d", fd);
    setenv(SECRET_FD_VARIABLE, text, 1);
    return fd;
}

static struct secret find(enum dist_launcher launcher, const char *job) {
    struct dist_env env = {.launcher = launcher};
    struct secret secret;
    snprintf(env.job_id, sizeof env.job_id, "%s", job);
    ck_ok(dist_env_secret(&env, secret.bytes));
    return secret;
}

static bool is_same(struct secret a, struct secret b) { return memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0; }

/* Nobody can guess it from the job's name, and processes that a rank starts do not get the file. */
TEST(the_launchers_file_comes_first) {
    struct secret expected;
    memset(expected.bytes, 0xa5, sizeof expected.bytes);
    setenv(SECRET_VARIABLE, "secret of the user", 1);
    int fd = pass_file(0xa5);
    ck_assert(is_same(find(LAUNCHER_OWN, "job"), expected));
    ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    ck_assert(is_same(find(LAUNCHER_OWN, "another job"), expected));
}

TEST(other_launchers_pass_no_file) {
    pass_file(0xa5);
    setenv(SECRET_VARIABLE, "secret of the user", 1);
    struct secret with_file = find(LAUNCHER_TORCHRUN, "job");
    unsetenv(SECRET_FD_VARIABLE);
    ck_assert(is_same(with_file, find(LAUNCHER_TORCHRUN, "job")));
    ck_assert(is_same(with_file, find(LAUNCHER_OWN, "another job")));
}

TEST(secrets_differ) {
    unsetenv(SECRET_FD_VARIABLE);
    unsetenv(SECRET_VARIABLE);
    struct secret of_a = find(LAUNCHER_SLURM, "a");
    ck_assert(!is_same(of_a, find(LAUNCHER_SLURM, "b")));
    setenv(SECRET_VARIABLE, "", 1); /* as if it was not set */
    ck_assert(is_same(of_a, find(LAUNCHER_SLURM, "a")));
    setenv(SECRET_VARIABLE, "aaaaaaaaaaaaaaaa", 1);
    struct secret of_user = find(LAUNCHER_SLURM, "a");
    ck_assert(!is_same(of_user, of_a));
    setenv(SECRET_VARIABLE, "aaaaaaaaaaaaaaab", 1);
    ck_assert(!is_same(of_user, find(LAUNCHER_SLURM, "a")));
}

TEST(short_secrets_are_rejected) {
    struct dist_env env = {.launcher = LAUNCHER_SLURM, .job_id = "a"};
    uint8_t secret[32];
    unsetenv(SECRET_FD_VARIABLE);
    unsetenv(SECRET_VARIABLE);
    ck_assert(dist_env_secret_is_guessable(&env));
    setenv(SECRET_VARIABLE, "0123456789abcde", 1);
    ck_failure(dist_env_secret(&env, secret), STATUS_USAGE,
               "DDPTRAIN_SECRET has 15 characters, but must have at least 16");
    setenv(SECRET_VARIABLE, "0123456789abcdef", 1);
    ck_ok(dist_env_secret(&env, secret));
    ck_assert(!dist_env_secret_is_guessable(&env));
    unsetenv(SECRET_VARIABLE);
    pass_file(0xa5);
    env.launcher = LAUNCHER_OWN;
    ck_assert(!dist_env_secret_is_guessable(&env));
}

/* A standard stream, or a descriptor that is not open, is not the launcher's file. */
TEST_LOOP(descriptors_that_are_none, 0, 5) {
    const char *const texts[] = {"", "2", "-1", "x", "9999"};
    unsetenv(SECRET_FD_VARIABLE);
    struct secret expected = find(LAUNCHER_OWN, "job");
    setenv(SECRET_FD_VARIABLE, texts[_i], 1);
    ck_assert(is_same(find(LAUNCHER_OWN, "job"), expected));
}

CHECK_MAIN("store_secret")
