//! The gravity data: the published sets, drawn again.

use gradewise_zoo::data::gravity::{GravityData, GravitySet};

fn errors(data: &GravityData, guess: &[f64]) -> Vec<f64> {
    let width = 3 * data.states().particles();
    let rows = guess.chunks_exact(width).zip(data.states().target().chunks_exact(width));
    rows.map(|(a, b)| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / width as f64).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn simple_guesses_are_as_wrong_as_they_were_measured_to_be() {
    let data = GravitySet::Evaluation.load(5000).unwrap();
    let [(_, stay), (_, on), (_, orbit)] = data.guesses();
    let (stay, on, mut orbit) = (errors(&data, &stay), errors(&data, &on), errors(&data, &orbit));
    // Of 5,000 other samples: 0.0157, 0.0057 (0.0055 to 0.0062) and 0.00041, median 4e-7.
    assert!((0.014..0.0175).contains(&mean(&stay)), "{}", mean(&stay));
    assert!((0.0051..0.0066).contains(&mean(&on)), "{}", mean(&on));
    assert!((1e-5..1e-3).contains(&mean(&orbit)), "{}", mean(&orbit));
    orbit.sort_unstable_by(f64::total_cmp);
    assert!((2e-7..8e-7).contains(&orbit[2500]), "{}", orbit[2500]);
}

#[test]
fn sets_are_drawn_one_after_the_other() {
    let few = GravitySet::Valid.load(20).unwrap();
    assert_eq!(GravitySet::Valid.load(50).unwrap().select(&(0..20).collect::<Vec<_>>()).unwrap(), few);
    assert_ne!(GravitySet::Evaluation.load(20).unwrap(), few);
    let mean = |set: GravitySet, axis: usize| {
        let data = set.load(200).unwrap();
        let bodies = data.states().particles();
        let rows = data.states().loc().chunks_exact(3 * bodies);
        rows.map(|rows| rows[axis * bodies]).sum::<f64>() / 200.0
    };
    // 200 ± 20/√200, and 0 ± as much.
    assert!((mean(GravitySet::Moved, 0) - 200.0).abs() < 7.0 && mean(GravitySet::Moved, 1).abs() < 7.0);
    assert_eq!(GravitySet::Objects.load(3).unwrap().states().particles(), 6);
    let message = GravitySet::Valid.load(5001).unwrap_err().to_string();
    assert!(message.contains("5000, the published valid systems"), "{message}");
}
