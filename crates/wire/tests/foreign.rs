//! Whoever is at the other end: no bytes make reading panic, take memory that
//! was only announced, or be taken for what they are not.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::io::Cursor;

use proptest::prelude::*;
use wire::{Answer, Error, File, FromAgent, Job, Request, ToAgent, Whom, frame, opening};

fn requests() -> impl Strategy<Value = ToAgent> {
    let text = || "[a-z/ ]{0,20}";
    let job = (
        prop::collection::vec(text(), 0..4),
        prop::option::of(text()),
        prop::collection::vec((text(), text()), 0..3),
        any::<bool>(),
    )
        .prop_map(|(command, directory, environment, full)| Job {
            command,
            directory,
            environment,
            outlives_full_disk: full,
        });
    let request = prop_oneof![
        Just(Request::Facts),
        Just(Request::Time),
        Just(Request::List),
        (text(), any::<bool>()).prop_map(|(program, takes_over)| Request::Claim {
            program,
            takes_over
        }),
        job.prop_map(Request::Record),
        (any::<u32>(), any::<i32>()).prop_map(|(run, signal)| Request::Signal {
            run,
            signal,
            to: Whom::All
        }),
        text().prop_map(|recording| Request::Files { recording }),
        (text(), text(), any::<u64>()).prop_map(|(recording, file, from)| Request::Fetch {
            recording,
            file,
            from
        }),
    ];
    prop_oneof![
        (any::<u32>(), request).prop_map(|(id, request)| ToAgent::Request { id, request }),
        any::<u32>().prop_map(ToAgent::Cancel),
    ]
}

fn answers() -> impl Strategy<Value = FromAgent> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..300);
    let answer = prop_oneof![
        Just(Answer::Facts(Box::default())),
        any::<u64>().prop_map(Answer::Time),
        (any::<bool>(), bytes()).prop_map(|(is_error, bytes)| Answer::Output { is_error, bytes }),
        any::<i32>().prop_map(|status| Answer::Ended { status }),
        bytes().prop_map(Answer::Data),
        any::<u64>().prop_map(Answer::Zeroes),
        ("[a-z]{0,9}", any::<u64>(), any::<Option<(u64, u64)>>()).prop_map(
            |(name, length, digest)| {
                Answer::File(File {
                    name,
                    length,
                    digest,
                })
            }
        ),
    ];
    prop_oneof![
        (any::<u32>(), answer).prop_map(|(id, answer)| FromAgent::Answer { id, answer }),
        (any::<u32>(), prop::option::of("[a-z ]{0,30}"))
            .prop_map(|(id, failure)| FromAgent::End { id, failure }),
    ]
}

/// All that can be read before the bytes end or make no sense.
fn read_all<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> (Vec<T>, Error) {
    let (mut from, mut buffer, mut found) = (Cursor::new(bytes), Vec::new(), Vec::new());
    loop {
        match frame::read(&mut from, &mut buffer) {
            Ok(message) => found.push(message),
            Err(error) => return (found, error),
        }
        assert!(buffer.capacity() <= 2 * frame::MAX);
    }
}

proptest! {
    #[test]
    fn what_is_sent_is_received(list in prop::collection::vec(requests(), 0..6), back in prop::collection::vec(answers(), 0..6)) {
        let mut bytes = Vec::new();
        for message in &list {
            frame::write(&mut bytes, message).unwrap();
        }
        let (found, end) = read_all::<ToAgent>(&bytes);
        prop_assert_eq!(found, list);
        prop_assert!(matches!(end, Error::Closed));
        let mut bytes = Vec::new();
        for message in &back {
            frame::write(&mut bytes, message).unwrap();
        }
        prop_assert_eq!(read_all::<FromAgent>(&bytes).0, back);
    }

    #[test]
    fn any_bytes_are_an_answer_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        read_all::<ToAgent>(&bytes);
        read_all::<FromAgent>(&bytes);
        let _ = opening::read(&mut Cursor::new(&bytes));
    }

    #[test]
    fn changed_and_cut_bytes_are_too(
        list in prop::collection::vec(answers(), 1..6),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        for message in &list {
            frame::write(&mut bytes, message).unwrap();
        }
        let whole = bytes.clone();
        for (at, value) in &changes {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        bytes.truncate(keep.index(bytes.len() + 1));
        let (found, _) = read_all::<FromAgent>(&bytes);
        if whole.starts_with(&bytes) {
            prop_assert!(list.starts_with(&found));
        }
    }
}

#[test]
fn a_length_that_is_announced_takes_no_memory() {
    let mut bytes = (frame::MAX as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(b"short");
    let mut buffer = Vec::new();
    let read = frame::read::<ToAgent>(&mut Cursor::new(&bytes), &mut buffer);
    assert!(matches!(read, Err(Error::Torn)));
    assert!(buffer.capacity() < 4096, "{}", buffer.capacity());
    let more = (frame::MAX as u32 + 1).to_le_bytes();
    let read = frame::read::<ToAgent>(&mut Cursor::new(&more), &mut buffer);
    assert!(matches!(read, Err(Error::TooLong(_))));
}

#[test]
fn an_opening_says_who_speaks() {
    let mut bytes = Vec::new();
    opening::write(&mut bytes).unwrap();
    assert_eq!(
        opening::read(&mut Cursor::new(&bytes)).unwrap(),
        opening::VERSION
    );
    let http = b"HTTP/1.1 400 Bad Request\r\n";
    let read = opening::read(&mut Cursor::new(&http));
    assert!(matches!(read, Err(Error::Foreign)));
}
