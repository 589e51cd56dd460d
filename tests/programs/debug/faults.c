/* Faults, and comes back: by a pointer that points nowhere, and in the middle of a copy. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile int caught;
static int *volatile nowhere;
static char from[8192];

static void note(int number)
{
    caught = caught + number;
}

static void on_fault(int number)
{
    note(number);
    siglongjmp(back, 1);
}

__attribute__((noinline)) static int look(int depth)
{
    if (depth == 0)
        return *nowhere; /* here */
    return look(depth - 1) + depth;
}

__attribute__((noinline)) static void copy(char *to, unsigned long count)
{
    const char *source = from;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(source), "+c"(count) : : "memory");
}

int main(void)
{
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    signal(SIGSEGV, on_fault);
    if (sigsetjmp(back, 1) == 0)
        look(3);
    memset(from, 'x', sizeof from);
    if (sigsetjmp(back, 1) == 0)
        copy(page + 100, 6000);
    printf("%d %c\n", (int)caught, page[4095]);
    fflush(stdout);
    signal(SIGSEGV, SIG_DFL);
    return look(2);
}
