/* Passes the same places again and again in every way there is: by jumps through tables, calls
   through pointers, recursion, returns; on several threads, in a child, and while signals come.
   What it prints must not depend on what is at these places.

   judged ROUNDS [wait]: with `wait` it says its number first and goes on until SIGTERM. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile sig_atomic_t ticks, ends;
static sigjmp_buf back;
static long fault_at;

static long twice(long n) { return 2 * n; }
static long less(long n) { return n - 3; }
static long (*const through[])(long) = {twice, less};

__attribute__((noinline)) long kinds(long k, long n)
{
    switch (k) {
    case 0: n ^= 0x55; break;
    case 1: n += k; /* falls through */
    case 2: n = through[n & 1](n); break;
    case 3: while (n > 1000) n /= 3; break;
    case 4: n = (long)((double)n * 1.5); break;
    case 5: { char text[32]; memset(text, (int)n, sizeof text); n += text[n & 31]; break; }
    case 6: n = n & 1 ? twice(n) : less(n); break;
    case 7: if (n > 7) n = kinds(k, n >> 1) + 1; break;
    case 8: n = -n; break;
    default: n = ~n;
    }
    return n;
}

__attribute__((noinline)) long mix(long rounds)
{
    long sum = 1;
    for (long i = 0; i < rounds; i++)
        sum = (sum + kinds(i % 11, (sum ^ i) & 0xffff)) & 0xffffff;
    return sum;
}

__attribute__((noinline)) int look(volatile char *at)
{
    return *at;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    fault_at = (long)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    siglongjmp(back, 1);
}

static void on_tick(int signal)
{
    (void)signal;
    ticks++;
}

static void on_term(int signal)
{
    (void)signal;
    ends = 1;
}

static void *worker(void *rounds)
{
    return (void *)mix((long)rounds);
}

static long code_sum(void)
{
    long sum = 0;
    for (const unsigned char *at = (void *)kinds; at < (const unsigned char *)kinds + 400; at++)
        sum = sum * 31 + *at;
    return sum;
}

static void act(int signal, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(signal, &action, 0);
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    /* (Who is started under the debugger would see its breakpoints there, and a replay would not.) */
    long code = argc > 2 ? code_sum() : 0;
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &fault, 0);
    act(SIGALRM, on_tick);
    act(SIGTERM, on_term);
    if (argc > 2) {
        printf("%d\n", getpid());
        fflush(stdout);
    }
    struct itimerval each = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &each, 0);
    long expected = mix(rounds), wrong = 0;
    do {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            pthread_create(&threads[i], 0, worker, (void *)rounds);
        for (int i = 0; i < 3; i++) {
            void *sum;
            pthread_join(threads[i], &sum);
            wrong += (long)sum != expected;
        }
        pid_t child = fork();
        if (child == 0)
            _exit(mix(rounds) != expected);
        int status;
        waitpid(child, &status, 0);
        wrong += status != 0;
        int faults = 0;
        for (int i = 0; i < 10; i++)
            if (sigsetjmp(back, 1) == 0)
                look(i & 1 ? (char *)"x" : (char *)(long)(16 * i));
            else
                faults += fault_at >= (long)look && fault_at < (long)look + 64;
        wrong += faults != 5;
    } while (argc > 2 && !ends);
    while (ticks == 0)
        pause();
    printf("sum %ld, %ld wrong, code %s\n", expected, wrong,
           argc < 3 || code == code_sum() ? "as it was" : "changed");
    return wrong != 0;
}
