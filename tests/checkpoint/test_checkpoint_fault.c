/* checkpoint under faults: each I/O call of a save fails or is the last one before a kill, a power loss at any time,
 * any damaged byte, any truncation. A loader must always get the complete new or the complete old state.
 * DDPTRAIN_TEST_TRIALS sets the number of simulated power losses (default 3000). ctest-labels: fault */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "check_main.h"
#include "checkpoint/checkpoint.h"
#include "hdf5_in_process.h" /* faster: thousands of trusted files are opened */
#include "train/states.h"

/* Saves as a run does. */
static status save_and_prune(const char *folder, int64_t step, int64_t keep) {
    char name[32];
    snprintf(name, sizeof name, "step-%08d", (int)step);
    TRY(write_state(folder, name, step));
    return checkpoint_prune(folder, keep, name);
}

static int64_t calls_of_a_save(const char *folder) {
    ck_ok(save_and_prune(folder, 1, 1));
    fault_set(&(struct fault){.kind = FAULT_NONE});
    ck_ok(save_and_prune(folder, 2, 1));
    int64_t calls = fault_calls();
    fault_set(NULL);
    empty_folder(folder);
    ck_assert_int_gt(calls, 20);
    return calls;
}

static void save_with(const char *folder, struct fault fault) {
    ck_ok(save_and_prune(folder, 1, 2));
    fault_set(&fault);
    status s = save_and_prune(folder, 2, 2), newest;
    fault_set(NULL);
    char *old = path_in(folder, "step-00000001.h5");
    assert_state(old, 1);
    int64_t step = newest_step(folder, &newest);
    ck_ok(newest);
    ck_assert_msg(step == 2 || (step == 1 && s), "step %d, call %d, kind %d", (int)step, (int)fault.at, fault.kind);
    if (s) ck_assert_msg(status_code(s) == STATUS_IO && strstr(status_message(s), folder), "%s", status_message(s));
    bool cannot_remove = fault.kind == FAULT_EIO && fault.is_permanent;
    ck_assert_msg(temporaries(folder) == 0 || cannot_remove, "a temporary file, call %d, kind %d", (int)fault.at,
                  fault.kind);
    if (fault.kind == FAULT_SHORT || (fault.kind == FAULT_EINTR && !fault.is_permanent)) ck_ok(s);
    /* The next save works and cleans up. */
    ck_ok(save_and_prune(folder, 3, 2));
    ck_assert_uint_eq(temporaries(folder), 0);
    ck_assert_int_eq(newest_step(folder, &newest), 3);
    status_free(s);
    free(old);
    empty_folder(folder);
}

TEST(any_failing_call_leaves_the_old_checkpoint) {
    char *folder = make_folder();
    int64_t calls = calls_of_a_save(folder);
    for (enum fault_kind kind = FAULT_ENOSPC; kind <= FAULT_SHORT; kind++)
        for (int64_t at = 1; at <= calls + 1; at++)
            for (int ever = 0; ever < 2; ever++)
                save_with(folder, (struct fault){.kind = kind, .at = at, .is_permanent = ever});
    remove_folder(folder);
}

