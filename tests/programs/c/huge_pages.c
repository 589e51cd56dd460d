/* Covers: memory in huge pages that is asked for by bytes: it is there to the end of the last page, and
 * what is discarded in the middle of one stays. Private, shared with a child, in a file without a name,
 * in a segment.
 *
 * Hard for a replay in small pages: a length means something else. What the machine lacks is left out;
 * root has the kernel make some pages as they are needed, and leaves that as it was. */
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>

#define MIB (1l << 20)
#define POOL "/proc/sys/vm/nr_overcommit_hugepages"

/* At most so many, of 2 MiB, are in use at a time. */
enum { MOST = 8 };

static char pool_before[32];

/* Sets how many pages there may be beyond those that are set aside; what it was. */
static void set_pool(const char *to, char *before, size_t room)
{
    int fd = open(POOL, O_RDWR | O_CLOEXEC);
    if (fd == -1)
        return;
    ssize_t n = before ? read(fd, before, room - 1) : 0;
    if (before && n > 0 && atol(before) >= 4 * MOST)
        before[0] = 0;
    else
        (void)!pwrite(fd, to, strlen(to), 0);
    close(fd);
}

/* Beyond what was asked for, up to the end of the page. */
static void touch(char *memory, size_t asked, size_t whole)
{
    memory[0] = 1;
    for (size_t at = asked; at < whole; at += 4096 * 61) {
        CHECK(memory[at] == 0);
        memory[at] = (char)(at >> 12) | 1;
    }
    for (size_t at = asked; at < whole; at += 4096 * 61)
        CHECK(memory[at] == ((char)(at >> 12) | 1));
}

static void private_memory(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | 21 << 26 /* 2 MiB */;
    char *memory = mmap(NULL, 3 * MIB, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED)
        return;
    touch(memory, 3 * MIB, 4 * MIB);
    /* One page and the beginning of the next. */
    memory[2 * MIB] = 2, memory[2 * MIB + 4095] = 3, memory[2 * MIB - 1] = 4;
    if (madvise(memory, 2 * MIB + 4096, MADV_DONTNEED) == 0)
        CHECK(memory[0] == 0 && memory[2 * MIB - 1] == 0);
    else
        CHECK(errno == EINVAL); /* Linux before 5.18 */
    CHECK(memory[2 * MIB] == 2 && memory[2 * MIB + 4095] == 3);
    /* Only a part. */
    memory[0] = 5;
    if (madvise(memory, 4096, MADV_DONTNEED) == -1)
        CHECK(errno == EINVAL);
    CHECK(memory[0] == 5);
    /* What is small stays so: right behind it, and by itself. */
    char *small = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(small != MAP_FAILED);
    small[0] = small[4096] = 6;
    OK(madvise(small, 4096, MADV_DONTNEED));
    CHECK(small[0] == 0 && small[4096] == 6);
    OK(munmap(small, 4 * MIB));
    FAILS(munmap(memory, 3 * MIB), EINVAL);
    OK(munmap(memory, 4 * MIB));
}

static void shared(char *memory, size_t asked)
{
    touch(memory, asked, 2 * MIB);
    pid_t child = OK(fork());
    if (child == 0) {
        CHECK(memory[2 * MIB - 1] == 0);
        memory[2 * MIB - 1] = 7;
        _exit(0);
    }
    EXITS(child, 0);
    CHECK(memory[2 * MIB - 1] == 7);
}

static void shared_memory(void)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB;
    char *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED)
        return;
    shared(memory, MIB);
    OK(munmap(memory, 2 * MIB));
}

static void file(void)
{
    int fd = memfd_create("huge", MFD_HUGETLB | MFD_CLOEXEC);
    if (fd == -1)
        return;
    OK(ftruncate(fd, 4 * MIB));
    char *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 2 * MIB);
    if (memory != MAP_FAILED) {
        shared(memory, MIB);
        char *again = mmap(NULL, 2 * MIB, PROT_READ, MAP_SHARED, fd, 2 * MIB);
        CHECK(again != MAP_FAILED && again[0] == 1 && again[2 * MIB - 1] == 7);
        OK(munmap(again, 2 * MIB));
        OK(munmap(memory, 2 * MIB));
    }
    close(fd);
}

static void segment(void)
{
    int id = shmget(IPC_PRIVATE, MIB, IPC_CREAT | SHM_HUGETLB | 0600);
    if (id == -1)
        return;
    char *memory = shmat(id, NULL, 0);
    OK(shmctl(id, IPC_RMID, NULL));
    CHECK(memory != (void *)-1);
    shared(memory, MIB);
    OK(shmdt(memory));
}

int main(void)
{
    char pages[16];
    snprintf(pages, sizeof pages, "%d", 4 * MOST);
    set_pool(pages, pool_before, sizeof pool_before);
    private_memory();
    shared_memory();
    file();
    segment();
    if (pool_before[0])
        set_pool(pool_before, NULL, 0);
    say("whole pages\n");
    return 0;
}
