/* Covers: syscalls on stacks that are tiny or strange: coroutines of 4 KiB with a hole below them,
 * a thread by raw clone on 2 KiB that shares its creator's thread pointer, handlers on the smallest
 * alternate stack the kernel allows; and a stack that grows by megabytes as it is used.
 *
 * Hard for a recorder: there is no room for the monitor on the program's stack, neither for its
 * frames nor for a SIGSYS; and the thread pointer does not tell one thread from another. */
#include "check.h"
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define COROUTINES 4
#define ROUNDS 25

/* No C library: resolving a symbol for the first time may need more stack than there is. */
static long raw(long number, long a, long b, long c)
{
    __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return number;
}

/* A stack with an unmapped page below it. */
static char *guarded_stack(size_t size)
{
    size_t whole = (size + 4095) / 4096 * 4096;
    char *area = mmap(NULL, whole + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED);
    OK(mprotect(area, 4096, PROT_NONE));
    return area + 4096 + whole - size;
}

static ucontext_t main_context, contexts[COROUTINES];
static int fds[2];
static volatile long sum;

static void coroutine(int me)
{
    for (int i = 0; i < ROUNDS; i++) {
        char byte = (char)(me + 1);
        raw(SYS_write, fds[1], (long)&byte, 1);
        raw(SYS_getpid, 0, 0, 0);
        swapcontext(&contexts[me], &contexts[(me + 1) % COROUTINES]);
        raw(SYS_read, fds[0], (long)&byte, 1);
        sum += byte;
    }
    if (me == COROUTINES - 1)
        return;
    swapcontext(&contexts[me], &contexts[me + 1]);
}

static void test_coroutines(void)
{
    OK(pipe(fds));
    for (int i = 0; i < COROUTINES; i++) {
        OK(getcontext(&contexts[i]));
        contexts[i].uc_stack.ss_sp = guarded_stack(4096);
        contexts[i].uc_stack.ss_size = 4096;
        contexts[i].uc_link = &main_context;
        makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
    }
    OK(swapcontext(&main_context, &contexts[0]));
    CHECK(sum == ROUNDS * (1 + 2 + 3 + 4));
    say("coroutines: sum %ld\n", sum);
}

static volatile int thread_word, thread_seen;

static int tiny_thread(void *argument)
{
    char byte = 0;
    struct timespec short_time = {0, 1000000};
    raw(SYS_nanosleep, (long)&short_time, 0, 0);
    raw(SYS_read, fds[0], (long)&byte, 1);
    thread_seen = byte + (int)(long)argument;
    return 0;
}

static void test_tiny_thread(void)
{
    const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                      CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    for (int i = 0; i < 10; i++) {
        char *stack = guarded_stack(2048);
        OK(clone(tiny_thread, stack + 2048, flags, (void *)100, &thread_word, NULL, &thread_word));
        write_all(fds[1], "\x05", 1);
        for (int tid; (tid = thread_word) != 0;)
            syscall(SYS_futex, &thread_word, FUTEX_WAIT, tid, NULL);
        CHECK(thread_seen == 105);
        thread_seen = 0;
        OK(munmap(stack - 2048 - 4096, 8192));
    }
    say("tiny threads: 10 times\n");
}

static char *alternate;
static size_t alternate_size;
static volatile int handled;

static void handler(int sig)
{
    char here;
    handled += sig && &here >= alternate && &here < alternate + alternate_size &&
               raw(SYS_getpid, 0, 0, 0) > 0;
}

static void test_smallest_alternate_stack(void)
{
    unsigned long least = getauxval(AT_MINSIGSTKSZ);
    alternate_size = (least ? least : MINSIGSTKSZ) + 512;
    alternate = guarded_stack(alternate_size);
    stack_t stack = {.ss_sp = alternate, .ss_size = alternate_size};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    OK(sigaltstack(&stack, NULL));
    OK(sigaction(SIGUSR1, &action, NULL));
    for (int i = 0; i < 10; i++)
        OK(raise(SIGUSR1));
    CHECK(handled == 10);
    stack.ss_size = 100;
    FAILS(sigaltstack(&stack, NULL), ENOMEM);
    stack.ss_flags = SS_DISABLE;
    OK(sigaltstack(&stack, NULL));
    say("smallest alternate stack: %d handled\n", handled);
}

__attribute__((noinline)) static long descend(int depth)
{
    volatile char frame[4000];
    frame[depth % 4000] = 1;
    long below = depth ? descend(depth - 1) : 0;
    return below + (raw(SYS_getppid, 0, 0, 0) == getppid()) * frame[depth % 4000];
}

int main(void)
{
    test_coroutines();
    test_tiny_thread();
    test_smallest_alternate_stack();
    long levels = descend(1000);
    CHECK(levels == 1001);
    say("deep stack: %ld levels\n", levels);
    return 0;
}
