/* Finding, compiling and loading extensions, and what they call. */
#include "train/config/extension.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/files/digest.h"
#include "base/files/find_file.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "base/system/module.h"
#include "train/metrics/metric_table.h"

#define MAX_SOURCE (64u << 20) /* bytes of a file */
#define MAX_LOADED 64          /* extensions of a process */

extern char **environ;

static const struct schema_row rows[] = {
    SCHEMA_ROW(STRING, struct extension_file, path, .flags = SCHEMA_REQUIRED | SCHEMA_EXTENDS | SCHEMA_INFERENCE,
               .doc = "A C file that defines a layer, a loss, an optimizer, a dataset format, a sampler or a metric, "
                      "or a .so that was made of one."),
    SCHEMA_ROW(STRING, struct extension_file, sha256, .fallback = "null",
               .doc = "SHA-256 of the file. A run writes it into its resolved config; with it the program uses the "
                      "file that it has compiled before, and no other."),
    {0},
};
const struct schema extension_schema = SCHEMA("extensions", struct extension_file, .rows = rows, .shorthand = "path");

/* ---- what a process has loaded ---- */

static struct loaded {
    char sha256[DIGEST_HEX_SIZE];
    const struct extension *extension;
} loaded[MAX_LOADED];
static size_t loaded_count;

bool extensions_run_on_gpus(void) {
    for (size_t i = 0; i < loaded_count; i++) {
        const struct extension *e = loaded[i].extension;
        if (!e->runs_on_gpus && (e->layer || e->loss || e->optimizer)) return false;
    }
    return true;
}

static const struct extension *find_loaded(const char *sha256) {
    for (size_t i = 0; i < loaded_count; i++)
        if (strcmp(loaded[i].sha256, sha256) == 0) return loaded[i].extension;
    return NULL;
}

/* ---- a crash or an exit inside an extension ---- */

static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

/* Memory of the code of an extension: [begin, end). */
struct code {
    uintptr_t begin, end;
    char message[512]; /* "ddptrain: the extension FILE", written by the handlers as it is */
};
static struct code codes[MAX_LOADED], opening; /* opening: of the extension that is being opened, only its message */
static size_t code_count;

/* Names the extension that the process is in; false: it is in none. */
static bool name_extension(void) {
    void *frames[32];
    int count = backtrace(frames, sizeof frames / sizeof *frames);
    const struct code *code = *opening.message ? &opening : NULL;
    for (int f = 0; f < count && !code; f++)
        for (size_t i = 0; i < code_count && !code; i++)
            if ((uintptr_t)frames[f] >= codes[i].begin && (uintptr_t)frames[f] < codes[i].end) code = &codes[i];
    if (code) (void)!write(STDERR_FILENO, code->message, strlen(code->message));
    return code != NULL;
}

/* The signal then ends the process as without a handler. */
static void on_crash(int number) {
    static const char crashed[] = " crashed\n";
    signal(number, SIG_DFL);
    if (name_extension()) (void)!write(STDERR_FILENO, crashed, sizeof crashed - 1);
}

/* A call of exit would otherwise end a run as if it were complete. */
static void on_end(int code, void *unused) {
    (void)unused;
    if (!name_extension()) return;
    char text[80];
    int length = snprintf(text, sizeof text, " has ended the process by exit(%d); it must return a status\n", code);
    (void)!write(STDERR_FILENO, text, (size_t)length);
    _exit(STATUS_USAGE);
}

static int find_code(struct dl_phdr_info *info, size_t size, void *user) {
    struct code *code = user;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr, end = begin + part->p_memsz;
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X) || code->begin < begin || code->begin >= end) continue;
        code->begin = begin, code->end = end;
        return 1;
    }
    return 0;
}

static void name_code(struct code *code, const char *path) {
    snprintf(code->message, sizeof code->message, "ddptrain: the extension %.400s", path);
}

