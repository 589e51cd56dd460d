// Covers: C++ exceptions thrown across many frames, after syscalls in each of them, in several
// threads at once, through destructors, across a rethrow and between threads.
//
// Hard for a recorder: the unwinder walks every frame by the return addresses on the stack and the
// tables of the loaded files (dl_iterate_phdr); a frame of the monitor, or a return address into a
// patch, would end the program.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static void check(bool good, const char *what)
{
    if (good)
        return;
    std::fprintf(stderr, "exceptions: failed: %s\n", what);
    std::_Exit(1);
}

// Counts its own life and makes a syscall at both ends of it.
struct Guard {
    explicit Guard(int &counter) : counter(counter), fd(open("/dev/null", O_WRONLY))
    {
        check(fd >= 0, "open");
    }
    ~Guard()
    {
        check(write(fd, "x", 1) == 1 && close(fd) == 0, "write and close");
        ++counter;
    }
    int &counter;
    int fd;
};

struct Failure : std::runtime_error {
    Failure(const std::string &text, int depth) : std::runtime_error(text), depth(depth) {}
    int depth;
};

[[gnu::noinline]] static int descend(int depth, int &destroyed)
{
    Guard guard(destroyed);
    if (depth == 0) {
        if (close(-1) == -1)
            throw Failure("as deep as it gets", depth);
        return 0;
    }
    return descend(depth - 1, destroyed) + 1;
}

static int count_failures(int rounds)
{
    int destroyed = 0, caught = 0;
    for (int i = 0; i < rounds; i++) {
        try {
            descend(20, destroyed);
        } catch (const Failure &failure) {
            check(failure.depth == 0 && getppid() > 0, "what was thrown");
            caught++;
        }
    }
    check(destroyed == rounds * 21, "destructors run");
    return caught;
}

static int rethrown()
{
    int destroyed = 0;
    try {
        try {
            descend(3, destroyed);
        } catch (...) {
            Guard guard(destroyed);
            throw;
        }
    } catch (const std::exception &failure) {
        check(std::string(failure.what()) == "as deep as it gets", "what()");
        return destroyed;
    }
    return -1;
}

static int across_threads()
{
    std::exception_ptr carried;
    std::thread([&] {
        try {
            std::vector<int>().at(5);
        } catch (...) {
            carried = std::current_exception();
        }
    }).join();
    try {
        std::rethrow_exception(carried);
    } catch (const std::out_of_range &) {
        return 1;
    }
    return 0;
}

int main()
{
    std::vector<std::thread> threads;
    std::vector<int> caught(4);
    for (std::size_t i = 0; i < caught.size(); i++)
        threads.emplace_back([&caught, i] { caught[i] = count_failures(50); });
    for (auto &thread : threads)
        thread.join();
    int total = 0;
    for (int count : caught)
        total += count;
    check(total == 200, "caught in all threads");
    check(rethrown() == 5 && across_threads() == 1, "rethrown");
    std::printf("%d caught, 1 rethrown, 1 carried to another thread\n", total);
}
