/* Code that makes a call, and at the same address, by turns, code that makes none and counts. */
#include <string.h>
#include <sys/mman.h>

static volatile long counted;

int main(void)
{
    static const unsigned char enter[] = {
        0xb8, 0x27, 0, 0, 0, /* mov eax, getpid */
        0xff, 0xe6,          /* jmp rsi */
    };
    static const unsigned char call[] = {
        0x0f, 0x05,                         /* syscall */
        0x90, 0x90, 0x90, 0x90, 0x90, 0x90, /* nop */
        0xc3,                               /* ret */
    };
    static const unsigned char count[] = {
        0xff, 0x07,                         /* inc dword ptr [rdi] */
        0x90, 0x90, 0x90, 0x90, 0x90, 0x90, /* nop */
        0xc3,                               /* ret */
    };
    unsigned char *const place = (unsigned char *)0x20000000;
    for (int round = 0; round < 8; round++) {
        void *made = mmap(place, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (made != place)
            return 1;
        memcpy(place, enter, sizeof enter);
        memcpy(place + 64, round % 2 ? count : call, sizeof call);
        if (mprotect(place, 4096, PROT_READ | PROT_EXEC) != 0)
            return 1;
        void (*run)(volatile long *, void *) = (void (*)(volatile long *, void *))made;
        for (int n = 0; n < 5; n++)
            run(&counted, place + 64);
    }
    return counted != 20;
}
