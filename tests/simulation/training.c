/* The calls of run_train to the control plane: load, join, compare, connect, resume, steps with an all-reduce, saves by
 * rank 0, the end. Their order is that of src/train/run/run.c and src/train/loop/loop.c. */

#include "base/clock.h"
#include "base/stop.h"
#include "dist/comm/comm.h"
#include "dist/process/launcher_channel.h"
#include "dist/store/store.h"
#include "simulation.h"
#include "train/run/run.h"

#define TIMEOUT 120.0 /* dist.timeout */
#define HANG 8.0      /* dist.hang_timeout */

struct run {
    const struct dist_env *env;
    const struct run_options *options;
    struct log *log;
    struct store *store;
    struct comm *comm;
    struct activity *activity;
    int64_t step;
};

static bool is_first_rank(const struct run *run) { return run->env->rank == 0; }

static double draw_seconds(double max) { return max * random_below(&world.random, 1000) / 1000; }

static status load(const struct run *run) {
    for (int i = 0; i < 3; i++) clock_sleep(draw_seconds(0.1));
    if (world.scenario.data_failure != run->env->rank) return OK;
    return status_new(STATUS_DATA, "the data of rank %d is missing", run->env->rank);
}

static status join_group(struct run *run) {
    const struct run_options *o = run->options;
    if (run->env->world_size > 1) {
        struct store_options options = {
            .timeout = TIMEOUT, .hang = HANG, .log = run->log, .overdue = o->overdue, .forwards_stop = true};
        TRY(store_open_with(run->env, &options, &run->store));
        run->activity = store_activity(run->store);
        TRY(store_agree(run->store, "the program, the config, the data or the model", "the same\n", TIMEOUT));
    }
    TRY(comm_create("gloo", run->env, run->store, TIMEOUT, &run->comm));
    return comm_barrier(run->comm);
}

static status resume(struct run *run) {
    int64_t step = world.checkpoint;
    TRY(comm_broadcast(run->comm, &step, sizeof step, COMM_UINT8, 0));
    run->step = step;
    launcher_send(MESSAGE_RESUMED, 0, step, "run");
    return comm_barrier(run->comm);
}

static status save(const struct run *run) {
    activity_phase(run->activity, ACTIVITY_SAVING);
    if (is_first_rank(run)) {
        clock_sleep(0.005 + draw_seconds(0.05));
        if (run->step > world.checkpoint) world.checkpoint = run->step;
        activity_saved(run->activity, run->step);
        launcher_send(MESSAGE_SAVED, 0, run->step, "");
    }
    return OK;
}

/* *stops: number of ranks that have got a request to stop. */
static status step(struct run *run, double *stops) {
    double start = clock_seconds(), sums[2] = {stop_is_requested() ? 1 : 0, run->env->rank + 1};
    int world_size = run->env->world_size;
    activity_phase(run->activity, ACTIVITY_LOADING);
    activity_phase(run->activity, ACTIVITY_FORWARD);
    clock_sleep(0.005 + draw_seconds(0.04));
    activity_phase(run->activity, ACTIVITY_BACKWARD);
    TRY(comm_all_reduce(run->comm, sums, 2, COMM_FLOAT64, COMM_SUM));
    if (sums[1] != (double)world_size * (world_size + 1) / 2) violation("rank %d has a wrong sum", run->env->rank);
    world.has_stepped = true;
    activity_phase(run->activity, ACTIVITY_UPDATING);
    *stops = sums[0];
    run->step++;
    activity_step(run->activity, run->step, clock_seconds() - start);
    return OK;
}

static status run_all(struct run *run) {
    while (run->step < world.scenario.steps) {
        double stops;
        TRY(step(run, &stops));
        bool is_last = run->step == world.scenario.steps;
        if (is_last || stops > 0 || run->step % world.scenario.save_every == 0) TRY(save(run));
        if (stops > 0 && !is_last)
            return status_new(STATUS_STOPPED, "stopped on request after step %lld; the state is saved",
                              (long long)run->step);
    }
    return OK;
}

static status train(struct run *run) {
    stop_defer();
    status s = run_all(run);
    if (!s || status_code(s) == STATUS_STOPPED) s = status_first(s, comm_barrier(run->comm));
    return s;
}

static void tear_down(struct run *run, status result) {
    if (run->store && result && status_code(result) != STATUS_STOPPED) store_report(run->store, result);
    comm_destroy(run->comm);
    store_close(run->store);
}

status __wrap_run_train(const struct config *config, const struct dist_env *env, const struct run_options *options,
                        struct log *log);
status __wrap_run_train(const struct config *config, const struct dist_env *env, const struct run_options *options,
                        struct log *log) {
    (void)config;
    struct run run = {.env = env, .options = options, .log = log};
    status s = load(&run);
    if (s) store_report_before_joining(env, NULL, 0, log, s);
    if (!s) s = join_group(&run);
    if (!s) s = resume(&run);
    if (!s) s = train(&run);
    tear_down(&run, s);
    return s;
}
