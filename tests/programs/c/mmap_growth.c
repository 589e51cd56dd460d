/* Covers: files that grow and shrink under their mappings: by write, pwrite, writev, ftruncate,
 * truncate, fallocate and O_TRUNC; SIGBUS behind the end; a hole punched; shared and private maps of
 * the same file, of which the private follow it until they are written and again when that is
 * forgotten; maps that are moved and made larger; the same between processes; memory without a name
 * that is mapped, written, unmapped and mapped again; descriptors that were sockets before they were
 * the file, also behind the back of who writes to them.
 *
 * Hard for a recorder: the file is not there in replay, only what it was when it was mapped, and what
 * comes later comes through calls on descriptors, not through the mapping. A map that is larger than
 * its file (databases do that) has pages that come into being one by one. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define PAGE 4096
#define RW (PROT_READ | PROT_WRITE)

static sigjmp_buf back;
static volatile sig_atomic_t faults;

static void on_bus(int signal)
{
    (void)signal;
    faults++;
    siglongjmp(back, 1);
}

/* The byte there, or -1 if it is behind the end of the file. */
static int look(const volatile char *at)
{
    if (sigsetjmp(back, 1))
        return -1;
    return *at;
}

static char *map(size_t size, int protection, int flags, int fd, off_t offset)
{
    char *got = mmap(NULL, size, protection, flags, fd, offset);
    CHECK(got != MAP_FAILED);
    return got;
}

static int file(const char *name, char byte)
{
    static char page[PAGE];
    int fd = OK(open(temp_file(name), O_CREAT | O_RDWR | O_TRUNC, 0600));
    memset(page, byte, PAGE);
    write_all(fd, page, PAGE);
    return fd;
}

static void test_growth(void)
{
    static char page[2 * PAGE];
    int fd = file("grows", 'a');
    char *all = map(64 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    char *tail = map(8 * PAGE, RW, MAP_SHARED, fd, 4 * PAGE);
    CHECK(look(all) == 'a' && look(all + PAGE) == -1 && look(tail) == -1);

    memset(page, 'b', sizeof page);
    CHECK(pwrite(fd, page, PAGE, PAGE) == PAGE);
    CHECK(look(all + PAGE) == 'b' && look(all + 2 * PAGE) == -1);
    /* Not to the end of a page: zeroes follow. */
    CHECK(pwrite(fd, "cc", 2, 2 * PAGE) == 2);
    CHECK(look(all + 2 * PAGE + 1) == 'c' && look(all + 2 * PAGE + 2) == 0);
    CHECK(look(all + 3 * PAGE) == -1);
    OK(lseek(fd, 3 * PAGE, SEEK_SET));
    struct iovec parts[] = {{"dd", 2}, {page, PAGE}, {"ee", 2}};
    CHECK(writev(fd, parts, 3) == PAGE + 4);
    CHECK(look(all + 3 * PAGE) == 'd' && look(all + 3 * PAGE + 2) == 'b');
    CHECK(look(tail + 2) == 'e' && look(tail + 4) == 0 && look(tail + PAGE) == -1);

    OK(ftruncate(fd, 6 * PAGE));
    tail[PAGE] = 'f';
    CHECK(look(all + 5 * PAGE) == 'f' && look(all + 6 * PAGE) == -1);
    OK(fallocate(fd, 0, 6 * PAGE, 3 * PAGE));
    CHECK(look(all + 8 * PAGE) == 0 && look(all + 9 * PAGE) == -1);
    tail[4 * PAGE + 5] = 'g';
    char byte;
    CHECK(pread(fd, &byte, 1, 8 * PAGE + 5) == 1 && byte == 'g');
    CHECK(look(all + 8 * PAGE + 5) == 'g');
    OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, PAGE));
    CHECK(look(all + PAGE) == 0 && look(all + 2 * PAGE) == 'c');

    /* Shorter, and longer again: what was cut off is gone. */
    OK(ftruncate(fd, PAGE / 2));
    CHECK(look(all) == 'a' && look(all + PAGE / 2) == 0 && look(all + PAGE) == -1);
    CHECK(look(tail) == -1);
    OK(truncate(temp_file("grows"), 5 * PAGE));
    CHECK(look(all + PAGE / 2) == 0 && look(all + 2 * PAGE) == 0 && look(tail) == 0);
    CHECK(look(tail + PAGE) == -1);
    int other = OK(open(temp_file("grows"), O_WRONLY | O_TRUNC | O_APPEND));
    CHECK(look(all) == -1);
    write_all(other, "hh", 2);
    CHECK(pwrite(other, "ii", 2, 100) == 2); /* appends */
    CHECK(look(all) == 'h' && look(all + 2) == 'i' && look(all + 100) == 0);
    close(other);
    OK(munmap(all, 64 * PAGE));
    OK(munmap(tail, 8 * PAGE));
    close(fd);
    say("growth: by calls, behind the end, cut off\n");
}

