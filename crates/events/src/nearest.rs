//! "Did you mean": the known word nearest to the one that was typed.

/// The word in `known` that is nearest to `typed`, if any is near.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = typed.chars().count();
    // Of a word of a letter or two one must be right.
    let most = letters.div_ceil(2);
    let far = |word: &str| (word.len().max(typed.len()) / 3 + 1).min(most);
    known
        .into_iter()
        // So many must be added or dropped at least: no need to count further.
        .filter(|word| word.chars().count().abs_diff(letters) <= far(word))
        .map(|word| (distance(typed, word), word))
        .filter(|(distance, word)| *distance <= far(word))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// How many letters must be added, dropped, changed or swapped with their
/// neighbour.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let mut previous = None;
    for (i, x) in a.chars().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX / 2);
            let mut cost = (at(&last, j) + usize::from(x != *y))
                .min(at(&last, j + 1) + 1)
                .min(at(&row, j) + 1);
            if j > 0 && Some(*y) == previous && b.get(j - 1) == Some(&x) {
                cost = cost.min(at(&before, j - 1) + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut last, row);
        previous = Some(x);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_or_none() {
        let known = ["send", "recv", "connect", "accept"];
        assert_eq!(nearest("sned", known), Some("send"));
        assert_eq!(nearest("conect", known), Some("connect"));
        assert_eq!(nearest("xyzzy", known), None);
        assert_eq!(nearest("ab", ["brk", "abc"]), Some("abc"));
        assert_eq!(nearest("bb", ["brk"]), None);
        // Far longer than any, and no time is lost with it.
        assert_eq!(nearest(&"send".repeat(1_000_000), known), None);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("", "abc"), 3);
    }
}
