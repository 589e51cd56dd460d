// The containers of Rust's standard library, each with a little in it.
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

#[inline(never)]
fn stop<T>(_: &T) {
    std::hint::black_box(());
}

fn main() {
    let string = String::from("text");
    let slice = &string[1..3];
    let vector = vec![1, 2, 3];
    let empty: Vec<u8> = Vec::new();
    let words = vec!["one".to_string(), "two".to_string()];
    let part = &vector[1..];
    let mut deque: VecDeque<i32> = (0..8).collect();
    for i in 0..4 {
        deque.pop_front();
        deque.push_back(100 + i);
    }
    let map: HashMap<String, i32> = [("k".to_string(), 5)].into();
    let set: HashSet<u8> = [9].into();
    let tree: BTreeMap<i32, &str> = [(2, "b"), (1, "a"), (3, "c")].into();
    let big: BTreeMap<u32, u32> = (0..40).map(|i| (i, i * i)).collect();
    let tree_set: BTreeSet<i32> = [3, 1].into();
    let some: Option<String> = Some("inside".to_string());
    let none: Option<Box<i32>> = None;
    let good: Result<u8, String> = Ok(1);
    let bad: Result<u8, String> = Err("why".to_string());
    let boxed = Box::new(7);
    let rc = Rc::new(8);
    let rc2 = Rc::clone(&rc);
    let arc = Arc::new(Mutex::new(9));
    let cell = Cell::new(10);
    let ref_cell = RefCell::new(vec![11]);
    let mut buffer = Box::new([MaybeUninit::new(0u8); 8192]) as Box<[MaybeUninit<u8>]>;
    buffer[0].write(98);
    let runs = [vec![1; 10], vec![2; 11], vec![3]].concat();
    let guard = arc.lock().unwrap();
    stop(&(&string, slice, &vector, &empty, &words, part, &deque, &map));
    stop(&(&set, &tree, &big, &tree_set, &some, &none, &good, &bad, &boxed, &rc2, &cell, &ref_cell));
    stop(&(&buffer, &runs));
    drop(guard);
}
