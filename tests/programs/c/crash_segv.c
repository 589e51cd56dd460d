/* Covers: death by SIGSEGV without a handler, a few frames deep. Prints one line before.
 * Ends with signal 11 (139 for a shell). */
#include "check.h"
#include <sys/resource.h>

struct node {
    int value;
    struct node *next;
};

__attribute__((noinline)) static int sum_of(const struct node *node, int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++) {
        sum += *(volatile const int *)&node->value;
        node = node->next;
    }
    return sum;
}

int main(void)
{
    struct rlimit none = {0, 0};
    struct node second = {2, NULL}, first = {1, &second};
    OK(setrlimit(RLIMIT_CORE, &none));
    say("two nodes: sum %d\n", sum_of(&first, 2));
    say("three nodes: sum %d\n", sum_of(&first, 3));
    return 0;
}
