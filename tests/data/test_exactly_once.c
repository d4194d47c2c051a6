/* Each row exactly once per epoch, for any world size, with uneven shares or shards, also when the run stops at any
 * batch and resumes (with shards on another number of ranks). DDPTRAIN_EXHAUSTIVE=1 tests all world sizes and stops;
 * else a sample. */
#include "check_main.h"

#include "marks.h"
#include "open.h"

#define MAX_WORLD 8
#define MAX_ROWS 10000

static bool is_exhaustive(void) { return getenv("DDPTRAIN_EXHAUSTIVE") != NULL; }

struct shares {
    struct dataset *dataset;
    struct sampler_config sampler;
    size_t batch, batches;
    int64_t epoch;
    int seen[MAX_ROWS];
};

/* All ranks of [world] take batches [begin, end). */
static void take(struct shares *s, int world, size_t begin, size_t end) {
    for (int rank = 0; rank < world; rank++) {
        struct loader *loader;
        struct batch batch;
        ck_ok(loader_create(s->dataset, &s->sampler, s->batch, rank, world, 0, &loader));
        s->batches = loader_batches(loader);
        ck_ok(loader_seek(loader, s->epoch, begin < s->batches ? begin : s->batches));
        for (size_t b = begin; b < end && b < s->batches; b++) {
            ck_ok(loader_next(loader, &batch));
            for (size_t i = 0; i < batch.rows; i++) s->seen[batch.positions[i]]++;
        }
        loader_destroy(loader);
    }
}

static void must_be_once(struct shares *s, size_t rows) {
    for (size_t i = 0; i < rows; i++) ck_assert_msg(s->seen[i] == 1, "row %zu of %zu: %d times", i, rows, s->seen[i]);
    memset(s->seen, 0, rows * sizeof *s->seen);
}

/* A stop before batch [stop], then on with [then] ranks. */
static void stop_and_go(struct shares *s, size_t rows, int world, int then, size_t stop) {
    take(s, world, 0, stop);
    take(s, then, stop, SIZE_MAX);
    must_be_once(s, rows);
}

static void try_world(struct shares *s, size_t rows, int world, bool is_elastic) {
    take(s, world, 0, SIZE_MAX);
    must_be_once(s, rows);
    size_t batches = s->batches, stride = is_exhaustive() ? 1 : batches / 3 + 1;
    if (rows > 1000 && stride < batches / 50) stride = batches / 50;
    for (size_t stop = 1; stop < batches; stop += stride)
        for (int then = 1; then <= MAX_WORLD; then += is_exhaustive() ? 1 : 3)
            if (is_elastic || then == world) stop_and_go(s, rows, world, then, stop);
}

static void try_rows(size_t rows, bool is_elastic) {
    static struct shares s;
    s = (struct shares){.batch = 5, .epoch = 3};
    ck_ok(open_yaml(&s.dataset, true,
                    "{format: synthetic, synthetic: {kind: classes, rows: %zu, inputs: 1, classes: 2}}", rows));
    s.sampler = (struct sampler_config){.batch_size = 5, .global_batch_size = SCHEMA_NO_INT, .shuffle = true};
    if (rows > 1000) s.batch = 250;
    if (is_elastic) s.sampler.global_batch_size = (int64_t)s.batch * 4 + 3;
    if (!is_elastic) s.sampler.uneven = true;
    for (int world = 1; world <= MAX_WORLD; world += is_exhaustive() || rows < 1000 ? 1 : 7)
        for (size_t shards = 1; shards <= 20; shards += is_exhaustive() ? 1 : 6) {
            s.sampler.shards = is_elastic ? shards : 0;
            try_world(&s, rows, world, is_elastic);
            if (!is_elastic) break;
        }
    dataset_close(s.dataset);
}

static const size_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 40, 97, MAX_ROWS}; /* below, at and above the ranks; a prime */
#define SIZES ((int)(sizeof sizes / sizeof *sizes))

TEST(uneven_shares) {
    for (int i = 0; i < SIZES; i++) try_rows(sizes[i], false);
}

TEST(elastic_shards) {
    for (int i = 0; i < SIZES; i++) try_rows(sizes[i], true);
}

TEST(no_rows) {
    struct dataset *dataset;
    status s =
        open_yaml(&dataset, true, "{format: synthetic, synthetic: {kind: classes, rows: 0, inputs: 1, classes: 2}}");
    ck_assert_int_eq(status_code(s), STATUS_USAGE);
    status_free(s);
}

CHECK_MAIN("exactly once")
