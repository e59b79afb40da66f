//! Which process of how many this one is: what launchers tell by environment variables.

use crate::{Error, Result};
use std::{env, fmt, time::Duration};

/// Where rank 0 is found unless something else is said.
const LOOPBACK: &str = "127.0.0.1";
/// The port that `torchrun` uses, too, unless something else is said.
const PORT: u16 = 29500;
/// How long processes wait for each other.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One of several processes that work on the same thing.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// Which of all processes this is, from 0.
    pub rank: usize,
    /// Number of processes.
    pub world: usize,
    /// Which of the processes of this host this is, from 0.
    pub local_rank: usize,
    /// Number of processes of this host, if the launcher tells.
    pub local_world: Option<usize>,
    /// Host of rank 0.
    pub host: String,
    /// Port at which rank 0 listens.
    pub port: u16,
    /// The secret by which the processes know each other.
    pub token: Option<String>,
    /// How long to wait for processes that are missing or silent.
    pub timeout: Duration,
    /// Who started the processes.
    pub launcher: &'static str,
}

/// A way of saying which process this is.
struct Family {
    launcher: &'static str,
    rank: &'static str,
    world: &'static str,
    local_rank: &'static str,
    local_world: &'static str,
}

/// In the order in which they are asked: a launcher that another one starts is nearer to the process.
const FAMILIES: [Family; 3] = [
    Family {
        launcher: "torchrun",
        rank: "RANK",
        world: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_world: "LOCAL_WORLD_SIZE",
    },
    Family {
        launcher: "mpirun",
        rank: "OMPI_COMM_WORLD_RANK",
        world: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_world: "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    Family {
        launcher: "srun",
        rank: "SLURM_PROCID",
        world: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        local_world: "SLURM_NTASKS_PER_NODE",
    },
];

impl Launch {
    /// What the environment says; `None` if no launcher started this process, or it started only one.
    ///
    /// Understood are `torchrun` (`RANK`, `WORLD_SIZE`, `LOCAL_RANK`), Open MPI's `mpirun` (`OMPI_COMM_WORLD_*`) and Slurm's `srun`
    /// (`SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_LOCALID`), in this order. `MASTER_ADDR` and `MASTER_PORT` say where rank 0 listens,
    /// loopback by default; `GRADEWISE_PORT` overrides the port. `GRADEWISE_TOKEN` is the shared secret, `GRADEWISE_TIMEOUT` the
    /// seconds to wait for a process.
    ///
    /// # Errors
    /// [`Error::PartialEnvironment`] if some variables of a launcher are missing; [`Error::Environment`] if they contradict each
    /// other; [`Error::NoToken`].
    pub fn from_env() -> Result<Option<Self>> {
        Self::from_variables(|name| env::var(name).ok())
    }

    /// As [`from_env`](Self::from_env), with variables from elsewhere.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        // Inside an allocation Slurm sets some of its variables for every process, started by srun or not.
        let started = |family: &&Family| match family.launcher {
            "srun" => variable(family.rank).is_some() && variable(family.local_rank).is_some(),
            _ => [family.rank, family.world, family.local_rank].iter().any(|name| variable(name).is_some()),
        };
        let Some(family) = FAMILIES.iter().find(started) else { return Ok(None) };
        let names = [family.rank, family.world, family.local_rank];
        let (present, missing): (Vec<&str>, Vec<&str>) =
            names.into_iter().partition(|name| variable(name).is_some());
        if !missing.is_empty() {
            let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
            return Err(Error::PartialEnvironment {
                launcher: family.launcher,
                present: owned(present),
                missing: owned(missing),
            });
        }
        let number = |name: &str| -> Result<Option<usize>> {
            let Some(text) = variable(name) else { return Ok(None) };
            match text.trim().parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => contradiction(format!("{name}={text} is no number")),
            }
        };
        let needed = |name: &str| number(name).map(Option::unwrap_or_default);
        let (rank, world, local_rank) = (needed(names[0])?, needed(names[1])?, needed(names[2])?);
        // Slurm describes several hosts at once here, as in 2(x3).
        let local_world = if family.launcher == "srun" { None } else { number(family.local_world)? };
        if world == 0 {
            return contradiction(format!("{}=0", family.world));
        }
        for (name, value, bound_name, bound) in [
            (family.rank, rank, family.world, Some(world)),
            (family.local_rank, local_rank, family.local_world, local_world),
            (family.local_rank, local_rank, family.world, Some(world)),
        ] {
            if let Some(bound) = bound.filter(|bound| value >= *bound) {
                return contradiction(format!("{name}={value} is not below {bound_name}={bound}"));
            }
        }
        if let Some(local) = local_world.filter(|local| *local > world) {
            return contradiction(format!(
                "{}={local} is more than {}={world}",
                family.local_world, family.world
            ));
        }
        if world == 1 {
            return Ok(None);
        }
        let token = variable("GRADEWISE_TOKEN").map(|token| token.trim().to_owned());
        if token.is_none() {
            return Err(Error::NoToken { world });
        }
        Ok(Some(Self {
            rank,
            world,
            local_rank,
            local_world,
            host: host(family, &variable, local_world == Some(world))?,
            port: port(&variable)?,
            token,
            timeout: timeout(&variable)?,
            launcher: family.launcher,
        }))
    }
}

