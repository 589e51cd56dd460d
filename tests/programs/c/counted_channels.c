/* Processes that send each other bytes over pipes, socket pairs and TCP, and count them in a file: how
 * many each has begun to send and has sent, has received, before and behind each call. Whoever stops
 * all of them at once can tell from it what is under way: nothing else may be in the channels.
 *
 *     counted_channels FILE MILLISECONDS [SEED]
 */
#include "check.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define CHANNELS 6

/* One for each channel, in the file; the inodes of both ends come with it. */
struct count {
    uint64_t inode, other, begun, sent, asked, received;
};
static volatile struct count *counts;

static uint64_t random_of(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static long long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void idle(uint64_t rounds)
{
    for (volatile uint64_t i = 0; i < rounds; i++) {
    }
}

static void send_bytes(int i, int fd, long long until, uint64_t seed)
{
    static char bytes[4096];
    while (now_ms() < until) {
        uint64_t count = 1 + random_of(&seed) % sizeof bytes;
        counts[i].begun += count;
        write_all(fd, bytes, count);
        counts[i].sent += count;
        idle(random_of(&seed) % 40000);
    }
    _exit(0);
}

static void receive_bytes(int i, int fd, uint64_t seed)
{
    static char bytes[4096];
    for (;;) {
        uint64_t count = 1 + random_of(&seed) % sizeof bytes;
        counts[i].asked = count;
        ssize_t got = read(fd, bytes, count);
        CHECK(got >= 0);
        counts[i].received += (uint64_t)got;
        counts[i].asked = 0;
        if (got == 0) _exit(0);
        idle(random_of(&seed) % 40000);
    }
}

static void tcp_pair(int ends[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(bind(listener, (struct sockaddr *)&at, len));
    OK(getsockname(listener, (struct sockaddr *)&at, &len));
    OK(listen(listener, 1));
    ends[1] = OK(socket(AF_INET, SOCK_STREAM, 0));
    OK(connect(ends[1], (struct sockaddr *)&at, len));
    ends[0] = OK(accept(listener, NULL, NULL));
    close(listener);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        /* Without a file to count in, there is nobody to look. */
        say("nobody looks");
        return 0;
    }
    int file = OK(open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600));
    OK(ftruncate(file, CHANNELS * sizeof *counts));
    counts = mmap(NULL, CHANNELS * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(counts != MAP_FAILED);
    long long until = now_ms() + atoi(argv[2]);
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    int ends[CHANNELS][2];
    for (int i = 0; i < CHANNELS; i++) {
        if (i % 3 == 0)
            OK(pipe(ends[i]));
        else if (i % 3 == 1)
            OK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]));
        else
            tcp_pair(ends[i]);
        struct stat info;
        OK(fstat(ends[i][0], &info));
        counts[i].inode = info.st_ino;
        OK(fstat(ends[i][1], &info));
        counts[i].other = info.st_ino;
    }
    for (int i = 0; i < 2 * CHANNELS; i++) {
        if (OK(fork()) != 0) continue;
        int own = i / 2, side = i % 2;
        for (int k = 0; k < CHANNELS; k++) {
            if (k != own || side == 0) close(ends[k][1]);
            if (k != own || side == 1) close(ends[k][0]);
        }
        if (side == 0)
            receive_bytes(own, ends[own][0], seed + (uint64_t)i);
        send_bytes(own, ends[own][1], until, seed + (uint64_t)i);
    }
    for (int k = 0; k < CHANNELS; k++) {
        close(ends[k][0]);
        close(ends[k][1]);
    }
    for (int i = 0; i < 2 * CHANNELS; i++) {
        int status;
        OK(wait(&status));
        CHECK(status == 0);
    }
    for (int i = 0; i < CHANNELS; i++) CHECK(counts[i].sent == counts[i].received);
    say("all that was sent was received");
    return 0;
}
