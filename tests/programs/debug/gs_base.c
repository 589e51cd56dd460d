/* Sets the gs base, as programs with sandboxes of their own do, and says what came of it. */
#include <immintrin.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void on_signal(int signal)
{
    const char *text = signal == SIGILL ? "SIGILL\n" : "another signal\n";
    _exit(write(1, text, strlen(text)) < 0);
}

int main(void)
{
    static long words[16];
    signal(SIGILL, on_signal);
    signal(SIGSEGV, on_signal);
    _writegsbase_u64((unsigned long)words);
    return write(1, "set\n", 4) != 4;
}
