/* Covers: writes behind the end of a file that is mapped by several processes, which shrinks and grows; guards in
 * memory (MADV_GUARD_INSTALL), where the kernel has them; advice that cannot be followed.
 *
 * Hard for a replayer: pages that were never there must not be kept, and guards are nowhere but in page tables. */
#include "check.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

enum { PAGE = 4096, INSTALL = 102, REMOVE = 103 };

static sigjmp_buf back;

static void fault(int sig)
{
    siglongjmp(back, sig);
}

/* Which signal it takes to write there; 0: none. */
static int writes(volatile char *place)
{
    int sig = sigsetjmp(back, 1);
    if (sig == 0)
        *place = 1;
    return sig;
}

/* A page is written and cut off, and then another process does something to the file. */
static void cut(void)
{
    int fd = OK(open(temp_file("cut"), O_RDWR | O_CREAT, 0600));
    OK(ftruncate(fd, 4 * PAGE));
    char *all = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(all != MAP_FAILED);
    CHECK(writes(all + 3 * PAGE) == 0);
    OK(ftruncate(fd, 0));
    OK(ftruncate(fd, 2 * PAGE));
    pid_t child = OK(fork());
    if (child == 0) {
        OK(ftruncate(fd, 0));
        _exit(0);
    }
    EXITS(child, 0);
    CHECK(writes(all + 1) == SIGBUS);
    OK(munmap(all, 8 * PAGE));
}

static void guarded(void)
{
    char *two = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(two != MAP_FAILED);
    memset(two, 7, 2 * PAGE);
    if (madvise(two, PAGE, INSTALL) == -1) {
        CHECK(errno == EINVAL);
        return;
    }
    CHECK(writes(two) == SIGSEGV && writes(two + PAGE) == 0);
    FAILS(write(STDOUT_FILENO, two, 3), EFAULT);
    OK(madvise(two, PAGE, MADV_DONTNEED));
    pid_t child = OK(fork());
    if (child == 0) {
        CHECK(writes(two) == SIGSEGV);
        _exit(0);
    }
    EXITS(child, 0);
    OK(madvise(two, 2 * PAGE, REMOVE));
    CHECK(two[0] == 0 && two[PAGE] == 1 && two[PAGE + 1] == 7);
    CHECK(writes(two) == 0);
    OK(munmap(two, 2 * PAGE));
}

int main(void)
{
    struct sigaction action = {.sa_handler = fault};
    OK(sigaction(SIGBUS, &action, NULL));
    OK(sigaction(SIGSEGV, &action, NULL));
    make_temp_dir("behind");
    cut();
    int fd = OK(open(temp_file("file"), O_RDWR | O_CREAT, 0600));
    OK(ftruncate(fd, 4 * PAGE));
    char *all = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *own = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(all != MAP_FAILED && own != MAP_FAILED);
    CHECK(writes(own + 2 * PAGE) == 0 && writes(all + 3 * PAGE) == 0);
    CHECK(writes(all + 4 * PAGE) == SIGBUS && writes(all + 4 * PAGE) == SIGBUS);
    OK(ftruncate(fd, PAGE + 900));
    CHECK(writes(all + PAGE + 899) == 0 && writes(all + 2 * PAGE) == SIGBUS);
    CHECK(writes(own + 2 * PAGE) == SIGBUS && writes(own + 3 * PAGE) == SIGBUS);
    OK(ftruncate(fd, 5 * PAGE));
    CHECK(all[3 * PAGE] == 0 && writes(all + 4 * PAGE) == 0 && writes(own + 3 * PAGE) == 0);
    pid_t child = OK(fork());
    if (child == 0) {
        CHECK(writes(all + 6 * PAGE) == SIGBUS);
        OK(ftruncate(fd, PAGE));
        _exit(0);
    }
    EXITS(child, 0);
    CHECK(writes(all + PAGE) == SIGBUS && writes(all) == 0);
    OK(ftruncate(fd, 0));
    CHECK(writes(all) == SIGBUS);
    int zero = OK(open("/dev/zero", O_RDONLY));
    FAILS(read(zero, all, 10), EFAULT);
    OK(ftruncate(fd, 2 * PAGE));
    child = OK(fork());
    if (child == 0) {
        OK(ftruncate(fd, 0));
        _exit(0);
    }
    EXITS(child, 0);
    CHECK(writes(all + 1) == SIGBUS);
    OK(ftruncate(fd, PAGE));
    CHECK(writes(all) == 0);
    FAILS(pwrite(fd, all + PAGE, 5, 0), EFAULT);
    FAILS(madvise(all, PAGE, MADV_FREE), EINVAL);
    CHECK(all[0] == 1);
    guarded();
    remove_temp_dir();
    say("as far as it reaches\n");
    return 0;
}
