/* Covers: SIGCHLD with a handler that reaps all there are, its siginfo for each kind of death,
 * SA_NOCLDSTOP, SA_NOCLDWAIT and SIGCHLD ignored (children reap themselves).
 *
 * Hard for a recorder: SIGCHLDs merge, so how many come and how many children each finds depends
 * on timing; and the kernel decides by the action the program set whether a child becomes a
 * zombie, so that action must really be in force. */
#include "check.h"
#include <signal.h>

static volatile int reaped, code_sum, signals;
static volatile siginfo_t last;

static void reap_all(int sig)
{
    int saved = errno, status;
    (void)sig;
    while (waitpid(-1, &status, WNOHANG) > 0) {
        reaped++;
        code_sum += WEXITSTATUS(status);
    }
    errno = saved;
}

static void note(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    last = *info;
    signals++;
}

/* Waits with SIGCHLD let in, as a server would. */
static void wait_until(volatile int *counter, int wanted)
{
    sigset_t block, old;
    sigemptyset(&block);
    sigaddset(&block, SIGCHLD);
    OK(sigprocmask(SIG_BLOCK, &block, &old));
    while (*counter < wanted)
        sigsuspend(&old);
    OK(sigprocmask(SIG_SETMASK, &old, NULL));
}

static void test_reaping(void)
{
    struct sigaction action = {.sa_handler = reap_all, .sa_flags = SA_RESTART};
    OK(sigaction(SIGCHLD, &action, NULL));
    for (int i = 0; i < 20; i++)
        if (OK(fork()) == 0)
            _exit(i);
    wait_until(&reaped, 20);
    FAILS(wait(NULL), ECHILD);
    say("reaped %d, codes sum %d\n", reaped, code_sum);
}

static void test_siginfo(void)
{
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGCHLD, &action, NULL));
    pid_t pid = OK(fork());
    if (pid == 0)
        _exit(5);
    wait_until(&signals, 1);
    CHECK(last.si_code == CLD_EXITED && last.si_status == 5 && last.si_pid == pid);
    EXITS(pid, 5);

    pid = OK(fork());
    if (pid == 0)
        for (;;)
            pause();
    OK(kill(pid, SIGSTOP));
    wait_until(&signals, 2);
    CHECK(last.si_code == CLD_STOPPED && last.si_status == SIGSTOP && last.si_pid == pid);
    OK(kill(pid, SIGCONT));
    wait_until(&signals, 3);
    CHECK(last.si_code == CLD_CONTINUED && last.si_pid == pid);

    /* Now only the end is told. */
    int status;
    action.sa_flags |= SA_NOCLDSTOP;
    OK(sigaction(SIGCHLD, &action, NULL));
    OK(kill(pid, SIGSTOP));
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    OK(kill(pid, SIGCONT));
    CHECK(waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
    OK(kill(pid, SIGKILL));
    wait_until(&signals, 4);
    CHECK(signals == 4 && last.si_code == CLD_KILLED && last.si_status == SIGKILL);
    DIES(pid, SIGKILL);
    say("siginfo: exited, stopped, continued, killed\n");
}

static void test_no_zombies(const char *name)
{
    for (int i = 0; i < 3; i++)
        if (OK(fork()) == 0) {
            sleep_ms(2);
            _exit(i);
        }
    FAILS(wait(NULL), ECHILD);
    say("%s: nothing to wait for\n", name);
}

int main(void)
{
    test_reaping();
    test_siginfo();
    struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    OK(sigaction(SIGCHLD, &action, NULL));
    test_no_zombies("SA_NOCLDWAIT");
    signal(SIGCHLD, SIG_IGN);
    test_no_zombies("SIG_IGN");
    signal(SIGCHLD, SIG_DFL);
    return 0;
}
