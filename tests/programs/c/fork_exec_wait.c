/* Covers: fork, raw clone and clone3, every exec (execve, execv, execvp of a script, fexecve,
 * execveat, from a thread that is not the leader), what survives an exec (arguments, environment,
 * descriptors, ignored, blocked and pending signals), every wait (waitpid, wait4, waitid, pidfd)
 * and every kind of status.
 *
 * Hard for a recorder: each exec throws the monitor away and it must be there again before the
 * first instruction, with the program's own signal mask and pending signals in place; an exec
 * from a thread kills the other threads wherever they are and changes the caller's thread id. */
#include "check.h"
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define KEPT_FD 100
#define CLOSED_FD 101

static char self[PATH_MAX];
static char big[100001];
static char self_variable[PATH_MAX + 16];
static char *const want_argv[] = {"zeroth name", "args", "", "two words", "tab\tline\n", big, NULL};
static char *const want_env[] = {"MW_ONE=1", "MW_EMPTY=", "MW_EQUALS=a=b", self_variable, NULL};

static void find_self(void)
{
    ssize_t n = OK(readlink("/proc/self/exe", self, sizeof self - 1));
    self[n] = 0;
    snprintf(self_variable, sizeof self_variable, "MW_SELF=%s", self);
    memset(big, 'b', sizeof big - 1);
}

static int same_list(char **got, char *const *want)
{
    for (; *got && *want; got++, want++)
        if (strcmp(*got, *want) != 0)
            return 0;
    return *got == *want;
}

static int child_args(char **argv)
{
    CHECK(same_list(argv, want_argv));
    CHECK(same_list(environ, want_env));
    CHECK(fcntl(KEPT_FD, F_GETFD) == 0);
    FAILS(fcntl(CLOSED_FD, F_GETFD), EBADF);
    return 33;
}

static int child_signals(void)
{
    struct sigaction action;
    sigset_t set;
    OK(sigaction(SIGUSR1, NULL, &action));
    CHECK(action.sa_handler == SIG_IGN);
    OK(sigaction(SIGUSR2, NULL, &action));
    CHECK(action.sa_handler == SIG_DFL);
    OK(sigprocmask(SIG_SETMASK, NULL, &set));
    CHECK(sigismember(&set, SIGTERM) && sigismember(&set, SIGSYS) && !sigismember(&set, SIGHUP));
    OK(sigpending(&set));
    CHECK(sigismember(&set, SIGTERM) && !sigismember(&set, SIGSYS));
    int got;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    ZERO(sigwait(&set, &got));
    CHECK(got == SIGTERM);
    return 34;
}

static void ignore_it(int sig)
{
    (void)sig;
}

enum how { EXECVE, EXECV, FEXECVE, EXECVEAT_PATH, EXECVEAT_EMPTY, HOWS };

static void exec_args(enum how how)
{
    char dir[PATH_MAX];
    char *slash;
    switch (how) {
    case EXECVE:
        execve(self, want_argv, want_env);
        break;
    case EXECV:
        environ = (char **)want_env;
        execv(self, want_argv);
        break;
    case FEXECVE:
        fexecve(OK(open(self, O_RDONLY | O_CLOEXEC)), want_argv, want_env);
        break;
    case EXECVEAT_PATH:
        strcpy(dir, self);
        slash = strrchr(dir, '/');
        *slash = 0;
        syscall(SYS_execveat, OK(open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC)), slash + 1, want_argv,
                want_env, 0);
        break;
    default:
        syscall(SYS_execveat, OK(open(self, O_PATH | O_CLOEXEC)), "", want_argv, want_env,
                AT_EMPTY_PATH);
        break;
    }
    check_failed(__FILE__, __LINE__, "exec came back");
}

static void test_statuses(void)
{
    static const int codes[] = {0, 1, 42, 255, 256 + 7};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        pid_t pid = OK(fork());
        if (pid == 0)
            _exit(codes[i]);
        EXITS(pid, codes[i] & 0xff);
    }
    static const int fatal[] = {SIGKILL, SIGTERM, SIGUSR1, SIGALRM, SIGABRT};
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++) {
        pid_t pid = OK(fork());
        if (pid == 0) {
            struct rlimit none = {0, 0};
            setrlimit(RLIMIT_CORE, &none);
            raise(fatal[i]);
            _exit(99);
        }
        DIES(pid, fatal[i]);
    }
    say("statuses: 5 codes, 5 signals\n");
}

