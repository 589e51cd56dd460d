/* Covers: seccomp: filters that refuse with an errno, by arguments, that trap, log and kill; several
 * in a chain; inherited by fork, threads and exec; given to all threads at once; strict mode; filters
 * that are none.
 *
 * Hard for a recorder: a filter in the kernel would judge the recorder's own calls. */
#include "check.h"
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOAD_ARG(i) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[i]))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
/* For this call, the answer. */
#define ANSWER(number, what) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), RETURN(what)
#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static long install(struct sock_filter *steps, unsigned short count, unsigned flags)
{
    struct sock_fprog program = {.len = count, .filter = steps};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

#define INSTALL(flags, ...)                                                                \
    ({                                                                                     \
        struct sock_filter steps_[] = {__VA_ARGS__};                                       \
        install(steps_, COUNT(steps_), flags);                                             \
    })

static void in_child(const char *what, void (*body)(void))
{
    pid_t child = OK(fork());
    if (child == 0) {
        struct rlimit none = {0, 0};
        OK(setrlimit(RLIMIT_CORE, &none));
        OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        body();
        _exit(0);
    }
    int status = wait_status(child);
    say("%s: %s %d\n", what, WIFSIGNALED(status) ? "signal" : "status",
        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void errnos(void)
{
    CHECK(prctl(PR_GET_SECCOMP) == 0);
    OK(INSTALL(0, LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
               RETURN(SECCOMP_RET_KILL_PROCESS), LOAD(nr),
               ANSWER(SYS_getppid, SECCOMP_RET_ERRNO | EDOM), ANSWER(SYS_getuid, SECCOMP_RET_ERRNO),
               ANSWER(SYS_mkdir, SECCOMP_RET_ERRNO | 5000), ANSWER(SYS_mmap, SECCOMP_RET_ERRNO | 7),
               ANSWER(SYS_rt_sigaction, SECCOMP_RET_ERRNO | 8),
               ANSWER(SYS_fork, SECCOMP_RET_ERRNO | 9), ANSWER(SYS_clone, SECCOMP_RET_ERRNO | 9),
               ANSWER(SYS_execve, SECCOMP_RET_ERRNO | 10),
               ANSWER(SYS_nanosleep, SECCOMP_RET_ERRNO | 11),
               ANSWER(SYS_getegid, SECCOMP_RET_TRACE), ANSWER(SYS_getgid, SECCOMP_RET_LOG),
               RETURN(SECCOMP_RET_ALLOW)));
    CHECK(prctl(PR_GET_SECCOMP) == SECCOMP_MODE_FILTER);
    FAILS(syscall(SYS_getppid), EDOM);
    CHECK(syscall(SYS_getuid) == 0);
    CHECK(syscall(SYS_mkdir, "/", 0) == -1 && errno == 4095);
    CHECK(syscall(SYS_mmap, NULL, 4096, 0, 0x22, -1, 0) == -1 && errno == 7);
    CHECK(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 8) == -1 && errno == 8);
    CHECK(syscall(SYS_fork) == -1 && errno == 9);
    CHECK(syscall(SYS_execve, "/bin/true", NULL, NULL) == -1 && errno == 10);
    struct timespec moment = {0, 1};
    CHECK(syscall(SYS_nanosleep, &moment, NULL) == -1 && errno == 11);
    FAILS(syscall(SYS_getegid), ENOSYS);
    CHECK(syscall(SYS_getgid) >= 0);
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    say("errnos\n");
}

/* Which write is allowed depends on its arguments; and two filters: the stricter one counts. */
static void arguments(void)
{
    OK(INSTALL(0, LOAD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 4), LOAD_ARG(2),
               BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff),
               BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 100, 0, 1), RETURN(SECCOMP_RET_ERRNO | E2BIG),
               RETURN(SECCOMP_RET_ALLOW)));
    OK(INSTALL(0, LOAD(nr), ANSWER(SYS_getppid, SECCOMP_RET_ERRNO | 1),
               ANSWER(SYS_getpgrp, SECCOMP_RET_ALLOW), RETURN(SECCOMP_RET_ALLOW)));
    OK(INSTALL(0, LOAD(nr), ANSWER(SYS_getppid, SECCOMP_RET_ALLOW),
               ANSWER(SYS_getpgrp, SECCOMP_RET_ERRNO | 2), RETURN(SECCOMP_RET_ALLOW)));
    char text[200];
    memset(text, 'x', sizeof text);
    int null = OK(open("/dev/null", O_WRONLY));
    CHECK(write(null, text, 100) == 100);
    FAILS(write(null, text, 101), E2BIG);
    FAILS(syscall(SYS_getppid), 1);
    FAILS(syscall(SYS_getpgrp), 2);
    say("arguments\n");
}

static volatile int trapped;

static void on_sys(int signal, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    CHECK(signal == SIGSYS && info->si_code == 1 && info->si_errno == 77);
    CHECK(info->si_syscall == SYS_getppid && info->si_arch == AUDIT_ARCH_X86_64);
    CHECK(uc->uc_mcontext.gregs[REG_RAX] == SYS_getppid);
    CHECK((long)info->si_call_addr == uc->uc_mcontext.gregs[REG_RIP]);
    uc->uc_mcontext.gregs[REG_RAX] = 4321;
    trapped++;
}

