/* Covers: waiting for several descriptors in every way: epoll (level, edge, one shot, nested,
 * epoll_pwait and epoll_pwait2), poll, ppoll, select, pselect; with timeouts, with signal masks,
 * with a wake-up from another thread.
 *
 * Hard for a recorder: the kernel fills arrays and bit sets in place and returns user data that the
 * program chose; the masked variants change the signal mask for the length of the call only, and
 * the handler must run at exactly its end. */
#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>

static volatile int signals;

static void count_signal(int sig)
{
    (void)sig;
    signals++;
}

static void put(int fd)
{
    write_all(fd, "x", 1);
}

static void take(int fd)
{
    char byte;
    read_all(fd, &byte, 1);
}

static void add(int epoll, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    OK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
}

static void test_epoll(void)
{
    int level[2], edge[2], once[2];
    struct epoll_event got[8];
    OK(pipe(level));
    OK(pipe(edge));
    OK(pipe(once));
    int epoll = OK(epoll_create1(EPOLL_CLOEXEC));
    CHECK(epoll_wait(epoll, got, 8, 0) == 0);
    add(epoll, level[0], EPOLLIN, UINT64_C(0x1111222233334444));
    add(epoll, edge[0], EPOLLIN | EPOLLET, 2);
    add(epoll, once[0], EPOLLIN | EPOLLONESHOT, 3);
    struct epoll_event again = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 33};
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, once[0], &again), EEXIST);

    put(level[1]);
    for (int i = 0; i < 2; i++)
        CHECK(epoll_wait(epoll, got, 8, -1) == 1 && got[0].data.u64 == UINT64_C(0x1111222233334444));
    take(level[0]);

    put(edge[1]);
    CHECK(epoll_wait(epoll, got, 8, -1) == 1 && got[0].data.u64 == 2);
    CHECK(epoll_wait(epoll, got, 8, 0) == 0);
    put(edge[1]);
    CHECK(epoll_wait(epoll, got, 8, -1) == 1 && got[0].data.u64 == 2);
    take(edge[0]);
    take(edge[0]);

    put(once[1]);
    CHECK(epoll_wait(epoll, got, 8, -1) == 1 && got[0].data.u64 == 3);
    put(once[1]);
    CHECK(epoll_wait(epoll, got, 8, 0) == 0);
    OK(epoll_ctl(epoll, EPOLL_CTL_MOD, once[0], &again));
    CHECK(epoll_wait(epoll, got, 8, -1) == 1 && got[0].data.u64 == 33);

    /* An epoll inside another; the end of the stream. */
    int outer = OK(epoll_create1(0));
    add(outer, epoll, EPOLLIN, 99);
    CHECK(epoll_wait(outer, got, 8, 0) == 0);
    close(level[1]);
    CHECK(epoll_wait(outer, got, 8, -1) == 1 && got[0].data.u64 == 99);
    CHECK(epoll_wait(epoll, got, 8, -1) == 1 && got[0].events == EPOLLHUP);
    OK(epoll_ctl(epoll, EPOLL_CTL_DEL, level[0], NULL));
    FAILS(epoll_ctl(epoll, EPOLL_CTL_DEL, level[0], NULL), ENOENT);
    int64_t start = now_ns();
    CHECK(epoll_wait(epoll, got, 8, 5) == 0 && now_ns() - start >= 4900000);
    int all[] = {level[0], edge[0], edge[1], once[0], once[1], outer, epoll};
    for (int i = 0; i < 7; i++)
        close(all[i]);
    say("epoll: level, edge, one shot, nested\n");
}

