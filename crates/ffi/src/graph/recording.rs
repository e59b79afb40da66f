//! Recordings: graphs that keep what they work on, and that say what broke them.

use super::{Graph, GraphExec, Nodes};
use crate::{Context, Error, Event, Result, Stream, calls::take_refused, context::Relaxed, sys::*};
use std::fmt::Display;

/// A recording in progress. Work queued in its stream is recorded, not run.
#[derive(Debug)]
pub struct Recording<'a> {
    stream: &'a Stream,
    /// The last step that was recorded.
    last: Option<String>,
    /// Whether a step failed because of the capture, whose error is then the recording's.
    is_told: bool,
}

impl Recording<'_> {
    /// The stream whose work is recorded.
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// Runs a part of the recorded work under a name, and checks afterwards that the recording is whole: if `work` did something that a
    /// recording forbids, whichever library did it, the error names this step.
    ///
    /// # Errors
    /// [`Error::Capture`] if the recording is broken, with the text of the error of `work` if there is one; otherwise that of `work`.
    pub fn step<R, E: From<Error> + Display>(
        &mut self,
        name: impl Into<String>,
        work: impl FnOnce(&Stream) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let name = name.into();
        let result = work(self.stream);
        let is_whole = self.stream.capture_status()? == capture_status::ACTIVE;
        let refused = take_refused();
        if is_whole && (refused.is_none() || result.is_ok()) {
            self.last = Some(name);
            return result;
        }
        self.is_told = true;
        let text = result.err().map(|error| error.to_string());
        Err(broken(format!("in step `{name}`"), refused, text).into())
    }
}

/// The error of a recording. `refused` is the first call that it refused, `text` says more than the code where there is some.
fn broken(place: String, refused: Option<(&'static str, CUresult)>, text: Option<String>) -> Error {
    let code = refused.map(|(_, code)| code);
    let problem = text.unwrap_or_else(|| match code {
        Some(CUresult(code)) => format!("error {code}"),
        None => "a call of another library broke it".to_owned(),
    });
    Error::Capture { place, call: refused.map(|(call, _)| call), problem, hint: hint(code) }
}

/// What to do about a code of a capture.
fn hint(code: Option<CUresult>) -> &'static str {
    match code {
        Some(CUresult::ERROR_STREAM_CAPTURE_MERGE) => {
            "an event joined two recordings: record one after the other"
        }
        Some(CUresult::ERROR_STREAM_CAPTURE_UNMATCHED) => "another stream began this recording",
        Some(CUresult::ERROR_STREAM_CAPTURE_UNJOINED) => {
            "a stream that waits for this one in the recording must be waited for in turn, by an event recorded in it at the end"
        }
        Some(CUresult::ERROR_STREAM_CAPTURE_ISOLATION) => {
            "an event from outside of the recording was waited for: synchronise before, and switch off the events by which another library \
             tracks its memory (cudarc: `disable_event_tracking`)"
        }
        Some(CUresult::ERROR_STREAM_CAPTURE_IMPLICIT) => {
            "the default stream waits for all others: queue no work in it meanwhile"
        }
        Some(CUresult::ERROR_CAPTURED_EVENT) => {
            "events of a recording happen when it is replayed: ask about them afterwards"
        }
        Some(CUresult::ERROR_STREAM_CAPTURE_WRONG_THREAD) => "a recording ends in the thread that began it",
        _ => {
            "a recording cannot wait for the device, nor allocate by calls that do, nor copy from or to pageable memory: do so before it, \
             and divide it by `Recording::step` to find where that happens"
        }
    }
}

/// Recorded work with the memory that it accesses: made by [`Stream::record`].
///
/// Dropping it waits for the last replay, then drops the memory.
#[derive(Debug)]
pub struct RecordedGraph<M> {
    // Declared, and so dropped, before the memory.
    replays: Replays,
    memory: M,
}

/// A graph, and its launches.
#[derive(Debug)]
struct Replays {
    graph: Graph,
    exec: GraphExec,
    stream: Stream,
    /// Recorded behind the last replay.
    done: Event,
    state: State,
}

