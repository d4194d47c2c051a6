/* checkpoint: a written state is read back equal; each difference to the config is reported and nothing is changed; the
 * newest valid checkpoint is found by its step; pruning keeps it. ctest-labels: unit */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fault.h"
#include "base/files/hdf5.h"
#include "base/files/sealed.h"
#include "base/log.h"
#include "check_main.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_hdf5.h"
#include "checkpoint/inspect.h"
#include "train/states.h"

TEST(round_trip_of_all_types) {
    char *folder = make_folder(), *path = path_in(folder, "made/here/a.h5"), *dir = path_in(folder, "made/here");
    ck_ok(write_state(dir, "a", 7));
    assert_state(path, 7);
    ck_ok(write_state(dir, "a", 8));
    assert_state(path, 8);
    struct seal seal;
    ck_ok(sealed_read_seal(path, &seal));
    ck_assert_uint_eq(seal.order, 8);
    free(dir);
    free(path);
    remove_folder(folder);
}

TEST(a_checkpoint_in_memory) {
    struct state state = make_state(7);
    struct entry entries[STATE_ENTRIES], missing = {"model/none", ENTRY_FLOAT32, 0, {0}, state.bias, false};
    struct checkpoint *checkpoint;
    int64_t step = -1;
    list_entries(&state, entries);
    ck_ok(checkpoint_create("a name", entries, STATE_ENTRIES, &checkpoint));
    state = make_state(8); /* it is a copy */
    ck_ok(read_state(checkpoint, &step));
    ck_assert_int_eq(step, 7);
    ck_failure(checkpoint_read(checkpoint, &missing, 1, NULL), STATUS_DATA, "a name");
    checkpoint_close(checkpoint);
}

/* Two open checkpoints are two files, also where values of one name are at other places. */
TEST(differences_of_two_open_checkpoints) {
    static const char *const groups[] = {"model", "optimizer", NULL}, *const integers[] = {"state/step", "rows", NULL},
                             *const names[] = {"a", "b"};
    float x[3] = {1, 2, 3}, y[3] = {1, 2, 3}, z[2][2] = {{1, 2}, {3, 4}};
    int64_t steps[] = {4, 4}, rows[] = {7, 8, 9};
    struct entry of_a[] = {{"config", ENTRY_TEXT, 0, {0}, (void *)(uintptr_t) "text", false},
                           {"model/10.weight", ENTRY_FLOAT32, 1, {3}, x, false},
                           {"model/2.weight", ENTRY_FLOAT32, 2, {2, 2}, z, false},
                           {"rows", ENTRY_INT64, 1, {3}, rows, false},
                           {"state/step", ENTRY_INT64, 0, {0}, &steps[0], false}};
    struct entry of_b[] = {{"config", ENTRY_TEXT, 0, {0}, (void *)(uintptr_t) "a longer text", false},
                           {"model/10.weight", ENTRY_FLOAT32, 1, {3}, y, false},
                           {"model/2.weight", ENTRY_FLOAT32, 2, {2, 2}, z, false},
                           {"rows", ENTRY_INT64, 1, {3}, rows, false},
                           {"state/step", ENTRY_INT64, 0, {0}, &steps[1], false}};
    static const char *const expected[] = {
        "",
        "model/10.weight[1] is 2 in a and 2.5 in b (1 of its 3 values differ, by at most 0.5)",
        "model/2.weight[1, 0] is 3 in a and -3 in b (1 of its 4 values differ, by at most 6); 2 of 2 tensors differ",
        "state/step is 4 in a and 5 in b",
        "rows[2] is 9 in a and 10 in b (1 of its 3 values differ)",
        "rows has 3 values in a and 2 in b",
        "model/10.weight is only in a",
        "model/2.weight (2, 2) of a is model/2.weight (3) in b; 2 of 2 tensors differ"};
    for (int i = 0; i < 8; i++) {
        struct checkpoint *files[2];
        struct text out = {0};
        ck_ok(checkpoint_create("a", of_a, 5, &files[0]));
        if (i == 1) y[1] = 2.5F;
        if (i == 2) z[1][0] = -3;
        if (i == 3) steps[1] = 5;
        if (i == 4) rows[2] = 10;
        if (i == 5) of_b[3].shape[0] = 2;
        if (i == 6) of_b[1].path = "other";
        if (i == 7) of_b[2].path = "model/10.weight", of_b[1].path = "model/2.weight";
        ck_ok(checkpoint_create("b", of_b, 5, &files[1]));
        ck_ok(checkpoint_find_difference(files, groups, integers, names, &out));
        ck_assert_str_eq(text_string(&out), expected[i]);
        checkpoint_close(files[0]), checkpoint_close(files[1]);
        text_free(&out);
        y[1] = 2, steps[1] = 4, rows[2] = 9, of_b[3].shape[0] = 3, of_b[1].path = "model/10.weight";
        if (i == 2) z[1][0] = 3;
        if (i == 1) y[1] = 2.5F; /* two tensors differ then */
    }
}

