/* Makes code that asks the processor for a random number, and runs it: nothing traps there, and no
 * replay can know the answer. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void)
{
    static const unsigned char code[] = {
        0x48, 0x0f, 0xc7, 0xf0, /* rdrand rax */
        0xc3,                   /* ret */
    };
    void *made = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return 1;
    memcpy(made, code, sizeof code);
    if (mprotect(made, 4096, PROT_READ | PROT_EXEC) != 0)
        return 1;
    unsigned long (*ask)(void) = (unsigned long (*)(void))made;
    unsigned long answers[4] = {ask(), ask(), ask(), ask()};
    return write(1, answers, sizeof answers) != sizeof answers;
}
