/* Covers: computation of many shapes that is interrupted where no call is, by timer signals and by
 * another thread that wants to run. With the argument `order`, prints a digest of how far each shape
 * had come whenever a signal came.
 *
 * Hard for a replayer: the instruction at which it happened is passed millions of times, and in each
 * shape something else tells one pass from the next: a global variable, memory behind two pointers,
 * a vector register, how far a repeated instruction is, the depth of the stack, the place in a table,
 * nothing at all. */
#include "check.h"
#include <emmintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

static volatile uint64_t global;
struct node {
    struct node *next;
    uint64_t pad[40], count;
};
static struct node first, second;
static unsigned char from[1 << 20], to[1 << 20];
static double vector[2];
static atomic_int done, flag;
static volatile sig_atomic_t signals;
static uint64_t order = DIGEST_START;

static void on_signal(int signal)
{
    (void)signal;
    signals++;
    order = digest_number(order, global);
    order = digest_number(order, second.count);
    order = digest_number(order, to[0] + to[sizeof to / 2] * 256 + to[sizeof to - 1] * 65536);
}

/* A loop whose only progress is in a global variable. */
static void __attribute__((noinline)) count_global(void)
{
    while (global < 12000000)
        global++;
}

/* Behind two pointers, far from where they point. */
static void __attribute__((noinline)) count_behind(struct node *volatile *head)
{
    for (;;) {
        struct node *node = *head;
        if (++node->next->count == 8000000)
            return;
    }
}

/* In vector registers alone, until it overflows into infinity. */
static void __attribute__((noinline)) count_vector(void)
{
    __m128d sum = _mm_set_pd(1.0, 1.0), factor = _mm_set_pd(1.00002, 1.00003);
    __m128d end = _mm_set1_pd(1e300);
    while (_mm_movemask_pd(_mm_cmplt_pd(sum, end)) != 0)
        sum = _mm_mul_pd(sum, factor);
    _mm_storeu_pd(vector, sum);
}

/* One instruction that lasts long. */
static void __attribute__((noinline)) repeat(void)
{
    for (int i = 0; i < 150; i++) {
        unsigned char *source = from, *destination = to;
        size_t count = sizeof to;
        memset(from, i, 4096);
        __asm__ volatile("rep movsb" : "+S"(source), "+D"(destination), "+c"(count) : : "memory");
        destination = to;
        count = sizeof to / 8;
        __asm__ volatile("rep stosq" : "+D"(destination), "+c"(count) : "a"(i * UINT64_C(0x0101010101010101)) : "memory");
        destination = to;
        count = sizeof to;
        __asm__ volatile("repe scasb" : "+D"(destination), "+c"(count) : "a"(i) : "memory", "cc");
    }
}

/* The depth of the stack. */
static uint64_t __attribute__((noinline)) recurse(int depth, uint64_t value)
{
    if (depth == 0)
        return value;
    return recurse(depth - 1, value * 3 + 1) + recurse(depth - 1, value ^ depth);
}

/* Jumps through a table, on a state that mixes well. */
static uint64_t __attribute__((noinline)) interpret(const unsigned char *program, long rounds)
{
    static const void *const table[] = {&&add, &&mix, &&turn, &&flip, &&drop};
    uint64_t value = 1;
    long at = 0;
#define NEXT                                                                               \
    if (--rounds < 0)                                                                      \
        return value;                                                                      \
    goto *table[program[at++ & 63] % 5]
    NEXT;
add:
    value += at;
    NEXT;
mix:
    value *= 0x9e3779b97f4a7c15;
    NEXT;
turn:
    value = value << 13 | value >> 51;
    NEXT;
flip:
    value ^= ~0u;
    NEXT;
drop:
    value -= value >> 7;
    NEXT;
}

/* Nothing tells one pass from the next. */
static void __attribute__((noinline)) spin(void)
{
    while (!atomic_load_explicit(&flag, memory_order_acquire))
        _mm_pause();
}

static void *other(void *argument)
{
    (void)argument;
    uint64_t value = 1;
    while (!atomic_load_explicit(&done, memory_order_acquire)) {
        value = compute(value, 200000);
        atomic_store_explicit(&flag, 1, memory_order_release);
    }
    CHECK(value != 0);
    return NULL;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal};
    OK(sigaction(SIGALRM, &action, NULL));
    struct itimerval timer = {{0, 9000}, {0, 9000}};
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, other, NULL));
    OK(setitimer(ITIMER_REAL, &timer, NULL));

    struct node *head = &first;
    first.next = &second;
    second.next = &first;
    unsigned char program[64];
    for (int i = 0; i < 64; i++)
        program[i] = i * 37 % 101;

    count_global();
    count_behind((struct node *volatile *)&head);
    count_vector();
    repeat();
    uint64_t deep = recurse(20, 5);
    uint64_t value = interpret(program, 8000000);
    for (int i = 0; i < 10; i++) {
        atomic_store(&flag, 0);
        spin();
    }

    timer = (struct itimerval){{0, 0}, {0, 0}};
    OK(setitimer(ITIMER_REAL, &timer, NULL));
    atomic_store(&done, 1);
    ZERO(pthread_join(thread, NULL));
    say("global %lu, behind %lu, vector %d, repeated %d, deep %016lx, value %016lx\n", global,
        second.count, vector[0] > 1e300 && vector[1] > 1e300, to[12345], deep, value);
    if (wants_order(argc, argv))
        say("signals %d, order %016lx\n", (int)signals, order);
    return 0;
}
