/* Handles a signal, ignores one and blocks one, and reads a clock. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

static volatile sig_atomic_t seen;

static void on_user(int number)
{
    seen = number;
}

int main(void)
{
    struct timespec now;
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    signal(SIGUSR1, on_user);
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    raise(SIGUSR1);
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%d\n", (int)seen);
    return 0;
}
