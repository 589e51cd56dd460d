// Rust: functions that are inlined, one into the other and from the library.
use std::hint::black_box;

static TABLE: [i32; 8] = [3, 1, 4, 1, 5, 9, 2, 6];

#[inline(always)]
fn look_up(key: i32) -> i32 {
    let slot = (key & 7) as usize;
    TABLE[slot] * key
}

#[inline(always)]
fn weigh(value: i32, scale: i32) -> i32 {
    let mut found = look_up(value);
    black_box(found);
    if found > 20 {
        found -= look_up(scale);
    }
    black_box(found + scale);
    found
}

#[inline(never)]
fn first_user(count: i32) -> i32 {
    let mut total = 0;
    for i in 0..count {
        total += weigh(black_box(i), count);
    }
    total
}

#[inline(never)]
fn second_user(value: i32, scale: i32) -> i32 {
    weigh(value, scale) + 1
}

#[inline(never)]
fn library_user(numbers: &mut Vec<i32>) -> i32 {
    numbers.push(black_box(7));
    let sum = numbers.iter().map(|n| n.wrapping_mul(3)).sum();
    numbers.insert(0, sum);
    sum
}

fn main() {
    let mut numbers = black_box(vec![1, 2, 3]);
    let total = first_user(black_box(5)) + second_user(black_box(9), black_box(100)) + library_user(&mut numbers);
    println!("{total} {}", numbers.len());
}
