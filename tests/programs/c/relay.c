/* Covers: 102 processes that share memory pass a token round over pipes, and count in the memory as it passes.
 *
 * Hard for a replayer: all but one of them wait for another's turn at any time, and on a busy machine the one that
 * does not may have no processor to run on for a while. */
#include "check.h"
#include <sys/mman.h>

enum { PROCESSES = 102, ROUNDS = 20 };

static int pipes[PROCESSES][2];

static void pass(int to, int token)
{
    CHECK(write(pipes[to % PROCESSES][1], &token, sizeof token) == sizeof token);
}

static int receive(int from)
{
    int token;
    CHECK(read(pipes[from][0], &token, sizeof token) == sizeof token);
    return token;
}

int main(void)
{
    int *passed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(passed != MAP_FAILED);
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++)
        OK(pipe(pipes[i]));
    for (int i = 1; i < PROCESSES; i++) {
        children[i] = OK(fork());
        if (children[i] == 0) {
            for (int round = 0; round < ROUNDS; round++) {
                int token = receive(i);
                CHECK(token == (*passed)++);
                pass(i + 1, token + 1);
            }
            _exit(0);
        }
    }
    int token = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pass(1, token);
        token = receive(0);
    }
    for (int i = 1; i < PROCESSES; i++)
        EXITS(children[i], 0);
    CHECK(token == *passed);
    say("%d\n", token);
    return 0;
}
