//! Tests: the search on simulated devices, of which the right answer is known.
//!
//! Owns: models of devices: bandwidth, latency, cost of a request, noise.
//! Does not own: the search.

use super::*;
use crate::shared::random::mixed;

/// Bytes a second as a function of the setting, without noise.
#[derive(Clone, Copy)]
struct Model {
    bandwidth: f64,
    /// Of a request, that others in flight hide.
    latency_s: f64,
    /// Of a request, that nothing hides.
    request_s: f64,
    /// Bandwidth of one request.
    lane: f64,
    /// What each doubling beyond 16 MiB in flight costs.
    crowding: f64,
}

/// One arm: requests in flight hide the time between them, no more.
const HARD_DISK: Model =
    Model { bandwidth: 200e6, latency_s: 300e-6, request_s: 20e-6, lane: 200e6, crowding: 0.0 };

/// What a host gives a guest: each request takes long, so depth matters.
const VIRTIO: Model =
    Model { bandwidth: 2.8e9, latency_s: 180e-6, request_s: 6e-6, lane: 2.2e9, crowding: 0.03 };

const NVME: Model = Model { bandwidth: 7e9, latency_s: 60e-6, request_s: 1.2e-6, lane: 3.2e9, crowding: 0.0 };

const MODELS: [Model; 3] = [HARD_DISK, VIRTIO, NVME];

impl Model {
    fn bytes_per_s(&self, Setting { size_bytes, depth }: Setting) -> f64 {
        let (size, depth) = (size_bytes as f64, f64::from(depth));
        let flowing = depth * size / (self.latency_s + size / self.lane);
        let serial = size / (self.request_s + size / self.bandwidth);
        let crowd = (size * depth / f64::from(16 << 20)).log2().max(0.0);
        flowing.min(serial) * (1.0 - self.crowding * crowd)
    }

    /// What a measurement of every setting without noise comes to.
    fn knee(&self, space: &Space) -> (Setting, f64) {
        let all = || (0..space.cells()).map(|cell| space.at(cell));
        let best = all().map(|setting| self.bytes_per_s(setting)).fold(0.0, f64::max);
        let near = all().filter(|&setting| self.bytes_per_s(setting) >= best * (1.0 - TOLERANCE));
        (near.min_by_key(|setting| setting.cost()).unwrap(), best)
    }
}

fn space() -> Space {
    Space {
        sizes: (12..=21).map(|shift| 1 << shift).collect(),
        depths: (0..=6).map(|shift| 1 << shift).collect(),
        queue_bytes_max: u64::MAX,
    }
}

fn measured(bytes_per_s: f64, took: Duration) -> Measured {
    Measured { bytes_per_s, mean_us: 1.0, p99_us: 1.0, took }
}

/// Between -1 and 1, the same for the same number.
fn noise(number: u64) -> f64 {
    mixed(number) as f64 / u64::MAX as f64 * 2.0 - 1.0
}

/// Goal: without noise the knee is found exactly, on every model, with at most half of all settings measured.
#[test]
fn the_knee_is_found() {
    for model in MODELS {
        let space = space();
        let (knee, best) = model.knee(&space);
        let found = search(&space, Duration::from_secs(30), &mut |setting, slice| {
            Ok(measured(model.bytes_per_s(setting), slice))
        })
        .unwrap();
        assert_eq!(found.chosen, knee, "the best is {best}");
        assert!(found.cells.len() * 2 <= space.cells() + 10, "{} cells", found.cells.len());
        assert!(found.share_of_best >= 1.0 - TOLERANCE);
    }
}

/// Goal: on a noisy machine the choice is still within a few per cent of the best, and costs little more than the knee.
/// Method: single measurements are off by up to 4 %, and in some stretches of time everything is half as fast.
#[test]
fn noise_does_not_mislead() {
    for (number, model) in MODELS.into_iter().enumerate() {
        for seed in 0..40 {
            let space = space();
            let (knee, best) = model.knee(&space);
            let (mut count, mut clock) = (seed * 1000 + number as u64 * 100_000, Duration::ZERO);
            let found = search(&space, Duration::from_secs(30), &mut |setting, slice| {
                count += 1;
                clock += slice;
                let stretch = if mixed(clock.as_secs() / 3 + seed).is_multiple_of(6) { 0.5 } else { 1.0 };
                Ok(measured(model.bytes_per_s(setting) * stretch * (1.0 + 0.04 * noise(count)), slice))
            })
            .unwrap();
            let share = model.bytes_per_s(found.chosen) / best;
            let (cost, least) = (found.chosen.queue_bytes(), knee.queue_bytes());
            assert!(share >= 0.94, "seed {seed}: {} reaches {share}", found.chosen.words());
            assert!(cost <= least * 2, "seed {seed}: {} for {}", found.chosen.words(), knee.words());
        }
    }
}