/* [function]: any of the extension. */
static void watch_crashes(uintptr_t function, const char *path) {
    void *frame;
    struct code *code = &codes[code_count];
    code->begin = function;
    if (!function || !dl_iterate_phdr(find_code, code)) return;
    name_code(code, path);
    code_count++;
    backtrace(&frame, 1); /* loads what it needs, which a handler must not do */
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) {
        struct sigaction own = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK}, before;
        if (sigaction(crashes[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(crashes[i], &own, NULL);
    }
}

/* Adds the types to their tables. */
static status add_types(const struct extension *e, const char *path) {
    const char *name = NULL;
    if (e->metric) TRY(status_prefix(metric_check_name(e->metric->name), "%s", path));
    if (e->layer && !layer_type_add(e->layer)) name = e->layer->variant.name;
    if (e->loss && !loss_type_add(e->loss)) name = e->loss->variant.name;
    if (e->optimizer && !optimizer_type_add(e->optimizer)) name = e->optimizer->variant.name;
    if (e->format && !dataset_format_add(e->format)) name = e->format->name;
    if (e->sampler && !sampler_type_add(e->sampler)) name = e->sampler->variant.name;
    if (e->metric && (metric_is_known(e->metric->name) || !metric_type_add(e->metric))) name = e->metric->name;
    if (!name) return OK;
    return status_usage("%s: there is a type '%s' already: of the program, of another extension, or of an earlier "
                        "version of this file; give it another name, or start over with --fresh",
                        path, name);
}

/* Of the headers that this program was compiled with. */
static const char own_headers[] =
#include "train/headers.inc"
    ;

static status check_types(const struct extension *e, const char *path) {
    static const size_t sizes[] = EXTENSION_SIZES;
    if (strcmp(e->version, DDPTRAIN_VERSION) != 0 || memcmp(sizes, e->sizes, sizeof sizes) != 0 ||
        strcmp(e->headers, own_headers) != 0)
        return status_usage("%s was compiled for version %.40s of ddptrain or for another build of it, and this is "
                            "version " DDPTRAIN_VERSION "; compile it again: ddptrain extension build",
                            path, e->version);
    if (!e->layer && !e->loss && !e->optimizer && !e->format && !e->sampler && !e->metric)
        return status_usage("%s: DDPTRAIN_EXTENSION names no layer, loss, optimizer, format, sampler or metric", path);
    bool is_whole = true;
    if (e->layer) is_whole = is_whole && (e->layer->plan || e->layer->expand);
    if (e->layer && !e->layer->expand && !e->layer->is_view)
        is_whole = is_whole && e->layer->forward && e->layer->backward;
    if (e->loss) is_whole = is_whole && e->loss->check && e->loss->run;
    if (e->optimizer) is_whole = is_whole && e->optimizer->settings && e->optimizer->plan;
    if (e->format) is_whole = is_whole && e->format->open && e->format->read && e->format->describe && e->format->close;
    if (e->sampler) is_whole = is_whole && e->sampler->draw;
    if (e->metric) is_whole = is_whole && e->metric->name && e->metric->add && e->metric->value;
    if (!is_whole)
        return status_usage("%s: a function is missing: a layer has plan, forward and backward, "
                            "a loss check and run, an optimizer settings and plan, a format open, "
                            "read, describe and close, a sampler draw, a metric name, add and value",
                            path);
    return OK;
}

/* Opens the shared object [object] of the extension [path]. */
static status open_object(const char *object, const char *path, const char *sha256, const struct extension **out) {
    if (loaded_count == 0) on_exit(on_end, NULL);
    name_code(&opening, path);
    void *handle = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    *opening.message = 0;
    if (!handle) return status_usage("%s: cannot be loaded: %s", path, dlerror());
    const struct extension *e = dlsym(handle, EXTENSION_SYMBOL);
    if (!e)
        return status_usage("%s: is not an extension of ddptrain: it does not end with DDPTRAIN_EXTENSION(...)", path);
    TRY(check_types(e, path));
    if (loaded_count == MAX_LOADED) return status_usage("%s: a process has at most %d extensions", path, MAX_LOADED);
    TRY(add_types(e, path));
    watch_crashes(e->layer       ? (uintptr_t)e->layer->plan
                  : e->loss      ? (uintptr_t)e->loss->run
                  : e->optimizer ? (uintptr_t)e->optimizer->plan
                  : e->format    ? (uintptr_t)e->format->open
                  : e->sampler   ? (uintptr_t)e->sampler->draw
                                 : (uintptr_t)e->metric->value,
                  path);
    memcpy(loaded[loaded_count].sha256, sha256, DIGEST_HEX_SIZE);
    loaded[loaded_count++].extension = e;
    *out = e;
    return OK;
}

/* ---- the compiler ---- */

/* The folder of the headers; false: there is none. */
static bool find_headers(char path[PATH_MAX + 64]) {
    char own[PATH_MAX];
    module_program_path(own);
    char *slash = strrchr(own, '/');
    if (slash) *slash = 0;
    const char *const folders[][2] = {{getenv("DDPTRAIN_INCLUDE_DIR"), ""},
                                      {own, "/../include/ddptrain"},
                                      {own, "/../../../src"},
                                      {DDPTRAIN_INCLUDE_DIR, ""}};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (!folders[i][0]) continue;
        char header[PATH_MAX + 128];
        snprintf(path, PATH_MAX + 64, "%s%s", folders[i][0], folders[i][1]);
        snprintf(header, sizeof header, "%s/train/config/extension.h", path);
        if (access(header, R_OK) == 0) return true;
    }
    return false;
}

