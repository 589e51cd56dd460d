/* Covers: files that the program serves to itself. One thread is a file system (FUSE, without a
 * library), or decides who may open and read a file (fanotify); another uses the files. Nearly every
 * call on a path or a descriptor then waits until the first thread has answered.
 *
 * Hard for a recorder: calls that never wait elsewhere wait here for a thread of the same process; and
 * a recorder that looks at a file itself has to be answered, too. What the machine does not allow (not
 * root, no /dev/fuse) is left out. */
#include "check.h"
#include "fuse.h"
#include <dirent.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>

/* As much as the kernel ever writes at once, and what comes before it. */
#define MOST (1 << 20)
#define ROOM (MOST + 8192)
#define SIZE 20000

enum { DIRECTORY = FUSE_ROOT_ID, SCRIPT_NODE = FILE_NODE + 1 };

static int device, questions;
static char content[MOST];
static uint64_t size = SIZE;
static const char script[] = "#!/bin/sh\nexit 3\n";

static void answer(uint64_t unique, int error, const void *data, size_t len)
{
    answer_from(device, unique, error, data, len);
}

static struct fuse_attr attributes(uint64_t node)
{
    struct fuse_attr attr = {.ino = node, .nlink = 1, .blksize = 4096};
    attr.mode = node == DIRECTORY ? S_IFDIR | 0755 : S_IFREG | 0755;
    attr.size = node == FILE_NODE ? size : node == SCRIPT_NODE ? sizeof script - 1 : 0;
    return attr;
}

static void answer_attributes(const struct fuse_in_header *in)
{
    struct fuse_attr_out out = {.attr = attributes(in->nodeid)};
    answer(in->unique, 0, &out, sizeof out);
}

static void answer_entry(const struct fuse_in_header *in, const char *name)
{
    struct fuse_entry_out out = {0};
    out.nodeid = strcmp(name, "file") == 0     ? FILE_NODE
                 : strcmp(name, "script") == 0 ? SCRIPT_NODE
                                               : 0;
    if (out.nodeid == 0) {
        answer(in->unique, -ENOENT, NULL, 0);
        return;
    }
    out.attr = attributes(out.nodeid);
    answer(in->unique, 0, &out, sizeof out);
}

static void answer_directory(const struct fuse_in_header *in, const struct fuse_read_in *read)
{
    char data[256] = {0};
    struct fuse_dirent *entry = (struct fuse_dirent *)data;
    entry->ino = FILE_NODE;
    entry->off = 1;
    entry->namelen = 4;
    entry->type = DT_REG;
    memcpy(entry->name, "file", 4);
    answer(in->unique, 0, data, read->offset == 0 ? FUSE_DIRENT_SIZE(entry) : 0);
}

static void answer_read(const struct fuse_in_header *in, const struct fuse_read_in *read)
{
    const char *data = in->nodeid == FILE_NODE ? content : script;
    uint64_t end = in->nodeid == FILE_NODE ? size : sizeof script - 1;
    uint64_t from = read->offset < end ? read->offset : end;
    uint64_t len = read->size < end - from ? read->size : end - from;
    answer(in->unique, 0, data + from, len);
}

