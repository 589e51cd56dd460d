//! Every link, none missing and none extra: a program whose messages say
//! themselves which send they are of, over every kind of channel, recorded
//! with several seeds.
//!
//! `MW_TRUTH_SEEDS=100 cargo test --release --test causes_truth` tries more.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use causality::History;
use harness::{Event, Recorded, Scratch, programs};
use recording::render::{Limits, Renderer};
use recording::{Recording, ThreadNames, Timeline};
use serde_json::Value;

type Links = BTreeSet<(String, String)>;

#[test]
fn all_links_are_found_and_no_others() {
    let seeds: u64 = match std::env::var("MW_TRUTH_SEEDS") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => 6,
    };
    for seed in 1..=seeds {
        for name in ["ground_truth", "ground_truth_waits"] {
            let scratch = Scratch::new(&format!("truth-{seed}"));
            let recorded = scratch.record(&[&programs::program(name), &seed.to_string()]);
            assert_eq!(
                recorded.outcome.stdout, "done\n",
                "{}",
                recorded.outcome.stderr
            );
            let mut truth = Truth::new(&recorded);
            truth.messages();
            truth.counts();
            truth.marks();
            truth.processes();
            if name == "ground_truth_waits" {
                truth.lives();
                truth.waits();
            }
        }
    }
}

/// Asking about one event gives what walking to it gives, whatever its process
/// inherited, redirected, copied and executed before.
#[test]
fn types_are_known_without_what_came_before() {
    let script = "exec 3< /etc/passwd; read x <&3; echo $x > f; \
        while read y; do echo $y; done < f | cat > g; \
        (exec 4>&1 > h; echo one; exec 1>&4; echo two; cat f g <&3) | wc -c; exec cat f - < g";
    let scratch = Scratch::new("types");
    let truth = programs::program("ground_truth_waits");
    for command in [vec!["sh", "-c", script], vec![truth.as_str(), "1"]] {
        let recorded = scratch.record(&command);
        let recording = Arc::new(Recording::open(&recorded.dir).unwrap());
        let history = History::open(&recording, &|_| {}).unwrap();
        let names = ThreadNames::given(&recording);
        let mut renderer = Renderer::new(&recording, &names, Limits::default());
        let all = recording.processes().iter().map(|process| process.number);
        let mut timeline = Timeline::new(&recording, all);
        let mut types = BTreeMap::new();
        while timeline.advance() {
            let event = timeline.event().unwrap();
            renderer.before(&event);
            let id = history.event_id(&event).unwrap();
            let walked = renderer.type_of(&event);
            assert_eq!(history.type_of(id, &event), walked, "{command:?} {id:?}");
            *types.entry(walked.name()).or_insert(0) += 1;
            renderer.after(&event);
        }
        assert!(
            types["file"] > 0 && types["recv"] > 0 && types["send"] > 0,
            "{types:?}"
        );
    }
}

struct Truth<'r> {
    recorded: &'r Recorded,
    by_name: HashMap<&'r str, &'r Event>,
    /// Of each event that took something, what it took first.
    firsts: HashMap<String, String>,
}

fn links<'e>(event: &'e Event, kinds: &'e [&str]) -> impl Iterator<Item = &'e Value> {
    let all = event.json()["causes"].as_array().unwrap().iter();
    all.filter(move |link| kinds.contains(&link["kind"].as_str().unwrap()))
}

fn causes(event: &Event, kinds: &[&str]) -> Vec<String> {
    let all = links(event, kinds);
    all.map(|link| link["cause"].as_str().unwrap().to_string())
        .collect()
}

/// The event at which a call that may block began.
fn start(event: &Event) -> String {
    event.started().unwrap_or(event.name()).to_string()
}

fn is_done(event: &Event) -> bool {
    let least = match event.call() {
        "msgsnd" | "mq_timedsend" => 0,
        _ => 1,
    };
    matches!(event.phase(), "call" | "end") && event.result().is_some_and(|result| result >= least)
}

fn is_wait_for_several(event: &Event) -> bool {
    matches!(
        event.call(),
        "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait"
    )
}

