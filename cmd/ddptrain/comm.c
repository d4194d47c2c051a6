/* comm: checks every collective against a serial reference, then prints a table of times by size, or shows what one
 * call does. It needs no config and is started like a training. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/expression/expression.h"
#include "base/schema/schema.h"
#include "command.h"
#include "device/gpus.h"
#include "dist/comm/comm_backend.h"
#include "dist/comm/comm_check.h"
#include "dist/comm/comm_gpu.h"

#define TIMEOUT 60.0 /* seconds, of the start and of each call */
#define MAX_SIZES 32
#define MAX_SIZE ((size_t)1 << 30)
#define DEFAULT_SIZES "1K,4K,16K,64K,256K,1M,4M,16M,64M"
#define PROGRESS_SECONDS 0.1 /* between progress lines on a terminal */
#define LINE_SECONDS 10.0    /* between lines in a log: with many processes it takes minutes */

struct sizes {
    size_t bytes[MAX_SIZES];
    int count;
};

/* "64K": a number and K, M, G or nothing. */
static bool parse_size(const char *word, size_t *bytes) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(word, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift) end++;
    *bytes = (size_t)number << shift;
    return errno == 0 && end != word && word[0] != '-' && *end == 0 && number <= MAX_SIZE >> shift && *bytes >= 4;
}

static status parse_sizes(const char *list, struct sizes *sizes) {
    char *copy = strdup(list), *rest = NULL;
    status failure = copy ? OK : status_memory("the list of sizes");
    sizes->count = 0;
    for (char *word = strtok_r(copy, ",", &rest); word && !failure; word = strtok_r(NULL, ",", &rest)) {
        if (sizes->count == MAX_SIZES)
            failure = status_usage("--sizes: more than %d sizes", MAX_SIZES);
        else if (!parse_size(word, &sizes->bytes[sizes->count++]))
            failure = status_usage("--sizes: expected sizes from 4 to 1G as in 1K,64K,1M, got '%s'", word);
    }
    if (!failure && sizes->count == 0) failure = status_usage("--sizes: no size is given");
    free(copy);
    return failure;
}

static const char *sizes_of(const struct command_line *line) { return line->sizes ? line->sizes : DEFAULT_SIZES; }

/* ---- output ---- */

struct progress {
    struct log *log;
    double reported; /* clock_seconds() */
};

static void report_progress(void *context, const char *part, size_t done, size_t total, size_t checks) {
    struct progress *progress = context;
    double now = clock_seconds(), pause = log_has_progress(progress->log) ? PROGRESS_SECONDS : LINE_SECONDS;
    char text[100];
    if (now < progress->reported + pause) return;
    progress->reported = now;
    snprintf(text, sizeof text, "checking %zu/%zu: %s, %zu calls so far", done + 1, total, part, checks);
    if (log_has_progress(progress->log))
        log_progress(progress->log, text);
    else
        log_line(progress->log, "%s", text);
}

static void print_bytes(size_t bytes) {
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
        printf("%8zu MiB", bytes >> 20);
    else if (bytes >= 1 << 10 && bytes % (1 << 10) == 0)
        printf("%8zu KiB", bytes >> 10);
    else
        printf("%8zu B  ", bytes);
}

static void print_row(enum comm_measure measure, size_t bytes, double seconds, int world) {
    double rate = (double)bytes / seconds * 1e-9;
    print_bytes(bytes);
    printf(" %14.2f %14.3f %14.3f\n", seconds * 1e6, rate, rate * comm_measure_factor(measure, world));
    fflush(stdout);
}

/* ---- --show: what a collective does to the buffers of the ranks ---- */

/* The processes make the call; then rank 0 prints their buffers before and after it. For all_reduce also how the sums
 * come about: in order of rank, as the backends add, and as in a ring, whose messages these processes send each other,
 * too. */

