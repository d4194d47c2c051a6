/* saver: the caller's memory is free again when saver_save returns, saves come in order, a failure comes back once at
 * the next call, and nothing is lost at the end. ctest-labels: unit */
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "check_main.h"
#include "checkpoint/checkpoint_image.h"
#include "checkpoint/saver.h"
#include "no_memory.h"
#include "train/states.h"

static status save(struct saver *saver, int64_t step) {
    struct state state = make_state(step);
    struct entry entries[STATE_ENTRIES];
    char name[32];
    snprintf(name, sizeof name, "step-%08d", (int)step);
    list_entries(&state, entries);
    status s = saver_save(saver, name, entries, STATE_ENTRIES);
    memset(&state, 0x55, sizeof state); /* the copy was taken */
    memset(name, 'x', sizeof name - 1);
    return s;
}

static void must_be_newest(const char *folder, int64_t step) {
    status s;
    ck_assert_int_eq(newest_step(folder, &s), step);
    ck_ok(s);
}

TEST(saves_and_prunes) {
    char *folder = make_folder(), *dir = path_in(folder, "checkpoints");
    struct saver *saver;
    ck_ok(saver_create(dir, 2, &saver));
    ck_ok(saver_wait(saver));
    for (int64_t step = 1; step <= 20; step++) ck_ok(save(saver, step));
    ck_ok(saver_wait(saver));
    must_be_newest(dir, 20);
    struct io_names names;
    ck_ok(io_list(dir, &names));
    ck_assert_uint_eq(names.count, 2);
    ck_assert_str_eq(names.items[0], "step-00000019.h5");
    io_names_free(&names);
    ck_ok(save(saver, 21));
    saver_destroy(saver); /* waits */
    must_be_newest(dir, 21);
    saver_destroy(NULL);
    free(dir);
    remove_folder(folder);
}

TEST(writes_the_same_bytes_as_checkpoint_write) {
    char *folder = make_folder(), *a = path_in(folder, "step-00000007.h5"), *b = path_in(folder, "b.h5");
    struct saver *saver;
    ck_ok(saver_create(folder, 0, &saver));
    ck_ok(save(saver, 6));
    ck_ok(save(saver, 7)); /* into the image of the first */
    saver_destroy(saver);
    ck_ok(write_state(folder, "b", 7));
    size_t size_a, size_b;
    char *bytes_a = slurp(a, &size_a), *bytes_b = slurp(b, &size_b);
    ck_assert_uint_eq(size_a, size_b);
    ck_assert_mem_eq(bytes_a, bytes_b, size_a);
    free(bytes_a);
    free(bytes_b);
    free(a);
    free(b);
    remove_folder(folder);
}

#define TENSORS 40
#define LARGE ((size_t)1 << 20) /* floats of the middle one */

struct tensors {
    float *values; /* (LARGE) */
    int64_t step;
    char paths[TENSORS][32];
    struct entry entries[TENSORS + 1];
};

/* Small tensors around a large one. */
static void make_tensors(struct tensors *t) {
    t->values = calloc(LARGE, sizeof *t->values);
    for (size_t i = 0; i < LARGE; i++) t->values[i] = (float)(i % 1013);
    t->step = 9;
    for (size_t i = 0; i < TENSORS; i++) {
        snprintf(t->paths[i], sizeof t->paths[i], "model/%zu.weight", i);
        int64_t size = i == TENSORS / 2 ? (int64_t)LARGE : 5;
        t->entries[i] = (struct entry){t->paths[i], ENTRY_FLOAT32, 1, {size}, t->values + i, false};
    }
    t->entries[TENSORS / 2].data = t->values;
    t->entries[TENSORS] = (struct entry){"state/step", ENTRY_INT64, 0, {0}, &t->step, false};
}

/* What the thread does before it copies: it waits as a busy one would, and sets a value. */
struct late_copy {
    float values[5];
    bool fails;
};

static status before_copy(void *data) {
    struct late_copy *late = data;
    clock_sleep(0.05);
    late->values[1] = 9;
    return late->fails ? status_new(STATUS_IO, "no hash") : OK;
}

