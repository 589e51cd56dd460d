/* Covers: signals, counters and timers as descriptors: signalfd, eventfd (counter and semaphore),
 * timerfd (relative, absolute, repeating), pidfd, all of them in one epoll.
 *
 * Hard for a recorder: a signal is consumed by a read, so the signalfd needs the program's mask to
 * be the real one; eventfds wake threads of the same process, which must hand over the turn. */
#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

static void test_signalfd(void)
{
    sigset_t set, old;
    struct signalfd_siginfo info[4];
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    sigaddset(&set, SIGCHLD);
    OK(sigprocmask(SIG_BLOCK, &set, &old));
    int fd = OK(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    FAILS(read(fd, info, sizeof info), EAGAIN);

    OK(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 1}));
    OK(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 2}));
    OK(kill(getpid(), SIGUSR1));
    CHECK(read(fd, info, sizeof info) == 3 * (ssize_t)sizeof info[0]);
    CHECK(info[0].ssi_signo == SIGUSR1 && info[0].ssi_pid == (uint32_t)getpid());
    CHECK(info[1].ssi_signo == (uint32_t)SIGRTMIN && info[1].ssi_int == 1 && info[2].ssi_int == 2);

    pid_t pid = OK(fork());
    if (pid == 0)
        _exit(3);
    struct pollfd poll_fd = {fd, POLLIN, 0};
    CHECK(poll(&poll_fd, 1, -1) == 1 && poll_fd.revents == POLLIN);
    CHECK(read(fd, info, sizeof info) == sizeof info[0]);
    CHECK(info[0].ssi_signo == SIGCHLD && info[0].ssi_pid == (uint32_t)pid);
    CHECK(info[0].ssi_status == 3);
    EXITS(pid, 3);
    close(fd);
    OK(sigprocmask(SIG_SETMASK, &old, NULL));
    say("signalfd: 3 of our own, 1 from a child\n");
}

static void *add_later(void *fd)
{
    for (int i = 1; i <= 10; i++) {
        sleep_ms(1);
        OK(eventfd_write((int)(long)fd, i));
    }
    return NULL;
}

static void test_eventfd(void)
{
    eventfd_t value, sum = 0;
    int fd = OK(eventfd(3, EFD_NONBLOCK));
    OK(eventfd_write(fd, 4));
    OK(eventfd_read(fd, &value));
    CHECK(value == 7);
    FAILS(eventfd_read(fd, &value), EAGAIN);
    OK(eventfd_write(fd, UINT64_MAX - 1));
    FAILS(eventfd_write(fd, 1), EAGAIN);
    close(fd);

    fd = OK(eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK));
    for (int i = 0; i < 2; i++) {
        OK(eventfd_read(fd, &value));
        CHECK(value == 1);
    }
    FAILS(eventfd_read(fd, &value), EAGAIN);
    close(fd);

    pthread_t thread;
    fd = OK(eventfd(0, 0));
    ZERO(pthread_create(&thread, NULL, add_later, (void *)(long)fd));
    while (sum < 55) {
        OK(eventfd_read(fd, &value));
        sum += value;
    }
    ZERO(pthread_join(thread, NULL));
    close(fd);
    say("eventfd: sum %lu\n", sum);
}

static void test_timerfd(void)
{
    uint64_t expirations, total = 0;
    struct itimerspec once = {{0, 0}, {0, 5000000}}, every = {{0, 2000000}, {0, 2000000}}, now;
    int fd = OK(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    int64_t start = now_ns();
    OK(timerfd_settime(fd, 0, &once, NULL));
    CHECK(read(fd, &expirations, 8) == 8);
    int64_t took = now_ns() - start;
    if (expirations != 1 || took < 5000000)
        fprintf(stderr, "told %lu times after %ld ns\n", expirations, took);
    CHECK(expirations == 1 && took >= 5000000);

    OK(timerfd_settime(fd, 0, &every, NULL));
    while (total < 5) {
        CHECK(read(fd, &expirations, 8) == 8 && expirations >= 1);
        total += expirations;
    }
    OK(timerfd_gettime(fd, &now));
    CHECK(now.it_interval.tv_nsec == 2000000);

    clock_gettime(CLOCK_MONOTONIC, &once.it_value);
    OK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &once, NULL));
    CHECK(read(fd, &expirations, 8) == 8 && expirations == 1);
    close(fd);
    say("timerfd: relative, repeating, absolute\n");
}

/* Everything at once: an event loop that ends when the child, the timer and the counter have all
 * been heard of. */
static void test_all_in_epoll(void)
{
    int gate[2], seen = 0;
    OK(pipe(gate));
    pid_t pid = OK(fork());
    if (pid == 0) {
        char byte;
        read_all(gate[0], &byte, 1);
        _exit(0);
    }
    struct itimerspec once = {{0, 0}, {0, 3000000}};
    int fds[3] = {OK(syscall(SYS_pidfd_open, pid, 0)), OK(timerfd_create(CLOCK_MONOTONIC, 0)),
                  OK(eventfd(0, 0))};
    int epoll = OK(epoll_create1(EPOLL_CLOEXEC));
    for (int i = 0; i < 3; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = 1u << i};
        OK(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event));
    }
    OK(timerfd_settime(fds[1], 0, &once, NULL));
    while (seen != 7) {
        struct epoll_event events[3];
        int n = OK(epoll_wait(epoll, events, 3, -1));
        for (int i = 0; i < n; i++)
            seen |= events[i].data.u32;
        if (seen == 2)
            OK(eventfd_write(fds[2], 1));
        if (seen == 6)
            write_all(gate[1], "x", 1);
    }
    EXITS(pid, 0);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    close(epoll);
    close(gate[0]);
    close(gate[1]);
    say("epoll: timer, counter, child\n");
}

int main(void)
{
    test_signalfd();
    test_eventfd();
    test_timerfd();
    test_all_in_epoll();
    return 0;
}
