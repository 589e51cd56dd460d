/* Covers: memory that is written by calls: by /proc/self/mem, at an offset, in pieces, over pages
 * that must not be written; by process_vm_writev to itself.
 *
 * Hard for a recorder: to the kernel these are writes to a file, and output. */
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { PAGE = 4096 };

static volatile int number = 1;
static const volatile char text[] = "not to be written";

int main(void)
{
    int fd = OK(open("/proc/self/mem", O_RDWR));
    int value = 42;
    CHECK(OK(pwrite(fd, &value, sizeof value, (off_t)(uintptr_t)&number)) == sizeof value);
    say("pwrite: %d\n", number);

    value = 43;
    OK(lseek(fd, (off_t)(uintptr_t)&number, SEEK_SET));
    CHECK(OK(write(fd, &value, sizeof value)) == sizeof value);
    say("write: %d\n", number);

    CHECK(OK(pwrite(fd, "now ", 4, (off_t)(uintptr_t)text)) == 4);
    say("read only: %s\n", (const char *)text);

    char *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    OK(munmap(page + PAGE, PAGE));
    struct iovec parts[2] = {{"abcdef", 6}, {"ghi", 3}};
    CHECK(OK(pwritev(fd, parts, 2, (off_t)(uintptr_t)page + PAGE - 8)) == 8);
    say("pieces: %.8s\n", page + PAGE - 8);

    struct iovec from[2] = {{"one", 3}, {"two!", 4}};
    struct iovec to[3] = {{page, 2}, {page + 100, 4}, {page + 200, 100}};
    CHECK(OK(process_vm_writev(getpid(), from, 2, to, 3, 0)) == 7);
    say("vector: %.2s %.4s %.1s\n", page, page + 100, page + 200);

    FAILS(pwrite(fd, &value, sizeof value, (off_t)(uintptr_t)(page + PAGE)), EIO);
    close(fd);
    say("done\n");
    return 0;
}
