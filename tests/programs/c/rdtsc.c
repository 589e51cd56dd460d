/* Covers: rdtsc, rdtscp and cpuid, the instructions that read the outside without a syscall. With
 * the argument `order`, prints what they read.
 *
 * Hard for a recorder: nothing traps unless the monitor asks for it (PR_SET_TSC, cpuid faulting
 * where the processor has it), and the program may ask for the same trap itself. A recorder that
 * reads the counter for itself cannot let it, and answers as on a processor without it. */
#include "check.h"
#include <cpuid.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <x86intrin.h>

#define READS 1000

int main(int argc, char **argv)
{
    unsigned a, b, c, d, again[4], processor = 0;
    CHECK(__get_cpuid(0, &a, &b, &c, &d) && a >= 1);
    char vendor[13] = "";
    memcpy(vendor, &b, 4);
    memcpy(vendor + 4, &d, 4);
    memcpy(vendor + 8, &c, 4);
    CHECK(strlen(vendor) == 12);
    CHECK(__get_cpuid(1, &a, &b, &c, &d) && (d & bit_SSE2));
    for (int i = 0; i < 100; i++) {
        /* The second register holds the number of the processor, which may change. */
        CHECK(__get_cpuid(1, &again[0], &again[1], &again[2], &again[3]));
        CHECK(again[0] == a && again[3] == d);
    }
    CHECK(__get_cpuid(0x80000001, &again[0], &again[1], &again[2], &again[3]));
    int has_rdtscp = again[3] >> 27 & 1;

    uint64_t values = DIGEST_START, last = 0;
    for (int i = 0; i < READS; i++) {
        uint64_t now = has_rdtscp && i % 2 ? __rdtscp(&processor) : __rdtsc();
        CHECK(now >= last);
        last = now;
        values = digest_number(values, now + processor);
    }

    int mode = 0;
    OK(prctl(PR_GET_TSC, &mode));
    CHECK(mode == PR_TSC_ENABLE);
    pid_t pid = OK(fork());
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == -1) {
            CHECK(errno == EINVAL);
            raise(SIGSEGV);
        }
        OK(prctl(PR_GET_TSC, &mode));
        CHECK(mode == PR_TSC_SIGSEGV);
        _exit(__rdtsc() == 0);
    }
    DIES(pid, SIGSEGV);
    say("monotonic yes, cpuid stable, trap of one's own or none\n");
    if (wants_order(argc, argv))
        say("%s, version %x, features %08x, last %lu, digest %016lx\n", vendor, a, d, last, values);
    return 0;
}
