/* For the tests of conditions: values that are no whole numbers. Two processes with a text, a pointer to a text and
 * numbers with fractions that change at moments which messages put in order; and threads that each have a variable of
 * their own. */
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static char role[24] = "follower";
static const char *volatile motto = "wait";
static volatile double load = 0.25;
static volatile float share = 0.1f;
static volatile unsigned long most = ~0ul;
static __thread volatile long handled;
static pthread_barrier_t all;

static void become(const char *what)
{
    memset(role, 0, sizeof role);
    strcpy(role, what);
}

static void *work(void *count)
{
    prctl(PR_SET_NAME, "worker");
    pthread_barrier_wait(&all);
    for (long n = 0; n < (long)count; n++) {
        handled++;
        getppid();
    }
    pthread_barrier_wait(&all);
    return 0;
}

static int other(int from, int to)
{
    char c;
    load = 0.5;
    /* Both are candidates now: the parent waits for the answer. */
    if (read(from, &c, 1) != 1)
        return 1;
    become("candidate");
    if (write(to, "b", 1) != 1 || read(from, &c, 1) != 1)
        return 1;
    /* The parent is a follower by now. */
    become("leader");
    load = 0.75;
    return write(to, "c", 1) != 1;
}

int main(void)
{
    int there[2], back[2], status;
    char c;
    pthread_t workers[2];
    if (pipe(there) || pipe(back))
        return 1;
    if (fork() == 0)
        return other(there[0], back[1]);
    become("candidate");
    if (write(there[1], "a", 1) != 1 || read(back[0], &c, 1) != 1)
        return 1;
    become("leader");
    motto = "go";
    load = 0.125;
    become("follower");
    if (write(there[1], "d", 1) != 1 || read(back[0], &c, 1) != 1)
        return 1;
    wait(&status);
    pthread_barrier_init(&all, 0, 3);
    for (long i = 0; i < 2; i++)
        pthread_create(&workers[i], 0, work, (void *)(3 + 2 * i));
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&all);
    for (int i = 0; i < 2; i++)
        pthread_join(workers[i], 0);
    getppid();
    return 0;
}
