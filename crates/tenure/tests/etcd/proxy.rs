//! Between the store and etcd: a proxy that breaks connections at the worst moments.
//!
//! The proxy knows enough of HTTP/2 to see where a request begins and what is in it: etcd's requests
//! are written in the clear. So a fault strikes a request, not some bytes. A test can choose the fault
//! that matters most: the request is carried out, and the answer never comes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tenure::store::etcd::Address;

/// What the proxy does with one request, and with its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection is cut, and etcd never sees it.
    CutBefore,
    /// The request is carried out, and the connection is cut instead of the answer.
    CutAfter,
    /// The request is carried out, the connection is cut, and from then on every connection is
    /// refused ([`Weather::Refusing`]).
    LastWord,
    /// The request comes this much later, and so does everything behind it.
    Delay(Duration),
    /// Nothing more of the connection is passed on, and it stays open.
    Swallow,
    /// Nothing more of the connection is passed on, and it stays open; but etcd gets this one request after this time.
    Late(Duration),
}

/// What the proxy does with everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Traffic is passed on, except for what is struck.
    Fair,
    /// Traffic is kept, both ways, and passed on when the weather changes: as in a partition that heals.
    Parted,
    /// Connections are cut, and new ones closed.
    Refusing,
}

/// How often each fault happens, in ten thousand requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    pub(crate) cut_before: u64,
    pub(crate) cut_after: u64,
    pub(crate) delay: u64,
    pub(crate) swallow: u64,
    pub(crate) late: u64,
}

/// Numbers that look random, and are the same for the same seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}

struct Plan {
    weather: Weather,
    /// The fault for the next request that contains these bytes, after this many that are spared.
    next: Vec<(Vec<u8>, u32, Fault)>,
    random: Option<(Dice, Rates)>,
    open: Vec<TcpStream>,
}

struct Shared {
    upstream: u16,
    plan: Mutex<Plan>,
    over: AtomicBool,
    requests: AtomicU64,
    struck: AtomicU64,
    late: AtomicU64,
}

impl Shared {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// What to do with a request.
    fn draw(&self, request: &[u8]) -> Option<Fault> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let mut plan = self.plan();
        let contains = |bytes: &[u8]| request.windows(bytes.len()).any(|window| window == bytes);
        let index = (plan.next.iter()).position(|(bytes, _, _)| contains(bytes));
        let fault = match index {
            Some(index) if plan.next[index].1 > 0 => {
                plan.next[index].1 -= 1;
                None
            }
            Some(index) => Some(plan.next.remove(index).2),
            None => plan.random.as_mut().and_then(|(dice, rates)| {
                let mut left = dice.below(10_000);
                let some_ms = Duration::from_millis(dice.below(40));
                let late = Duration::from_millis(500 + dice.below(4_000));
                let kinds = [
                    (rates.cut_before, Fault::CutBefore),
                    (rates.cut_after, Fault::CutAfter),
                    (rates.delay, Fault::Delay(some_ms)),
                    (rates.swallow, Fault::Swallow),
                    (rates.late, Fault::Late(late)),
                ];
                kinds.into_iter().find_map(|(rate, fault)| {
                    if left < rate {
                        return Some(fault);
                    }
                    left -= rate;
                    None
                })
            }),
        };
        if fault.is_some() {
            self.struck.fetch_add(1, Ordering::SeqCst);
        }
        fault
    }

    fn refuse(&self) {
        for stream in self.plan().open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits until nothing is kept back.
    fn wait_while_parted(&self) {
        while self.plan().weather == Weather::Parted && !self.is_over() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A proxy on a port of its own; its connections end with it.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    port: u16,
}

impl Proxy {
    /// In front of a port of this machine.
    pub(crate) fn to(upstream: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("its number").port();
        let shared = Arc::new(Shared {
            upstream,
            plan: Mutex::new(Plan {
                weather: Weather::Fair,
                next: Vec::new(),
                random: None,
                open: Vec::new(),
            }),
            over: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            struck: AtomicU64::new(0),
            late: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.is_over() {
                    return;
                }
                let Ok(client) = client else { continue };
                // A connection whose other side cannot be reached is closed by its drop.
                let _ = serve(&accepting, client);
            }
        });
        Self { shared, port }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn address(&self, prefix: &str) -> Address {
        super::server::address(&self.endpoint(), prefix)
    }

    /// Strikes at random from now on.
    pub(crate) fn at_random(&self, seed: u64, rates: Rates) {
        self.shared.plan().random = Some((Dice::new(seed), rates));
    }

    /// Strikes no more, and passes everything on.
    pub(crate) fn clear_up(&self) {
        let mut plan = self.shared.plan();
        plan.random = None;
        plan.next.clear();
        plan.weather = Weather::Fair;
    }

    /// Strikes the next request that has this text in it.
    pub(crate) fn strike(&self, text: &str, fault: Fault) {
        self.strike_after(0, text, fault);
    }

    /// Strikes the next request that has this text in it, after sparing the first ones.
    pub(crate) fn strike_after(&self, spared: u32, text: &str, fault: Fault) {
        let next = (text.as_bytes().to_vec(), spared, fault);
        self.shared.plan().next.push(next);
    }

    /// Whether all planned faults have struck.
    pub(crate) fn has_struck(&self) -> bool {
        self.shared.plan().next.is_empty()
    }

    pub(crate) fn weather(&self, weather: Weather) {
        self.shared.plan().weather = weather;
        if weather == Weather::Refusing {
            self.shared.refuse();
        }
    }

    /// How many requests have been carried out late.
    pub(crate) fn late(&self) -> u64 {
        self.shared.late.load(Ordering::SeqCst)
    }

    /// How many requests came, and how many of them were struck.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let count = |of: &AtomicU64| of.load(Ordering::SeqCst);
        (count(&self.shared.requests), count(&self.shared.struck))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.shared.refuse();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// What the two directions of a connection tell each other.
#[derive(Default)]
struct Pair {
    /// No answer is passed on any more.
    mute: AtomicBool,
    /// How many bytes of answers were not passed on.
    swallowed: AtomicU64,
}

fn serve(shared: &Arc<Shared>, client: TcpStream) -> std::io::Result<()> {
    if shared.plan().weather == Weather::Refusing {
        return Ok(());
    }
    let server = TcpStream::connect(("127.0.0.1", shared.upstream))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    {
        let mut plan = shared.plan();
        plan.open.push(client.try_clone()?);
        plan.open.push(server.try_clone()?);
    }
    let pair = Arc::new(Pair::default());
    let (from, into) = (server.try_clone()?, client.try_clone()?);
    let (answers, told) = (Arc::clone(shared), Arc::clone(&pair));
    std::thread::spawn(move || {
        let _ = pass_answers(&answers, &told, &from, &into);
        let _ = into.shutdown(Shutdown::Both);
    });
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let _ = pass_requests(&shared, &pair, &client, &server);
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    });
    Ok(())
}

