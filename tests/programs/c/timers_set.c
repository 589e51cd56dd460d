/* Threads that set a timer each, look at once how much is left of it, and take it back, again and
 * again: what is left is what the clock says, whatever is done to the program meanwhile.
 *
 *     timers_set [MILLISECONDS]      for how long; 50 if not said
 */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/timerfd.h>

#define MS 1000000LL
#define LENGTH (1000 * MS)
/* The kernel's own clock for a timer and the one that is read are a little apart. */
#define SLACK (5 * MS)

static long long until;

static long long now(void)
{
    struct timespec t;
    OK(clock_gettime(CLOCK_MONOTONIC, &t));
    return t.tv_sec * 1000 * MS + t.tv_nsec;
}

static struct itimerspec in(long long length)
{
    return (struct itimerspec){.it_value = {.tv_sec = length / (1000 * MS), .tv_nsec = length % (1000 * MS)}};
}

static long long left_of(struct itimerspec set)
{
    return set.it_value.tv_sec * 1000 * MS + set.it_value.tv_nsec;
}

static void check_left(long long left, long long before)
{
    long long after = now();
    if (left < LENGTH - (after - before) - SLACK || left > LENGTH) {
        dprintf(2, "%lld us are left of %lld, %lld us later\n", left / 1000, LENGTH / 1000, (after - before) / 1000);
        exit(1);
    }
}

static void *descriptor(void *unused)
{
    struct itimerspec set = in(LENGTH), none = in(0), seen;
    int fd = OK(timerfd_create(CLOCK_MONOTONIC, 0));
    do {
        long long before = now();
        OK(timerfd_settime(fd, 0, &set, NULL));
        OK(timerfd_gettime(fd, &seen));
        check_left(left_of(seen), before);
        OK(timerfd_settime(fd, 0, &none, NULL));
        OK(timerfd_gettime(fd, &seen));
        CHECK(left_of(seen) == 0);
    } while (now() < until);
    return unused;
}

static void *posix_timer(void *unused)
{
    struct itimerspec set = in(LENGTH), none = in(0), seen;
    struct sigevent never = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    OK(timer_create(CLOCK_MONOTONIC, &never, &timer));
    do {
        long long before = now();
        OK(timer_settime(timer, 0, &set, NULL));
        OK(timer_gettime(timer, &seen));
        check_left(left_of(seen), before);
        OK(timer_settime(timer, 0, &none, NULL));
        OK(timer_gettime(timer, &seen));
        CHECK(left_of(seen) == 0);
    } while (now() < until);
    return unused;
}

static void *interval(void *unused)
{
    struct itimerval set = {.it_value.tv_sec = LENGTH / (1000 * MS)}, none = {0}, seen;
    do {
        long long before = now();
        OK(setitimer(ITIMER_REAL, &set, NULL));
        OK(getitimer(ITIMER_REAL, &seen));
        check_left(seen.it_value.tv_sec * 1000 * MS + seen.it_value.tv_usec * 1000, before);
        OK(setitimer(ITIMER_REAL, &none, NULL));
        OK(getitimer(ITIMER_REAL, &seen));
        CHECK(seen.it_value.tv_sec == 0 && seen.it_value.tv_usec == 0);
    } while (now() < until);
    return unused;
}

/* Stops at once, and so before the others. */
static void *idle(void *unused)
{
    while (now() < until) {
    }
    return unused;
}

int main(int argc, char **argv)
{
    until = now() + (argc > 1 ? atoi(argv[1]) : 50) * MS;
    void *(*kinds[])(void *) = {descriptor, posix_timer, interval, idle};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) ZERO(pthread_create(&threads[i], NULL, kinds[i], NULL));
    for (int i = 0; i < 4; i++) ZERO(pthread_join(threads[i], NULL));
    say("what is left of a timer is what the clock says\n");
    return 0;
}
