/* Covers: mutexes with priority inheritance, also robust ones and ones in shared memory, that are
 * waited for, timed out, tried; futex_waitv; futex_wait, futex_wake and futex_requeue of newer kernels.
 *
 * Hard for a recorder: for the first the kernel writes into the lock at moments of its own. What a
 * kernel does not have is left out. */
#include "check.h"
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define SYS_futex_wake_ 454
#define SYS_futex_wait_ 455
#define SYS_futex_requeue_ 456
#define FUTEX_U32 2

enum { THREADS = 4, ROUNDS = 200 };

struct wait_one {
    uint64_t val, uaddr;
    uint32_t flags, reserved;
};

static pthread_mutex_t *lock;
static long *count;

static void make_lock(pthread_mutex_t *mutex, int shared, int robust)
{
    pthread_mutexattr_t attributes;
    ZERO(pthread_mutexattr_init(&attributes));
    ZERO(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
    if (shared)
        ZERO(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    if (robust)
        ZERO(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    ZERO(pthread_mutex_init(mutex, &attributes));
}

static void *count_up(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        ZERO(pthread_mutex_lock(lock));
        long before = *count;
        if (i % 16 == 0)
            sched_yield();
        *count = before + 1;
        ZERO(pthread_mutex_unlock(lock));
    }
    return unused;
}

static void count_in_threads(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_create(&threads[i], NULL, count_up, NULL));
    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_join(threads[i], NULL));
}

static void *take_and_hold(void *unused)
{
    ZERO(pthread_mutex_lock(lock));
    ++*count;
    sleep_ms(50);
    ZERO(pthread_mutex_unlock(lock));
    return unused;
}

static void test_inherit(void)
{
    count_in_threads();
    say("inherit: %ld\n", *count);

    pthread_t thread;
    *count = 0;
    ZERO(pthread_create(&thread, NULL, take_and_hold, NULL));
    while (*(volatile long *)count == 0)
        sleep_ms(1);
    CHECK(pthread_mutex_trylock(lock) == EBUSY);
    struct timespec until;
    OK(clock_gettime(CLOCK_REALTIME, &until));
    until.tv_nsec += 5000000;
    if (until.tv_nsec >= 1000000000)
        until.tv_nsec -= 1000000000, until.tv_sec++;
    CHECK(pthread_mutex_timedlock(lock, &until) == ETIMEDOUT);
    ZERO(pthread_mutex_lock(lock));
    ZERO(pthread_mutex_unlock(lock));
    ZERO(pthread_join(thread, NULL));
    ZERO(pthread_mutex_trylock(lock));
    CHECK(lock->__data.__lock == gettid());
    ZERO(pthread_mutex_unlock(lock));
    CHECK(lock->__data.__lock == 0);
    say("inherit: tried, waited for\n");
}

static void test_shared_inherit(void)
{
    *count = 0;
    pid_t child = OK(fork());
    if (child == 0) {
        count_in_threads();
        _exit(0);
    }
    count_in_threads();
    EXITS(child, 0);
    say("shared: %ld\n", *count);

    child = OK(fork());
    if (child == 0) {
        ZERO(pthread_mutex_lock(lock));
        *count = -1;
        sleep_ms(20);
        _exit(0);
    }
    while (*(volatile long *)count != -1)
        sleep_ms(1);
    CHECK(pthread_mutex_lock(lock) == EOWNERDEAD);
    ZERO(pthread_mutex_consistent(lock));
    ZERO(pthread_mutex_unlock(lock));
    EXITS(child, 0);
    say("shared: its owner died\n");
}

static uint32_t words[3];

static void *wake_later(void *unused)
{
    sleep_ms(20);
    words[1] = 1;
    syscall(SYS_futex, &words[1], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    return unused;
}

static void test_several(void)
{
    struct wait_one list[3];
    for (int i = 0; i < 3; i++)
        list[i] = (struct wait_one){.uaddr = (uintptr_t)&words[i], .flags = FUTEX_U32 | FUTEX_PRIVATE_FLAG};
    list[0].val = 9;
    long result = syscall(SYS_futex_waitv, list, 3, 0, NULL, CLOCK_MONOTONIC);
    if (result == -1 && errno == ENOSYS) {
        say("several: 1\n");
        return;
    }
    CHECK(result == -1 && errno == EAGAIN);
    list[0].val = 0;
    struct timespec past = {0, 1};
    FAILS(syscall(SYS_futex_waitv, list, 3, 0, &past, CLOCK_MONOTONIC), ETIMEDOUT);
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, wake_later, NULL));
    say("several: %ld\n", OK(syscall(SYS_futex_waitv, list, 3, 0, NULL, CLOCK_MONOTONIC)));
    ZERO(pthread_join(thread, NULL));
}

static void *wait_new(void *word)
{
    long result = syscall(SYS_futex_wait_, word, 0L, 0xffffffffL, FUTEX_U32 | FUTEX_PRIVATE_FLAG, NULL, 0);
    CHECK(result == 0 || errno == EAGAIN);
    return NULL;
}

static void test_new(void)
{
    static uint32_t from, to;
    long none = syscall(SYS_futex_wake_, &from, 0xffffffffL, 1, FUTEX_U32 | FUTEX_PRIVATE_FLAG);
    if (none == 0) {
        pthread_t thread;
        ZERO(pthread_create(&thread, NULL, wait_new, &from));
        sleep_ms(10);
        struct wait_one list[2] = {
            {.uaddr = (uintptr_t)&from, .flags = FUTEX_U32 | FUTEX_PRIVATE_FLAG},
            {.uaddr = (uintptr_t)&to, .flags = FUTEX_U32 | FUTEX_PRIVATE_FLAG},
        };
        while (syscall(SYS_futex_requeue_, list, 0, 0, 1) == 0)
            sleep_ms(1);
        to = 1;
        CHECK(OK(syscall(SYS_futex_wake_, &to, 0xffffffffL, 1, FUTEX_U32 | FUTEX_PRIVATE_FLAG)) == 1);
        ZERO(pthread_join(thread, NULL));
    }
    say("new\n");
}

int main(void)
{
    struct {
        pthread_mutex_t lock;
        long count;
    } *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), own;
    CHECK(shared != MAP_FAILED);
    own.count = 0;
    lock = &own.lock, count = &own.count;
    make_lock(lock, 0, 0);
    test_inherit();
    test_several();
    test_new();
    lock = &shared->lock, count = &shared->count;
    make_lock(lock, 1, 1);
    test_shared_inherit();
    say("done\n");
    return 0;
}