/// What an event carried, if that was text.
fn text(event: &Event) -> Option<String> {
    let args = &event.json()["args"];
    let data = match (&args["buf"], &args["msg"]["msg_iov"][0]) {
        (Value::Null, Value::Null) => &args["msg"],
        (Value::Null, data) | (data, _) => data,
    };
    let text = match data {
        Value::String(text) => Some(text.clone()),
        Value::Object(part) => part.get("text")?.as_str().map(str::to_string),
        _ => None,
    };
    // A message of a System V queue begins with its type.
    match event.call() {
        "msgsnd" | "msgrcv" => text.map(|text| text[CELL..].to_string()),
        _ => text,
    }
}

/// What a call is about: a descriptor, or a queue.
fn object(event: &Event) -> i64 {
    let names = ["fd", "mqd", "msqid"].into_iter();
    let mut found = names.filter_map(|name| event.arg(name).as_i64());
    found.next().unwrap()
}

fn number(cell: &str) -> u64 {
    cell[1..].parse().unwrap()
}

const CELL: usize = 8;

impl<'r> Truth<'r> {
    fn new(recorded: &'r Recorded) -> Truth<'r> {
        let by_name = recorded.events().iter().map(|e| (e.name(), e)).collect();
        Truth {
            recorded,
            by_name,
            firsts: HashMap::new(),
        }
    }

    fn compare(&self, what: &str, truth: &Links, found: &Links) {
        let show = |(cause, effect): &(String, String)| {
            let call = |name: &str| self.by_name.get(name).map_or("?", |event| event.call());
            format!("  {cause} {} -> {effect} {}\n", call(cause), call(effect))
        };
        let missing: String = truth.difference(found).map(show).collect();
        let extra: String = found.difference(truth).map(show).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "{what} of {}: of {} links, missing:\n{missing}extra:\n{extra}",
            self.recorded.dir.display(),
            truth.len()
        );
        assert!(!truth.is_empty(), "{what}: nothing was looked at");
    }

    /// Bytes: the number in each cell says which send it is of.
    fn messages(&mut self) {
        let mut sends: HashMap<u64, String> = HashMap::new();
        for event in self.recorded.all(|e| e.kind() == "send" && is_done(e)) {
            if let Some(text) = text(event).filter(|text| text.starts_with('A')) {
                let old = sends.insert(number(&text[..CELL]), start(event));
                assert!(old.is_none(), "two sends with one number: {}", event.json());
            }
        }
        // What was moved inside the kernel has no bytes in the recording; the
        // send before it must be found all the same.
        let moves = self.recorded.all(|e| matches!(e.call(), "splice" | "tee"));
        let moves: BTreeSet<&str> = moves.map(Event::name).collect();
        let mut truth = Links::new();
        let mut found = Links::new();
        // The beginning of a cell that was split, and who got parts of it.
        let mut halves: HashMap<(String, String, i64), (String, Vec<String>)> = HashMap::new();
        for event in self.recorded.all(|e| e.kind() == "recv" && is_done(e)) {
            let Some(text) = text(event) else { continue };
            let key = (
                event.process().to_string(),
                event.thread().to_string(),
                object(event),
            );
            let (before, waiting) = halves.remove(&key).unwrap_or_default();
            let all = before.clone() + &text;
            if !all.starts_with('A') {
                continue;
            }
            let peeks = event
                .arg("flags")
                .as_str()
                .is_some_and(|f| f.contains("MSG_PEEK"));
            let mut own = Links::new();
            for cell in all.as_bytes().chunks_exact(CELL) {
                let cell = std::str::from_utf8(cell).unwrap();
                own.insert((sends[&number(cell)].clone(), event.name().to_string()));
            }
            // Whoever got only part of a cell learns its number from the rest.
            let mut waiting = waiting;
            if all.len() >= CELL {
                let first = &sends[&number(&all[..CELL])];
                self.firsts.insert(event.name().to_string(), first.clone());
                for part in waiting.drain(..) {
                    self.firsts
                        .entry(part.clone())
                        .or_insert_with(|| first.clone());
                    truth.insert((first.clone(), part));
                }
            }
            truth.extend(own);
            let rest = all[all.len() / CELL * CELL..].to_string();
            if !peeks && !rest.is_empty() {
                waiting.push(event.name().to_string());
                halves.insert(key, (rest, waiting));
            }
            let linked = causes(event, &["message"]).into_iter();
            let linked = linked.filter(|cause| !moves.contains(cause.as_str()));
            found.extend(linked.map(|cause| (cause, event.name().to_string())));
        }
        self.compare("messages", &truth, &found);
    }

