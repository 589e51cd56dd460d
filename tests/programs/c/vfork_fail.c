/* Covers: vfork whose exec fails and whose child tells the parent through memory, vfork beside
 * running threads, posix_spawn (success, failure, file actions, attributes), system, popen.
 *
 * Hard for a recorder: the child of a vfork runs on its parent's memory and stack, the monitor's
 * data included, while the parent stands still; what it writes must be there in replay although
 * it is another process; posix_spawn is clone(CLONE_VM | CLONE_VFORK) on a stack of its own. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <fcntl.h>

static volatile int child_error;
static volatile pid_t child_pid;
static volatile int stop;

static pid_t vfork_and_fail(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        child_pid = getpid();
        execl("/nonexistent/program", "program", (char *)NULL);
        child_error = errno;
        _exit(127);
    }
    return pid;
}

static void test_vfork(void)
{
    pid_t pid = OK(vfork_and_fail());
    CHECK(child_error == ENOENT && child_pid == pid);
    EXITS(pid, 127);

    pid = vfork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "exit 21", (char *)NULL);
        _exit(1);
    }
    EXITS(pid, 21);

    pid = vfork();
    if (pid == 0) {
        child_error = -1;
        kill(getpid(), SIGKILL);
        _exit(1);
    }
    CHECK(child_error == -1);
    DIES(pid, SIGKILL);

    /* Memory is shared, descriptors are not. */
    pid = vfork();
    if (pid == 0) {
        close(STDOUT_FILENO);
        _exit(0);
    }
    EXITS(pid, 0);
    CHECK(fcntl(STDOUT_FILENO, F_GETFD) != -1);
    say("vfork: failed exec, exec, death, own descriptors\n");
}

static void *count_until_stopped(void *counter)
{
    while (!stop)
        ++*(volatile long *)counter;
    return NULL;
}

static void test_vfork_beside_threads(void)
{
    pthread_t thread;
    volatile long counter = 0;
    ZERO(pthread_create(&thread, NULL, count_until_stopped, (void *)&counter));
    for (int i = 0; i < 10; i++) {
        child_error = 0;
        pid_t pid = OK(vfork_and_fail());
        CHECK(child_error == ENOENT);
        EXITS(pid, 127);
    }
    while (counter == 0)
        sleep_ms(1);
    stop = 1;
    ZERO(pthread_join(thread, NULL));
    say("vfork beside a thread: 10 times\n");
}

static void test_posix_spawn(void)
{
    pid_t pid;
    char *const missing[] = {"missing", NULL};
    char *const shell[] = {"sh", "-c", "kill -l >/dev/null; echo $GREETING; exit 22", NULL};
    char *const env[] = {"GREETING=hello from the spawned", NULL};
    CHECK(posix_spawn(&pid, "/nonexistent/program", NULL, NULL, missing, environ) == ENOENT);
    CHECK(posix_spawnp(&pid, "no-such-program-anywhere", NULL, NULL, missing, environ) == ENOENT);
    FAILS(wait(NULL), ECHILD);

    int out[2];
    OK(pipe2(out, O_CLOEXEC));
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGUSR1);
    signal(SIGUSR1, SIG_IGN);
    ZERO(posix_spawn_file_actions_init(&actions));
    ZERO(posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO));
    ZERO(posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
    ZERO(posix_spawnattr_init(&attributes));
    ZERO(posix_spawnattr_setsigdefault(&attributes, &defaults));
    ZERO(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP));
    ZERO(posix_spawn(&pid, "/bin/sh", &actions, &attributes, shell, env));
    close(out[1]);
    char text[64] = "";
    read_all(out[0], text, strlen("hello from the spawned\n"));
    CHECK(strcmp(text, "hello from the spawned\n") == 0);
    close(out[0]);
    EXITS(pid, 22);
    posix_spawn_file_actions_destroy(&actions);

    /* The action that fails decides the error. */
    ZERO(posix_spawn_file_actions_init(&actions));
    ZERO(posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/nonexistent/file", O_RDONLY, 0));
    CHECK(posix_spawn(&pid, "/bin/sh", &actions, NULL, shell, env) == ENOENT);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    say("posix_spawn: exit 22, three failures\n");
}

static void test_shells(void)
{
    CHECK(system(NULL) != 0);
    int status = system("exit 3");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    status = system("kill -TERM $$");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);

    char line[32];
    FILE *from = popen("echo one; echo two; exit 4", "r");
    CHECK(from && fgets(line, sizeof line, from) && strcmp(line, "one\n") == 0);
    CHECK(fgets(line, sizeof line, from) && strcmp(line, "two\n") == 0);
    CHECK(!fgets(line, sizeof line, from));
    status = pclose(from);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 4);
    FILE *to = popen("read line && test \"$line\" = three && exit 5", "w");
    CHECK(to && fputs("three\n", to) >= 0);
    status = pclose(to);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    say("shells: system 3, popen 4 and 5\n");
}

int main(void)
{
    /* A directory in PATH that may not be searched would turn ENOENT into EACCES. */
    OK(setenv("PATH", "/usr/bin:/bin", 1));
    test_vfork();
    test_vfork_beside_threads();
    test_posix_spawn();
    test_shells();
    return 0;
}
