/* Covers: every clock, read through the C library and by raw syscall, sleeps of every kind, and
 * random bytes. With the argument `order`, prints all of the values.
 *
 * Hard for a recorder: a clock read is no syscall at all, it reads a page the kernel writes to;
 * and its values must agree with those of the syscalls between them. */
#include "check.h"
#include <fcntl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>

static const struct {
    clockid_t id;
    const char *name;
} clocks[] = {
    {CLOCK_REALTIME, "realtime"},
    {CLOCK_MONOTONIC, "monotonic"},
    {CLOCK_MONOTONIC_RAW, "monotonic raw"},
    {CLOCK_REALTIME_COARSE, "realtime coarse"},
    {CLOCK_MONOTONIC_COARSE, "monotonic coarse"},
    {CLOCK_BOOTTIME, "boottime"},
    {CLOCK_TAI, "tai"},
    {CLOCK_PROCESS_CPUTIME_ID, "process"},
    {CLOCK_THREAD_CPUTIME_ID, "thread"},
};
#define CLOCKS (sizeof clocks / sizeof clocks[0])

static int64_t ns(const struct timespec *time)
{
    return time->tv_sec * INT64_C(1000000000) + time->tv_nsec;
}

static void test_clocks(int order)
{
    for (size_t i = 0; i < CLOCKS; i++) {
        struct timespec time, resolution;
        int64_t last = 0;
        uint64_t values = DIGEST_START;
        OK(clock_getres(clocks[i].id, &resolution));
        CHECK(ns(&resolution) > 0);
        for (int round = 0; round < 200; round++) {
            if (round % 3 == 0)
                OK(syscall(SYS_clock_gettime, clocks[i].id, &time));
            else
                OK(clock_gettime(clocks[i].id, &time));
            CHECK(time.tv_nsec >= 0 && time.tv_nsec < 1000000000);
            /* The wall clock may be set back by whoever keeps it right. */
            if (clocks[i].id != CLOCK_REALTIME && clocks[i].id != CLOCK_REALTIME_COARSE &&
                clocks[i].id != CLOCK_TAI)
                CHECK(ns(&time) >= last);
            last = ns(&time);
            values = digest_number(values, last);
        }
        if (order)
            say("%s: last %ld, digest %016lx\n", clocks[i].name, last, values);
    }
    struct timeval day;
    struct tms used;
    OK(gettimeofday(&day, NULL));
    time_t seconds = time(NULL);
    long ticks = OK(times(&used));
    CHECK(labs(seconds - day.tv_sec) < 100);
    struct timespec invalid;
    FAILS(clock_gettime(99, &invalid), EINVAL);
    if (order)
        say("day %ld.%06ld, time %ld, ticks %ld\n", day.tv_sec, day.tv_usec, seconds, ticks);
    say("clocks: %zu read\n", CLOCKS);
}

static int64_t read_ns(clockid_t id)
{
    struct timespec time;
    OK(clock_gettime(id, &time));
    return ns(&time);
}

/* Two clocks that are always the same apart: what lies between two readings of the one is what the
 * other says, for as long as they are read. */
static void test_apart(clockid_t one, clockid_t other)
{
    int64_t least = INT64_MIN, most = INT64_MAX;
    for (int round = 0; round < 100000; round++) {
        int64_t before = read_ns(one), between = read_ns(other), after = read_ns(one);
        CHECK(after >= before);
        if (between - after > least)
            least = between - after;
        if (between - before < most)
            most = between - before;
    }
    /* A microsecond, if they are not read at one go from one source. */
    CHECK(least - most < 1000);
}

static void test_sleeps(int order)
{
    struct timespec ms3 = {0, 3000000}, until, after;
    int64_t start = now_ns();
    OK(nanosleep(&ms3, NULL));
    CHECK(now_ns() - start >= 3000000);
    ZERO(clock_nanosleep(CLOCK_MONOTONIC, 0, &ms3, NULL));
    OK(clock_gettime(CLOCK_MONOTONIC, &until));
    until.tv_nsec += 3000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    ZERO(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL));
    OK(clock_gettime(CLOCK_MONOTONIC, &after));
    CHECK(ns(&after) >= ns(&until));
    /* A time that has passed is no sleep. */
    ZERO(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ms3, NULL));
    OK(usleep(1000));
    int64_t slept = now_ns() - start;
    CHECK(slept >= 10000000);
    if (order)
        say("slept %ld ns\n", slept);
    say("sleeps: long enough\n");
}

static void test_random(int order)
{
    unsigned char a[16], b[16], c[16];
    CHECK(getrandom(a, sizeof a, 0) == sizeof a);
    OK(getentropy(b, sizeof b));
    int fd = OK(open("/dev/urandom", O_RDONLY));
    read_all(fd, c, sizeof c);
    close(fd);
    CHECK(memcmp(a, b, sizeof a) != 0 && memcmp(b, c, sizeof b) != 0);
    if (order)
        say("random: %016lx\n", digest(digest(digest(DIGEST_START, a, 16), b, 16), c, 16));
    say("random: 3 sources differ\n");
}

int main(int argc, char **argv)
{
    int order = wants_order(argc, argv);
    test_clocks(order);
    test_apart(CLOCK_MONOTONIC, CLOCK_BOOTTIME);
    test_apart(CLOCK_REALTIME, CLOCK_TAI);
    say("clocks: apart as ever\n");
    test_sleeps(order);
    test_random(order);
    return 0;
}
