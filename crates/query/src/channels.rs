//! The conversations in a recording.

use causality::History;
use protocol::id::ProcessIx;
use serde::Serialize;

use crate::{Error, find, names};

/// One direction of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Channel {
    /// Its name.
    pub channel: String,
    /// What it is made of.
    pub kind: &'static str,
    /// Its ends in words.
    pub name: String,
    /// The channel in the other direction.
    pub reverse: Option<String>,
    /// Processes that send.
    pub from: Vec<String>,
    /// Processes that receive.
    pub to: Vec<String>,
    /// How many sends.
    pub sends: u64,
    /// How many receives.
    pub receives: u64,
    /// Bytes put in.
    pub sent_bytes: u64,
    /// Bytes taken out.
    pub received_bytes: u64,
    /// Requests that were answered.
    pub round_trips: u64,
    /// How long that took.
    pub round_trip_ns: Option<RoundTrip>,
    /// Its number, and that of the other direction.
    #[serde(skip)]
    pub numbers: (u32, Option<u32>),
    /// It leads from who asked for the conversation to the other.
    #[serde(skip)]
    pub forward: bool,
    /// Processes that have a part in it.
    #[serde(skip)]
    pub processes: Vec<ProcessIx>,
}

/// How long requests waited for their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RoundTrip {
    /// The shortest.
    pub least: u64,
    /// On the average.
    pub mean: u64,
    /// The longest.
    pub most: u64,
}

impl Channel {
    /// A channel by the names of what it connects.
    pub fn new(history: &History, channel: &causality::Channel) -> Channel {
        let clock = history.recording().clock();
        let ns = |ticks: u64| {
            let rate = u128::from(clock.ticks_per_second.max(1));
            u64::try_from(u128::from(ticks) * 1_000_000_000 / rate).unwrap_or(u64::MAX)
        };
        let named = |processes: &[ProcessIx]| -> Vec<String> {
            let names = processes.iter().map(|p| names::process(history, *p));
            names.collect()
        };
        let trips = &channel.round_trips;
        Channel {
            channel: names::channel(channel.number),
            kind: channel.kind.name(),
            name: channel.name.clone(),
            reverse: channel.reverse.map(names::channel),
            from: named(&channel.senders),
            to: named(&channel.receivers),
            sends: channel.sends,
            receives: channel.receives,
            sent_bytes: channel.sent,
            received_bytes: channel.received,
            round_trips: trips.count,
            round_trip_ns: (trips.count > 0).then(|| RoundTrip {
                least: ns(trips.least),
                mean: ns(trips.mean()),
                most: ns(trips.most),
            }),
            numbers: (channel.number, channel.reverse),
            forward: channel.forward,
            processes: channel
                .senders
                .iter()
                .chain(&channel.receivers)
                .copied()
                .collect(),
        }
    }

    /// Whether anything ever went through it.
    pub fn is_used(&self) -> bool {
        self.sends > 0 || self.receives > 0
    }

    /// Who sends, in words.
    pub fn senders(&self) -> String {
        side(&self.from)
    }

    /// Who receives, in words.
    pub fn receivers(&self) -> String {
        side(&self.to)
    }

    /// Both ends in words.
    pub fn ends(&self) -> String {
        format!(
            "{} -> {}  {} {}",
            self.senders(),
            self.receivers(),
            self.kind,
            self.name
        )
    }
}

fn side(names: &[String]) -> String {
    match names {
        [] => "outside".to_string(),
        [one] => one.clone(),
        [first, rest @ ..] if rest.len() > 2 => format!("{first} and {} others", rest.len()),
        all => all.join("+"),
    }
}

/// All channels of a history.
pub fn list(history: &History) -> Vec<Channel> {
    let all = (0..history.channel_count()).filter_map(|number| history.channel(number));
    all.map(|channel| Channel::new(history, &channel)).collect()
}

/// The processes that these names choose; all, if there are none.
pub fn parties(history: &History, wanted: &[String]) -> Result<Vec<ProcessIx>, Error> {
    find::places(history.set(), wanted)
}
