//! How a request to stop arrives from outside: as a signal, on Windows as an event of the console.
//!
//! Signals come through pipes (signal-hook), so nothing but a write happens in a handler. The console of
//! Windows calls from a thread of its own, which counts and rings.

#[cfg(unix)]
pub(super) use unix::{Arrivals, end_process};
#[cfg(windows)]
pub(super) use windows::{Arrivals, end_process};

#[cfg(unix)]
mod unix {
    use crate::envelope::StopSignal;
    use crate::os::{BorrowedDescriptor, borrow};
    use std::io::{self, Read};
    use std::os::unix::net::UnixStream;

    /// The signals that are received, each with the end of its pipe.
    pub(in super::super) struct Arrivals(Vec<(StopSignal, UnixStream)>);

    impl Arrivals {
        /// Receives signals from now on.
        pub(in super::super) fn receive() -> io::Result<Self> {
            let ignored = ignored_signals();
            let mut arrivals = Vec::new();
            for signal in [
                StopSignal::Terminate,
                StopSignal::Interrupt,
                StopSignal::Hangup,
            ] {
                // A signal that was ignored at the start stays ignored, as under nohup(1).
                if ignored >> (signal.number() - 1) & 1 == 1 {
                    continue;
                }
                let (arrives, sends) = UnixStream::pair()?;
                arrives.set_nonblocking(true)?;
                signal_hook::low_level::pipe::register(signal.number().into(), sends)?;
                arrivals.push((signal, arrives));
            }
            Ok(Self(arrivals))
        }

        /// What to poll.
        pub(in super::super) fn descriptors(&self) -> Vec<BorrowedDescriptor<'_>> {
            self.0.iter().map(|(_, arrives)| borrow(arrives)).collect()
        }

        /// What has arrived since the last look, and how often.
        pub(in super::super) fn take(&self) -> Vec<(StopSignal, u32)> {
            let mut taken = Vec::new();
            for (signal, arrives) in &self.0 {
                let mut bytes = [0; 16];
                let mut count = 0;
                while let Ok(read @ 1..) = (&*arrives).read(&mut bytes) {
                    count += u32::try_from(read).unwrap_or(u32::MAX);
                }
                if count > 0 {
                    taken.push((*signal, count));
                }
            }
            taken
        }
    }

    /// The signals that are ignored, as bits from signal 1 on. None where that cannot be seen.
    fn ignored_signals() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.unwrap_or(0)
    }

    /// Ends the process at once, without anything that normally runs at its end.
    pub(in super::super) fn end_process(code: u8) -> ! {
        signal_hook::low_level::exit(code.into())
    }
}

#[cfg(windows)]
mod windows {
    use crate::envelope::StopSignal;
    use crate::os::{BorrowedDescriptor, console};
    use std::io;

    pub(in super::super) use console::end_process;

    /// Ctrl-C counts as SIGINT, Ctrl-Break as SIGTERM, a window that is closed and the end of the session
    /// as SIGHUP.
    const SIGNALS: [StopSignal; 3] = [
        StopSignal::Interrupt,
        StopSignal::Terminate,
        StopSignal::Hangup,
    ];

    /// The console's events.
    pub(in super::super) struct Arrivals(console::Events);

    impl Arrivals {
        /// Receives events from now on.
        pub(in super::super) fn receive() -> io::Result<Self> {
            Ok(Self(console::events()?))
        }

        /// What to poll.
        pub(in super::super) fn descriptors(&self) -> Vec<BorrowedDescriptor<'_>> {
            vec![self.0.descriptor()]
        }

        /// What has arrived since the last look, and how often.
        pub(in super::super) fn take(&self) -> Vec<(StopSignal, u32)> {
            let counts = SIGNALS.into_iter().zip(self.0.take());
            counts.filter(|(_, count)| *count > 0).collect()
        }
    }
}
