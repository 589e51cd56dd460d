/* Covers: timers whose signals arrive in the middle of computation without syscalls: setitimer
 * (real, virtual, profiling), timer_create (signal, to one thread), alarm, and a signal from
 * another thread. With the argument `order`, prints where in the computation each one came.
 *
 * Hard for a recorder: such a signal cannot wait for the next syscall, for there is none, and in
 * replay must come at exactly the same instruction in the same round of the same loop.
 * Takes about a second, since alarm counts whole ones. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define WANTED 8

static volatile long rounds;
static volatile int signals;
static volatile uint64_t state;
static volatile uint64_t where = DIGEST_START;
static int expected_code, expected_value;

static void arrived(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    CHECK(info->si_code == expected_code);
    if (expected_value)
        CHECK(info->si_value.sival_int == expected_value);
    where = digest_number(where, rounds);
    where = digest_number(where, state);
    signals++;
}

static void handle(int sig, int code, int value)
{
    struct sigaction action = {.sa_sigaction = arrived, .sa_flags = SA_SIGINFO};
    OK(sigaction(sig, &action, NULL));
    expected_code = code;
    expected_value = value;
    signals = 0;
    rounds = 0;
}

static void compute_until_enough(void)
{
    while (signals < WANTED) {
        state = state * 3 + 1;
        rounds++;
    }
}

static void report(const char *name, int order)
{
    say("%s: at least %d signals\n", name, WANTED);
    if (order)
        say("%s: came at %016lx\n", name, where);
}

static void test_itimer(const char *name, int which, int sig, int order)
{
    struct itimerval every = {{0, 4000}, {0, 4000}}, never = {{0, 0}, {0, 0}}, old;
    handle(sig, SI_KERNEL, 0);
    OK(setitimer(which, &every, NULL));
    compute_until_enough();
    OK(getitimer(which, &old));
    CHECK(old.it_interval.tv_sec == 0 && old.it_interval.tv_usec > 0);
    OK(setitimer(which, &never, &old));
    report(name, order);
}

static void test_timer(const char *name, int notify, int order)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = notify, .sigev_signo = SIGRTMIN + 4};
    struct itimerspec every = {{0, 4000000}, {0, 4000000}}, left;
    event.sigev_value.sival_int = 4711;
    event._sigev_un._tid = gettid();
    handle(SIGRTMIN + 4, SI_TIMER, 4711);
    OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
    OK(timer_settime(timer, 0, &every, NULL));
    compute_until_enough();
    OK(timer_gettime(timer, &left));
    CHECK(left.it_interval.tv_nsec == 4000000 && timer_getoverrun(timer) >= 0);
    OK(timer_delete(timer));
    report(name, order);
}

static void *compute_in_thread(void *unused)
{
    (void)unused;
    compute_until_enough();
    return NULL;
}

static void test_thread(int order)
{
    pthread_t thread;
    handle(SIGUSR1, SI_TKILL, 0);
    ZERO(pthread_create(&thread, NULL, compute_in_thread, NULL));
    while (signals < WANTED) {
        pthread_kill(thread, SIGUSR1);
        sleep_ms(2);
    }
    ZERO(pthread_join(thread, NULL));
    report("thread", order);
}

int main(int argc, char **argv)
{
    int order = wants_order(argc, argv);
    pid_t alarmed = OK(fork());
    if (alarmed == 0) {
        CHECK(alarm(100) == 0 && alarm(1) > 90);
        for (;;)
            rounds++;
    }
    test_itimer("real", ITIMER_REAL, SIGALRM, order);
    test_itimer("virtual", ITIMER_VIRTUAL, SIGVTALRM, order);
    test_itimer("profiling", ITIMER_PROF, SIGPROF, order);
    test_timer("timer", SIGEV_SIGNAL, order);
    test_timer("timer to a thread", SIGEV_THREAD_ID, order);
    test_thread(order);
    DIES(alarmed, SIGALRM);
    say("alarm: ended the child\n");
    return 0;
}