#define MAX_RANKS 16              /* whose buffers fit on a screen */
#define MAX_WHOLE 4               /* ranks whose whole buffers fit beside each other */
#define PAUSE 0.02                /* seconds by which a rank is later at a barrier than the one before */
#define STEPS (2 * MAX_RANKS - 2) /* of a ring */

/* ---- --show: the operations ---- */

enum operation { SEND, BROADCAST, REDUCE, ALL_REDUCE, SCATTER, GATHER, ALL_GATHER, REDUCE_SCATTER, OBJECTS, BARRIER };

static const struct {
    const char *name, *others; /* others: further names, separated by spaces */
    const char *call;          /* of torch.distributed; @: the root, &: the rank after it, %: the operation */
    const char *what;
} operations[] = {
    [SEND] = {"send", "recv isend irecv send_recv", "send(tensor, dst=&) on rank @, recv(tensor, src=@) on rank &",
              "one rank gets the buffer of another"},
    [BROADCAST] = {"broadcast", "", "broadcast(tensor, src=@)", "every rank gets the buffer of one"},
    [REDUCE] = {"reduce", "", "reduce(tensor, dst=@, op=ReduceOp.%)",
                "one rank gets the result of all buffers, the others keep theirs"},
    [ALL_REDUCE] = {"all_reduce", "allreduce ring", "all_reduce(tensor, op=ReduceOp.%)",
                    "every rank gets the result of all buffers"},
    [SCATTER] = {"scatter", "", "scatter(tensor, list, src=@)", "each rank gets one part of the list of one rank"},
    [GATHER] = {"gather", "", "gather(tensor, list, dst=@)", "one rank gets the buffers of all, in order of rank"},
    [ALL_GATHER] = {"all_gather", "allgather", "all_gather(list, tensor)",
                    "every rank gets the buffers of all, in order of rank"},
    [REDUCE_SCATTER] = {"reduce_scatter", "", "reduce_scatter(tensor, list, op=ReduceOp.%)",
                        "each rank gets one part of the result of all lists"},
    [OBJECTS] = {"all_gather_object", "", "all_gather_object(list, object)",
                 "every rank gets the objects of all, which may differ in size"},
    [BARRIER] = {"barrier", "", "barrier()", "no rank leaves before the last one has come"},
};
#define OPERATIONS (sizeof operations / sizeof *operations)

static const struct {
    const char *name, *torch, *sign;
} op_names[] = {[COMM_SUM] = {"sum", "SUM", "+"},
                [COMM_AVG] = {"avg", "AVG", "+"},
                [COMM_MIN] = {"min", "MIN", "min"},
                [COMM_MAX] = {"max", "MAX", "max"},
                [COMM_PRODUCT] = {"product", "PRODUCT", "*"}};

struct comm_show {
    enum operation operation;
    enum comm_op op;
    const char *values;     /* an expression */
    int members[MAX_RANKS]; /* of the group, rising */
    int count, root;        /* of members; index of the root among them */
    bool is_part;           /* not all ranks are members */
};

/* What a rank tells rank 0. Fixed-size, so that it can be gathered as bytes. */
struct view {
    bool is_member;
    int before_count, after_count;
    float before[MAX_RANKS], after[MAX_RANKS];
    char object[64], objects[1024];   /* OBJECTS */
    double enters, leaves;            /* BARRIER: clock_seconds() */
    float ring[STEPS + 1][MAX_RANKS]; /* ALL_REDUCE: the buffer at the start and after each step */
};

/* ---- --values: an expression of rank, i and world ---- */

/* A rank has a value for each of [count] elements. values NULL: they are only checked. */
static status evaluate(const char *text, int rank, int count, int world, float *values) {
    static const char *const names[] = {"rank", "i", "world", NULL};
    const struct expression_options options = {.names = names, .is_of_numbers = true};
    struct expression expression;
    size_t at;
    status s = expression_parse(text, &options, &expression, &at, NULL);
    if (s) return status_prefix(s, "--values: character %zu", at + 1);
    for (int i = 0; i < count; i++) {
        float value = (float)expression_evaluate(&expression, (const double[]){rank, i, world});
        if (!isfinite(value)) return status_usage("--values: '%s' is not finite for rank %d, i %d", text, rank, i);
        if (values) values[i] = value;
    }
    return OK;
}

