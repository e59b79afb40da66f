//! Settings for a kind of machine: files under `presets/hardware`, which come with the program.

use super::{ConfigError, Resolver};
use gradewise_ffi::{DeviceInfo, Driver};
use gradewise_kernels::build_info;
use gradewise_nn::choice::nearest;
use serde::Deserialize;
use std::fmt::Write;
use toml::Table;

/// The presets, from the smallest machine to the largest.
const FILES: [(&str, &str); 8] = [
    ("cpu", include_str!("../../presets/hardware/cpu.toml")),
    ("gpu-8gb", include_str!("../../presets/hardware/gpu-8gb.toml")),
    ("t4", include_str!("../../presets/hardware/t4.toml")),
    ("gpu-12gb", include_str!("../../presets/hardware/gpu-12gb.toml")),
    ("gpu-24gb", include_str!("../../presets/hardware/gpu-24gb.toml")),
    ("a100", include_str!("../../presets/hardware/a100.toml")),
    ("h100", include_str!("../../presets/hardware/h100.toml")),
    ("h200", include_str!("../../presets/hardware/h200.toml")),
];

const GIB: f64 = (1u64 << 30) as f64;

/// Settings for a kind of machine.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// The name for `--hardware`.
    pub name: &'static str,
    /// The contents of the file.
    pub text: &'static str,
    /// The machines it is for, as text.
    pub about: String,
    /// The cards it is for, by the names that `--hardware` accepts.
    cards: Vec<String>,
    /// The requirements on a GPU; `None` for the CPU.
    needs: Option<Needs>,
    settings: Table,
}

/// The minimum requirements on a GPU.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
struct Needs {
    capability: (u32, u32),
    /// Memory in GiB.
    memory: f64,
}

/// `[hardware]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    about: String,
    #[serde(default)]
    cards: Vec<String>,
    capability: Option<String>,
    #[serde(default)]
    memory_gib: f64,
}

/// The preset for this machine, with the reason.
#[derive(Clone, Debug)]
pub struct Detected {
    pub hardware: Hardware,
    pub reason: String,
}

impl Hardware {
    /// All presets.
    ///
    /// # Errors
    /// Only if a built-in preset is malformed.
    pub fn all() -> Result<Vec<Self>, ConfigError> {
        FILES.iter().map(|&(name, text)| Self::read(name, text)).collect()
    }

    fn read(name: &'static str, text: &'static str) -> Result<Self, ConfigError> {
        let bad = |reason: String| ConfigError::Form(format!("hardware preset {name}: {reason}"));
        let mut settings: Table = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        let header = settings.remove("hardware").ok_or_else(|| bad("[hardware] is missing".to_owned()))?;
        let Header { about, cards, capability, memory_gib: memory } =
            header.try_into().map_err(|error: toml::de::Error| bad(error.to_string()))?;
        let capability = capability.map(|text| {
            let numbers = text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
            numbers.ok_or_else(|| bad(format!("`{text}` is not a compute capability")))
        });
        let needs = capability.transpose()?.map(|capability| Needs { capability, memory });
        Ok(Self { name, text, about, cards, needs, settings })
    }

    /// Finds a preset by its name, by the name of a card (`rtx3060`, `NVIDIA GeForce RTX 3060`), or, for `auto`, the preset of this
    /// machine, with the reason.
    ///
    /// # Errors
    /// Unknown name; lists the valid ones.
    pub fn find(name: &str) -> Result<Detected, ConfigError> {
        if name == "auto" {
            return Self::detect();
        }
        let all = Self::all()?;
        if let Some(hardware) = all.iter().find(|hardware| hardware.name == name) {
            return Ok(Detected { hardware: hardware.clone(), reason: "as asked".to_owned() });
        }
        let card = card(name);
        if let Some(hardware) = all.iter().find(|hardware| hardware.cards.contains(&card)) {
            return Ok(Detected { hardware: hardware.clone(), reason: format!("for {card}") });
        }
        let presets: Vec<&str> = all.iter().map(|hardware| hardware.name).collect();
        let cards = all.iter().flat_map(|hardware| &hardware.cards).map(String::as_str);
        let names: Vec<&str> = presets.iter().copied().chain(cards).collect();
        let near = nearest(name, &names).or_else(|| nearest(&card, &names));
        let meant = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
        Err(ConfigError::Value {
            key: "--hardware",
            actual: format!("`{name}`{meant}"),
            expected: format!(
                "auto, one of {}, or the name of a card, such as rtx3060 (gradewise hardware shows them)",
                presets.join(", ")
            ),
        })
    }

