/* Covers: N (5000) rounds of one byte between two processes through pipes; for measuring.
 * usage: pipe_pingpong [N] */
#include "check.h"

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 5000;
    int there[2], back[2];
    unsigned char byte;
    OK(pipe(there));
    OK(pipe(back));
    pid_t pid = OK(fork());
    if (pid == 0) {
        close(there[1]);
        while (OK(read(there[0], &byte, 1)) == 1) {
            byte++;
            CHECK(write(back[1], &byte, 1) == 1);
        }
        _exit(0);
    }
    close(there[0]);
    for (long i = 0; i < count; i++) {
        byte = (unsigned char)i;
        CHECK(write(there[1], &byte, 1) == 1);
        CHECK(read(back[0], &byte, 1) == 1 && byte == (unsigned char)(i + 1));
    }
    close(there[1]);
    EXITS(pid, 0);
    say("%ld rounds\n", count);
    return 0;
}