/* The file system, until it is unmounted. */
static void *serve(void *unused)
{
    char *buffer = malloc(ROOM);
    CHECK(buffer);
    for (;;) {
        ssize_t len = read(device, buffer, ROOM);
        if (len < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
            continue;
        if (len < 0) {
            CHECK(errno == ENODEV);
            break;
        }
        const struct fuse_in_header *in = (void *)buffer;
        const void *arg = in + 1;
        switch (in->opcode) {
        case FUSE_INIT: {
            const struct fuse_init_in *init = arg;
            struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                                        .minor = FUSE_KERNEL_MINOR_VERSION,
                                        .max_readahead = init->max_readahead,
                                        .flags = FUSE_MAX_PAGES | FUSE_BIG_WRITES,
                                        .max_write = MOST,
                                        .max_pages = 256};
            answer(in->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_LOOKUP:
            answer_entry(in, arg);
            break;
        case FUSE_SETATTR: {
            const struct fuse_setattr_in *set = arg;
            if (set->valid & FATTR_SIZE)
                size = set->size;
            answer_attributes(in);
            break;
        }
        case FUSE_GETATTR:
            answer_attributes(in);
            break;
        case FUSE_OPEN:
        case FUSE_OPENDIR: {
            struct fuse_open_out out = {.fh = in->nodeid};
            answer(in->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_READ:
            answer_read(in, arg);
            break;
        case FUSE_WRITE: {
            const struct fuse_write_in *write = arg;
            memcpy(content + write->offset, write + 1, write->size);
            if (size < write->offset + write->size)
                size = write->offset + write->size;
            struct fuse_write_out out = {.size = write->size};
            answer(in->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_READDIR:
            answer_directory(in, arg);
            break;
        case FUSE_STATFS: {
            struct fuse_statfs_out out = {.st = {.bsize = 4096, .namelen = 255}};
            answer(in->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_GETXATTR: {
            const struct fuse_getxattr_in *get = arg;
            struct fuse_getxattr_out out = {.size = 5};
            if (get->size == 0)
                answer(in->unique, 0, &out, sizeof out);
            else
                answer(in->unique, 0, "value", 5);
            break;
        }
        case FUSE_FLUSH:
        case FUSE_RELEASE:
        case FUSE_RELEASEDIR:
        case FUSE_FSYNC:
        case FUSE_SYNCFS:
        case FUSE_DESTROY:
        case FUSE_ACCESS:
            answer(in->unique, 0, NULL, 0);
            break;
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
        case FUSE_INTERRUPT:
            break;
        default:
            answer(in->unique, -ENOSYS, NULL, 0);
        }
    }
    free(buffer);
    return unused;
}

static void use_names(const char *dir, const char *path)
{
    struct stat info;
    struct statx more;
    struct statfs system;
    char value[16];
    OK(stat(path, &info));
    CHECK(info.st_size == SIZE);
    OK(lstat(path, &info));
    OK(access(path, R_OK));
    OK(statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_SIZE, &more));
    OK(statfs(path, &system));
    OK(chmod(path, 0700));
    OK(truncate(path, SIZE));
    CHECK(getxattr(path, "user.name", value, sizeof value) == 5);
    FAILS(stat(temp_file("mount/nothing"), &info), ENOENT);
    FAILS(rename(path, temp_file("mount/other")), ENOSYS);
    FAILS(unlink(path), ENOSYS);
    FAILS(mkdir(temp_file("mount/dir"), 0700), ENOSYS);
    FAILS(symlink("x", temp_file("mount/link")), ENOSYS);
    DIR *all = opendir(dir);
    CHECK(all && strcmp(readdir(all)->d_name, "file") == 0 && readdir(all) == NULL);
    closedir(all);
    OK(chdir(dir));
    OK(stat("file", &info));
    OK(chdir("/"));
}

static void use_descriptor(const char *path)
{
    struct stat info;
    struct statfs system;
    static char data[MOST];
    int fd = OK(open(path, O_RDWR | O_NONBLOCK));
    OK(fstat(fd, &info));
    OK(fstatfs(fd, &system));
    CHECK(read(fd, data, 10) == 10 && memcmp(data, content, 10) == 0);
    CHECK(pread(fd, data, 4096, 8192) == 4096 && memcmp(data, content + 8192, 4096) == 0);
    struct iovec pieces[] = {{data, 7}, {data + 100, 9}};
    CHECK(preadv(fd, pieces, 2, 3) == 16 && memcmp(data + 100, content + 10, 9) == 0);
    CHECK(pwrite(fd, "written", 7, 100) == 7);
    CHECK(write(fd, "more", 4) == 4);
    CHECK(lseek(fd, 0, SEEK_END) == SIZE);
    OK(fsync(fd));
    OK(fchmod(fd, 0755));
    OK(ftruncate(fd, SIZE));
    FAILS(fallocate(fd, 0, 0, SIZE), EOPNOTSUPP);
    OK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    int flags;
    CHECK(ioctl(fd, FS_IOC_GETFLAGS, &flags) == -1 && (errno == ENOSYS || errno == ENOTTY));
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    CHECK(poll(&wait, 1, 0) == 1 && wait.revents == POLLIN);
    CHECK(pread(fd, data, 7, 100) == 7 && memcmp(data, "written", 7) == 0);
    int other = OK(open("/dev/null", O_RDWR));
    CHECK(sendfile(other, fd, NULL, 100) == 0);
    int copy = OK(dup(fd));
    OK(dup2(other, copy));
    OK(close_range(copy, copy, 0));
    OK(close(other));
    /* The largest request there is. */
    memset(data, 'z', MOST);
    CHECK(pwrite(fd, data, MOST, 0) == MOST);
    OK(close(fd));
    CHECK(content[MOST - 1] == 'z' && size == MOST);
    OK(truncate(path, SIZE));
}

static void use_mapping(const char *path)
{
    int fd = OK(open(path, O_RDONLY));
    const char *private = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    const char *shared = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(private != MAP_FAILED && shared != MAP_FAILED);
    CHECK(private[SIZE - 1] == 'z' && shared[9000] == 'z');
    OK(munmap((void *)private, SIZE));
    OK(munmap((void *)shared, SIZE));
    OK(close(fd));
}

/* By a child that has this process's memory until it has another image. */
static void run_script(const char *path)
{
    char *words[] = {"script", NULL}, *none[] = {NULL};
    pid_t child;
    int status;
    ZERO(posix_spawn(&child, path, NULL, NULL, words, none));
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

static void file_system(void)
{
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device == -1 || unshare(CLONE_NEWNS) == -1)
        return;
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    char dir[PATH_MAX], options[128];
    snprintf(dir, sizeof dir, "%s", temp_file("mount"));
    OK(mkdir(dir, 0700));
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%d,group_id=%d", device,
             geteuid(), getegid());
    OK(mount("served", dir, "fuse", MS_NOSUID | MS_NODEV, options));
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (char)('a' + i % 23);
    int done;
    pid_t child = guard(device, dir, &done);
    pthread_t server;
    ZERO(pthread_create(&server, NULL, serve, NULL));
    const char *path = temp_file("mount/file");
    use_names(dir, path);
    use_descriptor(path);
    use_mapping(temp_file("mount/file"));
    run_script(temp_file("mount/script"));
    OK(umount2(dir, MNT_DETACH));
    ZERO(pthread_join(server, NULL));
    close(device);
    OK(close(done));
    CHECK(waitpid(child, NULL, 0) == child);
}

/* Lets everybody do everything, until it is told to end. */
static void *allow(void *ends)
{
    struct pollfd waits[] = {{.fd = questions, .events = POLLIN}, {.fd = *(int *)ends, .events = POLLIN}};
    for (;;) {
        OK(poll(waits, 2, -1));
        if (waits[1].revents)
            return NULL;
        struct fanotify_event_metadata asked[16];
        ssize_t len = OK(read(questions, asked, sizeof asked));
        for (struct fanotify_event_metadata *one = asked; FAN_EVENT_OK(one, len);
             one = FAN_EVENT_NEXT(one, len)) {
            struct fanotify_response answer = {one->fd, FAN_ALLOW};
            CHECK(write(questions, &answer, sizeof answer) == sizeof answer);
            OK(close(one->fd));
        }
    }
}

static void permissions(void)
{
    questions = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_LARGEFILE);
    if (questions == -1)
        return;
    const char *path = temp_file("asked");
    int fd = OK(open(path, O_RDWR | O_CREAT, 0600));
    CHECK(write(fd, content, SIZE) == SIZE);
    OK(close(fd));
    if (fanotify_mark(questions, FAN_MARK_ADD, FAN_OPEN_PERM | FAN_ACCESS_PERM, AT_FDCWD, path) == -1) {
        close(questions);
        return;
    }
    int ends[2];
    OK(pipe(ends));
    pthread_t server;
    ZERO(pthread_create(&server, NULL, allow, ends));
    static char data[SIZE];
    fd = OK(open(path, O_RDWR | O_NONBLOCK));
    CHECK(read(fd, data, 10) == 10 && memcmp(data, content, 10) == 0);
    CHECK(pread(fd, data, SIZE, 0) == SIZE && memcmp(data, content, SIZE) == 0);
    int null = OK(open("/dev/null", O_WRONLY));
    off_t from = 0;
    CHECK(sendfile(null, fd, &from, 100) == 100);
    OK(close(null));
    const char *mapped = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(mapped != MAP_FAILED && mapped[SIZE - 1] == content[SIZE - 1]);
    OK(munmap((void *)mapped, SIZE));
    OK(close(fd));
    OK(close(ends[1]));
    ZERO(pthread_join(server, NULL));
    OK(close(ends[0]));
    OK(close(questions));
}

int main(void)
{
    make_temp_dir("served");
    file_system();
    permissions();
    remove_temp_dir();
    say("every question was answered\n");
    return 0;
}
