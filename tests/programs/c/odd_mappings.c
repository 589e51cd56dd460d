/* Covers: mapping what cannot be mapped: a FIFO without a writer, a socket, a directory, an event
 * counter.
 *
 * Hard for a recorder that copies what is mapped: to open a FIFO waits for its other end. */
#include "check.h"
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

static void not_mapped(int fd, int error)
{
    for (int shared = 0; shared < 2; shared++) {
        void *at = mmap(NULL, 4096, PROT_READ, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
        CHECK(at == MAP_FAILED && errno == error);
    }
    close(fd);
}

int main(void)
{
    make_temp_dir("odd");
    OK(mkfifo(temp_file("fifo"), 0600));
    not_mapped(OK(open(temp_file("fifo"), O_RDONLY | O_NONBLOCK)), ENODEV);
    not_mapped(OK(open(temp_path, O_RDONLY | O_DIRECTORY)), ENODEV);
    not_mapped(OK(socket(AF_UNIX, SOCK_STREAM, 0)), ENODEV);
    not_mapped(OK(eventfd(0, 0)), ENODEV);
    remove_temp_dir();
    say("none of it is memory\n");
    return 0;
}
