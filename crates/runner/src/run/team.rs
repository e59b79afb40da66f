//! The processes that share a run; usually there is one.

use super::memory::{Memory, Usage};
use crate::{
    error::{Error, Result},
    output,
};
use gradewise_distributed::{
    Communicator, DataParallel, Group, Launch, Nccl, SUPERVISED, ShardedSampler, Tcp,
};
use gradewise_kernels::Device;
use gradewise_nn::{Module, data::loader::BatchOrder, train::Trainer};
use serde::{Deserialize, Serialize};
use std::{cell::Cell, io::BufRead, sync::Arc, thread, time::Duration};

/// The time that a process has to end by itself after another one failed.
pub const GRACE: Duration = Duration::from_secs(10);

/// The word that ends the steps; every other is the share of the run that is over, in parts of [`PARTS`].
const STOP: u8 = u8::MAX;
const PARTS: u8 = STOP - 1;

/// The processes of a run, from the side of one of them.
pub struct Team(Option<Members>);

struct Members {
    group: Arc<Group>,
    communicator: Arc<dyn Communicator>,
    /// Rank 0's announcement about the next step.
    announced: Cell<Option<u8>>,
}

/// The memory of one process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberMemory {
    pub rank: usize,
    pub device: String,
    #[serde(flatten)]
    pub usage: Usage,
}

/// Whether this process was started, and is supervised, by another process of this program.
pub fn is_supervised() -> bool {
    std::env::var_os(SUPERVISED).is_some_and(|value| value == "1")
}

impl Team {
    /// This process alone.
    pub fn alone() -> Self {
        Self(None)
    }

    /// Waits for the other processes, if there are any.
    ///
    /// # Errors
    /// Processes that do not join in time; no NCCL for devices.
    pub fn join(launch: Option<&Launch>, device: &Device) -> Result<Self> {
        let Some(launch) = launch else { return Ok(Self::alone()) };
        let group = Arc::new(Group::join(launch)?);
        group.on_failure(|failure| {
            // Normally the work ends with its own error within this time, unless it waits for a device that never responds.
            thread::sleep(GRACE);
            output::note(&format!("error: {failure}; this process could not end by itself"));
            // Aborts, because an orderly exit would wait for that device, too.
            std::process::abort();
        });
        let communicator: Arc<dyn Communicator> = match device {
            Device::Cpu => Arc::new(Tcp::new(&group)?),
            Device::Cuda(cuda) => Arc::new(Nccl::new(&group, cuda)?),
        };
        if launch.rank > 0 {
            let (rank, world, process) = (launch.rank, launch.world, std::process::id());
            output::note(&format!("rank {rank} of {world}: process {process} on {device}"));
        } else {
            output::note(&format!(
                "{} processes started by {}, joined at {}:{}; gradients are summed by {}",
                launch.world,
                if is_supervised() { "this program" } else { launch.launcher },
                launch.host,
                launch.port,
                communicator.name()
            ));
        }
        Ok(Self(Some(Members { group, communicator, announced: Cell::new(None) })))
    }

    /// Whether this process writes files and reports.
    pub fn leads(&self) -> bool {
        self.rank() == 0
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.0.as_ref().map_or(0, |members| members.group.rank())
    }

    /// The number of processes.
    pub fn world(&self) -> usize {
        self.0.as_ref().map_or(1, |members| members.group.world())
    }

    /// The communicator that sums arrays, if there is more than one process.
    pub fn sums_by(&self) -> Option<&Arc<dyn Communicator>> {
        self.0.as_ref().map(|members| &members.communicator)
    }

    /// The name of the communicator.
    pub fn communicator(&self) -> String {
        self.sums_by().map_or_else(|| "none".to_owned(), |communicator| communicator.name())
    }

    /// Waits for all processes.
    ///
    /// # Errors
    /// A process that has ended.
    pub fn barrier(&self) -> Result<()> {
        Ok(self.0.as_ref().map_or(Ok(()), |members| members.group.barrier())?)
    }

    /// The sampler of this process's part of batches.
    ///
    /// # Errors
    /// Cannot occur: rank and world are consistent.
    pub fn sampler(&self, order: &BatchOrder) -> Result<ShardedSampler> {
        Ok(ShardedSampler::new(order, self.rank(), self.world())?)
    }

