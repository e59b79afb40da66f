//! Processes find each other, know each other by a secret, and notice who is gone.

mod common;

use common::{all_succeed, connect, launches, together};
use gradewise_distributed::{Communicator, Error, Group, Launch, Tcp};
use gradewise_kernels::{Array, Device};
use rand::{RngExt, SeedableRng};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

const SHORT: Duration = Duration::from_millis(1500);

#[test]
fn messages_reach_every_process() {
    let all = all_succeed(4, |group, _| {
        let gathered = group.all_gather(&[group.rank() as u8; 3])?;
        let word = group.broadcast(if group.rank() == 0 { b"from rank 0" } else { b"" })?;
        let values: Vec<(usize, String)> =
            group.all_gather_values(&(group.rank(), "x".repeat(group.rank())))?;
        // Words ahead keep their order among themselves, whatever else is said meanwhile.
        let words = match group.rank() {
            0 => (1..=3).map(|word| group.announce(word).map(|()| word)).collect::<Result<Vec<_>, _>>()?,
            _ => Vec::new(),
        };
        group.barrier()?;
        let words =
            if words.is_empty() { (0..3).map(|_| group.heed()).collect::<Result<_, _>>()? } else { words };
        group.check()?;
        Ok((gathered, word, values, words))
    });
    for (gathered, word, values, words) in all {
        assert_eq!(gathered, (0..4u8).map(|rank| vec![rank; 3]).collect::<Vec<_>>());
        assert_eq!(word, b"from rank 0");
        assert_eq!(values[3], (3, "xxx".to_owned()));
        assert_eq!(words, [1, 2, 3]);
    }
}

#[test]
fn who_is_missing_is_named() {
    let launches = launches(4, SHORT);
    let present = [0, 2];
    let errors: Vec<Error> = thread::scope(|scope| {
        let threads: Vec<_> = present
            .iter()
            .map(|&rank| {
                let launch = &launches[rank];
                scope.spawn(move || Group::join(launch).unwrap_err())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(matches!(&errors[0], Error::Missing { missing, .. } if missing == &[1, 3]), "{:?}", errors[0]);
    // Those that came learn it, too.
    for error in errors {
        let text = error.to_string();
        assert!(text.contains("2 of 4 processes missing after 1.5 s: rank 1, 3"), "{text}");
    }
}

#[test]
fn without_rank_0_the_others_end_in_time() {
    let launch = &launches(2, Duration::from_millis(300))[1];
    // That it ends at all is the test; the message has the time.
    let error = Group::join(launch).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }) && error.to_string().contains("0.3 s"), "{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{}", launch.port)), "{error}");
}

