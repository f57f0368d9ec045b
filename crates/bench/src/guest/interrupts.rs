//! Interrupts: how many the NVMe queues have raised, by `/proc/interrupts`.

use std::io;

/// Of all queues, the one for commands to the controller included. A polled queue has no line there.
pub(crate) fn of_nvme() -> io::Result<u64> {
    Ok(sum(&std::fs::read_to_string("/proc/interrupts")?, "nvme"))
}

/// Sums the counts of all processors over the lines whose last word, the name of the handler, begins with `device`.
fn sum(table: &str, device: &str) -> u64 {
    let lines = table.lines().filter_map(|line| line.split_once(':').map(|(_, rest)| rest));
    lines
        .filter(|line| line.split_whitespace().next_back().is_some_and(|name| name.starts_with(device)))
        .flat_map(|line| line.split_whitespace().map_while(|word| word.parse::<u64>().ok()))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: counts of all processors are added, and numbers that are no counts (the vector after the controller's
    /// name) and other devices are left out.
    #[test]
    fn counts_are_summed() {
        let table = "           CPU0       CPU1       \n\
                     \x20  4:        520          7   IO-APIC   4-edge      ttyS0\n\
                     \x20 24:         31          2  PCI-MSIX-0000:00:03.0    0-edge      nvme0q0\n\
                     \x20 25:       1000          0  PCI-MSI 49153-edge      nvme0q1\n\
                     \x20 26:          0       4000  PCI-MSI 49154-edge      nvme0q2\n\
                     NMI:          0          9   Non-maskable interrupts\n\
                     ERR:          5\n";
        assert_eq!(sum(table, "nvme"), 5033);
        assert_eq!(sum(table, "ttyS0"), 527);
        assert_eq!(sum("", "nvme"), 0);
    }
}
