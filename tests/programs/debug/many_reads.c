/* Reads the time-stamp counter a million times, as programs do that measure themselves, at sites of
 * the forms that compilers make. */
#include <stdint.h>
#include <stdio.h>
#include <x86intrin.h>

static uint64_t apart(uint64_t before)
{
    unsigned processor;
    return __rdtscp(&processor) - before;
}

int main(void)
{
    uint64_t sum = 0, last = 0;
    for (int i = 0; i < 500000; i++) {
        uint64_t now = __rdtsc();
        if (now < last)
            return 1;
        sum += apart(now);
        last = now;
    }
    printf("%s\n", sum ? "later and later" : "never later");
    return 0;
}
