// C++: functions that are inlined, one into the other and from the library.
#include <cstdio>
#include <numeric>
#include <vector>

static int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
volatile int sink;

__attribute__((always_inline)) static inline int look_up(int key) {
    int slot = key & 7;
    return table[slot] * key;
}

__attribute__((always_inline)) static inline int weigh(int value, int scale) {
    int found = look_up(value);
    sink = found;
    if (found > 20)
        found -= look_up(scale);
    sink = found + scale;
    return found;
}

__attribute__((noinline)) int first_user(int count) {
    int total = 0;
    for (int i = 0; i < count; i++)
        total += weigh(i, count);
    return total;
}

__attribute__((noinline)) int second_user(int value) {
    return weigh(value, 100) + 1;
}

__attribute__((noinline)) int library_user(std::vector<int> &numbers) {
    numbers.push_back(7);
    int sum = std::accumulate(numbers.begin(), numbers.end(), 0);
    numbers.insert(numbers.begin(), sum);
    return sum;
}

int main() {
    std::vector<int> numbers = {1, 2, 3};
    int total = first_user(5) + second_user(9) + library_user(numbers);
    printf("%d %zu\n", total, numbers.size());
    return 0;
}
