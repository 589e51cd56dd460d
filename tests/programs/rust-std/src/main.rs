//! Covers: a Rust program on std alone: threads, scoped threads, channels, Mutex, Condvar, RwLock,
//! Once, park, thread-locals, a TCP server with clients, child processes with pipes, a caught panic.
//!
//! Hard for a recorder: std calls futex itself, without pthread mutexes, spawns children with
//! posix_spawn or fork and exec as it sees fit, and reads clocks and random bytes at odd places.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, RwLock};
use std::thread;
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    if std::env::args().nth(1).as_deref() == Some("child") {
        return child();
    }
    locks();
    channels()?;
    tcp()?;
    children()?;
    others();
    Ok(())
}

fn locks() {
    const THREADS: u64 = 4;
    let counter = Mutex::new(0u64);
    let table = RwLock::new(HashMap::new());
    let atomic = AtomicU64::new(0);
    let barrier = Barrier::new(THREADS as usize);
    let once = OnceLock::new();
    thread::scope(|scope| {
        for me in 0..THREADS {
            let (counter, table, atomic) = (&counter, &table, &atomic);
            let (barrier, once) = (&barrier, &once);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..1000 {
                    *counter.lock().unwrap() += 1;
                    atomic.fetch_add(round, Ordering::Relaxed);
                    if round % 100 == 0 {
                        table.write().unwrap().insert((me, round), me * round);
                    } else {
                        assert!(table.read().unwrap().len() <= 40);
                    }
                }
                assert_eq!(*once.get_or_init(|| 7), 7);
            });
        }
    });
    let sum: u64 = table.into_inner().unwrap().values().sum();
    println!(
        "locks: {} counted, {} added, table {}",
        counter.into_inner().unwrap(),
        atomic.into_inner(),
        sum
    );

    // Two threads that hand a number back and forth.
    let shared = Arc::new((Mutex::new(0u32), Condvar::new()));
    let other = Arc::clone(&shared);
    let turns = move |pair: &(Mutex<u32>, Condvar), mine: u32| {
        for _ in 0..100 {
            let mut number = pair
                .1
                .wait_while(pair.0.lock().unwrap(), |n| *n % 2 != mine)
                .unwrap();
            *number += 1;
            pair.1.notify_one();
        }
    };
    let thread = thread::spawn(move || turns(&other, 1));
    turns(&shared, 0);
    thread.join().unwrap();
    let (mutex, condition) = &*shared;
    let (number, waited) = condition
        .wait_timeout(mutex.lock().unwrap(), Duration::from_millis(3))
        .unwrap();
    assert!(waited.timed_out());
    println!("condition: {} turns", *number);
}

fn channels() -> Outcome {
    let (to_workers, work) = sync_channel::<u64>(4);
    let (to_main, results) = channel();
    let work = Arc::new(Mutex::new(work));
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let (work, to_main) = (Arc::clone(&work), to_main.clone());
            thread::spawn(move || loop {
                let Ok(item) = work.lock().unwrap().recv() else {
                    return;
                };
                to_main.send(item * item).unwrap();
            })
        })
        .collect();
    drop(to_main);
    let feeder = thread::spawn(move || (1..=200).for_each(|item| to_workers.send(item).unwrap()));
    let sum: u64 = results.iter().sum();
    feeder.join().unwrap();
    for worker in workers {
        worker.join().unwrap();
    }
    println!("channels: sum {sum}");
    Ok(())
}

fn tcp() -> Outcome {
    const CLIENTS: usize = 8;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || {
        let serving: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (mut stream, _) = listener.accept().unwrap();
                thread::spawn(move || {
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                    while let Some(Ok(line)) = lines.next() {
                        writeln!(stream, "{}", line.to_uppercase()).unwrap();
                    }
                })
            })
            .collect();
        serving
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|me| {
            thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_nodelay(true).unwrap();
                for i in 0..20 {
                    writeln!(stream, "client {me} line {i}").unwrap();
                }
                stream.shutdown(Shutdown::Write).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert!(answer.ends_with(&format!("CLIENT {me} LINE 19\n")));
                answer.lines().count()
            })
        })
        .collect();
    let lines: usize = clients
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    server.join().unwrap();
    println!("tcp: {lines} lines");
    Ok(())
}

/// The other side of `children`: doubles the numbers it reads.
fn child() -> Outcome {
    for line in std::io::stdin().lines() {
        println!("{}", line?.parse::<u64>()? * 2);
    }
    std::process::exit(std::env::var("CHILD_STATUS")?.parse()?)
}

fn children() -> Outcome {
    let mut sum = 0;
    for status in [0, 5] {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("child")
            .env("CHILD_STATUS", status.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut input = child.stdin.take().ok_or("no stdin")?;
        let feeder = thread::spawn(move || {
            for number in 0..1000 {
                writeln!(input, "{number}").unwrap();
            }
        });
        let output = child.wait_with_output()?;
        feeder.join().unwrap();
        assert_eq!(output.status.code(), Some(status));
        sum += String::from_utf8(output.stdout)?
            .lines()
            .flat_map(str::parse::<u64>)
            .sum::<u64>();
    }
    let shell = Command::new("sh")
        .args(["-c", "echo out; echo err >&2; exit 3"])
        .output()?;
    assert_eq!(
        (&shell.stdout[..], &shell.stderr[..]),
        (&b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(shell.status.code(), Some(3));
    assert!(Command::new("/nonexistent/program").spawn().is_err());
    println!("children: sum {sum}");
    Ok(())
}

thread_local! {
    static OWN: Cell<u32> = const { Cell::new(1) };
}

fn others() {
    let parked = thread::spawn(|| {
        OWN.set(2);
        thread::park();
        OWN.get()
    });
    parked.thread().unpark();
    assert_eq!((parked.join().unwrap(), OWN.get()), (2, 1));

    let start = Instant::now();
    thread::sleep(Duration::from_millis(5));
    assert!(start.elapsed() >= Duration::from_millis(5));

    std::panic::set_hook(Box::new(|_| {}));
    let panicked = thread::spawn(|| panic!("on purpose")).join();
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"on purpose"));
    println!("others: parked, slept, panicked");
}
