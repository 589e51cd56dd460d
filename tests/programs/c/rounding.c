/* Covers: floating-point state that threads and processes inherit, and that signal handlers do not:
 * rounding modes, and what is left in x87 and vector registers.
 *
 * Hard for a replayer: a new thread begins with the state of the one that made it, not with a fresh
 * one, a handler with a fresh one, and each must have its own when turns pass.
 * BUILD_FLAGS: -frounding-math -lm */
#include "check.h"
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

static volatile double one = 1, three = 3;
static volatile int in_handler;

static int mode(void)
{
    /* Both units, as they are, not as the library remembers them. */
    unsigned short x87;
    unsigned int sse;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    __asm__ volatile("stmxcsr %0" : "=m"(sse));
    return (x87 >> 10 & 3) * 10 + (sse >> 13 & 3);
}

/* What an earlier computation left in a register that is free. */
static uint64_t left_behind(void)
{
    unsigned char image[512] __attribute__((aligned(16)));
    uint64_t word;
    __asm__ volatile("fxsave64 %0" : "=m"(image));
    memcpy(&word, image + 32 + 7 * 16, sizeof word);
    return word;
}

static void on_signal(int signal)
{
    (void)signal;
    in_handler = mode();
}

static void *live(void *argument)
{
    int before = mode();
    uint64_t left = left_behind();
    double up = one / three;
    fesetround((int)(long)argument);
    for (int i = 0; i < 50; i++) {
        sched_yield();
        CHECK(mode() == (argument == (void *)FE_DOWNWARD ? 11 : 33));
    }
    say("thread: began with %d, %016lx, %a, now %d, %a\n", before, left, up, mode(), one / three);
    return NULL;
}

static void thread(int rounding)
{
    pthread_t made;
    ZERO(pthread_create(&made, NULL, live, (void *)(long)rounding));
    for (int i = 0; i < 50; i++) {
        sched_yield();
        CHECK(mode() == 22);
    }
    ZERO(pthread_join(made, NULL));
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    OK(sigaction(SIGUSR1, &action, NULL));
    say("fresh %d, %a\n", mode(), one / three);
    fesetround(FE_UPWARD);
    __asm__ volatile("fldpi; fstp %%st(0)" : : : "st");
    say("main %d, %016lx, %a\n", mode(), left_behind(), one / three);
    thread(FE_DOWNWARD);
    thread(FE_TOWARDZERO);
    OK(raise(SIGUSR1));
    say("handler %d, then %d\n", in_handler, mode());
    pid_t child = OK(fork());
    if (child == 0) {
        say("child %d, %016lx, %a\n", mode(), left_behind(), one / three);
        _exit(0);
    }
    OK(waitpid(child, NULL, 0));
    return 0;
}
