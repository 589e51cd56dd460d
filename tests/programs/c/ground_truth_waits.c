// Waits of every kind whose cause is known: for several descriptors at once, for queues, semaphores,
// locks on parts of files, signals one at a time, the end of what somebody sends.
//
// Usage: ground_truth_waits [SEED]. What it does differs with the seed; what it prints does not. How
// causes and effects are told is in ground_truth.h. Whoever waits for several descriptors takes
// something from each that was ready before it waits again: what it took first is what made it ready.
#include "ground_truth.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <termios.h>

// Waits for any of `count` descriptors, by whatever call; which were ready, as bits.
static unsigned wait_for(int how, int epoll, const int *fds, int count) {
    unsigned ready = 0;
    if (how == 0) {
        struct pollfd list[8] = {{0}};
        for (int i = 0; i < count; i++)
            list[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
        NEED(poll(list, (nfds_t)count, -1) > 0);
        for (int i = 0; i < count; i++)
            ready |= (list[i].revents ? 1u : 0) << i;
    } else if (how == 1) {
        fd_set set;
        FD_ZERO(&set);
        int most = 0;
        for (int i = 0; i < count; i++)
            if (fds[i] >= 0) {
                FD_SET(fds[i], &set);
                most = fds[i] > most ? fds[i] : most;
            }
        NEED(select(most + 1, &set, NULL, NULL, NULL) > 0);
        for (int i = 0; i < count; i++)
            ready |= (fds[i] >= 0 && FD_ISSET(fds[i], &set) ? 1u : 0) << i;
    } else {
        struct epoll_event events[8];
        int got = epoll_wait(epoll, events, 8, -1);
        NEED(got > 0);
        for (int i = 0; i < got; i++)
            ready |= 1u << (events[i].data.u64 - 0x500000000ull);
    }
    return ready;
}

// Reads from several at once, until all are at their end.
static void read_from(int *fds, int count) {
    int how = (int)rnd(3), left = count, epoll = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        // A name that is not the descriptor's number.
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0x500000000ull + (unsigned)i};
        NEED(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event) == 0);
    }
    while (left > 0) {
        unsigned ready = wait_for(how, epoll, fds, count);
        for (int i = 0; i < count; i++) {
            char buf[1024];
            if (!(ready >> i & 1))
                continue;
            ssize_t got = read(fds[i], buf, CELL * (1 + rnd(20)));
            NEED(got >= 0);
            if (got == 0) {
                NEED(epoll_ctl(epoll, EPOLL_CTL_DEL, fds[i], NULL) == 0);
                close(fds[i]);
                fds[i] = -1;
                left--;
            }
        }
        nap();
    }
    close(epoll);
}

static void several(void) {
    int ends[3];
    for (int i = 0; i < 3; i++) {
        int p[2];
        NEED((i == 1 ? socketpair(AF_UNIX, SOCK_STREAM, 0, p) : pipe(p)) == 0);
        if (child((unsigned)i) == 0) {
            close(p[0]);
            for (int other = 0; other < i; other++)
                close(ends[other]);
            send_some(p[1], 15, 10);
            close(p[1]);
            _exit(0);
        }
        close(p[1]);
        ends[i] = p[0];
    }
    read_from(ends, 3);
    reap(3);
}

// The last message tells which close comes after it.
static void endings(void) {
    for (int round = 0; round < 6; round++) {
        int p[2], go[2];
        NEED((round % 2 ? socketpair(AF_UNIX, SOCK_STREAM, 0, p) : pipe(p)) == 0);
        NEED(pipe(go) == 0);
        if (child((unsigned)round % 4) == 0) {
            char buf[CELL];
            close(p[0]);
            // Nobody else has that end any more.
            NEED(read(go[0], buf, 1) == 1);
            worker = worker * 8 + (unsigned)round;
            send_some(p[1], rnd(4), 4);
            unsigned id = fill(buf, 1);
            NEED(write(p[1], buf, CELL) == CELL);
            nap();
            mark(10000000ul + id);
            if (round % 2 && rnd(2))
                shutdown(p[1], SHUT_WR);
            else if (rnd(2))
                close(p[1]);
            _exit(0);
        }
        close(p[1]);
        NEED(write(go[1], ".", 1) == 1);
        close(go[0]), close(go[1]);
        char buf[CELL + 1] = "";
        for (;;) {
            ssize_t got = read(p[0], buf, CELL);
            NEED(got == CELL || got == 0);
            if (got == 0)
                break;
        }
        mark(20000000ul + (unsigned)atoi(buf + 1));
        close(p[0]);
        reap(1);
    }
}

