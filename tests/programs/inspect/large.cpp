// C++: values of a million elements, and deep ones.
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

constexpr int MILLION = 1000000;

template <int N> struct Nested {
    int level = N;
    Nested<N - 1> inner;
};
template <> struct Nested<0> {
    int level = 0;
};

struct Node {
    int number;
    Node *next;
};

struct Flags {
    unsigned low : 3;
    int high : 5;
    char rest;
};

int sum;

__attribute__((noinline)) void stop(int round) { sum += round; }

int main() {
    static int row[MILLION];
    std::vector<int> vector;
    std::deque<short> deque;
    std::map<int, long> map;
    std::list<int> list;
    std::unordered_map<int, int> table;
    std::vector<std::string> texts;
    for (int i = 0; i < MILLION; i++) {
        row[i] = i;
        vector.push_back(3 * i);
        deque.push_back((short)i);
        map[i] = 2L * i;
    }
    for (int i = 0; i < 100000; i++) {
        list.push_back(i);
        table[i] = i + 1;
        texts.push_back(std::to_string(i));
    }
    Nested<60> deep;
    Node *chain = nullptr;
    for (int i = 0; i < 1000; i++)
        chain = new Node{i, chain};
    Flags flags = {5, -3, 'x'};
    stop(1);
    flags.high = 4;
    vector[0] = 7;
    stop(2);
    return sum + (int)(map.size() + list.size() + table.size() + texts.size() + deque.size()) + deep.level +
           chain->number + flags.rest + row[1];
}