TEST(odd_states) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5"), *text = NULL;
    struct checkpoint *checkpoint;
    ck_ok(checkpoint_write(folder, "a", NULL, 0));
    ck_ok(checkpoint_open(path, &checkpoint));
    ck_ok(checkpoint_read(checkpoint, NULL, 0, (const char *const[]){"model", "config", NULL}));
    checkpoint_close(checkpoint);

    struct entry empty = {"a/b/c/d/text", ENTRY_TEXT, 0, {0}, (void *)(uintptr_t) "", false};
    ck_ok(checkpoint_write(folder, "a", &empty, 1));
    ck_ok(checkpoint_open(path, &checkpoint));
    empty.data = &text;
    ck_ok(checkpoint_read(checkpoint, &empty, 1, NULL));
    ck_assert_str_eq(text, "");
    checkpoint_close(checkpoint);
    free(text);

    /* More names than fit into one node of HDF5's tree, and more bytes than one growth of its driver. */
    enum { MANY = 700, SIZE = 300 };
    static float values[MANY][SIZE], back[MANY][SIZE];
    static char names[MANY][32];
    static struct entry entries[MANY];
    for (int i = 0; i < MANY; i++) {
        for (int k = 0; k < SIZE; k++) values[i][k] = (float)(i * SIZE + k);
        snprintf(names[i], sizeof names[i], "model/%d.weight", i);
        entries[i] = (struct entry){names[i], ENTRY_FLOAT32, 1, {SIZE}, values[i], false};
    }
    ck_ok(checkpoint_write(folder, "a", entries, MANY));
    ck_ok(checkpoint_open(path, &checkpoint));
    for (int i = 0; i < MANY; i++) entries[i].data = back[i];
    ck_ok(checkpoint_read(checkpoint, entries, MANY, (const char *const[]){"model", NULL}));
    ck_assert_mem_eq(values, back, sizeof values);
    checkpoint_close(checkpoint);
    free(path);
    remove_folder(folder);
}

TEST(equal_states_are_equal_bytes) {
    char *folder = make_folder(), *a = path_in(folder, "a.h5"), *b = path_in(folder, "b.h5");
    size_t size_a, size_b;
    ck_ok(write_state(folder, "a", 3));
    void *dirt[64]; /* changes the heap, so that uninitialised bytes would differ */
    for (int i = 0; i < 64; i++) memset(dirt[i] = malloc((size_t)64 << i % 8), 0xa5, (size_t)64 << i % 8);
    for (int i = 0; i < 64; i++) free(dirt[i]);
    usleep(1100 * 1000); /* and the time */
    ck_ok(write_state(folder, "b", 3));
    char *bytes_a = slurp(a, &size_a), *bytes_b = slurp(b, &size_b);
    ck_assert_uint_eq(size_a, size_b);
    ck_assert_mem_eq(bytes_a, bytes_b, size_a);
    free(bytes_a);
    free(bytes_b);
    free(a);
    free(b);
    remove_folder(folder);
}

/* Reads with one entry changed; the failure must contain [line], and no entry may be filled. */
static void must_differ(const char *path, struct entry *entries, size_t count, const char *const *complete,
                        const char *line) {
    struct checkpoint *checkpoint;
    ck_ok(checkpoint_open(path, &checkpoint));
    status s = checkpoint_read(checkpoint, entries, count, complete);
    ck_assert_msg(strstr(status_message(s), path), "%s", status_message(s));
    ck_failure(s, STATUS_DATA, line);
    checkpoint_close(checkpoint);
}

