/* Covers: threads that share memory through atomics only: fetch_add, compare-and-swap loops, a
 * lock-free stack. With the argument `order`, prints a digest of who saw which value when.
 *
 * Hard for a recorder: no syscall marks a race, so the outcome follows from the interleaving of
 * plain instructions alone; the digest differs from run to run natively and must be the same in
 * each replay. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define ADDS 50000
#define PUSHES 5000
#define NODES (THREADS * PUSHES)
#define NONE UINT32_MAX

static atomic_ulong sum, product = 1;
static atomic_int go;
static uint64_t seen[THREADS];

/* Head of the stack: index of the top node below, a tag above that makes every head differ from
 * all before it. */
static _Atomic uint64_t head = NONE;
static atomic_uint next_of[NODES];
static atomic_uchar popped[NODES];

static void push(uint32_t node)
{
    uint64_t old = atomic_load(&head), new;
    do {
        atomic_store(&next_of[node], (uint32_t)old);
        new = ((old >> 32) + 1) << 32 | node;
    } while (!atomic_compare_exchange_weak(&head, &old, new));
}

static uint32_t pop(void)
{
    uint64_t old = atomic_load(&head), new;
    do {
        if ((uint32_t)old == NONE)
            return NONE;
        new = ((old >> 32) + 1) << 32 | atomic_load(&next_of[(uint32_t)old]);
    } while (!atomic_compare_exchange_weak(&head, &old, new));
    return (uint32_t)old;
}

static void *race(void *argument)
{
    long me = (long)argument;
    uint64_t digest_of_mine = DIGEST_START;
    while (!atomic_load(&go))
        ;
    for (int i = 0; i < ADDS; i++)
        digest_of_mine = digest_number(digest_of_mine, atomic_fetch_add(&sum, me + 1));
    for (int i = 0; i < ADDS / 10; i++) {
        unsigned long old = atomic_load(&product);
        unsigned long failures = 0;
        while (!atomic_compare_exchange_weak(&product, &old, old * 3))
            failures++;
        digest_of_mine = digest_number(digest_of_mine, old + failures);
    }
    for (int i = 0; i < PUSHES; i++) {
        push(me * PUSHES + i);
        if (i % 2) {
            uint32_t node = pop();
            CHECK(node != NONE && atomic_fetch_add(&popped[node], 1) == 0);
            digest_of_mine = digest_number(digest_of_mine, node);
        }
    }
    seen[me] = digest_of_mine;
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        ZERO(pthread_create(&threads[i], NULL, race, (void *)i));
    atomic_store(&go, 1);
    for (long i = 0; i < THREADS; i++)
        ZERO(pthread_join(threads[i], NULL));

    unsigned long want = 1;
    for (int i = 0; i < THREADS * (ADDS / 10); i++)
        want *= 3;
    CHECK(atomic_load(&product) == want);
    int left = 0, taken = 0;
    for (uint32_t node; (node = pop()) != NONE; left++)
        CHECK(atomic_fetch_add(&popped[node], 1) == 0);
    for (int i = 0; i < NODES; i++)
        taken += popped[i];
    CHECK(taken == NODES);
    say("sum %lu, product %lu, left on the stack %d of %d\n", atomic_load(&sum),
        atomic_load(&product), left, taken);
    if (wants_order(argc, argv))
        for (int i = 0; i < THREADS; i++)
            say("thread %d saw %016lx\n", i, seen[i]);
    return 0;
}