/* The steady entries may change after saver_wait_copy, the others at once; the bytes are those of saver_save. */
TEST(later_writes_the_same_bytes) {
    char *folder = make_folder(), *a = path_in(folder, "a.h5"), *b = path_in(folder, "b.h5"),
         *c = path_in(folder, "c.h5");
    struct saver *saver;
    static struct tensors t;
    bool is_steady[TENSORS + 1] = {[TENSORS / 2] = true, [TENSORS - 1] = true};
    make_tensors(&t);
    struct late_copy late = {.values = {0, 9}};
    float small[5] = {1, 2, 3, 4, 5};
    t.entries[3].data = small;
    t.entries[TENSORS - 1].data = late.values;
    ck_ok(saver_create(folder, 0, &saver));
    saver_before_copy(saver, before_copy, &late);
    ck_ok(saver_save(saver, "a", t.entries, TENSORS + 1)); /* does not call it */
    ck_ok(saver_wait(saver));
    late.values[1] = 8;
    double start = clock_seconds();
    ck_ok(saver_save_later(saver, "b", t.entries, TENSORS + 1, is_steady));
    small[2] = 99;
    saver_wait_copy(saver);
    ck_assert_double_ge(clock_seconds() - start, 0.05);
    for (size_t i = 0; i < LARGE; i++) t.values[i] = -1;
    late.values[1] = 7;
    saver_wait_copy(saver); /* there is nothing left */
    ck_ok(saver_wait(saver));
    size_t size_a, size_b;
    char *bytes_a = slurp(a, &size_a), *bytes_b = slurp(b, &size_b);
    ck_assert_uint_eq(size_a, size_b);
    ck_assert(memcmp(bytes_a, bytes_b, size_a) == 0);
    late.fails = true;
    ck_ok(saver_save_later(saver, "c", t.entries, TENSORS + 1, is_steady));
    saver_wait_copy(saver);
    status failure = saver_wait(saver);
    ck_assert_str_eq(status_message(failure), "no hash");
    status_free(failure);
    ck_assert_int_ne(access(c, F_OK), 0);
    saver_destroy(saver);
    free(bytes_a), free(bytes_b), free(t.values), free(a), free(b), free(c);
    remove_folder(folder);
}

TEST(in_place_writes_the_same_bytes) {
    char *folder = make_folder(), *a = path_in(folder, "a.h5"), *b = path_in(folder, "b.h5");
    struct saver *saver;
    static struct tensors t;
    make_tensors(&t);
    ck_ok(saver_create(folder, 0, &saver));
    ck_ok(saver_save(saver, "a", t.entries, TENSORS + 1));
    ck_ok(saver_save_in_place(saver, "b", t.entries, TENSORS + 1));
    ck_ok(saver_wait(saver));
    size_t size_a, size_b;
    char *bytes_a = slurp(a, &size_a), *bytes_b = slurp(b, &size_b);
    ck_assert_uint_eq(size_a, size_b);
    ck_assert(memcmp(bytes_a, bytes_b, size_a) == 0);
    for (size_t i = 0; i < LARGE; i++) t.values[i] = -1; /* the first saw a copy, the next must, too */
    ck_ok(saver_save(saver, "b", t.entries, TENSORS + 1));
    for (size_t i = 0; i < LARGE; i++) t.values[i] = 1;
    ck_ok(saver_wait(saver));
    struct checkpoint *checkpoint;
    ck_ok(checkpoint_open(b, &checkpoint));
    ck_ok(checkpoint_read(checkpoint, t.entries, TENSORS + 1, NULL));
    ck_assert(t.values[LARGE - 1] == -1);
    checkpoint_close(checkpoint);
    saver_destroy(saver);
    free(bytes_a);
    free(bytes_b);
    free(t.values);
    free(a);
    free(b);
    remove_folder(folder);
}

