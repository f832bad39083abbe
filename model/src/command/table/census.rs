//! Text of every object of a device, for comparisons.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::card::Card;
use crate::object::Table;

/// Kind and number of an object.
pub type Name = (&'static str, u32);

/// Every object: its user context and all that is known of it.
pub type Census = BTreeMap<Name, (u16, String)>;

/// Looks at every object of a card.
pub fn census(card: &Card) -> Census {
    let objects = &card.objects;
    let mut census = Census::new();
    enter(&mut census, "CQ", &objects.cqs, |cq| cq.uid);
    enter(&mut census, "SRQ", &objects.srqs, |srq| srq.uid);
    enter(&mut census, "EQ", &objects.eqs, |eq| eq.uid);
    enter(&mut census, "mkey", &objects.mkeys, |mkey| mkey.uid);
    enter(&mut census, "PD", &objects.pds, |pd| pd.uid);
    enter(&mut census, "XRC domain", &objects.xrcds, |domain| domain.uid);
    enter(&mut census, "transport domain", &objects.transport_domains, |domain| domain.uid);
    enter(&mut census, "TIR", &objects.tirs, |tir| tir.uid);
    enter(&mut census, "TIS", &objects.tises, |tis| tis.uid);
    enter(&mut census, "RQT", &objects.rqts, |rqt| rqt.uid);
    enter(&mut census, "flow table", &objects.steering.tables, |table| table.uid);
    let steering = &objects.steering;
    enter(&mut census, "changed headers", &steering.modify_headers, |context| context.uid);
    enter(&mut census, "reformatting", &steering.reformats, |context| context.uid);
    enter(&mut census, "flow counter", &objects.flow_counters, |counter| counter.uid);
    enter(&mut census, "UAR", &objects.uars, |uar| uar.uid);
    enter(&mut census, "umem", &objects.umems, |umem| umem.uid);
    enter(&mut census, "PSV", &objects.psvs, |psv| psv.uid);
    enter(&mut census, "counters", &objects.counters, |counters| counters.uid);
    enter(&mut census, "user context", &objects.uctxs, |()| 0);
    for (number, qp) in &objects.qps {
        let kind = (qp.service, qp.state, &qp.role);
        let text = format!("{kind:?} {:?} {:?} {:02x?}", qp.sq, qp.rq, qp.query());
        census.insert(("QP", *number), (qp.uid, text));
    }
    for (start, run) in card.memic.runs() {
        census.insert(("device memory", start as u32), (run.uid, format!("{run:?}")));
    }
    let function = format!("{:?}", card.function);
    census.insert(("the function", 0), (0, function));
    let rest = (&objects.groups, &objects.roce_addresses.len(), &objects.steering.roots);
    let rest = (rest, &objects.l2_table);
    census.insert(("the card", 0), (0, format!("{rest:?} {:?}", card.identity.gids)));
    census
}

fn enter<T: Debug>(
    census: &mut Census,
    kind: &'static str,
    table: &Table<T>,
    uid: impl Fn(&T) -> u16,
) {
    let objects = table.iter();
    census.extend(
        objects.map(|(number, object)| ((kind, number), (uid(object), format!("{object:02x?}")))),
    );
}