    /// Synchronises a trainer with those of the other processes, starting from the same weights and state.
    ///
    /// # Errors
    /// Models or states that differ; a process that has ended.
    pub fn attach<M: Module>(&self, trainer: &mut Trainer<M>) -> Result<()> {
        self.attach_with(trainer, None)
    }

    /// As [`attach`](Self::attach), with gradient buckets of at most `bucket` bytes.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_with<M: Module>(&self, trainer: &mut Trainer<M>, bucket: Option<usize>) -> Result<()> {
        let Some(members) = &self.0 else { return Ok(()) };
        let mut parallel =
            DataParallel::new(&members.group, Arc::clone(&members.communicator), trainer.parameters())?;
        if let Some(bytes) = bucket {
            parallel = parallel.bucket_bytes(bytes);
        }
        trainer.set_exchange(Arc::new(parallel));
        self.compare(trainer)
    }

    /// Checks that all processes hold the same weights and training state.
    ///
    /// # Errors
    /// What differs, and where; a process that has ended.
    pub fn compare<M: Module>(&self, trainer: &Trainer<M>) -> Result<()> {
        let Some(members) = &self.0 else { return Ok(()) };
        let state = trainer.checkpoint("comparison", serde_json::Value::Null)?;
        Ok(gradewise_distributed::same_state(&members.group, &state.tensors)?)
    }

    /// Whether to take the next step, consistently across all processes: the share of the run that is over when it begins, or `None` to
    /// stop. A single process continues, with its own share, unless `stop`. Rank 0 decides one step ahead, so that the other processes need not wait for its
    /// announcement; shares are then rounded to 1/254.
    ///
    /// # Errors
    /// A process that has ended.
    pub fn proceeds(&self, stop: bool, share: f64) -> Result<Option<f64>> {
        let Some(Members { group, announced, .. }) = &self.0 else { return Ok((!stop).then_some(share)) };
        let heard = |word: u8| (word != STOP).then(|| f64::from(word) / f64::from(PARTS));
        if !self.leads() {
            return Ok(heard(group.heed()?));
        }
        // A share of 0 to 1 fits.
        let going = (share.clamp(0.0, 1.0) * f64::from(PARTS)).floor() as u8;
        let now = match announced.get() {
            Some(word) => word,
            None => group.announce(going).map(|()| going)?,
        };
        if now != STOP {
            let next = if stop { STOP } else { going };
            group.announce(next)?;
            announced.set(Some(next));
        }
        Ok(heard(now))
    }

    /// All-reduce: the maximum of a number over the processes.
    ///
    /// # Errors
    /// A process that has ended.
    pub fn most(&self, number: usize) -> Result<usize> {
        let Some(members) = &self.0 else { return Ok(number) };
        let numbers: Vec<usize> = members.group.all_gather_values(&number)?;
        Ok(numbers.into_iter().max().unwrap_or(number))
    }

    /// All-gather: the memory usage of each process.
    ///
    /// # Errors
    /// A process that has ended.
    pub fn memory(&self, memory: &Memory) -> Result<Vec<MemberMemory>> {
        let own =
            MemberMemory { rank: self.rank(), device: memory.device().to_string(), usage: memory.usage()? };
        match &self.0 {
            None => Ok(vec![own]),
            Some(members) => Ok(members.group.all_gather_values(&own)?),
        }
    }

    /// Leaves the group after all processes have arrived; on an error, reports it to the others.
    ///
    /// # Errors
    /// That of `result`; a process that has ended.
    pub fn leave<T>(self, result: Result<T>) -> Result<T> {
        let Some(Members { group, communicator, .. }) = self.0 else { return result };
        // No process releases its device while another one may still read from it.
        let result = result.and_then(|value| Ok(group.barrier().map(|()| value)?));
        drop(communicator);
        match (result, Arc::into_inner(group)) {
            (Ok(value), Some(group)) => group.leave().map(|()| value).map_err(Error::from),
            (Err(error), Some(group)) => {
                group.give_up(&format!("ended: {error}"));
                Err(error)
            }
            (result, None) => result,
        }
    }
}

/// Calls `stop` when the supervising process requests the end, or ends itself.
pub fn obey_supervisor(stop: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        let mut line = String::new();
        // The supervisor writes nothing else to this pipe.
        let _ = std::io::stdin().lock().read_line(&mut line);
        stop();
    });
}
