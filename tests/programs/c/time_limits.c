/* Every clock, and every call that waits with a time limit, measured by a clock: each in a thread of
 * its own, at the same time. What is measured is as long as it was asked to be and not much longer,
 * whatever is done to the program meanwhile: it may be stopped for far longer than SLACK, if it does
 * not see that.
 *
 *     time_limits [ROUNDS [MS]]         how often each is measured, 1 if not said; and SLACK
 *     time_limits ROUNDS alone          without what takes a process of its own, whose time may be another
 */
#define _GNU_SOURCE
#include "check.h"

#include <linux/futex.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000LL
#define LIMIT (60 * MS)
/* A loaded machine takes its time; a halt takes longer. */
#define SLACK slack
static long long slack = 900 * MS;
/* How far two clocks may be apart: some count in hundredths of a second. */
#define APART (150 * MS)

static int rounds = 1, alone;

static long long ns(struct timespec t) { return t.tv_sec * 1000 * MS + t.tv_nsec; }
static struct timespec spec(long long n) {
    return (struct timespec){.tv_sec = n / (1000 * MS), .tv_nsec = n % (1000 * MS)};
}
static long long read_clock(clockid_t id) {
    struct timespec t;
    CHECK(clock_gettime(id, &t) == 0);
    return ns(t);
}
static long long read_raw(clockid_t id) {
    struct timespec t;
    CHECK(syscall(SYS_clock_gettime, id, &t) == 0);
    return ns(t);
}

/* ---- clocks ---- */

static const clockid_t ids[] = {CLOCK_REALTIME,  CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW,
                                CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE,
                                CLOCK_BOOTTIME, CLOCK_TAI};
#define IDS (sizeof ids / sizeof *ids)
#define CLOCKS (2 * IDS + 3)

static void read_clocks(long long *to) {
    for (size_t i = 0; i < IDS; i++) {
        *to++ = read_clock(ids[i]);
        *to++ = read_raw(ids[i]);
    }
    struct timeval now;
    gettimeofday(&now, NULL);
    *to++ = now.tv_sec * 1000 * MS + now.tv_usec * 1000LL;
    struct timezone zone;
    gettimeofday(&now, &zone);
    *to++ = now.tv_sec * 1000 * MS + now.tv_usec * 1000LL;
    struct tms used;
    *to++ = times(&used) * (1000 * MS / sysconf(_SC_CLK_TCK));
}

static void clocks_agree(void) {
    long long before[CLOCKS], after[CLOCKS];
    read_clocks(before);
    struct timespec t = spec(LIMIT);
    nanosleep(&t, NULL);
    read_clocks(after);
    long long way = after[2] - before[2];
    CHECK(way >= LIMIT && way <= LIMIT + SLACK);
    for (size_t i = 0; i < CLOCKS; i++) {
        long long own = after[i] - before[i];
        CHECK(own >= way - APART && own <= way + APART);
    }
}

static void counter_agrees(void) {
    long long before = read_clock(CLOCK_MONOTONIC);
    uint64_t first = __builtin_ia32_rdtsc();
    struct timespec t = spec(LIMIT / 2);
    nanosleep(&t, NULL);
    uint64_t second = __builtin_ia32_rdtsc();
    nanosleep(&t, NULL);
    uint64_t third = __builtin_ia32_rdtsc();
    long long way = read_clock(CLOCK_MONOTONIC) - before;
    CHECK(second > first && third > second);
    /* Both halves are as long as they were, give or take: a halt would make one many times that. */
    CHECK(way <= LIMIT + SLACK);
    CHECK(third - first < 6ull * (uint64_t)way);
}

/* ---- waits ---- */

