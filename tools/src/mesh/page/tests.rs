use super::*;
use crate::mesh::conduct::Link;
use crate::mesh::facts::Facts;
use crate::mesh::launcher::Launcher;
use crate::mesh::meeting::State;
use crate::mesh::outliers::tests::link;
use crate::mesh::outliers::{Rule, beyond, bounds};
use crate::mesh::report::{Measure, Rank, Report, Scheduled};
use crate::mesh::words::Traffic;

/// A run of so many ranks, two on each host, with one slow rank and one link without a result.
fn report(ranks: u32) -> Report {
    let slow = ranks / 3;
    let figure = |from: u32, to: u32| {
        let noise =
            f64::from((from.wrapping_mul(2_654_435_761) ^ to.wrapping_mul(40_503)) % 97) / 97.0;
        let far = if from / 32 == to / 32 { 0.0 } else { 0.6 };
        let bad = if from == slow || to == slow { 8.0 } else { 1.0 };
        (1.6 + far + 0.2 * noise) * bad
    };
    let pairs = (0..ranks).flat_map(|from| (from + 1..ranks).map(move |to| (from, to)));
    let mut links: Vec<Link> =
        pairs.map(|(from, to)| link(from, to, figure(from, to), 0)).collect();
    links[0] =
        Link { from: 0, to: 1, figures: vec![], error: Some("<retries> exceeded".to_owned()) };
    let kinds = [Kind::Lat];
    let bounds = bounds(&links, &kinds, Rule { apart: 1.5 });
    let outliers = beyond(&links, &kinds, &bounds);
    let bad = outliers.iter().map(|outlier| (outlier.from, outlier.to));
    let rank = |rank: u32| Rank {
        rank,
        state: State::Present,
        rail: rank % 2,
        switch: None,
        facts: Some(Facts {
            obstacle: None,
            ..Facts::without_device(Some(&format!("c{}</script>", rank / 2)), None, String::new())
        }),
        counters: vec![],
    };
    let ranks: Vec<Rank> = (0..ranks).map(rank).collect();
    let spots: Vec<_> = ranks.iter().map(Rank::spot).collect();
    let all = links.iter().map(|link| (link.from, link.to));
    let groups = crate::mesh::groups::groups(&spots, all, bad.chain([(0, 1)]));
    let traffic = Traffic { kind: Kind::Lat, options: String::new() };
    Report {
        command: vec![],
        began: 1.7e9,
        seconds: 12.0,
        launcher: Launcher::Options,
        pattern: "all pairs".to_owned(),
        schedule: Scheduled { links: links.len(), rounds: 1, optimum: 1 },
        model: true,
        interrupted: false,
        traffic: vec![Measure { name: "lat send rc 8 bytes".into(), unit: "µs".into(), traffic }],
        ranks,
        odd: vec![],
        rising: vec![],
        links,
        bounds,
        again: vec![],
        outliers,
        beside: vec![],
        groups,
        comparison: None,
        notes: vec![],
    }
}

#[test]
fn a_page_has_the_findings_and_loads_nothing() {
    let page = text(&report(12));
    assert!(page.contains("rank 4 (host c2&lt;/script&gt;"), "{}", &page[..4000]);
    assert!(page.contains("&lt;retries&gt; exceeded"));
    for outside in ["http://", "https://", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    // The script that the policy allows, and no other end of one.
    assert_eq!(page.matches("</script>").count(), 2);
    let hash = BASE64_STANDARD.encode(Sha256::digest(SCRIPT.as_bytes()));
    assert!(page.contains(&format!("script-src 'sha256-{hash}'")));
}

#[test]
fn a_matrix_has_each_link_from_both_ends_unless_both_were_measured() {
    let mut report = report(4);
    report.links.push(link(3, 2, 7.0, 0));
    let bytes = BASE64_STANDARD.decode(matrix(&report, 0)).unwrap();
    let value = |from: usize, to: usize| {
        let at = 4 * (from * 4 + to);
        f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    assert!(value(1, 1).is_nan());
    assert_eq!((value(0, 1), value(1, 0)), (FAILED, FAILED));
    assert_eq!(value(0, 2), value(2, 0));
    assert_eq!(value(3, 2), 7.0);
    assert!(value(2, 3) != 7.0);
}

/// Writes the page of 1,024 ranks to the file that `MLX5_MESH_PAGE` names, to be looked at.
#[test]
fn a_thousand_ranks_fit_one_page() {
    let ranks = if std::env::var_os("MLX5_MESH_PAGE").is_some() { 1024 } else { 256 };
    let page = text(&report(ranks));
    // Four bytes of each pair in Base64, and what is beside them.
    let most = (ranks as usize).pow(2) * 16 / 3 + (1 << 20);
    assert!(page.len() < most, "{} bytes of {most}", page.len());
    if let Some(file) = std::env::var_os("MLX5_MESH_PAGE") {
        std::fs::write(file, page).unwrap();
    }
}
