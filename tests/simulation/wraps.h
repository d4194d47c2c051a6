/* wraps: the functions that replace system calls, and the few functions of the product that are not simulated, at link
 * time (CMakeLists.txt has the list). */
#pragma once

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

_Noreturn void __wrap__Exit(int code);
_Noreturn void __wrap__exit(int code);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);
int __wrap_access(const char *path, int mode);
unsigned __wrap_alarm(unsigned seconds);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t size);
void *__wrap_calloc(size_t count, size_t size);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_close(int fd);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_dup(int fd);
int __wrap_dup2(int from, int to);
int __wrap_epoll_create1(int flags);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int count, int timeout);
int __wrap_eventfd(unsigned count, int flags);
int __wrap_execv(const char *path, char *const argv[]);
int __wrap_fcntl(int fd, int command, ...);
FILE *__wrap_fopen(const char *path, const char *mode);
pid_t __wrap_fork(void);
void __wrap_free(void *memory);
void __wrap_freeaddrinfo(struct addrinfo *list);
void __wrap_freeifaddrs(struct ifaddrs *list);
int __wrap_fstat(int fd, struct stat *out);
int __wrap_ftruncate(int fd, off_t size);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out);
char *__wrap_getenv(const char *name);
int __wrap_gethostname(char *name, size_t size);
int __wrap_getifaddrs(struct ifaddrs **out);
int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *size);
pid_t __wrap_getpid(void);
pid_t __wrap_getppid(void);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);
int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __wrap_isatty(int fd);
int __wrap_kill(pid_t pid, int number);
int __wrap_listen(int fd, int backlog);
void *__wrap_malloc(size_t size);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_mkdir(const char *path, mode_t mode);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *address, size_t size);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);
int __wrap_open(const char *path, int flags, ...);
int __wrap_pipe2(int fds[2], int flags);
int __wrap_poll(struct pollfd *polls, nfds_t count, int timeout);
int __wrap_prctl(int option, unsigned long value);
ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t offset);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *argument),
                          void *argument);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_setname_np(pthread_t thread, const char *name);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
ssize_t __wrap_read(int fd, void *bytes, size_t size);
void *__wrap_realloc(void *memory, size_t size);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
int __wrap_setenv(const char *name, const char *value, int replaces);
int __wrap_setpgid(pid_t pid, pid_t group);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __wrap_shutdown(int fd, int how);
int __wrap_sigaction(int number, const struct sigaction *action, struct sigaction *old);
int __wrap_sigaltstack(const stack_t *stack, stack_t *old);
__sighandler_t __wrap_signal(int number, __sighandler_t handler);
int __wrap_signalfd(int fd, const sigset_t *set, int flags);
int __wrap_sigprocmask(int how, const sigset_t *set, sigset_t *old);
int __wrap_sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout);
int __wrap_socket(int family, int type, int protocol);
int __wrap_socketpair(int family, int type, int protocol, int fds[2]);
int __wrap_stat(const char *path, struct stat *out);
char *__wrap_strdup(const char *text);
time_t __wrap_time(time_t *out);
int __wrap_unsetenv(const char *name);
pid_t __wrap_wait4(pid_t pid, int *wait_status, int options, struct rusage *usage);
int __wrap_waitid(int type, unsigned id, siginfo_t *info, int options);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
ssize_t __wrap___read_chk(int fd, void *bytes, size_t size, size_t capacity);
ssize_t __wrap___pread_chk(int fd, void *bytes, size_t size, off_t offset, size_t capacity);
ssize_t __wrap___recv_chk(int fd, void *bytes, size_t size, size_t capacity, int flags);
int __wrap___poll_chk(struct pollfd *polls, nfds_t count, int timeout, size_t capacity);
int __wrap___gethostname_chk(char *name, size_t size, size_t capacity);
