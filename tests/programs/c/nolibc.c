/* Covers: a program without any library: its own _start, every syscall an instruction of its own,
 * a thread by raw clone, a signal handler with its own return.
 * BUILD_FLAGS: -nostdlib -static -ffreestanding -fno-stack-protector -fno-tree-loop-distribute-patterns
 *
 * Hard for a recorder: nothing it could know by name is there: no libc, no loader, no thread
 * pointer, no vdso user, no restorer but the program's. */
#include <linux/futex.h>
#include <linux/sched.h>
#include <linux/signal.h>
#include <linux/mman.h>
#include <linux/time.h>
#include <linux/utsname.h>
#include <asm/unistd.h>

#define PROT_RW (PROT_READ | PROT_WRITE)
#define STACK_SIZE 16384

static long call(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return number;
}
#define CALL(number, ...) CALL_(number, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define CALL_(number, a, b, c, d, e, f, ...)                                               \
    call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static void print(int fd, const char *text)
{
    long length = 0;
    while (text[length])
        length++;
    CALL(__NR_write, fd, text, length);
}

static void check(int good, const char *what)
{
    if (good)
        return;
    print(2, "nolibc: failed: ");
    print(2, what);
    print(2, "\n");
    CALL(__NR_exit_group, 1);
}

static volatile int handled, thread_word = 1, thread_result;
static int pipe_fds[2];

static void handler(int sig)
{
    handled += sig;
}

__attribute__((naked)) static void restorer(void)
{
    __asm__("mov %0, %%eax\n\tsyscall" : : "i"(__NR_rt_sigreturn));
}

__attribute__((used)) static void thread_main(void)
{
    char byte = 0;
    CALL(__NR_read, pipe_fds[0], &byte, 1);
    thread_result = byte;
    CALL(__NR_exit, 0);
}

/* clone returns twice, the second time on the new stack, where there is nothing to return to. */
__attribute__((naked, noinline)) static long start_thread(long flags, void *stack, void *ptid,
                                                          volatile int *ctid)
{
    (void)flags, (void)stack, (void)ptid, (void)ctid;
    __asm__("mov %%rcx, %%r10\n\t"
            "mov %0, %%eax\n\t"
            "syscall\n\t"
            "test %%rax, %%rax\n\t"
            "jz 1f\n\t"
            "ret\n"
            "1:\txor %%ebp, %%ebp\n\t"
            "call thread_main\n\t"
            "hlt"
            :
            : "i"(__NR_clone));
}

static void test_thread(void)
{
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                 CLONE_CHILD_CLEARTID;
    char *stack = (char *)CALL(__NR_mmap, 0, STACK_SIZE, PROT_RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check((unsigned long)stack < -4095ul, "mmap");
    check(CALL(__NR_pipe2, pipe_fds, 0) == 0, "pipe2");
    check(start_thread(flags, stack + STACK_SIZE, 0, &thread_word) > 0, "clone");
    check(CALL(__NR_write, pipe_fds[1], "*", 1) == 1, "write");
    while (thread_word)
        CALL(__NR_futex, &thread_word, FUTEX_WAIT, thread_word, 0);
    check(thread_result == '*', "what the thread read");
    check(CALL(__NR_munmap, stack, STACK_SIZE) == 0, "munmap");
}

static void test_signal(void)
{
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        unsigned long mask;
    } action = {handler, SA_RESTORER, restorer, 0};
    check(CALL(__NR_rt_sigaction, SIGUSR1, &action, 0, 8) == 0, "rt_sigaction");
    for (int i = 0; i < 3; i++)
        check(CALL(__NR_kill, CALL(__NR_getpid, 0), SIGUSR1) == 0, "kill");
    check(handled == 3 * SIGUSR1, "signals handled");
}

static void test_child(void)
{
    int status = 0;
    long pid = CALL(__NR_fork, 0);
    if (pid == 0)
        CALL(__NR_exit_group, 9);
    check(CALL(__NR_wait4, pid, &status, 0, 0) == pid && status == 9 << 8, "wait4");
}

__attribute__((used)) void start(long *stack)
{
    struct new_utsname name;
    struct timespec short_time = {0, 1000000};
    check(stack[0] == 1 && stack[1] != 0 && stack[2] == 0, "arguments");
    check(CALL(__NR_uname, &name) == 0 && name.sysname[0] == 'L', "uname");
    check(CALL(__NR_nanosleep, &short_time, 0) == 0, "nanosleep");
    check(CALL(__NR_close, 99) == -9, "close of nothing");
    test_signal();
    test_thread();
    test_child();
    print(1, "hello without a library\n");
    CALL(__NR_exit_group, 0);
}

__asm__(".globl _start\n"
        "_start:\n\t"
        "xor %ebp, %ebp\n\t"
        "mov %rsp, %rdi\n\t"
        "and $-16, %rsp\n\t"
        "call start\n\t"
        "hlt");
