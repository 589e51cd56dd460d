/* Covers: robust mutexes in shared memory whose owner ends: by exit_group, by exit of its only
 * thread, by a signal with the default action, by a fault, killed while one waits, killed while nobody
 * waits; with a list of several locks, and with
 * one held by a thread that is not the one that ends the process.
 *
 * Hard for a recorder: the kernel writes into the locks when the owner is gone, in nobody's turn. */
#include "check.h"
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { LOCKS = 4 };

struct shared {
    pthread_mutex_t locks[LOCKS];
    int ready;
};

static struct shared *shared;

static void make_locks(void)
{
    pthread_mutexattr_t attributes;
    ZERO(pthread_mutexattr_init(&attributes));
    ZERO(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    for (int i = 0; i < LOCKS; i++)
        ZERO(pthread_mutex_init(&shared->locks[i], &attributes));
}

static void *hold(void *lock)
{
    ZERO(pthread_mutex_lock(lock));
    shared->ready = 1;
    while (pause() == -1)
        ;
    return NULL;
}

static void by_exit_group(void)
{
    ZERO(pthread_mutex_lock(&shared->locks[0]));
    ZERO(pthread_mutex_lock(&shared->locks[2]));
    _exit(7);
}

static void by_exit(void)
{
    ZERO(pthread_mutex_lock(&shared->locks[1]));
    syscall(SYS_exit, 7);
}

static void by_default(void)
{
    ZERO(pthread_mutex_lock(&shared->locks[3]));
    raise(SIGTERM);
}

static void by_fault(void)
{
    struct rlimit none = {0, 0};
    OK(setrlimit(RLIMIT_CORE, &none));
    ZERO(pthread_mutex_lock(&shared->locks[0]));
    *(volatile int *)8 = 1;
}

static void of_another_thread(void)
{
    pthread_t thread;
    shared->ready = 0;
    ZERO(pthread_create(&thread, NULL, hold, &shared->locks[1]));
    while (!*(volatile int *)&shared->ready)
        sleep_ms(1);
    _exit(7);
}

static void test(const char *how, void (*end)(void))
{
    pid_t child = OK(fork());
    if (child == 0) {
        end();
        _exit(99);
    }
    /* Some of the locks are waited for while the child still lives. */
    int died = 0;
    for (int i = 0; i < LOCKS; i++) {
        int result = pthread_mutex_lock(&shared->locks[i]);
        CHECK(result == 0 || result == EOWNERDEAD);
        if (result == EOWNERDEAD) {
            ZERO(pthread_mutex_consistent(&shared->locks[i]));
            died++;
        }
        ZERO(pthread_mutex_unlock(&shared->locks[i]));
    }
    int status = wait_status(child);
    for (int i = 0; i < LOCKS; i++) {
        int result = pthread_mutex_lock(&shared->locks[i]);
        if (result == EOWNERDEAD) {
            ZERO(pthread_mutex_consistent(&shared->locks[i]));
            died++;
        } else {
            ZERO(result);
        }
        CHECK(shared->locks[i].__data.__lock == gettid());
        ZERO(pthread_mutex_unlock(&shared->locks[i]));
    }
    say("%s: status %#x, %d died\n", how, status & 0xff7f, died);
}

/* The owner is killed while somebody waits. */
static void test_killed(void)
{
    shared->ready = 0;
    pid_t owner = OK(fork());
    if (owner == 0)
        hold(&shared->locks[2]);
    while (!*(volatile int *)&shared->ready)
        sleep_ms(1);
    pid_t killer = OK(fork());
    if (killer == 0) {
        sleep_ms(30);
        OK(kill(owner, SIGKILL));
        _exit(0);
    }
    CHECK(pthread_mutex_lock(&shared->locks[2]) == EOWNERDEAD);
    ZERO(pthread_mutex_consistent(&shared->locks[2]));
    ZERO(pthread_mutex_unlock(&shared->locks[2]));
    DIES(owner, SIGKILL);
    EXITS(killer, 0);
    say("killed: 1 died\n");
}

/* The owner is killed while nobody waits: whoever comes later finds the lock marked. */
static void test_killed_alone(const char *how, int way)
{
    shared->ready = 0;
    pid_t owner = OK(fork());
    if (owner == 0) {
        ZERO(pthread_mutex_lock(&shared->locks[3]));
        hold(&shared->locks[0]);
    }
    while (!*(volatile int *)&shared->ready)
        sleep_ms(1);
    OK(kill(owner, SIGKILL));
    siginfo_t info;
    if (way == 0)
        DIES(owner, SIGKILL);
    else if (way == 1)
        OK(waitpid(owner, NULL, 0));
    else
        OK(waitid(P_PID, owner, &info, WEXITED));
    /* Another process is told of it by shared memory alone. */
    pid_t other = OK(fork());
    if (other == 0)
        _exit(shared->locks[0].__data.__lock == FUTEX_OWNER_DIED);
    EXITS(other, 1);
    for (int i = 0; i < LOCKS; i += 3) {
        CHECK(pthread_mutex_trylock(&shared->locks[i]) == EOWNERDEAD);
        ZERO(pthread_mutex_consistent(&shared->locks[i]));
        ZERO(pthread_mutex_unlock(&shared->locks[i]));
    }
    say("killed, %s: 2 died\n", how);
}

int main(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    make_locks();
    test("exit_group", by_exit_group);
    test("exit", by_exit);
    test("default action", by_default);
    test("fault", by_fault);
    test("another thread's", of_another_thread);
    test_killed();
    test_killed_alone("status", 0);
    test_killed_alone("no status", 1);
    test_killed_alone("waitid", 2);
    say("done\n");
    return 0;
}