/* ---- --show: the options ---- */

static bool has_word(const char *words, const char *word) {
    size_t length = strlen(word);
    for (const char *at = words; length && (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == 0 || at[length] == ' ')) return true;
    return false;
}

static status find_operation(const char *name, struct comm_show *out) {
    const char *names[OPERATIONS + 1] = {0};
    SCOPED_TEXT text = {0};
    for (size_t i = 0; i < OPERATIONS; i++) {
        names[i] = operations[i].name;
        text_printf(&text, "%s%s", i == 0 ? "" : i + 1 < OPERATIONS ? ", " : " or ", names[i]);
        if (strcmp(name, names[i]) == 0 || has_word(operations[i].others, name)) {
            out->operation = (enum operation)i;
            return OK;
        }
    }
    const char *nearest = schema_nearest(name, names);
    return status_usage("--show: expected %s, got '%s'%s%s%s", text_string(&text), name,
                        nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

static status find_op(const char *name, enum comm_op *out) {
    for (int op = 0; op < COMM_OPS; op++)
        if (strcmp(name, op_names[op].name) == 0) {
            *out = (enum comm_op)op;
            return OK;
        }
    return status_usage("--op: expected sum, avg, min, max or product, got '%s'", name);
}

/* "0,2": ranks below [world]. */
static status parse_group(const char *list, int world, struct comm_show *out) {
    bool is_member[MAX_RANKS] = {false};
    for (const char *at = list;; at++) {
        char *end;
        long rank = strtol(at, &end, 10);
        if (end == at || (*end && *end != ',') || strchr("+- ", *at))
            return status_usage("--group: expected ranks as in 0,2, got '%s'", list);
        if (rank < 0 || rank >= world)
            return status_usage("--group: rank %ld does not exist; there are ranks 0 to %d", rank, world - 1);
        if (is_member[rank]) return status_usage("--group: rank %ld is given twice", rank);
        is_member[rank] = true;
        at = end;
        if (*at == 0) break;
    }
    for (int r = 0; r < world; r++)
        if (is_member[r]) out->members[out->count++] = r;
    out->is_part = out->count < world;
    if (out->count >= 2) return OK;
    return status_usage("--group: '%s' is a single rank; an operation needs two or more", list);
}

static status find_root(const struct command_line *line, struct comm_show *out) {
    out->root = 0;
    if (line->root < 0) return OK;
    for (int m = 0; m < out->count; m++)
        if (out->members[m] == line->root) {
            out->root = m;
            return OK;
        }
    return status_usage(out->is_part ? "--root: rank %d is not in the group" : "--root: rank %d does not exist",
                        line->root);
}

static status read_show(const struct command_line *line, int world, struct comm_show *out) {
    *out = (struct comm_show){.values = line->values ? line->values : "10 * rank + i"};
    TRY(find_operation(line->show, out));
    if (line->op) TRY(find_op(line->op, &out->op));
    if (command_uses_gpus(line)) return status_usage("--show needs --backend auto, shm, gloo or mpi");
    if (world < 2 || world > MAX_RANKS)
        return status_usage("--show needs 2 to %d processes, as in --nproc 4, but there %s %d", MAX_RANKS,
                            world == 1 ? "is" : "are", world);
    if (line->group) TRY(parse_group(line->group, world, out));
    for (int r = 0; !line->group && r < world; r++) out->members[out->count++] = r;
    TRY(find_root(line, out));
    for (int rank = 0; rank < world; rank++) TRY(evaluate(out->values, rank, out->count, world, NULL));
    return OK;
}

/* STATUS_USAGE for wrong options of --show with [world] ranks; nothing is checked without any. */
static status comm_show_check(const struct command_line *line, int world) {
    struct comm_show show;
    if (line->show) return read_show(line, world, &show);
    if (!line->group && !line->values && !line->op && line->root < 0) return OK;
    return status_usage("--group, --values, --root and --op need --show OPERATION");
}

/* ---- --show: the calls ---- */

static void set(float *out, int *out_count, const float *values, int count) {
    memcpy(out, values, (size_t)count * sizeof *out);
    *out_count = count;
}

/* Two ranks that only sent would wait for each other. */
static status pass_on(struct comm *comm, const float *sent, float *received, bool sends_first) {
    int n = comm_world_size(comm), rank = comm_rank(comm), next = (rank + 1) % n, previous = (rank + n - 1) % n;
    if (sends_first) TRY(comm_send(comm, sent, 1, COMM_FLOAT32, next));
    TRY(comm_recv(comm, received, 1, COMM_FLOAT32, previous));
    return sends_first ? OK : comm_send(comm, sent, 1, COMM_FLOAT32, next);
}

static float combined(enum comm_op op, float a, float b) {
    return op == COMM_MIN ? fminf(a, b) : op == COMM_MAX ? fmaxf(a, b) : op == COMM_PRODUCT ? a * b : a + b;
}

/* The chunk of a rank that is replaced in a step of the ring: in the first n - 1 steps combined with what has come,
 * then taken over. */
static int ring_chunk(int n, int rank, int step) {
    int shift = step < n - 1 ? rank - step - 1 : rank - (step - (n - 1));
    return ((shift % n) + n) % n;
}

/* The all-reduce of a ring: each rank sends one chunk to the next, n - 1 times to combine it there and n - 1 times to
 * replace it. */
static status run_ring(struct comm *comm, enum comm_op op, struct view *view) {
    int n = comm_world_size(comm), rank = comm_rank(comm);
    memcpy(view->ring[0], view->before, sizeof view->ring[0]);
    for (int step = 0; step < 2 * n - 2; step++) {
        float *buffer = view->ring[step + 1], received;
        memcpy(buffer, view->ring[step], sizeof view->ring[0]);
        int sent = ring_chunk(n, (rank + 1) % n, step), mine = ring_chunk(n, rank, step);
        TRY(pass_on(comm, &buffer[sent], &received, rank % 2 == 0));
        buffer[mine] = step < n - 1 ? combined(op, received, buffer[mine]) : received;
        if (op == COMM_AVG && step == n - 2) buffer[mine] /= (float)n;
    }
    return OK;
}

static status gather_objects(struct comm *comm, int rank, struct view *view) {
    SCOPED_TEXT object = {0}, all = {0};
    size_t sizes[MAX_RANKS], at = 0;
    void *bytes = NULL;
    text_add(&object, "[");
    for (int i = 0; i < rank; i++) text_printf(&object, "%s%d", i ? ", " : "", i);
    text_add(&object, "]");
    snprintf(view->object, sizeof view->object, "%s", text_string(&object));
    status s = comm_all_gather_bytes(comm, object.data, object.length, &bytes, sizes);
    for (int m = 0; !s && m < comm_world_size(comm); at += sizes[m++])
        text_printf(&all, "%s%.*s", m ? ", " : "[", (int)sizes[m], (const char *)bytes + at);
    snprintf(view->objects, sizeof view->objects, "%s]", text_string(&all));
    free(bytes);
    return s;
}

static status run_barrier(struct comm *comm, struct view *view) {
    double pause = PAUSE * comm_rank(comm);
    nanosleep(&(struct timespec){0, (long)(pause * 1e9)}, NULL);
    view->enters = clock_seconds();
    TRY(comm_barrier(comm));
    view->leaves = clock_seconds();
    return OK;
}

static status run_send(struct comm *comm, const struct comm_show *show, struct view *view) {
    int n = comm_world_size(comm), to = (show->root + 1) % n, rank = comm_rank(comm);
    set(view->after, &view->after_count, view->before, n);
    if (rank == show->root) return comm_send(comm, view->before, (size_t)n, COMM_FLOAT32, to);
    return rank == to ? comm_recv(comm, view->after, (size_t)n, COMM_FLOAT32, show->root) : OK;
}

/* [comm]: of the group. Buffers have a value for each of its ranks, or one value. */
static status run_call(struct comm *comm, const struct comm_show *show, struct view *view) {
    int n = comm_world_size(comm), root = show->root;
    size_t count = (size_t)n;
    bool is_root = comm_rank(comm) == root;
    float *before = view->before, *after = view->after;
    set(after, &view->after_count, before, n);
    switch (show->operation) {
    case SEND:
        return run_send(comm, show, view);
    case BROADCAST:
        return comm_broadcast(comm, after, count, COMM_FLOAT32, root);
    case REDUCE:
        return comm_reduce(comm, after, count, COMM_FLOAT32, show->op, root);
    case ALL_REDUCE:
        TRY(comm_all_reduce(comm, after, count, COMM_FLOAT32, show->op));
        return run_ring(comm, show->op, view);
    case SCATTER:
        view->before_count = is_root ? n : 0;
        view->after_count = 1;
        return comm_scatter(comm, before, 1, COMM_FLOAT32, after, root);
    case GATHER:
        view->before_count = 1;
        view->after_count = is_root ? n : 0;
        return comm_gather(comm, before, 1, COMM_FLOAT32, after, root);
    case ALL_GATHER:
        view->before_count = 1;
        return comm_all_gather(comm, before, 1, COMM_FLOAT32, after);
    case REDUCE_SCATTER:
        view->after_count = 1;
        return comm_reduce_scatter(comm, before, 1, COMM_FLOAT32, show->op, after);
    case OBJECTS:
        return gather_objects(comm, show->members[comm_rank(comm)], view);
    case BARRIER:
        return run_barrier(comm, view);
    }
    return OK;
}

/* ---- --show: output, on rank 0 ---- */

static void add_values(struct text *out, const float *values, int count) {
    for (int i = 0; i < count; i++) text_printf(out, "%s%.6g", i ? "  " : "", (double)values[i]);
    if (count == 0) text_add(out, "-");
}

static int find_width(const char *const *cells, int count, int min) {
    int width = min;
    for (int i = 0; i < count; i++)
        if ((int)strlen(cells[i]) > width) width = (int)strlen(cells[i]);
    return width;
}

/* The text, which is then empty, in [arena]. */
static const char *take_cell(struct arena *arena, struct text *text) {
    const char *cell = arena_copy(arena, text_string(text));
    text_free(text);
    return cell;
}

/* [start]: when the first rank came to the barrier. */
static const char *cell_of(struct arena *arena, const struct comm_show *show, const struct view *view, bool is_after,
                           double start) {
    struct text text = {0};
    double time = is_after ? view->leaves : view->enters;
    if (!view->is_member)
        text_add(&text, is_after ? "(not in the group)" : "");
    else if (show->operation == OBJECTS)
        text_add(&text, is_after ? view->objects : view->object);
    else if (show->operation == BARRIER)
        text_printf(&text, "%s at %.1f ms", is_after ? "leaves" : "comes", (time - start) * 1e3);
    else
        add_values(&text, is_after ? view->after : view->before, is_after ? view->after_count : view->before_count);
    return take_cell(arena, &text);
}

static void print_buffers(const struct comm_show *show, const struct view *views, int world) {
    SCOPED_ARENA arena = arena_create();
    const char *before[MAX_RANKS];
    double start = INFINITY;
    for (int r = 0; r < world; r++) {
        if (views[r].is_member) start = fmin(start, views[r].enters);
    }
    for (int r = 0; r < world; r++) before[r] = cell_of(arena, show, &views[r], false, start);
    int width = find_width(before, world, 6);
    printf("\nrank  %-*s    after\n", width, "before");
    for (int r = 0; r < world; r++)
        printf("%4d  %-*s    %s\n", r, width, before[r], cell_of(arena, show, &views[r], true, start));
}

/* "rank 0", "+ rank 1", ...: the sums in order of rank, as every backend adds. */
static void print_order(const struct comm_show *show, const struct view *views, const char *backend) {
    float sums[MAX_RANKS];
    SCOPED_TEXT text = {0};
    int first = show->members[0];
    printf("\nHere (%s): every rank combines all buffers in order of rank, large ones a slice each:\n", backend);
    memcpy(sums, views[first].before, sizeof sums);
    for (int m = 0; m < show->count; m++) {
        for (int i = 0; m && i < show->count; i++)
            sums[i] = combined(show->op, sums[i], views[show->members[m]].before[i]);
        add_values(&text, sums, show->count);
        printf("%5s rank %-2d  %s\n", m ? op_names[show->op].sign : "", show->members[m], text_string(&text));
        text_clear(&text);
    }
    if (show->op == COMM_AVG) {
        add_values(&text, views[first].after, show->count);
        printf("%5s %-7d  %s\n", "/", show->count, text_string(&text));
    }
}

/* The buffer after [step], the new chunk in brackets; of many ranks only this chunk. */
static const char *ring_cell(struct arena *arena, const float *buffer, int n, int rank, int step) {
    struct text text = {0};
    int mine = step < 0 ? -1 : ring_chunk(n, rank, step);
    for (int i = 0; i < n; i++) {
        if (n > MAX_WHOLE && i != mine) continue;
        text_printf(&text, "%s%s%.6g%s", text.length ? " " : "", i == mine ? "[" : "", (double)buffer[i],
                    i == mine ? "]" : "");
    }
    return take_cell(arena, &text);
}

static void print_ring(const struct comm_show *show, const struct view *views) {
    int n = show->count, rows = 2 * n - 1;
    bool is_whole = n <= MAX_WHOLE;
    SCOPED_ARENA arena = arena_create();
    const char *cells[(STEPS + 1) * MAX_RANKS];
    for (int row = 0; row < rows; row++)
        for (int m = 0; m < n; m++)
            cells[row * n + m] = ring_cell(arena, views[show->members[m]].ring[row], n, m, row - 1);
    int width = find_width(cells, rows * n, is_whole ? 7 : 3);
    printf("\nIn a ring each rank sends one chunk to the next; [new]%s:\n%-9s", is_whole ? "" : " chunks only", "step");
    for (int m = 0; m < n; m++)
        printf("  %s%-*d", is_whole ? "rank " : "", m + 1 == n ? 0 : is_whole ? width - 5 : width, show->members[m]);
    printf("\n");
    for (int row = is_whole ? 0 : 1; row < rows; row++) {
        printf("%-9s", row == 0 ? "start" : arena_printf(arena, "%d %s", row, row < n ? "combine" : "copy"));
        for (int m = 0; m < n; m++) printf("  %-*s", m + 1 < n ? width : 0, cells[row * n + m]);
        printf("\n");
    }
}

/* Whether both ways give the same bits. */
static void print_difference(const struct comm_show *show, const struct view *views) {
    const struct view *view = &views[show->members[0]];
    const float *ring = view->ring[2 * show->count - 2];
    for (int i = 0; i < show->count; i++)
        if (bits_of_float(ring[i]) != bits_of_float(view->after[i])) {
            printf("\nThe results differ: element %d is %.9g in order of rank, %.9g in the ring, which begins each "
                   "chunk at another rank.\n",
                   i, (double)view->after[i], (double)ring[i]);
            return;
        }
    printf(
        "\nBoth have the same bits for these values. 2 (n - 1) / n = %.3g of a buffer leaves each rank of the ring.\n",
        2.0 * (show->count - 1) / show->count);
}

static void add_call(const struct comm_show *show, struct text *out) {
    int root = show->members[show->root], next = show->members[show->root + 1 < show->count ? show->root + 1 : 0];
    for (const char *c = operations[show->operation].call; *c; c++) {
        if (*c == '@' || *c == '&')
            text_printf(out, "%d", *c == '@' ? root : next);
        else if (*c == '%')
            text_add(out, op_names[show->op].torch);
        else
            text_add_bytes(out, c, 1);
    }
}

static void print_show(const struct comm_show *show, const struct view *views, int world, const char *backend) {
    SCOPED_TEXT call = {0};
    add_call(show, &call);
    printf("%s: %s\n%d processes, %s", text_string(&call), operations[show->operation].what, world, backend);
    for (int m = 0; show->is_part && m < show->count; m++) printf("%s%d", m ? ", " : "; new_group([", show->members[m]);
    printf("%s\n", show->is_part ? "])" : "");
    print_buffers(show, views, world);
    if (show->operation != ALL_REDUCE) return;
    print_order(show, views, backend);
    print_ring(show, views);
    print_difference(show, views);
}

static status gather(const struct comm_show *show, struct comm *comm, struct comm *group, struct view *own) {
    int rank = comm_rank(comm), world = comm_world_size(comm);
    struct view *all = rank == 0 ? calloc((size_t)world, sizeof *all) : NULL;
    if (rank == 0 && !all) return status_memory("the buffers of the ranks");
    status s = own->is_member ? run_call(group, show, own) : OK;
    if (!s) s = comm_gather(comm, own, sizeof *own, COMM_UINT8, all, 0);
    if (!s && rank == 0) print_show(show, all, world, comm_describe(comm));
    free(all);
    return s;
}

/* Makes the call and prints the buffers on rank 0. All ranks. */
static status comm_show(const struct command_line *line, struct comm *comm) {
    int rank = comm_rank(comm), world = comm_world_size(comm);
    struct view own = {0};
    struct comm *group = NULL;
    struct comm_show show;
    TRY(read_show(line, world, &show));
    for (int m = 0; m < show.count; m++) own.is_member |= show.members[m] == rank;
    own.before_count = show.count;
    TRY(evaluate(show.values, rank, show.count, world, own.before));
    if (show.is_part) TRY(comm_split(comm, own.is_member ? 0 : -1, rank, &group));
    status s = gather(&show, comm, show.is_part ? group : comm, &own);
    comm_destroy(group);
    fflush(stdout);
    return s;
}

/* ---- the work of a rank ---- */

static status check(struct comm *comm, struct log *log) {
    double start = clock_seconds();
    struct progress progress = {.log = log, .reported = start};
    int world = comm_world_size(comm);
    size_t checks;
    if (comm_rank(comm) == 0)
        printf("%d process%s, %s\n", world, text_plural((uint64_t)world, "es"), comm_describe(comm));
    fflush(stdout);
    TRY(comm_check(comm, log ? report_progress : NULL, &progress, &checks));
    log_progress(log, NULL);
    if (comm_rank(comm) != 0) return OK;
    printf("%zu calls of every collective, type and operation: all correct, %.2f s\n", checks, clock_seconds() - start);
    fflush(stdout);
    return OK;
}

static status measure(struct comm *comm, const struct sizes *sizes, struct log *log) {
    struct comm_measurer *measurer;
    int rank = comm_rank(comm), world = comm_world_size(comm);
    size_t max = 0;
    for (int i = 0; i < sizes->count; i++)
        if (sizes->bytes[i] > max) max = sizes->bytes[i];
    TRY(comm_measurer_create(comm, max, &measurer));
    status failure = OK;
    for (int m = 0; m < COMM_MEASURE_COUNT && !failure; m++) {
        if (!comm_measure_exists((enum comm_measure)m, comm)) continue;
        if (rank == 0)
            printf("\n%s, float32%s\n%12s %14s %14s %14s\n", comm_measure_name((enum comm_measure)m),
                   m <= MEASURE_REDUCE_SCATTER ? ", sum" : "", "size", "time us", "algbw GB/s", "busbw GB/s");
        for (int i = 0; i < sizes->count && !failure; i++) {
            char text[100];
            double seconds;
            snprintf(text, sizeof text, "measuring %d/%d: %s, %zu bytes", m + 1, COMM_MEASURE_COUNT,
                     comm_measure_name((enum comm_measure)m), sizes->bytes[i]);
            log_progress(log, text);
            failure = comm_measurer_run(measurer, (enum comm_measure)m, sizes->bytes[i], &seconds);
            log_progress(log, NULL);
            if (!failure && rank == 0) print_row((enum comm_measure)m, sizes->bytes[i], seconds, world);
        }
    }
    comm_measurer_destroy(measurer);
    return failure;
}

/* *out: the group, or with a backend that needs GPUs its group of GPUs. */
static status connect(const struct command_line *line, const struct dist_env *env, struct store *store,
                      struct comm **comm, struct comm **out) {
    int backend = command_backend(line);
    struct gpus_process process = dist_env_gpus(env);
    char identity[128];
    int gpu;
    TRY(comm_create(comm_backend_names[backend], env, store, TIMEOUT, comm));
    *out = *comm;
    if (!command_uses_gpus(line)) return OK;
    status s = gpus_choose(&process, &gpu);
    if (!s) s = gpus_identity(gpu, identity);
    if (s) {
        status explained =
            status_new(status_code(s), "--backend %s needs %s", comm_backend_names[backend], status_message(s));
        status_free(s);
        return explained;
    }
    if (env->world_size == 1)
        return status_usage("--backend %s needs two processes or more, each with its own GPU",
                            comm_backend_names[backend]);
    TRY(comm_open_gpu(*comm, backend, gpu, identity, false));
    *out = comm_gpu(*comm);
    return OK;
}

static status run_rank(const struct command_line *line, const struct config *config, const struct dist_env *env,
                       struct log *log) {
    (void)config;
    struct store *store = NULL;
    struct comm *comm = NULL, *used = NULL;
    struct sizes sizes;
    TRY(parse_sizes(sizes_of(line), &sizes));
    TRY(comm_show_check(line, env->world_size));
    if (env->rank != 0) log = NULL;
    struct store_options options = {.timeout = TIMEOUT, .log = log, .overdue = command_end_overdue};
    if (env->world_size > 1) TRY(store_open_with(env, &options, &store));
    status failure = connect(line, env, store, &comm, &used);
    if (!failure) failure = line->show ? comm_show(line, comm) : check(used, log);
    if (!failure && !line->show && env->world_size > 1) failure = measure(used, &sizes, log);
    if (!failure) failure = comm_barrier(comm); /* no rank closes its connections before the others are done */
    if (failure && store) store_report(store, failure);
    comm_destroy(comm);
    store_close(store);
    return failure;
}

/* Before any process is started, where this launcher starts all of them. */
static status check_show(const struct command_line *line) {
    struct dist_env env;
    int nproc;
    TRY(dist_env_detect(&env));
    TRY(command_nproc(line, "cpu", &nproc));
    bool is_alone = env.launcher == LAUNCHER_NONE && line->nnodes <= 1;
    return is_alone ? comm_show_check(line, nproc) : OK;
}

static status run(const struct command_line *line) {
    struct sizes sizes;
    const char *backend = line->backend;
    status unknown = backend ? comm_backend_find(backend, &(int){0}) : OK;
    if (unknown) return status_prefix(unknown, "--backend");
    if (command_uses_gpus(line)) TRY(comm_gpu_check(command_backend(line)));
    TRY(parse_sizes(sizes_of(line), &sizes)); /* before any process is started */
    TRY(check_show(line));
    return command_on_ranks_without_config(line, run_rank);
}

const struct subcommand subcommand_comm = {
    .name = "comm",
    .arguments = "--nproc N",
    .help = "check every collective; print a table of times by size",
    .run = run,
    .options = OPTION_CPU_BIND | OPTION_BACKEND | OPTION_SIZES | OPTION_SHOW,
};