/* A run that cannot save for lack of memory goes on, as with a full disk; after a bug it would end. */
TEST(a_lack_of_memory_is_no_bug) {
    struct state state = make_state(1);
    struct entry entries[STATE_ENTRIES];
    struct image *image;
    bool had_memory = false;
    long number = 1;
    list_entries(&state, entries);
    for (; CAN_FAIL_ALLOCATIONS && !had_memory; number++) {
        allocations_left = number;
        status s = image_create(entries, STATE_ENTRIES, false, &image);
        had_memory = allocations_left > 0;
        allocations_left = 0;
        if (s) ck_assert_int_eq(status_code(s), STATUS_MEMORY);
        ck_assert_int_eq(s != OK, !had_memory);
        if (!s) image_destroy(image);
        status_free(s);
    }
    if (CAN_FAIL_ALLOCATIONS) ck_assert_int_gt(number, 10);
}

/* Nodes of 8 links are enough for 256 entries of a group; then they are larger. Any order of the entries will do. */
TEST(large_and_nested_groups_are_read) {
    enum { COUNT = 700 };
    char *folder = make_folder(), *path = path_in(folder, "a.h5");
    static char names[COUNT][48];
    static int64_t values[COUNT], read[COUNT];
    static struct entry entries[COUNT];
    for (int i = 0; i < COUNT; i++) {
        int k = i * 263 % COUNT; /* not in the order of their names */
        const char *group = k % 100 == 0 ? "a-b/c" : k % 100 == 1 ? "a/b/c/d" : k % 100 == 2 ? "a" : "large/group";
        snprintf(names[i], sizeof names[i], "%s/%d%s", group, k, k % 7 ? "" : ".weight");
        values[i] = k;
        entries[i] = (struct entry){names[i], ENTRY_INT64, 0, {0}, &values[i], false};
    }
    ck_ok(checkpoint_write(folder, "a", entries, COUNT));
    for (int i = 0; i < COUNT; i++) entries[i].data = &read[i];
    struct checkpoint *checkpoint;
    ck_ok(checkpoint_open(path, &checkpoint));
    ck_ok(checkpoint_read(checkpoint, entries, COUNT, NULL));
    ck_assert_mem_eq(read, values, sizeof values);
    checkpoint_close(checkpoint);
    free(path);
    remove_folder(folder);
}

TEST(paths_that_no_file_can_have_are_rejected) {
    static const char *const wrong[][2] = {{"a", "a"}, {"a", "a/b"}, {"a//b", "c"}, {"/a", "b"}, {"a/", "b"}};
    int64_t value = 1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct entry entries[2];
        struct image *image;
        for (int k = 0; k < 2; k++) entries[k] = (struct entry){wrong[i][k], ENTRY_INT64, 0, {0}, &value, false};
        status s = image_create(entries, 2, false, &image);
        ck_assert_int_eq(status_code(s), STATUS_BUG);
        status_free(s);
    }
}

/* An image that only refers to data has no memory for them, and is the same file. */
TEST(in_place_takes_no_memory) {
    static struct tensors t;
    struct image *whole, *image;
    make_tensors(&t);
    free(t.values);
    size_t bytes = (size_t)8 << 20, count, done = 0;
    SCOPED_MEMORY float *large = calloc(bytes, 1);
    for (size_t i = 0; i < bytes / sizeof *large; i++) large[i] = (float)i;
    for (size_t i = 0; i <= TENSORS; i++) t.entries[i].data = i == TENSORS ? (void *)&t.step : large;
    t.entries[TENSORS / 2].shape[0] = (int64_t)(bytes / sizeof *large);
    ck_ok(image_create(t.entries, TENSORS + 1, false, &whole));
    ck_ok(image_create(t.entries, TENSORS + 1, true, &image));
    image_fill(whole, t.entries, TENSORS + 1);
    image_reference(image, t.entries, TENSORS + 1);
    ck_assert(image_has_data(whole) && !image_has_data(image));
    ck_assert_uint_ge(whole->size, bytes);
    ck_assert_uint_lt(image->stored, bytes / 8);
    const struct io_part *parts = image_parts(image, &count);
    for (size_t i = 0; i < count; done += parts[i++].size)
        ck_assert_mem_eq(whole->bytes + done, parts[i].bytes, parts[i].size);
    ck_assert_uint_eq(done, whole->size);
    image_destroy(whole);
    image_destroy(image);
}

