/* Covers: a loop of N (100000) cheap syscalls; for measuring what one costs.
 * usage: busy_syscalls [N] */
#include "check.h"
#include <sys/syscall.h>

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 100000;
    pid_t parent = getppid();
    for (long i = 0; i < count; i++)
        CHECK(syscall(SYS_getppid) == parent);
    say("%ld calls\n", count);
    return 0;
}