    /// The preset for this machine: for the GPU that `--device cuda` selects, or for the CPU.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub fn detect() -> Result<Detected, ConfigError> {
        let build = build_info();
        let found = if build.kernels == 0 {
            Err("this build has no CUDA kernels".to_owned())
        } else {
            let device = Driver::load().and_then(|driver| DeviceInfo::new(&driver, 0));
            device.map_err(|error| error.to_string()).and_then(|info| {
                match build.code_for(info.compute_capability) {
                    Some(_) => Ok(info),
                    None => Err(format!("this build has no kernels for {}", info.name)),
                }
            })
        };
        let all = Self::all()?;
        Ok(match found {
            Err(reason) => Detected { hardware: for_gpu(&all, None).clone(), reason: first_line(&reason) },
            Ok(info) => {
                let (memory, (major, minor)) = (info.memory as f64 / GIB, info.compute_capability);
                let reason = format!("{}, compute capability {major}.{minor}, {memory:.0} GiB", info.name);
                let needs = Needs { capability: info.compute_capability, memory };
                Detected { hardware: for_gpu(&all, Some(needs)).clone(), reason }
            }
        })
    }

    /// Applies the settings to a configuration.
    ///
    /// # Errors
    /// As [`Resolver::table`].
    pub fn apply<'a>(&self, resolver: &'a mut Resolver) -> Result<&'a mut Resolver, ConfigError> {
        resolver.table(self.settings.clone(), self.name)
    }

    /// The settings in one line.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for (table, settings) in &self.settings {
            for (key, value) in settings.as_table().into_iter().flatten() {
                // Writing to a string cannot fail.
                let _ =
                    write!(text, "{}{table}.{key}={}", if text.is_empty() { "" } else { " " }, plain(value));
            }
        }
        text
    }

    /// The requirement, in short: `8.0, 11 GiB`.
    pub fn requirement(&self) -> String {
        self.needs.map_or_else(String::new, |Needs { capability: (major, minor), memory }| {
            format!("{major}.{minor} {memory:.0} GiB")
        })
    }
}

/// The name of a card in the form that the presets use: `NVIDIA GeForce RTX 3060 Ti` is `rtx3060ti`, `A100-SXM4-80GB` is `a100`. Suffixes
/// of variants with other memory are kept; `SUPER` is dropped, because such a card never has less memory than the card it is named after.
fn card(name: &str) -> String {
    let name = name.to_ascii_lowercase().replace(['-', '_'], " ");
    let words: Vec<&str> = name
        .split_whitespace()
        .skip_while(|word| matches!(*word, "nvidia" | "geforce" | "tesla" | "quadro"))
        .collect();
    let family = words.first().is_some_and(|word| matches!(*word, "rtx" | "gtx" | "titan"));
    let (model, rest) = words.split_at(words.len().min(if family { 2 } else { 1 }));
    let endings = rest.iter().filter(|word| matches!(**word, "ti" | "super" | "ada" | "laptop"));
    let card: String = model.iter().chain(endings).copied().collect();
    card.strip_suffix("super").map_or(card.clone(), str::to_owned)
}

