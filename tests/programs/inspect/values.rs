// Rust: enums, niches, slices, generics, closures, trait objects, containers of the library.
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

#[derive(Debug, Clone, PartialEq)]
enum Shape {
    Empty,
    Circle(f64),
    Rectangle { width: u32, height: u32 },
    Named(String, Box<Shape>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(u8)]
enum Level {
    Low = 1,
    High = 200,
}

#[derive(Debug, Clone, Copy)]
struct Pair(i32, u8);

#[derive(Debug)]
struct Account<'a> {
    id: u64,
    owner: &'a str,
    level: Level,
    balance: Option<i64>,
    parent: Option<Box<Pair>>,
    tags: [u16; 3],
    unit: (),
    both: (i8, char),
}

trait Area {
    fn area(&self) -> f64;
}

impl Area for Shape {
    #[inline(never)]
    fn area(&self) -> f64 {
        match self {
            Shape::Empty => 0.0,
            Shape::Circle(radius) => 3.0 * radius * radius,
            Shape::Rectangle { width, height } => {
                let (w, h) = (f64::from(*width), f64::from(*height));
                w * h
            }
            Shape::Named(name, inner) => name.len() as f64 + inner.area(),
        }
    }
}

union Either {
    int: u32,
    float: f32,
}

static GREETING: &str = "hello";
static mut COUNTER: u32 = 0;

#[inline(never)]
fn parse(text: &str) -> Result<i32, std::num::ParseIntError> {
    let trimmed = text.trim();
    trimmed.parse::<i32>()
}

#[inline(never)]
fn largest<T: PartialOrd + Copy>(items: &[T]) -> Option<T> {
    let mut best = *items.first()?;
    for item in items {
        if *item > best {
            best = *item;
        }
    }
    Some(best)
}

#[inline(never)]
fn transfer(account: &mut Account<'_>, amount: i64) -> Result<i64, String> {
    let before = account.balance.unwrap_or(0);
    let after = before + amount;
    if after < 0 {
        return Err(format!("{} has only {before}", account.owner));
    }
    account.balance = Some(after);
    account.tags[0] = account.tags[0].wrapping_add(1);
    Ok(after)
}

fn main() {
    let shapes = vec![
        Shape::Empty,
        Shape::Circle(1.5),
        Shape::Rectangle { width: 3, height: 4 },
        Shape::Named("box".to_string(), Box::new(Shape::Circle(0.5))),
    ];
    let mut account = Account {
        id: 77,
        owner: "ann",
        level: Level::High,
        balance: None,
        parent: Some(Box::new(Pair(-4, 9))),
        tags: [1, 2, 3],
        unit: (),
        both: (-8, 'ß'),
    };
    let either = Either { int: 0x4048_f5c3 };
    let numbers = [5i32, -2, 19, 4];
    let slice = &numbers[1..3];
    let none: Option<&str> = None;
    let some: Option<&str> = Some("some");
    let tuple = (1u8, "two", 3.0f32);
    let cell = Cell::new(5);
    let shared = Rc::new(RefCell::new(vec![1u8, 2, 3]));
    let dynamic: Box<dyn Area> = Box::new(Shape::Circle(2.0));
    let function: fn(&str) -> Result<i32, std::num::ParseIntError> = parse;
    let yes = true;
    let wide: i128 = -5;
    let pair = Pair(1, 2);
    let letter = 'x';
    let bytes = b"bytes";
    let boxed: Box<[u8]> = Box::from([7, 8]);
    let text: Box<str> = Box::from("text");
    let mut map: HashMap<String, i32> = HashMap::new();
    let mut total = 0.0;
    for round in 0..40i64 {
        for shape in &shapes {
            total += shape.area();
        }
        total += dynamic.area();
        match transfer(&mut account, 10 - round) {
            Ok(balance) => total += balance as f64,
            Err(text) => total -= text.len() as f64,
        }
        if let Some(best) = largest(slice) {
            total += f64::from(best);
        }
        let text = format!(" {round} ");
        let parsed = function(&text).unwrap_or(-1);
        *map.entry(format!("key{}", round % 4)).or_insert(0) += parsed;
        shared.borrow_mut().push(round as u8);
        cell.set(cell.get() + 1);
        let add = |by: i64| total += by as f64;
        call(add, round);
        unsafe { COUNTER += 1 };
    }
    println!(
        "{total} {} {:?} {account:?} {} {} {tuple:?} {none:?} {some:?} {yes} {wide} {pair:?} {letter} {bytes:?} {GREETING}",
        map.len(),
        shared.borrow().len(),
        cell.get(),
        unsafe { either.float }
    );
    println!("{} {}", account.id, account.level == Level::Low);
    std::hint::black_box((&boxed, &text));
}

#[inline(never)]
fn call<F: FnMut(i64)>(mut f: F, by: i64) {
    f(by);
}
