//! Asking about one event gives what walking to it gives.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use causality::History;
use events::{Matcher, parse};
use protocol::syscall::Type;
use recording::render::{Limits, Renderer};
use recording::synthetic::story;
use recording::{Recording, ThreadNames, Timeline};

#[test]
fn types_are_known_without_what_came_before() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("story");
    story::write(&dir).unwrap();
    let recording = Arc::new(Recording::open(&dir).unwrap());
    let history = History::open(&recording, &|_| {}).unwrap();
    let names = ThreadNames::given(&recording);
    let patterns = ["file", "recv", "send", "io", "type = file and bytes ~ e"];
    let matchers: Vec<Matcher<'_>> = patterns
        .iter()
        .filter_map(|text| Some(Matcher::new(parse(text).ok()?, &history, &names)))
        .collect();
    assert!(matchers.len() >= 4);
    let mut renderer = Renderer::new(&recording, &names, Limits::default());
    let all = recording.processes().iter().map(|process| process.number);
    let mut timeline = Timeline::new(&recording, all);
    let (mut seen, mut files) = (0, 0);
    while timeline.advance() {
        let event = timeline.event().unwrap();
        renderer.before(&event);
        let id = history.event_id(&event).unwrap();
        let walked = renderer.type_of(&event);
        assert_eq!(history.type_of(id, &event), walked, "{id:?}");
        for matcher in &matchers {
            let walked = matcher.fits(&event, &renderer);
            assert_eq!(matcher.fits_at(id), Some(walked), "{id:?}");
        }
        seen += 1;
        files += usize::from(walked == Type::File);
        renderer.after(&event);
    }
    assert!(seen > 20 && files > 0, "{files} of {seen}");
}
