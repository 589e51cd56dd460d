// The containers of libstdc++, each with a little in it.
#include <array>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

__attribute__((noinline)) void stop() { asm volatile(""); }

int main() {
    std::string short_text = "short";
    std::string long_text = "a text that is too long for the string itself";
    std::string_view view = std::string_view(long_text).substr(2, 4);
    std::vector<int> vector = {1, 2, 3};
    std::vector<std::string> words = {"one", "two"};
    std::array<short, 3> array = {7, 8, 9};
    std::deque<int> deque;
    for (int i = 0; i < 300; i++) {
        deque.push_back(i);
    }
    while (deque.size() > 3) {
        deque.pop_front();
    }
    std::list<double> list = {0.5, 1.5};
    std::map<std::string, int> map = {{"a", 1}, {"b", 2}, {"c", 3}};
    std::map<char, long> narrow = {{'x', 10}, {'y', 20}};
    std::set<int> set = {5, 4, 3};
    std::unordered_map<int, std::string> hashed = {{1, "uno"}};
    std::unordered_set<int> hashed_set = {42};
    std::optional<int> some = 6, none;
    std::variant<int, std::string> variant = std::string("held");
    std::unique_ptr<int> unique = std::make_unique<int>(1);
    std::shared_ptr<int> shared = std::make_shared<int>(2), other = shared;
    std::pair<int, char> pair = {1, 'c'};
    std::tuple<int, std::string, double> tuple = {1, "two", 3.0};
    stop();
    return static_cast<int>(view.size() + array.size() + hashed.size()) - 8;
}