static void test_stop_and_continue(void)
{
    int status, gate[2];
    OK(pipe(gate));
    pid_t pid = OK(fork());
    if (pid == 0) {
        char byte;
        close(gate[1]);
        raise(SIGSTOP);
        /* Not before the parent has seen it continue. */
        CHECK(read(gate[0], &byte, 1) == 0);
        _exit(6);
    }
    close(gate[0]);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    OK(kill(pid, SIGCONT));
    siginfo_t info;
    OK(waitid(P_PID, pid, &info, WCONTINUED));
    CHECK(info.si_code == CLD_CONTINUED && info.si_status == SIGCONT);
    close(gate[1]);
    EXITS(pid, 6);
    say("stop and continue: exit 6\n");
}

static void test_waits(void)
{
    int gate[2], status;
    struct rusage usage;
    siginfo_t info = {0};
    OK(pipe(gate));
    pid_t pid = OK(fork());
    if (pid == 0) {
        char byte;
        close(gate[1]);
        CHECK(read(gate[0], &byte, 1) == 0);
        _exit(7);
    }
    CHECK(waitpid(pid, &status, WNOHANG) == 0);
    OK(waitid(P_PID, pid, &info, WEXITED | WNOHANG));
    CHECK(info.si_pid == 0);
    close(gate[1]);
    OK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
    CHECK(info.si_pid == pid && info.si_code == CLD_EXITED && info.si_status == 7);
    memset(&usage, 0xff, sizeof usage);
    CHECK(wait4(pid, &status, 0, &usage) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7 && usage.ru_utime.tv_sec == 0);
    close(gate[0]);

    int sum = 0;
    for (int i = 0; i < 5; i++)
        if (OK(fork()) == 0)
            _exit(10 + i);
    for (int i = 0; i < 5; i++) {
        OK(i % 2 ? wait(&status) : waitpid(-1, &status, 0));
        sum += WEXITSTATUS(status);
    }
    FAILS(wait(NULL), ECHILD);
    FAILS(waitpid(1, NULL, 0), ECHILD);

    pid = OK(fork());
    if (pid == 0) {
        OK(setpgid(0, 0));
        OK(raise(SIGSTOP));
        _exit(8);
    }
    CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    OK(kill(-pid, SIGCONT));
    CHECK(waitpid(-pid, &status, 0) == pid && WEXITSTATUS(status) == 8);
    say("waits: sum of five %d\n", sum);
}

static void test_clones(void)
{
    int status;
    pid_t pid = OK(syscall(SYS_clone, 0, 0, 0, 0, 0));
    if (pid == 0)
        _exit(17);
    FAILS(waitpid(pid, &status, 0), ECHILD);
    CHECK(waitpid(pid, &status, __WCLONE) == pid && WEXITSTATUS(status) == 17);

    static volatile pid_t parent_tid, child_tid;
    pid = OK(syscall(SYS_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, 0, &parent_tid,
                     &child_tid, 0));
    if (pid == 0)
        _exit(child_tid == getpid() ? 18 : 1);
    CHECK(parent_tid == pid && child_tid == 0);
    EXITS(pid, 18);

    /* A recorder may refuse clone3 as an older kernel would; libraries then use clone. */
    int pidfd = -1;
    struct clone_args args = {.flags = CLONE_PIDFD, .pidfd = (uintptr_t)&pidfd, .exit_signal = SIGCHLD};
    pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == -1 && errno == ENOSYS) {
        pid = OK(fork());
        if (pid == 0)
            _exit(19);
        pidfd = OK(syscall(SYS_pidfd_open, pid, 0));
    }
    if (pid == 0)
        _exit(19);
    siginfo_t info;
    OK(waitid(P_PIDFD, pidfd, &info, WEXITED));
    CHECK(info.si_pid == pid && info.si_status == 19);
    close(pidfd);
    say("clones: exit 17, 18, 19\n");
}