    /// Counts: each write adds a bit of its own.
    fn counts(&mut self) {
        let value = |event: &Event| {
            let text = event.file("fd") == "eventfd" && is_done(event);
            let bytes = &event.json()["args"]["buf"];
            text.then(|| bytes.clone()).map(|bytes| raw(&bytes))
        };
        let mut writes: HashMap<u64, String> = HashMap::new();
        let mut truth = Links::new();
        let mut found = Links::new();
        for event in self.recorded.all(|e| e.call() == "write") {
            if let Some(bit) = value(event) {
                writes.insert(bit, start(event));
            }
        }
        for event in self.recorded.all(|e| e.call() == "read") {
            let Some(sum) = value(event) else { continue };
            for bit in (0..64).map(|bit| 1u64 << bit).filter(|bit| sum & bit != 0) {
                let name = event.name().to_string();
                let write = &writes[&bit];
                self.firsts
                    .entry(name.clone())
                    .or_insert_with(|| write.clone());
                truth.insert((write.clone(), name));
            }
            let linked = causes(event, &["count"]).into_iter();
            found.extend(linked.map(|cause| (cause, event.name().to_string())));
        }
        self.compare("counts", &truth, &found);
    }

    /// What carries no bytes is marked: who follows a mark caused what is
    /// before the other mark.
    fn marks(&mut self) {
        const CAUSES: [&str; 14] = [
            "connect",
            "rt_sigqueueinfo",
            "kill",
            "tgkill",
            "flock",
            "fcntl",
            "futex",
            "semop",
            "semtimedop",
            "timerfd_settime",
            "listen",
            "close",
            "shutdown",
            "exit_group",
        ];
        const EFFECTS: [&str; 10] = [
            "accept",
            "signal",
            "flock",
            "fcntl",
            "futex",
            "semop",
            "semtimedop",
            "read",
            "connect",
            "poll",
        ];
        let mut threads: HashMap<(&str, &str), Vec<&Event>> = HashMap::new();
        for event in self.recorded.events() {
            threads
                .entry((event.process(), event.thread()))
                .or_default()
                .push(event);
        }
        let mark = |event: &Event| {
            let pid = event.arg("pid").as_i64().unwrap_or(0);
            (event.call() == "getpgid").then_some((pid / 10_000_000, pid % 10_000_000))
        };
        let mut made: HashMap<i64, &Event> = HashMap::new();
        for events in threads.values() {
            for (i, event) in events.iter().enumerate() {
                if let Some((1, id)) = mark(event) {
                    let mut after = events[i..].iter();
                    made.insert(id, after.find(|e| CAUSES.contains(&e.call())).unwrap());
                }
            }
        }
        let mut truth = Links::new();
        let mut found = Links::new();
        for events in threads.values() {
            for (i, event) in events.iter().enumerate() {
                let Some((which @ (2 | 3), id)) = mark(event) else {
                    continue;
                };
                let Some(cause) = made.get(&id) else { continue };
                let before = events[..i].iter().rev();
                let wanted = |e: &&&Event| match which {
                    2 => EFFECTS.contains(&e.call()),
                    _ => e.call() == "read" && is_done(e),
                };
                let effect = before.clone().find(wanted).unwrap();
                // Who takes its own lock again waits for nobody.
                let locks = matches!(cause.call(), "flock" | "fcntl");
                if locks && cause.process() == effect.process() {
                    continue;
                }
                truth.insert((start(cause), effect.name().to_string()));
                if cause.call() != "listen" {
                    self.firsts.insert(effect.name().to_string(), start(cause));
                }
                let mut kinds = vec![
                    "connect", "signal", "lock", "wake", "timer", "listen", "close",
                ];
                if effect.call().starts_with("sem") {
                    kinds.push("count");
                }
                let linked = causes(effect, &kinds).into_iter();
                found.extend(linked.map(|cause| (cause, effect.name().to_string())));
            }
        }
        self.compare("marks", &truth, &found);
    }

