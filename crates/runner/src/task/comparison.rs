//! Results beside which a run stands.

use super::number;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Whose result it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// Of the run.
    Ours,
    /// Of a publication, on the same test split.
    Published,
    /// Of a guess without learning, such as the last frame again.
    Guess,
}

/// One result.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Compared {
    /// Its name in tables.
    pub name: String,
    /// Whose it is.
    pub whose: Whose,
    /// One value for each of [`Comparison::columns`], or fewer where only the first ones are known.
    pub values: Vec<f64>,
    /// The published standard deviation of the first value.
    pub deviation: Option<f64>,
}

impl Compared {
    /// A result without a deviation.
    pub fn new(name: &str, whose: Whose, values: Vec<f64>) -> Self {
        Self { name: name.to_owned(), whose, values, deviation: None }
    }

    /// A value as text: of a publication with the four decimals that it gives, which [`number`] would show as more exact than they are.
    pub fn text(&self, value: f64) -> String {
        let fixed = format!("{value:.4}");
        if self.whose == Whose::Published && fixed.parse() == Ok(value) { fixed } else { number(value) }
    }

    /// The deviation as text, with as many decimals as [`number`] gives its value: ` ± 0.0001`; empty without one.
    pub fn spread(&self) -> String {
        match (self.deviation, self.values.first()) {
            (Some(deviation), Some(value)) if value.abs() >= 1e-3 => format!(" ± {deviation:.4}"),
            (Some(deviation), _) => format!(" ± {}", number(deviation)),
            (None, _) => String::new(),
        }
    }
}

/// A table of results on the test split. Its `Display` is the table as text, with a mark at the run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// What is compared: `test MSE`.
    pub title: String,
    /// The names of the columns, the primary measure first; empty for one column that the title names.
    pub columns: Vec<String>,
    /// The results, in the order of the table.
    pub rows: Vec<Compared>,
    /// Text in place of the table, where the run is so far from the others that the table says less.
    pub instead: Option<String>,
}

impl Comparison {
    /// The width of a column of values.
    fn width(&self) -> usize {
        self.columns.iter().map(String::len).max().unwrap_or(0).max(9)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(instead) = &self.instead {
            return writeln!(f, "{instead}");
        }
        let width = self.width();
        let names = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(20);
        write!(f, "  {:<1$}", self.title, if self.columns.is_empty() { 0 } else { names })?;
        self.columns.iter().try_for_each(|column| write!(f, " {column:>width$}"))?;
        writeln!(f)?;
        for row in &self.rows {
            let mark = if row.whose == Whose::Ours { '>' } else { ' ' };
            write!(f, "{mark} {:<names$}", row.name)?;
            row.values.iter().try_for_each(|&value| write!(f, " {:>width$}", row.text(value)))?;
            write!(f, "{}", row.spread())?;
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_columns_under_their_names_and_a_mark() {
        let published =
            Compared { deviation: Some(0.0011), ..Compared::new("other", Whose::Published, vec![0.25]) };
        let mut table = Comparison {
            title: "test MSE".to_owned(),
            columns: vec!["mean".to_owned(), "median".to_owned()],
            rows: vec![Compared::new("this run", Whose::Ours, vec![0.5, 1e-6]), published],
            instead: None,
        };
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "  test MSE                  mean    median");
        assert_eq!(lines[1], "> this run                0.5000   1.00e-6");
        assert_eq!(lines[2], "  other                   0.2500 ± 0.0011");
        table.rows[1] = Compared { deviation: Some(1e-4), ..table.rows[1].clone() };
        assert_eq!(table.rows[1].spread(), " ± 0.0001");
        assert_eq!(
            (table.rows[1].text(0.0006), table.rows[0].text(0.0006)),
            ("0.0006".into(), "6.00e-4".into())
        );
        assert_eq!(table.rows[1].text(1.8e-6), "1.80e-6");
        table.columns.clear();
        assert_eq!(table.to_string().lines().next(), Some("  test MSE"), "no blanks at the end");
        table.instead = Some("published   far".to_owned());
        assert_eq!(table.to_string(), "published   far\n");
    }
}
