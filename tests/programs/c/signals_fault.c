/* Covers: faults that the program handles: SIGSEGV repaired with mprotect and retried, SIGFPE,
 * SIGILL and SIGTRAP skipped by editing the saved rip, SIGBUS behind the end of a mapped file, a
 * stack overflow caught on the alternate stack; then children that die of each fatal signal and
 * of a fault whose signal is blocked or ignored.
 *
 * Hard for a recorder: the monitor uses SIGSEGV, SIGTRAP and their like for itself and has to tell
 * the program's faults from its own; si_addr, si_code and the registers in the frame must be the
 * kernel's. */
#include "check.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

static volatile int faults;
static volatile siginfo_t last;
static char *page;
static greg_t skip;
static sigjmp_buf back;

static void handle(int sig, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    OK(sigaction(sig, &action, NULL));
}

static void repair(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    faults++;
    last = *info;
    OK(mprotect(page, 4096, PROT_READ | PROT_WRITE));
}

static void skip_it(int sig, siginfo_t *info, void *context)
{
    CHECK(info->si_signo == sig);
    faults++;
    last = *info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += skip;
}

static void jump_back(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    last = *info;
    siglongjmp(back, 1);
}

static void test_segv(void)
{
    page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    handle(SIGSEGV, repair, 0);
    for (int i = 0; i < 10; i++) {
        OK(mprotect(page, 4096, i % 2 ? PROT_READ : PROT_NONE));
        ((volatile char *)page)[i] = (char)i;
        CHECK(faults == i + 1 && last.si_code == SEGV_ACCERR && last.si_addr == page + i);
    }
    for (int i = 0; i < 10; i++)
        CHECK(page[i] == i);

    handle(SIGSEGV, jump_back, 0);
    OK(munmap(page, 4096));
    if (sigsetjmp(back, 1) == 0) {
        *(volatile char *)page = 1;
        CHECK(!"wrote to nowhere");
    }
    CHECK(last.si_code == SEGV_MAPERR && last.si_addr == page);

    /* An address that no page table could hold: the processor does not tell which one it was. */
    if (sigsetjmp(back, 1) == 0) {
        *(volatile char *)UINT64_C(0x8000000000000000) = 1;
        CHECK(!"wrote to a non-canonical address");
    }
    CHECK(last.si_code == SI_KERNEL && last.si_addr == NULL);
    say("SIGSEGV: %d repaired, unmapped, non-canonical\n", faults);
}

static void test_skipped(void)
{
    faults = 0;
    handle(SIGFPE, skip_it, 0);
    skip = 2;
    int quotient = 7;
    __asm__ volatile("xor %%edx, %%edx\n\txor %%ecx, %%ecx\n\tidiv %%ecx"
                     : "+a"(quotient)
                     :
                     : "ecx", "edx", "cc");
    CHECK(faults == 1 && last.si_code == FPE_INTDIV && last.si_addr != NULL && quotient == 7);

    handle(SIGILL, skip_it, 0);
    __asm__ volatile("ud2");
    CHECK(faults == 2 && last.si_code == ILL_ILLOPN);

    handle(SIGTRAP, skip_it, 0);
    skip = 0;
    __asm__ volatile("int3");
    CHECK(faults == 3 && last.si_code == SI_KERNEL);
    say("SIGFPE, SIGILL, SIGTRAP: skipped %d\n", faults);
}

static void test_bus(void)
{
    make_temp_dir("signals_fault");
    int fd = OK(open(temp_file("short"), O_CREAT | O_RDWR, 0600));
    write_all(fd, "short", 5);
    char *map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && memcmp(map, "short", 6) == 0);
    handle(SIGBUS, jump_back, 0);
    if (sigsetjmp(back, 1) == 0) {
        char byte = ((volatile char *)map)[4096];
        CHECK(byte != byte);
    }
    CHECK(last.si_code == BUS_ADRERR && last.si_addr == map + 4096);
    OK(munmap(map, 8192));
    close(fd);
    remove_temp_dir();
    say("SIGBUS: behind the end of a file\n");
}

__attribute__((noinline)) static int recurse(volatile int n)
{
    volatile char space[4096];
    space[n % 4096] = 1;
    return n < INT_MAX ? recurse(n + 1) + space[0] : 0;
}

static void test_stack_overflow(void)
{
    pid_t pid = OK(fork());
    if (pid == 0) {
        struct rlimit small = {1 << 20, 1 << 20};
        stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
        OK(setrlimit(RLIMIT_STACK, &small));
        OK(sigaltstack(&stack, NULL));
        handle(SIGSEGV, jump_back, SA_ONSTACK);
        if (sigsetjmp(back, 1) == 0)
            _exit(recurse(0) & 1);
        _exit(44);
    }
    EXITS(pid, 44);
    say("stack overflow: caught\n");
}

static void set_all_default(void)
{
    struct rlimit none = {0, 0};
    OK(setrlimit(RLIMIT_CORE, &none));
    for (int sig = 1; sig < 32; sig++)
        signal(sig, SIG_DFL);
}

static void test_deaths(void)
{
    static const int fatal[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGILL,   SIGTRAP, SIGABRT,   SIGBUS,
                                SIGFPE,  SIGKILL, SIGUSR1, SIGSEGV,  SIGUSR2, SIGPIPE,   SIGALRM,
                                SIGTERM, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF, SIGIO,    SIGPWR,
                                SIGSYS,  34,      64};
    const int count = sizeof fatal / sizeof fatal[0];
    for (int i = 0; i < count; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) {
            set_all_default();
            kill(getpid(), fatal[i]);
            _exit(1);
        }
        DIES(pid, fatal[i]);
    }

    /* A fault cannot be blocked or ignored. */
    for (int blocked = 0; blocked < 2; blocked++) {
        pid_t pid = OK(fork());
        if (pid == 0) {
            sigset_t set;
            set_all_default();
            sigemptyset(&set);
            sigaddset(&set, SIGSEGV);
            if (blocked)
                OK(sigprocmask(SIG_BLOCK, &set, NULL));
            else
                signal(SIGSEGV, SIG_IGN);
            *(volatile int *)page = 1;
            _exit(1);
        }
        DIES(pid, SIGSEGV);
    }
    static const char *const names[] = {"ud2", "int3", "division"};
    static const int signals[] = {SIGILL, SIGTRAP, SIGFPE};
    for (int i = 0; i < 3; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) {
            set_all_default();
            if (i == 0)
                __asm__ volatile("ud2");
            else if (i == 1)
                __asm__ volatile("int3");
            else
                __asm__ volatile("xor %%ecx, %%ecx\n\tdivl %%ecx" ::: "eax", "ecx", "edx", "cc");
            check_failed(__FILE__, __LINE__, names[i]);
        }
        DIES(pid, signals[i]);
    }
    say("deaths: %d signals, 5 faults\n", count);
}

int main(void)
{
    test_segv();
    test_skipped();
    test_bus();
    test_stack_overflow();
    test_deaths();
    return 0;
}
