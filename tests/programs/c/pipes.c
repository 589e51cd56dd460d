/* Covers: pipes and FIFOs: writes larger than the pipe, non-blocking ends, atomic writes, EPIPE and
 * SIGPIPE, readv and writev, preadv, splice, tee, vmsplice, sizes, packet mode.
 *
 * Hard for a recorder: a write of a megabyte blocks halfway while another process reads; splice
 * and tee move bytes that never pass through the program's memory, yet belong to a channel. */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define BIG (1 << 20)

static void test_big_writes(void)
{
    int fds[2];
    char *data = malloc(BIG);
    for (int i = 0; i < BIG; i++)
        data[i] = (char)(i ^ i >> 10);
    uint64_t want = digest(DIGEST_START, data, BIG), got = DIGEST_START;
    OK(pipe2(fds, O_CLOEXEC));
    pid_t pid = OK(fork());
    if (pid == 0) {
        close(fds[0]);
        CHECK(write(fds[1], data, BIG) == BIG);
        _exit(0);
    }
    close(fds[1]);
    size_t total = 0;
    ssize_t n;
    while ((n = OK(read(fds[0], data, 30000))) > 0) {
        got = digest(got, data, n);
        total += n;
    }
    CHECK(total == BIG && got == want);
    EXITS(pid, 0);
    close(fds[0]);
    free(data);
    say("big write: %zu bytes, digest %016lx\n", total, got);
}

static void test_nonblocking(void)
{
    int fds[2], waiting, size;
    char block[4096] = {0};
    OK(pipe2(fds, O_NONBLOCK));
    FAILS(read(fds[0], block, 1), EAGAIN);
    OK(fcntl(fds[1], F_SETPIPE_SZ, 65536));
    size = OK(fcntl(fds[1], F_GETPIPE_SZ));
    int written = 0;
    ssize_t n;
    while ((n = write(fds[1], block, sizeof block)) > 0)
        written += n;
    CHECK(errno == EAGAIN && written == size && size == 65536);
    OK(ioctl(fds[0], FIONREAD, &waiting));
    CHECK(waiting == written);
    close(fds[0]);
    struct pollfd wait = {fds[1], POLLOUT, 0};
    CHECK(poll(&wait, 1, 0) == 1 && (wait.revents & POLLERR));
    close(fds[1]);
    say("non-blocking: full at %d\n", written);
}

static volatile int broken;

static void note_broken(int sig)
{
    broken += sig == SIGPIPE;
}

static void test_broken(void)
{
    int fds[2];
    OK(pipe(fds));
    close(fds[0]);
    signal(SIGPIPE, note_broken);
    FAILS(write(fds[1], "x", 1), EPIPE);
    CHECK(broken == 1);
    signal(SIGPIPE, SIG_IGN);
    FAILS(write(fds[1], "x", 1), EPIPE);
    CHECK(broken == 1);
    signal(SIGPIPE, SIG_DFL);
    pid_t pid = OK(fork());
    if (pid == 0) {
        CHECK(write(fds[1], "x", 1) == 1);
        _exit(0);
    }
    DIES(pid, SIGPIPE);
    close(fds[1]);
    say("broken: handled, ignored, fatal\n");
}

