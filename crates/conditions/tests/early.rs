//! By when things had happened, against every event that knows of them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod random;

use conditions::engine::early::Seen;
use conditions::history::At;
use random::{Random, Toy};

#[test]
fn an_event_had_happened_when_the_first_that_knows_of_it_was_recorded() {
    let mut earlier = 0;
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let mut toy = Toy::random(&mut random, 4, 24);
        // Some were noted late; those of one process are in order all the same.
        for times in &mut toy.times {
            let mut last = 0;
            for time in times {
                if random.chance(40) {
                    *time += random.below(30) as u64;
                }
                last = last.max(*time);
                *time = last;
            }
        }
        let recorded = |(process, number): &(usize, u32)| toy.times[*process][*number as usize];
        let seen = Seen::new(&toy, |events| events.iter().map(recorded).collect());
        for (process, times) in toy.times.iter().enumerate() {
            for (number, time) in (0u32..).zip(times) {
                let all = toy.clocks.iter().zip(&toy.times);
                let know = all.flat_map(|(clocks, times)| clocks.iter().zip(times));
                let first = know
                    .filter(|(clock, _)| clock[process] > number)
                    .map(|(_, time)| *time)
                    .min();
                let by = seen.by(process, At::after(number), *time);
                assert_eq!(Some(by), first, "seed {seed}: {process}:{number} {toy:?}");
                earlier += u32::from(by < *time);
                // What comes between two events is known when the next one is.
                let between = At {
                    bound: number,
                    step: 1,
                };
                assert_eq!(seen.by(process, between, *time), by, "seed {seed}");
            }
        }
    }
    assert!(earlier > 1000, "{earlier}");
}
