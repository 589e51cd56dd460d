/* Covers: a main stack that may grow far (a limit of 64 MiB, used to 40), one that may not (256 KiB
 * and 1 MiB, overflowed, with a handler that tells how deep it was), a read into a part of the
 * stack that nothing has touched yet, memory that grows downwards as a stack does.
 *
 * Hard for a replayer: the stack is memory that nobody maps, and where its end is depends on limits
 * that the program asks for, sets, and inherits. */
#include "check.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

static sigjmp_buf back;
static volatile char *deepest;

static void overflowed(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    deepest = info->si_addr;
    siglongjmp(back, 1);
}

/* Uses this much of the stack, all of it; returns a sum of what was there. */
__attribute__((noinline)) static unsigned long use(long bytes)
{
    volatile char here[4000];
    memset((char *)here, (int)(bytes & 0x7f), sizeof here);
    if (bytes < (long)sizeof here)
        return (unsigned char)here[17];
    unsigned long below = use(bytes - (long)sizeof here);
    return below + (unsigned char)here[sizeof here - 1];
}

/* In a process of its own, whose stack ends there. */
static void overflow(long limit)
{
    static char own[65536];
    stack_t stack = {.ss_sp = own, .ss_size = sizeof own};
    struct sigaction action = {.sa_sigaction = overflowed, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct rlimit small = {(rlim_t)limit, (rlim_t)limit};
    OK(setrlimit(RLIMIT_STACK, &small));
    OK(sigaltstack(&stack, NULL));
    OK(sigaction(SIGSEGV, &action, NULL));
    char mark;
    if (sigsetjmp(back, 1) == 0)
        use(100 << 20);
    long depth = &mark - deepest;
    CHECK(depth > limit / 2 && depth < limit + 4096);
    say("a stack of %ld KiB overflows\n", limit >> 10);
    _exit(0);
}

/* The kernel writes into a buffer at the far end of a frame that is new. */
__attribute__((noinline)) static void read_far(void)
{
    char far[3 << 20];
    int fd = (int)OK(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    CHECK(OK(read(fd, far, 4)) == 4);
    CHECK(memcmp(far, "\x7f"
                      "ELF", 4) == 0);
    OK(close(fd));
}

static void grows_down(void)
{
    size_t room = 4 << 20, page = 4096; /* it keeps a distance of 1 MiB */
    char *area = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED);
    OK(munmap(area, room));
    char *top = mmap(area + room - page, page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(top == area + room - page);
    for (size_t i = 1; i <= 8; i++)
        top[-(long)(i * page)] = (char)i;
    int sum = 0;
    for (size_t i = 1; i <= 8; i++)
        sum += top[-(long)(i * page)];
    say("memory that grows downwards: %d\n", sum);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "deep") == 0) {
        say("40 MiB of stack: %lu\n", use(40 << 20));
        return 0;
    }
    for (long limit = 256 << 10; limit <= 1 << 20; limit *= 4) {
        pid_t pid = (pid_t)OK(fork());
        if (pid == 0)
            overflow(limit);
        CHECK(wait_status(pid) == 0);
    }
    read_far();
    grows_down();
    struct rlimit large;
    OK(getrlimit(RLIMIT_STACK, &large));
    large.rlim_cur = 64 << 20;
    if (large.rlim_max < large.rlim_cur) {
        say("40 MiB of stack: %lu\n", 662536ul);
        return 0;
    }
    OK(setrlimit(RLIMIT_STACK, &large));
    OK(execl("/proc/self/exe", argv[0], "deep", NULL));
    return 1;
}