static void test_execs(void)
{
    int null = OK(open("/dev/null", O_RDWR | O_CLOEXEC));
    OK(dup2(null, KEPT_FD));
    OK(dup3(null, CLOSED_FD, O_CLOEXEC));
    for (enum how how = EXECVE; how < HOWS; how++) {
        pid_t pid = OK(fork());
        if (pid == 0)
            exec_args(how);
        EXITS(pid, 33);
    }
    pid_t pid = OK(fork());
    if (pid == 0) {
        sigset_t set;
        signal(SIGUSR1, SIG_IGN);
        signal(SIGUSR2, ignore_it);
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGSYS);
        OK(sigprocmask(SIG_BLOCK, &set, NULL));
        raise(SIGTERM);
        execl(self, self, "signals", (char *)NULL);
        _exit(1);
    }
    EXITS(pid, 34);
    close(KEPT_FD);
    close(CLOSED_FD);

    FAILS(execl("/nonexistent/program", "x", (char *)NULL), ENOENT);
    FAILS(execl("/dev/null", "x", (char *)NULL), EACCES);
    FAILS(execl("/", "x", (char *)NULL), EACCES);
    /* As a shell does that looks for a command: each lets go of the log and takes it up again. */
    for (int i = 0; i < 300; i++)
        FAILS(execl("/nonexistent/program", "x", (char *)NULL), ENOENT);
    say("execs: %d ways, signals kept\n", HOWS);
}

static void write_script(const char *path, const char *text)
{
    int fd = OK(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0755));
    write_all(fd, text, strlen(text));
    close(fd);
}

static void test_scripts(void)
{
    char line[PATH_MAX + 64];
    make_temp_dir("fork_exec_wait");
    OK(symlink(self, temp_file("self")));
    snprintf(line, sizeof line, "#!%s script\n", temp_file("self"));
    write_script(temp_file("own"), line);
    write_script(temp_file("shell"), "#!/bin/sh\nexit $(($1 + 1))\n");
    write_script(temp_file("bare"), "exit 5\n");

    pid_t pid = OK(fork());
    if (pid == 0) {
        execl(temp_file("own"), "lost", "kept", (char *)NULL);
        _exit(1);
    }
    EXITS(pid, 35);
    pid = OK(fork());
    if (pid == 0) {
        OK(setenv("PATH", temp_path, 1));
        execlp("shell", "shell", "35", (char *)NULL);
        _exit(1);
    }
    EXITS(pid, 36);
    FAILS(execl(temp_file("bare"), "bare", (char *)NULL), ENOEXEC);
    remove_temp_dir();
    say("scripts: exit 35, 36\n");
}

static void *spin(void *unused)
{
    static volatile unsigned long spins;
    (void)unused;
    for (;;)
        spins++;
    return NULL;
}

static void *exec_here(void *unused)
{
    char pid[16];
    (void)unused;
    snprintf(pid, sizeof pid, "%d", getpid());
    CHECK(gettid() != getpid());
    execl(self, self, "thread", pid, (char *)NULL);
    check_failed(__FILE__, __LINE__, "exec came back");
    return NULL;
}

static void test_exec_from_thread(void)
{
    pid_t pid = OK(fork());
    if (pid == 0) {
        pthread_t spinner, execer;
        ZERO(pthread_create(&spinner, NULL, spin, NULL));
        ZERO(pthread_create(&execer, NULL, exec_here, NULL));
        for (;;)
            pause();
    }
    EXITS(pid, 37);
    say("exec from a thread: exit 37\n");
}

int main(int argc, char **argv)
{
    find_self();
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "args") == 0)
        return child_args(argv);
    if (strcmp(mode, "signals") == 0)
        return child_signals();
    if (strcmp(mode, "script") == 0) {
        CHECK(argc == 4 && strcmp(argv[3], "kept") == 0);
        CHECK(strcmp(strrchr(argv[2], '/'), "/own") == 0);
        return 35;
    }
    if (strcmp(mode, "thread") == 0) {
        CHECK(argc == 3 && atoi(argv[2]) == getpid() && gettid() == getpid());
        return 37;
    }
    test_statuses();
    test_stop_and_continue();
    test_waits();
    test_clones();
    test_execs();
    test_scripts();
    test_exec_from_thread();
    return 0;
}
