/* Covers: much written to memory that several processes share, in one turn: every other word of
 * sixteen megabytes, while three others wait for it in calls; then each of them changes a part.
 *
 * Hard for a replayer: the others must be brought what was written, a million small pieces, and
 * that takes longer than anything else they do; they are not stuck meanwhile. */
#include "check.h"
#include <sys/mman.h>
#include <sys/wait.h>

#define WORDS (16l * 1024 * 1024 / 8)
#define OTHERS 3

static uint64_t sum(const uint64_t *words)
{
    uint64_t sum = DIGEST_START;
    for (long i = 0; i < WORDS; i++)
        sum = sum * 31 + words[i];
    return sum;
}

static void other(uint64_t *words, int me, int wait_fd, int done_fd)
{
    char byte;
    CHECK(read(wait_fd, &byte, 1) == 1);
    long part = WORDS / OTHERS;
    for (long i = me * part; i < (me + 1) * part; i += 512)
        words[i] += (uint64_t)(me + 1);
    CHECK(write(done_fd, "d", 1) == 1);
    _exit(0);
}

int main(void)
{
    uint64_t *words =
        mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(words != MAP_FAILED);
    int start[OTHERS][2], done[2];
    ZERO(pipe(done));
    for (int i = 0; i < OTHERS; i++) {
        ZERO(pipe(start[i]));
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            other(words, i, start[i][0], done[1]);
    }
    for (long i = 0; i < WORDS; i += 2)
        words[i] = (uint64_t)i * 0x9e3779b97f4a7c15u;
    printf("written: %016llx\n", (unsigned long long)sum(words));
    for (int i = 0; i < OTHERS; i++) {
        char byte;
        CHECK(write(start[i][1], "s", 1) == 1);
        CHECK(read(done[0], &byte, 1) == 1);
    }
    for (int i = 0; i < OTHERS; i++) {
        int status;
        CHECK(wait(&status) > 0 && status == 0);
    }
    printf("changed: %016llx\n", (unsigned long long)sum(words));
    return 0;
}
