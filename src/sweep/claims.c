/* The files by which processes share a sweep. The lists of entries, of blocks and of the end alike, are one object. */
#include "sweep/claims.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files/folder_lock.h"
#include "base/files/io.h"
#include "base/files/json_lines.h"
#include "base/scoped.h"
#include "sweep/sweep_folder.h"

#define MAX_ENTRY ((uint64_t)1 << 30)
#define MAX_ALIVE 4096
#define BLOCK_SECONDS 0.5  /* of a block of short trials, with one process */
#define MEMBER_SECONDS 0.1 /* the same for each further process: all of them read each claim */
#define PUBLISH_SECONDS 10 /* after which a part of a block is published */
#define BEATS 6            /* in a lease */
#define MAX_READS 100      /* of a claim that is there, READ_SECONDS apart */
#define READ_SECONDS 0.1
#define OBSERVATIONS 4 /* of a dead process, at least */

/* Another process. */
struct member {
    char id[CLAIMS_ID_SIZE];
    char *seen;       /* its file, as it was at the last look; NULL: none */
    double looked_at; /* 0: never */
    double silent;    /* how long it was observed without a change */
    bool is_gone;     /* it has ended */
    bool is_dead;     /* it is gone, or silent now */
};

struct trial_block {
    char name[64];        /* of its entries, before ".<n>" */
    int64_t first, count; /* trials; of the end: none */
    int next;             /* the first entry that is not known */
    size_t owner;         /* member; of the newest claim */
    bool is_claimed;      /* and not given back */
    bool is_mine;
    /* mine: */
    struct text lines;        /* results that are not published */
    int64_t *runs, run_count; /* of these */
    double begun, published;
};

struct claims {
    struct claims_options options;
    const struct sweep_config *sweep;
    struct trials *trials;
    struct log *log;
    char id[CLAIMS_ID_SIZE];
    char *folder, *alive, *temporary; /* of this process */
    int alive_fd;
    int64_t beats;
    double beat_at, read_at, looked_at; /* the last time that others were read, and that lost claims were looked for */
    struct member *members;             /* (member_count); the first one is this process */
    size_t member_count;
    struct trial_block **blocks;  /* (block_count) by trial */
    size_t block_count, complete; /* the first [complete] need no look any more */
    int64_t frontier;             /* the first trial that no known block has */
    int64_t last_count;           /* of the last block of this process */
    double seconds;               /* of a trial, wall time; 0: not known */
    double completed_at;
    struct trial_block end;
    int end_at_start;      /* its entries at claims_open */
    uint16_t *trial_owner; /* (trials) the member that published the last run of a trial */
};

/* ---- paths ---- */

static char *entry_path(const struct claims *c, const struct trial_block *b, int n) {
    return text_format("%s/" SWEEP_BLOCKS "/%s.%d", c->options.by_fd, b->name, n);
}

static char *member_path(const struct claims *c, size_t member, const char *name) {
    return text_format("%s/" SWEEP_MEMBERS "/%s%s", c->options.by_fd, c->members[member].id, name);
}

/* Of a trial of this process. */
static char *own_path(const struct claims *c, int64_t trial) {
    SCOPED_STRING folder = member_path(c, 0, "");
    return sweep_trial_path(folder, trial);
}

/* ---- processes ---- */

static void read_word(const char *path, char *out, size_t size) {
    FILE *file = fopen(path, "re");
    *out = 0;
    if (file && fgets(out, (int)size, file)) out[strcspn(out, "\n")] = 0;
    if (file) fclose(file);
}

