//! Promises: which arm is held against which, and the bar.
//!
//! Owns: the pairs, the bars, the words for them.
//! Does not own: what was measured (table).

use std::io;

use super::Arm;
use super::gets::ORDERS;
use super::keys::Order;
use super::ours::{BATCHED, LOOK_UP};
use super::table::Table;
use crate::tools::name_of;
use crate::verdict::{Bar, Verdict};

/// What is held against the bar.
enum Measure {
    /// Processor time of a get.
    CpuNs,
    /// Gets for each second of processor time, against another arm.
    Against(Arm),
    /// Two threads against one.
    Scaling,
}

struct Promise {
    ours: Arm,
    measure: Measure,
    bar: Bar,
}

pub(super) fn judge(table: &Table) -> io::Result<()> {
    for verdict in verdicts(table) {
        verdict.print()?;
    }
    Ok(())
}

/// Of those promises whose arms have run.
pub(super) fn verdicts(table: &Table) -> Vec<Verdict> {
    let of = |order| promises().into_iter().filter_map(move |promise| promise.verdict(table, order));
    ORDERS.into_iter().flat_map(of).collect()
}

fn promises() -> Vec<Promise> {
    let against = |ours, theirs, at_least| Promise {
        ours,
        measure: Measure::Against(theirs),
        bar: Bar::AtLeast(at_least),
    };
    vec![
        Promise { ours: LOOK_UP, measure: Measure::CpuNs, bar: Bar::AtMost(45.0) },
        against(LOOK_UP, Arm::QuickCache, 1.3),
        against(LOOK_UP, Arm::FoyerS3fifo, 6.0),
        against(LOOK_UP, Arm::FoyerLru, 6.0),
        against(LOOK_UP, Arm::Moka, 15.0),
        Promise { ours: LOOK_UP, measure: Measure::Scaling, bar: Bar::AtLeast(1.8) },
        against(Arm::Headwater8, Arm::Pread8, 12.0),
        against(Arm::Headwater4k, Arm::Pread4k, 2.0),
        against(BATCHED, Arm::Pread4k, 2.4),
    ]
}

impl Promise {
    fn verdict(&self, table: &Table, order: Order) -> Option<Verdict> {
        let line = table.of(self.ours, order, 1)?;
        let (ours, keys) = (name_of(self.ours), name_of(order));
        let (measured, title) = match self.measure {
            Measure::CpuNs => (line.cpu_ns_per_get, format!("{ours}, {keys}: ns of CPU a get")),
            Measure::Against(theirs) => {
                let ratio = line.gets_per_cpu_s / table.of(theirs, order, 1)?.gets_per_cpu_s;
                (ratio, format!("{ours} : {}, {keys}, gets per CPU second", name_of(theirs)))
            }
            Measure::Scaling => {
                (table.of(self.ours, order, 2)?.scaling, format!("{ours}, {keys}: 2 threads : 1"))
            }
        };
        Some(Verdict::new(title, measured, self.bar))
    }
}
