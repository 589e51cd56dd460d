/* Covers: Unix sockets: stream, datagram, seqpacket, pairs, paths and abstract names, passing of
 * several descriptors and of credentials, a control buffer too small for them; and netlink: the
 * list of links.
 *
 * Hard for a recorder: descriptors appear without an open, through ancillary data whose layout the
 * kernel writes; names may be unprintable and are bounded by a length, not a zero. */
#include "check.h"
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static socklen_t path_name(struct sockaddr_un *name, const char *path)
{
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    CHECK(strlen(path) < sizeof name->sun_path);
    strcpy(name->sun_path, path);
    return sizeof *name;
}

static void test_stream(void)
{
    struct sockaddr_un name, peer;
    socklen_t length = path_name(&name, temp_file("stream")), other = sizeof peer;
    char text[8];
    int listener = OK(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(listener, (struct sockaddr *)&name, length));
    OK(listen(listener, 3));
    pid_t pid = OK(fork());
    if (pid == 0) {
        int fd = OK(socket(AF_UNIX, SOCK_STREAM, 0));
        OK(connect(fd, (struct sockaddr *)&name, length));
        write_all(fd, "hello", 5);
        OK(shutdown(fd, SHUT_WR));
        read_all(fd, text, 5);
        CHECK(memcmp(text, "world", 5) == 0 && read(fd, text, 1) == 0);
        _exit(0);
    }
    int fd = OK(accept(listener, (struct sockaddr *)&peer, &other));
    CHECK(other == sizeof(sa_family_t) && peer.sun_family == AF_UNIX);
    struct ucred who;
    other = sizeof who;
    OK(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &other));
    CHECK(who.pid == pid && who.uid == getuid());
    read_all(fd, text, 5);
    CHECK(memcmp(text, "hello", 5) == 0 && read(fd, text, 1) == 0);
    write_all(fd, "world", 5);
    close(fd);
    EXITS(pid, 0);
    close(listener);
    FAILS(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (struct sockaddr *)&name, length), ECONNREFUSED);
    say("stream: hello, world\n");
}

static void test_datagrams(void)
{
    /* An abstract name with a zero and a byte beyond ASCII in it. */
    struct sockaddr_un name = {.sun_family = AF_UNIX}, own, from;
    int tail = snprintf(name.sun_path + 1, 64, "mw%c\xe9%d", 0, getpid());
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + tail, from_length = sizeof from;
    char text[16];
    int receiver = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
    OK(bind(receiver, (struct sockaddr *)&name, length));
    OK(getsockname(receiver, (struct sockaddr *)&own, &from_length));
    CHECK(from_length == length && memcmp(own.sun_path, name.sun_path, 1 + tail) == 0);

    int sender = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
    socklen_t own_length = path_name(&own, temp_file("sender"));
    OK(bind(sender, (struct sockaddr *)&own, own_length));
    CHECK(sendto(sender, "one", 3, 0, (struct sockaddr *)&name, length) == 3);
    CHECK(sendto(sender, "three", 5, 0, (struct sockaddr *)&name, length) == 5);
    from_length = sizeof from;
    CHECK(recvfrom(receiver, text, 16, 0, (struct sockaddr *)&from, &from_length) == 3);
    CHECK(strcmp(from.sun_path, own.sun_path) == 0);
    struct iovec piece = {text, 2};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    CHECK(recvmsg(receiver, &message, 0) == 2 && (message.msg_flags & MSG_TRUNC));
    close(sender);
    close(receiver);

    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    CHECK(write(pair[0], "packet one", 10) == 10 && write(pair[0], "two", 3) == 3);
    CHECK(read(pair[1], text, 16) == 10 && read(pair[1], text, 16) == 3);
    close(pair[0]);
    CHECK(read(pair[1], text, 16) == 0);
    close(pair[1]);
    say("datagrams: abstract name, cut short, packets\n");
}

static void send_fds(int socket, const int *fds, int count)
{
    char control[CMSG_SPACE(8 * sizeof(int))] = {0};
    struct iovec piece = {"fds", 3};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    CHECK(sendmsg(socket, &message, 0) == 3);
}

/* Receives at most `room` descriptors; says how many came and whether some were cut off. */
static int receive_fds(int socket, int *fds, int room, int *cut)
{
    char control[CMSG_SPACE(8 * sizeof(int))] = {0};
    char text[3];
    struct iovec piece = {text, 3};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = CMSG_LEN(room * sizeof(int))};
    CHECK(recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 3);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    CHECK(header && header->cmsg_type == SCM_RIGHTS);
    int count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(header), count * sizeof(int));
    *cut = (message.msg_flags & MSG_CTRUNC) != 0;
    return count;
}