fn plain(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// The most demanding preset that a GPU with these properties satisfies: compute capability counts before memory. Without a GPU, or if no
/// preset fits it, the first preset, for the CPU.
fn for_gpu(all: &[Hardware], gpu: Option<Needs>) -> &Hardware {
    let serves = |hardware: &&Hardware| match (hardware.needs, gpu) {
        (Some(needs), Some(gpu)) => gpu.capability >= needs.capability && gpu.memory >= needs.memory,
        (needs, _) => needs.is_none(),
    };
    let candidates = all.iter().filter(serves);
    let order =
        |a: &&Hardware, b: &&Hardware| a.needs.partial_cmp(&b.needs).unwrap_or(std::cmp::Ordering::Equal);
    candidates.max_by(order).unwrap_or(&all[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::fixture;

    #[test]
    fn every_preset_is_a_valid_layer_under_the_users_settings() {
        for hardware in Hardware::all().unwrap() {
            let mut resolver = fixture::resolver();
            hardware.apply(&mut resolver).unwrap();
            let config = fixture::resolve(&resolver).unwrap();
            let device = if hardware.name == "cpu" { "cpu" } else { "cuda" };
            assert_eq!(config.runtime.device.to_string(), device, "{}", hardware.name);
            assert!(!hardware.about.is_empty() && hardware.summary().contains("runtime.device="));
            let mut resolver = fixture::resolver();
            hardware.apply(&mut resolver).unwrap().assignment("runtime.compute=exact").unwrap();
            let config = fixture::resolve(&resolver).unwrap();
            assert_eq!(config.runtime.compute.to_string(), "exact", "what is set later wins");
        }
    }

    #[test]
    fn a_machine_gets_the_most_demanding_preset_that_it_satisfies() {
        let all = Hardware::all().unwrap();
        for (capability, memory, expected) in [
            ((7, 5), 7.8, "gpu-8gb"),
            ((7, 5), 14.6, "t4"),
            ((8, 6), 7.8, "gpu-8gb"),
            ((8, 6), 11.6, "gpu-12gb"),
            ((8, 9), 15.7, "gpu-12gb"),
            ((8, 9), 23.5, "gpu-24gb"),
            ((12, 0), 31.4, "gpu-24gb"),
            ((8, 0), 39.4, "a100"),
            ((8, 0), 79.1, "a100"),
            ((9, 0), 79.1, "h100"),
            ((9, 0), 19.5, "gpu-12gb"),
            ((9, 0), 139.8, "h200"),
            ((10, 0), 178.0, "h200"),
            ((6, 1), 8.0, "cpu"),
        ] {
            let found = for_gpu(&all, Some(Needs { capability, memory }));
            assert_eq!(found.name, expected, "{capability:?} {memory}");
        }
        assert_eq!(for_gpu(&all, None).name, "cpu");
    }

    #[test]
    fn cards_are_found_by_their_names_in_the_preset_that_their_memory_and_capability_call_for() {
        for (name, expected) in [
            ("rtx3060", "gpu-12gb"),
            ("RTX 3060", "gpu-12gb"),
            ("NVIDIA GeForce RTX 4080 SUPER", "gpu-12gb"),
            ("rtx-4070-ti", "gpu-12gb"),
            ("rtx4070ti", "gpu-12gb"),
            ("rtx4090", "gpu-24gb"),
            ("NVIDIA L40S", "a100"),
            ("rtx3060ti", "gpu-8gb"),
            ("RTX 6000 Ada Generation", "a100"),
            ("rtx2080ti", "gpu-8gb"),
            ("gtx1660", "gpu-8gb"),
            ("Tesla T4", "t4"),
            ("NVIDIA A100-SXM4-80GB", "a100"),
            ("a6000", "a100"),
            ("h100", "h100"),
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("gh200", "h100"),
            ("NVIDIA H200", "h200"),
            ("b200", "h200"),
        ] {
            assert_eq!(Hardware::find(name).unwrap().hardware.name, expected, "{name}");
        }
        // A laptop GPU has less memory than the desktop card of the same number.
        assert!(Hardware::find("NVIDIA GeForce RTX 4090 Laptop GPU").is_err());
        let all = Hardware::all().unwrap();
        let cards: Vec<&String> = all.iter().flat_map(|hardware| &hardware.cards).collect();
        for (position, found) in cards.iter().enumerate() {
            assert_eq!(&card(found), *found, "as users' names are read");
            assert!(!cards[..position].contains(found), "{found} is in two presets");
        }
    }

    #[test]
    fn a_preset_that_there_is_not_is_named_with_those_there_are() {
        let message = Hardware::find("h20").unwrap_err().to_string();
        assert!(
            message.contains("`h20`") && message.contains("did you mean") && message.contains("gpu-12gb")
        );
        assert_eq!(Hardware::find("t4").unwrap().hardware.name, "t4");
        let message = Hardware::find("rtx3061").unwrap_err().to_string();
        assert!(message.contains("did you mean `rtx3060`"), "{message}");
        assert!(!Hardware::detect().unwrap().reason.is_empty());
    }
}
