/* A program that is attached to, halted and left again while it runs, any number of times: threads
 * that compute, wait, and are made and end; forks; signals; pipes; timers. It looks for what it would
 * not see if it were left alone: calls that are broken off, signals that are lost, waits that end
 * early, clocks that go back. It ends when it gets SIGTERM.
 *
 *     attached_to SECONDS       and ends after so long in any case
 *     attached_to filtered      has a filter on its system calls, and waits
 *     attached_to execs N       executes itself N times, with a thread beside
 *     attached_to ends N        ends after so many microseconds
 */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000LL

static volatile sig_atomic_t over, usr1, ticks;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static long counted, added[2];
static int channel[2];

static long long now(void) {
    struct timespec t;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return t.tv_sec * 1000 * MS + t.tv_nsec;
}

static void on_term(int signal) { (void)signal, over = 1; }
static void on_usr1(int signal) { (void)signal, usr1++; }
static void on_alarm(int signal) { (void)signal, ticks++; }

/* Computes, and reads the clock: it does not go back. */
static void *computes(void *arg) {
    double x = 1;
    long long last = now();
    while (!over) {
        for (int i = 0; i < 20000; i++)
            x = x * 1.0000001 + 1e-9;
        long long next = now();
        CHECK(next >= last);
        last = next;
    }
    CHECK(x > 1);
    return arg;
}

static void *adds(void *arg) {
    long *mine = arg;
    while (!over) {
        pthread_mutex_lock(&mutex);
        counted++, (*mine)++;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);
        usleep(500);
    }
    return NULL;
}

static void *waits(void *arg) {
    while (!over) {
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 600;
        pthread_mutex_lock(&mutex);
        long seen = counted;
        while (counted == seen && !over)
            CHECK(pthread_cond_timedwait(&cond, &mutex, &limit) == 0);
        pthread_mutex_unlock(&mutex);
    }
    return arg;
}

/* Waits that end neither early nor with an error. */
static void *sleeps(void *arg) {
    int epoll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct epoll_event event = {.events = EPOLLIN};
    while (!over) {
        int kind = rand() % 4;
        long long begin = now();
        switch (kind) {
        case 0:
            CHECK(poll(NULL, 0, 7) == 0);
            break;
        case 1:
            CHECK(epoll_wait(epoll, &event, 1, 7) == 0);
            break;
        case 2:
            CHECK(nanosleep(&(struct timespec){.tv_nsec = 7 * MS}, NULL) == 0);
            break;
        default: {
            uint64_t count;
            struct itimerspec in = {.it_value.tv_nsec = 7 * MS};
            CHECK(timerfd_settime(timer, 0, &in, NULL) == 0);
            CHECK(read(timer, &count, sizeof count) == sizeof count && count == 1);
        }
        }
        long long took = now() - begin;
        if (took < 7 * MS - 50000)
            fprintf(stderr, "a wait of kind %d was over after %lld ns\n", kind, took);
        CHECK(took >= 7 * MS - 50000);
    }
    close(epoll);
    close(timer);
    return arg;
}

/* Blocks in a read until there is something, and misses nothing. */
static void *reads(void *arg) {
    for (unsigned char want = 0;; want++) {
        unsigned char byte;
        CHECK(read(channel[0], &byte, 1) == 1);
        if (byte == 255)
            return arg;
        want %= 255;
        CHECK(byte == want);
    }
}

static void *returns(void *arg) { return arg; }

static void install(int signal, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static void be_filtered(void) {
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = 1, .filter = &all};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
    puts("filtered");
    fflush(stdout);
    for (;;)
        pause();
}

static void *pauses(void *arg) {
    for (;;)
        pause();
    return arg;
}

/* Each image begins with what the one before had: its id, and what it ignores. */
static void be_executed(int left, char **argv) {
    char id[16], next[16];
    snprintf(id, sizeof id, "%d", (int)getpid());
    if (argv[3] == NULL)
        signal(SIGUSR2, SIG_IGN);
    else
        CHECK(strcmp(argv[3], id) == 0 && signal(SIGUSR2, SIG_IGN) == SIG_IGN);
    if (left == 0) {
        puts("all is well");
        exit(0);
    }
    pthread_t beside;
    CHECK(pthread_create(&beside, NULL, pauses, NULL) == 0);
    snprintf(next, sizeof next, "%d", left - 1);
    usleep(1000);
    execv("/proc/self/exe", (char *[]){argv[0], argv[1], next, id, NULL});
    CHECK(!"executed");
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "filtered") == 0)
        be_filtered();
    if (argc > 2 && strcmp(argv[1], "execs") == 0)
        be_executed(atoi(argv[2]), argv);
    if (argc > 2 && strcmp(argv[1], "ends") == 0)
        return usleep(atoi(argv[2]));
    long long end = now() + (argc > 1 ? atoll(argv[1]) : 1) * 1000 * MS;
    CHECK(pipe(channel) == 0);
    install(SIGTERM, on_term);
    install(SIGUSR1, on_usr1);
    install(SIGALRM, on_alarm);
    /* Those that are not to be disturbed by a timer have it blocked. */
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigaddset(&alarm, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    void *(*work[])(void *) = {computes, adds, adds, waits, sleeps, sleeps, reads};
    enum { THREADS = sizeof work / sizeof *work };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work[i], i == 1 || i == 2 ? &added[i - 1] : NULL) == 0);
    pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    struct itimerval every = {{0, 20000}, {0, 20000}};
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
    puts("begun");
    fflush(stdout);
    long sent = 0, rounds = 0;
    unsigned char byte = 0;
    while (!over && now() < end) {
        CHECK(write(channel[1], &byte, 1) == 1);
        byte = (byte + 1) % 255;
        CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
        CHECK(usr1 == ++sent);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit(now() > 0 && counted >= 0 ? 7 : 1);
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
            fprintf(stderr, "a child has ended with status %#x\n", status);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        pthread_t made;
        void *result;
        CHECK(pthread_create(&made, NULL, returns, &rounds) == 0);
        CHECK(pthread_join(made, &result) == 0 && result == &rounds);
        rounds++;
    }
    over = 1;
    pthread_mutex_lock(&mutex);
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
    byte = 255;
    CHECK(write(channel[1], &byte, 1) == 1);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(counted == added[0] + added[1] && rounds > 0 && ticks > 0);
    puts("all is well");
    return 0;
}
