//! Processes of a run as threads of one program, each with connections of its own.
#![allow(dead_code)]

use gradewise_distributed::{Error, Group, Launch, Tcp, free_port};
use std::{
    net::TcpStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// What a launcher would tell each of `world` processes.
pub fn launches(world: usize, timeout: Duration) -> Vec<Launch> {
    let port = free_port().unwrap();
    let launch = |rank| Launch {
        rank,
        world,
        local_rank: rank,
        local_world: Some(world),
        host: "127.0.0.1".to_owned(),
        port,
        token: Some("a secret of the test".to_owned()),
        timeout,
        launcher: "test",
    };
    (0..world).map(launch).collect()
}

/// A connection with what listens there, or will soon.
pub fn connect(port: u16) -> TcpStream {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < patience, "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs `work` as every process of a group at once; what each returned, by rank.
pub fn together<T: Send>(
    world: usize,
    work: impl Fn(&Arc<Group>, &Arc<Tcp>) -> Result<T, Error> + Sync,
) -> Vec<Result<T, Error>> {
    let launches = launches(world, Duration::from_secs(20));
    let run = |launch: &Launch| -> Result<T, Error> {
        let group = Arc::new(Group::join(launch)?);
        let tcp = Arc::new(Tcp::new(&group)?);
        let result = work(&group, &tcp);
        drop(tcp);
        match (result, Arc::into_inner(group)) {
            (Ok(result), Some(group)) => group.leave().map(|()| result),
            (Err(error), Some(group)) => {
                group.give_up(&format!("gave up: {error}"));
                Err(error)
            }
            (result, None) => result,
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = launches.iter().map(|launch| scope.spawn(move || run(launch))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// As [`together`], where every process must succeed.
pub fn all_succeed<T: Send>(
    world: usize,
    work: impl Fn(&Arc<Group>, &Arc<Tcp>) -> Result<T, Error> + Sync,
) -> Vec<T> {
    let results = together(world, work).into_iter().enumerate();
    results.map(|(rank, result)| result.unwrap_or_else(|error| panic!("rank {rank}: {error}"))).collect()
}