static void test_poll_and_select(void)
{
    int one[2], two[2];
    OK(pipe(one));
    OK(pipe(two));
    put(two[1]);
    struct pollfd fds[] = {{one[0], POLLIN, 7}, {-1, POLLIN, 7}, {two[0], POLLIN | POLLPRI, 7},
                           {one[1], POLLOUT, 7}, {999, POLLIN, 7}};
    CHECK(poll(fds, 5, -1) == 3);
    CHECK(fds[0].revents == 0 && fds[1].revents == 0 && fds[2].revents == POLLIN);
    CHECK(fds[3].revents == POLLOUT && fds[4].revents == POLLNVAL);
    struct timespec short_time = {0, 5000000};
    CHECK(poll(fds, 1, 5) == 0 && ppoll(fds, 1, &short_time, NULL) == 0);

    fd_set in, out, bad;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&bad);
    FD_SET(one[0], &in);
    FD_SET(two[0], &in);
    FD_SET(one[1], &out);
    FD_SET(two[0], &bad);
    struct timeval limit = {5, 0};
    CHECK(select(two[1] + 1, &in, &out, &bad, &limit) == 2);
    CHECK(!FD_ISSET(one[0], &in) && FD_ISSET(two[0], &in) && FD_ISSET(one[1], &out));
    CHECK(!FD_ISSET(two[0], &bad) && limit.tv_sec >= 4);
    FD_ZERO(&in);
    FD_SET(one[0], &in);
    limit = (struct timeval){0, 5000};
    CHECK(select(one[0] + 1, &in, NULL, NULL, &limit) == 0);
    CHECK(!FD_ISSET(one[0], &in) && limit.tv_sec == 0 && limit.tv_usec == 0);
    FD_SET(50, &in);
    FAILS(select(51, &in, NULL, NULL, NULL), EBADF);
    for (int i = 0; i < 2; i++) {
        close(one[i]);
        close(two[i]);
    }
    say("poll and select: ready, not ready, invalid, too late\n");
}

static int64_t masked_wait(int kind, int fd, const sigset_t *mask)
{
    struct timespec limit = {10, 0};
    struct pollfd wait = {fd, POLLIN, 0};
    struct epoll_event event;
    fd_set set;
    int epoll, result;
    switch (kind) {
    case 0:
        return ppoll(&wait, 1, &limit, mask);
    case 1:
        FD_ZERO(&set);
        FD_SET(fd, &set);
        return pselect(fd + 1, &set, NULL, NULL, &limit, mask);
    default:
        epoll = OK(epoll_create1(0));
        add(epoll, fd, EPOLLIN, 0);
        result = kind == 2 ? epoll_pwait(epoll, &event, 1, 10000, mask)
                           : syscall(SYS_epoll_pwait2, epoll, &event, 1, &limit, mask, _NSIG / 8);
        int error = errno;
        close(epoll);
        errno = error;
        return result;
    }
}

/* A signal blocked outside the call and let in by it: pending before, or sent meanwhile. */
static void test_masks(void)
{
    struct sigaction action = {.sa_handler = count_signal};
    sigset_t block, open;
    int fds[2];
    OK(sigaction(SIGUSR1, &action, NULL));
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    OK(sigprocmask(SIG_BLOCK, &block, &open));
    OK(pipe(fds));
    for (int kind = 0; kind < 4; kind++) {
        signals = 0;
        OK(raise(SIGUSR1));
        CHECK(signals == 0);
        FAILS(masked_wait(kind, fds[0], &open), EINTR);
        CHECK(signals == 1);

        pid_t pid = OK(fork());
        if (pid == 0) {
            sleep_ms(5);
            OK(kill(getppid(), SIGUSR1));
            _exit(0);
        }
        FAILS(masked_wait(kind, fds[0], &open), EINTR);
        CHECK(signals == 2);
        EXITS(pid, 0);

        /* Ready already: the pending signal stays pending, behind the mask. */
        put(fds[1]);
        CHECK(masked_wait(kind, fds[0], &block) == 1 && signals == 2);
        take(fds[0]);
    }
    OK(sigprocmask(SIG_SETMASK, &open, NULL));
    close(fds[0]);
    close(fds[1]);
    say("masks: ppoll, pselect, epoll_pwait, epoll_pwait2\n");
}

static int to_main[2], to_thread[2];

static void *answer(void *epoll)
{
    for (int i = 0; i < 50; i++) {
        struct epoll_event event;
        CHECK(epoll_wait((int)(long)epoll, &event, 1, -1) == 1);
        take(to_thread[0]);
        put(to_main[1]);
    }
    return NULL;
}

static void test_threads(void)
{
    pthread_t thread;
    int epoll = OK(epoll_create1(0)), rounds = 0;
    OK(pipe(to_main));
    OK(pipe(to_thread));
    ZERO(pthread_create(&thread, NULL, answer, (void *)(long)epoll));
    sleep_ms(2);
    /* Added while the other thread already waits. */
    add(epoll, to_thread[0], EPOLLIN, 0);
    for (; rounds < 50; rounds++) {
        struct pollfd wait = {to_main[0], POLLIN, 0};
        put(to_thread[1]);
        CHECK(poll(&wait, 1, -1) == 1);
        take(to_main[0]);
    }
    ZERO(pthread_join(thread, NULL));
    say("threads: %d rounds\n", rounds);
}

int main(void)
{
    test_epoll();
    test_poll_and_select();
    test_masks();
    test_threads();
    return 0;
}
