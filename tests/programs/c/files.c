/* Covers: everything done to files by name and by descriptor: open, read and write at offsets,
 * truncate, the stat family, directories, links, renames, times, modes, duplication, locks between
 * processes, sendfile, copy_file_range, extended attributes, inotify, and /proc/self.
 *
 * Hard for a recorder: replay must give it all back with no file system there; locks block one
 * process until another lets go; /proc/self must speak of the program, not of the monitor. */
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

static void test_data(void)
{
    char text[32] = "";
    int fd = OK(creat("data", 0640));
    CHECK(write(fd, "0123456789", 10) == 10);
    FAILS(read(fd, text, 1), EBADF);
    close(fd);
    fd = OK(openat(AT_FDCWD, "data", O_RDWR | O_CLOEXEC));
    CHECK(pread(fd, text, 4, 3) == 4 && memcmp(text, "3456", 4) == 0);
    CHECK(pwrite(fd, "xx", 2, 8) == 2 && lseek(fd, 0, SEEK_CUR) == 0);
    CHECK(lseek(fd, -2, SEEK_END) == 8 && read(fd, text, 32) == 2 && memcmp(text, "xx", 2) == 0);
    CHECK(read(fd, text, 32) == 0);
    OK(ftruncate(fd, 4));
    OK(truncate("data", 6));
    CHECK(pread(fd, text, 32, 0) == 6 && memcmp(text, "0123\0\0", 6) == 0);
    OK(fsync(fd));
    OK(fdatasync(fd));
    CHECK(lseek(fd, 0, SEEK_DATA) == 0);
    close(fd);
    FAILS(open("missing", O_RDONLY), ENOENT);
    FAILS(open("data", O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
    FAILS(open("data/below", O_RDONLY), ENOTDIR);
    FAILS(open(".", O_WRONLY), EISDIR);

    fd = OK(open("data", O_WRONLY | O_APPEND));
    CHECK(pwrite(fd, "end", 3, 0) == 3);
    struct stat info;
    OK(fstat(fd, &info));
    CHECK(info.st_size == 9);
    close(fd);
    fd = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(fd != -1 || errno == EOPNOTSUPP);
    if (fd != -1)
        close(fd);
    say("data: offsets, append, truncate\n");
}

static void test_stat(void)
{
    struct stat a, b, c;
    struct statx x;
    struct statfs fs;
    OK(stat("data", &a));
    OK(fstatat(AT_FDCWD, "data", &b, AT_SYMLINK_NOFOLLOW));
    int fd = OK(open("data", O_PATH));
    OK(fstatat(fd, "", &c, AT_EMPTY_PATH));
    close(fd);
    CHECK(a.st_ino == b.st_ino && b.st_ino == c.st_ino && a.st_size == 9 && S_ISREG(a.st_mode));
    CHECK((a.st_mode & 0777) == 0640 && a.st_uid == geteuid());
    OK(statx(AT_FDCWD, "data", 0, STATX_BASIC_STATS, &x));
    CHECK(x.stx_ino == a.st_ino && x.stx_size == 9 && x.stx_mode == a.st_mode);
    OK(statfs(".", &fs));
    CHECK(fs.f_bsize > 0);

    struct timespec times[2] = {{1000000000, 123456789}, {1234567890, 987654321}};
    OK(utimensat(AT_FDCWD, "data", times, 0));
    OK(stat("data", &a));
    CHECK(a.st_mtim.tv_sec == 1234567890 && a.st_mtim.tv_nsec == 987654321);
    CHECK(a.st_atim.tv_sec == 1000000000);
    OK(chmod("data", 0600));
    OK(stat("data", &a));
    CHECK((a.st_mode & 0777) == 0600);
    OK(chown("data", -1, getegid()));
    OK(access("data", R_OK | W_OK));
    OK(faccessat(AT_FDCWD, "data", R_OK, AT_EACCESS));
    FAILS(access("missing", F_OK), ENOENT);
    mode_t old = umask(077);
    OK(close(OK(open("masked", O_CREAT | O_WRONLY, 0666))));
    CHECK(umask(old) == 077);
    OK(stat("masked", &a));
    CHECK((a.st_mode & 0777) == 0600);
    OK(unlink("masked"));
    say("stat: size %d, modes, times\n", (int)x.stx_size);
}

static void test_names(void)
{
    char text[PATH_MAX], here[PATH_MAX];
    struct stat a, b;
    OK(mkdir("dir", 0755));
    OK(mkdirat(AT_FDCWD, "dir/inner", 0755));
    OK(link("data", "dir/hard"));
    OK(symlink("../data", "dir/soft"));
    OK(stat("dir/hard", &a));
    OK(stat("dir/soft", &b));
    CHECK(a.st_ino == b.st_ino && a.st_nlink == 2);
    OK(lstat("dir/soft", &b));
    CHECK(S_ISLNK(b.st_mode) && readlink("dir/soft", text, 4) == 4 && memcmp(text, "../d", 4) == 0);
    OK(rename("dir/hard", "dir/renamed"));
    FAILS(syscall(SYS_renameat2, AT_FDCWD, "dir/soft", AT_FDCWD, "dir/renamed", 1 /* NOREPLACE */),
          EEXIST);

    CHECK(getcwd(here, sizeof here) != NULL);
    OK(chdir("dir/inner"));
    CHECK(getcwd(text, sizeof text) && strncmp(text, here, strlen(here)) == 0);
    CHECK(strcmp(text + strlen(here), "/dir/inner") == 0);
    int up = OK(open("../..", O_RDONLY | O_DIRECTORY));
    OK(fchdir(up));
    close(up);
    CHECK(getcwd(text, sizeof text) && strcmp(text, here) == 0);

    DIR *dir = opendir("dir");
    int entries = 0, letters = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir)); entries++)
        letters += strlen(entry->d_name);
    CHECK(entries == 5 && letters == 1 + 2 + 4 + 5 + 7);
    rewinddir(dir);
    CHECK(readdir(dir) != NULL);
    closedir(dir);
    int fd = OK(open("dir", O_RDONLY | O_DIRECTORY));
    long bytes = 0;
    for (long n; (n = OK(syscall(SYS_getdents64, fd, text, 64))) > 0;)
        bytes += n;
    CHECK(bytes >= 5 * 24);
    close(fd);

    FAILS(rmdir("dir"), ENOTEMPTY);
    OK(unlink("dir/renamed"));
    OK(unlink("dir/soft"));
    OK(unlinkat(AT_FDCWD, "dir/inner", AT_REMOVEDIR));
    OK(rmdir("dir"));
    say("names: %d entries\n", entries);
}

