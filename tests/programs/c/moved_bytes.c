/* Covers: bytes that the kernel moves by itself (copy_file_range, sendfile, splice) into a file that another process,
 * or the same, has mapped; fallocate that shifts what a file has; a file that grows after its last page was written
 * behind its end.
 *
 * Hard for a recorder: the bytes pass through nobody's memory. */
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

enum { SIZE = 65536, STEPS = 8 };

static int to_child[2], to_parent[2];
static char text[16384];

static void go(int to[2])
{
    CHECK(write(to[1], "g", 1) == 1);
}

static void await(int from[2])
{
    char letter;
    CHECK(read(from[0], &letter, 1) == 1);
}

/* The child: it has only descriptors; the one that it writes to cannot be read. */
static void change(const char *path, int source)
{
    int fd = OK(open(path, O_WRONLY)), ends[2];
    OK(pipe(ends));
    for (int step = 0; step < STEPS; step++) {
        loff_t in = 3 + step, out = 100 + 7000 * step;
        off_t from = 11;
        await(to_child);
        switch (step) {
        case 0:
            CHECK(copy_file_range(source, &in, fd, &out, 5000, 0) == 5000);
            break;
        case 1:
            OK(lseek(fd, out, SEEK_SET));
            OK(lseek(source, 2, SEEK_SET));
            CHECK(copy_file_range(source, NULL, fd, NULL, 3000, 0) == 3000);
            break;
        case 2:
            OK(lseek(fd, out, SEEK_SET));
            CHECK(sendfile(fd, source, &from, 6000) == 6000);
            break;
        case 3:
            CHECK(write(ends[1], text + 5, 3000) == 3000);
            CHECK(splice(ends[0], NULL, fd, &out, 3000, 0) == 3000);
            break;
        case 4:
            CHECK(write(ends[1], text + 9, 2000) == 2000);
            OK(lseek(fd, out, SEEK_SET));
            CHECK(splice(ends[0], NULL, fd, NULL, 2000, 0) == 2000);
            break;
        case 5:
            /* Where the file system does not know them, they change nothing. */
            fallocate(fd, FALLOC_FL_INSERT_RANGE, 8192, 4096);
            break;
        case 6:
            fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 8192, 4096);
            break;
        case 7:
            fallocate(fd, FALLOC_FL_ZERO_RANGE, 100, 8000);
        }
        go(to_parent);
    }
}

/* Waits in splice for what it moves, while another thread of turns has the file mapped. */
static void late(const char *path)
{
    int ends[2], fd = OK(open(path, O_RDWR));
    OK(pipe(ends));
    unsigned char *all = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(all != MAP_FAILED);
    pid_t child = OK(fork());
    if (child == 0) {
        loff_t out = 50000;
        CHECK(splice(ends[0], NULL, fd, &out, 1000, 0) == 1000);
        _exit(0);
    }
    sleep_ms(5);
    CHECK(write(ends[1], text, 1000) == 1000);
    EXITS(child, 0);
    CHECK(memcmp(all + 50000, text, 1000) == 0);
    OK(munmap(all, SIZE));
    close(fd);
}

static void grown(void)
{
    int fd = OK(open(temp_file("grown"), O_RDWR | O_CREAT, 0600));
    OK(ftruncate(fd, 5000));
    char *all = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(all != MAP_FAILED);
    pid_t child = OK(fork());
    if (child == 0) {
        all[5001] = 'x';
        _exit(0);
    }
    EXITS(child, 0);
    OK(ftruncate(fd, 20000));
    char from_file;
    CHECK(pread(fd, &from_file, 1, 5001) == 1);
    CHECK(all[5001] == from_file);
    /* What the kernel made of it is not said: it differs from one to another. */
    int null = OK(open("/dev/null", O_WRONLY));
    CHECK(write(null, all + 5001, 1) == 1);
    OK(munmap(all, SIZE));
}

int main(void)
{
    make_temp_dir("moved");
    for (unsigned i = 0; i < sizeof text; i++)
        text[i] = 'a' + i % 23;
    const char *path = temp_file("mapped");
    int fd = OK(open(path, O_RDWR | O_CREAT, 0600));
    int source = OK(open(temp_file("source"), O_RDWR | O_CREAT, 0600));
    OK(ftruncate(fd, SIZE));
    write_all(source, text, sizeof text);
    OK(pipe(to_child));
    OK(pipe(to_parent));
    pid_t child = OK(fork());
    if (child == 0) {
        change(path, source);
        _exit(0);
    }
    unsigned char *all = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(all != MAP_FAILED);
    int null = OK(open("/dev/null", O_WRONLY));
    for (int step = 0; step < STEPS; step++) {
        go(to_child);
        await(to_parent);
        uint64_t seen = digest(DIGEST_START, all, SIZE);
        CHECK(write(null, &seen, sizeof seen) == sizeof seen);
        if (step < 5)
            say("%d: %016lx\n", step, seen);
    }
    EXITS(child, 0);
    loff_t in = 0, out = 50;
    CHECK(copy_file_range(source, &in, fd, &out, 5000, 0) == 5000);
    CHECK(memcmp(all + 50, text, 5000) == 0);
    OK(munmap(all, SIZE));
    late(path);
    grown();
    remove_temp_dir();
    return 0;
}
