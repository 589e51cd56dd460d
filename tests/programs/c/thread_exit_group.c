/* Covers: every way in which a process with several threads ends while its threads are blocked in
 * read, in futex, in nanosleep, or spin: exit from the main thread, exit from another, exit_group,
 * abort, a main thread that leaves before the others, a fatal signal to one thread.
 *
 * Hard for a recorder: the threads vanish inside a call that has begun and never returns, or
 * between two instructions; nobody is left to write the end of the log. */
#include "check.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static int never[2];
static sem_t started;
static volatile long spins;
static int result_pipe = -1;

static void *block_in_read(void *unused)
{
    char byte;
    (void)unused;
    sem_post(&started);
    CHECK(read(never[0], &byte, 1) == 1);
    return NULL;
}

static void *block_in_futex(void *unused)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    (void)unused;
    sem_post(&started);
    pthread_mutex_lock(&mutex);
    for (;;)
        pthread_cond_wait(&cond, &mutex);
    return NULL;
}

static void *block_in_nanosleep(void *unused)
{
    (void)unused;
    sem_post(&started);
    sleep_ms(1000000);
    return NULL;
}

static void *spin(void *unused)
{
    (void)unused;
    sem_post(&started);
    for (;;)
        spins++;
    return NULL;
}

static void start_others(void)
{
    void *(*const bodies[])(void *) = {block_in_read, block_in_futex, block_in_nanosleep, spin};
    OK(sem_init(&started, 0, 0));
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        ZERO(pthread_create(&thread, NULL, bodies[i], NULL));
    }
    for (int i = 0; i < 4; i++)
        OK(sem_wait(&started));
    sleep_ms(3);
}

static void at_exit(void)
{
    if (result_pipe != -1)
        write_all(result_pipe, "x", 1);
}

static void *exit_4(void *unused)
{
    (void)unused;
    exit(4);
}

static void *raw_exit_group_5(void *unused)
{
    (void)unused;
    syscall(SYS_exit_group, 5);
    return NULL;
}

static void *abort_here(void *unused)
{
    (void)unused;
    abort();
}

static void *return_late(void *unused)
{
    (void)unused;
    sleep_ms(10);
    return NULL;
}

static void *exit_0(void *unused)
{
    (void)unused;
    say("and this process: exit 0 from a thread\n");
    exit(0);
}

static void wait_forever(void)
{
    for (;;)
        pause();
}

/* Each runs in a child of its own and never returns. */
static void by_exit_of_main(void)
{
    start_others();
    exit(3);
}

static void by_thread(void *(*body)(void *))
{
    pthread_t thread;
    start_others();
    ZERO(pthread_create(&thread, NULL, body, NULL));
    wait_forever();
}

static void by_exit_of_thread(void)
{
    by_thread(exit_4);
}

static void by_exit_group(void)
{
    by_thread(raw_exit_group_5);
}

static void by_abort(void)
{
    by_thread(abort_here);
}

static void by_main_leaving_first(void)
{
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, return_late, NULL));
    pthread_exit(NULL);
}

static void by_signal_to_thread(void)
{
    start_others();
    pthread_t thread;
    ZERO(pthread_create(&thread, NULL, spin, NULL));
    ZERO(pthread_kill(thread, SIGTERM));
    wait_forever();
}

int main(void)
{
    static const struct {
        void (*end)(void);
        int code, sig, atexit_runs;
    } cases[] = {
        {by_exit_of_main, 3, 0, 1},       {by_exit_of_thread, 4, 0, 1},
        {by_exit_group, 5, 0, 0},         {by_abort, 0, SIGABRT, 0},
        {by_main_leaving_first, 0, 0, 1}, {by_signal_to_thread, 0, SIGTERM, 0},
    };
    struct rlimit none = {0, 0};
    OK(setrlimit(RLIMIT_CORE, &none));
    OK(pipe(never));
    atexit(at_exit);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fds[2];
        char byte;
        OK(pipe(fds));
        pid_t pid = OK(fork());
        if (pid == 0) {
            result_pipe = fds[1];
            cases[i].end();
        }
        close(fds[1]);
        if (cases[i].sig)
            DIES(pid, cases[i].sig);
        else
            EXITS(pid, cases[i].code);
        CHECK(read(fds[0], &byte, 1) == cases[i].atexit_runs);
        close(fds[0]);
    }
    say("exit 3 of main, exit 4 of a thread, exit_group 5, abort, main first, signal\n");

    pthread_t thread;
    start_others();
    ZERO(pthread_create(&thread, NULL, exit_0, NULL));
    wait_forever();
}