static void test_passing(void)
{
    int pair[2], pipe_fds[2], cut, got[8];
    char byte, text[8];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pid_t pid = OK(fork());
    if (pid == 0) {
        CHECK(receive_fds(pair[1], got, 3, &cut) == 3 && !cut);
        CHECK(fcntl(got[0], F_GETFD) == FD_CLOEXEC);
        read_all(got[0], text, 4);
        CHECK(memcmp(text, "file", 4) == 0);
        write_all(got[1], "through the pipe", 16);
        write_all(got[2], "back", 4);
        CHECK(receive_fds(pair[1], got, 1, &cut) == 1 && cut);
        _exit(0);
    }
    int file = OK(open(temp_file("passed"), O_CREAT | O_RDWR, 0600));
    write_all(file, "file", 4);
    OK(lseek(file, 0, SEEK_SET));
    int other[2];
    OK(pipe(pipe_fds));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, other));
    send_fds(pair[0], (int[]){file, pipe_fds[1], other[1]}, 3);
    close(pipe_fds[1]);
    close(other[1]);
    char line[16];
    read_all(pipe_fds[0], line, 16);
    CHECK(memcmp(line, "through the pipe", 16) == 0);
    read_all(other[0], text, 4);
    CHECK(memcmp(text, "back", 4) == 0);
    /* One description, so one offset: the child's read moved ours. */
    CHECK(lseek(file, 0, SEEK_CUR) == 4);
    send_fds(pair[0], (int[]){file, file, file}, 3);
    EXITS(pid, 0);
    CHECK(read(pipe_fds[0], &byte, 1) == 0);
    close(file);
    close(pipe_fds[0]);
    close(other[0]);
    close(pair[0]);
    close(pair[1]);
    say("passing: 3 descriptors, then 1 of 3\n");
}

static void test_credentials(void)
{
    int pair[2], on = 1;
    char byte, control[CMSG_SPACE(sizeof(struct ucred))] = {0};
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    OK(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    pid_t pid = OK(fork());
    if (pid == 0) {
        CHECK(send(pair[0], "x", 1, 0) == 1);
        _exit(0);
    }
    struct iovec piece = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK(recvmsg(pair[1], &message, 0) == 1);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    struct ucred who;
    CHECK(header && header->cmsg_type == SCM_CREDENTIALS);
    memcpy(&who, CMSG_DATA(header), sizeof who);
    CHECK(who.pid == pid && who.uid == getuid() && who.gid == getgid());
    EXITS(pid, 0);
    close(pair[0]);
    close(pair[1]);
    say("credentials: of the child\n");
}

static void test_netlink(void)
{
    struct {
        struct nlmsghdr header;
        struct ifinfomsg info;
    } request = {.header = {.nlmsg_len = sizeof request,
                            .nlmsg_type = RTM_GETLINK,
                            .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                            .nlmsg_seq = 7}};
    static char buffer[65536] __attribute__((aligned(8)));
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK}, own = {.nl_family = AF_NETLINK};
    socklen_t length = sizeof own;
    int done = 0, loopbacks = 0;
    int fd = OK(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    OK(bind(fd, (struct sockaddr *)&own, sizeof own));
    OK(getsockname(fd, (struct sockaddr *)&own, &length));
    CHECK(own.nl_pid != 0 && length == sizeof own);
    OK(sendto(fd, &request, sizeof request, 0, (struct sockaddr *)&kernel, sizeof kernel));
    while (!done) {
        struct sockaddr_nl from;
        socklen_t from_length = sizeof from;
        unsigned left = OK(recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &from_length));
        CHECK(from.nl_pid == 0);
        for (struct nlmsghdr *at = (void *)buffer; NLMSG_OK(at, left); at = NLMSG_NEXT(at, left)) {
            CHECK(at->nlmsg_seq == 7 && at->nlmsg_type != NLMSG_ERROR);
            struct ifinfomsg *info = NLMSG_DATA(at);
            done |= at->nlmsg_type == NLMSG_DONE;
            loopbacks += at->nlmsg_type == RTM_NEWLINK && (info->ifi_flags & IFF_LOOPBACK);
        }
    }
    CHECK(loopbacks == 1);
    close(fd);
    say("netlink: one loopback\n");
}

int main(void)
{
    make_temp_dir("sockets_unix");
    test_stream();
    test_datagrams();
    test_passing();
    test_credentials();
    test_netlink();
    remove_temp_dir();
    return 0;
}
