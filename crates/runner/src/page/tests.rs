//! Pages of made-up folders: their structure, and how a browser shows them where one is installed.

use super::*;
use crate::{
    plots::{Panel, Particle, unescaped},
    task::{Compared, Comparison, Whose},
};
use serde_json::json;
use std::{fs, process::Command};

/// What nobody should be able to put into a page.
const HOSTILE: &str = "</script><script>alert(1)</script><b>\"'&";

/// Makes the folder of a run of `steps` steps, of which `taken` are taken.
fn run_in(path: &Path, seed: u64, taken: u64, steps: u64) {
    fs::create_dir_all(path).unwrap();
    let mut records = Vec::new();
    for step in 1..=taken {
        let loss = (1.0 + seed as f64 / 10.0) / step as f64;
        records.push(json!({"step": step, "train_loss": loss, "lr": 1e-3, "gradient_norm": loss, "seconds": step as f64,
            "gradient_norms": {HOSTILE: loss, "layer.weight": 0.0}}));
        if step % 5 == 0 {
            records.push(json!({"step": step, "valid_mse": loss * 1.1, "seconds": step as f64}));
        }
    }
    let ended = taken == steps;
    if ended {
        records.push(
            json!({"step": taken, "test_mse": 0.02, "asymmetry": 4e-7, "seconds": 60.0, "joules": 5300.0}),
        );
    }
    let text: String = records.iter().map(|record| format!("{record}\n")).collect();
    fs::write(path.join("metrics.jsonl"), text).unwrap();
    fs::write(path.join("config.toml"), format!("[train]\nsteps = {steps} # a < b\nseed = {seed}\n"))
        .unwrap();
    fs::write(
        path.join("other.svg"),
        "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>",
    )
    .unwrap();
    let comparison = Comparison {
        title: "test MSE".to_owned(),
        columns: Vec::new(),
        rows: vec![
            Compared { deviation: Some(0.001), ..Compared::new(HOSTILE, Whose::Published, vec![0.01]) },
            Compared::new("this run", Whose::Ours, vec![0.02]),
        ],
        instead: None,
    };
    let about = About {
        task: "toy".to_owned(),
        title: HOSTILE.to_owned(),
        about: "A task of the tests".to_owned(),
        loss: "mean squared error".to_owned(),
        decides: "mse".to_owned(),
        group: "rotations".to_owned(),
        preset: "quick".to_owned(),
        changed: vec![Setting {
            key: "model.name".to_owned(),
            value: HOSTILE.to_owned(),
            preset: "3".to_owned(),
        }],
        parameters: 12_345,
        dtype: "f32".to_owned(),
        steps,
        sittings: vec![Sitting {
            begun: "2026-01-01T00:00:00Z".to_owned(),
            from_step: 0,
            command: vec!["gradewise".to_owned(), HOSTILE.to_owned()],
            version: "0.1.0".to_owned(),
            commit: None,
            host: None,
            device: "cpu (made up)".to_owned(),
            processes: 1,
            threads: 2,
        }],
        test_samples: ended.then_some(100),
        measures: match ended {
            true => vec![Measured {
                key: "mse".to_owned(),
                label: "MSE".to_owned(),
                value: Some(0.02),
                error: Some(0.01),
            }],
            false => Vec::new(),
        },
        comparison: ended.then_some(comparison),
    };
    about.write(&RunFolder::at(path)).unwrap();
    if ended {
        let particle = |charge: f64| Particle {
            charge,
            path: (0..11).map(|t| [charge * f64::from(t), 0.1 * f64::from(t * t), 1.0]).collect(),
            predicted: [charge * 10.0, 9.0, 1.1],
        };
        let panel = |error: f64| Panel {
            title: format!("{HOSTILE} {error}"),
            error,
            particles: vec![particle(1.0), particle(-1.0)],
        };
        crate::plots::trajectories(&path.join("trajectories.svg"), &[panel(0.1), panel(0.3)], "toy").unwrap();
    }
}

/// Asserts that elements nest and are closed, that ids are unique and known to the scripts, and that nothing is loaded from elsewhere.
fn assert_sound(page: &str) {
    const VOID: [&str; 3] = ["meta", "img", "input"];
    let (mut open, mut rest, mut ids): (Vec<&str>, &str, Vec<&str>) = (Vec::new(), page, Vec::new());
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag ends");
        let (tag, after) = (&rest[..end], &rest[end + 1..]);
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap();
        rest = after;
        if tag.starts_with('!') {
            continue;
        }
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes another element");
            continue;
        }
        ids.extend(tag.split(" id=\"").nth(1).and_then(|id| id.split('"').next()));
        for attribute in [" src=\"", " href=\""] {
            let target = tag.split(attribute).nth(1).unwrap_or("data:");
            assert!(target.starts_with("data:"), "{name} loads {target}");
        }
        assert!(!["link", "iframe", "object", "base", "form"].contains(&name), "<{name}>");
        if ["script", "style"].contains(&name) {
            let close = format!("</{name}>");
            rest = &rest[rest.find(&close).expect("closed") + close.len()..];
        } else if !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "{ids:?}");
    for id in ids {
        let is_used = [format!("getElementById(\"{id}\")"), format!("plot(\"{id}\"")];
        assert!(is_used.iter().any(|call| page.contains(call)), "no script draws into {id}");
    }
    for part in ["default-src &#39;none&#39;", "prefers-color-scheme: dark", "width=device-width", "uPlot"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script>alert"), "what was hostile is text");
    assert_eq!(page.matches("<script").count(), 2, "the data and our own");
}

