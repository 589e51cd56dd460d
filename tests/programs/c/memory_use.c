/* Covers: how much memory a recorder takes in the process: after very many calls, with hundreds of
 * threads, while they move large pieces of data, with many children at a time.
 *
 * Hard for a recorder: what it logs, and where results wait for their thread's turn, is memory of the
 * process, too. It must not grow with what the program does. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

/* Where a monitor may live; no program of these tests maps anything there. */
#define MONITOR_START 0x6f0000000000ul
#define MONITOR_END 0x6f4000000000ul
#define MOST (16ul << 10)

#define THREADS 300
#define PIECE (1 << 18)

/* KiB that are resident in mappings that are not the program's. */
static unsigned long taken(void)
{
    char line[8192];
    unsigned long total = 0, from, to, kib;
    int others = 0;
    FILE *file = fopen("/proc/self/smaps", "re");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            others = from >= MONITOR_START && from < MONITOR_END;
        if (others && sscanf(line, "Rss: %lu", &kib) == 1)
            total += kib;
    }
    fclose(file);
    return total;
}

static void is_little(const char *what)
{
    unsigned long kib = taken();
    if (getenv("MEMORY_USE"))
        fprintf(stderr, "%s: %lu KiB\n", what, kib);
    CHECK(kib <= MOST);
    say("%s: no more than allowed\n", what);
}

static pthread_barrier_t all, done;

static void *wait_and_move(void *unused)
{
    int fds[2];
    OK(pipe(fds));
    int size = fcntl(fds[1], F_SETPIPE_SZ, PIECE);
    if (size < 0)
        size = 65536;
    char *bytes = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(bytes != MAP_FAILED);
    memset(bytes, 1, size);
    write_all(fds[1], bytes, size);
    read_all(fds[0], bytes, size);
    OK(munmap(bytes, PIECE));
    close(fds[0]);
    close(fds[1]);
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&done);
    return unused;
}

int main(void)
{
    for (int i = 0; i < 60000; i++)
        OK(getppid());
    is_little("many calls");

    char *bytes = mmap(NULL, 64 * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int zeroes = OK(open("/dev/zero", O_RDONLY)), nowhere = OK(open("/dev/null", O_WRONLY));
    for (int i = 0; i < 4; i++) {
        read_all(zeroes, bytes, 64 * PIECE);
        write_all(nowhere, bytes, 64 * PIECE);
    }
    OK(munmap(bytes, 64 * PIECE));
    is_little("large data");

    pthread_t threads[THREADS];
    pthread_attr_t small;
    ZERO(pthread_barrier_init(&all, NULL, THREADS + 1));
    ZERO(pthread_barrier_init(&done, NULL, THREADS + 1));
    ZERO(pthread_attr_init(&small));
    ZERO(pthread_attr_setstacksize(&small, 65536));
    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_create(&threads[i], &small, wait_and_move, NULL));
    pthread_barrier_wait(&all);
    is_little("threads that moved data");
    pthread_barrier_wait(&done);
    for (int i = 0; i < THREADS; i++)
        ZERO(pthread_join(threads[i], NULL));

    pid_t children[20];
    for (int i = 0; i < 20; i++) {
        children[i] = OK(fork());
        if (children[i] == 0) {
            for (int k = 0; k < 500; k++)
                OK(getppid());
            CHECK(taken() <= MOST);
            _exit(0);
        }
    }
    for (int i = 0; i < 20; i++)
        EXITS(children[i], 0);
    is_little("children");
    return 0;
}
