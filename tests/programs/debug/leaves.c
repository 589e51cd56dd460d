/* For the debugger's tests: an inlined function that is left in the middle of its code, in its loop and at its end,
 * and one that begins with the code of another. To be optimized. */
#include <stdio.h>

static volatile int sink;

__attribute__((noinline)) static int noted(int n)
{
    sink = n;
    return n + 1;
}

__attribute__((always_inline)) static inline int search(const volatile int *list, int count, int wanted)
{
    for (int i = 0; i < count; i++) {
        int now = list[i];
        if (now == wanted)
            return noted(i);
        sink = now;
        if (now > wanted)
            return -2;
    }
    sink = -1;
    return -1;
}

__attribute__((noinline)) static int asks(const volatile int *list, int count, int wanted)
{
    int found = search(list, count, wanted);
    sink = found + 1000;
    return found * 2;
}

int main(void)
{
    static const volatile int list[] = {4, 8, 15, 16, 23, 42};
    int sum = 0;
    for (int wanted = 14; wanted < 17; wanted++) {
        sum += asks(list, 6, wanted);
        sink = sum;
    }
    sum += asks(list, 6, 99);
    printf("%d\n", sum);
    return 0;
}
