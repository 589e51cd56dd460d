/* Covers: clone as no C library calls it: threads without CLONE_SETTLS, which begin with the fs base
 * of their maker; CLONE_PIDFD, for which the kernel writes a descriptor where the thread's number
 * would go.
 *
 * Hard for a recorder: replay makes no kernel threads, so all that a new one inherits is its own to
 * set; and the word that CLONE_PIDFD writes is named by no argument alone. */
#include "check.h"
#include <asm/prctl.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x1000
#endif

static __thread int in_tls = 5;
static unsigned long base_of_thread;
static int seen;

/* No C library's thread: nothing here may touch what belongs to one. */
static int body(void *argument)
{
    (void)argument;
    __asm__ volatile("mov %%fs:0, %0" : "=r"(base_of_thread));
    /* The maker's own variable: it is the same thread to the C library. */
    seen = in_tls++;
    return 0;
}

static void test_thread(void)
{
    size_t size = 65536;
    char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    volatile int alive = 1;
    OK(clone(body, stack + size,
             CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                 CLONE_CHILD_CLEARTID,
             NULL, NULL, NULL, &alive));
    while (alive)
        sleep_ms(1);
    unsigned long base = 0;
    OK(syscall(SYS_arch_prctl, ARCH_GET_FS, &base));
    CHECK(base_of_thread == base);
    say("thread: it has its maker's variables, %d and %d\n", seen, in_tls);
}

static void test_shared_process(void)
{
    size_t size = 65536;
    char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    in_tls = 40;
    pid_t child = OK(clone(body, stack + size, CLONE_VM | SIGCHLD, NULL));
    EXITS(child, 0);
    say("process: it has its maker's variables, %d and %d\n", seen, in_tls);
}

static void report(const char *what, int fd)
{
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    struct pollfd one = {.fd = fd, .events = POLLIN};
    OK(poll(&one, 1, -1));
    siginfo_t info;
    OK(waitid(P_PIDFD, fd, &info, WEXITED));
    say("%s: descriptor %d, status %d\n", what, fd, info.si_status);
    close(fd);
}

static void test_pidfd(void)
{
    int fd = -1;
    pid_t child = OK(syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, &fd, NULL, NULL));
    if (child == 0)
        _exit(3);
    report("fork", fd);
    size_t size = 65536;
    char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    fd = -1;
    OK(clone(body, stack + size, CLONE_PIDFD | CLONE_VM | CLONE_VFORK | SIGCHLD, NULL, &fd));
    report("vfork", fd);
    fd = -1;
    OK(clone(body, stack + size, CLONE_PIDFD | CLONE_VM | SIGCHLD, NULL, &fd));
    report("shared memory", fd);
}

int main(void)
{
    test_thread();
    test_shared_process();
    test_pidfd();
    say("done\n");
    return 0;
}
