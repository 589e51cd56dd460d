/* For the tests of conditions on a program that runs: two processes that count rounds of messages, in an order that the
 * messages make, for as long as it takes (or so many rounds). */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile long sent, answered;

static void begin_round(void)
{
    sent++;
}

static void answer(void)
{
    answered++;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1000000;
    int there[2], back[2];
    char word = 0;
    if (pipe(there) || pipe(back))
        return 1;
    if (fork() == 0) {
        close(there[1]);
        close(back[0]);
        while (read(there[0], &word, 1) == 1) {
            answer();
            if (write(back[1], &word, 1) != 1)
                return 1;
            nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
        }
        return 0;
    }
    close(there[0]);
    close(back[1]);
    while (sent < rounds) {
        begin_round();
        if (write(there[1], &word, 1) != 1 || read(back[0], &word, 1) != 1)
            return 1;
    }
    close(there[1]);
    wait(NULL);
    printf("%ld rounds\n", sent);
    return 0;
}
