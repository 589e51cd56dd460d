/* What the test programs share: checks that say where they failed, children that are
 * waited for, whole reads and writes, a temporary directory, a digest.
 *
 * Output goes through say(), one write(2) per line and no stdio buffer, so that a fork
 * can never print a line twice. A failed check ends the process with status 1. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The condition must hold. */
#define CHECK(cond) ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, #cond))
/* The call must not return -1; yields what it returned. */
#define OK(call) check_not_minus_one((long)(call), __FILE__, __LINE__, #call)
/* The call must return -1 with this errno. */
#define FAILS(call, error)                                                                 \
    do {                                                                                   \
        errno = 0;                                                                         \
        CHECK((long)(call) == -1 && errno == (error));                                     \
    } while (0)
/* The call, of the pthread kind, must return 0. */
#define ZERO(call) check_zero((call), __FILE__, __LINE__, #call)

static char temp_path[PATH_MAX];
static pid_t temp_owner;

static inline int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

/* Removes the temporary directory, if this process made one. */
static inline void remove_temp_dir(void)
{
    if (temp_path[0] && temp_owner == getpid())
        nftw(temp_path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    temp_path[0] = 0;
}

static inline void check_failed(const char *file, int line, const char *what)
{
    int error = errno;
    dprintf(STDERR_FILENO, "%s:%d: failed: %s (errno %d: %s)\n", file, line, what, error,
            strerror(error));
    remove_temp_dir();
    _exit(1);
}

static inline long check_not_minus_one(long value, const char *file, int line, const char *what)
{
    if (value == -1)
        check_failed(file, line, what);
    return value;
}

static inline void check_zero(int error, const char *file, int line, const char *what)
{
    errno = error;
    if (error != 0)
        check_failed(file, line, what);
}

__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vdprintf(STDOUT_FILENO, format, args);
    va_end(args);
}

/* Makes a temporary directory under TMPDIR, which remove_temp_dir() removes. */
static inline const char *make_temp_dir(const char *name)
{
    const char *base = getenv("TMPDIR");
    snprintf(temp_path, sizeof temp_path, "%s/mw-%s.XXXXXX", base && *base ? base : "/tmp", name);
    CHECK(mkdtemp(temp_path) != NULL);
    temp_owner = getpid();
    return temp_path;
}

/* A path inside the temporary directory; the last eight results stay valid. */
static inline const char *temp_file(const char *name)
{
    static char paths[8][PATH_MAX + 256];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", temp_path, name);
    return path;
}

/* Whether the program was asked to print what depends on order or time. */
static inline int wants_order(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "order") == 0;
}

static inline int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Sleeps the whole time, whatever signals arrive. */
static inline void sleep_ms(long ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) == -1 && errno == EINTR)
        ;
}

static inline int wait_status(pid_t pid)
{
    int status;
    pid_t got;
    while ((got = waitpid(pid, &status, 0)) == -1 && errno == EINTR)
        ;
    CHECK(got == pid);
    return status;
}

/* Waits for the child, which must exit with this code. */
#define EXITS(pid, code)                                                                   \
    do {                                                                                   \
        int status_ = wait_status(pid);                                                    \
        CHECK(WIFEXITED(status_) && WEXITSTATUS(status_) == (code));                       \
    } while (0)
/* Waits for the child, which must die of this signal. */
#define DIES(pid, sig)                                                                     \
    do {                                                                                   \
        int status_ = wait_status(pid);                                                    \
        CHECK(WIFSIGNALED(status_) && WTERMSIG(status_) == (sig));                         \
    } while (0)

static inline void write_all(int fd, const void *data, size_t size)
{
    const char *from = data;
    while (size > 0) {
        ssize_t n = write(fd, from, size);
        if (n == -1 && errno == EINTR)
            continue;
        CHECK(n > 0);
        from += n, size -= n;
    }
}

/* Reads exactly size bytes; the stream must not end before. */
static inline void read_all(int fd, void *data, size_t size)
{
    char *to = data;
    while (size > 0) {
        ssize_t n = read(fd, to, size);
        if (n == -1 && errno == EINTR)
            continue;
        CHECK(n > 0);
        to += n, size -= n;
    }
}

/* FNV-1a over the bytes, starting from the digest so far (DIGEST_START at first). */
#define DIGEST_START UINT64_C(0xcbf29ce484222325)
static inline uint64_t digest(uint64_t so_far, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        so_far = (so_far ^ bytes[i]) * UINT64_C(0x100000001b3);
    return so_far;
}

static inline uint64_t digest_number(uint64_t so_far, uint64_t number)
{
    return digest(so_far, &number, sizeof number);
}

/* Work without syscalls or memory traffic; the result must be used. */
static inline uint64_t compute(uint64_t seed, long rounds)
{
    for (long i = 0; i < rounds; i++)
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return seed;
}

#endif
