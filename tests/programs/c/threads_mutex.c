/* Covers: the whole of pthreads: mutexes of every kind, condition variables, read-write locks,
 * barriers, semaphores, once, thread-local data and its destructors, join, detached threads,
 * cancellation (at a blocking call and in the middle of computation).
 *
 * Hard for a recorder: all of it rests on futexes that are only sometimes called, on words in
 * memory that the kernel changes at thread exit (joining, robust mutexes), and on a signal that
 * glibc keeps to itself (cancellation). */
#include "check.h"
#include <pthread.h>
#include <semaphore.h>

#define THREADS 4
#define ROUNDS 2000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct timespec deadline(long ms)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += ms * 1000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

static void run(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        ZERO(pthread_create(&threads[i], NULL, body, (void *)i));
    for (long i = 0; i < THREADS; i++) {
        void *result;
        ZERO(pthread_join(threads[i], &result));
        CHECK(result == (void *)(i + 100));
    }
}

static long counter;

static void *count(void *index)
{
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
    }
    return (char *)index + 100;
}

static void *die_with_lock(void *lock)
{
    ZERO(pthread_mutex_lock(lock));
    return NULL;
}

static void test_mutex_kinds(void)
{
    run(count);
    CHECK(counter == THREADS * ROUNDS);

    pthread_mutexattr_t kind;
    pthread_mutex_t other;
    pthread_t thread;
    struct timespec soon;
    ZERO(pthread_mutexattr_init(&kind));
    ZERO(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE));
    ZERO(pthread_mutex_init(&other, &kind));
    ZERO(pthread_mutex_lock(&other));
    ZERO(pthread_mutex_lock(&other));
    ZERO(pthread_mutex_unlock(&other));
    ZERO(pthread_mutex_unlock(&other));
    ZERO(pthread_mutex_destroy(&other));

    ZERO(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK));
    ZERO(pthread_mutex_init(&other, &kind));
    CHECK(pthread_mutex_unlock(&other) == EPERM);
    ZERO(pthread_mutex_lock(&other));
    CHECK(pthread_mutex_lock(&other) == EDEADLK);
    CHECK(pthread_mutex_trylock(&other) == EBUSY);
    ZERO(pthread_mutex_unlock(&other));
    ZERO(pthread_mutex_destroy(&other));

    ZERO(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_NORMAL));
    ZERO(pthread_mutex_init(&other, &kind));
    ZERO(pthread_mutex_lock(&other));
    soon = deadline(10);
    CHECK(pthread_mutex_timedlock(&other, &soon) == ETIMEDOUT);
    ZERO(pthread_mutex_unlock(&other));
    ZERO(pthread_mutex_destroy(&other));

    /* The kernel finds the robust mutex in the dying thread's list and marks it. */
    ZERO(pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST));
    ZERO(pthread_mutex_init(&other, &kind));
    ZERO(pthread_create(&thread, NULL, die_with_lock, &other));
    ZERO(pthread_join(thread, NULL));
    CHECK(pthread_mutex_lock(&other) == EOWNERDEAD);
    ZERO(pthread_mutex_consistent(&other));
    ZERO(pthread_mutex_unlock(&other));
    ZERO(pthread_mutex_destroy(&other));
    say("mutexes: counted %ld\n", counter);
}

#define ITEMS 500
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
static int queue[4], queued, produced, consumed;
static long consumed_sum;

static void *produce_or_consume(void *index)
{
    int producer = (long)index % 2 == 0;
    pthread_mutex_lock(&mutex);
    while (producer ? produced < ITEMS : consumed < ITEMS) {
        if (producer && queued == 4) {
            pthread_cond_wait(&not_full, &mutex);
        } else if (producer) {
            queue[queued++] = ++produced;
            pthread_cond_signal(&not_empty);
        } else if (queued == 0) {
            pthread_cond_wait(&not_empty, &mutex);
        } else {
            consumed_sum += queue[--queued];
            consumed++;
            pthread_cond_signal(&not_full);
        }
    }
    pthread_cond_broadcast(&not_empty);
    pthread_cond_broadcast(&not_full);
    pthread_mutex_unlock(&mutex);
    return (char *)index + 100;
}

static void test_conditions(void)
{
    run(produce_or_consume);
    CHECK(consumed == ITEMS && consumed_sum == ITEMS * (ITEMS + 1) / 2);
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    struct timespec soon = deadline(10);
    ZERO(pthread_mutex_lock(&mutex));
    CHECK(pthread_cond_timedwait(&never, &mutex, &soon) == ETIMEDOUT);
    ZERO(pthread_mutex_unlock(&mutex));
    say("conditions: %d items, sum %ld\n", consumed, consumed_sum);
}

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static long pair[2];

