//! Rules judged by recordings of the bundled example: the lost update is found in
//! runs that went wrong and in no other, by its messages alone.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod harness;

use std::path::Path;
use std::process::{Command, Output};

use harness::{MW, Scratch, programs, repository};
use serde_json::Value;

fn check(args: &[&str], rules: &Path, recording: &Path) -> Output {
    let mut command = Command::new(MW);
    command.arg("check").args(args).arg(rules).arg(recording);
    command.output().unwrap()
}

fn objects(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_lost_update_is_found_in_wrong_runs_and_in_no_other() {
    let rules = repository().join("examples/bank/rules.mw");
    let scratch = Scratch::new("bank-rules");
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..80 {
        let recorded = scratch.record(&[programs::bank()]);
        let went_wrong = recorded.outcome.code() == 1;
        let output = check(&["--json"], &rules, &recorded.dir);
        let verdicts = objects(&output);
        let lost = verdicts
            .iter()
            .find(|own| own["rule"] == "lost_update")
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if went_wrong {
            wrong += 1;
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert_eq!(lost["verdict"], "violated", "{said}");
            assert_eq!(
                lost["captures"]["a"], "0",
                "only the bank's own account is shared: {said}"
            );
            let events = lost["events"].as_array().unwrap();
            assert_eq!(events.len(), 2, "{said}");
            // The command goes there.
            let last = events[1].as_str().unwrap();
            assert!(
                lost["goto"]
                    .as_str()
                    .unwrap()
                    .contains(&format!("goto {last}")),
                "{said}"
            );
            let cut = lost["cut"].as_object().unwrap();
            let (name, number) = last.rsplit_once(':').unwrap();
            assert_eq!(cut[name].as_u64().unwrap().to_string(), number, "{said}");
        } else {
            right += 1;
            assert_eq!(output.status.code(), Some(0), "{said}");
        }
        if right >= 2 && wrong >= 2 {
            return;
        }
    }
    panic!("{right} right and {wrong} wrong runs: too few of one");
}

#[test]
fn rules_are_judged_in_every_format() {
    let scratch = Scratch::new("check-formats");
    let recorded = scratch.record(&["/bin/sh", "-c", "echo one | cat"]);
    let rules = scratch.path().join("some rules.mw");
    let write = |text: &str| std::fs::write(&rules, text).unwrap();
    let status = |args: &[&str]| check(args, &rules, &recorded.dir).status.code();
    let text =
        |args: &[&str]| String::from_utf8(check(args, &rules, &recorded.dir).stdout).unwrap();
    write("never heard: send and bytes ~ \"one\" -> recv and bytes ~ \"one\"");
    assert_eq!(status(&[]), Some(1));
    assert!(text(&[]).contains("goto cat-0:"), "{}", text(&[]));
    assert!(
        text(&["--junit"]).contains("<failure message="),
        "{}",
        text(&["--junit"])
    );
    sarif_has_what_viewers_ask_for(&serde_json::from_str(&text(&["--sarif"])).unwrap());
    write("find heard: send and bytes ~ \"one\" -> recv and bytes ~ \"one\"");
    assert_eq!(status(&[]), Some(0));
    write("never x: send and bytes ~ \"two\"");
    assert_eq!(
        (status(&[]), status(&["--allow-vacuous"])),
        (Some(3), Some(0))
    );
    write("state s = cat-0: x == 1\nnever x: s");
    assert_eq!(status(&[]), Some(2));
    write("never x: sned");
    let output = check(&[], &rules, &recorded.dir);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("rules.mw:1:10: expected"), "{said}");
    assert!(said.contains("did you mean `send`?"), "{said}");
    let find = |condition: &str, more: &[&str]| {
        let mut command = Command::new(MW);
        command
            .args(["find", condition, "-r"])
            .arg(&recorded.dir)
            .args(more);
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, said) = find("send and bytes ~ \"one\"", &["--count"]);
    assert_eq!((code, said.trim()), (Some(0), "1"));
    assert_eq!(find("send and bytes ~ \"two\"", &["--count"]).0, Some(1));
    let (code, said) = find("state up = cat-*: running; up", &["--json", "--first"]);
    assert_eq!(code, Some(0));
    let found: Value = serde_json::from_str(said.trim()).unwrap();
    assert_eq!(found["values"]["cat-0: up"], "1");
    let learnt = Command::new(MW)
        .args(["check", "--learn"])
        .arg(&recorded.dir)
        .output()
        .unwrap();
    assert_eq!(learnt.status.code(), Some(0), "{learnt:?}");
}

/// What the standard demands, and what those that show it demand besides.
fn sarif_has_what_viewers_ask_for(sarif: &Value) {
    assert_eq!(sarif["version"], "2.1.0");
    assert!(sarif["$schema"].as_str().unwrap().contains("sarif-2.1.0"));
    let run = &sarif["runs"][0];
    let driver = &run["tool"]["driver"];
    assert!(driver["name"].is_string() && driver["version"].is_string());
    let result = &run["results"][0];
    assert_eq!(result["ruleId"], "heard");
    assert_eq!(result["level"], "error");
    assert!(!result["message"]["text"].as_str().unwrap().is_empty());
    let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
    let rule = &driver["rules"][index];
    assert_eq!(rule["id"], result["ruleId"]);
    for text in ["shortDescription", "fullDescription", "help"] {
        assert!(!rule[text]["text"].as_str().unwrap().is_empty(), "{rule}");
    }
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["region"]["startLine"], 1);
    // The file has a space in its name.
    let uri = place["artifactLocation"]["uri"].as_str().unwrap();
    assert!(
        uri.starts_with("file:///") && uri.ends_with("/some%20rules.mw"),
        "{uri}"
    );
    let prints = result["partialFingerprints"].as_object().unwrap();
    assert!(prints.values().all(Value::is_string) && !prints.is_empty());
    let goto = result["properties"]["goto"].as_str().unwrap();
    assert!(goto.contains("goto cat-0:"), "{goto}");
}