/// The token is nobody's business.
impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, world, local_rank, host, port, launcher, .. } = self;
        write!(f, "Launch(rank {rank} of {world}, local rank {local_rank}, {host}:{port}, by {launcher})")
    }
}

fn contradiction<T>(problem: String) -> Result<T> {
    Err(Error::Environment { problem })
}

fn host(family: &Family, variable: &impl Fn(&str) -> Option<String>, one_host: bool) -> Result<String> {
    if let Some(host) = variable("MASTER_ADDR") {
        return Ok(host.trim().to_owned());
    }
    match family.launcher {
        "srun" => match variable("SLURM_JOB_NODELIST").or_else(|| variable("SLURM_NODELIST")) {
            Some(list) if variable("SLURM_JOB_NUM_NODES").is_none_or(|nodes| nodes != "1") => {
                Ok(first_host(&list))
            }
            _ => Ok(LOOPBACK.to_owned()),
        },
        "mpirun" if !one_host => contradiction(
            "mpirun started processes on several hosts, and MASTER_ADDR does not say which of them has rank 0".to_owned(),
        ),
        _ => Ok(LOOPBACK.to_owned()),
    }
}

/// The first host of a list as Slurm writes it: `gpu[03-05,9],login` begins with `gpu03`.
fn first_host(list: &str) -> String {
    let Some((prefix, rest)) = list.split_once('[').filter(|(prefix, _)| !prefix.contains(',')) else {
        return list.split(',').next().unwrap_or(list).to_owned();
    };
    let (numbers, suffix) = rest.split_once(']').unwrap_or((rest, ""));
    let first = numbers.split([',', '-']).next().unwrap_or_default();
    format!("{prefix}{first}{}", suffix.split(',').next().unwrap_or_default())
}

fn port(variable: &impl Fn(&str) -> Option<String>) -> Result<u16> {
    let read = |name: &str| match variable(name) {
        None => Ok(None),
        Some(text) => match text.trim().parse::<u16>() {
            Ok(port) if port > 0 => Ok(Some(port)),
            _ => contradiction(format!("{name}={text} is no port")),
        },
    };
    if let Some(port) = read("GRADEWISE_PORT")? {
        return Ok(port);
    }
    let port = read("MASTER_PORT")?.unwrap_or(PORT);
    // There, torchrun itself listens.
    Ok(if variable("TORCHELASTIC_RUN_ID").is_some() { port.checked_add(1).unwrap_or(port - 1) } else { port })
}