TEST(differences_are_reported_and_change_nothing) {
    static const char *const complete[] = {"model", NULL};
    char *folder = make_folder(), *path = path_in(folder, "a.h5"), *config = NULL;
    ck_ok(write_state(folder, "a", 5));
    struct state state = {0}, untouched = {0};
    struct entry entries[STATE_ENTRIES], changed[STATE_ENTRIES + 1];
    list_entries(&state, entries);
    entries[6].data = &config;

    memcpy(changed, entries, sizeof entries);
    changed[0].shape[0] = 4;
    must_differ(path, changed, STATE_ENTRIES, complete, "\n  model/0.weight: (2, 3) in the file, (4, 3) in the config");
    changed[0].dims = 1;
    must_differ(path, changed, STATE_ENTRIES, complete, "\n  model/0.weight: (2, 3) in the file, (4) in the config");
    changed[0].dims = 0;
    must_differ(path, changed, STATE_ENTRIES, complete, "\n  model/0.weight: (2, 3) in the file, scalar in the config");

    memcpy(changed, entries, sizeof entries);
    changed[3].type = ENTRY_FLOAT64;
    must_differ(path, changed, STATE_ENTRIES, complete,
                "\n  state/step: int64 scalar in the file, float64 scalar in the config");
    memcpy(changed, entries, sizeof entries);
    changed[5].type = ENTRY_FLOAT32;
    must_differ(path, changed, STATE_ENTRIES, complete,
                "\n  scaler/mean: float64 (3) in the file, float32 (3) in the config");
    memcpy(changed, entries, sizeof entries);
    changed[6].type = ENTRY_INT64;
    must_differ(path, changed, STATE_ENTRIES, complete,
                "\n  config: text scalar in the file, int64 scalar in the config");

    memcpy(changed, entries, sizeof entries);
    changed[STATE_ENTRIES] = (struct entry){"model/2.bias", ENTRY_FLOAT32, 1, {9}, state.bias, false};
    must_differ(path, changed, STATE_ENTRIES + 1, complete,
                "\n  model/2.bias: float32 (9) in the config, not in the file");
    must_differ(path, entries + 1, STATE_ENTRIES - 1, complete,
                "\n  model/0.weight: float32 (2, 3) in the file, not in the config");

    /* All at once, and a group in place of a dataset. */
    changed[0].shape[1] = 9;
    changed[1].path = "model";
    changed[2].type = ENTRY_INT64;
    must_differ(path, changed, STATE_ENTRIES, complete, "\n  model: float32 (2) in the config, not in the file");
    must_differ(path, changed, STATE_ENTRIES, complete, "\n  model/0.bias: float32 (2) in the file, not in the config");
    must_differ(path, changed, STATE_ENTRIES, complete, "\n  optimizer/exp_avg/0.weight: float32 (2, 3) in the file, ");

    ck_assert_mem_eq(&state, &untouched, offsetof(struct state, config));
    ck_assert_ptr_null(config);
    free(path);
    remove_folder(folder);
}

TEST(optional_entries) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5");
    ck_ok(write_state(folder, "a", 5));
    int64_t step = 0, other = 99;
    struct entry entries[] = {{"state/step", ENTRY_INT64, 0, {0}, &step, true},
                              {"state/other", ENTRY_INT64, 0, {0}, &other, true}};
    struct checkpoint *checkpoint;
    ck_ok(checkpoint_open(path, &checkpoint));
    ck_ok(checkpoint_read(checkpoint, entries, 2, NULL));
    ck_assert(step == 5 && other == 99);
    entries[0].type = ENTRY_FLOAT64; /* present with another type */
    ck_failure(checkpoint_read(checkpoint, entries, 2, NULL), STATUS_DATA, "state/step");
    checkpoint_close(checkpoint);
    checkpoint_close(NULL);
    free(path);
    remove_folder(folder);
}

