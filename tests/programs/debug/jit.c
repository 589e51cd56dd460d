/* Makes code while it runs, as compilers at run time do, and calls it: first
   in memory that is made executable afterwards, then in memory that can be
   written all the time, where the code changes between calls. Prints where
   both are. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef long function(long);

/* lea rax, [rdi + rdi * 2]; add rax, N; ret */
static const unsigned char code[] = {0x48, 0x8d, 0x04, 0x7f, 0x48, 0x83, 0xc0, 1, 0xc3};

int main(void)
{
    unsigned char *fixed = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *loose = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long sum = 0;
    memcpy(fixed, code, sizeof(code));
    mprotect(fixed, 4096, PROT_READ | PROT_EXEC);
    printf("%p %p\n", (void *)fixed, (void *)loose);
    fflush(stdout);
    for (long n = 0; n < 100; n++)
        sum += ((function *)fixed)(n);
    for (long n = 0; n < 10; n++) {
        memcpy(loose, code, sizeof(code));
        loose[7] = (unsigned char)n;
        sum += ((function *)loose)(n);
    }
    printf("%ld\n", sum);
    return 0;
}
