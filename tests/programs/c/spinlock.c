/* Covers: a spin lock and strict turn-taking without any syscall; threads that compute for long
 * while the others spin. With the argument `order`, prints a digest of the order in which the lock
 * was taken and of how often each waiter looked.
 *
 * Hard for a recorder: where threads take turns and only a syscall ends a turn, this never ends.
 * The spinning thread must be preempted where it stands, and stand there again in replay. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 3
#define LOCKS 300
#define TURNS 5
#define LONG_WORK 20000000

static atomic_flag lock = ATOMIC_FLAG_INIT;
static atomic_int ready, turn, result_set;
static uint64_t result, order = DIGEST_START, looks[THREADS];
static long in_lock, taken;

static void *contend(void *argument)
{
    int me = (int)(long)argument;
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) < THREADS)
        looks[me]++;

    for (int i = 0; i < LOCKS; i++) {
        while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire))
            looks[me]++;
        CHECK(++in_lock == 1);
        order = digest_number(order, compute(me, 200) ^ taken++);
        in_lock--;
        atomic_flag_clear_explicit(&lock, memory_order_release);
    }

    for (int i = 0; i < TURNS; i++) {
        while (atomic_load_explicit(&turn, memory_order_acquire) != i * THREADS + me)
            looks[me]++;
        atomic_fetch_add_explicit(&turn, 1, memory_order_release);
    }

    if (me == 0) {
        result = compute(1, LONG_WORK);
        atomic_store_explicit(&result_set, 1, memory_order_release);
    }
    while (!atomic_load_explicit(&result_set, memory_order_acquire))
        looks[me]++;
    CHECK(result != 0);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        ZERO(pthread_create(&threads[i], NULL, contend, (void *)i));
    for (long i = 0; i < THREADS; i++)
        ZERO(pthread_join(threads[i], NULL));
    CHECK(taken == THREADS * LOCKS && turn == THREADS * TURNS);
    say("lock taken %ld times, %d turns, result %016lx\n", taken, turn, result);
    if (wants_order(argc, argv)) {
        uint64_t all = DIGEST_START;
        for (int i = 0; i < THREADS; i++)
            all = digest_number(all, looks[i]);
        say("order %016lx, looks %016lx\n", order, all);
    }
    return 0;
}
