/* Covers: calls that few programs make, and some that a kernel may refuse: semctl with an array,
 * options of sockets whose answers have a length of their own, int 0x80.
 *
 * Hard for a recorder: what they write is as long as only the kernel knows. Where it answers like a
 * kernel without the feature, the program must be able to go on. */
#include "check.h"
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/socket.h>

#ifndef SO_GET_FILTER
#define SO_GET_FILTER 26
#endif

static void test_semaphores(void)
{
    union {
        int value;
        unsigned short *array;
    } arg;
    unsigned short set[5] = {3, 1, 4, 1, 5}, got[6] = {9, 9, 9, 9, 9, 9};
    int id = OK(semget(IPC_PRIVATE, 5, 0600));
    arg.array = set;
    OK(semctl(id, 0, SETALL, arg));
    arg.array = got;
    OK(semctl(id, 0, GETALL, arg));
    CHECK(memcmp(got, set, sizeof set) == 0 && got[5] == 9);
    CHECK(OK(semctl(id, 2, GETVAL)) == 4);
    OK(semctl(id, 0, IPC_RMID));
    say("semaphores: all at once\n");
}

static void test_options(void)
{
    char room[64];
    socklen_t len = sizeof room;
    int fd = OK(socket(AF_INET, SOCK_STREAM, 0));
    if (getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, room, &len) == -1)
        CHECK(errno == ENOPROTOOPT);
    else
        CHECK(len == 0);
    struct tcp_zerocopy_receive nothing = {0};
    len = sizeof nothing;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &nothing, &len) == -1);
    int type = 0;
    len = sizeof type;
    OK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len));
    CHECK(type == SOCK_STREAM && len == sizeof type);
    close(fd);
    say("options: none that is not there\n");
}

static sigjmp_buf refused;

static void on_refused(int signal)
{
    siglongjmp(refused, signal);
}

/* Where a 32-bit call can reach it. */
static long mmap_low(const char *text, size_t size)
{
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    CHECK(low != MAP_FAILED);
    memcpy(low, text, size);
    return (long)low;
}

/* getpid by the number of the 32-bit table, which in the 64-bit one is writev. */
static void call_by_int80(void)
{
    unsigned long a = 20, c = 0x1234567812345678, d = 77;
    __asm__ volatile("int $0x80" : "+a"(a), "+c"(c), "+d"(d) : "b"(1), "S"(0), "D"(0) : "memory");
    CHECK((pid_t)a == getpid() || (int)a == -ENOSYS);
    CHECK(c == 0x1234567812345678 && d == 77);
}

/* write, with arguments; and mmap, whose structure is the 32-bit one. */
static void others_by_int80(void)
{
    static const char text[] = "int 0x80: said by itself\n";
    long a = 4, low = mmap_low(text, sizeof text - 1);
    __asm__ volatile("int $0x80" : "+a"(a) : "b"(1), "c"(low), "d"(sizeof text - 1) : "memory");
    CHECK((int)a == sizeof text - 1);
    a = 90;
    __asm__ volatile("int $0x80" : "+a"(a) : "b"(0) : "memory");
    CHECK((int)a < 0 && (int)a >= -4095);
}

static void test_int80(void)
{
    /* A kernel without 32-bit programs. */
    struct sigaction action = {.sa_handler = on_refused}, before;
    OK(sigaction(SIGSEGV, &action, &before));
    if (sigsetjmp(refused, 1) == 0) {
        for (int i = 0; i < 3; i++)
            call_by_int80();
        others_by_int80();
    } else {
        say("int 0x80: said by itself\n");
    }
    OK(sigaction(SIGSEGV, &before, NULL));
    say("int 0x80: an answer, and nothing else\n");
}

int main(void)
{
    test_semaphores();
    test_options();
    test_int80();
    return 0;
}
