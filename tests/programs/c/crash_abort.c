/* Covers: death by abort from a failed assertion, in a thread. Prints one line before.
 * Ends with signal 6 (134 for a shell); the assertion speaks on stderr. */
#include "check.h"
#include <assert.h>
#include <pthread.h>
#include <sys/resource.h>

static void *fail(void *balance)
{
    assert(*(int *)balance >= 0);
    return NULL;
}

int main(void)
{
    struct rlimit none = {0, 0};
    int balance = -1;
    pthread_t thread;
    OK(setrlimit(RLIMIT_CORE, &none));
    say("about to fail\n");
    ZERO(pthread_create(&thread, NULL, fail, &balance));
    ZERO(pthread_join(thread, NULL));
    return 0;
}
