/* simulation: several hosts inside one thread, on which unmodified objects of the product run. Every system call of the
 * product is linked to a function of this folder (-Wl,--wrap), threads and processes are fibers, time is virtual, and
 * everything else is drawn from one seed. See README.md. */
#pragma once

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "base/text.h"

#define MAX_FILES 128 /* descriptors of a process */
#define MAX_PROCESSES 64
#define MAX_FIBERS 192
#define MAX_HOSTS 3
#define MAX_FAULTS 4
#define SIGNALS 32

#define NEVER INT64_MAX
#define MICROSECOND ((int64_t)1000)
#define MILLISECOND (1000 * MICROSECOND)
#define SECOND (1000 * MILLISECOND)

/* ---- random numbers: SplitMix64 ---- */

struct random {
    uint64_t state;
};
static inline uint64_t random_next(struct random *r) {
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
/* 0 ... count - 1 */
static inline int random_below(struct random *r, int64_t count) {
    return (int)(random_next(r) % (uint64_t)(count > 0 ? count : 1));
}

/* ---- system calls: X(name, errno values with which a fault may make it fail) ---- */

#define CALLS_OF_THE_SYSTEM(X)                                                                                         \
    X(ACCEPT, EMFILE, ENFILE, ECONNABORTED, EINTR, ENOBUFS, ENOMEM)                                                    \
    X(BIND, EADDRINUSE, EADDRNOTAVAIL, EACCES)                                                                         \
    X(CLOSE, 0)                                                                                                        \
    X(CONNECT, ECONNREFUSED, ETIMEDOUT, ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EINTR, EAGAIN)                       \
    X(DUP, EMFILE)                                                                                                     \
    X(EPOLL, EMFILE, ENFILE, ENOMEM)                                                                                   \
    X(EVENTFD, EMFILE, ENFILE, ENOMEM)                                                                                 \
    X(EXEC, ENOMEM, EACCES, ENOENT)                                                                                    \
    X(FORK, EAGAIN, ENOMEM)                                                                                            \
    X(GETADDRINFO, EAGAIN, ENOMEM)                                                                                     \
    X(GETSOCKNAME, ENOBUFS)                                                                                            \
    X(LISTEN, EADDRINUSE)                                                                                              \
    X(LOCK, 0)                                                                                                         \
    X(MALLOC, ENOMEM)                                                                                                  \
    X(MEMFD, EMFILE, ENFILE, ENOMEM)                                                                                   \
    X(MMAP, ENOMEM)                                                                                                    \
    X(OTHER, 0)                                                                                                        \
    X(PIPE, EMFILE, ENFILE)                                                                                            \
    X(POLL, EINTR, ENOMEM)                                                                                             \
    X(READ, EINTR)                                                                                                     \
    X(RECV, ECONNRESET, ETIMEDOUT, EINTR, ENOMEM, EHOSTUNREACH)                                                        \
    X(SEND, ECONNRESET, EPIPE, ETIMEDOUT, EHOSTUNREACH, ENOBUFS, EINTR, EAGAIN)                                        \
    X(SIGNALFD, EMFILE, ENFILE, ENOMEM)                                                                                \
    X(SLEEP, EINTR)                                                                                                    \
    X(SOCKET, EMFILE, ENFILE, ENOBUFS, ENOMEM)                                                                         \
    X(SOCKETPAIR, EMFILE, ENFILE)                                                                                      \
    X(THREAD, EAGAIN)                                                                                                  \
    X(WAIT, EINTR)                                                                                                     \
    X(WRITE, EINTR)

enum call {
#define X(name, ...) SYS_##name,
    CALLS_OF_THE_SYSTEM(X)
#undef X
        SYS_KINDS
};
const char *call_name(enum call call);
int call_error(enum call call, struct random *random); /* a random one of its errno values; 0: it cannot fail */

/* ---- faults ---- */

enum planned_fault_kind {
    NO_FAULT,
    FAULT_SIGNAL,
    FAULT_ERRNO,
    FAULT_PARTITION,
    FAULT_UNTRUSTED,
    FAULT_LIMIT,
    FAULT_SUSPEND
};

/* Injected when the process of role [watched] makes its system call number [at_call] (from 1), or at the time [at]. */
struct planned_fault {
    enum planned_fault_kind kind;
    int watched;           /* role whose calls are counted */
    int64_t at_call;       /* 0: at the time [at] */
    int64_t at;            /* virtual time */
    int target;            /* FAULT_SIGNAL: the role that gets it */
    int number;            /* FAULT_SIGNAL: the signal */
    int64_t duration;      /* SIGSTOP, FAULT_SUSPEND: until SIGCONT; FAULT_PARTITION; or NEVER */
    bool is_injected;      /* then: */
    int64_t injected_at;   /* time */
    enum call injected_in; /* FAULT_ERRNO: the system call */
    int injected_errno;    /* FAULT_ERRNO */
    int injected_pid;      /* of the process; 0: none */
    bool had_joined;       /* a rank of each node had joined the store before */
    bool had_stepped;      /* all ranks had taken part in a step before */
    int64_t resumed_at;
};

/* Roles: launchers first, then ranks. */
#define MAX_ROLES 16
struct scenario {
    uint64_t seed;
    int nodes, nproc, max_restarts;
    int steps, save_every;
    int limit_role, limit; /* `ulimit -n` of one role; 0: none */
    int data_failure;      /* rank whose data is missing; -1: none */
    int fault_count;
    struct planned_fault faults[MAX_FAULTS];
    int preemption;   /* one of so many system calls yields to another fiber */
    int64_t delay;    /* maximum delay of a packet between hosts */
    int64_t cost;     /* maximum time of a system call */
    bool has_shorts;  /* reads and writes may be short */
    const char *name; /* of the kind */
};
static inline int scenario_roles(const struct scenario *s) { return s->nodes + s->nodes * s->nproc; }
static inline int role_of_rank(const struct scenario *s, int rank) { return s->nodes + rank; }

/* ---- fibers ---- */

enum fiber_state { FIBER_UNUSED, FIBER_READY, FIBER_BLOCKED, FIBER_ENDED };
enum wake { WOKE_READY, WOKE_TIMEOUT, WOKE_SIGNAL };

struct process;

struct fiber {
    int number;
    enum fiber_state state;
    char name[16];
    struct process *process;
    jmp_buf context;
    bool is_started;
    char *stack;
    void (*entry)(struct fiber *self);
    void *(*start)(void *argument); /* of a thread */
    void *argument, *result;
    bool (*is_ready)(void *data); /* FIBER_BLOCKED */
    void *data;
    int64_t wake_at;
    bool takes_signals; /* while it is blocked */
    uint32_t mask;      /* of blocked signals, bit n is signal n */
    bool is_in_handler;
    int saved_errno;
    /* after a fork: the state of the parent, which continues when the child has called exec or has ended */
    struct process *forked_by;
    jmp_buf fork_context;
    char *fork_stack;
    size_t fork_stack_size;
    char *fork_stack_at;
    int fork_result, fork_errno;
    uint32_t fork_mask;
    bool wants_fork, wants_parent;
    bool must_end, must_return; /* its process was killed; the forked child that runs on it has ended */
};

struct fiber *fiber_new(struct process *process, const char *name, void (*entry)(struct fiber *self));
void fiber_resume(struct fiber *fiber); /* called by the scheduler: runs the fiber until it yields */
void fiber_yield(void);                 /* called by the fiber: returns to the scheduler */
_Noreturn void fiber_end(void);
void fiber_end_if_dead(void);         /* called after the current process may have been killed */
void fiber_free(struct fiber *fiber); /* in any state */
/* Returns 0 in the child; then, in the parent, the result that was passed to fiber_return_to_parent. */
int fiber_fork(struct process *child);
_Noreturn void fiber_return_to_parent(int result, int error);
void fiber_restore_parent(struct fiber *fiber); /* the same for a fiber that is not running */

/* ---- files ---- */

enum file_kind {
    FILE_TCP,
    FILE_LISTENER,
    FILE_PAIR,
    FILE_PIPE,
    FILE_EVENT,
    FILE_SIGNALS,
    FILE_MEMORY,
    FILE_SINK,
    FILE_EPOLL
};
struct connection;
struct file {
    enum file_kind kind;
    int references;
    bool is_nonblocking;
    int host;
    /* FILE_TCP, FILE_PAIR, FILE_PIPE */
    struct connection *connection; /* NULL: not connected */
    int side;
    int error;          /* pending, as SO_ERROR */
    int64_t connecting; /* time at which connect completes; 0: not connecting */
    int connect_error;  /* its errno; 0: it succeeds */
    /* FILE_LISTENER; bound FILE_TCP */
    int port;
    bool is_loopback;
    struct file *queue[64];
    int64_t queue_at[64]; /* when each connection arrives here */
    int queued;
    uint64_t counter; /* FILE_EVENT */
    uint32_t mask;    /* FILE_SIGNALS */
    char *memory;     /* FILE_MEMORY */
    size_t size;
    struct text text;        /* FILE_SINK: what was written */
    struct watched *watched; /* FILE_EPOLL: (watched_count) */
    size_t watched_count;
};

struct file *file_new(enum file_kind kind);
void file_release(struct file *file);
int descriptor_new(struct file *file, bool is_cloexec, int min); /* -1 with EMFILE; owns the reference from now on */
struct file *descriptor_file(int fd);                            /* NULL: not open */
bool file_is_readable(struct file *file);
bool file_is_writable(struct file *file);
short file_events(struct file *file);

/* network.c */
ssize_t connection_read(struct file *file, void *bytes, size_t size, int *passed_file, struct file **passed);
ssize_t connection_write(struct file *file, const void *bytes, size_t size, struct file *passed);
void connection_close(struct file *file);
struct file *pair_new(bool is_packet, bool is_one_way, struct file **other);
void network_partition(int64_t from, int64_t until); /* between all hosts */
int64_t network_next(void);                          /* time of the next event */
void network_reset(void);
bool listener_is_ready(struct file *file);
short connection_events(struct file *file);
bool connection_is_writable(struct file *file);

/* ---- processes ---- */

struct program_state { /* static variables of cmd/ddptrain/main.c and src/base/stop.c */
    int values[7];
    struct timespec first_request;
};

struct process {
    int pid, ppid, pgid, host;
    int role, rank, restart_count;
    bool has_joined; /* its heartbeat thread has started */
    bool exists, has_ended, is_reaped, is_stopped, stops_after_exec, has_execed, is_untrusted;
    int wait_status;
    int64_t ended_at;
    int nofile;
    struct file *files[MAX_FILES];
    bool cloexec[MAX_FILES], inherited[MAX_FILES];
    char *environment[64];
    struct sigaction actions[SIGNALS];
    uint32_t pending;
    int death_signal;
    int64_t alarm_at;
    int64_t calls;
    struct fiber *main;
    FILE *out, *err;
    struct program_state program;
    struct block *blocks; /* memory.c */
    int argc;
    char *argv[24];
    struct process *forker; /* the parent, while the child runs on its fiber (before exec) */
    bool is_faultless;      /* FAULT_ERRNO is not injected */
};

struct process *process_new(int ppid, int host);
void process_start(struct process *p, int argc, char *const argv[]);
_Noreturn void process_exit(int code);                 /* the current one */
void process_kill(struct process *p, int wait_status); /* any; then fiber_end_if_dead */
struct process *process_find(int pid);
struct process *process_of_role(int role); /* the newest; NULL */
void process_set(struct process *p, const char *name, const char *value);
bool processes_have_joined(void); /* a rank of each node has joined the store */
const char *process_get(const struct process *p, const char *name);

/* signals.c */
void signal_send(struct process *p, int number);
bool signal_is_deliverable(const struct fiber *fiber);
bool signal_deliver(void); /* to the current fiber: runs handlers; returns whether one has run */

/* memory.c */
void memory_free_all(struct process *p);
size_t memory_used(const struct process *p);

/* program.c */
int program_main(int argc, char **argv);
void program_save(struct program_state *state);
void program_load(const struct program_state *state);
extern const struct program_state program_initial;

/* ---- the state of the simulation ---- */

struct world {
    struct scenario scenario;
    struct random random;
    int64_t now;
    struct process processes[MAX_PROCESSES];
    int process_count;
    struct fiber fibers[MAX_FIBERS];
    int fiber_count;       /* used so far */
    int refused_count;     /* connections refused so far */
    struct fiber *current; /* NULL: the scheduler */
    int next_pid, next_port;
    int64_t partition_from, partition_until;
    /* results */
    uint64_t hash, calls;
    bool is_traced, is_deadlocked, is_late;
    int64_t bound; /* virtual time at which the run is ended (is_late) */
    struct text violations;
    int64_t checkpoint; /* step of the newest checkpoint on the simulated disk */
    bool has_stepped;   /* all ranks have taken part in a step */
};
extern struct world world;

static inline struct process *current_process(void) { return world.current ? world.current->process : NULL; }

/* Called at the start of a system call: counts it, advances the time, may yield, delivers signals. Returns the errno of
 * an injected fault, or 0. */
int kernel_enter(enum call call, int fd);
/* Blocks until [is_ready], the time [until], or, with [takes_signals], a signal whose handler has run. */
enum wake kernel_wait(bool (*is_ready)(void *data), void *data, int64_t until, bool takes_signals);
void kernel_note(const char *format, ...) __attribute__((format(printf, 1, 2))); /* a line of the trace */
void kernel_hash(uint64_t value);
void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool is_traced(void);

/* Runs a schedule until all processes have ended, and checks it. world.violations: what is wrong; "": nothing. */
void schedule_run(const struct scenario *scenario, bool is_traced);

void scenario_draw(uint64_t seed, struct scenario *scenario);
void scenario_describe(const struct scenario *scenario, struct text *out);
void outcome_check(void);
void untrusted_start(void);

#define CHECK_ERROR(call, fd)                                                                                          \
    do {                                                                                                               \
        int check_error_ = kernel_enter(call, fd);                                                                     \
        if (check_error_) {                                                                                            \
            errno = check_error_;                                                                                      \
            return -1;                                                                                                 \
        }                                                                                                              \
    } while (0)
