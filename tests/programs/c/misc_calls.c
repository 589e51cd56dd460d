/* Covers: the many small calls that ask the kernel who, where and how much; bad pointers, which
 * give EFAULT and no signal; calls a recorder may refuse (io_uring); a number that is no syscall.
 *
 * Hard for a recorder: each writes back another structure, and each one forgotten in the table is
 * a divergence; a bad pointer must be the kernel's to find, not the monitor's to fault on. */
#include "check.h"
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/utsname.h>

static void test_identity(void)
{
    struct utsname name;
    uid_t real, effective, saved;
    gid_t groups[256];
    OK(uname(&name));
    CHECK(strcmp(name.sysname, "Linux") == 0 && strcmp(name.machine, "x86_64") == 0);
    OK(getresuid(&real, &effective, &saved));
    CHECK(real == getuid() && effective == geteuid());
    OK(getresgid(&real, &effective, &saved));
    CHECK(real == getgid() && effective == getegid());
    int count = OK(getgroups(0, NULL));
    CHECK(count <= 256 && getgroups(256, groups) == count);
    CHECK(gettid() == getpid() && getpgid(0) == getpgrp() && getsid(0) == getsid(getpid()));
    CHECK(syscall(SYS_set_tid_address, NULL) == getpid());
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    OK(syscall(SYS_capget, &header, data));
    CHECK(header.version == _LINUX_CAPABILITY_VERSION_3);
    CHECK(personality(0xffffffff) != -1);
    mode_t mask = umask(027);
    CHECK(umask(mask) == 027 && umask(mask) == mask);

    char own[16] = "", got[16] = "";
    OK(prctl(PR_GET_NAME, own));
    CHECK(strcmp(own, "misc_calls") == 0);
    OK(prctl(PR_SET_NAME, "a rather long name"));
    OK(prctl(PR_GET_NAME, got));
    CHECK(strcmp(got, "a rather long n") == 0);
    OK(prctl(PR_SET_NAME, own));
    CHECK(prctl(PR_GET_DUMPABLE) == 1);
    CHECK(prctl(PR_GET_KEEPCAPS) == 0);
    FAILS(prctl(9999, 0, 0, 0, 0), EINVAL);
    say("identity: names and ids\n");
}

static void test_limits_and_use(void)
{
    struct rlimit limit, same;
    struct rusage usage;
    struct tms used;
    struct sysinfo info;
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    struct rlimit lower = {limit.rlim_cur / 2, limit.rlim_max};
    OK(setrlimit(RLIMIT_NOFILE, &lower));
    OK(prlimit(0, RLIMIT_NOFILE, &limit, &same));
    CHECK(same.rlim_cur == limit.rlim_cur / 2);
    OK(getrlimit(RLIMIT_NOFILE, &same));
    CHECK(same.rlim_cur == limit.rlim_cur);

    volatile uint64_t result = compute(1, 1000000);
    CHECK(result != 0);
    OK(getrusage(RUSAGE_SELF, &usage));
    CHECK(usage.ru_maxrss > 0 && usage.ru_utime.tv_sec < 100);
    OK(getrusage(RUSAGE_CHILDREN, &usage));
    CHECK(usage.ru_maxrss == 0);
    OK(times(&used));
    OK(sysinfo(&info));
    CHECK(info.totalram > 0 && info.uptime > 0);
    say("limits and use: set and read\n");
}

static void test_scheduling(void)
{
    cpu_set_t set;
    unsigned cpu, node;
    struct sched_param parameter = {-1};
    struct timespec slice;
    OK(sched_getaffinity(0, sizeof set, &set));
    CHECK(CPU_COUNT(&set) >= 1);
    OK(sched_setaffinity(0, sizeof set, &set));
    OK(getcpu(&cpu, &node));
    CHECK(CPU_ISSET(cpu, &set));
    for (int i = 0; i < 10; i++)
        OK(sched_yield());
    CHECK(sched_getscheduler(0) == SCHED_OTHER);
    OK(sched_getparam(0, &parameter));
    CHECK(parameter.sched_priority == 0);
    OK(sched_rr_get_interval(0, &slice));
    CHECK(sched_get_priority_max(SCHED_FIFO) == 99);
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, 0);
    CHECK(errno == 0);
    OK(setpriority(PRIO_PROCESS, 0, nice));
    long barriers = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    CHECK(barriers >= 0 || errno == ENOSYS);
    say("scheduling: affinity, priority\n");
}

static void test_bad_pointers(void)
{
    char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *volatile nowhere = edge + 4096;
    int fds[2];
    CHECK(edge != MAP_FAILED);
    OK(munmap(nowhere, 4096));
    OK(pipe(fds));
    FAILS(write(fds[1], nowhere, 1), EFAULT);
    FAILS(open(nowhere, O_RDONLY), EFAULT);
    FAILS(stat("/", (struct stat *)nowhere), EFAULT);
    FAILS(uname((struct utsname *)nowhere), EFAULT);
    FAILS(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, nowhere), EFAULT);
    FAILS(syscall(SYS_pipe2, nowhere, 0), EFAULT);
    FAILS(syscall(SYS_rt_sigaction, 10, nowhere, NULL, 8), EFAULT);
    FAILS(syscall(SYS_execve, nowhere, NULL, NULL), EFAULT);

    /* A string and buffers that run into the hole: as much as there is, or nothing. */
    memset(edge, 'x', 4096);
    FAILS(open(edge + 4000, O_RDONLY), EFAULT);
    struct iovec pieces[] = {{edge, 3}, {nowhere, 5}};
    ssize_t n = writev(fds[1], pieces, 2);
    CHECK(n == 3 || (n == -1 && errno == EFAULT));
    write_all(fds[1], "12345678", 8);
    n = read(fds[0], nowhere - 4, 8);
    CHECK(n == 4 || (n == -1 && errno == EFAULT));
    FAILS(syscall(SYS_futex, nowhere, FUTEX_WAIT, 0, NULL), EFAULT);
    close(fds[0]);
    close(fds[1]);
    OK(munmap(edge, 4096));
    say("bad pointers: EFAULT and no signal\n");
}

static void test_others(void)
{
    struct timespec soon = {0, 2000000};
    int word = 5;
    FAILS(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 4, NULL), EAGAIN);
    FAILS(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, &soon), ETIMEDOUT);
    CHECK(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1) == 0);

    char text[8] = "";
    struct iovec local = {text, 5}, remote = {"hello", 5};
    CHECK(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 5 && strcmp(text, "hello") == 0);

    struct io_uring_params parameters = {0};
    int ring = syscall(SYS_io_uring_setup, 4, &parameters);
    CHECK(ring >= 0 || errno == ENOSYS || errno == EPERM);
    if (ring >= 0)
        close(ring);
    FAILS(syscall(9999, 1, 2, 3), ENOSYS);
    FAILS(syscall(-1), ENOSYS);
    say("others: futex, own memory, no such call\n");
}

int main(void)
{
    test_identity();
    test_limits_and_use();
    test_scheduling();
    test_bad_pointers();
    test_others();
    return 0;
}
