/* For the tests of conditions on a program that runs: three processes that send messages to each other at random (by a seed),
 * now hot, now cold. Each message says what its sender knew then: how many messages everybody had sent. So what was sent
 * is all that is needed to say which states were consistent; it is written to files before it is sent. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 3, LENGTH = 64 };

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x2545f4914f6cdd1d >> 32;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int ends[COUNT][COUNT][2], own = 0;
    for (int from = 0; from < COUNT; from++)
        for (int to = 0; to < COUNT; to++)
            if (pipe2(ends[from][to], O_NONBLOCK))
                return 1;
    for (int i = 1; i < COUNT && own == 0; i++)
        if (fork() == 0)
            own = i;
    char path[256];
    snprintf(path, sizeof path, "%s/told-%d", argv[2], own);
    int truth = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);
    uint64_t state = (uint64_t)atoll(argv[1]) * 0x9e3779b97f4a7c15 + own * 0x1234567 + 1;
    long known[COUNT] = {0};
    for (;;) {
        if (next(&state) % 2) {
            char text[LENGTH + 1], *word = next(&state) % 4 ? "cold" : "hot";
            known[own]++;
            int length = snprintf(text, sizeof text, "m %d %ld %s %ld %ld %ld ", own, known[own], word, known[0], known[1], known[2]);
            memset(text + length, '.', LENGTH - length);
            text[LENGTH - 1] = '\n';
            if (write(truth, text, LENGTH) != LENGTH)
                return 1;
            int to = (own + 1 + next(&state) % (COUNT - 1)) % COUNT;
            if (write(ends[own][to][1], text, LENGTH) != LENGTH)
                return 1;
        } else {
            for (int from = 0; from < COUNT; from++) {
                char text[LENGTH + 1] = {0};
                while (from != own && read(ends[from][own][0], text, LENGTH) == LENGTH) {
                    long seen[COUNT];
                    if (sscanf(text, "m %*d %*d %*s %ld %ld %ld", &seen[0], &seen[1], &seen[2]) != 3)
                        return 1;
                    for (int i = 0; i < COUNT; i++)
                        known[i] = seen[i] > known[i] ? seen[i] : known[i];
                }
            }
        }
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    }
}
