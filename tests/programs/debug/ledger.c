/* For the tests of conditions: two processes whose globals change at moments that messages put in order. The teller
 * takes from an account and tells the clerk, who raises the limit and answers. */
#include <sys/wait.h>
#include <unistd.h>

static volatile long accounts[2] = {120, 80};
static volatile long limit = 5;

static long spend(int amount)
{
    accounts[0] -= amount;
    return accounts[0];
}

static void raise_limit(int by)
{
    limit += by;
}

int main(void)
{
    int there[2], back[2], n;
    if (pipe(there) || pipe(back))
        return 1;
    if (fork() == 0) {
        for (int i = 0; i < 3; i++) {
            if (read(there[0], &n, sizeof n) != sizeof n)
                return 1;
            raise_limit(n);
            if (write(back[1], &n, sizeof n) != sizeof n)
                return 1;
        }
        return 0;
    }
    for (int i = 1; i <= 3; i++) {
        spend(10 * i);
        if (write(there[1], &i, sizeof i) != sizeof i || read(back[0], &n, sizeof n) != sizeof n)
            return 1;
    }
    wait(&n);
    return 0;
}
