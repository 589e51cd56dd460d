/* Covers: SysV and POSIX message queues between two processes. Where the kernel, or a recorder,
 * does not offer one kind, that kind is passed over in silence.
 *
 * Hard for a recorder: a channel that is neither a stream nor a socket, with types and priorities
 * that change the order. */
#include "check.h"
#include <fcntl.h>
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>

#define ROUNDS 50

struct message {
    long type;
    char text[16];
};

static void test_sysv(void)
{
    struct message message = {3, "third"}, got;
    int queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    if (queue == -1 && errno == ENOSYS)
        return;
    OK(queue);
    OK(msgsnd(queue, &message, 6, 0));
    message = (struct message){1, "first"};
    OK(msgsnd(queue, &message, 6, 0));
    CHECK(msgrcv(queue, &got, sizeof got.text, 1, 0) == 6 && strcmp(got.text, "first") == 0);
    FAILS(msgrcv(queue, &got, sizeof got.text, 2, IPC_NOWAIT), ENOMSG);
    FAILS(msgrcv(queue, &got, 2, 0, 0), E2BIG);
    CHECK(msgrcv(queue, &got, 2, 0, MSG_NOERROR) == 2 && got.type == 3);
    pid_t pid = OK(fork());
    if (pid == 0) {
        for (int i = 0; i < ROUNDS; i++) {
            OK(msgrcv(queue, &got, sizeof got.text, 1, 0));
            got.type = 2;
            got.text[0]++;
            OK(msgsnd(queue, &got, 1, 0));
        }
        _exit(0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        message = (struct message){1, {(char)i}};
        OK(msgsnd(queue, &message, 1, 0));
        CHECK(msgrcv(queue, &got, sizeof got.text, 2, 0) == 1 && got.text[0] == (char)(i + 1));
    }
    EXITS(pid, 0);
    OK(msgctl(queue, IPC_RMID, NULL));
}

static void test_posix(void)
{
    char name[32], text[16];
    unsigned priority;
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = sizeof text};
    snprintf(name, sizeof name, "/mw-message_queues.%d", getpid());
    mqd_t queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &attributes);
    if (queue == (mqd_t)-1 && errno == ENOSYS)
        return;
    OK(queue);
    OK(mq_unlink(name));
    OK(mq_send(queue, "low", 4, 1));
    OK(mq_send(queue, "high", 5, 9));
    OK(mq_getattr(queue, &attributes));
    CHECK(attributes.mq_curmsgs == 2);
    CHECK(mq_receive(queue, text, sizeof text, &priority) == 5 && priority == 9);
    CHECK(mq_receive(queue, text, sizeof text, &priority) == 4 && priority == 1);
    struct timespec past = {1, 0};
    FAILS(mq_timedreceive(queue, text, sizeof text, NULL, &past), ETIMEDOUT);
    pid_t pid = OK(fork());
    if (pid == 0) {
        for (int i = 0; i < ROUNDS; i++)
            OK(mq_send(queue, "x", 1, 0));
        _exit(0);
    }
    for (int i = 0; i < ROUNDS; i++)
        CHECK(mq_receive(queue, text, sizeof text, NULL) == 1);
    EXITS(pid, 0);
    OK(mq_close(queue));
}

int main(void)
{
    test_sysv();
    test_posix();
    say("message queues: %d rounds each\n", ROUNDS);
    return 0;
}
