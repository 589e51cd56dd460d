/* Covers: TCP and UDP over loopback, IPv4 and (where there is one) IPv6: connect, accept4, half
 * close, reset, refused, non-blocking connect, options, names, sendmsg and recvmsg with several
 * buffers, sendmmsg and recvmmsg, peeking, waiting for all, not waiting.
 *
 * Hard for a recorder: every one of these calls writes back through a different structure, with
 * lengths that go in and come out; and channels have to be recognised from names alone. */
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define BULK 300000

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static socklen_t loopback(int family, union address *to)
{
    memset(to, 0, sizeof *to);
    to->any.sa_family = family;
    if (family == AF_INET6) {
        to->v6.sin6_addr = in6addr_loopback;
        return sizeof to->v6;
    }
    to->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return sizeof to->v4;
}

/* A socket of this type bound to a free port; says which address that is. -1 without the family. */
static int bound(int family, int type, union address *address, socklen_t *length)
{
    *length = loopback(family, address);
    int fd = socket(family, type | SOCK_CLOEXEC, 0);
    if (fd == -1 || bind(fd, &address->any, *length) == -1) {
        CHECK(family == AF_INET6);
        if (fd != -1)
            close(fd);
        return -1;
    }
    OK(getsockname(fd, &address->any, length));
    return fd;
}

static int same_port(const union address *a, const union address *b)
{
    return a->any.sa_family == b->any.sa_family && a->v4.sin_port == b->v4.sin_port;
}

static unsigned char byte_at(size_t i)
{
    return (unsigned char)(i * 31 + (i >> 8));
}

/* The other side: sends the bulk back until the half close, then the sum of what it got. */
static void serve(int listener)
{
    union address peer;
    socklen_t length = sizeof peer;
    unsigned char buffer[16384];
    uint64_t sum = 0;
    ssize_t n;
    int fd = OK(accept4(listener, &peer.any, &length, SOCK_CLOEXEC));
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    while ((n = OK(recv(fd, buffer, sizeof buffer, 0))) > 0) {
        for (ssize_t i = 0; i < n; i++)
            sum += buffer[i];
        write_all(fd, buffer, n);
    }
    write_all(fd, &sum, sizeof sum);
    close(fd);
    _exit(0);
}

static void test_tcp(int family)
{
    union address address, mine, peer;
    socklen_t length, other = sizeof mine;
    int listener = bound(family, SOCK_STREAM, &address, &length);
    if (listener == -1)
        return;
    OK(listen(listener, 5));
    pid_t pid = OK(fork());
    if (pid == 0)
        serve(listener);
    int fd = OK(socket(family, SOCK_STREAM, 0));
    OK(connect(fd, &address.any, length));
    OK(getpeername(fd, &peer.any, &other));
    CHECK(other == length && same_port(&peer, &address));
    OK(getsockname(fd, &mine.any, &other));
    CHECK(!same_port(&mine, &address));

    static unsigned char out[BULK], in[BULK];
    uint64_t want = 0, sum;
    for (size_t i = 0; i < BULK; i++)
        want += out[i] = byte_at(i);
    size_t sent = 0, received = 0;
    while (received < BULK) {
        struct pollfd wait = {fd, POLLIN | (sent < BULK ? POLLOUT : 0), 0};
        OK(poll(&wait, 1, -1));
        if (wait.revents & POLLOUT && sent < BULK) {
            ssize_t n = send(fd, out + sent, BULK - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            CHECK(n > 0 || errno == EAGAIN);
            sent += n > 0 ? n : 0;
            if (sent == BULK)
                OK(shutdown(fd, SHUT_WR));
        }
        if (wait.revents & POLLIN)
            received += OK(recv(fd, in + received, BULK - received, 0));
    }
    CHECK(memcmp(in, out, BULK) == 0);
    CHECK(recv(fd, &sum, sizeof sum, MSG_WAITALL) == sizeof sum && sum == want);
    CHECK(recv(fd, &sum, sizeof sum, 0) == 0);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    close(fd);
    close(listener);
    EXITS(pid, 0);
}

static void connected_pair(int pair[2])
{
    union address address;
    socklen_t length;
    int listener = bound(AF_INET, SOCK_STREAM, &address, &length);
    OK(listen(listener, 1));
    pair[0] = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(connect(pair[0], &address.any, length));
    pair[1] = OK(accept(listener, NULL, NULL));
    close(listener);
}

static void test_messages(void)
{
    int pair[2], waiting;
    char a[3], b[4], c[16] = "";
    connected_pair(pair);
    FAILS(recv(pair[1], c, sizeof c, MSG_DONTWAIT), EAGAIN);

    struct iovec out[] = {{"one", 3}, {"", 0}, {"four", 4}, {"eleven chars", 11}};
    struct iovec in[] = {{a, 3}, {b, 4}, {c, sizeof c}};
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 4};
    CHECK(sendmsg(pair[0], &message, 0) == 18);
    CHECK(recv(pair[1], c, 3, MSG_PEEK) == 3 && memcmp(c, "one", 3) == 0);
    OK(ioctl(pair[1], FIONREAD, &waiting));
    CHECK(waiting == 18);
    message = (struct msghdr){.msg_iov = in, .msg_iovlen = 3};
    CHECK(recvmsg(pair[1], &message, 0) == 18 && message.msg_flags == 0);
    CHECK(memcmp(a, "one", 3) == 0 && memcmp(b, "four", 4) == 0 && memcmp(c, "eleven char", 11) == 0);

    /* Half the data now, half from a child later: the receiver waits for all of it. */
    CHECK(send(pair[0], "first ", 6, MSG_MORE) == 6);
    pid_t pid = OK(fork());
    if (pid == 0) {
        sleep_ms(5);
        CHECK(send(pair[0], "second", 6, 0) == 6);
        _exit(0);
    }
    CHECK(recv(pair[1], c, 12, MSG_WAITALL) == 12 && memcmp(c, "first second", 12) == 0);
    EXITS(pid, 0);

    CHECK(send(pair[0], "!", 1, MSG_OOB) == 1);
    CHECK(send(pair[0], "end", 3, 0) == 3);
    struct pollfd urgent = {pair[1], POLLPRI, 0};
    CHECK(poll(&urgent, 1, 1000) == 1 && recv(pair[1], c, 1, MSG_OOB) == 1 && c[0] == '!');
    CHECK(recv(pair[1], c, 3, MSG_WAITALL) == 3 && memcmp(c, "end", 3) == 0);

    /* A close that discards makes the other side's next read fail. */
    struct linger discard = {1, 0};
    OK(setsockopt(pair[0], SOL_SOCKET, SO_LINGER, &discard, sizeof discard));
    close(pair[0]);
    FAILS(recv(pair[1], c, 1, 0), ECONNRESET);
    close(pair[1]);
    say("messages: vectors, peek, wait for all, urgent, reset\n");
}

