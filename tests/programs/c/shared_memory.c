/* Covers: processes that share writable memory: an anonymous map across fork (with process-shared
 * mutex and condition variable, with raw atomics, spinning), a memfd passed over a socket, POSIX
 * shared memory in a process that was exec'd, SysV shared memory with SysV semaphores, one file
 * mapped by both. With the argument `order`, prints a digest of who saw which value.
 *
 * Hard for a recorder: a store in one process is an input of another, without any syscall; so
 * these processes need one order of turns between them, and be replayed together. */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>

#define ROUNDS 100
#define ADDS 20000
#define SPINS 6

struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    long turn;
    atomic_long counter;
    atomic_long spin_turn;
    uint64_t seen[2];
    char text[64];
};

static uint64_t order_digest = DIGEST_START;

static struct shared *map(int fd)
{
    int flags = MAP_SHARED | (fd == -1 ? MAP_ANONYMOUS : 0);
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, flags, fd, 0);
    CHECK(shared != MAP_FAILED);
    return shared;
}

static void take_turns(struct shared *shared, int me)
{
    for (int i = 0; i < ROUNDS; i++) {
        ZERO(pthread_mutex_lock(&shared->mutex));
        while (shared->turn % 2 != me)
            ZERO(pthread_cond_wait(&shared->changed, &shared->mutex));
        shared->turn++;
        ZERO(pthread_cond_signal(&shared->changed));
        ZERO(pthread_mutex_unlock(&shared->mutex));
    }
}

static void race(struct shared *shared, int me)
{
    uint64_t seen = DIGEST_START;
    for (int i = 0; i < SPINS; i++) {
        uint64_t looks = 0;
        while (atomic_load(&shared->spin_turn) != 2 * i + me)
            looks++;
        seen = digest_number(seen, looks);
        atomic_fetch_add(&shared->spin_turn, 1);
    }
    for (int i = 0; i < ADDS; i++)
        seen = digest_number(seen, atomic_fetch_add(&shared->counter, 1));
    shared->seen[me] = seen;
}

