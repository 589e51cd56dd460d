/* Covers: a program linked statically, with a thread, a child and a clock read.
 * BUILD_FLAGS: -static
 *
 * Hard for a recorder: there is no dynamic loader to hook, no libc.so to preload; the C library's
 * syscalls are in the program's own text, which is not position independent. */
#include "check.h"
#include <pthread.h>
#include <sys/auxv.h>

static void *twice(void *number)
{
    return (void *)((long)number * 2);
}

int main(void)
{
    pthread_t thread;
    void *result;
    ZERO(pthread_create(&thread, NULL, twice, (void *)21));
    ZERO(pthread_join(thread, &result));
    CHECK(result == (void *)42);
    pid_t pid = OK(fork());
    if (pid == 0)
        _exit(7);
    EXITS(pid, 7);
    CHECK(getauxval(AT_BASE) == 0 && getauxval(AT_RANDOM) != 0 && now_ns() > 0);
    char *memory = malloc(1 << 20);
    CHECK(memory != NULL);
    memset(memory, 1, 1 << 20);
    free(memory);
    say("hello from a static program\n");
    return 0;
}
