//! Every syscall in the system's own libraries, judged by a full disassembler.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so and stops"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Text, direct_target};
use iced_x86::Mnemonic;
use patch::{Refusal, STUB_MAX, jump_bytes, plan, write_stub};

/// Plans all sites of one library, checks each plan, and tells the share that is patched.
fn survey(text: &Text) -> f64 {
    let mut starts = BTreeSet::new();
    let mut targets = BTreeMap::new();
    let mut sites = Vec::new();
    for inst in text.instructions() {
        starts.insert(inst.ip());
        if let Some(target) = direct_target(&inst) {
            targets.insert(target, inst.ip());
        }
        if inst.mnemonic() == Mnemonic::Syscall {
            sites.push(inst.ip());
        }
    }

    let (mut kept, mut after, mut before) = (0, 0, 0);
    let mut refused = BTreeMap::<String, Vec<String>>::new();
    for &site in &sites {
        let made = match plan(text.window(site), site) {
            Ok(made) => made,
            Err(refusal) => {
                let kind = format!("{refusal:?}");
                let kind = kind.split('(').next().unwrap_or_default().to_owned();
                refused
                    .entry(kind)
                    .or_default()
                    .push(format!("{site:x}: {refusal}"));
                continue;
            }
        };
        match (made.keeps_syscall(), made.after) {
            (true, _) => kept += 1,
            (_, 0) => before += 1,
            _ => after += 1,
        }

        let end = made.patch_start + made.patch_len as u64;
        let name = &text.name;
        for boundary in [made.patch_start, made.site, end, made.back()] {
            assert!(
                starts.contains(&boundary),
                "{name}: {site:x}: no instruction at {boundary:x}: {made:x?}"
            );
        }
        if let Some((to, from)) = targets.range(made.patch_start + 1..end).next() {
            panic!("{name}: {site:x}: {from:x} jumps to {to:x}, inside of {made:x?}");
        }
        if let Some(symbol) = text.symbols.range(made.patch_start + 1..end).next() {
            panic!("{name}: {site:x}: {symbol:x} has a name, inside of {made:x?}");
        }
        assert!(made.patch_len >= 5, "{name}: {site:x}: {made:x?}");
        let mut out = [0; STUB_MAX];
        let stub_addr = made.patch_start + 0x1000_0000;
        let stub = write_stub(&made, stub_addr, 0x1234, &mut out);
        assert_eq!(
            stub.map(|stub| stub.back),
            Some(made.back()),
            "{name}: {site:x}"
        );
        assert!(jump_bytes(&made, stub_addr).is_some(), "{name}: {site:x}");
    }

    let patched = kept + after + before;
    println!(
        "{}: {patched} of {} sites patched: {kept} keep the syscall, {after} move what is after it, {before} what is before it",
        text.name,
        sites.len()
    );
    for (kind, sites) in &refused {
        println!("    {kind}: {}", sites.join("; "));
    }
    if sites.is_empty() {
        1.0
    } else {
        f64::from(patched) / sites.len() as f64
    }
}

#[test]
fn nearly_every_site_in_libc_is_patched_and_no_jump_broken() {
    let texts = common::libraries(&["libc.so.6"]);
    assert!(!texts.is_empty(), "no libc to read");
    for text in texts {
        let share = survey(&text);
        assert!(share >= 0.97, "{}: only {share:.3} patched", text.name);
    }
}

#[test]
fn no_jump_is_broken_in_other_libraries() {
    let names = [
        "ld-linux-x86-64.so.2",
        "libpthread.so.0",
        "libcrypto.so.3",
        "libstdc++.so.6",
    ];
    for text in common::libraries(&names) {
        survey(&text);
    }
}

/// Sites are patched one after another in the same code, and each plan sees what the earlier
/// ones left. No two may overlap, and no way back may lead into another's bytes.
#[test]
fn plans_get_along_with_each_other() {
    for mut text in common::libraries(&["libc.so.6", "ld-linux-x86-64.so.2"]) {
        let mut sites: Vec<u64> = text
            .instructions()
            .filter(|inst| inst.mnemonic() == Mnemonic::Syscall)
            .map(|inst| inst.ip())
            .collect();
        // An arbitrary order, because a program does not go through its code by address.
        sites.sort_by_key(|site| site.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut plans = Vec::new();
        for &site in &sites {
            let Ok(made) = plan(text.window(site), site) else {
                continue;
            };
            let jump = jump_bytes(&made, made.patch_start + 0x4000_0000).unwrap();
            let from = (made.patch_start - text.base) as usize;
            text.bytes[from..from + made.patch_len].copy_from_slice(jump.as_slice());
            if made.keeps_syscall() {
                assert_eq!(plan(text.window(site), site), Err(Refusal::AlreadyPatched));
            } else {
                assert_eq!(plan(text.window(site), site), Err(Refusal::NotASyscall));
            }
            plans.push(made);
        }
        println!(
            "{}: {} of {} patched in turn",
            text.name,
            plans.len(),
            sites.len()
        );
        assert!(plans.len() * 100 >= sites.len() * 97);
        for one in &plans {
            for other in &plans {
                if one == other {
                    continue;
                }
                let end = other.patch_start + other.patch_len as u64;
                assert!(one.back() <= other.patch_start || one.back() >= end);
                assert!(one.patch_start < other.patch_start || one.patch_start >= end);
            }
        }
    }
}
