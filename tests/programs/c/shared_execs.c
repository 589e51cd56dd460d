/* Covers: several images that share a file, each exec'd, by a process that forks at once and goes
 * on forking while they begin.
 *
 * Hard for a recorder: what shares memory is replayed together, so each of the images begins by
 * itself, beside processes that begin as well, and all have to find what is theirs. */
#include "check.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define IMAGES 6
#define FORKS 12
#define ADDS 200

static atomic_long *map(const char *name)
{
    int fd = OK(open(name, O_RDWR));
    atomic_long *counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(counter != MAP_FAILED);
    close(fd);
    return counter;
}

static void add(atomic_long *counter)
{
    for (int i = 0; i < ADDS; i++)
        atomic_fetch_add(counter, 1);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "attach") == 0) {
        add(map(argv[2]));
        return 0;
    }
    char self[PATH_MAX] = "";
    pid_t images[IMAGES], forks[FORKS];
    OK(readlink("/proc/self/exe", self, sizeof self - 1));
    make_temp_dir("shared_execs");
    int fd = OK(open(temp_file("file"), O_CREAT | O_RDWR, 0600));
    OK(ftruncate(fd, 4096));
    atomic_long *counter = map(temp_file("file"));
    for (int i = 0; i < FORKS; i++) {
        forks[i] = OK(fork());
        if (forks[i] == 0) {
            add(counter);
            _exit(0);
        }
    }
    for (int i = 0; i < IMAGES; i++) {
        images[i] = OK(fork());
        if (images[i] == 0) {
            execl(self, self, "attach", temp_file("file"), (char *)NULL);
            _exit(1);
        }
    }
    add(counter);
    for (int i = 0; i < FORKS; i++)
        EXITS(forks[i], 0);
    for (int i = 0; i < IMAGES; i++)
        EXITS(images[i], 0);
    say("%d images and %d forks: %ld\n", IMAGES, FORKS, atomic_load(counter));
    close(fd);
    remove_temp_dir();
    return 0;
}
