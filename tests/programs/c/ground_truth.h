// What the programs of messages with known causes share: numbers for messages, processes with random
// numbers of their own, and marks.
//
// A message is cells of eight bytes, 'A' and seven digits: its number. Streams are split and merged
// at random places. What carries no bytes is marked: getpgid(10000000 + n) comes right before the
// cause numbered n, getpgid(20000000 + n) right after its effect (30000000 + n if signals may come in
// between). No process has such an id.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CELL 8
#define NEED(x)                                                                                   \
    do {                                                                                          \
        if (!(x)) {                                                                               \
            perror(#x);                                                                           \
            fprintf(stderr, "%s:%d\n", __FILE__, __LINE__);                                       \
            _exit(1);                                                                             \
        }                                                                                         \
    } while (0)

static uint64_t state;
static unsigned worker, counter;
static char dir[100];

static unsigned rnd(unsigned below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 20) % below);
}

// A process of its own random numbers and message numbers.
static pid_t child(unsigned number) {
    unsigned base = worker * 4 + number;
    uint64_t seed = state ^ (0x9e3779b97f4a7c15ull * (base + 1));
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        worker = base;
        counter = 0;
        state = seed | 1;
    }
    return pid;
}

static void reap(int count) {
    for (int i = 0; i < count; i++) {
        int status;
        NEED(wait(&status) > 0);
        NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static unsigned fresh(void) { return worker * 4000 + counter++; }

// A message of so many cells; its number.
static unsigned fill(char *buf, unsigned cells) {
    unsigned id = fresh();
    for (unsigned i = 0; i < cells; i++) {
        char cell[16];
        snprintf(cell, sizeof cell, "A%07u", id);
        memcpy(buf + i * CELL, cell, CELL);
    }
    return id;
}

static void nap(void) {
    if (rnd(4) == 0)
        usleep(rnd(300));
}

static void send_some(int fd, unsigned messages, unsigned most) {
    char buf[64 * CELL];
    for (unsigned i = 0; i < messages; i++) {
        unsigned cells = 1 + rnd(most);
        fill(buf, cells);
        NEED(write(fd, buf, cells * CELL) == (ssize_t)(cells * CELL));
        nap();
    }
}

static void mark(unsigned long n) { syscall(SYS_getpgid, n); }

// All of them at once, each in a process of its own.
static int run_all(int argc, char **argv, void (**all)(void), int count) {
    state = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) * 0x9e3779b97f4a7c15ull | 1;
    snprintf(dir, sizeof dir, "%s/ground_truth.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    NEED(mkdtemp(dir));
    for (int i = 0; i < count; i++) {
        worker = 8 + (unsigned)i;
        if (child(0) == 0) {
            worker = 20 + (unsigned)i;
            all[i]();
            _exit(0);
        }
    }
    reap(count);
    char command[200];
    snprintf(command, sizeof command, "rm -r %s", dir);
    NEED(system(command) == 0);
    puts("done");
    return 0;
}
