/* Covers: robust locks in shared memory, with and without priority inheritance, whose owner kills
 * itself by SIGKILL, with nobody waiting for them or with somebody; the next owner comes before
 * anybody has waited for the dead one.
 *
 * Hard for a recorder: the kernel marks such locks when the owner ends, at a moment at which nobody
 * makes a call. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

struct shared {
    pthread_mutex_t plain, inheriting;
    int owned;
};

static void init(pthread_mutex_t *lock, int protocol)
{
    pthread_mutexattr_t how;
    ZERO(pthread_mutexattr_init(&how));
    ZERO(pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST));
    ZERO(pthread_mutexattr_setprotocol(&how, protocol));
    ZERO(pthread_mutex_init(lock, &how));
}

static void own(struct shared *shared, pthread_mutex_t *lock, const char *how)
{
    shared->owned = 0;
    pid_t child = OK(fork());
    if (child == 0) {
        ZERO(pthread_mutex_lock(lock));
        __atomic_store_n(&shared->owned, 1, __ATOMIC_RELEASE);
        if (strcmp(how, "kill") == 0)
            kill(getpid(), SIGKILL);
        else
            raise(SIGKILL);
        _exit(1);
    }
    while (!__atomic_load_n(&shared->owned, __ATOMIC_ACQUIRE))
        usleep(200);
    CHECK(pthread_mutex_lock(lock) == EOWNERDEAD);
    ZERO(pthread_mutex_consistent(lock));
    ZERO(pthread_mutex_unlock(lock));
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    say("%s: the owner died\n", how);
}

int main(void)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    init(&shared->plain, PTHREAD_PRIO_NONE);
    init(&shared->inheriting, PTHREAD_PRIO_INHERIT);
    own(shared, &shared->plain, "kill");
    own(shared, &shared->plain, "raise");
    own(shared, &shared->inheriting, "kill");
    own(shared, &shared->inheriting, "raise");
    return 0;
}
