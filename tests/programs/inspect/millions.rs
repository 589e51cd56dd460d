// Rust: values of a million elements, and deep ones.
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

const MILLION: u32 = 1_000_000;

enum Shape {
    Point,
    Circle(f64),
    Rectangle { width: u32, height: u32 },
}

struct Deep {
    level: u32,
    inner: Option<Box<Deep>>,
}

#[inline(never)]
fn stop(total: usize) -> usize {
    std::hint::black_box(total)
}

fn main() {
    let vector: Vec<u32> = (0..MILLION).map(|i| 3 * i).collect();
    let zeros = vec![0u8; 50_000_000];
    let tree: BTreeMap<u32, u64> = (0..MILLION).map(|i| (i, 2 * u64::from(i))).collect();
    let set: BTreeSet<u32> = (0..1000).collect();
    let table: HashMap<u32, u32> = (0..MILLION).map(|i| (i, i + 1)).collect();
    let ring: VecDeque<u32> = (0..100_000).collect();
    let names: Vec<String> = (0..1000).map(|i| format!("name {i}")).collect();
    let shapes = [Shape::Point, Shape::Circle(1.5), Shape::Rectangle { width: 3, height: 4 }];
    let mut deep = Deep { level: 0, inner: None };
    for level in 1..500 {
        deep = Deep { level, inner: Some(Box::new(deep)) };
    }
    let total = vector.len() + tree.len() + set.len() + table.len() + ring.len() + names.len() + zeros.len();
    let known = match &shapes[1] {
        Shape::Circle(radius) => *radius as usize,
        Shape::Rectangle { width, height } => (width * height) as usize,
        Shape::Point => 0,
    };
    println!("{}", stop(total + known + deep.level as usize) + usize::from(deep.inner.is_some()));
}
