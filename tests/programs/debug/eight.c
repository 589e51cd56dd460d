/* For the debugger's tests: eight processes that each have a number of their own and tell it to their parent. */
#include <sys/wait.h>
#include <unistd.h>

static void tell(int to, long number)
{
    if (write(to, &number, sizeof number) != sizeof number)
        _exit(1);
}

static int work(int to, int from, long number)
{
    long heard = 0;
    for (int round = 0; round < 4; round++) {
        tell(to, number + round);
        if (read(from, &heard, sizeof heard) != sizeof heard)
            return 1;
    }
    return 0;
}

int main(void)
{
    int up[8][2], down[8][2];
    long number;
    for (int i = 0; i < 8; i++) {
        if (pipe(up[i]) || pipe(down[i]))
            return 1;
        if (fork() == 0)
            return work(up[i][1], down[i][0], 11 * i);
    }
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < 8; i++) {
            if (read(up[i][0], &number, sizeof number) != sizeof number)
                return 1;
            tell(down[i][1], number);
        }
    for (int i = 0; i < 8; i++)
        wait(0);
    return 0;
}