TEST(other_files_are_rejected) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5");
    struct checkpoint *checkpoint = (void *)folder;
    ck_failure(checkpoint_open(path, &checkpoint), STATUS_DATA, path);
    ck_assert_ptr_null(checkpoint);
    ck_failure(checkpoint_open(folder, &checkpoint), STATUS_DATA, folder);
    ck_ok(sealed_write(path, "no HDF5 at all", 14, 1));
    ck_failure(checkpoint_open(path, &checkpoint), STATUS_DATA, "not a valid HDF5 file");
    ck_ok(sealed_write(path, "", 0, 1));
    ck_failure(checkpoint_open(path, &checkpoint), STATUS_DATA, path);
    char *wine = path_in(SOURCE_DIR, "datasets/wine.h5");
    if (access(wine, R_OK) == 0) {
        size_t size;
        SCOPED_MEMORY char *bytes = slurp(wine, &size);
        ck_failure(checkpoint_open(wine, &checkpoint), STATUS_DATA, "no seal");
        ck_ok(sealed_write(path, bytes, size, 1));
        ck_failure(checkpoint_open(path, &checkpoint), STATUS_DATA, "not a checkpoint of ddptrain");
    }
    free(wine);
    free(path);
    remove_folder(folder);
}

/* A small file may link a dataset, and the groups above it, under any number of long names. */
TEST(names_are_limited) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5"), name[1001] = {0};
    size_t size;
    ck_ok(write_state(folder, "a", 5));
    char *bytes = slurp(path, &size);
    spill(path, bytes, size - SEALED_TRAILER_SIZE);
    memset(name, 'x', sizeof name - 1);
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), group = H5Gopen2(file, "/", H5P_DEFAULT);
    for (int level = 0; level < 20; level++) {
        hid_t inner = H5Gcreate2(group, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Gclose(group);
        group = inner;
    }
    hid_t scalar = H5Screate(H5S_SCALAR);
    H5Dclose(H5Dcreate2(group, "d", H5T_IEEE_F32LE, scalar, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(scalar);
    for (int i = 0; i < 4000; i++) {
        snprintf(name, sizeof name, "%d", i);
        ck_assert_int_ge(H5Lcreate_hard(group, "d", group, name, H5P_DEFAULT, H5P_DEFAULT), 0);
    }
    H5Gclose(group);
    H5Fclose(file);
    hdf5_leave(&silence);
    free(bytes);
    bytes = slurp(path, &size);
    ck_ok(sealed_write(path, bytes, size, 1));
    struct checkpoint *checkpoint;
    ck_failure(checkpoint_open(path, &checkpoint), STATUS_DATA, "the names of its datasets have more than 64 MiB");
    free(bytes);
    free(path);
    remove_folder(folder);
}

/* A failure leaves no file to close. */
TEST(an_image_that_is_no_hdf5) {
    static char bytes[4096] = "no HDF5";
    const size_t sizes[] = {0, 1, 7, 4096};
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        hid_t file = 7;
        ck_failure(hdf5_open_image("a.h5", bytes, sizes[i], &file), STATUS_DATA, "a.h5: not a valid HDF5 file");
        ck_assert_int_eq(file, -1);
    }
    hdf5_leave(&silence);
}

/* The format version is a little-endian int32 in the message of an attribute. */
TEST(a_newer_format_is_rejected) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5");
    size_t size;
    ck_ok(write_state(folder, "a", 5));
    char *bytes = slurp(path, &size), *name = memmem(bytes, size, "format_version", 15);
    ck_assert_ptr_nonnull(name);
    char *value = memchr(name + 15, 1, 80); /* after the messages of type and space */
    bool is_found = false;
    struct checkpoint *checkpoint;
    for (; value && !is_found && value < name + 80; value = memchr(value + 1, 1, (size_t)(name + 80 - value))) {
        *value = 2;
        ck_ok(sealed_write(path, bytes, size - SEALED_TRAILER_SIZE, 5));
        status s = checkpoint_open(path, &checkpoint);
        is_found = s && strstr(status_message(s), "written by a newer ddptrain (format 2;");
        status_free(s);
        checkpoint_close(checkpoint);
        *value = 1;
    }
    ck_assert(is_found);
    free(bytes);
    free(path);
    remove_folder(folder);
}

