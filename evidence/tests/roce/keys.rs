//! Keys and numbers of objects.

use mlx5::ib::{Access, Rc};
use mlx5::verbs::QueuePair;
use mlx5_evidence::Table;

use super::roce;
use rig::Rig;

fn rig() -> Rig {
    roce();
    Rig::new(mlx5_model::Mode::Trapped)
}

#[test]
fn keys_rise_by_one_index_and_one_or_two_variants() {
    let rig = rig();
    let table = Table::read("rkey");
    let row = table.rows().next().expect("a row");
    assert_eq!(row.text("most_likely_step"), "0x101_or_0x102");
    let share: f64 = row.number("probability_min").expect("a share");
    // Whatever is registered, and for what.
    let rights = [Access::LOCAL_WRITE, Access::LOCAL_WRITE | Access::REMOTE_WRITE, Access::empty()];
    let regions: Vec<_> = (0..64)
        .map(|index| rig.pd.allocate(64 << (index % 8), rights[index % 3]).expect("memory"))
        .collect();
    let keys: Vec<u32> = regions.iter().map(|region| region.rkey()).collect();
    assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:x?}");
    let steps = keys.windows(2).map(|pair| pair[1] - pair[0]);
    let usual = steps.filter(|step| matches!(step, 0x101 | 0x102)).count();
    assert!(usual as f64 > share * (keys.len() - 1) as f64, "{usual} of {}: {keys:x?}", keys.len());
}

#[test]
fn queue_pairs_are_numbered_in_turn() {
    let rig = rig();
    let cq = rig.cq(64);
    let pairs: Vec<_> = (0..8)
        .map(|_| QueuePair::<Rc, _>::builder(&rig.pd, &cq).build().expect("a queue pair"))
        .collect();
    let numbers: Vec<u32> = pairs.iter().map(QueuePair::number).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:x?}");
}