static void sleep_relative(void) {
    struct timespec t = spec(LIMIT);
    CHECK(nanosleep(&t, NULL) == 0);
}
static void sleep_clock(void) {
    struct timespec t = spec(LIMIT);
    CHECK(clock_nanosleep(CLOCK_BOOTTIME, 0, &t, NULL) == 0);
}
static void sleep_until(void) {
    struct timespec t = spec(read_clock(CLOCK_MONOTONIC) + LIMIT);
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == 0);
}
static void sleep_until_real(void) {
    struct timespec t = spec(read_clock(CLOCK_REALTIME) + LIMIT);
    CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL) == 0);
}
static void poll_limit(void) { CHECK(poll(NULL, 0, LIMIT / MS) == 0); }
static void ppoll_limit(void) {
    struct timespec t = spec(LIMIT);
    CHECK(syscall(SYS_ppoll, NULL, 0, &t, NULL, 8) == 0);
    CHECK(ns(t) == 0);
}
static void select_limit(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    struct timeval t = {.tv_usec = LIMIT / 1000};
    CHECK(select(ends[0] + 1, &set, NULL, NULL, &t) == 0);
    CHECK(t.tv_sec == 0 && t.tv_usec == 0);
    close(ends[0]);
    close(ends[1]);
}
/* What is written in the middle is seen, and what is left is said. */
static void select_woken(void) {
    int ends[2];
    if (alone) {
        sleep_relative();
        return;
    }
    CHECK(pipe(ends) == 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    struct timespec long_limit = spec(LIMIT + 4 * SLACK);
    struct timespec t = spec(LIMIT);
    if (fork() == 0) {
        nanosleep(&t, NULL);
        _exit(write(ends[1], "x", 1) != 1);
    }
    CHECK(syscall(SYS_pselect6, ends[0] + 1, &set, NULL, NULL, &long_limit, NULL) == 1);
    CHECK(FD_ISSET(ends[0], &set));
    CHECK(ns(long_limit) >= 3 * SLACK && ns(long_limit) <= 4 * SLACK + LIMIT);
    close(ends[0]);
    close(ends[1]);
}
static void epoll_limit(void) {
    int fd = epoll_create1(0);
    struct epoll_event event;
    CHECK(epoll_wait(fd, &event, 1, LIMIT / MS) == 0);
    close(fd);
}
static void futex_limit(void) {
    uint32_t word = 0;
    struct timespec t = spec(LIMIT);
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0) == -1 && errno == ETIMEDOUT);
}
static void condition(clockid_t id) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    CHECK(pthread_condattr_setclock(&attr, id) == 0);
    pthread_cond_init(&cond, &attr);
    struct timespec t = spec(read_clock(id) + LIMIT);
    pthread_mutex_lock(&mutex);
    CHECK(pthread_cond_timedwait(&cond, &mutex, &t) == ETIMEDOUT);
    pthread_mutex_unlock(&mutex);
}
static void condition_monotonic(void) { condition(CLOCK_MONOTONIC); }
static void condition_real(void) { condition(CLOCK_REALTIME); }
static void semaphore_limit(void) {
    sem_t sem;
    sem_init(&sem, 0, 0);
    struct timespec t = spec(read_clock(CLOCK_REALTIME) + LIMIT);
    CHECK(sem_timedwait(&sem, &t) == -1 && errno == ETIMEDOUT);
}
/* Held by the first thread all the time. */
static pthread_mutex_t held;
static void hold(void) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&held, &attr);
    pthread_mutex_lock(&held);
}
static void lock_limit(void) {
    struct timespec t = spec(read_clock(CLOCK_REALTIME) + LIMIT);
    CHECK(pthread_mutex_timedlock(&held, &t) == ETIMEDOUT);
}
static void signal_limit(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    struct timespec t = spec(LIMIT);
    CHECK(sigtimedwait(&set, NULL, &t) == -1 && errno == EAGAIN);
}
static void sysv_limit(void) {
    int id = semget(IPC_PRIVATE, 1, 0600);
    CHECK(id >= 0);
    struct sembuf take = {.sem_op = -1};
    struct timespec t = spec(LIMIT);
    CHECK(semtimedop(id, &take, 1, &t) == -1 && errno == EAGAIN);
    semctl(id, 0, IPC_RMID);
}
static void queue_limit(void) {
    char name[64], message[64];
    snprintf(name, sizeof name, "/time_limits.%d", (int)getpid());
    struct mq_attr attr = {.mq_maxmsg = 1, .mq_msgsize = sizeof message};
    mqd_t queue = mq_open(name, O_CREAT | O_RDWR, 0600, &attr);
    if (queue == (mqd_t)-1) {
        sleep_relative(); /* there are none here */
        return;
    }
    mq_unlink(name);
    struct timespec t = spec(read_clock(CLOCK_REALTIME) + LIMIT);
    CHECK(mq_timedreceive(queue, message, sizeof message, NULL, &t) == -1 && errno == ETIMEDOUT);
    mq_close(queue);
}
static void receive_limit(void) {
    int ends[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct timeval t = {.tv_usec = LIMIT / 1000};
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0);
    CHECK(recv(ends[0], &byte, 1, 0) == -1 && errno == EAGAIN);
    close(ends[0]);
    close(ends[1]);
}
static void accept_limit(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(bind(fd, (struct sockaddr *)&any, sizeof any) == 0 && listen(fd, 1) == 0);
    struct timeval t = {.tv_usec = LIMIT / 1000};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0);
    CHECK(accept(fd, NULL, NULL) == -1 && errno == EAGAIN);
    close(fd);
}
static void send_limit(void) {
    int ends[2];
    static char much[1 << 16];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    while (send(ends[0], much, sizeof much, MSG_DONTWAIT) > 0) {
    }
    while (send(ends[0], much, 1, MSG_DONTWAIT) > 0) {
    }
    struct timeval t = {.tv_usec = LIMIT / 1000};
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t) == 0);
    CHECK(send(ends[0], much, sizeof much, 0) == -1 && errno == EAGAIN);
    close(ends[0]);
    close(ends[1]);
}
static void timerfd_limit(int flags, long long first, long long interval, uint64_t count) {
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec value = {.it_value = spec(first), .it_interval = spec(interval)};
    CHECK(timerfd_settime(fd, flags, &value, NULL) == 0);
    for (uint64_t seen = 0; seen < count;) {
        uint64_t more;
        CHECK(read(fd, &more, 8) == 8);
        seen += more;
    }
    close(fd);
}
static void timerfd_relative(void) { timerfd_limit(0, LIMIT, 0, 1); }
static void timerfd_absolute(void) {
    timerfd_limit(TFD_TIMER_ABSTIME, read_clock(CLOCK_MONOTONIC) + LIMIT, 0, 1);
}
static void timerfd_often(void) { timerfd_limit(0, LIMIT / 6, LIMIT / 6, 6); }
static void wait_for_signal(int number) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    CHECK(sigwaitinfo(&set, NULL) == number);
}
static void posix_timer(void) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec value = {.it_value = spec(LIMIT)};
    CHECK(timer_settime(timer, 0, &value, NULL) == 0);
    wait_for_signal(SIGRTMIN);
    timer_delete(timer);
}
static void interval_timer(void) {
    struct itimerval value = {.it_value.tv_usec = LIMIT / 1000};
    CHECK(setitimer(ITIMER_REAL, &value, NULL) == 0);
    wait_for_signal(SIGALRM);
}

