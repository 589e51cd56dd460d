/* Covers: a process that stops itself while it shares memory with the one that has it go on, alone
 * and with a thread that computes; by SIGSTOP and SIGTSTP, sent to itself, its group and a thread.
 *
 * Hard for a recorder that lets one at a time run: who is stopped must not be the one. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ROUNDS 5

static atomic_long *shared;

static void stop(int way)
{
    switch (way) {
    case 0: OK(raise(SIGSTOP)); break;
    case 1: OK(kill(getpid(), SIGTSTP)); break;
    case 2: OK(kill(0, SIGSTOP)); break;
    case 3: OK(syscall(SYS_tkill, getpid(), SIGSTOP)); break;
    }
}

static void *computes(void *unused)
{
    while (atomic_load(&shared[1]) == 0)
        atomic_fetch_add(&shared[2], 1);
    return unused;
}

static void child(int ends, int way, int threads)
{
    pthread_t thread;
    char byte;
    OK(setpgid(0, 0));
    if (threads)
        CHECK(pthread_create(&thread, NULL, computes, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        stop(way);
        atomic_fetch_add(shared, 1);
        CHECK(read(ends, &byte, 1) == 1);
    }
    atomic_store(&shared[1], 1);
    if (threads)
        CHECK(pthread_join(thread, NULL) == 0);
    _exit(0);
}

int main(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    for (int kind = 0; kind < 8; kind++) {
        int ends[2], status;
        OK(pipe(ends));
        atomic_store(&shared[1], 0);
        pid_t pid = OK(fork());
        if (pid == 0)
            child(ends[0], kind % 4, kind / 4);
        for (int round = 0; round < ROUNDS; round++) {
            CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
            /* It stands, and what both have is there to be changed. */
            long before = atomic_fetch_add(shared, 1);
            CHECK(atomic_load(shared) == before + 1);
            OK(kill(pid, SIGCONT));
            CHECK(waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
            CHECK(write(ends[1], "x", 1) == 1);
        }
        EXITS(pid, 0);
        close(ends[0]);
        close(ends[1]);
    }
    say("%ld times\n", atomic_load(shared));
    return 0;
}
