//! The examples of docs/conditions.md come out as the page says.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod story;

use std::path::Path;

use story::Story;

/// The blocks of a kind, in order.
fn blocks<'p>(page: &'p str, kind: &str) -> Vec<&'p str> {
    let mark = format!("```{kind}\n");
    page.split(&mark)
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

#[test]
fn the_examples_of_the_page_come_out_as_it_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conditions.md");
    let page = std::fs::read_to_string(path).unwrap();
    let story = Story::new(blocks(&page, "run")[0]);
    let mut seen = 0;
    let mut off = Vec::new();
    for block in blocks(&page, "mw") {
        let verdicts = story.judge(block).verdicts;
        let mut expected = block.lines().filter_map(|line| {
            let (rule, said) = line.split_once("# => ")?;
            Some((rule.trim(), said.trim()))
        });
        for verdict in &verdicts {
            let (rule, said) = expected.next().unwrap_or_else(|| panic!("{verdict:?}"));
            assert!(rule.contains(&verdict.rule), "{rule}: {verdict:?}");
            let words = format!("{} {}", verdict.outcome.name(), story.places(verdict));
            if words.trim() != said {
                off.push(format!("{rule}: {}", words.trim()));
            }
            seen += 1;
        }
        assert_eq!(expected.next(), None);
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
    assert_eq!(seen, 20);
}