// A connection that is waited for, on both sides.
static void connections(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    NEED(bind(listener, (void *)&address, len) == 0);
    unsigned open = fresh();
    mark(10000000ul + open);
    NEED(listen(listener, 10) == 0);
    NEED(getsockname(listener, (void *)&address, &len) == 0);
    if (child(0) == 0) {
        close(listener);
        for (int n = 0; n < 8; n++) {
            int fd = socket(AF_INET, SOCK_STREAM | (n % 2 ? SOCK_NONBLOCK : 0), 0);
            unsigned id = fresh();
            char buf[16];
            mark(10000000ul + id);
            int got = connect(fd, (void *)&address, len);
            if (got != 0) {
                NEED(errno == EINPROGRESS);
                struct pollfd one = {.fd = fd, .events = POLLOUT};
                NEED(poll(&one, 1, -1) == 1);
            }
            mark(20000000ul + open);
            snprintf(buf, sizeof buf, "A%07u", id);
            NEED(send(fd, buf, CELL, 0) == CELL);
            close(fd);
            nap();
        }
        _exit(0);
    }
    for (int n = 0; n < 8; n++) {
        char buf[CELL + 1] = "";
        wait_for((int)rnd(2), -1, &listener, 1);
        int fd = accept(listener, NULL, NULL);
        NEED(fd >= 0 && recv(fd, buf, CELL, MSG_WAITALL) == CELL);
        mark(20000000ul + (unsigned)atoi(buf + 1));
        close(fd);
    }
    reap(1);
}

static void datagrams(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), packets[2];
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    NEED(bind(fd, (void *)&address, len) == 0);
    NEED(getsockname(fd, (void *)&address, &len) == 0);
    NEED(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets) == 0);
    for (unsigned i = 0; i < 2; i++)
        if (child(i) == 0) {
            int own = socket(AF_INET, SOCK_DGRAM, 0);
            close(packets[0]);
            for (int n = 0; n < 12; n++) {
                char buf[20 * CELL];
                unsigned cells = 1 + rnd(20);
                fill(buf, cells);
                if (i == 0)
                    NEED(sendto(own, buf, cells * CELL, 0, (void *)&address, len) > 0);
                else
                    NEED(send(packets[1], buf, cells * CELL, 0) > 0);
                nap();
            }
            _exit(0);
        }
    close(packets[1]);
    int fds[2] = {fd, packets[0]}, how = (int)rnd(2), left = 24;
    while (left > 0) {
        unsigned ready = wait_for(how, -1, fds, 2);
        for (int i = 0; i < 2; i++)
            if (ready >> i & 1) {
                char buf[1024];
                ssize_t got = recv(fds[i], buf, sizeof buf, 0);
                NEED(got >= 0);
                if (got == 0)
                    fds[i] = -1;
                else
                    left--;
            }
        nap();
    }
    reap(2);
}