/* Another number of entries, other shapes, longer texts: a new image, and the file is right. */
TEST(the_state_may_change_its_shape) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5"), *back;
    static const char *const texts[] = {"one", "two", "three", "", "four"};
    struct saver *saver;
    ck_ok(saver_create(folder, 0, &saver));
    for (int i = 0; i < 5; i++) {
        float values[5] = {(float)i, 1, 2, 3, 4};
        struct entry entries[] = {{"text", ENTRY_TEXT, 0, {0}, (void *)(uintptr_t)texts[i], false},
                                  {i < 3 ? "x" : "y", ENTRY_FLOAT32, 1, {i % 2 + 4}, values, false}};
        ck_ok(saver_save(saver, "a", entries, i == 4 ? 1 : 2));
        ck_ok(saver_wait(saver));
        struct checkpoint *checkpoint;
        float found[5] = {-1};
        entries[0].data = &back;
        entries[1].data = found;
        ck_ok(checkpoint_open(path, &checkpoint));
        ck_ok(checkpoint_read(checkpoint, entries, i == 4 ? 1 : 2, NULL));
        ck_assert_str_eq(back, texts[i]);
        ck_assert(found[0] == (i == 4 ? -1.0f : (float)i));
        free(back);
        checkpoint_close(checkpoint);
    }
    saver_destroy(saver);
    free(path);
    remove_folder(folder);
}

/* ---- the cost of a save ---- */

static void count_lists(void *context, enum fault_call call, const char *path) {
    (void)path;
    *(int *)context += call == CALL_LIST;
}

/* The I/O calls of a save beside [files] checkpoints; *lists: how many of them list the folder. */
static int64_t calls_of_a_save_beside(int64_t files, int *lists) {
    char *folder = make_folder();
    struct saver *saver;
    *lists = 0;
    ck_ok(saver_create(folder, 0, &saver));
    for (int64_t step = 1; step <= files; step++) ck_ok(save(saver, step));
    ck_ok(saver_wait(saver));
    fault_set(&(struct fault){.kind = FAULT_NONE, .watch = count_lists, .context = lists});
    ck_ok(save(saver, files + 1));
    ck_ok(saver_wait(saver));
    int64_t calls = fault_calls();
    fault_set(NULL);
    saver_destroy(saver);
    remove_folder(folder);
    return calls;
}

TEST(a_save_without_keep_costs_the_same_beside_any_number_of_files) {
    int lists;
    int64_t few = calls_of_a_save_beside(2, &lists);
    ck_assert_int_eq(lists, 0);
    ck_assert_int_eq(calls_of_a_save_beside(200, &lists), few);
    ck_assert_int_eq(lists, 0);
}

/* The first save, and one after a failure, remove temporary files. */
TEST(temporary_files_are_removed_by_the_next_save) {
    char *folder = make_folder(), *temporary = path_in(folder, "epoch-0001.h5.tmp-1");
    struct saver *saver;
    ck_ok(saver_create(folder, 0, &saver));
    for (int64_t step = 1; step <= 3; step += 2) {
        spill(temporary, "half", 4);
        ck_ok(save(saver, step));
        ck_ok(saver_wait(saver));
        ck_assert_uint_eq(temporaries(folder), 0);
        fault_set(&(struct fault){.kind = FAULT_ENOSPC, .at = 3, .is_permanent = true});
        ck_ok(save(saver, step + 1));
        ck_failure(saver_wait(saver), STATUS_IO, folder);
        fault_set(NULL);
    }
    saver_destroy(saver);
    free(temporary);
    remove_folder(folder);
}

static void note_step(void *data, int64_t step) { *(int64_t *)data = step; }

