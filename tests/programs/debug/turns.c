/* Threads that compute, all the time, and in each round read the time-stamp counter, in `reads_counter`, and
 * make a call, in `calls`: each is the first instruction there. Status 1: the counter went back. Ends after
 * so many rounds of all together, which the first argument says. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>

#define THREADS 4

static atomic_long rounds;
static long last;

unsigned long reads_counter(void);
__asm__(".text\n"
        ".globl reads_counter\n"
        ".type reads_counter, @function\n"
        "reads_counter:\n"
        "    rdtsc\n"
        "    shl $32, %rdx\n"
        "    or %rdx, %rax\n"
        "    ret\n"
        ".size reads_counter, . - reads_counter\n"
        ".globl calls\n"
        ".type calls, @function\n"
        "calls:\n"
        "    syscall\n"
        "    ret\n"
        ".size calls, . - calls\n");

static void get_parent(void) {
    long result;
    __asm__ volatile("call calls" : "=a"(result) : "a"((long)SYS_getppid) : "rcx", "r11", "memory");
    if (result <= 0)
        exit(2);
}

static void *goes_round(void *unused) {
    volatile long computed = 0;
    unsigned long before = 0;
    while (atomic_fetch_add(&rounds, 1) < last) {
        for (long i = 0; i < 20000; i++)
            computed += i;
        unsigned long now = reads_counter();
        if (now < before)
            exit(1);
        before = now;
        get_parent();
    }
    return unused;
}

int main(int count, char **words) {
    pthread_t all[THREADS];
    last = count > 1 ? atol(words[1]) : 1000;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&all[i], NULL, goes_round, NULL))
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(all[i], NULL);
    printf("%d threads went round\n", THREADS);
    return 0;
}
