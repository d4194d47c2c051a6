/* simulate: runs schedules and prints those whose checks fail. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "simulation.h"

static const char usage[] =
    "usage: simulate FIRST COUNT [KIND ...]    schedules of these seeds, of all or of these kinds\n"
    "       simulate --seed N [--trace]        one seed, with every system call\n"
    "       simulate --seeds N ...             these seeds\n"
    "       simulate --replay FIRST COUNT      each twice; both must make the same system calls at the same times\n";

static bool is_selected(const char *kind, int count, char **kinds) {
    for (int i = 0; i < count; i++)
        if (strcmp(kinds[i], kind) == 0) return true;
    return count == 0;
}

/* Whether all checks passed; prints those that failed. */
static bool run_scenario(const struct scenario *scenario, bool is_traced) {
    schedule_run(scenario, is_traced);
    if (world.violations.length == 0) return true;
    struct text what = {0};
    scenario_describe(&world.scenario, &what);
    printf("seed %llu: %s\n%s", (unsigned long long)scenario->seed, text_string(&what), text_string(&world.violations));
    text_free(&what);
    return false;
}

static int run_one(uint64_t seed, bool is_traced) {
    struct scenario scenario;
    struct text what = {0};
    scenario_draw(seed, &scenario);
    bool is_good = run_scenario(&scenario, is_traced);
    scenario_describe(&world.scenario, &what);
    printf("%s\n%s after %.3f s, %llu system calls, hash %016llx\n", text_string(&what), is_good ? "passed" : "failed",
           (double)world.now * 1e-9, (unsigned long long)world.calls, (unsigned long long)world.hash);
    text_free(&what);
    return is_good ? 0 : 1;
}

static double seconds_now(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int run_many(uint64_t first, uint64_t count, int kind_count, char **kinds) {
    uint64_t failed = 0, done = 0, calls = 0;
    double start = seconds_now();
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct scenario scenario;
        scenario_draw(seed, &scenario);
        if (!is_selected(scenario.name, kind_count, kinds)) continue;
        failed += !run_scenario(&scenario, false);
        calls += world.calls;
        done++;
    }
    double seconds = seconds_now() - start;
    printf("%llu schedules, %llu failed, %llu system calls, %.1f s, %.0f schedules/s\n", (unsigned long long)done,
           (unsigned long long)failed, (unsigned long long)calls, seconds, (double)done / seconds);
    return failed || !done ? 1 : 0;
}

static int replay(uint64_t first, uint64_t count) {
    int different = 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct scenario scenario;
        scenario_draw(seed, &scenario);
        schedule_run(&scenario, false);
        uint64_t hash = world.hash, calls = world.calls;
        schedule_run(&scenario, false);
        if (hash == world.hash && calls == world.calls && calls > 0) continue;
        different++;
        printf("seed %llu: the second run differs\n", (unsigned long long)seed);
    }
    printf("%llu schedules replayed, %d differ\n", (unsigned long long)count, different);
    return different ? 1 : 0;
}

static int run_some(int count, char **seeds) {
    int failed = 0;
    for (int i = 0; i < count; i++) {
        struct scenario scenario;
        scenario_draw(strtoull(seeds[i], NULL, 10), &scenario);
        failed += !run_scenario(&scenario, false);
    }
    printf("%d schedules, %d failed\n", count, failed);
    return failed ? 1 : 0;
}

static uint64_t number(const char *text) { return strtoull(text, NULL, 10); }

int main(int argc, char **argv) {
    bool is_traced = argc > 3 && strcmp(argv[3], "--trace") == 0;
    if (argc > 2 && strcmp(argv[1], "--seed") == 0) return run_one(number(argv[2]), is_traced);
    if (argc > 2 && strcmp(argv[1], "--seeds") == 0) return run_some(argc - 2, argv + 2);
    if (argc == 4 && strcmp(argv[1], "--replay") == 0) return replay(number(argv[2]), number(argv[3]));
    if (argc > 2 && argv[1][0] != '-') return run_many(number(argv[1]), number(argv[2]), argc - 3, argv + 3);
    fputs(usage, stderr);
    return 64;
}