/* Adds the SHA-256 of the header [file] of [folder], and of those that it includes; *seen has a line for each. */
static status hash_headers(const char *folder, const char *file, struct text *seen, struct digest *digest) {
    static const char include[] = "\n#include \"";
    SCOPED_TEXT path = {0}, line = {0};
    SCOPED_STRING text = NULL;
    struct io_info info;
    char hex[DIGEST_HEX_SIZE];
    text_printf(&path, "%s/%s", folder, file);
    text_printf(&line, "\n%s\n", file);
    if (strstr(text_string(seen), text_string(&line)) || access(text_string(&path), R_OK) != 0) return OK;
    text_add(seen, text_string(&line));
    TRY(io_read_text(text_string(&path), MAX_SOURCE, &text, &info));
    digest_hex_of(text, strlen(text), hex);
    digest_add(digest, hex, DIGEST_HEX_SIZE - 1);
    digest_add(digest, "\n", 1);
    for (const char *at = text; (at = strstr(at, include));) {
        at += sizeof include - 1;
        SCOPED_TEXT name = {0};
        text_add_bytes(&name, at, strcspn(at, "\"\n"));
        TRY(hash_headers(folder, text_string(&name), seen, digest));
    }
    return OK;
}

/* An extension that was compiled with headers of another program would crash. */
static status check_headers(const char *folder) {
    SCOPED_TEXT seen = {0};
    struct digest digest;
    uint8_t hash[DIGEST_SIZE];
    char hex[DIGEST_HEX_SIZE];
    digest_start(&digest);
    TRY(hash_headers(folder, "train/config/extension.h", &seen, &digest));
    digest_finish(&digest, hash);
    digest_hex(hash, hex);
    if (strcmp(hex, own_headers) == 0) return OK;
    return status_usage("the headers in '%s' are of another version or build of ddptrain than this program; an "
                        "extension compiled with them would crash. Install those of this one, or set "
                        "DDPTRAIN_INCLUDE_DIR to their folder",
                        folder);
}

static const char *compiler(void) {
    const char *cc = getenv("CC");
    return cc && *cc ? cc : "cc";
}