/// What is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Nothing,
    /// A replay that no event marks, because that call failed.
    Unmarked,
    Marked,
}

impl Stream {
    /// Records what `work` queues in this stream, checks that it can be replayed, and keeps `memory`, which it works on: as long as the
    /// graph lives, so does the memory. The stream may be one of `cudarc` or `cust` (`cudarc::shared`, `cust::shared`) or a plain handle
    /// ([`share`](Self::share), [`borrow`](Self::borrow)).
    ///
    /// Calls that a capture forbids are refused in this thread only ([`capture_mode::THREAD_LOCAL`]). The driver records what it is told:
    /// kernels with their arguments as they are now, copies with their addresses. Values of the host are read once, while recording.
    ///
    /// # Safety
    /// Until the graph is dropped:
    /// 1. Device memory, modules and page-locked host memory that the recorded work uses are owned by `memory`, borrowed by it, or outlive
    ///    the graph otherwise; they stay where they are, so that nothing in [`memory_mut`](RecordedGraph::memory_mut) is exchanged or
    ///    resized.
    /// 2. The program reads and writes such host memory only while no replay runs ([`RecordedGraph::wait`]).
    /// 3. Work of other streams on the same memory is ordered with this stream.
    /// 4. Whatever kernels and host functions of the recorded work require holds at each replay. A host function that frees its argument is
    ///    called only once.
    ///
    /// # Errors
    /// That of `work`; [`Error::Capture`] if something broke the recording, if nothing was recorded, or if it cannot be replayed; from the
    /// driver. The stream is no longer captured in any case, and `memory` is dropped.
    pub unsafe fn record<M, E: From<Error> + Display>(
        &self,
        mut memory: M,
        work: impl FnOnce(&mut Recording<'_>, &mut M) -> std::result::Result<(), E>,
    ) -> std::result::Result<RecordedGraph<M>, E> {
        let graph = recorded(self, &mut memory, work)?;
        let exec = graph.instantiate()?;
        let done = Event::new(self.context(), false)?;
        let replays = Replays { graph, exec, stream: self.clone(), done, state: State::Nothing };
        Ok(RecordedGraph { replays, memory })
    }
}

/// Records, and checks what was recorded.
fn recorded<M, E: From<Error> + Display>(
    stream: &Stream,
    memory: &mut M,
    work: impl FnOnce(&mut Recording<'_>, &mut M) -> std::result::Result<(), E>,
) -> std::result::Result<Graph, E> {
    const CALL: &str = "Stream::record";
    /// `CU_STREAM_LEGACY`, another name of the default stream.
    const LEGACY: usize = 1;
    if stream.raw().0 as usize <= LEGACY {
        let problem = "the default stream cannot be recorded; make a stream".to_owned();
        return Err(Error::Argument { call: CALL, problem }.into());
    }
    if stream.is_capturing()? {
        let problem = "the stream is being captured already".to_owned();
        return Err(Error::Argument { call: CALL, problem }.into());
    }
    let context = stream.context();
    let parked = Parked::new(context);
    take_refused();
    let mut recording = Recording { stream, last: None, is_told: false };
    let mut result = Ok(());
    let graph = stream.capture(capture_mode::THREAD_LOCAL, |_| {
        result = work(&mut recording, memory);
        Ok::<_, Error>(())
    });
    let (refused, released) = (take_refused(), parked.end());
    let place = || match &recording.last {
        Some(step) => format!("after step `{step}`"),
        None => "outside of steps".to_owned(),
    };
    if let Err(error) = result {
        // An error that the capture caused says so, unless its step did.
        let is_cause = !recording.is_told && (refused.is_some() || graph.is_err());
        return Err(if is_cause { broken(place(), refused, Some(error.to_string())).into() } else { error });
    }
    let graph = match graph {
        Ok(graph) => graph,
        Err(error) => {
            let refused = refused.or(error.code().map(|code| ("cuStreamEndCapture", code)));
            return Err(broken(place(), refused, Some(error.to_string())).into());
        }
    };
    if let Some(error) = released {
        let hint = "what existed before the recording is not released in it: keep it in `memory`";
        return Err(Error::Capture { place: place(), call: None, problem: error.to_string(), hint }.into());
    }
    graph.require_replayable()?;
    Ok(graph)
}

/// Sets aside the error that is parked on a context, to tell those that come meanwhile.
struct Parked<'a> {
    context: &'a Context,
    earlier: Option<Error>,
}

impl<'a> Parked<'a> {
    fn new(context: &'a Context) -> Self {
        Self { context, earlier: context.take_parked() }
    }

