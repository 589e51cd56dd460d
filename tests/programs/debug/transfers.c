/* For the debugger's tests: a function that changes what it is pointed to, called in a loop, with a
 * system call in each round. */
#include <stdio.h>

struct account {
    int id;
    long balance;
    char name[16];
};

static struct account accounts[3] = {{1, 100, "ann"}, {2, 200, "bob"}, {3, 300, "cy"}};

static long transfer(struct account *from, struct account *to, long amount)
{
    if (from->balance < amount)
        return -1;
    from->balance -= amount;
    to->balance += amount;
    return amount;
}

int main(void)
{
    long moved = 0;
    for (int i = 0; i < 5; i++) {
        long result = transfer(&accounts[i % 3], &accounts[(i + 1) % 3], 50 * i);
        if (result > 0)
            moved += result;
        printf("%d %ld\n", i, result);
        fflush(stdout);
    }
    printf("moved %ld\n", moved);
    return 0;
}
