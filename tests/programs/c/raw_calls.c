/* Covers: syscalls that today's C library no longer or seldom makes, by number: the old forms (open,
 * stat, pipe, select, getdents, time, utime, epoll_create, eventfd, signalfd ...), the -at forms, and
 * rarer ones (openat2, pidfd_send_signal, pidfd_getfd, mlock, tkill, process_madvise ...).
 *
 * Hard for a recorder: other libraries and static programs still make them, each with a structure of
 * its own; one that is missing in the table shows up here and nowhere else. */
#include "check.h"
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <utime.h>

static void test_old_files(void)
{
    struct stat a, b, c;
    char buffer[1024];
    int fd = OK(syscall(SYS_open, "file", O_CREAT | O_RDWR, 0600));
    CHECK(syscall(SYS_write, fd, "12345", 5) == 5);
    OK(syscall(SYS_stat, "file", &a));
    OK(syscall(SYS_fstat, fd, &b));
    OK(syscall(SYS_symlink, "file", "soft"));
    OK(syscall(SYS_lstat, "soft", &c));
    CHECK(a.st_size == 5 && a.st_ino == b.st_ino && S_ISLNK(c.st_mode));
    OK(syscall(SYS_link, "file", "hard"));
    OK(syscall(SYS_rename, "hard", "hard2"));
    OK(syscall(SYS_chmod, "hard2", 0640));
    OK(syscall(SYS_fchmod, fd, 0600));
    OK(syscall(SYS_chown, "file", -1, getegid()));
    OK(syscall(SYS_lchown, "soft", -1, getegid()));
    OK(syscall(SYS_fchown, fd, -1, getegid()));
    OK(syscall(SYS_access, "file", R_OK));
    OK(syscall(SYS_mkdir, "dir", 0700));
    OK(syscall(SYS_mknod, "fifo", S_IFIFO | 0600, 0));
    CHECK(syscall(SYS_readlink, "soft", buffer, sizeof buffer) == 4);

    int dir = OK(syscall(SYS_open, ".", O_RDONLY | O_DIRECTORY));
    long bytes = OK(syscall(SYS_getdents, dir, buffer, sizeof buffer));
    int entries = 0;
    for (long at = 0; at < bytes; entries++)
        at += *(unsigned short *)(buffer + at + 16);
    CHECK(entries == 7 && syscall(SYS_getdents, dir, buffer, sizeof buffer) == 0);

    struct utimbuf seconds = {1000, 2000};
    struct timeval micros[2] = {{3000, 5}, {4000, 6}};
    OK(syscall(SYS_utime, "file", &seconds));
    OK(syscall(SYS_stat, "file", &a));
    CHECK(a.st_mtim.tv_sec == 2000);
    OK(syscall(SYS_utimes, "file", micros));
    OK(syscall(SYS_futimesat, dir, "file", micros));
    OK(syscall(SYS_stat, "file", &a));
    CHECK(a.st_mtim.tv_sec == 4000 && a.st_mtim.tv_nsec == 6000);
    OK(syscall(SYS_unlink, "hard2"));
    OK(syscall(SYS_unlink, "fifo"));
    OK(syscall(SYS_unlink, "soft"));
    OK(syscall(SYS_rmdir, "dir"));
    close(dir);
    close(fd);
    say("old files: %d entries\n", entries);
}

static void test_at_files(void)
{
    int dir = OK(open(".", O_PATH | O_DIRECTORY));
    struct open_how how = {.flags = O_RDWR, .resolve = RESOLVE_BENEATH};
    int fd = OK(syscall(SYS_openat2, dir, "file", &how, sizeof how));
    how.flags = O_RDONLY;
    FAILS(syscall(SYS_openat2, dir, "..", &how, sizeof how), EXDEV);
    OK(syscall(SYS_linkat, dir, "file", dir, "hard", 0));
    OK(syscall(SYS_symlinkat, "file", dir, "soft"));
    OK(syscall(SYS_renameat, dir, "hard", dir, "hard2"));
    OK(syscall(SYS_fchmodat, dir, "hard2", 0640));
    OK(syscall(SYS_fchownat, dir, "hard2", -1, getegid(), 0));
    OK(syscall(SYS_faccessat, dir, "hard2", R_OK));
    OK(syscall(SYS_unlinkat, dir, "hard2", 0));
    OK(syscall(SYS_unlinkat, dir, "soft", 0));
    OK(syscall(SYS_readahead, fd, 0, 4096));
    long synced = syscall(SYS_sync_file_range, fd, 0, 0, 0);
    CHECK(synced == 0 || errno == EINVAL);
    close(fd);
    close(dir);
    say("files by directory: beneath only\n");
}

