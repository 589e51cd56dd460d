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
    // Without a limit for how long a connection may be quiet: a busy machine takes the five
    // seconds that it is otherwise.
    let script = format!(
        "const s = require('http').createServer((q, a) => a.end('hello')); \
         s.keepAliveTimeout = 0; s.listen({port}, '127.0.0.1')"
    );
    let command = words(&[&tool, "-e", &script]);
    is_unseen(&command, port, get);
}

/// One that is written in Go, and has a limit on everything that it waits for.
#[test]
fn etcd() {
    let tool = tool!("etcd");
    let scratch = Scratch::new("live-etcd");
    let port = free_port();
    let client = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{}", free_port());
    let cluster = format!("default={peer}");
    let command = words(&[
        &tool,
        "--data-dir",
        scratch.path().to_str().unwrap(),
        "--listen-client-urls",
        &client,
        "--advertise-client-urls",
        &client,
        "--listen-peer-urls",
        &peer,
        "--initial-advertise-peer-urls",
        &peer,
        "--initial-cluster",
        &cluster,
    ]);
    is_unseen(&command, port, |port, kept| {
        let client = kept.get_or_insert_with(|| {
            // The port is open before the server is ready to serve.
            wait_for("etcd to be healthy", || {
                let (_, body) = Client::connect(port).http("GET /health", "");
                body.contains("\"true\"").then_some(())
            });
            Client::connect(port)
        });
        let put = r#"{"key":"a2V5","value":"dmFsdWU="}"#;
        let (status, _) = client.http("POST /v3/kv/put", put);
        assert_eq!(status, "HTTP/1.1 200 OK");
    });
}

/// Processes that share memory, one for each connection.
#[test]
fn postgresql() {
    tool!("pg_lsclusters");
    let setpriv = tool!("setpriv");
    let scratch = Scratch::for_everyone("live-postgresql");
    let (dir, port) = (scratch.path().join("data"), free_port());
    std::fs::create_dir(&dir).unwrap();
    harness::servers::give_away(&dir);
    let dir = dir.to_str().unwrap();
    let program = harness::servers::postgres_program;
    let as_other = |name: &str, rest: &[&str]| {
        let mut command = harness::servers::not_as_root(&setpriv);
        command.push(program(name));
        command.extend(words(rest));
        command
    };
    let initdb = as_other(
        "initdb",
        &[
            "-D",
            dir,
            "-A",
            "trust",
            "-U",
            "mw",
            "--no-sync",
            "--locale",
            "C",
        ],
    );
    let made = Command::new(&initdb[0])
        .args(&initdb[1..])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let number = port.to_string();
    let options = ["-D", dir, "-p", &number, "-k", dir, "-h", "127.0.0.1"];
    let command = as_other("postgres", &options);
    is_unseen(&command, port, |port, kept| {
        let client = kept.get_or_insert_with(|| log_in(port));
        client.send(b"Q\0\0\0\x0dselect 1\0");
        assert_eq!(answers(client), "TDCZ");
    });
}

/// A connection to PostgreSQL, once it takes any.
fn log_in(port: u16) -> Client {
    wait_for("PostgreSQL to be ready", || {
        let mut client = Client::connect(port);
        let words = b"\0\x03\0\0user\0mw\0database\0postgres\0\0";
        let length = u32::try_from(words.len() + 4).unwrap();
        client.send(&[&length.to_be_bytes(), &words[..]].concat());
        answers(&mut client).ends_with('Z').then_some(client)
    })
}

/// The kinds of PostgreSQL's messages, up to one that it waits after, or that says what is
/// wrong.
fn answers(client: &mut Client) -> String {
    let mut kinds = String::new();
    while !kinds.ends_with(['Z', 'E']) {
        let head = client.read(5);
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        client.read(length - 4);
        kinds.push(char::from(head[0]));
    }
    kinds
}

/// Dozens of threads, and code that is made while it runs.
#[test]
fn java() {
    let tool = tool!("java");
    tool!("javac");
    let scratch = Scratch::new("live-java");
    let port = free_port();
    let source = scratch.path().join("Hello.java");
    let text = r#"
        import com.sun.net.httpserver.HttpServer;
        import java.net.InetSocketAddress;
        public class Hello {
            public static void main(String[] words) throws Exception {
                var at = new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0]));
                var server = HttpServer.create(at, 0);
                server.createContext("/", asked -> {
                    asked.sendResponseHeaders(200, 5);
                    asked.getResponseBody().write("hello".getBytes());
                    asked.close();
                });
                server.start();
            }
        }"#;
    std::fs::write(&source, text).unwrap();
    let command = words(&[&tool, source.to_str().unwrap(), &port.to_string()]);
    is_unseen(&command, port, get);
}