TEST(a_kill_at_any_call_leaves_old_or_new) {
    char *folder = make_folder();
    int64_t calls = calls_of_a_save(folder);
    for (int64_t at = 1; at <= calls + 1; at++) {
        ck_ok(save_and_prune(folder, 1, 1));
        pid_t child = fork();
        if (child == 0) {
            fault_set(&(struct fault){.kind = FAULT_KILL, .at = at});
            _exit(save_and_prune(folder, 2, 1) != OK);
        }
        int how;
        status s;
        waitpid(child, &how, 0);
        ck_assert(at > calls ? WIFEXITED(how) && WEXITSTATUS(how) == 0 : WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
        int64_t step = newest_step(folder, &s);
        ck_ok(s);
        ck_assert_msg(step == 2 || (step == 1 && at <= calls), "step %d after a kill at call %d", (int)step, (int)at);
        ck_ok(save_and_prune(folder, 3, 1));
        ck_assert_uint_eq(temporaries(folder), 0);
        ck_assert_int_eq(newest_step(folder, &s), 3);
        empty_folder(folder);
    }
    remove_folder(folder);
}

/* Opening the newest while a call fails gives a valid state or a failure. */
TEST(any_failing_call_of_a_load) {
    char *folder = make_folder();
    ck_ok(save_and_prune(folder, 1, 2));
    ck_ok(save_and_prune(folder, 2, 2));
    for (enum fault_kind kind = FAULT_EIO; kind <= FAULT_SHORT; kind++)
        for (int64_t at = 1; at <= 20; at++)
            for (int ever = 0; ever < 2; ever++) {
                status s;
                struct fault fault = {.kind = kind, .at = at, .is_permanent = ever};
                fault_set(&fault);
                int64_t step = newest_step(folder, &s);
                fault_set(NULL);
                ck_assert_msg(step == 2 || step == 1 || s, "neither state nor failure at call %d", (int)at);
                if (kind == FAULT_SHORT || (kind == FAULT_EINTR && !ever)) ck_assert_int_eq(step, 2);
                status_free(s);
            }
    remove_folder(folder);
}

static void must_reject(const char *path, const char *what, size_t where) {
    struct checkpoint *checkpoint;
    status s = checkpoint_open(path, &checkpoint);
    ck_assert_msg(status_code(s) == STATUS_DATA && strstr(status_message(s), path), "%s %zu: %s", what, where,
                  status_message(s));
    status_free(s);
}

TEST(every_damaged_byte_is_rejected) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5");
    size_t size;
    ck_ok(write_state(folder, "a", 7));
    char *bytes = slurp(path, &size);
    int fd = open(path, O_WRONLY);
    for (size_t at = 0; at < size; at++) {
        char wrong = (char)(bytes[at] ^ (1 << at % 8));
        ck_assert_int_eq(pwrite(fd, &wrong, 1, (off_t)at), 1);
        must_reject(path, "byte", at);
        ck_assert_int_eq(pwrite(fd, &bytes[at], 1, (off_t)at), 1);
    }
    assert_state(path, 7);
    close(fd);
    free(bytes);
    free(path);
    remove_folder(folder);
}

TEST(every_truncation_is_rejected) {
    char *folder = make_folder(), *path = path_in(folder, "a.h5");
    size_t size;
    ck_ok(write_state(folder, "a", 7));
    free(slurp(path, &size));
    while (size-- > 0) {
        ck_assert_int_eq(truncate(path, (off_t)size), 0);
        must_reject(path, "length", size);
    }
    free(path);
    remove_folder(folder);
}

/* Power loss. A model of the disk stores the synced bytes of every file and the synced names. At each call of a save,
 * the test creates possible states after a power loss in a second folder: unsynced blocks of a file new, old, zero or
 * torn, its length old or new; an unsynced change of a name done or not. */
#define BLOCK 512
#define MAX_FILES 8
#define MAX_SIZE 65536

struct version {
    bool exists;
    size_t size;
    char bytes[MAX_SIZE];
};

struct disk_file {
    char name[256];
    struct version now, safe; /* what a process reads; what is on disk under this name after a power loss */
    struct version synced;    /* the bytes of `now` that were synced with fsync */
};

struct disk {
    const char *folder, *other;
    struct disk_file files[MAX_FILES];
    size_t count;
    enum fault_call last;
    char last_path[256];
    uint64_t random;
    int trials_a_call;
    int64_t trials;
    int64_t new_states;
};

static uint32_t draw(struct disk *disk) {
    disk->random = disk->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(disk->random >> 33);
}

static struct disk_file *file_of(struct disk *disk, const char *name) {
    for (size_t i = 0; i < disk->count; i++)
        if (strcmp(disk->files[i].name, name) == 0) return &disk->files[i];
    ck_assert_uint_lt(disk->count, MAX_FILES);
    struct disk_file *file = &disk->files[disk->count++];
    memset(file, 0, sizeof *file);
    snprintf(file->name, sizeof file->name, "%s", name);
    return file;
}

/* Reads the real folder into `now`. */
static void look(struct disk *disk) {
    for (size_t i = 0; i < disk->count; i++) disk->files[i].now.exists = false;
    struct io_names names = {0};
    DIR *dir = opendir(disk->folder);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        struct disk_file *file = file_of(disk, entry->d_name);
        SCOPED_MEMORY char *path = path_in(disk->folder, entry->d_name);
        SCOPED_MEMORY char *bytes = slurp(path, &file->now.size);
        ck_assert_uint_le(file->now.size, MAX_SIZE);
        memcpy(file->now.bytes, bytes, file->now.size);
        file->now.exists = true;
    }
    closedir(dir);
    io_names_free(&names);
}

