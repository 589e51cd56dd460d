/* Linked to be where the monitor is (the test says where): it cannot be mapped into this. Looks whether
 * the vdso that it is shown is there. */
static long call(long number, long first, const void *second, long third)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
}

__attribute__((used)) void begin(const long *stack)
{
    const long *word = stack + 1 + stack[0] + 1;
    while (*word++)
        ;
    int status = 1;
    for (; word[0]; word += 2)
        if (word[0] == 33)
            status = *(const int *)word[1] == 0x464c457f ? 0 : 2;
    if (status == 0)
        call(1, 1, "there\n", 6);
    call(60, status, 0, 0);
}

__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call begin");