/* A step is reported as saved when its file is on disk, never before. */
TEST(only_what_is_saved_is_reported) {
    char *folder = make_folder();
    struct saver *saver;
    int64_t saved = 0;
    ck_ok(saver_create(folder, 2, &saver));
    saver_on_saved(saver, note_step, &saved);
    saver_set_step(saver, 1);
    ck_ok(save(saver, 1));
    ck_ok(saver_wait(saver));
    ck_assert_int_eq(saved, 1);
    fault_set(&(struct fault){.kind = FAULT_ENOSPC, .at = 1, .is_permanent = true});
    saver_set_step(saver, 2);
    ck_ok(save(saver, 2));
    ck_failure(saver_wait(saver), STATUS_IO, "No space left on device");
    fault_set(NULL);
    ck_assert_int_eq(saved, 1);
    saver_destroy(saver);
    remove_folder(folder);
}

/* What the checkpoint refers to: whether its file is there when it is said to be written. */
struct reference {
    const char *folder;
    int calls;
    size_t files; /* in the folder then */
    bool fails;
};

static status count_files(void *data) {
    struct reference *reference = data;
    struct io_names names;
    reference->calls++;
    TRY(io_list(reference->folder, &names));
    reference->files = names.count;
    io_names_free(&names);
    return reference->fails ? status_new(STATUS_IO, "metrics.jsonl: no space") : OK;
}

/* What must be on disk before a checkpoint is written there before anything of the checkpoint is; if it cannot be,
 * there is no checkpoint. */
TEST(what_it_refers_to_is_written_before) {
    char *folder = make_folder();
    struct saver *saver;
    struct reference reference = {.folder = folder};
    ck_ok(saver_create(folder, 5, &saver));
    saver_before_write(saver, count_files, &reference);
    for (int step = 1; step <= 3; step++) {
        reference.fails = step == 2;
        ck_ok(save(saver, step));
        if (step == 2)
            ck_failure(saver_wait(saver), STATUS_IO, "metrics.jsonl: no space");
        else
            ck_ok(saver_wait(saver));
        ck_assert_int_eq(reference.calls, step);
        ck_assert_uint_eq(reference.files, step == 1 ? 0 : 1);
    }
    ck_ok(count_files(&reference));
    ck_assert_uint_eq(reference.files, 2);
    saver_destroy(saver);
    remove_folder(folder);
}

TEST(a_failure_comes_back_once) {
    char *folder = make_folder();
    struct saver *saver;
    ck_ok(saver_create(folder, 2, &saver));
    ck_ok(save(saver, 1));
    ck_ok(saver_wait(saver));
    fault_set(&(struct fault){.kind = FAULT_ENOSPC, .at = 1, .is_permanent = true});
    ck_ok(save(saver, 2)); /* not known yet */
    ck_failure(save(saver, 3), STATUS_IO, folder);
    ck_ok(save(saver, 4));
    ck_failure(saver_wait(saver), STATUS_IO, "No space left on device");
    ck_ok(saver_wait(saver));
    fault_set(NULL);
    must_be_newest(folder, 1);
    ck_ok(save(saver, 5)); /* it goes on */
    ck_ok(saver_wait(saver));
    must_be_newest(folder, 5);
    ck_assert_uint_eq(temporaries(folder), 0);
    saver_destroy(saver);
    remove_folder(folder);
}

static status keep(struct saver *saver, int64_t step) {
    struct state state = make_state(step);
    struct entry entries[STATE_ENTRIES];
    list_entries(&state, entries);
    status s = saver_keep(saver, CHECKPOINT_BEST, entries, STATE_ENTRIES);
    memset(&state, 0x55, sizeof state);
    return s;
}

