//! Records real servers, as Debian packages them, under load, stops them as an
//! administrator would, and replays them.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::path::Path;
use std::process::{Command, Stdio};

use harness::recorded::shell_status;
use harness::running::Setup;
use harness::servers::{Client, await_port, free_port};
use harness::{Event, Recorded, Scratch};
use rustix::process::{Pid, Signal};

/// The server's exit status when it is not recorded and told to end.
fn native_status(command: &[String], port: u16) -> i32 {
    let mut child = harness::with_default_signals(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    harness::wait_for("the server, not recorded", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    // Some listen before they are ready to be told.
    harness::wait_for("the server to heed SIGTERM", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        (caught & 1 << (Signal::TERM.as_raw() - 1) != 0).then_some(())
    });
    rustix::process::kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    harness::wait_for("the server's end, not recorded", || {
        child.try_wait().unwrap().map(shell_status)
    })
}

/// Records a server while `load` uses it, ends it with SIGTERM, and checks
/// that it ended as it does when it is not recorded and that the recording is
/// sound. `command` makes the command for a port and a directory of its own.
fn record(
    scratch: &Scratch,
    command: impl Fn(u16, &Path) -> Vec<String>,
    load: impl FnOnce(u16),
) -> Recorded {
    let dir = |name: &str| {
        let dir = scratch.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        dir
    };
    let port = free_port();
    let native = native_status(&command(port, &dir("native")), port);
    let port = free_port();
    let mut server = scratch.start(&command(port, &dir("recorded")));
    await_port(&mut server, port);
    load(port);
    server.signal(Signal::TERM);
    let recorded = server.finish();
    let outcome = &recorded.outcome;
    assert_eq!(outcome.code(), native, "{}", outcome.stderr);
    recorded.is_sound();
    recorded.has("the SIGTERM", |e| e.delivers("SIGTERM"));
    recorded
}

/// Runs a client, which must succeed, and gives what it printed.
fn run(tool: &str, args: &[&str]) -> String {
    let output = Command::new(tool).args(args).output().unwrap();
    assert!(
        output.status.success(),
        "{tool} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(String::from).to_vec()
}

/// How often a server took in something that has this in it.
fn received(r: &Recorded, text: &str) -> usize {
    r.count(|e: &Event| e.kind() == "recv" && e.word("buf").contains(text))
}

#[test]
fn redis_under_redis_benchmark() {
    let (server, benchmark) = (tool!("redis-server"), tool!("redis-benchmark"));
    let scratch = Scratch::new("redis");
    let command = |port: u16, dir: &Path| {
        let mut command = words([&server, "--port", &port.to_string()]);
        command.extend(words([
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]));
        command.extend(words(["--dir", dir.to_str().unwrap()]));
        command
    };
    let r = record(&scratch, command, |port| {
        let port_text = port.to_string();
        let common = ["-h", "127.0.0.1", "-p", &port_text, "-c", "20", "-q"];
        run(
            &benchmark,
            &[&common[..], &["-n", "5000", "-t", "set,get"]].concat(),
        );
        run(
            &benchmark,
            &[&common[..], &["-n", "20000", "-t", "get", "-P", "16"]].concat(),
        );
        let mut client = Client::connect(port);
        client.send(b"SET meanwhile elsewhere\r\nGET meanwhile\r\n");
        assert_eq!(client.line(), "+OK");
        assert_eq!(
            (client.line(), client.line()),
            ("$9".into(), "elsewhere".into())
        );
    });
    r.has_many(40, "connections", |e| e.kind() == "accept" && e.succeeded());
    assert!(received(&r, "GET") > 5000, "{}", received(&r, "GET"));
    let asked = r.find("what was asked", |e| {
        e.kind() == "recv" && e.word("buf").contains("SET meanwhile elsewhere")
    });
    r.has("what was answered, on the same connection", |e| {
        e.kind() == "send"
            && e.file("fd") == asked.file("fd")
            && e.word("buf").contains("$9\r\nelsewhere")
    });
    r.has_many(100, "waits", |e| e.call() == "epoll_wait" && e.returned());
    assert!(r.threads()["redis-server-0"] > 1);
    r.replays();
}

#[test]
fn nginx_with_two_workers_under_wrk() {
    let server = tool!("nginx");
    let wrk = tool!("wrk");
    // Its workers are another user's.
    let scratch = Scratch::for_everyone("nginx");
    let page = "x".repeat(100_000);
    std::fs::write(scratch.path().join("page.html"), &page).unwrap();
    let command = |port: u16, dir: &Path| {
        let config = dir.join("nginx.conf");
        let root = scratch.path().display();
        let dir = dir.display();
        let text = format!(
            "daemon off; master_process on; worker_processes 2;
             pid {dir}/pid; error_log {dir}/error.log;
             events {{ worker_connections 256; }}
             http {{
                 access_log {dir}/access.log; sendfile on; keepalive_requests 100000;
                 client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;
                 fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi;
                 scgi_temp_path {dir}/scgi;
                 server {{
                     listen 127.0.0.1:{port}; root {root};
                     location /hello {{ return 200 'hello from nginx'; }}
                 }}
             }}"
        );
        std::fs::write(&config, text).unwrap();
        words([&server, "-c", config.to_str().unwrap()])
    };
    let r = record(&scratch, command, |port| {
        let url = format!("http://127.0.0.1:{port}/hello");
        run(&wrk, &["-t", "1", "-c", "10", "-d", "1s", &url]);
        let mut client = Client::connect(port);
        for _ in 0..100 {
            let (status, body) = client.http("GET /hello", "");
            assert_eq!(
                (status.as_str(), body.as_str()),
                ("HTTP/1.1 200 OK", "hello from nginx")
            );
        }
        let (_, body) = client.http("GET /page.html", "");
        assert_eq!(body, page);
    });
    assert_eq!(r.processes().len(), 3, "{}", r.ask(&["ps"]));
    let (master, workers) = r.processes().split_first().unwrap();
    for worker in workers {
        assert_eq!(worker.parent(), Some(master.name()));
        assert_eq!(worker.status(), Some(0));
    }
    assert!(received(&r, "GET /hello") > 200);
    r.has_many(200, "answers", |e| {
        e.kind() == "send" && e.succeeded() && e.file("fd").starts_with("127.0.0.1:")
    });
    r.replays();
    r.has("the page, by its name", |e| {
        e.call() == "sendfile" && e.file("in_fd").ends_with("/page.html") && e.succeeded()
    });
}

#[test]
fn memcached_with_four_threads() {
    let server = tool!("memcached");
    let scratch = Scratch::new("memcached");
    let command = |port: u16, _: &Path| {
        let port = port.to_string();
        let mut command = words([
            &server,
            "-p",
            &port,
            "-l",
            "127.0.0.1",
            "-U",
            "0",
            "-t",
            "4",
        ]);
        if harness::is_root() {
            command.extend(words(["-u", "root"]));
        }
        command
    };
    let r = record(&scratch, command, |port| {
        std::thread::scope(|scope| {
            for me in 0..8 {
                scope.spawn(move || {
                    let mut client = Client::connect(port);
                    for i in 0..200 {
                        let value = format!("value {i} of {me}");
                        let length = value.len();
                        client.send(format!("set key-{me} 0 0 {length}\r\n{value}\r\n").as_bytes());
                        assert_eq!(client.line(), "STORED");
                        client.send(format!("get key-{me}\r\n").as_bytes());
                        assert_eq!(client.line(), format!("VALUE key-{me} 0 {length}"));
                        assert_eq!((client.line(), client.line()), (value, "END".into()));
                    }
                });
            }
        });
    });
    r.has_many(8, "connections", |e| e.kind() == "accept" && e.succeeded());
    assert!(received(&r, "set key-7") >= 100 && received(&r, "get key-0") >= 100);
    r.has_many(1600, "answers", |e| e.call() == "sendmsg" && e.succeeded());
    let busy: std::collections::HashSet<_> = r
        .all(|e| e.kind() == "recv" && e.word("buf").contains("get key"))
        .map(Event::thread)
        .collect();
    assert_eq!(busy.len(), 4, "each of the four threads has clients");
    r.replays();
}

#[test]
fn etcd_through_its_gateway_and_etcdctl() {
    let server = tool!("etcd");
    let control = tool!("etcdctl");
    let scratch = Scratch::new("etcd");
    let command = |port: u16, dir: &Path| {
        let client = format!("http://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{}", free_port());
        let cluster = format!("default={peer}");
        let mut command = words([&server, "--data-dir", dir.to_str().unwrap()]);
        command.extend(words(["--listen-client-urls", &client]));
        command.extend(words(["--advertise-client-urls", &client]));
        command.extend(words(["--listen-peer-urls", &peer]));
        command.extend(words(["--initial-advertise-peer-urls", &peer]));
        command.extend(words(["--initial-cluster", &cluster]));
        command
    };
    let r = record(&scratch, command, |port| {
        // The port is open before the server is ready to serve.
        harness::wait_for("etcd to be healthy", || {
            let (_, body) = Client::connect(port).http("GET /health", "");
            body.contains("\"true\"").then_some(())
        });
        let mut client = Client::connect(port);
        for i in 0..50 {
            // The gateway takes base64: "key" and "value".
            let (status, _) =
                client.http("POST /v3/kv/put", r#"{"key":"a2V5","value":"dmFsdWU="}"#);
            assert_eq!(status, "HTTP/1.1 200 OK", "put {i}");
            let (_, body) = client.http("POST /v3/kv/range", r#"{"key":"a2V5"}"#);
            assert!(body.contains("dmFsdWU="), "{body}");
        }
        let endpoint = format!("--endpoints=http://127.0.0.1:{port}");
        let etcdctl = |args: &[&str]| {
            let output = Command::new(&control)
                .env("ETCDCTL_API", "3")
                .arg(&endpoint)
                .args(args)
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        for i in 0..5 {
            let value = format!("{i} times");
            assert_eq!(etcdctl(&["put", "meanwhile", &value]), "OK\n");
            assert_eq!(
                etcdctl(&["get", "meanwhile"]),
                format!("meanwhile\n{value}\n")
            );
        }
    });
    assert!(received(&r, "/v3/kv/put") >= 50);
    r.has("what etcdctl put", |e| {
        e.kind() == "recv" && e.holds("buf", "4 times")
    });
    r.has_many(50, "syncs of its log", |e| {
        e.call() == "fdatasync" && e.succeeded()
    });
    r.has("its log by name", |e| {
        e.call() == "fdatasync" && e.file("fd").ends_with(".wal")
    });
    // Its database grows behind a mapping of it.
    r.replays();
}

/// Processes that share memory: a hundred megabytes of it.
#[test]
fn postgresql_under_pgbench() {
    tool!("pg_lsclusters");
    let (psql, setpriv) = (tool!("psql"), tool!("setpriv"));
    let program = harness::servers::postgres_program;
    let other_user = harness::servers::not_as_root(&setpriv);
    let other_user: Vec<&str> = other_user.iter().map(String::as_str).collect();
    let other_user = other_user.as_slice();
    let scratch = Scratch::for_everyone("postgresql");
    let command = |port: u16, dir: &Path| {
        harness::servers::give_away(dir);
        let dir = dir.to_str().unwrap();
        let initdb = program("initdb");
        let options = [
            "-D",
            dir,
            "-A",
            "trust",
            "-U",
            "mw",
            "--no-sync",
            "--locale",
            "C",
        ];
        let initdb = [other_user, &[&initdb], &options].concat();
        run(initdb[0], &initdb[1..]);
        let (server, port) = (program("postgres"), port.to_string());
        let options = [
            "-D",
            dir,
            "-p",
            &port,
            "-k",
            dir,
            "-c",
            "fsync=off",
            "-h",
            "127.0.0.1",
        ];
        let command = [other_user, &[&server], &options].concat();
        command.into_iter().map(String::from).collect()
    };
    let r = record(&scratch, command, |port| {
        let port = port.to_string();
        let common = ["-h", "127.0.0.1", "-p", &port, "-U", "mw", "postgres"];
        // The port is open before the server is ready to serve.
        harness::wait_for("PostgreSQL to be ready", || {
            let output = Command::new(&psql)
                .args(common)
                .args(["-c", "select 1"])
                .output();
            output.unwrap().status.success().then_some(())
        });
        let ask = |question: &str| run(&psql, &[&common[..], &["-Atc", question]].concat());
        ask("create table t as select i, 'value ' || i as v from generate_series(1, 5000) i");
        assert_eq!(
            ask("select count(*), sum(i) from t").trim(),
            "5000|12502500"
        );
        let pgbench = program("pgbench");
        run(&pgbench, &[&["-i", "-s", "1", "-q"][..], &common].concat());
        run(&pgbench, &[&["-c", "4", "-t", "25"][..], &common].concat());
    });
    // One for each connection, forked by the first.
    let (first, others) = r.processes().split_first().unwrap();
    assert!(first.name().starts_with("postgres-"), "{}", first.name());
    assert!(others.len() > 10, "{}", r.ask(&["ps"]));
    assert!(
        others
            .iter()
            .all(|other| other.parent() == Some(first.name()))
    );
    assert!(received(&r, "create table t as") > 0);
    r.replays();
}

/// Its unprivileged half installs a filter on its own system calls.
#[test]
fn sshd_with_a_login() {
    let (server, client, keys) = (tool!("sshd"), tool!("ssh"), tool!("ssh-keygen"));
    if !harness::is_root() {
        skip!("only root has the sandbox of sshd");
    }
    let scratch = Scratch::new("sshd");
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_string();
    for name in ["host", "user"] {
        run(&keys, &["-q", "-t", "ed25519", "-N", "", "-f", &path(name)]);
    }
    std::fs::create_dir_all("/run/sshd").unwrap();
    let command = |port: u16, dir: &Path| {
        let config = dir.join("config");
        let lines = [
            format!("Port {port}"),
            "ListenAddress 127.0.0.1".to_string(),
            format!("HostKey {}", path("host")),
            format!("AuthorizedKeysFile {}", path("user.pub")),
            "PidFile none".to_string(),
            "StrictModes no".to_string(),
            "PermitRootLogin yes".to_string(),
            "UsePAM no".to_string(),
        ];
        std::fs::write(&config, lines.join("\n") + "\n").unwrap();
        words([&server, "-D", "-e", "-f", config.to_str().unwrap()])
    };
    let r = record(&scratch, command, |port| {
        let port = port.to_string();
        let key = path("user");
        let said = run(
            &client,
            &[
                "-F",
                "none",
                "-p",
                &port,
                "-i",
                &key,
                "-o",
                "StrictHostKeyChecking=no",
                "-o",
                "UserKnownHostsFile=/dev/null",
                "-o",
                "LogLevel=ERROR",
                "root@127.0.0.1",
                "echo through the sandbox",
            ],
        );
        assert_eq!(said, "through the sandbox\n");
    });
    r.has("a filter", |e| {
        e.succeeded() && (e.call() == "seccomp" || e.word("option") == "PR_SET_SECCOMP")
    });
    r.has("the command", |e| {
        e.call() == "write" && e.word("buf") == "through the sandbox\n"
    });
    r.replays();
}

/// Each rank asks every core what it is, spins for the others in shared memory, and is
/// started by a daemon of its own.
#[test]
fn openmpi_with_three_ranks() {
    let (compiler, runner) = (tool!("mpicc"), tool!("mpirun"));
    let scratch = Scratch::new("openmpi");
    let program = scratch.path().join("ring").to_str().unwrap().to_string();
    let source = harness::repository().join("tests/programs/real/mpi_ring.c");
    run(
        &compiler,
        &["-O2", "-o", &program, source.to_str().unwrap()],
    );
    let ranks = [
        "--allow-run-as-root",
        "--oversubscribe",
        "-n",
        "3",
        &program,
    ];
    let command: Vec<&str> = std::iter::once(runner.as_str()).chain(ranks).collect();
    let r = Setup::new(&scratch, &command).start().finish();
    assert_eq!(r.outcome.stdout, "3 ranks, token 9, sum 3, whole 3.0\n");
    assert_eq!(r.outcome.code(), 0, "{}", r.outcome.stderr);
    let rings = r
        .processes()
        .iter()
        .filter(|p| p.name().starts_with("ring-"));
    assert_eq!(rings.count(), 3, "{}", r.ask(&["ps"]));
    r.has("a question to a core", |e| e.call() == "cpuid");
    r.replays();
}