static void host_name(char *out, size_t size) {
    if (gethostname(out, size) != 0) *out = 0;
    out[size - 1] = 0;
    for (char *at = out; *at; at++) /* part of a file name */
        if (!((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9') || *at == '.'))
            *at = '-';
}

void claims_make_id(char id[CLAIMS_ID_SIZE]) {
    char host[49];
    uint32_t nonce[2] = {0};
    host_name(host, sizeof host);
    if (getrandom(nonce, sizeof nonce, 0) != sizeof nonce) nonce[0] = (uint32_t)(clock_unix() * 1e6);
    snprintf(id, CLAIMS_ID_SIZE, "%s-%ld-%08x%08x", *host && *host != '.' ? host : "host", (long)getpid(), nonce[0],
             nonce[1]);
}

/* When process [pid] of this host has started, in ticks since the boot; 0: there is none, or it has ended. */
static int64_t start_of(long pid) {
    char path[64], line[1024];
    long long start = 0;
    char state = 'Z';
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    read_word(path, line, sizeof line);
    const char *after = strrchr(line, ')'); /* the name of the program may contain anything */
    if (after)
        sscanf(after, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lld", &state,
               &start);
    return state == 'Z' || state == 'X' ? 0 : start;
}

/* Processes see each other by their numbers only in the same boot of the same system and container. */
static void add_place(struct text *out) {
    char boot[64];
    struct stat space;
    read_word("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    if (stat("/proc/self/ns/pid", &space) != 0) *boot = 0;
    if (*boot) text_printf(out, "%s-%llu", boot, (unsigned long long)space.st_ino);
}

static status beat(struct claims *c, bool has_ended) {
    SCOPED_TEXT line = {0}, place = {0};
    add_place(&place);
    text_add(&line, "{");
    text_add_member(&line, "place", text_string(&place));
    text_add_member_int(&line, "pid", getpid());
    text_add_member_int(&line, "start", start_of(getpid()));
    text_printf(&line, ",\"has_ended\":%d,\"beat\":\"%012" PRId64 "\"}\n", has_ended, ++c->beats);
    status s = io_write_at(c->alive_fd, c->alive, line.data, line.length, 0);
    if (!s) s = io_sync(c->alive_fd, c->alive);
    c->beat_at = clock_seconds();
    return s;
}

/* Whether the process is one of this host and does not exist any more. */
static bool has_vanished(const struct json_line *alive) {
    SCOPED_TEXT place = {0};
    int64_t pid = 0, start = 0;
    add_place(&place);
    bool is_here = place.length && json_line_is(alive, "place", text_string(&place)) &&
                   json_field_int(json_line_find(alive, "pid"), 1, INT32_MAX, &pid) &&
                   json_field_int(json_line_find(alive, "start"), 1, INT64_MAX, &start);
    return is_here && start_of((long)pid) != start;
}

/* Looks at the file of member [i]. */
static status look_at(struct claims *c, size_t i) {
    struct member *m = &c->members[i];
    double now = clock_seconds(), most = c->options.lease / OBSERVATIONS;
    if (i == 0 || m->is_gone || (m->looked_at > 0 && now - m->looked_at < fmin(most / 2, 1))) return OK;
    SCOPED_STRING path = member_path(c, i, "/alive");
    char *text;
    struct io_info info;
    struct json_line alive;
    int64_t ended = 0;
    TRY(io_read_text(path, MAX_ALIVE, &text, &info));
    bool is_same = m->looked_at > 0 && (text ? m->seen && strcmp(text, m->seen) == 0 : !m->seen);
    m->silent = is_same ? m->silent + fmin(now - m->looked_at, most) : 0;
    m->looked_at = now;
    if (text && json_line_read(text, strcspn(text, "\n"), &alive)) {
        bool has_ended = json_field_int(json_line_find(&alive, "has_ended"), 0, 1, &ended) && ended;
        m->is_gone = has_ended || has_vanished(&alive);
    }
    free(m->seen);
    m->seen = text;
    m->is_dead = m->is_gone || m->silent >= c->options.lease;
    return OK;
}

/* Its index; it is added if it is new. */
static size_t member_of(struct claims *c, const char *id) {
    for (size_t i = 0; i < c->member_count; i++)
        if (strcmp(c->members[i].id, id) == 0) return i;
    c->members = status_need(realloc(c->members, (c->member_count + 1) * sizeof *c->members));
    struct member *m = &c->members[c->member_count];
    *m = (struct member){.looked_at = 0};
    snprintf(m->id, sizeof m->id, "%s", id);
    return c->member_count++;
}

/* ---- entries ---- */

/* Appends an entry to the list of [b]; *is_taken: another process has appended one. */
static status publish(struct claims *c, struct trial_block *b, const char *text, bool is_durable, bool *is_taken) {
    SCOPED_STRING path = entry_path(c, b, b->next);
    TRY(sweep_folder_publish(c->temporary, path, text, is_durable, is_taken));
    b->next += !*is_taken;
    return OK;
}

static status publish_claim(struct claims *c, struct trial_block *b, bool *is_mine) {
    SCOPED_STRING line =
        text_format("{\"event\":\"claim\",\"member\":\"%s\",\"trials\":%" PRId64 "}\n", c->id, b->count);
    bool is_taken = false;
    status s = publish(c, b, line, false, &is_taken);
    *is_mine = !s && !is_taken;
    if (!*is_mine) return s;
    b->owner = 0;
    b->is_claimed = b->is_mine = true;
    b->begun = b->published = clock_seconds();
    trials_repeat_data(c->trials);
    return OK;
}

static void observe(struct claims *c, const struct trial_block *b, size_t member) {
    for (int64_t trial = b->first; trial < b->first + b->count && trial < c->sweep->trials; trial++) {
        if (trials_run(c->trials, trial * c->sweep->runs)->state == TRIAL_PENDING && c->sweep->runs == 1) continue;
        c->trial_owner[trial] = (uint16_t)(member < UINT16_MAX ? member : 0);
        if (member != 0 && c->options.observe) c->options.observe(c->options.user, trial);
    }
}

static status damaged(const char *path) {
    return status_data("%s: not an entry of this sweep; it was changed or damaged. Remove it to have its trials done "
                       "again, or use --fresh to start over",
                       path);
}

/* The entry [text] of [b]. */
static status apply(struct claims *c, struct trial_block *b, const char *path, const char *text, size_t size) {
    struct json_line line;
    const char *end = memchr(text, '\n', size);
    if (!end || text[size - 1] != '\n' || !json_line_read(text, (size_t)(end - text), &line)) return damaged(path);
    SCOPED_STRING id = json_field_text(json_line_find(&line, "member"));
    bool is_claim = json_line_is(&line, "event", "claim"), is_result = json_line_is(&line, "event", "results");
    if (!id || strlen(id) >= CLAIMS_ID_SIZE || strchr(id, '/') || is_claim == is_result) return damaged(path);
    size_t member = member_of(c, id);
    if (is_claim) {
        b->owner = member;
        b->is_claimed = true;
        int64_t count, before = b->count;
        bool has_count = json_field_int(json_line_find(&line, "trials"), 0, INT64_MAX / 2, &count);
        if (!has_count || (b->next > 0 && count != before)) return damaged(path);
        b->count = count;
        return OK;
    }
    const struct json_field *last = json_line_find(&line, "is_last");
    b->is_claimed = !(last && last->kind == KIND_BOOL && *last->text == 't');
    TRY(trials_read(c->trials, path, 2, end + 1, size - (size_t)(end + 1 - text)));
    observe(c, b, member);
    return OK;
}

/* Reads the entries from b->next on. */
static status read_block(struct claims *c, struct trial_block *b) {
    for (;; b->next++) {
        SCOPED_STRING path = entry_path(c, b, b->next), *text = NULL;
        struct io_info info;
        TRY(io_read_text(path, MAX_ENTRY, &text, &info));
        if (!text) return OK;
        TRY(apply(c, b, path, text, info.size));
    }
}

/* ---- blocks ---- */

static int64_t end_of(const struct claims *c, const struct trial_block *b) {
    return b->first + b->count < c->sweep->trials ? b->first + b->count : c->sweep->trials;
}

static int64_t pending_in(const struct claims *c, int64_t first, int64_t end) {
    int64_t count = 0;
    for (int64_t run = first * c->sweep->runs; run < end * c->sweep->runs; run++)
        count += trials_run(c->trials, run)->state == TRIAL_PENDING;
    return count;
}

/* Every run has a published result. */
static bool is_complete(const struct claims *c, const struct trial_block *b) {
    return !b->run_count && pending_in(c, b->first, end_of(c, b)) == 0;
}

static void free_block(struct trial_block *b) {
    text_free(&b->lines);
    free(b->runs);
}

static struct trial_block *add_block(struct claims *c, const struct trial_block *b) {
    if ((c->block_count & (c->block_count - 1)) == 0) { /* at powers of two */
        c->blocks = status_need(realloc(c->blocks, (c->block_count ? 2 * c->block_count : 1) * sizeof *c->blocks));
    }
    struct trial_block *own = status_need(malloc(sizeof *own));
    *own = *b;
    c->blocks[c->block_count++] = own;
    c->frontier = b->first + b->count;
    return own;
}

static struct trial_block *find_block(const struct claims *c, int64_t trial) {
    size_t low = 0, high = c->block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c->blocks[middle]->first <= trial)
            low = middle + 1;
        else
            high = middle;
    }
    struct trial_block *b = low ? c->blocks[low - 1] : NULL;
    return b && trial < b->first + b->count ? b : NULL;
}

bool claims_has(const struct claims *c, int64_t trial) {
    const struct trial_block *b = find_block(c, trial);
    return b && b->is_mine;
}

/* Another process has taken it over: what this one has computed since its last result does not count. */
static status lose(struct claims *c, struct trial_block *b) {
    log_warning(c->log,
                "trials %" PRId64 " to %" PRId64
                ": this process was silent for longer than the lease, and another one has taken them over",
                b->first, end_of(c, b) - 1);
    for (int64_t i = 0; i < b->run_count; i++) trials_reset(c->trials, b->runs[i]);
    text_clear(&b->lines);
    b->run_count = 0;
    b->is_mine = false;
    return read_block(c, b);
}

/* The entry of the results that [b] has. */
static status publish_lines(struct claims *c, struct trial_block *b, bool is_last, bool *is_taken) {
    SCOPED_STRING entry = text_format("{\"event\":\"results\",\"member\":\"%s\",\"is_last\":%s}\n%s", c->id,
                                      is_last ? "true" : "false", text_string(&b->lines));
    return publish(c, b, entry, true, is_taken);
}

/* Publishes the results that [b] has; [is_last]: and gives it back. */
static status publish_results(struct claims *c, struct trial_block *b, bool is_last) {
    bool is_taken = false;
    TRY(publish_lines(c, b, is_last, &is_taken));
    if (is_taken) return lose(c, b);
    observe(c, b, 0);
    text_clear(&b->lines);
    b->run_count = 0;
    b->published = clock_seconds();
    b->is_mine = b->is_claimed = !is_last;
    trials_repeat_data(c->trials);
    return OK;
}

static void measure(struct claims *c, const struct trial_block *b) {
    double now = clock_seconds(), since = fmax(b->begun, c->completed_at);
    double seconds = (now - since) / (double)b->count;
    c->seconds = c->seconds > 0 ? (c->seconds + seconds) / 2 : seconds;
    c->completed_at = now;
}

status claims_add(struct claims *c, int64_t run) {
    struct trial_block *b = find_block(c, run / c->sweep->runs);
    const struct text *line = trials_line(c->trials);
    if (!b->runs) b->runs = status_need(calloc((size_t)(b->count * c->sweep->runs), sizeof *b->runs));
    text_add_bytes(&b->lines, line->data, line->length);
    b->runs[b->run_count++] = run;
    bool has_ended = pending_in(c, b->first, end_of(c, b)) == 0;
    if (has_ended) measure(c, b);
    if (!has_ended && clock_seconds() - b->published < PUBLISH_SECONDS) return OK;
    TRY(publish_results(c, b, has_ended));
    if (has_ended && !b->is_mine) {
        free(b->runs);
        b->runs = NULL;
        text_free(&b->lines);
    }
    return OK;
}

static status find_lost(struct claims *c, struct trial_block *b, bool *is_lost) {
    SCOPED_STRING path = entry_path(c, b, b->next);
    struct io_info info;
    TRY(io_stat(path, &info));
    *is_lost = info.exists;
    return *is_lost ? lose(c, b) : OK;
}

status claims_check(struct claims *c, int64_t trial, bool *has) {
    struct trial_block *b = find_block(c, trial);
    bool is_lost = false;
    if (b && b->is_mine) TRY(find_lost(c, b, &is_lost));
    *has = b && b->is_mine;
    return OK;
}

status claims_beat(struct claims *c, bool *has_lost) {
    double now = clock_seconds(), pause = now - c->looked_at;
    *has_lost = false;
    c->looked_at = now;
    if (now - c->beat_at < c->options.lease / BEATS) return OK;
    TRY(beat(c, false));
    for (size_t i = c->complete; pause > c->options.lease / 2 && i < c->block_count; i++) {
        bool is_lost = false;
        if (c->blocks[i]->is_mine) TRY(find_lost(c, c->blocks[i], &is_lost));
        *has_lost = *has_lost || is_lost;
    }
    return OK;
}

status claims_give_back(struct claims *c) {
    status s = OK;
    for (size_t i = c->complete; i < c->block_count; i++)
        if (c->blocks[i]->is_mine) s = status_first(s, publish_results(c, c->blocks[i], true));
    return s;
}

status claims_read(struct claims *c, bool *is_complete_out) {
    *is_complete_out = false;
    for (size_t i = c->complete; i < c->block_count; i++) {
        struct trial_block *b = c->blocks[i];
        if (!b->is_mine && !is_complete(c, b)) TRY(read_block(c, b));
        if (i == c->complete && !b->is_mine && is_complete(c, b)) c->complete++;
    }
    *is_complete_out = c->complete == c->block_count && c->frontier >= c->sweep->trials;
    return OK;
}

/* ---- run folders of another process ---- */

/* What a run appends to, or locks; all other files of a run are complete from the moment they have their name. */
static bool is_changed(const char *name) {
    static const char *const endings[] = {".jsonl", ".txt", ".part", FOLDER_LOCK_FILE};
    const char *end = strrchr(name, '.');
    for (size_t i = 0; end && i < sizeof endings / sizeof *endings; i++)
        if (strcmp(end, endings[i]) == 0) return true;
    return false;
}

static status copy_file(const char *from, const char *to) {
    struct io_info info;
    SCOPED_STRING text = NULL;
    bool is_taken;
    if (!is_changed(from)) return io_link(from, to, &is_taken);
    TRY(io_read_text(from, MAX_ENTRY, &text, &info));
    struct io_part part = {text, info.size};
    return text ? io_replace(to, &part, 1) : OK;
}

/* The folder [from] with the folders in it. Names are in order, so that checkpoints come before metrics.jsonl, which
 * may be ahead of them, but not behind. */
static status copy_folder(const char *from, const char *to) {
    SCOPED_NAMES names = {0};
    TRY(io_make_folders(to));
    TRY(io_list(from, &names));
    for (size_t i = 0; i < names.count; i++) {
        const char *name = names.items[i];
        if (io_is_temporary(name) || strncmp(name, ".nfs", 4) == 0) continue;
        SCOPED_STRING old = text_path(from, name), *new = text_path(to, name);
        struct io_info info;
        TRY(io_stat(old, &info));
        if (info.is_folder) TRY(copy_folder(old, new));
        if (info.is_file) TRY(copy_file(old, new));
    }
    return OK;
}

static status remove_tree(const char *folder) {
    struct io_info info;
    SCOPED_NAMES names = {0};
    TRY(io_stat(folder, &info));
    if (!info.is_folder) return info.exists ? io_remove(folder) : OK;
    TRY(io_list(folder, &names));
    for (size_t i = 0; i < names.count; i++) {
        SCOPED_STRING path = text_path(folder, names.items[i]);
        TRY(remove_tree(path));
    }
    return io_remove_folder(folder);
}

/* Where another process had begun a run of [trial], it continues here. A failure costs that progress only. */
static void continue_trial(const struct claims *c, size_t member, int64_t trial) {
    struct io_info info;
    SCOPED_STRING folder = member_path(c, member, ""), *old = sweep_trial_path(folder, trial);
    SCOPED_STRING new = own_path(c, trial), *part = member_path(c, 0, "/part"), *runs = member_path(c, 0, "/runs");
    status s = io_stat(new, &info);
    if (!s && !info.exists) s = io_stat(old, &info);
    if (!s && info.is_folder && member != 0) {
        s = remove_tree(part);
        if (!s) s = copy_folder(old, part);
        if (!s) s = io_make_folders(runs);
        if (!s) s = io_rename(part, new);
        status_free(s ? remove_tree(part) : OK);
    }
    status_free(s);
}

/* From whoever had the block before; the newest first. */
static status continue_block(struct claims *c, const struct trial_block *b) {
    for (int n = b->next - 2; n >= 0; n--) {
        SCOPED_STRING path = entry_path(c, b, n), *text = NULL;
        struct io_info info;
        struct json_line line;
        TRY(io_read_text(path, MAX_ENTRY, &text, &info));
        bool is_read =
            text && json_line_read(text, strcspn(text, "\n"), &line) && json_line_is(&line, "event", "claim");
        SCOPED_STRING id = is_read ? json_field_text(json_line_find(&line, "member")) : NULL;
        if (!id) continue;
        size_t member = member_of(c, id);
        for (int64_t trial = b->first; trial < end_of(c, b); trial++)
            if (pending_in(c, trial, trial + 1)) continue_trial(c, member, trial);
    }
    return OK;
}

/* ---- which trials are next ---- */

/* How many trials a new block at the frontier has. */
static int64_t wanted_count(const struct claims *c) {
    int64_t left = c->sweep->trials - c->frontier, most = 8 * (c->last_count ? c->last_count : 1), ended = 0;
    double members = fmax((double)c->member_count, 2);
    while (ended < left && pending_in(c, c->frontier + ended, c->frontier + ended + 1) == 0) ended++;
    if (ended > 0) return ended; /* by an earlier start without --share */
    if (c->sweep->method == SWEEP_TPE || c->seconds <= 0) return 1;
    double wanted = (BLOCK_SECONDS + MEMBER_SECONDS * (members - 2)) / c->seconds;
    wanted = fmin(fmin(wanted, (double)most), (double)left / (2 * members));
    return wanted > 1 ? (int64_t)wanted : 1;
}

static status claim_frontier(struct claims *c, struct trial_block **out) {
    *out = NULL;
    while (!*out && c->frontier < c->sweep->trials) {
        struct trial_block b = {.first = c->frontier};
        bool is_mine = false;
        snprintf(b.name, sizeof b.name, "%" PRId64, b.first);
        TRY(read_block(c, &b));
        if (b.next == 0) {
            b.count = wanted_count(c);
            TRY(publish_claim(c, &b, &is_mine));
            for (int n = 0; !is_mine && b.next == 0 && n < MAX_READS; n++) { /* a client may not see the name yet */
                if (n > 0) clock_sleep(READ_SECONDS);
                TRY(read_block(c, &b));
            }
        }
        if (b.count <= 0)
            return status_new(STATUS_IO, "%s: the claim of trial %" PRId64 " cannot be read", c->options.folder,
                              b.first);
        struct trial_block *added = add_block(c, &b);
        if (!is_mine) continue;
        c->last_count = b.count;
        if (is_complete(c, added))
            TRY(publish_results(c, added, true));
        else
            *out = added;
    }
    return OK;
}

/* A block of a process that has given it back, or is dead. */
static status take_over(struct claims *c, struct trial_block **out) {
    double now = clock_seconds();
    bool all;
    *out = NULL;
    if (now - c->read_at < fmin(0.2, c->options.lease / 8)) return OK;
    c->read_at = now;
    TRY(claims_read(c, &all));
    for (size_t i = c->complete; !all && !*out && i < c->block_count; i++) {
        struct trial_block *b = c->blocks[i];
        bool is_mine = false;
        if (b->is_mine || is_complete(c, b)) continue;
        if (b->is_claimed) TRY(look_at(c, b->owner));
        if (b->is_claimed && b->owner != 0 && !c->members[b->owner].is_dead) continue;
        TRY(publish_claim(c, b, &is_mine));
        if (is_mine) TRY(continue_block(c, b));
        if (is_mine) *out = b;
    }
    return OK;
}

status claims_next(struct claims *c, int64_t *first, int64_t *end, bool *has) {
    struct trial_block *b;
    TRY(claim_frontier(c, &b));
    if (!b) TRY(take_over(c, &b));
    *has = b != NULL;
    if (!b) return OK;
    *first = b->first;
    *end = end_of(c, b);
    return OK;
}

/* ---- the end ---- */

status claims_end(struct claims *c, enum claims_end *out) {
    struct trial_block *b = &c->end;
    bool is_mine = false;
    TRY(read_block(c, b));
    *out = !b->is_claimed && b->next > c->end_at_start ? CLAIMS_END_DONE : CLAIMS_END_WAIT;
    if (*out == CLAIMS_END_DONE) return OK;
    if (b->is_claimed) TRY(look_at(c, b->owner));
    if (b->is_claimed && b->owner != 0 && !c->members[b->owner].is_dead) return OK;
    TRY(publish_claim(c, b, &is_mine));
    if (is_mine) *out = CLAIMS_END_MINE;
    return OK;
}

status claims_end_done(struct claims *c, bool *is_mine) {
    bool is_taken = false;
    status s = publish_lines(c, &c->end, true, &is_taken);
    *is_mine = !s && !is_taken;
    c->end.is_claimed = c->end.is_mine = false;
    return s;
}

/* A trial may be split over processes; then its other runs are trained again. */
static status move_trial_folder(const char *from, const char *to, bool *is_moved) {
    struct io_info old, new;
    SCOPED_STRING folder = io_folder_of(to);
    TRY(io_stat(from, &old));
    TRY(io_stat(to, &new));
    *is_moved = old.is_folder && !new.exists;
    if (!*is_moved) return OK;
    TRY(io_make_folders(folder));
    return io_rename(from, to);
}

static status all_complete(const struct claims *c, int64_t trial, bool *out) {
    *out = true;
    for (int64_t run = trial * c->sweep->runs; *out && run < (trial + 1) * c->sweep->runs; run++) {
        SCOPED_STRING path = sweep_run_path(c->options.by_fd, c->sweep, run);
        TRY(trial_folder_is_complete(path, trials_run(c->trials, run), out));
    }
    return OK;
}

status claims_collect(struct claims *c, int64_t trial, bool *is_kept) {
    size_t owner = c->trial_owner[trial];
    bool is_moved;
    TRY(all_complete(c, trial, is_kept));
    if (*is_kept) return OK;
    SCOPED_STRING member = member_path(c, owner, ""), *theirs = sweep_trial_path(member, trial);
    SCOPED_STRING own = own_path(c, trial), *kept = sweep_trial_path(c->options.by_fd, trial);
    TRY(move_trial_folder(kept, own, &is_moved));
    return owner != 0 ? move_trial_folder(theirs, own, &is_moved) : OK;
}

status claims_keep(struct claims *c, int64_t trial) {
    bool is_moved;
    SCOPED_STRING own = own_path(c, trial), *kept = sweep_trial_path(c->options.by_fd, trial);
    return move_trial_folder(own, kept, &is_moved);
}

status claims_remove_rest(struct claims *c) {
    SCOPED_NAMES names = {0};
    SCOPED_STRING members = text_path(c->options.by_fd, SWEEP_MEMBERS);
    TRY(io_list(members, &names));
    for (size_t i = 0; i < names.count; i++) {
        SCOPED_STRING runs = text_format("%s/%s/runs", members, names.items[i]);
        TRY(remove_tree(runs));
    }
    return OK;
}

/* ---- joining and leaving ---- */

status claims_open(const struct claims_options *options, const struct sweep_config *sweep, struct trials *trials,
                   struct log *log, struct claims **out) {
    struct claims *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return status_memory("the claims of the sweep");
    *c = (struct claims){.options = *options, .sweep = sweep, .trials = trials, .log = log, .alive_fd = -1};
    snprintf(c->id, sizeof c->id, "%s", options->id);
    c->trial_owner = status_need(calloc((size_t)sweep->trials, sizeof *c->trial_owner));
    member_of(c, options->id);
    c->folder = text_format("%s/" SWEEP_MEMBERS "/%s", options->folder, options->id);
    c->alive = member_path(c, 0, "/alive");
    c->temporary = member_path(c, 0, "/new");
    c->looked_at = clock_seconds();
    snprintf(c->end.name, sizeof c->end.name, "end-%" PRId64, sweep->trials);
    SCOPED_STRING blocks = text_path(options->by_fd, SWEEP_BLOCKS);
    status s = io_make_folders(blocks);
    if (!s) s = io_create(c->alive, &c->alive_fd);
    if (!s) s = beat(c, false);
    if (!s) s = read_block(c, &c->end);
    c->end_at_start = c->end.next;
    if (s) claims_close(c);
    if (!s) *out = c;
    return s;
}

void claims_close(struct claims *c) {
    if (!c) return;
    if (c->alive_fd >= 0) {
        status_free(claims_give_back(c));
        status_free(beat(c, true));
        status_free(io_close(c->alive_fd, c->alive));
    }
    for (size_t i = 0; i < c->block_count; i++) {
        free_block(c->blocks[i]);
        free(c->blocks[i]);
    }
    for (size_t i = 0; i < c->member_count; i++) free(c->members[i].seen);
    free(c->blocks);
    free(c->members);
    free(c->trial_owner);
    free(c->folder);
    free(c->alive);
    free(c->temporary);
    free(c);
}

const char *claims_folder(const struct claims *c) { return c->folder; }