static void test_options(void)
{
    int fd = OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), value = 1;
    socklen_t length = sizeof value;
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    OK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value));
    OK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
    value = 0;
    OK(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length));
    CHECK(value == 1 && length == sizeof value);
    OK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length));
    CHECK(value == SOCK_STREAM);
    OK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &length));
    CHECK(value == AF_INET);
    value = 65536;
    OK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof value));
    OK(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &length));
    CHECK(value >= 65536);
    /* The kernel writes only as much as there is room for, and says how much. */
    char one = 0;
    length = 1;
    OK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &one, &length));
    CHECK(one == SOCK_STREAM && length == 1);
    struct timeval limit = {0, 10000}, got;
    length = sizeof got;
    OK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    OK(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &got, &length));
    CHECK(got.tv_sec == 0 && got.tv_usec >= 10000 && length == sizeof got);
    struct tcp_info info;
    length = sizeof info;
    OK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
    CHECK(info.tcpi_state == TCP_CLOSE);
    FAILS(getsockopt(fd, SOL_SOCKET, 9999, &value, &length), ENOPROTOOPT);
    close(fd);
    fd = OK(open("/dev/null", O_RDONLY));
    FAILS(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length), ENOTSOCK);
    close(fd);
    say("options: set, got, cut short, refused\n");
}

static void test_nonblocking(void)
{
    union address address;
    socklen_t length, size = sizeof(int);
    int listener = bound(AF_INET, SOCK_STREAM, &address, &length), error = -1;
    OK(listen(listener, 1));
    OK(fcntl(listener, F_SETFL, O_NONBLOCK));
    FAILS(accept(listener, NULL, NULL), EAGAIN);
    for (int refused = 0; refused < 2; refused++) {
        int fd = OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        /* Loopback is fast: the answer may be there at once. */
        int result = connect(fd, &address.any, length) == 0 ? 0 : errno;
        if (result == EINPROGRESS) {
            struct pollfd wait = {fd, POLLOUT, 0};
            CHECK(poll(&wait, 1, 1000) == 1);
            OK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size));
            result = error;
        }
        CHECK(result == (refused ? ECONNREFUSED : 0));
        if (!refused) {
            int accepted = OK(accept(listener, NULL, NULL));
            close(accepted);
            close(listener);
        }
        close(fd);
    }
    int fd = OK(socket(AF_INET, SOCK_STREAM, 0));
    FAILS(connect(fd, &address.any, length), ECONNREFUSED);
    close(fd);
    say("non-blocking: connected, refused\n");
}

