/* A program that traces itself: a child that its parent traces, so that nobody else can. Prints the
 * ids of both. The child waits until it is killed. */
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        for (;;)
            pause();
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        return 1;
    ptrace(PTRACE_CONT, child, NULL, NULL);
    printf("%d %d\n", (int)getpid(), (int)child);
    fflush(stdout);
    /* What ends the child ends this one. */
    return waitpid(child, &status, 0) == child && WIFSIGNALED(status) ? 0 : 1;
}