/* Runs the compiler, whose messages go to the file [log]. */
static status run_compiler(const char *const *arguments, const char *log, int *code) {
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int ended = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    int failed = posix_spawnp(&pid, arguments[0], &actions, NULL, (char *const *)(uintptr_t)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return status_usage(
            "an extension needs a C compiler, and '%s' cannot be started: %s; install gcc, or compile it "
            "on a machine that has one (ddptrain extension build) and name the .so",
            arguments[0], strerror(failed));
    while (waitpid(pid, &ended, 0) < 0)
        if (errno != EINTR) return status_errno(STATUS_IO, errno, "cannot wait for the compiler");
    *code = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
    return OK;
}

/* The first error of the compiler in the file [log], else its first line, with [name] for the file [source]. */
static status compiler_failure(const char *source, const char *name, const char *log) {
    SCOPED_STRING text = NULL;
    struct io_info info;
    SCOPED_TEXT shown = {0};
    status_free(io_read_text(log, 1 << 20, &text, &info));
    const char *line = text ? strstr(text, "error: ") : NULL;
    while (line && line > text && line[-1] != '\n') line--;
    if (!line) line = text && *text ? text : "the compiler gave no reason";
    size_t length = strlen(source), is_named = strncmp(line, source, length) == 0 ? length : 0;
    if (is_named) text_add(&shown, name);
    text_add_bytes(&shown, line + is_named, strcspn(line + is_named, "\n"));
    bool lacks_header = !is_named && strstr(text_string(&shown), "fatal error: "); /* of one of the program's headers */
    return status_usage("the extension %s does not compile: %.400s%s", name, text_string(&shown),
                        lacks_header ? "; install the headers of the C library and of nettle (Debian: libc6-dev "
                                       "nettle-dev, Fedora: glibc-devel nettle-devel)"
                                     : "");
}

status extension_compile(const char *source, const char *name, const char *out) {
    char headers[PATH_MAX + 64];
    int code = 0;
    if (!find_headers(headers))
        return status_usage("the headers of ddptrain, which an extension needs, are not installed; set "
                            "DDPTRAIN_INCLUDE_DIR to their folder");
    TRY(check_headers(headers));
    SCOPED_STRING log = text_format("%s.log", out), *known = text_format("-DDDPTRAIN_HEADERS=\"%s\"", own_headers);
    SCOPED_STRING include = text_format("-I%s", headers), *own_include = text_format("-I%s/train/config", headers);
    const char *version = "-DDDPTRAIN_VERSION=\"" DDPTRAIN_VERSION "\"";
    const char *const arguments[] = {compiler(),
                                     "-std=gnu17",
                                     "-O3",
                                     "-ffp-contract=off",
                                     "-fno-math-errno",
                                     "-fPIC",
                                     "-shared",
                                     "-Wall",
                                     "-D_GNU_SOURCE",
                                     version,
                                     known,
                                     include,
                                     own_include,
                                     "-o",
                                     out,
                                     source,
                                     "-lm",
                                     NULL};
    status s = run_compiler(arguments, log, &code);
    if (!s && code) s = compiler_failure(source, name, log);
    unlink(log);
    return s;
}

/* ---- the cache: FOLDER/SHA256.c and .so are files that the user has named, SHA256-BUILD.so what a .c was compiled to
 * for this program ---- */

static status cache_folder(struct text *out) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    struct stat info;
    if (cache && *cache == '/')
        text_printf(out, "%s/ddptrain/extensions", cache);
    else if (home && *home == '/')
        text_printf(out, "%s/.cache/ddptrain/extensions", home);
    else
        return status_usage("extensions are kept in a folder of the user, but neither HOME nor XDG_CACHE_HOME is set");
    TRY(io_make_folders(text_string(out)));
    if (stat(text_string(out), &info) != 0) return status_errno(STATUS_IO, errno, "cannot read '%s'", text_string(out));
    if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)))
        return status_usage("the folder of extensions '%s' can be written by others, who could put their code there; "
                            "chmod go-w it, or set XDG_CACHE_HOME",
                            text_string(out));
    return OK;
}

/* "c" or "so"; NULL: neither. */
static const char *kind_of(const char *path) {
    const char *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".c") == 0) return "c";
    return dot && strcmp(dot, ".so") == 0 ? "so" : NULL;
}

/* Differs for each build of the program and each compiler. */
static void build_key(char hex[DIGEST_HEX_SIZE]) {
    struct digest digest;
    uint8_t hash[DIGEST_SIZE];
    struct stat info = {0};
    (void)!stat("/proc/self/exe", &info);
    digest_start(&digest);
    digest_add(&digest, DDPTRAIN_VERSION, sizeof DDPTRAIN_VERSION);
    digest_add(&digest, &info.st_size, sizeof info.st_size);
    digest_add(&digest, &info.st_mtim, sizeof info.st_mtim);
    digest_add(&digest, compiler(), strlen(compiler()));
    digest_finish(&digest, hash);
    digest_hex(hash, hex);
}

