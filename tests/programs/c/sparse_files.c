/* Covers: files that are nearly all hole, mapped: a memfd of 64 GiB, of which two pages are there, and a
 * file on disk.
 *
 * Hard for a recorder that copies what is mapped: it must not copy what is not there. */
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>

#define GIB (1l << 30)

static void look(int fd, long size, int flags)
{
    char page[4096];
    memset(page, 'a', sizeof page);
    CHECK(pwrite(fd, page, sizeof page, 0) == sizeof page);
    OK(ftruncate(fd, size));
    memset(page, 'z', sizeof page);
    CHECK(pwrite(fd, page, sizeof page, size - 4096) == sizeof page);
    char *all = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
    CHECK(all != MAP_FAILED);
    CHECK(all[0] == 'a' && all[4095] == 'a' && all[4096] == 0 && all[size / 2] == 0);
    CHECK(all[size - 4097] == 0 && all[size - 4096] == 'z' && all[size - 1] == 'z');
    all[size / 2] = 'm';
    CHECK(all[size / 2] == 'm');
    OK(munmap(all, size));
}

int main(void)
{
    int memory = OK(memfd_create("sparse", 0));
    look(memory, 64 * GIB, MAP_SHARED);
    make_temp_dir("sparse");
    int file = OK(open(temp_file("file"), O_RDWR | O_CREAT, 0600));
    look(file, 16 * GIB, MAP_SHARED);
    remove_temp_dir();
    say("two pages each\n");
    return 0;
}