static void test_old_waiting(void)
{
    int fds[2];
    OK(syscall(SYS_pipe, fds));
    CHECK(syscall(SYS_dup2, fds[0], 40) == 40 && syscall(SYS_dup, 40) > 0);
    write_all(fds[1], "x", 1);
    fd_set set;
    struct timeval limit = {1, 0};
    FD_ZERO(&set);
    FD_SET(40, &set);
    CHECK(syscall(SYS_select, 41, &set, NULL, NULL, &limit) == 1 && FD_ISSET(40, &set));
    struct pollfd wait = {fds[0], POLLIN, 0};
    CHECK(syscall(SYS_poll, &wait, 1, 1000) == 1);
    int epoll = OK(syscall(SYS_epoll_create, 5));
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 17}, got;
    OK(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], &event));
    CHECK(syscall(SYS_epoll_wait, epoll, &got, 1, -1) == 1 && got.data.u64 == 17);

    uint64_t value = 0;
    int counter = OK(syscall(SYS_eventfd, 5));
    CHECK(read(counter, &value, 8) == 8 && value == 5);
    sigset_t mask;
    struct signalfd_siginfo info;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    OK(sigprocmask(SIG_BLOCK, &mask, NULL));
    int signals = OK(syscall(SYS_signalfd, -1, &mask, _NSIG / 8));
    OK(syscall(SYS_tkill, gettid(), SIGUSR1));
    CHECK(read(signals, &info, sizeof info) == sizeof info && info.ssi_code == SI_TKILL);
    OK(close(OK(syscall(SYS_inotify_init))));

    struct timeval day;
    long seconds = OK(syscall(SYS_time, NULL));
    OK(syscall(SYS_gettimeofday, &day, NULL));
    CHECK(labs(seconds - day.tv_sec) < 100);
    CHECK(syscall(SYS_alarm, 0) == 0);
    struct rlimit limits;
    OK(syscall(SYS_getrlimit, RLIMIT_NOFILE, &limits));
    OK(syscall(SYS_setrlimit, RLIMIT_NOFILE, &limits));
    CHECK(syscall(SYS_getpgrp) == getpgrp());
    pid_t pid = OK(syscall(SYS_fork));
    if (pid == 0)
        _exit(12);
    EXITS(pid, 12);
    OK(syscall(SYS_close_range, 3, 60, 0));
    say("old waiting: select, poll, epoll, eventfd, signalfd\n");
}

static void test_rarer(void)
{
    int fds[2];
    char byte = 0;
    OK(pipe(fds));
    pid_t pid = OK(fork());
    if (pid == 0)
        for (;;)
            pause();
    int pidfd = OK(syscall(SYS_pidfd_open, pid, 0));
    /* Whether another process's descriptors may be taken is a matter of policy. */
    int taken = syscall(SYS_pidfd_getfd, pidfd, fds[0], 0);
    CHECK(taken >= 0 || errno == EPERM || errno == ENOSYS);
    if (taken >= 0) {
        write_all(fds[1], "x", 1);
        CHECK(read(taken, &byte, 1) == 1 && byte == 'x');
    }
    OK(syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0));
    DIES(pid, SIGTERM);
    FAILS(syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0), ESRCH);

    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    OK(mlock(page, 4096));
    OK(syscall(SYS_mlock2, page + 4096, 4096, 1 /* MLOCK_ONFAULT */));
    OK(munlock(page, 8192));
    memset(page, 1, 8192);
    OK(madvise(page, 4096, MADV_FREE));
    page[0] = 2;
    CHECK(page[0] == 2 && page[4096] == 1);
    OK(syscall(SYS_munmap, page, 8192));

    unsigned long set[16];
    CHECK(syscall(SYS_sched_getaffinity, 0, sizeof set, set) > 0);
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
        uint32_t least, most;
    } attributes;
    OK(syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0));
    CHECK(attributes.policy == SCHED_OTHER);
    long ioprio = syscall(SYS_ioprio_get, 1 /* IOPRIO_WHO_PROCESS */, 0);
    CHECK(ioprio >= 0 || errno == ENOSYS);
    long kcmp = syscall(SYS_kcmp, getpid(), getpid(), 0 /* KCMP_FILE */, fds[0], fds[0]);
    CHECK(kcmp == 0 || (kcmp == -1 && (errno == ENOSYS || errno == EPERM)));
    close(fds[0]);
    close(fds[1]);
    close(pidfd);
    say("rarer: pidfd, mlock, attributes\n");
}

int main(void)
{
    umask(022);
    OK(chdir(make_temp_dir("raw_calls")));
    test_old_files();
    test_at_files();
    test_old_waiting();
    test_rarer();
    OK(chdir("/"));
    remove_temp_dir();
    return 0;
}
