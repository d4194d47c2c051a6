/* A program that is no rank and connects to a port of the job. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/process/net.h"
#include "simulation.h"

static void send_noise(int fd) {
    uint8_t bytes[64];
    int count = random_below(&world.random, 64);
    for (int i = 0; i < count; i++) bytes[i] = (uint8_t)random_next(&world.random);
    if (random_below(&world.random, 2)) bytes[0] = 'D';
    net_send(fd, bytes, (size_t)count, clock_seconds() + 1);
}

static void run_stranger(struct fiber *self) {
    struct process *p = self->process;
    for (int i = 0; i < 5; i++) {
        bool is_final;
        int fd, port = random_below(&world.random, 2) && world.scenario.nodes > 1
                           ? 29500
                           : 40000 + random_below(&world.random, world.next_port - 40000 + 1);
        status failure = net_connect("127.0.0.1", port, clock_seconds() + 0.5, &fd, &is_final);
        status_free(failure);
        if (failure) continue;
        send_noise(fd);
        clock_sleep(random_below(&world.random, 1000) * 1e-3);
        close(fd);
    }
    (void)p;
    process_exit(0);
}

void stranger_start(int64_t at) {
    (void)at;
    struct process *p = process_new(1, 0);
    p->is_stranger = true;
    p->role = MAX_ROLES;
    p->main = fiber_new(p, "main", run_stranger);
}
