/* Looks at the processor's counter all the time, a little apart, and keeps what it said last: so
 * when it did so last can be told from outside, whatever its clocks say. Prints its id first. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

/* What the counter said. */
volatile unsigned long long last;
/* How often it was looked at, and how often before somebody who asks for it is interested. */
volatile long looks;
volatile long until;
/* How fast it goes. */
volatile long per_ms;

__attribute__((noinline)) void look(void) {
    last = __rdtsc();
    looks++;
}

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(void) {
    long begun = now_ns();
    unsigned long long first = __rdtsc();
    usleep(50000);
    per_ms = (long)((__rdtsc() - first) * 1000000 / (now_ns() - begun));
    printf("%d\n", getpid());
    fflush(stdout);
    for (;;) {
        struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
        look();
    }
}
