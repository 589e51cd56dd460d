/* For the debugger's tests: a program that executes itself, with a function of its own in each stage. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile long counter;

static void first_stage(int n)
{
    counter += n;
}

static void second_stage(int n)
{
    counter += 10 * n;
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        for (int i = 0; i < 3; i++)
            first_stage(i);
        execl("/proc/self/exe", argv[0], "second", (char *)0);
        return 1;
    }
    for (int i = 0; i < 2; i++)
        second_stage(i);
    printf("%ld\n", counter);
    return 0;
}
