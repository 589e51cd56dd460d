/* Covers: what a syscall must leave alone: all registers but rax, rcx and r11, the vector registers
 * with their upper halves, the flags, the x87 and SSE control words, and the 128 bytes below the
 * stack pointer. The argument `bad-stack` adds syscalls while rsp points to nowhere.
 *
 * Hard for a recorder: the kernel touches none of these, so compilers count on it; a monitor that
 * runs compiled code in between has to put everything back, on the trapping way as on the patched
 * one (each check runs many times, so that both are taken). */
#include "check.h"
#include <stddef.h>
#include <sys/syscall.h>

#define RUNS 20

/* Order of the general registers: rbx rdx rsi rdi rbp r8 r9 r10 r12 r13 r14 r15. */
struct state {
    uint64_t general[12];
    uint64_t flags;
    uint32_t mxcsr, x87;
    uint8_t vector[16][32] __attribute__((aligned(32)));
    uint64_t red_zone[16];
    uint64_t result;
};

struct state state_in, state_out;
uint64_t saved_rsp, bad_rsp;
void registers_sse(long number), registers_avx(long number), call_without_stack(long number);

#define EACH_VECTOR(X)                                                                     \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define LOAD_SSE(n) "movdqa 128+32*" #n "+state_in(%rip), %xmm" #n "\n\t"
#define STORE_SSE(n) "movdqa %xmm" #n ", 128+32*" #n "+state_out(%rip)\n\t"
#define LOAD_AVX(n) "vmovdqa 128+32*" #n "+state_in(%rip), %ymm" #n "\n\t"
#define STORE_AVX(n) "vmovdqa %ymm" #n ", 128+32*" #n "+state_out(%rip)\n\t"

#define EACH_GENERAL(X)                                                                    \
    X(0, rbx) X(1, rdx) X(2, rsi) X(3, rdi) X(4, rbp) X(5, r8) X(6, r9) X(7, r10)          \
    X(8, r12) X(9, r13) X(10, r14) X(11, r15)
#define LOAD_GENERAL(n, r) "mov 8*" #n "+state_in(%rip), %" #r "\n\t"
#define STORE_GENERAL(n, r) "mov %" #r ", 8*" #n "+state_out(%rip)\n\t"

#define EACH_WORD(X)                                                                       \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define LOAD_ZONE(n) "mov 640+8*" #n "+state_in(%rip), %rcx\n\tmov %rcx, -8*" #n "-8(%rsp)\n\t"
#define STORE_ZONE(n) "mov -8*" #n "-8(%rsp), %rcx\n\tmov %rcx, 640+8*" #n "+state_out(%rip)\n\t"

#define REGISTERS(name, LOAD_VECTOR, STORE_VECTOR)                                         \
    __asm__(".globl " name "\n" name ":\n\t"                                               \
            "push %rbx\n\tpush %rbp\n\tpush %r12\n\tpush %r13\n\tpush %r14\n\tpush %r15\n\t" \
            "mov %rdi, %rax\n\t"                                                           \
            "pushq 96+state_in(%rip)\n\tpopfq\n\t" EACH_VECTOR(LOAD_VECTOR)                \
            EACH_GENERAL(LOAD_GENERAL) EACH_WORD(LOAD_ZONE)                                \
            "syscall\n\t" EACH_WORD(STORE_ZONE) EACH_GENERAL(STORE_GENERAL)                \
            "pushfq\n\tpopq 96+state_out(%rip)\n\tcld\n\t"                                 \
            "stmxcsr 104+state_out(%rip)\n\tfnstcw 108+state_out(%rip)\n\t"                \
            EACH_VECTOR(STORE_VECTOR)                                                      \
            "mov %rax, 768+state_out(%rip)\n\t"                                            \
            "pop %r15\n\tpop %r14\n\tpop %r13\n\tpop %r12\n\tpop %rbp\n\tpop %rbx\n\tret")

REGISTERS("registers_sse", LOAD_SSE, STORE_SSE);
REGISTERS("registers_avx", LOAD_AVX, STORE_AVX);

__asm__(".globl call_without_stack\n"
        "call_without_stack:\n\t"
        "mov %rdi, %rax\n\t"
        "mov %rsp, saved_rsp(%rip)\n\t"
        "mov bad_rsp(%rip), %rsp\n\t"
        "syscall\n\t"
        "mov saved_rsp(%rip), %rsp\n\t"
        "mov %rax, 768+state_out(%rip)\n\t"
        "ret");

_Static_assert(offsetof(struct state, flags) == 96 && offsetof(struct state, mxcsr) == 104 &&
                   offsetof(struct state, vector) == 128 && offsetof(struct state, red_zone) == 640 &&
                   offsetof(struct state, result) == 768,
               "the assembly above knows these offsets");

/* Carry, parity, zero, sign, direction, overflow; and interrupts and the fixed bit, always set. */
static const uint64_t flag_patterns[] = {0x202, 0x202 | 0x8d5, 0x202 | 0x400, 0x202 | 0xcd5};

static void run(void (*registers)(long), int vector_size, int round)
{
    uint8_t *bytes = (uint8_t *)&state_in;
    for (size_t i = 0; i < sizeof state_in; i++)
        bytes[i] = (uint8_t)(i * 7 + round * 13 + 1);
    state_in.flags = flag_patterns[round % 4];
    memset(&state_out, 0, sizeof state_out);
    uint32_t mxcsr = 0x1f80 | (round % 4) << 13, default_mxcsr = 0x1f80;
    uint16_t x87 = 0x037f ^ (round % 2) << 10, default_x87 = 0x037f;
    __asm__ volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(mxcsr), "m"(x87));
    registers(SYS_getppid);
    __asm__ volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(default_mxcsr), "m"(default_x87));

    CHECK(state_out.result == (uint64_t)getppid());
    for (int i = 0; i < 12; i++)
        CHECK(state_out.general[i] == state_in.general[i]);
    for (int i = 0; i < 16; i++) {
        CHECK(memcmp(state_out.vector[i], state_in.vector[i], vector_size) == 0);
        CHECK(state_out.red_zone[i] == state_in.red_zone[i]);
    }
    CHECK(state_out.flags == state_in.flags);
    CHECK(state_out.mxcsr == mxcsr && (state_out.x87 & 0xffff) == x87);
}

int main(int argc, char **argv)
{
    for (int round = 0; round < RUNS; round++)
        run(registers_sse, 16, round);
    if (__builtin_cpu_supports("avx"))
        for (int round = 0; round < RUNS; round++)
            run(registers_avx, 32, round);
    say("registers, flags, control words, red zone: %d times\n", RUNS);
    if (argc > 1 && strcmp(argv[1], "bad-stack") == 0) {
        static const uint64_t stacks[] = {0, 8, UINT64_C(0x8000000000000000), UINT64_MAX};
        for (int round = 0; round < RUNS; round++) {
            bad_rsp = stacks[round % 4];
            call_without_stack(SYS_getppid);
            CHECK(state_out.result == (uint64_t)getppid());
        }
        say("without a stack: %d times\n", RUNS);
    }
    return 0;
}