TEST(the_newest_is_found_by_its_step) {
    char *folder = make_folder(), *nowhere = path_in(folder, "nowhere");
    status s;
    ck_assert_int_eq(newest_step(nowhere, &s), -1);
    ck_ok(s);
    ck_assert_int_eq(newest_step(folder, &s), -1);
    ck_ok(s);
    ck_ok(write_state(folder, "z", 10));
    ck_ok(write_state(folder, "m", 300)); /* the newest by neither name nor time */
    ck_ok(write_state(folder, "a", 20));
    char *other = path_in(folder, "notes.txt");
    spill(other, "x", 1);
    ck_assert_int_eq(newest_step(folder, &s), 300);
    ck_ok(s);
    static const char *const names[] = {"best", "epoch-0003", "z"}; /* of one step: the run's own is taken */
    for (size_t i = 0; i < 3; i++) ck_ok(write_state(folder, names[i], 300));
    struct checkpoint *checkpoint;
    char *path;
    ck_ok(checkpoint_open_newest(folder, NULL, &checkpoint, &path));
    ck_assert_str_eq(strrchr(path, '/'), "/epoch-0003.h5");
    checkpoint_close(checkpoint);
    free(path);
    free(other);
    free(nowhere);
    remove_folder(folder);
}

static void damage(const char *path, long where) {
    size_t size;
    SCOPED_MEMORY char *bytes = slurp(path, &size);
    bytes[where < 0 ? (long)size + where : where] ^= 4;
    spill(path, bytes, size);
}

TEST(damaged_ones_are_skipped_with_a_warning) {
    char *folder = make_folder(), *dir = path_in(folder, "checkpoints"), *said = path_in(folder, "log.txt"), *path;
    char *second = path_in(dir, "2.h5"), *third = path_in(dir, "3.h5"), *first = path_in(dir, "1.h5");
    for (int64_t step = 1; step <= 3; step++) ck_ok(write_state(dir, (char[]){(char)('0' + step), 0}, step));
    damage(third, 700); /* its image: still the newest by its seal */
    damage(second, -3); /* its seal */
    struct log *log = log_create(true, false);
    struct checkpoint *checkpoint;
    ck_ok(log_open_file(log, said));
    ck_ok(checkpoint_open_newest(dir, log, &checkpoint, &path));
    log_destroy(log);
    ck_assert_str_eq(path, first);
    int64_t step;
    ck_ok(read_state(checkpoint, &step));
    ck_assert_int_eq(step, 1);
    checkpoint_close(checkpoint);
    free(path);
    size_t size;
    char *words = slurp(said, &size);
    ck_assert_msg(strstr(words, "warning: ") && strstr(words, second) && strstr(words, third), "%s", words);
    ck_assert_ptr_null(strstr(words, first));
    free(words);

    damage(first, 0);
    status s;
    ck_assert_int_eq(newest_step(dir, &s), -1);
    ck_failure(s, STATUS_DATA, "none of its 3 checkpoints is valid");
    free(first);
    free(second);
    free(third);
    free(said);
    free(dir);
    remove_folder(folder);
}

enum { DAMAGED = 100 };

struct successor {
    const char *folder, *log;
};

/* After the first damaged file was logged: adds the newest checkpoint and removes the valid one that was listed. */
static void *replace_the_newest(void *context) {
    const struct successor *s = context;
    char *from = path_in(s->folder, "newest.part"), *to = path_in(s->folder, "a.h5"), *old = path_in(s->folder, "z.h5");
    char words[4096];
    int fd = open(s->log, O_RDONLY);
    bool is_done = false;
    while (read(fd, words, sizeof words) > 0) {
        if (!is_done) is_done = rename(from, to) == 0 && unlink(old) == 0;
    }
    close(fd);
    free(from), free(to), free(old);
    return is_done ? context : NULL;
}

/* A saver adds a checkpoint and removes an older one after they were listed. Standard error is a pipe with less
 * capacity than the warnings before the valid one is opened, so the change happens in between. */
