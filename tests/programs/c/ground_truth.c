// Messages over every kind of channel, each with a number of its own in every eight bytes of it, so
// that whoever reads the recording can tell from the bytes alone which send each receive is of.
//
// Usage: ground_truth [SEED]. What it does differs with the seed; what it prints does not.
#include "ground_truth.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <termios.h>

// Reads to the end, `odd`: in pieces of any size.
static unsigned read_all(int fd, int odd) {
    char buf[4096];
    unsigned total = 0;
    for (;;) {
        unsigned want = odd ? 1 + rnd(100) : CELL * (1 + rnd(20));
        ssize_t got = read(fd, buf, want);
        NEED(got >= 0);
        if (got == 0)
            return total;
        total += (unsigned)got;
        nap();
    }
}

// One pipe, several writers and, if even, several readers.
static void pipes(void) {
    int p[2], writers = 1 + (int)rnd(3), readers = 1 + (int)rnd(2);
    NEED(pipe(p) == 0);
    for (int i = 0; i < writers; i++)
        if (child(i) == 0) {
            close(p[0]);
            send_some(p[1], 20 + rnd(20), 30);
            _exit(0);
        }
    close(p[1]);
    if (readers == 2 && child(3) == 0) {
        read_all(p[0], 0);
        _exit(0);
    }
    read_all(p[0], readers == 1);
    reap(writers + readers - 1);
}

static void fifo(void) {
    char path[200];
    snprintf(path, sizeof path, "%s/fifo%u", dir, worker);
    NEED(mkfifo(path, 0600) == 0);
    for (int round = 0; round < 2; round++) {
        if (child(round) == 0) {
            int fd = open(path, O_WRONLY);
            NEED(fd >= 0);
            send_some(fd, 10 + rnd(10), 20);
            _exit(0);
        }
        int fd = open(path, O_RDONLY);
        NEED(fd >= 0);
        read_all(fd, 1);
        close(fd);
        reap(1);
    }
}

static void pairs(int type) {
    int s[2];
    NEED(socketpair(AF_UNIX, type, 0, s) == 0);
    if (child(0) == 0) {
        close(s[0]);
        send_some(s[1], 20 + rnd(20), 16);
        if (type == SOCK_STREAM) {
            shutdown(s[1], SHUT_WR);
            read_all(s[1], 1);
        } else {
            char buf[1024];
            for (int i = 0; i < 10; i++)
                NEED(recv(s[1], buf, sizeof buf, 0) > 0);
        }
        _exit(0);
    }
    close(s[1]);
    if (type == SOCK_STREAM) {
        char buf[200];
        // A look takes nothing.
        NEED(recv(s[0], buf, CELL, MSG_PEEK) == CELL);
        read_all(s[0], 1);
        send_some(s[0], 15, 16);
        shutdown(s[0], SHUT_WR);
    } else {
        send_some(s[0], 10, 16);
        char buf[1024];
        if (type == SOCK_SEQPACKET) {
            while (recv(s[0], buf, sizeof buf, 0) > 0)
                nap();
        } else {
            int status;
            NEED(wait(&status) > 0 && status == 0);
            while (recv(s[0], buf, sizeof buf, MSG_DONTWAIT) > 0)
                nap();
            return;
        }
    }
    reap(1);
}

static void serve(int fd) {
    // The first message of a connection tells whose it is.
    char buf[CELL];
    NEED(recv(fd, buf, CELL, MSG_WAITALL) == CELL);
    mark(20000000ul + (unsigned)atoi(buf + 1));
    read_all(fd, 1);
    send_some(fd, 3, 10);
    close(fd);
}

static void use_connection(int fd, unsigned id) {
    char buf[16];
    snprintf(buf, sizeof buf, "A%07u", id);
    NEED(send(fd, buf, CELL, 0) == CELL);
    send_some(fd, 3 + rnd(5), 20);
    shutdown(fd, SHUT_WR);
    read_all(fd, 1);
}