/// What is proposed after good runs holds in them, says orders, answers and ranges, and
/// does not hold in a run in which they are otherwise.
#[test]
fn what_is_learnt_holds_where_it_was_learnt() {
    let scratch = Scratch::new("learn");
    let mut runs = Vec::new();
    for numbers in ["1 2 3", "2 3 4"] {
        runs.push(scratch.record(&[
            "/bin/sh",
            "-c",
            &format!("for n in {numbers}; do echo ask $n; sleep 0.01; done | (while read a; do echo told ${{a#ask }}; done) | cat >/dev/null"),
        ]));
    }
    let mut command = Command::new(MW);
    command.args(["check", "--learn"]);
    let output = command
        .args(runs.iter().map(|run| &run.dir))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let learnt = String::from_utf8(output.stdout).unwrap();
    for part in [
        " before ",
        " leads to ",
        " within ",
        "never range_",
        "< 1 or ",
    ] {
        assert!(learnt.contains(part), "{part}: {learnt}");
    }
    let rules = scratch.path().join("learnt.mw");
    std::fs::write(&rules, &learnt).unwrap();
    for run in &runs {
        let output = check(&[], &rules, &run.dir);
        assert_eq!(output.status.code(), Some(0), "{output:?}\n{learnt}");
    }
    // Another number, and a question that is not answered.
    let other = scratch.record(&[
        "/bin/sh",
        "-c",
        "for n in 3 4 9; do echo ask $n; sleep 0.01; done | (while read a; do [ \"$a\" = 'ask 4' ] || echo told ${a#ask }; done) | cat >/dev/null",
    ]);
    let verdicts = objects(&check(&["--json"], &rules, &other.dir));
    let came_to = |part: &str, outcome: &str| {
        let mut named = verdicts
            .iter()
            .filter(|own| own["rule"].as_str().unwrap().contains(part));
        named.any(|own| own["verdict"] == outcome)
    };
    assert!(came_to("range_", "violated"), "{verdicts:?}");
    // The run ends before the time for an answer does, or after it.
    let unanswered = |outcome| came_to("sent_ask_leads_", outcome);
    assert!(
        unanswered("unknown") || unanswered("violated"),
        "{verdicts:?}"
    );
}

/// What recognizers emit is an event like any other: in lists, patterns, exports.
#[test]
fn higher_events_are_events_like_any_other() {
    let scratch = Scratch::new("higher");
    let recorded = scratch.record(&["/bin/sh", "-c", "echo one | cat"]);
    let rules = scratch.path().join("rules.mw");
    std::fs::write(
        &rules,
        "let told  = send and bytes ~ /(?<word>one)/\n\
         let heard = recv and process = cat-0 and bytes ~ /(?<word>one)/\n\
         recognizer passed: told(w) heard(w) do { emit pass(w) }\n",
    )
    .unwrap();
    let ask = |args: &[&str]| {
        let mut command = Command::new(MW);
        command.args(args).arg("--rules").arg(&rules);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let rec = recorded.dir.to_str().unwrap();
    let listed = ask(&["events", rec, "--json"]);
    let objects: Vec<Value> = listed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let higher: Vec<&Value> = objects
        .iter()
        .filter(|own| own["type"] == "emitted")
        .collect();
    let [pass] = higher.as_slice() else {
        panic!("one of them: {higher:?}");
    };
    assert_eq!(
        (&pass["call"], &pass["args"]["w"]),
        (&"pass".into(), &"one".into())
    );
    let cause = pass["causes"][0]["cause"].as_str().unwrap();
    assert!(cause.starts_with("sh-"), "{pass}");
    // It has the keys of any other, right behind the event that completed it.
    let at = objects.iter().position(|own| own == *pass).unwrap();
    let event = &objects[at - 1];
    assert_eq!(event["event"], pass["event"]);
    for key in pass.as_object().unwrap().keys() {
        assert!(event.get(key).is_some(), "{key}");
    }
    let text = ask(&["events", rec, "--where", "pass(w)"]);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("pass(w=one)  <- sh-"), "{text}");
    let exported: Value = serde_json::from_str(&ask(&["export", "--json", "-r", rec])).unwrap();
    let events = exported["events"].as_array().unwrap();
    let marked = events.iter().filter(|own| own.get("emits").is_some());
    let marked: Vec<&Value> = marked.collect();
    assert_eq!(marked.len(), 1, "{marked:?}");
    assert_eq!(marked[0]["event"], pass["event"]);
    assert_eq!(marked[0]["emits"][0], "pass(w=one)");
    let trace: Value = serde_json::from_str(&ask(&["export", "--perfetto", "-r", rec])).unwrap();
    let slices = trace["traceEvents"].as_array().unwrap();
    let slice = slices.iter().find(|own| own["cat"] == "emitted").unwrap();
    assert!(slice["dur"].as_f64().unwrap() > 0.0, "{slice}");
    for form in ["--dot", "--shiviz"] {
        let text = ask(&["export", form, "-r", rec]);
        assert!(text.contains("=> pass(w=one)"), "{form}: {text}");
    }
}