TEST(the_folder_is_listed_again_when_a_file_went_away) {
    char *folder = make_folder(), *dir = path_in(folder, "checkpoints"), *pipe = path_in(folder, "log");
    char *good = path_in(dir, "z.h5"), *newest = path_in(dir, "newest.h5"), *part = path_in(dir, "newest.part");
    char name[16], *path, *expected = path_in(dir, "a.h5");
    ck_ok(write_state(dir, "z", 1));
    ck_ok(write_state(dir, "newest", 2));
    ck_assert_int_eq(rename(newest, part), 0);
    for (int i = 0; i < DAMAGED; i++) {
        snprintf(name, sizeof name, "b%03d.h5", i);
        SCOPED_MEMORY char *damaged = path_in(dir, name);
        spill(damaged, "damaged", 7);
    }
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    int keep = open(pipe, O_RDWR);
    ck_assert_int_ge(fcntl(keep, F_SETPIPE_SZ, 4096), 0);
    struct successor successor = {dir, pipe};
    struct log *log = log_create(false, false);
    struct checkpoint *checkpoint;
    pthread_t thread;
    void *is_done;
    int terminal = dup(STDERR_FILENO);
    ck_assert_int_ge(terminal, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, replace_the_newest, &successor), 0);
    ck_assert_int_eq(dup2(keep, STDERR_FILENO), STDERR_FILENO);
    status s = checkpoint_open_newest(dir, log, &checkpoint, &path);
    ck_assert_int_eq(dup2(terminal, STDERR_FILENO), STDERR_FILENO);
    close(terminal);
    ck_assert_msg(!s, "%.300s", status_message(s)); /* it lists all damaged files */
    log_destroy(log);
    close(keep);
    ck_assert_int_eq(pthread_join(thread, &is_done), 0);
    ck_assert_ptr_nonnull(is_done);
    ck_assert_ptr_nonnull(path);
    ck_assert_str_eq(path, expected);
    checkpoint_close(checkpoint);
    free(path), free(expected), free(good), free(newest), free(part), free(pipe), free(dir);
    remove_folder(folder);
}

/* A read that failed may succeed later: the launcher restarts after such a failure. */
TEST(unreadable_checkpoints_are_an_io_error) {
    char *folder = make_folder(), *path = path_in(folder, "epoch-0002.h5");
    status s;
    ck_ok(write_state(folder, "epoch-0001", 1));
    ck_ok(write_state(folder, "epoch-0002", 2));
    damage(path, 700);
    for (int call = 1; call <= 3; call++) {
        fault_set(&(struct fault){.kind = FAULT_EIO, .at = call, .filter = "epoch-0001.h5", .is_permanent = true});
        ck_assert_int_eq(newest_step(folder, &s), -1);
        ck_failure(s, STATUS_IO, "none of its 2 checkpoints is valid");
    }
    fault_set(NULL);
    ck_assert_int_eq(newest_step(folder, &s), 1);
    ck_ok(s);
    free(path);
    remove_folder(folder);
}

/* A dangling link is not a checkpoint, and does not hide that the others are damaged. */
TEST(links_to_nothing) {
    char *folder = make_folder(), *link = path_in(folder, "epoch-0009.h5"), *path = path_in(folder, "epoch-0001.h5");
    status s;
    ck_assert_int_eq(symlink("nothing", link), 0);
    ck_assert_int_eq(newest_step(folder, &s), -1);
    ck_ok(s);
    ck_ok(write_state(folder, "epoch-0001", 7));
    ck_assert_int_eq(newest_step(folder, &s), 7);
    ck_ok(s);
    damage(path, 700);
    ck_assert_int_eq(newest_step(folder, &s), -1);
    ck_failure(s, STATUS_DATA, "none of its 1 checkpoints is valid");
    free(link), free(path);
    remove_folder(folder);
}

static bool exists(const char *folder, const char *name) {
    char *path = path_in(folder, name);
    bool is_there = access(path, F_OK) == 0;
    free(path);
    return is_there;
}

