//! Ways: how each row reads, by either store, on tokio.
//!
//! Owns: one run of an arm, its figures, that the bytes are right.
//! Does not own: which rows and arms there are (store).

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt};
use headwater_measure::{Figures, Meter, sum_of_words};
use headwater_object_store::v0_14::HeadwaterFileSystem;
use headwater_object_store::v0_14::object_store::local::LocalFileSystem;
use headwater_object_store::v0_14::object_store::path::Path;
use headwater_object_store::v0_14::object_store::{ObjectStore, ObjectStoreExt};
use headwater_testkit::{Pattern, Rng};

use super::{Arm, ArmOptions, LARGE, Row, pattern, small_bytes};

pub(super) fn run(options: &ArmOptions) -> io::Result<Figures> {
    let store: Arc<dyn ObjectStore> = match options.arm {
        Arm::Local => Arc::new(LocalFileSystem::new_with_prefix(&options.folder)?),
        Arm::Headwater | Arm::HeadwaterFirst => {
            Arc::new(HeadwaterFileSystem::new_with_prefix(&options.folder)?)
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let run = Run { options: options.clone(), store };
    // In a worker of the runtime, as query engines read; the thread of `block_on` is none.
    runtime.block_on(runtime.spawn(async move { run.row().await }))?
}

struct Run {
    options: ArmOptions,
    store: Arc<dyn ObjectStore>,
}

impl Run {
    async fn row(&self) -> io::Result<Figures> {
        let is_first = self.options.arm == Arm::HeadwaterFirst;
        if self.options.row.is_warm() && !is_first {
            self.fill_cache().await?;
        }
        let meter = Meter::start();
        match self.options.row {
            Row::StreamWarm | Row::StreamCold => Ok(per_gib(&meter, self.stream().await?)),
            Row::RangesWarm => Ok(per_gib(&meter, self.again_and_again().await?)),
            Row::RangesCold => Ok(per_gib(&meter, self.lists(0..COLD_CALLS).await?)),
            Row::RangeWarm => Ok(per_gib(&meter, self.side_by_side().await?)),
            Row::ObjectsWarm | Row::ObjectsCold => {
                self.objects().await?;
                let count = f64::from(self.options.objects);
                let cpu_us = meter.cpu_seconds() / count * 1e6;
                Ok(Figures::from([("files_per_s", count / meter.seconds()), ("cpu_us", cpu_us)]))
            }
        }
    }

    /// Has the cache hold what is read.
    async fn fill_cache(&self) -> io::Result<()> {
        if self.options.row.is_of_small_objects() {
            return self.objects().await;
        }
        self.stream().await.map(drop)
    }

    async fn stream(&self) -> io::Result<u64> {
        let mut stream = self.store.get(&Path::from(LARGE)).await?.into_stream();
        let (pattern, mut at) = (pattern(LARGE), 0);
        while let Some(bytes) = stream.try_next().await? {
            check(&pattern, at, &bytes)?;
            at += bytes.len() as u64;
        }
        Ok(at)
    }

    async fn again_and_again(&self) -> io::Result<u64> {
        let end = Instant::now() + Duration::from_secs_f64(self.options.seconds);
        let (mut bytes, mut call) = (0, 0);
        while Instant::now() < end {
            bytes += self.lists(call..call + 1).await?;
            call += 1;
        }
        Ok(bytes)
    }

    /// Calls that each ask for a list of ranges.
    async fn lists(&self, calls: Range<u64>) -> io::Result<u64> {
        let (location, pattern, mut bytes) = (Path::from(LARGE), pattern(LARGE), 0);
        for call in calls {
            let mut rng = Rng::new(call);
            let ranges: Vec<Range<u64>> = (0..RANGES).map(|_| self.range(&mut rng)).collect();
            for (range, read) in ranges.iter().zip(self.store.get_ranges(&location, &ranges).await?) {
                check(&pattern, range.start, &read)?;
                bytes += read.len() as u64;
            }
        }
        Ok(bytes)
    }

    async fn side_by_side(&self) -> io::Result<u64> {
        let end = Instant::now() + Duration::from_secs_f64(self.options.seconds);
        let (location, pattern, mut rng) = (Path::from(LARGE), pattern(LARGE), Rng::new(1));
        let ranges = std::iter::from_fn(|| (Instant::now() < end).then(|| self.range(&mut rng)));
        let get = async |range: Range<u64>| {
            let bytes = self.store.get_range(&location, range.clone()).await?;
            check(&pattern, range.start, &bytes)?;
            Ok(bytes.len() as u64)
        };
        let all = futures_util::stream::iter(ranges).map(get).buffer_unordered(IN_FLIGHT);
        all.try_fold(0, async |sum, bytes| Ok(sum + bytes)).await
    }

    fn range(&self, rng: &mut Rng) -> Range<u64> {
        let start = rng.below((self.options.mib << 20) - RANGE_BYTES);
        start..start + RANGE_BYTES
    }

    async fn objects(&self) -> io::Result<()> {
        for index in 0..self.options.objects {
            let name = index.to_string();
            let bytes = self.store.get(&Path::from(&*name)).await?.bytes().await?;
            if bytes.len() as u64 != small_bytes(index) {
                return Err(io::Error::other(format!("{name} has {} bytes", bytes.len())));
            }
            check(&pattern(&name), 0, &bytes)?;
        }
        Ok(())
    }
}

fn per_gib(meter: &Meter, bytes: u64) -> Figures {
    let (mib, gib) = (bytes as f64 / (1 << 20) as f64, bytes as f64 / (1 << 30) as f64);
    Figures::from([("mib_per_s", mib / meter.seconds()), ("cpu_s_per_gib", meter.cpu_seconds() / gib)])
}

/// Uses all bytes, as a program does that asked for them, and compares one of each page.
fn check(pattern: &Pattern, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
    std::hint::black_box(sum_of_words(bytes));
    for place in (0..bytes.len()).step_by(4096) {
        let at = offset_bytes + place as u64;
        if bytes[place] != pattern.byte(at) {
            return Err(io::Error::other(format!("another byte at {at}")));
        }
    }
    Ok(())
}

/// Of each call.
const RANGES: u64 = 100;

const RANGE_BYTES: u64 = 64 << 10;

/// Ranges of all calls together are a sixth of 1 GiB, so that few are met twice.
const COLD_CALLS: u64 = 30;

const IN_FLIGHT: usize = 32;
