/* Covers: memory as the kernel gives it: private and shared maps of files, msync, mremap, mprotect,
 * madvise, holes, maps over maps, brk; and code that comes late: dlopen, code written into memory
 * and called (with a syscall instruction of its own), and code that changes itself.
 *
 * Hard for a recorder: every map must be at the same address with the same contents in replay, the
 * file may be gone by then; a syscall instruction may be created, moved, overwritten or unmapped
 * after the monitor has patched it, and the bytes beside it may be changed by a plain store. */
#include "check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096

static int probe[2];

/* Whether the byte can be read, as the kernel sees it. */
static int readable(const void *at)
{
    char byte;
    if (write(probe[1], at, 1) == 1)
        return read(probe[0], &byte, 1) == 1;
    CHECK(errno == EFAULT);
    return 0;
}

static char *map(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    char *got = mmap(at, size, protection, flags, fd, offset);
    CHECK(got != MAP_FAILED);
    return got;
}

static void test_file_maps(void)
{
    char text[PAGE], *page = malloc(PAGE);
    int fd = OK(open(temp_file("mapped"), O_CREAT | O_RDWR, 0600));
    for (int i = 0; i < 4; i++) {
        memset(page, 'a' + i, PAGE);
        write_all(fd, page, PAGE);
    }
    char *private = map(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    char *shared = map(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *second = map(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PAGE);
    CHECK(private[0] == 'a' && private[3 * PAGE] == 'd' && second[0] == 'b');

    private[0] = 'P';
    shared[PAGE] = 'S';
    OK(msync(shared, 4 * PAGE, MS_SYNC));
    CHECK(second[0] == 'S' && shared[0] == 'a');
    CHECK(pread(fd, text, 1, 0) == 1 && text[0] == 'a');
    CHECK(pread(fd, text, 1, PAGE) == 1 && text[0] == 'S');
    CHECK(pwrite(fd, "W", 1, 2 * PAGE) == 1 && shared[2 * PAGE] == 'W');

    /* What was changed in private is forgotten, and the file is seen again. */
    OK(madvise(private, PAGE, MADV_DONTNEED));
    CHECK(private[0] == 'a');
    /* A read straight into a shared map changes the file. */
    OK(lseek(fd, 3 * PAGE, SEEK_SET));
    CHECK(read(fd, shared + 100, 3) == 3 && pread(fd, text, 3, 100) == 3);
    CHECK(memcmp(text, "ddd", 3) == 0);
    close(fd);
    OK(unlink(temp_file("mapped")));
    CHECK(private[PAGE] == 'S' && private[3 * PAGE] == 'd');
    OK(munmap(private, 4 * PAGE));
    OK(munmap(shared, 4 * PAGE));
    OK(munmap(second, PAGE));
    free(page);
    say("file maps: private, shared, seen through both\n");
}

static void test_anonymous(void)
{
    const int rw = PROT_READ | PROT_WRITE, anon = MAP_PRIVATE | MAP_ANONYMOUS;
    char *area = map(NULL, 8 * PAGE, rw, anon, -1, 0);
    memset(area, 7, 8 * PAGE);
    OK(madvise(area + PAGE, PAGE, MADV_DONTNEED));
    CHECK(area[PAGE - 1] == 7 && area[PAGE] == 0 && area[2 * PAGE - 1] == 0 && area[2 * PAGE] == 7);
    OK(munmap(area + 3 * PAGE, PAGE));
    CHECK(readable(area + 3 * PAGE - 1) && !readable(area + 3 * PAGE) && readable(area + 4 * PAGE));
    OK(mprotect(area + 5 * PAGE, PAGE, PROT_NONE));
    CHECK(!readable(area + 5 * PAGE));
    OK(mprotect(area + 5 * PAGE, PAGE, PROT_READ));
    CHECK(readable(area + 5 * PAGE) && area[5 * PAGE] == 7);
    write_all(probe[1], "x", 1);
    FAILS(read(probe[0], area + 5 * PAGE, 1), EFAULT);
    read_all(probe[0], area, 1);

    map(area + 6 * PAGE, PAGE, rw, anon | MAP_FIXED, -1, 0);
    CHECK(area[6 * PAGE] == 0 && area[7 * PAGE] == 7);
    CHECK(mmap(area, PAGE, rw, anon | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
    CHECK(map(area + 3 * PAGE, PAGE, rw, anon | MAP_FIXED_NOREPLACE, -1, 0) == area + 3 * PAGE);
    unsigned char resident[8];
    OK(mincore(area, 8 * PAGE, resident));
    CHECK((resident[0] & 1) == 1);
    OK(munmap(area, 8 * PAGE));

    char *first = map(NULL, 2 * PAGE, rw, anon, -1, 0);
    memset(first, 9, 2 * PAGE);
    char *grown = mremap(first, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    CHECK(grown != MAP_FAILED && grown[2 * PAGE - 1] == 9 && grown[2 * PAGE] == 0);
    char *target = map(NULL, 64 * PAGE, PROT_NONE, anon, -1, 0);
    char *moved = mremap(grown, 64 * PAGE, 64 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target);
    CHECK(moved == target && moved[0] == 9 && !readable(grown));
    CHECK(mremap(moved, 64 * PAGE, PAGE, 0) == moved && readable(moved) && !readable(moved + PAGE));
    OK(munmap(moved, PAGE));
    say("anonymous maps: forgotten, holes, moved, refused\n");
}

static void test_brk(void)
{
    char *start = sbrk(0);
    CHECK(start != (void *)-1 && sbrk(1 << 20) == start);
    memset(start, 5, 1 << 20);
    CHECK(sbrk(0) == start + (1 << 20) && sbrk(-(1 << 20)) == start + (1 << 20));
    CHECK(sbrk(1 << 20) == start && start[0] == 0 && start[(1 << 20) - 1] == 0);
    CHECK((char *)syscall(SYS_brk, 0) == start + (1 << 20));
    CHECK(sbrk(-(1 << 20)) == start + (1 << 20));
    say("brk: grown, shrunk, zero again\n");
}

static void test_dlopen(void)
{
    for (int i = 0; i < 2; i++) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        CHECK(library != NULL);
        double (*cosine)(double) = (double (*)(double))dlsym(library, "cos");
        CHECK(cosine && cosine(0) == 1.0);
        CHECK(dlclose(library) == 0);
    }
    CHECK(dlopen("libno-such-library.so", RTLD_NOW) == NULL && dlerror() != NULL);
    say("dlopen: libm twice\n");
}

/* mov $number, %eax; syscall; ret */
static const unsigned char call_code[] = {0xb8, 0, 0, 0, 0, 0x0f, 0x05, 0xc3};

static void write_call(char *at, uint32_t number)
{
    memcpy(at, call_code, sizeof call_code);
    memcpy(at + 1, &number, sizeof number);
}

static long call(const char *code)
{
    return ((long (*)(void))(uintptr_t)code)();
}

static void test_code(void)
{
    const int rw = PROT_READ | PROT_WRITE, anon = MAP_PRIVATE | MAP_ANONYMOUS;
    char *code = map(NULL, 2 * PAGE, rw, anon, -1, 0);
    write_call(code, SYS_getpid);
    OK(mprotect(code, 2 * PAGE, PROT_READ | PROT_EXEC));
    for (int i = 0; i < 3; i++)
        CHECK(call(code) == getpid());

    /* Made writable, changed beside the syscall instruction, made executable again. */
    uint32_t number = SYS_getppid;
    OK(mprotect(code, 2 * PAGE, rw));
    memcpy(code + 1, &number, sizeof number);
    OK(mprotect(code, 2 * PAGE, PROT_READ | PROT_EXEC));
    for (int i = 0; i < 3; i++)
        CHECK(call(code) == getppid());

    /* The same place with other code, no syscall where there was one before. */
    OK(munmap(code, 2 * PAGE));
    CHECK(map(code, 2 * PAGE, rw, anon | MAP_FIXED, -1, 0) == code);
    static const unsigned char constant[] = {0x90, 0x90, 0x90, 0x90, 0x31, 0xc0, 0xb0, 0x2a, 0xc3};
    memcpy(code, constant, sizeof constant);
    OK(mprotect(code, 2 * PAGE, PROT_READ | PROT_EXEC));
    CHECK(call(code) == 42);

    /* A syscall instruction across a page boundary. */
    OK(mprotect(code, 2 * PAGE, rw));
    write_call(code + PAGE - 6, SYS_getpid);
    OK(mprotect(code, 2 * PAGE, PROT_READ | PROT_EXEC));
    for (int i = 0; i < 3; i++)
        CHECK(call(code + PAGE - 6) == getpid());
    OK(munmap(code, 2 * PAGE));
    say("code: written, changed, replaced, across pages\n");
}

/* The processor only notices by itself what is written and run through the same address. */
static void serialize(void)
{
    unsigned a = 0, b, c = 0, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d) : : "memory");
}

static void test_self_modifying_code(void)
{
    const int rwx = PROT_READ | PROT_WRITE | PROT_EXEC;
    char *code = map(NULL, PAGE, rwx, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    write_call(code, SYS_getpid);
    int good = 0;
    for (int i = 0; i < 50; i++) {
        uint32_t number = i % 2 ? SYS_getppid : SYS_getpid;
        memcpy(code + 1, &number, sizeof number);
        good += call(code) == (i % 2 ? getppid() : getpid());
    }
    /* The syscall instruction itself becomes two nops, and a syscall again. */
    for (int i = 0; i < 10; i++) {
        memcpy(code + 5, i % 2 ? "\x0f\x05" : "\x90\x90", 2);
        good += call(code) == (i % 2 ? getppid() : SYS_getppid);
    }

    /* Code that writes its own next instruction: movb $7, 1(%rip) into mov $0, %eax; ret. */
    static const unsigned char own[] = {0xc6, 0x05, 0x01, 0, 0, 0, 0x07, 0xb8, 0, 0, 0, 0, 0xc3};
    memcpy(code, own, sizeof own);
    CHECK(call(code) == 7);
    OK(munmap(code, PAGE));

    /* One memory under two maps: written here, run there. */
    int fd = OK(memfd_create("code", 0));
    OK(ftruncate(fd, PAGE));
    char *writable = map(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *runnable = map(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    for (int i = 0; i < 10; i++) {
        write_call(writable, i % 2 ? SYS_getppid : SYS_getpid);
        serialize();
        good += call(runnable) == (i % 2 ? getppid() : getpid());
    }
    OK(munmap(writable, PAGE));
    OK(munmap(runnable, PAGE));
    close(fd);
    CHECK(good == 70);
    say("self-modifying code: %d right answers\n", good);
}

int main(void)
{
    make_temp_dir("mmap_files");
    OK(pipe(probe));
    test_file_maps();
    test_anonymous();
    test_brk();
    test_dlopen();
    test_code();
    test_self_modifying_code();
    remove_temp_dir();
    return 0;
}
