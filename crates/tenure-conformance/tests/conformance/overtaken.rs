//! A store whose every call is overtaken, over any other store.
//!
//! A change must leave nothing behind but its draft and its answer, because a store may run it as often as it
//! likes. The tests of the etcd store compile this file once more.

use std::time::{Duration, Instant};
use tenure_conformance::Harness;
use tenure_core::{Claim, Evidence, Host, Liveness, LivenessLock, LockName, Process};
use tenure_store::contract::{
    Ask, Depth, Draft, Location, Notices, Outcome, Parked, Ring, Rules, Run, Step, Waiting, Which,
};
use tenure_store::{Handle, Reading, Store, StoreError, Wake};

/// The evidence for every claim here: its liveness lock is held, and the caller looks at no process.
pub(crate) const ALIVE: Evidence = Evidence {
    liveness_lock: LivenessLock::Held,
    process: Liveness::Unknown,
    command: Liveness::Unknown,
};

/// Shows each change the list once for nothing before its store does, as a store that is overtaken.
pub(crate) struct Overtaken<S>(S);

impl<S: Store> Store for Overtaken<S> {
    fn rules(&self) -> &Rules {
        self.0.rules()
    }

    fn location(&self, name: &LockName) -> Location {
        self.0.location(name)
    }

    fn read(&self, name: &LockName, of: Option<&dyn Handle>) -> Result<Reading, StoreError> {
        self.0.read(name, of)
    }

    fn transact(
        &self,
        ask: &Ask<'_>,
        change: &mut dyn FnMut(&mut Draft<'_>) -> Step,
    ) -> Result<Outcome, StoreError> {
        let reading = self.0.read(ask.name, None)?;
        let mut draft = Draft {
            entry: reading.entry().cloned().unwrap_or_default(),
            events: Vec::new(),
            unread: 0,
            corrupt: None,
            evidence: &|claim: &Claim, _: Depth| reading.evidence_of(claim).unwrap_or(ALIVE),
            stopped: &|claim: &Claim| reading.is_stopped(claim),
            entered: &|| false,
            written_ago_ms: &|| None,
        };
        let _ = change(&mut draft);
        let mut outcome = self.0.transact(ask, change)?;
        if let Outcome::Done(done) = &mut outcome
            && let Run::Nth(run) = &mut done.run
        {
            *run += 1;
        }
        Ok(outcome)
    }

    fn wait(&self, waiting: &Waiting<'_>, until: Option<Instant>) -> Result<Wake, StoreError> {
        self.0.wait(waiting, until)
    }

    fn park(&self, waiting: &Waiting<'_>, ring: &Ring) -> Result<Option<Parked>, StoreError> {
        self.0.park(waiting, ring)
    }

    fn names(&self, which: Which, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        self.0.names(which, each)
    }

    fn notices(&self, of: &dyn Handle) -> Option<Notices> {
        self.0.notices(of)
    }
}

/// Callers of which each is overtaken in all that it does.
pub(crate) struct AlwaysOvertaken<H>(pub(crate) H);

impl<H: Harness> Harness for AlwaysOvertaken<H> {
    type Store = Overtaken<H::Store>;

    fn store(&self) -> Overtaken<H::Store> {
        Overtaken(self.0.store())
    }

    fn name(&self) -> LockName {
        self.0.name()
    }

    fn host(&self) -> Host {
        self.0.host()
    }

    fn start_process(&self) -> Process {
        self.0.start_process()
    }

    fn end_process(&self, process: Process) {
        self.0.end_process(process);
    }

    fn stranger(&self) -> (Host, Process) {
        self.0.stranger()
    }

    fn patience(&self) -> Duration {
        self.0.patience()
    }
}
