/* For the tests of watched memory: one variable, changed in every way there is. Each value that it
 * gets is printed once, in order. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

union {
    struct timespec time;
    volatile long value;
} watched;

static void show(void)
{
    printf("%ld\n", watched.value);
    fflush(stdout);
}

static void on_signal(int number)
{
    watched.value = 1000 + number;
}

static void *in_thread(void *argument)
{
    watched.value = 6;
    return argument;
}

int main(void)
{
    watched.value = 1;
    show();
    /* A store of the same value is no change. */
    watched.value = 1;

    long two = 2;
    memcpy((void *)&watched.value, &two, sizeof two);
    show();

    int pipes[2];
    long three = 3;
    if (pipe(pipes) != 0 || write(pipes[1], &three, sizeof three) != sizeof three)
        return 1;
    if (read(pipes[0], (void *)&watched.value, sizeof three) != sizeof three)
        return 1;
    show();

    clock_gettime(CLOCK_MONOTONIC, &watched.time);
    show();

    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    show();

    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    show();

    for (int i = 1; i <= 500; i++)
        watched.value += i;
    for (int i = 500; i >= 1; i--)
        watched.value -= i;

    /* In the middle of computation. */
    signal(SIGALRM, on_signal);
    struct itimerval soon = {{0, 0}, {0, 20000}};
    setitimer(ITIMER_REAL, &soon, NULL);
    while (watched.value == 6)
        ;
    show();

    /* One byte of it. */
    ((volatile char *)&watched.value)[7] = 1;
    show();
    return 0;
}