static void test_private(void)
{
    int fd = file("private", 'a');
    OK(ftruncate(fd, 4 * PAGE));
    char *private = map(8 * PAGE, RW, MAP_PRIVATE, fd, 0);
    char *shared = map(8 * PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(pwrite(fd, "1", 1, 0) == 1 && private[0] == '1');
    shared[0] = '2';
    CHECK(private[0] == '2');
    private[1] = 'P';
    shared[0] = '3';
    CHECK(pwrite(fd, "44", 2, 2) == 2);
    CHECK(private[0] == '2' && private[1] == 'P' && private[2] == 'a' && shared[1] == 'a');
    CHECK(shared[2] == '4' && shared[0] == '3');
    /* Read into: as if written. */
    OK(lseek(fd, 0, SEEK_SET));
    CHECK(read(fd, private + PAGE, 3) == 3 && memcmp(private + PAGE, "3a4", 3) == 0);
    CHECK(shared[PAGE] == 0);
    shared[PAGE] = '5';
    CHECK(private[PAGE] == '3');
    OK(madvise(private, 2 * PAGE, MADV_DONTNEED));
    CHECK(private[0] == '3' && private[1] == 'a' && private[PAGE] == '5');
    /* It changes nothing in what is shared. */
    shared[2 * PAGE] = '6';
    OK(madvise(shared, 4 * PAGE, MADV_DONTNEED));
    CHECK(shared[2 * PAGE] == '6' && private[2 * PAGE] == '6');
    OK(munmap(shared, 8 * PAGE));
    CHECK(private[2 * PAGE] == '6');
    private[3 * PAGE] = 'Q';
    CHECK(pwrite(fd, "78", 2, 3 * PAGE) == 2 && private[3 * PAGE] == 'Q' && private[3 * PAGE + 1] == 0);
    OK(madvise(private + 3 * PAGE, PAGE, MADV_DONTNEED));
    CHECK(private[3 * PAGE] == '7' && private[3 * PAGE + 1] == '8');
    /* Cut off, even what was the program's own. */
    private[3 * PAGE] = 'R';
    CHECK(look(private + 4 * PAGE) == -1);
    OK(ftruncate(fd, 3 * PAGE));
    CHECK(look(private + 3 * PAGE) == -1);
    OK(ftruncate(fd, 5 * PAGE));
    CHECK(private[3 * PAGE] == 0 && private[4 * PAGE] == 0);
    OK(munmap(private, 8 * PAGE));
    close(fd);
    say("private: follows until it is written\n");
}

static void test_moved(void)
{
    int fd = file("moved", 'a');
    char *small = map(2 * PAGE, RW, MAP_SHARED, fd, 0);
    OK(ftruncate(fd, 3 * PAGE));
    small[PAGE] = 'b';
    char *large = mremap(small, 2 * PAGE, 128 * PAGE, MREMAP_MAYMOVE);
    CHECK(large != MAP_FAILED && large[PAGE] == 'b' && large[2 * PAGE] == 0);
    CHECK(look(large + 3 * PAGE) == -1);
    CHECK(pwrite(fd, "c", 1, 3 * PAGE) == 1 && large[3 * PAGE] == 'c');
    char *target = map(128 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *moved = mremap(large, 128 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target);
    CHECK(moved == target && moved[0] == 'a' && moved[PAGE] == 'b' && moved[3 * PAGE] == 'c');
    moved[2 * PAGE] = 'd';
    /* A second map of the same memory. */
    char *twin = mremap(moved, 0, 4 * PAGE, MREMAP_MAYMOVE);
    CHECK(twin != MAP_FAILED && twin[2 * PAGE] == 'd');
    twin[0] = 'e';
    CHECK(moved[0] == 'e');
    OK(munmap(twin, 4 * PAGE));
    OK(munmap(target, 128 * PAGE));
    close(fd);
    say("moved: larger, elsewhere, twice\n");
}

static void test_again(void)
{
    int fd = OK(memfd_create("memory", 0));
    OK(ftruncate(fd, 2 * PAGE));
    for (int i = 0; i < 5; i++) {
        char *memory = map(2 * PAGE, RW, MAP_SHARED, fd, 0);
        CHECK(memory[0] == i && memory[PAGE] == (char)-i);
        memory[0]++;
        OK(munmap(memory, 2 * PAGE));
        char byte = (char)-(i + 1);
        CHECK(pwrite(fd, &byte, 1, PAGE) == 1);
    }
    close(fd);
    say("mapped again: 5 times\n");
}

static void test_processes(void)
{
    int fd = OK(memfd_create("between", 0)), pipes[2][2];
    OK(pipe(pipes[0]));
    OK(pipe(pipes[1]));
    OK(ftruncate(fd, PAGE));
    char *memory = map(16 * PAGE, RW, MAP_SHARED, fd, 0), byte;
    pid_t pid = OK(fork());
    if (pid == 0) {
        for (int i = 1; i < 8; i++) {
            read_all(pipes[0][0], &byte, 1);
            CHECK(memory[(i - 1) * PAGE] == i && look(memory + i * PAGE) == -1);
            if (i % 2)
                OK(ftruncate(fd, (i + 1) * PAGE));
            else
                CHECK(pwrite(fd, "xy", 2, i * PAGE) == 2);
            memory[i * PAGE + 1] = (char)(10 * i);
            write_all(pipes[1][1], "x", 1);
        }
        _exit(0);
    }
    for (int i = 1; i < 8; i++) {
        memory[(i - 1) * PAGE] = (char)i;
        write_all(pipes[0][1], "x", 1);
        read_all(pipes[1][0], &byte, 1);
        CHECK(memory[i * PAGE] == (i % 2 ? 0 : 'x') && memory[i * PAGE + 1] == (char)(10 * i));
        CHECK(look(memory + (i + 1) * PAGE) == -1);
    }
    EXITS(pid, 0);
    OK(munmap(memory, 16 * PAGE));
    close(fd);
    say("between processes: grown in turn\n");
}

/* A child that shares the table of descriptors, not the memory. */
static long clone_with_files(void)
{
    return syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, 0);
}

struct swap {
    int number, fd;
    const volatile char *at;
};

/* Another table than the other threads': there the number is the file. */
static void *own_table(void *arg)
{
    const struct swap *swap = arg;
    OK(unshare(CLONE_FILES));
    OK(dup2(swap->fd, swap->number));
    OK(pwrite(swap->number, "5", 1, 5));
    OK(lseek(swap->number, 4, SEEK_SET));
    write_all(swap->number, "4", 1);
    CHECK(look(swap->at + 4) == '4' && look(swap->at + 5) == '5');
    return NULL;
}

static void test_numbers(void)
{
    int pair[2], status;
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    int fd = file("numbers", 'n');
    const char *at = map(PAGE, PROT_READ, MAP_SHARED, fd, 0);
    const char *own = map(PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    int number = OK(dup(pair[0]));
    char byte;

    /* What was a socket is the file, by dup2. */
    for (int i = 0; i < 3; i++)
        write_all(number, "s", 1);
    OK(dup2(fd, number));
    OK(lseek(fd, 0, SEEK_SET));
    write_all(number, "0", 1);
    CHECK(look(at) == '0' && look(own) == '0');

    /* By close and open. */
    OK(dup2(pair[0], number));
    write_all(number, "s", 1);
    OK(close(number));
    CHECK(OK(open(temp_file("numbers"), O_RDWR)) == number);
    write_all(number, "1", 1);
    CHECK(look(at) == '1' && look(own) == '1');

    /* By a child that shares the table. */
    OK(dup2(pair[0], number));
    write_all(number, "s", 1);
    long child = OK(clone_with_files());
    if (child == 0) {
        OK(dup2(fd, number));
        _exit(0);
    }
    CHECK(OK(waitpid(child, &status, 0)) == child && status == 0);
    OK(lseek(fd, 2, SEEK_SET));
    write_all(number, "2", 1);
    CHECK(look(at + 2) == '2' && look(own + 2) == '2');

    /* In a thread that has a table of its own. */
    OK(dup2(pair[0], number));
    write_all(number, "s", 1);
    struct swap swap = {number, fd, at};
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, own_table, &swap));
    ZERO(pthread_join(thread, NULL));
    write_all(number, "s", 1);
    CHECK(look(own + 4) == '4' && look(own + 5) == '5');
    for (int i = 0; i < 7; i++)
        CHECK(OK(read(pair[1], &byte, 1)) == 1 && byte == 's');
    say("numbers: a socket before, the file now\n");
}

int main(void)
{
    make_temp_dir("mmap_growth");
    struct sigaction action = {.sa_handler = on_bus};
    OK(sigaction(SIGBUS, &action, NULL));
    test_growth();
    test_private();
    test_moved();
    test_again();
    test_processes();
    test_numbers();
    remove_temp_dir();
    say("%d times behind the end\n", (int)faults);
    return 0;
}
