/* For programs that serve a file system to themselves (FUSE, without a library): a guard, and a
 * thread that serves one file. */
#ifndef FUSE_H
#define FUSE_H

#include "check.h"
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* Who waits for a file system that does not answer cannot even be killed: if this process is not
 * done in time, a child of its takes the file system away. `done` is to be closed then. */
static inline pid_t guard(int device, const char *dir, int *done)
{
    int ends[2];
    OK(pipe2(ends, O_CLOEXEC));
    pid_t child = OK(fork());
    if (child == 0) {
        close(device);
        close(ends[1]);
        struct pollfd wait = {.fd = ends[0]};
        if (poll(&wait, 1, 30000) == 0)
            umount2(dir, MNT_FORCE);
        _exit(0);
    }
    OK(close(ends[0]));
    *done = ends[1];
    return child;
}

/* A file system of one file, whatever its name, without any time. */
struct served {
    int device;
    char *content;
    size_t size;
    /* How often it was read. */
    int reads;
};

enum { FILE_NODE = FUSE_ROOT_ID + 1 };

static inline void answer_from(int device, uint64_t unique, int error, const void *data, size_t len)
{
    struct fuse_out_header head = {sizeof head + len, error, unique};
    struct iovec pieces[] = {{&head, sizeof head}, {(void *)data, len}};
    CHECK(writev(device, pieces, 2) == (ssize_t)(sizeof head + len) || errno == ENOENT);
}

static inline struct fuse_attr attributes_of(const struct served *served, uint64_t node)
{
    struct fuse_attr attr = {.ino = node, .nlink = 1, .blksize = 4096};
    attr.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0755;
    attr.size = node == FUSE_ROOT_ID ? 0 : served->size;
    return attr;
}

static inline void answer_one(struct served *served, const struct fuse_in_header *in)
{
    const void *arg = in + 1;
    union {
        struct fuse_init_out init;
        struct fuse_entry_out entry;
        struct fuse_attr_out attr;
        struct fuse_open_out open;
        struct fuse_write_out write;
        struct fuse_statfs_out statfs;
    } out = {0};
    const void *data = &out;
    size_t len = 0;
    int error = 0;
    switch (in->opcode) {
    case FUSE_INIT:
        out.init = (struct fuse_init_out){
            .major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096};
        len = sizeof out.init;
        break;
    case FUSE_LOOKUP:
        out.entry = (struct fuse_entry_out){.nodeid = FILE_NODE,
                                            .attr = attributes_of(served, FILE_NODE)};
        len = sizeof out.entry;
        break;
    case FUSE_GETATTR:
        out.attr.attr = attributes_of(served, in->nodeid);
        len = sizeof out.attr;
        break;
    case FUSE_OPEN:
        len = sizeof out.open;
        break;
    case FUSE_READ: {
        const struct fuse_read_in *read = arg;
        size_t from = read->offset < served->size ? read->offset : served->size;
        served->reads++;
        data = served->content + from;
        len = read->size < served->size - from ? read->size : served->size - from;
        break;
    }
    case FUSE_WRITE: {
        const struct fuse_write_in *write = arg;
        memcpy(served->content + write->offset, write + 1, write->size);
        out.write.size = write->size;
        len = sizeof out.write;
        break;
    }
    case FUSE_STATFS:
        out.statfs.st.bsize = 4096;
        out.statfs.st.namelen = 255;
        len = sizeof out.statfs;
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_FSYNC:
    case FUSE_ACCESS:
    case FUSE_DESTROY:
        break;
    default:
        error = -ENOSYS;
    }
    answer_from(served->device, in->unique, error, data, len);
}

/* Serves it until it is unmounted: a thread. */
static inline void *serve_one_file(void *argument)
{
    struct served *served = argument;
    const size_t room = 1 << 20;
    char *buffer = malloc(room);
    CHECK(buffer);
    for (;;) {
        ssize_t len = read(served->device, buffer, room);
        if (len >= 0)
            answer_one(served, (void *)buffer);
        else if (errno != EINTR && errno != ENOENT && errno != EAGAIN)
            break;
    }
    free(buffer);
    return NULL;
}

/* Mounts it, in a mount namespace of the program's own. */
static inline void mount_served(const struct served *served, const char *dir)
{
    char options[128];
    OK(mkdir(dir, 0700));
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%d,group_id=%d",
             served->device, geteuid(), getegid());
    OK(mount("served", dir, "fuse", MS_NOSUID | MS_NODEV, options));
}

#endif
