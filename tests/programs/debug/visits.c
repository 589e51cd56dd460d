/* Comes to one place often, without a system call in between, with variables
   of all kinds that breakpoints may depend on. */
#include <stdio.h>
#include <string.h>

#ifndef ROUNDS
#define ROUNDS 20000
#endif

enum mood { CALM, BUSY, WILD };

struct visit {
    unsigned char day;
    short delta;
    enum mood mood;
    long number;
    struct visit *last;
    int marks[4];
    char name[8];
};

volatile long total;

__attribute__((noinline)) long visit(struct visit *v, long n, unsigned small)
{
    total += n;
    return v->number + small;
}

int main(void)
{
    static struct visit all[2];
    long sum = 0;
    for (long n = 0; n < ROUNDS; n++) {
        struct visit *v = &all[n % 2];
        v->day = (unsigned char)n;
        v->delta = (short)(n - 10000);
        v->mood = n == 15000 ? WILD : CALM;
        v->number = n;
        v->last = n ? &all[(n + 1) % 2] : NULL;
        v->marks[n % 4] = (int)n;
        strcpy(v->name, n == 12345 ? "here" : "not");
        sum += visit(v, n, (unsigned)n);
    }
    printf("%ld\n", sum);
    return 0;
}
