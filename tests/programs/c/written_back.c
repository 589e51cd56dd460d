/* Covers: calls that write where one does not expect it: sched_setattr, which corrects a size that is too large;
 * getxattrat, whose buffer is named inside a structure, and its kin.
 *
 * What the machine lacks is left out. */
#include "check.h"
#include <fcntl.h>
#include <sys/syscall.h>

struct attribute {
    uint64_t value;
    uint32_t size, flags;
};

static void scheduling(void)
{
    uint32_t attr[1024] = {[0] = 48};
    OK(syscall(SYS_sched_setattr, 0, attr, 0));
    attr[0] = sizeof attr;
    attr[500] = 1;
    FAILS(syscall(SYS_sched_setattr, 0, attr, 0), E2BIG);
    CHECK(attr[0] >= 48 && attr[0] < sizeof attr);
    attr[500] = 0;
    OK(syscall(SYS_sched_setattr, 0, attr, 0));
}

static void attributes(void)
{
    enum { SET = 463, GET, LIST, REMOVE };
    char bytes[64] = "";
    int fd = OK(open(temp_file("file"), O_RDWR | O_CREAT, 0600));
    struct attribute attr = {(uintptr_t) "value", 5, 0};
    if (syscall(SET, fd, "", AT_EMPTY_PATH, "user.name", &attr, sizeof attr) == -1) {
        CHECK(errno == ENOSYS || errno == EOPNOTSUPP);
        return;
    }
    attr = (struct attribute){(uintptr_t)bytes, sizeof bytes, 0};
    CHECK(syscall(GET, fd, "", AT_EMPTY_PATH, "user.name", &attr, sizeof attr) == 5);
    CHECK(strcmp(bytes, "value") == 0);
    attr = (struct attribute){0};
    CHECK(syscall(GET, AT_FDCWD, temp_file("file"), 0, "user.name", &attr, sizeof attr) == 5);
    CHECK(syscall(LIST, fd, "", AT_EMPTY_PATH, bytes, sizeof bytes) >= 10);
    CHECK(memmem(bytes, sizeof bytes, "user.name", 10) != NULL);
    OK(syscall(REMOVE, fd, "", AT_EMPTY_PATH, "user.name"));
    FAILS(syscall(GET, fd, "", AT_EMPTY_PATH, "user.name", &attr, sizeof attr), ENODATA);
}

int main(void)
{
    make_temp_dir("written");
    scheduling();
    attributes();
    remove_temp_dir();
    say("written where it was expected\n");
    return 0;
}