/// A folder that holds the ended runs `seeds/seed-0` and so on.
fn runs_of_seeds(seeds: u64, steps: u64) -> tempfile::TempDir {
    let here = tempfile::tempdir().unwrap();
    for seed in 0..seeds {
        run_in(&here.path().join(format!("seeds/seed-{seed}")), seed, steps, steps);
    }
    here
}

#[test]
fn a_short_run_is_one_sound_page() {
    let here = tempfile::tempdir().unwrap();
    let run = here.path().join("run <1>");
    run_in(&run, 0, 20, 20);
    let path = write_of(&run).unwrap();
    assert!(is_page(&path) && !is_page(&run.join("config.toml")));
    let page = fs::read_to_string(path).unwrap();
    assert_sound(&page);
    for part in [
        "<b>0.0200</b>",
        "100 test samples",
        "<b>5.3 kJ</b>",
        "12,345",
        "change by 4.0e-7 of their size: exact up to rounding of f32",
        "this run</span>",
        "differs from the preset",
        "a &lt; b",
        "run &lt;1&gt;",
        "id=\"systems\"",
        "<noscript><img",
    ] {
        assert!(page.contains(part), "{part} is not in the page");
    }
    assert!(page.len() < 250_000, "{} bytes", page.len());
    assert!(run.join("loss.svg").is_file());
}

#[test]
fn an_unfinished_run_and_one_that_failed_say_so() {
    let here = tempfile::tempdir().unwrap();
    run_in(here.path(), 0, 3, 20);
    let page = fs::read_to_string(write_of(here.path()).unwrap()).unwrap();
    assert_sound(&page);
    assert!(page.contains("Not finished: records up to step 3 of 20.") && !page.contains("id=\"systems\""));
    fs::write(here.path().join("error.json"), json!({"error": HOSTILE}).to_string()).unwrap();
    let page = fs::read_to_string(write_of(here.path()).unwrap()).unwrap();
    assert_sound(&page);
    assert!(page.contains("Ended by an error after step 3: &lt;/script&gt;"));
    // A folder of an earlier version, whose run has taken no step yet.
    fs::remove_file(here.path().join("run.json")).unwrap();
    fs::write(here.path().join("metrics.jsonl"), "").unwrap();
    let page = fs::read_to_string(write_of(here.path()).unwrap()).unwrap();
    assert_sound(&page);
    assert!(page.contains("No step has been recorded yet."));
}

#[test]
fn runs_of_seeds_have_their_mean_and_those_of_other_settings_their_own() {
    let here = runs_of_seeds(3, 10);
    let seeds = here.path().join("seeds");
    let page = fs::read_to_string(write_of(&seeds).unwrap()).unwrap();
    assert_sound(&page);
    for part in [
        "test MSE 0.0200 ± 0.0000, mean and standard deviation of 3 seeds",
        "<td class=\"\">seed-2</td>",
        "train.seed",
        "\"mean\":[",
    ] {
        assert!(page.contains(part), "{part} is not in the page");
    }
    let figure = fs::read_to_string(seeds.join("seeds.svg")).unwrap();
    assert!(figure.contains("mean of 3 seeds") && figure.contains("<polygon"), "{figure}");
    let other = here.path().join("other");
    run_in(&other, 7, 20, 20);
    let mut all = Contents::of(&seeds).unwrap().runs(&seeds);
    all.push(other);
    let path = write_several("a & b", &all, &here.path().join("both.html")).unwrap();
    let page = fs::read_to_string(path).unwrap();
    assert_sound(&page);
    for part in ["seeds/seed-0", "Seeds together", "<td class=\"\">seeds</td>", "train.steps"] {
        assert!(page.contains(part), "{part} is not in the page");
    }
}

#[test]
fn a_page_is_not_drawn_more_often_than_its_cost_allows() {
    let here = tempfile::tempdir().unwrap();
    run_in(here.path(), 0, 3, 20);
    let (page, mut pace) = (RunFolder::at(here.path()).page(), Pace::new());
    pace.refresh(here.path());
    assert!(page.is_file());
    fs::remove_file(&page).unwrap();
    pace.refresh(here.path());
    assert!(!page.exists(), "twice within the least time");
}

/// The first of some browsers that starts.
fn browser() -> Option<&'static str> {
    let names = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
    names
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))
}

