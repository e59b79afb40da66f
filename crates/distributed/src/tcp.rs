//! Arrays of the host over TCP: through rank 0, which adds in the order of ranks.

use crate::{Communicator, Error, Group, Pending, Result};
use gradewise_kernels::{Array, DType, Device, Shape};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};

/// Bytes that are added at a time.
const CHUNK: usize = 1 << 16;

/// Moves arrays on the host over the connections of a [`Group`]. Sums are formed in double precision in the order of ranks and
/// rounded once, so they depend neither on timing nor on who arrives first.
///
/// A thread of its own does the work, so that computing goes on meanwhile.
pub struct Tcp {
    group: Arc<Group>,
    jobs: Mutex<Option<Sender<Job>>>,
    worker: Option<JoinHandle<()>>,
}

struct Job {
    operation: Operation,
    values: Array,
    reply: Sender<Result<Array>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    AllReduce = 1,
    Broadcast = 2,
}

impl Tcp {
    /// Over the connections that the group was joined with; a group has them for one.
    ///
    /// # Errors
    /// [`Error::Argument`] if another one has them.
    pub fn new(group: &Arc<Group>) -> Result<Self> {
        let streams = group.take_data().ok_or_else(|| Error::Argument {
            operation: "TCP communicator",
            argument: "group",
            actual: "a group whose connections are in use".to_owned(),
            expected: "one communicator for each group".to_owned(),
        })?;
        let failed = Error::connection("TCP communicator");
        let others: Vec<TcpStream> =
            streams.iter().flatten().map(TcpStream::try_clone).collect::<Result<_, _>>().map_err(failed)?;
        // Whoever reads from a process that is gone, or waits for one, stops.
        group.on_failure(move |_| {
            for stream in &others {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        let (jobs, queue) = channel();
        let world = group.world();
        let worker = thread::Builder::new()
            .name("gradewise-tcp".to_owned())
            .spawn(move || Worker { streams, world, sequence: 0 }.run(&queue))
            .map_err(|source| Error::Process {
                operation: "start the TCP communicator".to_owned(),
                source,
            })?;
        Ok(Self { group: Arc::clone(group), jobs: Mutex::new(Some(jobs)), worker: Some(worker) })
    }

    fn begin(&self, operation: Operation, values: Array) -> Result<Receiver<Result<Array>>> {
        if values.device() != Device::Cpu {
            return Err(Error::Argument {
                operation: "TCP communicator",
                argument: "values",
                actual: format!("an array on {}", values.device()),
                expected: "an array on the host; NCCL moves those on devices".to_owned(),
            });
        }
        self.group.check()?;
        let (reply, answer) = channel();
        let job = Job { operation, values, reply };
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        // A worker that is gone shows where the answer is waited for.
        let _ = jobs.as_ref().map(|jobs| jobs.send(job));
        Ok(answer)
    }
}

fn wait(group: &Group, answer: &Receiver<Result<Array>>) -> Result<Array> {
    let ended =
        || Err(Error::Connection { operation: "TCP communicator", reason: "it has stopped".to_owned() });
    let result = answer.recv().unwrap_or_else(|_| ended());
    result.map_err(|error| match error {
        Error::Connection { .. } => group.explain(error),
        error => error,
    })
}

impl Communicator for Tcp {
    fn name(&self) -> String {
        "TCP".to_owned()
    }

    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn world(&self) -> usize {
        self.group.world()
    }

    fn all_reduce(&self, values: Array) -> Result<Pending> {
        let (answer, group) = (self.begin(Operation::AllReduce, values)?, Arc::clone(&self.group));
        Ok(Pending::new(move || wait(&group, &answer)))
    }

    fn broadcast(&self, values: Array) -> Result<Array> {
        let answer = self.begin(Operation::Broadcast, values)?;
        wait(&self.group, &answer)
    }

    fn check(&self) -> Result<()> {
        self.group.check()
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        *self.jobs.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

struct Worker {
    streams: Vec<Option<TcpStream>>,
    world: usize,
    sequence: u64,
}

/// What both sides must agree on before the elements.
type Head = [u8; 18];

impl Worker {
    fn run(mut self, jobs: &Receiver<Job>) {
        for Job { operation, values, reply } in jobs {
            let result = match values.dtype() {
                DType::F64 => self.perform::<f64>(operation, &values),
                _ => self.perform::<f32>(operation, &values),
            };
            self.sequence += 1;
            // One who no longer waits has an error of its own.
            let _ = reply.send(result);
        }
    }

    fn head(&self, operation: Operation, values: &Array) -> Head {
        let mut head = [0; 18];
        head[0] = operation as u8;
        head[1] = values.dtype().size() as u8;
        head[2..10].copy_from_slice(&self.sequence.to_le_bytes());
        head[10..].copy_from_slice(&(values.elements() as u64).to_le_bytes());
        head
    }

    fn perform<T: Number>(&mut self, operation: Operation, values: &Array) -> Result<Array> {
        let head = self.head(operation, values);
        let mut own = values.to_vec::<T>()?;
        if self.streams.first().is_some_and(Option::is_some) {
            self.exchange::<T>(operation, head, &mut own)?;
        } else {
            self.serve::<T>(operation, head, &mut own)?;
        }
        let shape: Shape = values.shape().clone();
        Ok(Array::from_slice(&own, shape, &Device::Cpu)?)
    }

    /// What a rank other than 0 does.
    fn exchange<T: Number>(&mut self, operation: Operation, head: Head, own: &mut [T]) -> Result<()> {
        let Some(stream) = self.streams.first_mut().and_then(Option::as_mut) else { return Ok(()) };
        let failed =
            |result: std::io::Result<()>| result.map_err(Error::connection("exchange arrays with rank 0"));
        failed(stream.write_all(&head))?;
        if operation == Operation::AllReduce {
            failed(stream.write_all(bytemuck::cast_slice(own)))?;
        }
        let mut answer = [0; 18];
        failed(stream.read_exact(&mut answer))?;
        agree(0, answer, head)?;
        failed(stream.read_exact(bytemuck::cast_slice_mut(own)))
    }

    /// What rank 0 does.
    fn serve<T: Number>(&mut self, operation: Operation, head: Head, own: &mut [T]) -> Result<()> {
        let failed = Error::connection("exchange arrays with the other ranks");
        let mut sums: Vec<f64> = match operation {
            Operation::AllReduce => own.iter().map(|value| value.widen()).collect(),
            Operation::Broadcast => Vec::new(),
        };
        for rank in 1..self.world {
            let Some(stream) = self.streams.get_mut(rank).and_then(Option::as_mut) else { continue };
            let mut theirs = [0; 18];
            stream.read_exact(&mut theirs).map_err(&failed)?;
            agree(rank, theirs, head)?;
            if operation == Operation::AllReduce {
                let mut buffer = vec![T::default(); CHUNK / size_of::<T>()];
                for sums in sums.chunks_mut(buffer.len()) {
                    let part = &mut buffer[..sums.len()];
                    stream.read_exact(bytemuck::cast_slice_mut(part)).map_err(&failed)?;
                    for (sum, value) in sums.iter_mut().zip(part) {
                        *sum += value.widen();
                    }
                }
            }
        }
        for (value, sum) in own.iter_mut().zip(sums) {
            *value = T::rounded(sum);
        }
        for stream in self.streams.iter_mut().flatten() {
            stream.write_all(&head).map_err(&failed)?;
            stream.write_all(bytemuck::cast_slice(own)).map_err(&failed)?;
        }
        Ok(())
    }
}

fn agree(rank: usize, theirs: Head, ours: Head) -> Result<()> {
    if theirs == ours {
        return Ok(());
    }
    let describe = |head: Head| {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
        let operation = if head[0] == Operation::AllReduce as u8 { "a sum" } else { "a copy" };
        format!("{operation} of {} elements of {} bytes as exchange {}", number(10), head[1], number(2))
    };
    let difference = format!("rank {rank} has {}, this process {}", describe(theirs), describe(ours));
    Err(Error::Differ { what: "exchanges", difference })
}

trait Number: gradewise_kernels::Element + bytemuck::Pod + Default {
    fn rounded(value: f64) -> Self;
}

impl Number for f32 {
    fn rounded(value: f64) -> Self {
        value as f32
    }
}

impl Number for f64 {
    fn rounded(value: f64) -> Self {
        value
    }
}
