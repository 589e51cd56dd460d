/* Covers: files that are made, mapped, written to by way of memory, removed and made again, by one
 * process and by several that share them (as databases do with an index of their log).
 *
 * Hard for a recorder: a file system gives a new file the number of the one that went, and to begin
 * with it has the same bytes: it must not be taken for the one that is known. */
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { PAGE = 4096, SIZE = 2 * PAGE, ROUNDS = 6, CHILDREN = 3 };

static int make(const char *path)
{
    int fd = OK(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    OK(ftruncate(fd, SIZE));
    return fd;
}

static char *map(int fd)
{
    char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static void check_empty(const char *at)
{
    for (int i = 0; i < SIZE; i++)
        CHECK(at[i] == 0);
}

static void alone(const char *path)
{
    for (int round = 0; round < ROUNDS; round++) {
        int fd = make(path);
        char *at = map(fd);
        check_empty(at);
        at[round] = at[PAGE + round] = 'a';
        OK(munmap(at, SIZE));
        OK(close(fd));
        OK(unlink(path));
    }
}

/* Who comes finds what those before it have written to this file, and nothing of the one before. */
static void together(const char *path)
{
    for (int round = 0; round < ROUNDS; round++) {
        int made = make(path);
        for (int i = 0; i < CHILDREN; i++) {
            pid_t child = OK(fork());
            if (child == 0) {
                int fd = OK(open(path, O_RDWR | O_CLOEXEC));
                char *at = map(fd);
                for (int other = 0; other < CHILDREN; other++)
                    CHECK(at[other * 100] == (other < i ? 'A' + round : 0));
                CHECK(at[PAGE] == i);
                at[PAGE]++;
                at[i * 100] = (char)('A' + round);
                _exit(0);
            }
            EXITS(child, 0);
        }
        OK(close(made));
        OK(unlink(path));
    }
}

int main(void)
{
    make_temp_dir("reused");
    alone(temp_file("alone"));
    together(temp_file("together"));
    remove_temp_dir();
    say("each is new\n");
    return 0;
}
