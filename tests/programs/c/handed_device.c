/* Covers: a file system that is served by a thread whose device came in a message (as fusermount
 * hands it on); a view of one of its files that is written to and then goes away, which waits for the
 * server; a file without times that becomes another of the same size and is mapped again; autofs, served
 * to a child of the program that shares memory with it.
 *
 * Hard for a recorder: who serves is seen only by the message; memory that goes away makes the
 * kernel write; a copy of a file must not be known by its size and times; and who waits for the
 * server in a call that never waits elsewhere may be another process. What the machine does not allow
 * (not root, no /dev/fuse) is left out. */
#include "fuse.h"
#include <linux/auto_fs.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define SIZE 8192

static char content[SIZE];

/* Another process opens the device and hands it on. */
static int receive_device(void)
{
    int ends[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    char byte = 0;
    struct iovec piece = {&byte, 1};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    pid_t child = OK(fork());
    if (child == 0) {
        int fd = open("/dev/fuse", O_RDWR);
        if (fd == -1)
            _exit(1);
        control.head = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
        CHECK(sendmsg(ends[1], &message, 0) == 1);
        _exit(0);
    }
    OK(close(ends[1]));
    int fd = -1;
    if (recvmsg(ends[0], &message, MSG_CMSG_CLOEXEC) == 1)
        memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
    CHECK(waitpid(child, NULL, 0) == child);
    OK(close(ends[0]));
    return fd;
}

static void check_view(const char *path, char expected)
{
    int fd = OK(open(path, O_RDONLY));
    const char *view = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(view != MAP_FAILED && view[0] == expected && view[SIZE - 1] == expected);
    OK(munmap((void *)view, SIZE));
    OK(close(fd));
}

static void write_view(const char *path, char byte, int fixed)
{
    int fd = OK(open(path, O_RDWR));
    char *view = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(view != MAP_FAILED);
    memset(view, byte, SIZE);
    if (fixed)
        CHECK(mmap(view, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == view);
    OK(munmap(view, SIZE));
    OK(close(fd));
    CHECK(content[0] == byte && content[SIZE - 1] == byte);
}

static void file_system(void)
{
    struct served served = {.device = receive_device(), .content = content, .size = SIZE};
    if (served.device == -1)
        return;
    char dir[PATH_MAX], path[PATH_MAX + 8];
    snprintf(dir, sizeof dir, "%s", temp_file("mount"));
    snprintf(path, sizeof path, "%s/file", dir);
    mount_served(&served, dir);
    memset(content, 'a', SIZE);
    int done;
    pid_t child = guard(served.device, dir, &done);
    pthread_t server;
    ZERO(pthread_create(&server, NULL, serve_one_file, &served));
    check_view(path, 'a');
    memset(content, 'b', SIZE);
    check_view(path, 'b');
    check_view(path, 'b');
    write_view(path, 'c', 0);
    write_view(path, 'd', 1);
    check_view(path, 'd');
    OK(umount2(dir, MNT_DETACH));
    ZERO(pthread_join(server, NULL));
    close(served.device);
    OK(close(done));
    CHECK(waitpid(child, NULL, 0) == child);
}

static int questions[2], root = -1;
static char mounted[PATH_MAX];

/* Makes what is asked for. */
static void *automount(void *unused)
{
    struct autofs_v5_packet asked;
    while (read(questions[0], &asked, sizeof asked) == sizeof asked) {
        char path[PATH_MAX + 300];
        snprintf(path, sizeof path, "%s/%s", mounted, asked.name);
        int is_wanted = strcmp(asked.name, "wanted") == 0;
        if (is_wanted)
            OK(mkdir(path, 0700));
        int how = is_wanted ? AUTOFS_IOC_READY : AUTOFS_IOC_FAIL;
        OK(ioctl(root, how, asked.wait_queue_token));
    }
    return unused;
}

static void automatic(void)
{
    char options[128];
    OK(pipe2(questions, O_CLOEXEC | O_DIRECT));
    snprintf(mounted, sizeof mounted, "%s", temp_file("auto"));
    OK(mkdir(mounted, 0700));
    snprintf(options, sizeof options, "fd=%d,pgrp=%d,minproto=5,maxproto=5,indirect", questions[1],
             getpgrp());
    if (mount("asked", mounted, "autofs", 0, options) == -1)
        return;
    /* From here on it is the kernel that writes. */
    OK(close(questions[1]));
    root = OK(open(mounted, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int *shared =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pthread_t server;
    ZERO(pthread_create(&server, NULL, automount, NULL));
    pid_t child = OK(fork());
    if (child == 0) {
        char path[PATH_MAX + 16];
        struct stat info;
        OK(setpgid(0, 0));
        shared[0]++;
        snprintf(path, sizeof path, "%s/wanted", mounted);
        OK(stat(path, &info));
        CHECK(S_ISDIR(info.st_mode));
        snprintf(path, sizeof path, "%s/other", mounted);
        FAILS(stat(path, &info), ENOENT);
        shared[0]++;
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && shared[0] == 2);
    OK(close(root));
    OK(umount2(mounted, MNT_DETACH));
    ZERO(pthread_join(server, NULL));
    OK(close(questions[0]));
}

int main(void)
{
    make_temp_dir("handed");
    if (geteuid() == 0 && unshare(CLONE_NEWNS) == 0) {
        OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
        file_system();
        automatic();
    }
    remove_temp_dir();
    say("handed on and answered\n");
    return 0;
}
