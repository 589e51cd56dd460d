/* A file system (FUSE, without a library) that a thread of the process serves to the others, and what
 * cannot be recorded of it. With `page`, a page of a mapped file is dropped and touched again: who
 * touches it waits in the middle of its own code for the thread that serves. With `exec`, a thread
 * executes a file that another serves. Status 77: the machine does not allow it. */
#define _GNU_SOURCE
#include "../c/fuse.h"
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

static char script[] = "#!/bin/true\n";

/* The kernel forgets what it has of the file. */
static void drop(int device)
{
    struct fuse_notify_inval_inode_out what = {.ino = FILE_NODE, .off = 0, .len = 0};
    struct fuse_out_header head = {sizeof head + sizeof what, FUSE_NOTIFY_INVAL_INODE, 0};
    struct iovec pieces[] = {{&head, sizeof head}, {&what, sizeof what}};
    CHECK(writev(device, pieces, 2) == (ssize_t)(sizeof head + sizeof what));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    struct served served = {.content = script, .size = sizeof script - 1};
    served.device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (served.device == -1 || unshare(CLONE_NEWNS) == -1)
        return 77;
    OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    make_temp_dir("page");
    char dir[PATH_MAX], path[PATH_MAX + 8];
    snprintf(dir, sizeof dir, "%s", temp_file("mount"));
    snprintf(path, sizeof path, "%s/file", dir);
    mount_served(&served, dir);
    int done;
    pid_t child = guard(served.device, dir, &done);
    pthread_t server;
    ZERO(pthread_create(&server, NULL, serve_one_file, &served));
    if (strcmp(argv[1], "exec") == 0) {
        execl(path, path, (char *)NULL);
        say("executing it gives errno %d\n", errno);
    } else {
        int fd = OK(open(path, O_RDONLY));
        volatile const char *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        CHECK(mapped != MAP_FAILED && mapped[0] == '#');
        int before = served.reads;
        drop(served.device);
        CHECK(mapped[1] == '!');
        CHECK(served.reads > before);
        OK(munmap((void *)mapped, 4096));
        OK(close(fd));
        say("the page came back\n");
    }
    OK(umount2(dir, MNT_DETACH));
    ZERO(pthread_join(server, NULL));
    OK(close(done));
    CHECK(waitpid(child, NULL, 0) == child);
    remove_temp_dir();
    return 0;
}