static void test_descriptors(void)
{
    int fd = OK(open("data", O_RDWR));
    int copy = OK(dup(fd));
    CHECK(copy == fd + 1 && dup2(fd, 50) == 50 && dup3(fd, 51, O_CLOEXEC) == 51);
    FAILS(dup3(fd, fd, 0), EINVAL);
    CHECK(fcntl(50, F_GETFD) == 0 && fcntl(51, F_GETFD) == FD_CLOEXEC);
    CHECK(fcntl(fd, F_DUPFD, 60) == 60 && fcntl(fd, F_DUPFD_CLOEXEC, 60) == 61);
    CHECK(lseek(copy, 5, SEEK_SET) == 5 && lseek(60, 0, SEEK_CUR) == 5);
    CHECK((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
    OK(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK));
    CHECK((fcntl(copy, F_GETFL) & (O_APPEND | O_NONBLOCK)) == (O_APPEND | O_NONBLOCK));
    OK(fcntl(fd, F_SETFD, FD_CLOEXEC));
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(copy, F_GETFD) == 0);
    OK(syscall(SYS_close_range, 50, 70, 0));
    FAILS(fcntl(60, F_GETFD), EBADF);
    close(copy);
    close(fd);
    FAILS(close(fd), EBADF);
    say("descriptors: duplicated, flags shared\n");
}

static void test_locks(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 4};
    int fd = OK(open("data", O_RDWR)), news[2];
    char byte;
    OK(pipe(news));
    OK(fcntl(fd, F_SETLK, &lock));
    OK(flock(fd, LOCK_EX));
    pid_t pid = OK(fork());
    if (pid == 0) {
        int own = OK(open("data", O_RDWR));
        CHECK(fcntl(own, F_SETLK, &lock) == -1 && (errno == EAGAIN || errno == EACCES));
        struct flock holder = lock;
        OK(fcntl(own, F_GETLK, &holder));
        CHECK(holder.l_type == F_WRLCK && holder.l_pid == getppid());
        FAILS(flock(own, LOCK_SH | LOCK_NB), EWOULDBLOCK);
        struct flock beyond = {.l_type = F_WRLCK, .l_start = 4, .l_len = 1};
        OK(fcntl(own, F_SETLK, &beyond));
        write_all(news[1], "1", 1);
        OK(fcntl(own, F_SETLKW, &lock));
        write_all(news[1], "2", 1);
        OK(flock(own, LOCK_EX));
        write_all(news[1], "3", 1);
        _exit(0);
    }
    read_all(news[0], &byte, 1);
    sleep_ms(3);
    lock.l_type = F_UNLCK;
    OK(fcntl(fd, F_SETLK, &lock));
    read_all(news[0], &byte, 1);
    CHECK(byte == '2');
    sleep_ms(3);
    OK(flock(fd, LOCK_UN));
    read_all(news[0], &byte, 1);
    CHECK(byte == '3');
    EXITS(pid, 0);

    struct flock own = {.l_type = F_WRLCK, .l_len = 1};
    int other = OK(open("data", O_RDWR));
    OK(fcntl(fd, F_OFD_SETLK, &own));
    CHECK(fcntl(other, F_OFD_SETLK, &own) == -1 && (errno == EAGAIN || errno == EACCES));
    close(fd);
    OK(fcntl(other, F_OFD_SETLK, &own));
    close(other);
    close(news[0]);
    close(news[1]);
    say("locks: record, whole file, by description\n");
}

