// For the tests of conditions: a little of everything that a rule can be about. The program starts copies of itself
// under other names, which tell them what to be; all messages go by way of socket pairs, one at a time.
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

static volatile long accounts[2] = {120, 80};
static volatile long limit = 5;
static volatile long total = 1400;
static volatile long committed = 0;

struct Worker {
    long changed = 0;
    void change(int account) { changed += account; }
};

struct Books {
    long handled = 0;
    void handle(int size) { handled += size; }
};

static void say(int fd, const std::string &text)
{
    if (write(fd, text.data(), text.size()) != (ssize_t)text.size())
        exit(1);
}

static std::string hear(int fd)
{
    char text[64];
    ssize_t length = read(fd, text, sizeof text);
    if (length < 0)
        exit(1);
    return std::string(text, length);
}

static void client(int fd)
{
    for (const char *text : {"hello 7", "ask 7", "transfer 0 1 10", "transfer 1 0 20", "transfer 0 1 30", "set 5", "get 5",
                             "stop", "start", "lock 3", "lock 3", "unlock 3", "bye 7"}) {
        say(fd, text);
        hear(fd);
    }
}

static void coordinator(int fd)
{
    Worker worker;
    for (std::string text; !(text = hear(fd)).empty();) {
        if (text.compare(0, 8, "transfer") == 0) {
            worker.change(text[9] - '0');
            say(fd, "ok");
        } else if (text.compare(0, 3, "ask") == 0) {
            say(fd, "answer 7");
        } else if (text.compare(0, 3, "bye") == 0) {
            say(fd, "ack 7");
        } else {
            say(fd, "noted");
        }
    }
}

// Gives 100 to the other server, or takes it; the one that gives falls below its bound.
static void server(int fd)
{
    Books books;
    for (std::string text; !(text = hear(fd)).empty();) {
        if (text == "give") {
            total = total - 100;
            accounts[0] = accounts[0] - 50;
        } else if (text == "take") {
            total = total + 100;
            limit = limit + 1;
            books.handle(2);
            books.handle(4);
        }
        say(fd, "done");
    }
}

static void worker(int fd)
{
    if (hear(fd) == "granted") {
        say(fd, "working");
        hear(fd);
        say(fd, "release");
    }
}

static void replica(int fd)
{
    std::string text = hear(fd);
    committed = atol(text.c_str());
    say(fd, "done");
    hear(fd);
}

static int start(const std::string &name)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        exit(1);
    if (fork() == 0) {
        std::string fd = std::to_string(ends[1]);
        close(ends[0]);
        execl(name.c_str(), name.c_str(), fd.c_str(), nullptr);
        _exit(1);
    }
    close(ends[1]);
    return ends[0];
}

static void exchange(int fd, const char *text)
{
    say(fd, text);
    hear(fd);
}

int main(int count, char **words)
{
    std::string own = words[0], here = own.substr(0, own.rfind('/') + 1), name = own.substr(own.rfind('/') + 1);
    int fd = count > 1 ? atoi(words[1]) : -1;
    if (name == "bank-client")
        client(fd);
    else if (name == "bank-coordinator")
        coordinator(fd);
    else if (name == "server")
        server(fd);
    else if (name == "worker")
        worker(fd);
    else if (name == "leader" || name == "follower")
        replica(fd);
    if (name != "example")
        return 0;
    // The two of the bank talk to each other.
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return 1;
    for (int i = 0; i < 2; i++) {
        if (fork() == 0) {
            std::string program = here + (i ? "bank-coordinator" : "bank-client"), fd = std::to_string(ends[i]);
            close(ends[!i]);
            execl(program.c_str(), program.c_str(), fd.c_str(), nullptr);
            _exit(1);
        }
    }
    close(ends[0]);
    close(ends[1]);
    // One after the other: who is there first is called first.
    int servers[2];
    servers[0] = start(here + "server");
    exchange(servers[0], "give");
    servers[1] = start(here + "server");
    exchange(servers[1], "take");
    int workers[2] = {start(here + "worker"), start(here + "worker")};
    exchange(workers[0], "granted");
    exchange(workers[1], "granted");
    exchange(workers[0], "go");
    exchange(workers[1], "go");
    // The follower has what the leader has not.
    int leader = start(here + "leader"), follower = start(here + "follower");
    exchange(leader, "1");
    exchange(follower, "2");
    for (int end : {servers[0], servers[1], leader, follower, workers[0], workers[1]})
        close(end);
    while (wait(nullptr) > 0)
        ;
    return 0;
}