// An eventfd with one writer, a timer and signals, all waited for.
static void descriptors(void) {
    int count = eventfd(0, 0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 3);
    NEED(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    int signals = signalfd(-1, &set, 0);
    pid_t parent = getpid();
    // Bits of its own, as there are two of this kind.
    unsigned shift = worker % 2 * 10;
    if (child(0) == 0) {
        for (unsigned n = 0; n < 10; n++) {
            uint64_t bit = 1ull << (shift + n);
            NEED(write(count, &bit, 8) == 8);
            nap();
            unsigned id = fresh();
            union sigval value = {.sival_int = (int)id};
            mark(10000000ul + id);
            NEED(sigqueue(parent, SIGRTMIN + 3, value) == 0);
            nap();
        }
        _exit(0);
    }
    int how = (int)rnd(2), told = 0, due = 0;
    uint64_t all = 0;
    unsigned set_by = fresh();
    struct itimerspec soon = {.it_value = {0, 2000000}};
    mark(10000000ul + set_by);
    NEED(timerfd_settime(timer, 0, &soon, NULL) == 0);
    while (all != 1023ull << shift || told < 10 || !due) {
        int fds[3] = {count, timer, signals};
        unsigned ready = wait_for(how, -1, fds, 3);
        uint64_t got;
        if (ready & 1) {
            NEED(read(count, &got, 8) == 8);
            all |= got;
        }
        if (ready & 2) {
            NEED(read(timer, &got, 8) == 8);
            mark(20000000ul + set_by);
            due = 1;
        }
        if (ready & 4) {
            struct signalfd_siginfo info;
            NEED(read(signals, &info, sizeof info) == sizeof info);
            mark(20000000ul + (unsigned)info.ssi_int);
            told++;
        }
    }
    reap(1);
}

// The end of a child, seen by its descriptor.
static void ends(void) {
    for (int n = 0; n < 3; n++) {
        pid_t pid = child((unsigned)n);
        if (pid == 0) {
            usleep(rnd(2000));
            _exit(0);
        }
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (fd < 0) {
            NEED(errno == ENOSYS);
        } else {
            struct pollfd one = {.fd = fd, .events = POLLIN};
            NEED(poll(&one, 1, -1) == 1);
            close(fd);
        }
        reap(1);
    }
}

static void terminal(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    NEED(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int keep = open(ptsname(master), O_RDWR | O_NOCTTY);
    struct termios raw;
    NEED(keep >= 0 && tcgetattr(keep, &raw) == 0);
    cfmakeraw(&raw);
    NEED(tcsetattr(keep, TCSANOW, &raw) == 0);
    if (child(0) == 0) {
        char buf[CELL];
        for (int n = 0; n < 10; n++) {
            fill(buf, 1);
            NEED(write(keep, buf, CELL) == CELL);
            nap();
        }
        _exit(0);
    }
    for (int got = 0; got < 10;) {
        char buf[CELL];
        wait_for(got % 2, -1, &master, 1);
        NEED(read(master, buf, CELL) == CELL);
        got++;
    }
    reap(1);
}

struct message {
    long type;
    char text[20 * CELL];
};

// System V: two who send, two who receive, each another type.
static void queue(void) {
    int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    NEED(id >= 0);
    for (unsigned i = 0; i < 2; i++)
        if (child(i) == 0) {
            for (int n = 0; n < 20; n++) {
                struct message message = {.type = 1 + (long)rnd(2)};
                unsigned cells = 1 + rnd(20);
                fill(message.text, cells);
                if (n == 18)
                    message.type = 1;
                NEED(msgsnd(id, &message, cells * CELL, 0) == 0);
                nap();
            }
            _exit(0);
        }
    struct message message;
    for (int got = 0; got < 40; got++)
        NEED(msgrcv(id, &message, sizeof message.text, rnd(3) == 0 ? 0 : -2, 0) > 0);
    reap(2);
    NEED(msgctl(id, IPC_RMID, NULL) == 0);
}

// POSIX: what is urgent goes first.
static void posix_queue(void) {
    char name[64], buf[20 * CELL];
    struct mq_attr attributes = {.mq_maxmsg = 8, .mq_msgsize = sizeof buf};
    snprintf(name, sizeof name, "/mw-truth.%d", (int)getpid());
    mqd_t own = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &attributes);
    NEED(own != (mqd_t)-1);
    for (unsigned i = 0; i < 2; i++)
        if (child(i) == 0) {
            mqd_t other = i ? own : mq_open(name, O_WRONLY);
            NEED(other != (mqd_t)-1);
            for (int n = 0; n < 15; n++) {
                unsigned cells = 1 + rnd(20);
                fill(buf, cells);
                NEED(mq_send(other, buf, cells * CELL, rnd(3)) == 0);
                nap();
            }
            _exit(0);
        }
    for (int got = 0; got < 30; got++)
        NEED(mq_receive(own, buf, sizeof buf, NULL) > 0);
    reap(2);
    NEED(mq_unlink(name) == 0);
}

// To and fro over two semaphores.
static void semaphores(void) {
    unsigned *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(shared != MAP_FAILED);
    int id = semget(IPC_PRIVATE, 2, IPC_CREAT | 0600);
    NEED(id >= 0);
    pid_t pid = child(0);
    unsigned own = pid == 0;
    for (int n = 0; n < 12; n++) {
        struct sembuf down = {.sem_num = (unsigned short)own, .sem_op = -1};
        struct sembuf up = {.sem_num = (unsigned short)!own, .sem_op = 1};
        if (n > 0 || own) {
            NEED(semop(id, &down, 1) == 0);
            mark(20000000ul + shared[own]);
        }
        shared[!own] = fresh();
        nap();
        mark(10000000ul + shared[!own]);
        NEED(semop(id, &up, 1) == 0);
    }
    if (pid == 0)
        _exit(0);
    reap(1);
    NEED(semctl(id, 0, IPC_RMID) == 0);
}

// Locks on part of a file: of a process, or of an open file.
static void locks(int command) {
    char path[200];
    snprintf(path, sizeof path, "%s/lock%u", dir, worker);
    int made = open(path, O_RDWR | O_CREAT, 0600);
    NEED(made >= 0);
    close(made);
    for (unsigned i = 0; i < 3; i++)
        if (child(i) == 0) {
            int fd = open(path, O_RDWR);
            for (int n = 0; n < 8; n++) {
                unsigned before = 0;
                struct flock part = {.l_type = F_WRLCK, .l_start = 100, .l_len = 10};
                NEED(fcntl(fd, command, &part) == 0);
                if (pread(fd, &before, 4, 0) == 4)
                    mark(20000000ul + before);
                unsigned id = fresh();
                NEED(pwrite(fd, &id, 4, 0) == 4);
                nap();
                mark(10000000ul + id);
                part.l_type = F_UNLCK;
                NEED(fcntl(fd, command, &part) == 0);
                nap();
            }
            _exit(0);
        }
    reap(3);
}

static void locks_of_process(void) { locks(F_SETLKW); }
static void locks_of_file(void) { locks(F_OFD_SETLKW); }

static unsigned *told;

static void on_signal(int sig) {
    (void)sig;
    mark(20000000ul + *told);
}

// Signals that are not queued, one at a time: to a process and to a thread.
static void kills(void) {
    told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(told != MAP_FAILED);
    NEED(signal(SIGUSR1, on_signal) != SIG_ERR);
    pid_t parent = getpid();
    int p[2];
    NEED(pipe(p) == 0);
    if (child(0) == 0) {
        for (int n = 0; n < 10; n++) {
            char byte;
            NEED(read(p[0], &byte, 1) == 1);
            *told = fresh();
            unsigned id = *told;
            mark(10000000ul + id);
            if (n % 2)
                NEED(kill(parent, SIGUSR1) == 0);
            else
                NEED(syscall(SYS_tgkill, parent, parent, SIGUSR1) == 0);
        }
        _exit(0);
    }
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    NEED(sigprocmask(SIG_BLOCK, &set, &old) == 0);
    for (int n = 0; n < 10; n++) {
        NEED(write(p[1], ".", 1) == 1);
        sigsuspend(&old);
    }
    reap(1);
}

static void *wanderer(void *fd) {
    char buf[CELL];
    fill(buf, 1);
    NEED(write(*(int *)fd, buf, CELL) == CELL);
    return NULL;
}

// Threads that come and go, and one program that starts another.
static void lives(void) {
    int p[2];
    NEED(pipe(p) == 0);
    for (int n = 0; n < 4; n++) {
        pthread_t thread;
        char buf[CELL];
        NEED(pthread_create(&thread, NULL, wanderer, &p[1]) == 0);
        NEED(read(p[0], buf, CELL) == CELL);
        NEED(pthread_join(thread, NULL) == 0);
    }
    NEED(system("true") == 0);
}

int main(int argc, char **argv) {
    void (*all[])(void) = {several,     several,          several,       endings,  connections,
                           datagrams,   descriptors,      ends,          terminal, queue,
                           posix_queue, semaphores,       locks_of_process, locks_of_file, kills,
                           lives,       connections,      descriptors};
    return run_all(argc, argv, all, sizeof all / sizeof *all);
}
