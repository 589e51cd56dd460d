/* For the tests of Ctrl-C: computes for a while without a system call. */
#include <stdio.h>

unsigned long watched;

int main(void)
{
    volatile unsigned long rounds = 0;
    puts("begin");
    fflush(stdout);
    while (rounds < 1500000000UL)
        rounds++;
    watched = rounds;
    puts("end");
    return 0;
}