    /// The error that came meanwhile.
    fn end(self) -> Option<Error> {
        self.context.take_parked()
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        if let Some(error) = self.earlier.take() {
            self.context.park(Err(error));
        }
    }
}

impl<M> RecordedGraph<M> {
    /// Queues the recorded work once more, in the stream in which it was recorded.
    ///
    /// # Errors
    /// [`Error::Argument`] while the stream is being captured; from the driver, errors of earlier work included.
    pub fn replay(&mut self) -> Result<()> {
        let Replays { exec, stream, done, state, .. } = &mut self.replays;
        if stream.is_capturing()? {
            let problem = "the stream is being captured; end that capture first".to_owned();
            return Err(Error::Argument { call: "RecordedGraph::replay", problem });
        }
        // Before the launch: one that fails may have queued a part.
        *state = State::Unmarked;
        // SAFETY: the graph keeps the memory, and who recorded it vouches for the rest.
        unsafe { exec.launch(stream)? };
        done.record(stream)?;
        *state = State::Marked;
        Ok(())
    }

    /// Uploads the graph to the device now, so that its first replay does not have to.
    ///
    /// # Errors
    /// From the driver.
    pub fn upload(&self) -> Result<()> {
        self.replays.exec.upload(&self.replays.stream)
    }

    /// Waits for the last replay.
    ///
    /// # Errors
    /// Those of the work, which surface here.
    pub fn wait(&self) -> Result<()> {
        self.replays.wait()
    }

    /// Records other work in place of this: from the next replay on. Returns whether the driver could keep its executable graph, as it can
    /// where only arguments differ; else it makes another, which takes longer. After an error the earlier work is still there.
    ///
    /// # Safety
    /// As for [`Stream::record`], of the new work.
    ///
    /// # Errors
    /// As [`Stream::record`].
    pub unsafe fn record_again<E: From<Error> + Display>(
        &mut self,
        work: impl FnOnce(&mut Recording<'_>, &mut M) -> std::result::Result<(), E>,
    ) -> std::result::Result<bool, E> {
        let graph = recorded(&self.replays.stream, &mut self.memory, work)?;
        let is_kept = self.replays.exec.update(&graph)?;
        if !is_kept {
            self.replays.exec = graph.instantiate()?;
        }
        self.replays.graph = graph;
        Ok(is_kept)
    }

    /// What was recorded.
    ///
    /// # Errors
    /// From the driver.
    pub fn nodes(&self) -> Result<Nodes> {
        self.replays.graph.nodes()
    }

    /// The stream in which it was recorded, and is replayed.
    pub fn stream(&self) -> &Stream {
        &self.replays.stream
    }

    /// The memory that it works on. Work queued in its stream sees what replays queued before have written.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// As [`memory`](Self::memory), to write to it. Addresses must stay as they are: see [`Stream::record`].
    pub fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Waits for the last replay and gives the memory back.
    ///
    /// # Errors
    /// Those of the work; the memory is dropped then.
    pub fn into_memory(self) -> Result<M> {
        self.wait()?;
        Ok(self.memory)
    }
}

impl Replays {
    fn wait(&self) -> Result<()> {
        match self.state {
            State::Nothing => Ok(()),
            State::Unmarked => self.stream.synchronize(),
            State::Marked => self.done.synchronize(),
        }
    }
}

impl Drop for Replays {
    fn drop(&mut self) {
        let context = self.stream.context();
        // A capture of this thread in another stream goes on: no work of it can be waited for here.
        let relaxed = Relaxed::begin(context);
        context.park(self.wait());
        context.park(relaxed.and_then(Relaxed::end));
    }
}
