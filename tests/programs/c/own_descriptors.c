/* Covers: a program that treats all descriptors there may be as its own, as daemons and test runners
 * do before they start something: marked close-on-exec one by one, by a range and by an old request,
 * handed to somebody else, opened again by name, cut short.
 *
 * Hard for a recorder that keeps a descriptor in the program: the program must not lose it, nor do
 * anything with it. What it then executes says that it is recorded by being there in the recording. */
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define MOST 4096

extern char **environ;

static int is_open(int fd)
{
    return fcntl(fd, F_GETFD) != -1;
}

static int hand_on(int socket, int fd)
{
    char byte = 'x';
    struct iovec piece = {&byte, 1};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    *rights = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    return sendmsg(socket, &message, MSG_DONTWAIT) == 1;
}

/* No way leads to what is not open. */
static void look_at_all(void)
{
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    for (int fd = 3; fd < MOST; fd++) {
        char name[64];
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        if (is_open(fd))
            continue;
        FAILS(dup(fd), EBADF);
        FAILS(dup2(fd, pair[0]), EBADF);
        FAILS(fcntl(fd, F_DUPFD_CLOEXEC, 0), EBADF);
        FAILS(ftruncate(fd, 0), EBADF);
        FAILS(lseek(fd, 0, SEEK_SET), EBADF);
        FAILS(write(fd, name, 1), EBADF);
        CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EBADF);
        CHECK(!hand_on(pair[1], fd) && errno == EBADF);
        CHECK(open(name, O_RDWR) == -1);
        CHECK(truncate(name, 0) == -1);
        snprintf(name, sizeof name, "/dev/fd/%d", fd);
        CHECK(open(name, O_RDONLY) == -1);
    }
    close(pair[0]);
    close(pair[1]);
}

static void mark(int how)
{
    for (int fd = 3; fd < MOST; fd++) {
        if (how == 0)
            fcntl(fd, F_SETFD, FD_CLOEXEC);
        else if (how == 1)
            ioctl(fd, FIOCLEX);
        else if (how == 2)
            close(fd);
    }
    if (how == 3)
        syscall(SYS_close_range, 3, ~0u, 1 << 2 /* CLOSE_RANGE_CLOEXEC */);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        say("started %s\n", argv[1]);
        return 0;
    }
    look_at_all();
    for (int how = 0; how < 4; how++) {
        char name[16];
        snprintf(name, sizeof name, "%d", how);
        char *args[] = {argv[0], name, NULL};
        pid_t pid = OK(fork());
        if (pid == 0) {
            mark(how);
            execv("/proc/self/exe", args);
            _exit(1);
        }
        EXITS(pid, 0);
    }
    mark(0);
    char *args[] = {argv[0], "by posix_spawn", NULL};
    pid_t pid;
    ZERO(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ));
    EXITS(pid, 0);
    return 0;
}
