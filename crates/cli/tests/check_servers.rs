//! Rules that a person of the field would write, judged by recordings of real servers
//! with their clients; and for each a rule that is wrong, which must be found out.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::path::Path;
use std::process::Command;

use harness::servers::free_port;
use harness::{MW, Recorded, Scratch, repository};
use serde_json::Value;

/// Records servers and clients that a script of the shell starts and ends.
fn record(scratch: &Scratch, before: &[&str], script: &str) -> Recorded {
    let file = scratch.path().join("script.sh");
    std::fs::write(&file, format!("set -e\n{script}")).unwrap();
    let file = file.to_str().unwrap().to_string();
    let command = [before, &["/bin/sh", &file]].concat();
    let recorded = scratch.record(&command);
    let outcome = &recorded.outcome;
    assert_eq!(outcome.code(), 0, "{}\n{}", outcome.stdout, outcome.stderr);
    recorded
}

/// Judges a recording by one of the examples, with more rules at its end.
fn check(scratch: &Scratch, recorded: &Recorded, name: &str, more: &str) -> Vec<Value> {
    let rules = repository().join("examples/rules").join(name);
    let file = scratch.path().join("rules.mw");
    let text = format!("include \"{}\"\n{more}", rules.display());
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(MW);
    command.args(["check", "--json"]).arg(&file);
    let output = command.arg(&recorded.dir).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "the wrong rules: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[track_caller]
fn came_to(verdicts: &[Value], expected: &[(&str, &str)]) {
    assert_eq!(verdicts.len(), expected.len());
    for (rule, outcome) in expected {
        let own = verdicts.iter().find(|own| own["rule"] == *rule).unwrap();
        assert_eq!(own["verdict"], *outcome, "{own}");
    }
}

#[test]
fn redis_with_a_replica() {
    let (server, client) = (tool!("redis-server"), tool!("redis-cli"));
    let scratch = Scratch::new("rules-redis");
    let (master, replica) = (free_port(), free_port());
    for name in ["master", "replica"] {
        std::fs::create_dir(scratch.path().join(name)).unwrap();
    }
    let dir = scratch.path().display();
    let script = format!(
        "serve() {{ {server} --bind 127.0.0.1 --save '' --appendonly no --loglevel warning \"$@\" & }}
         ready() {{ until {client} -p $1 ping >/dev/null 2>&1; do sleep 0.1; done; }}
         serve --port {master} --dir {dir}/master --repl-diskless-sync-delay 0
         ready {master}
         serve --port {replica} --dir {dir}/replica --replicaof 127.0.0.1 {master}
         ready {replica}
         until {client} -p {replica} info replication | grep -q master_link_status:up; do sleep 0.1; done
         for i in 1 2 3 4 5 6; do
             {client} -p {replica} get key-$i
             printf 'SET key-%s value-%s\\nWAIT 1 0\\n' $i $i | {client} -p {master}
             {client} -p {replica} get key-$i
         done
         {client} -p {replica} shutdown nosave || true
         {client} -p {master} shutdown nosave || true
         wait"
    );
    let recorded = record(&scratch, &[], &script);
    let said = &recorded.outcome.stdout;
    assert_eq!(said.matches("value-").count(), 6, "{said}");
    // That nobody reads what was written; and that nobody asks for what is not there yet.
    let wrong = "never read: set(k, v) -> asked(c, k) -> answered(c, v)\n\
                 expect at_once: no asked(_, k) before set(k, _)\n";
    let verdicts = check(&scratch, &recorded, "redis.mw", wrong);
    came_to(
        &verdicts,
        &[
            ("replicated", "holds"),
            ("only_those", "holds"),
            ("lost", "holds"),
            ("seen", "matched"),
            ("read", "violated"),
            ("at_once", "violated"),
        ],
    );
    let read = verdicts.iter().find(|own| own["rule"] == "read").unwrap();
    assert_eq!(read["captures"]["v"], "value-1", "{read}");
    assert!(!read["path"].as_array().unwrap().is_empty(), "{read}");
}

#[test]
fn etcd_with_three_members() {
    let (server, client) = (tool!("etcd"), tool!("etcdctl"));
    let scratch = Scratch::new("rules-etcd");
    let dir = scratch.path().display();
    let peers: Vec<u16> = (0..3).map(|_| free_port()).collect();
    let clients: Vec<u16> = (0..3).map(|_| free_port()).collect();
    let url = |port: &u16| format!("http://127.0.0.1:{port}");
    let cluster: Vec<String> = peers
        .iter()
        .enumerate()
        .map(|(i, port)| format!("m{i}={}", url(port)))
        .collect();
    let cluster = cluster.join(",");
    let mut script = String::new();
    for (i, (peer, own)) in peers.iter().zip(&clients).enumerate() {
        let (peer, own) = (url(peer), url(own));
        script += &format!(
            "{{ {server} --name m{i} --data-dir {dir}/m{i} --initial-cluster {cluster} \
               --initial-cluster-token t --initial-cluster-state new \
               --listen-peer-urls {peer} --initial-advertise-peer-urls {peer} \
               --listen-client-urls {own} --advertise-client-urls {own} \
               --heartbeat-interval 500 --election-timeout 5000 2>&1 & echo $! >{dir}/pid-{i}; wait; }} \
             | cat >{dir}/log-{i} &\n"
        );
    }
    let endpoints: Vec<String> = clients.iter().map(url).collect();
    let endpoints = endpoints.join(",");
    let last = url(&clients[2]);
    script += &format!(
        "export ETCDCTL_API=3
         ask() {{ {client} --command-timeout 60s --dial-timeout 30s --endpoints $@; }}
         until ask {endpoints} endpoint health >/dev/null 2>&1; do sleep 0.2; done
         for i in 1 2 3 4; do
             ask {endpoints} put key-$i asked-$i
             ask {last} get key-$i
         done
         for i in 0 1 2; do kill $(cat {dir}/pid-$i); done
         wait"
    );
    let recorded = record(&scratch, &[], &script);
    let said = &recorded.outcome.stdout;
    assert_eq!(said.matches("asked-").count(), 4, "{said}");
    let wrong = "never elected_at_all: elected(m, t)\nnever read: put(n) -> got(n)\n";
    let verdicts = check(&scratch, &recorded, "etcd.mw", wrong);
    came_to(
        &verdicts,
        &[
            ("two_leaders", "holds"),
            ("seen", "holds"),
            ("put_first", "holds"),
            ("elected_at_all", "violated"),
            ("read", "violated"),
        ],
    );
}

#[test]
fn postgresql_under_load() {
    tool!("pg_lsclusters");
    let (psql, setpriv) = (tool!("psql"), tool!("setpriv"));
    let program = harness::servers::postgres_program;
    let other_user = harness::servers::not_as_root(&setpriv);
    let other_user: Vec<&str> = other_user.iter().map(String::as_str).collect();
    let other_user = other_user.as_slice();
    let scratch = Scratch::for_everyone("rules-postgresql");
    let data: &Path = &scratch.path().join("data");
    std::fs::create_dir(data).unwrap();
    harness::servers::give_away(data);
    let (initdb, server, bench) = (program("initdb"), program("postgres"), program("pgbench"));
    let dir = data.display();
    let made = Command::new(other_user.first().copied().unwrap_or(&initdb))
        .args(other_user.iter().skip(1))
        .args(other_user.first().map(|_| &initdb))
        .args(["-D", data.to_str().unwrap(), "-A", "trust", "-U", "mw"])
        .args(["--no-sync", "--locale", "C"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let port = free_port();
    let script = format!(
        "{server} -D {dir}/ -p {port} -k {dir} -c fsync=off -h 127.0.0.1 &
         server=$!
         ask() {{ {psql} -X -A -t -q -h 127.0.0.1 -p {port} -U mw postgres \"$@\"; }}
         until ask -c 'select 1' >/dev/null 2>&1; do sleep 0.2; done
         ask -c 'create table journal (what text)'
         {bench} -i -s 1 -q -h 127.0.0.1 -p {port} -U mw postgres >/dev/null 2>&1
         {bench} -c 2 -t 20 -h 127.0.0.1 -p {port} -U mw postgres >/dev/null 2>&1 &
         pids=$!
         for i in 1 2 3 4; do
             ask -c 'select pg_advisory_lock(7) as lock_7' \
                 -c \"insert into journal values ('written $i')\" \
                 -c 'select pg_advisory_unlock(7)' >/dev/null &
             pids=\"$pids $!\"
         done
         wait $pids
         for i in 1 2 3 4; do
             ask -c \"select 'last ' || what from journal where what = 'written $i'\"
         done
         kill -INT $server
         wait $server || true"
    );
    let recorded = record(&scratch, other_user, &script);
    let said = &recorded.outcome.stdout;
    assert_eq!(said.matches("last written").count(), 4, "{said}");
    let wrong = "never locked: count(holds(l)) >= 1\nnever read: insert(n) -> row(n)\n";
    let verdicts = check(&scratch, &recorded, "postgresql.mw", wrong);
    came_to(
        &verdicts,
        &[
            ("lock_twice", "holds"),
            ("committed", "holds"),
            ("seen", "holds"),
            ("locked", "violated"),
            ("read", "violated"),
        ],
    );
}