/// Goal: the budget is kept, however small, but for the rounds that a choice needs; slow devices take longer than asked.
#[test]
fn budgets_are_kept() {
    for seconds in [1, 2, 10, 60] {
        let budget = Duration::from_secs(seconds);
        let mut took = Duration::ZERO;
        search(&space(), budget, &mut |setting, slice| {
            took += slice;
            Ok(measured(VIRTIO.bytes_per_s(setting), slice))
        })
        .unwrap();
        assert!(took <= budget + SLICE_MAX * 8, "{took:?} of {budget:?}");
        assert!(took * 3 >= budget, "{took:?} of {budget:?}");
    }
}

/// Goal: of a single size every depth is measured, and of a single setting just that.
#[test]
fn small_spaces() {
    let row = Space { sizes: vec![4096], ..space() };
    let rate = |setting: Setting| f64::from(setting.depth.min(20));
    let found =
        search(&row, Duration::from_secs(5), &mut |setting, slice| Ok(measured(rate(setting), slice)));
    let found = found.unwrap();
    assert_eq!(found.cells.len(), 7);
    assert_eq!(found.chosen, Setting { size_bytes: 4096, depth: 32 });
    let single = Space { sizes: vec![4096], depths: vec![1], ..space() };
    let found = search(&single, Duration::ZERO, &mut |_, slice| Ok(measured(0.0, slice))).unwrap();
    assert_eq!(found.chosen, Setting { size_bytes: 4096, depth: 1 });
}

/// Goal: nothing is measured that takes more memory than there is, and the search knows when that was what stopped it.
#[test]
fn memory_bounds_the_search() {
    let settings: Vec<Setting> = (0..space().cells()).map(|cell| space().at(cell)).collect();
    for queue_bytes_max in [4 << 20, 9 << 20, 128 << 20] {
        let (bounded, seconds) = (Space { queue_bytes_max, ..space() }, Duration::from_secs(30));
        let mut most = 0;
        // The more is in flight, the better: whatever bounds it is what is reached.
        let found = search(&bounded, seconds, &mut |setting, slice| {
            most = setting.queue_bytes().max(most);
            Ok(measured(setting.queue_bytes() as f64, slice))
        });
        let (found, fit) = (found.unwrap(), |setting: &&Setting| setting.queue_bytes() <= queue_bytes_max);
        assert_eq!(settings.iter().filter(fit).map(|setting| setting.queue_bytes()).max(), Some(most));
        assert_eq!(bounded.ends_at(found.best), queue_bytes_max < 128 << 20, "{}", found.best.words());
        assert!(!bounded.ends_at(Setting { size_bytes: 4096, depth: 4 }));
    }
}

/// Goal: the knee is the cheapest within 3 %, by ratios within rounds; 4 % are too many.
#[test]
fn the_cheapest_within_the_tolerance() {
    let settings = [(4096, 1), (8192, 1), (4096, 2), (8192, 2)];
    let settings = settings.map(|(size_bytes, depth)| Setting { size_bytes, depth });
    // The second round is half as fast, which changes nothing.
    let rounds: Vec<Vec<f64>> = [1.0, 0.5, 1.0]
        .iter()
        .map(|speed| [96.0, 97.5, 98.0, 100.0].map(|rate| rate * speed).to_vec())
        .collect();
    let (chosen, best, share) = knee(&settings, &rounds);
    assert_eq!((chosen, best), (1, 3), "of the same memory the lesser depth");
    assert!((share - 0.975).abs() < 1e-9);
}

/// Goal: what a measurement fails with ends the search.
#[test]
fn errors_are_passed_on() {
    let found = search(&space(), Duration::from_secs(1), &mut |_, _| Err("unplugged".to_owned()));
    assert_eq!(found.unwrap_err(), "unplugged");
}
