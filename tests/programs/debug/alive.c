/* A service that runs until SIGTERM: a thread that counts, one that waits for ever, and a child
 * that answers. It notices what is done to it: a call that fails, an answer that is wrong, code
 * that is not as it was. Prints its id first, and "unharmed" at the end. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct account {
    long id;
    long balance;
    char name[8];
};

struct account accounts[3] = {{1, 100, "ann"}, {2, 100, "bob"}, {3, 100, "cyd"}};
volatile long turns;
volatile long limit = -1;
static volatile sig_atomic_t stop;
static volatile long usr1;
static int waits[2];

static void on_term(int signal) {
    (void)signal;
    stop = 1;
}

static void on_usr1(int signal) {
    (void)signal;
    usr1++;
}

static void harmed(const char *how) {
    printf("harmed: %s (%s)\n", how, strerror(errno));
    fflush(stdout);
    _exit(1);
}

__attribute__((noinline)) long square(long x) {
    return x * x;
}

__attribute__((noinline)) long handle(long turn) {
    struct account *account = &accounts[turn % 3];
    long before = account->balance;
    account->balance = before + 1;
    return account->balance - before;
}

/* Of the code of the functions that breakpoints are set in. */
static unsigned long sum(void) {
    const unsigned char *at = (const unsigned char *)square, *end = (const unsigned char *)sum;
    unsigned long all = 5381;
    for (; at < end; at++)
        all = all * 33 + *at;
    return all;
}

static void *worker(void *unused) {
    prctl(PR_SET_NAME, "worker");
    while (!stop) {
        turns++;
        if (handle(turns) != 1 && limit < 0)
            harmed("a balance");
        if (limit >= 0 && turns > limit)
            abort();
        usleep(200);
    }
    return unused;
}

static void *waiter(void *unused) {
    prctl(PR_SET_NAME, "waiter");
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, waits[0], &event))
        harmed("epoll_ctl");
    if (epoll_wait(epoll, &event, 1, -1) != 1)
        harmed("epoll_wait");
    return unused;
}

static void answer(int in, int out) {
    char byte;
    while (read(in, &byte, 1) == 1)
        if (write(out, &byte, 1) != 1)
            _exit(1);
    _exit(0);
}

int main(int count, char **words) {
    int ask[2], told[2];
    pthread_t threads[2];
    unsigned long code = sum();
    (void)words;
    if (pipe(ask) || pipe(told) || pipe(waits))
        harmed("pipe");
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_NAME, "answers");
        close(ask[1]);
        answer(ask[0], told[1]);
    }
    close(ask[0]);
    struct sigaction term = {.sa_handler = on_term}, one = {.sa_handler = on_usr1, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &term, NULL);
    sigaction(SIGUSR1, &one, NULL);
    /* Signals come to this thread: the others are not interrupted by them. */
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGTERM);
    sigaddset(&both, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &both, NULL);
    pthread_create(&threads[0], NULL, waiter, NULL);
    pthread_create(&threads[1], NULL, worker, NULL);
    pthread_sigmask(SIG_UNBLOCK, &both, NULL);
    printf("%d\n", getpid());
    fflush(stdout);
    for (unsigned char byte = 0; !stop; byte++) {
        char got = 0;
        if (write(ask[1], &byte, 1) != 1 || read(told[0], &got, 1) != 1 || (unsigned char)got != byte) {
            if (!stop)
                harmed("an answer");
        }
        usleep(count > 1 ? 50 : 1000);
    }
    pthread_join(threads[1], NULL);
    if (write(waits[1], "", 1) != 1 || pthread_join(threads[0], NULL))
        harmed("the waiter");
    close(ask[1]);
    int status;
    if (waitpid(child, &status, 0) != child || status)
        harmed("the child");
    if (sum() != code)
        harmed("the code");
    printf("unharmed after %ld turns, %ld signals\n", turns, usr1);
    return 0;
}
