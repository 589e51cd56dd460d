/* Covers: the first process of a pid namespace, which signals with the default action do not kill: sent
 * by itself, by its children, in the middle of a wait. A fault does.
 *
 * Hard for a recorder that has a handler for everything: it gets what the kernel would have ignored,
 * and must not wait to be killed. Where namespaces are not allowed, nothing is done. */
#include "check.h"
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void be_first(void)
{
    CHECK(getpid() == 1);
    OK(raise(SIGTERM));
    OK(raise(SIGHUP));
    OK(kill(1, SIGUSR1));
    pid_t pid = OK(fork());
    if (pid == 0) {
        for (int i = 0; i < 10; i++) {
            OK(kill(1, SIGTERM));
            sleep_ms(2);
        }
        _exit(0);
    }
    sleep_ms(10);
    EXITS(pid, 0);
    /* Others die of it as ever. */
    pid = OK(fork());
    if (pid == 0) {
        raise(SIGTERM);
        _exit(1);
    }
    DIES(pid, SIGTERM);
    _exit(7);
}

static void be_first_and_fault(void)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    volatile int *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *nowhere = 1;
    _exit(1);
}

int main(void)
{
    void (*const all[])(void) = {be_first, be_first_and_fault};
    for (int i = 0; i < 2; i++) {
        pid_t outer = OK(fork());
        if (outer == 0) {
            if (unshare(CLONE_NEWPID) == -1 && unshare(CLONE_NEWUSER | CLONE_NEWPID) == -1)
                _exit(0);
            pid_t pid = OK(fork());
            if (pid == 0)
                all[i]();
            if (i == 0)
                EXITS(pid, 7);
            else
                DIES(pid, SIGSEGV);
            _exit(0);
        }
        EXITS(outer, 0);
    }
    say("the first is not easily killed\n");
    return 0;
}