TEST(prune_keeps_the_newest) {
    char *folder = make_folder(), *temporary = path_in(folder, "step-00000005.h5.tmp-12"),
         *best = path_in(folder, "best.h5.tmp-12"), *foreign = path_in(folder, "mine.h5"),
         *half = path_in(folder, "mine.h5.tmp-12"), *notes = path_in(folder, "notes.tmp-12"),
         *nowhere = path_in(folder, "nowhere");
    static const char *const names[] = {"step-00000004", "epoch-0001", "step-00000005", "step-00000002",
                                        "step-00000003"}; /* steps 1 to 5 */
    for (int64_t step = 1; step <= 5; step++) ck_ok(write_state(folder, names[step - 1], step));
    spill(temporary, "half", 4);
    spill(best, "half", 4);
    spill(foreign, "not ours", 8);
    spill(notes, "not ours", 8);
    ck_ok(write_state(folder, "copy", 1)); /* a copy by the user, which is not pruned */
    spill(half, "not ours", 8);
    ck_ok(checkpoint_prune(folder, 0, NULL));
    ck_assert(!exists(folder, "step-00000005.h5.tmp-12") && exists(folder, "step-00000004.h5"));
    ck_assert(!exists(folder, "best.h5.tmp-12"));
    ck_ok(checkpoint_prune(folder, 3, NULL));
    ck_assert(!exists(folder, "step-00000004.h5") && !exists(folder, "epoch-0001.h5"));
    ck_assert(exists(folder, "step-00000005.h5") && exists(folder, "step-00000002.h5") &&
              exists(folder, "step-00000003.h5"));
    ck_ok(checkpoint_prune(folder, 9, NULL));
    ck_assert(exists(folder, "step-00000005.h5") && exists(folder, "step-00000002.h5") &&
              exists(folder, "step-00000003.h5"));

    /* A damaged one does not count, so a valid one is kept. */
    char *newest = path_in(folder, "step-00000003.h5");
    damage(newest, 700);
    ck_ok(checkpoint_prune(folder, 1, NULL));
    ck_assert(exists(folder, "step-00000002.h5") && !exists(folder, "step-00000005.h5"));
    ck_assert(exists(folder, "mine.h5") && exists(folder, "notes.tmp-12"));
    ck_assert(exists(folder, "copy.h5") && exists(folder, "mine.h5.tmp-12"));
    status s;
    ck_assert_int_eq(newest_step(folder, &s), 4);
    ck_ok(s);
    ck_ok(checkpoint_prune(nowhere, 1, NULL));
    free(best);
    free(newest);
    free(nowhere);
    free(notes);
    free(half);
    free(foreign);
    free(temporary);
    remove_folder(folder);
}

TEST(a_save_removes_what_a_killed_one_left) {
    char *folder = make_folder(), *temporary = path_in(folder, "epoch-0001.h5.tmp-1");
    spill(temporary, "half", 4);
    ck_ok(write_state(folder, "b", 5));
    ck_assert_uint_eq(temporaries(folder), 0);
    free(temporary);
    remove_folder(folder);
}

static void must_say(const struct text *text, const char *part) {
    ck_assert_msg(strstr(text_string(text), part), "'%s' is not in:\n%s", part, text_string(text));
}

TEST(inspect_shows_what_is_inside) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5");
    struct text out = {0};
    ck_ok(write_state(folder, "a", 7));
    ck_ok(checkpoint_inspect(path, &out));
    struct seal seal;
    char hex[DIGEST_HEX_SIZE];
    ck_ok(sealed_read_seal(path, &seal));
    digest_hex(seal.sha256, hex);
    must_say(&out, path);
    must_say(&out, hex);
    must_say(&out, "ddptrain checkpoint, version 1");
    must_say(&out, "\nmodel/\n");
    must_say(&out, "\noptimizer/exp_avg/\n");
    must_say(&out, "float32 (2, 3)");
    must_say(&out, "min 7  max 7.71429  mean 7.35714");
    must_say(&out, "float64 (3)");
    must_say(&out, "int64 scalar            7\n");
    must_say(&out, "text scalar             25 bytes\n");
    must_say(&out, "float32 (0, 4)\n");

    size_t size;
    char *bytes = slurp(path, &size);
    text_clear(&out);
    spill(path, bytes, size - SEALED_TRAILER_SIZE); /* without the seal */
    ck_ok(checkpoint_inspect(path, &out));
    must_say(&out, "seal    none");
    must_say(&out, "float32 (2, 3)\n");
    spill(path, bytes, size);
    damage(path, 900);
    ck_failure(checkpoint_inspect(path, &out), STATUS_DATA, "damaged");
    spill(path, bytes, 700);
    ck_failure(checkpoint_inspect(path, &out), STATUS_DATA, path);
    spill(path, "text", 4);
    ck_failure(checkpoint_inspect(path, &out), STATUS_DATA, path);
    unlink(path);
    ck_failure(checkpoint_inspect(path, &out), STATUS_DATA, path);
    free(bytes);
    free(path);
    text_free(&out);
    remove_folder(folder);
}

static void *enter(void *context) {
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    hdf5_leave(&silence);
    return context;
}

static H5E_auto2_t printer;