#[test]
fn another_token_is_refused_and_the_right_one_still_gets_in() {
    let launches = launches(2, Duration::from_secs(20));
    let stranger = Launch { token: Some("guessed".to_owned()), ..launches[1].clone() };
    thread::scope(|scope| {
        let host = scope.spawn(|| Group::join(&launches[0]).unwrap().leave());
        let error = Group::join(&stranger).unwrap_err();
        assert!(matches!(&error, Error::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains("GRADEWISE_TOKEN"), "{error}");
        Group::join(&launches[1]).unwrap().leave().unwrap();
        host.join().unwrap().unwrap();
    });
}

#[test]
fn slow_and_silent_callers_keep_nobody_out() {
    let launches = launches(2, Duration::from_secs(60));
    let port = launches[0].port;
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    thread::scope(|scope| {
        let host = scope.spawn(|| Group::join(&launches[0]).unwrap().leave());
        // More than there are places, each of which says the next byte of a long greeting before a single read would time out.
        let slow: Vec<TcpStream> = (0..300).map(|_| connect(port)).collect();
        let trickle = scope.spawn(move || {
            let mut greeting = vec![1, 0, 16, 0, 0];
            greeting.extend(b"gradewise/1\n");
            for byte in greeting.iter().chain(std::iter::repeat(&b'a')) {
                for stream in &slow {
                    let _ = (&*stream).write_all(&[*byte]);
                }
                if stopped.recv_timeout(Duration::from_millis(500))
                    != Err(std::sync::mpsc::RecvTimeoutError::Timeout)
                {
                    break;
                }
            }
        });
        // The group's own timeout is the only clock: it is over if the callers kept this process out.
        Group::join(&launches[1]).unwrap().leave().unwrap();
        host.join().unwrap().unwrap();
        stop.send(()).unwrap();
        trickle.join().unwrap();
    });
}

#[test]
fn a_greeting_has_a_deadline_as_a_whole() {
    let launches = launches(2, Duration::from_secs(60));
    thread::scope(|scope| {
        let host = scope.spawn(|| Group::join(&launches[0]).unwrap().leave());
        let mut slow = connect(launches[0].port);
        slow.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        slow.write_all(&[1, 0, 16, 0, 0]).unwrap();
        // One byte in each fifth of a second: the other side hangs up long before the 4,096 bytes that are announced.
        let sent = (0..4096).position(|_| {
            let mut heard = [0; 64];
            slow.write_all(b"a").is_err() || matches!(slow.read(&mut heard), Ok(0))
        });
        assert!(sent.is_some_and(|sent| sent < 200), "{sent:?}");
        Group::join(&launches[1]).unwrap().leave().unwrap();
        host.join().unwrap().unwrap();
    });
}

#[test]
fn the_token_is_never_sent_and_noise_is_no_process() {
    let launches = launches(2, Duration::from_secs(20));
    // A listener between the two that writes down what passes.
    let relay = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let through = Launch { port: relay.local_addr().unwrap().port(), ..launches[1].clone() };
    let heard = Arc::new(Mutex::new(Vec::<u8>::new()));
    let host_port = launches[0].port;
    thread::scope(|scope| {
        let host = scope.spawn(|| Group::join(&launches[0]).unwrap().leave());
        let listened = Arc::clone(&heard);
        let relayed = scope.spawn(move || {
            for _ in 0..2 {
                let (caller, _) = relay.accept().unwrap();
                let target = connect(host_port);
                for (mut from, mut to) in
                    [(caller.try_clone().unwrap(), target.try_clone().unwrap()), (target, caller)]
                {
                    let heard = Arc::clone(&listened);
                    thread::spawn(move || {
                        let mut buffer = [0; 4096];
                        while let Ok(count @ 1..) = from.read(&mut buffer) {
                            heard.lock().unwrap().extend(&buffer[..count]);
                            if to.write_all(&buffer[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        // Noise, and a caller that says nothing, keep nobody out.
        let mut noise = connect(host_port);
        noise.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let silent = TcpStream::connect(("127.0.0.1", host_port)).unwrap();
        Group::join(&through).unwrap().leave().unwrap();
        host.join().unwrap().unwrap();
        relayed.join().unwrap();
        drop((noise, silent));
    });
    let heard = heard.lock().unwrap();
    let token = launches[0].token.as_ref().unwrap().as_bytes();
    assert!(heard.len() > 200 && !heard.windows(token.len()).any(|part| part == token));
}

#[test]
fn a_rank_that_is_there_twice_and_another_world_are_refused() {
    let launches = launches(3, Duration::from_secs(20));
    thread::scope(|scope| {
        let host = scope.spawn(|| Group::join(&launches[0]).unwrap().leave());
        let other = Launch { world: 4, rank: 3, ..launches[1].clone() };
        let message = Group::join(&other).unwrap_err().to_string();
        assert!(message.contains("one of 4 processes, rank 0 as one of 3"), "{message}");
        // Whichever of the two comes first has the seat.
        let twins = [(); 2].map(|()| scope.spawn(|| Group::join(&launches[1]).and_then(Group::leave)));
        let mut refused = None;
        while refused.is_none() {
            assert!(!host.is_finished());
            refused = twins.iter().position(|twin| twin.is_finished());
            thread::sleep(Duration::from_millis(10));
        }
        Group::join(&launches[2]).unwrap().leave().unwrap();
        let results = twins.map(|twin| twin.join().unwrap());
        let message = results[refused.unwrap()].as_ref().unwrap_err().to_string();
        assert!(message.contains("rank 1 is here already"), "{message}");
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        host.join().unwrap().unwrap();
    });
}

#[test]
fn a_process_that_goes_is_named_to_all_others() {
    let results = together(3, |group, tcp| {
        if group.rank() == 2 {
            return Err(Error::Connection { operation: "test", reason: "a fault of its own".to_owned() });
        }
        let (heard, hears) = std::sync::mpsc::channel();
        group.on_failure(move |failure| heard.send(failure.rank).unwrap());
        // One waits for a message, one in the middle of a sum.
        let error = match group.rank() {
            0 => group.barrier().unwrap_err(),
            _ => tcp.all_reduce(ones(10)).and_then(|pending| pending.wait()).unwrap_err(),
        };
        assert_eq!(hears.recv(), Ok(2));
        assert!(group.check().is_err() && tcp.check().is_err());
        Err::<(), _>(error)
    });
    for result in &results[..2] {
        let text = result.as_ref().unwrap_err().to_string();
        assert!(text.starts_with("rank 2 (") && text.contains("a fault of its own"), "{text}");
    }
}

#[test]
fn a_process_that_falls_silent_is_named_after_the_timeout() {
    let launches = launches(2, SHORT);
    // Rank 1 joins through a relay that stops passing anything on, as a host that loses its power would.
    let relay = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let through = Launch { port: relay.local_addr().unwrap().port(), ..launches[1].clone() };
    let passing = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let flag = Arc::clone(&passing);
    let signs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&signs);
    let target = launches[0].port;
    thread::spawn(move || {
        for _ in 0..2 {
            let (caller, _) = relay.accept().unwrap();
            let host = connect(target);
            for (mut from, mut to) in
                [(caller.try_clone().unwrap(), host.try_clone().unwrap()), (host, caller)]
            {
                let (passing, seen) = (Arc::clone(&flag), Arc::clone(&count));
                thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        if passing.load(std::sync::atomic::Ordering::SeqCst)
                            && to.write_all(&buffer[..count]).is_err()
                        {
                            break;
                        }
                    }
                });
            }
        }
    });
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let group = Group::join(&through).unwrap();
            group.barrier().unwrap();
            group.barrier().unwrap_err().to_string()
        });
        let group = Group::join(&launches[0]).unwrap();
        group.barrier().unwrap();
        // Signs of life outlast the timeout: of those after it, some have come before one looks.
        thread::sleep(SHORT);
        let before = signs.load(std::sync::atomic::Ordering::SeqCst);
        while signs.load(std::sync::atomic::Ordering::SeqCst) < before + 4 {
            group.check().unwrap();
            thread::yield_now();
        }
        group.check().unwrap();
        passing.store(false, std::sync::atomic::Ordering::SeqCst);
        // The other one may have reached its second barrier before.
        let failed = (0..2).find_map(|_| group.barrier().err());
        let message = failed.unwrap().to_string();
        assert!(message.starts_with("rank 1 (") && message.contains("silent for 1.5 s"), "{message}");
        let message = other.join().unwrap();
        assert!(message.starts_with("rank 0 ("), "{message}");
    });
}

fn ones(count: usize) -> Array {
    Array::from_slice(&vec![1f32; count], [count], &Device::Cpu).unwrap()
}

#[test]
fn sums_are_right_and_the_same_bits_everywhere() {
    // Sizes around the pieces that are added at a time, and none at all.
    let sizes = [0, 1, 7, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 100_000];
    let inputs = |rank: usize| -> Vec<Vec<f32>> {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(rank as u64);
        sizes.iter().map(|&size| (0..size).map(|_| rng.random_range(-1e3f32..1e3)).collect()).collect()
    };
    let run = || {
        all_succeed(3, |group, tcp| {
            // All on their way at once.
            let begin = |values: &Vec<f32>| {
                tcp.all_reduce(Array::from_slice(values, [values.len()], &Device::Cpu).unwrap())
            };
            let pending = inputs(group.rank()).iter().map(begin).collect::<Result<Vec<_>, _>>()?;
            let sums = pending.into_iter().map(|pending| Ok(pending.wait()?.to_vec::<f32>()?));
            let sums = sums.collect::<Result<Vec<_>, Error>>()?;
            let root = Array::from_slice(&[group.rank() as f64 + 0.5; 6], [2, 3], &Device::Cpu).unwrap();
            let root = tcp.broadcast(root)?;
            assert_eq!(root.dims(), [2, 3]);
            Ok((sums, root.to_vec::<f64>()?))
        })
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second, "the same bits again");
    let all: Vec<_> = (0..3).map(inputs).collect();
    for (sums, root) in &first {
        assert_eq!(sums, &first[0].0);
        assert_eq!(root, &[0.5; 6]);
        for (size, sum) in sums.iter().enumerate() {
            for (element, sum) in sum.iter().enumerate() {
                let exact: f64 = all.iter().map(|inputs| f64::from(inputs[size][element])).sum();
                assert_eq!(*sum, exact as f32);
            }
        }
    }
}

#[test]
fn exchanges_that_do_not_match_are_refused() {
    let results = together(2, |group, tcp| tcp.all_reduce(ones(3 + group.rank()))?.wait().map(|_| ()));
    let texts: Vec<String> = results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
    assert!(texts[0].contains("rank 1 has a sum of 4 elements"), "{texts:?}");
    assert!(Tcp::new(&Arc::new(Group::join(&launches(1, SHORT)[0]).unwrap())).is_ok());
}