static void test_udp(int family)
{
    union address one_address, two_address, from;
    socklen_t length, from_length = sizeof from;
    char text[16];
    int one = bound(family, SOCK_DGRAM, &one_address, &length);
    if (one == -1)
        return;
    int two = bound(family, SOCK_DGRAM, &two_address, &length);
    CHECK(sendto(one, "datagram", 8, 0, &two_address.any, length) == 8);
    /* Only a part fits: the rest is lost, and the true length is told if asked for. */
    CHECK(recvfrom(two, text, 4, MSG_TRUNC, &from.any, &from_length) == 8);
    CHECK(memcmp(text, "data", 4) == 0 && from_length == length && same_port(&from, &one_address));
    CHECK(sendto(one, "", 0, 0, &two_address.any, length) == 0);
    CHECK(recv(two, text, sizeof text, 0) == 0);

    OK(connect(one, &two_address.any, length));
    char bytes[3][8] = {"first", "second", "third"}, got[4][8];
    struct iovec out[3], in[4];
    struct mmsghdr messages[4] = {0};
    for (int i = 0; i < 3; i++) {
        out[i] = (struct iovec){bytes[i], strlen(bytes[i])};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &out[i], .msg_iovlen = 1};
    }
    CHECK(sendmmsg(one, messages, 3, 0) == 3 && messages[1].msg_len == 6);
    union address froms[4];
    for (int i = 0; i < 4; i++) {
        in[i] = (struct iovec){got[i], 8};
        messages[i].msg_len = 0;
        messages[i].msg_hdr = (struct msghdr){
            .msg_iov = &in[i], .msg_iovlen = 1, .msg_name = &froms[i], .msg_namelen = sizeof from};
    }
    struct timespec limit = {1, 0};
    CHECK(recvmmsg(two, messages, 4, MSG_WAITFORONE, &limit) == 3);
    for (int i = 0; i < 3; i++) {
        CHECK(messages[i].msg_len == strlen(bytes[i]));
        CHECK(memcmp(got[i], bytes[i], messages[i].msg_len) == 0);
        CHECK(same_port(&froms[i], &one_address) && messages[i].msg_hdr.msg_namelen == length);
    }

    /* What nobody hears comes back as an error of the next call. */
    close(two);
    CHECK(send(one, "x", 1, 0) == 1);
    struct pollfd wait = {one, POLLIN, 0};
    CHECK(poll(&wait, 1, 1000) == 1);
    FAILS(recv(one, text, sizeof text, 0), ECONNREFUSED);
    close(one);
}

struct target {
    int type;
    union address address;
    socklen_t length;
};

static void *call_later(void *arg)
{
    struct target *target = arg;
    usleep(2000);
    int fd = OK(socket(AF_INET, target->type, 0));
    OK(connect(fd, &target->address.any, target->length));
    OK(send(fd, "x", 1, 0));
    close(fd);
    return NULL;
}

/* With a second thread, a call that waits is made for another place: what the kernel did not write
 * must not come back from there. */
static void test_behind_addresses(void)
{
    for (int is_udp = 0; is_udp < 2; is_udp++) {
        struct target target = {.type = is_udp ? SOCK_DGRAM : SOCK_STREAM};
        int fd = bound(AF_INET, target.type, &target.address, &target.length);
        if (!is_udp)
            OK(listen(fd, 1));
        for (int i = 0; i < 3; i++) {
            pthread_t caller;
            unsigned char peer[128], byte;
            socklen_t length = sizeof peer;
            memset(peer, 0xaa, sizeof peer);
            ZERO(pthread_create(&caller, NULL, call_later, &target));
            if (is_udp)
                CHECK(recvfrom(fd, &byte, 1, 0, (struct sockaddr *)peer, &length) == 1);
            else
                close(OK(accept(fd, (struct sockaddr *)peer, &length)));
            CHECK(length == sizeof(struct sockaddr_in));
            for (size_t at = length; at < sizeof peer; at++)
                CHECK(peer[at] == 0xaa);
            ZERO(pthread_join(caller, NULL));
        }
        close(fd);
    }
    say("addresses: what lies behind them stays\n");
}

int main(void)
{
    test_tcp(AF_INET);
    test_tcp(AF_INET6);
    say("tcp: %d bytes there and back\n", BULK);
    test_messages();
    test_options();
    test_nonblocking();
    test_udp(AF_INET);
    test_udp(AF_INET6);
    say("udp: one, cut short, empty, many, refused\n");
    test_behind_addresses();
    return 0;
}
