/* Covers: reading the time-stamp counter next to everything that a recorder may use to see it: a
 * SIGILL handler and an illegal instruction of one's own, SIGILL blocked, a handler that interrupts a
 * loop of reads, code that is mapped from a file first and made executable later, threads that spin
 * on the counter.
 *
 * Hard for a recorder: the program must not notice a trap that is not its own, and must get its own. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <x86intrin.h>

static volatile sig_atomic_t illegal, alarms;
static volatile uint64_t in_handler;

static void on_illegal(int signal, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    (void)signal;
    CHECK(info->si_addr == (void *)uc->uc_mcontext.gregs[REG_RIP]);
    uc->uc_mcontext.gregs[REG_RIP] += 2;
    in_handler = __rdtsc();
    illegal++;
}

static void on_alarm(int signal)
{
    (void)signal;
    in_handler = __rdtsc();
    alarms++;
}

/* No address in it depends on where it is. */
__attribute__((noinline, aligned(64))) static uint64_t read_counter(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

/* Maps the page of the executable that has read_counter(), without the right to execute it. */
static uint64_t (*mapped_later(void))(void)
{
    uintptr_t wanted = (uintptr_t)read_counter;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    char line[512];
    unsigned long start, end, offset = 0;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && start <= wanted && wanted < end)
            break;
    }
    fclose(maps);
    int fd = OK(open("/proc/self/exe", O_RDONLY));
    char *code = mmap(NULL, end - start, PROT_READ, MAP_PRIVATE, fd, offset);
    CHECK(code != MAP_FAILED);
    OK(close(fd));
    OK(mprotect(code, end - start, PROT_READ | PROT_EXEC));
    return (uint64_t(*)(void))(code + (wanted - start));
}

static volatile int stop;

static void *spin(void *arg)
{
    uint64_t *last = arg;
    do {
        /* Once in any case: on a busy machine it may begin late. */
        uint64_t now = __rdtsc();
        CHECK(now >= *last);
        *last = now;
    } while (!stop);
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGILL, &action, NULL));
    uint64_t before = __rdtsc();
    for (int i = 0; i < 3; i++)
        __asm__ volatile("ud2");
    CHECK(illegal == 3 && in_handler > before && __rdtsc() > in_handler);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGILL);
    OK(sigprocmask(SIG_BLOCK, &set, NULL));
    uint64_t now = __rdtsc();
    CHECK(now > before && illegal == 3);
    OK(sigprocmask(SIG_UNBLOCK, &set, NULL));

    uint64_t (*later)(void) = mapped_later();
    uint64_t values = DIGEST_START;
    for (int i = 0; i < 10; i++) {
        uint64_t here = read_counter(), there = later();
        CHECK(there > here);
        values = digest_number(values, there);
    }
    /* What is written shows a replay whether it read the same. */
    int null = OK(open("/dev/null", O_WRONLY));
    OK(write(null, &values, sizeof values));

    struct sigaction alarm_action = {.sa_handler = on_alarm};
    OK(sigaction(SIGALRM, &alarm_action, NULL));
    struct itimerval timer = {{0, 2000}, {0, 2000}};
    OK(setitimer(ITIMER_REAL, &timer, NULL));
    uint64_t last = 0;
    while (alarms < 5) {
        now = __rdtsc();
        CHECK(now >= last);
        last = now;
    }
    timer = (struct itimerval){{0, 0}, {0, 0}};
    OK(setitimer(ITIMER_REAL, &timer, NULL));

    pthread_t threads[2];
    uint64_t seen[2] = {0, 0};
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, spin, &seen[i]) == 0);
    usleep(30000);
    stop = 1;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(seen[0] > last && seen[1] > last);
    say("traps of its own: %d, others unseen\n", (int)illegal);
    return 0;
}
