/* Covers: the code around a syscall instruction in every shape that a patch of it has to respect:
 * jumps to it, jumps behind it, two in a row, neighbours that are relative to their address, calls,
 * prefixes, immediates that look like one; a thread parked in a call while another makes the same
 * one. The argument `hidden` adds shapes that no static analysis can see.
 *
 * Hard for a recorder: a jump needs five bytes and the instruction has two, so its neighbours move;
 * each shape runs many times, so that the patched form is reached. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define RUNS 20

long variable = 1234;
void *return_address;
long site_plain(long), site_entry(long), site_behind(long), site_loop(long), site_twice(long);
long site_relative_after(long), site_relative_before(long), site_branch(long), site_call(long);
long site_prefix(long), site_looks_like(long), site_pop(long), site_indirect(long), site_overlap(long);
long site_any(long number, long a, long b, long c);
extern char call_returns_here[], overlap_middle[];

__asm__(
    /* The plainest: number, syscall, return. */
    "site_plain:\n\t"
    "mov $110, %eax\n\t"
    "syscall\n\t"
    "ret\n"

    /* The first instruction of a function; the one before it belongs to somebody else. */
    "site_entry_setup:\n\t"
    "mov $110, %eax\n\t"
    "jmp 2f\n\t"
    "ret\n"
    "2:\tsyscall\n\t"
    "ret\n\t"
    "nop\n"
    "site_entry:\n\t"
    "jmp site_entry_setup\n"

    /* Someone jumps right behind it, sometimes. */
    "site_behind:\n\t"
    "mov $110, %eax\n\t"
    "test $1, %dil\n\t"
    "jz 1f\n\t"
    "syscall\n"
    "1:\tinc %rax\n\t"
    "dec %rax\n\t"
    "ret\n"

    /* Someone jumps to the syscall itself, over its preparation. */
    "site_loop:\n\t"
    "mov $3, %edx\n\t"
    "mov $110, %eax\n"
    "1:\tsyscall\n\t"
    "dec %edx\n\t"
    "jz 2f\n\t"
    "mov $110, %eax\n\t"
    "jmp 1b\n"
    "2:\tret\n"

    /* Two in a row: sched_yield gives 0, which is read, which fails with EBADF. */
    "site_twice:\n\t"
    "mov $-1, %rdi\n\t"
    "mov $24, %eax\n\t"
    "syscall\n\t"
    "syscall\n\t"
    "ret\n"

    /* Neighbours whose meaning depends on where they are. */
    "site_relative_after:\n\t"
    "mov $110, %eax\n\t"
    "syscall\n\t"
    "mov variable(%rip), %rdx\n\t"
    "add %rdx, %rax\n\t"
    "ret\n"
    "site_relative_before:\n\t"
    "mov $110, %eax\n\t"
    "mov variable(%rip), %rsi\n\t"
    "syscall\n\t"
    "add %rsi, %rax\n\t"
    "ret\n"

    /* As in the C library: compare and branch. */
    "site_branch:\n\t"
    "mov $110, %eax\n\t"
    "test $1, %dil\n\t"
    "jz 1f\n\t"
    "mov $9999, %eax\n"
    "1:\tsyscall\n\t"
    "cmp $-4095, %rax\n\t"
    "jae 2f\n\t"
    "ret\n"
    "2:\tmov $-1, %rax\n\t"
    "ret\n"

    /* A call behind it: its return address is seen by unwinders. */
    "note_return_address:\n\t"
    "mov (%rsp), %rdx\n\t"
    "mov %rdx, return_address(%rip)\n\t"
    "ret\n"
    "site_call:\n\t"
    "mov $110, %eax\n\t"
    "syscall\n\t"
    "call note_return_address\n"
    "call_returns_here:\n\t"
    "ret\n"

    /* A prefix that means nothing here. */
    "site_prefix:\n\t"
    "mov $110, %eax\n\t"
    ".byte 0x48, 0x0f, 0x05\n\t"
    "ret\n"

    /* The bytes of a syscall that are none. */
    "site_looks_like:\n\t"
    "mov $110, %eax\n\t"
    "syscall\n\t"
    "mov $0x0000050f, %edx\n\t"
    "sub $0x0000050f, %edx\n\t"
    "add %rdx, %rax\n\t"
    "ret\n"

    /* Neighbours that use the stack. */
    "site_pop:\n\t"
    "push %rbx\n\t"
    "mov $110, %eax\n\t"
    "push %rdi\n\t"
    "syscall\n\t"
    "pop %rdi\n\t"
    "pop %rbx\n\t"
    "ret\n"

    /* Any call through one site. */
    "site_any:\n\t"
    "mov %rdi, %rax\n\t"
    "mov %rsi, %rdi\n\t"
    "mov %rdx, %rsi\n\t"
    "mov %rcx, %rdx\n\t"
    "syscall\n\t"
    "ret\n"

    /* Hidden: a computed jump to right behind the syscall. */
    "site_indirect:\n\t"
    "mov $110, %eax\n\t"
    "lea 1f(%rip), %rdx\n\t"
    "sub $3, %rdx\n\t"
    "test $1, %dil\n\t"
    "jz 2f\n\t"
    "jmp *%rdx\n"
    "2:\tsyscall\n\t"
    "nop\n\t"
    "nop\n\t"
    "nop\n"
    "1:\tret\n"

    /* Hidden: a mov whose immediate is also run, as a syscall. */
    "site_overlap:\n\t"
    "mov $110, %eax\n\t"
    "test $1, %dil\n\t"
    "jz overlap_middle\n\t"
    ".byte 0xba\n"
    "overlap_middle:\n\t"
    ".byte 0x0f, 0x05, 0x90, 0x90\n\t"
    "ret\n");

