/* Covers: threads and processes that wait for each other for ever, in a way that the argument says;
 * and some that wait for each other and are not stuck. Prints "ready" when all are about to wait, and
 * never ends by itself: whoever runs it kills it.
 *
 * Hard for whoever looks at it: who waits for whom is nowhere written down. A mutex is a word in
 * memory, a pipe may be held by many, a lock on a file is known to the kernel alone. */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/socket.h>

/* All that will wait have come to this. */
static int arrivals[2];

static void arrive(void)
{
    CHECK(write(arrivals[1], ".", 1) == 1);
}

static void wait_for_all(int count)
{
    char byte;
    while (count-- > 0)
        CHECK(read(arrivals[0], &byte, 1) == 1);
    printf("ready\n");
    fflush(stdout);
}

static pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER, journal = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void *debit(void *arg)
{
    pthread_mutex_lock(&accounts);
    pthread_barrier_wait(&both);
    arrive();
    pthread_mutex_lock(&journal);
    return arg;
}

static void *credit(void *arg)
{
    pthread_mutex_lock(&journal);
    pthread_barrier_wait(&both);
    arrive();
    pthread_mutex_lock(&accounts);
    return arg;
}

static void mutexes(void)
{
    pthread_t threads[2];
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&threads[0], NULL, debit, NULL);
    pthread_create(&threads[1], NULL, credit, NULL);
    wait_for_all(2);
    pthread_join(threads[0], NULL);
}

/* Each of three waits for a byte from the one before it. */
static void ring(int sockets)
{
    int pairs[3][2];
    char byte;
    for (int i = 0; i < 3; i++)
        OK(sockets ? socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]) : pipe(pairs[i]));
    for (int own = 0; own < 3; own++) {
        pid_t pid = OK(fork());
        if (pid == 0) {
            for (int i = 0; i < 3; i++) {
                if (i != own)
                    close(pairs[i][0]);
                if (i != (own + 1) % 3)
                    close(pairs[i][1]);
            }
            arrive();
            if (own == 1) {
                struct pollfd one = {.fd = pairs[own][0], .events = POLLIN};
                CHECK(poll(&one, 1, -1) == 1);
            }
            CHECK(read(pairs[own][0], &byte, 1) == 1);
            CHECK(write(pairs[(own + 1) % 3][1], &byte, 1) == 1);
            _exit(0);
        }
    }
    for (int i = 0; i < 3; i++) {
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
    wait_for_all(3);
    while (wait(NULL) > 0)
        ;
}

/* A parent waits for the end of its child, which waits for a word of its parent. */
static void family(void)
{
    int p[2];
    char byte;
    OK(pipe(p));
    pid_t pid = OK(fork());
    if (pid == 0) {
        close(p[1]);
        arrive();
        CHECK(read(p[0], &byte, 1) == 1);
        _exit(0);
    }
    wait_for_all(1);
    waitpid(pid, NULL, 0);
}

/* Two files, locked in either order. */
static void files(int by_record)
{
    char names[2][64];
    struct flock whole = {.l_type = F_WRLCK};
    int go[2];
    OK(pipe(go));
    for (int i = 0; i < 2; i++)
        snprintf(names[i], sizeof names[i], "deadlock-%d.lock", i);
    for (int own = 0; own < 2; own++) {
        pid_t pid = OK(fork());
        if (pid == 0) {
            char byte;
            int first = OK(open(names[own], O_RDWR | O_CREAT, 0600));
            int second = OK(open(names[!own], O_RDWR | O_CREAT, 0600));
            OK(by_record ? fcntl(first, F_OFD_SETLKW, &whole) : flock(first, LOCK_EX));
            arrive();
            CHECK(read(go[0], &byte, 1) == 1);
            OK(by_record ? fcntl(second, F_OFD_SETLKW, &whole) : flock(second, LOCK_EX));
            _exit(0);
        }
    }
    wait_for_all(2);
    CHECK(write(go[1], "..", 2) == 2);
    while (wait(NULL) > 0)
        ;
}

/* Two who each wait for the other's message in a queue. */
static void queues(void)
{
    mqd_t ids[2];
    char name[64], byte;
    struct mq_attr attributes = {.mq_maxmsg = 2, .mq_msgsize = 1};
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "/mw-deadlocks.%d", getpid());
        ids[i] = OK(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes));
        OK(mq_unlink(name));
    }
    for (int own = 0; own < 2; own++) {
        pid_t pid = OK(fork());
        if (pid == 0) {
            arrive();
            CHECK(mq_receive(ids[own], &byte, 1, NULL) == 1);
            OK(mq_send(ids[!own], &byte, 1, 0));
            _exit(0);
        }
    }
    wait_for_all(2);
    mq_close(ids[0]);
    mq_close(ids[1]);
    while (wait(NULL) > 0)
        ;
}

/* Not stuck: the one that all wait for sleeps, or computes, or waits for somebody outside. */
static void patient(void)
{
    int p[2];
    char byte;
    OK(pipe(p));
    pid_t pid = OK(fork());
    if (pid == 0) {
        close(p[1]);
        arrive();
        CHECK(read(p[0], &byte, 1) == 1);
        _exit(0);
    }
    wait_for_all(1);
    sleep(1000);
    CHECK(write(p[1], ".", 1) == 1);
    waitpid(pid, NULL, 0);
}

static void *waits_for_input(void *arg)
{
    char byte;
    pthread_mutex_lock(&accounts);
    arrive();
    if (read(0, &byte, 1) == 1)
        pthread_mutex_unlock(&accounts);
    return arg;
}

static void outside(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, waits_for_input, NULL);
    wait_for_all(1);
    pthread_mutex_lock(&accounts);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    OK(pipe(arrivals));
    if (!strcmp(which, "mutexes"))
        mutexes();
    else if (!strcmp(which, "pipes"))
        ring(0);
    else if (!strcmp(which, "sockets"))
        ring(1);
    else if (!strcmp(which, "family"))
        family();
    else if (!strcmp(which, "files"))
        files(0);
    else if (!strcmp(which, "records"))
        files(1);
    else if (!strcmp(which, "queues"))
        queues();
    else if (!strcmp(which, "patient"))
        patient();
    else if (!strcmp(which, "outside"))
        outside();
    else
        say("usage: deadlocks WHICH\n");
    return 0;
}