/* Checks that another thread can use libhdf5 and that libhdf5 prints errors as before. */
static void library_must_be_free(const char *after) {
    H5E_auto2_t print = NULL;
    void *data;
    pthread_t thread;
    struct timespec limit;
    H5Eget_auto2(H5E_DEFAULT, &print, &data);
    ck_assert_msg(print == printer, "libhdf5 does not print errors as before %s", after);
    ck_assert_int_eq(pthread_create(&thread, NULL, enter, NULL), 0);
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 100;
    ck_assert_msg(pthread_timedjoin_np(thread, NULL, &limit) == 0, "libhdf5 is locked after %s", after);
}

static status no_more(void *context, const char *path, int dims, const int64_t *shape, const float *values) {
    (void)path, (void)dims, (void)shape, (void)values;
    ++*(int *)context;
    return status_new(STATUS_DATA, "no more");
}

/* Saves and the loader's thread use libhdf5, too. */
TEST(libhdf5_is_free_after_every_call) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5"), *other = path_in(folder, "b.h5");
    struct checkpoint *checkpoint;
    struct text out = {0};
    struct state state;
    struct entry entries[STATE_ENTRIES], entry = {.path = "state/step"};
    bool exists;
    int visits = 0;
    void *data;
    H5Eget_auto2(H5E_DEFAULT, &printer, &data);
    ck_assert_ptr_nonnull(printer);
    ck_ok(write_state(folder, "a", 7));
    library_must_be_free("checkpoint_write");
    ck_ok(checkpoint_open(path, &checkpoint));
    library_must_be_free("checkpoint_open");
    ck_ok(checkpoint_has(checkpoint, "model", &exists));
    ck_assert(exists);
    library_must_be_free("checkpoint_has");
    ck_ok(checkpoint_has(checkpoint, "models", &exists));
    ck_assert(!exists);
    library_must_be_free("checkpoint_has of nothing");
    ck_ok(checkpoint_find(checkpoint, &entry, &exists));
    ck_assert(exists && entry.type == ENTRY_INT64 && entry.dims == 0);
    entry.path = "state/steps";
    ck_ok(checkpoint_find(checkpoint, &entry, &exists));
    ck_assert(!exists);
    library_must_be_free("checkpoint_find");
    ck_failure(checkpoint_visit(checkpoint, "model", no_more, &visits), STATUS_DATA, "no more");
    ck_assert_int_eq(visits, 1);
    library_must_be_free("checkpoint_visit");
    list_entries(&state, entries);
    entries[0].shape[0] = 3;
    ck_failure(checkpoint_read(checkpoint, entries, 1, NULL), STATUS_DATA, "(2, 3)");
    library_must_be_free("a checkpoint_read that failed");
    checkpoint_close(checkpoint);
    library_must_be_free("checkpoint_close");
    assert_state(path, 7);
    library_must_be_free("checkpoint_read");
    ck_ok(checkpoint_inspect(path, &out));
    library_must_be_free("checkpoint_inspect");
    ck_ok(sealed_write(other, "no HDF5", 7, 7));
    ck_failure(checkpoint_open(other, &checkpoint), STATUS_DATA, other);
    library_must_be_free("a checkpoint_open that failed");
    text_free(&out);
    free(path), free(other);
    remove_folder(folder);
}

TEST(what_is_no_dataset_is_a_failure) {
    struct hdf5_silence silence;
    struct hdf5_shape shape;
    hdf5_enter(&silence);
    status s = hdf5_describe(-1, "a.h5", &shape);
    hdf5_leave(&silence);
    ck_failure(s, STATUS_DATA, "a.h5: a dataset cannot be read");
}

/* h5dump, the reader that comes with HDF5, sees the file as an ordinary one. */
TEST(h5dump_reads_it) {
    char *folder = make_folder(), *command;
    ck_ok(write_state(folder, "a", 7));
    if (system("command -v h5dump >/dev/null 2>&1") == 0) {
        ck_assert_int_gt(asprintf(&command,
                                  "h5dump -d /state/step %s/a.h5 | grep -q '(0): 7' && h5dump %s/a.h5 "
                                  "| grep -q 'DATASET \"0.weight\"'",
                                  folder, folder),
                         0);
        ck_assert_int_eq(system(command), 0);
        free(command);
    }
    remove_folder(folder);
}

CHECK_MAIN("checkpoint")