// Several processes accept from one listener; clients come from several, too.
static void listeners(int domain) {
    int listener = socket(domain, SOCK_STREAM, 0);
    struct sockaddr_storage address = {0};
    socklen_t len;
    if (domain == AF_UNIX) {
        struct sockaddr_un *un = (void *)&address;
        un->sun_family = AF_UNIX;
        snprintf(un->sun_path, sizeof un->sun_path, "%s/s%u", dir, worker);
        len = sizeof *un;
    } else {
        struct sockaddr_in *in = (void *)&address;
        in->sin_family = AF_INET;
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        len = sizeof *in;
    }
    NEED(bind(listener, (void *)&address, len) == 0);
    NEED(listen(listener, 50) == 0);
    len = sizeof address;
    NEED(getsockname(listener, (void *)&address, &len) == 0);
    int each = 4;
    for (int i = 0; i < 2; i++)
        if (child(i) == 0) {
            for (int n = 0; n < each; n++) {
                int fd = accept(listener, NULL, NULL);
                NEED(fd >= 0);
                serve(fd);
            }
            _exit(0);
        }
    for (int i = 0; i < 2; i++)
        if (child(2 + i) == 0) {
            struct sockaddr_in own = {.sin_family = AF_INET};
            own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            for (int n = 0; n < each; n++) {
                int fd = socket(domain, SOCK_STREAM, 0);
                int one = 1;
                if (domain == AF_INET && i == 0) {
                    // The same port, again and again.
                    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
                    struct linger hard = {.l_onoff = 1, .l_linger = 0};
                    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
                    NEED(bind(fd, (void *)&own, sizeof own) == 0);
                    socklen_t own_len = sizeof own;
                    NEED(getsockname(fd, (void *)&own, &own_len) == 0);
                }
                unsigned id = fresh();
                mark(10000000ul + id);
                NEED(connect(fd, (void *)&address, len) == 0);
                use_connection(fd, id);
                close(fd);
                nap();
            }
            _exit(0);
        }
    close(listener);
    reap(4);
}

static void datagrams(int domain) {
    int fd = socket(domain, SOCK_DGRAM, 0);
    struct sockaddr_storage address = {0};
    socklen_t len;
    if (domain == AF_UNIX) {
        struct sockaddr_un *un = (void *)&address;
        un->sun_family = AF_UNIX;
        snprintf(un->sun_path, sizeof un->sun_path, "%s/d%u", dir, worker);
        len = sizeof *un;
    } else {
        struct sockaddr_in *in = (void *)&address;
        in->sin_family = AF_INET;
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        len = sizeof *in;
    }
    NEED(bind(fd, (void *)&address, len) == 0);
    len = sizeof address;
    NEED(getsockname(fd, (void *)&address, &len) == 0);
    int senders = 2 + (int)rnd(2);
    for (int i = 0; i < senders; i++)
        if (child(i) == 0) {
            int own = socket(domain, SOCK_DGRAM, 0);
            if (i == 0)
                NEED(connect(own, (void *)&address, len) == 0);
            for (int n = 0; n < 15; n++) {
                char buf[40 * CELL];
                unsigned cells = 1 + rnd(40);
                fill(buf, cells);
                ssize_t sent = i == 0 ? send(own, buf, cells * CELL, 0)
                                      : sendto(own, buf, cells * CELL, 0, (void *)&address, len);
                NEED(sent == (ssize_t)(cells * CELL));
                if (domain == AF_INET && i == 1) {
                    char back[64];
                    NEED(recv(own, back, sizeof back, 0) > 0);
                }
                nap();
            }
            _exit(0);
        }
    char buf[1024];
    for (int n = 0; n < 15 * senders; n++) {
        struct sockaddr_storage from = {0};
        socklen_t from_len = sizeof from;
        NEED(recvfrom(fd, buf, sizeof buf, 0, (void *)&from, &from_len) > 0);
        // Worker 1 of this family waits for an answer.
        if (domain == AF_INET && (unsigned)atoi((buf[CELL] = 0, buf + 1)) / 4000 == worker * 4 + 1) {
            char answer[CELL];
            fill(answer, 1);
            NEED(sendto(fd, answer, CELL, 0, (void *)&from, from_len) == CELL);
        }
    }
    reap(senders);
}

