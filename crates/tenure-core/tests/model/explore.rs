//! The explorer: every state that any order of steps leads to, breadth first, so that the first
//! violation found is one with a shortest history.

use crate::scenario::Scenario;
use crate::world::{Step, World};
use std::collections::HashMap;
use std::collections::VecDeque;
use std::fmt;

/// More states than this are a mistake in a scenario, not a model.
const STATES_MAX: usize = 3_000_000;

/// What an exploration came to.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    pub(crate) ends: usize,
    pub(crate) violation: Option<Violation>,
}

/// An invariant that does not hold, and the steps that lead there.
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) history: Vec<Step>,
    pub(crate) world: Box<World>,
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "violated: {}", self.invariant)?;
        for (number, step) in self.history.iter().enumerate() {
            match step.who {
                u8::MAX => writeln!(f, "{:>3}.    {}", number + 1, step.what)?,
                who => writeln!(f, "{:>3}. #{who} {}", number + 1, step.what)?,
            }
        }
        f.write_str(&self.world.summary())
    }
}

/// Explores one scenario to its end, or to its first violation.
pub(crate) fn explore(scenario: &Scenario) -> Report {
    let mut known: HashMap<Box<[u8]>, usize> = HashMap::new();
    // How each state was reached first: from which, and by which step.
    let mut origin: Vec<Option<(usize, Step)>> = vec![None];
    let mut edges: Vec<(usize, usize)> = Vec::new();
    let mut ends = 0;
    let mut queue = VecDeque::new();
    let first = World::new(scenario);
    known.insert(first.key(scenario), 0);
    queue.push_back((0, first));
    let mut violation = None;
    'all: while let Some((from, world)) = queue.pop_front() {
        let mut goes_on = false;
        for (step, next) in world.successors(scenario) {
            goes_on |= step.certain;
            if let Some(invariant) = next.violation() {
                let mut history = history(&origin, from);
                history.push(step);
                violation = Some(Violation {
                    invariant,
                    history,
                    world: Box::new(next),
                });
                break 'all;
            }
            let fresh = known.len();
            let to = *known.entry(next.key(scenario)).or_insert(fresh);
            edges.push((from, to));
            if to == fresh {
                assert!(fresh < STATES_MAX, "{}: too many states", scenario.name);
                origin.push(Some((from, step)));
                queue.push_back((to, next));
            }
        }
        if let Some(invariant) = world.violation_of_scopes(scenario) {
            violation = Some(Violation {
                invariant,
                history: history(&origin, from),
                world: Box::new(world),
            });
            break;
        }
        if !goes_on {
            ends += 1;
            if let Some(invariant) = world.violation_at_the_end(scenario) {
                violation = Some(Violation {
                    invariant,
                    history: history(&origin, from),
                    world: Box::new(world),
                });
                break;
            }
        }
    }
    if violation.is_none()
        && let Some(state) = in_a_cycle(known.len(), &edges)
    {
        violation = Some(Violation {
            invariant: "every history comes to an end",
            history: history(&origin, state),
            world: Box::new(World::new(scenario)),
        });
    }
    Report {
        states: known.len(),
        steps: edges.len(),
        ends,
        violation,
    }
}

fn history(origin: &[Option<(usize, Step)>], mut state: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some((from, step)) = origin[state] {
        steps.push(step);
        state = from;
    }
    steps.reverse();
    steps
}

/// A state on a cycle. Without one every history is finite, so that what holds in
/// every last state is what every history comes to, however unfair the scheduler.
fn in_a_cycle(states: usize, edges: &[(usize, usize)]) -> Option<usize> {
    let mut incoming = vec![0_usize; states];
    let mut start = vec![0_usize; states + 1];
    for (from, to) in edges {
        incoming[*to] += 1;
        start[from + 1] += 1;
    }
    for state in 0..states {
        start[state + 1] += start[state];
    }
    // Breadth first, all edges of one state were pushed together and states in ascending order.
    let mut ready: Vec<usize> = (0..states).filter(|state| incoming[*state] == 0).collect();
    let mut done = 0;
    while let Some(state) = ready.pop() {
        done += 1;
        for (_, to) in &edges[start[state]..start[state + 1]] {
            incoming[*to] -= 1;
            if incoming[*to] == 0 {
                ready.push(*to);
            }
        }
    }
    // What is left is on a cycle or behind one, and so is one before it. Going back long enough ends
    // on a cycle.
    let mut state = (0..states).find(|state| incoming[*state] > 0)?;
    let mut before = vec![None; states];
    for (from, to) in edges.iter().filter(|(from, _)| incoming[*from] > 0) {
        before[*to] = Some(*from);
    }
    for _ in done..states {
        state = before[state].unwrap_or(state);
    }
    Some(state)
}
