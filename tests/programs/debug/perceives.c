/* How much time the program itself sees of each call of `stand`, where a debugger lets it stand, while a thread waits in
 * a call. Prints microseconds. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static int ends[2];
static volatile int calls;

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

__attribute__((noinline)) long square(long x)
{
    calls++;
    return x * x;
}

static void *waiter(void *unused)
{
    char byte;
    prctl(PR_SET_NAME, "waiter");
    if (read(ends[0], &byte, 1) != 1)
        abort();
    return unused;
}

__attribute__((noinline)) static void stand(void)
{
    __asm__ volatile("" ::: "memory");
}

int main(int count, char **words)
{
    int turns = count > 1 ? atoi(words[1]) : 5;
    pthread_t thread;
    if (pipe(ends) || pthread_create(&thread, NULL, waiter, NULL))
        return 1;
    usleep(200000);
    printf("perceived");
    for (int turn = 0; turn < turns; turn++) {
        long before = now();
        stand();
        printf(" %ld", (now() - before) / 1000);
        /* Others may be made to run along with a function that a debugger calls: not to the next turn. */
        usleep(100000);
    }
    printf(" us, %d calls\n", calls);
    if (write(ends[1], "x", 1) != 1 || pthread_join(thread, NULL))
        return 1;
    return 0;
}
