//! Several recordings looked at as one: processes keep their names, and places
//! are those of one list.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use protocol::id::{ProcessId, ProcessIx};
use recording::synthetic::story;
use recording::{Recording, Set};

#[test]
fn every_place_is_one_process_and_back() {
    let home = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let dir = home.path().join(name);
        story::write(&dir).unwrap();
        Arc::new(Recording::open(&dir).unwrap())
    };
    let recordings = vec![open("a"), open("b"), open("c")];
    let each = recordings[0].processes().len();
    assert!(each > 1);
    let set = Set::of_all(recordings.clone());
    assert_eq!(set.members().len(), 3);
    assert_eq!(set.len(), 3 * each);
    let mut seen = Vec::new();
    for place in set.places() {
        let id = set.id(place).unwrap();
        assert_eq!(set.place(id), Some(place));
        let (member, process) = set.at(place).unwrap();
        assert!(Arc::ptr_eq(member, &recordings[usize::from(id.member)]));
        assert_eq!(process.number, id.number);
        let log = set.log_at(place, process.first_event).unwrap();
        assert_eq!(log.event().unwrap().number, process.first_event);
        seen.push(id);
    }
    // Those of a member stand together, each once.
    assert_eq!(seen.len(), set.len());
    assert!(seen.is_sorted_by_key(|id| id.member));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), set.len());

    assert_eq!(set.id(ProcessIx(set.len() as u32)), None);
    assert_eq!(set.process(ProcessIx(u32::MAX)).map(|p| p.number), None);
    let number = seen[0].number;
    assert_eq!(set.place(ProcessId { member: 3, number }), None);
    assert_eq!(set.place(ProcessId::of_first(u32::MAX)), None);
    assert!(Set::of_all(Vec::new()).is_empty());
}

#[test]
fn members_have_names_of_their_own() {
    let named = |wanted: &[&str]| recording::join::member_names(wanted.iter().copied());
    assert_eq!(named(&["a", "b"]), ["a", "b"]);
    // The third wants what the second has.
    assert_eq!(named(&["a", "a-2", "a", "a"]), ["a", "a-2", "a-3", "a-4"]);
    // They are directories, and end the names of processes.
    assert_eq!(
        named(&["../x", "a@b:c", "", ".", "10.0.0.1"]),
        ["x", "a-b-c", "host", "host-2", "10.0.0.1"]
    );
}
