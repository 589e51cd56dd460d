/* Covers: far more threads than cores, all of which want to run and yield all the time.
 *
 * Hard for a recorder: one that lets a single thread run at a time has hundreds waiting for their
 * turn. If each of them looks now and then who has it, they do nothing else: what a yield costs must
 * not grow with how many wait. */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#define THREADS 258
#define ROUNDS 4
/* Some hundred microseconds. */
#define STEPS 500000

static int go;
static long yields, sum;

static void yield(void)
{
    __atomic_add_fetch(&yields, 1, __ATOMIC_RELAXED);
    sched_yield();
}

static void *run(void *number)
{
    while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
        yield();
    for (int i = 0; i < ROUNDS; i++) {
        for (long step = 0; step < STEPS; step++)
            __asm__ volatile("" : "+r"(step));
        __atomic_add_fetch(&sum, (long)number, __ATOMIC_RELAXED);
        yield();
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int64_t begun = now_ns();
    for (long i = 0; i < THREADS; i++)
        ZERO(pthread_create(&threads[i], NULL, run, (void *)i));
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_join(threads[i], NULL));
    CHECK(sum == (long)ROUNDS * THREADS * (THREADS - 1) / 2);
    struct rusage usage;
    OK(getrusage(RUSAGE_SELF, &usage));
    /* A few for each yield, and a few in each millisecond, by who looks whether all is well. */
    long switches = usage.ru_nvcsw + usage.ru_nivcsw, ms = (now_ns() - begun) / 1000000;
    if (switches >= 8 * yields + 10 * ms)
        dprintf(STDERR_FILENO, "%ld switches for %ld yields in %ld ms\n", switches, yields, ms);
    CHECK(switches < 8 * yields + 10 * ms);
    say("%d threads took turns\n", THREADS);
    return 0;
}