// A pipe's end goes to somebody else by a message.
static void passed(void) {
    int s[2];
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    if (child(0) == 0) {
        close(s[0]);
        for (int n = 0; n < 3; n++) {
            char byte[CELL], control[CMSG_SPACE(sizeof(int))];
            struct iovec iov = {byte, CELL};
            struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
                                 .msg_controllen = sizeof control};
            NEED(recvmsg(s[1], &msg, 0) == CELL);
            int fd;
            memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof fd);
            read_all(fd, 1);
            close(fd);
        }
        _exit(0);
    }
    close(s[1]);
    for (int n = 0; n < 3; n++) {
        int p[2];
        NEED(pipe(p) == 0);
        char byte[CELL], control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec iov = {byte, CELL};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
        struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &p[0], sizeof(int));
        fill(byte, 1);
        if (rnd(2))
            send_some(p[1], 3, 10);
        NEED(sendmsg(s[0], &msg, rnd(2) ? MSG_DONTWAIT : 0) == CELL);
        close(p[0]);
        send_some(p[1], 3, 10);
        close(p[1]);
    }
    reap(1);
}

// Through a pipe in between, without passing through the program.
static void spliced(void) {
    int a[2], b[2];
    NEED(pipe(a) == 0 && pipe(b) == 0);
    if (child(0) == 0) {
        close(b[0]), close(b[1]), close(a[0]);
        send_some(a[1], 15, 20);
        _exit(0);
    }
    close(a[1]);
    if (child(1) == 0) {
        close(b[0]);
        while (splice(a[0], NULL, b[1], NULL, CELL * (1 + rnd(30)), 0) > 0)
            nap();
        _exit(0);
    }
    close(a[0]), close(b[1]);
    read_all(b[0], 1);
    reap(2);
}

