/* A trial's config is the file of the trials with KEY=VALUE words, as a user would give them. */
#include <inttypes.h>
#include <string.h>

#include "data/sampling/split.h"
#include "sweep/sweep_config_internal.h"

int64_t sweep_seed_of(const struct sweep_config *sweep, int64_t repeat) {
    return sweep->repeat.seeds == SCHEMA_NO_INT ? -1 : repeat / sweep->folds;
}

int64_t sweep_fold_of(const struct sweep_config *sweep, int64_t repeat) {
    return sweep->repeat.folds == SCHEMA_NO_INT ? -1 : repeat % sweep->folds;
}

void sweep_add_test_name(const struct sweep_config *sweep, struct text *out) {
    const char *name = sweep->metric.name;
    if (strncmp(name, "val_", strlen("val_")) == 0) text_printf(out, "test_%s", name + strlen("val_"));
}

struct sweep_config sweep_with_other_seeds(const struct sweep_config *sweep) {
    struct sweep_config other = *sweep;
    other.repeat.seeds = sweep->repeat.seeds == SCHEMA_NO_INT ? 1 : SCHEMA_NO_INT;
    other.runs = sweep->folds;
    return other;
}

/* splitmix64, so that neighbouring numbers and seeds give unrelated generators. */
void sweep_rng(const struct sweep_config *sweep, int64_t trial, struct rng *rng) {
    uint64_t z = (uint64_t)sweep->seed * 0x9e3779b97f4a7c15u + (uint64_t)trial + 1;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    rng_seed(rng, z ^ (z >> 31));
}

void sweep_point(const struct sweep_config *sweep, int64_t trial, struct point *out) {
    struct rng rng;
    if (sweep->method == SWEEP_GRID) {
        space_grid_point(&sweep->space, (uint64_t)trial, out);
        return;
    }
    sweep_rng(sweep, trial, &rng);
    space_draw(&sweep->space, &rng, out);
}

/* KEY=VALUE words, in the order in which they are applied. */
struct words {
    char **items;
    size_t count, capacity;
    struct arena *arena;
};

static void add_word(struct words *words, const char *word) {
    if (words->count == words->capacity) {
        char **items = arena_alloc(words->arena, (2 * words->capacity + 16) * sizeof *items);
        if (words->count) memcpy(items, words->items, words->count * sizeof *items);
        words->items = items;
        words->capacity = 2 * words->capacity + 16;
    }
    words->items[words->count++] = arena_copy(words->arena, word);
}

static void add_point(const struct sweep_config *sweep, int64_t trial, const struct point *point, struct words *words) {
    struct text word = {0};
    for (size_t i = 0; sweep->list && sweep->list[trial][i]; i++) add_word(words, sweep->list[trial][i]);
    for (size_t i = 0; i < sweep->space.count; i++) {
        text_clear(&word);
        text_printf(&word, "%s=", sweep->space.items[i].path);
        parameter_write(&sweep->space.items[i], point->values[i], &word);
        add_word(words, text_string(&word));
    }
    text_free(&word);
}

static void add_metric(const struct sweep_config *sweep, struct words *words) {
    add_word(words, arena_printf(words->arena, "checkpoint.best={metric: %s, mode: %s}", sweep->metric.name,
                                 sweep->metric.goal == SWEEP_MAXIMIZE ? "max" : "min"));
}

static status add_seed(const struct config *config, int64_t seed, struct words *words) {
    if (seed <= 0) return OK;
    if (config->seed > INT64_MAX - seed || config->sampler.seed > INT64_MAX - seed)
        return status_new(STATUS_USAGE,
                          "repeat.seeds: seed %" PRId64 " or sampler.seed %" PRId64 " plus %" PRId64
                          " is above the largest seed; choose a smaller one",
                          config->seed, config->sampler.seed, seed);
    add_word(words, arena_printf(words->arena, "seed=%" PRId64, config->seed + seed));
    add_word(words, arena_printf(words->arena, "sampler.seed=%" PRId64, config->sampler.seed + seed));
    return OK;
}

/* In place of the config's own split, of which what says how rows are drawn stays. */
static void add_fold(const struct sweep_config *sweep, const struct config *config, int64_t fold, struct words *words) {
    const struct split_config *split = &config->dataset.split;
    struct text word = {0};
    if (fold < 0) return;
    text_printf(&word,
                "dataset.split={folds: %" PRId64 ", fold: %" PRId64 ", seed: %" PRId64
                ", shuffle: %s, stratify: %s, time_series: %s, group: ",
                sweep->folds, fold, split->seed, split->shuffle ? "true" : "false", split->stratify ? "true" : "false",
                split->time_series ? "true" : "false");
    if (split->group)
        text_add_json(&word, split->group);
    else
        text_add(&word, "null");
    if (split_has_test(split)) text_printf(&word, ", test: %.17g", split->test);
    text_add(&word, "}");
    add_word(words, text_string(&word));
    text_free(&word);
}

static status load(const struct sweep_config *sweep, int64_t trial, const struct words *words,
                   struct config_file **out) {
    struct config_source *source = trial == 1 && sweep->other ? sweep->other_source : sweep->source;
    return config_source_load(source, words->items, words->count, out);
}

/* Adds the seeds and the fold, which depend on what the config has. */
static status add_repeat(const struct sweep_config *sweep, int64_t trial, int64_t repeat, struct words *words) {
    int64_t seed = sweep_seed_of(sweep, repeat), fold = sweep_fold_of(sweep, repeat);
    struct config_file *file;
    if (seed <= 0 && fold < 0) return OK;
    TRY(load(sweep, trial, words, &file));
    status s = add_seed(config_of(file), seed, words);
    add_fold(sweep, config_of(file), fold, words);
    config_free(file);
    return s;
}

/* A run folder is the sweep's, whose next start continues what is in it: resume: never becomes auto. *out: the config
 * so far, which is loaded again. */
static status allow_resume(const struct sweep_config *sweep, int64_t trial, struct words *words,
                           struct config_file **out) {
    if (strcmp(config_of(*out)->checkpoint.resume, "never") != 0) return OK;
    config_free(*out);
    add_word(words, "checkpoint.resume=auto");
    return load(sweep, trial, words, out);
}

status sweep_fixed_config(const struct sweep_config *sweep, int64_t trial, struct config_file **out) {
    return sweep_trial_config(sweep, trial, NULL, 0, out);
}

status sweep_trial_config(const struct sweep_config *sweep, int64_t trial, const struct point *point, int64_t repeat,
                          struct config_file **out) {
    struct words words = {.arena = arena_create()};
    for (size_t i = 0; i < sweep->overrides.count; i++) add_word(&words, sweep->overrides.items[i]);
    if (point) add_point(sweep, trial, point, &words);
    status s = add_repeat(sweep, trial, repeat, &words);
    add_metric(sweep, &words); /* after the fold: without it the config may have no validation rows */
    if (!s) s = load(sweep, trial, &words, out);
    if (!s) s = allow_resume(sweep, trial, &words, out);
    arena_destroy(words.arena);
    return s;
}