static const struct {
    long (*site)(long);
    /* What it gives for even and odd arguments, beyond the parent's pid if `parent` is set. */
    long even, odd;
    int even_parent, odd_parent;
} sites[] = {
    {site_plain, 0, 0, 1, 1},
    {site_entry, 0, 0, 1, 1},
    {site_behind, SYS_getppid, 0, 0, 1},
    {site_loop, 0, 0, 1, 1},
    {site_twice, -EBADF, -EBADF, 0, 0},
    {site_relative_after, 1234, 1234, 1, 1},
    {site_relative_before, 1234, 1234, 1, 1},
    {site_branch, 0, -1, 1, 0},
    {site_call, 0, 0, 1, 1},
    {site_prefix, 0, 0, 1, 1},
    {site_looks_like, 0, 0, 1, 1},
    {site_pop, 0, 0, 1, 1},
    {site_indirect, 0, SYS_getppid, 1, 0},
    {site_overlap, 0, SYS_getppid, 1, 0},
};
#define SITES (sizeof sites / sizeof sites[0])
#define HIDDEN 2

static void run_sites(size_t from, size_t to)
{
    pid_t parent = getppid();
    for (size_t i = from; i < to; i++)
        for (long n = 0; n < RUNS; n++) {
            long got = sites[i].site(n);
            CHECK(got == (n % 2 ? sites[i].odd + (sites[i].odd_parent ? parent : 0)
                                : sites[i].even + (sites[i].even_parent ? parent : 0)));
        }
}

static int fds[2];
static atomic_int signals, parked;

static void count_signal(int sig)
{
    (void)sig;
    atomic_fetch_add(&signals, 1);
}

static void *park(void *unused)
{
    char byte = 0;
    long result;
    (void)unused;
    atomic_store(&parked, 1);
    while ((result = site_any(SYS_read, fds[0], (long)&byte, 1)) == -EINTR)
        ;
    CHECK(result == 1 && byte == 'x');
    return NULL;
}

static void *hammer(void *unused)
{
    (void)unused;
    for (int i = 0; i < 1000; i++)
        CHECK(site_any(SYS_getppid, 0, 0, 0) == getppid());
    return NULL;
}

/* The first call of the site is still in the kernel when the next ones come. */
static void test_parked(void)
{
    struct sigaction action = {.sa_handler = count_signal};
    pthread_t thread, others[3];
    OK(sigaction(SIGUSR1, &action, NULL));
    OK(pipe(fds));
    ZERO(pthread_create(&thread, NULL, park, NULL));
    while (!atomic_load(&parked))
        sched_yield();
    sleep_ms(3);
    for (int i = 0; i < 3; i++)
        ZERO(pthread_create(&others[i], NULL, hammer, NULL));
    for (int i = 0; i < 5; i++) {
        int before = atomic_load(&signals);
        ZERO(pthread_kill(thread, SIGUSR1));
        while (atomic_load(&signals) == before)
            sleep_ms(1);
    }
    for (int i = 0; i < 3; i++)
        ZERO(pthread_join(others[i], NULL));
    write_all(fds[1], "x", 1);
    ZERO(pthread_join(thread, NULL));
    say("parked: interrupted %d times, then read\n", atomic_load(&signals));
}

int main(int argc, char **argv)
{
    run_sites(0, SITES - HIDDEN);
    CHECK(return_address == call_returns_here);
    say("sites: %zu shapes, %d times\n", SITES - HIDDEN, RUNS);
    test_parked();
    if (argc > 1 && strcmp(argv[1], "hidden") == 0) {
        run_sites(SITES - HIDDEN, SITES);
        say("hidden: %d shapes\n", HIDDEN);
    }
    return 0;
}
