/* Covers: code that asks the processor (cpuid, rdtsc) and is then moved elsewhere by mremap, run
 * there, moved back and run again.
 *
 * Hard for a recorder: such instructions are jumps to memory of the recorder's by then, counted from
 * where they are. */
#include "check.h"
#include <cpuid.h>
#include <sys/mman.h>
#include <x86intrin.h>

#define PAGE 4096
#define MOVED __attribute__((noinline, section(".moved")))

MOVED __attribute__((aligned(PAGE))) static unsigned ask(unsigned leaf)
{
    unsigned a, b, c, d;
    __cpuid(leaf, a, b, c, d);
    return a ^ b ^ c ^ d;
}

MOVED static uint64_t count(void)
{
    return __rdtsc();
}

/* Often enough for both to be jumps, wherever they are. */
static void run(unsigned (*ask)(unsigned), uint64_t (*count)(void), unsigned answer)
{
    static uint64_t last;
    for (int i = 0; i < 10; i++) {
        CHECK(ask(0) == answer);
        uint64_t now = count();
        CHECK(now >= last);
        last = now;
    }
}

static void move(char *from, char *to)
{
    CHECK(mremap(from, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
}

int main(void)
{
    unsigned answer = ask(0);
    run(ask, count, answer);
    char *page = (char *)((uintptr_t)ask & -(uintptr_t)PAGE);
    CHECK((char *)count - page < PAGE);
    char *other = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(other != MAP_FAILED);
    move(page, other);
    ptrdiff_t by = other - page;
    run((void *)((char *)ask + by), (void *)((char *)count + by), answer);
    move(other, page);
    run(ask, count, answer);
    FAILS(mremap(page, PAGE, PAGE, MREMAP_FIXED, other), EINVAL);
    run(ask, count, answer);
    say("moved and back\n");
    return 0;
}
