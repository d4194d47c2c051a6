/* workers: each item runs once, on a worker of the set; the first failure by index is reported. ctest-labels: unit */
#include "base/system/thread.h"

#include "check_main.h"
#include "files.h"

#define ITEMS 1000

struct work {
    int runs[ITEMS];
    size_t workers, fails_from; /* items from here on fail */
};

static status task(void *context, size_t index, size_t worker) {
    struct work *work = context;
    ck_assert_uint_lt(worker, work->workers);
    work->runs[index]++;
    return index < work->fails_from ? OK : status_new(STATUS_DATA, "item %zu", index);
}

TEST_LOOP(runs_each_item_once, 1, 6) {
    struct workers *workers;
    struct work work = {.workers = (size_t)_i, .fails_from = ITEMS};
    ck_ok(workers_create((size_t)_i, "test", &workers));
    for (size_t count = 0; count <= ITEMS; count += 250) {
        memset(work.runs, 0, sizeof work.runs);
        ck_ok(workers_run(workers, count, task, &work));
        for (size_t i = 0; i < ITEMS; i++) ck_assert_int_eq(work.runs[i], i < count);
    }
    workers_destroy(workers);
}

TEST_LOOP(reports_the_first_failure, 1, 6) {
    struct workers *workers;
    struct work work = {.workers = (size_t)_i, .fails_from = 300};
    ck_ok(workers_create((size_t)_i, "test", &workers));
    for (int round = 0; round < 20; round++) {
        status s = workers_run(workers, ITEMS, task, &work);
        ck_failure(s, STATUS_DATA, "item 300");
    }
    work.fails_from = ITEMS;
    ck_ok(workers_run(workers, ITEMS, task, &work));
    workers_destroy(workers);
    workers_destroy(NULL);
}

CHECK_MAIN("workers")
