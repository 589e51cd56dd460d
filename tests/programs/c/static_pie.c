/* Covers: a static program that is position independent and relocates itself.
 * BUILD_FLAGS: -static-pie
 *
 * Hard for a recorder: it has no interpreter either, and its address, which the kernel chooses,
 * must be the same in replay before its first instruction runs. */
#include "check.h"
#include <elf.h>
#include <pthread.h>
#include <sys/auxv.h>

extern const Elf64_Ehdr __ehdr_start;
static int variable;
static int *const relocated = &variable;

static void *twice(void *number)
{
    return (void *)((long)number * 2);
}

int main(void)
{
    pthread_t thread;
    void *result;
    CHECK(relocated == &variable && __ehdr_start.e_type == ET_DYN && getauxval(AT_BASE) == 0);
    CHECK((uintptr_t)&__ehdr_start > UINT32_MAX);
    ZERO(pthread_create(&thread, NULL, twice, (void *)21));
    ZERO(pthread_join(thread, &result));
    CHECK(result == (void *)42);
    pid_t pid = OK(fork());
    if (pid == 0)
        _exit(8);
    EXITS(pid, 8);
    say("hello from a static position-independent program\n");
    return 0;
}
