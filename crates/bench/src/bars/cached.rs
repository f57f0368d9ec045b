//! Cached: a cold file read in order by `read_at` through headwater's cache, and what that leaves of a hot set.
//!
//! Owns: which scans are held against which, what is promised.
//! Does not own: the hot set and how it is counted (arms).

use std::io;

use super::{Cache, Contest, FIO_SCANS, Runner, rate};
use crate::arms::{Arm, HotFiles};
use crate::tools;
use crate::tools::Sample;
use headwater_measure::median;
use headwater_measure::verdict::{Limit, detail, report, skipped};

impl Contest<'_> {
    /// The hot set is read before the scan and not during it, which is harder than being in use all the time.
    pub(super) fn cached(&self) -> io::Result<()> {
        if self.length_bytes < LENGTH_BYTES_MIN {
            let (have, need) = (self.length_bytes >> 20, LENGTH_BYTES_MIN >> 20);
            return skipped("scan through the cache", &format!("takes a file of {need} MiB, not {have}"));
        }
        let hot = HotFiles::beside(self.file)?;
        let mut arms = vec![Runner::Arm(Arm::ScanHeadwater, 32)];
        arms.extend(SCANS.map(|scan| Runner::Beside(scan.arm, MEMORY_MIB, hot.folder().to_owned())));
        arms.extend(self.fio_scan()?);
        let samples = self.rounds(&arms, Cache::Cold)?;
        detail(&format!("{:<16} {}", "direct scan", words(&samples[0])))?;
        for (scan, samples) in SCANS.iter().zip(&samples[1..]) {
            detail(&format!("{:<16} {}", scan.name, words(samples)))?;
        }
        if let Some(fio) = samples.get(1 + SCANS.len()) {
            detail(&format!("{:<16} {}", "fio 1M x 32", words(fio)))?;
        }
        for (scan, of_scan) in SCANS.iter().zip(&samples[1..]) {
            let title = format!("scan through the cache, {} : direct scan", scan.name);
            report(&title, rate(of_scan) / rate(&samples[0]), Limit::AtLeast(0.95))?;
            if let Some(fio) = samples.get(1 + SCANS.len()) {
                detail(&format!("  to fio 1M x 32 it is {:.3}", rate(of_scan) / rate(fio)))?;
            }
            let share = median(of_scan.iter().map(|sample| sample.hot_share));
            report("  of a hot set of 256 MiB in 1 GiB, still there", share, Limit::AtLeast(0.95))?;
        }
        Ok(())
    }

    /// The first of fio's scans, where it can run: it needs huge pages.
    fn fio_scan(&self) -> io::Result<Option<Runner>> {
        let scan: Vec<String> = FIO_SCANS[0].map(str::to_owned).to_vec();
        let probe: Vec<String> = scan.iter().cloned().chain(["--size=32M".to_owned()]).collect();
        match tools::fio(self.file, &probe) {
            Ok(_) => Ok(Some(Runner::Fio(scan))),
            Err(error) => skipped("scan through the cache : fio", &error).map(|()| None),
        }
    }
}

fn words(samples: &[Sample]) -> String {
    let cpu = median(samples.iter().map(|sample| sample.cpu_s_per_gib));
    format!("{:>6.0} MiB/s, {cpu:.3} CPU-s/GiB", rate(samples))
}

struct Scan {
    name: &'static str,
    arm: Arm,
}

const SCANS: [Scan; 2] = [
    Scan { name: "read_at 64 KiB", arm: Arm::ScanCached64k },
    Scan { name: "read_at 1 MiB", arm: Arm::ScanCached1m },
];

/// Of the engine; its cache takes seven eighths at most.
const MEMORY_MIB: u64 = 1024;

/// Twice the memory: all of it would leave the cache, if it could be pushed out by a scan.
const LENGTH_BYTES_MIN: u64 = 2 << 30;
