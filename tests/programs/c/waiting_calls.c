/* Covers: calls that wait until another thread of the same process does something. Each is made by a
 * thread that can only go on because the first thread is still able to run.
 *
 * Hard for a recorder: one that lets a single thread run at a time must never let it wait for the
 * others, whatever the call and however large what it asks for. */
#include "check.h"
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define LARGE (4 << 20)

static int ends[2], sockets[2], queue, file, lingering, peer;
static const char *path;

/* Longer than any lock of the kernel's, shorter than any time limit of its. */
static void wait_a_little(void)
{
    sleep_ms(30);
}

static void *receive_many(void *unused)
{
    static char data[64][2000];
    struct mmsghdr messages[64];
    struct iovec pieces[64];
    struct sockaddr_storage names[64];
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < 64; i++) {
        pieces[i] = (struct iovec){data[i], sizeof data[i]};
        messages[i].msg_hdr = (struct msghdr){.msg_name = &names[i],
                                              .msg_namelen = sizeof names[i],
                                              .msg_iov = &pieces[i],
                                              .msg_iovlen = 1};
    }
    int got = OK(recvmmsg(sockets[0], messages, 64, MSG_WAITFORONE, NULL));
    CHECK(got >= 1 && messages[0].msg_len == 5 && memcmp(data[0], "first", 5) == 0);
    if (got == 1)
        OK(recvmmsg(sockets[0], messages + 1, 63, MSG_WAITFORONE, NULL));
    CHECK(messages[1].msg_len == 6 && memcmp(data[1], "second", 6) == 0);
    return unused;
}

/* More room than a recorder would like to have. */
static void *receive_with_room(void *unused)
{
    enum { COUNT = 512, EACH = 65536 };
    char *data = mmap(NULL, COUNT * EACH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct mmsghdr *messages = calloc(COUNT, sizeof *messages);
    struct iovec *pieces = calloc(COUNT, sizeof *pieces);
    CHECK(data != MAP_FAILED && messages && pieces);
    for (int i = 0; i < COUNT; i++) {
        pieces[i] = (struct iovec){data + i * EACH, EACH};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &pieces[i], .msg_iovlen = 1};
    }
    struct timespec limit = {20, 0};
    int got = OK(recvmmsg(sockets[0], messages, COUNT, MSG_WAITFORONE, &limit));
    CHECK(got >= 1 && messages[0].msg_len == 5 && memcmp(data, "first", 5) == 0);
    if (got == 1)
        CHECK(recv(sockets[0], data, 64, 0) == 6);
    OK(munmap(data, COUNT * EACH));
    free(messages);
    free(pieces);
    return unused;
}

static void send_two(void)
{
    CHECK(send(sockets[1], "first", 5, 0) == 5);
    CHECK(send(sockets[1], "second", 6, 0) == 6);
}

static void *wait_for_many_events(void *unused)
{
    int set = OK(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 7};
    OK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
    struct epoll_event *events = calloc(200000, sizeof *events);
    CHECK(events && epoll_wait(set, events, 200000, 20000) == 1 && events[0].data.u64 == 7);
    free(events);
    close(set);
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1);
    return unused;
}

/* As many descriptors as the limit allows; only the last is one. */
static void *poll_many(void *unused)
{
    struct rlimit limit;
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    size_t count = limit.rlim_cur < 200000 ? limit.rlim_cur : 200000;
    struct pollfd *all = calloc(count, sizeof *all);
    CHECK(all);
    for (size_t i = 0; i + 1 < count; i++)
        all[i].fd = -1;
    all[count - 1] = (struct pollfd){.fd = ends[0], .events = POLLIN};
    CHECK(poll(all, count, 20000) == 1 && all[count - 1].revents == POLLIN);
    free(all);
    char byte;
    CHECK(read(ends[0], &byte, 1) == 1);
    return unused;
}

static void *receive_from_queue(void *unused)
{
    struct {
        long type;
        char text[LARGE];
    } *message = malloc(sizeof *message);
    CHECK(message && msgrcv(queue, message, LARGE, 0, 0) == 4);
    CHECK(message->type == 3 && memcmp(message->text, "text", 4) == 0);
    free(message);
    return unused;
}