static void test_vectors(void)
{
    int fds[2];
    char a[2], b[3], c[8] = "";
    struct iovec out[] = {{"ab", 2}, {"cde", 3}, {"fgh", 3}}, in[] = {{a, 2}, {b, 3}, {c, 8}};
    OK(pipe(fds));
    CHECK(writev(fds[1], out, 3) == 8 && readv(fds[0], in, 3) == 8);
    CHECK(memcmp(a, "ab", 2) == 0 && memcmp(b, "cde", 3) == 0 && memcmp(c, "fgh", 3) == 0);
    FAILS(preadv(fds[0], in, 3, 0), ESPIPE);
    FAILS(lseek(fds[0], 0, SEEK_SET), ESPIPE);
    close(fds[0]);
    close(fds[1]);

    int file = OK(open(temp_file("vectors"), O_CREAT | O_RDWR, 0600));
    CHECK(pwritev(file, out, 3, 100) == 8 && preadv(file, in, 2, 103) == 5);
    CHECK(memcmp(a, "de", 2) == 0 && memcmp(b, "fgh", 3) == 0);
    CHECK(pwritev2(file, out, 1, -1, 0) == 2 && lseek(file, 0, SEEK_CUR) == 2);
    CHECK(preadv2(file, in, 1, 0, 0) == 2 && memcmp(a, "ab", 2) == 0);
    close(file);

    OK(pipe2(fds, O_DIRECT));
    CHECK(write(fds[1], "packet", 6) == 6 && write(fds[1], "two", 3) == 3);
    CHECK(read(fds[0], c, 2) == 2 && read(fds[0], c, 8) == 3 && memcmp(c, "two", 3) == 0);
    close(fds[0]);
    close(fds[1]);
    say("vectors: pipe, file, packets\n");
}

static void test_splice(void)
{
    int first[2], second[2];
    char text[16] = "";
    OK(pipe(first));
    OK(pipe(second));
    write_all(first[1], "spliced and teed", 16);
    CHECK(tee(first[0], second[1], 16, 0) == 16);
    read_all(second[0], text, 16);
    CHECK(memcmp(text, "spliced and teed", 16) == 0);

    int file = OK(open(temp_file("spliced"), O_CREAT | O_RDWR, 0600));
    loff_t offset = 10;
    CHECK(splice(first[0], NULL, file, &offset, 7, 0) == 7 && offset == 17);
    CHECK(pread(file, text, 7, 10) == 7 && memcmp(text, "spliced", 7) == 0);
    CHECK(splice(first[0], NULL, second[1], NULL, 100, SPLICE_F_MOVE) == 9);
    read_all(second[0], text, 9);
    CHECK(memcmp(text, " and teed", 9) == 0);
    offset = 10;
    CHECK(splice(file, &offset, second[1], NULL, 4, 0) == 4 && offset == 14);
    read_all(second[0], text, 4);
    CHECK(memcmp(text, "spli", 4) == 0);
    FAILS(splice(first[0], NULL, second[1], NULL, 1, SPLICE_F_NONBLOCK), EAGAIN);

    struct iovec pages = {"from memory", 11};
    CHECK(vmsplice(first[1], &pages, 1, 0) == 11);
    read_all(first[0], text, 11);
    CHECK(memcmp(text, "from memory", 11) == 0);
    struct iovec to = {text, 5};
    write_all(first[1], "BACK!", 5);
    CHECK(vmsplice(first[0], &to, 1, 0) == 5 && memcmp(text, "BACK!", 5) == 0);
    close(file);
    for (int i = 0; i < 2; i++) {
        close(first[i]);
        close(second[i]);
    }
    say("splice, tee, vmsplice\n");
}

static void test_fifo(void)
{
    char text[8];
    OK(mkfifo(temp_file("fifo"), 0600));
    FAILS(open(temp_file("fifo"), O_WRONLY | O_NONBLOCK), ENXIO);
    pid_t pid = OK(fork());
    if (pid == 0) {
        sleep_ms(3);
        int fd = OK(open(temp_file("fifo"), O_WRONLY));
        write_all(fd, "fifo", 4);
        _exit(0);
    }
    int fd = OK(open(temp_file("fifo"), O_RDONLY));
    read_all(fd, text, 4);
    CHECK(memcmp(text, "fifo", 4) == 0 && read(fd, text, 1) == 0);
    EXITS(pid, 0);
    close(fd);
    say("fifo: opened from both sides\n");
}

int main(void)
{
    make_temp_dir("pipes");
    test_big_writes();
    test_nonblocking();
    test_broken();
    test_vectors();
    test_splice();
    test_fifo();
    remove_temp_dir();
    return 0;
}
