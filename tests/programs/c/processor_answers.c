/* Covers: cpuid, rdrand, rdseed, rdpid and lsl: instructions that the processor answers, differently
 * each time or on each core.
 *
 * Hard for a recorder: none of them traps. All that they answer is written to a pipe, so that a replay
 * with other answers is seen; and everything around them (other registers, flags, the upper halves)
 * must be as the processor leaves it. */
#include "check.h"
#include <cpuid.h>
#include <sched.h>

static int out[2];

/* What is read from the processor leaves the program here. */
static void tell(const void *data, size_t size)
{
    char back[256];
    CHECK(write(out[1], data, size) == (ssize_t)size);
    CHECK(read(out[0], back, sizeof back) == (ssize_t)size);
}

static void tell_number(uint64_t number)
{
    tell(&number, sizeof number);
}

#define FLAGS_OF_RDRAND 0x8d5

/* One instruction with a register of its own, which before is all ones. */
#define ASK(instruction, name, wide)                                                       \
    do {                                                                                   \
        for (int tries = 0;; tries++) {                                                    \
            register uint64_t value asm(wide) = ~0ul;                                      \
            uint64_t flags;                                                                \
            asm volatile("add $0, %%rsp; " instruction " %%" name "; pushf; pop %1"        \
                         : "+r"(value), "=&r"(flags)                                       \
                         :                                                                 \
                         : "cc", "memory");                                                \
            CHECK((flags & FLAGS_OF_RDRAND & ~1) == 0 && tries < 1000);                    \
            tell_number(value);                                                            \
            if (flags & 1)                                                                 \
                break;                                                                     \
        }                                                                                  \
    } while (0)

#define ASK_ALL(instruction)                                                               \
    do {                                                                                   \
        ASK(instruction, "rax", "rax");                                                    \
        ASK(instruction, "ecx", "rcx");                                                    \
        ASK(instruction, "dx", "rdx");                                                     \
        ASK(instruction, "rbx", "rbx");                                                    \
        ASK(instruction, "esi", "rsi");                                                    \
        ASK(instruction, "di", "rdi");                                                     \
        ASK(instruction, "r8", "r8");                                                      \
        ASK(instruction, "r9d", "r9");                                                     \
        ASK(instruction, "r10w", "r10");                                                   \
        ASK(instruction, "r11", "r11");                                                    \
        ASK(instruction, "r12d", "r12");                                                   \
        ASK(instruction, "r13w", "r13");                                                   \
        ASK(instruction, "r14", "r14");                                                    \
        ASK(instruction, "r15", "r15");                                                    \
    } while (0)

/* The upper parts: 16 bits leave the others alone, 32 clear them. */
static void parts(void)
{
    uint64_t value = 0x1122334455667788;
    asm volatile("rdrand %w0" : "+r"(value)::"cc");
    CHECK(value >> 16 == 0x112233445566);
    asm volatile("rdrand %k0" : "+r"(value)::"cc");
    CHECK(value >> 32 == 0);
}

static void on_this_core(int has_rdpid)
{
    unsigned a, b, c, d;
    __cpuid(1, a, b, c, d);
    unsigned words[] = {a, b, c, d};
    tell(words, sizeof words);
    if (__get_cpuid_count(0xb, 0, &a, &b, &c, &d))
        tell_number(d);
    uint64_t limit = ~0ul, fails = 0x1234;
    unsigned selector = 0x7b, none = 0;
    char is_there;
    asm volatile("lsl %k2, %k0; setz %1" : "+r"(limit), "=q"(is_there) : "r"(selector) : "cc");
    CHECK(is_there && limit >> 32 == 0);
    tell_number(limit);
    asm volatile("lsl %k2, %k0; setz %1" : "+r"(fails), "=q"(is_there) : "r"(none) : "cc");
    CHECK(!is_there && fails == 0x1234);
    if (has_rdpid) {
        uint64_t processor;
        asm volatile("rdpid %0" : "=r"(processor));
        CHECK((processor & 0xfff) == (limit & 0xfff));
        tell_number(processor);
        asm volatile("rdpid %%r13" ::: "r13");
    }
}

int main(void)
{
    unsigned a, b, c, d;
    OK(pipe(out));
    __cpuid(1, a, b, c, d);
    int has_rdrand = c >> 30 & 1;
    __cpuid_count(7, 0, a, b, c, d);
    int has_rdseed = b >> 18 & 1, has_rdpid = c >> 22 & 1;
    if (has_rdrand) {
        ASK_ALL("rdrand");
        parts();
    }
    if (has_rdseed)
        ASK_ALL("rdseed");

    cpu_set_t all;
    OK(sched_getaffinity(0, sizeof all, &all));
    for (int round = 0; round < 5; round++) {
        for (int core = 0; core < CPU_SETSIZE; core++) {
            if (!CPU_ISSET(core, &all))
                continue;
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            OK(sched_setaffinity(0, sizeof one, &one));
            on_this_core(has_rdpid);
        }
    }
    say("random numbers, and each core's own\n");
    return 0;
}