fn pass_answers(
    shared: &Shared,
    pair: &Pair,
    mut server: &TcpStream,
    mut client: &TcpStream,
) -> std::io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        let read = server.read(&mut buffer)?;
        if read == 0 {
            // A swallowed connection stays open on the client's side, whatever etcd does.
            while pair.mute.load(Ordering::SeqCst) && !shared.is_over() && !is_closed(client) {
                std::thread::sleep(Duration::from_millis(5));
            }
            return Ok(());
        }
        shared.wait_while_parted();
        if pair.mute.load(Ordering::SeqCst) {
            pair.swallowed.fetch_add(read as u64, Ordering::SeqCst);
        } else {
            client.write_all(&buffer[..read])?;
        }
    }
}

/// Whether the other side has closed, as far as can be seen without taking anything.
fn is_closed(stream: &TcpStream) -> bool {
    let mut byte = [0];
    let waits = stream.set_nonblocking(true);
    let peeked = stream.peek(&mut byte);
    let again = stream.set_nonblocking(false);
    waits.is_err() || again.is_err() || matches!(peeked, Ok(0))
}

fn pass_requests(
    shared: &Shared,
    pair: &Pair,
    mut client: &TcpStream,
    mut server: &TcpStream,
) -> std::io::Result<()> {
    let mut preface = [0; 24];
    client.read_exact(&mut preface)?;
    shared.wait_while_parted();
    server.write_all(&preface)?;
    loop {
        let frame = read_frame(client)?;
        shared.wait_while_parted();
        let is_request = frame[3] == 0 && frame.len() > 9;
        match is_request.then(|| shared.draw(&frame)).flatten() {
            None => server.write_all(&frame)?,
            Some(Fault::LastWord) => {
                shared.plan().weather = Weather::Refusing;
                deliver(pair, server, &frame)?;
                shared.refuse();
                return Ok(());
            }
            Some(Fault::Delay(time)) => {
                std::thread::sleep(time);
                server.write_all(&frame)?;
            }
            Some(Fault::CutBefore) => return Ok(()),
            Some(Fault::CutAfter) => {
                deliver(pair, server, &frame)?;
                return Ok(());
            }
            Some(Fault::Swallow) => {
                pair.mute.store(true, Ordering::SeqCst);
                return drain(client);
            }
            Some(Fault::Late(time)) => {
                pair.mute.store(true, Ordering::SeqCst);
                let kept = server.try_clone()?;
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(time);
                        let _ = deliver(pair, &kept, &frame);
                        shared.late.fetch_add(1, Ordering::SeqCst);
                    });
                    let _ = drain(client);
                });
                return Ok(());
            }
        }
    }
}

/// Has a request carried out without letting the answer through.
fn deliver(pair: &Pair, mut server: &TcpStream, frame: &[u8]) -> std::io::Result<()> {
    pair.mute.store(true, Ordering::SeqCst);
    let before = pair.swallowed.load(Ordering::SeqCst);
    server.write_all(frame)?;
    let end = tenure_os::clock::instant() + Duration::from_millis(500);
    while pair.swallowed.load(Ordering::SeqCst) == before && tenure_os::clock::instant() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Reads and discards until the end.
fn drain(mut client: &TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    while client.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Reads a frame of HTTP/2 with its head: three bytes of length, a type, flags, a stream.
fn read_frame(mut client: &TcpStream) -> std::io::Result<Vec<u8>> {
    let mut frame = vec![0; 9];
    client.read_exact(&mut frame)?;
    let length = (usize::from(frame[0]) << 16) | (usize::from(frame[1]) << 8);
    let length = length | usize::from(frame[2]);
    frame.resize(9 + length, 0);
    client.read_exact(&mut frame[9..])?;
    Ok(frame)
}
