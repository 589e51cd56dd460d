//! Events in words.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use protocol::id::{ProcessNo, Ticks};
use recording::render::{Limits, Renderer};
use recording::synthetic::story;
use recording::{Exit, Recording, ThreadNames, Timeline};

fn tell(json: bool) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    story::write(dir.path()).unwrap();
    let recording = Recording::open(dir.path()).unwrap();
    let mut renderer = Renderer::new(
        &recording,
        &ThreadNames::given(&recording),
        Limits::default(),
    );
    let mut timeline = Timeline::new(&recording, recording.processes().iter().map(|p| p.number));
    let mut lines = Vec::new();
    while timeline.advance() {
        let event = timeline.event().unwrap();
        renderer.before(&event);
        lines.push(if json {
            serde_json::to_string(&renderer.details(&event, usize::MAX)).unwrap()
        } else {
            format!(
                "{} {} {}",
                renderer.event_name(event.process, event.number),
                renderer.type_of(&event).name(),
                renderer.text(&event)
            )
        });
        renderer.after(&event);
    }
    lines
}

#[test]
fn a_story_reads_as_strace_would_tell_it() {
    let expected = include_str!("story.txt");
    let told = tell(false).join("\n") + "\n";
    if std::env::var_os("MW_BLESS").is_some() {
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/story.txt"),
            &told,
        )
        .unwrap();
    } else {
        assert_eq!(
            told, expected,
            "MW_BLESS=1 cargo test -p recording writes tests/story.txt"
        );
    }
}

#[test]
fn a_story_as_objects() {
    let objects: Vec<serde_json::Value> = tell(true)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let find = |name: &str| objects.iter().find(|o| o["event"] == name).unwrap();
    assert_eq!(
        *find("client-0:5"),
        serde_json::json!({
            "event": "client-0:5",
            "process": "client-0",
            "thread": "main-0",
            "time_ns": 44020,
            "type": "connect",
            "call": "connect",
            "args": {
                "fd": 3,
                "addr": { "sa_family": "AF_INET", "sin_port": 6379, "sin_addr": "127.0.0.1" },
                "addrlen": 16,
            },
            "result": 0,
            "phase": "end",
            "started": "client-0:4",
            "files": { "fd": "127.0.0.1:50712->127.0.0.1:6379" },
        })
    );
    let missing = objects.iter().find(|o| o["error"] == "ENOENT").unwrap();
    assert_eq!(
        (&missing["result"], &missing["args"]["path"]),
        (&(-2).into(), &"missing".into())
    );
    let received = objects
        .iter()
        .find(|o| o["type"] == "recv" && o["phase"] == "end")
        .unwrap();
    assert_eq!(received["args"]["buf"], "PING\r\n");
    assert_eq!(received["files"]["fd"], "127.0.0.1:6379->127.0.0.1:50712");
    let sent = objects.iter().find(|o| o["result"] == 1000).unwrap();
    assert_eq!(sent["args"]["buf"]["length"], 1000);
    assert_eq!(find("sh-0:3")["child"], "server-0");
}

#[test]
fn processes_know_how_they_began_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    story::write(dir.path()).unwrap();
    let recording = Recording::open(dir.path()).unwrap();
    let told: Vec<_> = recording
        .processes()
        .iter()
        .map(|process| {
            let life = recording.life(process);
            (
                process.name.as_str(),
                process.parent,
                life.exit,
                life.events,
                life.end,
            )
        })
        .collect();
    let killed = Exit::Killed {
        signal: 9,
        core: false,
    };
    assert_eq!(
        told,
        [
            ("sh-0", None, Exit::Exited(0), 12, Ticks(950_010)),
            ("server-0", Some(ProcessNo(0)), killed, 26, Ticks(960_000)),
            (
                "client-0",
                Some(ProcessNo(0)),
                Exit::Exited(3),
                9,
                Ticks(800_010)
            ),
        ]
    );
    let survey = recording.survey();
    assert_eq!(survey.total.events, 47);
    assert_eq!(survey.processes[&ProcessNo(1)].threads, 2);
    assert_eq!(survey.total.preemptions, 1);
}

#[test]
fn a_parent_that_waited_tells_how_a_child_ended() {
    // Without what the recorder saw and the child's own exit.
    use protocol::record::{begin, kind};
    use recording::Writer;
    use recording::synthetic::{LogBuilder, manifest};
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(dir.path(), &manifest(&["x"])).unwrap();
    let mut parent = LogBuilder::new(0, 4096);
    parent.other(kind::BEGIN, &[begin::FIRST, 0, 0, 100, 0, 0], &[]);
    parent.call(57, &[], 101, &[]).call(57, &[], 102, &[]);
    parent.start(61, &[u64::MAX, 0x1000, 0, 0], &[]);
    parent.at(9000).end(61, 101, &[(1, &0x8bu32.to_le_bytes())]);
    let mut info = [0u8; 128];
    info[8] = 1;
    info[16] = 102;
    info[24] = 7;
    parent.call(247, &[1, 102, 0x1000, 4, 0], 0, &[(2, &info)]);
    let mut logs = vec![parent];
    for (number, pid) in [(1, 101), (2, 102), (3, 103)] {
        let mut child = LogBuilder::new(number, 4096);
        let made_by = u64::from(number);
        child
            .at(2000)
            .other(kind::BEGIN, &[begin::FORK, 0, made_by, pid, 0, 0], &[]);
        logs.push(child);
    }
    for log in logs {
        log.chunks()
            .iter()
            .for_each(|chunk| writer.chunk(chunk).unwrap());
    }
    let recording = Recording::open(dir.path()).unwrap();
    let exits: Vec<_> = recording
        .processes()
        .iter()
        .map(|p| recording.life(p).exit)
        .collect();
    assert_eq!(
        exits,
        [
            Exit::Unknown,
            Exit::Killed {
                signal: 11,
                core: true
            },
            Exit::Exited(7),
            Exit::Unknown
        ]
    );
}
