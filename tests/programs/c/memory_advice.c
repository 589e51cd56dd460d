/* Covers: calls about memory that fail half way (mprotect over a hole and over a file that must not
 * be written, madvise over a hole and over locked memory), MADV_DONTFORK and MADV_WIPEONFORK, also
 * when what they are of is moved, cut and mapped over.
 *
 * Hard for a recorder: a call that failed has had an effect; and what a child of a fork gets is said
 * long before. */
#include "check.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static sigjmp_buf faulted;

static void on_fault(int signal)
{
    siglongjmp(faulted, signal);
}

static int can_write(volatile char *at)
{
    if (sigsetjmp(faulted, 1) != 0)
        return 0;
    *at = *at;
    return 1;
}

static int can_read(volatile char *at)
{
    if (sigsetjmp(faulted, 1) != 0)
        return 0;
    (void)*at;
    return 1;
}

static char *fresh(int pages)
{
    char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    for (int i = 0; i < pages; i++)
        memset(at + i * PAGE, 'a' + i, PAGE);
    return at;
}

static void show_pages(const char *what, char *at, int pages)
{
    char text[64] = "";
    for (int i = 0; i < pages; i++) {
        char one = '-';
        if (can_read(at + i * PAGE))
            one = at[i * PAGE] ? at[i * PAGE] : '0';
        if (!can_write(at + i * PAGE) && one != '-')
            one = one - 'a' + 'A';
        text[i] = one;
    }
    say("%s: %s\n", what, text);
}

static void test_mprotect(void)
{
    char *at = fresh(8);
    OK(munmap(at + 5 * PAGE, PAGE));
    FAILS(mprotect(at + PAGE, 6 * PAGE, PROT_READ), ENOMEM);
    show_pages("mprotect over a hole", at, 8);

    at = fresh(8);
    make_temp_dir("advice");
    int fd = OK(open(temp_file("file"), O_RDWR | O_CREAT, 0600));
    char text[2 * PAGE];
    memset(text, 'x', sizeof text);
    write_all(fd, text, sizeof text);
    close(fd);
    fd = OK(open(temp_file("file"), O_RDONLY));
    CHECK(mmap(at + 3 * PAGE, 2 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == at + 3 * PAGE);
    OK(mprotect(at, 3 * PAGE, PROT_READ));
    FAILS(mprotect(at + PAGE, 5 * PAGE, PROT_READ | PROT_WRITE), EACCES);
    show_pages("mprotect of a file", at, 8);
    close(fd);
    remove_temp_dir();
}

static void test_madvise(void)
{
    char *at = fresh(8);
    OK(munmap(at + 2 * PAGE, PAGE));
    OK(munmap(at + 5 * PAGE, PAGE));
    FAILS(madvise(at + PAGE, 6 * PAGE, MADV_DONTNEED), ENOMEM);
    show_pages("madvise over holes", at, 8);

    at = fresh(8);
    OK(mlock(at + 4 * PAGE, PAGE));
    FAILS(madvise(at + PAGE, 6 * PAGE, MADV_DONTNEED), EINVAL);
    show_pages("madvise of locked memory", at, 8);
}

/* What is mapped is told up to where nothing is. */
static void test_mincore(void)
{
    char *at = fresh(8);
    OK(munmap(at + 3 * PAGE, PAGE));
    unsigned char told[8];
    memset(told, 9, sizeof told);
    FAILS(mincore(at, 8 * PAGE, told), ENOMEM);
    say("mincore: ");
    for (int i = 0; i < 8; i++)
        say("%d", told[i]);
    say("\n");
}

static void in_child(const char *what, char *at, int pages)
{
    pid_t child = OK(fork());
    if (child == 0) {
        show_pages(what, at, pages);
        memset(at + 7 * PAGE, 'z', PAGE);
        _exit(0);
    }
    EXITS(child, 0);
}

static void test_fork(void)
{
    char *at = fresh(12);
    OK(madvise(at + PAGE, 3 * PAGE, MADV_WIPEONFORK));
    OK(madvise(at + 5 * PAGE, 2 * PAGE, MADV_DONTFORK));
    in_child("child", at, 12);
    show_pages("parent", at, 12);
    OK(madvise(at + 2 * PAGE, PAGE, MADV_KEEPONFORK));
    OK(madvise(at + 5 * PAGE, PAGE, MADV_DOFORK));
    in_child("kept", at, 12);
    /* Moved, it takes what was said of it along; mapped over, it loses it. */
    char *other = fresh(2);
    CHECK(mremap(at + 3 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, other) == other);
    CHECK(mmap(at + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
               0) == at + PAGE);
    at[PAGE] = 'y';
    in_child("mapped over", at, 12);
    pid_t child = OK(fork());
    if (child == 0) {
        show_pages("moved", other, 2);
        /* And its own child finds the same. */
        other[0] = 'q';
        pid_t grandchild = OK(fork());
        if (grandchild == 0) {
            show_pages("grandchild", other, 2);
            _exit(0);
        }
        EXITS(grandchild, 0);
        _exit(0);
    }
    EXITS(child, 0);
    /* Half of it fails; the first half is said all the same. */
    at = fresh(8);
    OK(munmap(at + 4 * PAGE, PAGE));
    FAILS(madvise(at + 2 * PAGE, 4 * PAGE, MADV_DONTFORK), ENOMEM);
    in_child("half", at, 8);
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_fault};
    OK(sigaction(SIGSEGV, &action, NULL));
    test_mprotect();
    test_madvise();
    test_mincore();
    test_fork();
    say("done\n");
    return 0;
}
