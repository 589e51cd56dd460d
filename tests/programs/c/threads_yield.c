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

/* `order`: many yields and nothing else, and what came of it. */
static long rounds = 4, steps = 500000 /* some hundred microseconds */;
static long yields, sum;
static pthread_barrier_t all_there;

static void *run(void *number)
{
    pthread_barrier_wait(&all_there);
    for (long i = 0; i < rounds; i++) {
        for (long step = 0; step < steps; step++)
            __asm__ volatile("" : "+r"(step));
        __atomic_add_fetch(&sum, (long)number, __ATOMIC_RELAXED);
        __atomic_add_fetch(&yields, 1, __ATOMIC_RELAXED);
        sched_yield();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int order = wants_order(argc, argv);
    if (order)
        rounds = 200, steps = 0;
    pthread_t threads[THREADS];
    int64_t begun = now_ns();
    ZERO(pthread_barrier_init(&all_there, NULL, THREADS));
    for (long i = 0; i < THREADS; i++)
        ZERO(pthread_create(&threads[i], NULL, run, (void *)i));
    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_join(threads[i], NULL));
    CHECK(sum == rounds * THREADS * (THREADS - 1) / 2);
    struct rusage usage;
    OK(getrusage(RUSAGE_SELF, &usage));
    /* A few for each yield, and a few in each millisecond, by who looks whether all is well. */
    long switches = usage.ru_nvcsw + usage.ru_nivcsw, ms = (now_ns() - begun) / 1000000;
    if (switches >= 8 * yields + 10 * ms)
        dprintf(STDERR_FILENO, "%ld switches for %ld yields in %ld ms\n", switches, yields, ms);
    CHECK(switches < 8 * yields + 10 * ms);
    say("%d threads took turns\n", THREADS);
    if (order)
        say("%ld times a processor was taken away, for %ld yields\n", usage.ru_nivcsw, yields);
    return 0;
}
