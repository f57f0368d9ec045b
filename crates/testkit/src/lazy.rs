//! Lazy memory: what this process has put on offer to the kernel (`MADV_FREE`), taken at once as a shortage of memory would take it.
//!
//! Owns: finding it, and having the kernel reclaim it.
//! Does not own: what is on offer.

use std::fs;
use std::ops::Range;

/// Has the kernel reclaim memory that is on offer. Pages that were written to since stay, and so may some that the kernel has in lists of
/// other processors. Nothing happens where the kernel cannot be asked (before Linux 5.4).
pub fn take_lazy_memory() {
    for Range { start, end } in lazy_memory(&smaps()) {
        // SAFETY: reclaiming changes no byte but those on offer, which read as zeros from then on, as they may at any moment; where
        // there is swap, others come back from there. A range that is gone is refused.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_PAGEOUT) };
    }
}

fn smaps() -> String {
    fs::read_to_string("/proc/self/smaps").unwrap_or_default()
}

/// Mappings that have any (proc_pid_smaps(5)).
fn lazy_memory(smaps: &str) -> Vec<Range<usize>> {
    let (mut found, mut mapping) = (Vec::new(), 0..0);
    for line in smaps.lines() {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        let address = |text: &str| usize::from_str_radix(text, 16).ok();
        if first == "LazyFree:" {
            if rest.trim() != "0 kB" {
                found.push(mapping.clone());
            }
        } else if let Some((start, end)) = first.split_once('-')
            && let (Some(start), Some(end)) = (address(start), address(end))
        {
            mapping = start..end;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    /// Goal: the mapping is the one that the kernel names. Method: two mappings in the kernel's form, of which one has some.
    #[test]
    fn mappings_are_found() {
        let mapping = |range: &str, kib: u32| {
            format!(
                "{range} rw-p 00000000 00:00 0    [heap]\nRss:    40 kB\nLazyFree:    {kib} kB\nVmFlags: rd wr\n"
            )
        };
        let text = mapping("7f00-9000", 0) + &mapping("a000-b000", 12);
        assert_eq!(lazy_memory(&text), slice::from_ref(&(0xa000..0xb000)));
    }

    /// Goal: what is on offer is taken, and nothing else. Method: pages of this process, of which the second half is offered, and
    /// most of it zeros then; a process of its own, because the allocator offers memory as well.
    #[test]
    #[cfg_attr(miri, ignore)]
    fn what_is_on_offer_is_taken() {
        const CHILD: &str = "HEADWATER_TESTKIT_LAZY";
        if std::env::var_os(CHILD).is_none() {
            let output = crate::run_self_with_env("lazy::tests::what_is_on_offer_is_taken", CHILD, "1");
            return assert!(output.status.success(), "{output:?}");
        }
        const HALF_BYTES: usize = 64 << 12;
        let mut memory = vec![7_u8; 2 * HALF_BYTES + 4096];
        let page = memory.as_ptr().align_offset(4096);
        let (kept, offered) = memory[page..][..2 * HALF_BYTES].split_at_mut(HALF_BYTES);
        // SAFETY: these pages are of the vector alone, and whatever they hold is bytes.
        let result = unsafe { libc::madvise(offered.as_mut_ptr().cast(), HALF_BYTES, libc::MADV_FREE) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        take_lazy_memory();
        assert!(kept.iter().all(|&byte| byte == 7));
        let pages = std::hint::black_box(offered).chunks(4096);
        let taken = pages.filter(|page| page.iter().all(|&byte| byte == 0)).count();
        assert!(taken >= HALF_BYTES / 4096 / 2, "{taken} pages");
    }
}
