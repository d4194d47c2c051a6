/* thread: threads other than the main one get no signals. ctest-labels: unit */
#include "base/system/thread.h"

#include <signal.h>

#include "check_main.h"

static void *look(void *context) {
    int *blocked = context;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    const int all[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGHUP, SIGXCPU, SIGCHLD};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *blocked += sigismember(&mask, all[i]) == 1;
    return NULL;
}

TEST(signals_stay_with_the_thread_that_starts_it) {
    int blocked = 0;
    pthread_t thread;
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    ck_assert(!thread_start(&thread, "look", "a thread", look, &blocked));
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    ck_assert_int_eq(blocked, 8);
    for (int number = 1; number < 32; number++)
        ck_assert_int_eq(sigismember(&before, number), sigismember(&after, number));
}

static void *wait_for(void *context) {
    pthread_mutex_lock(context);
    pthread_mutex_unlock(context);
    return NULL;
}

TEST(it_has_a_name) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    char name[16];
    pthread_mutex_lock(&mutex);
    ck_assert(!thread_start(&thread, "a name", "a thread", wait_for, &mutex));
    ck_assert_int_eq(pthread_getname_np(thread, name, sizeof name), 0);
    ck_assert_str_eq(name, "a name");
    pthread_mutex_unlock(&mutex);
    pthread_join(thread, NULL);
}

CHECK_MAIN("thread")