static void *read_or_write(void *index)
{
    for (int i = 0; i < ROUNDS; i++) {
        if ((i + (long)index) % 8 == 0) {
            pthread_rwlock_wrlock(&rwlock);
            pair[0]++;
            pair[1]++;
        } else {
            pthread_rwlock_rdlock(&rwlock);
            CHECK(pair[0] == pair[1]);
        }
        pthread_rwlock_unlock(&rwlock);
    }
    return (char *)index + 100;
}

static pthread_barrier_t barrier;
static int serial_threads, once_runs, arrived[10];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void run_once(void)
{
    sleep_ms(2);
    once_runs++;
}

static void *meet(void *index)
{
    ZERO(pthread_once(&once, run_once));
    for (int i = 0; i < 10; i++) {
        __atomic_fetch_add(&arrived[i], 1, __ATOMIC_RELAXED);
        int result = pthread_barrier_wait(&barrier);
        CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
        CHECK(__atomic_load_n(&arrived[i], __ATOMIC_RELAXED) == THREADS);
        if (result)
            __atomic_fetch_add(&serial_threads, 1, __ATOMIC_RELAXED);
    }
    return (char *)index + 100;
}

static void test_rwlock_and_barrier(void)
{
    run(read_or_write);
    CHECK(pair[0] == THREADS * ROUNDS / 8);
    ZERO(pthread_barrier_init(&barrier, NULL, THREADS));
    run(meet);
    CHECK(serial_threads == 10 && once_runs == 1);
    say("rwlock %ld writes, barrier %d meetings, once %d\n", pair[0], serial_threads, once_runs);
}

static pthread_key_t key;
static int destroyed;
static __thread long own = 5;
static sem_t done;

static void destroy(void *value)
{
    CHECK(value != NULL);
    __atomic_fetch_add(&destroyed, 1, __ATOMIC_RELAXED);
}

static void *use_own_data(void *index)
{
    CHECK(own == 5 && pthread_getspecific(key) == NULL);
    own += (long)index;
    ZERO(pthread_setspecific(key, &own));
    sched_yield();
    CHECK(own == 5 + (long)index && pthread_getspecific(key) == &own);
    return (char *)index + 100;
}

static void *post_done(void *unused)
{
    (void)unused;
    sem_post(&done);
    return NULL;
}

static void test_own_data_and_detached(void)
{
    ZERO(pthread_key_create(&key, destroy));
    run(use_own_data);
    CHECK(own == 5 && destroyed == THREADS);

    struct timespec soon = deadline(10);
    OK(sem_init(&done, 0, 0));
    FAILS(sem_timedwait(&done, &soon), ETIMEDOUT);
    pthread_attr_t detached;
    pthread_t thread;
    ZERO(pthread_attr_init(&detached));
    ZERO(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED));
    for (int i = 0; i < 8; i++) {
        ZERO(pthread_create(&thread, i % 2 ? &detached : NULL, post_done, NULL));
        if (i % 2 == 0)
            ZERO(pthread_detach(thread));
    }
    for (int i = 0; i < 8; i++)
        OK(sem_wait(&done));
    say("thread-local: %d destroyed, 8 detached\n", destroyed);
}

static int cleanups;
static volatile long computing;

static void clean_up(void *unused)
{
    (void)unused;
    cleanups++;
}

static void *block(void *fd)
{
    char byte;
    pthread_cleanup_push(clean_up, NULL);
    CHECK(read((int)(long)fd, &byte, 1) == 0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *compute_forever(void *unused)
{
    (void)unused;
    ZERO(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    pthread_cleanup_push(clean_up, NULL);
    for (;;)
        computing++;
    pthread_cleanup_pop(0);
    return NULL;
}

static void test_cancel(void)
{
    int fds[2];
    pthread_t thread;
    void *result;
    OK(pipe(fds));
    ZERO(pthread_create(&thread, NULL, block, (void *)(long)fds[0]));
    sleep_ms(5);
    ZERO(pthread_cancel(thread));
    ZERO(pthread_join(thread, &result));
    CHECK(result == PTHREAD_CANCELED && cleanups == 1);

    ZERO(pthread_create(&thread, NULL, compute_forever, NULL));
    while (computing == 0)
        sleep_ms(1);
    ZERO(pthread_cancel(thread));
    ZERO(pthread_join(thread, &result));
    CHECK(result == PTHREAD_CANCELED && cleanups == 2);
    say("cancel: %d cleanups\n", cleanups);
}

int main(void)
{
    test_mutex_kinds();
    test_conditions();
    test_rwlock_and_barrier();
    test_own_data_and_detached();
    test_cancel();
    return 0;
}
