/* For the debugger's tests: two processes that tell each other numbers, one of which then executes the program
 * again. Small, so that every instruction of it can be walked. */
#include <sys/wait.h>
#include <unistd.h>

static volatile long total;

static void sent(int n)
{
    total += n;
}

static void got(int n)
{
    total += 2 * n;
}

static void again(int n)
{
    total += 3 * n;
}

int main(int argc, char **argv)
{
    int pipes[2], n;
    if (argc > 1) {
        for (n = 0; n < 3; n++)
            again(n);
        return 0;
    }
    if (pipe(pipes))
        return 1;
    if (fork() == 0) {
        for (int i = 0; i < 3; i++) {
            if (read(pipes[0], &n, sizeof n) != sizeof n)
                return 1;
            got(n);
        }
        execl("/proc/self/exe", argv[0], "again", (char *)0);
        return 1;
    }
    for (n = 0; n < 3; n++) {
        sent(n + 1);
        int more = n + 1;
        if (write(pipes[1], &more, sizeof more) != sizeof more)
            return 1;
    }
    wait(&n);
    return 0;
}