static const struct {
    const char *name;
    void (*measure)(void);
} all[] = {
#define ONE(name) {#name, name}
    ONE(clocks_agree),   ONE(counter_agrees), ONE(sleep_relative),      ONE(sleep_clock),
    ONE(sleep_until),    ONE(sleep_until_real), ONE(poll_limit),        ONE(ppoll_limit),
    ONE(select_limit),   ONE(select_woken),   ONE(epoll_limit),         ONE(futex_limit),
    ONE(condition_monotonic), ONE(condition_real), ONE(semaphore_limit), ONE(lock_limit),
    ONE(signal_limit),   ONE(sysv_limit),     ONE(queue_limit),         ONE(receive_limit),
    ONE(accept_limit),   ONE(send_limit),     ONE(timerfd_relative),    ONE(timerfd_absolute),
    ONE(timerfd_often),  ONE(posix_timer),    ONE(interval_timer),
};
#define ALL (sizeof all / sizeof *all)

static void *measure(void *which) {
    size_t i = (size_t)which;
    for (int round = 0; round < rounds; round++) {
        long long before = read_clock(CLOCK_MONOTONIC);
        all[i].measure();
        long long way = read_clock(CLOCK_MONOTONIC) - before;
        /* Clocks are not all as fine as this one. */
        if (way < LIMIT - MS || way > LIMIT + SLACK) {
            fprintf(stderr, "%s: %lld us instead of %lld\n", all[i].name, way / 1000, LIMIT / 1000);
            _exit(1);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) rounds = atoi(argv[1]);
    alone = argc > 2 && strcmp(argv[2], "alone") == 0;
    if (argc > 2 && !alone) slack = atoll(argv[2]) * MS;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigaddset(&set, SIGALRM);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    hold();
    pthread_t threads[ALL];
    for (size_t i = 0; i < ALL; i++) CHECK(pthread_create(&threads[i], NULL, measure, (void *)i) == 0);
    for (size_t i = 0; i < ALL; i++) pthread_join(threads[i], NULL);
    printf("%zu kinds of time are as long as they should be\n", ALL);
    return 0;
}
