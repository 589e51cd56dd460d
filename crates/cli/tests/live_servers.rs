//! Servers under load are joined, looked at and left, again and again: their clients
//! see nothing of it. `MW_ROUNDS` says how often.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use harness::servers::{Client, free_port};
use harness::{MW, Scratch, wait_for};

/// A server, which ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Two clients ask without end while the server is joined, with all that it has made,
/// looked at and left.
fn is_unseen(command: &[String], port: u16, ask: fn(u16, &mut Option<Client>)) {
    let child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Server(child);
    wait_for("the server", || {
        TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
    });
    let rounds = std::env::var("MW_ROUNDS").map_or(4, |text| text.parse().unwrap());
    let (over, answers) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let (over, answers) = (Arc::clone(&over), Arc::clone(&answers));
            std::thread::spawn(move || {
                let mut kept = None;
                while !over.load(Ordering::Relaxed) {
                    ask(port, &mut kept);
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for round in 0..rounds {
        let before = answers.load(Ordering::Relaxed);
        wait_for("answers", || {
            (answers.load(Ordering::Relaxed) > before + 20).then_some(())
        });
        let pid = server.0.id().to_string();
        let output = Command::new(MW)
            .args(["attach", "--tree", &pid, "--batch"])
            .args(["-e", "processes", "-e", "bt all", "-e", "tbreak epoll_wait"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "round {round}: {text}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("#0 "), "round {round}: {text}");
    }
    let before = answers.load(Ordering::Relaxed);
    wait_for("answers", || {
        (answers.load(Ordering::Relaxed) > before + 20).then_some(())
    });
    over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
}

/// On a connection that stays.
fn get(port: u16, kept: &mut Option<Client>) {
    let client = kept.get_or_insert_with(|| Client::connect(port));
    let (status, _) = client.http("GET /", "");
    assert!(status.contains(" 200 "), "{status}");
}

/// On a new connection each time.
fn get_once(port: u16, _: &mut Option<Client>) {
    get(port, &mut None);
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

#[test]
fn redis() {
    let tool = tool!("redis-server");
    let port = free_port();
    let number = port.to_string();
    let command = words(&[&tool, "--port", &number, "--save", "", "--appendonly", "no"]);
    is_unseen(&command, port, |port, kept| {
        let client = kept.get_or_insert_with(|| Client::connect(port));
        client.send(b"INCR turns\r\n");
        let answer = client.line();
        assert!(answer.starts_with(':'), "{answer}");
    });
}

#[test]
fn nginx() {
    let tool = tool!("nginx");
    let scratch = Scratch::for_everyone("live-nginx");
    let port = free_port();
    let dir = scratch.path().display();
    let file = scratch.path().join("nginx.conf");
    let text = format!(
        "daemon off; worker_processes 2; pid {dir}/pid; error_log {dir}/error;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {dir}/a; proxy_temp_path {dir}/b;\n\
         fastcgi_temp_path {dir}/c; uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;\n\
         server {{ listen 127.0.0.1:{port}; keepalive_requests 10000000;\n\
         location / {{ return 200 hello; }} }} }}\n"
    );
    std::fs::write(&file, text).unwrap();
    let command = words(&[&tool, "-c", file.to_str().unwrap()]);
    is_unseen(&command, port, get);
}

#[test]
fn python() {
    let tool = tool!("python3");
    let scratch = Scratch::new("live-python");
    let port = free_port();
    std::fs::write(scratch.path().join("index.html"), "hello").unwrap();
    let command = words(&[
        &tool,
        "-m",
        "http.server",
        "--bind",
        "127.0.0.1",
        "--directory",
        scratch.path().to_str().unwrap(),
        &port.to_string(),
    ]);
    is_unseen(&command, port, get_once);
}

#[test]
fn node() {
    let tool = tool!("node");
    let port = free_port();
    let script = format!(
        "require('http').createServer((q, a) => a.end('hello')).listen({port}, '127.0.0.1')"
    );
    let command = words(&[&tool, "-e", &script]);
    is_unseen(&command, port, get);
}