/* The newest kept state is written on request only, and again after a failure. */
TEST(a_kept_state_is_written_on_request) {
    char *folder = make_folder();
    struct saver *saver;
    ck_ok(saver_create(folder, 2, &saver));
    ck_ok(saver_write_kept(saver, false));
    ck_ok(save(saver, 1));
    ck_ok(keep(saver, 2)); /* waits for the save */
    ck_ok(keep(saver, 3));
    ck_assert(saver_has_kept(saver));
    must_be_newest(folder, 1);
    for (int waits = 0; waits < 2; waits++) {
        fault_set(&(struct fault){.kind = FAULT_ENOSPC, .at = 1, .is_permanent = true});
        ck_ok(saver_write_kept(saver, waits));
        ck_failure(saver_wait(saver), STATUS_IO, "best.h5");
        fault_set(NULL);
        ck_assert(saver_has_kept(saver));
        ck_ok(saver_write_kept(saver, waits));
        if (waits) must_be_newest(folder, 3 + waits); /* before saver_wait */
        ck_ok(saver_wait(saver));
        ck_assert(!saver_has_kept(saver));
        must_be_newest(folder, 3 + waits);
        ck_ok(keep(saver, 4));
    }
    saver_drop_kept(saver);
    ck_assert(!saver_has_kept(saver));
    ck_ok(save(saver, 5));
    ck_ok(keep(saver, 6));
    saver_destroy(saver);
    must_be_newest(folder, 5);
    remove_folder(folder);
}

/* saver_save returns while the file is still being written: its disk waits until then, or for too long. */
static void wait_for_return(void *context, enum fault_call call, const char *path) {
    const atomic_bool *has_returned = context;
    (void)path;
    for (int i = 0; call == CALL_SYNC && !atomic_load(has_returned) && i < 2000; i++) clock_sleep(0.005);
}

TEST(training_does_not_wait_for_the_disk) {
    char *folder = make_folder();
    struct saver *saver;
    ck_ok(saver_create(folder, 2, &saver));
    ck_ok(save(saver, 1));
    ck_ok(saver_wait(saver));
    atomic_bool has_returned = false;
    fault_set(&(struct fault){.kind = FAULT_NONE, .watch = wait_for_return, .context = &has_returned});
    ck_ok(save(saver, 2));
    must_be_newest(folder, 1);
    atomic_store(&has_returned, true);
    ck_ok(saver_wait(saver));
    fault_set(NULL);
    must_be_newest(folder, 2);
    saver_destroy(saver);
    remove_folder(folder);
}

/* A file and the one that comes in its place as soon as it is opened. */
struct replacement {
    const char *folder, *old, *hidden, *new;
    bool is_done;
};

static void replace(void *context, enum fault_call call, const char *path) {
    struct replacement *r = context;
    if (r->is_done || call != CALL_OPEN || strcmp(path, r->old) != 0) return;
    r->is_done = true;
    if (rename(r->hidden, r->new) != 0 || unlink(r->old) != 0) abort();
}

TEST(a_checkpoint_may_be_pruned_while_it_is_opened) {
    char *folder = make_folder(), *old = path_in(folder, "step-00000001.h5"), *hidden = path_in(folder, "hidden"),
         *new = path_in(folder, "step-00000002.h5");
    ck_ok(write_state(folder, "step-00000002", 2));
    ck_assert_int_eq(rename(new, hidden), 0);
    ck_ok(write_state(folder, "step-00000001", 1));
    struct replacement r = {folder, old, hidden, new, false};
    fault_set(&(struct fault){.kind = FAULT_NONE, .watch = replace, .context = &r});
    must_be_newest(folder, 2);
    fault_set(NULL);
    ck_assert(r.is_done);
    free(old), free(hidden), free(new);
    remove_folder(folder);
}

/* A reader beside the saver always finds a whole state, also while files are pruned. */
TEST(readers_beside_the_saver) {
    char *folder = make_folder();
    struct saver *saver;
    ck_ok(saver_create(folder, 1, &saver));
    ck_ok(save(saver, 1));
    ck_ok(saver_wait(saver));
    pid_t child = fork();
    if (child == 0) {
        int64_t last = 0;
        status s = OK;
        while (last < 60 && s == OK) {
            int64_t step = newest_step(folder, &s);
            if (step < last) _exit(1);
            last = step;
        }
        _exit(s != OK);
    }
    for (int64_t step = 2; step <= 60; step++) ck_ok(save(saver, step));
    saver_destroy(saver);
    int how;
    waitpid(child, &how, 0);
    ck_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    remove_folder(folder);
}

CHECK_MAIN("saver")
