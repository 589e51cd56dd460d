/* Covers: file handles, keys and keyrings, Landlock, quotas, PR_SET_MM.
 *
 * Hard for a recorder: what they write is as long as the file system, the key or the command says. What
 * the machine does not have, or this user may not, is left out; what was read goes to /dev/null. */
#include "check.h"
#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/landlock.h>
#include <linux/prctl.h>
#include <sys/prctl.h>
#include <sys/quota.h>
#include <sys/syscall.h>

static int null;

static void keep(const void *data, size_t size)
{
    write_all(null, data, size);
}

static void test_handles(void)
{
    struct {
        struct file_handle head;
        unsigned char room[128];
    } handle;
    int mount = -1;
    memset(&handle, 0, sizeof handle);
    FAILS(name_to_handle_at(AT_FDCWD, "/nowhere", &handle.head, &mount, 0), ENOENT);
    if (name_to_handle_at(AT_FDCWD, "/", &handle.head, &mount, 0) == -1 && errno == EOVERFLOW) {
        unsigned needed = handle.head.handle_bytes;
        CHECK(needed > 0 && needed <= 128);
        handle.head.handle_bytes = 128;
        OK(name_to_handle_at(AT_FDCWD, "/", &handle.head, &mount, 0));
        CHECK(handle.head.handle_bytes == needed);
        keep(&handle, sizeof handle);
        keep(&mount, sizeof mount);
        int root = OK(open("/", O_RDONLY | O_DIRECTORY));
        int fd = open_by_handle_at(root, &handle.head, O_PATH);
        CHECK(fd != -1 || errno == EPERM);
        close(fd);
        close(root);
    }
    say("handles\n");
}

static void test_keys(void)
{
    long ring = syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
    if (ring != -1) {
        static const char secret[] = "a secret of the program's";
        long key = OK(syscall(SYS_add_key, "user", "mw:test", secret, sizeof secret,
                              KEY_SPEC_SESSION_KEYRING));
        char room[100];
        memset(room, 'x', sizeof room);
        CHECK(OK(syscall(SYS_keyctl, KEYCTL_READ, key, room, sizeof room)) == sizeof secret);
        CHECK(memcmp(room, secret, sizeof secret) == 0 && room[sizeof secret] == 'x');
        CHECK(OK(syscall(SYS_keyctl, KEYCTL_READ, key, NULL, 0)) == sizeof secret);
        memset(room, 'x', sizeof room);
        CHECK(OK(syscall(SYS_keyctl, KEYCTL_DESCRIBE, key, room, sizeof room)) > 10);
        keep(room, sizeof room);
        CHECK(OK(syscall(SYS_request_key, "user", "mw:test", NULL, 0)) == key);
        CHECK(OK(syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, "user", "mw:test", 0)) ==
              key);
        unsigned char able[8] = {0};
        if (syscall(SYS_keyctl, 31 /* KEYCTL_CAPABILITIES */, able, sizeof able) != -1)
            keep(able, sizeof able);
        OK(syscall(SYS_keyctl, KEYCTL_UNLINK, key, KEY_SPEC_SESSION_KEYRING));
        FAILS(syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, "user", "mw:test", 0),
              ENOKEY);
    }
    say("keys\n");
}

static void test_landlock(void)
{
    make_temp_dir("rights");
    close(OK(open(temp_file("allowed"), O_RDWR | O_CREAT, 0600)));
    pid_t child = OK(fork());
    if (child == 0) {
        struct landlock_ruleset_attr attributes = {
            .handled_access_fs = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG};
        int rules = syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
        if (rules != -1) {
            struct landlock_path_beneath_attr beneath = {
                .allowed_access = LANDLOCK_ACCESS_FS_WRITE_FILE,
                .parent_fd = OK(open(temp_file("allowed"), O_PATH))};
            OK(syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0));
            OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
            OK(syscall(SYS_landlock_restrict_self, rules, 0));
            FAILS(open(temp_file("new"), O_RDWR | O_CREAT, 0600), EACCES);
            close(OK(open(temp_file("allowed"), O_RDWR)));
            /* And so is what it starts. */
            execl("/bin/sh", "sh", "-c", "exec 2>&-; echo x >\"$0\" && exit 1; exit 0",
                  temp_file("new"), NULL);
        }
        _exit(0);
    }
    EXITS(child, 0);
    remove_temp_dir();
    say("landlock\n");
}

static void test_quotas(void)
{
    struct dqblk quota;
    memset(&quota, 0xee, sizeof quota);
    /* No file system here is likely to have any. */
    quotactl(QCMD(Q_GETQUOTA, USRQUOTA), "/dev/root", 0, (char *)&quota);
    FAILS(quotactl(QCMD(Q_GETQUOTA, USRQUOTA), "/nowhere", 0, (char *)&quota), ENOENT);
    keep(&quota, sizeof quota);
    say("quotas\n");
}

static void test_layout(void)
{
    static char title[64] = "another title";
    if (prctl(PR_SET_MM, PR_SET_MM_ARG_START, title, 0, 0) == 0)
        OK(prctl(PR_SET_MM, PR_SET_MM_ARG_END, title + sizeof title, 0, 0));
    char line[64] = "";
    int fd = OK(open("/proc/self/cmdline", O_RDONLY));
    OK(read(fd, line, sizeof line - 1));
    keep(line, sizeof line);
    close(fd);
    say("layout\n");
}

int main(void)
{
    null = OK(open("/dev/null", O_WRONLY));
    test_handles();
    test_keys();
    test_landlock();
    test_quotas();
    test_layout();
    say("done\n");
    return 0;
}
