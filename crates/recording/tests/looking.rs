//! An event that is looked at by itself is the event that one comes to by reading
//! its log from the beginning, wherever the log was cut into chunks.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use recording::synthetic::story;
use recording::{Event, Recording};

/// All that is known of an event.
fn told(event: &Event<'_>) -> String {
    let data: Vec<_> = (0..6)
        .map(|i| event.argument(i).map(|data| data.bytes.to_vec()))
        .collect();
    format!(
        "{} {} {:?} {:?} {:?} {} {:?} {data:?}",
        event.name(),
        event.number,
        event.phase,
        event.started,
        event.args,
        event.args_known,
        event.result,
    )
}

#[test]
fn an_event_is_the_same_by_itself() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("story");
    story::write(&dir).unwrap();
    let recording = Recording::open(&dir).unwrap();
    let mut ends = 0;
    for process in recording.processes() {
        let mut log = recording.log(process.number);
        while log.advance() {
            let event = log.event().unwrap();
            let by_itself = recording.log_at(process.number, event.number).unwrap();
            let by_itself = by_itself.event().unwrap();
            assert_eq!(told(&by_itself), told(&event));
            // One whose start is in a chunk before it.
            let mut near = recording.log_near(process.number, event.number);
            near.advance_to(event.number);
            ends += u32::from(near.event().unwrap().started != event.started);
        }
    }
    assert!(
        ends > 0,
        "no call of the story goes over the end of a chunk"
    );
}
