/* For the tests of `on-timeout`: a thread waits with a time limit while the other one is led over something slow. Says in
 * the end whether the limit was over (0) or what was waited for came (1). */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static int ends[2];
static volatile int waits, outcome = -1;

static void pause_for(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void *patient(void *unused)
{
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    waits = 1;
    outcome = poll(&end, 1, 700);
    return unused;
}

static void slow(void)
{
    pause_for(1200);
}

static void ready(void)
{
}

int main(void)
{
    pthread_t thread;
    if (pipe(ends) || pthread_create(&thread, NULL, patient, NULL))
        return 1;
    while (!waits)
        pause_for(1);
    pause_for(100);
    ready();
    slow();
    ready();
    if (write(ends[1], "x", 1) != 1)
        return 1;
    pthread_join(thread, NULL);
    printf("poll: %d\n", outcome);
    return 0;
}