/* Waits for the lock of [path]. */
static status lock_file(const char *path, int *fd) {
    bool is_mine = false;
    TRY(io_open_append(path, fd));
    while (!is_mine) {
        TRY(io_lock(*fd, path, &is_mine));
        if (!is_mine) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return OK;
}

/* The compiled object of the remembered source; one process compiles it, the others wait. */
static status compile_once(const char *remembered, const char *name, const char *object) {
    int fd = -1;
    if (access(object, R_OK) == 0) return OK;
    SCOPED_STRING lock = text_format("%s.lock", object);
    SCOPED_STRING made = text_format("%s.tmp-%ld", object, (long)getpid());
    status s = lock_file(lock, &fd);
    if (!s && access(object, R_OK) != 0) {
        s = extension_compile(remembered, name, made);
        if (!s) s = io_rename(made, object);
        unlink(made);
    }
    if (fd >= 0) status_free(io_close(fd, lock));
    return s;
}

/* Loads the remembered file [sha256]; *is_known false: it is not remembered. */
static status load_remembered(const char *path, const char *sha256, bool *is_known, const struct extension **out) {
    SCOPED_TEXT folder = {0}, file = {0}, object = {0};
    char key[DIGEST_HEX_SIZE];
    const char *kind = kind_of(path);
    *is_known = true;
    if ((*out = find_loaded(sha256))) return OK;
    status s = cache_folder(&folder);
    text_printf(&file, "%s/%s.%s", text_string(&folder), sha256, kind);
    *is_known = !s && access(text_string(&file), R_OK) == 0;
    if (*is_known && strcmp(kind, "c") == 0) {
        build_key(key);
        text_printf(&object, "%s/%s-%.16s.so", text_string(&folder), sha256, key);
        s = compile_once(text_string(&file), path, text_string(&object));
    }
    if (!s && *is_known) s = open_object(text_string(object.length ? &object : &file), path, sha256, out);
    return s;
}

/* Remembers the content [bytes] of the file that the user named. */
static status remember(const char *path, const char *sha256, const char *bytes, size_t size) {
    SCOPED_TEXT folder = {0};
    status s = cache_folder(&folder);
    SCOPED_STRING file = text_format("%s/%s.%s", text_string(&folder), sha256, kind_of(path));
    if (!s && access(file, R_OK) != 0) s = io_replace(file, &(struct io_part){.bytes = bytes, .size = size}, 1);
    return s;
}

/* ---- the entries of a config ---- */

static status check_path(const char *path) {
    if (kind_of(path)) return OK;
    return status_usage("'%.200s' is neither a C file (.c) nor a shared object (.so)", path);
}

static status load_file(const char *path, char sha256[DIGEST_HEX_SIZE], const struct extension **out) {
    struct io_info info;
    SCOPED_STRING text = NULL;
    bool is_known;
    TRY(check_path(path));
    TRY(io_read_text(path, MAX_SOURCE, &text, &info));
    if (!text)
        return status_usage(!info.exists ? "there is no file '%s'" : "'%s' is not a file of at most 64 MiB", path);
    digest_hex_of(text, (size_t)info.size, sha256);
    TRY(remember(path, sha256, text, (size_t)info.size));
    return load_remembered(path, sha256, &is_known, out);
}

status extension_load(const char *path, const struct extension **out) {
    char sha256[DIGEST_HEX_SIZE];
    return load_file(path, sha256, out);
}

static bool is_sha256(const char *text) {
    return strlen(text) == DIGEST_HEX_SIZE - 1 && strspn(text, "0123456789abcdef") == DIGEST_HEX_SIZE - 1;
}

/* Of a run folder or a checkpoint. */
static status refuse(const struct extension_file *file) {
    SCOPED_TEXT word = {0};
    text_add_shell(&word, file->path);
    return status_new(
        STATUS_USAGE,
        "the extension '%s' (SHA-256 %.16s) is code that you have not run before on this machine, and it does not run "
        "because a run folder or a checkpoint names it; if you have this file and trust it: ddptrain extension test %s",
        file->path, file->sha256 ? file->sha256 : "not given", text_string(&word));
}

/* Whether [config] is a file in the folder of a run, which may be of somebody else. */
static bool is_in_run_folder(const char *config) {
    static const char *const names[] = {"metrics.jsonl", "ledger.jsonl", "checkpoints", "log.txt"};
    const char *slash = strrchr(config, '/');
    bool is_found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        SCOPED_STRING path = text_format("%.*s%s", slash ? (int)(slash - config + 1) : 0, config, names[i]);
        is_found = is_found || access(path, F_OK) == 0;
    }
    return is_found && strcmp(slash ? slash + 1 : config, "config.yaml") == 0;
}

