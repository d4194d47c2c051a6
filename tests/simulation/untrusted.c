/* A program that is not a rank: connects to ports of the job and sends random bytes. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/process/net.h"
#include "simulation.h"

static void send_random_bytes(int fd) {
    uint8_t bytes[64];
    int count = random_below(&world.random, 64);
    for (int i = 0; i < count; i++) bytes[i] = (uint8_t)random_next(&world.random);
    if (random_below(&world.random, 2)) bytes[0] = 'D';
    net_send(fd, bytes, (size_t)count, clock_seconds() + 1);
}

static void run_untrusted(struct fiber *self) {
    (void)self;
    for (int i = 0; i < 5; i++) {
        bool is_final;
        int fd, port = random_below(&world.random, 2) && world.scenario.nodes > 1
                           ? 29500
                           : 40000 + random_below(&world.random, world.next_port - 40000 + 1);
        status failure = net_connect("127.0.0.1", port, clock_seconds() + 0.5, &fd, &is_final);
        status_free(failure);
        if (failure) continue;
        send_random_bytes(fd);
        clock_sleep(random_below(&world.random, 1000) * 1e-3);
        close(fd);
    }
    process_exit(0);
}

void untrusted_start(void) {
    struct process *p = process_new(1, 0);
    p->is_untrusted = true;
    p->role = MAX_ROLES;
    p->main = fiber_new(p, "main", run_untrusted);
}
