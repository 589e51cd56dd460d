/* Covers: several shared views of one object, one of them moved, grown, shrunk; /dev/zero mapped
 * shared, each time an object of its own; mremap over mappings that the kernel has made one; very
 * many shared mappings; mmap of files that cannot be mapped.
 *
 * Hard for a recorder: replay has no shared memory and follows by hand what shows where. */
#include "check.h"
#include <fcntl.h>
#include <mqueue.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static char *map(int fd, int pages, int offset)
{
    char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset * PAGE);
    CHECK(at != MAP_FAILED);
    return at;
}

static uint64_t digest_of(char *at, int pages)
{
    return digest(DIGEST_START, at, pages * PAGE);
}

static void test_moved(const char *what, int fd)
{
    OK(ftruncate(fd, 8 * PAGE));
    char *first = map(fd, 8, 0);
    char *second = map(fd, 4, 2);
    for (int i = 0; i < 8; i++)
        first[i * PAGE] = 'a' + i;
    char *room = mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    char *moved = mremap(second, 4 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room);
    CHECK(moved == room);
    moved[0] = 'A';
    first[3 * PAGE] = 'B';
    moved[5 * PAGE] = 'C';
    say("%s: %c%c%c%c\n", what, first[2 * PAGE], moved[PAGE], first[7 * PAGE], moved[2 * PAGE]);
    /* Part of the other view moves away from its middle. */
    char *part = mremap(first + 3 * PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                        room + 8 * PAGE);
    CHECK(part == room + 8 * PAGE);
    part[0] = 'D';
    part[PAGE + 1] = 'E';
    moved[2 * PAGE + 2] = 'F';
    say("%s: %c%c%c\n", what, moved[PAGE], moved[2 * PAGE + 1], part[PAGE + 2]);
    /* Shrunk, and grown again. */
    CHECK(mremap(moved, 6 * PAGE, 2 * PAGE, 0) == moved);
    first[2 * PAGE] = 'G';
    char *grown = mremap(moved, 2 * PAGE, 6 * PAGE, MREMAP_MAYMOVE);
    CHECK(grown != MAP_FAILED);
    grown[4 * PAGE] = 'H';
    say("%s: %c%c%c\n", what, grown[0], grown[5 * PAGE], first[6 * PAGE]);
    /* A second view made of the first one. */
    char *twin = mremap(first, 0, 3 * PAGE, MREMAP_MAYMOVE);
    CHECK(twin != MAP_FAILED);
    twin[2 * PAGE + 9] = 'I';
    say("%s: %c%c\n", what, grown[9], first[2 * PAGE + 9]);
    for (int i = 0; i < 3; i++)
        CHECK(memcmp(twin + i * PAGE, first + i * PAGE, PAGE) == 0);
    say("%s: %016llx\n", what, (unsigned long long)digest_of(grown, 6));
    OK(munmap(room, 16 * PAGE));
    OK(munmap(grown, 6 * PAGE));
    OK(munmap(twin, 3 * PAGE));
    OK(munmap(first, 3 * PAGE));
    OK(munmap(first + 5 * PAGE, 3 * PAGE));
}

static void test_dev_zero(void)
{
    int fd = OK(open("/dev/zero", O_RDWR));
    char *first = map(fd, 2, 0);
    char *second = map(fd, 2, 0);
    first[0] = 'a';
    second[1] = 'b';
    say("zero: %d %d\n", first[1], second[0]);
    pid_t child = OK(fork());
    if (child == 0) {
        first[2] = 'c';
        second[2] = 'd';
        _exit(0);
    }
    EXITS(child, 0);
    say("zero: %c%c %c%c\n", first[0], first[2], second[1], second[2]);
    close(fd);
}

/* Two mappings side by side are one for the kernel. */
static void test_merged(int fd)
{
    OK(ftruncate(fd, 8 * PAGE));
    char *room = mmap(NULL, 24 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    for (int i = 0; i < 8; i += 2)
        CHECK(mmap(room + i * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                   i * PAGE) == room + i * PAGE);
    for (int i = 0; i < 8; i++)
        room[i * PAGE] = 'k' + i;
    char *other = map(fd, 8, 0);
    char *moved = mremap(room + PAGE, 6 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                         room + 10 * PAGE);
    CHECK(moved == room + 10 * PAGE);
    moved[3 * PAGE] = 'X';
    other[6 * PAGE] = 'Y';
    say("merged: %c%c%c%c\n", moved[0], other[4 * PAGE], moved[5 * PAGE], room[7 * PAGE]);

    /* The same with private memory that was mapped in two steps. */
    char *own = room + 16 * PAGE;
    for (int i = 0; i < 4; i++)
        CHECK(mmap(own + i * PAGE, PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == own + i * PAGE);
    for (int i = 0; i < 4; i++)
        own[i * PAGE] = 'o' + i;
    char *away = mremap(own + PAGE, 3 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room);
    CHECK(away == room);
    say("merged: %c%c%c%c\n", own[0], away[0], away[PAGE], away[2 * PAGE]);
    OK(munmap(other, 8 * PAGE));
    OK(munmap(room, 24 * PAGE));
}

static void test_many(int fd)
{
    enum { COUNT = 1500 };
    OK(ftruncate(fd, 2 * PAGE));
    char **views = calloc(COUNT, sizeof *views);
    for (int i = 0; i < COUNT; i++) {
        views[i] = map(fd, 1, i & 1);
        views[i][i] = 'a' + i % 26;
        /* Never one mapping with its neighbour. */
        CHECK(mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    }
    uint64_t sum = DIGEST_START;
    for (int i = 0; i < COUNT; i += 100)
        sum = digest(sum, views[i], PAGE);
    say("many: %016llx\n", (unsigned long long)sum);
    for (int i = 0; i < COUNT; i++)
        OK(munmap(views[i], PAGE));
    free(views);
}

/* Files that say they have a size and cannot be mapped. */
static void test_not_mapped(void)
{
    static const char *const names[] = {"/sys/kernel/mm/transparent_hugepage/enabled",
                                        "/sys/kernel/uevent_seqnum", "/proc/self/stat"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        int fd = open(names[i], O_RDONLY);
        if (fd == -1)
            continue;
        CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED);
        CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
        close(fd);
    }
    char name[64];
    snprintf(name, sizeof name, "/mw-views-%d", getpid());
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
    if (queue != (mqd_t)-1) {
        CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, queue, 0) == MAP_FAILED);
        mq_unlink(name);
        mq_close(queue);
    }
    say("not mapped: none\n");
}

int main(void)
{
    make_temp_dir("views");
    int file = OK(open(temp_file("file"), O_RDWR | O_CREAT, 0600));
    int memory = OK(memfd_create("views", 0));
    test_moved("file", file);
    test_moved("memory", memory);
    test_dev_zero();
    test_merged(file);
    test_merged(memory);
    test_many(memory);
    test_not_mapped();
    remove_temp_dir();
    say("done\n");
    return 0;
}
