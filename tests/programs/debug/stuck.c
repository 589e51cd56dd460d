/* Two processes, of which one comes to wait for something that nobody can cut short, and the other
 * counts. With `vfork` it waits for a child that shares its memory and does nothing; with `file DIR`
 * for a file system (FUSE, mounted at DIR for this program alone) whose server, a third process, is
 * silent until it gets SIGUSR2. It begins to wait at SIGUSR1. Prints the ids of the one that waits, the
 * one that counts, and the third (0: there is none). Ends when its input does. Status 77: the machine
 * does not allow it. */
#define _GNU_SOURCE
#include "../c/fuse.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

volatile long turns;
volatile long waited;
static volatile sig_atomic_t told;
static int speaks[2];
/* Who is called by its name has said so here. */
static int named[2];

static void call_itself(const char *name) {
    prctl(PR_SET_NAME, name);
    if (write(named[1], "", 1) != 1)
        _exit(1);
}

static void on_usr1(int signal) {
    (void)signal;
    told = 1;
}

/* Who has told the server to speak. */
static void on_usr2(int signal) {
    (void)signal;
    if (write(speaks[1], "", 1) != 1)
        _exit(1);
}

__attribute__((noinline)) void count(void) {
    turns++;
}

static void counts(void) {
    call_itself("counts");
    for (;;) {
        count();
        usleep(1000);
    }
}

/* What waits until then. */
static void await_word(void) {
    sigset_t none;
    sigemptyset(&none);
    while (!told)
        sigsuspend(&none);
    told = 0;
}

__attribute__((noinline)) void wait_for_child(void) {
    pid_t child = vfork();
    if (child == 0) {
        /* Else it would stay when its parent is killed, with what it has open. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
}

__attribute__((noinline)) void wait_for_file(const char *path) {
    char byte;
    int fd = open(path, O_RDONLY);
    if (fd == -1 || read(fd, &byte, 1) != 1)
        _exit(1);
    close(fd);
}

static void waits(const char *path) {
    call_itself("waits");
    for (;;) {
        await_word();
        if (path)
            wait_for_file(path);
        else
            wait_for_child();
        waited++;
    }
}

/* Answers everything at once but what is read. */
static void serve(struct served *served) {
    prctl(PR_SET_NAME, "silent");
    static char buffer[1 << 20];
    for (;;) {
        ssize_t len = read(served->device, buffer, sizeof buffer);
        if (len < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
            continue;
        if (len < 0)
            _exit(0);
        const struct fuse_in_header *in = (void *)buffer;
        char byte;
        if (in->opcode == FUSE_READ)
            while (read(speaks[0], &byte, 1) != 1) {
            }
        answer_one(served, in);
    }
}

static pid_t begin(void) {
    pid_t child = OK(fork());
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

int main(int count_of, char **words) {
    static char content[] = "x";
    struct served served = {.content = content, .size = 1};
    char path[PATH_MAX] = "";
    pid_t server = 0;
    int has_file = count_of > 2;
    struct sigaction usr1 = {.sa_handler = on_usr1, .sa_flags = SA_RESTART};
    struct sigaction usr2 = {.sa_handler = on_usr2, .sa_flags = SA_RESTART};
    OK(sigaction(SIGUSR1, &usr1, NULL));
    OK(sigaction(SIGUSR2, &usr2, NULL));
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    OK(sigprocmask(SIG_BLOCK, &one, NULL));
    if (has_file) {
        served.device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
        if (served.device == -1 || unshare(CLONE_NEWNS) == -1)
            return 77;
        OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
        OK(pipe(speaks));
        mount_served(&served, words[2]);
        snprintf(path, sizeof path, "%s/file", words[2]);
        server = begin();
        if (server == 0)
            serve(&served);
        OK(close(served.device));
    }
    OK(pipe(named));
    pid_t waiting = begin();
    if (waiting == 0)
        waits(has_file ? path : NULL);
    pid_t counting = begin();
    if (counting == 0)
        counts();
    char names[1];
    for (int i = 0; i < 2; i++)
        if (read(named[0], names, 1) != 1)
            return 1;
    printf("%d %d %d\n", waiting, counting, server);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) == 1) {
    }
    return 0;
}