static void traps(void)
{
    struct sigaction action = {.sa_sigaction = on_sys, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGSYS, &action, NULL));
    OK(INSTALL(0, LOAD(nr), ANSWER(SYS_getppid, SECCOMP_RET_TRAP | 77), RETURN(SECCOMP_RET_ALLOW)));
    for (int i = 0; i < 5; i++)
        CHECK(syscall(SYS_getppid) == 4321);
    say("traps: %d\n", trapped);
}

static void blocked_trap(void)
{
    struct sigaction action = {.sa_sigaction = on_sys, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGSYS, &action, NULL));
    sigset_t set;
    sigfillset(&set);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    OK(INSTALL(0, LOAD(nr), ANSWER(SYS_getppid, SECCOMP_RET_TRAP), RETURN(SECCOMP_RET_ALLOW)));
    syscall(SYS_getppid);
}

static void *asks(void *unused)
{
    syscall(SYS_getppid);
    say("not reached\n");
    return unused;
}

/* Only the thread that asked ends, if there is another. */
static void kills_thread(void)
{
    OK(INSTALL(0, LOAD(nr), ANSWER(SYS_getppid, SECCOMP_RET_KILL_THREAD),
               RETURN(SECCOMP_RET_ALLOW)));
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, asks, NULL));
    ZERO(pthread_join(thread, NULL));
    say("thread killed\n");
    syscall(SYS_getppid);
}

static void kills_process(void)
{
    OK(INSTALL(0, LOAD(nr), ANSWER(SYS_getppid, SECCOMP_RET_KILL_PROCESS),
               RETURN(SECCOMP_RET_ALLOW)));
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, asks, NULL));
    pthread_join(thread, NULL);
    say("not reached\n");
}

static void strict(void)
{
    OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
    say("strict\n");
    syscall(SYS_getppid);
}

static pthread_barrier_t barrier;

static void *waits(void *unused)
{
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    FAILS(syscall(SYS_getppid), 3);
    return unused;
}

static void together(void)
{
    pthread_t threads[3];
    ZERO(pthread_barrier_init(&barrier, NULL, 4));
    for (int i = 0; i < 3; i++)
        ZERO(pthread_create(&threads[i], NULL, waits, NULL));
    pthread_barrier_wait(&barrier);
    OK(INSTALL(SECCOMP_FILTER_FLAG_TSYNC, LOAD(nr), ANSWER(SYS_getppid, SECCOMP_RET_ERRNO | 3),
               RETURN(SECCOMP_RET_ALLOW)));
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 3; i++)
        ZERO(pthread_join(threads[i], NULL));
    say("together\n");
}

static const char *self;

static void inherited(void)
{
    OK(INSTALL(0, LOAD(nr), ANSWER(SYS_getppid, SECCOMP_RET_ERRNO | 33),
               RETURN(SECCOMP_RET_ALLOW)));
    pid_t child = OK(fork());
    if (child == 0) {
        FAILS(syscall(SYS_getppid), 33);
        execl(self, self, "after exec", NULL);
        _exit(1);
    }
    EXITS(child, 0);
    child = OK(vfork());
    if (child == 0) {
        execl(self, self, "after exec", NULL);
        _exit(1);
    }
    EXITS(child, 0);
}

static void none(void)
{
    struct sock_filter ends = BPF_STMT(BPF_LD | BPF_IMM, 0), far = LOAD(nr);
    struct sock_filter packet = BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0);
    struct sock_filter jump = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 9, 0);
    far.k = 64;
    CHECK(install(&ends, 1, 0) == -1 && errno == EINVAL);
    CHECK(install(&ends, 0, 0) == -1 && errno == EINVAL);
    CHECK(INSTALL(0, far, RETURN(0)) == -1 && errno == EINVAL);
    CHECK(INSTALL(0, packet, RETURN(0)) == -1 && errno == EINVAL);
    CHECK(INSTALL(0, jump, RETURN(0)) == -1 && errno == EINVAL);
    CHECK(install((struct sock_filter *)8, 4, 0) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_seccomp, 99, 0, NULL) == -1 && errno == EINVAL);
    uint32_t action = SECCOMP_RET_ERRNO;
    CHECK(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0);
    action = 0x12340000;
    CHECK(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == -1 && errno == EOPNOTSUPP);
    CHECK(prctl(PR_GET_SECCOMP) == 0);
    say("none\n");
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc > 1 && strcmp(argv[1], "after exec") == 0) {
        FAILS(syscall(SYS_getppid), 33);
        CHECK(prctl(PR_GET_SECCOMP) == SECCOMP_MODE_FILTER);
        say("after exec\n");
        return 0;
    }
    in_child("errnos", errnos);
    in_child("arguments", arguments);
    in_child("traps", traps);
    in_child("blocked trap", blocked_trap);
    in_child("kills thread", kills_thread);
    in_child("kills process", kills_process);
    in_child("strict", strict);
    in_child("together", together);
    in_child("inherited", inherited);
    in_child("none", none);
    say("done\n");
    return 0;
}
