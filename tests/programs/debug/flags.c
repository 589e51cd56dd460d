/* Takes its flags from the stack, by which it would learn that it is stepped, and puts them back,
   by which it would be stepped for ever. */
#include <stdio.h>

__attribute__((noinline)) unsigned long flags(void)
{
    unsigned long now;
    __asm__ volatile("pushfq\n\tmov (%%rsp), %0\n\tpopfq" : "=r"(now)::"memory", "cc");
    return now;
}

int main(void)
{
    unsigned long trap = 0;
    for (int i = 0; i < 3; i++)
        trap |= flags() & 0x100;
    puts(trap ? "stepped" : "not stepped");
    return 0;
}
