/* Covers: 200 threads in four waves, all of a wave alive at once, each wave on stacks that the
 * one before left behind.
 *
 * Hard for a recorder: what it keeps per thread (stack, buffers, place in the order of turns) must
 * be given back at thread exit and not be mistaken for its last owner's; the kernel writes the
 * word that the joiner waits for after the thread's last instruction. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

#define MOST 150
static const int waves[] = {1, 9, 40, MOST};

static pthread_barrier_t all_alive;
static __thread long fresh;
static uintptr_t stacks[200];
static pid_t tids[200];
static atomic_long sum;

static void *live(void *argument)
{
    long me = (long)argument;
    volatile char local[512];
    CHECK(fresh == 0);
    fresh = me;
    memset((void *)local, (int)me, sizeof local);
    stacks[me] = (uintptr_t)local;
    tids[me] = gettid();
    pthread_barrier_wait(&all_alive);
    for (size_t i = 0; i < sizeof local; i++)
        CHECK(local[i] == (char)me);
    CHECK(fresh == me);
    atomic_fetch_add(&sum, me);
    return (void *)(me * 2);
}

static int reused(int first, int count)
{
    int found = 0;
    for (int i = first; i < first + count; i++)
        for (int j = 0; j < first; j++)
            if (stacks[i] == stacks[j]) {
                found++;
                break;
            }
    return found;
}

int main(void)
{
    pthread_t threads[MOST];
    int first = 0;
    for (size_t wave = 0; wave < sizeof waves / sizeof waves[0]; wave++) {
        int count = waves[wave];
        ZERO(pthread_barrier_init(&all_alive, NULL, count));
        for (int i = 0; i < count; i++)
            ZERO(pthread_create(&threads[i], NULL, live, (void *)(long)(first + i)));
        for (int i = 0; i < count; i++) {
            void *result;
            ZERO(pthread_join(threads[i], &result));
            CHECK(result == (void *)(long)((first + i) * 2));
        }
        for (int i = first; i < first + count; i++)
            for (int j = first; j < i; j++)
                CHECK(tids[i] != tids[j] && stacks[i] != stacks[j]);
        CHECK(first == 0 || reused(first, count) > 0);
        ZERO(pthread_barrier_destroy(&all_alive));
        first += count;
    }
    say("%d threads in 4 waves, sum %ld, stacks reused\n", first, atomic_load(&sum));
    return 0;
}
