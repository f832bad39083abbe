pub(crate) const CASES: &[crate::case::Case] = &[];
