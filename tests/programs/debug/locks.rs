//! A thread for each kind of lock of Rust's library, waiting for it for ever. Prints its id
//! and that of one of its threads. What a mutex protects is that thread's id: a reader that
//! takes it for the owner of the lock is wrong.

use std::sync::{Condvar, Mutex, RwLock};

static MUTEX: Mutex<[u32; 4]> = Mutex::new([0; 4]);
static SHARED: RwLock<u32> = RwLock::new(0);
static BESIDE: Mutex<u32> = Mutex::new(0);
static CONDITION: Condvar = Condvar::new();

fn named(name: &str, body: fn()) {
    std::thread::Builder::new().name(name.to_string()).spawn(body).unwrap();
}

fn main() {
    let mut held = MUTEX.lock().unwrap();
    let _writing = SHARED.write().unwrap();
    *held = [std::process::id(); 4];
    named("for_mutex", || drop(MUTEX.lock()));
    named("for_shared", || drop(SHARED.read()));
    named("for_condition", || {
        let guard = BESIDE.lock().unwrap();
        drop(CONDITION.wait(guard));
    });
    named("parked", std::thread::park);
    println!("{}", std::process::id());
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1000));
    }
}