/// A browser without a window, of this width, told to prefer dark colours or light ones.
fn headless(browser: &str, profile: &Path, width: u32, is_dark: bool) -> Command {
    let mut command = Command::new(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--virtual-time-budget=4000",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.arg(format!("--window-size={width},4000"));
    // 0 is dark, 1 is light.
    command.arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!is_dark)));
    command
}

/// The elements of a page, as a browser has made them.
fn drawn(mut browser: Command, page: &Path) -> String {
    let output = browser.arg("--dump-dom").arg(format!("file://{}", page.display())).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_browser_draws_all_charts() {
    let Some(browser) = browser() else {
        eprintln!("not tested: no browser is installed");
        return;
    };
    let here = runs_of_seeds(2, 20);
    let profile = here.path().join("profile");
    let drawn = |page: &Path| drawn(headless(browser, &profile, 1280, false), page);
    let one = drawn(&write_of(&here.path().join("seeds/seed-0")).unwrap());
    assert_eq!(one.matches("class=\"uplot").count(), 3, "losses, rate and norm: {one}");
    for part in [
        "<canvas class=\"turns\"",
        "<option value=\"1\">",
        "download=\"seed-0.csv\"",
        "5e-2",
        " (20 records)",
    ] {
        assert!(one.contains(part), "{part} is not in the drawn page");
    }
    let several = drawn(&write_of(&here.path().join("seeds")).unwrap());
    assert_eq!(several.matches("class=\"uplot").count(), 1, "{several}");
    assert!(several.contains("mean + deviation"), "{several}");
}

/// What [`probe.js`](probe.js) finds in a page.
#[derive(Debug, serde::Deserialize)]
struct Probe {
    width: u32,
    dark: bool,
    seen: usize,
    faults: Vec<String>,
}

fn probed(browser: &str, here: &Path, page: &Path, width: u32, is_dark: bool) -> Probe {
    let probe = here.join("probe.html");
    let text = fs::read_to_string(page).unwrap();
    let (body, end) = text.rsplit_once("</body>").expect("a page has a body");
    // After the scripts of the page, which draw as soon as they are loaded, and what they put off by a frame.
    let script = format!(
        "<script>addEventListener(\"load\", () => setTimeout(() => {{{}}}, 500))</script>",
        include_str!("probe.js")
    );
    // In a frame, as a browser has no windows of less than 500 pixels.
    let framed = format!("{body}{script}</body>{end}").replace('&', "&amp;").replace('"', "&quot;");
    let style = format!("width:{width}px;height:4000px;border:0");
    fs::write(
        &probe,
        format!("<!doctype html><body><iframe style=\"{style}\" srcdoc=\"{framed}\"></iframe></body>"),
    )
    .unwrap();
    let page = drawn(headless(browser, &here.join("profile"), 1400, is_dark), &probe);
    let found = page.split("data-probe=\"").nth(1).expect("the probe has run").split('"').next().unwrap();
    let json = unescaped(&found.replace("&quot;", "\""));
    serde_json::from_str(&json).expect(&json)
}

/// On desktops and phones, in light and in dark; pictures are written into the folder that `GRADEWISE_PICTURES` names.
#[test]
fn pages_fit_their_windows_and_can_be_read() {
    let Some(browser) = browser() else {
        eprintln!("not tested: no browser is installed");
        return;
    };
    let here = runs_of_seeds(2, 20);
    let one = write_of(&here.path().join("seeds/seed-0")).unwrap();
    let several = write_of(&here.path().join("seeds")).unwrap();
    for (name, page) in [("run", one), ("seeds", several)] {
        for (width, is_dark) in [(1280, false), (390, true)] {
            let probe = probed(browser, here.path(), &page, width, is_dark);
            assert_eq!((probe.width, probe.dark), (width, is_dark));
            assert!(probe.seen > 30 && probe.faults.is_empty(), "{name}: {probe:#?}");
        }
        let Some(folder) = std::env::var_os("GRADEWISE_PICTURES") else { continue };
        fs::create_dir_all(&folder).unwrap();
        for (width, is_dark) in [(1280, false), (1280, true), (390, false), (390, true)] {
            let picture = format!("{name}-{width}-{}.png", if is_dark { "dark" } else { "light" });
            let file = Path::new(&folder).join(picture);
            let mut command = headless(browser, &here.path().join("profile"), width, is_dark);
            command.arg(format!("--screenshot={}", file.display())).arg(format!("file://{}", page.display()));
            assert!(command.output().unwrap().status.success() && file.is_file(), "{}", file.display());
        }
    }
    // The probe sees what is wrong.
    let poor = here.path().join("poor.html");
    let style = "<p style=\"width:1500px;color:#aaa\">pale and wide and so on and so on</p><p style=\"overflow:hidden;white-space:nowrap\">";
    fs::write(&poor, format!("<!doctype html><body>{style}{}</p></body>", "long ".repeat(300))).unwrap();
    let probe = probed(browser, here.path(), &poor, 390, false);
    for fault in ["scrolls across", "contrast 2.32", "cut off"] {
        assert!(probe.faults.iter().any(|found| found.starts_with(fault)), "{fault}: {probe:#?}");
    }
}
