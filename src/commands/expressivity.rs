//! `expressivity`: which structures the energy of a potential tells apart.

use clap::Args;
use gradewise_runner::{
    Command, Program,
    error::{Error, Result},
    output,
};
use gradewise_zoo::{
    expressivity::{DIFFERENT, EQUAL, Test, Verdict},
    tracks::Rank,
};
use serde_json::json;

/// Show which structures a potential of some rank and rounds tells apart, beside what theory predicts.
///
/// Each row is a pair of structures from the literature (Joshi et al. 2023; Pozdnyakov et al. 2020; Cen et al. 2024) that networks of low rank,
/// few rounds or low body order take for one. A cell has what was measured, then what theory predicts: whether the energies of potentials with
/// random parameters differ by more than rounding, in f64. Exits with 1 if a cell contradicts theory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise expressivity
  gradewise expressivity --rounds 4 --seeds 10
  gradewise expressivity --json")]
#[command(display_order = 1)] // In help, beside `eval`.
pub struct Expressivity {
    /// Networks of each kind, with random parameters from the seeds 0, 1, …
    #[arg(long, default_value_t = 3)]
    pub seeds: u64,
    /// The most rounds of messages.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A cell of the table.
struct Cell {
    rank: Rank,
    rounds: usize,
    difference: f64,
    predicted: Verdict,
}

impl Command for Expressivity {
    const NAME: &'static str = "expressivity";

    fn run(&self, _: &Program) -> Result<()> {
        if self.seeds == 0 || self.rounds == 0 {
            let text = format!("--seeds {} --rounds {}: write at least 1 of each", self.seeds, self.rounds);
            return Err(Error::Usage(text));
        }
        let mut rows = Vec::new();
        for test in Test::all() {
            let mut cells = Vec::new();
            for rank in Rank::ALL {
                for rounds in 1..=self.rounds {
                    let difference = test.measured(rank, rounds, self.seeds)?;
                    cells.push(Cell { rank, rounds, difference, predicted: test.predicted(rank, rounds) });
                }
            }
            rows.push((test, cells));
        }
        output::print(&if self.json { as_json(&rows) } else { self.table(&rows) })?;
        let wrong = |cell: &&Cell| Verdict::of(cell.difference).contradicts(cell.predicted);
        match rows.iter().flat_map(|(_, cells)| cells).filter(wrong).count() {
            0 => Ok(()),
            count => Err(Error::Failed(format!("{count} measurements contradict theory, or decide nothing"))),
        }
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Different => "yes",
        Verdict::Equal => "no",
        Verdict::Open => "?",
    }
}

impl Expressivity {
    fn table(&self, rows: &[(Test, Vec<Cell>)]) -> String {
        let mut text = format!(
            "do the energies of two structures differ? measured, predicted; {} networks with random parameters, f64, \
             differences above {DIFFERENT:.0e} of the interaction (equal: below {EQUAL:.0e})\n\n{:22} {:24}",
            self.seeds, "", "needs, by theory"
        );
        for rank in Rank::ALL {
            text += &format!("  {:<width$}", format!("rank {rank}, rounds"), width = 9 * self.rounds - 1);
        }
        text += &format!("\n{:47}", "");
        for _ in Rank::ALL {
            text += " ";
            (1..=self.rounds).for_each(|rounds| text += &format!(" {rounds:^7} "));
        }
        for (test, cells) in rows {
            text += &format!("\n{:22} {:24}", test.name(), test.needs());
            for cell in cells {
                let gap = if cell.rounds == 1 { "  " } else { " " };
                let found = Verdict::of(cell.difference);
                let mark = if found.contradicts(cell.predicted) { "!" } else { " " };
                text += &format!("{gap}{:>3} {:<3}{mark}", word(found), word(cell.predicted));
            }
        }
        let lines = text.lines().map(str::trim_end).collect::<Vec<_>>();
        lines.join("\n") + "\n"
    }
}

fn as_json(rows: &[(Test, Vec<Cell>)]) -> String {
    let cell = |cell: &Cell| {
        json!({
            "rank": cell.rank, "rounds": cell.rounds, "difference": cell.difference,
            "measured": word(Verdict::of(cell.difference)), "predicted": word(cell.predicted),
        })
    };
    let row = |(test, cells): &(Test, Vec<Cell>)| json!({"test": test.name(), "needs": test.needs(), "cells": cells.iter().map(cell).collect::<Vec<_>>()});
    let tests: Vec<_> = rows.iter().map(row).collect();
    format!("{}\n", json!({"different": DIFFERENT, "equal": EQUAL, "tests": tests}))
}
