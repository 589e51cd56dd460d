//! What is kept of the beginnings of logs says what the logs say, and is not
//! believed when it is damaged or of another journal.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use recording::synthetic::story;
use recording::{CATALOG, Recording};

/// All that is known of the processes.
fn processes(recording: &Recording) -> Vec<String> {
    let all = recording.processes().iter();
    all.map(|process| format!("{process:?}")).collect()
}

#[test]
fn it_says_what_the_logs_say_or_nothing() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("story");
    story::write(&dir).unwrap();
    let read = Recording::open(&dir).unwrap();
    let expected = processes(&read);
    assert_eq!(expected.len(), 3);
    read.keep_catalog();
    let path = dir.join(CATALOG);
    let kept = std::fs::read(&path).unwrap();
    assert_eq!(processes(&Recording::open(&dir).unwrap()), expected);
    // Any byte of it may be wrong.
    for at in 0..kept.len() {
        let mut bytes = kept.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(processes(&Recording::open(&dir).unwrap()), expected, "{at}");
    }
    for len in [0, 7, 15, kept.len() - 1] {
        std::fs::write(&path, &kept[..len]).unwrap();
        assert_eq!(
            processes(&Recording::open(&dir).unwrap()),
            expected,
            "{len}"
        );
    }
    // Of a journal that was changed since, nothing is known.
    std::fs::write(&path, &kept).unwrap();
    let journal = dir.join("journal");
    let bytes = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, &bytes[..bytes.len() / 2]).unwrap();
    let torn = processes(&Recording::open(&dir).unwrap());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(processes(&Recording::open(&dir).unwrap()), torn);
}
