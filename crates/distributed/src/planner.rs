//! How many devices a run gets.

use crate::{Error, Result};
use std::{fmt, str::FromStr};

/// How many devices are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// As many as there are.
    All,
    /// So many.
    Count(usize),
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.pad("auto"),
            Self::Count(count) => count.fmt(f),
        }
    }
}

impl FromStr for Wanted {
    type Err = Error;

    /// Reads `auto`, or a number from 1 on.
    fn from_str(text: &str) -> Result<Self> {
        match text.trim() {
            "auto" => Ok(Self::All),
            number => match number.parse() {
                Ok(count) if count > 0 => Ok(Self::Count(count)),
                _ => Err(Error::Devices {
                    problem: format!(
                        "--devices {text}: write a number of devices, or auto for all there are"
                    ),
                }),
            },
        }
    }
}

/// What a run asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// How many devices.
    pub wanted: Wanted,
    /// How few will do; as many as wanted, or one of all, if nothing is said.
    pub minimum: Option<usize>,
    /// Whether one process on the CPU will do where there are fewer.
    pub fallback: bool,
}

/// What a run gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// A device for each process.
    pub devices: Vec<String>,
    /// Why these.
    pub reason: String,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.devices.join(" "), self.reason)
    }
}

impl Request {
    /// The devices of a run on GPUs, of which there are `available`; `lacking` says why there are no more.
    ///
    /// # Errors
    /// [`Error::Devices`] if there are too few and the CPU will not do.
    pub fn gpus(&self, available: usize, lacking: &str) -> Result<Plan> {
        let (wanted, minimum) = match (self.wanted, self.minimum) {
            (Wanted::All, minimum) => (available, minimum.unwrap_or(1)),
            (Wanted::Count(wanted), minimum) => (wanted, minimum.unwrap_or(wanted)),
        };
        self.validate()?;
        let plan = |count: usize, reason: String| {
            Ok(Plan { devices: (0..count).map(|ordinal| format!("cuda:{ordinal}")).collect(), reason })
        };
        let there = format!("{available} GPU{} here", if available == 1 { "" } else { "s" });
        if available >= minimum.max(1) && available >= wanted.min(available).max(1) {
            let count = wanted.min(available);
            return plan(
                count,
                match self.wanted {
                    Wanted::All => format!("all of {there}"),
                    Wanted::Count(wanted) if wanted > count => {
                        format!("{wanted} wanted, {there}, at least {minimum} will do")
                    }
                    Wanted::Count(_) => format!("as asked, of {there}"),
                },
            );
        }
        let lacking = if lacking.is_empty() { String::new() } else { format!(": {lacking}") };
        if self.fallback {
            let reason = format!("{minimum} GPUs needed, {there}, and the CPU was allowed instead{lacking}");
            return Ok(Plan { devices: vec!["cpu".to_owned()], reason });
        }
        Err(Error::Devices {
            problem: format!(
                "{} GPUs are needed and there {} {available}{lacking}; ask for fewer by --devices, accept fewer by \
                 --min-devices, or the CPU by --fallback cpu",
                minimum.max(1),
                if available == 1 { "is" } else { "are" },
            ),
        })
    }

    /// The processes of a run on the CPU: one unless a number is asked for, because one uses all cores.
    ///
    /// # Errors
    /// [`Error::Devices`] for a minimum of more than the number asked for.
    pub fn processes(&self) -> Result<Plan> {
        self.validate()?;
        let (count, reason) = match self.wanted {
            // A minimum is a number that was asked for, too.
            Wanted::All => match self.minimum.unwrap_or(1) {
                0 | 1 => (1, "one process uses all cores".to_owned()),
                minimum => (minimum, "processes on the CPU, as few as asked".to_owned()),
            },
            Wanted::Count(count) => (count, "processes on the CPU, as asked".to_owned()),
        };
        Ok(Plan { devices: vec!["cpu".to_owned(); count], reason })
    }

    /// Refuses a request that contradicts itself, whatever the devices are.
    fn validate(&self) -> Result<()> {
        match (self.wanted, self.minimum) {
            (Wanted::Count(wanted), Some(minimum)) if minimum > wanted => Err(Error::Devices {
                problem: format!("--min-devices {minimum} is more than --devices {wanted}"),
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(wanted: &str, minimum: Option<usize>, fallback: bool) -> Request {
        Request { wanted: wanted.parse().unwrap(), minimum, fallback }
    }

    #[test]
    fn as_many_as_asked_for_and_there() {
        let count =
            |request: Request, available| request.gpus(available, "").map(|plan| plan.devices.len()).ok();
        assert_eq!(count(request("auto", None, false), 3), Some(3));
        assert_eq!(count(request("2", None, false), 3), Some(2));
        assert_eq!(count(request("4", None, false), 3), None);
        assert_eq!(count(request("4", Some(2), false), 3), Some(3));
        assert_eq!(count(request("4", Some(4), false), 3), None);
        assert_eq!(count(request("auto", Some(4), false), 3), None);
        assert_eq!(count(request("auto", None, false), 0), None);
        let plan = request("2", None, false).gpus(8, "").unwrap();
        assert_eq!(plan.devices, ["cuda:0", "cuda:1"]);
    }

    #[test]
    fn the_plan_says_why() {
        let text = request("4", Some(1), false).gpus(2, "").unwrap().to_string();
        assert!(text.contains("cuda:0 cuda:1") && text.contains("4 wanted, 2 GPUs here"), "{text}");
        let plan = request("4", None, true).gpus(0, "no driver").unwrap();
        assert!(plan.devices == ["cpu"] && plan.reason.contains("no driver"), "{plan}");
        let message = request("2", None, false).gpus(1, "no driver").unwrap_err().to_string();
        assert!(
            ["2 GPUs", "there is 1", "no driver", "--fallback cpu"].iter().all(|part| message.contains(part)),
            "{message}"
        );
        assert!(request("2", Some(3), true).gpus(4, "").unwrap_err().to_string().contains("--min-devices 3"));
        for text in ["0", "-1", "all", ""] {
            assert!(text.parse::<Wanted>().unwrap_err().to_string().contains("auto"), "{text}");
        }
        let processes = |wanted, minimum| request(wanted, minimum, false).processes();
        assert_eq!(processes("3", None).unwrap().devices, ["cpu"; 3]);
        assert_eq!(processes("auto", None).unwrap().devices, ["cpu"]);
        assert_eq!(processes("auto", Some(2)).unwrap().devices, ["cpu"; 2]);
        let message = processes("1", Some(2)).unwrap_err().to_string();
        assert!(message.contains("--min-devices 2 is more than --devices 1"), "{message}");
    }
}
