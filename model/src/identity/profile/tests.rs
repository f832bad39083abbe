use super::*;

#[test]
fn every_profile_has_its_name_and_number() {
    for (number, profile) in Profile::ALL.into_iter().enumerate() {
        assert_eq!(profile as usize, number);
        assert_eq!(Profile::named(profile.name()), Some(profile));
        assert!(profile.carries(Link::Roce));
    }
    assert_eq!(Profile::named("cx4"), None);
    assert_eq!(Profile::default(), Profile::Complete);
    let devices = Profile::ALL.map(Profile::device);
    assert_eq!(devices, [0x101b, 0x1017, 0x101b, 0x101d, 0x1021]);
    assert!(!Profile::ConnectX6Dx.carries(Link::InfiniBand));
}

#[test]
fn a_summary_names_the_profile_and_where_its_values_are_from() {
    for profile in Profile::ALL {
        let words = profile.summary().strip_prefix(&format!("profile {}, ", profile.name()));
        let known = ["sourced", "sourced in part", "assumed"];
        assert!(words.is_some_and(|words| known.contains(&words)), "{}", profile.summary());
    }
}

#[test]
fn a_later_generation_lacks_nothing_that_an_earlier_one_has() {
    // An adapter of Ethernet alone matches no tags.
    let features =
        [Feature::EnhancedCqes, Feature::DmaCopy, Feature::DciStreams, Feature::Recordless];
    let matches = Profile::ALL.map(|profile| profile.has(Feature::TagMatching));
    assert_eq!(matches, [true, true, true, false, true]);
    for pair in Profile::ALL[1..].windows(2) {
        for feature in features {
            assert!(!pair[0].has(feature) || pair[1].has(feature), "{pair:?} {feature:?}");
        }
    }
    assert!(features.into_iter().all(|feature| Profile::Complete.has(feature)));
    assert!(!features.into_iter().any(|feature| Profile::ConnectX5.has(feature)));
}
