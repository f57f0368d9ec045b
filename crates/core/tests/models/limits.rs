//! Limits: the values fit together.

use headwater_core::{Limits, LimitsError, ReadaheadLimits};

/// Goal: the default limits are usable as they are, together. Method: the rules between them, one by one.
#[test]
fn defaults_fit_together() {
    let limits = Limits::default();
    assert_eq!(limits.readahead.validate(), Ok(()));
    assert!((limits.queue_depth_min..=limits.queue_depth_max).contains(&limits.queue_depth_default));
    assert!(limits.memory_bytes_min <= limits.memory_bytes_default);
    assert!(limits.run_bytes_max <= limits.memory_bytes_min);
    assert!(limits.readahead.size_bytes_max <= limits.run_bytes_max);
    assert!(limits.readahead.distance_bytes_max < limits.memory_bytes_default);
    assert!(limits.retries_max > 0 && limits.threads_max > 0);
}

/// Goal: each rule of the readahead limits is told apart. Method: break one at a time.
#[test]
fn readahead_limits_name_the_broken_rule() {
    let good = ReadaheadLimits {
        size_bytes_min: 4096,
        size_bytes_max: 8192,
        distance_bytes_max: 8192,
        ..ReadaheadLimits::default()
    };
    assert_eq!(good.validate(), Ok(()));
    let broken = [
        (ReadaheadLimits { size_bytes_min: 0, ..good }, LimitsError::SizeZero),
        (ReadaheadLimits { size_bytes_min: 2048, ..good }, LimitsError::SizeNotPagesPowerOfTwo),
        (ReadaheadLimits { size_bytes_max: 12288, ..good }, LimitsError::SizeNotPagesPowerOfTwo),
        (ReadaheadLimits { size_bytes_max: 0, ..good }, LimitsError::SizeNotPagesPowerOfTwo),
        (ReadaheadLimits { size_bytes_min: 16384, ..good }, LimitsError::SizeMinAboveMax),
        (ReadaheadLimits { distance_bytes_max: 8191, ..good }, LimitsError::DistanceBelowSize),
    ];
    for (limits, error) in broken {
        assert_eq!(limits.validate(), Err(error), "{limits:?}");
        assert!(!error.to_string().is_empty());
    }
}
