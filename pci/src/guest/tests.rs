use std::ffi::CStr;
use std::fs::File;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

use super::*;

/// Returns a file in memory of this many bytes.
fn file(bytes: u64) -> OwnedFd {
    named(c"guest", bytes, 0)
}

/// The same, with a name and flags of `memfd_create`.
fn named(name: &CStr, bytes: u64, flags: libc::c_uint) -> OwnedFd {
    // SAFETY: the call reads the name. The descriptor it returns is new.
    let file = unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | flags);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    };
    file.set_len(bytes).unwrap();
    file.into()
}

fn guest() -> (GuestMemory, OwnedFd) {
    (GuestMemory::new().unwrap(), file(0x4000))
}

#[test]
fn accesses_reach_the_file_across_mappings() {
    let (guest, file) = guest();
    guest.map(0x1000, 0x1000, Rights::BOTH, Some((&file, 0x3000))).unwrap();
    guest.map(0x2000, 0x1000, Rights::BOTH, Some((&file, 0x1000))).unwrap();
    guest.write(0x1ffc, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let mut read = [0; 8];
    guest.read(0x1ffc, &mut read).unwrap();
    assert_eq!(read, [1, 2, 3, 4, 5, 6, 7, 8]);
    let content = File::from(file);
    content.read_exact_at(&mut read[..4], 0x3ffc).unwrap();
    content.read_exact_at(&mut read[4..], 0x1000).unwrap();
    assert_eq!(read, [1, 2, 3, 4, 5, 6, 7, 8]);
    let old = guest.update(0x2000, &mut |old| old.map(|byte| byte + 1)).unwrap();
    assert_eq!(old[..4], [5, 6, 7, 8]);
    guest.read(0x2000, &mut read[..4]).unwrap();
    assert_eq!(read[..4], [6, 7, 8, 9]);
}

#[test]
fn accesses_outside_and_against_rights_are_faults() {
    let (guest, file) = guest();
    guest.map(0x1000, 0x1000, Rights::READ, Some((&file, 0))).unwrap();
    guest.map(0x8000, 0x1000, Rights::BOTH, None).unwrap();
    let mut bytes = [0; 16];
    guest.read(0x1000, &mut bytes).unwrap();
    assert_eq!(guest.read(0x1ff8, &mut bytes), Err(Fault(0x2000)));
    assert_eq!(guest.read(0xff8, &mut bytes), Err(Fault(0xff8)));
    assert_eq!(guest.read(u64::MAX - 4, &mut bytes), Err(Fault(u64::MAX - 4)));
    assert_eq!(guest.write(0x1000, &bytes), Err(Fault(0x1000)));
    assert_eq!(guest.update(0x1000, &mut |old| old), Err(Fault(0x1000)));
    assert_eq!(guest.read(0x8000, &mut bytes), Err(Fault(0x8000)), "the client did not share it");
    guest.unmap(0x1000, 0x1000).unwrap();
    assert_eq!(guest.read(0x1000, &mut bytes), Err(Fault(0x1000)));
}

#[test]
fn a_file_that_shrinks_makes_accesses_fault() {
    let (guest, file) = guest();
    guest.map(0, 0x4000, Rights::BOTH, Some((&file, 0))).unwrap();
    guest.write(0x2000, &[9; 8]).unwrap();
    File::from(file).set_len(0x1000).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(guest.read(0x2000, &mut bytes), Err(Fault(0x2000)));
    assert_eq!(guest.write(0x2000, &bytes), Err(Fault(0x2000)));
    assert_eq!(guest.update(0x2000, &mut |old| old), Err(Fault(0x2000)));
    guest.read(0xff8, &mut bytes).unwrap();
}

#[test]
fn maps_that_lie_are_refused() {
    let (guest, file) = guest();
    let map =
        |address, length, offset| guest.map(address, length, Rights::BOTH, Some((&file, offset)));
    assert_eq!(map(0, 0x5000, 0), Err(Refusal::Invalid), "the file is shorter");
    assert_eq!(map(0, 0x1000, 0x4000), Err(Refusal::Invalid));
    assert_eq!(map(0, 0x1000, u64::MAX), Err(Refusal::Invalid));
    assert_eq!(map(0, 0, 0), Err(Refusal::Invalid));
    assert_eq!(map(u64::MAX, 0x1000, 0), Err(Refusal::Invalid));
    assert_eq!(map(0, 0x1000, 1), Err(Refusal::Invalid));
    assert_eq!(map(0, 0x800, 0), Err(Refusal::Invalid));
    assert_eq!(map(0x800, 0x1000, 0), Err(Refusal::Invalid));
    map(0x2000, 0x2000, 0).unwrap();
    assert_eq!(map(0x1000, 0x2000, 0), Err(Refusal::Exists));
    assert_eq!(map(0x3000, 0x1000, 0), Err(Refusal::Exists));
    assert_eq!(guest.unmap(0x2000, 0x1000), Err(Refusal::Invalid), "cuts the mapping");
    assert_eq!(guest.unmap(0x3000, 0x1000), Err(Refusal::Invalid));
    assert_eq!(guest.unmap(0x6000, 0x1000), Err(Refusal::Invalid), "nothing is there");
    let device = OwnedFd::from(File::open("/dev/zero").unwrap());
    let of_device = guest.map(0x9000, 0x1000, Rights::READ, Some((&device, 0)));
    assert_eq!(of_device, Err(Refusal::Invalid));
}

#[test]
fn mappings_are_bounded() {
    let (guest, _) = guest();
    for page in 0..MAX_MAPPINGS as u64 {
        guest.map(page << 12, 0x1000, Rights::READ, None).unwrap();
    }
    let more = guest.map(1 << 40, 0x1000, Rights::READ, None);
    assert_eq!(more, Err(Refusal::TooMuch));
}

#[test]
fn mapped_bytes_are_bounded() {
    let (guest, _) = guest();
    let sparse = file(MAX_MAPPED * 2);
    let map = |address, length, file| guest.map(address, length, Rights::BOTH, file);
    assert_eq!(map(0, MAX_MAPPED + 0x1000, Some((&sparse, 0))), Err(Refusal::TooMuch));
    map(0, MAX_MAPPED - 0x1000, Some((&sparse, 0))).unwrap();
    assert_eq!(map(1 << 50, 0x2000, Some((&sparse, 0))), Err(Refusal::TooMuch));
    map(1 << 51, MAX_MAPPED, None).expect("a range without a file takes no memory");
    map(1 << 50, 0x1000, Some((&sparse, 0))).unwrap();
    assert_eq!(map(1 << 52, 0x1000, Some((&sparse, 0))), Err(Refusal::TooMuch));
    guest.unmap(1 << 50, 0x1000).unwrap();
    map(1 << 52, 0x1000, Some((&sparse, 0))).expect("an unmapped range is free again");
}

#[test]
fn files_that_are_not_in_memory_are_refused() {
    let (guest, memory) = guest();
    // A page long, and in no memory, wherever the sources are.
    let other = OwnedFd::from(File::open("/sys/devices/system/cpu/online").unwrap());
    let of_other = guest.map(0, 0x1000, Rights::READ, Some((&other, 0)));
    assert_eq!(of_other, Err(Refusal::NotInMemory));
    guest.map(0, 0x1000, Rights::READ, Some((&memory, 0))).unwrap();
    let path = format!("/dev/shm/mlx5-model-pci-{}", std::process::id());
    let shared = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    shared.set_len(0x1000).unwrap();
    guest.map(0x1000, 0x1000, Rights::BOTH, Some((&shared.into(), 0))).unwrap();
}

#[test]
fn parts_of_huge_pages_are_mapped_and_wholly_unmapped() {
    const HUGE: u64 = 2 << 20;
    let guest = GuestMemory::new().unwrap();
    let size = libc::MFD_HUGETLB | libc::MFD_HUGE_2MB;
    let huge = File::from(named(c"huge pages", HUGE * 2, size));
    let shared = OwnedFd::from(huge.try_clone().unwrap());
    for _ in 0..3 {
        guest.map(0x1000, 0x3000, Rights::BOTH, Some((&shared, HUGE + 0x5000))).unwrap();
        match guest.write(0x2ffc, &[7; 8]) {
            Ok(()) => {
                let mut read = [0; 8];
                huge.read_exact_at(&mut read, HUGE + 0x6ffc).unwrap();
                assert_eq!(read, [7; 8]);
            }
            Err(fault) => assert_eq!(fault, Fault(0x2ffc), "no huge page is free"),
        }
        assert_eq!(guest.write(0x4000, &[7; 8]), Err(Fault(0x4000)), "behind the part");
        guest.unmap(0x1000, 0x3000).unwrap();
    }
    let mapped = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!mapped.contains("huge pages"), "{mapped}");
}
