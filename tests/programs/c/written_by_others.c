/* Covers: a file that one process has mapped and another changes by write, pwrite, writev, ftruncate and
 * fallocate, without having it mapped: mapped shared for reading, and private; told by a pipe, and by the file
 * alone.
 *
 * Hard for a recorder: nothing in the log of who reads says when the bytes changed, only that of who wrote. */
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { SIZE = 16384 };

static int to_child[2], to_parent[2];

static void go(int to[2])
{
    CHECK(write(to[1], "g", 1) == 1);
}

static void await(int from[2])
{
    char letter;
    CHECK(read(from[0], &letter, 1) == 1);
}

/* The child: it has only the descriptor. */
static void change(const char *path)
{
    int fd = OK(open(path, O_RDWR));
    for (int round = 0; round < 20; round++) {
        await(to_child);
        char bytes[100];
        memset(bytes, 'a' + round, sizeof bytes);
        struct iovec pieces[2] = {{bytes, 10}, {bytes + 50, 20}};
        switch (round % 4) {
        case 0:
            OK(lseek(fd, 100 * round, SEEK_SET));
            CHECK(write(fd, bytes, 100) == 100);
            break;
        case 1:
            CHECK(pwrite(fd, bytes, 100, 4096 - 50) == 100);
            break;
        case 2:
            CHECK(pwritev(fd, pieces, 2, 8192 + round) == 30);
            break;
        case 3:
            OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4000, 200));
        }
        if (round == 18)
            OK(ftruncate(fd, SIZE / 2));
        if (round == 19)
            OK(ftruncate(fd, SIZE));
        go(to_parent);
    }
    await(to_child);
    /* And now without a word. */
    for (int i = 1; i <= 100; i++) {
        CHECK(pwrite(fd, &i, sizeof i, 12288) == sizeof i);
        sleep_ms(1);
    }
}

static void look(const char *how, int flags)
{
    const char *path = temp_file(how);
    int fd = OK(open(path, O_RDWR | O_CREAT, 0600));
    OK(ftruncate(fd, SIZE));
    OK(pipe(to_child));
    OK(pipe(to_parent));
    pid_t child = OK(fork());
    if (child == 0) {
        change(path);
        _exit(0);
    }
    unsigned char *all = mmap(NULL, SIZE, PROT_READ, flags, fd, 0);
    CHECK(all != MAP_FAILED);
    unsigned sum = 0;
    for (int round = 0; round < 20; round++) {
        go(to_child);
        await(to_parent);
        int there = round == 18 ? SIZE / 2 : SIZE;
        for (int i = 0; i < there; i++)
            sum = sum * 31 + all[i];
    }
    go(to_child);
    volatile int *last = (volatile int *)(all + 12288);
    int seen = 0, before = 0;
    while (*last != 100) {
        int now = *last;
        CHECK(now >= before);
        seen += now != before;
        before = now;
    }
    CHECK(seen <= 100);
    EXITS(child, 0);
    OK(munmap(all, SIZE));
    say("%s: %08x\n", how, sum);
}

int main(void)
{
    make_temp_dir("written");
    look("shared", MAP_SHARED);
    look("private", MAP_PRIVATE);
    remove_temp_dir();
    return 0;
}