/* Applies the effect of the last call on the disk. */
static void settle(struct disk *disk) {
    if (disk->last == CALL_RENAME) /* the bytes move with the name */
        for (size_t i = 0; i < disk->count; i++)
            if (io_is_temporary(disk->files[i].name) && disk->files[i].synced.exists) {
                file_of(disk, strrchr(disk->last_path, '/') + 1)->synced = disk->files[i].synced;
                disk->files[i].synced.exists = false;
            }
    if (disk->last != CALL_SYNC) return;
    bool is_folder = strcmp(disk->last_path, disk->folder) == 0;
    for (size_t i = 0; i < disk->count; i++) {
        struct disk_file *file = &disk->files[i];
        SCOPED_MEMORY char *path = path_in(disk->folder, file->name);
        if (strcmp(path, disk->last_path) == 0) file->synced = file->now;
        if (is_folder) {
            file->safe = file->synced;
            file->safe.exists = file->now.exists;
        }
    }
}

/* The bytes of [file] after a power loss: synced bytes are unchanged, others random. */
static void corrupt(struct disk *disk, const struct disk_file *file, struct version *out) {
    *out = file->now;
    bool is_synced = file->synced.exists && file->synced.size == file->now.size &&
                     memcmp(file->synced.bytes, file->now.bytes, file->now.size) == 0;
    if (is_synced) return;
    for (size_t at = 0; at < out->size; at += BLOCK) {
        size_t size = out->size - at < BLOCK ? out->size - at : BLOCK, cut = draw(disk) % (size + 1);
        uint32_t how = draw(disk) % 4;
        if (how == 1) memset(out->bytes + at, 0, size);
        if (how == 2) memset(out->bytes + at + cut, 0, size - cut);
        if (how == 3) memset(out->bytes + at, 0x5a, cut);
    }
    if (draw(disk) % 4 == 0) out->size = draw(disk) % (out->size + 1);
}

static void put_file(const char *folder, const char *name, const struct version *version) {
    SCOPED_MEMORY char *path = path_in(folder, name);
    spill(path, version->bytes, version->size);
}

/* Creates one possible state of the disk. */
static void lose_power(struct disk *disk) {
    static struct version version;
    for (size_t i = 0; i < disk->count; i++) {
        const struct disk_file *file = &disk->files[i];
        bool is_changed = file->now.exists != file->safe.exists || file->now.size != file->safe.size ||
                          memcmp(file->now.bytes, file->safe.bytes, file->now.size) != 0;
        bool has_new_name = is_changed && draw(disk) % 2;
        if (has_new_name ? file->now.exists : file->safe.exists) {
            if (has_new_name || !is_changed)
                corrupt(disk, file, &version);
            else
                version = file->safe;
            put_file(disk->other, file->name, &version);
        }
    }
    status s;
    int64_t step = newest_step(disk->other, &s);
    ck_assert_msg(s == OK && (step == 1 || step == 2), "step %d after call %d: %s", (int)step, disk->last,
                  status_message(s));
    disk->new_states += step == 2;
    disk->trials++;
    empty_folder(disk->other);
}

static void lose_power_here(void *context, enum fault_call call, const char *path) {
    struct disk *disk = context;
    if (strncmp(path, disk->folder, strlen(disk->folder)) != 0) return; /* a loader in the other folder */
    look(disk);
    settle(disk);
    for (int i = 0; i < disk->trials_a_call; i++) lose_power(disk);
    disk->last = call;
    snprintf(disk->last_path, sizeof disk->last_path, "%s", path);
}

TEST(a_power_loss_leaves_old_or_new) {
    static struct disk disk;
    const char *wanted = getenv("DDPTRAIN_TEST_TRIALS");
    char *folder = make_folder(), *other = make_folder();
    int64_t calls = calls_of_a_save(folder);
    disk = (struct disk){.folder = folder, .other = other, .random = 1, .last = CALLS};
    disk.trials_a_call = (int)((wanted ? atol(wanted) : 3000) / calls + 1);
    ck_ok(save_and_prune(folder, 1, 1));
    look(&disk);
    for (size_t i = 0; i < disk.count; i++) disk.files[i].safe = disk.files[i].synced = disk.files[i].now;
    fault_set(&(struct fault){.kind = FAULT_NONE, .filter = folder, .watch = lose_power_here, .context = &disk});
    ck_ok(save_and_prune(folder, 2, 1));
    lose_power_here(&disk, CALLS, folder);
    fault_set(NULL);
    ck_assert_int_ge(disk.trials, calls);
    ck_assert(disk.new_states > 0 && disk.new_states < disk.trials); /* both outcomes were seen */
    remove_folder(folder);
    remove_folder(other);
}

CHECK_MAIN("checkpoint faults")
