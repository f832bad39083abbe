//! Unit tests.

use super::*;

#[test]
fn a_folder_without_a_board_id_has_none() {
    assert_eq!(board_id(Path::new("/nonexistent")), None);
}
