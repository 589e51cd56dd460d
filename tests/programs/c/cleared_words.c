/* Covers: children that share their parent's memory (clone with CLONE_VM and CLONE_CHILD_CLEARTID) and end
 * in every way: by exit, by exit_group, by a fault, by a signal, by SIGKILL, by exec. Their parent waits
 * for the word that the kernel clears.
 *
 * Hard for a recorder that has the kernel clear a word of its own: who is killed cannot see to it that
 * the program's is cleared, too. */
#include "check.h"
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { EXIT, EXIT_GROUP, FAULT, SIGNAL, KILLED, EXEC, WAYS };

static volatile int word, is_there;

static int child(void *way)
{
    struct rlimit none = {0, 0};
    char *args[] = {"true", NULL}, *environment[] = {NULL};
    switch ((int)(long)way) {
    case EXIT:
        syscall(SYS_exit, 0);
        break;
    case EXIT_GROUP:
        syscall(SYS_exit_group, 0);
        break;
    case FAULT:
        setrlimit(RLIMIT_CORE, &none);
        *(volatile int *)8 = 1;
        break;
    case SIGNAL:
        syscall(SYS_kill, syscall(SYS_getpid), SIGTERM);
        break;
    case KILLED:
        is_there = 1;
        break;
    case EXEC:
        execve("/bin/true", args, environment);
        break;
    }
    for (;;)
        pause();
    return 0;
}

/* As pthread_join does. */
static void wait_for_word(void)
{
    int seen;
    while ((seen = word) != 0)
        syscall(SYS_futex, &word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

int main(void)
{
    enum { STACK = 1 << 18 };
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    for (int round = 0; round < 3; round++) {
        for (long way = 0; way < WAYS; way++) {
            word = 1;
            is_there = 0;
            int flags = CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD;
            pid_t pid = OK(clone(child, stack + STACK, flags, (void *)way, NULL, NULL, &word));
            if (way == KILLED) {
                while (!is_there)
                    sleep_ms(1);
                OK(kill(pid, SIGKILL));
            }
            wait_for_word();
            CHECK(word == 0);
            int status;
            CHECK(waitpid(pid, &status, 0) == pid);
            if (way == EXIT || way == EXIT_GROUP || way == EXEC)
                CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            else
                CHECK(WIFSIGNALED(status));
        }
    }
    say("all words cleared\n");
    return 0;
}
