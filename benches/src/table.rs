//! Rows of text as one aligned table, for a terminal and for Markdown.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

pub struct Column {
    pub title: &'static str,
    pub align: Align,
}

pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(columns: Vec<Column>) -> Table {
        Table {
            columns,
            rows: Vec::new(),
        }
    }

    /// A row with too few cells is filled up with empty ones; cells too many are dropped.
    pub fn push(&mut self, mut cells: Vec<String>) {
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    pub fn text(&self) -> String {
        let widths = self.widths();
        let mut out = String::new();
        let titles: Vec<String> = self.columns.iter().map(|c| c.title.into()).collect();
        for cells in std::iter::once(&titles).chain(&self.rows) {
            let line = self.padded(cells, &widths).join("  ");
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// Aligned as well, so that the page reads the same without a renderer.
    pub fn markdown(&self) -> String {
        let widths = self.widths();
        let titles: Vec<String> = self.columns.iter().map(|c| c.title.into()).collect();
        let rule = self.columns.iter().zip(&widths).map(|(column, &width)| {
            let dashes = "-".repeat(width.max(3) - 1);
            match column.align {
                Align::Left => format!("{dashes}-"),
                Align::Right => format!("{dashes}:"),
            }
        });
        let mut out = format!("| {} |\n", self.padded(&titles, &widths).join(" | "));
        out.push_str(&format!("| {} |\n", rule.collect::<Vec<_>>().join(" | ")));
        for cells in &self.rows {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            out.push_str(&format!(
                "| {} |\n",
                self.padded(&cells, &widths).join(" | ")
            ));
        }
        out
    }

    fn widths(&self) -> Vec<usize> {
        let of_column = |index: usize, column: &Column| {
            let cells = self.rows.iter().map(|row| row[index].chars().count());
            cells.chain([column.title.len(), 3]).max().unwrap_or(3)
        };
        self.columns
            .iter()
            .enumerate()
            .map(|(index, column)| of_column(index, column))
            .collect()
    }

    fn padded(&self, cells: &[String], widths: &[usize]) -> Vec<String> {
        let pad = |((cell, column), &width): ((&String, &Column), &usize)| match column.align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        };
        cells
            .iter()
            .zip(&self.columns)
            .zip(widths)
            .map(pad)
            .collect()
    }
}

/// A number with as many digits as it deserves: 2.57, 25.7, 257, 2,568.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => grouped(value.round()),
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(vec![
            Column {
                title: "workload",
                align: Align::Left,
            },
            Column {
                title: "ratio",
                align: Align::Right,
            },
            Column {
                title: "ok",
                align: Align::Left,
            },
        ]);
        table.push(vec!["redis GET".into(), "0.91".into(), "yes".into()]);
        table.push(vec!["pipe".into(), "-".into()]);
        table
    }

    #[test]
    fn text_is_aligned_and_has_no_trailing_blanks() {
        let expected = "\
workload   ratio  ok
redis GET   0.91  yes
pipe           -
";
        assert_eq!(sample().text(), expected);
    }

    #[test]
    fn markdown_is_aligned_too() {
        let expected = "\
| workload  | ratio | ok  |
| --------- | ----: | --- |
| redis GET |  0.91 | yes |
| pipe      |     - |     |
";
        assert_eq!(sample().markdown(), expected);
    }

    #[test]
    fn numbers_keep_about_three_digits() {
        let cases = [
            (0.0, "0.00"),
            (2.5678, "2.57"),
            (-4.5, "-4.50"),
            (25.678, "25.7"),
            (256.78, "257"),
            (1000.0, "1,000"),
            (123456.7, "123,457"),
            (-1234567.0, "-1,234,567"),
        ];
        for (value, expected) in cases {
            assert_eq!(number(value), expected);
        }
    }
}