/* The descriptor did not wait when it was last asked. */
static void *read_a_copy(void *unused)
{
    int copy = OK(dup(ends[0]));
    char byte;
    OK(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    FAILS(read(copy, &byte, 1), EAGAIN);
    OK(fcntl(ends[0], F_SETFL, 0));
    CHECK(read(copy, &byte, 1) == 1);
    close(copy);
    return unused;
}

/* At the place where the descriptor stands, as read does. */
static void *read_vector(void *unused)
{
    char byte;
    struct iovec piece = {&byte, 1};
    CHECK(preadv2(ends[0], &piece, 1, -1, 0) == 1);
    return unused;
}

/* Waits for who has a lease on the file. */
static void *cut_file(void *unused)
{
    OK(truncate(path, 1));
    return unused;
}

/* Waits until what was sent has been taken. */
static void *close_slowly(void *unused)
{
    int64_t begun = now_ns();
    OK(close(lingering));
    CHECK(now_ns() - begun < 8000000000);
    return unused;
}

/* The same, by taking its place. */
static void *replace_slowly(void *unused)
{
    int64_t begun = now_ns();
    OK(dup2(ends[0], lingering));
    CHECK(now_ns() - begun < 8000000000);
    OK(close(lingering));
    return unused;
}

/* The same, with others. */
static void *close_all_slowly(void *unused)
{
    int64_t begun = now_ns();
    OK(close_range(lingering, lingering, 0));
    CHECK(now_ns() - begun < 8000000000);
    return unused;
}

static void while_waiting(void *(*call)(void *), void (*act)(void))
{
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, call, NULL));
    wait_a_little();
    act();
    ZERO(pthread_join(thread, NULL));
}

static void write_byte(void)
{
    CHECK(write(ends[1], "x", 1) == 1);
}

static void send_to_queue(void)
{
    struct {
        long type;
        char text[4];
    } message = {3, "text"};
    OK(msgsnd(queue, &message, 4, 0));
}

static void end_lease(void)
{
    OK(fcntl(file, F_SETLEASE, F_UNLCK));
}

static void take_all(void)
{
    static char data[65536];
    while (OK(recv(peer, data, sizeof data, 0)) > 0)
        ;
}

static void leases(void)
{
    make_temp_dir("waiting");
    path = temp_file("leased");
    file = OK(open(path, O_RDWR | O_CREAT, 0600));
    CHECK(write(file, "text", 4) == 4);
    OK(close(file));
    file = OK(open(path, O_RDONLY));
    signal(SIGIO, SIG_IGN);
    /* Some file systems have none. */
    if (fcntl(file, F_SETLEASE, F_RDLCK) == 0)
        while_waiting(cut_file, end_lease);
    close(file);
    remove_temp_dir();
}

static void linger(void *(*end)(void *))
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof name;
    int listener = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(bind(listener, (struct sockaddr *)&name, size));
    OK(listen(listener, 1));
    OK(getsockname(listener, (struct sockaddr *)&name, &size));
    lingering = OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    OK(fcntl(lingering, F_SETFL, 0));
    OK(connect(lingering, (struct sockaddr *)&name, size));
    peer = OK(accept(listener, NULL, NULL));
    OK(fcntl(lingering, F_SETFL, O_NONBLOCK));
    static char data[65536];
    while (send(lingering, data, sizeof data, 0) > 0)
        ;
    OK(fcntl(lingering, F_SETFL, 0));
    struct linger long_time = {1, 10};
    OK(setsockopt(lingering, SOL_SOCKET, SO_LINGER, &long_time, sizeof long_time));
    while_waiting(end, take_all);
    close(peer);
    close(listener);
}

int main(void)
{
    OK(pipe(ends));
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets));
    queue = OK(msgget(IPC_PRIVATE, 0600));
    struct rlimit limit;
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max;
    OK(setrlimit(RLIMIT_NOFILE, &limit));

    while_waiting(receive_many, send_two);
    while_waiting(receive_with_room, send_two);
    while_waiting(wait_for_many_events, write_byte);
    while_waiting(poll_many, write_byte);
    while_waiting(receive_from_queue, send_to_queue);
    while_waiting(read_a_copy, write_byte);
    while_waiting(read_vector, write_byte);
    leases();
    linger(close_slowly);
    linger(replace_slowly);
    linger(close_all_slowly);
    OK(msgctl(queue, IPC_RMID, NULL));
    say("nobody waits for ever\n");
    return 0;
}