static status load_entry(struct extension_file *file, const char *config, bool is_users, struct arena *arena) {
    const struct extension *extension;
    char sha256[DIGEST_HEX_SIZE];
    bool is_known;
    TRY(check_path(file->path));
    if (file->sha256) {
        if (!is_sha256(file->sha256))
            return status_usage("sha256 must be 64 hexadecimal digits, got '%.80s'", file->sha256);
        TRY(load_remembered(file->path, file->sha256, &is_known, &extension));
        if (is_known) return OK;
    }
    if (file->sha256 || !is_users) return refuse(file);
    TRY(find_file(&file->path, config, arena));
    TRY(load_file(file->path, sha256, &extension));
    file->sha256 = arena_copy(arena, sha256);
    return OK;
}

/* The value of [key] of an entry, or a bare path; NULL: none, or not a word, which schema_bind reports. */
static const char *word_of(const struct node *entry, const char *key) {
    const struct node *node = entry->kind == NODE_MAPPING ? node_get(entry, key) : entry;
    if (entry->kind != NODE_MAPPING && strcmp(key, "path") != 0) return NULL;
    return node && node->kind == NODE_SCALAR && !node_is_null(node) ? node->text : NULL;
}

void extensions_load(const struct node *root, const char *config, bool is_users, struct arena *arena,
                     struct problems *problems, struct extension_file **files, size_t *count) {
    const struct node *list = node_get(root, "extensions");
    *count = 0;
    if (!list || list->kind != NODE_SEQUENCE) return;
    *files = arena_alloc(arena, (list->count ? list->count : 1) * sizeof **files);
    for (size_t i = 0; i < list->count; i++) {
        struct extension_file file = {word_of(list->items[i], "path"), word_of(list->items[i], "sha256")};
        if (!file.path) continue;
        const char *from = list->items[i]->place.file; /* of a base, too */
        bool is_own = is_users && !(list->items[i]->place.line > 0 && from && is_in_run_folder(from));
        status s = load_entry(&file, config, is_own, arena);
        if (s) problems_add(problems, list->items[i]->place, "extensions", "%s", status_message(s));
        status_free(s);
        (*files)[(*count)++] = file;
    }
}

status extensions_check_same(const struct section_list *extensions, const char *written, const char *path) {
    const struct extension_file *files = extensions->items;
    for (size_t i = 0; i < extensions->count; i++)
        if (strstr(written, "\nextensions:") && !strstr(written, files[i].sha256))
            return status_usage("%s: the extension %s has changed since this run began (its SHA-256 is %.16s... now); "
                                "use --fresh to start over, or the earlier file",
                                path, files[i].path, files[i].sha256);
    return OK;
}

/* ---- for extensions ---- */

void extension_run_rows(extension_row_loss *loss, const void *config, const struct loss_batch *b) {
    size_t size = shape_elements(b->shape), targets_size = b->weights->target_size;
    const float *y = floats(b->output), *t = b->targets;
    float *dy = b->gradient ? floats(b->gradient) : NULL;
    double counted = 0;
    for (size_t r = 0; r < b->rows; r++) {
        float weight = b->weights->values ? b->weights->values[r] : 1, factor = b->scale / (float)b->rows * weight;
        float *own = dy ? dy + r * size : NULL;
        b->sums->loss += loss(config, y + r * size, size, t + r * targets_size, targets_size, own) * (double)weight;
        for (size_t i = 0; own && i < size; i++) own[i] *= factor;
        counted += (double)weight;
    }
    b->sums->count += b->weights->is_counted ? counted : (double)b->rows;
}

union optimizer_constants extension_constants(own_formula *update, const float *numbers, size_t count) {
    union optimizer_constants constants = {0};
    constants.own.update = update;
    for (size_t i = 0; i < count && i < OWN_NUMBERS; i++) constants.own.numbers[i] = numbers[i];
    return constants;
}