    /// Processes: begun by forks, waited for after their last event.
    fn processes(&mut self) {
        let mut last: HashMap<&str, &Event> = HashMap::new();
        for event in self.recorded.events() {
            last.insert(event.process(), event);
        }
        let pids: HashMap<u64, &str> = self
            .recorded
            .processes()
            .iter()
            .map(|p| (p.pid(), p.name()))
            .collect();
        let mut truth = Links::new();
        let mut found = Links::new();
        for event in self.recorded.events() {
            let name = event.name().to_string();
            if let Some(child) = event.child() {
                truth.insert((start(event), format!("{child}:0")));
            }
            if event.kind() == "wait" && is_done(event) {
                let child = pids[&(event.result().unwrap() as u64)];
                let last = last[child].name().to_string();
                self.firsts.insert(name.clone(), last.clone());
                truth.insert((last, name.clone()));
            }
            let kinds = ["fork", "exit"];
            if event.kind() != "signal" {
                let linked = causes(event, &kinds).into_iter();
                found.extend(linked.map(|cause| (cause, name.clone())));
            }
        }
        self.compare("processes", &truth, &found);
    }

    /// The events of each thread, in order.
    fn threads(&self) -> HashMap<(&'r str, &'r str), Vec<&'r Event>> {
        let mut threads: HashMap<(&str, &str), Vec<&Event>> = HashMap::new();
        for event in self.recorded.events() {
            threads
                .entry((event.process(), event.thread()))
                .or_default()
                .push(event);
        }
        threads
    }

    /// Threads begin because of who made them, images because of an exec, and
    /// who waits for a vfork goes on when the child is another program.
    fn lives(&self) {
        let threads = self.threads();
        let mut truth = Links::new();
        let mut found = Links::new();
        let images = |process: &str| {
            let own = self.recorded.events().iter();
            let name = process.to_string();
            own.filter(move |e| e.process() == name && e.call() == "begin")
                .skip(1)
        };
        for (number, event) in self.recorded.events().iter().enumerate() {
            let name = event.name().to_string();
            if let Some(thread) = event.child_thread() {
                let first = threads[&(event.process(), thread)][0];
                truth.insert((start(event), first.name().to_string()));
            }
            if event.call() == "begin" && event.number() > 0 {
                let before = self.recorded.events()[..number].iter().rev();
                let mut execs =
                    before.filter(|e| e.process() == event.process() && e.call() == "execve");
                truth.insert((execs.next().unwrap().name().to_string(), name.clone()));
            }
            let waited = event.phase() == "end" && event.kind() == "fork";
            if let Some(child) = event.child().filter(|_| waited)
                && let Some(image) = images(child).next()
            {
                truth.insert((image.name().to_string(), name.clone()));
            }
            let linked = causes(event, &["thread", "exec"]).into_iter();
            found.extend(linked.map(|cause| (cause, name.clone())));
        }
        self.compare("lives", &truth, &found);
    }

    /// Whoever waits for several takes something from each that was ready: that
    /// made it ready.
    fn waits(&self) {
        let mut truth = Links::new();
        let mut found = Links::new();
        for events in self.threads().values() {
            for (i, wait) in events.iter().enumerate() {
                if !is_wait_for_several(wait) || !is_done(wait) {
                    continue;
                }
                let name = wait.name().to_string();
                let after = events[i + 1..].iter();
                let mut took = 0;
                for take in after.take_while(|event| !is_wait_for_several(event)) {
                    let closed = causes(take, &["close"]);
                    let first = self.firsts.get(take.name()).or(closed.first());
                    // Who waits for a child when there is nothing else any
                    // more has not seen it before.
                    let Some(first) = first.filter(|_| take.kind() != "wait" || took == 0) else {
                        continue;
                    };
                    took += 1;
                    truth.insert((first.clone(), name.clone()));
                    // What comes from the new connection is another matter.
                    if take.kind() == "accept" {
                        break;
                    }
                }
                let linked = causes(wait, &["ready"]).into_iter();
                found.extend(linked.map(|cause| (cause, name.clone())));
            }
        }
        self.compare("waits", &truth, &found);
    }
}

/// Eight bytes, however they are written in JSON.
fn raw(value: &Value) -> u64 {
    let bytes: Vec<u8> = match value {
        Value::String(text) => text
            .chars()
            .map(|c| u8::try_from(c as u32).unwrap())
            .collect(),
        Value::Object(object) => {
            let hex = object.get("hex").and_then(Value::as_str).unwrap();
            let pairs = hex.as_bytes().chunks(2);
            pairs
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect()
        }
        other => panic!("{other}"),
    };
    u64::from_le_bytes(bytes.try_into().unwrap())
}
