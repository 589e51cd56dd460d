// Covers: std::thread, condition_variable, future, promise, async, packaged_task, shared_mutex,
// call_once, thread_local with constructors, atomic wait and notify.
//
// Hard for a recorder: atomic waits spin for a while before they call futex, so the same program
// makes different syscalls from run to run.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <future>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>

static void check(bool good, const char *what)
{
    if (good)
        return;
    std::fprintf(stderr, "threads_future: failed: %s\n", what);
    std::_Exit(1);
}

template <typename T> class Queue {
public:
    void put(T item)
    {
        std::lock_guard lock(mutex);
        items.push_back(std::move(item));
        not_empty.notify_one();
    }
    T take()
    {
        std::unique_lock lock(mutex);
        not_empty.wait(lock, [this] { return !items.empty(); });
        T item = std::move(items.front());
        items.pop_front();
        return item;
    }

private:
    std::mutex mutex;
    std::condition_variable not_empty;
    std::deque<T> items;
};

static void queues()
{
    Queue<std::packaged_task<long()>> tasks;
    std::vector<std::thread> workers;
    for (int i = 0; i < 3; i++)
        workers.emplace_back([&tasks] {
            while (true) {
                auto task = tasks.take();
                if (!task.valid())
                    return;
                task();
            }
        });
    std::vector<std::future<long>> results;
    for (long i = 0; i < 200; i++) {
        std::packaged_task<long()> task([i] { return i * i; });
        results.push_back(task.get_future());
        tasks.put(std::move(task));
    }
    long sum = 0;
    for (auto &result : results)
        sum += result.get();
    for (std::size_t i = 0; i < workers.size(); i++)
        tasks.put({});
    for (auto &worker : workers)
        worker.join();
    std::printf("tasks: sum %ld\n", sum);
}

static void futures()
{
    std::promise<int> promise;
    auto future = promise.get_future();
    check(future.wait_for(std::chrono::milliseconds(2)) == std::future_status::timeout, "timeout");
    std::thread([&promise] { promise.set_value(42); }).join();
    check(future.get() == 42, "value of the promise");

    auto failing = std::async(std::launch::async, []() -> int { throw std::runtime_error("late"); });
    bool caught = false;
    try {
        failing.get();
    } catch (const std::runtime_error &) {
        caught = true;
    }
    check(caught, "exception through a future");
    std::vector<std::future<int>> many;
    for (int i = 0; i < 8; i++)
        many.push_back(std::async(i % 2 ? std::launch::async : std::launch::deferred, [i] { return i; }));
    int sum = 0;
    for (auto &one : many)
        sum += one.get();
    std::printf("futures: sum %d\n", sum);
}

struct Tracked {
    static inline std::atomic<int> made{0}, gone{0};
    int value = ++made;
    ~Tracked() { ++gone; }
};
static thread_local Tracked tracked;

static void shared_state()
{
    std::once_flag once;
    std::shared_mutex lock;
    std::atomic<int> gate{0}, once_runs{0};
    std::vector<int> table(16);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&, i] {
            check(tracked.value > 0, "thread-local object");
            gate.wait(0);
            for (int round = 0; round < 500; round++) {
                std::call_once(once, [&] { once_runs++; });
                if (round % 10 == i) {
                    std::unique_lock writer(lock);
                    for (int &entry : table)
                        entry++;
                } else {
                    std::shared_lock reader(lock);
                    check(std::all_of(table.begin(), table.end(),
                                      [&](int entry) { return entry == table[0]; }),
                          "all entries equal");
                }
            }
        });
    gate = 1;
    gate.notify_all();
    for (auto &thread : threads)
        thread.join();
    check(once_runs == 1 && Tracked::gone == 4, "once, and thread-locals destroyed");
    std::printf("shared state: %d\n", std::accumulate(table.begin(), table.end(), 0));
}

int main()
{
    queues();
    futures();
    shared_state();
}