fn timeout(variable: &impl Fn(&str) -> Option<String>) -> Result<Duration> {
    let Some(text) = variable("GRADEWISE_TIMEOUT") else { return Ok(TIMEOUT) };
    let seconds = text.trim().parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(timeout) => Ok(timeout),
        None => contradiction(format!("GRADEWISE_TIMEOUT={text} is no number of seconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(pairs: &[(&str, &str)]) -> Result<Option<Launch>> {
        let token = [("GRADEWISE_TOKEN", "secret")];
        Launch::from_variables(|name| {
            let mut all = pairs.iter().chain(&token);
            all.find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn refused(pairs: &[(&str, &str)], parts: &[&str]) {
        let message = launch(pairs).unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }

    #[test]
    fn every_launcher_is_understood() {
        let found = launch(&[("RANK", "3"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "n1")]);
        let found = found.unwrap().unwrap();
        assert_eq!((found.rank, found.world, found.local_rank, found.launcher), (3, 8, 1, "torchrun"));
        assert_eq!((found.host.as_str(), found.port, found.timeout), ("n1", 29500, Duration::from_secs(60)));
        assert!(!format!("{found:?}").contains("secret"));

        let mpi = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        let found = launch(&mpi).unwrap().unwrap();
        assert_eq!((found.launcher, found.host.as_str(), found.local_world), ("mpirun", LOOPBACK, Some(2)));

        let slurm = [
            ("SLURM_PROCID", "5"),
            ("SLURM_NTASKS", "6"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_JOB_NODELIST", "gpu[03-05,9],login"),
            ("SLURM_JOB_NUM_NODES", "3"),
            ("GRADEWISE_PORT", "777"),
            ("GRADEWISE_TIMEOUT", "2.5"),
        ];
        let found = launch(&slurm).unwrap().unwrap();
        assert_eq!((found.launcher, found.host.as_str(), found.port), ("srun", "gpu03", 777));
        assert_eq!(found.timeout, Duration::from_millis(2500));
        // torchrun started by srun, which listens at the port itself.
        let mut both = slurm[..5].to_vec();
        both.extend([("RANK", "0"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "0"), ("MASTER_PORT", "1234")]);
        both.push(("TORCHELASTIC_RUN_ID", "x"));
        let found = launch(&both).unwrap().unwrap();
        assert_eq!((found.launcher, found.world, found.port), ("torchrun", 4, 1235));
    }

    #[test]
    fn one_process_or_none_is_no_launch() {
        assert_eq!(launch(&[]).unwrap(), None);
        assert_eq!(launch(&[("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")]).unwrap(), None);
        // A shell inside an allocation.
        assert_eq!(launch(&[("SLURM_NTASKS", "4"), ("SLURM_JOB_ID", "9")]).unwrap(), None);
    }

    #[test]
    fn partial_and_contradictory_variables_are_refused() {
        refused(&[("RANK", "0")], &["torchrun", "WORLD_SIZE", "LOCAL_RANK"]);
        refused(&[("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")], &["not RANK"]);
        refused(&[("RANK", "2"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")], &["RANK=2", "WORLD_SIZE=2"]);
        refused(&[("RANK", "x"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")], &["RANK=x is no number"]);
        refused(&[("RANK", "0"), ("WORLD_SIZE", "0"), ("LOCAL_RANK", "0")], &["WORLD_SIZE=0"]);
        refused(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "2")], &["LOCAL_RANK=2"]);
        let good = [("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")];
        for (name, value) in [("MASTER_PORT", "70000"), ("GRADEWISE_PORT", "0"), ("GRADEWISE_TIMEOUT", "-1")]
        {
            let mut pairs = good.to_vec();
            pairs.push((name, value));
            refused(&pairs, &[name, value]);
        }
        let mpi = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        refused(&mpi, &["MASTER_ADDR"]);
        let message = Launch::from_variables(|name| {
            good.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        });
        assert!(message.unwrap_err().to_string().contains("GRADEWISE_TOKEN"));
    }

    #[test]
    fn the_first_host_of_a_list() {
        for (list, first) in
            [("a", "a"), ("a,b", "a"), ("n[7,9]", "n7"), ("n[07-12]-ib,m", "n07-ib"), ("a,n[1-2]", "a")]
        {
            assert_eq!(first_host(list), first, "{list}");
        }
    }
}