static void terminal(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    NEED(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    char *name = ptsname(master);
    int keep = open(name, O_RDWR | O_NOCTTY);
    struct termios raw;
    NEED(keep >= 0 && tcgetattr(keep, &raw) == 0);
    cfmakeraw(&raw);
    NEED(tcsetattr(keep, TCSANOW, &raw) == 0);
    unsigned count = 10 + rnd(10);
    if (child(0) == 0) {
        int fd = open(name, O_RDWR | O_NOCTTY);
        NEED(fd >= 0);
        unsigned got = 0;
        char buf[CELL * 64];
        while (got < count * 2 * CELL) {
            ssize_t n = read(fd, buf, CELL * (1 + rnd(6)));
            NEED(n > 0);
            got += (unsigned)n;
        }
        for (unsigned i = 0; i < count; i++) {
            fill(buf, 2);
            NEED(write(fd, buf, 2 * CELL) == 2 * CELL);
        }
        _exit(0);
    }
    char buf[CELL * 64];
    for (unsigned i = 0; i < count; i++) {
        fill(buf, 2);
        NEED(write(master, buf, 2 * CELL) == 2 * CELL);
        nap();
    }
    unsigned got = 0;
    while (got < count * 2 * CELL) {
        ssize_t n = read(master, buf, CELL * (1 + rnd(6)));
        NEED(n > 0);
        got += (unsigned)n;
    }
    reap(1);
}

// Each write adds another bit: a sum tells what it is the sum of.
static void counters(void) {
    int fd = eventfd(0, 0);
    for (int i = 0; i < 2; i++)
        if (child(i) == 0) {
            for (int n = 0; n < 20; n++) {
                uint64_t bit = 1ull << (i * 20 + n);
                NEED(write(fd, &bit, 8) == 8);
                nap();
            }
            _exit(0);
        }
    uint64_t all = 0;
    while (all != (1ull << 40) - 1) {
        uint64_t sum;
        NEED(read(fd, &sum, 8) == 8);
        all |= sum;
        nap();
    }
    reap(2);
}

static void on_signal(int sig, siginfo_t *info, void *context) {
    (void)sig, (void)context;
    mark(20000000ul + (unsigned)info->si_value.sival_int);
}

// Queued signals with a number each, to a handler and to a descriptor.
static void signals(void) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    NEED(sigaction(SIGRTMIN + 1, &action, NULL) == 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 2);
    NEED(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    int fd = signalfd(-1, &set, 0);
    pid_t parent = getpid();
    if (child(0) == 0) {
        for (int n = 0; n < 10; n++) {
            unsigned id = fresh();
            union sigval value = {.sival_int = (int)id};
            mark(10000000ul + id);
            NEED(sigqueue(parent, SIGRTMIN + 1 + (int)rnd(2), value) == 0);
            nap();
        }
        union sigval last = {.sival_int = -1};
        NEED(sigqueue(parent, SIGRTMIN + 2, last) == 0);
        _exit(0);
    }
    for (;;) {
        struct signalfd_siginfo info;
        ssize_t got;
        do
            got = read(fd, &info, sizeof info);
        while (got < 0);
        if (info.ssi_int == -1)
            break;
        mark(30000000ul + (unsigned)info.ssi_int);
    }
    reap(1);
}

// A lock file: who has it leaves its number in it.
static void locks(void) {
    char path[200];
    snprintf(path, sizeof path, "%s/lock%u", dir, worker);
    int made = open(path, O_RDWR | O_CREAT, 0600);
    NEED(made >= 0);
    close(made);
    for (int i = 0; i < 3; i++)
        if (child(i) == 0) {
            int fd = open(path, O_RDWR);
            for (int n = 0; n < 8; n++) {
                unsigned before = 0;
                NEED(flock(fd, LOCK_EX) == 0);
                if (pread(fd, &before, 4, 0) == 4)
                    mark(20000000ul + before);
                unsigned id = fresh();
                NEED(pwrite(fd, &id, 4, 0) == 4);
                nap();
                mark(10000000ul + id);
                NEED(flock(fd, LOCK_UN) == 0);
                nap();
            }
            _exit(0);
        }
    reap(3);
}

// Turns over a futex in memory that two processes share.
static void futexes(void) {
    struct {
        unsigned turn, id;
    } *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(shared != MAP_FAILED);
    pid_t pid = child(0);
    unsigned own = pid == 0;
    for (unsigned n = 0; n < 12; n++) {
        while (__atomic_load_n(&shared->turn, __ATOMIC_ACQUIRE) % 2 != own) {
            unsigned seen = __atomic_load_n(&shared->turn, __ATOMIC_ACQUIRE);
            if (seen % 2 != own && syscall(SYS_futex, &shared->turn, FUTEX_WAIT, seen, NULL, NULL, 0) == 0)
                mark(20000000ul + shared->id);
        }
        usleep(200);
        shared->id = fresh();
        unsigned id = shared->id;
        __atomic_add_fetch(&shared->turn, 1, __ATOMIC_RELEASE);
        mark(10000000ul + id);
        syscall(SYS_futex, &shared->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    if (pid == 0)
        _exit(0);
    reap(1);
}

static void *reader(void *fd) {
    read_all(*(int *)fd, 0);
    return NULL;
}

// Threads that read from one socket.
static void threads(void) {
    int s[2];
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    if (child(0) == 0) {
        close(s[0]);
        send_some(s[1], 40, 20);
        _exit(0);
    }
    close(s[1]);
    pthread_t two[2];
    for (int i = 0; i < 2; i++)
        NEED(pthread_create(&two[i], NULL, reader, &s[0]) == 0);
    for (int i = 0; i < 2; i++)
        NEED(pthread_join(two[i], NULL) == 0);
    reap(1);
}

static void pair_stream(void) { pairs(SOCK_STREAM); }
static void pair_datagram(void) { pairs(SOCK_DGRAM); }
static void pair_packets(void) { pairs(SOCK_SEQPACKET); }
static void listen_unix(void) { listeners(AF_UNIX); }
static void listen_inet(void) { listeners(AF_INET); }
static void datagrams_unix(void) { datagrams(AF_UNIX); }
static void datagrams_inet(void) { datagrams(AF_INET); }

static void timers(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    for (int n = 0; n < 3; n++) {
        struct itimerspec soon = {.it_value = {0, 1000000}};
        uint64_t times;
        unsigned id = fresh();
        mark(10000000ul + id);
        NEED(timerfd_settime(fd, 0, &soon, NULL) == 0);
        NEED(read(fd, &times, 8) == 8);
        mark(20000000ul + id);
    }
}

int main(int argc, char **argv) {
    void (*all[])(void) = {pipes,       fifo,        pair_stream,    pair_datagram,  pair_packets,
                           listen_unix, listen_inet, datagrams_unix, datagrams_inet, passed,
                           spliced,     terminal,    counters,       signals,        locks,
                           futexes,     threads,     timers,         pipes,          pipes};
    return run_all(argc, argv, all, sizeof all / sizeof *all);
}
