/* Covers: a pool of 32 MiB that is mapped again and again after a little of it was changed, by one
 * process after another, shared and private; a change in a part that was a hole, one that is taken back, one that makes
 * the last page differ.
 *
 * Hard for a recorder that copies what is mapped: all of it would be copied each time. */
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { SIZE = (32 << 20) + 100, ROUNDS = 10, PIECE = 1 << 18 };

static unsigned sum(const unsigned char *bytes)
{
    unsigned sum = 0;
    for (int i = 0; i < SIZE; i += 64)
        sum = sum * 31 + bytes[i] + bytes[i + 3];
    return sum * 31 + bytes[SIZE - 1];
}

static unsigned look(int fd, int round)
{
    int flags = round % 2 ? MAP_SHARED : MAP_PRIVATE;
    unsigned char *all = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);
    CHECK(all != MAP_FAILED);
    unsigned found = sum(all);
    /* One of the two is seen by the next. */
    all[4096 * 100 + 64 * round] ^= 0x55;
    all[8 << 20] += round;
    found ^= sum(all);
    OK(munmap(all, SIZE));
    return found;
}

static void rounds(const char *what, int fd)
{
    OK(ftruncate(fd, SIZE));
    char *piece = malloc(PIECE);
    for (int i = 0; i < PIECE; i++)
        piece[i] = i * 7;
    for (long at = 0; at < 16 << 20; at += PIECE)
        CHECK(pwrite(fd, piece, PIECE, at) == PIECE);
    unsigned all = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char byte = 'a' + round;
        long at = round % 3 == 0 ? (20 << 20) + round * 9000 : round % 3 == 1 ? SIZE - 1 : 64 * round;
        CHECK(pwrite(fd, &byte, 1, at) == 1);
        int ends[2];
        OK(pipe(ends));
        pid_t child = OK(fork());
        unsigned found;
        if (child == 0) {
            found = look(fd, round);
            CHECK(write(ends[1], &found, sizeof found) == sizeof found);
            _exit(0);
        }
        CHECK(read(ends[0], &found, sizeof found) == sizeof found);
        EXITS(child, 0);
        close(ends[0]);
        close(ends[1]);
        all = all * 17 + found + look(fd, round + 1);
    }
    say("%s: %08x\n", what, all);
    free(piece);
}

int main(void)
{
    rounds("memory", OK(memfd_create("pool", 0)));
    make_temp_dir("changed");
    rounds("disk", OK(open(temp_file("pool"), O_RDWR | O_CREAT, 0600)));
    remove_temp_dir();
    return 0;
}