static void test_copies(void)
{
    char text[16];
    int from = OK(open("source", O_CREAT | O_RDWR, 0600)), to = OK(open("copy", O_CREAT | O_RDWR, 0600));
    write_all(from, "abcdefghij", 10);
    off_t offset = 2;
    CHECK(sendfile(to, from, &offset, 3) == 3 && offset == 5 && lseek(from, 0, SEEK_CUR) == 10);
    loff_t at = 5, into = 3;
    ssize_t n = copy_file_range(from, &at, to, &into, 5, 0);
    if (n == -1 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS))
        n = pwrite(to, "fghij", 5, 3);
    CHECK(n == 5 && pread(to, text, 16, 0) == 8 && memcmp(text, "cdefghij", 8) == 0);
    n = fallocate(to, 0, 0, 100);
    CHECK(n == 0 || errno == EOPNOTSUPP);
    ZERO(posix_fadvise(to, 0, 0, POSIX_FADV_SEQUENTIAL));

    char value[16] = "";
    if (fsetxattr(to, "user.mw", "value", 5, 0) == 0) {
        CHECK(fgetxattr(to, "user.mw", NULL, 0) == 5);
        CHECK(getxattr("copy", "user.mw", value, 16) == 5 && memcmp(value, "value", 5) == 0);
        CHECK(listxattr("copy", value, 16) >= 8);
        OK(removexattr("copy", "user.mw"));
    } else {
        CHECK(errno == EOPNOTSUPP || errno == EPERM);
    }
    close(from);
    close(to);
    say("copies: sendfile, copy_file_range\n");
}

static void test_inotify(void)
{
    char buffer[512] __attribute__((aligned(8)));
    int fd = OK(inotify_init1(IN_NONBLOCK));
    int watch = OK(inotify_add_watch(fd, ".", IN_CREATE | IN_DELETE));
    FAILS(read(fd, buffer, sizeof buffer), EAGAIN);
    OK(close(OK(creat("noticed", 0600))));
    OK(unlink("noticed"));
    ssize_t n = OK(read(fd, buffer, sizeof buffer));
    struct inotify_event *first = (void *)buffer;
    struct inotify_event *second = (void *)(buffer + sizeof *first + first->len);
    CHECK(n == (ssize_t)(2 * sizeof *first + first->len + second->len));
    CHECK(first->wd == watch && first->mask == IN_CREATE && strcmp(first->name, "noticed") == 0);
    CHECK(second->mask == IN_DELETE && strcmp(second->name, "noticed") == 0);
    close(fd);
    say("inotify: created, deleted\n");
}

static void test_proc(const char *own_name)
{
    char link[PATH_MAX], text[4096], path[64], target[PATH_MAX];
    ssize_t n = OK(readlink("/proc/self/exe", link, sizeof link - 1));
    link[n] = 0;
    struct stat by_link, by_proc;
    OK(stat(link, &by_link));
    OK(stat("/proc/self/exe", &by_proc));
    CHECK(by_link.st_ino == by_proc.st_ino && strstr(link, "files") != NULL);

    int fd = OK(open("/proc/self/cmdline", O_RDONLY));
    n = OK(read(fd, text, sizeof text - 1));
    CHECK(n == (ssize_t)strlen(own_name) + 1 && strcmp(text, own_name) == 0);
    close(fd);

    FILE *status = fopen("/proc/self/status", "r");
    int pid = 0, name_seen = 0;
    while (status && fgets(text, sizeof text, status)) {
        sscanf(text, "Pid: %d", &pid);
        name_seen |= strcmp(text, "Name:\tfiles\n") == 0;
    }
    CHECK(pid == getpid() && name_seen);
    fclose(status);

    fd = OK(open("data", O_RDONLY));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    n = OK(readlink(path, target, sizeof target - 1));
    target[n] = 0;
    CHECK(strcmp(strrchr(target, '/'), "/data") == 0);
    close(fd);

    FILE *maps = fopen("/proc/self/maps", "r");
    int found = 0;
    while (maps && fgets(text, sizeof text, maps)) {
        unsigned long from, to;
        if (sscanf(text, "%lx-%lx r-xp", &from, &to) == 2)
            found |= from <= (unsigned long)test_proc && (unsigned long)test_proc < to && strstr(text, link);
    }
    CHECK(found);
    fclose(maps);
    say("proc: exe, cmdline, status, fd, maps\n");
}

int main(int argc, char **argv)
{
    CHECK(argc == 1);
    umask(022);
    OK(chdir(make_temp_dir("files")));
    test_data();
    test_stat();
    test_names();
    test_descriptors();
    test_locks();
    test_copies();
    test_inotify();
    test_proc(argv[0]);
    OK(chdir("/"));
    remove_temp_dir();
    return 0;
}
