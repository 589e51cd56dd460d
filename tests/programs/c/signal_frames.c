/* Covers: signals whose frame cannot be put on the stack: on a stack without room, on an alternate
 * stack that is not mapped or too small; SIGSEGV then reaches its own handler, or ends the process;
 * rt_sigreturn to a frame that is none; sigaltstack with what it must refuse.
 *
 * Hard for a recorder: it builds the frames itself, and must fail as the kernel would. */
#include "check.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { PAGE = 4096, STACK = 65536 };

static char *alternate;
static sigjmp_buf away;
static volatile int usr1s;

static void on_usr1(int signal)
{
    (void)signal;
    usr1s++;
}

static void on_segv(int signal, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    char here;
    int on_alternate = &here > alternate && &here < alternate + STACK;
    say("signal %d, code %d, address %p, alternate %d, mask %d, trap %lld\n", signal, info->si_code,
        info->si_addr, on_alternate, sigismember(&uc->uc_sigmask, SIGUSR1),
        (long long)uc->uc_mcontext.gregs[REG_TRAPNO]);
    siglongjmp(away, 1);
}

static void handle(int signal, void (*simple)(int), void (*full)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_flags = flags | (full ? SA_SIGINFO : 0)};
    if (full)
        action.sa_sigaction = full;
    else
        action.sa_handler = simple;
    OK(sigaction(signal, &action, NULL));
}

/* Makes a system call with the stack pointer somewhere else. */
static long call_on(void *stack, long number, long a, long b)
{
    long result;
    __asm__ volatile("mov %%rsp, %%rbx\n\tmov %4, %%rsp\n\tsyscall\n\tmov %%rbx, %%rsp"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "r"(stack)
                     : "rbx", "rcx", "r11", "memory");
    return result;
}

static void test_no_room(void)
{
    char *small = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(small != MAP_FAILED);
    OK(mprotect(small, PAGE, PROT_NONE));
    handle(SIGUSR1, on_usr1, NULL, 0);
    handle(SIGSEGV, NULL, on_segv, SA_ONSTACK);
    if (sigsetjmp(away, 1) == 0) {
        call_on(small + PAGE + 512, SYS_kill, getpid(), SIGUSR1);
        say("not reached\n");
    }
    say("no room: %d\n", usr1s);
    /* With room, the handler runs. */
    kill(getpid(), SIGUSR1);
    say("room: %d\n", usr1s);
}

static void in_child(const char *what, void (*body)(void))
{
    pid_t child = OK(fork());
    if (child == 0) {
        struct rlimit none = {0, 0};
        OK(setrlimit(RLIMIT_CORE, &none));
        body();
        _exit(0);
    }
    int status = wait_status(child);
    say("%s: %s %d\n", what, WIFSIGNALED(status) ? "signal" : "status",
        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* The alternate stack is nowhere: nothing can be delivered on it. */
static void unmapped(void)
{
    char *gone = mmap(NULL, STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = gone, .ss_size = STACK};
    OK(sigaltstack(&stack, NULL));
    handle(SIGUSR1, on_usr1, NULL, SA_ONSTACK);
    handle(SIGSEGV, NULL, on_segv, 0);
    if (sigsetjmp(away, 1) == 0) {
        kill(getpid(), SIGUSR1);
        say("not reached\n");
    }
    /* And if SIGSEGV's own handler wants it, that is the end. */
    handle(SIGSEGV, NULL, on_segv, SA_ONSTACK);
    kill(getpid(), SIGUSR1);
    say("not reached\n");
}

static void blocked(void)
{
    char *gone = mmap(NULL, STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = gone, .ss_size = STACK};
    OK(sigaltstack(&stack, NULL));
    handle(SIGUSR1, on_usr1, NULL, SA_ONSTACK);
    handle(SIGSEGV, NULL, on_segv, 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    kill(getpid(), SIGUSR1);
    say("not reached\n");
}

static void no_frame(void)
{
    handle(SIGSEGV, NULL, on_segv, SA_ONSTACK);
    char *gone = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sigsetjmp(away, 1) == 0) {
        call_on(gone + PAGE, SYS_rt_sigreturn, 0, 0);
        say("not reached\n");
    }
    handle(SIGSEGV, SIG_DFL, NULL, 0);
    call_on(gone + PAGE, SYS_rt_sigreturn, 0, 0);
    say("not reached\n");
}

static void test_refused(void)
{
    stack_t now, stack = {.ss_sp = alternate, .ss_size = 100};
    FAILS(sigaltstack(&stack, NULL), ENOMEM);
    stack.ss_size = STACK;
    stack.ss_flags = 64;
    FAILS(sigaltstack(&stack, NULL), EINVAL);
    FAILS(syscall(SYS_sigaltstack, 8, NULL), EFAULT);
    FAILS(syscall(SYS_sigaltstack, NULL, 8), EFAULT);
    stack.ss_flags = SS_DISABLE;
    stack.ss_size = 1;
    OK(sigaltstack(&stack, NULL));
    OK(sigaltstack(NULL, &now));
    say("refused: %d %zu %p\n", now.ss_flags, now.ss_size, now.ss_sp);
}

int main(void)
{
    alternate = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(alternate != MAP_FAILED);
    stack_t stack = {.ss_sp = alternate, .ss_size = STACK};
    OK(sigaltstack(&stack, NULL));
    test_no_room();
    in_child("no frame", no_frame);
    in_child("unmapped", unmapped);
    in_child("blocked", blocked);
    test_refused();
    say("done\n");
    return 0;
}
