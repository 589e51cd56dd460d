/* Covers: SIGKILL at every moment of a process's life: by itself, by its parent while it is
 * blocked, computing, stopped, busy with syscalls, has threads, is one of a group, or loses its
 * parent.
 *
 * Hard for a recorder: the process gets no last word. What it did before must be in the log up to
 * the last syscall whose effect others saw, and a call it was blocked in has no end. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

static volatile unsigned long spins;

static void spin(void)
{
    for (;;)
        spins++;
}

static void *spin_in_thread(void *unused)
{
    (void)unused;
    spin();
    return NULL;
}

static void *kill_own_process(void *unused)
{
    (void)unused;
    kill(getpid(), SIGKILL);
    return NULL;
}

static void by_itself(int out)
{
    write_all(out, "r", 1);
    kill(getpid(), SIGKILL);
}

static void by_own_thread(int out)
{
    pthread_t thread;
    write_all(out, "r", 1);
    ZERO(pthread_create(&thread, NULL, spin_in_thread, NULL));
    ZERO(pthread_create(&thread, NULL, kill_own_process, NULL));
    spin();
}

static void blocked(int out)
{
    int fds[2];
    char byte;
    OK(pipe(fds));
    write_all(out, "r", 1);
    CHECK(read(fds[0], &byte, 1) == 1);
}

static void computing(int out)
{
    write_all(out, "r", 1);
    spin();
}

static void computing_threads(int out)
{
    pthread_t thread;
    for (int i = 0; i < 3; i++)
        ZERO(pthread_create(&thread, NULL, spin_in_thread, NULL));
    write_all(out, "r", 1);
    pthread_join(thread, NULL);
}

static void stopped(int out)
{
    write_all(out, "r", 1);
    raise(SIGSTOP);
}

static void busy(int out)
{
    write_all(out, "r", 1);
    for (;;)
        getppid();
}

static const struct {
    void (*live)(int out);
    int kill_it;
} cases[] = {{by_itself, 0},         {by_own_thread, 0}, {blocked, 1}, {computing, 1},
             {computing_threads, 1}, {stopped, 1},       {busy, 1}};

static void test_group(void)
{
    int fds[2], status;
    char ready[3];
    pid_t group = 0;
    OK(pipe(fds));
    for (int i = 0; i < 3; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) {
            OK(setpgid(0, group));
            write_all(fds[1], "r", 1);
            spin();
        }
        if (i == 0)
            group = pid;
        read_all(fds[0], ready, 1);
    }
    OK(kill(-group, SIGKILL));
    for (int i = 0; i < 3; i++) {
        OK(waitpid(-group, &status, 0));
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    close(fds[0]);
    close(fds[1]);
    say("group: 3 killed\n");
}

/* The grandchild asked to be killed when its parent dies; the pipe shows that it was. */
static void test_death_of_parent(void)
{
    int fds[2];
    char byte;
    OK(pipe(fds));
    pid_t pid = OK(fork());
    if (pid == 0) {
        if (OK(fork()) == 0) {
            OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
            write_all(fds[1], "r", 1);
            spin();
        }
        for (;;)
            pause();
    }
    close(fds[1]);
    read_all(fds[0], &byte, 1);
    OK(kill(pid, SIGKILL));
    DIES(pid, SIGKILL);
    CHECK(read(fds[0], &byte, 1) == 0);
    close(fds[0]);
    say("death of the parent: grandchild killed\n");
}

/* What was written before the end is all there. */
static void test_writer(void)
{
    int fds[2];
    uint32_t number, next = 0;
    ssize_t n;
    OK(pipe(fds));
    pid_t pid = OK(fork());
    if (pid == 0) {
        close(fds[0]);
        for (number = 0;; number++)
            write_all(fds[1], &number, sizeof number);
    }
    close(fds[1]);
    while ((n = read(fds[0], &number, sizeof number)) > 0) {
        CHECK(n == sizeof number && number == next++);
        if (next == 1000)
            OK(kill(pid, SIGKILL));
    }
    CHECK(n == 0 && next >= 1000);
    DIES(pid, SIGKILL);
    close(fds[0]);
    say("writer: killed in full flow\n");
}

int main(void)
{
    const int count = sizeof cases / sizeof cases[0];
    for (int i = 0; i < count; i++) {
        int fds[2];
        char byte;
        OK(pipe(fds));
        pid_t pid = OK(fork());
        if (pid == 0) {
            close(fds[0]);
            cases[i].live(fds[1]);
            _exit(1);
        }
        close(fds[1]);
        read_all(fds[0], &byte, 1);
        if (cases[i].kill_it) {
            sleep_ms(3);
            OK(kill(pid, SIGKILL));
        }
        DIES(pid, SIGKILL);
        CHECK(read(fds[0], &byte, 1) == 0);
        close(fds[0]);
    }
    say("killed: %d ways\n", count);
    test_group();
    test_death_of_parent();
    test_writer();
    return 0;
}