static void test_fork(void)
{
    struct shared *shared = map(-1);
    pthread_mutexattr_t mutex_kind;
    pthread_condattr_t cond_kind;
    ZERO(pthread_mutexattr_init(&mutex_kind));
    ZERO(pthread_mutexattr_setpshared(&mutex_kind, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_mutex_init(&shared->mutex, &mutex_kind));
    ZERO(pthread_condattr_init(&cond_kind));
    ZERO(pthread_condattr_setpshared(&cond_kind, PTHREAD_PROCESS_SHARED));
    ZERO(pthread_cond_init(&shared->changed, &cond_kind));
    pid_t pid = OK(fork());
    take_turns(shared, pid == 0);
    race(shared, pid == 0);
    if (pid == 0)
        _exit(0);
    EXITS(pid, 0);
    CHECK(shared->turn == 2 * ROUNDS && shared->counter == 2 * ADDS);
    order_digest = digest(order_digest, shared->seen, sizeof shared->seen);
    say("fork: %ld turns, %d spins, %ld adds\n", shared->turn, 2 * SPINS, shared->counter);
    OK(munmap(shared, sizeof *shared));
}

static void send_fd(int socket, int fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec piece = {"m", 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    CHECK(sendmsg(socket, &message, 0) == 1);
}

static int receive_fd(int socket)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    int fd;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    CHECK(recvmsg(socket, &message, 0) == 1 && control.header.cmsg_type == SCM_RIGHTS);
    memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
    return fd;
}

/* Neither inherits the map: the child only gets the descriptor. */
static void test_memfd(void)
{
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pid_t pid = OK(fork());
    if (pid == 0) {
        struct shared *theirs = map(receive_fd(pair[1]));
        CHECK(strcmp(theirs->text, "from the parent") == 0);
        strcpy(theirs->text, "from the child");
        race(theirs, 1);
        _exit(0);
    }
    int fd = OK(memfd_create("shared", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    OK(ftruncate(fd, sizeof(struct shared)));
    OK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
    FAILS(ftruncate(fd, 1), EPERM);
    struct shared *ours = map(fd);
    strcpy(ours->text, "from the parent");
    send_fd(pair[0], fd);
    race(ours, 0);
    EXITS(pid, 0);
    CHECK(strcmp(ours->text, "from the child") == 0 && ours->counter == 2 * ADDS);
    order_digest = digest(order_digest, ours->seen, sizeof ours->seen);
    OK(munmap(ours, sizeof *ours));
    close(fd);
    close(pair[0]);
    close(pair[1]);
    say("memfd: passed and sealed\n");
}

static int attach(const char *name)
{
    int fd = OK(shm_open(name, O_RDWR, 0));
    race(map(fd), 1);
    return 0;
}

static void test_posix(void)
{
    char name[64], self[PATH_MAX];
    snprintf(name, sizeof name, "/mw-shared_memory.%d", getpid());
    self[OK(readlink("/proc/self/exe", self, sizeof self - 1))] = 0;
    int fd = OK(shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600));
    OK(ftruncate(fd, sizeof(struct shared)));
    pid_t pid = OK(fork());
    if (pid == 0) {
        execl(self, self, "attach", name, (char *)NULL);
        _exit(1);
    }
    struct shared *shared = map(fd);
    race(shared, 0);
    OK(shm_unlink(name));
    EXITS(pid, 0);
    CHECK(shared->counter == 2 * ADDS);
    order_digest = digest(order_digest, shared->seen, sizeof shared->seen);
    OK(munmap(shared, sizeof *shared));
    close(fd);
    say("shm_open: by name, after an exec\n");
}

static void change(int semaphores, int which, int by)
{
    struct sembuf operation = {which, by, 0};
    OK(semop(semaphores, &operation, 1));
}

static void test_sysv(void)
{
    int memory = OK(shmget(IPC_PRIVATE, sizeof(struct shared), IPC_CREAT | 0600));
    int semaphores = OK(semget(IPC_PRIVATE, 2, IPC_CREAT | 0600));
    OK(semctl(semaphores, 0, SETVAL, 0));
    OK(semctl(semaphores, 1, SETVAL, 0));
    struct shared *shared = shmat(memory, NULL, 0);
    CHECK(shared != (void *)-1);
    pid_t pid = OK(fork());
    if (pid == 0) {
        struct shared *again = shmat(memory, NULL, 0);
        CHECK(again != (void *)-1 && again != shared);
        for (int i = 0; i < ROUNDS; i++) {
            change(semaphores, 0, -1);
            again->turn++;
            change(semaphores, 1, 1);
        }
        race(again, 1);
        OK(shmdt(again));
        _exit(0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(shared->turn == i);
        change(semaphores, 0, 1);
        change(semaphores, 1, -1);
    }
    race(shared, 0);
    EXITS(pid, 0);
    struct shmid_ds info;
    OK(shmctl(memory, IPC_STAT, &info));
    CHECK(info.shm_nattch == 1 && info.shm_segsz == sizeof *shared);
    OK(shmctl(memory, IPC_RMID, NULL));
    OK(semctl(semaphores, 0, IPC_RMID));
    CHECK(shared->turn == ROUNDS && shared->counter == 2 * ADDS);
    order_digest = digest(order_digest, shared->seen, sizeof shared->seen);
    OK(shmdt(shared));
    say("SysV: %d rounds\n", ROUNDS);
}

static void test_file(void)
{
    make_temp_dir("shared_memory");
    int fd = OK(open(temp_file("file"), O_CREAT | O_RDWR, 0600));
    OK(ftruncate(fd, sizeof(struct shared)));
    pid_t pid = OK(fork());
    if (pid == 0) {
        race(map(OK(open(temp_file("file"), O_RDWR))), 1);
        _exit(0);
    }
    struct shared *shared = map(fd);
    race(shared, 0);
    EXITS(pid, 0);
    CHECK(shared->counter == 2 * ADDS);
    order_digest = digest(order_digest, shared->seen, sizeof shared->seen);
    OK(munmap(shared, sizeof *shared));
    close(fd);
    remove_temp_dir();
    say("file: mapped by both\n");
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "attach") == 0)
        return attach(argv[2]);
    test_fork();
    test_memfd();
    test_posix();
    test_sysv();
    test_file();
    if (wants_order(argc, argv))
        say("order %016lx\n", order_digest);
    return 0;
}
