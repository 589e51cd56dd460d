// C++: classes, inheritance, virtual functions, templates, references, lambdas, exceptions.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace geometry {

enum class Unit : uint8_t { Metre, Foot = 3 };
enum Mode { Fast, Slow };

struct Point {
    double x = 0, y = 0;
    static int made;
    Point(double a, double b) : x(a), y(b) { made++; }
    Point operator+(const Point &other) const { return Point(x + other.x, y + other.y); }
};
int Point::made = 0;

class Shape {
  public:
    explicit Shape(int id) : id_(id) {}
    virtual ~Shape() = default;
    virtual double area() const = 0;
    int id() const { return id_; }

  protected:
    int id_;
    Unit unit_ = Unit::Foot;
};

class Tagged {
  public:
    const char *tag = "tagged";
};

class Circle : public Shape, public Tagged {
  public:
    Circle(int id, double r) : Shape(id), radius_(r) {}
    double area() const override {
        double square = radius_ * radius_;
        return 3.14159 * square;
    }

  private:
    double radius_;
};

class Rectangle : public Shape {
  public:
    Rectangle(int id, Point a, Point b) : Shape(id), low_(a), high_(b) {}
    double area() const override {
        double width = high_.x - low_.x;
        double height = high_.y - low_.y;
        return width * height;
    }

  private:
    Point low_, high_;
};

namespace {
int hidden = 41;
int bump(int by) {
    hidden += by;
    return hidden;
}
} // namespace

} // namespace geometry

template <typename T, int N> class Stack {
  public:
    void push(const T &value) {
        if (size_ == N) {
            throw std::length_error("full");
        }
        items_[size_++] = value;
    }
    T pop() {
        T &last = items_[size_ - 1];
        size_--;
        return last;
    }
    size_t size() const { return size_; }

  private:
    T items_[N] = {};
    size_t size_ = 0;
};

template <typename T> __attribute__((noinline)) T largest(const T *begin, unsigned long count) {
    T best = begin[0];
    for (unsigned long i = 1; i < count; i++) {
        const T &candidate = begin[i];
        if (best < candidate) {
            best = candidate;
        }
    }
    return best;
}

__attribute__((noinline)) static int risky(int n) {
    std::string text = "risky " + std::to_string(n);
    if (n % 5 == 0) {
        throw std::runtime_error(text);
    }
    return static_cast<int>(text.size());
}

__attribute__((noinline)) static double total_area(const std::vector<std::unique_ptr<geometry::Shape>> &shapes) {
    double sum = 0;
    for (const auto &shape : shapes) {
        const geometry::Shape &here = *shape;
        sum += here.area();
    }
    return sum;
}

int main() {
    using namespace geometry;
    std::vector<std::unique_ptr<Shape>> shapes;
    shapes.push_back(std::make_unique<Circle>(1, 2.0));
    shapes.push_back(std::make_unique<Rectangle>(2, Point(0, 1), Point(4, 3)));
    Stack<int, 8> numbers;
    Stack<Point *, 2> points;
    Circle circle(7, 0.5);
    Shape &reference = circle;
    const int &alias = hidden;
    int Point::*no_member = nullptr;
    double Point::*member = &Point::y;
    double (Shape::*method)() const = &Shape::area;
    Unit unit = Unit::Metre;
    Mode mode = Slow;
    Point origin(1, 2);
    long values[4] = {4, 8, 15, 16};
    auto add = [&origin, mode](int by) {
        origin.x += by;
        return static_cast<int>(origin.x) + mode;
    };
    std::function<int(int)> indirect = add;
    int caught = 0;
    double sum = 0;
    bool flag = true;
    char16_t wide[] = u"sixteen";
    std::nullptr_t null = nullptr;
    for (int round = 0; round < 60; round++) {
        try {
            caught += risky(round);
        } catch (const std::exception &error) {
            caught -= error.what()[0];
        }
        numbers.push(bump(round));
        if (numbers.size() > 4) {
            numbers.pop();
        }
        sum += total_area(shapes) + (circle.*method)() + origin.*member;
        sum += static_cast<double>(largest(values, 4));
        sum += indirect(1);
        values[round % 4] += round;
        origin = origin + Point(round, 1);
    }
    (void)no_member;
    (void)null;
    std::printf("%f %d %d %d %d %d %d\n", sum, caught, reference.id(), alias, static_cast<int>(unit), flag, wide[0]);
    return points.size() == 0 ? 0 : 1;
}
