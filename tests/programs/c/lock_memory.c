/* Covers: mlockall for what is mapped and for what will be, mlock, munlockall, locks and fork.
 *
 * Hard for a recorder: its own memory is mapped too. To lock that would cost the program's limit,
 * and what the recorder maps later would fail where the program is at its limit. */
#include "check.h"
#include <sys/mman.h>

/* Where a monitor may live; no program of these tests maps anything there. */
#define MONITOR_START 0x6f0000000000ul
#define MONITOR_END 0x6f4000000000ul

/* Counts the mappings, the program's and others, that are locked and that are not. Those without a
 * name are looked at one by one below: some near the program's code may be a recorder's. */
static void count(int locked[2], int not_locked[2])
{
    static char line[8192];
    unsigned long start = 0, from, to;
    char name[256] = "";
    FILE *file = fopen("/proc/self/smaps", "re");
    CHECK(file != NULL);
    memset(locked, 0, 2 * sizeof *locked);
    memset(not_locked, 0, 2 * sizeof *not_locked);
    while (fgets(line, sizeof line, file)) {
        int fields = sscanf(line, "%lx-%lx %*s %*s %*s %*s %255s", &from, &to, name);
        if (fields >= 2)
            start = from;
        if (fields == 2)
            name[0] = 0;
        int others = start >= MONITOR_START && start < MONITOR_END;
        /* The kernel's own pages cannot be locked. */
        int counts = others || (name[0] != 0 && strncmp(name, "[v", 2) != 0);
        if (counts && strncmp(line, "VmFlags:", 8) == 0) {
            if (strstr(line, " lo"))
                locked[others]++;
            else
                not_locked[others]++;
        }
    }
    fclose(file);
}

static int is_locked(void *address)
{
    int locked = 0;
    unsigned long start, end, wanted = (unsigned long)address;
    char line[8192];
    FILE *file = fopen("/proc/self/smaps", "re");
    CHECK(file != NULL);
    int inside = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = wanted >= start && wanted < end;
        if (inside && strncmp(line, "VmFlags:", 8) == 0)
            locked = strstr(line, " lo") != NULL;
    }
    fclose(file);
    return locked;
}

int main(void)
{
    int locked[2], not_locked[2];
    FAILS(mlockall(0), EINVAL);
    FAILS(mlockall(MCL_ONFAULT), EINVAL);
    FAILS(mlockall(64), EINVAL);
    /* The heap and the buffers of stdio are there before. */
    count(locked, not_locked);
    CHECK(locked[0] == 0 && locked[1] == 0 && not_locked[0] > 5);
    OK(mlockall(MCL_CURRENT));
    count(locked, not_locked);
    CHECK(locked[0] > 5 && not_locked[0] == 0 && locked[1] == 0);
    say("now: all of the program's and nothing else\n");

    char *before = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(before != MAP_FAILED && !is_locked(before));
    OK(munlockall());
    count(locked, not_locked);
    CHECK(locked[0] == 0);

    OK(mlockall(MCL_FUTURE));
    char *after = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(after != MAP_FAILED && is_locked(after) && !is_locked(before));
    char *end = sbrk(0);
    CHECK(sbrk(1 << 20) == end && is_locked(end + (1 << 19)));
    pid_t pid = OK(fork());
    if (pid == 0) {
        /* Locks are not inherited. */
        char *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(own != MAP_FAILED && !is_locked(own) && !is_locked(after));
        _exit(0);
    }
    EXITS(pid, 0);
    say("later: what is mapped, not what a child maps\n");

    /* Enough calls for a recorder to need more memory. */
    for (int i = 0; i < 50000; i++)
        OK(getppid());
    count(locked, not_locked);
    CHECK(locked[1] == 0);
    OK(munlockall());
    CHECK(!is_locked(after));
    OK(mlock(after, 4096));
    CHECK(is_locked(after));
    OK(munlock(after, 4096));
    say("never again\n");
    return 0;
}
