/* Covers: set_tid_address and PR_GET_TID_ADDRESS: the word that the kernel clears when a thread ends.
 *
 * Hard for a recorder that has the kernel clear a word of its own. */
#include "check.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef PR_GET_TID_ADDRESS
#define PR_GET_TID_ADDRESS 40
#endif

static void *look(void *unused)
{
    int *word = NULL;
    if (prctl(PR_GET_TID_ADDRESS, &word) == -1) {
        CHECK(errno == EINVAL); /* a kernel without checkpoints */
        return unused;
    }
    CHECK(word != NULL && *word == (int)syscall(SYS_gettid));
    return unused;
}

int main(void)
{
    look(NULL);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        ZERO(pthread_create(&thread, NULL, look, NULL));
        ZERO(pthread_join(thread, NULL));
    }
    static int own, *word;
    CHECK(syscall(SYS_set_tid_address, &own) == getpid());
    if (prctl(PR_GET_TID_ADDRESS, &word) == 0)
        CHECK(word == &own);
    say("each its own word\n");
    return 0;
}
